/* platform.h - what differs between machines: time, waiting, allocation, thread-local storage. */
#ifndef KRT_PLATFORM_H
#define KRT_PLATFORM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KRT_CACHE_LINE 64
#define KRT_ALIGNED _Alignas(KRT_CACHE_LINE)

/* Tell the core that this thread is spinning. */
static inline void krt_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory"); /* yield is a no-op on most cores; isb waits a little */
#endif
}

/* Sleep while `*word == expected`, at most `timeout_ns` (negative: no limit). May return early
 * for no reason; the caller looks again. */
void krt_wait(_Atomic uint32_t *word, uint32_t expected, int64_t timeout_ns);

/* Wake up to `count` threads that sleep on `word`. */
void krt_wake(_Atomic uint32_t *word, int count);

/* ---- Which core a thread runs on ---------------------------------------------------------
 *
 * A system may put a thread on the core of whoever starts or wakes it, to wait there for a turn
 * that comes milliseconds later while another core is idle. Linux does so where all have slept for
 * long, and leaves it there as long as both are busy. */

enum { KRT_CPU_WORDS = 16 };

/* The cores of a thread while it is kept off one of them. */
typedef struct krt_cores {
    bool narrowed;
    unsigned long allowed[KRT_CPU_WORDS];
} krt_cores;

/* The core of this thread, and what others know it by; -1 and 0 where threads cannot be told where
 * to run. */
int krt_core(void);
int krt_thread_number(void);

/* Have `thread` (0: this one) run on any of its cores but `core`, if it has others; until it gives
 * them to krt_allow_again itself. Nothing happens where the system does not let it. */
void krt_keep_off(int core, int thread, krt_cores *cores);
void krt_allow_again(krt_cores *cores);

/* Cache-line aligned memory for the core's own tables. Every allocation of the core goes through
 * here, so that a test build can make each of them fail in turn. */
void *krt_alloc(size_t nbytes);
void krt_free(void *memory);

/* *total += count * size. False on overflow, and then *total is not to be used. */
static inline bool krt_add_bytes(size_t *total, size_t count, size_t size)
{
    size_t bytes;
    return !__builtin_mul_overflow(count, size, &bytes) &&
           !__builtin_add_overflow(*total, bytes, total);
}

#ifdef KRT_TEST_HOOKS
/* The n-th allocation (thread start) from now fails, once; 0 means none does. */
void krt_test_fail_alloc(long nth);
void krt_test_fail_thread(long nth);
bool krt_test_thread_fails(void);
/* Live allocations of krt_alloc. */
long krt_test_live_allocs(void);
#endif

#endif
