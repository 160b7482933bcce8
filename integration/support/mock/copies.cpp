// The functions of the CUDA driver that have to do with memory: allocations, pools, copies, fills.
#include "world.h"

#include <cstring>

#include "mock.h"

namespace mock {

static void *pointer(uint64_t address) { return reinterpret_cast<void *>(address); }

// Looks at a range once more when the step runs: it may have been freed in between, or not be there yet.
static bool usable(const char *what, uint64_t address, size_t len, Allocation::Kind kind) {
    Lock lock(world().mutex);
    Allocation *a = inside(what, address, len, kind);
    if (a && a->born && !a->born->done) {
        violate(std::string(what) + " ran before its memory was there: " + describe(address));
        return false;
    }
    return a;
}

// Checks the device side of a copy or fill at the call.
static bool name_device(const char *what, uint64_t address, size_t len, const OpRef &op) {
    Allocation *a = inside(what, address, len, Allocation::Device);
    if (a) op->names.push_back(a->start);
    return a && same_device(what, op->stream->context, a->context);
}

// Pinned memory, or null for any other; false for what no copy may be given.
static bool name_host(const char *what, const void *host, size_t len, const OpRef &op, bool *pinned) {
    Allocation *a = find(uint64_t(host));
    *pinned = a != nullptr;
    if (!a) return true;
    if (!inside(what, uint64_t(host), len, Allocation::Pinned)) return false;
    op->names.push_back(a->start);
    return true;
}

static int upload(const char *function, uint64_t to, const void *from, size_t len, void *handle, bool wait) {
    Call call(function);
    if (call.refused) return call.refused;
    Stream *stream = stream_of(call, handle);
    if (!stream) return INVALID_HANDLE;
    if (!len) return OK;
    OpRef op = mark(stream, function);
    bool pinned;
    if (!name_device(function, to, len, op) || !name_host(function, from, len, op, &pinned)) return INVALID_VALUE;
    if (pinned) {
        // Read when the copy runs: the program must leave it alone until then.
        op->run = [=] {
            if (usable(function, to, len, Allocation::Device) && usable(function, uint64_t(from), len, Allocation::Pinned))
                memcpy(pointer(to), from, len);
        };
    } else {
        // CUDA stages what it can't reach.
        auto staged = std::make_shared<std::vector<char>>((const char *)from, (const char *)from + len);
        op->run = [=] {
            if (usable(function, to, len, Allocation::Device)) memcpy(pointer(to), staged->data(), len);
        };
    }
    enqueue(call.lock, stream, op);
    add("bytes_to_device", (long long)len);
    if (wait) finish(call.lock, op);
    return stream->context->lost;
}

static int download(const char *function, void *to, uint64_t from, size_t len, void *handle, bool wait) {
    Call call(function);
    if (call.refused) return call.refused;
    Stream *stream = stream_of(call, handle);
    if (!stream) return INVALID_HANDLE;
    if (!len) return OK;
    OpRef op = mark(stream, function);
    bool pinned;
    if (!name_device(function, from, len, op) || !name_host(function, to, len, op, &pinned)) return INVALID_VALUE;
    op->run = [=] {
        if (usable(function, from, len, Allocation::Device) &&
            (!pinned || usable(function, uint64_t(to), len, Allocation::Pinned)))
            memcpy(to, pointer(from), len);
    };
    enqueue(call.lock, stream, op);
    add("bytes_to_host", (long long)len);
    // Into pageable memory CUDA returns when the copy is done.
    if (wait || !pinned) finish(call.lock, op);
    return stream->context->lost;
}

static int fill(const char *function, uint64_t to, unsigned char value, size_t len, void *handle, bool wait) {
    Call call(function);
    if (call.refused) return call.refused;
    Stream *stream = stream_of(call, handle);
    if (!stream) return INVALID_HANDLE;
    if (!len) return OK;
    OpRef op = mark(stream, function);
    if (!name_device(function, to, len, op)) return INVALID_VALUE;
    op->run = [=] {
        if (usable(function, to, len, Allocation::Device)) memset(pointer(to), value, len);
    };
    enqueue(call.lock, stream, op);
    if (wait) finish(call.lock, op);
    return stream->context->lost;
}

// The allocation that begins here and may be freed; null, and a violation, otherwise.
static Allocation *to_free(const char *function, uint64_t start, Allocation::Kind kind) {
    auto found = world().allocations.find(start);
    Allocation *a = found == world().allocations.end() || found->second.kind != kind ? nullptr : &found->second;
    if (!a) violate(std::string(function) + " was given " + describe(start) + ", which is no allocation");
    else if (!a->live || a->leaving) violate(std::string(function) + " freed " + describe(start) + " twice");
    else return a;
    return nullptr;
}

static int free_now(Call &call, uint64_t start, Allocation::Kind kind) {
    Allocation *a = to_free(call.function, start, kind);
    if (!a) return INVALID_VALUE;
    const char *user = a->context->lost ? nullptr : named_by(start);
    if (user) violate(std::string(call.function) + " freed " + describe(start) + " which " + user + " still uses");
    // As CUDA's, which makes a free the most expensive way to wait.
    a->leaving = true;
    finish_all(call.lock, a->context);
    // Else it went with the device.
    if (a->live) release(*a);
    return call.result();
}

static int allocate_async(const char *function, uint64_t *start, size_t size, Pool *pool, void *handle) {
    Call call(function);
    if (call.refused) return call.refused;
    if (!world().pools) return NOT_SUPPORTED;
    Stream *stream = stream_of(call, handle);
    if (!stream || (pool && pool->destroyed)) return INVALID_HANDLE;
    if (!same_device(function, stream->context, pool ? pool->context : stream->context)) return INVALID_VALUE;
    Allocation *a;
    if (int code = allocate(Allocation::Device, size, stream->context, start, &a)) return code;
    a->pool = pool;
    if (pool) {
        pool->used += size;
        if (pool->used > pool->most_used) pool->most_used = pool->used;
    }
    // Not there before the stream has come this far.
    protect(*a, false);
    OpRef op = mark(stream, function);
    op->run = [start = *start] {
        Lock lock(world().mutex);
        protect(world().allocations[start], true);
    };
    a->born = op;
    enqueue(call.lock, stream, op);
    return OK;
}

static Pool *pool_of(Call &call, void *handle) {
    for (Pool *pool : world().pool_list)
        if (pool == handle && !pool->destroyed) return pool;
    violate(std::string(call.function) + " was given something that is no pool");
    return nullptr;
}

} // namespace mock

