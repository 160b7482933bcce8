// When work runs: as late as CUDA allows, and only what somebody waits for.
#include "world.h"

#include <algorithm>
#include <set>
#include <thread>

namespace mock {

static OpRef oldest_host_op() {
    for (Stream *stream : world().streams)
        for (const OpRef &op : stream->pending)
            if (op->host) return op;
    return nullptr;
}

static thread_local bool on_host_thread = false;

// CUDA runs host functions without being asked, on a thread of its own. This one is a little late.
static void host_functions() {
    on_host_thread = true;
    // By this name the tests know it.
    pthread_setname_np(pthread_self(), "mock-host");
    Lock lock(world().mutex);
    for (;;) {
        OpRef op = oldest_host_op();
        if (!op) {
            world().changed.wait(lock);
            continue;
        }
        lock.unlock();
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        lock.lock();
        finish(lock, op);
    }
}

// Behind whatever `other` was given so far.
static void behind(Stream *stream, const Stream *other) {
    if (other == stream || other->pending.empty()) return;
    OpRef wait = mark(stream, "the order of default streams");
    wait->after = other->pending.back();
    stream->pending.push_back(wait);
}

void enqueue(Lock &lock, Stream *stream, OpRef op) {
    op->stream = stream;
    // Captured, not done.
    if (stream->capture >= 0) return;
    const auto &threads = thread_streams();
    Stream *legacy = stream->context->standard;
    if (stream == legacy) {
        for (const Stream *other : threads)
            if (other->context == stream->context) behind(stream, other);
    } else if (std::find(threads.begin(), threads.end(), stream) != threads.end()) behind(stream, legacy);
    stream->pending.push_back(op);
    if (op->host) {
        if (!world().host_thread) {
            world().host_thread = true;
            std::thread(host_functions).detach();
        }
        world().changed.notify_all();
    }
    (void)lock;
}

OpRef mark(Stream *stream, const char *what) {
    OpRef op = std::make_shared<Op>();
    op->what = what;
    op->stream = stream;
    return op;
}

static bool ready(const OpRef &op) {
    bool may = !op->running && !op->stream->context->losing;
    return may && (!op->after || op->after->done) && (!op->host || on_host_thread);
}

// The heads of streams that could run now and that `target` depends on.
static void candidates(const OpRef &target, std::set<Op *> &seen, std::vector<OpRef> &found) {
    if (target->done || !seen.insert(target.get()).second) return;
    const auto &pending = target->stream->pending;
    for (const OpRef &op : pending) {
        if (op->after && !op->after->done) candidates(op->after, seen, found);
        if (op == target) break;
        seen.insert(op.get());
    }
    const OpRef &head = pending.front();
    if (ready(head) && std::find(found.begin(), found.end(), head) == found.end()) found.push_back(head);
}

// Of the work that this thread runs.
static thread_local Context *runs_for = nullptr;

static void execute(Lock &lock, const OpRef &op) {
    op->running = true;
    // A host function may wait for the program, so nobody may wait for it.
    Context *device = op->host ? nullptr : op->stream->context, *before = runs_for;
    if (device) ++device->running;
    runs_for = device;
    if (op->run) {
        unsigned delay = world().seed && draw(8) == 0 ? draw(300) : 0;
        lock.unlock();
        if (delay) std::this_thread::sleep_for(std::chrono::microseconds(delay));
        op->run();
        // What it captured may be large, or may take the lock when it goes.
        op->run = nullptr;
        lock.lock();
    }
    op->running = false;
    if (device) --device->running;
    runs_for = before;
    op->done = true;
    op->finished = Clock::now();
    auto &pending = op->stream->pending;
    // A device that was lost meanwhile has thrown the queue away.
    if (!pending.empty() && pending.front() == op) pending.pop_front();
    world().changed.notify_all();
}

// What to run next on the way to `target`; null while another thread runs all that could.
static OpRef pick(const OpRef &target) {
    if (!world().seed) {
        // The same order each time, and cheap for long queues.
        OpRef head = target->stream->pending.front();
        while (head->after && !head->after->done) head = head->after->stream->pending.front();
        return ready(head) ? head : nullptr;
    }
    std::set<Op *> seen;
    std::vector<OpRef> found;
    candidates(target, seen, found);
    return found.empty() ? nullptr : found[draw(unsigned(found.size()))];
}

void finish(Lock &lock, const OpRef &target) {
    while (target && !target->done && !target->stream->context->lost) {
        OpRef op = pick(target);
        if (op) execute(lock, op);
        else world().changed.wait(lock); // another thread runs what is needed
    }
}

bool advance(Lock &lock, const OpRef &target) {
    while (target && !target->done && !target->stream->context->lost) {
        OpRef op = pick(target);
        if (!op) return false;
        execute(lock, op);
    }
    return !target || target->done;
}

void finish_all(Lock &lock, const Context *device) {
    // By index: a callback may add streams meanwhile.
    for (size_t i = 0; i < world().streams.size(); ++i) {
        Stream *stream = world().streams[i];
        if ((!device || stream->context == device) && !stream->pending.empty()) finish(lock, OpRef(stream->pending.back()));
    }
}

const char *named_by(uint64_t start) {
    for (Stream *stream : world().streams)
        for (const OpRef &op : stream->pending)
            if (std::find(op->names.begin(), op->names.end(), start) != op->names.end()) return op->what;
    return nullptr;
}

void stir(Lock &lock) {
    if (!world().seed || draw(4)) return;
    for (unsigned steps = draw(3) + 1; steps; --steps) {
        std::vector<OpRef> heads;
        for (Stream *stream : world().streams)
            if (!stream->pending.empty() && ready(stream->pending.front())) heads.push_back(stream->pending.front());
        if (heads.empty()) return;
        execute(lock, OpRef(heads[draw(unsigned(heads.size()))]));
    }
}

void lose(Lock &lock, Context *device, int code) {
    if (device->lost || device->losing) return;
    // A lost device touches no memory any more, and the program frees it at once.
    device->losing = true;
    while (device->running > (runs_for == device)) world().changed.wait(lock);
    device->lost = code;
    device->losing = false;
    // Kept, not destroyed: what they captured may come back to us.
    static std::vector<std::deque<OpRef>> *dropped = new std::vector<std::deque<OpRef>>;
    for (Stream *stream : world().streams) {
        // What another device was to wait for does not come.
        for (const OpRef &op : stream->pending)
            if (op->after && op->after->stream->context == device) op->after = nullptr;
        if (stream->context != device) continue;
        dropped->push_back(std::move(stream->pending));
        stream->pending.clear();
    }
    // The program has freed these; that the device never came to it is no leak.
    for (auto &entry : world().allocations)
        if (entry.second.leaving && entry.second.context == device) release(entry.second);
    world().changed.notify_all();
}

} // namespace mock
