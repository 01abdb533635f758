"""einsum and the products based on it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Self, cast

from kernelrt import dtype as dt
from kernelrt.errors import DTypeError, ShapeError
from kernelrt.ir import Dim, Op, UOp
from kernelrt.ir.shape import dim_max, format_shape, format_size, same
from kernelrt.tensor.nodes import build, einsum_notation
from kernelrt.tensor.nodes.arguments import axis_of, tensor_of, whole
from kernelrt.tensor.nodes.promotion import joint_type
from kernelrt.tensor.operation import operation, operations

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.tensor.base import Operand
    from kernelrt.tensor.methods.dot_product_attention import AttentionMethods as _Below
    from kernelrt.tensor.nodes.einsum_notation import Term
    from kernelrt.tensor.tensor import Tensor
else:  # a mixin needs no base at run time, and freeing a tensor visits each base of Tensor
    _Below = object

__all__ = ["EinsumMethods", "bilinear", "chain_matmul", "contracted", "einsum", "multi_dot",
           "tensordot"]  # fmt: skip


def contracted(nodes: Sequence[UOp], inputs: Sequence[Term], output: Term) -> UOp:
    """Return the sum of the products of `nodes`, whose axes have the letters of `inputs`.

    The letters of an operand (a term) are distinct. Axes of size 1 broadcast. Operands are
    multiplied two at a time, in the order of least work. Each such product is a matrix product with
    four groups of axes: result axes that both operands have, axes of the left operand only, axes of
    the right operand only, and axes to sum over.
    """
    sizes: dict[str, Dim] = {}
    for node, term in zip(nodes, inputs, strict=True):
        for letter, d in zip(term, node.shape, strict=True):
            if same(sizes.get(letter, 1), 1):
                sizes[letter] = d
    parts = [_squeezed(node, term, sizes) for node, term in zip(nodes, inputs, strict=True)]
    path = einsum_notation.order([t for _, t in parts], output, lambda x: dim_max(sizes[x]))
    for i, j in path:
        right, left = parts.pop(j), parts.pop(i)
        needed = set(output).union(*(term for _, term in parts))
        parts.append(_pair(left, right, needed, sizes))
    ((node, term),) = parts
    return _arranged(node, term, output, sizes)


def _squeezed(node: UOp, term: Term, sizes: dict[str, Dim]) -> tuple[UOp, Term]:
    """Drop the axes of size 1 that broadcast."""
    kept = [
        a for a, letter in enumerate(term)
        if not (same(node.shape[a], 1) and not same(sizes[letter], 1))
    ]  # fmt: skip
    shape = tuple(node.shape[a] for a in kept)
    return build.reshape(node, shape), tuple(term[a] for a in kept)


def _pair(
    a: tuple[UOp, Term], b: tuple[UOp, Term], needed: set[str], sizes: dict[str, Dim]
) -> tuple[UOp, Term]:
    """Multiply two operands and sum over the axes that no other term needs."""
    (left, first), (right, second) = _alone(*a, needed | set(b[1])), _alone(*b, needed | set(a[1]))
    both = [x for x in first if x in second]
    lead = [x for x in both if x in needed]
    inner = [x for x in both if x not in needed]
    rows = [x for x in first if x not in both]
    columns = [x for x in second if x not in both]
    every = (*lead, *rows, *columns, *inner)
    shape = tuple(sizes[x] for x in every)
    factors = [_placed(left, first, every, shape), _placed(right, second, every, shape)]
    product = factors[0].alu(Op.MUL, factors[1])
    summed = range(len(every) - len(inner), len(every))
    return build.reduce(product, Op.ADD, summed), every[: len(every) - len(inner)]


def _alone(node: UOp, term: Term, needed: set[str]) -> tuple[UOp, Term]:
    """Sum over the axes that no other term has."""
    gone = [a for a, letter in enumerate(term) if letter not in needed]
    return build.reduce(node, Op.ADD, gone), tuple(x for x in term if x in needed)


def _placed(node: UOp, term: Term, every: Term, shape: build.Shape) -> UOp:
    """Permute the axes of `node` to the order of the letters `every`; expand missing axes."""
    ordered = build.permute(node, [term.index(x) for x in every if x in term])
    line = tuple(d if x in term else 1 for x, d in zip(every, shape, strict=True))
    return build.expand(build.reshape(ordered, line), shape)


def _arranged(node: UOp, term: Term, output: Term, sizes: dict[str, Dim]) -> UOp:
    node, term = _alone(node, term, set(output))
    return _placed(node, term, output, tuple(sizes.get(x, 1) for x in output))


def _diagonal(node: UOp, term: Term) -> tuple[UOp, Term]:
    """Replace axes that have the same letter by one axis, their diagonal."""
    while len(set(term)) < len(term):
        letter = next(x for x in term if term.count(x) > 1)
        first = term.index(letter)
        second = term.index(letter, first + 1)
        if not same(node.shape[first], node.shape[second]):
            raise ShapeError(
                f"einsum: {letter!r} occurs twice in an operand of shape "
                f"{format_shape(node.shape)}, but axes {first} and {second} differ in size; use "
                "two letters"
            )
        rest = [a for a in range(len(term)) if a not in (first, second)]
        node = _of_square(build.permute(node, [*rest, first, second]))
        term = (*(term[a] for a in rest), letter)
    return node, term


def _of_square(x: UOp) -> UOp:
    """Return the diagonal of the last two axes, which have equal size n.

    In row-major order, every (n + 1)-th element lies on the diagonal.
    """
    *lead, n, _ = x.shape
    if not isinstance(n, int):
        raise ShapeError(
            "einsum: a letter that occurs twice in an operand stands for an axis of size "
            f"{format_size(n)}, which is known only at run time; use a fixed size"
        )
    if n < 2:
        return build.reshape(x, (*lead, n))
    flat = build.reshape(x, (*lead, n * n))
    ends: list[tuple[Dim, Dim]] = [(0, d) for d in flat.shape]
    flat = build.pad(flat, [*[(0, 0)] * len(lead), (0, n)])
    square = build.reshape(flat, (*lead, n, n + 1))
    ends = [(0, d) for d in square.shape]
    ends[-1] = (0, 1)
    return build.reshape(build.shrink(square, ends), (*lead, n))


@operation
def einsum(*operands: object) -> Tensor:
    """Sum products of tensors over the axes that the result does not have.

    Parameters
    ----------
    *operands
        An equation and tensors, as in ``einsum("bij,bjk->bik", a, b)``: one letter for each axis of
        each operand, then the letters of the result. Without ``->`` the result has the letters that
        occur once, in alphabetical order, upper case first. ``...`` stands for all axes without
        letters, which broadcast. A letter that occurs twice in one operand selects its diagonal.
        Instead of an equation, each tensor may be followed by a list of numbers from 0 to 51, with
        the list of the result at the end.

    Returns
    -------
    Tensor
        In the promoted dtype of the operands; int64 for sums over one operand of integers or bools.

    Raises
    ------
    ShapeError
        The equation does not match the operands.
    DTypeError
        There are several operands, and all are bools; or an operand is not a tensor.

    Examples
    --------
    >>> a, b = krt.tensor([[1.0, 2.0], [3.0, 4.0]]), krt.tensor([[1.0, 0.0], [0.0, 2.0]])
    >>> krt.einsum("ij,jk->ik", a, b).tolist()
    [[1.0, 4.0], [3.0, 8.0]]
    >>> krt.einsum("ij->j", a).tolist()
    [4.0, 6.0]
    >>> krt.einsum("ii->i", a).tolist()
    [1.0, 4.0]
    """
    equation, given = einsum_notation.parse(operands)
    tensors = _tensors(given, "einsum")
    inputs, output = einsum_notation.terms(equation, [t.ndim for t in tensors])
    dtype = joint_type(t.uop for t in tensors)
    if dtype.is_bool and len(tensors) > 1:
        raise DTypeError("einsum: products of bools cannot be summed; cast them to integers")
    if len(tensors) == 1 and not dtype.is_float and not set(inputs[0]) <= set(output):
        dtype = dt.int64  # as of sum
    pairs = [_diagonal(t.uop.cast(dtype), term) for t, term in zip(tensors, inputs, strict=True)]
    _check_sizes(pairs, equation)
    return tensors[0]._of(contracted([n for n, _ in pairs], [t for _, t in pairs], output))


def _tensors(values: Sequence[object], name: str) -> list[Tensor]:
    if not values:
        raise ShapeError(f"{name}: expected at least one Tensor, not none")
    for i, value in enumerate(values):
        tensor_of(value, f"{name}: operand {i}")
    return [cast("Tensor", value) for value in values]


def _check_sizes(pairs: Sequence[tuple[UOp, Term]], equation: str) -> None:
    sizes: dict[str, tuple[Dim, int]] = {}
    for i, (node, term) in enumerate(pairs):
        for letter, d in zip(term, node.shape, strict=True):
            known, where = sizes.setdefault(letter, (d, i))
            if same(known, 1):
                sizes[letter] = (d, i)
            elif not same(d, 1) and not same(known, d):
                what = "an axis of '...'" if letter.isdigit() else f"letter {letter!r}"
                raise ShapeError(
                    f"einsum: {what} in {equation!r} has size {format_size(known)} in operand "
                    f"{where} and {format_size(d)} in operand {i}; expected equal sizes, or 1"
                )


@operation
def tensordot(
    a: Tensor, b: Tensor, dims: int | Sequence[Sequence[int]] = 2
) -> Tensor:
    """Sum products over axes of both tensors; the result has the other axes of `a`, then of `b`.

    Parameters
    ----------
    a, b : Tensor
        The operands.
    dims : int or two sequences of int, default 2
        Number n of axes to sum over: the last n of `a` and the first n of `b`. Or two lists of
        axes, one for each tensor.

    Returns
    -------
    Tensor
        Promoted dtype of the operands.

    Raises
    ------
    ShapeError
        The axes to sum over differ in number or size.
    DTypeError
        The operands are bools, or `dims` is neither an int nor two lists.

    Examples
    --------
    >>> a, b = krt.ones(2, 3, 4), krt.ones(3, 4, 5)
    >>> krt.tensordot(a, b).shape
    (2, 5)
    >>> krt.tensordot(a, b, ([1, 2], [0, 1])).tolist()
    [[12.0, 12.0, 12.0, 12.0, 12.0], [12.0, 12.0, 12.0, 12.0, 12.0]]
    """
    a, b = _tensors([a, b], "tensordot")
    count = whole(dims)
    if count is not None:
        if not 0 <= count <= min(a.ndim, b.ndim):
            raise ShapeError(
                f"dims: expected 0 to {min(a.ndim, b.ndim)} axes to sum over for shapes "
                f"{format_shape(a.dims)} and {format_shape(b.dims)}, not {count}"
            )
        first, second = list(range(a.ndim - count, a.ndim)), list(range(count))
    else:
        first, second = _axis_pairs(a, b, dims)
    letters = iter(str(n) for n in range(a.ndim + b.ndim))
    left = [next(letters) for _ in range(a.ndim)]
    right = [next(letters) for _ in range(b.ndim)]
    for i, j in zip(first, second, strict=True):
        sizes = a.dims[i], b.dims[j]
        if not same(*sizes) and not same(sizes[0], 1) and not same(sizes[1], 1):
            raise ShapeError(
                f"tensordot: axis {i} of shape {format_shape(a.dims)} and axis {j} of shape "
                f"{format_shape(b.dims)} are summed over, but differ in size; pass axes of equal "
                "size as dims"
            )
        right[j] = left[i]
    output = [x for x in left if x not in right] + [x for x in right if x not in left]
    x, y = a._factors(b, "tensordot")
    return a._of(contracted([x, y], [tuple(left), tuple(right)], tuple(output)))


def _axis_pairs(a: Tensor, b: Tensor, dims: object) -> tuple[list[int], list[int]]:
    if not isinstance(dims, tuple | list) or len(dims) != 2:
        raise DTypeError(
            f"dims: expected an int or two lists of axes, one for each tensor, not {dims!r}"
        )
    lists = [[d] if whole(d) is not None else list(d) for d in dims]
    first, second = ([axis_of(d, t.ndim) for d in ds] for ds, t in zip(lists, (a, b), strict=True))
    if len(first) != len(second) or len(set(first)) < len(first) or len(set(second)) < len(second):
        raise ShapeError(f"dims: expected two equally long lists of distinct axes, not {dims!r}")
    return first, second


@operation
def multi_dot(tensors: Sequence[Tensor]) -> Tensor:
    """Multiply matrices in the order of least work.

    The first and the last one may be vectors, used as a row and as a column.

    Parameters
    ----------
    tensors : sequence of Tensor
        At least two matrices, each with as many rows as the one before has columns.

    Returns
    -------
    Tensor
        The product, in the promoted dtype: a matrix, a vector if one end is a vector, or a scalar.

    Raises
    ------
    ShapeError
        There are fewer than two tensors, a tensor is not a matrix, or sizes do not match.
    DTypeError
        All tensors are bools.

    Examples
    --------
    >>> krt.linalg.multi_dot([krt.ones(2, 100), krt.ones(100, 3), krt.ones(3)]).tolist()
    [300.0, 300.0]
    """
    if not isinstance(tensors, tuple | list) or len(tensors) < 2:
        given = f"{len(tensors)}" if isinstance(tensors, tuple | list) else type(tensors).__name__
        raise ShapeError(f"tensors: expected a sequence of at least two tensors, not {given}")
    parts = _tensors(tensors, "multi_dot")
    for i, part in enumerate(parts):
        ends = i in (0, len(parts) - 1)
        if part.ndim != 2 and not (ends and part.ndim == 1):
            raise ShapeError(
                f"tensors[{i}]: expected a matrix{' or a vector' if ends else ''}, not shape "
                f"{format_shape(part.dims)}"
            )
    rows = parts[0].ndim == 2
    inputs: list[Term] = [(str(i), str(i + 1)) for i in range(len(parts))]
    inputs[0] = inputs[0] if rows else inputs[0][1:]
    column = parts[-1].ndim == 2
    inputs[-1] = inputs[-1] if column else inputs[-1][:1]
    for i, (a, b) in enumerate(itertools.pairwise(parts)):
        if not same(a.dims[-1], b.dims[0]):
            raise ShapeError(
                f"tensors[{i + 1}]: expected as many rows as tensors[{i}] of shape "
                f"{format_shape(a.dims)} has columns, not shape {format_shape(b.dims)}"
            )
    output = ((inputs[0][0],) if rows else ()) + ((inputs[-1][-1],) if column else ())
    dtype = joint_type(t.uop for t in parts)
    if dtype.is_bool:
        raise DTypeError("multi_dot: products of bools cannot be summed; cast them to integers")
    return parts[0]._of(contracted([t.uop.cast(dtype) for t in parts], inputs, output))


def chain_matmul(*matrices: Tensor) -> Tensor:
    """Multiply matrices; see ``linalg.multi_dot``.

    Parameters
    ----------
    *matrices : Tensor
        One or more matrices. A single one is returned unchanged.

    Returns
    -------
    Tensor
        The product, in the promoted dtype.

    Examples
    --------
    >>> krt.chain_matmul(krt.ones(1, 2), krt.ones(2, 3), krt.ones(3, 1)).tolist()
    [[6.0]]
    """
    return matrices[0] if len(matrices) == 1 else multi_dot(matrices)


@operation
def bilinear(
    input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None
) -> Tensor:
    """Return ``input1 @ weight[o] @ input2 + bias[o]`` for each o.

    Parameters
    ----------
    input1, input2 : Tensor
        Tensors of shapes (..., in1) and (..., in2).
    weight : Tensor
        Tensor of shape (out, in1, in2).
    bias : Tensor, optional
        Tensor of shape (out,).

    Returns
    -------
    Tensor
        Shape (..., out), promoted dtype.

    Raises
    ------
    ShapeError
        The shapes do not match.

    Examples
    --------
    >>> weight = krt.tensor([[[1.0], [1.0]]])
    >>> krt.bilinear(krt.tensor([[1.0, 2.0]]), krt.tensor([[3.0]]), weight).tolist()
    [[9.0]]
    """
    a, b, w = _tensors([input1, input2, weight], "bilinear")
    fits = w.ndim == 3 and a.ndim == b.ndim > 0 and build.same_shape(a.dims[:-1], b.dims[:-1])
    if not fits or not same(a.dims[-1], w.dims[1]) or not same(b.dims[-1], w.dims[2]):
        raise ShapeError(
            "bilinear: expected input1, input2 and weight of shapes (..., in1), (..., in2) and "
            f"(out, in1, in2), not of shapes {format_shape(a.dims)}, {format_shape(b.dims)} and "
            f"{format_shape(w.dims)}"
        )
    dtype = joint_type((a.uop, b.uop, w.uop))
    lead = tuple(f"lead{k}" for k in range(a.ndim - 1))
    nodes = [t.uop.cast(dtype) for t in (a, b, w)]
    terms = [(*lead, "i"), (*lead, "j"), ("o", "i", "j")]
    out = a._of(contracted(nodes, terms, (*lead, "o")))
    return out if bias is None else out + bias


@operations()
class EinsumMethods(_Below):
    """Products of tensors other than matrix products."""

    __slots__ = ()

    def inner(self, other: Operand) -> Self:
        """Sum products along the last axes of both tensors; with a scalar, multiply by it.

        Parameters
        ----------
        other : Tensor or number
            Second operand, with a last axis of the same size.

        Returns
        -------
        Tensor
            The other axes of this tensor, then those of `other`; promoted dtype.

        Raises
        ------
        ShapeError
            The last axes differ in size.
        DTypeError
            The operands are bools.

        Examples
        --------
        >>> krt.tensor([[1.0, 2.0], [3.0, 4.0]]).inner(krt.tensor([1.0, 10.0])).tolist()
        [21.0, 43.0]
        """
        right = self._lift(other, "other")
        if self.ndim == 0 or right.ndim == 0:
            return self * right
        if not same(self.dims[-1], right.dims[-1]):
            raise ShapeError(
                f"inner: expected last axes of equal size, not input of shape "
                f"{format_shape(self.dims)} and other of shape {format_shape(right.dims)}"
            )
        return cast("Self", tensordot(cast("Tensor", self), cast("Tensor", right), ([-1], [-1])))

    def vdot(self, other: Operand) -> Self:
        """Return the inner product of two vectors; see :meth:`dot`.

        Parameters
        ----------
        other : Tensor
            Vector of the same length.

        Returns
        -------
        Tensor
            Scalar, promoted dtype.

        Examples
        --------
        >>> krt.tensor([1.0, 2.0]).vdot(krt.tensor([3.0, 4.0])).item()
        11.0
        """
        return self.dot(other)

    def ger(self, vec2: Operand) -> Self:
        """Return the outer product of two vectors; see :meth:`outer`.

        Parameters
        ----------
        vec2 : Tensor
            Vector.

        Returns
        -------
        Tensor
            Shape (n, m) for vectors of n and m elements, promoted dtype.

        Examples
        --------
        >>> krt.tensor([1.0, 2.0]).ger(krt.tensor([3.0, 4.0])).tolist()
        [[3.0, 4.0], [6.0, 8.0]]
        """
        return self.outer(vec2)

    def kron(self, other: Operand) -> Self:
        """Return the Kronecker product: replace each element x of this tensor by ``x * other``.

        Parameters
        ----------
        other : Tensor
            Second factor. If the numbers of axes differ, the shorter shape is extended by leading
            axes of size 1.

        Returns
        -------
        Tensor
            The size of each axis is the product of both sizes; promoted dtype.

        Examples
        --------
        >>> krt.tensor([1, 2]).kron(krt.tensor([1, 10])).tolist()
        [1, 10, 2, 20]
        """
        right = self._lift(other, "other")
        rank = max(self.ndim, right.ndim)
        first = (*(1,) * (rank - self.ndim), *self.dims)
        second = (*(1,) * (rank - right.ndim), *right.dims)
        spread = tuple(d for pair in zip(first, (1,) * rank, strict=True) for d in pair)
        other_spread = tuple(d for pair in zip((1,) * rank, second, strict=True) for d in pair)
        product = self.reshape(spread) * right.reshape(other_spread)
        return product.reshape(
            tuple(build.volume(pair) for pair in zip(first, second, strict=True))
        )

    def cross(self, other: Operand, dim: int | None = None) -> Self:
        """Return the cross product along `dim`, by default the first axis of size 3.

        Parameters
        ----------
        other : Tensor
            Second operand, with as many axes; the other axes broadcast.
        dim : int, optional
            Axis of size 3.

        Returns
        -------
        Tensor
            Broadcast shape, promoted dtype.

        Raises
        ------
        ShapeError
            The numbers of axes differ, or there is no axis of size 3.

        Examples
        --------
        >>> krt.tensor([1, 0, 0]).cross(krt.tensor([0, 1, 0])).tolist()
        [0, 0, 1]
        """
        right = self._lift(other, "other")
        a, b = (self._of(u) for u in self._unify(("other", right)))
        if self.ndim != right.ndim:
            raise ShapeError(
                "cross: expected equal numbers of axes, not input of shape "
                f"{format_shape(self.dims)} and other of shape {format_shape(right.dims)}"
            )
        threes = [i for i, d in enumerate(a.dims) if same(d, 3)]
        if dim is None and not threes:
            raise ShapeError(
                "cross: expected an axis of size 3, but input and other have the common shape "
                f"{format_shape(a.dims)}"
            )
        axis = threes[0] if dim is None else axis_of(dim, a.ndim)
        if not same(self.dims[axis], 3) or not same(right.dims[axis], 3):
            raise ShapeError(
                f"cross: expected size 3 along axis {axis}, not input of shape "
                f"{format_shape(self.dims)} and other of shape {format_shape(right.dims)}"
            )
        x, y = (a.roll(-1, axis), b.roll(-2, axis)), (a.roll(-2, axis), b.roll(-1, axis))
        return x[0] * x[1] - y[0] * y[1]
