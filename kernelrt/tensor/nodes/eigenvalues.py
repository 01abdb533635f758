"""Eigenvalues and singular values of small matrices, as the factors of :mod:`.matrix_ops`."""

from __future__ import annotations

from kernelrt import dtype as dt
from kernelrt.ir import Op, UOp
from kernelrt.tensor.autograd.tags import custom
from kernelrt.tensor.nodes import build
from kernelrt.tensor.nodes.composite_ops import settled
from kernelrt.tensor.nodes.matrix_ops import (
    called,
    columns_times,
    eye_like,
    in_diagonal,
    matrices,
    nothing,
    part,
    product,
    transposed,
)

__all__ = ["eigh", "pseudo_inverse", "svd", "usual_tolerance"]


def _skew(x: UOp) -> UOp:
    return x.alu(Op.SUB, transposed(x))


def eigh(a: UOp) -> tuple[UOp, UOp]:
    """Ascending eigenvalues of symmetric matrices, of which the lower triangle is read; vectors."""
    n, _ = matrices(a, "eigh", square=True)
    if build.has_zero(a.shape):
        return nothing(a, n), a
    packed = called("eigh", (n,), a)
    packed = custom(packed, _eigh_rule, a, arg=n)
    return part(packed, n * n, n), transposed(part(packed, 0, n, n))


def _differences(values: UOp) -> UOp:
    """Value j less value i, and 1 on the diagonal."""
    n = values.shape[-1]
    shape = (*values.shape, n)
    own = build.expand(build.reshape(values, (*values.shape, 1)), shape)
    other = build.expand(build.reshape(values, (*values.shape[:-1], 1, n)), shape)
    axis = len(shape) - 2
    on = build.iota_along(shape, axis).eq(build.iota_along(shape, axis + 1))
    return build.where(on, 1, other.alu(Op.SUB, own))


def _over(x: UOp, divisors: UOp) -> UOp:
    """Quotients, linear in `x` also where it is 0; 0 by 0 is 0."""
    both = x.eq(build.zeros_like(x)).alu(Op.AND, divisors.eq(build.zeros_like(divisors)))
    return x.alu(Op.DIV, build.where(both, 1, divisors))


def _eigh_rule(node: UOp, g: UOp, _i: int) -> UOp:
    # Giles, Collected matrix derivative results, 2008, section 3.1, of which the symmetric part.
    n = node.arg.arg
    values, vectors = part(node, n * n, n), transposed(part(node, 0, n, n))
    of_values, of_vectors = part(g, n * n, n), transposed(part(g, 0, n, n))
    turns = build.mul(_skew(product(transposed(vectors), of_vectors)), 0.5)
    inner = _over(turns, _differences(values))
    on = eye_like(inner)
    inner = build.where(on.ne(build.zeros_like(on)), in_diagonal(of_values), inner)
    return product(vectors, inner, transposed(vectors))


def svd(a: UOp) -> tuple[UOp, UOp, UOp]:
    """U, descending singular values and V^T, with as many columns and rows as there are values."""
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
    """The share of the greatest singular value up to which others count as 0."""
    sides = matrices(x, "singular values")
    return max(sides) * (2.0**-23 if x.dtype is dt.float32 else 2.0**-52)


def pseudo_inverse(a: UOp, tolerance: UOp) -> UOp:
    """The pseudo-inverse: what singular values above `tolerance` make, one for each matrix."""
    u, s, vt = svd(a)
    limit = build.expand(build.reshape(tolerance, (*tolerance.shape, 1)), s.shape)
    one = build.full(1, s.dtype, s.shape)
    inverse = build.where(limit.alu(Op.LT, s), one.alu(Op.DIV, s), 0)
    value = product(columns_times(transposed(vt), inverse), transposed(u))
    return custom(value, _pseudo_rule, a)


def _pseudo_rule(node: UOp, g: UOp, _i: int) -> UOp:
    # Golub and Pereyra, SIAM J. Numer. Anal. 10, 1973, equation 4.12, of constant rank.
    (a,) = node.arg.inputs
    turned, back = transposed(node), transposed(g)
    k = product(back, node)
    outer = product(k, turned)
    out = outer.alu(Op.SUB, transposed(product(node, k)))
    out = out.alu(Op.SUB, product(a, node, outer))
    return out.alu(Op.ADD, product(turned, node, back.alu(Op.SUB, product(k, a))))
