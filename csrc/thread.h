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

/* A thread that makes calls for one whose stack has no room. It is used by who began it, and stays
 * where it is until its end. */
typedef struct krt_aside {
    pthread_t thread;
    void (*call)(void *context);
    void *context;
    _Atomic uint32_t word;
    uint32_t forks;
} krt_aside;

/* False: the system gives no thread, and there is nothing to end. */
bool krt_aside_begin(krt_aside *aside);

/* Make the call there, and wait for its return. False, and not made: the process was forked since,
 * and the child gets no thread. */
bool krt_aside_call(krt_aside *aside, void (*call)(void *context), void *context);

void krt_aside_end(krt_aside *aside);

#endif
