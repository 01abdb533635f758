"""Making a batch of samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from kernelrt.data.rows import as_array
from kernelrt.errors import DTypeError, ShapeError
from kernelrt.tensor import Tensor, state
from kernelrt.tensor.creation import tensor
from kernelrt.tensor.realize import realize

__all__ = ["computed", "default_collate"]


def default_collate(batch: Sequence[Any]) -> Any:
    """Samples as one batch, as PyTorch's ``default_collate`` makes it.

    Parameters
    ----------
    batch : sequence
        Samples of one structure. Arrays and tensors, also PyTorch's, are stacked along a new first
        axis. Python's floats become float64, integers int64. Dicts, tuples and lists are gone
        into; texts and bytes stay a list.

    Returns
    -------
    object
        The structure of one sample, with Tensors.

    Raises
    ------
    ShapeError
        Shapes, lengths or keys differ.
    DTypeError
        A sample holds something else.

    Examples
    --------
    >>> from kernelrt.data import default_collate
    >>> default_collate([{"x": [1, 2.5], "name": "a"}, {"x": [3, 4.5], "name": "b"}])
    {'x': [tensor([1, 3]), tensor([2.5, 4.5], dtype=float64)], 'name': ['a', 'b']}
    """
    if not batch:
        raise ShapeError("batch: expected at least one sample")
    return _joined(list(batch), "batch")


def _joined(batch: list[Any], name: str) -> Any:
    first = batch[0]
    if isinstance(first, str | bytes):
        return batch
    if isinstance(first, bool):
        return tensor(np.array(batch, np.bool_))
    if isinstance(first, float | int) and not isinstance(first, np.generic):
        kind = np.float64 if any(isinstance(v, float) for v in batch) else np.int64
        return tensor(np.array(batch, kind))
    if isinstance(first, Tensor | np.ndarray | np.generic) or hasattr(first, "__array__"):
        return _stacked(batch, name)
    if isinstance(first, Mapping):
        return _mapped(batch, name)
    if isinstance(first, tuple | list):
        return _listed(batch, name)
    raise DTypeError(
        f"{name}: expected arrays, tensors, numbers, texts, or dicts, tuples and lists of them, "
        f"not {type(first).__name__}; pass collate_fn= for anything else"
    )


def _stacked(batch: list[Any], name: str) -> Tensor:
    narrow = str(getattr(batch[0], "dtype", "")).endswith("bfloat16")
    if narrow and not isinstance(batch[0], Tensor):
        batch = [v.float() for v in batch]
    arrays = [as_array(v, name) for v in batch]
    shapes = {a.shape for a in arrays}
    if len(shapes) > 1:
        raise ShapeError(
            f"{name}: expected samples of one shape, not {', '.join(map(str, sorted(shapes)))}; "
            "pass collate_fn= to pad them"
        )
    return tensor(np.stack(arrays), dtype="bfloat16" if narrow else None)


def _mapped(batch: list[Any], name: str) -> dict[Any, Any]:
    keys = list(batch[0])
    for i, sample in enumerate(batch):
        if set(sample) != set(keys):
            raise ShapeError(f"{name}: sample {i} has keys {sorted(map(str, sample))}, not "
                             f"{sorted(map(str, keys))}")  # fmt: skip
    return {key: _joined([s[key] for s in batch], f"{name}[{key!r}]") for key in keys}


def _listed(batch: list[Any], name: str) -> Any:
    first = batch[0]
    lengths = sorted({len(sample) for sample in batch})
    if len(lengths) > 1:
        raise ShapeError(f"{name}: expected samples of one length, not {lengths}")
    parts = [_joined(list(p), f"{name}[{i}]") for i, p in enumerate(zip(*batch, strict=True))]
    if hasattr(first, "_fields"):
        return type(first)(*parts)
    return tuple(parts) if isinstance(first, tuple) else parts


def computed(value: Any) -> Any:
    """`value`, with the tensors in it computed: what is made of them has a graph that begins there.

    In a traced function they stay graphs.
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
