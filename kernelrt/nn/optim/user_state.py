"""State dicts of user-defined optimizers: the entries of ``Optimizer.state``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kernelrt import dtype as dt
from kernelrt.device.dlpack import kind_name
from kernelrt.errors import StateError
from kernelrt.nn import state_dicts
from kernelrt.tensor import Tensor
from kernelrt.tensor.free_functions.creation import tensor
from kernelrt.tensor.state import no_grad

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernelrt.nn.optim.optimizer import Optimizer

__all__ = ["OwnState", "collected", "of_torch", "taken"]

#: Name prefixes of tensors and of numbers.
_TENSORS: Final = "state"
_NUMBERS: Final = "numbers"

#: (index of the parameter, name) -> value.
OwnState = dict[tuple[int, str], Any]


def _entries(optimizer: Optimizer) -> OwnState:
    """Return the entries of ``Optimizer.state`` that the user's class added."""
    places = {id(p): i for i, p in enumerate(optimizer.params)}
    theirs = {id(p): g.state for g in optimizer.param_groups for p in g.params}
    found: OwnState = {}
    for key, values in optimizer.state.items():
        if id(key) not in places:
            raise StateError(
                f"state: expected parameters of {type(optimizer).__name__} as keys, not "
                f"{kind_name(key)} {key!r}; keep state that all parameters share as an attribute, "
                "and define state_dict and load_state_dict"
            )
        for name, value in values.items():
            if name not in theirs[id(key)]:
                found[places[id(key)], str(name)] = value
    return found


def collected(optimizer: Optimizer) -> dict[str, Tensor]:
    """Return the entries of ``optimizer.state`` by names that a state dict can hold.

    Tensors are called "state.INDEX.NAME", and numbers "numbers.INDEX.NAME".

    Raises
    ------
    StateError
        A value is neither a tensor nor a number.
    """
    found: dict[str, Tensor] = {}
    for (i, name), value in _entries(optimizer).items():
        if isinstance(value, Tensor):
            found[f"{_TENSORS}.{i}.{name}"] = value
        elif isinstance(value, bool | int | float | np.generic):
            kind = dt.float64 if isinstance(value, float | np.floating) else None
            found[f"{_NUMBERS}.{i}.{name}"] = tensor(value, dtype=kind)
        else:
            raise StateError(
                f"state: {name!r} of parameter {i} is of type {kind_name(value)}, expected a "
                "tensor or a number; convert it, or define state_dict and load_state_dict"
            )
    return found


def of_torch(optimizer: Optimizer, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries for ``Optimizer.state`` in a state dict of PyTorch."""
    theirs = [g.state for g in optimizer.param_groups for _ in g.params]
    order = [i for group in given["param_groups"] for i in group["params"]]
    found: dict[str, Any] = {}
    for place, (key, known) in enumerate(zip(order, theirs, strict=True)):
        for name, value in given["state"].get(key, {}).items():
            if name not in known:
                kind = _NUMBERS if isinstance(value, bool | int | float) else _TENSORS
                found[f"{kind}.{place}.{name}"] = value
    return found


def taken(
    optimizer: Optimizer, values: Mapping[str, Any], *, strict: bool
) -> state_dicts.IncompatibleKeys:
    """Load `values`; entries named "state.*" and "numbers.*" go into ``optimizer.state``.

    If a tensor keeps its shape and dtype, it is overwritten in place, because plans read its
    memory. If `strict` is true, entries that `values` lacks are deleted.
    """
    count = len(optimizer.params)
    rest: dict[str, Any] = {}
    own: OwnState = {}
    for key, value in values.items():
        kind, _, more = key.partition(".")
        place, _, name = more.partition(".")
        if kind not in (_TENSORS, _NUMBERS) or not place.isdigit() or not name:
            rest[key] = value
            continue
        if int(place) >= count:
            raise StateError(
                f"state_dict: unexpected key {key!r}, because the optimizer has {count} "
                "parameters; load the state of an optimizer with as many parameters"
            )
        source = state_dicts.read(key, value)
        own[int(place), name] = source.item() if kind == _NUMBERS else source
    found = state_dicts.copy_into(optimizer, rest, strict=strict)
    before = _entries(optimizer)
    with no_grad():
        if strict:
            for index, name in set(before) - set(own):
                del optimizer.state[optimizer.params[index]][name]
        for (index, name), value in own.items():
            old = before.get((index, name))
            entries = optimizer.state[optimizer.params[index]]
            if not isinstance(value, Tensor):
                entries[name] = value
            elif isinstance(old, Tensor) and (old.shape, old.dtype) == (value.shape, value.dtype):
                state_dicts.overwrite([(old, value)])
            else:
                entries[name] = value.detach().clone().realize()
    return found
