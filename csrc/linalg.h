/*
 * Linear algebra of small matrices, each routine in single and in double precision.
 *
 * Matrices are row-major. A row of a result holds all that is asked of a problem, one after the
 * other, and behind it what the routine worked in. Numbers are those in brackets.
 */
#ifndef KRT_LINALG_H
#define KRT_LINALG_H

#include "routines.h"

/* [n, checked] A -> L (n * n): A = L L^T, of the lower triangle. May fail: not positive definite. */
krt_routine krt_cholesky_f32, krt_cholesky_f64;
/* [m, n] A -> L and U in one (m * n), rows of A in their order (m), the exchanges that made it,
 * from 1 (min(m, n)): partial pivoting. */
krt_routine krt_lu_f32, krt_lu_f64;
/* [n, m, steps, back] exchanges, B -> B (n * m) with its rows exchanged, or back again. */
krt_routine krt_exchange_f32, krt_exchange_f64;
/* [n, m, checked] A, B -> X (n * m): A X = B; works in n * n + n. May fail: singular. */
krt_routine krt_solve_f32, krt_solve_f64;
/* [n, m, upper, unit] A, B -> X (n * m) of a triangle of A. */
krt_routine krt_triangular_f32, krt_triangular_f64;
/* [m, n, k] A -> Q (m * k), R (k * n); works in (m + 1) * max(m, n) + k. */
krt_routine krt_qr_f32, krt_qr_f64;
/* [n] A -> V (n * n, vectors in rows), ascending values (n); works in 2 n. Of the lower triangle.
 * May fail: not finite. */
krt_routine krt_eigh_f32, krt_eigh_f64;
/* [m, n], m >= n, A^T -> U^T (n * m), descending values (n), V^T (n * n). May fail: not finite. */
krt_routine krt_svd_f32, krt_svd_f64;

#endif
