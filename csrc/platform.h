/* platform.h - platform-specific code: waiting, cores of threads, allocation. */
#ifndef KRT_PLATFORM_H
#define KRT_PLATFORM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KRT_CACHE_LINE 64
#define KRT_ALIGNED _Alignas(KRT_CACHE_LINE)

/* Tell the processor that this thread is spinning. */
static inline void krt_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory"); /* yield is a no-op on most cores; isb waits a little */
#endif
}

/* Sleep while `*word == expected`, at most `timeout_ns` (negative: no limit). May wake spuriously;
 * the caller checks again. */
void krt_wait(_Atomic uint32_t *word, uint32_t expected, int64_t timeout_ns);

/* Wake up to `count` threads that sleep on `word`. */
void krt_wake(_Atomic uint32_t *word, int count);

/* ---- Which core a thread runs on ---------------------------------------------------------
 *
 * A system may put a thread on the core of the thread that starts or wakes it. There it waits for
 * milliseconds while another core is idle. Linux does so after all threads have slept for long, and
 * leaves the thread there as long as both are busy. */

enum { KRT_CPU_WORDS = 16 };

/* The allowed cores of a thread while it is kept off one of them. */
typedef struct krt_cores {
    bool narrowed;
    unsigned long allowed[KRT_CPU_WORDS];
} krt_cores;

/* The core of this thread, and its thread id; -1 and 0 if the system cannot pin threads. */
int krt_core(void);
int krt_thread_number(void);

/* Let `thread` (0: this one) run on all its cores except `core`, if it has others, until it calls
 * krt_allow_again with `cores`. Does nothing if the system does not allow it. */
void krt_keep_off(int core, int thread, krt_cores *cores);
void krt_allow_again(krt_cores *cores);

/* ---- Memory for machine code ---------------------------------------------------------------
 *
 * Memory is either writable or executable, never both. The caller unmaps it with the same size. */

/* Map `nbytes` (at least 1) of writable memory. NULL: no memory. */
void *krt_code_map(size_t nbytes);
/* Make the code that was written there executable. Returns 0, or an errno. */
int krt_code_finish(void *code, size_t nbytes);
void krt_code_unmap(void *code, size_t nbytes);

/* Allocate zeroed, cache-line aligned memory for the core's own tables. All allocations of the core
 * use it, so that a test build can make each of them fail. */
void *krt_alloc(size_t nbytes);
void krt_free(void *memory);

/* *total += count * size. False on overflow; *total is then invalid. */
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
