"""Elementwise functions of two tensors and more, and of tensors and numbers."""

from __future__ import annotations

from surface.rows import Bool, In, Pos, Row, each, method

#: Operators that numbers have, too.
PLAIN = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/",
}  # fmt: skip
WHOLE = {"mod": "%", "floordiv": "//"}
COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
BITS = {"and_": "&", "or_": "|", "xor": "^"}
SHIFTS = {"lshift": "<<", "rshift": ">>"}
SHAPES = {
    "same": ("a b", "a b"), "spread": ("a b c", "b 1"), "both": ("a 1", "1 b"),
    "scalar": ("a b", ""), "scalar_first": ("", "a"), "scalars": ("", ""),
}  # fmt: skip

#: NaN and infinities of a remainder: of floor division torch says NaN, Python and NumPy -1 or 0.
KINKS = "torch's quotients of infinities are not Python's; tests/ops/test_remainders.py has them"


def _pos(shapes, which=1):
    return tuple(Pos(s) if i == which else s for i, s in enumerate(shapes))


ROWS = [
    *(Row(f"{name}_{way}", f"x {f} y",
          _pos(shapes) if name == "truediv" else shapes, ints=True)
      for name, f in PLAIN.items() for way, shapes in SHAPES.items()),
    *(Row(f"{name}_number", f"(x {f} 2, x {f} 0.5, x {f} -3)", ("a b",), ints=True)
      for name, f in PLAIN.items()),
    *(Row(f"number_{name}", f"(2 {f} x, 0.5 {f} x)", (Pos("a b"),),
          ints=True) for name, f in PLAIN.items()),
    *(Row(f"{name}_{way}", f"x {f} y", _pos(shapes), ints=True,
          grad=name == "mod", special=False, why=KINKS)
      for name, f in WHOLE.items() for way, shapes in SHAPES.items()),
    *(Row(f"{name}_number", f"(x {f} 2, x {f} 3, x {f} 0.5)", ("a b",), ints=True,
          grad=name == "mod", special=False, why=KINKS) for name, f in WHOLE.items()),
    *(Row(f"number_{name}", f"(7 {f} x, 2.5 {f} x)", (Pos("a b"),), ints=True,
          grad=False, special=False, why=KINKS) for name, f in WHOLE.items()),
    Row("add_alpha", method("add", alpha=3), ("a b", "b"), ints=True),
    Row("add_alpha_half", method("add", alpha=-0.5), ("a b", "b")),
    Row("sub_alpha", method("sub", alpha=2), ("a b", "a b"), ints=True),
    Row("add_number_alpha", "x.add(2, alpha=3)", ("a b",), ints=True),
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
    Row("fmod_number", "(x.fmod(2), x.fmod(-1.5))", (In("a b", -9, 9),), ints=True),
    Row("remainder_number", "(x.remainder(2), x.remainder(-1.5))", (In("a b", -9, 9),),
        ints=True, special=False, why=KINKS),
    Row("pow", "x ** y", (Pos("a b"), "a b"), tol=8),
    Row("pow_ints", "x ** y", (In("a b", -3, 3), In("b", 0, 3)), grad=False, ints=True),
    Row("pow_spread", method("pow"), (Pos("a b"), "b"), tol=8),
    *(Row(f"pow_{n}", f"x ** {n}", (Pos("a b"),), tol=4)
      for n in (-2, -1, 0, 0.5, 1, 2.5)),
    Row("pow_-0.5", "x ** (-0.5)", (Pos("a b"),), tol=4, special=False,
        why="torch says -inf of -0.0, which has no sign by IEEE's pow"),
    *(Row(f"pow_{n}_signed", f"x ** {n}", ("a b",), ints=True, tol=4)
      for n in (0, 1, 2, 3, 4, 7)),
    Row("number_pow", "(2 ** x, 0.5 ** x, 1 ** x)", ("a b",), tol=4),
    Row("atan2", method("atan2"), ("a b", "a b"), ints=True),
    Row("atan2_spread", method("atan2"), ("a b", "a 1")),
    Row("maximum", method("maximum"), ("a b", "b"), ints=True),
    Row("minimum", method("minimum"), ("a 1", "a b"), ints=True),
    Row("maximum_ties", "(x.maximum(x), x.minimum(x))", ("a b",), second=False,
        why="a difference quotient does not see both branches"),
    Row("clamp", "x.clamp(-0.5, 1)", ("a b",), ints=True),
    Row("clamp_low", "x.clamp(0.25)", ("a b",)),
    Row("clamp_high", "x.clip(max=1)", ("a b",), ints=True),
    Row("clamp_tensors", "x.clamp(y, z)", ("a b", In("b", -1, 0), Pos("a 1")), ints=True),
    Row("clamp_crossed", "x.clamp(1, -1)", ("a b",)),
    Row("clip_tensor_low", "x.clip(y)", ("a b", "b"), ints=True),
    Row("lerp", "x.lerp(y, 0.3)", ("a b", "a b")),
    Row("lerp_tensor", method("lerp"), ("a b", "b", "a 1")),
    Row("lerp_beyond", "x.lerp(y, 1.75)", ("a b", "a b")),
    Row("addcmul", method("addcmul"), ("a b", "b", "a 1"), ints=True),
    Row("addcmul_value", method("addcmul", value=-2), ("a b", "a b", "a b"), ints=True),
    Row("where", "T.where(m, x, y)", (Bool("a b"), "a b", "b"), ints=True),
    Row("where_numbers", "(T.where(m, x, 2.0), T.where(m, 0.5, x))",
        (Bool("a b"), "a b"), ints=True),
    Row("where_method", "x.where(m, y)", ("a b", Bool("b"), "a 1"), ints=True),
    Row("masked_fill", "x.masked_fill(m, 2)", ("a b", Bool("b")), ints=True),
    Row("masked_fill_tensor", "x.masked_fill(m, y)", ("a b", Bool("a b"), ""),
        ints=True),
    Row("in_place", lambda k, x, y: _in_place(x.clone(), y), ("a b", "b"), special=False, why=KINKS,
        second=False),
    *(Row(f"{name}_{way}", method(name), shapes, grad=False, ints=True)
      for name in ("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or")
      for way, shapes in {"same": ("a b", "a b"), "spread": ("a b c", "b 1")}.items()),
    *(Row(f"{name}_number", f"(x {f} 0, x {f} 0.5, 1 {f} x)", ("a b",), grad=False, ints=True)
      for name, f in COMPARISONS.items()),
    Row("eq_ties", "(x == x, x != x, x <= x, x.logical_and(x == x))", ("a b",),
        grad=False, ints=True),
    *(Row(name, f"x.long() {f} y.long()", (In("a b", -9, 9), In("b", -9, 9)), grad=False,
          special=False, why="NaN has no integer") for name, f in BITS.items()),
    *(Row(name, f"x.long() {f} y.long()", (In("a b", -9, 9), In("b", 0, 9)), grad=False,
          special=False, why="NaN has no integer") for name, f in SHIFTS.items()),
    *(Row(f"{name}_bool", f"x {f} y", (Bool("a b"), Bool("b")), grad=False)
      for name, f in {**BITS, "add": "+", "mul": "*"}.items()),
    *(Row(f"{name}_bool_float", f"m {f} x", (Bool("a b"), Pos("a b")), ints=True)
      for name, f in PLAIN.items() if name != "sub"),
    *each("x + y; x * y", "...", "...", kinds="fib", values="any", grid=False),
    *each("x - y; x.add(y, alpha=3); x.sub(y, alpha=2); x.maximum(y); x.minimum(y)", "...", "...",
          ints=True, values="any", grid=False),
    *each("x / y; x.div(y, rounding_mode='trunc'); x.lerp(y, 0.25); x.addcmul(x, y); "
          "x.addcmul(y, y, value=-0.5)", "...", "...", values="any", grid=False),
    *each("(x.abs() + 1).atan2(y); x.atan2(y.abs() + 1); x.clamp(y - 1, y + 1)", "...", "...",
          grid=False),
    # Elsewhere torch's are not exact; tests/ops/test_remainders.py compares with NumPy.
    *each("x.div(y, rounding_mode='floor'); x % y; x.remainder(y); x.fmod(y)", "...", "...",
          grid=False),
    *each("x / y; x // y; x % y; x.fmod(y); x.div(y, rounding_mode='trunc')", "...", "...",
          label=" of integers", kinds="i", values="nonzero", grid=False),
    # The gradient takes 1 from y in the type of y, where torch's least integer wraps.
    *each("x ** y", "...", "...", kinds="fi", values="any", grid=False, torch="x ** ("
          "y if y.is_floating_point() or not x.is_floating_point() else y.to(x.dtype))"),
    *each("x == y; x != y; x < y; x <= y; x > y; x >= y; x.logical_and(y); x.logical_or(y)",
          "...", "...", grad=False, kinds="fib", values="any", grid=False),
    *each("x == x; x != x; x <= x; x < x", "...", grad=False, kinds="fib", values="any",
          grid=False),
    *each("x & y; x | y; x ^ y", "...", "...", grad=False, kinds="ib", values="any", grid=False),
    *each("x << y; x >> y", "...", "...", grad=False, kinds="i", values="shift", grid=False),
    *each("T.where(m, x, y)", Bool("..."), "...", "...", ints=True, values="any", grid=False),
    *each("x.where(m, y)", "...", Bool("..."), "...", values="any", grid=False),
    *each("x.masked_fill(m, 2); x.masked_fill(m, -0.5)", "...", Bool("..."), values="any",
          grid=False),
    *each("x.masked_fill(m, 3)", "...", Bool("..."), kinds="i", values="any", grid=False),
    *each("T.where(m, x, 1.5); T.where(m, 2, x)", Bool("..."), "...", kinds="i", values="any",
          grid=False),
    *each("T.where(x > y, x, y); T.where(x == 0, 0.0, y)", "...", "...", values="any", grid=False),
    *each("x + {c}; x - {c}; {c} - x; x * {c}; x / {c}; x ** {c}; x.clamp({c}); x.clamp(max={c}); "
          "{c} ** x; x < {c}; x >= {c}; x == {c}", "...", ints=True, values="any", grid=False),
    # A number over x is to torch the number times 1 / x, which may be infinite for itself.
    *each("{c} / x", "...", ints=True, values="any", grid=False,
          torch="(T.tensor({c}) / x).to((1 / x).dtype)"),
    *each("x.clamp(-1, {c}); x.lerp(x, {c})", "...", values="any", grid=False),
    *each("x % {c}; x // {c}; x.fmod({c})", "...", ints=True, grid=False),
    *each("x ** 0; x ** 1; x ** 2; x ** 3; x ** -1; x ** 0.5; x ** 2.5; x ** -2; x + 0; x * 1; "
          "x * 0; x / 1; x - 0; x % 1; x * -1; x + np.float32(0.1); x * np.float64(3); "
          "x * np.int64(2); x ** np.int64(2); x + True; x * False", "...", ints=True, values="any",
          grid=False),
]  # fmt: skip


def _in_place(x, y):
    x += y
    x *= 2
    x -= y * y
    x /= 4
    return x
