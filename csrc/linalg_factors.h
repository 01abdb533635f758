/* Included by linalg_body.h: matrix factorizations and solvers. */

/* Compute L of A = L L^T element by element, for small n. Return whether A is positive definite. */
static int OWN(small_cholesky)(REAL *l, const REAL *a, int64_t n)
{
    int good = 1;
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j <= i; j++) {
            REAL rest = a[i * n + j];
            for (int64_t k = 0; k < j; k++) {
                rest -= l[i * n + k] * l[j * n + k];
            }
            good &= i != j || rest > 0;
            l[i * n + j] = i == j ? ROOT(rest) : rest / l[j * n + j];
        }
        for (int64_t j = i + 1; j < n; j++) {
            l[i * n + j] = 0;
        }
    }
    return good;
}

/*
 * The same by wide rows of U = L^T: the rows above are subtracted from a row before it is scaled.
 */
static int OWN(wide_cholesky)(REAL *l, const REAL *a, REAL *u, int64_t n, int64_t width)
{
    int good = 1;
    for (int64_t i = 0; i < n; i++) {
        REAL *own = u + i * width;
        const int64_t from = OWN(block)(i);
        for (int64_t j = from; j < width; j++) {
            own[j] = 0;
        }
        for (int64_t j = i; j < n; j++) {
            own[j] = a[j * n + i];
        }
        OWN(take_rows)(own + from, u + from, width, u + i, width, i, width - from);
        const REAL pivot = ROOT(own[i]);
        good &= own[i] > 0;
        for (int64_t j = from; j < i; j++) {
            own[j] = 0;
        }
        for (int64_t j = from; j < width; j++) {
            own[j] /= pivot;
        }
        own[i] = pivot;
    }
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < n; j++) {
            l[i * n + j] = j <= i ? u[j * width + i] : 0;
        }
    }
    return good;
}

static void NAME(cholesky)(void *const *bufs, const int64_t *vals)
{
    enum { SMALL = 8 }; /* maximum rows; measured by bench/routines.py */
    const int64_t n = vals[KRT_NUMBERS], checked = vals[KRT_NUMBERS + 1], width = OWN(wide)(n);
    const int64_t work = n * width, size = n * n + krt_workspace(work);
    const krt_share share = krt_own_share(vals, 2, 1);
    ON_STACK(frame);
    for (int64_t row = share.first; row < share.last; row++) {
        const REAL *a = (const REAL *)bufs[1] + row * n * n;
        REAL *l = (REAL *)bufs[0] + row * size;
        const int good = n <= SMALL
                             ? OWN(small_cholesky)(l, a, n)
                             : OWN(wide_cholesky)(l, a, OWN(room)(frame, l + n * n, work), n, width);
        if (!good && checked) {
            krt_fail(bufs[2], row);
        }
    }
}

/*
 * Compute the LU factors in place. `order` gets the order of the rows; `taken`, if it is given,
 * gets for each step the row that was exchanged with its own, from 1. Return whether no pivot is 0
 * or NaN.
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

static void NAME(lu)(void *const *bufs, const int64_t *vals)
{
    const int64_t m = vals[KRT_NUMBERS], n = vals[KRT_NUMBERS + 1];
    const krt_share share = krt_own_share(vals, 2, 1);
    for (int64_t row = share.first; row < share.last; row++) {
        REAL *out = (REAL *)bufs[0] + row * (m * n + m + (m < n ? m : n));
        memcpy(out, (const REAL *)bufs[1] + row * m * n, (size_t)(m * n) * sizeof *out);
        OWN(factor)(out, out + m * n, out + m * n + m, m, n);
    }
}

static void NAME(exchange)(void *const *bufs, const int64_t *vals)
{
    const int64_t *number = vals + KRT_NUMBERS;
    const int64_t n = number[0], m = number[1], steps = number[2];
    const krt_share share = krt_own_share(vals, 4, 1);
    for (int64_t row = share.first; row < share.last; row++) {
        const REAL *taken = (const REAL *)bufs[1] + row * steps;
        REAL *x = (REAL *)bufs[0] + row * n * m;
        memcpy(x, (const REAL *)bufs[2] + row * n * m, (size_t)(n * m) * sizeof *x);
        for (int64_t step = 0; step < steps; step++) {
            const int64_t k = number[3] ? steps - 1 - step : step;
            if (k >= n || !(taken[k] >= 1) || taken[k] > (REAL)n) {
                continue; /* not a valid row exchange: ignore it */
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

/* X = A^-1 X for a triangle of A; X has n rows of m numbers. */
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

static void NAME(solve)(void *const *bufs, const int64_t *vals)
{
    const int64_t n = vals[KRT_NUMBERS], m = vals[KRT_NUMBERS + 1];
    const int64_t checked = vals[KRT_NUMBERS + 2];
    const krt_share share = krt_own_share(vals, 3, 1);
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

static void NAME(triangular)(void *const *bufs, const int64_t *vals)
{
    const int64_t *number = vals + KRT_NUMBERS;
    const int64_t n = number[0], m = number[1];
    const krt_share share = krt_own_share(vals, 4, 1);
    for (int64_t row = share.first; row < share.last; row++) {
        REAL *x = (REAL *)bufs[0] + row * n * m;
        memcpy(x, (const REAL *)bufs[2] + row * n * m, (size_t)(n * m) * sizeof *x);
        OWN(substitute)((const REAL *)bufs[1] + row * n * n, x, n, m, (int)number[2],
                        (int)number[3]);
    }
}

static void NAME(qr)(void *const *bufs, const int64_t *vals)
{
    const int64_t *number = vals + KRT_NUMBERS;
    const int64_t m = number[0], n = number[1], k = number[2];
    const int64_t steps = m < n ? m : n, wide = m > n ? m : n;
    const krt_share share = krt_own_share(vals, 3, 1);
    for (int64_t row = share.first; row < share.last; row++) {
        REAL *q = (REAL *)bufs[0] + row * (m * k + k * n + (m + 1) * wide + steps);
        REAL *r = q + m * k, *a = r + k * n, *v = a + m * n, *factors = v + wide;
        memcpy(a, (const REAL *)bufs[1] + row * m * n, (size_t)(m * n) * sizeof *a);
        /* The vectors, whose first number is 1, are stored below the diagonal. */
        for (int64_t j = 0; j < steps; j++) {
            for (int64_t i = j; i < m; i++) {
                v[i - j] = a[i * n + j];
            }
            const REAL head = OWN(reflect)(v, m - j, factors + j);
            const int64_t rest = n - j - 1;
            REAL *own = r + j * n; /* workspace; row j of R is written last */
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
