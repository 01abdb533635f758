"""Random programs of assignments to memory that several tensors alias.

Tensors lie over one block of memory, which belongs to kernelrt or to a NumPy array. They are made
directly, through DLPack or through the buffer protocol. They cover the block wholly or in
overlapping parts. The truth is NumPy: each statement also runs on views of the same layout, one
statement after the other, where each result is copied before it is assigned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import kernelrt as krt
from kernelrt.errors import JitError

if TYPE_CHECKING:
    from collections.abc import Callable

Array = np.ndarray[Any, Any]
_SMALL = 97
_GROWING = ("roll+flip", "a-b", "a+1", "gather", "sum")


def expression(rng: np.random.Generator, count: int) -> tuple[str, Callable[..., Any]]:
    """Return a function of two operands of `count` elements that both libraries compute exactly."""
    shift = int(rng.integers(0, count))
    where = rng.integers(0, count, count)
    several: list[tuple[str, Callable[..., Any]]] = [
        ("roll+flip", lambda m, a, b: m.roll(a, shift) + m.flip(b)),
        ("a-b", lambda _, a, b: a - b),
        ("flip", lambda m, a, _: m.flip(a)),
        ("a+1", lambda _, a, __: a + 1),
        ("b", lambda _, __, b: b),
        ("gather", lambda m, a, b: m.take(a, where) + b),
        ("sum", lambda _, a, b: a - b.sum()),
        ("max", lambda m, a, b: m.maximum(a, m.roll(b, 1))),
        ("number", lambda m, *_: m.arange(count) + shift),
        ("number", lambda m, *_: m.arange(count) * shift),
    ]
    return several[int(rng.integers(len(several)))]


class _Ours:
    roll = staticmethod(lambda x, n: x.roll(n, 0))
    flip = staticmethod(lambda x: x.flip(0))
    take = staticmethod(lambda x, i: x[krt.tensor(i)])
    maximum = staticmethod(lambda x, y: x.maximum(y))
    arange = staticmethod(lambda n: krt.arange(n, dtype="float64"))


class _Theirs:
    roll = staticmethod(np.roll)
    flip = staticmethod(lambda x: x[::-1])
    take = staticmethod(lambda x, i: x[i])
    maximum = staticmethod(np.maximum)
    arange = staticmethod(lambda n: np.arange(n, dtype=np.float64))


class Program:
    """A program over `size` whole numbers in float64; tensors see parts of `count` elements."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = np.random.default_rng(seed)
        self.count = int(rng.choice([1, 3, 8, 33, 700]))
        self.size = self.count + int(rng.choice([0, 1, 2, self.count]))
        data = rng.integers(-9, 10, self.size).astype(np.float64)
        self.memory = data.copy()
        self.text: list[str] = [f"{self.size} elements, parts of {self.count}"]
        if rng.integers(2):
            self.whole = krt.tensor(data).realize()
            self.array = self.whole._buffer.numpy()
            self.text.append("own memory")
        else:
            self.array = data.copy()
            self.whole = krt.from_numpy(self.array)
            self.text.append("an array's memory")
        self.ours: list[Any] = []
        self.theirs: list[Array] = []
        for _ in range(int(rng.integers(2, 5))):
            self.alias()

    def alias(self) -> None:
        """Add a tensor over the memory, and the NumPy view that corresponds to it."""
        start = int(self.rng.integers(0, self.size - self.count + 1))
        part = slice(start, start + self.count)
        road = int(self.rng.integers(4))
        if road == 0 and self.count == self.size:
            tensor = self.whole
        elif road == 1:
            tensor = krt.from_numpy(np.from_dlpack(self.whole)[part])
        elif road == 2 and self.count == self.size:
            tensor = krt.from_numpy(self.whole)
        else:
            road = 3
            tensor = krt.from_numpy(self.array[part])
        self.text.append(f"tensor {len(self.ours)}: road {road} at {start}")
        self.ours.append(tensor)
        self.theirs.append(self.memory[part])

    def statements(self) -> list[tuple[int, int, int, bool, bool, Callable[..., Any]]]:
        """Draw statements: (target, operand, operand, only read?, grows?, function).

        The result of a statement that is "only read" is returned, not assigned to the target. The
        result of one that "grows" is reduced, so that it stays exact.
        """
        out = []
        for _ in range(int(self.rng.integers(1, 6))):
            a, b, target = (int(i) for i in self.rng.integers(0, len(self.ours), 3))
            name, function = expression(self.rng, self.count)
            look = bool(self.rng.integers(3) == 0)
            self.text.append(f"{'look' if look else target} = {name}({a}, {b})")
            out.append((target, a, b, look, name in _GROWING, function))
        return out


def run(statements: list[Any], tensors: list[Any], ours: bool) -> list[Any]:
    """Run `statements`; return the results that are only read."""
    seen = []
    for target, a, b, look, grows, function in statements:
        # Sums are reduced modulo _SMALL so that they stay exact; other results are copies.
        value = function(_Ours if ours else _Theirs, tensors[a], tensors[b])
        if look or grows:
            value = value % _SMALL
        if look:
            seen.append(value if ours else np.array(value))
        elif ours:
            tensors[target].assign(value)
        else:
            tensors[target][...] = np.array(value)
    return seen


def check(seed: int, most: int = 20) -> None:
    """Assert that program `seed` changes memory as NumPy does. At most `most` statements run."""
    program = Program(seed)
    statements = program.statements()[:most]
    jitted = krt.jit(lambda: tuple(run(statements, program.ours, True))) if seed % 2 else None
    for _ in range(3):
        try:
            seen = jitted() if jitted else run(statements, program.ours, True)
        except JitError as error:
            if "that shares its memory" in str(error):
                return
            raise
        expected = run(statements, program.theirs, False)
        pairs = [*zip(seen, expected, strict=True), (program.whole, program.memory)]
        for i, (ours, theirs) in enumerate(pairs):
            found = ours.numpy()
            if not np.array_equal(found, theirs):
                kind = "jitted" if jitted else "eager"
                raise AssertionError(
                    f"seed {seed}, {kind}, value {i}: {program.text}\n{found}\nexpected\n{theirs}"
                )
