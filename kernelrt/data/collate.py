"""Collates samples into a batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from kernelrt.data.rows import as_array
from kernelrt.errors import DTypeError, ShapeError
from kernelrt.tensor import Tensor, state
from kernelrt.tensor.eager.realize import realize
from kernelrt.tensor.free_functions.creation import tensor

__all__ = ["computed", "default_collate"]


def default_collate(batch: Sequence[Any]) -> Any:
    """Collate samples into one batch, like PyTorch's ``default_collate``.

    Parameters
    ----------
    batch : sequence
        Samples with the same structure. Arrays and tensors, also PyTorch's, are stacked along a new
        first axis. Python numbers become a tensor: of bool for bools, of int64 for integers, and of
        float64 for floats, or floats mixed with integers. Dicts, tuples and lists are collated
        recursively. Strings and bytes stay in a list.

    Returns
    -------
    object
        The structure of one sample, with Tensors.

    Raises
    ------
    ShapeError
        Shapes, lengths or keys differ.
    DTypeError
        A sample holds an unsupported value, or a value of another category than the first sample,
        such as None instead of a number.

    Examples
    --------
    >>> from kernelrt.data import default_collate
    >>> batch = default_collate([{"x": [1, 2.5], "name": "a"}, {"x": [3, 4.5], "name": "b"}])
    >>> batch["name"], [x.tolist() for x in batch["x"]], batch["x"][1].dtype.name
    (['a', 'b'], [[1, 3], [2.5, 4.5]], 'float64')
    """
    if not batch:
        raise ShapeError(
            "batch: expected at least one sample, not an empty batch; let the sampler yield indices"
        )
    return _joined(list(batch), "batch")


def _joined(batch: list[Any], name: str) -> Any:
    first = batch[0]
    if isinstance(first, str | bytes):
        return batch
    if isinstance(first, float | int) and not isinstance(first, np.generic):
        return _numbers(batch, name)
    if isinstance(first, Tensor | np.ndarray | np.generic) or hasattr(first, "__array__"):
        return _stacked(batch, name)
    if isinstance(first, Mapping):
        return _mapped(batch, name)
    if isinstance(first, tuple | list):
        return _listed(batch, name)
    raise DTypeError(
        f"{name}: expected arrays, tensors, numbers, strings, or dicts, tuples and lists of them, "
        f"not {type(first).__name__}; for anything else pass your own collate_fn"
    )


def _refuse(name: str, i: int, first: object, found: object) -> NoReturn:
    raise DTypeError(
        f"{name}: sample {i} holds {_called(found)}, but sample 0 holds {_called(first)}; give all "
        "samples values of the same type, or pass your own collate_fn"
    )


def _called(value: object) -> str:
    return "None" if value is None else f"a value of type {type(value).__name__}"


def _numbers(batch: list[Any], name: str) -> Tensor:
    """Collate Python numbers, possibly mixed with NumPy scalars and 0-d tensors."""
    numbers, kinds = [], set()
    for i, value in enumerate(batch):
        number = _number(value)
        if number is None:
            _refuse(name, i, batch[0], value)
        numbers.append(number)
        kinds.add(type(number))
    wide = np.float64 if float in kinds else np.int64 if int in kinds else np.bool_
    try:
        return tensor(np.array(numbers, wide))
    except OverflowError:
        i = next(
            i for i, n in enumerate(numbers) if type(n) is int and not -(2**63) <= n < 2**63
        )

        raise DTypeError(
            f"{name}: sample {i} holds an integer that does not fit in int64; convert it to a "
            "float, or pass your own collate_fn"
        ) from None


def _number(value: Any) -> float | int | None:
    """Return a number, NumPy scalar or 0-d tensor as a Python number; None for other values."""
    if type(value) in (float, int, bool):
        return value  # type: ignore[no-any-return]
    if not isinstance(value, float | int) and (
        isinstance(value, str | bytes) or not hasattr(value, "__array__")
    ):
        return None
    found = as_array(value, "batch")
    real = found.ndim == 0 and found.dtype.kind in "biuf"
    number: float | int | None = found.item() if real else None
    return number


def _stacked(batch: list[Any], name: str) -> Tensor:
    for i, value in enumerate(batch):
        if value is None or isinstance(value, str | bytes | Mapping):
            _refuse(name, i, batch[0], value)
    narrow = str(getattr(batch[0], "dtype", "")).endswith("bfloat16")
    if narrow and not isinstance(batch[0], Tensor):
        batch = [v.float() for v in batch]
    arrays = [as_array(v, name) for v in batch]
    for array in arrays:
        if array.dtype.kind not in "biuf":
            raise DTypeError(
                f"{name}: expected numbers, not {array.dtype}; for anything else pass your own "
                "collate_fn"
            )
    shapes = {a.shape for a in arrays}
    if len(shapes) > 1:
        raise ShapeError(
            f"{name}: expected samples of equal shape, not {', '.join(map(str, sorted(shapes)))}; "
            "pass a collate_fn that pads them"
        )
    return tensor(np.stack(arrays), dtype="bfloat16" if narrow else None)


def _mapped(batch: list[Any], name: str) -> dict[Any, Any]:
    keys = list(batch[0])
    for i, sample in enumerate(batch):
        if not isinstance(sample, Mapping):
            _refuse(name, i, batch[0], sample)
        if set(sample) != set(keys):
            raise ShapeError(
                f"{name}: sample {i} has the keys {sorted(map(str, sample))}, but sample 0 has the "
                f"keys {sorted(map(str, keys))}; give all samples the same keys, or pass your own "
                "collate_fn"
            )
    return {key: _joined([s[key] for s in batch], f"{name}[{key!r}]") for key in keys}


def _listed(batch: list[Any], name: str) -> Any:
    first = batch[0]
    for i, sample in enumerate(batch):
        if isinstance(sample, str | bytes | Mapping) or not hasattr(sample, "__len__"):
            _refuse(name, i, first, sample)
    lengths = sorted({len(sample) for sample in batch})
    if len(lengths) > 1:
        raise ShapeError(
            f"{name}: expected samples of equal length, not {lengths}; pass a collate_fn that pads "
            "them"
        )
    parts = [_joined(list(p), f"{name}[{i}]") for i, p in enumerate(zip(*batch, strict=True))]
    if hasattr(first, "_fields"):
        return type(first)(*parts)
    return tuple(parts) if isinstance(first, tuple) else parts


def computed(value: Any) -> Any:
    """Compute the tensors in `value`, and return `value`, so that later graphs begin with values.

    In a traced function, tensors stay graphs.
    """
    if state.local.trace is None:
        lazy = [t for t in _tensors(value) if not t.is_realized]
        if lazy:
            realize(*lazy)
    return value


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _tensors(part)
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _tensors(part)
