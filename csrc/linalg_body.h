/*
 * Included by linalg.c once for each precision, which REAL and the names say.
 *
 * Inner loops run along rows, so that they are vectors: triangular solves, factors and rotations
 * are all written as sums of rows. Numbers that are not finite run through; no loop's length
 * depends on them but those that count their turns.
 */

/* y -= f * x, of n numbers. */
static inline void OWN(take)(REAL *restrict y, const REAL *restrict x, REAL f, int64_t n)
{
    for (int64_t j = 0; j < n; j++) {
        y[j] -= f * x[j];
    }
}

/* The sum of products in several parts, so that it is vectors and rounds little. */
static inline REAL OWN(dot)(const REAL *restrict x, const REAL *restrict y, int64_t n)
{
    enum { PARTS = 16 };
    REAL part[PARTS] = {0};
    int64_t j = 0;
    for (; j + PARTS <= n; j += PARTS) {
        for (int k = 0; k < PARTS; k++) {
            part[k] += x[j + k] * y[j + k];
        }
    }
    REAL sum = 0;
    for (; j < n; j++) {
        sum += x[j] * y[j];
    }
    for (int k = 0; k < PARTS; k++) {
        sum += part[k];
    }
    return sum;
}

void NAME(cholesky)(void *const *bufs, const int64_t *vals)
{
    const int64_t n = vals[KRT_NUMBERS], checked = vals[KRT_NUMBERS + 1];
    const krt_share share = krt_own_share(vals, 2);
    for (int64_t row = share.first; row < share.last; row++) {
        const REAL *a = (const REAL *)bufs[1] + row * n * n;
        REAL *l = (REAL *)bufs[0] + row * n * n;
        int good = 1;
        for (int64_t i = 0; i < n; i++) {
            for (int64_t j = 0; j < i; j++) {
                const REAL rest = a[i * n + j] - OWN(dot)(l + i * n, l + j * n, j);
                l[i * n + j] = rest / l[j * n + j];
            }
            const REAL rest = a[i * n + i] - OWN(dot)(l + i * n, l + i * n, i);
            good &= rest > 0;
            l[i * n + i] = ROOT(rest);
            for (int64_t j = i + 1; j < n; j++) {
                l[i * n + j] = 0;
            }
        }
        if (!good && checked) {
            krt_fail(bufs[2], row);
        }
    }
}

/*
 * Factors in place, with the order of the rows in `order`, and in `taken`, if it is given, which
 * row each step exchanged its own with, from 1; whether no pivot is 0 or NaN.
 */
static int OWN(factor)(REAL *a, REAL *order, REAL *taken, int64_t m, int64_t n)
{
    int good = 1;
    for (int64_t i = 0; i < m; i++) {
        order[i] = (REAL)i;
    }
    for (int64_t k = 0; k < m && k < n; k++) {
        int64_t best = k;
        REAL top = SIZE(a[k * n + k]);
        for (int64_t i = k + 1; i < m; i++) {
            const REAL size = SIZE(a[i * n + k]);
            if (size > top) {
                top = size;
                best = i;
            }
        }
        if (taken) {
            taken[k] = (REAL)(best + 1);
        }
        if (best != k) {
            for (int64_t j = 0; j < n; j++) {
                const REAL held = a[k * n + j];
                a[k * n + j] = a[best * n + j];
                a[best * n + j] = held;
            }
            const REAL held = order[k];
            order[k] = order[best];
            order[best] = held;
        }
        const REAL pivot = a[k * n + k];
        if (!(SIZE(pivot) > 0)) {
            good = 0;
            if (pivot == 0) {
                continue;
            }
        }
        for (int64_t i = k + 1; i < m; i++) {
            const REAL f = a[i * n + k] / pivot;
            a[i * n + k] = f;
            OWN(take)(a + i * n + k + 1, a + k * n + k + 1, f, n - k - 1);
        }
    }
    return good;
}

