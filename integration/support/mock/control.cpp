// What tests turn and read: injected failures, removed waits, counts, violations. Also by environment, for programs:
//
//   INFEED_MOCK_DEVICES=1 INFEED_MOCK_MEMORY=1073741824 INFEED_MOCK_DRIVER=13000 INFEED_MOCK_POOLS=1 INFEED_MOCK_SEED=0
//   INFEED_MOCK_FAIL=cuMemAlloc_v2:3:2,…   INFEED_MOCK_IGNORE=cuStreamWaitEvent:0,…   INFEED_MOCK_LOSE=100
//   INFEED_MOCK_JIT=words: what cuModuleLoadDataEx writes into the log of errors when it fails
//   INFEED_MOCK_NAME=words: what each GPU is called
//   INFEED_MOCK_PIXELS=100: nvJPEG decodes without a registered decoder, to this value everywhere
//   INFEED_MOCK_LEAST_SIDE=64: engines refuse images that are narrower or lower
//   INFEED_MOCK_SLOW_END=50: destroying a handle of nvJPEG takes so many milliseconds
//   INFEED_MOCK_STRICT=1: a process that did something wrong prints it at its end and exits with 97; one that touches
//                         freed memory says so as it dies; one that calls when the library has gone dies of it
#include "world.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

#include "mock.h"

