/* Loops over strided arrays, one per operation and type, and the interpreter of their programs.
 *
 * Results are bitwise equal to those of compiled kernels, so operations are defined as in
 * kernelrt/backend/llvm/instructions.py: integers wrap, a division by zero gives zero, casts to
 * integers saturate, and an extremum is NaN if an operand is. */
#include "interpret.h"

#include <math.h>
#include <string.h>

#define LOOP(name) \
    static bool name(const krt_step *step, char *const *at, const int64_t *strides, int64_t n)

/* Load and store aligned elements. */
#define GET(T, address) (*(const T *)(const void *)(address))
#define PUT(T, address, value) (*(T *)(void *)(address) = (value))

/* ---- elementwise operations */

#define UNARY(name, T, R, EXPRESSION) \
    LOOP(name) \
    { \
        (void)step; \
        if (strides[0] == (int64_t)sizeof(R) && strides[1] == (int64_t)sizeof(T)) { \
            R *restrict out = (R *)(void *)at[0]; \
            const T *restrict in = (const T *)(const void *)at[1]; \
            for (int64_t i = 0; i < n; i++) { \
                const T x = in[i]; \
                out[i] = (R)(EXPRESSION); \
            } \
            return true; \
        } \
        for (int64_t i = 0; i < n; i++) { \
            const T x = GET(T, at[1] + i * strides[1]); \
            PUT(R, at[0] + i * strides[0], (R)(EXPRESSION)); \
        } \
        return true; \
    }

/* Fast paths: operands are contiguous, or one operand is the same for all elements. */
#define BINARY(name, T, R, EXPRESSION) \
    LOOP(name) \
    { \
        (void)step; \
        const bool one = strides[1] == (int64_t)sizeof(T), two = strides[2] == (int64_t)sizeof(T); \
        R *restrict out = (R *)(void *)at[0]; \
        const T *restrict a = (const T *)(const void *)at[1]; \
        const T *restrict b = (const T *)(const void *)at[2]; \
        if (strides[0] != (int64_t)sizeof(R) || (!one && strides[1]) || (!two && strides[2])) { \
            for (int64_t i = 0; i < n; i++) { \
                const T x = GET(T, at[1] + i * strides[1]), y = GET(T, at[2] + i * strides[2]); \
                PUT(R, at[0] + i * strides[0], (R)(EXPRESSION)); \
            } \
        } else if (one && two) { \
            for (int64_t i = 0; i < n; i++) { \
                const T x = a[i], y = b[i]; \
                out[i] = (R)(EXPRESSION); \
            } \
        } else if (one) { \
            const T y = *b; \
            for (int64_t i = 0; i < n; i++) { \
                const T x = a[i]; \
                out[i] = (R)(EXPRESSION); \
            } \
        } else if (two) { \
            const T x = *a; \
            for (int64_t i = 0; i < n; i++) { \
                const T y = b[i]; \
                out[i] = (R)(EXPRESSION); \
            } \
        } else { \
            const T x = *a, y = *b; \
            const R found = (R)(EXPRESSION); \
            for (int64_t i = 0; i < n; i++) { \
                out[i] = found; \
            } \
        } \
        return true; \
    }

