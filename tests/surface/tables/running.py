"""Folds of the elements up to each one, and differences."""

from surface.rows import Bool, Pos, Row

ENDS = {"special": False, "why": "torch subtracts half of the ends, and infinities leave NaN"}

ROWS = [
    Row("cumprod", "x.cumprod(1)", ("a b",), ints=True, tol=4),
    Row("cumprod_first", "x.cumprod(0)", ("a b c",), tol=4),
    Row("cumprod_dtype", "x.cumprod(-1, dtype=T.float64)", ("a b",), half=False,
        why="the result is float64, as exact as the rounded operands"),
    Row("cumprod_long", "(x / 2).cumprod(0)", ("n",), sizes={"n": 40}, tol=8),
    Row("cumprod_wide", "(x / 2).cumprod(0)", ("n m",), sizes={"n": 5, "m": 520}, tol=4),
    Row("cumprod_tiles", "(x / 2).cumprod(1)", ("m n",), sizes={"m": 5, "n": 140}, tol=8),
    Row("cumprod_bools", "x.cumprod(0)", (Bool("a b"),), grad=False),
    Row("cummax", "tuple(x.cummax(1))", ("a b",), ints=True),
    Row("cummin", "tuple(x.cummin(-2))", ("a b c",), ints=True),
    Row("cummax_long", "tuple(x.cummax(0))", ("n",), sizes={"n": 150}, ints=True),
    Row("cummin_wide", "tuple(x.cummin(0))", ("n m",), sizes={"n": 5, "m": 520}, ints=True),
    Row("cummin_bools", "tuple(x.cummin(0))", (Bool("a b"),), grad=False),
    Row("logcumsumexp", "x.logcumsumexp(1)", ("a b",)),
    Row("logcumsumexp_long", "x.logcumsumexp(0)", ("n",), sizes={"n": 40}, tol=4),
    Row("logcumsumexp_wide", "x.logcumsumexp(0)", ("n m",), sizes={"n": 5, "m": 520}),
    Row("diff", "x.diff()", ("a b",), ints=True),
    Row("diff_twice", "x.diff(2, 0)", ("a b",), ints=True),
    Row("diff_often", "x.diff(9)", ("a b",)),
    Row("diff_none", "x.diff(0) * 1", ("a b",)),
    Row("diff_bools", "x.diff()", (Bool("a b"),), grad=False),
    Row("diff_framed", "x.diff(dim=0, prepend=y, append=z)",
        ("a b", "1 b", "c b"), ints=True),
    Row("trapezoid", "T.trapezoid(y)", ("a b",), **ENDS),
    Row("trapezoid_dx", "T.trapezoid(y, dx=0.5, dim=0)", ("a b",), **ENDS),
    Row("trapezoid_x", "T.trapezoid(y, x)", ("a b", "b")),
    Row("trapezoid_wide_x", "T.trapezoid(y, x, dim=-1)", ("a b", "a b")),
    Row("cumulative_trapezoid", "T.cumulative_trapezoid(y, dim=0)", ("a b",)),
    Row("cumulative_trapezoid_x", "T.cumulative_trapezoid(y, x)", ("a b", Pos("b"))),
]
