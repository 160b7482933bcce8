// Resample, flip, scale, fill, cut out and round in one pass: the meaning of `ResampleParams` on a GPU.
//
// Bit for bit what `transform::reference` gives (NaN may be any NaN), with every filter: weights are made of sums, products
// and quotients that IEEE rounds, Lanczos' sine of a polynomial. A plain subset of CUDA C++: NVRTC compiles it
// without headers, a host's compiler after `integration/support/mock/shim.h` with INFEED_HOST defined.
//
// One block makes a band of output rows of one image:
//
//   params -> taps of the band's rows and columns, once, in shared memory
//   source -> vertical sums of a few rows at a time, all channels, only the columns that are needed (shared, f32)
//          -> horizontal sums -> scale, bias, fill, cutout, rounding -> row
//
// Where the filter overshoots and the source is bytes, it is across first, as in Pillow and torch:
//
//   source -> horizontal sums of the source rows that a few rows of the band read -> cut and rounded (shared, bytes)
//          -> vertical sums -> cut, scale, bias, fill, cutout, rounding -> row
//
// Why it should be fast enough; reckoned from the PTX, not measured. Writing f32 at 4.8 TB/s leaves an H200 about 25
// lane-instructions for a value (132 SMs of 128 lanes at 1.75 GHz against 1.2e12 values/s). Enlarging 50x50x5 to
// 220x220:
// - horizontal, four values of a plane at a time: 8 loads from shared memory, 12 products, one 16-byte store, and about
//   30 for addresses, scale, bias and edges: 12 to 13 a value. Taps stay in registers from line to line.
// - vertical: two taps for each source column, not for each output: about 20 instructions over 4.4 values, below 5.
//   Rows that read the same source rows have different weights, so there is no sum to share but the loads, which the
//   L1 cache answers.
// - taps: about 60 for each column of a band, over its 32 rows and 5 channels: below 1.
// So stores bound it as long as some blocks of an SM store while others sum: 48 registers (a few spilled outside the
// loops; ptxas 13.0 for sm_80, 90 and 100), at most 256 threads and 32 KiB let five or six share an SM of Hopper.
// Neighbouring lanes read neighbouring source elements and shared words; the pitch of the sums is odd.
// Not vectorised: NHWC, widths that four does not divide and rows that are not aligned; lanes still store side by side.
//
// Wide images are made in tiles of columns, so that taps and sums fit. Where not even four columns fit (beyond about
// 70 source pixels for an output), each value is summed from the source directly: slow, and the same bits.
//
// What the caller must see to: `src` and `dst` are aligned to their element; the `extent` rows and columns from `src`
// with `plane`, `pitch` and `pixel` are readable; `dst` holds height * width * channels elements, fewer than 2^32;
// the table holds 4 * channels floats. Windows are cut to `origin` and `extent`, so no parameter makes it read
// elsewhere; whether the pixels wanted are held, so that the result is right, is `fits` in device.rs.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned u32;
typedef unsigned long long u64;

#ifndef INFEED_HOST
extern __shared__ float4 infeed_pool[];
__device__ __forceinline__ float4* infeed_shared() { return infeed_pool; }
__device__ __forceinline__ u32 infeed_shared_bytes() {
    u32 n;
    asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(n));
    return n;
}
__device__ __forceinline__ u32 infeed_f16_bits(float f) {
    u16 h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
    return h;
}
#define OFFSET_OF(type, field) __INTADDR__(&((type*)0)->field)
#else
#define OFFSET_OF(type, field) __builtin_offsetof(type, field)
#endif

// Twins of the structs in mod.rs and device.rs.
struct Axis {
    float start, step;
    u32 low, high, from, to, flip;
};

struct Item {
    u64 src, dst, plane;
    u32 pitch, pixel;
    u32 origin[2], extent[2];
    u32 gray;
    Axis y, x;
    u32 cutout[4];
    u32 filter;
};

// Numbers of the filter; see params.rs.
enum { TRIANGLE, NEAREST_EXACT, NEAREST, LINEAR, CUBIC, CUBIC_FOUR, LANCZOS, BOX, CUBIC_OF_FLOATS };

static_assert(sizeof(Axis) == 28, "as in mod.rs");
static_assert(sizeof(Item) == 128, "as in device.rs");
static_assert(OFFSET_OF(Item, pitch) == 24, "as in device.rs");
static_assert(OFFSET_OF(Item, origin) == 32, "as in device.rs");
static_assert(OFFSET_OF(Item, gray) == 48, "as in device.rs");
static_assert(OFFSET_OF(Item, y) == 52, "as in device.rs");
static_assert(OFFSET_OF(Item, x) == 80, "as in device.rs");
static_assert(OFFSET_OF(Item, cutout) == 108, "as in device.rs");
static_assert(OFFSET_OF(Item, filter) == 124, "as in device.rs");

__device__ __forceinline__ u32 smaller(u32 a, u32 b) { return a < b ? a : b; }
__device__ __forceinline__ u32 larger(u32 a, u32 b) { return a < b ? b : a; }

// ---- element types ---------------------------------------------------------------------------------------------

enum Kind { U8, U16, F16, BF16, F32 };

template <class T> struct Source;
template <> struct Source<u8> {
    enum { KIND = U8, FINITE = 1 };
};
template <> struct Source<u16> {
    enum { KIND = U16, FINITE = 1 };
};
template <> struct Source<float> {
    // Values may be infinite or NaN: then a weight of 0 changes a sum.
    enum { KIND = F32, FINITE = 0 };
};

struct ToU8 {
    enum { KIND = U8 };
    typedef u8 Raw;
    typedef u32 Four;
    static __device__ __forceinline__ u32 bits(float v) {
        // NaN becomes 0. Around 2^23 an f32 has no fraction left: the addition rounds to even.
        return __float_as_uint(__fadd_rn(fminf(fmaxf(v, 0.0f), 255.0f), 8388608.0f)) & 0xff;
    }
    static __device__ __forceinline__ Raw one(float v) { return (u8)bits(v); }
    static __device__ __forceinline__ Four four(float a, float b, float c, float d) {
        return bits(a) | bits(b) << 8 | bits(c) << 16 | bits(d) << 24;
    }
};

struct ToF16 {
    enum { KIND = F16 };
    typedef u16 Raw;
    typedef uint2 Four;
    static __device__ __forceinline__ Raw one(float v) { return (u16)infeed_f16_bits(v); }
    static __device__ __forceinline__ Four four(float a, float b, float c, float d) {
        return make_uint2(infeed_f16_bits(a) | infeed_f16_bits(b) << 16, infeed_f16_bits(c) | infeed_f16_bits(d) << 16);
    }
};

