/* thread.h - starting threads, and the stack space that the calling thread has left. */
#ifndef KRT_THREAD_H
#define KRT_THREAD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Start a thread that calls `run` and blocks the host's signals. Its stack is as large as the main
 * thread's, and at least a megabyte. False: the system cannot start one. */
bool krt_thread_start(void *(*run)(void *argument), void *argument);

/* Whether the calling thread's stack has room for a kernel with `nbytes` of arrays. */
bool krt_stack_has(size_t nbytes);

/* A helper thread that makes calls for a thread whose stack is too small. It lives as long as that
 * thread, which has at most one. */
typedef struct krt_helper krt_helper;

/* The helper of the calling thread, started if needed. NULL: the system cannot start a thread. */
krt_helper *krt_helper_of_thread(void);

/* Make a call on the helper thread and wait for its return. False, and no call: the process was
 * forked since, and the child cannot start a thread. */
bool krt_helper_call(krt_helper *helper, void (*call)(void *context), void *context);

#ifdef KRT_TEST_HOOKS
/* Simulate a system that does not tell the bounds of stacks, for threads that have not asked
 * yet. */
void krt_test_hide_stacks(bool hidden);
#endif

#endif
