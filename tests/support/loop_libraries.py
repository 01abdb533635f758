"""Libraries for random programs with loops: kernelrt, and torch as the truth."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import kernelrt as krt

__all__ = ["KRT", "LARGEST", "Invalid", "Library", "Torch", "array"]

Env = dict[str, Any]
TURNS = 400
"""Maximum number of iterations of a program, over all loops."""
LARGEST = 1e4


class Invalid(Exception):  # noqa: N818 - not an error of the program
    """The program has no defined result, or one that depends on rounding."""


class Library:
    """kernelrt, as programs use it."""

    T: Any = krt
    stacked = staticmethod(krt.stack)

    def names(self) -> Env:
        """Return the functions that the expressions of programs may call besides methods."""
        return {
            "T": self.T, "F32": lambda x: self.cast(x, "float32"),
            "F64": lambda x: self.cast(x, "float64"), "I64": lambda x: self.cast(x, "int64"),
            "LIKE": lambda x, y: x.to(y.dtype), "GT": lambda a, b: a > b, "ABS": lambda x: x.abs(),
            "RELU": lambda x: x.relu(), "MAX2": lambda a, b: a.maximum(b),
            "AMAX": lambda x, d: x.amax(d), "ARGMAX": lambda x: x.argmax(),
            "FLOOR": lambda x: x.floor(),
        }  # fmt: skip

    def cast(self, x: Any, dtype: str) -> Any:
        return x.to(self.type(dtype))

    def type(self, dtype: str) -> Any:
        return getattr(krt, dtype) if dtype != "bool" else krt.bool

    def tensor(self, value: Any, dtype: str) -> Any:
        return krt.tensor(np.asarray(value, dtype))

    def zeros(self, shape: Any, dtype: str) -> Any:
        return krt.zeros(tuple(shape), dtype=self.type(dtype))

    def rand(self, shape: list[int]) -> Any:
        return krt.rand(*shape)

    def grad(self, loss: Any, leaves: list[Any], *, again: bool = False) -> list[Any]:
        if not leaves or not loss.requires_grad:
            return [krt.zeros_like(x) for x in leaves]
        found = krt.grad(loss, leaves, create_graph=again, materialize_grads=True)
        return list(found)

    def read(self, state: Any) -> Any:
        return state

    def assign(self, state: Any, value: Any) -> Any:
        state.assign(value.detach())
        return state

    def add(self, state: Any, value: Any) -> Any:
        with krt.no_grad():
            return state.add_(value.detach())

    def put(self, state: Any, place: Any, value: Any) -> Any:
        state[place] = value.detach()
        return state

    def step(self, opt: Any, loss: Any) -> None:
        opt.zero_grad()
        loss.backward()
        opt.step()


KRT = Library()


class Torch(Library):
    """torch, with float32 as it is or widened; it records comparisons that are nearly ties."""

    T = torch
    stacked = staticmethod(torch.stack)

    def __init__(self, *, wide: bool) -> None:
        self.wide = wide
        self.near = np.inf
        self.top = 1.0
        self.turns = 0

    def names(self) -> Env:
        return {**super().names(), "GT": self._greater, "ABS": lambda x: self._off(x).abs(),
                "RELU": lambda x: self._off(x).relu(), "MAX2": self._maximum, "AMAX": self._amax,
                "ARGMAX": self._argmax, "FLOOR": self._floor}  # fmt: skip

    def type(self, dtype: str) -> Any:
        return getattr(torch, "float64" if self.wide and dtype == "float32" else dtype)

    def tensor(self, value: Any, dtype: str) -> Any:
        return torch.tensor(np.asarray(value)).to(self.type(dtype))

    def zeros(self, shape: Any, dtype: str) -> Any:
        return torch.zeros(tuple(shape), dtype=self.type(dtype))

    def rand(self, shape: list[int]) -> Any:
        return torch.tensor(krt.rand(*shape).numpy()).to(self.type("float32"))

    def grad(self, loss: Any, leaves: list[Any], *, again: bool = False) -> list[Any]:
        if not leaves or not loss.requires_grad:
            return [torch.zeros_like(x) for x in leaves]
        found = torch.autograd.grad(
            loss, leaves, create_graph=again, retain_graph=True, allow_unused=True
        )
        return [torch.zeros_like(x) if g is None else g for g, x in zip(found, leaves, strict=True)]

    def read(self, state: Any) -> Any:
        return state.clone()

    def assign(self, state: Any, value: Any) -> Any:
        with torch.no_grad():
            return state.copy_(value.detach())

    def add(self, state: Any, value: Any) -> Any:
        with torch.no_grad():
            return state.add_(value.detach())

    # What turns out one way or another.

    def _off(self, x: Any, y: Any = 0) -> Any:
        apart = np.abs(np.asarray((x - y).detach(), np.float64))
        self.near = min(self.near, apart[apart > 0].min(initial=np.inf))
        return x

    def _greater(self, a: Any, b: Any) -> Any:
        if a.dtype.is_floating_point:
            self._off(a, b)
        return a > b

    def _maximum(self, a: Any, b: Any) -> Any:
        self._off(a, b)
        return a.maximum(b)

    def _amax(self, x: Any, d: int) -> Any:
        found = x.amax(d, keepdim=True)
        self._off(x, found)
        return found.squeeze(d)

    def _argmax(self, x: Any) -> Any:
        found = x.max()
        if int((x == found).sum()) > 1:
            raise Invalid("argmax: several elements are the greatest")
        self._off(x, found)
        return x.argmax()

    def _floor(self, x: Any) -> Any:
        self._off(x, x.detach().round())
        return x.floor()

    def look(self, value: Any) -> None:
        """Raise Invalid if a value is large or not finite."""
        if value.dtype.is_floating_point and value.numel():
            top = float(value.detach().abs().max())
            if not top < LARGEST:
                raise Invalid(f"a value is as large as {top}; expected less than {LARGEST}")
            self.top = max(self.top, top)

    def turn(self) -> None:
        self.turns += 1
        if self.turns > TURNS:
            raise Invalid(f"the loops have more than {TURNS} iterations")


def array(value: Any) -> np.ndarray:
    """Return a copy of a tensor's numbers."""
    return np.array(value.detach().numpy())
