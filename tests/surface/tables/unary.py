"""Elementwise functions of one tensor."""

from __future__ import annotations

from surface.rows import In, Pos, Row, method

#: Functions of any number, and where it is worth looking further out.
EVERYWHERE = {
    "neg": 9, "abs": 9, "sign": 9, "exp": 30, "exp2": 40, "expm1": 30, "square": 9, "sin": 60,
    "cos": 60, "atan": 50, "sinh": 30, "cosh": 30, "tanh": 12, "asinh": 90, "erf": 4, "erfc": 4,
    "sigmoid": 40, "relu": 9,
}  # fmt: skip

#: Functions of positive numbers.
POSITIVE = ("log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal", "lgamma", "digamma")

#: Functions of a part of the line.
PARTLY = {
    "asin": (-0.95, 0.95), "acos": (-0.95, 0.95), "atanh": (-0.95, 0.95), "acosh": (1.1, 60.0),
    "tan": (-1.4, 1.4), "log1p": (-0.9, 0.5), "reciprocal": (-4.0, -0.3), "lgamma": (-3.7, -3.3),
    "digamma": (-2.7, -2.3), "expm1": (-1e-4, 1e-4), "erfc": (3.0, 6.0), "sinh": (-1e-4, 1e-4),
    "tanh": (-1e-3, 1e-3), "atan": (-1e-3, 1e-3), "asinh": (-1e-3, 1e-3), "log": (0.98, 1.02),
}  # fmt: skip

#: Functions whose derivative is zero.
STEPS = ("floor", "ceil", "trunc", "round")

#: How much wider than usual.
TOL = {"lgamma": 8.0, "digamma": 8.0, "erfc": 8.0, "tan": 8.0}

#: torch's trigamma, the derivative of digamma, has ten digits.
TOL64 = {"digamma": 1e3}

ROWS = [
    *(Row(name, method(name), ("a b",), ints=True) for name in EVERYWHERE),
    *(Row(f"{name}_far", method(name), (In("a b c", -d, d),), tol=8)
      for name, d in EVERYWHERE.items()),
    *(Row(f"{name}_scalar", method(name), ("",)) for name in EVERYWHERE),
    *(Row(name, method(name), (Pos("a b"),), ints=True, tol=TOL.get(name, 1),
          tol64=TOL64.get(name, 1)) for name in POSITIVE),
    *(Row(f"{name}_scalar", method(name), (Pos(""),), tol=TOL.get(name, 1),
          tol64=TOL64.get(name, 1)) for name in POSITIVE),
    *(Row(f"{name}_part", method(name), (In("a b", *part),), tol=TOL.get(name, 4),
          tol64=TOL64.get(name, 1))
      for name, part in PARTLY.items()),
    *(Row(name, method(name), (In("a b", -9, 9),), ints=True) for name in STEPS),
    *(Row(f"{name}_scalar", method(name), ("",)) for name in STEPS),
    *(Row(f"polygamma_{n}", method("polygamma", n), (Pos("a b"),), tol=16,
          tol64=1e3 if n == 1 else 1, special=False, why="torch has no limits at its poles")
      for n in (1, 2, 3)),
    Row("polygamma_0", method("polygamma", 0), (Pos("a"),), tol=8, tol64=1e3),
    Row("operator_neg", lambda k, x: -x, ("a b",), ints=True),
    Row("operator_pos", lambda k, x: +x, ("a b",), ints=True),
    Row("operator_abs", lambda k, x: abs(x), ("a b",), ints=True),
    Row("invert", lambda k, x: ~x.long(), (In("a b", -9, 9),), grad=False, special=False,
        why="NaN has no integer"),
    Row("invert_bool", lambda k, x: ~(x > 0), ("a b",), grad=False),
    *(Row(name, method(name), ("a b",), grad=False, ints=True)
      for name in ("isnan", "isinf", "isfinite", "logical_not")),
    *(Row(f"to_{name}", method(name), (In("a b", 0.0, 9.0),), grad=name in ("double", "float"),
          ints=True, special=False, why="NaN has no integer")
      for name in ("double", "float", "half", "bfloat16", "int", "long", "bool")),
    Row("half_special", method("half"), ("a b",), grad=False),
    Row("to_dtype", lambda k, x: x.to(k.float64) * 2, ("a b",), ints=True),
    Row("to_int8", lambda k, x: x.to(dtype=k.int8), (In("a b", -9, 9),), grad=False, ints=True,
        special=False, why="NaN has no integer"),
    Row("to_cpu", lambda k, x: x.to("cpu").cpu(), ("a b",)),
    Row("type", lambda k, x: x.type(k.float64), ("a b",)),
    Row("type_as", lambda k, x, y: x.type_as(y) * y, ("a b", "a b")),
    Row("of_a_bool", lambda k, x: ((x > 0).exp(), (x > 0).float().neg()), ("a b",), grad=False),
]  # fmt: skip