struct ToBf16 {
    enum { KIND = BF16 };
    typedef u16 Raw;
    typedef uint2 Four;
    static __device__ __forceinline__ u32 bits(float v) {
        const u32 b = __float_as_uint(v);
        const u32 rounded = (b + 0x7fffu + ((b >> 16) & 1u)) >> 16, quiet = (b >> 16) | 0x40u;
        return (b & 0x7fffffffu) > 0x7f800000u ? quiet : rounded;
    }
    static __device__ __forceinline__ Raw one(float v) { return (u16)bits(v); }
    static __device__ __forceinline__ Four four(float a, float b, float c, float d) {
        return make_uint2(bits(a) | bits(b) << 16, bits(c) | bits(d) << 16);
    }
};

struct ToF32 {
    enum { KIND = F32 };
    typedef float Raw;
    typedef float4 Four;
    static __device__ __forceinline__ Raw one(float v) { return v; }
    static __device__ __forceinline__ Four four(float a, float b, float c, float d) { return make_float4(a, b, c, d); }
};

// ---- taps ------------------------------------------------------------------------------------------------------

// An axis, cut to what is held and to the row.
struct Line {
    float start, step, reach, inverse;
    u32 low, high, from, to, len;
    // Taps that an output has at most.
    u32 most;
    u32 filter;
    bool flip;
};

__device__ __forceinline__ bool is_nearest(const Line& a) { return a.filter == NEAREST || a.filter == NEAREST_EXACT; }
// Weights are what they are, and not divided by their sum.
__device__ __forceinline__ bool is_fixed(const Line& a) { return a.filter == LINEAR || a.filter == CUBIC_FOUR; }

__device__ __forceinline__ Line line_of(const Axis& axis, u32 origin, u32 extent, u32 len, u32 filter) {
    Line a;
    a.start = axis.start;
    a.step = axis.step;
    a.filter = filter;
    const float widened = fmaxf(axis.step, 1.0f);
    a.reach = (filter == CUBIC ? 2.0f : filter == LANCZOS ? 3.0f : filter == BOX ? 0.5f : 1.0f) * widened;
    a.inverse = __fdiv_rn(1.0f, widened);
    // Where all windows lie within what is held, this changes none of them.
    a.low = larger(axis.low, origin);
    a.high = smaller(axis.high, origin + smaller(extent, 0xffffffffu - origin));
    a.from = axis.from;
    a.to = a.low < a.high ? smaller(axis.to, len) : 0;
    a.len = len;
    a.flip = axis.flip != 0;
    // A window is open at both ends: two taps at reach 1. Else as many as fit, and one more by rounding.
    u32 widest = smaller(__float2uint_rz(2.0f * a.reach), 1u << 30) + 2;
    if (filter == TRIANGLE && a.reach <= 1.0f || filter == LINEAR) widest = 2;
    if (filter == CUBIC_FOUR) widest = 4;
    a.most = is_nearest(a) ? 1 : larger(smaller(widest, a.high - a.low), 1);
    return a;
}

// The output that is stored at a place.
__device__ __forceinline__ u32 output_at(const Line& a, u32 stored) { return a.flip ? a.len - 1 - stored : stored; }
__device__ __forceinline__ bool inside(const Line& a, u32 o) { return o >= a.from && o < a.to; }
__device__ __forceinline__ float centre_of(const Line& a, u32 o) {
    return __fmaf_rn(a.step, __fadd_rn((float)o, 0.5f), a.start);
}
__device__ __forceinline__ u32 pixel_at(float place, u32 low, u32 high) {
    return smaller(larger(__float2uint_rz(place), low), high - 1);
}
// The pixel under the centre, or under the first edge.
__device__ __forceinline__ u32 nearest_of(const Line& a, u32 o, float centre, u32 low, u32 high) {
    float place = centre;
    if (a.filter == NEAREST) {
        const float whole = floorf(a.start);
        place = __fadd_rn(whole, floorf(__fmaf_rn(a.step, (float)o, __fsub_rn(a.start, whole))));
    }
    return pixel_at(place, low, high);
}

// The filter's window: first pixel and end.
struct Span {
    u32 first, end;
};
__device__ __forceinline__ Span span_of(const Line& a, u32 o, float centre, u32 low, u32 high) {
    Span s;
    if (is_nearest(a)) {
        s.first = nearest_of(a, o, centre, low, high);
        s.end = s.first + 1;
        return s;
    }
    // A pixel whose middle lies on the edge of two boxes is the first one's, whatever f32's noise.
    const float middle = a.filter == BOX ? __fmaf_rn(centre, 1.0f / (1 << 21), centre) : centre;
    float from = __fadd_rn(__fsub_rn(middle, a.reach), 0.5f), to = __fadd_rn(__fadd_rn(middle, a.reach), 0.5f);
    if (a.filter == LINEAR) {
        from = __fsub_rn(centre, 0.5f);
        to = __fadd_rn(centre, 1.5f);
    } else if (a.filter == CUBIC_FOUR) {
        const float base = floorf(__fsub_rn(centre, 0.5f));
        from = __fsub_rn(base, 1.0f);
        to = __fadd_rn(base, 3.0f);
    }
    s.first = pixel_at(from, low, high);
    s.end = smaller(larger(__float2uint_rz(to), s.first + 1), high);
    return s;
}

// Keys' cubic from 0 to 1, and from 1 to 2 in a form whose differences are exact.
__device__ __forceinline__ float inner(float x, float a) {
    return __fmaf_rn(__fmaf_rn(a + 2.0f, x, -(a + 3.0f)), __fmul_rn(x, x), 1.0f);
}
__device__ __forceinline__ float outer(float x, float a) {
    const float far = __fsub_rn(x, 2.0f);
    return __fmul_rn(__fmul_rn(a, __fsub_rn(x, 1.0f)), __fmul_rn(far, far));
}
// sinc(x) * sinc(x / 3), its sine by a polynomial: `sinf` is another function on each machine.
__device__ __forceinline__ float lanczos(float x) {
    if (x == 1.0f || x == 2.0f || !(x < 3.0f)) return 0.0f;
    x = fmaxf(x, 1e-6f);
    const float third = __fmul_rn(x, 1.0f / 3.0f), folded = fminf(third, __fsub_rn(1.0f, third));
    const float square = __fmul_rn(folded, folded);
    float sine = -0.00737043f;
    sine = __fmaf_rn(sine, square, 0.08214589f);
    sine = __fmaf_rn(sine, square, -0.5992645f);
    sine = __fmaf_rn(sine, square, 2.550164f);
    sine = __fmaf_rn(sine, square, -5.1677128f);
    sine = __fmul_rn(__fmaf_rn(sine, square, 3.1415927f), folded);
    const float ratio = __fdiv_rn(__fmul_rn(sine, 0.95492966f), x);
    return __fmul_rn(__fmul_rn(ratio, ratio), __fmaf_rn(__fmul_rn(sine, -4.0f / 3.0f), sine, 1.0f));
}

