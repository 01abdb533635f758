/* The order of keys; numbers: how many keys a problem has. */
#ifndef KRT_SORT_H
#define KRT_SORT_H

#include "routines.h"

krt_routine krt_argsort_u32; /* 2 int64 of the result for each key */
krt_routine krt_argsort_u64; /* 4 */

#endif
