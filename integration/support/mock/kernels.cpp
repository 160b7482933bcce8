// The kernels of infeed as functions of the host, by name, for the mock driver and for tests.
#define INFEED_HOST 1
#include "shim.h"

#include <utility>

#include "../../../crates/infeed-cuda/src/cuda/resample.cu"

#include "../../../crates/infeed-cuda/src/cuda/picture.cu"

#include "../../../crates/infeed-cuda/src/cuda/colour.cu"

namespace {

struct Entry {
    const char* name;
    void (*call)(void**);
    // Bytes of each argument.
    unsigned sizes[8];
    int count;
};

// Calls a kernel with what `args[i]` points to as argument `i`.
template <auto K> struct Kernel;
template <class... A, void (*K)(A...)> struct Kernel<K> {
    template <size_t... I> static void with(void** args, std::index_sequence<I...>) { K(*static_cast<A*>(args[I])...); }
    static void call(void** args) { with(args, std::index_sequence_for<A...>()); }
    static Entry entry(const char* name) { return {name, call, {sizeof(A)...}, int(sizeof...(A))}; }
};

#define ENTRY(name) Kernel<&name>::entry(#name)
const Entry KERNELS[] = {
    ENTRY(resample_u8_to_u8),   ENTRY(resample_u8_to_f16),   ENTRY(resample_u8_to_bf16),   ENTRY(resample_u8_to_f32),
    ENTRY(resample_u16_to_u8),  ENTRY(resample_u16_to_f16),  ENTRY(resample_u16_to_bf16),  ENTRY(resample_u16_to_f32),
    ENTRY(resample_f32_to_u8),  ENTRY(resample_f32_to_f16),  ENTRY(resample_f32_to_bf16),  ENTRY(resample_f32_to_f32),
    ENTRY(planes_to_rgb),
    ENTRY(picture_u8),          ENTRY(picture_f32),
    ENTRY(fill_u8),             ENTRY(fill_f16),             ENTRY(fill_bf16),             ENTRY(fill_f32),
    ENTRY(roll_u8),             ENTRY(roll_f16),             ENTRY(roll_bf16),             ENTRY(roll_f32),
    ENTRY(swap_u8),             ENTRY(swap_f16),             ENTRY(swap_bf16),             ENTRY(swap_f32),
};

const Entry* find(const char* name) {
    for (const Entry& entry : KERNELS)
        if (!std::strcmp(entry.name, name)) return &entry;
    return nullptr;
}

} // namespace

// Bytes of each argument of a kernel, at most `max` of them; gives their number, or -1 when there is no such kernel.
extern "C" int infeed_mock_arg_sizes(const char* name, unsigned* sizes, int max) {
    const Entry* entry = find(name);
    if (!entry) return -1;
    for (int i = 0; i < entry->count && i < max; ++i) sizes[i] = entry->sizes[i];
    return entry->count;
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
