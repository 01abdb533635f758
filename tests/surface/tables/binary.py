"""Elementwise functions of two tensors and more, and of tensors and numbers."""

from __future__ import annotations

import operator

from surface.rows import Bool, In, Pos, Row, method

#: Operators that numbers have, too.
PLAIN = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "truediv": operator.truediv,
}  # fmt: skip
WHOLE = {"mod": operator.mod, "floordiv": operator.floordiv}
SHAPES = {
    "same": ("a b", "a b"), "spread": ("a b c", "b 1"), "both": ("a 1", "1 b"),
    "scalar": ("a b", ""), "scalar_first": ("", "a"), "scalars": ("", ""),
}  # fmt: skip

#: NaN and infinities of a remainder: of floor division torch says NaN, Python and NumPy -1 or 0.
KINKS = "torch's quotients of infinities are not Python's; tests/ops/test_remainders.py has them"


def _pos(shapes, which=1):
    return tuple(Pos(s) if i == which else s for i, s in enumerate(shapes))


ROWS = [
    *(Row(f"{name}_{way}", lambda k, x, y, f=f: f(x, y),
          _pos(shapes) if name == "truediv" else shapes, ints=True)
      for name, f in PLAIN.items() for way, shapes in SHAPES.items()),
    *(Row(f"{name}_number", lambda k, x, f=f: (f(x, 2), f(x, 0.5), f(x, -3)), ("a b",), ints=True)
      for name, f in PLAIN.items()),
    *(Row(f"number_{name}", lambda k, x, f=f: (f(2, x), f(0.5, x)), (Pos("a b"),),
          ints=True) for name, f in PLAIN.items()),
    *(Row(f"{name}_{way}", lambda k, x, y, f=f: f(x, y), _pos(shapes), ints=True,
          grad=name == "mod", special=False, why=KINKS)
      for name, f in WHOLE.items() for way, shapes in SHAPES.items()),
    *(Row(f"{name}_number", lambda k, x, f=f: (f(x, 2), f(x, 3), f(x, 0.5)), ("a b",), ints=True,
          grad=name == "mod", special=False, why=KINKS) for name, f in WHOLE.items()),
    *(Row(f"number_{name}", lambda k, x, f=f: (f(7, x), f(2.5, x)), (Pos("a b"),), ints=True,
          grad=False, special=False, why=KINKS) for name, f in WHOLE.items()),
    Row("add_alpha", method("add", alpha=3), ("a b", "b"), ints=True),
    Row("add_alpha_half", method("add", alpha=-0.5), ("a b", "b")),
    Row("sub_alpha", method("sub", alpha=2), ("a b", "a b"), ints=True),
    Row("add_number_alpha", lambda k, x: x.add(2, alpha=3), ("a b",), ints=True),
    Row("div_trunc", method("div", rounding_mode="trunc"), ("a b", Pos("a b")), ints=True),
    Row("div_floor", method("div", rounding_mode="floor"), ("a b", Pos("a b")), ints=True,
        special=False, why=KINKS),
    Row("div_negative", method("div", rounding_mode="trunc"), (In("a b", -9, 9), In("b", -4, -1)),
        ints=True),
    Row("remainder_negative", method("remainder"), (In("a b", -9, 9), In("b", -4, -1)), ints=True,
        special=False, why=KINKS),
    Row("floor_divide_negative", method("floor_divide"), (In("a b", -9, 9), In("b", -4, -1)),
        grad=False, ints=True, special=False, why=KINKS),
    Row("fmod", method("fmod"), (In("a b", -9, 9), Pos("a b")), ints=True, tol=8),
    Row("fmod_number", lambda k, x: (x.fmod(2), x.fmod(-1.5)), (In("a b", -9, 9),), ints=True),
    Row("remainder_number", lambda k, x: (x.remainder(2), x.remainder(-1.5)), (In("a b", -9, 9),),
        ints=True, special=False, why=KINKS),
    Row("pow", lambda k, x, y: x**y, (Pos("a b"), "a b"), tol=8),
    Row("pow_ints", lambda k, x, y: x**y, (In("a b", -3, 3), In("b", 0, 3)), grad=False, ints=True),
    Row("pow_spread", method("pow"), (Pos("a b"), "b"), tol=8),
    *(Row(f"pow_{n}", lambda k, x, n=n: x**n, (Pos("a b"),), tol=4)
      for n in (-2, -1, 0, 0.5, 1, 2.5)),
    Row("pow_-0.5", lambda k, x: x**-0.5, (Pos("a b"),), tol=4, special=False,
        why="torch says -inf of -0.0, which has no sign by IEEE's pow"),
    *(Row(f"pow_{n}_signed", lambda k, x, n=n: x**n, ("a b",), ints=True, tol=4)
      for n in (0, 1, 2, 3, 4, 7)),
    Row("number_pow", lambda k, x: (2**x, 0.5**x, 1**x), ("a b",), tol=4),
    Row("atan2", method("atan2"), ("a b", "a b"), ints=True),
    Row("atan2_spread", method("atan2"), ("a b", "a 1")),
    Row("maximum", method("maximum"), ("a b", "b"), ints=True),
    Row("minimum", method("minimum"), ("a 1", "a b"), ints=True),
    Row("maximum_ties", lambda k, x: (x.maximum(x), x.minimum(x)), ("a b",), second=False,
        why="a difference quotient does not see both branches"),
    Row("clamp", lambda k, x: x.clamp(-0.5, 1), ("a b",), ints=True),
    Row("clamp_low", lambda k, x: x.clamp(0.25), ("a b",)),
    Row("clamp_high", lambda k, x: x.clip(max=1), ("a b",), ints=True),
    Row("clamp_tensors", lambda k, x, y, z: x.clamp(y, z), ("a b", In("b", -1, 0), Pos("a 1"))),
    Row("clamp_crossed", lambda k, x: x.clamp(1, -1), ("a b",)),
    Row("clip_tensor_low", lambda k, x, y: x.clip(y), ("a b", "b"), ints=True),
    Row("lerp", lambda k, x, y: x.lerp(y, 0.3), ("a b", "a b")),
    Row("lerp_tensor", method("lerp"), ("a b", "b", "a 1")),
    Row("lerp_beyond", lambda k, x, y: x.lerp(y, 1.75), ("a b", "a b")),
    Row("addcmul", method("addcmul"), ("a b", "b", "a 1"), ints=True),
    Row("addcmul_value", method("addcmul", value=-2), ("a b", "a b", "a b"), ints=True),
    Row("where", lambda k, m, x, y: k.where(m, x, y), (Bool("a b"), "a b", "b"), ints=True),
    Row("where_numbers", lambda k, m, x: (k.where(m, x, 2.0), k.where(m, 0.5, x)),
        (Bool("a b"), "a b"), ints=True),
    Row("where_method", lambda k, m, x, y: x.where(m, y), (Bool("b"), "a b", "a 1"), ints=True),
    Row("masked_fill", lambda k, m, x: x.masked_fill(m, 2), (Bool("b"), "a b"), ints=True),
    Row("masked_fill_tensor", lambda k, m, x, y: x.masked_fill(m, y), (Bool("a b"), "a b", ""),
        ints=True),
    Row("in_place", lambda k, x, y: _in_place(x.clone(), y), ("a b", "b"), special=False, why=KINKS,
        second=False),
    *(Row(f"{name}_{way}", method(name), shapes, grad=False, ints=True)
      for name in ("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or")
      for way, shapes in {"same": ("a b", "a b"), "spread": ("a b c", "b 1")}.items()),
    *(Row(f"{f.__name__}_number", lambda k, x, f=f: (f(x, 0), f(x, 0.5), f(1, x)), ("a b",),
          grad=False, ints=True)
      for f in (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)),
    Row("eq_ties", lambda k, x: (x == x, x != x, x <= x, x.logical_and(x == x)), ("a b",),
        grad=False, ints=True),
    *(Row(f"{f.__name__}", lambda k, x, y, f=f: f(x.long(), y.long()),
          (In("a b", -9, 9), In("b", -9, 9)), grad=False, special=False, why="NaN has no integer")
      for f in (operator.and_, operator.or_, operator.xor)),
    *(Row(f"{f.__name__}", lambda k, x, y, f=f: f(x.long(), y.long()),
          (In("a b", -9, 9), In("b", 0, 9)), grad=False, special=False, why="NaN has no integer")
      for f in (operator.lshift, operator.rshift)),
    *(Row(f"{f.__name__}_bool", lambda k, x, y, f=f: f(x, y), (Bool("a b"), Bool("b")), grad=False)
      for f in (operator.and_, operator.or_, operator.xor, operator.add, operator.mul)),
    *(Row(f"{name}_bool_float", lambda k, m, x, f=f: f(m, x), (Bool("a b"), Pos("a b")), ints=True)
      for name, f in PLAIN.items() if name != "sub"),
]  # fmt: skip


def _in_place(x, y):
    x += y
    x *= 2
    x -= y * y
    x /= 4
    return x
