"""Integer arithmetic wraps as in C, whatever it is used for: random expressions against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import kernelrt as krt
from kernelrt.errors import IndexBoundsError

KINDS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
DIVISORS = [1, 2, 3, 4, 7, 16, 48, 64, 100]


def edges(kind: str) -> np.ndarray:
    """The values at which arithmetic on `kind` goes wrong, if it does."""
    info = np.iinfo(kind)
    values = {
        info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, 5, info.max // 2 + 6,
        info.max // 3 + 1, *((-1, -2, -7) if info.min else (3, 7)),
    }  # fmt: skip
    return np.array(sorted(values), dtype=kind)


def leaves(kind: str) -> list[np.ndarray]:
    """Every pair of edge values, as two arrays."""
    values = edges(kind)
    return [np.ascontiguousarray(a.ravel()) for a in np.meshgrid(values, values)]


class Expression:
    """A random expression, for tensors and for arrays."""

    def __init__(self, rng: np.random.Generator, kind: str, depth: int) -> None:
        self.kind = kind
        self.parts: list[Expression] = []
        self.number = 0
        choices = ["leaf"] if depth == 0 else ["ring", "ring", "by", "two", "one", "pick", "cast"]
        self.form = str(rng.choice(choices))
        count = {"leaf": 0, "by": 1, "one": 1, "cast": 1, "pick": 4}.get(self.form, 2)
        inner = kind
        if self.form == "cast":
            inner = str(rng.choice(KINDS))
        if self.form == "leaf":
            self.op = str(rng.choice(["x", "y", "x", "y", "number"]))
            self.number = int(rng.choice(edges(kind)))
        elif self.form == "ring":
            self.op = str(rng.choice(["+", "-", "*"]))
        elif self.form == "by":
            self.op = str(rng.choice(["//", "%", "*", "+", "-", "<<", ">>"]))
            self.number = int(rng.choice(DIVISORS)) * (1 if "u" in kind else rng.choice([-1, 1, 1]))
            if self.op in ("<<", ">>"):
                self.number = abs(self.number) % np.iinfo(kind).bits
        elif self.form == "two":
            self.op = str(rng.choice(["//", "%", "max", "min", "&", "|", "^"]))
        elif self.form == "one":
            self.op = str(rng.choice(["-", "~", "abs"] if "u" not in kind else ["-", "~"]))
        else:
            self.op = str(rng.choice(["<", "<=", "==", "!="]))
        for _ in range(count):
            self.parts.append(Expression(rng, inner, int(rng.integers(0, depth)) if depth else 0))

    def __str__(self) -> str:
        inner = ", ".join(map(str, self.parts))
        return self.op if self.op in "xy" else f"({self.form} {self.op} {self.number} {inner})"

    def tensor(self, env: dict[tuple[str, str], krt.Tensor]) -> krt.Tensor:
        """Over tensors."""
        p = [e.tensor(env) for e in self.parts]
        if self.form == "leaf":
            known = env[self.kind, "x" if self.op == "number" else self.op]
            return known if self.op != "number" else krt.full_like(known, self.number)
        if self.form == "cast":
            return p[0].cast(self.kind)
        if self.form == "pick":
            return krt.where(binary(self.op, p[0], p[1]), p[2], p[3])
        if self.form == "one":
            return {"-": lambda: -p[0], "~": lambda: ~p[0], "abs": p[0].abs}[self.op]()
        other = self.number if self.form == "by" else p[1]
        if self.op in ("max", "min"):
            return getattr(p[0], self.op + "imum")(other)
        return binary(self.op, p[0], other)

    def array(self, env: dict[tuple[str, str], np.ndarray]) -> np.ndarray:
        """Over arrays."""
        p = [e.array(env) for e in self.parts]
        if self.form == "leaf":
            known = env[self.kind, "x" if self.op == "number" else self.op]
            return known if self.op != "number" else np.full_like(known, self.number)
        if self.form == "cast":
            return p[0].astype(self.kind)
        if self.form == "pick":
            return np.where(binary(self.op, p[0], p[1]), p[2], p[3])
        if self.form == "one":
            return {"-": lambda: -p[0], "~": lambda: ~p[0], "abs": lambda: np.abs(p[0])}[self.op]()
        other = np.asarray(self.number, self.kind) if self.form == "by" else p[1]
        if self.op in ("max", "min"):
            return getattr(np, self.op + "imum")(p[0], other)
        return binary(self.op, p[0], other)


def binary(op: str, a, b):
    return {
        "+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "//": lambda: a // b,
        "%": lambda: a % b, "&": lambda: a & b, "|": lambda: a | b, "^": lambda: a ^ b,
        "<<": lambda: a << b, ">>": lambda: a >> b, "<": lambda: a < b, "<=": lambda: a <= b,
        "==": lambda: a == b, "!=": lambda: a != b,
    }[op]()  # fmt: skip


def environment(make) -> dict:
    """Leaves of every kind, equally long."""
    width = max(len(leaves(kind)[0]) for kind in KINDS)
    out = {}
    for kind in KINDS:
        for name, values in zip("xy", leaves(kind), strict=True):
            out[kind, name] = make(np.resize(values, width))
    return out


@pytest.mark.cases(1)
@pytest.mark.parametrize("seed", range(12))
def test_expressions_wrap(seed):
    rng = np.random.default_rng(seed)
    expressions = [Expression(rng, KINDS[k % 8], 4) for k in range(64)]
    arrays = environment(lambda a: a)
    names = list(arrays)

    def compute(*values):
        env = dict(zip(names, values, strict=True))
        return tuple(e.tensor(env) for e in expressions)

    got = krt.jit(compute)(*arrays.values())
    with np.errstate(all="ignore"):
        for expression, mine in zip(expressions, got, strict=True):
            expected = expression.array(arrays)
            np.testing.assert_array_equal(mine.numpy(), expected, err_msg=str(expression))


@pytest.mark.cases(1)
@pytest.mark.parametrize("seed", range(12))
def test_expressions_wrap_where_they_are_indices(seed):
    """What reaches into a table, and whether it lies outside, is what NumPy makes of it."""
    rng = np.random.default_rng([9, seed])
    size = int(rng.choice([1, 2, 7, 48, 128]))
    guarded = np.full(4096, 777, np.float32)
    table = guarded[1024 : 1024 + size]
    table[:] = np.arange(size)
    source = krt.from_numpy(table)
    arrays = {key: a for key, a in environment(lambda a: a).items() if key[0] == "int64"}
    used = 0
    while used < 12:
        expression = Expression(rng, "int64", 3)
        kinds = {e.kind for e in every(expression)}
        if kinds != {"int64"}:
            continue
        used += 1
        narrow = bool(rng.random() < 0.7)
        divisor = min(2**63 // size + 1, 2**63 - 1)

        def index(v, narrow=narrow, divisor=divisor):
            return v % size if narrow else ((v * 2) // 2 + 2**62) // divisor

        with np.errstate(all="ignore"):
            wanted = index(expression.array(arrays))

        def look(x, y, e=expression, index=index):
            return source[index(e.tensor({("int64", "x"): x, ("int64", "y"): y}))]

        for f in (krt.jit(look), look):
            lift = krt.tensor if f is look else np.asarray
            x, y = (lift(arrays["int64", name]) for name in "xy")
            if ((wanted >= -size) & (wanted < size)).all():
                np.testing.assert_array_equal(f(x, y).numpy(), table[wanted], str(expression))
            else:
                with pytest.raises(IndexBoundsError):
                    f(x, y).numpy()


def every(expression: Expression):
    yield expression
    for part in expression.parts:
        yield from every(part)


@pytest.mark.cases(40)
@pytest.mark.parametrize("first", KINDS)
@pytest.mark.parametrize("between", ["float32", "float64", "int64", "uint64", "bool"])
def test_a_cast_by_way_of_another_type_is_two_casts(first, between):
    """From a float an integer saturates, whatever the float was made from."""
    lasts = (*KINDS, "float32", "float64", "bool")
    x = krt.tensor(edges(first))
    step = x.cast(between).realize()
    at_once = [x.cast(between).cast(last) for last in lasts]
    apart = [step.cast(last) for last in lasts]
    krt.realize(*at_once)
    krt.realize(*apart)
    for got, expected in zip(at_once, apart, strict=True):
        np.testing.assert_array_equal(got.numpy(), expected.numpy())


def cast(x, kind: str):
    return x.cast(kind) if isinstance(x, krt.Tensor) else x.astype(kind)


def choose(condition, yes, no):
    module = krt if isinstance(condition, krt.Tensor) else np
    return module.where(condition, yes, no)


WRAPPING = {
    "times_then_divided": lambda x: ((x * 16) // 16 + 2**59) // 2**53,
    "remainder_of_a_product": lambda x: ((x * 3) % 384) // 3,
    "sum_then_compared": lambda x: choose(x + 1 > x, x % 128, x % 5),
    "negated": lambda x: (-x // 2 + 2**62) // 2**56,
    "shifted": lambda x: ((x << 3) >> 3) % 128,
    "narrowed": lambda x: (cast(cast(x, "int32"), "int64") + 2**31) // 2**25,
    "widened": lambda x: cast(cast(x, "uint8"), "int64") // 2,
    "difference": lambda x: ((x - 2**62) * 4 // 4 + 2**61) // 2**55,
}
VALUES = np.concatenate([edges("int64"), [2**62 + 5, 2**62, -(2**62) - 5, 2**61, 383, 384]])


@pytest.mark.parametrize("name", WRAPPING)
def test_an_index_from_data_that_wraps(name):
    index = WRAPPING[name]
    guarded = np.full(4096, 777, np.float32)
    table = guarded[1024:1152]
    table[:] = np.arange(128)
    source = krt.from_numpy(table)
    with np.errstate(all="ignore"):
        wanted = index(VALUES)
    read = krt.jit(lambda x: source[index(x)])
    add = krt.jit(lambda x: krt.zeros(128).scatter_add(0, index(x), krt.ones(x.shape[0])))
    for value, at in zip(VALUES, wanted, strict=True):
        one = np.array([value])
        if -128 <= at < 128:
            assert read(one).item() == table[at], (value, at)
        else:
            with pytest.raises(IndexBoundsError):
                read(one)
        if 0 <= at < 128:
            assert add(one).numpy().nonzero()[0].tolist() == [at]
        else:
            with pytest.raises(IndexBoundsError):
                add(one)
    assert (guarded[:1024] == 777).all()
    assert (guarded[1152:] == 777).all()
