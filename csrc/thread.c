/* thread.c - see thread.h. */
#ifdef __linux__
#define _GNU_SOURCE
#endif
#include "thread.h"

#include "krt.h"
#include "platform.h"

#include <signal.h>
#include <sys/resource.h>

/* What runs serially runs on a worker as well, so a worker's stack is like the main thread's. */
#define USUAL_STACK_BYTES (8 << 20)
#define LEAST_STACK_BYTES (6 << 20)

/* What a kernel takes beside its arrays: spilled registers, and calls of memcpy and the like. */
#define FRAME_BYTES (32 << 10)

/* ---- Starting ---------------------------------------------------------------------------- */

#ifndef KRT_NO_THREADS
static size_t stack_bytes(void)
{
    struct rlimit stack;
    if (getrlimit(RLIMIT_STACK, &stack) || stack.rlim_cur == RLIM_INFINITY ||
        stack.rlim_cur > SIZE_MAX / 2)
        return USUAL_STACK_BYTES;
    size_t nbytes = (size_t)stack.rlim_cur & ~(size_t)0xffff;
    return nbytes > LEAST_STACK_BYTES ? nbytes : LEAST_STACK_BYTES;
}

/* Signals are for the threads that the program made; but a fault is for whoever commits it, and
 * blocking it would end the process without a word. */
static void block_signals(sigset_t *before)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
    sigset_t blocked;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; ++i)
        sigdelset(&blocked, faults[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, before);
}
#endif

/* Start a thread, detached unless `joined` is there to say which it is. */
static bool start(void *(*run)(void *argument), void *argument, pthread_t *joined)
{
#ifdef KRT_NO_THREADS
    (void)run;
    (void)argument;
    (void)joined;
    return false;
#else
    pthread_t detached;
    pthread_attr_t attributes;
    sigset_t before;
#ifdef KRT_TEST_HOOKS
    if (krt_test_thread_fails())
        return false;
#endif
    if (pthread_attr_init(&attributes))
        return false;
    if (!joined)
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, stack_bytes());
    block_signals(&before);
    int failed = pthread_create(joined ? joined : &detached, &attributes, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return !failed;
#endif
}

bool krt_thread_start(void *(*run)(void *argument), void *argument)
{
    return start(run, argument, NULL);
}

/* ---- Room on the stack ------------------------------------------------------------------- */

/* The stack of the calling thread, found once; 0: not yet. */
static _Thread_local uintptr_t lowest, highest;

#if defined(__linux__)

static void find_stack(void)
{
    pthread_attr_t attributes;
    void *start_of_stack;
    size_t nbytes, guard;
    if (pthread_getattr_np(pthread_self(), &attributes))
        return;
    if (!pthread_attr_getstack(&attributes, &start_of_stack, &nbytes) &&
        !pthread_attr_getguardsize(&attributes, &guard)) {
        lowest = (uintptr_t)start_of_stack + guard; /* some systems count the guard as stack */
        highest = (uintptr_t)start_of_stack + nbytes;
    }
    pthread_attr_destroy(&attributes);
}

#elif defined(__APPLE__)

static void find_stack(void)
{
    highest = (uintptr_t)pthread_get_stackaddr_np(pthread_self());
    lowest = highest - pthread_get_stacksize_np(pthread_self());
}

#else

static void find_stack(void) { highest = 0; } /* not known, so nothing fits */

#endif

bool krt_stack_has(size_t nbytes)
{
    uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    if (!highest)
        find_stack();
    /* Elsewhere: on a stack that a library made and of which nobody knows the size. */
    return here > lowest && here <= highest && here - lowest >= FRAME_BYTES &&
           here - lowest - FRAME_BYTES >= nbytes;
}

/* ---- Calls on another stack -------------------------------------------------------------- */

enum { RESTING, CALLED, DISMISSED };

static void *serve(void *argument)
{
    krt_aside *self = argument;
    for (;;) {
        uint32_t word = atomic_load_explicit(&self->word, memory_order_acquire);
        if (word == DISMISSED)
            return NULL;
        if (word == RESTING) {
            krt_wait(&self->word, RESTING, -1);
            continue;
        }
        self->call(self->context);
        atomic_store_explicit(&self->word, RESTING, memory_order_release);
        krt_wake(&self->word, 1);
    }
}

static void tell(krt_aside *aside, uint32_t word)
{
    atomic_store_explicit(&aside->word, word, memory_order_release);
    krt_wake(&aside->word, 1);
}

bool krt_aside_begin(krt_aside *aside)
{
    aside->forks = krt_fork_count();
    atomic_init(&aside->word, RESTING);
    return start(serve, aside, &aside->thread);
}

bool krt_aside_call(krt_aside *aside, void (*call)(void *context), void *context)
{
    if (aside->forks != krt_fork_count() && !krt_aside_begin(aside)) {
        aside->forks = krt_fork_count() - 1; /* there is none to be dismissed */
        return false;
    }
    aside->call = call;
    aside->context = context;
    tell(aside, CALLED);
    while (atomic_load_explicit(&aside->word, memory_order_acquire) == CALLED)
        krt_wait(&aside->word, CALLED, -1);
    return true;
}

void krt_aside_end(krt_aside *aside)
{
    if (aside->forks != krt_fork_count())
        return;
    tell(aside, DISMISSED);
    pthread_join(aside->thread, NULL);
}