// What a pixel of the window weighs, before the division. `low` and `high` are ends that the fixed filters repeat.
__device__ __noinline__ float other_weight(const Line& a, float centre, u32 pixel, u32 low, u32 high) {
    if (a.filter == BOX) return 1.0f;
    if (a.filter == LINEAR) {
        const float place = fmaxf(__fsub_rn(centre, 0.5f), (float)low);
        const u32 first = pixel_at(place, low, high);
        const float part = first + 1 == high ? 0.0f : __fsub_rn(place, (float)first);
        return pixel == first ? __fsub_rn(1.0f, part) : part;
    }
    if (a.filter == CUBIC_FOUR) {
        const float place = __fsub_rn(centre, 0.5f), base = floorf(place);
        const float part = fminf(fmaxf(__fsub_rn(place, base), 0.0f), 1.0f);
        float sum = 0.0f;
        for (int n = 0; n < 4; ++n) {
            if (pixel_at(__fadd_rn(base, (float)(n - 1)), low, high) != pixel) continue;
            const float x = n == 0 ? __fadd_rn(1.0f, part) : n == 1 ? part : __fsub_rn((float)(n - 1), part);
            sum = __fadd_rn(sum, n == 0 || n == 3 ? outer(x, -0.75f) : inner(x, -0.75f));
        }
        return sum;
    }
    const float x = __fmul_rn(fabsf(__fsub_rn(__fadd_rn((float)pixel, 0.5f), centre)), a.inverse);
    if (a.filter == LANCZOS) return lanczos(x);
    return x < 1.0f ? inner(x, -0.5f) : x < 2.0f ? outer(x, -0.5f) : 0.0f;
}
__device__ __forceinline__ float raw_weight(const Line& a, float centre, u32 pixel, u32 low, u32 high) {
    if (a.filter != TRIANGLE) return other_weight(a, centre, pixel, low, high);
    const float distance = fabsf(__fsub_rn(__fadd_rn((float)pixel, 0.5f), centre));
    return fmaxf(__fmaf_rn(-distance, a.inverse, 1.0f), 0.0f);
}

// Writes the weights of output `o` to `weights[t * every]`, at most `a.most`; gives their number and the first pixel.
// Only pixels of `low..high` are looked at, which must not be empty.
__device__ __forceinline__ u32 make_taps(const Line& a, u32 o, u32 low, u32 high, float* weights, u32 every, u32& first) {
    const float centre = centre_of(a, o);
    if (!is_nearest(a)) {
        const Span span = span_of(a, o, centre, low, high);
        float sum = 0.0f;
        // Weights of 0 at the ends are not taps: infinity times 0 is not 0.
        u32 count = 0, kept = 0;
        for (u32 pixel = span.first; pixel < span.end && count < a.most; ++pixel) {
            const float weight = raw_weight(a, centre, pixel, low, high);
            if (count == 0) {
                if (weight == 0.0f) continue;
                first = pixel;
            }
            weights[count * every] = weight;
            sum = __fadd_rn(sum, weight);
            ++count;
            if (weight != 0.0f) kept = count;
        }
        if (kept && is_fixed(a)) return kept;
        // Far outside the image there may be none but weights below 0.
        if (kept && sum > 0.0f) {
            for (u32 t = 0; t < kept; ++t) weights[t * every] = __fdiv_rn(weights[t * every], sum);
            return kept;
        }
    }
    first = nearest_of(a, o, centre, low, high);
    weights[0] = 1.0f;
    return 1;
}

// ---- the plan of a block -------------------------------------------------------------------------------------------

enum { ROW_INSIDE = 1, ROW_CUT = 2 };

// What the sums of a row need, in one load: first source row held, number of taps, the first two weights (or 0).
struct alignas(16) RowTaps {
    u32 first, count;
    float w0, w1;
};

// What is the same for all threads of a block. In shared memory, or it would fill the registers of each of them; loops
// copy what they use. Places in the pool are counted in words.
struct Plan {
    Line y, x;
    u64 src, dst, plane;
    const float* table;
    u32 pitch, pixel, row_origin, column_origin;
    // Channels that are summed; 1 for gray, which all channels of the row read.
    u32 sums;
    u32 height, width, channels, nhwc;
    u32 cut_top, cut_bottom, cut_left, cut_right;
    // The band's rows; rows of the band are counted from 0.
    u32 top, rows;
    // Of row r: a RowTaps at `y_taps + 4 * r`, ROW_ bits at `flags + r`, all weights at `y_weights + r * y.most`.
    u32 y_taps, flags, y_weights;
    // Columns of a tile, a multiple of 4; 0: nothing fits, see `direct`.
    u32 every;
    // Of column x of the tile: weights at `t * every + x`; first sum, number of taps.
    u32 x_first, x_count;
    // Sums of a channel at `sums_at + (row * sums + channel) * line`, one column of zeros behind them.
    u32 sums_at, line, room;
    // The tile: columns `x0..x0 + wide` of the row, made from `columns` source columns from `low` on.
    u32 x0, wide, low, columns;
    // Sums are cut to 0..white, unless it is 0.
    float white;
    // Bytes that are summed across first. Then what lies at `sums_at` are bytes, a channel of a source row `line` of them.
    u32 across_first;
    // Rows that are summed at a time; where it is across first, the source rows that there is room for.
    u32 rows_at_once;
    // Four values at a time; channels before columns in the order of the vertical pass.
    u32 four, by_channel;
    // Columns and channels of the vertical pass: their number, the size of the faster digit, the rows that are summed
    // side by side.
    u32 sources, digit, sum_abreast;
    // Values of a line that a thread makes lie `unit_step` apart, of `units`; `abreast` lines go side by side.
    u32 units, unit_step, abreast;
    // `abreast` lines, in rows and channels.
    u32 step_rows, step_channels;
};

__shared__ Plan infeed_plan;