namespace mock {

// What happens to the nth call of a function from now on; 0: to each.
struct Rule {
    std::string function;
    int nth;
    int code;
};

struct Control {
    std::vector<Rule> failures, ignored;
    // Calls until the device is lost; -1: never.
    int lose_after = -1;
    std::vector<std::string> violations;
    std::map<std::string, long long> calls, totals;
    struct Pair {
        long long created = 0, destroyed = 0;
    };
    std::map<std::string, Pair> objects;
};

static Control &control() {
    static Control *control = new Control;
    return *control;
}

thread_local int capture_mode = CAPTURE_GLOBAL;

// What CUDA calls potentially unsafe: it waits, or allocates, or may.
static bool is_unsafe(const std::string &function) {
    static const char *const NAMES[] = {
        "cuCtxSynchronize",  "cuEventQuery",     "cuEventSynchronize",  "cuMemAlloc_v2",  "cuMemFreeHost",
        "cuMemFree_v2",      "cuMemHostAlloc",   "cuMemcpyDtoH_v2",     "cuMemcpyHtoD_v2", "cuMemsetD8_v2",
        "cuModuleLoadData",  "cuModuleLoadDataEx", "cuModuleUnload",    "cuStreamQuery",  "cuStreamSynchronize"};
    for (const char *name : NAMES)
        if (function == name) return true;
    // The library calls such functions.
    return function.rfind("nvjpeg", 0) == 0 &&
           (function.rfind("nvjpegDecode", 0) == 0 || function.find("Create") != std::string::npos);
}

bool spoils_a_capture(const char *function) {
    if (capture_mode == CAPTURE_RELAXED || !is_unsafe(function)) return false;
    bool spoils = false;
    for (Stream *stream : world().streams) {
        bool mine = stream->capturer == std::this_thread::get_id();
        bool forbids = mine ? stream->capture == CAPTURE_GLOBAL || stream->capture == CAPTURE_THREAD_LOCAL
                            : stream->capture == CAPTURE_GLOBAL && capture_mode == CAPTURE_GLOBAL;
        if (!forbids) continue;
        stream->invalidated = true;
        spoils = true;
    }
    return spoils;
}

thread_local int current_device = -1;
thread_local int current_generation = 0;

static long long number(const char *name, long long otherwise) {
    const char *text = getenv(name);
    return text && *text ? strtoll(text, nullptr, 10) : otherwise;
}

// "function:nth:code,…"
static std::vector<Rule> rules(const char *name) {
    std::vector<Rule> rules;
    const char *text = getenv(name);
    std::string all = text ? text : "";
    for (size_t at = 0; at < all.size();) {
        size_t end = all.find(',', at);
        std::string one = all.substr(at, end - at);
        size_t colon = one.find(':');
        Rule rule{one.substr(0, colon), 1, 0};
        if (colon != std::string::npos) sscanf(one.c_str() + colon, ":%d:%d", &rule.nth, &rule.code);
        rules.push_back(rule);
        at = end == std::string::npos ? all.size() : end + 1;
    }
    return rules;
}

World &world() {
    static World *world = [] {
        World *w = new World;
        w->devices = (int)number("INFEED_MOCK_DEVICES", 1);
        w->memory_limit = (size_t)number("INFEED_MOCK_MEMORY", 1ll << 30);
        w->driver_version = (int)number("INFEED_MOCK_DRIVER", 13000);
        w->pools = number("INFEED_MOCK_POOLS", 1);
        w->seed = (uint64_t)number("INFEED_MOCK_SEED", 0);
        w->random.seed(w->seed);
        for (int i = 0; i < w->devices; ++i) {
            Context *context = new Context;
            context->device = i;
            context->standard = new Stream;
            context->standard->context = context;
            context->standard->standard = true;
            w->contexts.push_back(context);
            w->streams.push_back(context->standard);
        }
        control().failures = rules("INFEED_MOCK_FAIL");
        control().ignored = rules("INFEED_MOCK_IGNORE");
        control().lose_after = (int)number("INFEED_MOCK_LOSE", -1);
        if (number("INFEED_MOCK_STRICT", 0)) mock_explain_faults();
        return w;
    }();
    return *world;
}

unsigned draw(unsigned n) { return unsigned(world().random() % n); }

void violate(const std::string &sentence) {
    // A loop that errs need not fill the memory.
    if (control().violations.size() < 200) control().violations.push_back(sentence);
}

void count(const char *kind, int change) {
    auto &pair = control().objects[kind];
    (change > 0 ? pair.created : pair.destroyed) += change > 0 ? change : -change;
}

void add(const char *total, long long amount) { control().totals[total] += amount; }

std::string name_of(const Context *context) { return "cuda:" + std::to_string(context->device); }

bool same_device(const char *what, const Context *one, const Context *other) {
    if (one == other) return true;
    violate(std::string(what) + " mixes " + name_of(one) + " and " + name_of(other));
    return false;
}

void highest(const std::string &total, long long value) {
    long long &most = control().totals[total];
    if (value > most) most = value;
}

// Whether a rule is for this call; its code through `code`.
static bool applies(std::vector<Rule> &rules, const char *function, int *code) {
    for (size_t i = 0; i < rules.size(); ++i) {
        Rule &rule = rules[i];
        if (rule.function != function || rule.nth-- > 1) continue;
        *code = rule.code;
        // Spent, unless it is for each call.
        if (rule.nth == 0) rules.erase(rules.begin() + (long)i);
        else rule.nth = 0;
        return true;
    }
    return false;
}

bool ignores_wait(const char *function) {
    int code = 0;
    if (!applies(control().ignored, function, &code)) return false;
    add("ignored_waits", 1);
    return true;
}

// Set when the process ends: the library has taken itself down.
static std::atomic<bool> ended{false};

static void not_after_the_end(const char *function) {
    if (!ended) return;
    fprintf(stderr, "mock driver: %s was called when the process had ended\n", function);
    fflush(nullptr);
    _exit(97);
}

Call::Call(const char *function, Needs needs) : function(function), lock(world().mutex) {
    not_after_the_end(function);
    control().calls[function]++;
    if (needs != Nothing && !world().initialised) {
        refused = NOT_INITIALIZED;
        return;
    }
    int code = 0;
    if (applies(control().failures, function, &code)) {
        refused = code;
        return;
    }
    if (needs != ThreadContext && needs != Release) return;
    if (control().lose_after >= 0 && control().lose_after-- == 0)
        for (Context *device : world().contexts) lose(lock, device, LAUNCH_FAILED);
    stir(lock);
    if (current_device < 0) {
        violate(std::string(function) + " was called without a current context");
        refused = INVALID_CONTEXT;
        return;
    }
    context = world().contexts[(size_t)current_device];
    if (!context->retained || context->generation != current_generation) {
        violate(std::string(function) + " was called in a context that was destroyed");
        refused = CONTEXT_IS_DESTROYED;
        return;
    }
    if (context->lose_after >= 0 && context->lose_after-- == 0) lose(lock, context, LAUNCH_FAILED);
    if (needs != Release) refused = context->lost;
    if (!refused && spoils_a_capture(function)) refused = CAPTURE_UNSUPPORTED;
}

static std::string quoted(const std::string &text) {
    std::string out = "\"";
    for (char c : text) {
        if (c == '"' || c == '\\') out += '\\';
        out += c;
    }
    return out + '"';
}

static size_t give(const std::string &all, char *text, size_t capacity) {
    if (text && capacity) {
        size_t len = all.size() < capacity - 1 ? all.size() : capacity - 1;
        memcpy(text, all.data(), len);
        text[len] = 0;
    }
    return all.size() + 1;
}

// Runs at the end of any process that loaded the library.
__attribute__((destructor)) static void at_exit() {
    if (!number("INFEED_MOCK_STRICT", 0)) return;
    ended = true;
    // As long as a library takes itself down, others run on.
    if (long long slow = number("INFEED_MOCK_SLOW_END", 0)) usleep(useconds_t(3000 * slow));
    // The device does not stop for it: what is queued still reads its memory. On a thread of its own, because
    // kernels use thread-local memory, and this thread's is gone.
    std::thread([] {
        Lock lock(world().mutex);
        finish_all(lock, nullptr);
    }).join();
    if (control().violations.empty()) return;
    for (const auto &sentence : control().violations) fprintf(stderr, "mock driver: %s\n", sentence.c_str());
    fflush(nullptr);
    _exit(97);
}

} // namespace mock

