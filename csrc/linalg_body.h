/* Included by linalg.c for each version: all routines in both precisions. */

#define REAL float
#define NAME(name) VERSION(krt_##name##_f32)
#define OWN(name) VERSION(name##_f32)
#define EPSILON FLT_EPSILON
#define LEAST FLT_MIN
#define ROOT sqrtf
#define SIZE fabsf
#define HYPOT hypotf
#define SIGNED copysignf
#include "linalg_rows.h"
#include "linalg_factors.h"
#include "linalg_values.h"
#undef REAL
#undef NAME
#undef OWN
#undef EPSILON
#undef LEAST
#undef ROOT
#undef SIZE
#undef HYPOT
#undef SIGNED

#define REAL double
#define NAME(name) VERSION(krt_##name##_f64)
#define OWN(name) VERSION(name##_f64)
#define EPSILON DBL_EPSILON
#define LEAST DBL_MIN
#define ROOT sqrt
#define SIZE fabs
#define HYPOT hypot
#define SIGNED copysign
#include "linalg_rows.h"
#include "linalg_factors.h"
#include "linalg_values.h"
#undef REAL
#undef NAME
#undef OWN
#undef EPSILON
#undef LEAST
#undef ROOT
#undef SIZE
#undef HYPOT
#undef SIGNED

#define BOTH(name) {#name "_f32", VERSION(krt_##name##_f32)}, {#name "_f64", VERSION(krt_##name##_f64)}
static const krt_named VERSION(table)[] = {
    BOTH(cholesky), BOTH(lu), BOTH(exchange), BOTH(solve), BOTH(triangular), BOTH(qr), BOTH(eigh),
    BOTH(svd), {NULL, NULL},
};
#undef BOTH
