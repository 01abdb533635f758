"""Linear algebra of small matrices, by routines of csrc/linalg.c.

Matrices are the last two axes of nodes; other axes are batch axes. Derivatives use the same
functions, so that they have derivatives themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt import dtype as dt
from kernelrt.errors import DTypeError, GradientError, ShapeError
from kernelrt.ir import Op, UOp
from kernelrt.ir.routine import Routine
from kernelrt.ir.shape import format_shape, is_static
from kernelrt.tensor.autograd.tags import custom
from kernelrt.tensor.methods.matrix_products import matrix_product
from kernelrt.tensor.nodes import build
from kernelrt.tensor.nodes.composite_ops import settled, sign

if TYPE_CHECKING:
    from kernelrt.dtype import DType

__all__ = [
    "called", "cholesky", "columns_times", "determinant", "diagonal_of", "eigh", "exchanged",
    "eye_like", "in_diagonal", "log_determinant", "lower", "lu", "matrices", "nothing", "part",
    "permutation", "product", "pseudo_inverse", "qr", "solve", "svd", "transposed", "triangular",
    "upper", "usual_tolerance",
]  # fmt: skip


# ---- Matrices as nodes


def matrices(x: UOp, name: str, *, square: bool = False) -> tuple[int, int]:
    """Return the numbers of rows and columns; check that the routines support the matrices.

    Raises
    ------
    DTypeError
        The dtype is not float32 or float64.
    ShapeError
        There are fewer than two axes, a size is unknown, or `square` is set and the matrices are
        not square.
    """
    if x.dtype not in (dt.float32, dt.float64):
        raise DTypeError(
            f"{name}: expected float32 or float64, not {x.dtype.name}; cast the tensor, as in "
            "x.float()"
        )
    if len(x.shape) < 2 or not is_static(x.shape[-2:]):
        raise ShapeError(
            f"{name}: expected matrices with fixed sizes in the last two axes, not shape "
            f"{format_shape(x.shape)}"
        )
    rows, columns = (int(d) for d in x.shape[-2:] if isinstance(d, int))
    if square and rows != columns:
        raise ShapeError(f"{name}: expected square matrices, not shape {format_shape(x.shape)}")
    return rows, columns


def transposed(x: UOp) -> UOp:
    """Return the transposed matrices."""
    n = len(x.shape)
    return build.permute(x, [*range(n - 2), n - 1, n - 2])


def product(*factors: UOp) -> UOp:
    """Return the matrix product of all factors, evaluated from left to right."""
    out = factors[0]
    for factor in factors[1:]:
        out = matrix_product(out, factor)
    return out


def _band(x: UOp, offset: int, *, below: bool) -> UOp:
    n = len(x.shape)
    row, column = (build.iota_along(x.shape, n - 2 + k) for k in (0, 1))
    edge = build.add(row, offset)
    keep = column.alu(Op.LE, edge) if below else edge.alu(Op.LE, column)
    return build.where(keep, x, 0)


def lower(x: UOp, offset: int = 0) -> UOp:
    """Return the lower triangle, up to the diagonal `offset`."""
    return _band(x, offset, below=True)


def upper(x: UOp, offset: int = 0) -> UOp:
    """Return the upper triangle, from the diagonal `offset` on."""
    return _band(x, offset, below=False)


def eye_like(x: UOp, columns: int | None = None) -> UOp:
    """Return an identity matrix for each matrix in `x`, with the same number of rows."""
    rows = x.shape[-2]
    shape = (*x.shape[:-2], rows, x.shape[-1] if columns is None else columns)
    n = len(shape)
    same = build.iota_along(shape, n - 2).eq(build.iota_along(shape, n - 1))
    return same.cast(x.dtype)


def diagonal_of(x: UOp) -> UOp:
    """Return the diagonals of square matrices."""
    n = len(x.shape)
    on = build.iota_along(x.shape, n - 2).eq(build.iota_along(x.shape, n - 1))
    return build.reduce(build.where(on, x, 0), Op.ADD, (n - 1,))


def columns_times(x: UOp, factors: UOp) -> UOp:
    """Multiply each column by its own factor."""
    wide = build.reshape(factors, (*factors.shape[:-1], 1, factors.shape[-1]))
    return x.alu(Op.MUL, build.expand(wide, x.shape))


def in_diagonal(x: UOp) -> UOp:
    """Return diagonal matrices with the given diagonals."""
    shape = (*x.shape, x.shape[-1])
    n = len(shape)
    on = build.iota_along(shape, n - 2).eq(build.iota_along(shape, n - 1))
    wide = build.expand(build.reshape(x, (*x.shape, 1)), shape)
    return build.where(on, wide, 0)


# ---- Calls


def called(kind: str, numbers: tuple[int, ...], *operands: UOp) -> UOp:
    """Return the packed results of a routine: one row of numbers for each matrix of the batch."""
    first = operands[0]
    batch = first.shape[:-2]
    rows = build.volume(batch)
    routine = Routine(f"{kind}_f{first.dtype.bits}", rows, numbers)
    flat = [build.reshape(x, (rows, *x.shape[-2:])) for x in operands]
    return build.reshape(build.call(routine, *flat), (*batch, routine.shape[1]))


def part(packed: UOp, start: int, *shape: int) -> UOp:
    """Return a part of each row of packed results, as a matrix or vector."""
    size = 1
    for d in shape:
        size *= d
    *batch, _ = packed.shape
    bounds = [*((0, d) for d in batch), (start, start + size)]
    return build.reshape(build.shrink(packed, bounds), (*batch, *shape))


def nothing(a: UOp, *shape: int, value: int = 0) -> UOp:
    """Return the constant result for empty matrices: `shape` for each matrix of the batch."""
    return settled(build.full(value, a.dtype, (*a.shape[:-2], *shape)), a)


# ---- Cholesky


def cholesky(a: UOp, *, checked: bool = True) -> UOp:
    """Return L of ``A = L @ L.T``; only the lower triangle of A is read.

    If A is not positive definite, raise an error at run time; without `checked`, return NaN.
    """
    n, _ = matrices(a, "cholesky", square=True)
    if build.has_zero(a.shape):
        return a
    packed = called("cholesky", (n, int(checked)), a)
    return custom(part(packed, 0, n, n), _cholesky_rule, a)


def _cholesky_rule(node: UOp, g: UOp, _i: int) -> UOp:
    # Murray, arXiv:1602.07527, equation 9.
    inner = lower(product(transposed(node), lower(g)))
    half = build.mul(eye_like(inner), 0.5)
    inner = inner.alu(Op.SUB, inner.alu(Op.MUL, half))
    up = transposed(node)
    left = triangular(up, inner, is_upper=True)
    whole = transposed(triangular(up, transposed(left), is_upper=True))
    return build.mul(whole.alu(Op.ADD, transposed(whole)), 0.5)


# ---- Solutions


def solve(a: UOp, b: UOp, *, checked: bool = True) -> UOp:
    """Solve ``A @ X = B`` for X; A and B have the same batch axes."""
    n, _ = matrices(a, "solve", square=True)
    _, m = matrices(b, "solve")
    if build.has_zero(b.shape):
        return settled(b, a, b)
    packed = called("solve", (n, m, int(checked)), a, b)
    return custom(part(packed, 0, n, m), _solve_rule, a, b, arg=checked)


def _solve_rule(node: UOp, g: UOp, i: int) -> UOp:
    a, _ = node.arg.inputs
    of_b = solve(transposed(a), g, checked=node.arg.arg)
    return of_b if i else build.neg(product(of_b, transposed(node)))


def triangular(a: UOp, b: UOp, *, is_upper: bool, unit: bool = False) -> UOp:
    """Solve ``A @ X = B`` with a triangle of A; with `unit`, its diagonal counts as ones."""
    n, _ = matrices(a, "solve_triangular", square=True)
    _, m = matrices(b, "solve_triangular")
    if build.has_zero(b.shape):
        return settled(b, a, b)
    packed = called("triangular", (n, m, int(is_upper), int(unit)), a, b)
    return custom(part(packed, 0, n, m), _triangular_rule, a, b, arg=(is_upper, unit))


def _triangular_rule(node: UOp, g: UOp, i: int) -> UOp:
    (a, _), (is_upper, unit) = node.arg.inputs, node.arg.arg
    of_b = triangular(transposed(a), g, is_upper=not is_upper, unit=unit)
    if i:
        return of_b
    whole = build.neg(product(of_b, transposed(node)))
    return upper(whole, int(unit)) if is_upper else lower(whole, -int(unit))


# ---- LU and determinants


def lu(a: UOp) -> tuple[UOp, UOp, UOp]:
    """Return L (below the diagonal) and U packed in one matrix, the row order, and the pivots.

    The pivots are the rows, counted from 1, that each step swapped its own row with.
    """
    m, n = matrices(a, "lu")
    batch = a.shape[:-2]
    steps = min(m, n)
    if build.has_zero(a.shape):
        line = build.reshape(build.iota(m), (*(1,) * len(batch), m))
        return a, build.expand(line, (*batch, m)), build.full(0, dt.int64, (*batch, steps))
    packed = called("lu", (m, n), a)
    order = part(packed, m * n, m).cast(dt.int64)
    taken = part(packed, m * n + m, steps).cast(dt.int64)
    return custom(part(packed, 0, m, n), _lu_rule, a, parts=(order,)), order, taken


def exchanged(taken: UOp, b: UOp, *, back: bool = False) -> UOp:
    """Apply the row swaps `taken` of :func:`lu` to `b`; with `back`, undo them."""
    n, m = matrices(b, "lu_solve")
    if build.has_zero(b.shape) or build.has_zero(taken.shape):
        return b
    steps = taken.shape[-1]
    assert isinstance(steps, int)
    line = build.reshape(taken.cast(b.dtype), (*taken.shape, 1))
    packed = called("exchange", (n, m, steps, int(back)), line, b)
    return custom(part(packed, 0, n, m), _exchanged_rule, b, parts=(taken,), arg=back)


def _exchanged_rule(node: UOp, g: UOp, _i: int) -> UOp:
    (taken,) = node.arg.parts
    return exchanged(taken, g, back=not node.arg.arg)


def _lu_rule(node: UOp, g: UOp, _i: int) -> UOp:
    # For a fixed row order: L^-T (tril(L^T gL, -1) + triu(gU U^T)) U^-T.
    (order,) = node.arg.parts
    m, n = (int(d) for d in node.shape[-2:] if isinstance(d, int))
    if m != n:
        raise GradientError(
            f"lu: the gradient is only defined for square matrices, not {m} rows and {n} columns"
        )
    left = lower(node, -1).alu(Op.ADD, eye_like(node))
    right = upper(node)
    inner = lower(product(transposed(left), lower(g, -1)), -1)
    inner = inner.alu(Op.ADD, upper(product(upper(g), transposed(right))))
    inner = triangular(transposed(left), inner, is_upper=True, unit=True)
    rows = transposed(triangular(right, transposed(inner), is_upper=True))
    return product(transposed(permutation(order, node.dtype)), rows)


def permutation(order: UOp, dtype: DType) -> UOp:
    """Return the permutation matrix of a row order."""
    n = order.shape[-1]
    shape = (*order.shape, n)
    wide = build.expand(build.reshape(order, (*order.shape, 1)), shape)
    return wide.eq(build.iota_along(shape, len(shape) - 1)).cast(dtype)


def _parity(order: UOp, dtype: DType) -> UOp:
    """Return the sign of a permutation: 1 if it is even, -1 if it is odd."""
    n = order.shape[-1]
    shape = (*order.shape, n)
    axis = len(shape) - 2
    one = build.expand(build.reshape(order, (*order.shape, 1)), shape)
    other = build.expand(build.reshape(order, (*order.shape[:-1], 1, n)), shape)
    before = build.iota_along(shape, axis).alu(Op.LT, build.iota_along(shape, axis + 1))
    wrong = before.alu(Op.AND, other.alu(Op.LT, one)).cast(dt.int64)
    odd = build.reduce(wrong, Op.ADD, (axis, axis + 1)).alu(
        Op.AND, build.full(1, dt.int64, order.shape[:-1])
    )
    return build.sub(build.full(1, dt.int64, odd.shape), build.mul(odd, 2)).cast(dtype)


def determinant(a: UOp) -> UOp:
    """Return the determinants; up to 3 x 3 as polynomials, which are differentiable everywhere."""
    n, _ = matrices(a, "det", square=True)
    batch = a.shape[:-2]
    if build.has_zero(a.shape):
        return nothing(a, value=1)
    if n <= 3:
        return _expanded(a, tuple(range(n)), 0)
    factors, order, _ = lu(a)
    diagonal = diagonal_of(factors)
    value = build.reduce(diagonal, Op.MUL, (len(batch),)).alu(Op.MUL, _parity(order, a.dtype))
    return custom(value, _determinant_rule, a)


def _expanded(a: UOp, columns: tuple[int, ...], row: int) -> UOp:
    """Return the Laplace expansion along the rows from `row` on, for some columns."""
    *batch, _, _ = a.shape

    def element(j: int) -> UOp:
        bounds = [*((0, d) for d in batch), (row, row + 1), (j, j + 1)]
        return build.reshape(build.shrink(a, bounds), tuple(batch))

    if len(columns) == 1:
        return element(columns[0])
    total: UOp | None = None
    for k, j in enumerate(columns):
        rest = (*columns[:k], *columns[k + 1 :])
        term = element(j).alu(Op.MUL, _expanded(a, rest, row + 1))
        term = build.neg(term) if k % 2 else term
        total = term if total is None else total.alu(Op.ADD, term)
    assert total is not None
    return total


def _scaled(x: UOp, factor: UOp) -> UOp:
    """Multiply each matrix by its own factor."""
    wide = build.reshape(factor, (*factor.shape, 1, 1))
    return x.alu(Op.MUL, build.expand(wide, x.shape))


def _determinant_rule(node: UOp, g: UOp, _i: int) -> UOp:
    (a,) = node.arg.inputs
    inverse = solve(a, eye_like(a), checked=False)
    return _scaled(transposed(inverse), g.alu(Op.MUL, node))


def log_determinant(a: UOp) -> tuple[UOp, UOp]:
    """Return the sign of each determinant (0 for NaN) and the logarithm of its absolute value."""
    matrices(a, "slogdet", square=True)
    batch = a.shape[:-2]
    if build.has_zero(a.shape):
        return nothing(a, value=1), nothing(a)
    factors, order, _ = lu(a)
    diagonal = diagonal_of(factors)
    axis = (len(batch),)
    signs = build.reduce(sign(diagonal), Op.MUL, axis).alu(Op.MUL, _parity(order, a.dtype))
    sizes = build.reduce(diagonal.alu(Op.ABS).alu(Op.LOG), Op.ADD, axis)
    return custom(signs, _no_rule, a), custom(sizes, _log_rule, a)


def _no_rule(node: UOp, _g: UOp, i: int) -> UOp:
    return build.zeros_like(node.arg.inputs[i])


def _log_rule(node: UOp, g: UOp, _i: int) -> UOp:
    (a,) = node.arg.inputs
    return _scaled(transposed(solve(a, eye_like(a), checked=False)), g)


# ---- QR


def qr(a: UOp, *, complete: bool = False) -> tuple[UOp, UOp]:
    """Return Q with orthonormal columns and upper triangular R of ``A = Q @ R``."""
    m, n = matrices(a, "qr")
    steps = min(m, n)
    k = m if complete else steps
    batch = a.shape[:-2]
    if build.has_zero(batch) or steps == 0:
        return settled(eye_like(a, k), a), nothing(a, k, n)
    packed = called("qr", (m, n, k), a)
    packed = custom(packed, _qr_rule, a, arg=(m, n, k))
    return part(packed, 0, m, k), part(packed, m * k, k, n)


def _qr_rule(node: UOp, g: UOp, _i: int) -> UOp:
    (a,), (m, n, k) = node.arg.inputs, node.arg.arg
    if k > min(m, n):
        raise GradientError(
            f"qr: mode 'complete' has no gradient if there are more rows ({m}) than columns ({n}); "
            "use mode 'reduced'"
        )
    q, r = part(node, 0, m, k), part(node, m * k, k, n)
    gq, gr = part(g, 0, m, k), part(g, m * k, k, n)
    if m >= n:
        return _qr_square(q, r, gq, gr)
    # Roberts and Roberts, arXiv:2009.10071: the columns beyond the rows follow the others.
    ahead = [(0, d) for d in a.shape[:-1]]
    head, tail = (build.shrink(x, [*ahead, (0, m)]) for x in (r, gr))
    rest = build.shrink(a, [*ahead, (m, n)])
    of_rest = build.shrink(gr, [*ahead, (m, n)])
    of_q = gq.alu(Op.ADD, product(rest, transposed(of_rest)))
    parts = [_qr_square(q, head, of_q, tail), product(q, of_rest)]
    return build.cat(parts, len(a.shape) - 1)


def _qr_square(q: UOp, r: UOp, gq: UOp, gr: UOp) -> UOp:
    # Walter and Lehmann, arXiv:1001.1654: (gQ + Q sym(M)) R^-T with M = R gR^T - gQ^T Q.
    inner = product(r, transposed(upper(gr))).alu(Op.SUB, product(transposed(gq), q))
    below = lower(inner, -1)
    both = lower(inner).alu(Op.ADD, transposed(below))
    whole = gq.alu(Op.ADD, product(q, both))
    return transposed(triangular(r, transposed(whole), is_upper=True))


# ---- eigenvalues and singular values

def _skew(x: UOp) -> UOp:
    return x.alu(Op.SUB, transposed(x))


def eigh(a: UOp) -> tuple[UOp, UOp]:
    """Return ascending eigenvalues, and eigenvectors; only the lower triangles are read."""
    n, _ = matrices(a, "eigh", square=True)
    if build.has_zero(a.shape):
        return nothing(a, n), a
    packed = called("eigh", (n,), a)
    packed = custom(packed, _eigh_rule, a, arg=n)
    return part(packed, n * n, n), transposed(part(packed, 0, n, n))


def _differences(values: UOp) -> UOp:
    """Return the matrix of ``values[j] - values[i]``, with 1 on the diagonal."""
    n = values.shape[-1]
    shape = (*values.shape, n)
    own = build.expand(build.reshape(values, (*values.shape, 1)), shape)
    other = build.expand(build.reshape(values, (*values.shape[:-1], 1, n)), shape)
    axis = len(shape) - 2
    on = build.iota_along(shape, axis).eq(build.iota_along(shape, axis + 1))
    return build.where(on, 1, other.alu(Op.SUB, own))


def _over(x: UOp, divisors: UOp) -> UOp:
    """Return ``x / divisors`` with 0 / 0 = 0; it stays linear in `x`."""
    both = x.eq(build.zeros_like(x)).alu(Op.AND, divisors.eq(build.zeros_like(divisors)))
    return x.alu(Op.DIV, build.where(both, 1, divisors))


def _eigh_rule(node: UOp, g: UOp, _i: int) -> UOp:
    # Giles, Collected matrix derivative results, 2008, section 3.1; here its symmetric part.
    n = node.arg.arg
    values, vectors = part(node, n * n, n), transposed(part(node, 0, n, n))
    of_values, of_vectors = part(g, n * n, n), transposed(part(g, 0, n, n))
    turns = build.mul(_skew(product(transposed(vectors), of_vectors)), 0.5)
    inner = _over(turns, _differences(values))
    on = eye_like(inner)
    inner = build.where(on.ne(build.zeros_like(on)), in_diagonal(of_values), inner)
    return product(vectors, inner, transposed(vectors))


def svd(a: UOp) -> tuple[UOp, UOp, UOp]:
    """Return the reduced decomposition: U, descending singular values, and V^T."""
    m, n = matrices(a, "svd")
    if m < n:
        v, values, u = svd(transposed(a))
        return transposed(u), values, transposed(v)
    batch = a.shape[:-2]
    if build.has_zero(a.shape):
        square = eye_like(build.full(0, a.dtype, (*batch, n, n)))
        return nothing(a, m, n), nothing(a, n), settled(square, a)
    packed = called("svd", (m, n), transposed(a))
    packed = custom(packed, _svd_rule, a, arg=(m, n))
    u = transposed(part(packed, 0, n, m))
    return u, part(packed, n * m, n), part(packed, n * m + n, n, n)


def _svd_rule(node: UOp, g: UOp, _i: int) -> UOp:
    # Townsend, Differentiating the singular value decomposition, 2016; real, m >= n.
    m, n = node.arg.arg
    u, gu = (transposed(part(x, 0, n, m)) for x in (node, g))
    s, gs = (part(x, n * m, n) for x in (node, g))
    v, gv = (transposed(part(x, n * m + n, n, n)) for x in (node, g))
    squares = _differences(s.alu(Op.MUL, s))
    left = _over(_skew(product(transposed(u), gu)), squares)
    right = _over(_skew(product(transposed(v), gv)), squares)
    inner = columns_times(left, s).alu(Op.ADD, transposed(columns_times(transposed(right), s)))
    inner = inner.alu(Op.ADD, in_diagonal(gs))
    out = product(u, inner)
    if m > n:
        apart = gu.alu(Op.SUB, product(u, transposed(u), gu))
        wide = build.expand(build.reshape(s, (*s.shape[:-1], 1, s.shape[-1])), apart.shape)
        out = out.alu(Op.ADD, _over(apart, wide))
    return product(out, transposed(v))


def usual_tolerance(x: UOp) -> float:
    """Return the default relative tolerance below which singular values count as 0."""
    sides = matrices(x, "singular values")
    return max(sides) * (2.0**-23 if x.dtype is dt.float32 else 2.0**-52)


def pseudo_inverse(a: UOp, tolerance: UOp) -> UOp:
    """Return the pseudo-inverse from singular values above `tolerance` (a number per matrix)."""
    u, s, vt = svd(a)
    limit = build.expand(build.reshape(tolerance, (*tolerance.shape, 1)), s.shape)
    one = build.full(1, s.dtype, s.shape)
    inverse = build.where(limit.alu(Op.LT, s), one.alu(Op.DIV, s), 0)
    value = product(columns_times(transposed(vt), inverse), transposed(u))
    return custom(value, _pseudo_rule, a)


def _pseudo_rule(node: UOp, g: UOp, _i: int) -> UOp:
    # Golub and Pereyra, SIAM J. Numer. Anal. 10, 1973, equation 4.12, for constant rank.
    (a,) = node.arg.inputs
    turned, back = transposed(node), transposed(g)
    k = product(back, node)
    outer = product(k, turned)
    out = outer.alu(Op.SUB, transposed(product(node, k)))
    out = out.alu(Op.SUB, product(a, node, outer))
    return out.alu(Op.ADD, product(turned, node, back.alu(Op.SUB, product(k, a))))
