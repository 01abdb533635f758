/*
 * Included by linalg_body.h: operations on rows of numbers.
 *
 * Wide rows begin at multiples of VECTOR bytes and are padded with zeros to a multiple of KRT_BLOCK
 * numbers, so loops over them have no remainder. Lengths are in numbers.
 */

typedef REAL OWN(vector) __attribute__((vector_size(VECTOR), may_alias));

enum { OWN(LANES) = VECTOR / sizeof(REAL) };

#define VECTORS(x) ((OWN(vector) *)(void *)(x))

/* The length of a wide row of at least n numbers. */
static inline int64_t OWN(wide)(int64_t n)
{
    return (n + KRT_BLOCK - 1) / KRT_BLOCK * KRT_BLOCK;
}

/* The first number of the block that contains number j. */
static inline int64_t OWN(block)(int64_t j)
{
    return j / KRT_BLOCK * KRT_BLOCK;
}

/* The workspace of a routine, of `work` numbers. */
static inline REAL *OWN(room)(REAL *frame, REAL *end, int64_t work)
{
    return krt_workspace(work) ? krt_align_up(end) : frame;
}

/* y -= f * x, for n numbers without alignment. */
static inline void OWN(take)(REAL *restrict y, const REAL *restrict x, REAL f, int64_t n)
{
    for (int64_t j = 0; j < n; j++) {
        y[j] -= f * x[j];
    }
}

typedef REAL OWN(quarter) __attribute__((vector_size(16), may_alias));
#if VECTOR > 32
typedef REAL OWN(half) __attribute__((vector_size(32), may_alias));
#endif

/* The sum of a vector's numbers, by repeated halving. */
static inline REAL OWN(total_of)(OWN(vector) x)
{
#if VECTOR > 32
    OWN(half) y, upper;
    memcpy(&y, &x, sizeof y);
    memcpy(&upper, (const char *)&x + sizeof y, sizeof upper);
    y += upper;
#else
    const OWN(vector) y = x;
#endif
    OWN(quarter) z;
    memcpy(&z, &y, sizeof z);
#if VECTOR > 16
    OWN(quarter) last;
    memcpy(&last, (const char *)&y + sizeof z, sizeof last);
    z += last;
#endif
    REAL sum[16 / sizeof(REAL)];
    memcpy(sum, &z, sizeof sum);
    for (size_t k = 2; k < 16 / sizeof(REAL); k++) {
        sum[k % 2] += sum[k];
    }
    return sum[0] + sum[1];
}

/* The dot product of n numbers without alignment. */
static inline REAL OWN(dot)(const REAL *x, const REAL *y, int64_t n)
{
    OWN(vector) one = {0}, other = {0}, a, b;
    int64_t j = 0;
    for (; j + 2 * OWN(LANES) <= n; j += 2 * OWN(LANES)) {
        memcpy(&a, x + j, sizeof a);
        memcpy(&b, y + j, sizeof b);
        one += a * b;
        memcpy(&a, x + j + OWN(LANES), sizeof a);
        memcpy(&b, y + j + OWN(LANES), sizeof b);
        other += a * b;
    }
    REAL sum = 0;
    for (int64_t k = j; k < n; k++) {
        sum += x[k] * y[k];
    }
    return j ? sum + OWN(total_of)(one + other) : sum;
}

/* y -= f * x, for wide rows. */
static inline void OWN(take_wide)(REAL *y, const REAL *x, REAL f, int64_t n)
{
    for (int64_t j = 0; j < n / OWN(LANES); j++) {
        VECTORS(y)[j] -= f * VECTORS(x)[j];
    }
}

/* The dot product of wide rows. */
static inline REAL OWN(dot_wide)(const REAL *x, const REAL *y, int64_t n)
{
    OWN(vector) one = {0}, other = {0};
    for (int64_t j = 0; j < n / OWN(LANES); j += 2) {
        one += VECTORS(x)[j] * VECTORS(y)[j];
        if (j + 1 < n / OWN(LANES)) {
            other += VECTORS(x)[j + 1] * VECTORS(y)[j + 1];
        }
    }
    return OWN(total_of)(one + other);
}

/* y -= the sum of f[k] * row k of x: `count` wide rows of n numbers, `stride` apart. */
static inline void OWN(take_rows)(REAL *y, const REAL *x, int64_t stride, const REAL *f,
                                  int64_t f_stride, int64_t count, int64_t n)
{
    int64_t j = 0;
    for (; j + 4 * OWN(LANES) <= n; j += 4 * OWN(LANES)) {
        OWN(vector) *to = VECTORS(y + j), a = to[0], b = to[1], c = to[2], d = to[3];
        for (int64_t k = 0; k < count; k++) {
            const OWN(vector) *from = VECTORS(x + k * stride + j);
            const REAL by = f[k * f_stride];
            a -= by * from[0];
            b -= by * from[1];
            c -= by * from[2];
            d -= by * from[3];
        }
        to[0] = a;
        to[1] = b;
        to[2] = c;
        to[3] = d;
    }
    for (; j < n; j += OWN(LANES)) {
        OWN(vector) *to = VECTORS(y + j), a = to[0], b = {0}, c = {0}, d = {0};
        int64_t k = 0;
        for (; k + 4 <= count; k += 4) {
            a -= f[k * f_stride] * *VECTORS(x + k * stride + j);
            b -= f[(k + 1) * f_stride] * *VECTORS(x + (k + 1) * stride + j);
            c -= f[(k + 2) * f_stride] * *VECTORS(x + (k + 2) * stride + j);
            d -= f[(k + 3) * f_stride] * *VECTORS(x + (k + 3) * stride + j);
        }
        for (; k < count; k++) {
            a -= f[k * f_stride] * *VECTORS(x + k * stride + j);
        }
        *to = (a + b) + (c + d);
    }
}

