/* pool.h - the threads of the process, as graph.c uses them.
 *
 * The pool serves one region at a time: a piece of work that its caller and any number of workers
 * do together. Workers join a region when they get round to it and leave when they find nothing
 * to do; nobody waits for a worker that is still asleep. Whoever finds the pool taken works
 * alone, so that two plans never fight over the cores. */
#ifndef KRT_POOL_H
#define KRT_POOL_H

#include "platform.h"

/* Does a worker's share of a region. Worker 0 is the caller and returns when the region is over.
 * The others return true when it is over, and false when there is nothing to do at present: then
 * they have called krt_worker_prepare. */
typedef bool (*krt_work)(void *context, int worker);

/* Run `work` on the calling thread and on up to `threads - 1` workers, and add to `*waited_ns` how
 * long workers took to leave. False, and nothing was done: the pool is taken, or there is no
 * worker to be had. Never inside another region. */
bool krt_pool_run(int threads, krt_work work, void *context, int64_t *waited_ns);

/* ---- Sleeping without missing the alarm --------------------------------------------------
 *
 * The sleeper: prepare; look for work once more; then sleep with the ticket, or cancel.
 * The waker: make the work visible with a sequentially consistent store; then notify.
 * Either the sleeper sees the work or the waker sees the sleeper. */

/* For the caller of a region, the only one who waits for it. */
typedef struct krt_event {
    KRT_ALIGNED _Atomic uint32_t count;
    _Atomic uint32_t sleepers;
} krt_event;

extern krt_event krt_caller_event;

uint32_t krt_event_prepare(krt_event *event);
void krt_event_cancel(krt_event *event);
void krt_event_sleep(krt_event *event, uint32_t ticket, int64_t timeout_ns);
void krt_event_notify(krt_event *event);

/* For workers. Each has a bed of its own, so that a call wakes none that the region has no use
 * for: of those admitted to the present region, up to `count`. */
void krt_worker_prepare(int worker);
void krt_worker_cancel(int worker);
void krt_workers_notify(int count);

/* ---- Spinning for a bounded time --------------------------------------------------------- */

typedef struct krt_spin {
    int64_t since_ns; /* 0: not begun */
    unsigned rounds;
} krt_spin;

/* One round of waiting. False once `limit_ns` have passed since the first round. */
bool krt_spin_once(krt_spin *spin, int64_t limit_ns);

/* How long ago the first round was; 0 where the clock was not worth a look yet. */
int64_t krt_spun_ns(const krt_spin *spin);

/* ---- Fork -------------------------------------------------------------------------------- */

/* Registers what is to happen in a forked child. Called before the first plan is made. */
void krt_watch_fork(void);

/* In plan.c: afterwards locks of threads that are gone are free. */
void krt_locks_before_fork(void);
void krt_locks_after_fork(bool in_child);

#ifdef KRT_TEST_HOOKS
/* Overrides krt_pool_limit, to run more threads than there are CPUs. */
void krt_test_set_pool_limit(int threads);
/* How many workers are asleep. */
uint32_t krt_test_sleeping_workers(void);
#endif

#endif
