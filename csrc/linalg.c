/* Linear algebra of small matrices: linalg_body.h in two precisions. */
#include "linalg.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define REAL float
#define NAME(name) krt_##name##_f32
#define OWN(name) name##_f32
#define EPSILON FLT_EPSILON
#define LEAST FLT_MIN
#define ROOT sqrtf
#define SIZE fabsf
#define HYPOT hypotf
#define SIGNED copysignf
#include "linalg_body.h"
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
#define NAME(name) krt_##name##_f64
#define OWN(name) name##_f64
#define EPSILON DBL_EPSILON
#define LEAST DBL_MIN
#define ROOT sqrt
#define SIZE fabs
#define HYPOT hypot
#define SIGNED copysign
#include "linalg_body.h"
