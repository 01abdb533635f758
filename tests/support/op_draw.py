"""Random calls of the operations in op_table.py: shapes, layouts, elements, arguments."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
from support.op_table import ROWS

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.op_table import Row

Rng = np.random.Generator
Shape = tuple[int, ...]

FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("int64", "int32", "int8", "uint8", "int16")
#: Sizes of axes: none, one, few, a vector and one more, a tile and one more.
SIZES = (0, 1, 1, 2, 2, 3, 3, 4, 5, 7, 8, 9, 16, 17, 33, 65)
SCALARS = ("2", "-1", "0.1", "3", "0.5", "-2.5", "1e4", "7", "0", "1", "float('inf')", "1e-6",
           "100", "np.float32(1.5)", "np.int64(3)", "np.float64(0.3)", "-0.0")  # fmt: skip
LAYOUTS = ("plain", "plain", "plain", "permuted", "flipped", "sliced", "stepped", "expanded")


def generate(rng: Rng) -> dict[str, Any]:
    """A case: a line of Python, and what its names stand for."""
    while True:
        row = ROWS[rng.integers(len(ROWS))]
        case = _case(row, rng)
        if case is not None:
            return case


def _pick(rng: Rng, items: Any) -> Any:
    return items[int(rng.integers(len(items)))]


def _case(row: Row, rng: Rng) -> dict[str, Any] | None:
    kind = _pick(rng, row.types)
    types = {"f": FLOATS, "n": FLOATS[::2], "i": INTEGERS, "b": ("bool",)}[kind]
    dtype = types[min(int(rng.geometric(0.4)) - 1, len(types) - 1)]
    shapes = _SHAPES[row.shapes](rng)
    if sum(int(np.prod(s)) for s in shapes.values()) > 20000:
        return None
    inputs = {}
    for name, shape in shapes.items():
        own = {"i": "int64", "m": "bool"}.get(name, dtype)
        if name in "yz" and row.shapes == "pair" and rng.integers(8) == 0:
            own = _pick(rng, types if rng.integers(2) else (*FLOATS, *INTEGERS))
        limit = _index_limit(row, shapes, name)
        inputs[name] = _input(shape, own, row.values, limit, rng)
    rank = len(shapes["x"]) if "x" in shapes else 1
    axis = int(rng.integers(-rank, rank)) if rank else 0
    other = int(rng.integers(-rank, rank)) if rank else 0
    several = sorted({axis % rank, other % rank}) if rank else [0]
    if row.shapes == "gather":
        axis = 1
    words = {
        "d": axis, "e": other, "u": int(rng.integers(-rank - 1, rank + 1)),
        "ds": _pick(rng, (str(axis), str(tuple(several)), "None")),
        "k": bool(rng.integers(2)), "o": int(rng.integers(0, 2)), "s": int(rng.integers(-2, 3)),
        "c": _pick(rng, SCALARS), "r": repr(_pick(rng, ("mean", "sum", "none"))),
        "n": int(rng.integers(1, 4)), "t": int(rng.integers(1, 4)), "p": int(rng.integers(0, 3)),
        "q": int(rng.integers(1, 3)),
    }  # fmt: skip
    if "dtype=" in row.line and words["ds"] == "None":
        words["ds"] = str(axis)
    return {"line": row.line.format(**words), "inputs": inputs, "seed": int(rng.integers(2**31))}


def _index_limit(row: Row, shapes: dict[str, Shape], name: str) -> int:
    if name != "i":
        return 0
    if row.shapes == "labels":
        return shapes["x"][1]
    return shapes["x"][1 if row.shapes == "gather" else 0] if "x" in shapes else 7


# ---- shapes


def _any(rng: Rng, least: int = 0, *, zero: bool = True, ranks: tuple[int, int] = (0, 5)) -> Shape:
    rank = int(rng.integers(max(least, ranks[0]), ranks[1]))
    sizes = SIZES if zero and rng.integers(4) == 0 else SIZES[1:]
    small = sizes[:8] if rank > 2 else sizes
    return tuple(_pick(rng, small) for _ in range(rank))


def _broadcast(shape: Shape, rng: Rng) -> Shape:
    """A shape that broadcasts with `shape`."""
    out = [1 if rng.integers(4) == 0 else d for d in shape]
    return tuple(out[int(rng.integers(0, len(out) + 1)) :] if rng.integers(3) == 0 else out)


def _size(rng: Rng) -> int:
    return int(_pick(rng, SIZES[1:])) if rng.integers(16) else 0


def _upto(rng: Rng, most: int, count: int, *, zero: bool = True) -> Shape:
    none = [zero and rng.integers(32) == 0 for _ in range(count)]
    return tuple(0 if empty else int(rng.integers(1, most)) for empty in none)


def _pair(rng: Rng) -> dict[str, Shape]:
    x = _any(rng)
    y = _broadcast(x, rng)
    return {"x": x, "y": y} if rng.integers(2) else {"x": y, "y": x}


def _masked(rng: Rng) -> dict[str, Shape]:
    x = _any(rng)
    return {"x": x, "y": _broadcast(x, rng), "m": x}


def _product(rng: Rng) -> dict[str, Shape]:
    k, lead = _size(rng), _upto(rng, 4, int(rng.integers(3)))
    left = _pick(rng, ((k,), (_size(rng), k), (*lead, _size(rng), k)))
    right = _pick(rng, ((k,), (k, _size(rng)), (*_broadcast(lead, rng), k, _size(rng))))
    return {"x": left, "y": right}


def _matrices(rng: Rng, lead: Shape) -> dict[str, Shape]:
    m, k, n = _size(rng), _size(rng), _size(rng)
    return {"x": (*lead, m, k), "y": (*lead, k, n)}


def _linear(rng: Rng) -> dict[str, Shape]:
    k, n = _size(rng), _size(rng)
    return {"x": (*_any(rng, ranks=(0, 3)), k), "y": (n, k), "z": (n,)}


def _conv(rng: Rng, rank: int) -> dict[str, Shape]:
    # Of nothing, torch gives convolutions the wrong shape.
    batch, channels, out = _upto(rng, 5, 3, zero=False)
    return {"x": (batch, channels, *_upto(rng, (34, 10, 6)[rank - 1], rank, zero=False)),
            "y": (out, channels, *_upto(rng, (5, 5, 3)[rank - 1], rank, zero=False)),
            "z": (out,)}  # fmt: skip


def _transposed(rng: Rng, rank: int) -> dict[str, Shape]:
    batch, channels, out = _upto(rng, 5, 3, zero=False)
    return {"x": (batch, channels, *_upto(rng, (20, 8, 4)[rank - 1], rank, zero=False)),
            "y": (channels, out, *_upto(rng, (5, 5, 3)[rank - 1], rank, zero=False)),
            "z": (out,)}  # fmt: skip


def _norm(rng: Rng) -> dict[str, Shape]:
    n = _size(rng)
    return {"x": (*_any(rng, ranks=(0, 3)), n), "y": (n,), "z": (n,)}


def _group(rng: Rng) -> dict[str, Shape]:
    # Of nothing, torch has gradients that are no numbers, where there is nothing to add up.
    rest = _upto(rng, 6, int(rng.integers(3)), zero=False)
    return {"x": (int(rng.integers(2, 6)), 4, *rest), "y": (4,), "z": (4,)}


def _labels(rng: Rng) -> dict[str, Shape]:
    (batch,), rest = _upto(rng, 5, 1), _upto(rng, 5, int(rng.integers(3)))
    classes = int(_pick(rng, (1, 2, 3, 10, 17)))
    return {"x": (batch, classes, *rest), "y": (classes,), "i": (batch, *rest)}


def _gather(rng: Rng) -> dict[str, Shape]:
    x = (_size(rng), _size(rng))
    i = (min(x[0], _size(rng)), _size(rng))
    return {"x": x, "y": i, "i": i}


_SHAPES: dict[str, Callable[[Rng], dict[str, Shape]]] = {
    "any": lambda rng: {"x": _any(rng)},
    "full": lambda rng: {"x": _any(rng, zero=False)},
    "full1": lambda rng: {"x": _any(rng, 1, zero=False)},
    "pair": _pair,
    "masked": _masked,
    "same": lambda rng: dict.fromkeys("xy", _any(rng, 1)),
    "matrix": lambda rng: {"x": _any(rng, 2)},
    "line": lambda rng: {"x": (_size(rng),), "y": (_size(rng),)},
    "product": _product,
    "mm": lambda rng: _matrices(rng, ()),
    "bmm": lambda rng: _matrices(rng, _upto(rng, 5, 1)),
    "linear": _linear,
    "conv1": lambda rng: _conv(rng, 1),
    "conv2": lambda rng: _conv(rng, 2),
    "conv3": lambda rng: _conv(rng, 3),
    "transposed3": lambda rng: _transposed(rng, 3),
    "transposed1": lambda rng: _transposed(rng, 1),
    "transposed2": lambda rng: _transposed(rng, 2),
    "pool1": lambda rng: {"x": (*_upto(rng, 5, 2), _size(rng))},
    "pool2": lambda rng: {"x": (*_upto(rng, 5, 2), *_upto(rng, 10, 2))},
    "norm": _norm,
    "group": _group,
    "labels": _labels,
    "rows": lambda rng: {
        "x": (_size(rng), _size(rng)), "i": _pick(rng, ((), (1,), (3,), (2, 4), (9,))),
    },
    "gather": _gather,
}  # fmt: skip


# ---- layouts and elements


def _input(shape: Shape, dtype: str, values: str, limit: int, rng: Rng) -> dict[str, Any]:
    """What a tensor is made of: the elements of a base, and the way from there as text."""
    layout, rank = _pick(rng, LAYOUTS), len(shape)
    base, way = shape, ""
    if not rank or 0 in shape:
        layout = "plain"
    if layout == "permuted" and rank > 1:
        order = [int(a) for a in rng.permutation(rank)]
        base = tuple(shape[order.index(a)] for a in range(rank))
        way = f".permute({', '.join(map(str, order))})"
    elif layout == "flipped":
        way = f".flip({int(rng.integers(rank))})"
    elif layout == "sliced":
        base = (shape[0] + 2, *shape[1:])
        way = f"[1:{shape[0] + 1}]"
    elif layout == "stepped":
        base = (*shape[:-1], 2 * shape[-1])
        way = "[..., ::2]"
    elif layout == "expanded":
        axis = int(rng.integers(rank))
        base = tuple(1 if a == axis else d for a, d in enumerate(shape))
        way = f".expand({', '.join(map(str, shape))})"
    count = int(np.prod(base))
    data = _elements(count, dtype, values, limit, rng)
    return {"dtype": dtype, "shape": list(base), "way": way, "data": data}


_SPECIAL = {
    "float32": ("nan", "inf", "-inf", "0.0", "-0.0", "1e-45", "-1e-40", "3.4028235e38"),
    "float64": ("nan", "inf", "-inf", "0.0", "-0.0", "5e-324", "-1e-310", "1.7976931348623157e308"),
    "float16": ("nan", "inf", "-inf", "0.0", "-0.0", "6e-8", "-1e-5", "65504.0"),
    "bfloat16": ("nan", "inf", "-inf", "0.0", "-0.0", "1e-40", "-1e-39", "3.3895314e38"),
}


def _elements(count: int, dtype: str, values: str, limit: int, rng: Rng) -> list[Any]:
    if limit:
        return [int(v) for v in rng.integers(0, limit, count)]
    if dtype == "bool":
        return [bool(v) for v in rng.integers(0, 2, count)]
    if not dtype.startswith(("float", "bfloat")):
        return _integers(count, dtype, values, rng)
    mood = int(rng.integers(6))
    if values == "ties" or mood == 0:
        out = rng.integers(-2, 3, count).astype(float) * 0.5
    elif values == "unit" or mood < 4:
        out = rng.standard_normal(count) * (1 if values == "unit" else _pick(rng, (1, 1, 4)))
    else:
        out = rng.standard_normal(count) * 10.0 ** rng.uniform(-4, 4 if mood == 4 else 1.5, count)
    if values == "nonzero":
        out[out == 0] = 1.0
    texts = [float(v) for v in out]
    if values == "any" and rng.integers(4) == 0:
        special = _SPECIAL[dtype]
        for at in rng.integers(0, max(count, 1), max(1, count // 6)):
            if count:
                texts[int(at)] = _pick(rng, special)
    return texts


def _integers(count: int, dtype: str, values: str, rng: Rng) -> list[int]:
    info = np.iinfo(dtype)
    if values == "shift":
        return [int(v) for v in rng.integers(0, info.bits, count)]
    low, high = (max(info.min, -9), 9) if values == "unit" or rng.integers(2) else (
        info.min, info.max)  # fmt: skip
    out = [int(v) for v in rng.integers(low, high, count, endpoint=True)]
    if values == "any" and count:
        out[int(rng.integers(count))] = int(_pick(rng, (info.min, info.max, 0, 1)))
    return [v or 1 for v in out] if values == "nonzero" else out


def smaller(case: dict[str, Any]) -> Any:
    """Cases with simpler elements, layouts or types."""
    for name, given in case["inputs"].items():
        def with_input(**changed: Any) -> dict[str, Any]:
            return {**case, "inputs": {**case["inputs"], name: {**given, **changed}}}  # noqa: B023

        if given["way"] and ".expand" not in given["way"]:
            yield with_input(way="")
        for axis, size in itertools.product(range(len(given["shape"])), (1, 2)):
            if given["shape"][axis] > size:
                shape = [size if a == axis else d for a, d in enumerate(given["shape"])]
                yield with_input(shape=shape, data=given["data"][: int(np.prod(shape))])
        plain = [1.0] * len(given["data"])
        if given["dtype"].startswith("float") and given["data"] != plain:
            yield with_input(data=plain)

