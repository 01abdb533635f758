"""Integer expressions over edge values against NumPy, whose arithmetic wraps like C's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.soak import record

if TYPE_CHECKING:
    from collections.abc import Iterator

Case = dict[str, Any]
SHARE = 0.3
TYPES = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
ELEMENTS = 6000
SINGLE = 4
"""Number of elements to try again as constants, which are folded."""


class Host:
    """The functions of expressions, on NumPy arrays."""

    MAX, MIN, ABS, WHERE = np.maximum, np.minimum, np.abs, np.where

    @staticmethod
    def C(x: Any, kind: str) -> Any:  # noqa: N802
        return x.astype(kind)


class Device:
    """The functions of expressions, on Tensors."""

    @staticmethod
    def MAX(x: Any, y: Any) -> Any:  # noqa: N802
        return x.maximum(y)

    @staticmethod
    def MIN(x: Any, y: Any) -> Any:  # noqa: N802
        return x.minimum(y)

    @staticmethod
    def ABS(x: Any) -> Any:  # noqa: N802
        return x.abs()

    @staticmethod
    def WHERE(condition: Any, x: Any, y: Any) -> Any:  # noqa: N802
        import kernelrt as krt

        return krt.where(condition, x, y)

    @staticmethod
    def C(x: Any, kind: str) -> Any:  # noqa: N802
        return x.cast(kind)


def scope(functions: type) -> dict[str, Any]:
    return {name: value for name, value in vars(functions).items() if name[0] != "_"} | {
        name: getattr(functions, name) for name in ("MAX", "MIN", "ABS", "WHERE", "C")
    }


def edges(kind: str) -> list[int]:
    """Return numbers where integer rules break: limits, powers of two and their neighbors."""
    info = np.iinfo(kind)
    found = {0, 1, 2, 3, 5, 7, 10, 100, -1, -2, -3, -7, -10}
    for bit in range(info.bits):
        found |= {sign * (1 << bit) + d for sign in (1, -1) for d in (-1, 0, 1)}
    found |= {int(info.max) - d for d in range(3)} | {int(info.min) + d for d in range(3)}
    return sorted(x for x in found if info.min <= x <= info.max)


def generate(rng: np.random.Generator) -> Case:
    kind = str(rng.choice(TYPES))
    values = edges(kind)

    def constant() -> str:
        pool = [v for v in values if abs(v) < 12] if rng.integers(2) else values
        return f"({pool[rng.integers(len(pool))]})"

    def grow(depth: int) -> str:
        if depth == 0 or rng.integers(8) == 0:
            return str(rng.choice(["x", "y"]))
        x = grow(depth - 1)
        y = grow(depth - 1) if rng.integers(3) == 0 else constant()
        other = str(rng.choice(TYPES))
        bits = np.iinfo(kind).bits
        templates = (
            f"({x} + {y})", f"({x} - {y})", f"({x} * {y})", f"({x} // {y})", f"({x} % {y})",
            f"({x} // {constant()})", f"({x} % {constant()})", f"({x} * {constant()})",
            f"({x} + {constant()})", f"({x} & {y})", f"({x} | {y})", f"({x} ^ {y})",
            f"({x} << {rng.integers(bits)})", f"({x} >> {rng.integers(bits)})", f"(~{x})",
            f"(-{x})", f"ABS({x})", f"MAX({x}, {y})", f"MIN({x}, {y})",
            f"WHERE({x} < {y}, {x}, {grow(depth - 1)})", f"WHERE({x} == {y}, {x}, x)",
            f"C(C({x}, '{other}'), '{kind}')", f"C({x} <= {y}, '{kind}')",
            f"({y} - {x})", f"C({x} != {y}, '{kind}')", f"({x} << (y & {bits - 1}))",
            f"({x} >> (y & {bits - 1}))", f"({x} ** {rng.integers(6)})",
            f"({x} ** {abs(values[rng.integers(len(values))])})",
            f"({x} ** ABS(y & {bits * 4 - 1}))",
        )  # fmt: skip
        return str(templates[rng.integers(len(templates))])

    return {"kind": kind, "text": grow(int(rng.integers(1, 6))), "seed": int(rng.integers(1000))}


def data(case: Case) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return pairs of numbers: those of the case, or edge values with each other and with any."""
    kind = case["kind"]
    if "pairs" in case:
        x, y = np.array(case["pairs"], kind).T
        return x.copy(), y.copy()
    rng = np.random.default_rng(case["seed"])
    info = np.iinfo(kind)
    values = np.array(edges(kind), kind)
    x = rng.choice(values, ELEMENTS)
    y = rng.choice(values, ELEMENTS)
    some = rng.integers(info.min, info.max, (2, ELEMENTS // 4), kind, endpoint=True)
    x[: ELEMENTS // 4], y[ELEMENTS // 8 : ELEMENTS // 8 + ELEMENTS // 4] = some
    return x, y


def truth(case: Case, x: Any, y: Any) -> Any:
    with np.errstate(all="ignore"):
        got = eval(case["text"], {**scope(Host), "x": x, "y": y})  # noqa: S307
    return np.asarray(got).astype(case["kind"]) if np.asarray(got).dtype == bool else got


def run(case: Case) -> str | None:
    import kernelrt as krt

    x, y = data(case)
    try:
        want = truth(case, x, y)
    except (OverflowError, SyntaxError, TypeError):
        return None  # a constant outside the type, or a broken text
    if not isinstance(want, np.ndarray) or want.shape != x.shape or want.dtype != x.dtype:
        return None

    def program(x: Any, y: Any) -> Any:
        return eval(case["text"], {**scope(Device), "x": x, "y": y})  # noqa: S307

    jitted = krt.jit(program)
    picked = np.random.default_rng(case["seed"]).integers(0, len(x), min(SINGLE, len(x)))
    tries = [
        ("jitted", lambda: jitted(x, y).numpy(), slice(None)),
        ("eager", lambda: program(krt.tensor(x), krt.tensor(y)).numpy(), slice(None)),
    ] + [
        ("constant", lambda i=i: full(program, case["kind"], x[i], y[i]), slice(i, i + 1))
        for i in picked
    ]
    for way, compute, part in tries:
        got = compute()
        if got.dtype != want.dtype:
            return f"values: {way}: type {got.dtype}, NumPy {want.dtype}"
        wrong = np.flatnonzero(got != want[part])
        if len(wrong):
            i = wrong[np.argmin(np.abs(x[part][wrong].astype(float)))]
            pair = int(x[part][i]), int(y[part][i])
            return (
                f"values: {way}: {case['text']} with x, y = {pair} is {got[i]}, "
                f"NumPy {want[part][i]}"
            )
    record.note("integers computed", len(want))
    return None


def full(program: Any, kind: str, x: Any, y: Any) -> np.ndarray[Any, Any]:
    import kernelrt as krt

    made = program(krt.full((1,), int(x), dtype=kind), krt.full((1,), int(y), dtype=kind))
    return np.asarray(made.numpy())


INNER = re.compile(r"\w*\([^()]*\)")


def shrink(case: Case) -> Iterator[Case]:
    if "pairs" not in case:
        x, y = data(case)
        for block in range(0, len(x), 500):
            part = slice(block, block + 500)
            yield {**case, "pairs": list(zip(x[part].tolist(), y[part].tolist(), strict=True))}
        return
    pairs = case["pairs"]
    if len(pairs) > 1:
        for k in (len(pairs) // 2, len(pairs) - 1):
            yield {**case, "pairs": pairs[:k]}
            yield {**case, "pairs": pairs[k:]}
    for text in shorter(case["text"]):
        yield {**case, "text": text}
    if len(pairs) == 1:
        x, y = pairs[0]
        yield from ({**case, "pairs": [[less, y]]} for less in nearer(x))
        yield from ({**case, "pairs": [[x, less]]} for less in nearer(y))


def nearer(x: int) -> list[int]:
    """Return numbers closer to 0."""
    return [less for less in dict.fromkeys((0, 1, -1, 2, x // 2, x - 1)) if abs(less) < abs(x)]


def shorter(text: str) -> Iterator[str]:
    """Yield parts of an expression, then the expression with simpler parts or numbers."""
    for found in re.finditer(r"\(", text):
        start, end = found.start(), closing(text, found.start())
        while start and text[start - 1].isalpha():
            start -= 1
        if text[start:end] not in (text, "(x)", "(y)"):
            yield text[start:end]
        for name in "xy":
            yield text[:start] + name + text[end:]
    for found in re.finditer(r"-?\d+", text):
        if text[found.start() - 1].isalpha():
            continue  # the digits of a type's name
        for less in nearer(int(found[0])):
            yield text[: found.start()] + str(less) + text[found.end() :]


def closing(text: str, start: int) -> int:
    """Return the position after the parenthesis that closes the one at `start`."""
    depth = 0
    for end in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[end], 0)
        if depth == 0:
            return end + 1
    return len(text)


def key(case: Case) -> str:
    return re.sub(r"\d+", "#", case["text"])


def source(case: Case) -> str:
    x, y = data(case)
    kind = case["kind"]
    text = case["text"]
    shown = f"{text} of {kind}"
    lines = ["import numpy as np, kernelrt as krt"]
    for name, on_host, on_device in (
        ("MAX", "np.maximum", "lambda x, y: x.maximum(y)"),
        ("MIN", "np.minimum", "lambda x, y: x.minimum(y)"),
        ("ABS", "np.abs", "lambda x: x.abs()"),
        ("WHERE", "np.where", "krt.where"),
        ("C", "lambda x, t: x.astype(t)", "lambda x, t: x.cast(t)"),
    ):
        if f"{name}(" in text:
            lines.append(
                f"{name} = lambda x, *a: ({on_host} if isinstance(x, np.ndarray) else "
                f"{on_device})(x, *a)"
            )
    if len(x) > 20:
        lines.append(f"from tests.soak.generators.integers import data; x, y = data({case!r})")
    else:
        lines.append(f"x, y = np.array({x.tolist()}, '{kind}'), np.array({y.tolist()}, '{kind}')")
    lines += [
        f"expression = lambda x, y: {text}  # {shown}",
        "want = expression(x, y)",
        "assert np.array_equal(krt.jit(expression)(x, y).numpy(), want), want",
        "assert np.array_equal(expression(krt.tensor(x), krt.tensor(y)).numpy(), want), want",
        f"one = [krt.full((1,), int(v[0]), dtype='{kind}') for v in (x, y)]",
        "assert np.array_equal(expression(*one).numpy(), want[:1]), want",
    ]
    return "\n".join(lines)
