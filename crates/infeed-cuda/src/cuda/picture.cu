// What happens to pictures beside resampling: steps on pictures that lie between two resamples, rectangles of rows, and
// rows that are mixed with one another.
//
// Bit for bit what `tile` and `mix` in this folder give (NaN may be any NaN). A plain subset of CUDA C++: NVRTC
// compiles it without headers, a host's compiler after `integration/support/mock/shim.h` with INFEED_HOST defined.
// Products are fused where __fmaf_rn says so and nowhere else: both compilers are told not to.
//
// picture_u8, picture_f32    one block does all steps of a picture, whatever was drawn for it: one launch for any number of
//                            pictures, of different sizes, with different steps
// fill_{u8|f16|bf16|f32}     rectangles of finished rows: erasing
// roll_…, swap_…             MixUp and CutMix
//
// Steps are words that the host wrote (picture.rs). Each names the places that it reads and writes, so nothing here keeps
// account of where the picture is. A picture of 224x224x3 bytes is 150 KB and stays in the second cache (50 MB on an
// H100), where its block reads and writes it once for each step; four bytes at a time wherever a step does not look at
// neighbours. Reckoned, not measured: 75 rounds of 512 threads for each step, 10 to 20 µs, on one of 132 SMs.
// 64 registers, a few of them spilled, so two blocks share an SM (ptxas 13.0 for sm_80, 90 and 100).
//
// What the caller must see to: places hold height * width * channels values of the picture's type (of f32, where a step
// says so), aligned to 16 bytes; words are those of `Program`; a block has THREADS threads.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned u32;
typedef unsigned long long u64;

#ifndef INFEED_HOST
__device__ __forceinline__ u32 infeed_half_bits(float f) {
    u16 h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
    return h;
}
#else
inline u32 infeed_half_bits(float f) { return infeed_f16_bits(f); }
#endif

