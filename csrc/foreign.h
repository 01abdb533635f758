/*
 * Functions of the user's own, called for each of several rows.
 */
#ifndef KRT_FOREIGN_H
#define KRT_FOREIGN_H

#include <stdint.h>

enum { KRT_EACH_MOST = 64 }; /* buffers that a function has at most where it is called for rows */

/* A kernel. vals holds the number of rows, how many buffers the function has, its address, for each
 * of these buffers which of the kernel's it is, how many bytes a row of it has, and how many
 * elements; the function is told the latter. */
void krt_each(void *const *bufs, const int64_t *vals);

#endif
