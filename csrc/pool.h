/* pool.h - the thread pool of the process, as graph.c uses it.
 *
 * The pool runs one parallel region at a time: work that the caller and any number of workers
 * share. Workers join a region as soon as they can and leave when they find no work; nobody waits
 * for a worker that is still asleep. A caller that finds the pool taken works alone, so that two
 * plans never compete for the cores. (A parallel region is not a region of krt.h.) */
#ifndef KRT_POOL_H
#define KRT_POOL_H

#include "platform.h"

/* Number of bits of a thread's index. */
enum { KRT_WORKER_BITS = 10 };

/* Do a worker's share of a region. Worker 0 is the caller and returns when the region is over. The
 * others return true when the region is over, and false when there is no work at present; before
 * they return false they have called krt_worker_prepare. */
typedef bool (*krt_work)(void *context, int worker);

/* Run `work` on the calling thread and on up to `threads - 1` workers, and add the time that
 * workers took to leave to `*waited_ns`. False, and nothing was done: the pool is taken, or no
 * worker is available. Must not be called inside another region. */
bool krt_pool_run(int threads, krt_work work, void *context, int64_t *waited_ns);

/* ---- Sleeping without lost wakeups -------------------------------------------------------
 *
 * The sleeper: prepare; check for work once more; then sleep with the ticket, or cancel.
 * The waker: make the work visible with a sequentially consistent store; then notify.
 * Either the sleeper sees the work or the waker sees the sleeper. */

/* For the caller of a region, the only thread that waits for it. */
typedef struct krt_event {
    KRT_ALIGNED _Atomic uint32_t count;
    _Atomic uint32_t sleepers;
} krt_event;

extern krt_event krt_caller_event;

uint32_t krt_event_prepare(krt_event *event);
void krt_event_cancel(krt_event *event);
void krt_event_sleep(krt_event *event, uint32_t ticket, int64_t timeout_ns);
void krt_event_notify(krt_event *event);

/* For workers. Each sleeps on its own word, so that krt_workers_notify wakes only workers that the
 * current region admits, up to `count` of them. */
void krt_worker_prepare(int worker);
void krt_worker_cancel(int worker);
void krt_workers_notify(int count);

/* ---- Spinning for a bounded time --------------------------------------------------------- */

typedef struct krt_spin {
    int64_t since_ns; /* 0: not started */
    unsigned rounds;
} krt_spin;

/* One round of waiting. False once `limit_ns` have passed since the first round. */
bool krt_spin_once(krt_spin *spin, int64_t limit_ns);

/* Time since the first round; 0 if the clock was not read yet. */
int64_t krt_spun_ns(const krt_spin *spin);

/* ---- Fork -------------------------------------------------------------------------------- */

/* Register the fork handlers. Called before the first plan is made. */
void krt_watch_fork(void);

/* In plan.c: after the fork, locks of threads that do not exist in the child are free. */
void krt_locks_before_fork(void);
void krt_locks_after_fork(bool in_child);

#ifdef KRT_TEST_HOOKS
/* Override krt_pool_limit, to run more threads than there are CPUs. */
void krt_test_set_pool_limit(int threads);
/* The number of sleeping workers. */
uint32_t krt_test_sleeping_workers(void);
#endif

#endif
