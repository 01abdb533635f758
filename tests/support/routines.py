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


def _cumsum(routine: Routine, out: Array, x: Array) -> None:
    n, inner, reverse = routine.numbers
    x = x.reshape(routine.rows, n, inner)
    wide = np.float64 if routine.signature.gives.is_float else np.int64
    step = -1 if reverse else 1
    out[:] = np.cumsum(x[:, ::step], 1, wide)[:, ::step].reshape(out.shape)


_RULES: dict[str, Callable[..., None]] = {
    "argsort_u32": _argsort, "argsort_u64": _argsort,
    **{name: _cumsum for name in SIGNATURES if name.startswith("cumsum_")},
}  # fmt: skip
