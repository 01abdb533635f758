/* Included by linalg_body.h: eigenvalues, singular values and their vectors. */

/* The maximum of `top` and the absolute values of n numbers; clears `good` if one is not finite. */
static inline REAL OWN(greatest)(const REAL *x, int64_t n, REAL top, int *good)
{
    int finite = 1;
    for (int64_t j = 0; j < n; j++) {
        finite &= x[j] - x[j] == 0;
        top = SIZE(x[j]) > top ? SIZE(x[j]) : top;
    }
    *good &= finite;
    return top;
}

/* Set n wide rows to the identity matrix. */
static void OWN(unit)(REAL *x, int64_t n, int64_t width)
{
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < width; j++) {
            x[i * width + j] = i == j;
        }
    }
}

/* Sort the values d, and wide rows of v and w (may be NULL) with them. */
static void OWN(order)(REAL *d, REAL *v, REAL *w, int64_t n, int64_t width, int descending)
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
        const REAL value = d[i];
        d[i] = d[best];
        d[best] = value;
        for (REAL *x = v; x; x = x == v ? w : NULL) {
            for (int64_t j = 0; j < width / OWN(LANES); j++) {
                const OWN(vector) held = VECTORS(x + i * width)[j];
                VECTORS(x + i * width)[j] = VECTORS(x + best * width)[j];
                VECTORS(x + best * width)[j] = held;
            }
        }
    }
}

/*
 * Reduce a symmetric matrix in wide rows to tridiagonal form: d is the diagonal, e the subdiagonal.
 * Row i of a then contains the vector of reflection i, and factors its factor; the last reflection
 * is made first (Martin, Reinsch and Wilkinson, 1968). `p` is a wide row of workspace.
 */
static void OWN(tridiagonal)(REAL *a, REAL *d, REAL *e, REAL *factors, REAL *p, int64_t n,
                             int64_t width)
{
    for (int64_t i = n - 1; i > 0; i--) {
        REAL *x = a + i * width;
        d[i] = x[i];
        /* The element to keep is the last one; `reflect` keeps the first. */
        const REAL last = x[i - 1];
        x[i - 1] = x[0];
        x[0] = last;
        e[i - 1] = OWN(reflect)(x, i, factors + i);
        const REAL first = x[i - 1];
        x[i - 1] = x[0];
        x[0] = first;
        for (int64_t j = i; j < width; j++) {
            x[j] = 0;
        }
        const REAL factor = factors[i];
        if (factor == 0) {
            continue;
        }
        const int64_t end = OWN(wide)(i);
        for (int64_t j = 0; j < end; j++) {
            p[j] = 0;
        }
        OWN(take_rows)(p, a, width, x, 1, i, end); /* -A x */
        const REAL half = factor * factor * OWN(dot_wide)(p, x, end) / 2;
        for (int64_t j = 0; j < end; j++) {
            p[j] = j < i ? -factor * p[j] + half * x[j] : 0;
        }
        for (int64_t k = 0; k < i; k++) {
            const REAL f = x[k], g = p[k];
            OWN(vector) *row = VECTORS(a + k * width);
            for (int64_t j = 0; j < end / OWN(LANES); j++) {
                row[j] -= f * VECTORS(p)[j] + g * VECTORS(x)[j];
            }
        }
    }
    d[0] = a[0];
    e[n - 1] = 0;
    factors[0] = 0;
}

/*
 * Compute the eigenvalues of a tridiagonal matrix by QL steps with shifts, and rotate the rows of v
 * with them; c and s contain the rotations of a step. Return whether it converged. The limit of
 * steps is for all values together: in graded matrices the first value takes steps that also
 * separate the others. Rotations propagate products of two numbers of e, so a number of e counts as
 * 0 if its square is close to underflow.
 */
static int OWN(ql)(REAL *v, REAL *d, REAL *e, REAL *c, REAL *s, int64_t n, int64_t width)
{
    int64_t left = MOST_QR_STEPS * n;
    for (int64_t low = 0; low < n; low++) {
        for (;;) {
            int64_t m = low;
            for (; m < n - 1; m++) {
                const REAL near = SIZE(d[m]) + SIZE(d[m + 1]);
                if (SIZE(e[m]) <= EPSILON * near || e[m] * e[m] <= LEAST / EPSILON) {
                    break;
                }
            }
            if (m == low) {
                break;
            }
            if (left-- == 0) {
                return 0;
            }
            REAL g = (d[low + 1] - d[low]) / (2 * e[low]);
            g = d[m] - d[low] + e[low] / (g + SIGNED(HYPOT(g, 1), g));
            REAL sine = 1, cosine = 1, p = 0;
            int64_t i = m - 1, count = 0;
            for (; i >= low; i--) {
                const REAL f = sine * e[i], b = cosine * e[i];
                const REAL r = OWN(length)(f, g);
                e[i + 1] = r;
                if (r == 0) {
                    d[i + 1] -= p;
                    e[m] = 0;
                    break;
                }
                sine = f / r;
                cosine = g / r;
                g = d[i + 1] - p;
                const REAL change = (d[i] - g) * sine + 2 * cosine * b;
                p = sine * change;
                d[i + 1] = g + p;
                g = cosine * change - b;
                c[count] = cosine;
                s[count++] = sine;
            }
            OWN(rotate_rows)(v + m * width, -width, c, s, count, width);
            if (i >= low) {
                continue;
            }
            d[low] -= p;
            e[low] = g;
            e[m] = 0;
        }
    }
    return 1;
}