void NAME(lu)(void *const *bufs, const int64_t *vals)
{
    const int64_t m = vals[KRT_NUMBERS], n = vals[KRT_NUMBERS + 1];
    const krt_share share = krt_own_share(vals, 2);
    for (int64_t row = share.first; row < share.last; row++) {
        REAL *out = (REAL *)bufs[0] + row * (m * n + m + (m < n ? m : n));
        memcpy(out, (const REAL *)bufs[1] + row * m * n, (size_t)(m * n) * sizeof *out);
        OWN(factor)(out, out + m * n, out + m * n + m, m, n);
    }
}

void NAME(exchange)(void *const *bufs, const int64_t *vals)
{
    const int64_t *number = vals + KRT_NUMBERS;
    const int64_t n = number[0], m = number[1], steps = number[2];
    const krt_share share = krt_own_share(vals, 4);
    for (int64_t row = share.first; row < share.last; row++) {
        const REAL *taken = (const REAL *)bufs[1] + row * steps;
        REAL *x = (REAL *)bufs[0] + row * n * m;
        memcpy(x, (const REAL *)bufs[2] + row * n * m, (size_t)(n * m) * sizeof *x);
        for (int64_t step = 0; step < steps; step++) {
            const int64_t k = number[3] ? steps - 1 - step : step;
            if (k >= n || !(taken[k] >= 1) || taken[k] > (REAL)n) {
                continue; /* data that are no exchange of rows */
            }
            REAL *one = x + k * m, *other = x + ((int64_t)taken[k] - 1) * m;
            for (int64_t j = 0; j < m; j++) {
                const REAL held = one[j];
                one[j] = other[j];
                other[j] = held;
            }
        }
    }
}

/* X = A^-1 X of a triangle of A, n rows of m numbers. */
static void OWN(substitute)(const REAL *a, REAL *x, int64_t n, int64_t m, int upper, int unit)
{
    for (int64_t step = 0; step < n; step++) {
        const int64_t i = upper ? n - 1 - step : step;
        const int64_t first = upper ? i + 1 : 0, last = upper ? n : i;
        for (int64_t k = first; k < last; k++) {
            OWN(take)(x + i * m, x + k * m, a[i * n + k], m);
        }
        if (!unit) {
            const REAL pivot = a[i * n + i];
            for (int64_t j = 0; j < m; j++) {
                x[i * m + j] /= pivot;
            }
        }
    }
}

void NAME(solve)(void *const *bufs, const int64_t *vals)
{
    const int64_t n = vals[KRT_NUMBERS], m = vals[KRT_NUMBERS + 1];
    const int64_t checked = vals[KRT_NUMBERS + 2];
    const krt_share share = krt_own_share(vals, 3);
    for (int64_t row = share.first; row < share.last; row++) {
        REAL *x = (REAL *)bufs[0] + row * (n * m + n * n + n);
        REAL *factors = x + n * m, *order = factors + n * n;
        const REAL *b = (const REAL *)bufs[2] + row * n * m;
        memcpy(factors, (const REAL *)bufs[1] + row * n * n, (size_t)(n * n) * sizeof *x);
        if (!OWN(factor)(factors, order, NULL, n, n) && checked) {
            krt_fail(bufs[3], row);
        }
        for (int64_t i = 0; i < n; i++) {
            memcpy(x + i * m, b + (int64_t)order[i] * m, (size_t)m * sizeof *x);
        }
        OWN(substitute)(factors, x, n, m, 0, 1);
        OWN(substitute)(factors, x, n, m, 1, 0);
    }
}

void NAME(triangular)(void *const *bufs, const int64_t *vals)
{
    const int64_t *number = vals + KRT_NUMBERS;
    const int64_t n = number[0], m = number[1];
    const krt_share share = krt_own_share(vals, 4);
    for (int64_t row = share.first; row < share.last; row++) {
        REAL *x = (REAL *)bufs[0] + row * n * m;
        memcpy(x, (const REAL *)bufs[2] + row * n * m, (size_t)(n * m) * sizeof *x);
        OWN(substitute)((const REAL *)bufs[1] + row * n * n, x, n, m, (int)number[2],
                        (int)number[3]);
    }
}

