// The objects of the mock nvJPEG: handles, parsed bitstreams, parameters, states, buffers. Decoding is in decode.cpp.
#include "nvjpeg.h"

#include <cstdlib>
#include <dlfcn.h>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

namespace mock {

const Driver &driver() {
    static const Driver driver = [] {
        Driver d = {};
        void *library = dlopen("libcuda.so.1", RTLD_NOW);
        if (!library) return d;
        d.loaded = true;
        auto get = [&](auto &function, const char *name) {
            function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
            d.loaded = d.loaded && function;
        };
        get(d.call, "mock_call");
        get(d.count, "mock_count");
        get(d.add, "mock_add");
        get(d.violation, "mock_violation");
        get(d.enqueue, "mock_enqueue");
        get(d.is_live, "mock_is_live");
        get(d.is_device_memory, "mock_is_device_memory");
        get(d.lost, "mock_lost");
        get(d.current_device, "mock_current_device");
        get(d.init, "cuInit");
        get(d.device_alloc, "cuMemAlloc_v2");
        get(d.device_free, "cuMemFree_v2");
        get(d.pinned_alloc, "cuMemHostAlloc");
        get(d.pinned_free, "cuMemFreeHost");
        return d;
    }();
    return driver;
}

void violate(const std::string &sentence) { driver().violation(sentence.c_str()); }

unsigned engines() {
    const char *text = getenv("INFEED_MOCK_ENGINES");
    return text ? unsigned(atoi(text)) : 7;
}

// Held for look-ups only, never while the driver is called: it may run our queued work on this thread.
static std::mutex *const lock = new std::mutex;
static std::set<Object *> *const objects = new std::set<Object *>;

void enlist(Object *object) {
    driver().count(object->kind, 1);
    object->device = driver().current_device();
    std::lock_guard<std::mutex> guard(*lock);
    objects->insert(object);
}

Object *known(const char *function, void *handle, const char *kind) {
    Object *object = static_cast<Object *>(handle);
    {
        std::lock_guard<std::mutex> guard(*lock);
        if (!objects->count(object) || strcmp(object->kind, kind)) object = nullptr;
    }
    if (object && object->alive) {
        int device = driver().current_device();
        if (device != object->device)
            violate(std::string(function) + ": " + kind + " of cuda:" + std::to_string(object->device) +
                    " while cuda:" + std::to_string(device) + " is current");
        return object;
    }
    violate(std::string(function) + " was given " + (object ? "a destroyed " : "something that is no ") + kind);
    return nullptr;
}

void end(Object *object) {
    object->alive = false;
    driver().count(object->kind, -1);
}

int grow(Buffer &buffer, size_t size) {
    if (buffer.size >= size) return SUCCESS;
    if (buffer.memory) {
        // Given back whatever that says: it tells of a lost device, too.
        int code = buffer.allocator.give(buffer.memory, buffer.size);
        buffer.memory = nullptr;
        buffer.size = 0;
        if (code) return ALLOCATOR_FAILURE;
    }
    if (buffer.allocator.take(&buffer.memory, size)) return ALLOCATOR_FAILURE;
    buffer.size = size;
    return SUCCESS;
}

static Allocator plain(bool device) {
    if (device)
        return {[](void **p, size_t n) { return driver().device_alloc(reinterpret_cast<uint64_t *>(p), n); },
                [](void *p, size_t) { return driver().device_free(uint64_t(p)); }};
    return {[](void **p, size_t n) { return driver().pinned_alloc(p, n, 0); },
            [](void *p, size_t) { return driver().pinned_free(p); }};
}

// nvjpegDevAllocator_t, nvjpegPinnedAllocator_t, and their second versions, which share one shape.
struct DeviceV1 {
    int (*take)(void **, size_t);
    int (*give)(void *);
};
struct PinnedV1 {
    int (*take)(void **, size_t, unsigned);
    int (*give)(void *);
};
struct V2 {
    int (*take)(void *, void **, size_t, void *);
    int (*give)(void *, void *, size_t, void *);
    void *context;
};

static Allocator custom(const DeviceV1 *from, const Allocator &otherwise) {
    if (!from) return otherwise;
    DeviceV1 a = *from;
    return {[a](void **p, size_t n) { return a.take(p, n); }, [a](void *p, size_t) { return a.give(p); }};
}

static Allocator custom(const PinnedV1 *from, const Allocator &otherwise) {
    if (!from) return otherwise;
    PinnedV1 a = *from;
    return {[a](void **p, size_t n) { return a.take(p, n, 0); }, [a](void *p, size_t) { return a.give(p); }};
}

static Allocator custom(const V2 *from, const Allocator &otherwise) {
    if (!from) return otherwise;
    V2 a = *from;
    return {[a](void **p, size_t n) { return a.take(a.context, p, n, nullptr); },
            [a](void *p, size_t n) { return a.give(a.context, p, n, nullptr); }};
}

static int create(int backend, const Allocator &device, const Allocator &pinned, void **out) {
    if (!out || backend < DEFAULT || backend > HARDWARE_DEVICE) return INVALID_PARAMETER;
    // As the real one without a GPU.
    if (driver().init(0)) return EXECUTION_FAILED;
    if ((backend == HARDWARE || backend == HARDWARE_DEVICE) && !engines()) return ARCH_MISMATCH;
    Handle *handle = new Handle;
    handle->backend = backend;
    handle->device = device;
    handle->pinned = pinned;
    enlist(handle);
    *out = handle;
    return SUCCESS;
}

template <class T> static int create_child(const char *function, void *handle, void **out) {
    Handle *parent = use<Handle>(function, handle);
    if (!parent || !out) return INVALID_PARAMETER;
    *out = make<T>(parent);
    return SUCCESS;
}

template <class T> static int destroy_child(const char *function, void *object) {
    T *child = use<T>(function, object);
    if (!child) return INVALID_PARAMETER;
    child->handle->children--;
    end(child);
    return SUCCESS;
}

static int create_buffer(const char *function, void *handle, void **out, const Allocator &allocator) {
    int status = create_child<Buffer>(function, handle, out);
    if (!status) static_cast<Buffer *>(*out)->allocator = allocator;
    return status;
}

static int destroy_buffer(const char *function, void *object) {
    Buffer *buffer = use<Buffer>(function, object);
    if (!buffer) return INVALID_PARAMETER;
    if (buffer->pending && !driver().lost()) violate(std::string(function) + ": queued work still uses the buffer");
    if (buffer->memory) buffer->allocator.give(buffer->memory, buffer->size);
    return destroy_child<Buffer>(function, object);
}

static int parse(const char *function, void *handle, const unsigned char *data, size_t len, void *object, bool whole,
                 bool keep) {
    JpegStream *stream = use<JpegStream>(function, object);
    if (!use<Handle>(function, handle) || !stream || !data) return INVALID_PARAMETER;
    stream->header = Header::parse(data, len, whole);
    if (stream->header.order == "mock:parse") stream->header.status = BAD_JPEG;
    if (keep) stream->kept.assign(data, data + len);
    stream->data = keep ? stream->kept.data() : data;
    stream->len = len;
    return stream->header.status;
}

} // namespace mock

