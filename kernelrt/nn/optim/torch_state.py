"""State dicts of PyTorch's optimizers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kernelrt.errors import StateError
from kernelrt.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kernelrt.nn.optim.param_groups import Group

__all__ = ["read"]


def read(groups: Sequence[Group], given: Mapping[str, Any]) -> dict[str, Any]:
    """Set hyperparameters from a PyTorch state dict; return its tensors by kernelrt's names.

    Raises
    ------
    StateError
        The parameter groups differ in number or in size.
    """
    saved = given["param_groups"]
    sizes, others = [len(g.params) for g in groups], [len(g["params"]) for g in saved]
    if sizes != others:
        raise StateError(
            f"state_dict: expected groups of {sizes} parameters, as in the optimizer, not of "
            f"{others}; load the state of an optimizer with the same groups"
        )
    found: dict[str, Any] = {}
    start = 0
    for k, (group, other) in enumerate(zip(groups, saved, strict=True)):
        for name in group:
            if name in other and name not in ("params", "lr"):
                group[name] = other[name]
        found[_called("lr", k, groups)] = np.array(float(other["lr"]))
        parts = [given["state"].get(i, {}) for i in other["params"]]
        for name, held in group.state.items():
            if isinstance(held, Tensor):
                found[_called(name, k, groups)] = _numbers(group, name, parts)
                continue
            for i, (part, place) in enumerate(zip(parts, held, strict=True)):
                value = part.get(name)
                # PyTorch keeps no state for a parameter before its first update.
                fresh = np.zeros(tuple(int(d) for d in place.shape), np.float32)
                found[f"{name}.{start + i}"] = fresh if value is None else value
        start += len(group.params)
    return found


def _called(name: str, k: int, groups: Sequence[Group]) -> str:
    return name if len(groups) == 1 else f"{name}.{k}"


def _numbers(
    group: Group, name: str, parts: Sequence[Mapping[str, Any]]
) -> np.ndarray[Any, Any]:
    """Return one number for each parameter."""
    if name == "gradient_share":  # in PyTorch: whether there is a momentum buffer yet
        later = 1 - group["dampening"]
        return np.array([1.0 if p.get("momentum_buffer") is None else later for p in parts])
    fresh = 1.0 if name in ("mu", "mu_product") else 0.0
    return np.array([float(part.get(name, fresh)) for part in parts])