/*
 * A vector v with v[0] = 1 and a factor, so that x - factor * v (v . x) has but its first number,
 * which is returned (Householder, 1958). v takes the place of x. Scaled, so that no square is
 * beyond the type.
 */
static REAL OWN(reflect)(REAL *x, int64_t n, REAL *factor)
{
    REAL top = 0;
    for (int64_t i = 1; i < n; i++) {
        const REAL size = SIZE(x[i]);
        top = size > top || size != size ? size : top;
    }
    const REAL first = x[0];
    *factor = 0;
    if (top == 0) {
        x[0] = 1;
        return first;
    }
    top = SIZE(first) > top ? SIZE(first) : top;
    REAL squares = 0;
    for (int64_t i = 0; i < n; i++) {
        const REAL part = x[i] / top;
        squares += part * part;
    }
    const REAL length = -SIGNED(top * ROOT(squares), first);
    const REAL head = first - length;
    for (int64_t i = 1; i < n; i++) {
        x[i] /= head;
    }
    x[0] = 1;
    *factor = -head / length;
    return length;
}

void NAME(qr)(void *const *bufs, const int64_t *vals)
{
    const int64_t *number = vals + KRT_NUMBERS;
    const int64_t m = number[0], n = number[1], k = number[2];
    const int64_t steps = m < n ? m : n, wide = m > n ? m : n;
    const krt_share share = krt_own_share(vals, 3);
    for (int64_t row = share.first; row < share.last; row++) {
        REAL *q = (REAL *)bufs[0] + row * (m * k + k * n + (m + 1) * wide + steps);
        REAL *r = q + m * k, *a = r + k * n, *v = a + m * n, *factors = v + wide;
        memcpy(a, (const REAL *)bufs[1] + row * m * n, (size_t)(m * n) * sizeof *a);
        /* Below the diagonal stand the vectors, whose first number is 1. */
        for (int64_t j = 0; j < steps; j++) {
            for (int64_t i = j; i < m; i++) {
                v[i - j] = a[i * n + j];
            }
            const REAL head = OWN(reflect)(v, m - j, factors + j);
            const int64_t rest = n - j - 1;
            REAL *own = r + j * n; /* which is written last */
            for (int64_t c = 0; c < rest; c++) {
                own[j + 1 + c] = 0;
            }
            for (int64_t i = j; i < m; i++) {
                OWN(take)(own + j + 1, a + i * n + j + 1, -v[i - j], rest);
            }
            for (int64_t i = j; i < m; i++) {
                OWN(take)(a + i * n + j + 1, own + j + 1, factors[j] * v[i - j], rest);
            }
            for (int64_t i = j + 1; i < m; i++) {
                a[i * n + j] = v[i - j];
            }
            a[j * n + j] = head;
        }
        for (int64_t i = 0; i < k; i++) {
            for (int64_t j = 0; j < n; j++) {
                r[i * n + j] = i <= j && i < m ? a[i * n + j] : 0;
            }
        }
        for (int64_t i = 0; i < m; i++) {
            for (int64_t j = 0; j < k; j++) {
                q[i * k + j] = i == j;
            }
        }
        for (int64_t j = steps - 1; j >= 0; j--) {
            for (int64_t c = 0; c < k; c++) {
                v[c] = 0;
            }
            for (int64_t i = j; i < m; i++) {
                OWN(take)(v, q + i * k, i == j ? -1 : -a[i * n + j], k);
            }
            for (int64_t i = j; i < m; i++) {
                OWN(take)(q + i * k, v, factors[j] * (i == j ? 1 : a[i * n + j]), k);
            }
        }
    }
}

/* Rows x and y become c x - s y and s x + c y. */
static inline void OWN(rotate)(REAL *restrict x, REAL *restrict y, REAL c, REAL s, int64_t n)
{
    for (int64_t j = 0; j < n; j++) {
        const REAL one = x[j], other = y[j];
        x[j] = c * one - s * other;
        y[j] = s * one + c * other;
    }
}

