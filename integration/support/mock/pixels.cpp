// Pixels of the mock nvJPEG: they come from decoders that the test registers, so they can equal the CPU path's.
#include "nvjpeg.h"

#include <cstdlib>

namespace mock {

using Decode = int (*)(const unsigned char *, size_t, unsigned char *, size_t, unsigned, unsigned);
static std::atomic<Decode> registered{nullptr}, registered_planes{nullptr};

// For programs that register none: INFEED_MOCK_PIXELS=100 makes every byte 100.
static int flat(const unsigned char *, size_t, unsigned char *rgb, size_t capacity, unsigned, unsigned) {
    memset(rgb, atoi(getenv("INFEED_MOCK_PIXELS")), capacity);
    return 0;
}

int decode(const unsigned char *data, size_t len, const Header &header, const Params *params, int format, Pixels &pixels,
           std::vector<unsigned char> &rgb) {
    Decode decode = format == YUV ? registered_planes : registered;
    if (!decode && getenv("INFEED_MOCK_PIXELS")) decode = flat;
    if (!decode) return JPEG_NOT_SUPPORTED;
    pixels.format = format;
    if (params && (params->scale || params->orientation > 1)) return JPEG_NOT_SUPPORTED;
    if (header.components == 4 && !(params && params->cmyk)) return JPEG_NOT_SUPPORTED;
    if (format == YUV) {
        bool whole = !params || params->width < 0 || (unsigned(params->width) == header.width && unsigned(params->height) == header.height);
        if (!whole || header.components > 3) return IMPLEMENTATION_NOT_SUPPORTED;
        pixels.width = header.width;
        pixels.height = header.height;
        for (unsigned i = 0; i < header.components; ++i) {
            pixels.widths[i] = header.component_width(i);
            pixels.heights[i] = header.component_height(i);
        }
        rgb.resize(pixels.bytes());
        return decode(data, len, rgb.data(), rgb.size(), header.width, header.height) ? BAD_JPEG : SUCCESS;
    }
    size_t row = size_t(header.width) * 3;
    std::vector<unsigned char> all(row * header.height);
    if (decode(data, len, all.data(), all.size(), header.width, header.height)) return BAD_JPEG;
    pixels.width = header.width;
    pixels.height = header.height;
    if (!params || params->width < 0 || params->height < 0) {
        rgb = std::move(all);
        return SUCCESS;
    }
    unsigned x = unsigned(params->x), y = unsigned(params->y);
    pixels.width = unsigned(params->width);
    pixels.height = unsigned(params->height);
    if (!pixels.width || !pixels.height || x + pixels.width > header.width || y + pixels.height > header.height)
        return INVALID_PARAMETER;
    rgb.resize(pixels.bytes());
    for (unsigned i = 0; i < pixels.height; ++i)
        memcpy(&rgb[size_t(i) * pixels.width * 3], &all[(y + i) * row + size_t(x) * 3], size_t(pixels.width) * 3);
    return SUCCESS;
}

int check(const char *function, const Image &image, const Pixels &pixels) {
    if (pixels.format != RGB && pixels.format != RGBI && pixels.format != YUV) return IMPLEMENTATION_NOT_SUPPORTED;
    for (int i = 0; i < (pixels.format == RGBI ? 1 : 3); ++i) {
        bool plane = pixels.format == YUV;
        size_t row = plane ? pixels.widths[i] : size_t(pixels.width) * (pixels.format == RGBI ? 3 : 1);
        size_t rows = plane ? pixels.heights[i] : pixels.height;
        if (!rows) continue;
        if (!image.channel[i] || image.pitch[i] < row) return INVALID_PARAMETER;
        size_t len = image.pitch[i] * (rows - 1) + row;
        if (!driver().is_device_memory(function, image.channel[i], len)) return EXECUTION_FAILED;
    }
    return SUCCESS;
}

void store(const Image &image, const Pixels &pixels, const unsigned char *rgb, unsigned char flip) {
    if (pixels.format == YUV) {
        for (int i = 0; i < 3; ++i)
            for (unsigned y = 0; y < pixels.heights[i]; ++y)
                for (unsigned x = 0; x < pixels.widths[i]; ++x) image.channel[i][y * image.pitch[i] + x] = *rgb++ ^ flip;
        return;
    }
    for (unsigned y = 0; y < pixels.height; ++y)
        for (unsigned x = 0; x < pixels.width; ++x, rgb += 3)
            for (unsigned c = 0; c < 3; ++c) {
                unsigned char value = rgb[c] ^ flip;
                if (pixels.format == RGBI) image.channel[0][y * image.pitch[0] + x * 3 + c] = value;
                else image.channel[c][y * image.pitch[c] + x] = value;
            }
}

bool hardware_takes(const Header &header) {
    const char *least = getenv("INFEED_MOCK_LEAST_SIDE");
    if (least && (header.width < unsigned(atoi(least)) || header.height < unsigned(atoi(least)))) return false;
    int css = header.subsampling();
    bool common = css == 0 || css == 1 || css == 2 || css == 3 || css == 6;
    return header.encoding == 0xc0 && header.bits == 8 && common && header.order != "mock:unsupported";
}

bool backend_takes(int backend, const Header &header, const Params *params) {
    if (backend == HARDWARE || backend == HARDWARE_DEVICE) return hardware_takes(header);
    if (header.bits != 8 || header.encoding < 0xc0 || header.encoding > 0xc2) return false;
    if (backend == GPU_HYBRID || backend == GPU_HYBRID_DEVICE) {
        if (header.encoding == 0xc2) return false;
    }
    return header.components == 4 ? params && params->cmyk : header.subsampling() >= 0;
}

} // namespace mock

// `decode` writes width x height interleaved RGB pixels and returns 0, or anything else for a damaged file.
extern "C" void mock_nvjpeg_set_decoder(mock::Decode decode) { mock::registered = decode; }
// The same for planes: Y, then Cb and Cr at their own sizes unless it is gray.
extern "C" void mock_nvjpeg_set_planes(mock::Decode decode) { mock::registered_planes = decode; }
