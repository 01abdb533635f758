/*
 * Functions of the user's own, called for each of several rows.
 */
#ifndef KRT_FOREIGN_H
#define KRT_FOREIGN_H

#include <stdint.h>

enum { KRT_EACH_MOST = 64 }; /* buffers that a function has at most where it is called for rows */

/* A kernel. vals holds the number of rows, how many buffers there are, the function's address, for
 * each buffer how many bytes a row of it has, and for each how many elements; the function is
 * told the latter. */
void krt_each(void *const *bufs, const int64_t *vals);

#endif
