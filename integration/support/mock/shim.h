// Enough of CUDA C++ to run a kernel on the CPU: its built-in variables, barriers, shared memory and intrinsics.
//
// One thread of the host runs one block after another. Each CUDA thread of a block is a fiber; a barrier hands over to
// the next fiber, so a kernel in which a barrier is missing computes something else here too. Everything is local to
// the host's thread, so several of them may launch at a time.
#pragma once

// The fortified longjmp takes a jump to another stack for an error.
#undef _FORTIFY_SOURCE

#include <cmath>
#include <csetjmp>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ucontext.h>

#define __device__
#define __global__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __shared__ static thread_local
#define __launch_bounds__(...)
#define __restrict__ __restrict

struct dim3 {
    unsigned x, y, z;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};

inline thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;

inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }

namespace infeed {
// Where this thread's kernels may read through `__ldg`, while a test watches; and how often they read elsewhere.
struct Watch {
    const char* start[2];
    size_t len[2];
    bool on;
    unsigned strays;
};
inline thread_local Watch watch;
} // namespace infeed

template <class T> inline T __ldg(const T* p) {
    // A GPU refuses an address that is not a multiple of the size; here it would pass unseen.
    if (reinterpret_cast<uintptr_t>(p) % sizeof(T)) std::abort();
    infeed::Watch& watch = infeed::watch;
    if (watch.on) {
        const char* at = reinterpret_cast<const char*>(p);
        const auto within = [&](int i) { return at >= watch.start[i] && at + sizeof(T) <= watch.start[i] + watch.len[i]; };
        if (!within(0) && !within(1)) {
            // A value that shows, where the address may be none.
            ++watch.strays;
            return T(77);
        }
    }
    return *p;
}

inline unsigned __float_as_uint(float f) {
    unsigned u;
    std::memcpy(&u, &f, 4);
    return u;
}
inline float __uint_as_float(unsigned u) {
    float f;
    std::memcpy(&f, &u, 4);
    return f;
}
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
// One fiber runs at a time.
template <class T> inline T atomicAdd(T* at, T more) {
    const T was = *at;
    *at = was + more;
    return was;
}
inline unsigned atomicMin(unsigned* at, unsigned other) {
    const unsigned was = *at;
    if (other < was) *at = other;
    return was;
}
inline unsigned atomicMax(unsigned* at, unsigned other) {
    const unsigned was = *at;
    if (other > was) *at = other;
    return was;
}
// As in PTX: cut off, saturated, 0 for NaN. A plain cast is undefined for those.
inline unsigned __float2uint_rz(float f) {
    if (!(f > 0.0f)) return 0;
    return f >= 4294967296.0f ? 0xffffffffu : static_cast<unsigned>(f);
}

