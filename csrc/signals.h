/* signals.h - whether a signal came that the host handles, told without the host's own lock. */
#ifndef KRT_SIGNALS_H
#define KRT_SIGNALS_H

#include <stdbool.h>
#include <stdint.h>

/* The host has one C function as the handler of all signals that it handles: that of `signal`, if
 * it is code of the binary that `host_code` is in. Asked once; false: it is not known yet. */
bool krt_signals_find_handler(int signal, const void *host_code);

/* How many signals reached that handler, those alone that were counted then. Any thread. */
uint32_t krt_signals_count(void);

/* Whether all signals are counted that the host's handler has now, as far as it is known. Any
 * thread. */
bool krt_signals_are_counted(void);

/* Have a handler that counts, and calls the host's, take the place of the host's for every signal
 * that has it. The caller holds the host's lock: the host must not be about to change handlers. */
void krt_signals_start_counting(void);

#endif
