// The kernels of infeed as functions of the host, by name, for the mock driver and for tests.
#define INFEED_HOST 1
#include "shim.h"

#include "../../../src/sys/kernels/resample.cu"

namespace {

template <void (*K)(const Item*, const float*, unsigned, unsigned, unsigned, unsigned, unsigned)> void call(void** args) {
    const auto number = [&](int i) { return *static_cast<const unsigned*>(args[i]); };
    K(*static_cast<const Item**>(args[0]), *static_cast<const float**>(args[1]), number(2), number(3), number(4), number(5),
      number(6));
}

struct Entry {
    const char* name;
    void (*call)(void**);
};

#define ENTRY(name) {#name, call<name>}
const Entry KERNELS[] = {
    ENTRY(resample_u8_to_u8),   ENTRY(resample_u8_to_f16),   ENTRY(resample_u8_to_bf16),   ENTRY(resample_u8_to_f32),
    ENTRY(resample_u16_to_u8),  ENTRY(resample_u16_to_f16),  ENTRY(resample_u16_to_bf16),  ENTRY(resample_u16_to_f32),
    ENTRY(resample_f32_to_u8),  ENTRY(resample_f32_to_f16),  ENTRY(resample_f32_to_bf16),  ENTRY(resample_f32_to_f32),
};

const Entry* find(const char* name) {
    for (const Entry& entry : KERNELS)
        if (!std::strcmp(entry.name, name)) return &entry;
    return nullptr;
}

} // namespace

// Bytes of each argument of a kernel, at most `max` of them; gives their number, or -1 when there is no such kernel.
extern "C" int infeed_mock_arg_sizes(const char* name, unsigned* sizes, int max) {
    const unsigned all[] = {8, 8, 4, 4, 4, 4, 4};
    if (!find(name)) return -1;
    for (int i = 0; i < 7 && i < max; ++i) sizes[i] = all[i];
    return 7;
}

// Runs a kernel to its end on this thread: 0; 500 (CUDA_ERROR_NOT_FOUND) when there is no such kernel; 1
// (CUDA_ERROR_INVALID_VALUE) for a shape that no GPU takes; 719 (CUDA_ERROR_LAUNCH_FAILED) when threads of a block meet
// different barriers. `args[i]` points to argument `i`, as for cuLaunchKernel.
extern "C" int infeed_mock_launch(const char* name, const unsigned grid[3], const unsigned block[3], unsigned shared_bytes, void** args) {
    const Entry* entry = find(name);
    if (!entry) return 500;
    return infeed::run_grid(grid, block, shared_bytes, entry->call, args);
}

// From now on, pixels and tables that kernels launched by this thread read must lie in one of two ranges.
extern "C" void infeed_mock_watch(const void* start0, size_t len0, const void* start1, size_t len1) {
    infeed::watch = {{static_cast<const char*>(start0), static_cast<const char*>(start1)}, {len0, len1}, true, 0};
}

// Ends the watch; gives the number of reads elsewhere.
extern "C" unsigned infeed_mock_strays() {
    infeed::watch.on = false;
    return infeed::watch.strays;
}
