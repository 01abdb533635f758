"""Jitted functions without jit: the function itself is called, with values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kernelrt.dtype import float64
from kernelrt.jit.signature import flatten_arguments, normalize
from kernelrt.jit.tracing import check_result, result_of
from kernelrt.tensor import Tensor, execute, weak
from kernelrt.tensor.creation import tensor
from kernelrt.tensor.realize import realize

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kernelrt.jit.parameters import Parameters
    from kernelrt.tensor.weak import Numbers

__all__ = ["run_stepwise"]


def run_stepwise(
    name: str, fn: Callable[..., Any], parameters: Parameters, args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> Any:  # fmt: skip
    """What a call of a jitted function gives, computed operation by operation.

    Arguments are what a jitted function sees of them, with values; assigning to one changes
    nothing outside. Results are computed.

    Raises
    ------
    JitError
        The function returns what a jitted function cannot, or leaves the gradient mode changed.
    """
    if kwargs:
        args, kwargs = parameters.positional(name, args, kwargs)
    values = (*args, *kwargs.values())
    names = [*parameters.names(len(args)), *kwargs]
    template, named = flatten_arguments(list(zip(names, values, strict=True)))
    with weak.AsNumbers() as numbers:
        filled = template.fill([_seen(normalize(path, leaf), numbers) for path, leaf in named])
        by_name = dict(zip(kwargs, filled[len(args) :], strict=True))
        form, found = result_of(name, fn, filled[: len(args)], by_name)
        results = [check_result(path, value, name) for path, value in found]
        # What is returned of state is what it is now.
        results = [value.clone() if isinstance(value, Tensor) else value for value in results]
        realize(*[value for value in results if isinstance(value, Tensor)])
    return form.fill(results)


def _seen(leaf: Any, numbers: Numbers) -> Any:
    """What the function sees of an argument."""
    if isinstance(leaf, Tensor):
        return Tensor._of(leaf.uop)
    if isinstance(leaf, np.ndarray):
        return tensor(leaf)
    if type(leaf) is not float:
        return leaf
    home = execute.filled(leaf, 1, float64)
    numbers.add(home)
    return Tensor._over(home, ())