using namespace mock;

extern "C" {

int cuMemGetInfo_v2(size_t *free, size_t *total) {
    Call call("cuMemGetInfo_v2");
    size_t used = call.context ? call.context->live[Allocation::Device] : 0;
    *total = world().memory_limit;
    *free = used < *total ? *total - used : 0;
    return call.refused;
}

int cuMemAlloc_v2(uint64_t *start, size_t size) {
    Call call("cuMemAlloc_v2");
    return call.refused ? call.refused : allocate(Allocation::Device, size, call.context, start);
}

int cuMemFree_v2(uint64_t start) {
    Call call("cuMemFree_v2", Call::Release);
    if (call.refused) return call.refused;
    return start ? free_now(call, start, Allocation::Device) : OK;
}

int cuMemHostAlloc(void **start, size_t size, unsigned) {
    Call call("cuMemHostAlloc");
    if (call.refused) return call.refused;
    uint64_t at = 0;
    int code = allocate(Allocation::Pinned, size, call.context, &at);
    *start = pointer(at);
    return code;
}

int cuMemFreeHost(void *start) {
    Call call("cuMemFreeHost", Call::Release);
    return call.refused ? call.refused : free_now(call, uint64_t(start), Allocation::Pinned);
}

int cuPointerGetAttribute(void *data, int which, uint64_t address) {
    Call call("cuPointerGetAttribute");
    if (call.refused) return call.refused;
    const Allocation *a = find(address);
    if (!a || !a->live) return INVALID_VALUE;
    uint64_t start = a->start;
    switch (which) {
    case 1: *static_cast<void **>(data) = a->context; return OK;
    case 2: *static_cast<unsigned *>(data) = a->kind == Allocation::Device ? 2 : 1; return OK;
    case 3: case 4: memcpy(data, &address, 8); return OK;
    case 9: *static_cast<int *>(data) = a->context->device; return OK;
    case 11: memcpy(data, &start, 8); return OK;
    case 12: *static_cast<size_t *>(data) = a->size; return OK;
    default: return INVALID_VALUE;
    }
}

// --- pools ---

int cuMemPoolCreate(void **pool, const void *) {
    Call call("cuMemPoolCreate");
    if (call.refused) return call.refused;
    if (!world().pools) return NOT_SUPPORTED;
    Pool *made = new Pool;
    made->context = call.context;
    world().pool_list.push_back(made);
    count("pool", 1);
    *pool = made;
    return OK;
}

int cuMemPoolDestroy(void *handle) {
    Call call("cuMemPoolDestroy", Call::Release);
    if (call.refused) return call.refused;
    Pool *pool = pool_of(call, handle);
    if (!pool) return INVALID_HANDLE;
    pool->destroyed = true;
    count("pool", -1);
    return call.result();
}

int cuMemPoolSetAttribute(void *handle, int which, void *value) {
    Call call("cuMemPoolSetAttribute");
    if (call.refused) return call.refused;
    Pool *pool = pool_of(call, handle);
    if (pool && which == 4) memcpy(&pool->threshold, value, 8);
    return pool ? OK : INVALID_HANDLE;
}

int cuMemPoolGetAttribute(void *handle, int which, void *value) {
    Call call("cuMemPoolGetAttribute");
    if (call.refused) return call.refused;
    Pool *pool = pool_of(call, handle);
    if (!pool) return INVALID_HANDLE;
    switch (which) {
    case 4: memcpy(value, &pool->threshold, 8); return OK;
    case 5: case 7: memcpy(value, &pool->used, 8); return OK;
    case 6: case 8: memcpy(value, &pool->most_used, 8); return OK;
    default: return INVALID_VALUE;
    }
}

int cuMemPoolTrimTo(void *handle, size_t) {
    Call call("cuMemPoolTrimTo");
    if (call.refused) return call.refused;
    return pool_of(call, handle) ? OK : INVALID_HANDLE;
}

int cuMemAllocAsync(uint64_t *start, size_t size, void *stream) {
    return allocate_async("cuMemAllocAsync", start, size, nullptr, stream);
}

int cuMemAllocFromPoolAsync(uint64_t *start, size_t size, void *pool, void *stream) {
    return allocate_async("cuMemAllocFromPoolAsync", start, size, static_cast<Pool *>(pool), stream);
}

int cuMemFreeAsync(uint64_t start, void *handle) {
    Call call("cuMemFreeAsync", Call::Release);
    if (call.refused) return call.refused;
    Stream *stream = stream_of(call, handle);
    Allocation *a = to_free(call.function, start, Allocation::Device);
    if (!stream || !a || !same_device(call.function, stream->context, a->context)) return INVALID_VALUE;
    if (stream->context->lost) {
        release(*a);
        return stream->context->lost;
    }
    a->leaving = true;
    OpRef op = mark(stream, call.function);
    op->run = [start] {
        Lock lock(world().mutex);
        release(world().allocations[start]);
    };
    enqueue(call.lock, stream, op);
    return OK;
}

// --- copies and fills ---

int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t len, void *stream) {
    return upload("cuMemcpyHtoDAsync_v2", to, from, len, stream, false);
}

