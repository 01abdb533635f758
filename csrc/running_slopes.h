/* Included by running_body.h for floats: gradients of cumulative products. */

/* Keep a product in the elements of two rows of the result, which are `along` apart. */
COPIED void NAME(keep)(ELEMENT *out, int64_t along, SUM product)
{
    memcpy(out, &product, sizeof *out);
    if (sizeof product > sizeof *out) {
        memcpy(out + along, (char *)&product + sizeof *out, sizeof *out);
    }
}

COPIED SUM NAME(kept)(const ELEMENT *out, int64_t along)
{
    SUM product;
    memcpy(&product, out, sizeof *out);
    if (sizeof product > sizeof *out) {
        memcpy((char *)&product + sizeof *out, out + along, sizeof *out);
    }
    return product;
}

/* Compute `width` columns, at most COLUMNS, of n rows. Rows are `along` elements apart, columns
 * `step`. The first pass keeps the product before each block of rows in the result itself, whose
 * last pass runs backward, block by block. */
COPIED void NAME(slopes)(const ELEMENT *restrict x, const ELEMENT *restrict g,
                         ELEMENT *restrict out, const int64_t n, const int64_t width,
                         const int64_t along, const int64_t step)
{
    SUM before[BLOCK][COLUMNS], product[COLUMNS], y[COLUMNS];
    const int64_t first = n % BLOCK ? n % BLOCK : BLOCK; /* rows of the first block */
    for (int64_t j = 0; j < width; j++) {
        product[j] = 1;
        y[j] = 0;
    }
    for (int64_t i = 0, kept = first; i <= n - BLOCK; i++) {
        if (i == kept) {
            kept += BLOCK;
            for (int64_t j = 0; j < width; j++) {
                NAME(keep)(out + i * along + j * step, along, product[j]);
            }
        }
        for (int64_t j = 0; j < width; j++) {
            product[j] *= x[i * along + j * step];
        }
    }
    for (int64_t end = n, size; end > 0; end -= size) {
        size = end == first ? first : BLOCK;
        const int64_t start = end - size;
        for (int64_t j = 0; j < width; j++) {
            product[j] = start ? NAME(kept)(out + start * along + j * step, along) : 1;
        }
        for (int64_t k = 0; k < size; k++) {
            const ELEMENT *factors = x + (start + k) * along;
            for (int64_t j = 0; j < width; j++) {
                before[k][j] = product[j];
                product[j] *= factors[j * step];
            }
        }
        for (int64_t k = size - 1; k >= 0; k--) {
            const int64_t i = (start + k) * along;
            const int last = start + k == n - 1;
            for (int64_t j = 0; j < width; j++) {
                const int64_t at = i + j * step;
                y[j] = NAME(after)(y[j], last ? 0 : x[at + along], g[at], 1);
                out[at] = (ELEMENT)(before[k][j] * y[j]);
            }
        }
    }
}

static void NAME(krt_slopes)(void *const *bufs, const int64_t *vals)
{
    ELEMENT *out = bufs[0];
    const ELEMENT *x = bufs[1], *g = bufs[2];
    const int64_t n = vals[KRT_NUMBERS], inner = vals[KRT_NUMBERS + 1];
    const int64_t strips = (inner + STRIP - 1) / STRIP;
    /* Contiguous rows are shared in groups. */
    const int64_t rows = inner > 1 ? 1 : FOUR, parts = (vals[0] + rows - 1) / rows * strips;
    const krt_share share = krt_share_of(vals, 2, parts);
    for (int64_t part = share.first; part < share.last && n > 0; part++) {
        const int64_t row = part / strips * rows, column = part % strips * STRIP;
        const int64_t at = row * n * inner + column;
        if (inner > 1) {
            const int64_t end = inner - column < STRIP ? inner - column : STRIP;
            for (int64_t j = 0; j < end; j += COLUMNS) {
                const int64_t width = end - j < COLUMNS ? end - j : COLUMNS;
                NAME(slopes)(x + at + j, g + at + j, out + at + j, n, width, inner, 1);
            }
        } else if (vals[0] - row >= FOUR) {
            NAME(slopes)(x + at, g + at, out + at, n, FOUR, 1, n);
        } else {
            for (int64_t k = at; k < vals[0] * n; k += n) {
                NAME(slopes)(x + k, g + k, out + k, n, 1, 1, n);
            }
        }
    }
}
