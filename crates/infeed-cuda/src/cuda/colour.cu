// Planes of brightness and colour to interleaved RGB, bit for bit as libjpeg makes it: colour of half the width or height is
// interpolated between the nearest two values, and the conversion has 16 bits of fraction (`jpeg/src/simd/rgb.rs` is the same
// for the CPU).
//
// nvJPEG can do that too, but asked for it its engines go through a decoder that is made anew whenever the size of images
// changes: 6 ms a batch of photographs on an H200, with the driver's locks held, where planes take 1.3 ms.
//
// A warp makes a row, so neighbouring lanes read and write neighbouring places. What it moves is a third of what the resample
// behind it reads; reckoned below 1 % of an H200 at the engines' pace.

typedef unsigned char u8;
typedef unsigned u32;
typedef unsigned long long u64;

// Apart from the other files' names, where all are compiled at once.
namespace infeed_colour {

// Twin of the struct in colour.rs.
struct Planes {
    u64 planes[3], rgb;
    u32 width, height;
    // Pixels that a value of colour stands for; 0: there is no colour.
    u32 across, down;
};

static_assert(sizeof(Planes) == 48, "as in colour.rs");

// One plane of colour.
struct Colour {
    const u8* plane;
    u32 width, height, across, down;

    __device__ __forceinline__ u32 at(u32 y, u32 x) const { return __ldg(plane + (u64)y * width + x); }

    // Of pixel (y, x), with the conditions of libjpeg.
    __device__ __forceinline__ int of(u32 y, u32 x) const {
        const u32 row = y / down, column = x / across;
        const u32 far = y % 2 ? (row + 1 < height ? row + 1 : row) : (row ? row - 1 : row);
        const u32 beside = x % 2 ? (column + 1 < width ? column + 1 : column) : (column ? column - 1 : column);
        if (across == 1) {
            if (down == 1) return at(row, column);
            return (3 * at(row, column) + at(far, column) + 1 + y % 2) >> 2;
        }
        if (width <= 2) return at(row, column);
        if (down == 1) return (3 * at(row, column) + at(row, beside) + 1 + x % 2) >> 2;
        const u32 own = 3 * at(row, column) + at(far, column), other = 3 * at(row, beside) + at(far, beside);
        return (3 * own + other + 8 - x % 2) >> 4;
    }
};

__device__ __forceinline__ u8 clamped(int v) { return (u8)(v < 0 ? 0 : v > 255 ? 255 : v); }

} // namespace infeed_colour

// Each block makes eight rows of an image.
extern "C" __global__ void __launch_bounds__(256) planes_to_rgb(const infeed_colour::Planes* items, u32 count) {
    if (blockIdx.y >= count) return;
    const infeed_colour::Planes item = items[blockIdx.y];
    const u32 y = blockIdx.x * 8 + threadIdx.x / 32;
    if (y >= item.height) return;
    const u8* bright = (const u8*)item.planes[0] + (u64)y * item.width;
    u8* out = (u8*)item.rgb + (u64)y * item.width * 3;
    const u32 across = item.across ? item.across : 1, down = item.down ? item.down : 1;
    const u32 width = (item.width + across - 1) / across, height = (item.height + down - 1) / down;
    const infeed_colour::Colour blue = {(const u8*)item.planes[1], width, height, across, down};
    const infeed_colour::Colour red = {(const u8*)item.planes[2], width, height, across, down};
    for (u32 x = threadIdx.x % 32; x < item.width; x += 32) {
        const int v = __ldg(bright + x);
        int r = v, g = v, b = v;
        if (item.across) {
            const int cb = blue.of(y, x) - 128, cr = red.of(y, x) - 128, half = 1 << 15;
            r += (91881 * cr + half) >> 16;
            g += (-22554 * cb - 46802 * cr + half) >> 16;
            b += (116130 * cb + half) >> 16;
        }
        out[3 * x] = infeed_colour::clamped(r);
        out[3 * x + 1] = infeed_colour::clamped(g);
        out[3 * x + 2] = infeed_colour::clamped(b);
    }
}
