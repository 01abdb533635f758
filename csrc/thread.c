/* thread.c - see thread.h. */
#ifdef __linux__
#define _GNU_SOURCE
#endif
#include "thread.h"

#include "krt.h"
#include "platform.h"

#include <limits.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/auxv.h>
#endif

/* Serial code may run on a worker, too, so a worker's stack is as large as the main thread's. */
#define USUAL_STACK_BYTES (8 << 20)
#define LEAST_STACK_BYTES (6 << 20)

/* Stack of a kernel in addition to its arrays: spilled registers, and calls such as memcpy. */
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

/* Block signals: they are for the threads that the program made. Faults stay unblocked: they are
 * for the thread that causes them, and blocking them would end the process without a message. */
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

/* Start a thread; store it in `joined`, or detach it if `joined` is NULL. */
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

/* Bounds of the calling thread's stack, determined once. If they are unknown, nothing fits. */
static _Thread_local struct {
    uintptr_t lowest, highest;
    bool looked_for;
} stack;

#ifdef KRT_TEST_HOOKS
static _Atomic bool stacks_are_hidden;
void krt_test_hide_stacks(bool hidden) { stacks_are_hidden = hidden; }
#endif

#if defined(__linux__)

/* Assume the bounds of the first thread's stack: the C library reads them from /proc, which may be
 * missing. The path of the program is at the top of that stack; the limit counts from its end. */
static void assume_stack(void)
{
    struct rlimit limit;
    uintptr_t top = (uintptr_t)getauxval(AT_EXECFN);
    if (getpid() != krt_thread_number() || !top || getrlimit(RLIMIT_STACK, &limit))
        return;
    bool known = limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < top;
    stack.highest = top;
    stack.lowest = top + PATH_MAX - (known ? (uintptr_t)limit.rlim_cur : USUAL_STACK_BYTES);
}

static void find_stack(void)
{
    pthread_attr_t attributes;
    void *start_of_stack;
    size_t nbytes, guard;
    bool hidden = false;
#ifdef KRT_TEST_HOOKS
    hidden = stacks_are_hidden;
#endif
    if (hidden || pthread_getattr_np(pthread_self(), &attributes)) {
        assume_stack();
        return;
    }
    if (!pthread_attr_getstack(&attributes, &start_of_stack, &nbytes) &&
        !pthread_attr_getguardsize(&attributes, &guard)) {
        stack.lowest = (uintptr_t)start_of_stack + guard; /* some systems count the guard as stack */
        stack.highest = (uintptr_t)start_of_stack + nbytes;
    }
    pthread_attr_destroy(&attributes);
}

#elif defined(__APPLE__)

static void find_stack(void)
{
    stack.highest = (uintptr_t)pthread_get_stackaddr_np(pthread_self());
    stack.lowest = stack.highest - pthread_get_stacksize_np(pthread_self());
}

#else

static void find_stack(void) {}

#endif

bool krt_stack_has(size_t nbytes)
{
    uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    if (!stack.looked_for) {
        stack.looked_for = true;
        find_stack();
    }
    /* If `here` is outside the bounds: a library made the stack, and its size is unknown. */
    return here > stack.lowest && here <= stack.highest && here - stack.lowest >= FRAME_BYTES &&
           here - stack.lowest - FRAME_BYTES >= nbytes;
}

/* ---- Calls on another stack -------------------------------------------------------------- */

enum { IDLE, CALLED, ENDED };

struct krt_helper {
    pthread_t thread;
    void (*call)(void *context);
    void *context;
    _Atomic uint32_t word;
    uint32_t forks; /* krt_fork_count of the process that started it */
    bool started;
};

/* The calling thread waits while the helper works, so a nested plan may use the helper, too. */
static _Thread_local krt_helper own;

static void *serve(void *argument)
{
    krt_helper *self = argument;
    for (;;) {
        uint32_t word = atomic_load_explicit(&self->word, memory_order_acquire);
        if (word == ENDED)
            return NULL;
        if (word == IDLE) {
            krt_wait(&self->word, IDLE, -1);
            continue;
        }
        self->call(self->context);
        atomic_store_explicit(&self->word, IDLE, memory_order_release);
        krt_wake(&self->word, 1);
    }
}

static void notify(krt_helper *helper, uint32_t word)
{
    atomic_store_explicit(&helper->word, word, memory_order_release);
    krt_wake(&helper->word, 1);
}

/* Called at the end of the thread that owns the helper. */
static void end_helper(void *argument)
{
    krt_helper *helper = argument;
    if (helper->started && helper->forks == krt_fork_count()) {
        notify(helper, ENDED);
        pthread_join(helper->thread, NULL);
    }
    helper->started = false;
}

static pthread_key_t at_end;
static bool key_made;

static void make_key(void) { key_made = !pthread_key_create(&at_end, end_helper); }

krt_helper *krt_helper_of_thread(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (own.started && own.forks == krt_fork_count())
        return &own;
    pthread_once(&once, make_key);
    if (!key_made || pthread_setspecific(at_end, &own))
        return NULL;
    own.forks = krt_fork_count();
    atomic_store_explicit(&own.word, IDLE, memory_order_relaxed);
    own.started = start(serve, &own, &own.thread);
    return own.started ? &own : NULL;
}

bool krt_helper_call(krt_helper *helper, void (*call)(void *context), void *context)
{
    if (!krt_helper_of_thread()) /* a new one if the process was forked since */
        return false;
    helper->call = call;
    helper->context = context;
    notify(helper, CALLED);
    while (atomic_load_explicit(&helper->word, memory_order_acquire) == CALLED)
        krt_wait(&helper->word, CALLED, -1);
    return true;
}
