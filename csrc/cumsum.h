/*
 * Cumulative sums. A problem is a matrix of n rows and `inner` columns. The routine exists for each
 * dtype, with its name as the suffix. Integers and bools give int64; they wrap around.
 *
 *   cumsum      [n, inner, reverse] X -> sums of the rows up to each row (n * inner); with
 *               reverse, from each row on.
 *
 * The order of the additions depends on n only, so all versions give the same bits, and so do rows
 * and columns. Sums of float32 and float64 are accumulated in float64:
 *
 *   - KRT_SUM_BLOCK elements form a block, KRT_SUM_TILE elements a tile.
 *   - A sum is the total of the tiles before it, plus the total of the blocks before it in the tile,
 *     plus the elements of its block up to it.
 *   - The total of the tiles is a compensated sum (Neumaier), so that the error does not grow with n.
 *
 * Each of these steps is monotone: if no element is negative, no sum is less than the one before.
 */
#ifndef KRT_CUMSUM_H
#define KRT_CUMSUM_H

#include "routines.h"

/* KRT_SUM_STRIP: columns that a thread sums at once; ir/routine.py has the same number. */
enum { KRT_SUM_BLOCK = 8, KRT_SUM_TILE = 256, KRT_SUM_STRIP = 512 };

/* The table of the version for vectors of `bits` bits, as krt_linalg. */
const krt_named *krt_cumsum(int bits);

#endif