__device__ __forceinline__ float* pool() { return (float*)infeed_shared(); }
__device__ __forceinline__ u32* pool_words() { return (u32*)infeed_shared(); }
__device__ __forceinline__ float within(float sum, float white) {
    return white > 0.0f ? fminf(fmaxf(sum, 0.0f), white) : sum;
}
// A byte between the passes: a little more than the sum, to the nearest (ties to even), so that halves go up.
__device__ __forceinline__ u32 byte_of(float sum) {
    return __float_as_uint(__fadd_rn(__fadd_rn(fminf(fmaxf(sum, 0.0f), 255.0f), 1.0f / 4096), 8388608.0f)) & 0xff;
}
__device__ __forceinline__ u32 up_to_four(u32 n) { return (n + 3) & ~3u; }

// ---- vertical: source to sums ------------------------------------------------------------------------------------

// Sums of rows `r0..r0 + rows` of the band. SHORT: none has more than two taps.
template <class S, bool SHORT> __device__ __noinline__ void vertical(u32 r0, u32 rows) {
    const Plan& plan = infeed_plan;
    const RowTaps* taps = (const RowTaps*)(pool() + plan.y_taps) + r0;
    const float* weights = pool() + plan.y_weights + r0 * plan.y.most;
    const u32 most = plan.y.most, columns = plan.columns, pitch = plan.pitch, abreast = plan.sum_abreast;
    const u32 sources = plan.sources, digit = plan.digit, row_sums = plan.sums * plan.line, threads = blockDim.x;
    // A thread keeps its column and channel from row to row. Those left over where rows are summed side by side rest.
    const u32 start = abreast > 1 ? threadIdx.x / sources : 0;
    if (start >= abreast) return;
    for (u32 source = threadIdx.x - start * sources; source < sources; source += threads) {
        const u32 slow = source / digit, fast = source - slow * digit;
        const u32 channel = plan.by_channel ? fast : slow, column = plan.by_channel ? slow : fast;
        const u8* src = (const u8*)(plan.src + (((u64)(plan.low - plan.column_origin + column)) * plan.pixel + channel * plan.plane) * sizeof(S));
        float* to = pool() + plan.sums_at + channel * plan.line + column;
        // The column behind the last gets 0: a second tap of weight 0 may read it.
        const bool real = column < columns;
        for (u32 row = start; row < rows; row += abreast) {
            const RowTaps tap = taps[row];
            const u8* p = src + (u64)tap.first * pitch;
            float sum = 0.0f;
            if (SHORT) {
                if (real && tap.count) {
                    const float v0 = (float)__ldg((const S*)p);
                    const float v1 = (float)__ldg((const S*)(tap.count > 1 ? p + pitch : p));
                    const float one = __fmaf_rn(tap.w0, v0, 0.0f), two = __fmaf_rn(tap.w1, v1, one);
                    sum = Source<S>::FINITE || tap.count > 1 ? two : one;
                }
            } else if (real) {
                const float* w = weights + row * most;
#pragma unroll 4
                for (u32 t = 0; t < tap.count; ++t) {
                    sum = __fmaf_rn(w[t], (float)__ldg((const S*)p), sum);
                    p += pitch;
                }
            }
            to[row * row_sums] = sum;
        }
    }
}

// ---- horizontal: sums to the row ---------------------------------------------------------------------------------

// From the sums of four neighbouring values of a plane to the row. Bits of `outside` and `cut`: which of the four.
template <class D>
__device__ __forceinline__ void finish_four(float (&v)[4], const float* table, u32 channels, u32 c, u32 bits, u32 outside, u32 cut, u64 to) {
    const float scale = __ldg(table + c), bias = __ldg(table + channels + c);
#pragma unroll
    for (int j = 0; j < 4; ++j) v[j] = __fmaf_rn(v[j], scale, bias);
    const u32 fill = bits & ROW_INSIDE ? outside : 15u, blank = bits & ROW_CUT ? cut : 0u;
    if (fill | blank) {
        const float fill_value = __ldg(table + 2 * channels + c), blank_value = __ldg(table + 3 * channels + c);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            if (fill >> j & 1) v[j] = fill_value;
            if (blank >> j & 1) v[j] = blank_value;
        }
    }
    *(typename D::Four*)to = D::four(v[0], v[1], v[2], v[3]);
}

// Four neighbouring values of a plane at a time. SHORT: no output of the axis has more than two taps, and no sum is cut.
template <class D, bool FINITE, bool SHORT>
__device__ __noinline__ void horizontal_four(u32 r0, u32 rows, u32 unit, u32 start) {
    const Plan& plan = infeed_plan;
    const float *weights = pool(), *sums = pool() + plan.sums_at;
    const u32* flags = pool_words() + plan.flags + r0;
    const float* table = plan.table;
    const u32 every = plan.every, channels = plan.channels, line = plan.line;
    const u32 step_rows = plan.step_rows, step_channels = plan.step_channels;
    // Gray: all channels read the sums of one.
    const u32 row_sums = plan.sums * line, channel_sums = plan.sums == 1 ? 0 : line;
    const u32 plane = plan.height * plan.width, width = plan.width;
    for (; unit < plan.units; unit += plan.unit_step) {
        const u32 x = 4 * unit;
        u32 first[4], count[4], outside = 0, cut = 0, most = 0;
        float w0[4], w1[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            first[j] = pool_words()[plan.x_first + x + j];
            count[j] = pool_words()[plan.x_count + x + j];
            most = larger(most, count[j]);
            if (!count[j]) outside |= 1u << j;
            if (plan.x0 + x + j >= plan.cut_left && plan.x0 + x + j < plan.cut_right) cut |= 1u << j;
            if (SHORT) {
                w0[j] = count[j] > 0 ? weights[x + j] : 0.0f;
                w1[j] = count[j] > 1 ? weights[every + x + j] : 0.0f;
            }
        }
        const u64 dst = plan.dst + (u64)(plan.top + r0) * width * sizeof(typename D::Raw) + (u64)(plan.x0 + x) * sizeof(typename D::Raw);
        u32 row = start / channels, c = start - row * channels;
        while (row < rows) {
            const float* line_sums = sums + (row * row_sums + c * channel_sums);
            const float* from[4];
#pragma unroll
            for (int j = 0; j < 4; ++j) from[j] = line_sums + first[j];
            float v[4];
            if (SHORT) {
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    const float one = __fmaf_rn(w0[j], from[j][0], 0.0f);
                    const float two = __fmaf_rn(w1[j], from[j][1], one);
                    v[j] = FINITE || count[j] > 1 ? two : one;
                }
            } else {
#pragma unroll
                for (int j = 0; j < 4; ++j) v[j] = 0.0f;
#pragma unroll 1
                for (u32 t = 0; t < most; ++t) {
                    const float4 w = *(const float4*)(weights + t * every + x);
                    if (t < count[0]) v[0] = __fmaf_rn(w.x, from[0][t], v[0]);
                    if (t < count[1]) v[1] = __fmaf_rn(w.y, from[1][t], v[1]);
                    if (t < count[2]) v[2] = __fmaf_rn(w.z, from[2][t], v[2]);
                    if (t < count[3]) v[3] = __fmaf_rn(w.w, from[3][t], v[3]);
                }
            }
            if (!SHORT && plan.white > 0.0f) {
#pragma unroll
                for (int j = 0; j < 4; ++j) v[j] = within(v[j], plan.white);
            }
            finish_four<D>(v, table, channels, c, flags[row], outside, cut, dst + (u64)(c * plane + row * width) * sizeof(typename D::Raw));
            row += step_rows;
            c += step_channels;
            if (c >= channels) {
                c -= channels;
                ++row;
            }
        }
    }
}