/*
 * A symmetric matrix becomes tridiagonal: d the diagonal, e beside it, and v the rows of the
 * transformation, V A V^T (Martin, Reinsch and Wilkinson, 1968).
 */
static void OWN(tridiagonal)(REAL *v, REAL *d, REAL *e, int64_t n)
{
    /* Row i keeps its vector in v[i][0..i-1], the last one first reduced; factors in d. */
    for (int64_t i = n - 1; i > 0; i--) {
        REAL *x = v + i * n;
        REAL top = 0, squares = 0;
        for (int64_t k = 0; k < i; k++) {
            top = SIZE(x[k]) > top || x[k] != x[k] ? SIZE(x[k]) : top;
        }
        REAL rest = 0;
        for (int64_t k = 0; k < i - 1; k++) {
            rest += SIZE(x[k]);
        }
        if (i == 1 || rest == 0) {
            e[i] = x[i - 1];
            d[i] = 0;
            continue;
        }
        for (int64_t k = 0; k < i; k++) {
            x[k] /= top;
            squares += x[k] * x[k];
        }
        const REAL length = -SIGNED(ROOT(squares), x[i - 1]);
        e[i] = top * length;
        const REAL half = squares - x[i - 1] * length; /* u . u / 2 */
        x[i - 1] -= length;
        d[i] = half;
        /* p = A u / half, in e[0..i-1]; the lower triangle of A alone is there. */
        for (int64_t k = 0; k < i; k++) {
            e[k] = 0;
        }
        for (int64_t k = 0; k < i; k++) {
            const REAL *restrict a = v + k * n;
            e[k] += OWN(dot)(a, x, k) + a[k] * x[k];
            OWN(take)(e, a, -x[k], k);
        }
        REAL overlap = 0;
        for (int64_t k = 0; k < i; k++) {
            e[k] /= half;
            overlap += e[k] * x[k];
        }
        overlap /= 2 * half;
        for (int64_t k = 0; k < i; k++) {
            e[k] -= overlap * x[k];
        }
        for (int64_t k = 0; k < i; k++) {
            REAL *restrict a = v + k * n;
            const REAL f = x[k], g = e[k];
            for (int64_t j = 0; j <= k; j++) {
                a[j] -= f * e[j] + g * x[j];
            }
        }
    }
    /* e[i] for i > 0 was written where p stood before: only e[i] itself, which p never reaches. */
    for (int64_t i = 0; i < n; i++) {
        const REAL half = i > 0 ? d[i] : 0;
        REAL *x = v + i * n;
        d[i] = x[i];
        if (half != 0) {
            /* Rows 0..i-1 of V, so far that of the leading part, times 1 - u u^T / half. */
            for (int64_t k = 0; k < i; k++) {
                REAL *restrict own = v + k * n;
                const REAL f = OWN(dot)(own, x, i) / half;
                OWN(take)(own, x, f, i);
            }
        }
        for (int64_t k = 0; k < i; k++) {
            x[k] = 0;
            v[k * n + i] = 0;
        }
        x[i] = 1;
    }
    for (int64_t i = 1; i < n; i++) {
        e[i - 1] = e[i];
    }
    e[n - 1] = 0;
}

