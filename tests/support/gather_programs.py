"""Random programs that gather at computed indices. The indices are also used as ordinary values.

Every value exists twice: as a Tensor and as a NumPy array. All values are whole numbers, small
enough to be exact, so results must be equal.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import kernelrt as krt

Pair = tuple[Any, "np.ndarray[Any, Any]"]
#: Modulus of sums.
_SMALL = 97


class Program:
    """A random program.

    Parameters
    ----------
    seed : int
        Seed of the program.
    most : int
        Maximum number of computed values.

    Attributes
    ----------
    values : list
        Pairs of a 2-d tensor and its NumPy array; the first pairs are the inputs.
    text : list of str
        Log of the operations.
    """

    def __init__(self, seed: int, most: int = 20) -> None:
        self.rng = np.random.default_rng(seed)
        self.shape = tuple(int(n) for n in self.rng.choice([1, 2, 3, 4, 7, 17], 2))
        self.values: list[Pair] = []
        self.text: list[str] = [f"shape {self.shape}"]
        for _ in range(3):
            data = self.rng.integers(-9, 10, self.shape)
            dtype = str(self.rng.choice(["float64", "int64", "float32", "int32"]))
            self.values.append((krt.tensor(data, dtype=dtype), data))
        for _ in range(min(self.number(2, 10), most)):
            self.grow()

    def number(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high))

    def pick(self) -> Pair:
        """Return a value, often a recent one, so that values with a common origin meet again."""
        if self.number(0, 2):
            return self.values[-min(self.number(1, 5), len(self.values))]
        return self.values[self.number(0, len(self.values))]

    def like(self, d: np.ndarray[Any, Any]) -> Pair:
        """Return a value broadcast or cut to the shape of `d`."""
        t, other = self.pick()
        for axis, size in enumerate(d.shape):
            if other.shape[axis] < size:
                first = np.s_[:1] if axis == 0 else np.s_[:, :1]
                t, other = t[first], other[first]
            elif other.shape[axis] > size:
                start = self.number(0, other.shape[axis] - size + 1)
                part = np.s_[start : start + size]
                at = part if axis == 0 else (slice(None), part)
                t, other = t[at], other[at]
        return t.expand(*d.shape), np.broadcast_to(other, d.shape)

    def index(self, size: int, d: np.ndarray[Any, Any]) -> Pair:
        """Return whole numbers from 0 to below `size` in the shape of `d`."""
        t, other = self.like(d)
        kind = self.number(0, 6)
        if kind <= 1:
            axis, name = self.number(0, 2), str(self.rng.choice(["argmax", "argmin"]))
            t = getattr(t, name)(axis, keepdim=True)
            other = np.expand_dims(getattr(other, name)(axis), axis)
            t, other = t.expand(*d.shape), np.broadcast_to(other, d.shape)
        elif kind == 2:
            t, other = (t > 0).long(), (other > 0).astype(np.int64)
        elif kind == 3:
            t, other = t.amax(1, keepdim=True).expand(*d.shape), np.broadcast_to(
                other.max(1, keepdims=True), d.shape
            )
        elif kind == 4:
            t = krt.arange(d.shape[1]).reshape(1, -1).expand(*d.shape)
            other = np.broadcast_to(np.arange(d.shape[1]), d.shape)
        self.text.append(f"index {kind} below {size}")
        found = t.long() % size, other % size
        self.values.append(found)
        return found

    def grow(self) -> None:
        t, d = self.pick()
        kind = int(self.rng.choice([0, 0, 0, 2, 3, 4, 5, 5, 6, 6, 7, 8, 9, 9]))
        self.text.append(f"{kind} of {d.shape}")
        axis = self.number(0, 2)
        if kind == 0:
            i, at = self.index(d.shape[axis], d)
            new = t.gather(axis, i), np.take_along_axis(d, at, axis)
        elif kind == 2:
            (i, ia), (j, ja) = self.index(d.shape[0], d), self.index(d.shape[1], d)
            new = t[i, j], d[ia, ja]
        elif kind == 3:
            i, at = self.index(d.shape[0], d)
            new = t[i[:, 0]], d[at[:, 0]]
        elif kind == 4:
            (y, yd), (c, cd) = self.like(d), self.like(d)
            new = krt.where(c > y, t, y), np.where(cd > yd, d, yd)
        elif kind == 5:
            y, yd = self.like(d)
            new = (t * 2 + y * 3) % _SMALL, (d * 2 + yd * 3) % _SMALL
        elif kind == 6:
            new = t.contiguous(), d
        elif kind == 7:
            total = d.sum(axis, keepdims=True)
            new = (t - t.sum(axis, keepdim=True)) % _SMALL, (d - total) % _SMALL
        elif kind == 8:
            base = (t * 0).contiguous()
            i, at = self.index(d.shape[axis], d)
            places = [*np.indices(d.shape)]
            places[axis] = at
            out = np.zeros_like(d)
            np.add.at(out, tuple(places), d)
            new = base.scatter_add(axis, i, t) % _SMALL, out % _SMALL
        else:
            start = self.number(0, d.shape[axis])
            part = np.s_[start:] if axis == 0 else np.s_[:, start:]
            new = t[part], d[part]
        self.values.append(new)


def check(seed: int, most: int = 20) -> None:
    """Assert that the last values of program `seed` are right, when computed together."""
    program = Program(seed, most)
    wanted = program.values[-2:]
    got = krt.jit(lambda: tuple(t for t, _ in wanted))() if seed % 2 else [t for t, _ in wanted]
    for t, (_, d) in zip(got, wanted, strict=True):
        found = t.numpy()
        if not np.array_equal(found, d):
            raise AssertionError(f"seed {seed}: {program.text}\n{found}\nexpected\n{d}")
