/* Bytes that torch's CPU allocator holds, and the most that it held, without asking torch: preloaded,
 * this stands before posix_memalign, aligned_alloc and memalign, and before free. Blocks count that
 * libc10 asks for, tensors and kernels' scratch, with the sizes asked for; what others ask for (the
 * code that oneDNN generates once, C++ objects) is no part of a step. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS (1u << 22)
#define GONE ((uintptr_t)1)
#define CALLERS 64

extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);
extern void *__libc_realloc(void *, size_t);

static struct { uintptr_t address; size_t size; } held[SLOTS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static size_t live, peak;
static struct { void *address; int counts; } callers[CALLERS];

static size_t slot_of(uintptr_t address)
{
    return (size_t)((address >> 4) * 0x9E3779B97F4A7C15ull >> 42) & (SLOTS - 1);
}

/* Whether the code at this address is of torch's allocator; asked with the lock held. */
static int counts(void *caller)
{
    size_t at = 0;
    for (; at < CALLERS && callers[at].address; at++)
        if (callers[at].address == caller)
            return callers[at].counts;
    Dl_info found;
    int known = dladdr(caller, &found) && found.dli_fname && strstr(found.dli_fname, "libc10.so");
    if (at < CALLERS) {
        callers[at].address = caller;
        callers[at].counts = known;
    }
    return known;
}

static void note(void *block, void *caller, size_t size)
{
    uintptr_t address = (uintptr_t)block;
    if (!block)
        return;
    pthread_mutex_lock(&lock);
    if (!counts(caller)) {
        pthread_mutex_unlock(&lock);
        return;
    }
    size_t at = slot_of(address);
    while (held[at].address > GONE)
        at = (at + 1) & (SLOTS - 1);
    held[at].address = address;
    held[at].size = size;
    live += size;
    if (live > peak)
        peak = live;
    pthread_mutex_unlock(&lock);
}

static void forget(void *block)
{
    uintptr_t address = (uintptr_t)block;
    if (!block)
        return;
    pthread_mutex_lock(&lock);
    for (size_t at = slot_of(address); held[at].address; at = (at + 1) & (SLOTS - 1))
        if (held[at].address == address) {
            live -= held[at].size;
            size_t next = (at + 1) & (SLOTS - 1);
            held[at].address = held[next].address ? GONE : 0;
            break;
        }
    pthread_mutex_unlock(&lock);
}

int posix_memalign(void **result, size_t alignment, size_t size)
{
    void *block = __libc_memalign(alignment, size);
    if (!block)
        return ENOMEM;
    note(block, __builtin_return_address(0), size);
    *result = block;
    return 0;
}

void *aligned_alloc(size_t alignment, size_t size)
{
    void *block = __libc_memalign(alignment, size);
    note(block, __builtin_return_address(0), size);
    return block;
}

void *memalign(size_t alignment, size_t size)
{
    void *block = __libc_memalign(alignment, size);
    note(block, __builtin_return_address(0), size);
    return block;
}

void free(void *block)
{
    forget(block);
    __libc_free(block);
}

void *realloc(void *block, size_t size)
{
    forget(block);
    return __libc_realloc(block, size);
}

size_t allocation_live(void)
{
    return live;
}

size_t allocation_peak(void)
{
    return peak;
}

void allocation_peak_reset(void)
{
    pthread_mutex_lock(&lock);
    peak = live;
    pthread_mutex_unlock(&lock);
}
