/* Included by cumsum_body.h for each dtype. */

/* Return x, or if it is narrower than a sum, a copy in `wide`. */
COPIED const SUM *NAME(widened)(SUM *restrict wide, const GIVEN *restrict x, int64_t n)
{
    const void *given = x;
    if (sizeof(GIVEN) < sizeof(SUM)) {
        for (int64_t i = 0; i < n; i++) {
            wide[i] = (SUM)x[i];
        }
        given = wide;
    }
    return given;
}

#if FLOATS

typedef RESULT NAME(result) __attribute__((vector_size(VERSION(N_SIDE) * sizeof(RESULT))));

/* Sum n contiguous elements, SIDE blocks at once: vector k has element k of each block. */
COPIED void NAME(line)(const GIVEN *restrict x, RESULT *restrict out, int64_t n, const int reverse)
{
    enum { SIDE = VERSION(N_SIDE), HALVES = BLOCK / SIDE, GROUP = SIDE * BLOCK };
    const int end = reverse ? 0 : BLOCK - 1, step = reverse ? -1 : 1;
    double whole = 0, rest = 0;
    for (int64_t start = 0; start < n; start += TILE) {
        const int64_t size = n - start < TILE ? n - start : TILE;
        const int64_t grouped = size / GROUP * GROUP, first = reverse ? n - start - grouped : start;
        double wide[TILE], tile = 0;
        const double *given = NAME(widened)(wide, x + first, grouped);
        RESULT *to = out + first;
        for (int64_t i = 0; i < grouped; i += GROUP) {
            VERSION(doubles) part[BLOCK], before;
            int64_t at[BLOCK];
#pragma GCC unroll 8
            for (int k = 0; k < BLOCK; k++) {
                const int64_t block = i + k % SIDE * BLOCK;
                at[k] = (reverse ? grouped - BLOCK - block : block) + k / SIDE * SIDE;
                memcpy(part + k, given + at[k], sizeof *part);
            }
#pragma GCC unroll 4
            for (int k = 0; k < HALVES; k++) {
                VERSION(transpose)(part + k * SIDE);
            }
#pragma GCC unroll 8
            for (int k = 1; k < BLOCK; k++) {
                const int j = reverse ? BLOCK - 1 - k : k;
                part[j] += part[j - step];
            }
#pragma GCC unroll 4
            for (int b = 0; b < SIDE; b++) {
                before[b] = tile;
                tile += part[end][b];
            }
#pragma GCC unroll 8
            for (int k = 0; k < BLOCK; k++) {
                part[k] = whole + ((before + part[k]) + rest);
            }
#pragma GCC unroll 4
            for (int k = 0; k < HALVES; k++) {
                VERSION(transpose)(part + k * SIDE);
            }
#pragma GCC unroll 8
            for (int k = 0; k < BLOCK; k++) {
                const NAME(result) found = __builtin_convertvector(part[k], NAME(result));
                memcpy(to + at[k], &found, sizeof found);
            }
        }
        double part = 0;
        for (int64_t i = start + grouped; i < start + size; i++) {
            const int64_t at = reverse ? n - 1 - i : i;
            part += x[at];
            out[at] = (RESULT)(whole + ((tile + part) + rest));
            if ((i + 1) % BLOCK == 0) {
                tile += part;
                part = 0;
            }
        }
        if (start + TILE < n) {
            VERSION(add_tile)(&whole, &rest, tile);
        }
    }
}

/* Sum `width` columns of n rows, which are `step` elements apart. */
static void NAME(columns)(const GIVEN *x, RESULT *out, int64_t n, int64_t width, int64_t step)
{
    double part[STRIP], tile[STRIP], whole[STRIP], rest[STRIP];
    for (int64_t j = 0; j < width; j++) {
        part[j] = tile[j] = whole[j] = rest[j] = 0;
    }
    for (int64_t i = 0; i < n; i++) {
        const GIVEN *restrict from = x + i * step;
        RESULT *restrict to = out + i * step;
        for (int64_t j = 0; j < width; j++) {
            part[j] += from[j];
            to[j] = (RESULT)(whole[j] + ((tile[j] + part[j]) + rest[j]));
        }
        if ((i + 1) % BLOCK == 0) {
            for (int64_t j = 0; j < width; j++) {
                tile[j] += part[j];
                part[j] = 0;
            }
        }
        if ((i + 1) % TILE == 0) {
            for (int64_t j = 0; j < width; j++) {
                VERSION(add_tile)(whole + j, rest + j, tile[j]);
                tile[j] = 0;
            }
        }
    }
}

#else

/* Sum n contiguous elements, a vector at once. */
COPIED void NAME(line)(const GIVEN *restrict x, RESULT *restrict out, int64_t n, const int reverse)
{
    enum { LANES = VERSION(N_LANES), LEAST = 32 }; /* shorter rows are summed one by one */
    VERSION(vector) total = {0};
    for (int64_t start = 0; start < n; start += TILE) {
        const int64_t size = n - start < TILE ? n - start : TILE;
        const int64_t grouped = size < LEAST ? 0 : size / LANES * LANES;
        const int64_t first = reverse ? n - start - grouped : start;
        uint64_t wide[TILE];
        const uint64_t *given = NAME(widened)(wide, x + first, grouped);
        uint64_t *to = out + first;
        for (int64_t i = 0; i < grouped; i += LANES) {
            const int64_t at = reverse ? grouped - LANES - i : i;
            VERSION(vector) sums;
            memcpy(&sums, given + at, sizeof sums);
            sums = VERSION(sums_of)(sums, reverse);
            const VERSION(vector) found = total + sums;
            memcpy(to + at, &found, sizeof found);
            total += VERSION(end_of)(sums, reverse);
        }
        uint64_t sum = total[0];
        for (int64_t i = start + grouped; i < start + size; i++) {
            const int64_t at = reverse ? n - 1 - i : i;
            sum += (uint64_t)x[at];
            out[at] = sum;
        }
    }
}

static void NAME(columns)(const GIVEN *x, RESULT *out, int64_t n, int64_t width, int64_t step)
{
    uint64_t sum[STRIP] = {0};
    for (int64_t i = 0; i < n; i++) {
        const GIVEN *restrict from = x + i * step;
        RESULT *restrict to = out + i * step;
        for (int64_t j = 0; j < width; j++) {
            sum[j] += (uint64_t)from[j];
            to[j] = sum[j];
        }
    }
}

#endif

static void NAME(krt_cumsum)(void *const *bufs, const int64_t *vals)
{
    const int64_t n = vals[KRT_NUMBERS], inner = vals[KRT_NUMBERS + 1];
    const int reverse = vals[KRT_NUMBERS + 2] != 0;
    const int64_t strips = (inner + STRIP - 1) / STRIP;
    const krt_share share = krt_own_share(vals, 3, strips);
    const int64_t rows = inner > 1 ? 0 : share.last - share.first;
    const GIVEN *x = bufs[1];
    RESULT *out = bufs[0];
    for (int64_t row = share.first; row < share.first + rows; row++) {
        if (reverse) {
            NAME(line)(x + row * n, out + row * n, n, 1);
        } else {
            NAME(line)(x + row * n, out + row * n, n, 0);
        }
    }
    for (int64_t part = share.first + rows; part < share.last; part++) {
        const int64_t column = part % strips * STRIP;
        const int64_t first = (part / strips * n + (reverse ? n - 1 : 0)) * inner + column;
        const int64_t width = inner - column < STRIP ? inner - column : STRIP;
        NAME(columns)(x + first, out + first, n, width, reverse ? -inner : inner);
    }
}