/* The values of a tridiagonal matrix by QL steps with shifts, rotating the rows of v along. */
static int OWN(ql)(REAL *v, REAL *d, REAL *e, int64_t n)
{
    enum { MOST_TURNS = 60 };
    for (int64_t low = 0; low < n; low++) {
        for (int turn = 0;; turn++) {
            int64_t m = low;
            for (; m < n - 1; m++) {
                const REAL near = SIZE(d[m]) + SIZE(d[m + 1]);
                if (SIZE(e[m]) <= EPSILON * near) {
                    break;
                }
            }
            if (m == low) {
                break;
            }
            if (turn == MOST_TURNS) {
                return 0;
            }
            REAL g = (d[low + 1] - d[low]) / (2 * e[low]);
            REAL r = HYPOT(g, 1);
            g = d[m] - d[low] + e[low] / (g + SIGNED(r, g));
            REAL s = 1, c = 1, p = 0;
            int64_t i = m - 1;
            for (; i >= low; i--) {
                const REAL f = s * e[i], b = c * e[i];
                r = HYPOT(f, g);
                e[i + 1] = r;
                if (r == 0) {
                    d[i + 1] -= p;
                    e[m] = 0;
                    break;
                }
                s = f / r;
                c = g / r;
                g = d[i + 1] - p;
                r = (d[i] - g) * s + 2 * c * b;
                p = s * r;
                d[i + 1] = g + p;
                g = c * r - b;
                OWN(rotate)(v + i * n, v + (i + 1) * n, c, s, n);
            }
            if (r == 0 && i >= low) {
                continue;
            }
            d[low] -= p;
            e[low] = g;
            e[m] = 0;
        }
    }
    return 1;
}

/* Rows of v, and w with them, in the order of values. */
static void OWN(order)(REAL *d, REAL *v, int64_t n, REAL *w, int64_t width, int descending)
{
    for (int64_t i = 0; i < n - 1; i++) {
        int64_t best = i;
        for (int64_t j = i + 1; j < n; j++) {
            if (descending ? d[j] > d[best] : d[j] < d[best]) {
                best = j;
            }
        }
        if (best == i) {
            continue;
        }
        REAL held = d[i];
        d[i] = d[best];
        d[best] = held;
        for (int64_t j = 0; j < n; j++) {
            held = v[i * n + j];
            v[i * n + j] = v[best * n + j];
            v[best * n + j] = held;
        }
        for (int64_t j = 0; w && j < width; j++) {
            held = w[i * width + j];
            w[i * width + j] = w[best * width + j];
            w[best * width + j] = held;
        }
    }
}

void NAME(eigh)(void *const *bufs, const int64_t *vals)
{
    const int64_t n = vals[KRT_NUMBERS];
    const krt_share share = krt_own_share(vals, 1);
    for (int64_t row = share.first; row < share.last; row++) {
        const REAL *a = (const REAL *)bufs[1] + row * n * n;
        REAL *v = (REAL *)bufs[0] + row * (n * n + 2 * n), *d = v + n * n, *e = d + n;
        int good = 1;
        REAL top = 0;
        for (int64_t i = 0; i < n; i++) {
            for (int64_t j = 0; j <= i; j++) {
                good &= a[i * n + j] - a[i * n + j] == 0;
                top = SIZE(a[i * n + j]) > top ? SIZE(a[i * n + j]) : top;
            }
        }
        const REAL scale = top > 0 ? top : 1; /* no square is beyond the type */
        for (int64_t i = 0; i < n; i++) {
            for (int64_t j = 0; j <= i; j++) {
                v[i * n + j] = a[i * n + j] / scale;
            }
        }
        if (good) {
            OWN(tridiagonal)(v, d, e, n);
            good = OWN(ql)(v, d, e, n);
        }
        if (!good) {
            for (int64_t i = 0; i < n * n + n; i++) {
                v[i] = (REAL)NAN;
            }
            krt_fail(bufs[2], row);
            continue;
        }
        OWN(order)(d, v, n, NULL, 0, 0);
        for (int64_t i = 0; i < n; i++) {
            d[i] *= scale;
        }
    }
}

