// Device and pinned memory: pages of one reserved stretch of addresses, each handed out once.
//
// Freed pages are taken away and their addresses never come back, so a use after the end faults instead of finding
// somebody else's bytes. Fresh device memory is 0xCD. An allocation ends at a page that is never usable.
#include "world.h"

#include <csignal>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

#include "mock.h"

namespace mock {

static const size_t PAGE = 4096;
// Of large memory the system gives such pages, where it has them: hundreds of faults fewer.
static const size_t LARGE = 2 << 20;
// CUDA's own alignment is 256 at least; bytes up to it behind an allocation are checked at the free.
static const size_t ALIGN = 256;
static const unsigned char FRESH = 0xCD;

static size_t up(size_t n, size_t to) { return (n + to - 1) / to * to; }

// Takes pages that nobody had before, not usable yet; 0 when the addresses run out.
static uint64_t take_pages(size_t len) {
    static uint64_t next = 0, end = 0;
    if (!next) {
        // Only addresses: nothing is committed. Smaller where a limit on addresses is set.
        for (size_t size = size_t(1) << 40; size >= size_t(1) << 32; size /= 4) {
            void *base = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            if (base == MAP_FAILED) continue;
            madvise(base, size, MADV_HUGEPAGE);
            next = uint64_t(base);
            end = next + size;
            break;
        }
    }
    uint64_t pages = up(next, len < LARGE ? PAGE : LARGE);
    if (pages + len + PAGE > end) return 0;
    next = pages + len + PAGE;
    return pages;
}

void protect(const Allocation &a, bool usable) {
    mprotect(reinterpret_cast<void *>(a.pages), a.pages_len, usable ? PROT_READ | PROT_WRITE : PROT_NONE);
}

void poison(const Allocation &a) { memset(reinterpret_cast<void *>(a.pages), FRESH, a.pages_len); }

static const char *live_total(Allocation::Kind kind) {
    return kind == Allocation::Device ? "device_bytes" : "pinned_bytes";
}

int allocate(Allocation::Kind kind, size_t size, Context *context, uint64_t *start, Allocation **made) {
    if (!start || !size) return INVALID_VALUE;
    size_t &live = context->live[kind];
    if (kind == Allocation::Device && (size > world().memory_limit || live > world().memory_limit - size))
        return OUT_OF_MEMORY;
    size_t len = up(size, PAGE);
    uint64_t pages = take_pages(len);
    if (!pages) return OUT_OF_MEMORY;
    // At the end of its pages, so that running over it faults. Pinned memory begins at a page, as CUDA's does.
    uint64_t at = kind == Allocation::Device ? pages + len - up(size, ALIGN) : pages;
    Allocation a{kind, at, size, pages, len, context, nullptr, true, false, nullptr};
    protect(a, true);
    poison(a);
    Allocation &kept = world().allocations[at] = a;
    if (made) *made = &kept;
    *start = at;
    count(kind == Allocation::Device ? "device memory" : "pinned memory", 1);
    live += size;
    add(live_total(kind), (long long)size);
    long long all = 0;
    for (const Context *each : world().contexts) all += (long long)each->live[kind];
    const char *most = kind == Allocation::Device ? "device_bytes_most" : "pinned_bytes_most";
    highest(most, all);
    // "device_bytes_most cuda:1"
    highest(most + (" " + name_of(context)), (long long)live);
    return OK;
}

static void check_edges(const Allocation &a) {
    if (a.born && !a.born->done) return;
    auto fresh = [](uint64_t from, uint64_t to) {
        for (; from < to; ++from)
            if (*reinterpret_cast<unsigned char *>(from) != FRESH) return false;
        return true;
    };
    if (!fresh(a.pages, a.start)) violate("bytes before " + describe(a.start) + " were written");
    if (!fresh(a.start + a.size, a.pages + a.pages_len)) violate("bytes after " + describe(a.start) + " were written");
}

void release(Allocation &a) {
    check_edges(a);
    a.live = false;
    a.leaving = false;
    protect(a, false);
    // The bytes go back to the system, the addresses stay ours.
    madvise(reinterpret_cast<void *>(a.pages), a.pages_len, MADV_DONTNEED);
    if (a.pool) a.pool->used -= a.size;
    count(a.kind == Allocation::Device ? "device memory" : "pinned memory", -1);
    a.context->live[a.kind] -= a.size;
    add(live_total(a.kind), -(long long)a.size);
}

Allocation *find(uint64_t address) {
    auto &all = world().allocations;
    auto after = all.upper_bound(address);
    if (after == all.begin()) return nullptr;
    Allocation &a = std::prev(after)->second;
    return address < a.pages + a.pages_len ? &a : nullptr;
}

std::string describe(uint64_t address) {
    char text[160];
    if (const Allocation *a = find(address))
        snprintf(text, sizeof text, "%#llx (byte %lld of %s%s memory of %zu bytes)", (unsigned long long)address,
                 (long long)(address - a->start), a->live ? "" : "freed ",
                 a->kind == Allocation::Device ? "device" : "pinned", a->size);
    else
        snprintf(text, sizeof text, "%#llx (no memory of CUDA's)", (unsigned long long)address);
    return text;
}

Allocation *inside(const char *what, uint64_t address, size_t len, Allocation::Kind kind) {
    Allocation *a = find(address);
    std::string why;
    if (!a || a->kind != kind) why = "is not in the right kind of memory";
    else if (!a->live) why = "is freed";
    else if (address < a->start || address + len > a->start + a->size) why = "does not hold the range";
    else return a;
    violate(std::string(what) + ": " + std::to_string(len) + " bytes at " + describe(address) + ": " + why);
    return nullptr;
}

static struct sigaction earlier;

static void explain(int signal, siginfo_t *info, void *context) {
    // Best effort on the way down: the lock may be held by this very thread.
    std::string text = "mock driver: access to " + describe(uint64_t(info->si_addr)) + "\n";
    ssize_t written = write(2, text.data(), text.size());
    (void)written;
    (void)context;
    // The fault comes again at the return, then with what was there before us.
    sigaction(signal, &earlier, nullptr);
}

} // namespace mock

extern "C" void mock_explain_faults(void) {
    struct sigaction action = {};
    action.sa_sigaction = mock::explain;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, &mock::earlier);
}
