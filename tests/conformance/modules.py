"""PyTorch's samples of its modules; ours get their parameters and buffers."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

import kernelrt as krt

from .calls import Call, outcomes
from .convert import UnfitError, mapped, our_plain, our_tensor
from .ops import chosen, seed
from .outcome import Outcome, of_error

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["examined", "names"]

TYPES = ("float32", "float64")


@functools.cache
def database() -> dict[str, Any]:
    """PyTorch's modules by name."""
    from torch.testing._internal.common_modules import module_db

    return {info.name: info for info in module_db}


def names() -> list[str]:
    """The names of all modules."""
    return list(database())


def examined(name: str, count: int, draw: int, first: int = 0) -> Iterator[list[Outcome]]:
    """The outcomes of each sample of a module, from the one of number `first` on."""
    info = database()[name]
    number = 0
    for kind in TYPES:
        dtype = getattr(torch, kind)
        if dtype not in info.dtypes:
            continue
        for training in (True, False):
            seed(name)
            made = list(info.module_inputs_func(
                info, device="cpu", dtype=dtype, requires_grad=True, training=training
            ))  # fmt: skip
            for i in chosen(len(made), count, draw, f"{name} {kind} {training}"):
                label = f"{kind} {i} {'train' if training else 'eval'}"
                if number >= first and made[i].forward_input is not None:
                    yield _of_sample(name, label, info.module_cls, made[i], dtype, training)
                number += 1


def _of_sample(
    name: str, label: str, cls: Any, sample: Any, dtype: torch.dtype, training: bool
) -> list[Outcome]:
    try:
        theirs = _theirs(cls, sample, dtype).train(training)
    except Exception:  # noqa: BLE001 - torch raises what it likes
        return []
    try:
        ours = _ours(cls, sample, theirs).train(training)
    except UnfitError as unfit:
        return [Outcome(name, label, "eager", "refused", str(unfit))]
    except Exception as error:  # noqa: BLE001 - any error is an outcome
        return [Outcome(name, label, "eager", *of_error(error))]
    state = {**dict(theirs.named_parameters()), **dict(theirs.named_buffers())}
    given = sample.forward_input
    buffers = [key for key, _ in theirs.named_buffers()]
    called = functools.partial(_called, buffers=buffers)
    call = Call(
        functools.partial(called, torch.func.functional_call, theirs),
        functools.partial(called, krt.func.functional_call, ours),
        (state, (given.args, given.kwargs), {}), lambda out: out, differentiable=True,
    )  # fmt: skip
    return outcomes(name, label, call)


def _called(
    function: Any, module: Any, state: dict[str, Any], args: Any, kwargs: Any, *, buffers: list[str]
) -> Any:
    """What a module gives, and its buffers afterwards, such as running statistics."""
    out = function(module, state, args, kwargs)
    return out, [state[key] for key in buffers]


def _theirs(cls: Any, sample: Any, dtype: torch.dtype) -> Any:
    """PyTorch's module, with parameters that are not zero."""
    given = sample.constructor_input
    module = cls(*given.args, **given.kwargs).to(dtype)
    forward = sample.forward_input
    module(*forward.args, **forward.kwargs)  # a lazy one is made now
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return module


def _ours(cls: Any, sample: Any, theirs: Any) -> Any:
    given = sample.constructor_input
    args, kwargs = (mapped(a, our_tensor, our_plain) for a in (given.args, given.kwargs))
    made: Any = getattr(krt.nn, cls.__name__)(*args, **kwargs)
    if "Lazy" in cls.__name__:  # its parameters are made when it is called
        forward = sample.forward_input
        made(*mapped(forward.args, our_tensor, our_plain))
    state = {k: our_tensor(v) for k, v in theirs.state_dict().items()}
    found = made.load_state_dict(state)
    assert not found.missing_keys, found
    assert not found.unexpected_keys, found
    return made
