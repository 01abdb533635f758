/* Included by cumsum.c for each version: cumulative sums of all dtypes. */

/* 64-bit integers, which wrap around. */
typedef uint64_t VERSION(vector) __attribute__((vector_size(VECTOR)));

/* SIDE doubles. Vectors of 512 bits would need three rounds of shuffles per transpose. */
typedef double VERSION(doubles) __attribute__((vector_size(VECTOR > 32 ? 32 : VECTOR)));
typedef int64_t VERSION(places) __attribute__((vector_size(VECTOR > 32 ? 32 : VECTOR)));
enum {
    VERSION(N_LANES) = VECTOR / sizeof(uint64_t),
    VERSION(N_SIDE) = sizeof(VERSION(doubles)) / sizeof(double)
};

/* Lanes of a and b, by their numbers; those of b follow those of a. */
#if defined(__clang__)
#define PICKED(type, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define PICKED(type, a, b, ...) __builtin_shuffle(a, b, (VERSION(type)){__VA_ARGS__})
#endif

/* Return for each lane the sum of the lanes up to it; with `reverse`, from it on. */
COPIED VERSION(vector) VERSION(sums_of)(VERSION(vector) x, const int reverse)
{
    const VERSION(vector) none = {0};
#define SHIFTED(...) PICKED(vector, none, x, __VA_ARGS__)
#define SHIFTED_BACK(...) PICKED(vector, x, none, __VA_ARGS__)
#if VECTOR == 16
    return x + (reverse ? SHIFTED_BACK(1, 2) : SHIFTED(1, 2));
#elif VECTOR == 32
    x += reverse ? SHIFTED_BACK(1, 2, 3, 4) : SHIFTED(3, 4, 5, 6);
    return x + (reverse ? SHIFTED_BACK(2, 3, 4, 5) : SHIFTED(2, 3, 4, 5));
#else
    x += reverse ? SHIFTED_BACK(1, 2, 3, 4, 5, 6, 7, 8) : SHIFTED(7, 8, 9, 10, 11, 12, 13, 14);
    x += reverse ? SHIFTED_BACK(2, 3, 4, 5, 6, 7, 8, 9) : SHIFTED(6, 7, 8, 9, 10, 11, 12, 13);
    return x + (reverse ? SHIFTED_BACK(4, 5, 6, 7, 8, 9, 10, 11) : SHIFTED(4, 5, 6, 7, 8, 9, 10, 11));
#endif
#undef SHIFTED
#undef SHIFTED_BACK
}

/* Return the last lane, with `reverse` the first, in all lanes. */
COPIED VERSION(vector) VERSION(end_of)(VERSION(vector) x, const int reverse)
{
#if VECTOR == 16
    return reverse ? PICKED(vector, x, x, 0, 0) : PICKED(vector, x, x, 1, 1);
#elif VECTOR == 32
    return reverse ? PICKED(vector, x, x, 0, 0, 0, 0) : PICKED(vector, x, x, 3, 3, 3, 3);
#else
    return reverse ? PICKED(vector, x, x, 0, 0, 0, 0, 0, 0, 0, 0)
                   : PICKED(vector, x, x, 7, 7, 7, 7, 7, 7, 7, 7);
#endif
}

/* Transpose SIDE vectors. */
COPIED void VERSION(transpose)(VERSION(doubles) *x)
{
#if VECTOR == 16
    const VERSION(doubles) a = x[0], b = x[1];
    x[0] = PICKED(places, a, b, 0, 2);
    x[1] = PICKED(places, a, b, 1, 3);
#else
    const VERSION(doubles) a = PICKED(places, x[0], x[1], 0, 4, 2, 6);
    const VERSION(doubles) b = PICKED(places, x[0], x[1], 1, 5, 3, 7);
    const VERSION(doubles) c = PICKED(places, x[2], x[3], 0, 4, 2, 6);
    const VERSION(doubles) d = PICKED(places, x[2], x[3], 1, 5, 3, 7);
    x[0] = PICKED(places, a, c, 0, 1, 4, 5);
    x[1] = PICKED(places, b, d, 0, 1, 4, 5);
    x[2] = PICKED(places, a, c, 2, 3, 6, 7);
    x[3] = PICKED(places, b, d, 2, 3, 6, 7);
#endif
}
#undef PICKED

/*
 * Add `sum` to the total `whole`, of which `rest` has the rounding error; forget the error if it is
 * not finite.
 */
static inline void VERSION(add_tile)(double *whole, double *rest, double sum)
{
    const double more = sum + *rest, total = *whole + more, back = total - *whole;
    const double error = (*whole - (total - back)) + (more - back);
    *whole = total;
    *rest = error - error == 0 ? error : 0;
}

#define FLOATS 1
#define SUM double

#define NAME(name) VERSION(name##_float32)
#define GIVEN float
#define RESULT float
#include "cumsum_rows.h"
#undef NAME
#undef GIVEN
#undef RESULT

#define NAME(name) VERSION(name##_float64)
#define GIVEN double
#define RESULT double
#include "cumsum_rows.h"
#undef NAME
#undef GIVEN
#undef RESULT

#undef SUM
#undef FLOATS
#define FLOATS 0
#define SUM uint64_t
#define RESULT uint64_t

#define NAME(name) VERSION(name##_int8)
#define GIVEN int8_t
#include "cumsum_rows.h"
#undef NAME
#undef GIVEN

#define NAME(name) VERSION(name##_int16)
#define GIVEN int16_t
#include "cumsum_rows.h"
#undef NAME
#undef GIVEN

#define NAME(name) VERSION(name##_int32)
#define GIVEN int32_t
#include "cumsum_rows.h"
#undef NAME
#undef GIVEN

#define NAME(name) VERSION(name##_uint8)
#define GIVEN uint8_t
#include "cumsum_rows.h"
#undef NAME
#undef GIVEN

#define NAME(name) VERSION(name##_uint16)
#define GIVEN uint16_t
#include "cumsum_rows.h"
#undef NAME
#undef GIVEN

#define NAME(name) VERSION(name##_uint32)
#define GIVEN uint32_t
#include "cumsum_rows.h"
#undef NAME
#undef GIVEN

#define NAME(name) VERSION(name##_uint64)
#define GIVEN uint64_t
#include "cumsum_rows.h"
#undef NAME
#undef GIVEN

#undef RESULT
#undef SUM
#undef FLOATS

#define ENTRY(dtype, kind) {"cumsum_" #dtype, VERSION(krt_cumsum_##kind)}
static const krt_named VERSION(table)[] = {
    ENTRY(float32, float32), ENTRY(float64, float64), ENTRY(int8, int8), ENTRY(int16, int16),
    ENTRY(int32, int32), ENTRY(int64, uint64), ENTRY(bool, uint8), ENTRY(uint8, uint8),
    ENTRY(uint16, uint16), ENTRY(uint32, uint32), ENTRY(uint64, uint64), {NULL, NULL},
};
#undef ENTRY
