"""Gradients, VJPs and JVPs of functions."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from kernelrt.errors import DTypeError, GradientError, ShapeError
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
    """The arguments with those under marks that are differentiated by, and these alone."""
    several = isinstance(argnums, tuple)
    places = argnums if isinstance(argnums, tuple) else (argnums,)
    given, chosen = list(args), []
    for place in places:
        if isinstance(place, bool) or not isinstance(place, int):
            raise DTypeError(f"argnums: expected a number or a tuple of them, not {argnums!r}")
        if not -len(args) <= place < len(args):
            raise ShapeError(
                f"argnums: {place} names no argument of {name}, which was called with {len(args)}"
            )
        if not places or len({p % len(args) for p in places}) < len(places):
            raise ShapeError(f"argnums: expected each argument once, not {argnums}")
        given[place] = level.entered(args[place], f"argument {place % len(args)}")
        chosen.append(given[place])
    if not chosen:
        raise ShapeError("argnums: expected at least one argument")
    return given, tuple(chosen) if several else chosen[0]


def grad_and_value(
    f: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that gives the gradient of `f` and its value.

    Parameters
    ----------
    f : callable
        A function of tensors, or of dicts, lists, tuples and dataclasses of them, that returns a
        tensor of shape () of a floating type.
    argnums : int or tuple of int
        Which arguments the gradient is taken by.
    has_aux : bool
        Whether `f` returns a pair of that tensor and of something else, which is passed on.

    Returns
    -------
    callable
        Takes what `f` takes. Gives ``(gradient, value)``, or ``(gradient, (value, aux))``. The
        gradient is nested as the argument is, and a tuple of such where `argnums` is one; zeros
        where the value does not depend on a tensor.

    Raises
    ------
    GradientError
        When it is called: `f` returns more than one element or no floats, or an argument that the
        gradient is taken by has no floats.
    DTypeError
        `f` returns no tensor, or such an argument is none.
    """

    @functools.wraps(f)
    def gradient_and_value(*args: Any, **kwargs: Any) -> Any:
        level = Level("grad")
        given, chosen = entering(level, args, argnums, "the function")
        out, aux = called(f, given, kwargs, "grad", has_aux)
        if not isinstance(out, Tensor):
            raise DTypeError(
                f"grad: the function returns a {type(out).__name__}; expected a Tensor of shape "
                "(), and with has_aux=True a pair of it and something else"
            )
        (value,) = floats_of(out, "the function's result")
        if value.ndim:
            raise GradientError(
                f"grad: the function returns shape {format_shape(value.dims)}; it has to return a "
                "tensor of shape (), as of loss.mean(); see jacrev for others"
            )
        seed = build.full(1, value.dtype, ())
        points = leaves_of(chosen)
        nodes = level.zeros(level.flowing([value], [seed]), points)
        slopes = rebuilt(chosen, level.tensors(nodes))
        return slopes, level.left((out, aux) if has_aux else out)

    return gradient_and_value


