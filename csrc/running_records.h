/* Included by running_body.h for each dtype: maxima, minima and levels. */

#if FLOATS
#define IS_NAN(x) ((x) != (x))
#define NUMBERS(x) ((VERSION(words))((x) == (x)))
#define FIRST(x, rule) ((rule) == KRT_LEVEL ? -(ELEMENT)INFINITY : (x))
#else
#define IS_NAN(x) 0
#define NUMBERS(x) (~(VERSION(words)){0})
#define FIRST(x, rule) (x)
#endif

/* Return whether x takes the place of `best`. */
COPIED int NAME(takes)(ELEMENT x, ELEMENT best, const krt_rule rule)
{
    return (rule == KRT_LEVEL      ? x > best + 1
            : rule == KRT_GREATEST ? x >= best
                                   : x <= best) || IS_NAN(x);
}

typedef ELEMENT NAME(vector) __attribute__((vector_size(VERSION(BYTES))));
enum { NAME(GROUP) = 64 / sizeof(ELEMENT) }; /* elements that are compared at once */

/* Return whether none of GROUP elements takes the place of `best`; it may say no if one is NaN. */
COPIED int NAME(quiet)(const ELEMENT *x, ELEMENT best, const krt_rule rule)
{
    const NAME(vector) top = best + (NAME(vector)){0};
    VERSION(words) above = {0};
    uint64_t any = 0;
#pragma GCC unroll 4
    for (int i = 0; i < 64 / VERSION(BYTES); i++) {
        NAME(vector) found;
        memcpy(&found, x + (size_t)i * sizeof found / sizeof *x, sizeof found);
        above |= ~(IS_NAN(best)           ? NUMBERS(found)
                   : rule == KRT_LEVEL    ? (VERSION(words))(found <= top + 1)
                   : rule == KRT_GREATEST ? (VERSION(words))(found < top)
                                          : (VERSION(words))(found > top));
    }
#pragma GCC unroll 4
    for (size_t k = 0; k < sizeof above / sizeof any; k++) {
        any |= above[k];
    }
    return any == 0;
}

/* Store the records of n contiguous elements, or if `values` is NULL, their places. */
COPIED void NAME(line)(const ELEMENT *restrict x, ELEMENT *restrict values,
                       int64_t *restrict places, int64_t n, const krt_rule rule)
{
    ELEMENT best = FIRST(x[0], rule);
    int64_t place = 0, at = 0;
#define STORE(i)            \
    if (values) {           \
        values[i] = best;   \
    } else {                \
        places[i] = place;  \
    }
    while (at < n) {
        const int64_t end = n - at < NAME(GROUP) ? n : at + NAME(GROUP);
        if (end - at == NAME(GROUP) && NAME(quiet)(x + at, best, rule)) { /* as a rule */
            for (int k = 0; k < NAME(GROUP); k++) {
                STORE(at + k);
            }
            at = end;
        }
        for (; at < end; at++) {
            if (NAME(takes)(x[at], best, rule)) {
                best = x[at];
                place = at;
            }
            STORE(at);
        }
    }
#undef STORE
}

/* Store the records of `width` columns of n rows, which are `step` elements apart. */
COPIED void NAME(columns)(const ELEMENT *restrict x, ELEMENT *restrict values,
                          int64_t *restrict places, int64_t n, int64_t width, int64_t step,
                          const krt_rule rule)
{
    ELEMENT best[STRIP];
    int64_t place[STRIP];
    for (int64_t j = 0; j < width; j++) {
        best[j] = FIRST(x[j], rule);
        place[j] = 0;
    }
    for (int64_t i = 0; i < n; i++) {
        const ELEMENT *restrict from = x + i * step;
        if (values) {
            ELEMENT *restrict to = values + i * step;
            for (int64_t j = 0; j < width; j++) {
                best[j] = NAME(takes)(from[j], best[j], rule) ? from[j] : best[j];
                to[j] = best[j];
            }
        } else {
            int64_t *restrict to = places + i * step;
            for (int64_t j = 0; j < width; j++) {
                const int taken = NAME(takes)(from[j], best[j], rule);
                best[j] = taken ? from[j] : best[j];
                place[j] = taken ? i : place[j];
                to[j] = place[j];
            }
        }
    }
}

COPIED void NAME(records)(const ELEMENT *x, ELEMENT *values, int64_t *places, const int64_t *vals,
                          const krt_rule rule)
{
    const int64_t n = vals[KRT_NUMBERS], inner = vals[KRT_NUMBERS + 1];
    const int64_t strips = (inner + STRIP - 1) / STRIP;
    const krt_share share = krt_own_share(vals, 2, strips);
    for (int64_t part = share.first; part < share.last && n > 0; part++) {
        const int64_t column = part % strips * STRIP;
        const int64_t first = part / strips * n * inner + column;
        const int64_t width = inner - column < STRIP ? inner - column : STRIP;
        ELEMENT *to = values ? values + first : NULL;
        int64_t *place = places ? places + first : NULL;
        if (inner == 1) {
            NAME(line)(x + first, to, place, n, rule);
        } else {
            NAME(columns)(x + first, to, place, n, width, inner, rule);
        }
    }
}

#define ROUTINE(name, values, places, rule)                            \
    static void NAME(name)(void *const *bufs, const int64_t *vals)     \
    {                                                                  \
        NAME(records)(bufs[1], values, places, vals, rule);            \
    }
ROUTINE(krt_cummax, bufs[0], NULL, KRT_GREATEST)
ROUTINE(krt_cummin, bufs[0], NULL, KRT_LEAST)
ROUTINE(krt_argcummax, NULL, bufs[0], KRT_GREATEST)
ROUTINE(krt_argcummin, NULL, bufs[0], KRT_LEAST)
#if FLOATS
ROUTINE(krt_level, bufs[0], NULL, KRT_LEVEL)
#endif
#undef ROUTINE
#undef FIRST
#undef NUMBERS
#undef IS_NAN
