/* The order of keys. Numbers are those in brackets. */
#ifndef KRT_SORT_H
#define KRT_SORT_H

#include "routines.h"

/* [n] keys -> places (n), in int64; works in n more. */
krt_routine krt_argsort_u32;
/* [n] keys -> places (n), in int64; works in 3 n more. */
krt_routine krt_argsort_u64;

#endif