/* Operations with the same bits for signed and unsigned integers. 1u keeps short ones unsigned. */
#define BITS(T) \
    BINARY(add_##T, T, T, 1u * x + y) \
    BINARY(sub_##T, T, T, 1u * x - y) \
    BINARY(mul_##T, T, T, 1u * x * y) \
    BINARY(and_##T, T, T, x & y) \
    BINARY(or_##T, T, T, x | y) \
    BINARY(xor_##T, T, T, x ^ y) \
    BINARY(shl_##T, T, T, y < 8 * sizeof(T) ? 1u * x << y : 0) \
    BINARY(eq_##T, T, uint8_t, x == y) \
    BINARY(ne_##T, T, uint8_t, x != y) \
    UNARY(neg_##T, T, T, 0u - x) \
    UNARY(not_##T, T, T, ~x) \
    UNARY(copy_##T, T, T, x) \
    BINARY(second_##T, T, T, ((void)x, y)) \
    LOOP(where_##T) \
    { \
        (void)step; \
        for (int64_t i = 0; i < n; i++) { \
            const bool yes = GET(uint8_t, at[1] + i * strides[1]) != 0; \
            const char *from = yes ? at[2] + i * strides[2] : at[3] + i * strides[3]; \
            PUT(T, at[0] + i * strides[0], GET(T, from)); \
        } \
        return true; \
    } \
    LOOP(gather_##T) \
    { \
        for (int64_t i = 0; i < n; i++) { \
            const char *from = at[1]; \
            for (int k = 2; k < step->n_operands; k++) { \
                const int64_t index = GET(int64_t, at[k] + i * strides[k]); \
                if (index < 0 || index >= step->more[2 * (k - 2)]) { \
                    return false; \
                } \
                from += index * step->more[2 * (k - 2) + 1]; \
            } \
            PUT(T, at[0] + i * strides[0], GET(T, from)); \
        } \
        return true; \
    }

#define ORDERED(T) \
    BINARY(lt_##T, T, uint8_t, x < y) \
    BINARY(le_##T, T, uint8_t, x <= y)

#define INTEGER(T) \
    ORDERED(T) \
    BINARY(max_##T, T, T, x > y ? x : y) \
    BINARY(min_##T, T, T, x < y ? x : y) \
    LOOP(bound_##T) \
    { \
        (void)step; \
        for (int64_t i = 0; i < n; i++) { \
            const T index = GET(T, at[1] + i * strides[1]); \
            const int64_t signed_index = (int64_t)index; \
            if (signed_index < 0 || signed_index >= (int64_t)GET(T, at[2] + i * strides[2])) { \
                return false; \
            } \
            PUT(T, at[0] + i * strides[0], index); \
        } \
        return true; \
    }

#define UNSIGNED(T) \
    INTEGER(T) \
    BINARY(shr_##T, T, T, y < 8 * sizeof(T) ? 1u * x >> y : 0) \
    BINARY(idiv_##T, T, T, y ? x / y : 0) \
    BINARY(mod_##T, T, T, y ? x % y : 0)

/* U: the unsigned type of the same width. A negative shift is a large one as U. */
#define SIGNED(T, U) \
    INTEGER(T) \
    static inline T quotient_##T(T x, T y) \
    { \
        if (y == 0 || y == -1) { \
            return y ? (T)(0u - (U)x) : 0; \
        } \
        return (T)(x / y - (x % y != 0 && (x % y ^ y) < 0)); \
    } \
    static inline T remainder_##T(T x, T y) \
    { \
        if (y == 0 || y == -1) { \
            return 0; \
        } \
        const T rest = (T)(x % y); \
        return (T)(rest != 0 && (rest ^ y) < 0 ? rest + y : rest); \
    } \
    BINARY(shr_##T, T, T, (U)y < 8 * sizeof(T) ? x >> y : x >> (8 * sizeof(T) - 1)) \
    BINARY(idiv_##T, T, T, quotient_##T(x, y)) \
    BINARY(mod_##T, T, T, remainder_##T(x, y)) \
    UNARY(abs_##T, T, T, x < 0 ? 0u - (U)x : (U)x)

/* f: the suffix of functions in math.h. */
#define FLOAT(T, f) \
    ORDERED(T) \
    BINARY(add_##T, T, T, x + y) \
    BINARY(sub_##T, T, T, x - y) \
    BINARY(mul_##T, T, T, x * y) \
    BINARY(div_##T, T, T, x / y) \
    BINARY(max_##T, T, T, y != y || y > x ? y : x) \
    BINARY(min_##T, T, T, y != y || y < x ? y : x) \
    BINARY(eq_##T, T, uint8_t, x == y) \
    BINARY(ne_##T, T, uint8_t, x != y) \
    UNARY(neg_##T, T, T, -x) \
    UNARY(abs_##T, T, T, fabs##f(x)) \
    UNARY(sqrt_##T, T, T, sqrt##f(x)) \
    UNARY(floor_##T, T, T, floor##f(x)) \
    UNARY(ceil_##T, T, T, ceil##f(x)) \
    UNARY(trunc_##T, T, T, trunc##f(x)) \
    UNARY(round_##T, T, T, rint##f(x))

typedef uint8_t boolean; /* 0 or 1 */

BITS(uint8_t)
BITS(uint16_t)
BITS(uint32_t)
BITS(uint64_t)
UNSIGNED(uint8_t)
UNSIGNED(uint16_t)
UNSIGNED(uint32_t)
UNSIGNED(uint64_t)
SIGNED(int8_t, uint8_t)
SIGNED(int16_t, uint16_t)
SIGNED(int32_t, uint32_t)
SIGNED(int64_t, uint64_t)
FLOAT(float, f)
FLOAT(double, )
UNARY(not_boolean, uint8_t, uint8_t, x ^ 1)

LOOP(count_int64_t)
{
    (void)step;
    for (int64_t i = 0; i < n; i++) {
        PUT(int64_t, at[0] + i * strides[0], i);
    }
    return true;
}

/* ---- casts */

#define TO_BOOLEAN(T) UNARY(cast_##T##_boolean, T, boolean, x != 0)
#define CAST(T, R) UNARY(cast_##T##_##R, T, R, x)
/* NaN becomes the least signed integer, or the greatest unsigned one. */
#define TO_SIGNED(T, R, LEAST, MOST) \
    UNARY(cast_##T##_##R, T, R, \
          x >= (T)(LEAST) ? x >= -(T)(LEAST) ? (R)(MOST) : (R)x : (R)(LEAST))
#define TO_UNSIGNED(T, R, MOST, BEYOND) \
    UNARY(cast_##T##_##R, T, R, x >= (T)(BEYOND) || x != x ? (R)(MOST) : x >= 0 ? (R)x : (R)0)

#define FROM(T) \
    TO_BOOLEAN(T) \
    CAST(T, float) \
    CAST(T, double)
#define FROM_INTEGER(T) \
    FROM(T) \
    CAST(T, uint8_t) \
    CAST(T, int8_t) \
    CAST(T, uint16_t) \
    CAST(T, int16_t) \
    CAST(T, uint32_t) \
    CAST(T, int32_t) \
    CAST(T, uint64_t) \
    CAST(T, int64_t)
#define FROM_FLOAT(T) \
    FROM(T) \
    TO_SIGNED(T, int8_t, INT8_MIN, INT8_MAX) \
    TO_SIGNED(T, int16_t, INT16_MIN, INT16_MAX) \
    TO_SIGNED(T, int32_t, INT32_MIN, INT32_MAX) \
    TO_SIGNED(T, int64_t, INT64_MIN, INT64_MAX) \
    TO_UNSIGNED(T, uint8_t, UINT8_MAX, 0x1p8) \
    TO_UNSIGNED(T, uint16_t, UINT16_MAX, 0x1p16) \
    TO_UNSIGNED(T, uint32_t, UINT32_MAX, 0x1p32) \
    TO_UNSIGNED(T, uint64_t, UINT64_MAX, 0x1p64)

FROM_INTEGER(uint8_t)
FROM_INTEGER(int8_t)
FROM_INTEGER(uint16_t)
FROM_INTEGER(int16_t)
FROM_INTEGER(uint32_t)
FROM_INTEGER(int32_t)
FROM_INTEGER(uint64_t)
FROM_INTEGER(int64_t)
FROM_FLOAT(float)
FROM_FLOAT(double)

/* ---- functions, by compiled code that computes a block of elements */

#define MOST_BYTES 8 /* of an element */

static void pack(char *block, const char *from, int64_t stride, int64_t size, int64_t n)
{
    if (stride == size) {
        memcpy(block, from, (size_t)(n * size));
    } else {
        for (int64_t i = 0; i < n; i++) {
            memcpy(block + i * size, from + i * stride, (size_t)size);
        }
    }
    /* Fill the block with copies of the last element: they are never slower to compute. */
    for (int64_t i = n; i < KRT_STEP_BLOCK; i++) {
        memcpy(block + i * size, block + (n - 1) * size, (size_t)size);
    }
}

LOOP(blocks)
{
    enum { MOST = 4 };
    _Alignas(64) char memory[MOST][KRT_STEP_BLOCK * MOST_BYTES];
    void *bufs[MOST];
    for (int k = 0; k < MOST; k++) {
        bufs[k] = memory[k];
    }
    for (int64_t done = 0; done < n; done += KRT_STEP_BLOCK) {
        const int64_t count = n - done < KRT_STEP_BLOCK ? n - done : KRT_STEP_BLOCK;
        for (int k = 1; k < step->n_operands; k++) {
            pack(memory[k], at[k] + done * strides[k], strides[k], step->more[k], count);
        }
        step->code(bufs, NULL);
        const int64_t size = step->more[0];
        for (int64_t i = 0; i < count; i++) {
            memcpy(at[0] + (done + i) * strides[0], memory[0] + i * size, (size_t)size);
        }
    }
    return true;
}

/* Powers with one exponent for all elements. As in compiled code, small exponents become products.
 * U: an unsigned type of the same width. */
#define POWER(T, U) \
    UNARY(one_##T, T, T, ((void)x, 1)) \
    UNARY(square_##T, T, T, x *x) \
    UNARY(cube_##T, T, T, x *x *x) \
    UNARY(inverse_##T, T, T, 1 / x) \
    LOOP(power_##T) \
    { \
        const T exponent = n > 0 && strides[2] == 0 ? GET(T, at[2]) : (T)0.5; \
        krt_loop *const loop = exponent == 0    ? one_##T \
                               : exponent == 1  ? copy_##U \
                               : exponent == 2  ? square_##T \
                               : exponent == 3  ? cube_##T \
                               : exponent == -1 ? inverse_##T \
                                                : blocks; \
        return loop(step, at, strides, n); \
    }

POWER(float, uint32_t)
POWER(double, uint64_t)

/* ---- reductions */

/* Number of results that a reduction accumulates together. */
#define TILE 64

static const int64_t *strides_of(const krt_step *step, int operand)
{
    return step->layout + step->n_axes + operand * (2 + step->n_axes) + 2;
}

/* A: the accumulation type. START: the identity element. `a` and `b` are elements of the first and
 * the last operand; `t` is the accumulated result. */
#define REDUCTION(name, T, A, START, VALUE, COMBINED) \
    LOOP(name) \
    { \
        const int last = step->n_operands - 1, axis = step->n_axes - 1; \
        const int first = step->n_axes - step->n_reduced; \
        const int64_t *one = strides_of(step, 1), *two = strides_of(step, last); \
        const int64_t size = step->layout[axis], inner = one[axis], inner_two = two[axis]; \
        /* The axis with the smaller stride becomes the inner loop. */ \
        const bool by_result = n == 1 || (inner < 0 ? -inner : inner) <= strides[1]; \
        for (int64_t done = 0; done < n; done += TILE) { \
            const int64_t m = n - done < TILE ? n - done : TILE; \
            const char *x = at[1] + done * strides[1], *y = at[last] + done * strides[last]; \
            int64_t index[KRT_STEP_AXES] = {0}; \
            A found[TILE]; \
            for (int64_t j = 0; j < m; j++) { \
                found[j] = START; \
            } \
            for (;;) { \
                for (int64_t j = 0; by_result && j < m; j++) { \
                    const char *u = x + j * strides[1], *v = y + j * strides[last]; \
                    A part[4] = {START, START, START, START}; \
                    int64_t i = 0; \
                    for (; i + 4 <= size; i += 4) { \
                        for (int64_t k = 0; k < 4; k++) { \
                            const T a = GET(T, u + (i + k) * inner); \
                            const T b = GET(T, v + (i + k) * inner_two); \
                            const A t = part[k], value = VALUE; \
                            (void)b; \
                            part[k] = (A)(COMBINED); \
                        } \
                    } \
                    for (; i < size; i++) { \
                        const T a = GET(T, u + i * inner), b = GET(T, v + i * inner_two); \
                        const A t = part[0], value = VALUE; \
                        (void)b; \
                        part[0] = (A)(COMBINED); \
                    } \
                    for (int64_t k = 0; k < 4; k++) { \
                        const A t = found[j], value = part[k]; \
                        found[j] = (A)(COMBINED); \
                    } \
                } \
                for (int64_t i = 0; !by_result && i < size; i++) { \
                    const char *u = x + i * inner, *v = y + i * inner_two; \
                    for (int64_t j = 0; j < m; j++) { \
                        const T a = GET(T, u + j * strides[1]), b = GET(T, v + j * strides[last]); \
                        const A t = found[j], value = VALUE; \
                        (void)b; \
                        found[j] = (A)(COMBINED); \
                    } \
                } \
                int k = axis - 1; \
                for (; k >= first; k--) { \
                    x += one[k]; \
                    y += two[k]; \
                    if (++index[k] < step->layout[k]) { \
                        break; \
                    } \
                    x -= one[k] * step->layout[k]; \
                    y -= two[k] * step->layout[k]; \
                    index[k] = 0; \
                } \
                if (k < first) { \
                    break; \
                } \
            } \
            for (int64_t j = 0; j < m; j++) { \
                PUT(T, at[0] + (done + j) * strides[0], (T)found[j]); \
            } \
        } \
        return true; \
    }

#define REDUCE_BITS(T) \
    REDUCTION(reduce_add_##T, T, T, 0, a, 1u * t + value) \
    REDUCTION(reduce_mul_##T, T, T, 1, a, 1u * t * value)
#define REDUCE_EXTREMES(T, LEAST, MOST) \
    REDUCTION(reduce_max_##T, T, T, LEAST, a, value > t ? value : t) \
    REDUCTION(reduce_min_##T, T, T, MOST, a, value < t ? value : t)
/* float is accumulated in double. */
#define REDUCE_FLOAT(T) \
    REDUCTION(reduce_add_##T, T, double, -0.0, a, t + value) \
    REDUCTION(reduce_mul_##T, T, double, 1.0, a, t *value) \
    REDUCTION(reduce_max_##T, T, T, (T)-INFINITY, a, value > t || value != value ? value : t) \
    REDUCTION(reduce_min_##T, T, T, (T)INFINITY, a, value < t || value != value ? value : t) \
    REDUCTION(dot_##T, T, double, -0.0, (double)a * (double)b, t + value)

REDUCE_BITS(uint8_t)
REDUCE_BITS(uint16_t)
REDUCE_BITS(uint32_t)
REDUCE_BITS(uint64_t)
REDUCE_EXTREMES(uint8_t, 0, UINT8_MAX)
REDUCE_EXTREMES(int8_t, INT8_MIN, INT8_MAX)
REDUCE_EXTREMES(uint16_t, 0, UINT16_MAX)
REDUCE_EXTREMES(int16_t, INT16_MIN, INT16_MAX)
REDUCE_EXTREMES(uint32_t, 0, UINT32_MAX)
REDUCE_EXTREMES(int32_t, INT32_MIN, INT32_MAX)
REDUCE_EXTREMES(uint64_t, 0, UINT64_MAX)
REDUCE_EXTREMES(int64_t, INT64_MIN, INT64_MAX)
REDUCE_FLOAT(float)
REDUCE_FLOAT(double)
REDUCTION(reduce_max_boolean, uint8_t, uint8_t, 0, a, t | value)
REDUCTION(reduce_min_boolean, uint8_t, uint8_t, 1, a, t &value)

/* ---- scatters */

/* The first operand is the whole result; values and indices follow. */
LOOP(scatter)
{
    static const int64_t none[KRT_STEP_OPERANDS] = {0};
    for (int64_t i = 0; i < n; i++) {
        char *address = at[0];
        for (int k = 2; k < step->n_operands; k++) {
            const int64_t index = GET(int64_t, at[k] + i * strides[k]);
            if (index < 0 || index >= step->more[2 * (k - 2)]) {
                return false;
            }
            address += index * step->more[2 * (k - 2) + 1];
        }
        char *const operands[] = {address, address, at[1] + i * strides[1]};
        (void)step->combine(step, operands, none, 1);
    }
    return true;
}

/* ---- programs */

size_t krt_interpret(const krt_step *steps, size_t n_steps, char *const *bases)
{
    for (size_t done = 0; done < n_steps; done++) {
        const krt_step *step = &steps[done];
        const int n_outer = step->n_axes - step->n_reduced - 1; /* -1: one element */
        char *at[KRT_STEP_OPERANDS];
        int64_t inner[KRT_STEP_OPERANDS], index[KRT_STEP_AXES] = {0};
        for (int k = 0; k < step->n_operands; k++) {
            const int64_t *strides = strides_of(step, k);
            at[k] = bases[strides[-2]] + strides[-1];
            inner[k] = n_outer < 0 ? 0 : strides[n_outer];
        }
        const int64_t n = n_outer < 0 ? 1 : step->layout[n_outer];
        for (;;) {
            if (!step->loop(step, at, inner, n)) {
                return done;
            }
            int axis = n_outer - 1;
            for (; axis >= 0; axis--) {
                const bool more = ++index[axis] < step->layout[axis];
                const int64_t moved = more ? 1 : 1 - step->layout[axis];
                for (int k = 0; k < step->n_operands; k++) {
                    at[k] += moved * strides_of(step, k)[axis];
                }
                if (more) {
                    break;
                }
                index[axis] = 0;
            }
            if (axis < 0) {
                break;
            }
        }
    }
    return n_steps;
}

/* ---- the table of loops */

/* Codes of types in kernelrt.dtype. */
enum {
    C_boolean = 0, C_uint8_t = 1, C_int8_t = 2, C_uint16_t = 3, C_int16_t = 4, C_uint32_t = 5,
    C_int32_t = 6, C_uint64_t = 7, C_int64_t = 8, C_float = 11, C_double = 12
};

#define SAME(name, loop, T, V) {name, C_##T, C_##T, loop##_##V},
#define TEST(name, loop, T, V) {name, C_##T, C_boolean, loop##_##V},
#define ARITHMETIC(T, V) \
    SAME("ADD", add, T, V) SAME("SUB", sub, T, V) SAME("MUL", mul, T, V) SAME("NEG", neg, T, V) \
    SAME("MAX", max, T, T) SAME("MIN", min, T, T) TEST("EQ", eq, T, V) TEST("NE", ne, T, V) \
    TEST("LT", lt, T, T) TEST("LE", le, T, T) \
    SAME("REDUCE_ADD", reduce_add, T, V) SAME("REDUCE_MUL", reduce_mul, T, V) \
    SAME("REDUCE_MAX", reduce_max, T, T) SAME("REDUCE_MIN", reduce_min, T, T)
/* V: the unsigned type of the same width, where the operation is the same for both. */
#define INTEGERS(T, V) \
    ARITHMETIC(T, V) \
    SAME("AND", and, T, V) SAME("OR", or, T, V) SAME("XOR", xor, T, V) SAME("NOT", not, T, V) \
    SAME("SHL", shl, T, V) SAME("SHR", shr, T, T) SAME("IDIV", idiv, T, T) \
    SAME("MOD", mod, T, T) SAME("BOUND", bound, T, T)
#define FLOATS(T) \
    ARITHMETIC(T, T) \
    SAME("DIV", div, T, T) SAME("ABS", abs, T, T) SAME("SQRT", sqrt, T, T) \
    SAME("FLOOR", floor, T, T) SAME("CEIL", ceil, T, T) SAME("TRUNC", trunc, T, T) \
    SAME("ROUND", round, T, T) SAME("POW", power, T, T) SAME("DOT", dot, T, T)
#define CASTS_TO(R) \
    {"CAST", C_boolean, C_##R, cast_uint8_t_##R}, {"CAST", C_uint8_t, C_##R, cast_uint8_t_##R}, \
    {"CAST", C_int8_t, C_##R, cast_int8_t_##R}, {"CAST", C_uint16_t, C_##R, cast_uint16_t_##R}, \
    {"CAST", C_int16_t, C_##R, cast_int16_t_##R}, {"CAST", C_uint32_t, C_##R, cast_uint32_t_##R}, \
    {"CAST", C_int32_t, C_##R, cast_int32_t_##R}, {"CAST", C_uint64_t, C_##R, cast_uint64_t_##R}, \
    {"CAST", C_int64_t, C_##R, cast_int64_t_##R}, {"CAST", C_float, C_##R, cast_float_##R}, \
    {"CAST", C_double, C_##R, cast_double_##R},
#define MOVES(bytes, T) \
    {"COPY", bytes, bytes, copy_##T}, {"WHERE", bytes, bytes, where_##T}, \
    {"GATHER", bytes, bytes, gather_##T}, {"SECOND", bytes, bytes, second_##T},

const krt_named_loop krt_loops[] = {
    INTEGERS(uint8_t, uint8_t)
    INTEGERS(int8_t, uint8_t)
    INTEGERS(uint16_t, uint16_t)
    INTEGERS(int16_t, uint16_t)
    INTEGERS(uint32_t, uint32_t)
    INTEGERS(int32_t, uint32_t)
    INTEGERS(uint64_t, uint64_t)
    INTEGERS(int64_t, uint64_t)
    FLOATS(float)
    FLOATS(double)
    SAME("ABS", abs, int8_t, int8_t)
    SAME("ABS", abs, int16_t, int16_t)
    SAME("ABS", abs, int32_t, int32_t)
    SAME("ABS", abs, int64_t, int64_t)
    SAME("AND", and, boolean, uint8_t)
    SAME("OR", or, boolean, uint8_t)
    SAME("XOR", xor, boolean, uint8_t)
    SAME("NOT", not, boolean, boolean)
    SAME("MAX", max, boolean, uint8_t)
    SAME("MIN", min, boolean, uint8_t)
    SAME("EQ", eq, boolean, uint8_t)
    SAME("NE", ne, boolean, uint8_t)
    SAME("LT", lt, boolean, uint8_t)
    SAME("LE", le, boolean, uint8_t)
    SAME("REDUCE_MAX", reduce_max, boolean, boolean)
    SAME("REDUCE_MIN", reduce_min, boolean, boolean)
    CASTS_TO(boolean)
    CASTS_TO(uint8_t)
    CASTS_TO(int8_t)
    CASTS_TO(uint16_t)
    CASTS_TO(int16_t)
    CASTS_TO(uint32_t)
    CASTS_TO(int32_t)
    CASTS_TO(uint64_t)
    CASTS_TO(int64_t)
    CASTS_TO(float)
    CASTS_TO(double)
    MOVES(1, uint8_t)
    MOVES(2, uint16_t)
    MOVES(4, uint32_t)
    MOVES(8, uint64_t)
    SAME("COUNT", count, int64_t, int64_t)
    {"SCATTER", 0, 0, scatter},
    {"BLOCKS", 0, 0, blocks},
    {NULL, 0, 0, NULL},
};
