/*
 * Linear algebra of small matrices, each routine in single and in double precision: its name has
 * _f32 or _f64 at the end. Numbers are those in brackets.
 *
 *   cholesky    [n, checked] A -> L (n * n): A = L L^T, of the lower triangle; works in n rows.
 *               May fail: not positive definite.
 *   lu          [m, n] A -> L and U in one (m * n), rows of A in their order (m), the exchanges
 *               that made it, from 1 (min(m, n)): partial pivoting.
 *   exchange    [n, m, steps, back] exchanges, B -> B (n * m) with its rows exchanged, or back.
 *   solve       [n, m, checked] A, B -> X (n * m): A X = B; then n * n + n to work in.
 *               May fail: singular.
 *   triangular  [n, m, upper, unit] A, B -> X (n * m) of a triangle of A.
 *   qr          [m, n, k] A -> Q (m * k), R (k * n); then (m + 1) * max(m, n) + k to work in.
 *   eigh        [n] A -> V (n * n, vectors in rows), ascending values (n), of the lower triangle;
 *               works in 2 n + 5 rows. May fail: not finite.
 *   svd         [m, n], m >= n, A^T -> U^T (n * m), descending values (n), V^T (n * n); works in
 *               3 n + 10 rows and, if m > n, n * m + n more. May fail: not finite.
 *
 * Matrices are row-major. A row of a result holds all that is asked of a problem, one after the
 * other. Where rows are said to be worked in, each has n numbers and as many more as make it a
 * multiple of KRT_BLOCK; up to KRT_FRAME numbers in all lie on the stack, and more of them behind
 * what was asked for, with KRT_BLOCK to spare.
 */
#ifndef KRT_LINALG_H
#define KRT_LINALG_H

#include "routines.h"

enum { KRT_BLOCK = 16, KRT_FRAME = 4096 };

typedef struct krt_named {
    const char *name;
    krt_routine *at;
} krt_named;

/*
 * All routines up to one without a name, in a version with vectors of so many bits: 128, 256 or 512.
 * NULL if this processor does not run it.
 */
const krt_named *krt_linalg(int bits);

#endif
