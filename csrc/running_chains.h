/* Included by running_body.h for floats and for 64-bit integers: products and recurrences. */

/* Return the result after y: a product, or if it `recurs`, the next of the recurrence. */
COPIED SUM NAME(after)(SUM y, SUM factor, SUM term, const int recurs)
{
    const SUM before = recurs && factor == 0 ? 0 : y;
    return recurs ? factor * before + term : before * term;
}

/* Compute `width` columns of n rows, which are `along` elements apart. */
COPIED void NAME(down)(const ELEMENT *a, const ELEMENT *b, ELEMENT *out, int64_t n,
                       const int64_t width, const int64_t along)
{
    SUM y[STRIP];
    for (int64_t j = 0; j < width; j++) {
        y[j] = b[j];
        out[j] = b[j];
    }
    for (int64_t i = along; i != n * along; i += along) {
        const ELEMENT *restrict factors = a ? a + i : NULL, *restrict terms = b + i;
        ELEMENT *restrict to = out + i;
        for (int64_t j = 0; j < width; j++) {
            y[j] = NAME(after)(y[j], a ? factors[j] : 0, terms[j], a != NULL);
            to[j] = (ELEMENT)y[j];
        }
    }
}

/* Compute four rows in turn, so that none waits for another. */
COPIED void NAME(across)(const ELEMENT *a, const ELEMENT *b, ELEMENT *out, int64_t n,
                         const int reverse)
{
    /*
     * Rows of the copies compete for no lines of the cache, even if n is a power of two. Copies in
     * the type of sums are converted as vectors, and comparing with 0 takes no branch.
     */
    SUM factors[FOUR][TILE], x[FOUR][TILE];
    SUM y[FOUR];
#pragma GCC unroll 4
    for (int j = 0; j < FOUR; j++) {
        y[j] = b[j * n];
        out[j * n] = b[j * n];
    }
    for (int64_t start = 1; start < n; start += TILE) {
        const int size = n - start < TILE ? (int)(n - start) : TILE;
        const int64_t lowest = reverse ? 1 - start - size : start;
        for (int j = 0; j < FOUR; j++) {
            for (int k = 0; k < size; k++) {
                x[j][k] = b[lowest + j * n + k];
            }
            for (int k = 0; a && k < size; k++) {
                factors[j][k] = a[lowest + j * n + k];
            }
        }
        for (int i = 0; i < size; i++) {
            const int k = reverse ? size - 1 - i : i;
#pragma GCC unroll 4
            for (int j = 0; j < FOUR; j++) {
                x[j][k] = y[j] = NAME(after)(y[j], a ? factors[j][k] : 0, x[j][k], a != NULL);
            }
        }
        for (int j = 0; j < FOUR; j++) {
            for (int k = 0; k < size; k++) {
                out[lowest + j * n + k] = (ELEMENT)x[j][k];
            }
        }
    }
}

COPIED void NAME(chains)(const ELEMENT *a, const ELEMENT *b, ELEMENT *out, const int64_t *vals,
                         const size_t count)
{
    const int64_t n = vals[KRT_NUMBERS], inner = vals[KRT_NUMBERS + 1];
    const int reverse = a && vals[KRT_NUMBERS + 2] != 0;
    const int64_t strips = (inner + STRIP - 1) / STRIP, end = reverse ? (n - 1) * inner : 0;
    /* Contiguous rows are shared in groups. */
    const int64_t rows = inner > 1 ? 1 : FOUR, parts = (vals[0] + rows - 1) / rows * strips;
    const krt_share share = krt_share_of(vals, count, parts);
    for (int64_t part = share.first; part < share.last && n > 0; part++) {
        const int64_t row = part / strips * rows, column = part % strips * STRIP;
        const int64_t first = row * n * inner + end + column;
        const int64_t width = inner - column < STRIP ? inner - column : STRIP;
        /* Reversed, a row is multiplied by the factors of the row after it. */
        const ELEMENT *factors = a ? a + first + (reverse ? inner : 0) : NULL;
        if (inner > 1) {
            NAME(down)(factors, b + first, out + first, n, width, reverse ? -inner : inner);
        } else if (vals[0] - row >= FOUR) {
            if (reverse) {
                NAME(across)(factors, b + first, out + first, n, 1);
            } else {
                NAME(across)(factors, b + first, out + first, n, 0);
            }
        } else {
            for (int64_t k = first; k < vals[0] * n; k += n) {
                NAME(down)(a ? factors + (k - first) : NULL, b + k, out + k, n, 1, reverse ? -1 : 1);
            }
        }
    }
}

static void NAME(krt_cumprod)(void *const *bufs, const int64_t *vals)
{
    NAME(chains)(NULL, bufs[1], bufs[0], vals, 2);
}

#if FLOATS
static void NAME(krt_recurrence)(void *const *bufs, const int64_t *vals)
{
    NAME(chains)(bufs[1], bufs[2], bufs[0], vals, 3);
}
#endif
