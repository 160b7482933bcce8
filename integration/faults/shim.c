/* Errors of the system on command, for `run.py`: preloaded into infeed, it stands between it and libc.
 *
 *   FAULT_KIND   eio | eacces | emfile | short | eintr | enospc
 *   FAULT_NAME   only files whose path contains this
 *   FAULT_EVERY  of the calls that match, each n-th (1 without it); of emfile, all from the n-th on
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static atomic_long calls;

static int is(const char *kind) {
    const char *wanted = getenv("FAULT_KIND");
    return wanted && !strcmp(wanted, kind);
}

static int named(const char *path) {
    const char *name = getenv("FAULT_NAME");
    return path && name && strstr(path, name);
}

static int due(void) {
    const char *every = getenv("FAULT_EVERY");
    long n = every ? atol(every) : 1, call = atomic_fetch_add(&calls, 1) + 1;
    return is("emfile") ? call >= n : call % n == 0;
}

/* Of what a descriptor is open: the kernel knows, so nothing has to be kept. */
static int meets(int fd) {
    char link[64], path[4096];
    if (!getenv("FAULT_KIND")) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t got = readlink(link, path, sizeof path - 1);
    if (got < 0) return 0;
    path[got] = 0;
    return named(path) && due();
}

#define REAL(name) \
    static __typeof__(name) *real; \
    if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

static int refused(const char *path) {
    if ((is("eacces") || is("emfile")) && named(path) && due()) {
        errno = is("eacces") ? EACCES : EMFILE;
        return 1;
    }
    return 0;
}

#define OPENS(name) \
    int name(const char *path, int flags, ...) { \
        va_list rest; va_start(rest, flags); mode_t mode = va_arg(rest, mode_t); va_end(rest); \
        REAL(name); \
        return refused(path) ? -1 : real(path, flags, mode); \
    }
OPENS(open)
OPENS(open64)

#define OPENS_AT(name) \
    int name(int at, const char *path, int flags, ...) { \
        va_list rest; va_start(rest, flags); mode_t mode = va_arg(rest, mode_t); va_end(rest); \
        REAL(name); \
        return refused(path) ? -1 : real(at, path, flags, mode); \
    }
OPENS_AT(openat)
OPENS_AT(openat64)

/* -1: with errno; 0: as it is; 1: shorter. */
static int reading(int fd, size_t count) {
    if (!(is("eio") || is("eintr") || is("short")) || !meets(fd)) return 0;
    if (is("short")) return count > 1;
    errno = is("eio") ? EIO : EINTR;
    return -1;
}

ssize_t read(int fd, void *to, size_t count) {
    REAL(read);
    int fault = reading(fd, count);
    return fault < 0 ? -1 : real(fd, to, fault ? count / 2 : count);
}

ssize_t pread64(int fd, void *to, size_t count, off64_t at) {
    REAL(pread64);
    int fault = reading(fd, count);
    return fault < 0 ? -1 : real(fd, to, fault ? count / 2 : count, at);
}

ssize_t write(int fd, const void *from, size_t count) {
    REAL(write);
    if (is("enospc") && meets(fd)) {
        errno = ENOSPC;
        return -1;
    }
    return real(fd, from, count);
}
