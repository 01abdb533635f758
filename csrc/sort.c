/*
 * Stable argsort by radix sort.
 *
 * Keys are unsigned; the graph converts other types to unsigned keys of the same order. A row of
 * the result contains the positions in ascending order of their keys, followed by the workspace.
 */
#include "sort.h"

#include <string.h>

enum {
    BITS = 8,
    DIGITS = 1 << BITS
};

/* Replace counts by the start of each digit. Return 1 if all keys have the same digit. */
static int starts(int64_t *count, int64_t n)
{
    int64_t sum = 0;
    for (int d = 0; d < DIGITS; d++) {
        const int64_t here = count[d];
        if (here == n) {
            return 1;
        }
        count[d] = sum;
        sum += here;
    }
    return 0;
}

/* Sort words of a key (upper half) and its position (lower half); equal keys stay in order. */
static void sort_words(uint64_t *restrict a, uint64_t *restrict b, int64_t n)
{
    enum { PASSES = 4 };
    int64_t count[PASSES][DIGITS] = {{0}};
    for (int64_t i = 0; i < n; i++) {
        for (int pass = 0; pass < PASSES; pass++) {
            count[pass][a[i] >> (32 + BITS * pass) & (DIGITS - 1)]++;
        }
    }
    uint64_t *from = a, *to = b;
    for (int pass = 0; pass < PASSES; pass++) {
        if (starts(count[pass], n)) {
            continue;
        }
        for (int64_t i = 0; i < n; i++) {
            to[count[pass][from[i] >> (32 + BITS * pass) & (DIGITS - 1)]++] = from[i];
        }
        uint64_t *swapped = from;
        from = to;
        to = swapped;
    }
    if (from != a) {
        memcpy(a, from, (size_t)n * sizeof *a);
    }
}

void krt_argsort_u32(void *const *bufs, const int64_t *vals)
{
    const int64_t n = vals[KRT_NUMBERS];
    const krt_share share = krt_own_share(vals, 1, 1);
    for (int64_t row = share.first; row < share.last; row++) {
        const uint32_t *restrict keys = (const uint32_t *)bufs[1] + row * n;
        uint64_t *words = (uint64_t *)bufs[0] + row * 2 * n;
        for (int64_t i = 0; i < n; i++) {
            words[i] = (uint64_t)keys[i] << 32 | (uint64_t)i;
        }
        sort_words(words, words + n, n);
        for (int64_t i = 0; i < n; i++) {
            words[i] &= UINT32_MAX;
        }
    }
}

/* Sort keys and positions in separate arrays, each with its own workspace. */
static void sort_pairs(uint64_t *keys, uint64_t *positions, uint64_t *keys2, uint64_t *positions2,
                       int64_t n)
{
    enum { PASSES = 8 };
    int64_t count[PASSES][DIGITS] = {{0}};
    for (int64_t i = 0; i < n; i++) {
        for (int pass = 0; pass < PASSES; pass++) {
            count[pass][keys[i] >> (BITS * pass) & (DIGITS - 1)]++;
        }
    }
    uint64_t *result = positions;
    for (int pass = 0; pass < PASSES; pass++) {
        if (starts(count[pass], n)) {
            continue;
        }
        for (int64_t i = 0; i < n; i++) {
            const int64_t at = count[pass][keys[i] >> (BITS * pass) & (DIGITS - 1)]++;
            keys2[at] = keys[i];
            positions2[at] = positions[i];
        }
        uint64_t *swapped = keys;
        keys = keys2;
        keys2 = swapped;
        swapped = positions;
        positions = positions2;
        positions2 = swapped;
    }
    if (positions != result) {
        memcpy(result, positions, (size_t)n * sizeof *positions);
    }
}

void krt_argsort_u64(void *const *bufs, const int64_t *vals)
{
    const int64_t n = vals[KRT_NUMBERS];
    const krt_share share = krt_own_share(vals, 1, 1);
    for (int64_t row = share.first; row < share.last; row++) {
        const uint64_t *restrict given = (const uint64_t *)bufs[1] + row * n;
        uint64_t *positions = (uint64_t *)bufs[0] + row * 4 * n, *keys = positions + n;
        for (int64_t i = 0; i < n; i++) {
            positions[i] = (uint64_t)i;
            keys[i] = given[i];
        }
        sort_pairs(keys, positions, keys + n, keys + 2 * n, n);
    }
}