using namespace mock;

extern "C" {

void mock_fail(const char *function, int nth, int code) {
    Lock lock(world().mutex);
    control().failures.push_back({function, nth, code});
}

void mock_ignore_wait(const char *function, int nth) {
    Lock lock(world().mutex);
    control().ignored.push_back({function, nth, 0});
}

void mock_lose_device(int after_calls) {
    Lock lock(world().mutex);
    control().lose_after = after_calls;
}

void mock_lose_device_of(int device, int after_calls) {
    Lock lock(world().mutex);
    world().contexts.at((size_t)device)->lose_after = after_calls;
}

void mock_memory_limit(size_t bytes) {
    Lock lock(world().mutex);
    world().memory_limit = bytes;
}

void mock_settle(void) {
    Lock lock(world().mutex);
    finish_all(lock, nullptr);
}

size_t mock_counts(char *text, size_t capacity) {
    Lock lock(world().mutex);
    std::string out = "{\"calls\":{";
    const char *comma = "";
    for (const auto &entry : control().calls) {
        out += comma + quoted(entry.first) + ":" + std::to_string(entry.second);
        comma = ",";
    }
    out += "},\"objects\":{";
    comma = "";
    for (const auto &entry : control().objects) {
        out += comma + quoted(entry.first) + ":[" + std::to_string(entry.second.created) + "," +
               std::to_string(entry.second.destroyed) + "]";
        comma = ",";
    }
    size_t pending = 0;
    for (const Stream *stream : world().streams) pending += stream->pending.size();
    out += "},\"totals\":{\"pending\":" + std::to_string(pending);
    for (const auto &entry : control().totals) out += "," + quoted(entry.first) + ":" + std::to_string(entry.second);
    return give(out + "}}", text, capacity);
}

size_t mock_violations(char *text, size_t capacity) {
    Lock lock(world().mutex);
    std::string all;
    for (const auto &sentence : control().violations) all += sentence + "\n";
    return give(all, text, capacity);
}

int mock_call(const char *function) {
    not_after_the_end(function);
    Lock lock(world().mutex);
    control().calls[function]++;
    int code = 0;
    if (applies(control().failures, function, &code)) return code;
    bool lost = current_device >= 0 && world().contexts[(size_t)current_device]->lost;
    return lost || spoils_a_capture(function) ? -1 : 0;
}

void mock_count(const char *kind, int change) {
    not_after_the_end("nvJPEG");
    Lock lock(world().mutex);
    count(kind, change);
}

void mock_add(const char *total, long long amount) {
    Lock lock(world().mutex);
    add(total, amount);
}

void mock_violation(const char *sentence) {
    Lock lock(world().mutex);
    violate(sentence);
}

} // extern "C"