def value_and_grad(
    f: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that gives the value of `f` and its gradient, as JAX has it.

    As :func:`grad_and_value`, the other way round: ``(value, gradient)``, or
    ``((value, aux), gradient)``.
    """
    both = grad_and_value(f, argnums, has_aux)

    @functools.wraps(f)
    def value_and_gradient(*args: Any, **kwargs: Any) -> Any:
        slopes, value = both(*args, **kwargs)
        return value, slopes

    return value_and_gradient


def grad(f: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """A function that gives the gradient of `f`.

    As :func:`grad_and_value`, without the value: the gradient, or ``(gradient, aux)``.

    Examples
    --------
    >>> import kernelrt as krt
    >>> cube = lambda x: x**3
    >>> x = krt.tensor(2.0)
    >>> krt.func.grad(cube)(x).item(), krt.func.grad(krt.func.grad(cube))(x).item()
    (12.0, 12.0)
    """
    both = grad_and_value(f, argnums, has_aux)

    @functools.wraps(f)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        slopes, value = both(*args, **kwargs)
        return (slopes, value[1]) if has_aux else slopes

    return gradient


def vjp(f: Callable[..., Any], *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """The value of `f`, and a function that multiplies vectors with its Jacobian matrix.

    Parameters
    ----------
    f : callable
        A function of tensors, or of nested ones, that returns such.
    *primals : Tensor or nested Tensors
        Where `f` is differentiated.
    has_aux : bool
        Whether `f` returns a pair of its output and of something else.

    Returns
    -------
    tuple
        ``(output, vjp_fn)`` or ``(output, vjp_fn, aux)``. ``vjp_fn(cotangents)`` takes what is
        nested as the output and gives what is nested as the argument, a tuple of such where there
        are several.

    Raises
    ------
    GradientError
        An argument or the output has no floats.
    ShapeError
        Cotangents are not as the output is.
    """
    level = Level("vjp")
    given = [level.entered(p, f"argument {i}") for i, p in enumerate(primals)]
    out, aux = called(f, given, {}, "vjp", has_aux)
    outputs = floats_of(out, "the function's result")

    def vjp_fn(cotangents: Any) -> Any:
        """The product of `cotangents` with the Jacobian matrix."""
        listed = flatten(cotangents, out, "cotangents")
        pairs = zip(listed, outputs, strict=True)
        seeds = [check_like(c, o, "cotangents") for c, o in pairs]
        chosen = tuple(given) if len(given) != 1 else given[0]
        points = leaves_of(chosen)
        nodes = level.zeros(level.flowing(outputs, seeds), points)
        return rebuilt(chosen, level.tensors(nodes))

    whole = level.left(out), vjp_fn
    return (*whole, level.left(aux)) if has_aux else whole


def push(level: Level, outputs: Sequence[Tensor]) -> Callable[[Sequence[UOp]], list[UOp]]:
    """A function that gives tangents of outputs for tangents of what entered `level`.

    The product of the Jacobian with a vector is the slope of the products of vectors with the
    Jacobian, by these vectors: the gradient for `outputs` with any gradient is linear in that.
    """
    sources = [mark(build.full(0, o.dtype, o.dims), Leaf()) for o in outputs]
    flown = level.flowing(outputs, sources, hooks=False)  # they are of backward passes

    def tangents_of(tangents: Sequence[UOp]) -> list[UOp]:
        second = Level.of("jvp", sources)
        pairs = [(n, t) for n, t in zip(flown, tangents, strict=True) if n is not None]
        with state.enable_grad():
            roots = [Tensor._of(n) for n, _ in pairs]
        found = second.flowing(roots, [t for _, t in pairs])
        return second.bare(second.zeros(found, outputs))

    return tangents_of


def linearize(f: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """The value of `f`, and the linear function that is its derivative there.

    Parameters
    ----------
    f : callable
        A function of tensors, or of nested ones, that returns such.
    *primals : Tensor or nested Tensors
        Where `f` is differentiated.

    Returns
    -------
    tuple
        ``(output, jvp_fn)``; ``jvp_fn(*tangents)`` takes what is nested as the arguments and gives
        what is nested as the output.
    """
    level = Level("linearize")
    out, outputs, tangents_of, _ = _pushing(level, f, primals, "linearize", has_aux=False)

    def jvp_fn(*tangents: Any) -> Any:
        """The slope of the function in the direction of `tangents`."""
        nodes = tangents_of(_directions(tangents, primals))
        assert len(nodes) == len(outputs)
        return rebuilt(out, level.tensors(nodes))

    return level.left(out), jvp_fn


def jvp(
    f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], *,
    has_aux: bool = False,
) -> tuple[Any, ...]:  # fmt: skip
    """The value of `f`, and its slope in a direction.

    Parameters
    ----------
    f : callable
        A function of tensors, or of nested ones, that returns such.
    primals : tuple
        The arguments of `f`.
    tangents : tuple
        The direction: nested as `primals`.
    has_aux : bool
        Whether `f` returns a pair of its output and of something else.

    Returns
    -------
    tuple
        ``(output, tangent)`` or ``(output, tangent, aux)``; the tangent is nested as the output.

    Raises
    ------
    GradientError
        An argument or the output has no floats.
    ShapeError
        The tangents are not as the arguments are.
    """
    for given, name in ((primals, "primals"), (tangents, "tangents")):
        if not isinstance(given, tuple | list):
            raise DTypeError(f"{name}: expected a tuple of arguments, not {type(given).__name__}")
    level = Level("jvp")
    out, _, tangents_of, aux = _pushing(level, f, primals, "jvp", has_aux=has_aux)
    slope = rebuilt(out, level.tensors(tangents_of(_directions(tangents, primals))))
    whole = level.left(out), slope
    return (*whole, level.left(aux)) if has_aux else whole


def _pushing(
    level: Level, f: Callable[..., Any], primals: Sequence[Any], name: str, *, has_aux: bool
) -> tuple[Any, list[Tensor], Callable[[Sequence[UOp]], list[UOp]], Any]:
    given = [level.entered(p, f"argument {i}") for i, p in enumerate(primals)]
    out, aux = called(f, given, {}, name, has_aux)
    outputs = floats_of(out, "the function's result")
    return out, outputs, push(level, outputs), aux


def _directions(tangents: Sequence[Any], primals: Sequence[Any]) -> list[UOp]:
    listed = flatten(tuple(tangents), tuple(primals), "tangents")
    pairs = zip(listed, leaves_of(tuple(primals)), strict=True)
    return [check_like(t, p, "tangents") for t, p in pairs]