// One value at a time: any layout, width and alignment. Neighbouring lanes store neighbouring elements.
template <class D> __device__ __noinline__ void horizontal_one(u32 r0, u32 rows, u32 unit, u32 start) {
    const Plan& plan = infeed_plan;
    const float *weights = pool(), *sums = pool() + plan.sums_at;
    const u32* flags = pool_words() + plan.flags + r0;
    const float* table = plan.table;
    const u32 every = plan.every, channels = plan.channels, line = plan.line, nhwc = plan.nhwc;
    const u32 step_rows = plan.step_rows, step_channels = plan.step_channels;
    const u32 row_sums = plan.sums * line, channel_sums = plan.sums == 1 ? 0 : line;
    const u32 each = nhwc ? channels : 1, line_channels = nhwc ? 1 : channels;
    // Elements of the row from channel to channel, and from line to line.
    const u32 plane = nhwc ? 1 : plan.height * plan.width, pitch = plan.width * each;
    for (; unit < plan.units; unit += plan.unit_step) {
        const u32 x = unit / each, unit_channel = unit - x * each;
        const u32 first = pool_words()[plan.x_first + x], count = pool_words()[plan.x_count + x];
        const bool cut = plan.x0 + x >= plan.cut_left && plan.x0 + x < plan.cut_right;
        const u32 column = (plan.top + r0) * pitch + (plan.x0 + x) * each;
        u32 row = start / line_channels, line_channel = start - row * line_channels;
        while (row < rows) {
            // One of the two is 0.
            const u32 c = unit_channel + line_channel, bits = flags[row];
            const float* from = sums + row * row_sums + c * channel_sums + first;
            float v = 0.0f;
#pragma unroll 2
            for (u32 t = 0; t < count; ++t) v = __fmaf_rn(weights[t * every + x], from[t], v);
            v = __fmaf_rn(within(v, plan.white), __ldg(table + c), __ldg(table + channels + c));
            if (!count || !(bits & ROW_INSIDE)) v = __ldg(table + 2 * channels + c);
            if (cut && (bits & ROW_CUT)) v = __ldg(table + 3 * channels + c);
            const u32 to = column + row * pitch + c * plane;
            *(typename D::Raw*)(plan.dst + (u64)to * sizeof(typename D::Raw)) = D::one(v);
            row += step_rows;
            line_channel += step_channels;
            if (line_channel >= line_channels) {
                line_channel -= line_channels;
                ++row;
            }
        }
    }
}

// ---- across first: source to bytes, bytes to the row ------------------------------------------------------------------

// As many of the band's rows from `r0` on as source rows that there is room for make; which these are.
__device__ __forceinline__ u32 rows_within(u32 r0, u32 room, u32& low, u32& high) {
    const Plan& plan = infeed_plan;
    const RowTaps* taps = (const RowTaps*)(pool() + plan.y_taps);
    u32 r = r0;
    low = 0xffffffffu;
    high = 0;
    // There is room for one row's, so it ends.
    for (; r < plan.rows; ++r) {
        if (!taps[r].count) continue;
        const u32 from = smaller(low, taps[r].first), to = larger(high, taps[r].first + taps[r].count);
        if (to - from > room) break;
        low = from;
        high = to;
    }
    return r - r0;
}

// Bytes of source rows `low..low + rows` of those held, at the tile's columns.
__device__ __noinline__ void across(u32 low, u32 rows) {
    const Plan& plan = infeed_plan;
    const float* weights = pool();
    u8* to = (u8*)(pool() + plan.sums_at);
    const u32 every = plan.every, wide = plan.wide, sums = plan.sums, line = plan.line, pixel = plan.pixel, threads = blockDim.x;
    const u32 lines = rows * sums, abreast = wide < threads ? threads / wide : 1;
    // A thread keeps its column from line to line.
    const u32 start = abreast > 1 ? threadIdx.x / wide : 0;
    if (start >= abreast) return;
    for (u32 x = threadIdx.x - start * wide; x < wide; x += threads) {
        const u32 first = pool_words()[plan.x_first + x], count = pool_words()[plan.x_count + x];
        const u64 src = plan.src + (u64)(plan.low - plan.column_origin + first) * pixel;
        for (u32 n = start; n < lines; n += abreast) {
            const u32 row = n / sums, channel = n - row * sums;
            const u8* p = (const u8*)(src + (u64)(low + row) * plan.pitch + channel * plan.plane);
            float sum = 0.0f;
#pragma unroll 4
            for (u32 t = 0; t < count; ++t) {
                sum = __fmaf_rn(weights[t * every + x], (float)__ldg(p), sum);
                p += pixel;
            }
            to[n * line + x] = (u8)byte_of(sum);
        }
    }
}

