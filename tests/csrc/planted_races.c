/* planted_races.c - a data race in every function of the core.
 *
 * Linked with the core where gcc compiled that with -finstrument-functions: each function of it
 * then calls the first of these hooks as it begins, and the race is between two threads that do.
 * Hidden: the C library has hooks of these names, which would be found first. */
#include <stdint.h>

#define HOOK __attribute__((no_instrument_function, visibility("hidden")))

/* A byte of its own for each function, as long as the module's code is smaller than this. */
static volatile char counted[1 << 24];

HOOK void __cyg_profile_func_enter(void *function, void *caller);
HOOK void __cyg_profile_func_exit(void *function, void *caller);

void __cyg_profile_func_enter(void *function, void *caller)
{
    (void)caller;
    counted[(uintptr_t)function % sizeof counted] += 1;
}

void __cyg_profile_func_exit(void *function, void *caller)
{
    (void)function;
    (void)caller;
}
