"""Gradients, VJPs and JVPs of functions."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from kernelrt.errors import DTypeError, GradientError, ShapeError, a_type
from kernelrt.func.levels import Level, called, check_like, floats_of
from kernelrt.func.trees import flatten, leaves_of, rebuilt
from kernelrt.ir.shape import format_shape
from kernelrt.tensor import Tensor, state
from kernelrt.tensor.autograd.tags import Leaf, mark
from kernelrt.tensor.nodes import build

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kernelrt.ir import UOp

__all__ = ["Argnums", "entering", "grad", "grad_and_value", "jvp", "linearize", "push",
           "value_and_grad", "vjp"]  # fmt: skip

Argnums = int | tuple[int, ...]


def entering(
    level: Level, args: Sequence[Any], argnums: Argnums, name: str
) -> tuple[list[Any], Any]:
    """Tag the arguments to differentiate by; return all arguments, and the tagged ones alone."""
    several = isinstance(argnums, tuple)
    positions = argnums if isinstance(argnums, tuple) else (argnums,)
    given, chosen = list(args), []
    for i in positions:
        if isinstance(i, bool) or not isinstance(i, int):
            raise DTypeError(f"argnums: expected an int or a tuple of ints, not {argnums!r}")
        if not -len(args) <= i < len(args):
            raise ShapeError(
                f"argnums: position {i} is out of range, as {name} was called with {len(args)} "
                "positional arguments"
            )
        if not positions or len({p % len(args) for p in positions}) < len(positions):
            raise ShapeError(f"argnums: expected each position at most once, not {argnums}")
        given[i] = level.tagged(args[i], f"argument {i % len(args)}")
        chosen.append(given[i])
    if not chosen:
        raise ShapeError("argnums: expected at least one position, not an empty tuple")
    return given, tuple(chosen) if several else chosen[0]


def grad_and_value(
    f: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """Return a function that computes the gradient and the value of `f`.

    Parameters
    ----------
    f : callable
        Function of tensors, or of dicts, lists, tuples and dataclasses of tensors, that returns a
        floating-point tensor of shape ().
    argnums : int or tuple of int
        Positions of the arguments to differentiate by.
    has_aux : bool
        Whether `f` returns a pair of that tensor and an auxiliary output, which is passed on.

    Returns
    -------
    callable
        Takes the arguments of `f`. Returns ``(gradient, value)``, or ``(gradient, (value, aux))``.
        The gradient is nested like the argument; a tuple of gradients if `argnums` is a tuple. It
        is zero for tensors that the value does not depend on.

    Raises
    ------
    GradientError
        During a call: `f` returns more than one element or no floats, or an argument to
        differentiate by is not of floats.
    DTypeError
        The result of `f`, or an argument to differentiate by, is not a tensor.

    Examples
    --------
    >>> gradient, value = krt.func.grad_and_value(lambda x: (x * x).sum())(krt.tensor([1.0, 3.0]))
    >>> gradient.tolist(), value.item()
    ([2.0, 6.0], 10.0)
    """

    @functools.wraps(f)
    def gradient_and_value(*args: Any, **kwargs: Any) -> Any:
        level = Level("grad")
        given, chosen = entering(level, args, argnums, "the function")
        out, aux = called(f, given, kwargs, "grad", has_aux)
        if not isinstance(out, Tensor):
            raise DTypeError(
                f"grad: the function returns {a_type(out)}; expected a Tensor of shape "
                "(), or, with has_aux=True, a pair of such a Tensor and an auxiliary output"
            )
        (value,) = floats_of(out, "the function's result")
        if value.ndim:
            raise GradientError(
                f"grad: the function returns shape {format_shape(value.dims)}; expected a tensor "
                "of shape (), as from loss.mean(); use jacrev for other shapes"
            )
        seed = build.full(1, value.dtype, ())
        points = leaves_of(chosen)
        nodes = level.with_zeros(level.gradients([value], [seed]), points)
        gradients = rebuilt(chosen, level.tensors(nodes))
        return gradients, level.untagged((out, aux) if has_aux else out)

    return gradient_and_value


def value_and_grad(
    f: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """Return a function that computes the value and the gradient of `f`, as in JAX.

    Like :func:`grad_and_value`, but with the results in the other order: ``(value, gradient)``, or
    ``((value, aux), gradient)`` with `has_aux`.

    Parameters
    ----------
    f, argnums, has_aux
        As in :func:`grad_and_value`.

    Returns
    -------
    callable
        Takes the arguments of `f`.

    Raises
    ------
    GradientError, DTypeError
        As in :func:`grad_and_value`.

    Examples
    --------
    Gradients by a nested argument have its nesting:

    >>> def loss(params, x):
    ...     return (x * params["w"] + params["b"]).sum()
    >>> params = {"w": krt.tensor(2.0), "b": krt.tensor(1.0)}
    >>> value, gradient = krt.func.value_and_grad(loss)(params, krt.tensor([1.0, 3.0]))
    >>> value.item(), gradient["w"].item(), gradient["b"].item()
    (10.0, 4.0, 2.0)
    """
    both = grad_and_value(f, argnums, has_aux)

    @functools.wraps(f)
    def value_and_gradient(*args: Any, **kwargs: Any) -> Any:
        gradients, value = both(*args, **kwargs)
        return value, gradients

    return value_and_gradient


def grad(f: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """Return a function that computes the gradient of `f`.

    Like :func:`grad_and_value`, but the value is not returned: the result is the gradient, or
    ``(gradient, aux)`` with `has_aux`.

    Parameters
    ----------
    f, argnums, has_aux
        As in :func:`grad_and_value`.

    Returns
    -------
    callable
        Takes the arguments of `f`.

    Raises
    ------
    GradientError, DTypeError
        As in :func:`grad_and_value`.

    Examples
    --------
    >>> cube = lambda x: x**3
    >>> x = krt.tensor(2.0)
    >>> krt.func.grad(cube)(x).item(), krt.func.grad(krt.func.grad(cube))(x).item()
    (12.0, 12.0)
    >>> krt.func.grad(lambda x, y: x * y, argnums=(0, 1))(x, krt.tensor(5.0))[1].item()
    2.0
    """
    both = grad_and_value(f, argnums, has_aux)

    @functools.wraps(f)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        gradients, value = both(*args, **kwargs)
        return (gradients, value[1]) if has_aux else gradients

    return gradient


def vjp(f: Callable[..., Any], *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """Return the output of `f`, and a function for vector-Jacobian products.

    Parameters
    ----------
    f : callable
        Function of tensors or nested tensors that returns tensors or nested tensors.
    *primals : Tensor or nested Tensors
        Arguments of `f`: the point of differentiation.
    has_aux : bool
        Whether `f` returns a pair of its output and an auxiliary output.

    Returns
    -------
    tuple
        ``(output, vjp_fn)``, or ``(output, vjp_fn, aux)`` with `has_aux`. ``vjp_fn(cotangents)``
        takes data nested like the output. It returns data nested like the argument of `f`, or a
        tuple of such data if `f` has several arguments.

    Raises
    ------
    GradientError
        An argument or the output is not of floats.
    ShapeError
        The nesting or a shape of the cotangents differs from that of the output.

    Examples
    --------
    >>> output, vjp_fn = krt.func.vjp(lambda x: x * x, krt.tensor([1.0, 3.0]))
    >>> output.tolist(), vjp_fn(krt.tensor([1.0, 10.0])).tolist()
    ([1.0, 9.0], [2.0, 60.0])
    """
    level = Level("vjp")
    given = [level.tagged(p, f"argument {i}") for i, p in enumerate(primals)]
    out, aux = called(f, given, {}, "vjp", has_aux)
    outputs = floats_of(out, "the function's result")

    def vjp_fn(cotangents: Any) -> Any:
        """Return the vector-Jacobian product of `cotangents`."""
        listed = flatten(cotangents, out, "cotangents")
        pairs = zip(listed, outputs, strict=True)
        seeds = [check_like(c, o, "cotangents") for c, o in pairs]
        chosen = tuple(given) if len(given) != 1 else given[0]
        points = leaves_of(chosen)
        nodes = level.with_zeros(level.gradients(outputs, seeds), points)
        return rebuilt(chosen, level.tensors(nodes))

    whole = level.untagged(out), vjp_fn
    return (*whole, level.untagged(aux)) if has_aux else whole


def push(level: Level, outputs: Sequence[Tensor]) -> Callable[[Sequence[UOp]], list[UOp]]:
    """Return a function that maps tangents of the inputs of `level` to tangents of `outputs`.

    It differentiates twice: the vector-Jacobian product is linear in the cotangents, so its
    derivative by them is the Jacobian-vector product.
    """
    sources = [mark(build.full(0, o.dtype, o.dims), Leaf()) for o in outputs]
    pulled = level.gradients(outputs, sources, hooks=False)  # hooks belong to backward passes

    def tangents_of(tangents: Sequence[UOp]) -> list[UOp]:
        second = Level.of("jvp", sources)
        pairs = [(n, t) for n, t in zip(pulled, tangents, strict=True) if n is not None]
        with state.enable_grad():
            roots = [Tensor._of(n) for n, _ in pairs]
        found = second.gradients(roots, [t for _, t in pairs])
        return second.bare(second.with_zeros(found, outputs))

    return tangents_of


def linearize(f: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """Return the output of `f`, and its derivative there as a linear function.

    Parameters
    ----------
    f : callable
        Function of tensors or nested tensors that returns tensors or nested tensors.
    *primals : Tensor or nested Tensors
        Arguments of `f`: the point of differentiation.

    Returns
    -------
    tuple
        ``(output, jvp_fn)``; ``jvp_fn(*tangents)`` takes data nested like the arguments and returns
        data nested like the output.

    Raises
    ------
    GradientError
        An argument or the output is not of floats.
    ShapeError
        The nesting or a shape of the tangents differs from that of the arguments.

    Examples
    --------
    >>> output, jvp_fn = krt.func.linearize(lambda x: x * x, krt.tensor([1.0, 3.0]))
    >>> jvp_fn(krt.tensor([1.0, 0.0])).tolist(), jvp_fn(krt.tensor([0.0, 1.0])).tolist()
    ([2.0, 0.0], [0.0, 6.0])
    """
    level = Level("linearize")
    out, outputs, tangents_of, _ = _pushing(level, f, primals, "linearize", has_aux=False)

    def jvp_fn(*tangents: Any) -> Any:
        """Return the derivative of the function in the direction of `tangents`."""
        nodes = tangents_of(_directions(tangents, primals))
        assert len(nodes) == len(outputs)
        return rebuilt(out, level.tensors(nodes))

    return level.untagged(out), jvp_fn


def jvp(
    f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], *,
    has_aux: bool = False,
) -> tuple[Any, ...]:  # fmt: skip
    """Return the output of `f`, and its derivative in a direction.

    Parameters
    ----------
    f : callable
        Function of tensors or nested tensors that returns tensors or nested tensors.
    primals : tuple
        Arguments of `f`.
    tangents : tuple
        Direction, nested like `primals`.
    has_aux : bool
        Whether `f` returns a pair of its output and an auxiliary output.

    Returns
    -------
    tuple
        ``(output, tangent)`` or ``(output, tangent, aux)``; the tangent is nested like the output.

    Raises
    ------
    GradientError
        An argument or the output is not of floats.
    ShapeError
        The nesting or a shape of the tangents differs from that of the arguments.

    Examples
    --------
    >>> x, direction = krt.tensor([1.0, 3.0]), krt.tensor([1.0, 10.0])
    >>> output, tangent = krt.func.jvp(lambda x: x * x, (x,), (direction,))
    >>> output.tolist(), tangent.tolist()
    ([1.0, 9.0], [2.0, 60.0])
    """
    for given, name in ((primals, "primals"), (tangents, "tangents")):
        if not isinstance(given, tuple | list):
            raise DTypeError(
                f"{name}: expected a tuple or list with an item for each argument, not "
                f"{type(given).__name__}"
            )
    level = Level("jvp")
    out, _, tangents_of, aux = _pushing(level, f, primals, "jvp", has_aux=has_aux)
    tangent = rebuilt(out, level.tensors(tangents_of(_directions(tangents, primals))))
    whole = level.untagged(out), tangent
    return (*whole, level.untagged(aux)) if has_aux else whole


def _pushing(
    level: Level, f: Callable[..., Any], primals: Sequence[Any], name: str, *, has_aux: bool
) -> tuple[Any, list[Tensor], Callable[[Sequence[UOp]], list[UOp]], Any]:
    given = [level.tagged(p, f"argument {i}") for i, p in enumerate(primals)]
    out, aux = called(f, given, {}, name, has_aux)
    outputs = floats_of(out, "the function's result")
    return out, outputs, push(level, outputs), aux


def _directions(tangents: Sequence[Any], primals: Sequence[Any]) -> list[UOp]:
    listed = flatten(tuple(tangents), tuple(primals), "tangents")
    pairs = zip(listed, leaves_of(tuple(primals)), strict=True)
    return [check_like(t, p, "tangents") for t, p in pairs]
