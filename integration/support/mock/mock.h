// How tests steer the mock driver, and how the mock nvJPEG speaks to it.
//
// Everything here is exported by the mock libcuda. `nth` counts calls from now on: 1 is the next one, 0 is each one.
#pragma once
#include <cstddef>

extern "C" {
// --- for tests ---

// The nth call of `function` does nothing and returns `code`. Works for the functions of nvJPEG too.
void mock_fail(const char *function, int nth, int code);
// The nth call of a function that waits returns success without having waited; a query says "ready" too early.
void mock_ignore_wait(const char *function, int nth);
// After so many more calls all work is lost and each call returns 719, as after a sticky error; on all devices.
void mock_lose_device(int after_calls);
// The same for one device, after so many more calls in its context; the others go on.
void mock_lose_device_of(int device, int after_calls);
// Memory that can be had on each device in all; allocations above it return 2.
void mock_memory_limit(size_t bytes);
// All counts as a JSON object, zero-terminated; gives the length that is needed.
size_t mock_counts(char *text, size_t capacity);
// What the program did wrong, one sentence a line, zero-terminated; gives the length that is needed.
size_t mock_violations(char *text, size_t capacity);
// Runs all that is queued, as the end of time does: frees are only counted when they have run.
void mock_settle(void);
// Prints whose memory an access faulted on before the process dies of it.
void mock_explain_faults(void);

// --- of the kernels compiled for the CPU ---

// Runs a grid; 500 if there is no such kernel.
int infeed_mock_launch(const char *name, const unsigned grid[3], const unsigned block[3], unsigned shared_bytes,
                       void **args);
// Bytes of each argument; gives their number, or -1.
int infeed_mock_arg_sizes(const char *name, unsigned *sizes, int max);

// --- for the mock nvJPEG ---

// Counts a call and gives the code of an injected failure, -1 when the device is lost, or 0.
int mock_call(const char *function);
// Counts a creation (+1) or a destruction (-1).
void mock_count(const char *kind, int change);
void mock_violation(const char *sentence);
// Adds to a total.
void mock_add(const char *total, long long amount);
// Queues work on a stream; it runs when the stream gets there, or never if the device is lost. 0, or a CUresult.
int mock_enqueue(void *stream, const char *what, void (*run)(void *), void *arg);
// Whether the thread's current device is lost.
int mock_lost(void);
// The thread's current device; -1 without one.
int mock_current_device(void);
// Whether the address lies in an allocation that was not freed.
int mock_is_live(const void *pointer);
// Whether the bytes lie in one live allocation that is usable now; a violation in the name of `what` if not.
int mock_is_device_memory(const char *what, const void *pointer, size_t len);
}