static void NAME(eigh)(void *const *bufs, const int64_t *vals)
{
    const int64_t n = vals[KRT_NUMBERS], width = OWN(wide)(n), work = (2 * n + 5) * width;
    const int64_t size = n * n + n + krt_workspace(work);
    const krt_share share = krt_own_share(vals, 1, 1);
    ON_STACK(frame);
    for (int64_t row = share.first; row < share.last; row++) {
        const REAL *from = (const REAL *)bufs[1] + row * n * n;
        REAL *out = (REAL *)bufs[0] + row * size, *d = out + n * n;
        REAL *a = OWN(room)(frame, d + n, work), *v = a + n * width, *e = v + n * width;
        REAL *factors = e + width, *p = factors + width, *c = p + width, *s = c + width;
        int good = 1;
        REAL top = 0;
        for (int64_t i = 0; i < n; i++) {
            top = OWN(greatest)(from + i * n, i + 1, top, &good);
        }
        const REAL scale = top > 0 ? top : 1; /* so that squares do not overflow */
        for (int64_t i = 0; i < n && good; i++) {
            for (int64_t j = 0; j <= i; j++) {
                a[i * width + j] = a[j * width + i] = from[i * n + j] / scale;
            }
            for (int64_t j = n; j < width; j++) {
                a[i * width + j] = 0;
            }
        }
        if (good) {
            OWN(tridiagonal)(a, d, e, factors, p, n, width);
            OWN(unit)(v, n, width);
            good = OWN(ql)(v, d, e, c, s, n, width);
        }
        if (!good) {
            for (int64_t i = 0; i < n * n + n; i++) {
                out[i] = (REAL)NAN;
            }
            krt_fail(bufs[2], row);
            continue;
        }
        OWN(order)(d, v, NULL, n, width, 0);
        for (int64_t i = 1; i < n; i++) {
            if (factors[i] != 0) {
                OWN(reflect_rows)(v, width, n, a + i * width, factors[i], OWN(wide)(i));
            }
        }
        for (int64_t i = 0; i < n; i++) {
            d[i] *= scale;
            memcpy(out + i * n, v + i * width, (size_t)n * sizeof *out);
        }
    }
}

/*
 * Reduce a square matrix in wide rows to bidiagonal form: d is the diagonal, e the superdiagonal.
 * Column j then contains, below the diagonal, the vector of the row reflection, whose first number
 * is 1; row j contains, from e on, that of the column reflection (Golub and Kahan, 1965). u, v and
 * w are wide rows of workspace.
 */
static void OWN(bidiagonal)(REAL *a, REAL *d, REAL *e, REAL *of_rows, REAL *of_columns, REAL *u,
                            REAL *v, REAL *w, int64_t n, int64_t width)
{
    for (int64_t j = 0; j < n; j++) {
        const int64_t from = OWN(block)(j), wide = width - from;
        for (int64_t i = j; i < n; i++) {
            u[i] = a[i * width + j];
        }
        d[j] = OWN(reflect)(u + j, n - j, of_rows + j);
        for (int64_t i = j + 1; i < n; i++) {
            a[i * width + j] = u[i];
        }
        for (int64_t i = from; i < width; i++) {
            w[i] = 0;
        }
        OWN(take_rows)(w + from, a + j * width + from, width, u + j, 1, n - j, wide);
        for (int64_t i = from; i <= j; i++) {
            w[i] = 0; /* keep the stored vectors there */
        }
        OWN(take_wide)(a + j * width + from, w + from, -of_rows[j], wide);
        e[j] = of_columns[j] = 0;
        if (j + 1 == n) {
            break;
        }
        for (int64_t i = from; i < width; i++) {
            v[i] = i > j ? a[j * width + i] : 0;
        }
        e[j] = OWN(reflect)(v + j + 1, n - j - 1, of_columns + j);
        memcpy(a + j * width + j + 1, v + j + 1, (size_t)(n - j - 1) * sizeof *v);
        for (int64_t i = j + 1; i < n; i++) {
            OWN(vector) *row = VECTORS(a + i * width + from), products = {0};
            const REAL f = of_rows[j] * u[i];
            for (int64_t k = 0; k < wide / OWN(LANES); k++) {
                row[k] += f * VECTORS(w + from)[k];
                products += row[k] * VECTORS(v + from)[k];
            }
            const REAL g = of_columns[j] * OWN(total_of)(products);
            OWN(take_wide)(a + i * width + from, v + from, g, wide);
        }
    }
}

