// The functions of the CUDA driver: devices, contexts, streams, events, modules, kernels. Copies are in copies.cpp.
#include "world.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "mock.h"
#include "probe.h"

using namespace mock;

namespace mock {

static std::vector<Stream *> &own_streams() {
    static std::vector<Stream *> *streams = new std::vector<Stream *>;
    return *streams;
}

const std::vector<Stream *> &thread_streams() { return own_streams(); }

// Handles 0 and 1 name the legacy default stream, 2 that of the calling thread.
Stream *stream_of(Call &call, void *handle) {
    if (uintptr_t(handle) <= 1) return call.context->standard;
    if (uintptr_t(handle) == 2) {
        static thread_local std::map<Context *, Stream *> *all = new std::map<Context *, Stream *>;
        Stream *&own = (*all)[call.context];
        if (!own) {
            own = new Stream;
            own->context = call.context;
            own->standard = true;
            world().streams.push_back(own);
            own_streams().push_back(own);
        }
        return own;
    }
    for (Stream *stream : world().streams)
        if (stream == handle) {
            if (!stream->destroyed) return stream;
            violate(std::string(call.function) + " was given a stream that was destroyed");
            return nullptr;
        }
    violate(std::string(call.function) + " was given something that is no stream");
    return nullptr;
}

static Event *event_of(Call &call, void *handle) {
    for (Event *event : world().events)
        if (event == handle) {
            if (!event->destroyed) return event;
            violate(std::string(call.function) + " was given an event that was destroyed");
            return nullptr;
        }
    violate(std::string(call.function) + " was given something that is no event");
    return nullptr;
}

static Module *module_of(Call &call, void *handle) {
    for (Module *module : world().modules)
        if (module == handle && !module->unloaded) return module;
    violate(std::string(call.function) + " was given something that is no loaded module");
    return nullptr;
}

// "not ready" a few times, then as far as it gets: who polls must poll, and never hangs.
static int query(Call &call, const OpRef &op) {
    if (ignores_wait(call.function) || !op || op->done) return OK;
    if (op->patience < 0) op->patience = int(draw(3)) + 1;
    if (op->patience > 0) {
        --op->patience;
        return NOT_READY;
    }
    const Context *device = op->stream->context;
    return advance(call.lock, op) ? OK : device->lost ? device->lost : NOT_READY;
}

static int wait(Call &call, const OpRef &op) {
    if (ignores_wait(call.function)) return OK;
    finish(call.lock, op);
    return op ? op->stream->context->lost : OK;
}

static OpRef last_of(const Stream *stream) { return stream->pending.empty() ? nullptr : stream->pending.back(); }

static int attribute(int which) {
    switch (which) {
    case 1: return 1024;            // threads per block
    case 2: case 3: return 1024;    // block, x and y
    case 4: return 64;              // block, z
    case 5: return 2147483647;      // grid, x
    case 6: case 7: return 65535;   // grid, y and z
    case 8: return 48 << 10;        // shared memory per block
    case 10: return 32;             // warp
    case 13: return 1980000;        // clock, kHz
    case 16: return 132;            // multiprocessors
    case 31: case 41: return 1;     // concurrent kernels, unified addresses
    case 36: return 3201000;        // memory clock, kHz
    case 37: return 6144;           // memory bus, bits
    case 38: return 60 << 20;       // L2
    case 39: return 2048;           // threads per multiprocessor
    case 40: return 3;              // copy engines
    case 75: return 9;              // compute capability
    case 76: return 0;
    case 81: return 228 << 10;      // shared memory per multiprocessor
    case 97: return MOST_SHARED;    // shared memory per block, if asked for
    case 115: return world().pools; // stream-ordered allocation
    default: return 0;
    }
}

static const struct {
    int code;
    const char *name, *words;
} ERRORS[] = {
    {OK, "CUDA_SUCCESS", "no error"},
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {INVALID_PTX, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the provided PTX was compiled with an unsupported toolchain."},
    {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture"},
    {CAPTURED_EVENT, "CUDA_ERROR_CAPTURED_EVENT", "operation not permitted on an event last recorded in a capturing stream"},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

} // namespace mock

extern "C" {

// --- devices ---

int cuInit(unsigned) {
    Call call("cuInit", Call::Nothing);
    if (call.refused) return call.refused;
    if (!world().devices) return NO_DEVICE;
    world().initialised = true;
    return OK;
}

int cuDriverGetVersion(int *version) {
    Call call("cuDriverGetVersion", Call::Nothing);
    *version = world().driver_version;
    return call.refused;
}

int cuDeviceGetCount(int *devices) {
    Call call("cuDeviceGetCount", Call::Driver);
    *devices = world().devices;
    return call.refused;
}

int cuDeviceGet(int *device, int ordinal) {
    Call call("cuDeviceGet", Call::Driver);
    *device = ordinal;
    return call.refused ? call.refused : ordinal < 0 || ordinal >= world().devices ? INVALID_DEVICE : OK;
}

int cuDeviceGetName(char *name, int len, int device) {
    Call call("cuDeviceGetName", Call::Driver);
    const char *given = getenv("INFEED_MOCK_NAME");
    if (given) snprintf(name, (size_t)len, "%s", given);
    else snprintf(name, (size_t)len, "infeed mock GPU %d", device);
    return call.refused;
}

int cuDeviceTotalMem_v2(size_t *bytes, int) {
    Call call("cuDeviceTotalMem_v2", Call::Driver);
    *bytes = world().memory_limit;
    return call.refused;
}

int cuDeviceGetAttribute(int *value, int which, int) {
    Call call("cuDeviceGetAttribute", Call::Driver);
    *value = attribute(which);
    return call.refused;
}

int cuGetErrorName(int code, const char **name) {
    *name = nullptr;
    for (const auto &error : ERRORS)
        if (error.code == code) *name = error.name;
    return *name ? OK : INVALID_VALUE;
}

int cuGetErrorString(int code, const char **words) {
    *words = nullptr;
    for (const auto &error : ERRORS)
        if (error.code == code) *words = error.words;
    return *words ? OK : INVALID_VALUE;
}

// --- contexts ---

int cuDevicePrimaryCtxRetain(void **context, int device) {
    Call call("cuDevicePrimaryCtxRetain", Call::Driver);
    if (call.refused) return call.refused;
    if (device < 0 || device >= world().devices) return INVALID_DEVICE;
    Context *primary = world().contexts[(size_t)device];
    if (!primary->retained++) primary->generation++;
    count("context", 1);
    *context = primary;
    return OK;
}

int cuDevicePrimaryCtxRelease_v2(int device) {
    Call call("cuDevicePrimaryCtxRelease_v2", Call::Driver);
    if (call.refused) return call.refused;
    Context *primary = world().contexts[(size_t)device];
    if (!primary->retained) return INVALID_CONTEXT;
    count("context", -1);
    if (--primary->retained) return OK;
    finish_all(call.lock, primary);
    size_t streams = 0, events = 0, modules = 0, memory = 0;
    for (auto *stream : world().streams)
        streams += stream->context == primary && !stream->standard && !stream->destroyed;
    for (auto *event : world().events) events += event->context == primary && !event->destroyed;
    for (auto *module : world().modules) modules += module->context == primary && !module->unloaded;
    for (auto &entry : world().allocations) memory += entry.second.context == primary && entry.second.live;
    if (streams || events || modules || memory)
        violate("the context was destroyed with " + std::to_string(streams) + " streams, " + std::to_string(events) +
                " events, " + std::to_string(modules) + " modules and " + std::to_string(memory) +
                " pieces of memory alive");
    return OK;
}

int cuCtxGetCurrent(void **context) {
    Call call("cuCtxGetCurrent", Call::Driver);
    *context = current_device < 0 ? nullptr : world().contexts[(size_t)current_device];
    return call.refused;
}

int cuCtxSetCurrent(void *context) {
    Call call("cuCtxSetCurrent", Call::Driver);
    if (call.refused) return call.refused;
    current_device = -1;
    if (!context) return OK;
    for (Context *known : world().contexts)
        if (known == context) {
            current_device = known->device;
            current_generation = known->generation;
            return OK;
        }
    return INVALID_CONTEXT;
}

int cuCtxGetDevice(int *device) {
    Call call("cuCtxGetDevice");
    *device = current_device;
    return call.refused;
}

int cuCtxSynchronize(void) {
    Call call("cuCtxSynchronize");
    if (call.refused) return call.refused;
    if (!ignores_wait(call.function)) finish_all(call.lock, call.context);
    return call.context->lost;
}

int cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    Call call("cuCtxGetStreamPriorityRange");
    *least = 0;
    *greatest = -5;
    return call.refused;
}

// --- streams and events ---

// All are as if made NON_BLOCKING: default streams order none of them.
static int create_stream(const char *function, void **stream) {
    Call call(function);
    if (call.refused) return call.refused;
    Stream *made = new Stream;
    made->context = call.context;
    world().streams.push_back(made);
    count("stream", 1);
    *stream = made;
    return OK;
}

int cuStreamCreate(void **stream, unsigned) { return create_stream("cuStreamCreate", stream); }

int cuStreamCreateWithPriority(void **stream, unsigned, int) {
    return create_stream("cuStreamCreateWithPriority", stream);
}

// Returns at once; what is queued still runs when somebody depends on it.
int cuStreamDestroy_v2(void *handle) {
    Call call("cuStreamDestroy_v2", Call::Release);
    if (call.refused) return call.refused;
    Stream *stream = stream_of(call, handle);
    if (!stream || stream->standard) return INVALID_HANDLE;
    stream->destroyed = true;
    count("stream", -1);
    return call.result();
}

int cuStreamSynchronize(void *handle) {
    Call call("cuStreamSynchronize");
    if (call.refused) return call.refused;
    Stream *stream = stream_of(call, handle);
    return stream ? wait(call, last_of(stream)) : INVALID_HANDLE;
}

int cuStreamQuery(void *handle) {
    Call call("cuStreamQuery");
    if (call.refused) return call.refused;
    Stream *stream = stream_of(call, handle);
    return stream ? query(call, last_of(stream)) : INVALID_HANDLE;
}

int cuStreamWaitEvent(void *handle, void *event_handle, unsigned) {
    Call call("cuStreamWaitEvent");
    if (call.refused) return call.refused;
    Stream *stream = stream_of(call, handle);
    Event *event = event_of(call, event_handle);
    if (!stream || !event) return INVALID_HANDLE;
    if (event->captured && stream->capture < 0) {
        violate("cuStreamWaitEvent drew a stream into a capture");
        return CAPTURED_EVENT;
    }
    if (ignores_wait(call.function) || !event->last || event->last->done) return OK;
    add("stream_waits", 1);
    OpRef op = mark(stream, call.function);
    op->after = event->last;
    enqueue(call.lock, stream, op);
    return OK;
}

int cuEventCreate(void **event, unsigned flags) {
    Call call("cuEventCreate");
    if (call.refused) return call.refused;
    Event *made = new Event;
    made->context = call.context;
    made->timed = !(flags & 2);
    world().events.push_back(made);
    count("event", 1);
    *event = made;
    return OK;
}

int cuEventDestroy_v2(void *handle) {
    Call call("cuEventDestroy_v2", Call::Release);
    if (call.refused) return call.refused;
    Event *event = event_of(call, handle);
    if (!event) return INVALID_HANDLE;
    event->destroyed = true;
    count("event", -1);
    return call.result();
}

int cuEventRecord(void *handle, void *stream_handle) {
    Call call("cuEventRecord");
    if (call.refused) return call.refused;
    Event *event = event_of(call, handle);
    Stream *stream = stream_of(call, stream_handle);
    if (!event || !stream || !same_device(call.function, event->context, stream->context)) return INVALID_HANDLE;
    OpRef op = mark(stream, call.function);
    event->last = op;
    event->captured = stream->capture >= 0;
    enqueue(call.lock, stream, op);
    return OK;
}

// Behind all that the streams of a context were given so far: on a stream of its own, which waits for each of them.
int cuCtxRecordEvent(void *context, void *handle) {
    Call call("cuCtxRecordEvent");
    if (call.refused) return call.refused;
    Event *event = event_of(call, handle);
    if (!event || event->context != context) return INVALID_HANDLE;
    bool spoils = false;
    for (Stream *stream : world().streams)
        if (stream->context == context && stream->capture >= 0) stream->invalidated = spoils = true;
    if (spoils) return CAPTURE_UNSUPPORTED;
    static auto *behind_all = new std::map<void *, Stream *>;
    Stream *&last = (*behind_all)[context];
    if (!last) {
        last = new Stream;
        last->context = event->context;
        last->standard = true;
        world().streams.push_back(last);
    }
    for (const Stream *stream : world().streams) {
        if (stream == last || stream->context != context || stream->pending.empty()) continue;
        OpRef wait = mark(last, call.function);
        wait->after = stream->pending.back();
        enqueue(call.lock, last, wait);
    }
    OpRef op = mark(last, call.function);
    event->last = op;
    event->captured = false;
    enqueue(call.lock, last, op);
    return OK;
}

int cuEventQuery(void *handle) {
    Call call("cuEventQuery");
    if (call.refused) return call.refused;
    Event *event = event_of(call, handle);
    if (event && event->captured) return CAPTURED_EVENT;
    return event ? query(call, OpRef(event->last)) : INVALID_HANDLE;
}

int cuEventSynchronize(void *handle) {
    Call call("cuEventSynchronize");
    if (call.refused) return call.refused;
    Event *event = event_of(call, handle);
    if (event && event->captured) return CAPTURED_EVENT;
    return event ? wait(call, OpRef(event->last)) : INVALID_HANDLE;
}

static int elapsed(const char *function, float *milliseconds, void *start, void *end) {
    Call call(function);
    if (call.refused) return call.refused;
    Event *a = event_of(call, start), *b = event_of(call, end);
    if (!a || !b || !same_device(call.function, a->context, b->context) || !a->timed || !b->timed || !a->last || !b->last) return INVALID_HANDLE;
    if (!a->last->done || !b->last->done) return NOT_READY;
    *milliseconds = std::chrono::duration<float, std::milli>(b->last->finished - a->last->finished).count();
    return OK;
}

int cuEventElapsedTime(float *ms, void *start, void *end) { return elapsed("cuEventElapsedTime", ms, start, end); }

int cuEventElapsedTime_v2(float *ms, void *start, void *end) {
    return elapsed("cuEventElapsedTime_v2", ms, start, end);
}

int cuLaunchHostFunc(void *handle, void (*function)(void *), void *data) {
    Call call("cuLaunchHostFunc");
    if (call.refused) return call.refused;
    Stream *stream = stream_of(call, handle);
    if (!stream) return INVALID_HANDLE;
    OpRef op = mark(stream, call.function);
    op->host = true;
    op->run = [function, data] { function(data); };
    enqueue(call.lock, stream, op);
    add("host_functions", 1);
    return OK;
}

// --- captures ---

int cuThreadExchangeStreamCaptureMode(int *mode) {
    Call call("cuThreadExchangeStreamCaptureMode", Call::Driver);
    if (call.refused) return call.refused;
    if (*mode < CAPTURE_GLOBAL || *mode > CAPTURE_RELAXED) return INVALID_VALUE;
    std::swap(*mode, capture_mode);
    return OK;
}

int cuStreamBeginCapture_v2(void *handle, int mode) {
    Call call("cuStreamBeginCapture_v2");
    if (call.refused) return call.refused;
    Stream *stream = stream_of(call, handle);
    if (!stream || uintptr_t(handle) <= 2 || stream->capture >= 0) return INVALID_HANDLE;
    stream->capture = mode;
    stream->capturer = std::this_thread::get_id();
    stream->invalidated = false;
    return OK;
}

int cuStreamIsCapturing(void *handle, int *status) {
    Call call("cuStreamIsCapturing");
    if (call.refused) return call.refused;
    Stream *stream = stream_of(call, handle);
    if (!stream) return INVALID_HANDLE;
    *status = stream->capture < 0 ? 0 : stream->invalidated ? 2 : 1;
    return OK;
}

// Gives no graph: nobody runs it.
int cuStreamEndCapture(void *handle, void **graph) {
    Call call("cuStreamEndCapture");
    if (call.refused) return call.refused;
    Stream *stream = stream_of(call, handle);
    *graph = nullptr;
    if (!stream || stream->capture < 0) return INVALID_HANDLE;
    stream->capture = -1;
    return stream->invalidated ? CAPTURE_INVALIDATED : OK;
}

// --- modules and kernels ---

static int load_module(const char *function, void **module, const void *image) {
    Call call(function);
    if (call.refused) return call.refused;
    const char *text = static_cast<const char *>(image);
    if (!strstr(text, ".version") || !strstr(text, ".target")) return INVALID_PTX;
    Module *made = new Module;
    made->context = call.context;
    made->image = text;
    world().modules.push_back(made);
    count("module", 1);
    *module = made;
    return OK;
}

int cuModuleLoadData(void **module, const void *image) { return load_module("cuModuleLoadData", module, image); }

// Of the options it knows the log of errors (5) and its size (6), which comes back as what was written.
int cuModuleLoadDataEx(void **module, const void *image, unsigned count, unsigned *options, void **values) {
    const int code = load_module("cuModuleLoadDataEx", module, image);
    char *log = nullptr;
    void **size = nullptr;
    for (unsigned i = 0; i < count; ++i) {
        if (options[i] == 5) log = static_cast<char *>(values[i]);
        else if (options[i] == 6) size = &values[i];
        else return INVALID_VALUE;
    }
    if (!log || !size) return code;
    const char *words = code ? getenv("INFEED_MOCK_JIT") : nullptr;
    const size_t len = words ? std::min(strlen(words), size_t(uintptr_t(*size))) : 0;
    if (len) memcpy(log, words, len);
    *size = reinterpret_cast<void *>(uintptr_t(len));
    return code;
}

int cuModuleUnload(void *handle) {
    Call call("cuModuleUnload", Call::Release);
    if (call.refused) return call.refused;
    Module *module = module_of(call, handle);
    if (!module) return INVALID_HANDLE;
    for (Stream *stream : world().streams)
        for (const OpRef &op : stream->pending)
            if (op->module == module) {
                violate("a module was unloaded with a kernel of it queued");
                finish_all(call.lock, module->context);
            }
    module->unloaded = true;
    count("module", -1);
    return call.result();
}

int cuModuleGetFunction(void **function, void *handle, const char *name) {
    Call call("cuModuleGetFunction");
    if (call.refused) return call.refused;
    Module *module = module_of(call, handle);
    if (!module) return INVALID_HANDLE;
    // In the program's own text, so that a misspelt entry point is not found although the CPU has it.
    if (module->image.find(std::string(".entry ") + name) == std::string::npos) return NOT_FOUND;
    unsigned sizes[64];
    int arguments = kernel_arg_sizes(name, sizes, 64);
    if (arguments < 0) return NOT_FOUND;
    *function = new Function{module, name, 48 << 10, {sizes, sizes + arguments}};
    return OK;
}

int cuFuncSetAttribute(void *function, int which, int value) {
    Call call("cuFuncSetAttribute");
    if (call.refused) return call.refused;
    // 8: most dynamic shared memory; 9: how much of it is carved out of L1.
    if (which == 8 && (value < 0 || value > MOST_SHARED)) return INVALID_VALUE;
    if (which == 8) static_cast<Function *>(function)->most_shared = (unsigned)value;
    return which == 8 || which == 9 ? OK : INVALID_VALUE;
}

int cuLaunchKernel(void *handle, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream_handle, void **args, void **) {
    Call call("cuLaunchKernel");
    if (call.refused) return call.refused;
    Stream *stream = stream_of(call, stream_handle);
    Function *function = static_cast<Function *>(handle);
    if (!stream || !function) return INVALID_HANDLE;
    if (function->module->unloaded) {
        violate("cuLaunchKernel was given a function of a module that was unloaded");
        return INVALID_HANDLE;
    }
    if (!same_device("cuLaunchKernel", stream->context, function->module->context)) return INVALID_HANDLE;
    uint64_t threads = uint64_t(bx) * by * bz;
    if (!gx || !gy || !gz || !threads || threads > 1024 || bz > 64 || gy > 65535 || gz > 65535) return INVALID_VALUE;
    if (shared > function->most_shared) return INVALID_VALUE;

    OpRef op = mark(stream, "a kernel");
    op->module = function->module;
    // The driver takes a copy of the arguments. Which memory a kernel touches is seen by those that are its addresses.
    auto copies = std::make_shared<std::vector<std::vector<char>>>();
    for (size_t i = 0; i < function->sizes.size(); ++i) {
        const char *from = static_cast<const char *>(args[i]);
        copies->emplace_back(from, from + function->sizes[i]);
        for (size_t at = 0; at + 8 <= copies->back().size(); at += 8) {
            uint64_t word;
            memcpy(&word, copies->back().data() + at, 8);
            Allocation *named = find(word);
            if (named && !named->live) violate("a kernel was given " + describe(word));
            if (named && named->kind == Allocation::Device) same_device("a kernel", stream->context, named->context);
            if (named) op->names.push_back(named->start);
        }
    }
    op->run = [=, names = op->names] {
        for (uint64_t start : names) {
            Lock lock(world().mutex);
            Allocation &a = world().allocations[start];
            if (!a.live) violate("a kernel ran on " + describe(start));
            else if (a.born && !a.born->done) violate("a kernel ran before its memory was there: " + describe(start));
            else continue;
            return;
        }
        std::vector<void *> pointers;
        for (auto &copy : *copies) pointers.push_back(copy.data());
        const unsigned grid[3] = {gx, gy, gz}, block[3] = {bx, by, bz};
        // One at a time: the kernels' shared memory is not written for several.
        static std::mutex *one = new std::mutex;
        std::lock_guard<std::mutex> turn(*one);
        if (int code = kernel_launch(function->name.c_str(), grid, block, shared, pointers.data()))
            mock_violation((function->name + " can't run: " + std::to_string(code)).c_str());
    };
    enqueue(call.lock, stream, op);
    add("kernels", 1);
    add(("kernels " + function->name.substr(0, function->name.find('_'))).c_str(), 1);
    return OK;
}

} // extern "C"