/* One-sided rotations of the rows of u until they are orthogonal (Hestenes, 1958). */
static int OWN(orthogonal)(REAL *u, REAL *v, int64_t m, int64_t n)
{
    enum { MOST_SWEEPS = 60 };
    const REAL tolerance = ROOT((REAL)(m + 3)) * EPSILON;
    REAL most = 0;
    for (int64_t p = 0; p < n; p++) {
        const REAL size = OWN(dot)(u + p * m, u + p * m, m);
        most = size > most ? size : most;
    }
    /* Rows that rounding alone has left count as zeros, and turn no others. */
    const REAL share = (REAL)(m + 3) * EPSILON, least = most * share * share;
    for (int sweep = 0; sweep < MOST_SWEEPS; sweep++) {
        int rotated = 0;
        for (int64_t p = 0; p < n - 1; p++) {
            for (int64_t q = p + 1; q < n; q++) {
                REAL *x = u + p * m, *y = u + q * m;
                const REAL a = OWN(dot)(x, x, m), b = OWN(dot)(y, y, m), c = OWN(dot)(x, y, m);
                if (!(SIZE(c) > tolerance * ROOT(a) * ROOT(b)) || SIZE(c) < LEAST) {
                    continue;
                }
                if (a <= least || b <= least) {
                    continue;
                }
                rotated = 1;
                const REAL z = (b - a) / (2 * c);
                const REAL t = SIGNED(1, z) / (SIZE(z) + HYPOT(1, z));
                const REAL cosine = 1 / HYPOT(1, t), sine = cosine * t;
                OWN(rotate)(x, y, cosine, sine, m);
                OWN(rotate)(v + p * n, v + q * n, cosine, sine, n);
            }
        }
        if (!rotated) {
            return 1;
        }
    }
    return 0;
}

/* A unit vector that is orthogonal to the first `count` rows of u, in the place of row `count`. */
static void OWN(complete)(REAL *u, int64_t count, int64_t m)
{
    REAL *x = u + count * m;
    for (int64_t axis = 0; axis < m; axis++) {
        for (int64_t j = 0; j < m; j++) {
            x[j] = j == axis;
        }
        for (int twice = 0; twice < 2; twice++) {
            for (int64_t i = 0; i < count; i++) {
                OWN(take)(x, u + i * m, OWN(dot)(x, u + i * m, m), m);
            }
        }
        const REAL length = ROOT(OWN(dot)(x, x, m));
        if (length * length * (REAL)(4 * m) > 1) {
            for (int64_t j = 0; j < m; j++) {
                x[j] /= length;
            }
            return;
        }
    }
}

void NAME(svd)(void *const *bufs, const int64_t *vals)
{
    const int64_t m = vals[KRT_NUMBERS], n = vals[KRT_NUMBERS + 1];
    const krt_share share = krt_own_share(vals, 2);
    for (int64_t row = share.first; row < share.last; row++) {
        const REAL *a = (const REAL *)bufs[1] + row * n * m;
        REAL *u = (REAL *)bufs[0] + row * (n * m + n + n * n), *d = u + n * m, *v = d + n;
        REAL top = 0;
        int good = 1;
        for (int64_t i = 0; i < n * m; i++) {
            good &= a[i] - a[i] == 0;
            top = SIZE(a[i]) > top ? SIZE(a[i]) : top;
        }
        const REAL scale = top > 0 ? top : 1;
        for (int64_t i = 0; i < n * m; i++) {
            u[i] = a[i] / scale;
        }
        for (int64_t i = 0; i < n; i++) {
            for (int64_t j = 0; j < n; j++) {
                v[i * n + j] = i == j;
            }
        }
        if (!good || !OWN(orthogonal)(u, v, m, n)) {
            for (int64_t i = 0; i < n * m + n + n * n; i++) {
                u[i] = (REAL)NAN;
            }
            krt_fail(bufs[2], row);
            continue;
        }
        for (int64_t i = 0; i < n; i++) {
            d[i] = ROOT(OWN(dot)(u + i * m, u + i * m, m));
        }
        OWN(order)(d, v, n, u, m, 1);
        const REAL least = d[0] * (REAL)(m + 3) * EPSILON;
        for (int64_t i = 0; i < n; i++) {
            if (d[i] > least) {
                for (int64_t j = 0; j < m; j++) {
                    u[i * m + j] /= d[i];
                }
            } else {
                OWN(complete)(u, i, m);
            }
            d[i] *= scale;
        }
    }
}
