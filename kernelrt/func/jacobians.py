"""Jacobians, by rows and by columns, and Hessians."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any, cast

from kernelrt.errors import VariableError
from kernelrt.func.derivatives import Argnums, entering, push
from kernelrt.func.levels import Level, called, floats_of
from kernelrt.func.trees import leaves_of, mapped, rebuilt
from kernelrt.ir.shape import format_shape, is_static
from kernelrt.tensor.autograd.tags import Leaf, mark
from kernelrt.tensor.nodes import build
from kernelrt.tensor.tracing.batching_rules import batched

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kernelrt.dtype import DType
    from kernelrt.ir import UOp
    from kernelrt.tensor import Tensor

__all__ = ["hessian", "jacfwd", "jacobian", "jacrev"]


def jacrev(
    f: Callable[..., Any], argnums: Argnums = 0, *, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that gives the Jacobian matrix of `f`, computed by rows.

    Its graph has one backward pass for all elements of an output; it is the one for few outputs
    of many inputs.

    Parameters
    ----------
    f : callable
        A function of tensors, or of dicts, lists, tuples and dataclasses of them, that returns
        such.
    argnums : int or tuple of int
        Which arguments it is differentiated by.
    has_aux : bool
        Whether `f` returns a pair of its output and of something else.

    Returns
    -------
    callable
        Takes what `f` takes. Gives for each tensor of the output, nested as they are, and for each
        one of the argument, nested as they are, a tensor whose shape is that of the first followed
        by that of the second; with `argnums` a tuple, a tuple of them. With `has_aux` a pair of
        this and of what `f` gives beside.

    Raises
    ------
    GradientError
        When it is called: an argument that is differentiated by or an output has no floats.
    VariableError
        An output has a size that is known only at run time.

    Examples
    --------
    >>> import kernelrt as krt
    >>> krt.func.jacrev(lambda x: x * x)(krt.tensor([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 4.]])
    """

    @functools.wraps(f)
    def rows(*args: Any, **kwargs: Any) -> Any:
        level = Level("jacrev")
        given, chosen = entering(level, args, argnums, "the function")
        out, aux = called(f, given, kwargs, "jacrev", has_aux)
        floats_of(out, "the function's result")
        points = leaves_of(chosen)
        found = mapped(
            lambda output: rebuilt(chosen, level.tensors(_rows(level, output, points))), out
        )
        return (found, level.left(aux)) if has_aux else found

    return rows


def jacfwd(
    f: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that gives the Jacobian matrix of `f`, computed by columns.

    As :func:`jacrev`; it is the one for many outputs of few inputs.

    Raises
    ------
    VariableError
        When it is called: an argument has a size that is known only at run time.
    """

    @functools.wraps(f)
    def columns(*args: Any, **kwargs: Any) -> Any:
        level = Level("jacfwd")
        given, chosen = entering(level, args, argnums, "the function")
        out, aux = called(f, given, kwargs, "jacfwd", has_aux)
        outputs = floats_of(out, "the function's result")
        by_point = _columns(level, outputs, leaves_of(chosen))
        per_output = iter(zip(*by_point, strict=True))
        found = mapped(lambda _: rebuilt(chosen, level.tensors(next(per_output))), out)
        return (found, level.left(aux)) if has_aux else found

    return columns


#: As in JAX, the Jacobian matrix by rows.
jacobian = jacrev


def hessian(f: Callable[..., Any], argnums: Argnums = 0) -> Callable[..., Any]:
    """A function that gives the matrix of second derivatives of `f`: the columns of its rows.

    Parameters
    ----------
    f : callable
        A function of tensors, or of nested ones, that returns a tensor, mostly of shape ().
    argnums : int or tuple of int
        Which arguments it is differentiated by.

    Returns
    -------
    callable
        Takes what `f` takes; what it gives is nested as the output, then as the argument, then as
        the argument again.

    Examples
    --------
    >>> import kernelrt as krt
    >>> krt.func.hessian(lambda x: x.prod())(krt.tensor([1.0, 2.0, 3.0]))
    tensor([[0., 3., 2.],
            [3., 0., 1.],
            [2., 1., 0.]])
    """
    return jacfwd(jacrev(f, argnums), argnums)


def _shape(tensor: Tensor, name: str) -> tuple[int, ...]:
    if not is_static(tensor.dims):
        raise VariableError(
            f"{name}: the shape {format_shape(tensor.dims)} is known only at run time; the matrix "
            "has a row or a column for each element, so their number must be fixed"
        )
    return cast("tuple[int, ...]", tensor.dims)


def _units(shape: tuple[int, ...], dtype: DType) -> UOp:
    """For each element the tensor that is 1 there and 0 elsewhere."""
    n = math.prod(shape)
    square = (n, n)
    hit = build.iota_along(square, 0).eq(build.iota_along(square, 1))
    return build.reshape(hit.cast(dtype), (n, *shape))


def _rows(level: Level, output: Tensor, points: Sequence[Tensor]) -> list[UOp]:
    """The derivatives of one output by each of `points`."""
    shape = _shape(output, "jacrev")
    whole = [(*shape, *p.dims) for p in points]
    count = math.prod(shape)
    if count == 0:
        return [build.full(0, p.dtype, s) for p, s in zip(points, whole, strict=True)]
    if count == 1:
        nodes = level.zeros(level.flowing([output], [build.full(1, output.dtype, shape)]), points)
        return [build.reshape(n, s) for n, s in zip(nodes, whole, strict=True)]
    seed = mark(build.full(0, output.dtype, shape), Leaf())
    flown = level.zeros(level.flowing([output], [seed]), points)
    units = _units(shape, output.dtype)
    nodes = batched(flown, {seed: units}, count)
    return [build.reshape(n, s) for n, s in zip(nodes, whole, strict=True)]


def _columns(level: Level, outputs: Sequence[Tensor], points: Sequence[Tensor]) -> list[list[UOp]]:
    """For each of `points` the derivatives of all outputs by it."""
    tangents_of = push(level, outputs)
    found = []
    for i, point in enumerate(points):
        shape = _shape(point, "jacfwd")
        count = math.prod(shape)
        seeds = [build.full(0, p.dtype, p.dims) for p in points]
        if count == 0:
            found.append([build.full(0, o.dtype, (*o.dims, *shape)) for o in outputs])
            continue
        units = _units(shape, point.dtype)
        seeds[i] = mark(seeds[i], Leaf())
        columns = batched(tangents_of(seeds), {seeds[i]: units}, count)
        found.append([_last(c, o, shape) for c, o in zip(columns, outputs, strict=True)])
    return found


def _last(columns: UOp, output: Tensor, shape: tuple[int, ...]) -> UOp:
    """With the axis of the inputs behind those of the output."""
    rank = len(columns.shape)
    moved = build.permute(columns, (*range(1, rank), 0))
    return build.reshape(moved, (*output.dims, *shape))
