// As much of a JPEG as nvJPEG's questions need: the frame header, where the scan begins, and the orders to the mock.
#pragma once
#include <cstring>
#include <string>

struct Header {
    // 3: no JPEG, or cut short.
    int status = 3;
    int encoding = 0; // the frame's marker: 0xc0 baseline, 0xc1 extended, 0xc2 progressive
    int bits = 0;
    unsigned width = 0, height = 0, components = 0;
    unsigned across[4] = {}, down[4] = {};
    // Text of the last comment that begins with "mock:".
    std::string order;

    unsigned component_width(unsigned i) const { return divide(width * across[i], most(across)); }
    unsigned component_height(unsigned i) const { return divide(height * down[i], most(down)); }

    // nvjpegChromaSubsampling_t
    int subsampling() const {
        if (components == 1) return 6;
        if (components != 3 || across[1] != across[2] || down[1] != down[2]) return -1;
        static const struct { unsigned x, y; int css; } KNOWN[] = {
            {1, 1, 0}, {2, 1, 1}, {2, 2, 2}, {1, 2, 3}, {4, 1, 4}, {4, 2, 5}, {2, 4, 7}};
        if (!across[1] || !down[1] || across[0] % across[1] || down[0] % down[1]) return -1;
        for (const auto &known : KNOWN)
            if (across[0] / across[1] == known.x && down[0] / down[1] == known.y) return known.css;
        return -1;
    }

    // `whole`: also look for the end, as a full parse does.
    static Header parse(const unsigned char *data, size_t len, bool whole) {
        Header h;
        if (!data || len < 4 || data[0] != 0xff || data[1] != 0xd8) return h;
        size_t at = 2;
        while (at + 4 <= len) {
            if (data[at] != 0xff) return h;
            int marker = data[at + 1];
            if (marker == 0xff) {
                ++at;
                continue;
            }
            size_t size = size_t(data[at + 2]) << 8 | data[at + 3];
            if (marker == 0xd9 || size < 2 || at + 2 + size > len) return h;
            const unsigned char *body = data + at + 4;
            size -= 2;
            bool frame = marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
            if (frame && !h.frame(marker, body, size)) return h;
            if (marker == 0xfe && size >= 5 && !memcmp(body, "mock:", 5)) h.order.assign((const char *)body, size);
            if (marker == 0xda) {
                if (h.components && (!whole || ended(data, len, at))) h.status = 0;
                return h;
            }
            at += 4 + size;
        }
        return h;
    }

  private:
    bool frame(int marker, const unsigned char *body, size_t size) {
        if (size < 6) return false;
        encoding = marker;
        bits = body[0];
        height = unsigned(body[1]) << 8 | body[2];
        width = unsigned(body[3]) << 8 | body[4];
        components = body[5];
        if (!width || !height || !components || components > 4 || size < 6 + 3 * size_t(components)) return false;
        for (unsigned i = 0; i < components; ++i) {
            across[i] = body[7 + 3 * i] >> 4;
            down[i] = body[7 + 3 * i] & 15;
            if (!across[i] || !down[i]) return false;
        }
        return true;
    }
    static bool ended(const unsigned char *data, size_t len, size_t at) {
        for (; at + 1 < len; ++at)
            if (data[at] == 0xff && data[at + 1] == 0xd9) return true;
        return false;
    }
    static unsigned divide(unsigned a, unsigned b) { return (a + b - 1) / b; }
    unsigned most(const unsigned (&factors)[4]) const {
        unsigned most = 1;
        for (unsigned factor : factors) most = factor > most ? factor : most;
        return most;
    }
};
