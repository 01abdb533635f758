/* signals.c - see signals.h.
 *
 * The host's handler only notes the signal; the holder of the host's lock does the rest. This
 * handler calls the host's and then increments a counter that any thread may read. Handlers of
 * other code, and handlers that take more than the signal number, stay in place. If a handler is
 * installed later, it replaces this one, and the next check of the handlers puts this one back. */
#ifdef __linux__
#define _GNU_SOURCE
#endif
#include "signals.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

#ifdef NSIG
enum { SIGNALS = NSIG };
#else
enum { SIGNALS = 32 };
#endif

typedef void (*handler)(int signal);

static _Atomic(handler) host_handler; /* set once, before any counting */
static _Atomic uint32_t came;

/* Count last: a thread that sees the new count sees the noted signal. */
static void count(int signal)
{
    atomic_load_explicit(&host_handler, memory_order_acquire)(signal);
    atomic_fetch_add_explicit(&came, 1, memory_order_release);
}

uint32_t krt_signals_count(void) { return atomic_load_explicit(&came, memory_order_acquire); }

/* The plain handler of `signal`, and its settings in `*action`; NULL: it has none. */
static handler handler_of(int signal, struct sigaction *action)
{
    if (sigaction(signal, NULL, action) || action->sa_flags & SA_SIGINFO ||
        action->sa_handler == SIG_DFL || action->sa_handler == SIG_IGN)
        return NULL;
    return action->sa_handler;
}

bool krt_signals_find_handler(int signal, const void *host_code)
{
    struct sigaction action;
    Dl_info found, host;
    if (atomic_load_explicit(&host_handler, memory_order_relaxed))
        return true;
    handler own = handler_of(signal, &action);
    if (!own || !dladdr((const void *)(uintptr_t)own, &found) || !dladdr(host_code, &host) ||
        found.dli_fbase != host.dli_fbase)
        return false;
    atomic_store_explicit(&host_handler, own, memory_order_release);
    return true;
}

/* The first signal from `signal` on that still has the host's handler; SIGNALS: none. */
static int next_uncounted(int signal, struct sigaction *action)
{
    handler own = atomic_load_explicit(&host_handler, memory_order_acquire);
    while (own && signal < SIGNALS && handler_of(signal, action) != own)
        ++signal;
    return own ? signal : SIGNALS;
}

bool krt_signals_are_counted(void)
{
    struct sigaction action;
    return next_uncounted(1, &action) == SIGNALS;
}

void krt_signals_start_counting(void)
{
    struct sigaction action;
    for (int signal = next_uncounted(1, &action); signal < SIGNALS;
         signal = next_uncounted(signal + 1, &action)) {
        action.sa_handler = count;
        sigaction(signal, &action, NULL);
    }
}
