"""Results of C routines, computed in NumPy. The unused rest of a row may have any content."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kernelrt import dtype as dt
from kernelrt.ir import Op, UOp, toposort
from kernelrt.ir.routine import SIGNATURES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kernelrt.ir.routine import Routine

__all__ = ["REST", "called", "known"]

Array = np.ndarray[Any, Any]

#: Placeholder for the unspecified rest of a routine's result.
REST = -77


def called(routine: Routine, operands: list[Array]) -> Array:
    """Return the result of a routine."""
    out = np.full(routine.shape, REST, dt.to_numpy(routine.signature.gives))
    _RULES[routine.name](routine, out, *operands)
    return out


def known(roots: Iterable[UOp]) -> bool:
    """Return whether NumPy has all routines that a graph calls."""
    return all(node.arg.name in _RULES for node in toposort(roots) if node.op is Op.CALL)


def _argsort(routine: Routine, out: Array, keys: Array) -> None:
    (n,) = routine.numbers
    out[:, :n] = np.argsort(keys.reshape(routine.rows, n), axis=1, kind="stable")


def _in_columns(routine: Routine, x: Array) -> Array:
    n, inner, *_ = routine.numbers
    return x.reshape(routine.rows, n, inner)


def _cumsum(routine: Routine, out: Array, x: Array) -> None:
    x = _in_columns(routine, x)
    wide = np.float64 if routine.signature.gives.is_float else np.int64
    step = -1 if routine.numbers[2] else 1
    out[:] = np.cumsum(x[:, ::step], 1, wide)[:, ::step].reshape(out.shape)


def _cumprod(routine: Routine, out: Array, x: Array) -> None:
    wide = np.float64 if routine.signature.gives.is_float else np.int64
    out[:] = np.cumprod(_in_columns(routine, x), 1, wide).reshape(out.shape)


def _recurrence(routine: Routine, out: Array, a: Array, b: Array) -> None:
    a, y = _in_columns(routine, a), _in_columns(routine, b).astype(np.float64)
    n, _, reverse = routine.numbers
    for i in range(1, n):
        if reverse:
            y[:, n - 1 - i] += np.where(a[:, n - i] == 0, 0, a[:, n - i] * y[:, n - i])
        else:
            y[:, i] += np.where(a[:, i] == 0, 0, a[:, i] * y[:, i - 1])
    out[:] = y.reshape(out.shape)


def _extremes(routine: Routine, out: Array, x: Array) -> None:
    x = _in_columns(routine, x)
    ufunc = np.maximum if "max" in routine.name else np.minimum
    best = ufunc.accumulate(x, 1)
    if routine.name.startswith("arg"):
        rows = np.arange(x.shape[1])[:, None]
        best = np.maximum.accumulate(np.where((x == best) | (x != x), rows, 0), 1)
    out[:] = best.reshape(out.shape)


def _level(routine: Routine, out: Array, x: Array) -> None:
    x = _in_columns(routine, x)
    best, found = np.full_like(x[:, 0], -np.inf), np.empty_like(x)
    for i in range(x.shape[1]):
        best = found[:, i] = np.where(x[:, i] > best + 1, x[:, i], best)
    out[:] = found.reshape(out.shape)


_BY_NAME: dict[str, Callable[..., None]] = {
    "argsort": _argsort, "cumsum": _cumsum, "cumprod": _cumprod, "recurrence": _recurrence,
    "cummax": _extremes, "cummin": _extremes, "argcummax": _extremes, "argcummin": _extremes,
    "level": _level,
}  # fmt: skip
_RULES = {
    name: _BY_NAME[kind] for name in SIGNATURES if (kind := name.rpartition("_")[0]) in _BY_NAME
}
