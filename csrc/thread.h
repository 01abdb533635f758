/* thread.h - threads as the core starts them, and what the calling one has left of its stack. */
#ifndef KRT_THREAD_H
#define KRT_THREAD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Start a thread that calls `run` and that no signal of the host is delivered to. Its stack is as
 * large as the main thread's, and at least a megabyte. False: the system gives none. */
bool krt_thread_start(void *(*run)(void *argument), void *argument);

/* Whether the calling thread's stack has room for a kernel with `nbytes` of arrays. */
bool krt_stack_has(size_t nbytes);

/* A thread that makes calls for one whose stack has no room. It lasts as long as the one that it
 * calls for, which has one at most. */
typedef struct krt_aside krt_aside;

/* That of the calling thread, started where there is none. NULL: the system gives no thread. */
krt_aside *krt_aside_of_thread(void);

/* Make the call there, and wait for its return. False, and not made: the process was forked since,
 * and the child gets no thread. */
bool krt_aside_call(krt_aside *aside, void (*call)(void *context), void *context);

#ifdef KRT_TEST_HOOKS
/* Whether the system tells nobody where stacks are, as of threads that have not asked yet. */
void krt_test_hide_stacks(bool hidden);
#endif

#endif