int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t len) {
    return upload("cuMemcpyHtoD_v2", to, from, len, nullptr, true);
}

int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t len, void *stream) {
    return download("cuMemcpyDtoHAsync_v2", to, from, len, stream, false);
}

int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t len) {
    return download("cuMemcpyDtoH_v2", to, from, len, nullptr, true);
}

int cuMemsetD8Async(uint64_t to, unsigned char value, size_t len, void *stream) {
    return fill("cuMemsetD8Async", to, value, len, stream, false);
}

int cuMemsetD8_v2(uint64_t to, unsigned char value, size_t len) {
    return fill("cuMemsetD8_v2", to, value, len, nullptr, true);
}

int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t len, void *handle) {
    Call call("cuMemcpyDtoDAsync_v2");
    if (call.refused) return call.refused;
    Stream *stream = stream_of(call, handle);
    if (!stream) return INVALID_HANDLE;
    if (!len) return OK;
    const char *function = call.function;
    OpRef op = mark(stream, function);
    if (!name_device(function, to, len, op) || !name_device(function, from, len, op)) return INVALID_VALUE;
    op->run = [=] {
        if (usable(function, to, len, Allocation::Device) && usable(function, from, len, Allocation::Device))
            memmove(pointer(to), pointer(from), len);
    };
    enqueue(call.lock, stream, op);
    add("bytes_on_device", (long long)len);
    return OK;
}