// Four neighbouring values of a plane at a time; `low` is the first source row that is there.
template <class D> __device__ __noinline__ void down_four(u32 r0, u32 rows, u32 low, u32 unit, u32 start) {
    const Plan& plan = infeed_plan;
    const RowTaps* taps = (const RowTaps*)(pool() + plan.y_taps) + r0;
    const float* weights = pool() + plan.y_weights + r0 * plan.y.most;
    const u32 *bytes = pool_words() + plan.sums_at, *flags = pool_words() + plan.flags + r0;
    const float* table = plan.table;
    const u32 most = plan.y.most, channels = plan.channels, words = plan.line / 4;
    const u32 step_rows = plan.step_rows, step_channels = plan.step_channels;
    const u32 row_words = plan.sums * words, channel_words = plan.sums == 1 ? 0 : words;
    const u32 plane = plan.height * plan.width, width = plan.width;
    for (; unit < plan.units; unit += plan.unit_step) {
        const u32 x = 4 * unit;
        u32 outside = 0, cut = 0;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            if (!pool_words()[plan.x_count + x + j]) outside |= 1u << j;
            if (plan.x0 + x + j >= plan.cut_left && plan.x0 + x + j < plan.cut_right) cut |= 1u << j;
        }
        const u64 dst = plan.dst + (u64)(plan.top + r0) * width * sizeof(typename D::Raw) + (u64)(plan.x0 + x) * sizeof(typename D::Raw);
        u32 row = start / channels, c = start - row * channels;
        while (row < rows) {
            const u32 count = taps[row].count, first = count ? taps[row].first - low : 0;
            const float* w = weights + row * most;
            const u32* from = bytes + (first * row_words + c * channel_words + unit);
            float v[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 2
            for (u32 t = 0; t < count; ++t) {
                const u32 four = *from;
#pragma unroll
                for (int j = 0; j < 4; ++j) v[j] = __fmaf_rn(w[t], (float)(four >> 8 * j & 0xff), v[j]);
                from += row_words;
            }
#pragma unroll
            for (int j = 0; j < 4; ++j) v[j] = within(v[j], plan.white);
            finish_four<D>(v, table, channels, c, flags[row], outside, cut, dst + (u64)(c * plane + row * width) * sizeof(typename D::Raw));
            row += step_rows;
            c += step_channels;
            if (c >= channels) {
                c -= channels;
                ++row;
            }
        }
    }
}

// One value at a time, as `horizontal_one`.
template <class D> __device__ __noinline__ void down_one(u32 r0, u32 rows, u32 low, u32 unit, u32 start) {
    const Plan& plan = infeed_plan;
    const RowTaps* taps = (const RowTaps*)(pool() + plan.y_taps) + r0;
    const float* weights = pool() + plan.y_weights + r0 * plan.y.most;
    const u8* bytes = (const u8*)(pool() + plan.sums_at);
    const u32* flags = pool_words() + plan.flags + r0;
    const float* table = plan.table;
    const u32 most = plan.y.most, channels = plan.channels, line = plan.line, nhwc = plan.nhwc;
    const u32 step_rows = plan.step_rows, step_channels = plan.step_channels;
    const u32 row_bytes = plan.sums * line, channel_bytes = plan.sums == 1 ? 0 : line;
    const u32 each = nhwc ? channels : 1, line_channels = nhwc ? 1 : channels;
    const u32 plane = nhwc ? 1 : plan.height * plan.width, pitch = plan.width * each;
    for (; unit < plan.units; unit += plan.unit_step) {
        const u32 x = unit / each, unit_channel = unit - x * each;
        const bool over = pool_words()[plan.x_count + x] != 0;
        const bool cut = plan.x0 + x >= plan.cut_left && plan.x0 + x < plan.cut_right;
        const u32 column = (plan.top + r0) * pitch + (plan.x0 + x) * each;
        u32 row = start / line_channels, line_channel = start - row * line_channels;
        while (row < rows) {
            // One of the two is 0.
            const u32 c = unit_channel + line_channel, bits = flags[row];
            const u32 count = taps[row].count, first = count ? taps[row].first - low : 0;
            const float* w = weights + row * most;
            const u8* from = bytes + (first * row_bytes + c * channel_bytes + x);
            float v = 0.0f;
#pragma unroll 2
            for (u32 t = 0; t < count; ++t) {
                v = __fmaf_rn(w[t], (float)*from, v);
                from += row_bytes;
            }
            v = __fmaf_rn(within(v, plan.white), __ldg(table + c), __ldg(table + channels + c));
            if (!over || !(bits & ROW_INSIDE)) v = __ldg(table + 2 * channels + c);
            if (cut && (bits & ROW_CUT)) v = __ldg(table + 3 * channels + c);
            const u32 to = column + row * pitch + c * plane;
            *(typename D::Raw*)(plan.dst + (u64)to * sizeof(typename D::Raw)) = D::one(v);
            row += step_rows;
            line_channel += step_channels;
            if (line_channel >= line_channels) {
                line_channel -= line_channels;
                ++row;
            }
        }
    }
}

// ---- directly: source to the row, without the pool ---------------------------------------------------------------

// The taps of one output, weighed again each time they are used.
struct Reach {
    float centre, sum;
    u32 first, end;
};
__device__ __forceinline__ Reach reach_of(const Line& a, u32 o) {
    Reach r;
    r.centre = centre_of(a, o);
    r.sum = 0.0f;
    if (!is_nearest(a)) {
        const Span span = span_of(a, o, r.centre, a.low, a.high);
        r.first = span.first;
        r.end = span.end;
        while (r.first < r.end && raw_weight(a, r.centre, r.first, a.low, a.high) == 0.0f) ++r.first;
        while (r.first < r.end && raw_weight(a, r.centre, r.end - 1, a.low, a.high) == 0.0f) --r.end;
        for (u32 pixel = r.first; pixel < r.end; ++pixel) r.sum = __fadd_rn(r.sum, raw_weight(a, r.centre, pixel, a.low, a.high));
        // A division that changes nothing.
        if (is_fixed(a)) r.sum = 1.0f;
    }
    if (!(r.sum > 0.0f)) {
        r.sum = 0.0f;
        r.first = nearest_of(a, o, r.centre, a.low, a.high);
        r.end = r.first + 1;
    }
    return r;
}
__device__ __forceinline__ float weight_of(const Line& a, const Reach& r, u32 pixel) {
    return r.sum == 0.0f ? 1.0f : __fdiv_rn(raw_weight(a, r.centre, pixel, a.low, a.high), r.sum);
}

