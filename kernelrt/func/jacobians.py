"""Jacobians in reverse and forward mode, and Hessians."""

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
    """Return a function that computes the Jacobian matrix of `f` by rows (reverse mode).

    The graph has one backward pass, batched over the elements of an output. Prefer this function if
    there are fewer outputs than inputs.

    Parameters
    ----------
    f : callable
        Function of tensors, or of dicts, lists, tuples and dataclasses of tensors, that returns
        tensors or nested tensors.
    argnums : int or tuple of int
        Positions of the arguments to differentiate by.
    has_aux : bool
        Whether `f` returns a pair of its output and an auxiliary output.

    Returns
    -------
    callable
        Takes the arguments of `f`. Returns one tensor for each pair of an output tensor and an
        argument tensor, nested like the output, then like the argument. Its shape is that of the
        output tensor followed by that of the argument tensor. If `argnums` is a tuple, each output
        tensor has a tuple with one entry per argument. With `has_aux`, the result is a pair of
        these data and the auxiliary output.

    Raises
    ------
    GradientError
        During a call: an argument to differentiate by, or an output, is not of floats.
    VariableError
        A size of an output is known only at run time.

    Examples
    --------
    >>> krt.func.jacrev(lambda x: x * x)(krt.tensor([1.0, 2.0])).tolist()
    [[2.0, 0.0], [0.0, 4.0]]
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
        return (found, level.untagged(aux)) if has_aux else found

    return rows


def jacfwd(
    f: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """Return a function that computes the Jacobian matrix of `f` by columns (forward mode).

    Like :func:`jacrev`. Prefer this function if there are fewer inputs than outputs.

    Parameters
    ----------
    f, argnums, has_aux
        As in :func:`jacrev`.

    Returns
    -------
    callable
        Takes the arguments of `f`. Returns data of the shapes and nesting of :func:`jacrev`.

    Raises
    ------
    GradientError
        During a call: an argument to differentiate by, or an output, is not of floats.
    VariableError
        During a call: a size of an argument is known only at run time.

    Examples
    --------
    >>> powers = lambda x: krt.stack([x, x**2, x**3])
    >>> krt.func.jacfwd(powers)(krt.tensor(2.0)).tolist()
    [1.0, 4.0, 12.0]
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
        return (found, level.untagged(aux)) if has_aux else found

    return columns


#: Alias of jacrev, as in JAX.
jacobian = jacrev


def hessian(f: Callable[..., Any], argnums: Argnums = 0) -> Callable[..., Any]:
    """Return a function that computes the Hessian matrix of `f`: ``jacfwd(jacrev(f))``.

    Parameters
    ----------
    f : callable
        Function of tensors or nested tensors that returns a tensor, usually of shape ().
    argnums : int or tuple of int
        Positions of the arguments to differentiate by.

    Returns
    -------
    callable
        Takes the arguments of `f`. Returns data nested like the output, then like the argument,
        then like the argument again.

    Examples
    --------
    >>> krt.func.hessian(lambda x: x.prod())(krt.tensor([1.0, 2.0, 3.0])).tolist()
    [[0.0, 3.0, 2.0], [3.0, 0.0, 1.0], [2.0, 1.0, 0.0]]
    """
    return jacfwd(jacrev(f, argnums), argnums)


def _shape(tensor: Tensor, name: str) -> tuple[int, ...]:
    if not is_static(tensor.dims):
        raise VariableError(
            f"{name}: the shape {format_shape(tensor.dims)} is known only at run time, but a "
            "Jacobian has a row or a column for each element; use tensors of fixed shapes"
        )
    return cast("tuple[int, ...]", tensor.dims)


def _units(shape: tuple[int, ...], dtype: DType) -> UOp:
    """Return the unit tensors of a shape: one for each element, 1 there and 0 elsewhere."""
    n = math.prod(shape)
    square = (n, n)
    hit = build.iota_along(square, 0).eq(build.iota_along(square, 1))
    return build.reshape(hit.cast(dtype), (n, *shape))


def _rows(level: Level, output: Tensor, points: Sequence[Tensor]) -> list[UOp]:
    """Return the derivatives of one output by each of `points`."""
    shape = _shape(output, "jacrev")
    whole = [(*shape, *p.dims) for p in points]
    count = math.prod(shape)
    if count == 0:
        return [build.full(0, p.dtype, s) for p, s in zip(points, whole, strict=True)]
    if count == 1:
        nodes = level.with_zeros(
            level.gradients([output], [build.full(1, output.dtype, shape)]), points
        )
        return [build.reshape(n, s) for n, s in zip(nodes, whole, strict=True)]
    seed = mark(build.full(0, output.dtype, shape), Leaf())
    pulled = level.with_zeros(level.gradients([output], [seed]), points)
    units = _units(shape, output.dtype)
    nodes = batched(pulled, {seed: units}, count)
    return [build.reshape(n, s) for n, s in zip(nodes, whole, strict=True)]


def _columns(level: Level, outputs: Sequence[Tensor], points: Sequence[Tensor]) -> list[list[UOp]]:
    """Return, for each of `points`, the derivatives of all outputs by it."""
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
    """Move the axes of the inputs behind those of the output."""
    rank = len(columns.shape)
    moved = build.permute(columns, (*range(1, rank), 0))
    return build.reshape(moved, (*output.dims, *shape))