// CUDA_MEMCPY2D
struct Copy2D {
    size_t src_x, src_y;
    int src_type;
    const void *src_host;
    uint64_t src_device;
    void *src_array;
    size_t src_pitch;
    size_t dst_x, dst_y;
    int dst_type;
    void *dst_host;
    uint64_t dst_device;
    void *dst_array;
    size_t dst_pitch;
    size_t width, height;
};

// From the device to page-locked memory; nobody here copies anything else in lines.
int cuMemcpy2DAsync_v2(const Copy2D *copy, void *handle) {
    Call call("cuMemcpy2DAsync_v2");
    if (call.refused) return call.refused;
    Stream *stream = stream_of(call, handle);
    if (!stream) return INVALID_HANDLE;
    const Copy2D c = *copy;
    if (c.src_type != 2 || c.dst_type != 1 || c.src_x || c.src_y || c.dst_x || c.dst_y) return NOT_SUPPORTED;
    if (!c.width || !c.height) return OK;
    if (c.width > c.src_pitch || c.width > c.dst_pitch) return INVALID_VALUE;
    const char *function = call.function;
    const size_t from = c.src_pitch * (c.height - 1) + c.width, to = c.dst_pitch * (c.height - 1) + c.width;
    OpRef op = mark(stream, function);
    bool pinned;
    if (!name_device(function, c.src_device, from, op) || !name_host(function, c.dst_host, to, op, &pinned) || !pinned)
        return INVALID_VALUE;
    op->run = [=] {
        if (!usable(function, c.src_device, from, Allocation::Device) ||
            !usable(function, uint64_t(c.dst_host), to, Allocation::Pinned))
            return;
        for (size_t y = 0; y < c.height; ++y)
            memcpy(static_cast<char *>(c.dst_host) + y * c.dst_pitch, pointer(c.src_device + y * c.src_pitch), c.width);
    };
    enqueue(call.lock, stream, op);
    add("bytes_to_host", (long long)(c.width * c.height));
    return OK;
}

int cuMemsetD2D32Async(uint64_t to, size_t pitch, unsigned value, size_t width, size_t height, void *handle) {
    Call call("cuMemsetD2D32Async");
    if (call.refused) return call.refused;
    Stream *stream = stream_of(call, handle);
    if (!stream) return INVALID_HANDLE;
    if (!width || !height) return OK;
    if (to % 4 || pitch % 4 || pitch < width * 4) return INVALID_VALUE;
    const char *function = call.function;
    const size_t len = pitch * (height - 1) + width * 4;
    OpRef op = mark(stream, function);
    if (!name_device(function, to, len, op)) return INVALID_VALUE;
    op->run = [=] {
        if (!usable(function, to, len, Allocation::Device)) return;
        for (size_t y = 0; y < height; ++y)
            for (size_t x = 0; x < width; ++x) memcpy(pointer(to + y * pitch + x * 4), &value, 4);
    };
    enqueue(call.lock, stream, op);
    return OK;
}

// --- for the mock nvJPEG ---

int mock_enqueue(void *handle, const char *what, void (*run)(void *), void *arg) {
    Call call("mock_enqueue");
    if (call.refused) return call.refused;
    Stream *stream = stream_of(call, handle);
    if (!stream) return INVALID_HANDLE;
    // nvJPEG works on the device that is current.
    if (!same_device(what, call.context, stream->context)) return INVALID_HANDLE;
    OpRef op = mark(stream, what);
    op->run = [=] { run(arg); };
    enqueue(call.lock, stream, op);
    return OK;
}

int mock_lost(void) {
    Lock lock(world().mutex);
    return current_device < 0 ? 0 : world().contexts[(size_t)current_device]->lost;
}

int mock_is_live(const void *at) {
    Lock lock(world().mutex);
    const Allocation *a = find(uint64_t(at));
    return a && a->live && !a->leaving;
}

int mock_current_device(void) { return current_device; }

int mock_is_device_memory(const char *what, const void *at, size_t len) {
    return usable(what, uint64_t(at), len, Allocation::Device);
}

} // extern "C"