using namespace mock;

extern "C" {

// --- the library ---

int nvjpegGetProperty(int what, int *value) {
    if (!value || what < 0 || what > 2) return INVALID_PARAMETER;
    *value = what == 0 ? 13 : 0;
    return SUCCESS;
}

int nvjpegCreateSimple(void **handle) {
    ENTER("nvjpegCreateSimple");
    return create(DEFAULT, plain(true), plain(false), handle);
}

int nvjpegCreate(int backend, const DeviceV1 *device, void **handle) {
    ENTER("nvjpegCreate");
    return create(backend, custom(device, plain(true)), plain(false), handle);
}

int nvjpegCreateEx(int backend, const DeviceV1 *device, const PinnedV1 *pinned, unsigned, void **handle) {
    ENTER("nvjpegCreateEx");
    return create(backend, custom(device, plain(true)), custom(pinned, plain(false)), handle);
}

int nvjpegCreateExV2(int backend, const V2 *device, const V2 *pinned, unsigned, void **handle) {
    ENTER("nvjpegCreateExV2");
    return create(backend, custom(device, plain(true)), custom(pinned, plain(false)), handle);
}

int nvjpegDestroy(void *object) {
    LEAVE("nvjpegDestroy");
    Handle *handle = use<Handle>(function, object);
    if (!handle) return INVALID_PARAMETER;
    if (const char *slow = getenv("INFEED_MOCK_SLOW_END"))
        std::this_thread::sleep_for(std::chrono::milliseconds(atoi(slow)));
    if (handle->children) violate("nvjpegDestroy: " + std::to_string(handle->children) + " objects of it are alive");
    end(handle);
    return SUCCESS;
}

int nvjpegGetHardwareDecoderInfo(void *handle, unsigned *count, unsigned *cores) {
    ENTER("nvjpegGetHardwareDecoderInfo");
    if (!use<Handle>(function, handle)) return INVALID_PARAMETER;
    *count = engines();
    *cores = engines() ? 1 : 0;
    return SUCCESS;
}

// --- parsed bitstreams ---

int nvjpegJpegStreamCreate(void *handle, void **stream) {
    ENTER("nvjpegJpegStreamCreate");
    return create_child<JpegStream>(function, handle, stream);
}

int nvjpegJpegStreamDestroy(void *stream) {
    LEAVE("nvjpegJpegStreamDestroy");
    return destroy_child<JpegStream>(function, stream);
}

int nvjpegJpegStreamParse(void *handle, const unsigned char *data, size_t len, int, int save_stream, void *stream) {
    ENTER("nvjpegJpegStreamParse");
    return parse(function, handle, data, len, stream, true, save_stream);
}

int nvjpegJpegStreamParseHeader(void *handle, const unsigned char *data, size_t len, void *stream) {
    ENTER("nvjpegJpegStreamParseHeader");
    return parse(function, handle, data, len, stream, false, false);
}

int nvjpegJpegStreamGetJpegEncoding(void *object, int *encoding) {
    ENTER("nvjpegJpegStreamGetJpegEncoding");
    JpegStream *stream = use<JpegStream>(function, object);
    if (!stream) return INVALID_PARAMETER;
    int marker = stream->header.encoding;
    *encoding = marker >= 0xc0 && marker <= 0xc2 ? marker : 0;
    return SUCCESS;
}

int nvjpegJpegStreamGetFrameDimensions(void *object, unsigned *width, unsigned *height) {
    ENTER("nvjpegJpegStreamGetFrameDimensions");
    JpegStream *stream = use<JpegStream>(function, object);
    if (!stream) return INVALID_PARAMETER;
    *width = stream->header.width;
    *height = stream->header.height;
    return SUCCESS;
}

int nvjpegJpegStreamGetComponentsNum(void *object, unsigned *components) {
    ENTER("nvjpegJpegStreamGetComponentsNum");
    JpegStream *stream = use<JpegStream>(function, object);
    if (!stream) return INVALID_PARAMETER;
    *components = stream->header.components;
    return SUCCESS;
}

int nvjpegJpegStreamGetSamplePrecision(void *object, unsigned *bits) {
    ENTER("nvjpegJpegStreamGetSamplePrecision");
    JpegStream *stream = use<JpegStream>(function, object);
    if (!stream) return INVALID_PARAMETER;
    *bits = unsigned(stream->header.bits);
    return SUCCESS;
}

int nvjpegJpegStreamGetComponentDimensions(void *object, unsigned component, unsigned *width, unsigned *height) {
    ENTER("nvjpegJpegStreamGetComponentDimensions");
    JpegStream *stream = use<JpegStream>(function, object);
    if (!stream || component >= stream->header.components) return INVALID_PARAMETER;
    *width = stream->header.component_width(component);
    *height = stream->header.component_height(component);
    return SUCCESS;
}

int nvjpegJpegStreamGetExifOrientation(void *object, int *orientation) {
    ENTER("nvjpegJpegStreamGetExifOrientation");
    if (!use<JpegStream>(function, object)) return INVALID_PARAMETER;
    *orientation = 0;
    return SUCCESS;
}

int nvjpegJpegStreamGetChromaSubsampling(void *object, int *subsampling) {
    ENTER("nvjpegJpegStreamGetChromaSubsampling");
    JpegStream *stream = use<JpegStream>(function, object);
    if (!stream) return INVALID_PARAMETER;
    *subsampling = stream->header.subsampling();
    return SUCCESS;
}

int nvjpegGetImageInfo(void *handle, const unsigned char *data, size_t len, int *components, int *subsampling,
                       int *widths, int *heights) {
    ENTER("nvjpegGetImageInfo");
    if (!use<Handle>(function, handle)) return INVALID_PARAMETER;
    Header header = Header::parse(data, len, false);
    if (header.status) return header.status;
    *components = int(header.components);
    *subsampling = header.subsampling();
    for (unsigned i = 0; i < 4; ++i) {
        widths[i] = i < header.components ? int(header.component_width(i)) : 0;
        heights[i] = i < header.components ? int(header.component_height(i)) : 0;
    }
    return SUCCESS;
}

// --- parameters ---

int nvjpegDecodeParamsCreate(void *handle, void **params) {
    ENTER("nvjpegDecodeParamsCreate");
    return create_child<Params>(function, handle, params);
}

int nvjpegDecodeParamsDestroy(void *params) {
    LEAVE("nvjpegDecodeParamsDestroy");
    return destroy_child<Params>(function, params);
}

int nvjpegDecodeParamsSetOutputFormat(void *object, int format) {
    ENTER("nvjpegDecodeParamsSetOutputFormat");
    Params *params = use<Params>(function, object);
    if (!params) return INVALID_PARAMETER;
    params->format = format;
    return SUCCESS;
}

int nvjpegDecodeParamsSetROI(void *object, int x, int y, int width, int height) {
    ENTER("nvjpegDecodeParamsSetROI");
    Params *params = use<Params>(function, object);
    if (!params || x < 0 || y < 0) return INVALID_PARAMETER;
    params->x = x;
    params->y = y;
    params->width = width;
    params->height = height;
    return SUCCESS;
}

int nvjpegDecodeParamsSetAllowCMYK(void *object, int allow) {
    ENTER("nvjpegDecodeParamsSetAllowCMYK");
    Params *params = use<Params>(function, object);
    if (!params) return INVALID_PARAMETER;
    params->cmyk = allow;
    return SUCCESS;
}

int nvjpegDecodeParamsSetScaleFactor(void *object, int scale) {
    ENTER("nvjpegDecodeParamsSetScaleFactor");
    Params *params = use<Params>(function, object);
    if (!params || scale < 0 || scale > 3) return INVALID_PARAMETER;
    params->scale = scale;
    return SUCCESS;
}

int nvjpegDecodeParamsSetExifOrientation(void *object, int orientation) {
    ENTER("nvjpegDecodeParamsSetExifOrientation");
    Params *params = use<Params>(function, object);
    if (!params) return INVALID_PARAMETER;
    params->orientation = orientation;
    return SUCCESS;
}

// --- decoders, states, buffers ---

int nvjpegDecoderCreate(void *handle, int backend, void **decoder) {
    ENTER("nvjpegDecoderCreate");
    if (backend < DEFAULT || backend > HARDWARE_DEVICE) return INVALID_PARAMETER;
    if ((backend == HARDWARE || backend == HARDWARE_DEVICE) && !engines()) return ARCH_MISMATCH;
    int status = create_child<Decoder>(function, handle, decoder);
    if (!status) static_cast<Decoder *>(*decoder)->backend = backend;
    return status;
}

int nvjpegDecoderDestroy(void *decoder) {
    LEAVE("nvjpegDecoderDestroy");
    return destroy_child<Decoder>(function, decoder);
}

int nvjpegDecoderJpegSupported(void *decoder_handle, void *stream_handle, void *params_handle, int *not_supported) {
    ENTER("nvjpegDecoderJpegSupported");
    Decoder *decoder = use<Decoder>(function, decoder_handle);
    JpegStream *stream = use<JpegStream>(function, stream_handle);
    Params *params = params_handle ? use<Params>(function, params_handle) : nullptr;
    if (!decoder || !stream || !not_supported) return INVALID_PARAMETER;
    *not_supported = !backend_takes(decoder->backend, stream->header, params);
    return SUCCESS;
}

int nvjpegJpegStateCreate(void *handle, void **state) {
    ENTER("nvjpegJpegStateCreate");
    return create_child<State>(function, handle, state);
}

int nvjpegDecoderStateCreate(void *handle, void *decoder_handle, void **state) {
    ENTER("nvjpegDecoderStateCreate");
    Decoder *decoder = use<Decoder>(function, decoder_handle);
    if (!decoder) return INVALID_PARAMETER;
    int status = create_child<State>(function, handle, state);
    if (!status) static_cast<State *>(*state)->decoder = decoder;
    return status;
}

int nvjpegJpegStateDestroy(void *object) {
    LEAVE("nvjpegJpegStateDestroy");
    State *state = use<State>(function, object);
    if (!state) return INVALID_PARAMETER;
    if (state->in_flight && !driver().lost()) violate(std::string(function) + ": a decode with the state is queued");
    return destroy_child<State>(function, object);
}

int nvjpegBufferPinnedCreate(void *handle, const PinnedV1 *allocator, void **buffer) {
    ENTER("nvjpegBufferPinnedCreate");
    Handle *parent = use<Handle>(function, handle);
    return parent ? create_buffer(function, handle, buffer, custom(allocator, parent->pinned)) : INVALID_PARAMETER;
}

int nvjpegBufferPinnedCreateV2(void *handle, const V2 *allocator, void **buffer) {
    ENTER("nvjpegBufferPinnedCreateV2");
    Handle *parent = use<Handle>(function, handle);
    return parent ? create_buffer(function, handle, buffer, custom(allocator, parent->pinned)) : INVALID_PARAMETER;
}

int nvjpegBufferPinnedDestroy(void *buffer) {
    LEAVE("nvjpegBufferPinnedDestroy");
    return destroy_buffer(function, buffer);
}

int nvjpegBufferDeviceCreate(void *handle, const DeviceV1 *allocator, void **buffer) {
    ENTER("nvjpegBufferDeviceCreate");
    Handle *parent = use<Handle>(function, handle);
    return parent ? create_buffer(function, handle, buffer, custom(allocator, parent->device)) : INVALID_PARAMETER;
}

int nvjpegBufferDeviceCreateV2(void *handle, const V2 *allocator, void **buffer) {
    ENTER("nvjpegBufferDeviceCreateV2");
    Handle *parent = use<Handle>(function, handle);
    return parent ? create_buffer(function, handle, buffer, custom(allocator, parent->device)) : INVALID_PARAMETER;
}

int nvjpegBufferDeviceDestroy(void *buffer) {
    LEAVE("nvjpegBufferDeviceDestroy");
    return destroy_buffer(function, buffer);
}

static int resize(const char *function, void *object, size_t size) {
    Buffer *buffer = use<Buffer>(function, object);
    return buffer ? grow(*buffer, size) : INVALID_PARAMETER;
}

int nvjpegBufferPinnedResize(void *buffer, size_t size, void *) {
    ENTER("nvjpegBufferPinnedResize");
    return resize(function, buffer, size);
}

int nvjpegBufferDeviceResize(void *buffer, size_t size, void *) {
    ENTER("nvjpegBufferDeviceResize");
    return resize(function, buffer, size);
}

int nvjpegStateAttachPinnedBuffer(void *object, void *buffer) {
    ENTER("nvjpegStateAttachPinnedBuffer");
    State *state = use<State>(function, object);
    Buffer *pinned = use<Buffer>(function, buffer);
    if (!state || !pinned) return INVALID_PARAMETER;
    state->pinned = pinned;
    return SUCCESS;
}

int nvjpegStateAttachDeviceBuffer(void *object, void *buffer) {
    ENTER("nvjpegStateAttachDeviceBuffer");
    State *state = use<State>(function, object);
    Buffer *device = use<Buffer>(function, buffer);
    if (!state || !device) return INVALID_PARAMETER;
    state->device = device;
    return SUCCESS;
}

} // extern "C"
