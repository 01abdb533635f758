"""Run jitted functions operation by operation with values, without compiling them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from kernelrt.dtype import float64
from kernelrt.jit.effects.side_effects import OuterState
from kernelrt.jit.signature import flatten_arguments, normalize
from kernelrt.jit.tracing import assigned_error, check_result, result_of
from kernelrt.tensor import Tensor
from kernelrt.tensor.autograd import gradient_state
from kernelrt.tensor.autograd.tags import Severed
from kernelrt.tensor.eager import execute
from kernelrt.tensor.eager.realize import realize
from kernelrt.tensor.free_functions.creation import tensor
from kernelrt.tensor.rng.stream import Generator, default_generator
from kernelrt.tensor.state import no_grad
from kernelrt.tensor.tracing import weak_types

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from kernelrt.jit.parameters import Parameters
    from kernelrt.tensor.tracing.weak_types import Numbers

__all__ = ["run_stepwise"]


def run_stepwise(
    name: str, fn: Callable[..., Any], parameters: Parameters, args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> Any:  # fmt: skip
    """Return the result of a call of a jitted function, computed operation by operation.

    The function sees its arguments as a jitted function does, but with values. Results have values
    but, as those of jitted functions, no autograd history. If an exception is raised, values of
    tensors, gradients and random state are as before.

    Raises
    ------
    JitError
        The function assigns to an argument, returns a type that a jitted function cannot return,
        or changes the gradient mode and does not restore it.
    """
    if weak_types.stepwise.numbers is not None:  # called by another jitted function
        return fn(*args, **kwargs)
    if kwargs:
        args, kwargs = parameters.positional(name, args, kwargs)
    values = (*args, *kwargs.values())
    names = [*parameters.names(len(args)), *kwargs]
    template, named = flatten_arguments(list(zip(names, values, strict=True)))
    with weak_types.AsNumbers() as numbers:
        return _with_numbers(name, fn, template, named, list(kwargs), names, numbers)


# A separate function: an interrupt at the end of a loop would skip the end of the with block.
def _with_numbers(
    name: str, fn: Callable[..., Any], template: Any, named: Sequence[tuple[str, object]],
    keywords: Sequence[str], names: Sequence[str], numbers: Numbers,
) -> Any:  # fmt: skip
    """Call the function with float arguments as weakly typed numbers."""
    seen = [(path, _seen(normalize(path, leaf), numbers)) for path, leaf in named]
    filled = template.fill([value for _, value in seen])
    n = len(filled) - len(keywords)
    floats = {path for path, leaf in named if type(leaf) is float}
    given = [(p, t) for p, t in seen if isinstance(t, Tensor) and p not in floats]
    held = _State(fn, zip(names, filled, strict=True))
    by_name = dict(zip(keywords, filled[n:], strict=True))
    try:
        return _called(name, fn, filled[:n], by_name, given)
    except BaseException:
        held.restore()
        raise


def _called(
    name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
    given: Sequence[tuple[str, Tensor]],
) -> Any:  # fmt: skip
    """Call the function; raise JitError if it assigned to one of the `given` arguments."""
    before = [_copy(value) for _, value in given]
    form, found = result_of(name, fn, args, kwargs)
    results = [_given_back(check_result(path, value, name), name) for path, value in found]
    realize(*[value for value in results if isinstance(value, Tensor)])
    for (path, value), old in zip(given, before, strict=True):
        if not _same(_copy(value), old):
            raise assigned_error(path, name)
    return form.fill(results)


def _copy(tensor: Tensor) -> Tensor:
    """Return a computed copy of a tensor."""
    copy = tensor.detach().clone()
    realize(copy)
    return copy


def _same(one: Tensor, other: Tensor) -> bool:
    """Return whether two computed tensors have equal bits."""
    a, b = (t._buffer.content() for t in (one, other))  # type: ignore[union-attr]
    return bool(a.tobytes() == b.tobytes())


def _given_back(value: object, function: str) -> object:
    """Return a copy of a result without autograd history, as a jitted function does."""
    if not isinstance(value, Tensor):
        return value
    result = value.detach().clone()
    if value.requires_grad:
        result._sever(Severed(function, None))
    return result


class _State:
    """A copy of the state that a function may change."""

    def __init__(self, fn: Callable[..., Any], arguments: Iterable[tuple[str, Any]]) -> None:
        around = OuterState(("", fn), *arguments)
        reached = {id(value): value for _, value in around.reached((Tensor, Generator))}.values()
        found = [value for value in reached if isinstance(value, Tensor)]
        realize(*found)
        drawing = [value for value in reached if isinstance(value, Generator)]
        self._drawing = [(g, g.get_state()) for g in {default_generator, *drawing}]
        self._values = [(target, _copy(target)) for target in found]
        self._grads = [(owner, gradient_state.find(owner)) for owner in found]
        self._values += [(held, _copy(held)) for _, held in self._grads if isinstance(held, Tensor)]

    def restore(self) -> None:
        """Restore the former values of all state."""
        for generator, before in self._drawing:
            generator.set_state(before)
        for owner, grad in self._grads:
            if gradient_state.find(owner) is grad:
                continue
            if isinstance(grad, gradient_state.ConsumedGradient):
                owner._grad = grad
            else:
                owner.grad = cast("Tensor | None", grad)
        with no_grad():
            self._write_back()

    def _write_back(self) -> None:
        for target, before in self._values:
            if not _same(_copy(target), before):
                target.assign(before)


def _seen(leaf: Any, numbers: Numbers) -> Any:
    """Return an argument in the form in which the function sees it."""
    if isinstance(leaf, Tensor):
        return Tensor._of(leaf.uop)
    if isinstance(leaf, np.ndarray):
        return tensor(leaf)
    if type(leaf) is not float:
        return leaf
    home = execute.filled(leaf, 1, float64)
    numbers.add(home)
    return Tensor._over(home, ())
