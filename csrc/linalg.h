/*
 * Linear algebra of small matrices. Each routine exists in single and in double precision, with the
 * suffix _f32 or _f64. Brackets list its numbers.
 *
 *   cholesky    [n, checked] A -> L (n * n): A = L L^T, reads the lower triangle; workspace:
 *               n rows. May fail: not positive definite.
 *   lu          [m, n] A -> L and U in one matrix (m * n), row order (m), row exchanges that lead
 *               to it, from 1 (min(m, n)): partial pivoting.
 *   exchange    [n, m, steps, back] exchanges, B -> B (n * m) with its rows exchanged, or
 *               exchanged back.
 *   solve       [n, m, checked] A, B -> X (n * m): A X = B; workspace: n * n + n.
 *               May fail: singular.
 *   triangular  [n, m, upper, unit] A, B -> X (n * m): A X = B for a triangle of A.
 *   qr          [m, n, k] A -> Q (m * k), R (k * n); workspace: (m + 1) * max(m, n) + min(m, n).
 *   eigh        [n] A -> V (n * n, vectors in rows), ascending values (n); reads the lower
 *               triangle; workspace: 2 n + 5 rows. May fail: not finite.
 *   svd         [m, n], m >= n, A^T -> U^T (n * m), descending values (n), V^T (n * n);
 *               workspace: 3 n + 10 rows and, if m > n, n * m + n more. May fail: not finite.
 *
 * Matrices are row-major. A row of a result contains all outputs of a problem, one after the other.
 * A row of workspace has n numbers, rounded up to a multiple of KRT_BLOCK. Workspace in rows of up
 * to KRT_FRAME numbers is on the stack; a larger one follows the outputs, with KRT_BLOCK more
 * numbers for alignment.
 */
#ifndef KRT_LINALG_H
#define KRT_LINALG_H

#include "routines.h"

enum { KRT_BLOCK = 16, KRT_FRAME = 4096 };

/*
 * The table of all routines in a version for vectors of `bits` bits: 128, 256 or 512. An entry
 * without a name ends it. NULL: this processor does not support the version.
 */
const krt_named *krt_linalg(int bits);

#endif