// Apart from the other file's names, where both are compiled at once.
namespace infeed_picture {

// As in picture.rs.
enum { THREADS = 512 };
enum Kind {
    BRIGHTNESS,
    CONTRAST,
    SATURATION,
    HUE,
    SHARPNESS,
    GRAYSCALE,
    INVERT,
    POSTERIZE,
    SOLARIZE,
    SOLARIZE_ADD,
    AUTOCONTRAST,
    EQUALIZE,
    PERMUTE,
    BLUR,
    WARP,
    ERASE,
    COPY,
    SUM_BEGIN,
    SUM_ADD,
    SUM_END
};
enum { PLACES = 5, FLOATS = 3, SUMS = 4 };

struct Picture {
    u64 places[PLACES], words;
    u32 count, height, width, unused;
};
static_assert(sizeof(Picture) == 64, "as in picture.rs");

struct Rectangle {
    u64 row, values;
    u32 area[4];
    u32 each, unused;
};
static_assert(sizeof(Rectangle) == 40, "as in picture.rs");

struct Mixing {
    u32 a, b, paste;
    float own, other;
    u32 area[4];
};
static_assert(sizeof(Mixing) == 36, "as in picture.rs");

// ---- values --------------------------------------------------------------------------------------------------------

// To 0..white; NaN becomes 0.
__device__ __forceinline__ float clamp(float v, float white) {
    v = v > 0.0f ? v : 0.0f;
    return v < white ? v : white;
}
__device__ __forceinline__ u8 truncate(float v) { return (u8)(int)clamp(v, 255.0f); }

// What bytes and floats have in common; the words are those of values.rs.
template <class V> struct Value;
template <> struct Value<u8> {
    enum { BYTES = 1 };
    static __device__ __forceinline__ u8 rounded(float v) {
        return (u8)__float_as_uint(clamp(v, 255.0f) + 8388608.0f);
    }
    static __device__ __forceinline__ u8 truncated(float v) { return truncate(v); }
    static __device__ __forceinline__ u8 raw(float v) { return truncate(v); }
    static __device__ __forceinline__ float floor(float v) { return (float)truncate(v); }
    static __device__ __forceinline__ float unit(u8 v) { return (float)v * (1.0f / 255.0f); }
    static __device__ __forceinline__ u8 of_unit(float v) { return truncate(v * 255.999f); }
    // As bytes that can be counted, and back.
    static __device__ __forceinline__ u8 byte(u8 v) { return v; }
    static __device__ __forceinline__ u8 of_byte(u8 v) { return v; }
};
template <> struct Value<float> {
    enum { BYTES = 0 };
    static __device__ __forceinline__ float rounded(float v) { return v; }
    static __device__ __forceinline__ float truncated(float v) { return clamp(v, 1.0f); }
    static __device__ __forceinline__ float raw(float v) { return v; }
    static __device__ __forceinline__ float floor(float v) { return v; }
    static __device__ __forceinline__ float unit(float v) { return v; }
    static __device__ __forceinline__ float of_unit(float v) { return v; }
    static __device__ __forceinline__ u8 byte(float v) { return truncate(v * 255.999f); }
    static __device__ __forceinline__ float of_byte(u8 v) { return (float)v * (1.0f / 255.0f); }
};

template <class V> struct Four {
    V v[4];
};
__device__ __forceinline__ Four<u8> load(const u8* p) {
    const u32 word = *(const u32*)p;
    Four<u8> four;
    for (int k = 0; k < 4; ++k) four.v[k] = (u8)(word >> (8 * k));
    return four;
}
__device__ __forceinline__ Four<float> load(const float* p) {
    const float4 q = *(const float4*)p;
    Four<float> four;
    four.v[0] = q.x, four.v[1] = q.y, four.v[2] = q.z, four.v[3] = q.w;
    return four;
}
__device__ __forceinline__ void store(u8* p, const Four<u8>& four) {
    u32 word = 0;
    for (int k = 0; k < 4; ++k) word |= (u32)four.v[k] << (8 * k);
    *(u32*)p = word;
}
__device__ __forceinline__ void store(float* p, const Four<float>& four) {
    *(float4*)p = make_float4(four.v[0], four.v[1], four.v[2], four.v[3]);
}

// What `f` makes of each value, in place or not.
template <class V, class F> __device__ __forceinline__ void each(const V* from, V* to, u32 count, F f) {
    const u32 fours = ((u64)from | (u64)to) % (4 * sizeof(V)) == 0 ? count / 4 : 0;
    for (u32 i = threadIdx.x; i < fours; i += THREADS) {
        Four<V> four = load(from + 4 * (u64)i);
        for (int k = 0; k < 4; ++k) four.v[k] = f(four.v[k]);
        store(to + 4 * (u64)i, four);
    }
    for (u32 i = 4 * fours + threadIdx.x; i < count; i += THREADS) to[i] = f(from[i]);
}

// The same for pixels of three planes, whose values `f` changes; or looks at, when they are constant.
template <class V> __device__ __forceinline__ void put(V* p, const Four<V>& four) { store(p, four); }
template <class V> __device__ __forceinline__ void put(const V*, const Four<V>&) {}
template <class P, class F> __device__ __forceinline__ void each_pixel(P* values, u32 plane, F f) {
    P *r = values, *g = values + plane, *b = values + 2 * (u64)plane;
    const u32 fours = ((u64)r | (u64)g | (u64)b) % (4 * sizeof(P)) == 0 ? plane / 4 : 0;
    for (u32 i = threadIdx.x; i < fours; i += THREADS) {
        const u64 at = 4 * (u64)i;
        auto red = load(r + at), green = load(g + at), blue = load(b + at);
        for (int k = 0; k < 4; ++k) f(red.v[k], green.v[k], blue.v[k]);
        put(r + at, red), put(g + at, green), put(b + at, blue);
    }
    for (u32 i = 4 * fours + threadIdx.x; i < plane; i += THREADS) f(r[i], g[i], b[i]);
}

// ---- what a block shares --------------------------------------------------------------------------------------------

__shared__ double infeed_partial[THREADS];
__shared__ float infeed_low[THREADS], infeed_high[THREADS];
__shared__ u32 infeed_counts[256], infeed_range[2];
__shared__ u64 infeed_total;
__shared__ u8 infeed_table[256];

__device__ __forceinline__ void look_up(u8* values, u32 count) {
    __syncthreads();
    each(values, values, count, [](u8 v) { return infeed_table[v]; });
}

// ---- colour -----------------------------------------------------------------------------------------------------------

__device__ __forceinline__ float gray_of(float r, float g, float b) {
    return __fmaf_rn(b, 0.114f, __fmaf_rn(g, 0.587f, r * 0.2989f));
}

__device__ __forceinline__ void brightness(u8* values, u32 count, float factor) {
    if (threadIdx.x < 256) infeed_table[threadIdx.x] = truncate((float)threadIdx.x * factor);
    look_up(values, count);
}
__device__ __forceinline__ void brightness(float* values, u32 count, float factor) {
    each(values, values, count, [=](float v) { return clamp(__fmaf_rn(0.0f, 0.0f, v * factor), 1.0f); });
}

__device__ __noinline__ void contrast(u8* values, u32 plane, u32 channels, float factor, float alpha) {
    if (threadIdx.x == 0) infeed_total = 0;
    __syncthreads();
    u64 sum = 0;
    if (channels == 3) {
        const u8* seen = values;
        each_pixel(seen, plane, [&](u8 r, u8 g, u8 b) { sum += truncate(gray_of((float)r, (float)g, (float)b)); });
    } else {
        for (u32 i = threadIdx.x; i < plane; i += THREADS) sum += values[i];
    }
    atomicAdd(&infeed_total, sum);
    __syncthreads();
    const float mean = (float)infeed_total / (float)plane;
    if (threadIdx.x < 256)
        infeed_table[threadIdx.x] = truncate(__fmaf_rn(mean, alpha, (float)threadIdx.x * factor));
    look_up(values, plane * channels);
}

// Sums of f64 in the order of colour.rs: 32 parts of the picture, of 16 lanes each.
enum { LANES = 16, PARTS = THREADS / LANES };
__device__ __noinline__ void contrast(float* values, u32 plane, u32 channels, float factor, float alpha) {
    const u32 each_part = ((plane + PARTS - 1) / PARTS + LANES - 1) / LANES * LANES;
    const u32 part = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const u64 start = (u64)part * each_part, all = start + each_part;
    const u64 end = all < plane ? all : plane;
    double sum = 0.0;
    if (channels == 3) {
        const float *r = values, *g = values + plane, *b = values + 2 * (u64)plane;
        for (u64 i = start + lane; i < end; i += LANES) sum += (double)gray_of(r[i], g[i], b[i]);
    } else {
        for (u64 i = start + lane; i < end; i += LANES) sum += (double)values[i];
    }
    infeed_partial[threadIdx.x] = sum;
    __syncthreads();
    if (lane == 0) {
        double lanes = 0.0;
        for (u32 i = 0; i < LANES; ++i) lanes += infeed_partial[threadIdx.x + i];
        infeed_partial[threadIdx.x] = lanes;
    }
    __syncthreads();
    double total = 0.0;
    for (u32 i = 0; i < PARTS; ++i) total += infeed_partial[i * LANES];
    const float mean = (float)(total / (double)plane);
    each(values, values, plane * channels,
         [=](float v) { return clamp(__fmaf_rn(mean, alpha, v * factor), 1.0f); });
}

template <class V> __device__ __forceinline__ void saturation(V* values, u32 plane, float factor, float alpha) {
    each_pixel(values, plane, [=](V& r, V& g, V& b) {
        const float red = (float)r, green = (float)g, blue = (float)b;
        const float gray = Value<V>::floor(gray_of(red, green, blue));
        r = Value<V>::truncated(__fmaf_rn(gray, alpha, red * factor));
        g = Value<V>::truncated(__fmaf_rn(gray, alpha, green * factor));
        b = Value<V>::truncated(__fmaf_rn(gray, alpha, blue * factor));
    });
}

template <class V> __device__ __forceinline__ void grayscale(V* values, u32 plane) {
    each_pixel(values, plane, [](V& r, V& g, V& b) {
        r = g = b = Value<V>::raw(gray_of((float)r, (float)g, (float)b));
    });
}

// Through hue, saturation and value and back, as in colour.rs.
__device__ __forceinline__ void turn(float& r, float& g, float& b, float shift) {
    float low = r < g ? r : g, high = r > g ? r : g;
    low = b < low ? b : low;
    high = b > high ? b : high;
    const float range = high - low;
    const bool flat = high == low;
    const float saturation = range / (flat ? 1.0f : high), over = flat ? 1.0f : range;
    const bool is_r = high == r, is_g = high == g;
    const float first = is_r ? b : is_g ? r : g, second = is_r ? g : is_g ? b : r;
    const float sixth = is_r ? 0.0f : is_g ? 2.0f : 4.0f;
    const float of_six = ((high - first) / over + sixth) - (high - second) / over;
    float hue = of_six * (1.0f / 6.0f) + 1.0f;
    hue = (hue >= 1.0f ? hue - 1.0f : hue) + shift;
    hue = hue >= 1.0f ? hue - 1.0f : hue < 0.0f ? hue + 1.0f : hue;
    const float sixths = clamp(hue * 6.0f, 6.0f);
    const int sector = (int)sixths;
    const float rest = sixths - (float)sector, part = saturation * rest, white = 1.0f - saturation;
    const float q = clamp((1.0f - part) * high, 1.0f), t = clamp((part + white) * high, 1.0f);
    const float p = clamp(white * high, 1.0f), v = high;
    // The sixth sixth is the first again.
    r = sector == 1 ? q : sector == 2 || sector == 3 ? p : sector == 4 ? t : v;
    g = sector == 1 || sector == 2 ? v : sector == 3 ? q : sector == 4 || sector == 5 ? p : t;
    b = sector == 2 ? t : sector == 3 || sector == 4 ? v : sector == 5 ? q : p;
}

template <class V> __device__ __noinline__ void hue(V* values, u32 plane, float shift) {
    each_pixel(values, plane, [=](V& r, V& g, V& b) {
        float red = Value<V>::unit(r), green = Value<V>::unit(g), blue = Value<V>::unit(b);
        turn(red, green, blue, shift);
        r = Value<V>::of_unit(red);
        g = Value<V>::of_unit(green);
        b = Value<V>::of_unit(blue);
    });
}

__device__ __forceinline__ void invert(u8* values, u32 count) {
    each(values, values, count, [](u8 v) { return (u8)~v; });
}
__device__ __forceinline__ void invert(float* values, u32 count) {
    each(values, values, count, [](float v) { return 1.0f - v; });
}

// Bytes: what is kept of each; floats: how many steps.
__device__ __forceinline__ void posterize(u8* values, u32 count, u32 mask, float) {
    each(values, values, count, [=](u8 v) { return (u8)(v & mask); });
}
__device__ __forceinline__ void posterize(float* values, u32 count, u32, float levels) {
    each(values, values, count, [=](float v) {
        return (float)(int)clamp(v * levels, levels - 1.0f) * (1.0f / levels);
    });
}

// From `byte` or `part` on.
__device__ __forceinline__ void solarize(u8* values, u32 count, u32 byte, float) {
    each(values, values, count, [=](u8 v) { return v >= byte ? (u8)~v : v; });
}
__device__ __forceinline__ void solarize(float* values, u32 count, u32, float part) {
    each(values, values, count, [=](float v) { return v >= part ? 1.0f - v : v; });
}

__device__ __forceinline__ void solarize_add(u8* values, u32 count, float add, float below) {
    const u32 v = threadIdx.x;
    if (v < 256) infeed_table[v] = (float)v < below ? truncate((float)v + add) : (u8)v;
    look_up(values, count);
}
__device__ __forceinline__ void solarize_add(float* values, u32 count, float add, float below) {
    each(values, values, count, [=](float v) { return v < below ? clamp(v + add, 1.0f) : v; });
}

// ---- ranges and counts ------------------------------------------------------------------------------------------------

__device__ __noinline__ void autocontrast(u8* values, u32 plane, u32 channels) {
    for (u32 c = 0; c < channels; ++c, values += plane) {
        if (threadIdx.x == 0) infeed_range[0] = 255, infeed_range[1] = 0;
        __syncthreads();
        u32 least = 255, most = 0;
        for (u32 i = threadIdx.x; i < plane; i += THREADS) {
            const u32 v = values[i];
            least = v < least ? v : least;
            most = v > most ? v : most;
        }
        atomicMin(&infeed_range[0], least);
        atomicMax(&infeed_range[1], most);
        __syncthreads();
        // A plane of one value stays, and so does what torch divides by one.
        const float low = (float)infeed_range[0], high = (float)infeed_range[1];
        const float scale = (high - low) * (1.0f / 255.0f);
        if (threadIdx.x < 256)
            infeed_table[threadIdx.x] = low < high ? truncate(((float)threadIdx.x - low) / scale) : (u8)threadIdx.x;
        look_up(values, plane);
        __syncthreads();
    }
}
__device__ __noinline__ void autocontrast(float* values, u32 plane, u32 channels) {
    const float infinity = __uint_as_float(0x7f800000u);
    for (u32 c = 0; c < channels; ++c, values += plane) {
        float low = infinity, high = -infinity;
        for (u32 i = threadIdx.x; i < plane; i += THREADS) {
            const float v = values[i];
            low = v < low ? v : low;
            high = v > high ? v : high;
        }
        infeed_low[threadIdx.x] = low;
        infeed_high[threadIdx.x] = high;
        for (u32 half = THREADS / 2; half; half /= 2) {
            __syncthreads();
            if (threadIdx.x < half) {
                const float a = infeed_low[threadIdx.x + half], b = infeed_high[threadIdx.x + half];
                if (a < infeed_low[threadIdx.x]) infeed_low[threadIdx.x] = a;
                if (b > infeed_high[threadIdx.x]) infeed_high[threadIdx.x] = b;
            }
        }
        __syncthreads();
        low = infeed_low[0], high = infeed_high[0];
        const float scale = low < high ? high - low : 1.0f;
        low = low < high ? low : 0.0f;
        each(values, values, plane, [=](float v) { return clamp((v - low) / scale, 1.0f); });
        __syncthreads();
    }
}

// Floats are counted, and come out, as bytes.
template <class V> __device__ __noinline__ void equalize(V* values, u32 plane, u32 channels) {
    for (u32 c = 0; c < channels; ++c, values += plane) {
        if (threadIdx.x < 256) infeed_counts[threadIdx.x] = 0;
        __syncthreads();
        for (u32 i = threadIdx.x; i < plane; i += THREADS) atomicAdd(&infeed_counts[Value<V>::byte(values[i])], 1u);
        __syncthreads();
        if (threadIdx.x == 0) {
            u32 last = 255;
            while (last && !infeed_counts[last]) --last;
            const u32 step = (plane - infeed_counts[last]) / 255;
            u32 before = 0;
            for (u32 v = 0; v < 256; ++v) {
                const u32 entry = step ? (before + step / 2) / step : v;
                infeed_table[v] = (u8)(step && !before ? 0 : entry < 255 ? entry : 255);
                before += infeed_counts[v];
            }
        }
        __syncthreads();
        each(values, values, plane, [](V v) { return Value<V>::of_byte(infeed_table[Value<V>::byte(v)]); });
        __syncthreads();
    }
}

// ---- neighbours --------------------------------------------------------------------------------------------------------

__device__ __forceinline__ u32 mirrored(int at, u32 len) {
    const u32 from_start = (u32)(at < 0 ? -at : at);
    return from_start < len ? from_start : 2 * len - 2 - from_start;
}

// Across into floats, and down from there. `taps`: how many there are down and across, and weights from the middle on.
template <class V>
__device__ __noinline__ void blur(const V* from, V* to, float* floats, u32 height, u32 width, u32 channels, const u32* taps) {
    const u32 down = taps[0], across = taps[1], count = height * width * channels;
    const float *weights_down = (const float*)(taps + 2), *weights_across = weights_down + down;
    for (u32 i = threadIdx.x; i < count; i += THREADS) {
        const u32 x = i % width;
        const V* line = from + (i - x);
        float sum = (float)line[x] * weights_across[0];
        for (u32 k = 1; k < across; ++k) {
            const float before = (float)line[mirrored((int)x - (int)k, width)];
            const float behind = (float)line[mirrored((int)(x + k), width)];
            sum = __fmaf_rn(weights_across[k], before + behind, sum);
        }
        floats[i] = sum;
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < count; i += THREADS) {
        const u32 line = i / width, y = line % height;
        const float* column = floats + (i - y * width);
        float sum = column[y * width] * weights_down[0];
        for (u32 k = 1; k < down; ++k) {
            const float above = column[mirrored((int)y - (int)k, height) * width];
            const float below = column[mirrored((int)(y + k), height) * width];
            sum = __fmaf_rn(weights_down[k], above + below, sum);
        }
        to[i] = Value<V>::rounded(sum);
    }
}

__device__ __forceinline__ u8 sharpened(const u8* p, u32 width, float alpha) {
    u32 sum = 6 + 4 * (u32)p[0];
    for (int r = -1; r <= 1; ++r)
        for (int c = -1; c <= 1; ++c) sum += p[r * (int)width + c];
    // A division by 13, as in filter.rs.
    const float soft = (float)((sum * 5042u) >> 16), value = (float)p[0];
    return truncate(__fmaf_rn(soft - value, alpha, value));
}
__device__ __forceinline__ float sharpened(const float* p, u32 width, float alpha) {
    float soft = 0.0f;
    for (int r = -1; r <= 1; ++r)
        for (int c = -1; c <= 1; ++c)
            soft = __fmaf_rn(p[r * (int)width + c], (float)((r || c ? 1.0 : 5.0) / 13.0), soft);
    return clamp(__fmaf_rn(soft - p[0], alpha, p[0]), 1.0f);
}
template <class V>
__device__ __noinline__ void sharpness(const V* from, V* to, u32 height, u32 width, u32 channels, float alpha) {
    const u32 count = height * width * channels;
    for (u32 i = threadIdx.x; i < count; i += THREADS) {
        const u32 line = i / width, x = i - line * width, y = line % height;
        const bool inside = x > 0 && x + 1 < width && y > 0 && y + 1 < height;
        to[i] = inside ? sharpened(from + i, width, alpha) : Value<V>::truncated((float)from[i]);
    }
}

// ---- warps -------------------------------------------------------------------------------------------------------------

// The words of a warp: torchvision's grid, as in warp.rs.
struct Warp {
    u32 perspective, sampling, filled;
    float grid[3][3], fill[4];
};
static_assert(sizeof(Warp) == 64, "as in picture.rs");

// To the nearest whole number, to even halfway; of values from -2 to 2^22.
__device__ __forceinline__ int nearest_of(float v) {
    return (int)__float_as_uint(v + 12582912.0f) - (int)__float_as_uint(12582912.0f);
}
__device__ __forceinline__ int floor_of(float v) {
    const int whole = (int)(v + 2.0f) - 2;
    return whole - ((float)whole > v ? 1 : 0);
}

// From the grid's -1..1 to pixels; whatever they are, between -2 and the side plus 1.
__device__ __forceinline__ float pixel_of(float place, float side) {
    place = (place + 1.0f) * (side * 0.5f) - 0.5f;
    place = place > -2.0f ? place : -2.0f;
    return place < side + 1.0f ? place : side + 1.0f;
}

// Two taps of an axis, as in warp.rs: where they begin, and their weights.
struct Two {
    enum { TAPS = 2 };
    static __device__ __forceinline__ int taps(float at, u32 len, float* weights) {
        const int last = (int)len - 1, most = last > 0 ? last - 1 : 0, cell = floor_of(at);
        const float behind = at - (float)cell, before = 1.0f - behind;
        int first = cell > 0 ? cell : 0;
        first = first < most ? first : most;
        weights[0] = first == cell ? before : first == cell + 1 ? behind : 0.0f;
        weights[1] = last == 0 ? 0.0f : first == cell ? behind : first + 1 == cell ? before : 0.0f;
        return first;
    }
};
// Four.
struct FourTaps {
    enum { TAPS = 4 };
    static __device__ __forceinline__ int taps(float at, u32 len, float* weights) {
        const float A = -0.75f;
        const int most = len > 4 ? (int)len - 4 : 0;
        int first = floor_of(at) - 1;
        first = first > 0 ? first : 0;
        first = first < most ? first : most;
        for (int t = 0; t < 4; ++t) {
            const int pixel = first + t;
            const float x = fabsf(at - (float)pixel);
            const float near = ((A + 2.0f) * x - (A + 3.0f)) * x * x + 1.0f;
            const float far = ((A * x - 5.0f * A) * x + 8.0f * A) * x - 4.0f * A;
            const float weight = x <= 1.0f ? near : far;
            weights[t] = x < 2.0f && pixel < (int)len ? weight : 0.0f;
        }
        return first;
    }
};

template <class V, class T>
__device__ __forceinline__ void between(const V* from, V* to, u32 at, u32 plane, u32 height, u32 width, u32 channels, const Warp& warp, float x, float y) {
    float across[T::TAPS], down[T::TAPS];
    const int column = T::taps(x, width, across), row = T::taps(y, height, down);
    u32 columns[T::TAPS], rows[T::TAPS];
    // A short axis repeats its last pixel, without weight.
    for (int t = 0; t < T::TAPS; ++t) {
        columns[t] = column + t < (int)width ? column + t : width - 1;
        rows[t] = (row + t < (int)height ? row + t : height - 1) * width;
    }
    float mask = 0.0f;
    if (warp.filled)
        for (int r = 0; r < T::TAPS; ++r)
            for (int c = 0; c < T::TAPS; ++c) mask = __fmaf_rn(1.0f, across[c] * down[r], mask);
    for (u32 n = 0; n < channels; ++n, from += plane, to += plane) {
        float sum = 0.0f;
        for (int r = 0; r < T::TAPS; ++r)
            for (int c = 0; c < T::TAPS; ++c)
                sum = __fmaf_rn((float)from[rows[r] + columns[c]], across[c] * down[r], sum);
        if (warp.filled) sum = (sum - warp.fill[n & 3]) * mask + warp.fill[n & 3];
        to[at] = Value<V>::rounded(sum);
    }
}

template <class V>
__device__ __noinline__ void sample(const V* from, V* to, u32 height, u32 width, u32 channels, const Warp& warp) {
    const u32 plane = height * width;
    const float sides[2] = {(float)width, (float)height};
    for (u32 i = threadIdx.x; i < plane; i += THREADS) {
        const u32 row = i / width, column = i - row * width;
        const float y = warp.perspective ? (float)row + 0.5f : (1.0f - sides[1]) * 0.5f + (float)row;
        const float x = (warp.perspective ? 0.5f : (1.0f - sides[0]) * 0.5f) + (float)(int)column;
        float places[2];
        float sums[3];
        for (int k = 0; k < 3; ++k) sums[k] = (x * warp.grid[k][0] + y * warp.grid[k][1]) + warp.grid[k][2];
        for (int axis = 0; axis < 2; ++axis)
            places[axis] = pixel_of(warp.perspective ? sums[axis] / sums[2] - 1.0f : sums[axis], sides[axis]);
        if (warp.sampling == 0) {
            const int cx = nearest_of(places[0]), cy = nearest_of(places[1]);
            const bool inside = (u32)cx < width && (u32)cy < height;
            for (u32 n = 0; n < channels; ++n) {
                const float fill = warp.filled ? warp.fill[n & 3] : 0.0f;
                to[(u64)n * plane + i] = inside ? from[(u64)n * plane + (u32)cy * width + (u32)cx] : Value<V>::rounded(fill);
            }
        } else if (warp.sampling == 1) {
            between<V, Two>(from, to, i, plane, height, width, channels, warp, places[0], places[1]);
        } else {
            between<V, FourTaps>(from, to, i, plane, height, width, channels, warp, places[0], places[1]);
        }
    }
}

// ---- a block -----------------------------------------------------------------------------------------------------------

template <class V>
__device__ __forceinline__ void step(const Picture& picture, u32 head, const u32* words) {
    const u32 height = picture.height, width = picture.width, plane = height * width;
    const u32 channels = head >> 16, count = plane * channels;
    const V* from = (const V*)picture.places[head >> 8 & 15];
    V* to = (V*)picture.places[head >> 12 & 15];
    float *floats = (float*)picture.places[FLOATS], *sums = (float*)picture.places[SUMS];
    const float* numbers = (const float*)words;
    switch (head & 255) {
    case BRIGHTNESS: brightness(to, count, numbers[0]); break;
    case CONTRAST: contrast(to, plane, channels, numbers[0], numbers[1]); break;
    case SATURATION: saturation(to, plane, numbers[0], numbers[1]); break;
    case HUE: hue(to, plane, numbers[0]); break;
    case SHARPNESS: sharpness(from, to, height, width, channels, numbers[0]); break;
    case GRAYSCALE: grayscale(to, plane); break;
    case INVERT: invert(to, count); break;
    case POSTERIZE: posterize(to, count, words[0], numbers[1]); break;
    case SOLARIZE: solarize(to, count, words[0], numbers[1]); break;
    case SOLARIZE_ADD: solarize_add(to, count, numbers[0], numbers[1]); break;
    case AUTOCONTRAST: autocontrast(to, plane, channels); break;
    case EQUALIZE: equalize(to, plane, channels); break;
    case PERMUTE:
        for (u32 c = 0; c < channels; ++c) {
            const u64 at = (u64)plane * c;
            each(from + (u64)plane * words[c], to + at, plane, [](V v) { return v; });
        }
        break;
    case BLUR: blur(from, to, floats, height, width, channels, words); break;
    case WARP: sample(from, to, height, width, channels, *(const Warp*)words); break;
    case ERASE: {
        const u32 top = words[0], left = words[2], high = words[1] - top, wide = words[3] - left;
        for (u32 i = threadIdx.x; i < high * wide * channels; i += THREADS) {
            const u32 line = i / wide, c = line / high;
            to[(u64)c * plane + (u64)(top + line - c * high) * width + left + (i - line * wide)] = (V)numbers[4 + c];
        }
        break;
    }
    case COPY: each(from, to, count, [](V v) { return v; }); break;
    case SUM_BEGIN:
        for (u32 i = threadIdx.x; i < count; i += THREADS) sums[i] = numbers[0] * (float)from[i];
        break;
    case SUM_ADD:
        for (u32 i = threadIdx.x; i < count; i += THREADS) sums[i] = sums[i] + numbers[0] * (float)from[i];
        break;
    case SUM_END:
        for (u32 i = threadIdx.x; i < count; i += THREADS) to[i] = Value<V>::raw(sums[i]);
        break;
    }
}

template <class V> __device__ __forceinline__ void run(const Picture* pictures) {
    const Picture& picture = pictures[blockIdx.x];
    const u32* words = (const u32*)picture.words;
    const u32* const end = words + picture.count;
    while (words < end) {
        step<V>(picture, words[0], words + 2);
        words += 2 + words[1];
        // The next step reads what others wrote.
        __syncthreads();
    }
}

// ---- rows --------------------------------------------------------------------------------------------------------------

struct U8 {
    typedef u8 Raw;
    static __device__ __forceinline__ float load(u8 v) { return (float)v; }
    static __device__ __forceinline__ u8 store(float v) {
        return (u8)__float_as_uint(fminf(fmaxf(v, 0.0f), 255.0f) + 8388608.0f);
    }
};
struct F16 {
    typedef u16 Raw;
    static __device__ __forceinline__ float load(u16 v) {
        // 2^112, the difference of the exponents' biases: the product is exact.
        const u32 bits = v;
        const float finite = __uint_as_float((bits & 0x7fffu) << 13) * __uint_as_float((112u + 127u) << 23);
        const u32 special = (bits & 0x7c00u) == 0x7c00u ? 0x7f800000u : 0;
        return __uint_as_float(__float_as_uint(finite) | special | (bits & 0x8000u) << 16);
    }
    static __device__ __forceinline__ u16 store(float v) { return (u16)infeed_half_bits(v); }
};
struct Bf16 {
    typedef u16 Raw;
    static __device__ __forceinline__ float load(u16 v) { return __uint_as_float((u32)v << 16); }
    static __device__ __forceinline__ u16 store(float v) {
        const u32 b = __float_as_uint(v);
        const u32 rounded = (b + 0x7fffu + ((b >> 16) & 1u)) >> 16, quiet = (b >> 16) | 0x40u;
        return (u16)((b & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
    }
};
struct F32 {
    typedef float Raw;
    static __device__ __forceinline__ float load(float v) { return v; }
    static __device__ __forceinline__ float store(float v) { return v; }
};

// One rectangle for each blockIdx.y.
template <class T>
__device__ __forceinline__ void fill(const Rectangle* all, u32 height, u32 width, u32 channels, u32 nhwc) {
    const Rectangle& of = all[blockIdx.y];
    const u32 top = of.area[0], left = of.area[2], high = of.area[1] - top, wide = of.area[3] - left;
    const float* values = (const float*)of.values;
    typename T::Raw* row = (typename T::Raw*)of.row;
    const u32 count = high * wide * channels;
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        const u32 line = i / wide, c = line / high, y = top + line - c * high, x = left + i - line * wide;
        const u64 at = nhwc ? ((u64)y * width + x) * channels + c : ((u64)c * height + y) * width + x;
        row[at] = T::store(values[of.each ? i : c]);
    }
}

// Whether value `i` of a row lies in the rectangle.
__device__ __forceinline__ bool within(const Mixing& mixing, u64 i, u32 height, u32 width, u32 channels, u32 nhwc) {
    const u64 pixel = nhwc ? i / channels : i;
    const u32 x = (u32)(pixel % width), y = (u32)(pixel / width % height);
    return y >= mixing.area[0] && y < mixing.area[1] && x >= mixing.area[2] && x < mixing.area[3];
}
template <class T>
__device__ __forceinline__ typename T::Raw mixed(const Mixing& mixing, typename T::Raw own, typename T::Raw other) {
    return mixing.paste ? other : T::store(T::load(own) * mixing.own + T::load(other) * mixing.other);
}

// Each of `count` rows with the one before it, as that was, and the first with the last: from the last up, so each value
// is read once and written once.
template <class T>
__device__ __forceinline__ void roll(typename T::Raw* rows, const Mixing* all, u32 count, u32 height, u32 width, u32 channels, u32 nhwc) {
    const Mixing mixing = all[0];
    const u64 len = (u64)height * width * channels;
    for (u64 i = blockIdx.x * blockDim.x + threadIdx.x; i < len; i += gridDim.x * blockDim.x) {
        if (mixing.paste && !within(mixing, i, height, width, channels, nhwc)) continue;
        typename T::Raw* at = rows + i;
        const typename T::Raw last = at[(count - 1) * len];
        typename T::Raw own = last;
        for (u32 n = count - 1; n; --n) {
            const typename T::Raw before = at[(n - 1) * len];
            at[n * len] = mixed<T>(mixing, own, before);
            own = before;
        }
        at[0] = mixed<T>(mixing, own, last);
    }
}

// One pair of rows for each blockIdx.y.
template <class T>
__device__ __forceinline__ void swap(typename T::Raw* rows, const Mixing* all, u32, u32 height, u32 width, u32 channels, u32 nhwc) {
    const Mixing mixing = all[blockIdx.y];
    const u64 len = (u64)height * width * channels;
    typename T::Raw *a = rows + mixing.a * len, *b = rows + mixing.b * len;
    for (u64 i = blockIdx.x * blockDim.x + threadIdx.x; i < len; i += gridDim.x * blockDim.x) {
        if (mixing.paste && !within(mixing, i, height, width, channels, nhwc)) continue;
        const typename T::Raw x = a[i], y = b[i];
        a[i] = mixed<T>(mixing, x, y);
        b[i] = mixed<T>(mixing, y, x);
    }
}

} // namespace infeed_picture

#define PICTURE(name, V)                                                                                               \
    extern "C" __global__ void __launch_bounds__(512, 2) name(const infeed_picture::Picture* pictures) {               \
        infeed_picture::run<V>(pictures);                                                                              \
    }
#define ROWS(type, T)                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256) fill_##type(                                                     \
        const infeed_picture::Rectangle* all, unsigned height, unsigned width, unsigned channels, unsigned nhwc) {     \
        infeed_picture::fill<T>(all, height, width, channels, nhwc);                                                   \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256) roll_##type(                                                     \
        T::Raw* rows, const infeed_picture::Mixing* all, unsigned count, unsigned height, unsigned width, unsigned channels, unsigned nhwc) { \
        infeed_picture::roll<T>(rows, all, count, height, width, channels, nhwc);                                      \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256) swap_##type(                                                     \
        T::Raw* rows, const infeed_picture::Mixing* all, unsigned count, unsigned height, unsigned width, unsigned channels, unsigned nhwc) { \
        infeed_picture::swap<T>(rows, all, count, height, width, channels, nhwc);                                      \
    }

PICTURE(picture_u8, unsigned char)
PICTURE(picture_f32, float)
ROWS(u8, infeed_picture::U8)
ROWS(f16, infeed_picture::F16)
ROWS(bf16, infeed_picture::Bf16)
ROWS(f32, infeed_picture::F32)
