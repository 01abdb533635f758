"""Activations."""

from __future__ import annotations

from surface.rows import In, Pos, Row, each, function

#: The name, ways of calling it, and how far out to look.
CALLS = {
    "relu": [{}], "relu6": [{}], "leaky_relu": [{}, {"negative_slope": 0.3}],
    "elu": [{}, {"alpha": 0.5}], "logsigmoid": [{}], "silu": [{}],
    "hardtanh": [{}, {"min_val": -0.5, "max_val": 2.0}], "gelu": [{}, {"approximate": "tanh"}],
    "softplus": [{}, {"beta": 3.0, "threshold": 2.0}], "mish": [{}], "softsign": [{}],
    "hardsigmoid": [{}], "hardswish": [{}],
}  # fmt: skip

#: torch computes these, and celu, from constants of float32.
TOL64 = {"hardsigmoid": 1e5, "hardswish": 1e5}

#: Those that take integers.
INTS = ("relu", "relu6", "hardtanh")

#: torch's vector code has NaN for infinity, where the definition has infinity.
GELU = "torch's gelu of infinity depends on where it stands"


def _special(name, options):
    exact = name == "gelu" and not options
    return {"special": False, "why": GELU} if exact else {}


ROWS = [
    *(Row(name + f"_{n}" * bool(n), function(f"F.{name}", **options), ("...",), ints=name in INTS,
          values="any", tol=2, tol64=TOL64.get(name, 1), **_special(name, options))
      for name, ways in CALLS.items() for n, options in enumerate(ways)),
    *(Row(f"{name}_scalar", function(f"F.{name}"), ("",), tol=2, tol64=TOL64.get(name, 1))
      for name in CALLS),
    *(Row(name + f"_far_{n}", function(f"F.{name}", **options), (In("a b", -30, 30),), tol=8,
          tol64=TOL64.get(name, 1), **_special(name, options))
      for name, ways in CALLS.items() for n, options in enumerate(ways)),
    *(Row(name + f"_near_{n}", function(f"F.{name}", **options), (In("a b", -1e-3, 1e-3),), tol=8,
          tol64=TOL64.get(name, 1), **_special(name, options))
      for name, ways in CALLS.items() for n, options in enumerate(ways)),
    *each("F.celu(x); F.selu(x); F.hardshrink(x); F.hardshrink(x, 1.25); F.softshrink(x); "
          "F.softshrink(x, 0.0); F.threshold(x, 0.5, -7.0); F.softmin(x, 1); F.rrelu(x); "
          "F.rrelu(x, 0.1, 0.2)", "a b"),
    *each("F.celu(x, 0.4); F.celu(x, -0.4)", "a b", tol64=1e5),
    *each("F.threshold(x, 0, 3)", "a b", ints=True), *each("F.tanhshrink(x)", "a b", tol=4),
    *each("F.dropout(x, 0.5, False); F.dropout(x, 0.0, True)", "a b"),
    *each("F.dropout(x, 1.0, True)", "a b", special=False, why="torch multiplies by 0"),
    # torch negates first, and the negative of a uint8 wraps.
    Row("softmin_dtype", "F.softmin(x, 1, dtype=T.float64)", ("a b",), ints=True,
        torch="F.softmin(x.double(), 1)"),
    *each("F.glu(x)", "a 4"), *each("F.glu(x, 0)", "2 b"),
    Row("prelu", "x.prelu(w)", ("a b c", "b"), tol=2),
    Row("prelu_one", "x.prelu(w)", ("a b", Pos("1"))),
    Row("prelu_vector", "x.prelu(w)", ("a", Pos("1"))),
    *each("F.hardtanh(x, -0.5, 2.0); F.leaky_relu(x, 0.3); F.elu(x, 0.5); F.softplus(x, 2.0, 5.0)",
          "...", values="any"),
]  # fmt: skip
