/*
 * Running products, recurrences and extremes. A problem is a matrix of n rows and `inner` columns.
 * The routines exist for the dtypes in the tables of running_body.h, with its name as the suffix.
 * All give a matrix of the same size. Elements are taken one after the other, so rows and columns
 * give the same bits. float32 is accumulated in float64; integers wrap around.
 *
 *   cumprod     [n, inner] X -> products of the rows up to each row.
 *   recurrence  [n, inner, reverse] A, B -> rows Y with Y[i] = A[i] * Y[i - 1] + B[i]; with reverse,
 *               Y[i] = A[i + 1] * Y[i + 1] + B[i], which is the adjoint. The first row, with
 *               reverse the last, is that of B. Where A is 0, the product is 0, too, even if Y is
 *               infinite or NaN.
 *   slopes      [n, inner] X, G -> gradient of the sum of G times cumprod: the product of the rows
 *               of X before each row, times the recurrence of X and G with reverse.
 *   cummax      [n, inner] X -> maxima of the rows up to each row; NaN is the greatest.
 *   cummin      [n, inner] X -> minima of the rows up to each row; NaN is the least.
 *   argcummax   [n, inner] X -> rows of these maxima, as int64; the last one of several.
 *   argcummin   [n, inner] X -> rows of these minima, as int64; the last one of several.
 *   level       [n, inner] X -> numbers that rise rarely, but are at most 1 less than the maxima:
 *               the first row, and then each element that is greater than the number before it by
 *               more than 1. NaN follows the first NaN.
 */
#ifndef KRT_RUNNING_H
#define KRT_RUNNING_H

#include "routines.h"

/* Columns that a thread works on at once; ir/routine.py has the same number. */
enum { KRT_RUN_STRIP = 512 };

/* The table of the version for vectors of `bits` bits, as krt_linalg. */
const krt_named *krt_running(int bits);

#endif
