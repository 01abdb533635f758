"""PyTorch's samples of the arguments of its operations."""

from __future__ import annotations

import functools
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import kernelrt as krt
from tests.support import sample as drawing

from .calls import Call, outcomes
from .convert import is_of_tests, our_function

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .outcome import Outcome

__all__ = ["chosen", "examined", "names", "seed"]

TYPES = ("float32", "float64", "int64", "bool")


@functools.cache
def database() -> dict[str, list[Any]]:
    """PyTorch's operations by name; variants of one name are listed together."""
    try:
        from torch.testing._internal.common_methods_invocations import op_db
    except ImportError as error:
        needed = "pip install expecttest scipy, which torch's samples need"
        raise SystemExit(f"{error}: {needed}") from None
    found: dict[str, list[Any]] = {}
    for op in op_db:
        found.setdefault(op.name, []).append(op)
    return found


def names() -> list[str]:
    """The names of all operations."""
    return list(database())


def examined(name: str, count: int, draw: int, first: int = 0) -> Iterator[list[Outcome]]:
    """The outcomes of each sample of an operation, from the one of number `first` on."""
    for number, (label, call) in enumerate(samples(name, count, draw)):
        if number >= first:
            yield outcomes(name, label, call)


def samples(name: str, count: int, draw: int) -> Iterator[tuple[str, Call]]:
    """A name of each sample of an operation, and the sample; at most `count` of each type."""
    for op in database()[name]:
        for kind in TYPES:
            dtype = getattr(torch, kind)
            if dtype not in op.dtypes:
                continue
            yield from _of_type(op, kind, dtype, count, draw)


def _of_type(op: Any, kind: str, dtype: Any, count: int, draw: int) -> Iterator[tuple[str, Call]]:
    seed(op.name)
    grad = op.supports_autograd and dtype.is_floating_point
    made = list(op.sample_inputs("cpu", dtype, requires_grad=grad))
    places = chosen(len(made), count, draw, f"{op.name} {kind}")
    variant = f" {op.variant_test_name}" if op.variant_test_name else ""
    wrapped = op.gradcheck_wrapper
    for i in places:
        given = made[i]
        arguments = (given.input, given.args, given.kwargs)
        process = given.output_process_fn_grad
        for form, theirs, ours in _forms(op, i == places[0]):
            call = Call(
                functools.partial(wrapped, theirs), functools.partial(our_function(wrapped), ours),
                arguments, process, grad,
            )  # fmt: skip
            yield f"{kind} {i}{variant}{form}", call


def _forms(op: Any, all_of_them: bool) -> Iterator[tuple[str, Any, Any]]:
    """A function of both, and where it is asked for its method and that in place."""
    yield "", op.op, _function(op)
    method = op.name.rpartition(".")[2]
    if not all_of_them or method.startswith("_") or "." in op.name:
        return
    if op.method_variant is not None and not is_of_tests(op.op):
        yield " method", op.method_variant, functools.partial(_method, method)
    if op.inplace_variant is not None and not method.endswith("_"):

        def theirs(x: Any, *rest: Any, **options: Any) -> Any:
            return op.inplace_variant(x.clone(), *rest, **options)

        yield " in place", theirs, functools.partial(_in_place, method + "_")


def _method(name: str, x: Any, *rest: Any, **options: Any) -> Any:
    return getattr(x, name)(*rest, **options)


def _in_place(name: str, x: Any, *rest: Any, **options: Any) -> Any:
    return getattr(x.clone(), name)(*rest, **options)


def _function(op: Any) -> Callable[..., Any]:
    """What kernelrt calls as torch calls the operation; a call of it raises what is wrong."""
    if is_of_tests(op.op):
        return our_function(op.op)
    place: Any = krt
    path = op.name.removeprefix("special.").split(".")
    try:
        for part in path:
            place = getattr(place, part)
    except AttributeError:
        place = getattr(krt.Tensor, op.name, None)
    if isinstance(place, krt.DType):  # torch.bool is a type, x.bool() a method
        place = getattr(krt.Tensor, op.name, None)
    if place is None or not callable(place):

        def missing(*rest: Any, **options: Any) -> Any:
            raise krt.errors.UnknownNameError(f"there is no {op.name}")

        return missing
    return place


def chosen(available: int, count: int, draw: int, name: str) -> list[int]:
    """The numbers of the samples that run: at most `count`, or all for 0."""
    every = range(available)
    if not 0 < count < available:
        return list(every)
    ranks = drawing.ranks(every, available // count, draw, name)
    return [i for i, rank in enumerate(ranks) if not rank][:count]


def seed(name: str) -> None:
    """Make what torch draws for the samples of `name` the same in every run."""
    random.seed(name)
    np.random.seed(drawing.number(name) % 2**32)  # noqa: NPY002 - torch's samples draw from it
    torch.manual_seed(drawing.number(name) % 2**32)
