// The inside of the mock driver: one world behind one lock.
//
//   cu* call ─ Call: counts, faults, context ─▶ Op queued on its stream
//   synchronise, query ─ finish / advance ────▶ the Ops that it depends on run, on the caller's thread, and no others
//
// So work happens as late as CUDA allows, and a wait that the program forgot shows as stale or poisoned bytes.
// Objects are never deleted: a handle that is used after its end is recognised, not reused.
#pragma once
#include <cstdint>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace mock {

// CUresult
enum Code {
    OK = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    INVALID_PTX = 218,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    CONTEXT_IS_DESTROYED = 709,
    LAUNCH_FAILED = 719,
    NOT_SUPPORTED = 801,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901,
    CAPTURED_EVENT = 907,
};

// CUstreamCaptureMode
enum CaptureMode { CAPTURE_GLOBAL = 0, CAPTURE_THREAD_LOCAL = 1, CAPTURE_RELAXED = 2 };

using Lock = std::unique_lock<std::mutex>;
using Clock = std::chrono::steady_clock;

struct Op;
using OpRef = std::shared_ptr<Op>;

struct Stream;

struct Context {
    int device = 0;
    int retained = 0;
    int generation = 0;
    // The default stream.
    Stream *standard = nullptr;
    // Bytes alive, by Allocation::Kind.
    size_t live[2] = {};
    // Calls until the device is lost; -1: never.
    int lose_after = -1;
    // The code of a sticky error.
    int lost = 0;
    // While it is being lost no work of it begins, and what runs comes to its end.
    bool losing = false;
    int running = 0;
};

struct Stream {
    Context *context = nullptr;
    // The driver's own, which ends with its context.
    bool standard = false;
    bool destroyed = false;
    std::deque<OpRef> pending;
    // A capture: its mode, or -1; who began it; whether a call that it forbids was made meanwhile.
    int capture = -1;
    std::thread::id capturer;
    bool invalidated = false;
};

struct Event {
    Context *context = nullptr;
    bool destroyed = false;
    bool timed = true;
    // The last record; null = never recorded, which counts as complete.
    OpRef last;
    // That was recorded in a capture, so nothing of it ever happens.
    bool captured = false;
};

struct Module {
    Context *context = nullptr;
    bool unloaded = false;
    std::string image;
};

struct Function {
    Module *module;
    std::string name;
    unsigned most_shared = 48 << 10;
    // Bytes of each argument.
    std::vector<unsigned> sizes;
};

struct Pool {
    Context *context = nullptr;
    bool destroyed = false;
    uint64_t used = 0, most_used = 0, threshold = 0;
};

struct Allocation {
    enum Kind { Device, Pinned } kind;
    // What the program was given; the pages around it are never handed out again.
    uint64_t start;
    size_t size;
    uint64_t pages;
    size_t pages_len;
    Context *context;
    Pool *pool = nullptr;
    bool live = true;
    // A stream-ordered free is queued.
    bool leaving = false;
    // The stream-ordered allocation, until it has run.
    OpRef born;
};

// One step of a stream.
struct Op {
    Stream *stream = nullptr;
    const char *what = "";
    // Called without the lock. Empty: a mark in the stream.
    std::function<void()> run;
    // Another stream's step that comes first.
    OpRef after;
    // Starts of the allocations that it touches, as far as they are known.
    std::vector<uint64_t> names;
    const Module *module = nullptr;
    bool running = false, done = false;
    // Runs on the driver's own thread, as CUDA's host functions do.
    bool host = false;
    // How many more queries are told "not ready"; drawn at the first one.
    int patience = -1;
    Clock::time_point finished;
};

struct World {
    std::mutex mutex;
    std::condition_variable changed;
    bool initialised = false;
    int devices = 1;
    int driver_version = 13000;
    bool pools = true;
    // Of each device.
    size_t memory_limit = size_t(1) << 30;
    // 0: work runs as late as possible. Else also at random times before.
    uint64_t seed = 0;
    std::mt19937_64 random;
    std::vector<Context *> contexts;
    std::vector<Stream *> streams;
    std::vector<Event *> events;
    std::vector<Module *> modules;
    std::vector<Pool *> pool_list;
    std::map<uint64_t, Allocation> allocations;
    bool host_thread = false;
};

// Made at the first use and never destroyed: threads may outlive main.
World &world();
// A draw of 0..n.
unsigned draw(unsigned n);

// Shared memory that a block can have if it asks, as on Hopper.
const int MOST_SHARED = 227 << 10;

// --- control.cpp ---
extern thread_local int current_device;
// Of the context when it was made current: a context that was made anew since is another one.
extern thread_local int current_generation;
void violate(const std::string &sentence);
void count(const char *kind, int change);
void add(const char *total, long long amount);
void highest(const std::string &total, long long value);
// "cuda:1"
std::string name_of(const Context *context);
// Whether both are of one device; a violation in the name of `what` if not.
bool same_device(const char *what, const Context *one, const Context *other);
// Whether this call of a waiting function shall not wait.
bool ignores_wait(const char *function);
// How this thread stands to captures of others, which calls that might disturb them ask.
extern thread_local int capture_mode;
// Whether a capture forbids this thread the call; the capture is spoiled then, as CUDA does it.
bool spoils_a_capture(const char *function);

// The beginning of each exported function: takes the lock, then decides whether the call is refused.
class Call {
  public:
    enum Needs { Nothing, Driver, ThreadContext, Release };
    explicit Call(const char *function, Needs needs = ThreadContext);
    const char *function;
    Lock lock;
    // Not 0: return it.
    int refused = 0;
    Context *context = nullptr;
    // A `Release` does its duty on a lost device too, so that leaks stay countable, and then tells of the loss.
    int result() const { return context->lost; }
};

// --- driver.cpp ---
// Null, and a violation, if there is no such stream.
Stream *stream_of(Call &call, void *handle);
// The default stream of each thread that has used its own. They and the legacy one wait for each other.
const std::vector<Stream *> &thread_streams();

// --- streams.cpp ---
void enqueue(Lock &lock, Stream *stream, OpRef op);
OpRef mark(Stream *stream, const char *what);
// Runs what `op` depends on and itself; returns early when its device is lost.
void finish(Lock &lock, const OpRef &op);
// As far as it goes without waiting for other threads.
bool advance(Lock &lock, const OpRef &op);
// Of one device; null: of all.
void finish_all(Lock &lock, const Context *device);
// Whether queued steps touch the allocation, and the first one's name.
const char *named_by(uint64_t start);
// Some ready steps of any stream, at random; nothing with seed 0.
void stir(Lock &lock);
void lose(Lock &lock, Context *device, int code);

// --- memory.cpp ---
int allocate(Allocation::Kind kind, size_t size, Context *context, uint64_t *start, Allocation **made = nullptr);
void release(Allocation &allocation);
void poison(const Allocation &allocation);
// The allocation that holds this address, dead ones included.
Allocation *find(uint64_t address);
// The live allocation that holds the whole range; a violation in the name of `what` if there is none.
Allocation *inside(const char *what, uint64_t address, size_t len, Allocation::Kind kind);
std::string describe(uint64_t address);
void protect(const Allocation &allocation, bool usable);

} // namespace mock
