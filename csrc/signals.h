/* signals.h - detects signals that the host handles, without the host's lock. */
#ifndef KRT_SIGNALS_H
#define KRT_SIGNALS_H

#include <stdbool.h>
#include <stdint.h>

/* Find the host's handler: the host uses one C function for all its signals. It is the handler of
 * `signal` if it is in the same binary as `host_code`. Once found, it is kept; false: not known
 * yet. */
bool krt_signals_find_handler(int signal, const void *host_code);

/* The number of counted signals that reached that handler. Any thread. */
uint32_t krt_signals_count(void);

/* Whether all signals of the host's handler, as far as it is known, are counted now. Any thread. */
bool krt_signals_are_counted(void);

/* Replace the host's handler, for every signal that has it, by a handler that calls the host's and
 * counts. The caller holds the host's lock: the host must not be about to change handlers. */
void krt_signals_start_counting(void);

#endif