namespace infeed {

// Largest block of CUDA, and room for the frames of a kernel.
constexpr unsigned MOST_THREADS = 1024;
constexpr size_t STACK = 64 << 10;

struct Fiber {
    jmp_buf at;
    char* stack = nullptr;
    bool begun = false;
    bool done = false;
};

// What runs on one thread of the host.
struct Runner {
    Fiber fibers[MOST_THREADS];
    jmp_buf back;
    ucontext_t main;
    unsigned current = 0;
    void (*kernel)(void**) = nullptr;
    void** args = nullptr;
    float4* shared = nullptr;
    unsigned shared_bytes = 0;
    ~Runner() {
        for (Fiber& fiber : fibers) std::free(fiber.stack);
        std::free(shared);
    }
};

inline Runner& runner() {
    static thread_local Runner it;
    return it;
}

// A fiber is there for one block after another, of any kernel.
inline void fiber_main() {
    Runner& r = runner();
    for (;;) {
        r.kernel(r.args);
        Fiber& own = r.fibers[r.current];
        own.done = true;
        if (!_setjmp(own.at)) _longjmp(r.back, 1);
    }
}

// Runs a fiber to its next barrier or its end. Only the first time takes swapcontext, whose system calls are the slow part.
__attribute__((noinline)) inline void resume(Runner& r, unsigned n) {
    r.current = n;
    threadIdx = {n % blockDim.x, n / blockDim.x % blockDim.y, n / (blockDim.x * blockDim.y)};
    if (_setjmp(r.back)) return;
    if (r.fibers[n].begun) _longjmp(r.fibers[n].at, 1);
    r.fibers[n].begun = true;
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = r.fibers[n].stack;
    context.uc_stack.ss_size = STACK;
    context.uc_link = nullptr;
    makecontext(&context, fiber_main, 0);
    swapcontext(&r.main, &context);
}

// 0; 1 (CUDA_ERROR_INVALID_VALUE) for a shape that no GPU takes; 719 (CUDA_ERROR_LAUNCH_FAILED) when threads of a block
// meet different barriers.
inline int run_grid(const unsigned grid[3], const unsigned block[3], unsigned shared_bytes, void (*kernel)(void**), void** args) {
    const uint64_t threads = uint64_t(block[0]) * block[1] * block[2];
    if (!threads || threads > MOST_THREADS || block[2] > 64 || shared_bytes > 48 << 10) return 1;
    if (!grid[0] || !grid[1] || !grid[2] || grid[0] > 0x7fffffffu || grid[1] > 65535 || grid[2] > 65535) return 1;
    Runner& r = runner();
    gridDim = {grid[0], grid[1], grid[2]};
    blockDim = {block[0], block[1], block[2]};
    r.kernel = kernel;
    r.args = args;
    // Exactly as large as asked for, so that a checker of addresses sees a step beyond its end.
    std::free(r.shared);
    r.shared = static_cast<float4*>(std::aligned_alloc(16, (shared_bytes + 31) / 16 * 16));
    r.shared_bytes = shared_bytes;
    for (unsigned n = 0; n < threads; ++n)
        if (!r.fibers[n].stack) r.fibers[n].stack = static_cast<char*>(std::malloc(STACK));
    for (unsigned z = 0; z < grid[2]; ++z)
        for (unsigned y = 0; y < grid[1]; ++y)
            for (unsigned x = 0; x < grid[0]; ++x) {
                blockIdx = {x, y, z};
                // Shared memory holds anything at first: NaN shows wherever it is read.
                std::memset(r.shared, 0xff, shared_bytes);
                for (unsigned n = 0; n < threads; ++n) r.fibers[n].done = false;
                // From barrier to barrier, forwards and backwards in turn, and the other way round in the next block: a
                // GPU keeps no order either.
                unsigned phase = 0, left = unsigned(threads);
                for (; left; ++phase) {
                    const unsigned before = left;
                    for (unsigned k = 0; k < threads; ++k) {
                        const unsigned n = (phase + x) % 2 ? unsigned(threads) - 1 - k : k;
                        if (r.fibers[n].done) continue;
                        resume(r, n);
                        left -= r.fibers[n].done;
                    }
                    // Some have ended, others wait at a barrier for them: a GPU may hang.
                    if (left && left < before) {
                        for (Fiber& fiber : r.fibers) fiber.begun &= fiber.done;
                        return 719;
                    }
                }
            }
    return 0;
}

} // namespace infeed

__attribute__((noinline)) inline void infeed_barrier() {
    infeed::Runner& r = infeed::runner();
    if (!_setjmp(r.fibers[r.current].at)) _longjmp(r.back, 1);
}
__attribute__((always_inline)) inline void __syncthreads() {
    // Or the compiler keeps shared memory in registers: it can't see that others run meanwhile.
    asm volatile("" ::: "memory");
    infeed_barrier();
    asm volatile("" ::: "memory");
}

// Dynamic shared memory of the block, and its size.
inline float4* infeed_shared() { return infeed::runner().shared; }
inline unsigned infeed_shared_bytes() { return infeed::runner().shared_bytes; }

// What `cvt.rn.f16.f32` gives: to nearest, ties to even, subnormals kept.
inline unsigned infeed_f16_bits(float f) {
    const unsigned bits = __float_as_uint(f), sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) return 0x7fff;
    // 65520 and more round to infinity.
    if (size >= 0x477ff000u) return sign | 0x7c00u;
    // Below 2^-14 the distance of two values is 2^-24, that of floats from 0.5 on: the sum rounds.
    if (size < 0x38800000u) return sign | (__float_as_uint(__uint_as_float(size) + 0.5f) - 0x3f000000u);
    return sign | ((size - (112u << 23) + 0xfffu + (size >> 13 & 1u)) >> 13);
}