/*
 * Rotate neighboring wide rows one after the other: row k, as the previous rotation has left it,
 * becomes c row + s next, and the next row becomes c next - s row. The next row is `stride` numbers
 * further, which may be negative.
 */
static void OWN(rotate_rows)(REAL *x, int64_t stride, const REAL *c, const REAL *s, int64_t count,
                             int64_t n)
{
    int64_t j = 0;
    for (; j + 4 * OWN(LANES) <= n; j += 4 * OWN(LANES)) {
        OWN(vector) *at = VECTORS(x + j), one = at[0], two = at[1], three = at[2], four = at[3];
        for (int64_t k = 0; k < count; k++) {
            const OWN(vector) *next = VECTORS(x + (k + 1) * stride + j);
            const OWN(vector) a = next[0], b = next[1], p = next[2], q = next[3];
            at[0] = c[k] * one + s[k] * a;
            at[1] = c[k] * two + s[k] * b;
            at[2] = c[k] * three + s[k] * p;
            at[3] = c[k] * four + s[k] * q;
            one = c[k] * a - s[k] * one;
            two = c[k] * b - s[k] * two;
            three = c[k] * p - s[k] * three;
            four = c[k] * q - s[k] * four;
            at = VECTORS(x + (k + 1) * stride + j);
        }
        at[0] = one;
        at[1] = two;
        at[2] = three;
        at[3] = four;
    }
    for (; j < n; j += OWN(LANES)) {
        OWN(vector) *at = VECTORS(x + j), one = *at;
        for (int64_t k = 0; k < count; k++) {
            OWN(vector) *next = VECTORS(x + (k + 1) * stride + j);
            const OWN(vector) a = *next;
            *at = c[k] * one + s[k] * a;
            one = c[k] * a - s[k] * one;
            at = next;
        }
        *at = one;
    }
}

/* Replace wide rows x and y by c x + s y and c y - s x. */
static inline void OWN(rotate_pair)(REAL *x, REAL *y, REAL c, REAL s, int64_t n)
{
    for (int64_t j = 0; j < n / OWN(LANES); j++) {
        const OWN(vector) one = VECTORS(x)[j], other = VECTORS(y)[j];
        VECTORS(x)[j] = c * one + s * other;
        VECTORS(y)[j] = c * other - s * one;
    }
}

/*
 * The square root of f^2 + g^2, for matrices whose greatest element is about 1. Results so small
 * that a rotation by them would be inaccurate are replaced by 0.
 */
static inline REAL OWN(length)(REAL f, REAL g)
{
    const REAL squares = f * f + g * g;
    if (squares > LEAST / EPSILON) {
        return ROOT(squares);
    }
    const REAL length = HYPOT(f, g);
    return length > LEAST / EPSILON ? length : 0;
}

/*
 * Compute a Householder reflection (Householder, 1958): a vector v with v[0] = 1, which overwrites
 * x, and a factor such that all numbers of x - factor * v (v . x) except the first are 0. Return
 * the first. Scales x if squares would overflow or underflow.
 */
static REAL OWN(reflect)(REAL *x, int64_t n, REAL *factor)
{
    REAL first = x[0], top = 1, squares = OWN(dot)(x + 1, x + 1, n - 1);
    *factor = 0;
    if (!(squares > LEAST / EPSILON && squares + first * first < 1 / LEAST)) {
        top = 0;
        for (int64_t i = 1; i < n; i++) {
            const REAL size = SIZE(x[i]);
            top = size > top || size != size ? size : top;
        }
        if (top == 0) {
            x[0] = 1;
            return first;
        }
        top = SIZE(first) > top ? SIZE(first) : top;
        for (int64_t i = 0; i < n; i++) {
            x[i] /= top;
        }
        first = x[0];
        squares = OWN(dot)(x + 1, x + 1, n - 1);
    }
    const REAL length = -SIGNED(ROOT(squares + first * first), first);
    const REAL head = first - length;
    const REAL share = 1 / head;
    for (int64_t i = 1; i < n; i++) {
        x[i] *= share;
    }
    x[0] = 1;
    *factor = -head / length;
    return top * length;
}

/* row -= factor * v (v . row) for `count` wide rows of n numbers, `stride` apart. */
static inline void OWN(reflect_rows)(REAL *x, int64_t stride, int64_t count, const REAL *v,
                                     REAL factor, int64_t n)
{
    for (int64_t i = 0; i < count; i++) {
        REAL *row = x + i * stride;
        OWN(take_wide)(row, v, factor * OWN(dot_wide)(row, v, n), n);
    }
}
