"""Draws random calls of operations (rows of `tests/surface/tables`).

Drawn are sizes, memory layouts, dtypes, elements, and words in the call.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import TYPE_CHECKING, Any

import numpy as np
from surface import rows
from surface.rows import Bool, In, Index

if TYPE_CHECKING:

    from surface.rows import Row

Rng = np.random.Generator
Shape = tuple[int, ...]

FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("int64", "int32", "int8", "uint8", "int16")
#: Sizes of axes: 0, 1, small ones, and around those of vectors and tiles.
SIZES = (0, 1, 1, 2, 2, 3, 3, 4, 5, 7, 8, 9, 16, 17, 33, 65)
LAYOUTS = ("plain", "plain", "plain", "permuted", "flipped", "sliced", "stepped", "expanded")
#: Maximum elements of an operand, and maximum product of all sizes of a call.
MOST, WORK = 20_000, 1_000_000


def generate(rng: Rng) -> dict[str, Any]:
    """Draw a case: the name of a row, its call, and how to make its operands."""
    names = drawn()
    while True:
        case = of_row(names[int(rng.integers(len(names)))], rng)
        if case is not None:
            return case


@functools.cache
def drawn() -> tuple[str, ...]:
    """Return the names of the rows to draw."""
    return tuple(by_name())


@functools.cache
def by_name() -> dict[str, Row]:
    """Return all rows by name: the name of the table, a hyphen, and the row's own name."""
    return {f"{table}-{row.name}": row for table, row in rows.templates()}


def row_of(case: dict[str, Any]) -> Row:
    """Return the row of a case, with the words and axes that were drawn for the case."""
    row = by_name()[case["row"]]
    return rows.settled(row, np.random.default_rng(case["seed"]), case["rank"], spread=True)


def _pick(rng: Rng, items: Any) -> Any:
    return items[int(rng.integers(len(items)))]


def of_row(name: str, rng: Rng) -> dict[str, Any] | None:
    """Draw a case of one row. Return None if it is too large, or too small for its indices."""
    case: dict[str, Any] = {
        "row": name, "seed": int(rng.integers(2**31)), "rank": int(rng.integers(0, 5)),
    }  # fmt: skip
    written, row = by_name()[name], row_of(case)
    of = _sizes(row, rng)
    shapes = [rows.shape(spec, of) for spec in row.specs]
    if sum(map(math.prod, shapes)) > MOST or math.prod(max(n, 1) for n in of.values()) > WORK:
        return None
    if not all(rows.fits(spec, of) for spec in row.specs):
        return None
    dtype = _dtype(row, rng)
    # Equal or parallel rows make a matrix singular, and its factors ambiguous.
    unequal = name.startswith(("linalg-", "norms-")) or row.values == "apart"
    inputs = []
    for i, (spec, shape) in enumerate(zip(row.specs, shapes, strict=True)):
        own = "bool" if isinstance(spec, Bool) else "int64" if isinstance(spec, Index) else dtype
        if isinstance(spec, In) and i and written.specs[i].shape == "..." and rng.integers(8) == 0:
            kinds = {"float": FLOATS, "bfloat": FLOATS, "bool": ("bool",)}
            like = kinds.get(dtype.rstrip("0123456789"), INTEGERS)
            own = _pick(rng, like if rng.integers(2) else (*FLOATS, *INTEGERS))
        inputs.append(_input(row, spec, shape, own, of, rng, unequal))
    call = row.op if isinstance(row.op, str) else name
    return {**case, "call": call, "inputs": inputs}


def _dtype(row: Row, rng: Rng) -> str:
    kind = _pick(rng, row.kinds or ("fi" if row.ints else "f"))
    narrow = row.half and row.values != "apart"
    kind = "n" if kind == "f" and row.tol64 > 1 else kind  # torch has the digits of float32
    types = {
        "f": FLOATS if narrow else FLOATS[:2], "n": FLOATS[::2] if narrow else FLOATS[:1],
        "i": INTEGERS, "b": ("bool",),
    }[kind]  # fmt: skip
    return str(types[min(int(rng.geometric(0.4)) - 1, len(types) - 1)])