/* The shift of a step: the square of the least singular value of the last two rows. */
static REAL OWN(shift)(const REAL *d, const REAL *e, int64_t low, int64_t high)
{
    const REAL before = high - 1 > low ? e[high - 2] : 0;
    const REAL one = d[high - 1] * d[high - 1] + before * before;
    const REAL two = d[high] * d[high] + e[high - 1] * e[high - 1];
    const REAL beside = d[high - 1] * e[high - 1];
    const REAL half = (one - two) / 2;
    const REAL root = OWN(length)(half, beside);
    return beside == 0 ? two : two - beside / (half + SIGNED(root, half)) * beside;
}

/*
 * Compute the singular values of a bidiagonal matrix by QR steps with shifts (Golub and Reinsch,
 * 1970), and rotate the rows of p (left) and q (right) with them; `turns` are four wide rows for
 * the rotations of a step. Values below `tiny` count as 0. Return whether it converged.
 */
static int OWN(qr_steps)(REAL *p, REAL *q, REAL *d, REAL *e, REAL *turns, REAL tiny, int64_t n,
                         int64_t width)
{
    REAL *c = turns, *s = c + width, *left_c = s + width, *left_s = left_c + width;
    int64_t high = n - 1, left = MOST_QR_STEPS * n;
    while (high > 0) {
        int64_t low = high;
        for (; low > 0 && SIZE(e[low - 1]) > tiny; low--) {
        }
        if (low == high) {
            e[--high] = 0;
            continue;
        }
        if (left-- == 0) {
            return 0;
        }
        if (low > 0) {
            e[low - 1] = 0;
        }
        int64_t zero = low;
        for (; zero < high && SIZE(d[zero]) > tiny; zero++) {
        }
        if (zero < high) {
            /* Only the superdiagonal element of row `zero` is not 0: rotate it out to the right. */
            REAL f = e[zero];
            d[zero] = e[zero] = 0;
            for (int64_t k = zero + 1; k <= high; k++) {
                const REAL r = OWN(length)(f, d[k]);
                if (r == 0) {
                    break;
                }
                const REAL cosine = d[k] / r, sine = -f / r;
                d[k] = r;
                OWN(rotate_pair)(p + zero * width, p + k * width, cosine, sine, width);
                f = k < high ? sine * e[k] : 0;
                e[k] *= k < high ? cosine : 1;
            }
            continue;
        }
        const REAL shift = SIZE(d[high]) > tiny ? OWN(shift)(d, e, low, high) : 0;
        REAL f = d[low] - shift / d[low], g = e[low];
        for (int64_t k = low; k < high; k++) {
            REAL r = OWN(length)(f, g);
            REAL cosine = r > 0 ? f / r : 1, sine = r > 0 ? g / r : 0;
            if (k > low) {
                e[k - 1] = r;
            }
            f = cosine * d[k] + sine * e[k];
            e[k] = cosine * e[k] - sine * d[k];
            g = sine * d[k + 1];
            d[k + 1] *= cosine;
            c[k - low] = cosine;
            s[k - low] = sine;
            r = OWN(length)(f, g);
            cosine = r > 0 ? f / r : 1;
            sine = r > 0 ? g / r : 0;
            d[k] = r;
            f = cosine * e[k] + sine * d[k + 1];
            d[k + 1] = cosine * d[k + 1] - sine * e[k];
            left_c[k - low] = cosine;
            left_s[k - low] = sine;
            if (k + 1 < high) {
                g = sine * e[k + 1];
                e[k + 1] *= cosine;
            }
        }
        e[high - 1] = f;
        OWN(rotate_rows)(q + low * width, width, c, s, high - low, width);
        OWN(rotate_rows)(p + low * width, width, left_c, left_s, high - low, width);
    }
    return 1;
}

/*
 * Compute the left and right singular vectors of a in the rows of p and q, and the descending
 * values in d. Destroys a. `rest` are ten wide rows of workspace. Return whether it converged.
 */
