"""Elementwise functions of one tensor."""

from __future__ import annotations

from surface.rows import In, Pos, Row, each, method

#: Functions of any number, and where it is worth looking further out.
EVERYWHERE = {
    "neg": 9, "abs": 9, "sign": 9, "exp": 30, "exp2": 40, "expm1": 30, "square": 9, "sin": 60,
    "cos": 60, "atan": 50, "sinh": 30, "cosh": 30, "tanh": 12, "asinh": 90, "erf": 4, "erfc": 4,
    "sigmoid": 36,  # torch's derivative is 0 from 36.8 on
}  # fmt: skip

#: Functions whose derivative torch rounds to 0 in float64 in a tail, where it is not 0.
FLAT = ("expm1", "sigmoid")

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
    *(Row(name, method(name), ("...",), ints=True, values="unit" if name in FLAT else "any")
      for name in EVERYWHERE),
    *(Row(f"{name}_far", method(name), (In("a b c", -d, d),), tol=8)
      for name, d in EVERYWHERE.items()),
    *(Row(f"{name}_scalar", method(name), ("",)) for name in EVERYWHERE),
    *(Row(name, method(name), (Pos("..."),), ints=True, tol=TOL.get(name, 1),
          tol64=TOL64.get(name, 1), values="unit" if name in TOL else "any")
      for name in POSITIVE),
    *(Row(f"{name}_scalar", method(name), (Pos(""),), tol=TOL.get(name, 1),
          tol64=TOL64.get(name, 1)) for name in POSITIVE),
    *(Row(f"{name}_part", method(name), (In("a b", *part),), tol=TOL.get(name, 4),
          tol64=TOL64.get(name, 1))
      for name, part in PARTLY.items()),
    *(Row(name, method(name), (In("...", -9, 9),), ints=True, values="any") for name in STEPS),
    *(Row(f"{name}_scalar", method(name), ("",)) for name in STEPS),
    *(Row(f"polygamma_{n}", method("polygamma", n), (Pos("a b"),), tol=16,
          tol64=1e3 if n == 1 else 1, special=False, why="torch has no limits at its poles")
      for n in (1, 2, 3)),
    Row("polygamma_0", method("polygamma", 0), (Pos("a"),), tol=8, tol64=1e3),
    Row("operator_neg", "-x", ("a b",), ints=True),
    Row("operator_pos", "+x", ("a b",), ints=True),
    Row("operator_abs", "abs(x)", ("a b",), ints=True),
    Row("invert", "~x.long()", (In("a b", -9, 9),), grad=False, special=False,
        why="NaN has no integer"),
    Row("invert_bool", "~(x > 0)", ("a b",), grad=False),
    *(Row(name, method(name), ("...",), grad=False, ints=True, kinds="fib", values="any")
      for name in ("isnan", "isinf", "isfinite", "logical_not")),
    *(Row(f"to_{name}", method(name), (In("...", 0.0, 9.0),), grad=name in ("double", "float"),
          kinds="fib",
          ints=True, special=False, why="NaN has no integer")
      for name in ("double", "float", "half", "bfloat16", "int", "long", "bool")),
    Row("half_special", method("half"), ("a b",), grad=False),
    Row("to_dtype", "x.to(T.float64) * 2", ("a b",), ints=True),
    Row("to_int8", "x.to(dtype=T.int8)", (In("a b", -9, 9),), grad=False, ints=True,
        special=False, why="NaN has no integer"),
    Row("to_cpu", "x.to('cpu').cpu()", ("a b",)),
    Row("type", "x.type(T.float64)", ("a b",)),
    Row("type_as", "x.type_as(y) * y", ("a b", "a b")),
    Row("of_a_bool", "((x > 0).exp(), (x > 0).float().neg())", ("a b",), grad=False),
    *each("x * x; x + x; x - x; x.maximum(x); x.clone(); x.contiguous(); x.detach() * x; "
          "(x.abs() + 1.5).acosh(); x.sin().asin(); x.sin().acos(); -x; +x", "...", ints=True,
          values="any", grid=False),
    *each("(x / 4).atanh(); (x / 4).asin(); (x.abs() + 0.5).lgamma(); x.tan(); "
          "(x.abs() + 0.5).polygamma(2)", "...", ints=True, grid=False),
    # Its gradient is torch's trigamma, which has ten digits.
    *each("(x.abs() + 0.5).digamma().detach()", "...", ints=True, grad=False, grid=False),
    *each("~x; x.logical_not()", "...", grad=False, kinds="ib", values="any", grid=False),
    *each("x.half(); x.float(); x.double(); x.bfloat16()", "...", kinds="fib", values="any",
          grid=False),
    *each("x.to(T.int8); x.abs().to(T.uint8); x.to(T.int16)", "...", grad=False, kinds="fib",
          grid=False),
]  # fmt: skip
