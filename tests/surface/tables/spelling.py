"""What Python's own functions and statements ask of tensors, and other names of one thing."""

from __future__ import annotations

from surface.rows import In, Pos, Row, method

#: NaN and infinities of a remainder: of floor division torch says NaN, Python and NumPy -1 or 0.
KINKS = "torch's quotients of infinities are not Python's; tests/ops/test_remainders.py has them"
NAN = "NaN has no integer"
DATA = "a number of Python depends on data"


def _changed(k, x, y, z):
    out = x.clone()
    out += y
    out -= z
    out *= y
    out /= z
    return out


def _divided(k, x, y):
    out, rest = x.clone(), x.clone()
    out //= y
    rest %= y
    return out, rest


def _bits(k, x, y):
    out, either, one = x.long(), x.long(), x.long()
    out &= y.long()
    either |= y.long()
    one ^= y.long()
    up, down = x.long(), x.long()
    up <<= y.long() & 3
    down >>= y.long() & 3
    return out, either, one, up, down


def _power(k, x):
    out = x.clone()
    out **= 3
    return out


MATRIX = [[1.0, 2.0], [0.0, -1.0], [3.0, 0.5]]


def _of_lists(t, x):
    kind = t.promote_types(x.dtype, t.float32)  # a list is an array of its own type
    return t.tensor(MATRIX, dtype=kind) @ x.to(kind)


ROWS = [
    Row("mul", method("mul"), ("a b", "b"), ints=True),
    Row("mul_number", method("mul", 2.5), ("a b",), ints=True),
    Row("multiply", "T.multiply(x, y)", ("a b", "a 1"), ints=True),
    Row("divmod", "divmod(x, y)", ("a b", Pos("b")), grad=False, ints=True,
        special=False, why=KINKS, torch="(x // y, x % y)"),
    Row("divmod_of_number", "divmod(7, x)", (Pos("a b"),), grad=False, ints=True,
        special=False, why=KINKS, torch="(7 // x, 7 % x)"),
    Row("round", "round(x)", (In("a b", -9, 9),), torch="x.round()"),
    Row("iter", "[part * 2 for part in x]", ("3 a",), ints=True),
    Row("contains", "(0.5 in x * 0 + 0.5, 3.0 in x)", ("a b",), grad=False, jit=False,
        why=DATA),
    Row("matrix_of_lists", f"{MATRIX} @ x", ("2 a",), torch=_of_lists),
    Row("changed", _changed, ("a b", "b", Pos("b"))),
    Row("changed_quotients", _divided, ("a b", Pos("b")), grad=False, ints=True, special=False,
        why=KINKS),
    Row("changed_bits", _bits, (In("a b", -9, 9), In("b", -9, 9)), grad=False, special=False,
        why=NAN),
    Row("changed_power", _power, ("a b",)),
    *(Row(name, method(name), ("a b",), ints=True)
      for name in ("conj", "conj_physical", "resolve_conj", "resolve_neg")),
    Row("real", "x.real * 2", ("a b",), ints=True),
    Row("data", "x.data * x", ("a b",), ints=True, second=False,
        why="no gradient flows into a value without its history"),
    *(Row(name, method(name), (In("a b", 0, 9),), grad=False, ints=True, special=False, why=NAN)
      for name in ("byte", "char", "short")),
    Row("cast", "x.cast(T.float64) * 2", ("a b",), ints=True,
        torch="x.to(T.float64) * 2"),
    Row("bitcast", "(x.float().bitcast(T.int32), x.half().bitcast(T.int16))", ("a b",),
        grad=False, special=False, why="NaN has many bits",
        torch="(x.float().view(T.int32), x.half().view(T.int16))"),
    Row("bitcast_narrow",
        "((x.float() * 1).view(T.uint8), (x.double() * 1).view(T.int32), "
        "x.half().view(dtype=T.int8))", ("a b",), grad=False, special=False,
        why="NaN has many bits"),
    Row("bitcast_wide", "((x.float() * 1).view(T.float64), x.half().view(T.int64), "
        "(x.float() * 1).view(T.uint8).view(T.float32))", ("a 4",), grad=False, special=False,
        why="NaN has many bits"),
    Row("bitcast_back", "x.float().bitcast(T.int32).bitcast(T.float32)", ("a b",),
        grad=False, torch="x.float().view(T.int32).view(T.float32)"),
]  # fmt: skip