static int OWN(square_svd)(REAL *a, REAL *p, REAL *q, REAL *d, REAL *rest, int64_t n, int64_t width)
{
    REAL *e = rest, *of_rows = e + width, *of_columns = of_rows + width;
    REAL *u = of_columns + width, *w = u + width, *v = w + width, *turns = v + width;
    OWN(bidiagonal)(a, d, e, of_rows, of_columns, u, v, w, n, width);
    OWN(unit)(p, n, width);
    OWN(unit)(q, n, width);
    REAL most = 0;
    for (int64_t i = 0; i < n; i++) {
        most = SIZE(d[i]) > most ? SIZE(d[i]) : most;
        most = SIZE(e[i]) > most ? SIZE(e[i]) : most;
    }
    if (!OWN(qr_steps)(p, q, d, e, turns, most * EPSILON, n, width)) {
        return 0;
    }
    for (int64_t i = 0; i < n; i++) {
        if (d[i] < 0) {
            d[i] = -d[i];
            for (int64_t j = 0; j < width; j++) {
                q[i * width + j] = -q[i * width + j];
            }
        }
    }
    OWN(order)(d, p, q, n, width, 1);
    for (int64_t j = n - 1; j >= 0; j--) {
        const int64_t from = OWN(block)(j);
        if (of_rows[j] != 0) {
            for (int64_t i = from; i < width; i++) {
                u[i] = i > j && i < n ? a[i * width + j] : i == j;
            }
            OWN(reflect_rows)(p + from, width, n, u + from, of_rows[j], width - from);
        }
        if (of_columns[j] != 0) {
            for (int64_t i = from; i < width; i++) {
                u[i] = i > j ? a[j * width + i] : 0;
            }
            OWN(reflect_rows)(q + from, width, n, u + from, of_columns[j], width - from);
        }
    }
    return 1;
}

/* LQ factorization of n rows of m numbers in place; stores the vectors of the reflections there. */
static void OWN(lq)(REAL *a, REAL *factors, int64_t n, int64_t m)
{
    for (int64_t j = 0; j < n; j++) {
        REAL *v = a + j * m + j;
        const REAL head = OWN(reflect)(v, m - j, factors + j);
        for (int64_t i = j + 1; i < n; i++) {
            REAL *row = a + i * m + j;
            OWN(take)(row, v, factors[j] * OWN(dot)(row, v, m - j), m - j);
        }
        v[0] = head;
    }
}

/* Apply the reflections of lq to the rows of x, of n numbers each; y gets rows of m numbers. */
static void OWN(by_lq)(REAL *y, const REAL *x, int64_t width, REAL *a, const REAL *factors,
                       int64_t n, int64_t m)
{
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < m; j++) {
            y[i * m + j] = j < n ? x[i * width + j] : 0;
        }
    }
    for (int64_t j = n - 1; j >= 0; j--) {
        REAL *v = a + j * m + j;
        v[0] = 1;
        for (int64_t i = 0; i < n && factors[j] != 0; i++) {
            REAL *row = y + i * m + j;
            OWN(take)(row, v, factors[j] * OWN(dot)(row, v, m - j), m - j);
        }
    }
}

static void NAME(svd)(void *const *bufs, const int64_t *vals)
{
    const int64_t m = vals[KRT_NUMBERS], n = vals[KRT_NUMBERS + 1], width = OWN(wide)(n);
    const int64_t tall = m > n ? n * m + n : 0, work = (3 * n + 10) * width + tall;
    const int64_t own = n * m + n + n * n, size = own + krt_workspace(work);
    const krt_share share = krt_own_share(vals, 2, 1);
    ON_STACK(frame);
    for (int64_t row = share.first; row < share.last; row++) {
        const REAL *from = (const REAL *)bufs[1] + row * n * m;
        REAL *u = (REAL *)bufs[0] + row * size, *d = u + n * m, *vt = d + n;
        REAL *a = OWN(room)(frame, u + own, work), *p = a + n * width, *q = p + n * width;
        REAL *rest = q + n * width, *wide = rest + 10 * width, *factors = wide + n * m;
        int good = 1;
        const REAL top = OWN(greatest)(from, n * m, 0, &good), scale = top > 0 ? top : 1;
        if (good && m > n) {
            for (int64_t i = 0; i < n * m; i++) {
                wide[i] = from[i] / scale;
            }
            OWN(lq)(wide, factors, n, m);
        }
        for (int64_t i = 0; i < n && good; i++) {
            for (int64_t j = 0; j < width; j++) {
                a[i * width + j] = j >= n  ? 0
                                   : m == n ? from[i * n + j] / scale
                                   : j <= i ? wide[i * m + j]
                                            : 0;
            }
        }
        if (!good || !OWN(square_svd)(a, p, q, d, rest, n, width)) {
            for (int64_t i = 0; i < own; i++) {
                u[i] = (REAL)NAN;
            }
            krt_fail(bufs[2], row);
            continue;
        }
        if (m > n) {
            OWN(by_lq)(u, q, width, wide, factors, n, m);
        }
        for (int64_t i = 0; i < n; i++) {
            d[i] *= scale;
            memcpy(vt + i * n, p + i * width, (size_t)n * sizeof *p);
            if (m == n) {
                memcpy(u + i * n, q + i * width, (size_t)n * sizeof *q);
            }
        }
    }
}
