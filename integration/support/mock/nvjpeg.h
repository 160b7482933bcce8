// The inside of the mock nvJPEG: its objects, and the mock driver that it speaks to.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "jpeg.h"

namespace mock {

// nvjpegStatus_t
enum Status {
    SUCCESS = 0,
    NOT_INITIALIZED = 1,
    INVALID_PARAMETER = 2,
    BAD_JPEG = 3,
    JPEG_NOT_SUPPORTED = 4,
    ALLOCATOR_FAILURE = 5,
    EXECUTION_FAILED = 6,
    ARCH_MISMATCH = 7,
    IMPLEMENTATION_NOT_SUPPORTED = 9,
};

// nvjpegOutputFormat_t: those that are known here.
enum Format { YUV = 1, RGB = 3, RGBI = 5 };

// nvjpegBackend_t
enum Backend { DEFAULT = 0, HYBRID = 1, GPU_HYBRID = 2, HARDWARE = 3, GPU_HYBRID_DEVICE = 4, HARDWARE_DEVICE = 5 };

// nvjpegImage_t
struct Image {
    unsigned char *channel[4];
    size_t pitch[4];
};

// Functions of the mock libcuda, found as the real nvJPEG finds the driver: by name, at run time.
struct Driver {
    int (*call)(const char *);
    void (*count)(const char *, int);
    void (*add)(const char *, long long);
    void (*violation)(const char *);
    int (*enqueue)(void *, const char *, void (*)(void *), void *);
    int (*is_live)(const void *);
    int (*is_device_memory)(const char *, const void *, size_t);
    int (*lost)();
    int (*current_device)();
    int (*init)(unsigned);
    int (*device_alloc)(uint64_t *, size_t);
    int (*device_free)(uint64_t);
    int (*pinned_alloc)(void **, size_t, unsigned);
    int (*pinned_free)(void *);
    bool loaded;
};
const Driver &driver();

// Never deleted, so that a use after the end is recognised.
struct Object {
    const char *kind;
    std::atomic<bool> alive{true};
    // The device that was current when it was made.
    int device = -1;
    explicit Object(const char *kind) : kind(kind) {}
};

struct Allocator {
    std::function<int(void **, size_t)> take;
    std::function<int(void *, size_t)> give;
};

struct Handle : Object {
    static constexpr const char *KIND = "nvjpeg handle";
    Handle() : Object(KIND) {}
    int backend = DEFAULT;
    Allocator device, pinned;
    std::atomic<int> children{0};
    // Batches that are queued: the batched decoder is one for the handle.
    std::atomic<int> in_flight{0};
    bool hardware() const { return backend == HARDWARE || backend == HARDWARE_DEVICE; }
};

struct Child : Object {
    Handle *handle = nullptr;
    using Object::Object;
};

struct Decoder : Child {
    static constexpr const char *KIND = "nvjpeg decoder";
    Decoder() : Child(KIND) {}
    int backend = DEFAULT;
};

struct Params : Child {
    static constexpr const char *KIND = "nvjpeg params";
    Params() : Child(KIND) {}
    int format = RGBI;
    int x = 0, y = 0, width = -1, height = -1;
    bool cmyk = false;
    int scale = 0, orientation = 1;
};

struct JpegStream : Child {
    static constexpr const char *KIND = "nvjpeg stream";
    JpegStream() : Child(KIND) {}
    Header header;
    const unsigned char *data = nullptr;
    size_t len = 0;
    // The bytes themselves, if the caller asked for that.
    std::vector<unsigned char> kept;
};

struct Buffer : Child {
    static constexpr const char *KIND = "nvjpeg buffer";
    Buffer() : Child(KIND) {}
    Allocator allocator;
    void *memory = nullptr;
    size_t size = 0;
    // Queued work that reads or writes it.
    std::atomic<int> pending{0};
};

// Decoded pixels, cut to the region that was asked for: interleaved RGB, or planes one behind another.
struct Pixels {
    unsigned width = 0, height = 0;
    int format = RGBI;
    // Of each plane of YUV; gray has one.
    unsigned widths[3] = {}, heights[3] = {};
    size_t bytes() const {
        if (format != YUV) return size_t(width) * height * 3;
        size_t all = 0;
        for (int i = 0; i < 3; ++i) all += size_t(widths[i]) * heights[i];
        return all;
    }
};

struct State : Child {
    static constexpr const char *KIND = "nvjpeg state";
    State() : Child(KIND) {}
    Decoder *decoder = nullptr;
    // Of the batched path.
    bool initialised = false;
    int batch = 0, format = RGBI;
    std::atomic<int> in_flight{0};
    // Of the decoupled path: which phase comes next.
    enum { Host, Transfer, Device } next = Host;
    Buffer *pinned = nullptr, *device = nullptr;
    Pixels pixels;
};

// The object behind a handle of the program; null, and a violation, if there is none of that kind alive.
Object *known(const char *function, void *object, const char *kind);
void enlist(Object *object);

template <class T> T *use(const char *function, void *object) {
    return static_cast<T *>(known(function, object, T::KIND));
}

// A new object of a handle.
template <class T> T *make(Handle *handle) {
    T *made = new T;
    made->handle = handle;
    handle->children++;
    enlist(made);
    return made;
}

void end(Object *object);
void violate(const std::string &sentence);
// Engines of the mock GPU.
unsigned engines();
// Makes the buffer hold at least so many bytes.
int grow(Buffer &buffer, size_t size);

// --- pixels.cpp ---

// Pixels of the region that `params` asks for (all of it if null) in a format, through the test's decoders.
int decode(const unsigned char *data, size_t len, const Header &header, const Params *params, int format, Pixels &pixels,
           std::vector<unsigned char> &values);
// Checks where pixels will go: strides, and that it is device memory. A status.
int check(const char *function, const Image &image, const Pixels &pixels);
// Writes pixels with all bits flipped by `flip`.
void store(const Image &image, const Pixels &pixels, const unsigned char *values, unsigned char flip);
bool hardware_takes(const Header &header);
bool backend_takes(int backend, const Header &header, const Params *params);

} // namespace mock

// The beginning of each exported function: counts the call, and injected failures end it.
#define ENTER(name)                                                                                                    \
    const char *function = name;                                                                                       \
    (void)function;                                                                                                    \
    if (!driver().loaded) return EXECUTION_FAILED;                                                                     \
    if (int code = driver().call(name)) return code < 0 ? int(EXECUTION_FAILED) : code

// Ends go through on a lost device too, so that leaks stay countable.
#define LEAVE(name)                                                                                                    \
    const char *function = name;                                                                                       \
    if (!driver().loaded) return EXECUTION_FAILED;                                                                     \
    int failure = driver().call(name);                                                                                 \
    if (failure > 0) return failure