// Columns `x0..x0 + wide` of the band. One function for all types: it is slow anyway.
__device__ __noinline__ void direct(u32 x0, u32 wide, u32 src_kind, u32 dst_kind) {
    const Plan& plan = infeed_plan;
    const u32 src_size = src_kind == U8 ? 1 : src_kind == U16 ? 2 : 4, dst_size = dst_kind == U8 ? 1 : dst_kind == F32 ? 4 : 2;
    const float* table = plan.table;
    const u32 channels = plan.channels, nhwc = plan.nhwc;
    const u64 total = (u64)plan.rows * wide * channels;
    for (u64 n = threadIdx.x; n < total; n += blockDim.x) {
        const u32 fast = nhwc ? channels : wide, slow = nhwc ? wide : channels;
        const u32 a = (u32)(n % fast), b = (u32)(n / fast % slow), row = plan.top + (u32)(n / fast / slow);
        const u32 c = nhwc ? a : b, column = x0 + (nhwc ? b : a);
        const u32 oy = output_at(plan.y, row), ox = output_at(plan.x, column);
        float v = __ldg(table + 2 * channels + c);
        if (row >= plan.cut_top && row < plan.cut_bottom && column >= plan.cut_left && column < plan.cut_right) {
            v = __ldg(table + 3 * channels + c);
        } else if (inside(plan.y, oy) && inside(plan.x, ox)) {
            const Reach down = reach_of(plan.y, oy), across = reach_of(plan.x, ox);
            const u64 src = plan.src + (plan.sums == 1 ? 0 : c) * plan.plane * src_size + (u64)(down.first - plan.row_origin) * plan.pitch;
            float sum = 0.0f;
            for (u32 py = down.first; plan.across_first && py < down.end; ++py) {
                u64 p = src + (u64)(py - down.first) * plan.pitch + (u64)(across.first - plan.column_origin) * plan.pixel;
                float line_sum = 0.0f;
                for (u32 px = across.first; px < across.end; ++px) {
                    line_sum = __fmaf_rn(weight_of(plan.x, across, px), (float)__ldg((const u8*)p), line_sum);
                    p += plan.pixel;
                }
                sum = __fmaf_rn(weight_of(plan.y, down, py), (float)byte_of(line_sum), sum);
            }
            for (u32 px = across.first; !plan.across_first && px < across.end; ++px) {
                u64 p = src + (u64)(px - plan.column_origin) * plan.pixel * src_size;
                float column_sum = 0.0f;
                for (u32 py = down.first; py < down.end; ++py) {
                    const float value = src_kind == U8    ? (float)__ldg((const u8*)p)
                                        : src_kind == U16 ? (float)__ldg((const u16*)p)
                                                          : __ldg((const float*)p);
                    column_sum = __fmaf_rn(weight_of(plan.y, down, py), value, column_sum);
                    p += plan.pitch;
                }
                sum = __fmaf_rn(weight_of(plan.x, across, px), column_sum, sum);
            }
            v = __fmaf_rn(within(sum, plan.white), __ldg(table + c), __ldg(table + channels + c));
        }
        const u32 at = nhwc ? (row * plan.width + column) * channels + c : (c * plan.height + row) * plan.width + column;
        const u64 to = plan.dst + (u64)at * dst_size;
        if (dst_kind == U8)
            *(u8*)to = ToU8::one(v);
        else if (dst_kind == F16)
            *(u16*)to = ToF16::one(v);
        else if (dst_kind == BF16)
            *(u16*)to = ToBf16::one(v);
        else
            *(float*)to = v;
    }
}

// ---- a block -------------------------------------------------------------------------------------------------------

// The first thread's: what holds for all tiles.
__device__ __noinline__ void plan_band(const Item& item, const float* table, u32 height, u32 width, u32 channels, u32 nhwc, u32 top, u32 rows, u32 four_bytes, u32 src_kind) {
    Plan& plan = infeed_plan;
    // Those of floats follow in the order of their namesakes.
    const bool of_floats = item.filter >= CUBIC_OF_FLOATS;
    const u32 filter = of_floats ? item.filter - CUBIC_OF_FLOATS + CUBIC : item.filter;
    const Line y = line_of(item.y, item.origin[0], item.extent[0], height, filter);
    const Line x = line_of(item.x, item.origin[1], item.extent[1], width, filter);
    const bool overshoots = filter == CUBIC || filter == CUBIC_FOUR || filter == LANCZOS;
    plan.white = !overshoots || src_kind == F32 ? 0.0f : src_kind == U8 ? 255.0f : 65535.0f;
    plan.across_first = overshoots && src_kind == U8 && !of_floats;
    plan.y = y;
    plan.x = x;
    plan.src = item.src;
    plan.dst = item.dst;
    plan.plane = item.plane;
    plan.table = table;
    plan.pitch = item.pitch;
    plan.pixel = item.pixel;
    plan.row_origin = item.origin[0];
    plan.column_origin = item.origin[1];
    plan.sums = item.gray ? 1 : channels;
    plan.height = height;
    plan.width = width;
    plan.channels = channels;
    plan.nhwc = nhwc;
    plan.cut_top = item.cutout[0];
    plan.cut_bottom = item.cutout[1];
    plan.cut_left = item.cutout[2];
    plan.cut_right = item.cutout[3];
    plan.top = top;
    plan.rows = rows;
    plan.four = !nhwc && width % 4 == 0 && item.dst % four_bytes == 0;
    plan.by_channel = item.plane == 1 && plan.sums > 1;

    // The widest tile whose taps fit beside the sums of one row, by halves; 0 when none of four columns does. One word
    // stays free: a second tap of weight 0 may lie behind the last sum.
    const u32 words = infeed_shared_bytes() / 4;
    const u64 fixed = (u64)rows * (y.most + 5ull) + 1;
    u32 every = up_to_four(width);
    for (;;) {
        const u32 reads = smaller(__float2uint_rz((float)every * x.step), 1u << 30) + x.most + 2;
        u64 sums = (u64)(smaller(reads, x.high - x.low) + 2) * plan.sums;
        // Bytes of as many source rows as one row reads.
        if (plan.across_first) sums = (u64)(every / 4) * plan.sums * y.most;
        if (fixed + every * (x.most + 2ull) + sums <= words) break;
        if (every <= 4) {
            every = 0;
            break;
        }
        every = up_to_four(every / 2);
    }
    plan.every = every;
    if (!every) return;
    plan.x_first = x.most * every;
    plan.x_count = plan.x_first + every;
    plan.y_taps = plan.x_count + every;
    plan.flags = plan.y_taps + 4 * rows;
    plan.y_weights = plan.flags + rows;
    plan.sums_at = plan.y_weights + rows * y.most;
    plan.room = words - 1 - plan.sums_at;
}