def _sizes(row: Row, rng: Rng) -> dict[str, int]:
    """Draw sizes for the letters of a row; 0 and 1 only if the row allows them."""
    names = rows.letters(row)
    empty = names if row.zero is True else (row.zero or "").split()
    most = min(row.most, 65 if len(names) < 3 else 17 if len(names) < 4 else 7)
    zero = rng.integers(4) == 0
    found = {}
    for name in names:
        if name in row.sizes and name not in empty:
            found[name] = row.sizes[name]
        else:
            least = 0 if zero and name in empty else 1 if name in empty or not row.grid else 2
            found[name] = int(_pick(rng, [n for n in SIZES if least <= n <= most]))
    return found


# ---- layouts and elements


def _input(
    row: Row, spec: In | Index | Bool, shape: Shape, dtype: str, of: dict[str, int], rng: Rng,
    unequal: bool,
) -> dict[str, Any]:
    """Draw the elements of an array, and the text of a view of it that is the operand.

    If `unequal` is set, the operand repeats no elements.
    """
    layout, rank = _pick(rng, [w for w in LAYOUTS if not (unequal and w == "expanded")]), len(shape)
    base, way = shape, ""
    if not rank or 0 in shape or not row.transposed or getattr(spec, "distinct", False):
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
    if isinstance(spec, Index):
        data = rows.indices(rng, spec, base, of).ravel().tolist()
    else:
        data = _elements(math.prod(base), dtype, row.values, spec, rng, unequal)
    return {"dtype": dtype, "shape": list(base), "way": way, "data": data}


_SPECIAL = {
    "float32": ("nan", "inf", "-inf", "0.0", "-0.0", "1e-45", "-1e-40", "3.4028235e38"),
    "float64": ("nan", "inf", "-inf", "0.0", "-0.0", "5e-324", "-1e-310", "1.7976931348623157e308"),
    "float16": ("nan", "inf", "-inf", "0.0", "-0.0", "6e-8", "-1e-5", "65504.0"),
    "bfloat16": ("nan", "inf", "-inf", "0.0", "-0.0", "1e-40", "-1e-39", "3.3895314e38"),
}


def _elements(
    count: int, dtype: str, values: str, spec: In | Bool, rng: Rng, unequal: bool
) -> list[Any]:
    if dtype == "bool":
        return [bool(v) for v in rng.integers(0, 2, count)]
    low, high = (spec.low, spec.high) if isinstance(spec, In) else (-2.0, 2.0)
    if not dtype.startswith(("float", "bfloat")):
        return _integers(count, dtype, values, (low, high), rng)
    if values == "unit" and (low, high) != (-2.0, 2.0):
        return [float(v) for v in rng.uniform(low, high, count)]
    if values == "apart":
        # Each number is shifted by a fraction of a step, so that differences are unequal, too.
        shifted = rng.permutation(count) - count // 2 + rng.random(count) / 2
        return [float(v) for v in shifted / 8]
    mood = int(rng.integers(int(unequal), 6))
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


def _integers(
    count: int, dtype: str, values: str, interval: tuple[float, float], rng: Rng
) -> list[int]:
    info = np.iinfo(dtype)
    if values == "unit" and interval != (-2.0, 2.0):
        least = max(math.ceil(interval[0]), info.min)
        return [int(v) for v in rng.integers(least, max(math.floor(interval[1]), least) + 1, count)]
    if values == "shift":
        return [int(v) for v in rng.integers(0, info.bits, count)]
    low, high = (max(info.min, -9), 9) if values == "unit" or rng.integers(2) else (
        info.min, info.max)  # fmt: skip
    out = [int(v) for v in rng.integers(low, high, count, endpoint=True)]
    if values == "any" and count:
        out[int(rng.integers(count))] = int(_pick(rng, (info.min, info.max, 0, 1)))
    return [v or 1 for v in out] if values == "nonzero" else out


def smaller(case: dict[str, Any]) -> Any:
    """Yield cases with simpler elements, layouts or types."""
    for i, given in enumerate(case["inputs"]):
        def with_input(**changed: Any) -> dict[str, Any]:
            inputs = [{**given, **changed} if k == i else v  # noqa: B023
                      for k, v in enumerate(case["inputs"])]
            return {**case, "inputs": inputs}

        if given["way"] and ".expand" not in given["way"]:
            yield with_input(way="")
        for axis, size in itertools.product(range(len(given["shape"])), (1, 2)):
            if given["shape"][axis] > size:
                shape = [size if a == axis else d for a, d in enumerate(given["shape"])]
                yield with_input(shape=shape, data=given["data"][: math.prod(shape)])
        plain = [1.0] * len(given["data"])
        if given["dtype"].startswith("float") and given["data"] != plain:
            yield with_input(data=plain)
