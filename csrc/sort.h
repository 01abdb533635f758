/* Stable argsort of keys. Brackets list the numbers of a routine. */
#ifndef KRT_SORT_H
#define KRT_SORT_H

#include "routines.h"

/* [n] keys -> positions (n) as int64; n elements of workspace. */
krt_routine krt_argsort_u32;
/* [n] keys -> positions (n) as int64; 3 n elements of workspace. */
krt_routine krt_argsort_u64;

#endif