// The first thread's: the tile that begins at `x0`.
__device__ __noinline__ void plan_tile(u32 x0) {
    Plan& plan = infeed_plan;
    const Line& x = plan.x;
    const u32 wide = smaller(plan.every, plan.width - x0), threads = blockDim.x;
    plan.x0 = x0;
    plan.wide = wide;
    // Outputs of the tile that lie over the image; windows move forward with them.
    const u32 begin = x.flip ? plan.width - x0 - wide : x0;
    const u32 from = larger(begin, x.from), to = smaller(begin + wide, x.to);
    u32 low = x.low, high = x.low;
    if (from < to) {
        low = span_of(x, from, centre_of(x, from), x.low, x.high).first;
        high = span_of(x, to - 1, centre_of(x, to - 1), x.low, x.high).end;
    }
    const u32 columns = low < high ? high - low : 0;
    plan.low = low;
    plan.columns = columns;
    // Odd, so that lines of one column lie in different banks.
    plan.line = (columns + 1) | 1;
    plan.rows_at_once = smaller(plan.room / plan.line / plan.sums, plan.rows);
    if (plan.across_first) {
        plan.line = up_to_four(wide);
        plan.rows_at_once = plan.room / (plan.line / 4) / plan.sums;
        if (plan.rows_at_once < plan.y.most) plan.rows_at_once = 0;
    }
    // The faster digit is the one whose elements lie side by side, so that lanes read whole sectors.
    plan.sources = (columns + 1) * plan.sums;
    plan.digit = plan.by_channel ? plan.sums : columns + 1;
    plan.sum_abreast = plan.sources < threads ? threads / plan.sources : 1;
    // Many short lines go side by side; a thread keeps its columns, so their taps stay in registers.
    const u32 units = plan.four ? wide / 4 : plan.nhwc ? wide * plan.channels : wide;
    plan.units = units;
    plan.abreast = units < threads ? threads / units : 1;
    plan.unit_step = units < threads ? units : threads;
    const u32 line_channels = plan.nhwc ? 1 : plan.channels;
    plan.step_rows = plan.abreast / line_channels;
    plan.step_channels = plan.abreast % line_channels;
}

// Taps of the tile's columns, one thread for each, and of the band's rows; the last threads begin with rows.
__device__ __noinline__ void taps_of_tile() {
    const Plan& plan = infeed_plan;
    const u32 thread = threadIdx.x, threads = blockDim.x;
    for (u32 i = thread; i < plan.wide; i += threads) {
        const u32 o = output_at(plan.x, plan.x0 + i);
        u32 first = plan.low, taps = 0;
        if (plan.columns && inside(plan.x, o))
            taps = make_taps(plan.x, o, plan.low, plan.low + plan.columns, pool() + i, plan.every, first);
        pool_words()[plan.x_first + i] = first - plan.low;
        pool_words()[plan.x_count + i] = taps;
    }
    for (u32 r = threads - 1 - thread; r < plan.rows; r += threads) {
        const u32 row = plan.top + r, o = output_at(plan.y, row);
        float* weights = pool() + plan.y_weights + r * plan.y.most;
        u32 first = plan.row_origin, taps = 0;
        if (inside(plan.y, o))
            taps = make_taps(plan.y, o, plan.y.low, plan.y.high, weights, 1, first);
        RowTaps all;
        all.first = first - plan.row_origin;
        all.count = taps;
        all.w0 = taps ? weights[0] : 0.0f;
        all.w1 = taps > 1 ? weights[1] : 0.0f;
        ((RowTaps*)(pool() + plan.y_taps))[r] = all;
        pool_words()[plan.flags + r] = (taps ? ROW_INSIDE : 0) | (row >= plan.cut_top && row < plan.cut_bottom ? ROW_CUT : 0);
    }
}

template <class S, class D>
__device__ __forceinline__ void resample(const Item* items, const float* table, u32 height, u32 width, u32 channels, u32 nhwc, u32 count) {
    const u32 thread = threadIdx.x;
    const u32 per_band = (height + gridDim.x - 1) / gridDim.x, top = blockIdx.x * per_band;
    if (blockIdx.y >= count || top >= height) return;
    if (thread == 0)
        plan_band(items[blockIdx.y], table, height, width, channels, nhwc, top, smaller(per_band, height - top), sizeof(typename D::Four), Source<S>::KIND);
    __syncthreads();
    const Plan& plan = infeed_plan;
    if (!plan.every) {
        direct(0, width, Source<S>::KIND, D::KIND);
        return;
    }
    for (u32 x0 = 0; x0 < width; x0 += plan.every) {
        if (thread == 0) plan_tile(x0);
        __syncthreads();
        if (!plan.rows_at_once) {
            direct(x0, plan.wide, Source<S>::KIND, D::KIND);
            __syncthreads();
            continue;
        }
        taps_of_tile();
        // Threads that are left over when lines lie side by side have no unit.
        const u32 line = plan.abreast > 1 ? thread / plan.units : 0;
        const u32 unit = line < plan.abreast ? thread - line * plan.units : plan.units;
        __syncthreads();
        // Read before the last barrier: behind it the first thread may plan the next tile.
        const u32 at_once = plan.rows_at_once;
        if (Source<S>::KIND == U8 && plan.across_first) {
            for (u32 r0 = 0, rows = 0; r0 < plan.rows; r0 += rows) {
                u32 low, high;
                rows = rows_within(r0, at_once, low, high);
                if (low < high) across(low, high - low);
                __syncthreads();
                if (plan.four)
                    down_four<D>(r0, rows, low, unit, line);
                else
                    down_one<D>(r0, rows, low, unit, line);
                // The next bytes, or the next tile's taps, take the place of these.
                __syncthreads();
            }
            continue;
        }
        for (u32 r0 = 0; r0 < plan.rows; r0 += at_once) {
            const u32 rows = smaller(at_once, plan.rows - r0);
            if (plan.y.most <= 2)
                vertical<S, true>(r0, rows);
            else
                vertical<S, false>(r0, rows);
            __syncthreads();
            if (plan.four && plan.x.most <= 2 && plan.white == 0.0f)
                horizontal_four<D, Source<S>::FINITE != 0, true>(r0, rows, unit, line);
            else if (plan.four)
                horizontal_four<D, true, false>(r0, rows, unit, line);
            else
                horizontal_one<D>(r0, rows, unit, line);
            // The next sums, or the next tile's taps, take the place of these.
            __syncthreads();
        }
    }
}

#define KERNEL(name, from, to)                                                                                         \
    extern "C" __global__ void __launch_bounds__(256, 5) name(                                                         \
        const Item* items, const float* table, unsigned height, unsigned width, unsigned channels, unsigned nhwc, unsigned count) { \
        resample<from, to>(items, table, height, width, channels, nhwc, count);                                        \
    }

KERNEL(resample_u8_to_u8, u8, ToU8)
KERNEL(resample_u8_to_f16, u8, ToF16)
KERNEL(resample_u8_to_bf16, u8, ToBf16)
KERNEL(resample_u8_to_f32, u8, ToF32)
KERNEL(resample_u16_to_u8, u16, ToU8)
KERNEL(resample_u16_to_f16, u16, ToF16)
KERNEL(resample_u16_to_bf16, u16, ToBf16)
KERNEL(resample_u16_to_f32, u16, ToF32)
KERNEL(resample_f32_to_u8, float, ToU8)
KERNEL(resample_f32_to_f16, float, ToF16)
KERNEL(resample_f32_to_bf16, float, ToBf16)
KERNEL(resample_f32_to_f32, float, ToF32)
