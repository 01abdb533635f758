/*
 * User functions (FFI) that are called once per row.
 */
#ifndef KRT_FOREIGN_H
#define KRT_FOREIGN_H

#include <stdint.h>

enum { KRT_EACH_MOST = 64 }; /* maximum number of buffers of a function that is called per row */

/* A kernel that calls a function once per row. vals contains: the number of rows; the number of
 * buffers of the function; its address; then, for all its buffers, their indices among the kernel's
 * buffers, their bytes per row, and their elements per row. The function gets the last list as its
 * vals. */
void krt_each(void *const *bufs, const int64_t *vals);

#endif
