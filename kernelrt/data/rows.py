"""Rows of nested data: arrays, tensors, dicts, lists and tuples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kernelrt.errors import DTypeError, ShapeError
from kernelrt.tensor import Tensor
from kernelrt.tensor.free_functions.creation import tensor
from kernelrt.tensor.methods.random_draws_in_place import randperm
from kernelrt.tensor.nodes.arguments import whole
from kernelrt.util.lazy_import import load

if TYPE_CHECKING:
    from kernelrt.dtype import DType

__all__ = ["as_array", "count_of", "fresh_seed", "generator_of", "held", "leaves", "seed_of",
           "size_option", "take"]  # fmt: skip

Array = np.ndarray[Any, Any]


def leaves(data: object, name: str) -> list[tuple[str, Any]]:
    """Return the arrays and tensors in `data`, each with its path for errors."""
    if isinstance(data, Mapping):
        return [leaf for k, v in data.items() for leaf in leaves(v, f"{name}[{k!r}]")]
    if isinstance(data, tuple):
        return [leaf for i, v in enumerate(data) for leaf in leaves(v, f"{name}[{i}]")]
    return [(name, data)]


def count_of(data: object, name: str) -> int:
    """Return the number of rows of all arrays in `data`.

    Raises
    ------
    ShapeError
        Numbers of rows differ, an array is a scalar, or there are no arrays.
    DTypeError
        A leaf has no rows.
    """
    counts: dict[str, int] = {}
    for path, leaf in leaves(data, name):
        counts[path] = _rows(leaf, path)
    if not counts:
        raise ShapeError(f"{name}: expected at least one array, not none")
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{path} has {n}" for path, n in counts.items())
        raise ShapeError(f"{name}: expected equal numbers of rows, but {told}")
    return next(iter(counts.values()))


def _rows(leaf: Any, path: str) -> int:
    shape = getattr(leaf, "shape", None)
    if shape is not None:
        if len(shape) == 0:
            raise ShapeError(f"{path}: expected rows along a first axis, not a scalar without axes")
        if not isinstance(shape[0], int | np.integer):
            raise ShapeError(
                f"{path}: expected a fixed number of rows, not {shape[0]}, which is known only at "
                "run time"
            )
        return int(shape[0])
    if isinstance(leaf, list):
        return len(leaf)
    raise DTypeError(
        f"{path}: expected an array, a Tensor, a list, or a dict or tuple of them, not "
        f"{type(leaf).__name__}"
    )


def take(data: Any, rows: Array | slice) -> Any:
    """Return the given rows of all arrays in `data`, in the same structure."""
    if isinstance(data, _Held):
        return tensor(data.array[rows], dtype=data.dtype)
    if isinstance(data, Mapping):
        return {k: take(v, rows) for k, v in data.items()}
    if isinstance(data, tuple):
        parts = [take(v, rows) for v in data]
        return type(data)(*parts) if hasattr(data, "_fields") else tuple(parts)
    if isinstance(data, list):
        return data[rows] if isinstance(rows, slice) else [data[i] for i in rows]
    return take(held(data), rows) if isinstance(data, Tensor) else data[rows]


class _Held(NamedTuple):
    """The values of a tensor as an array, from which NumPy selects rows without making plans."""

    array: Array
    dtype: DType


def held(data: Any) -> Any:
    """Return `data` with tensors replaced by their current values."""
    if isinstance(data, Mapping):
        return {k: held(v) for k, v in data.items()}
    if isinstance(data, tuple):
        parts = [held(v) for v in data]
        return type(data)(*parts) if hasattr(data, "_fields") else tuple(parts)
    return _Held(as_array(data, "data"), data.dtype) if isinstance(data, Tensor) else data


def as_array(value: Any, name: str) -> Array:
    """Return `value` as an array; it may be a tensor of kernelrt or PyTorch."""
    if hasattr(value, "detach"):
        value = value.detach()
    if isinstance(value, Tensor):
        return np.asarray((value.float() if value.dtype.name == "bfloat16" else value).numpy())
    found = np.asarray(value)
    if found.dtype == object:
        raise DTypeError(f"{name}: expected numbers, not {type(value).__name__}")
    return found


def seed_of(seed: object, name: str = "seed") -> int | None:
    """Check a seed and return it."""
    if seed is None:
        return None
    number = whole(seed)
    if number is None:
        raise DTypeError(f"{name}: expected an int or None, not {type(seed).__name__}")
    if number < 0:
        raise ShapeError(f"{name}: expected at least 0, not {number}")
    return number


def fresh_seed() -> int:
    """Return a random number of the generator that :func:`kernelrt.manual_seed` seeds."""
    order = randperm(16).numpy().astype(np.uint64)
    return int((order << np.arange(0, 64, 4, dtype=np.uint64)).sum() & np.uint64((1 << 62) - 1))


def generator_of(seed: int, epoch: int) -> np.random.Generator:
    """Return the random generator of an epoch."""
    load("numpy.random")  # NumPy imports it lazily, and a signal could interrupt that
    return np.random.default_rng([seed, epoch])


def size_option(value: object, name: str) -> int:
    """Check that a size is at least 1 and return it."""
    number = whole(value)
    if number is None:
        raise DTypeError(f"{name}: expected an int, not {type(value).__name__}")
    if number < 1:
        raise ShapeError(f"{name}: expected at least 1, not {number}")
    return number
