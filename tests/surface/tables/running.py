"""Folds of the elements up to each one, and differences."""

from surface.rows import Bool, Pos, Row

ENDS = {"special": False, "why": "torch subtracts half of the ends, and infinities leave NaN"}

ROWS = [
    Row("cumprod", lambda k, x: x.cumprod(1), ("a b",), ints=True, tol=4),
    Row("cumprod_first", lambda k, x: x.cumprod(0), ("a b c",), tol=4),
    Row("cumprod_dtype", lambda k, x: x.cumprod(-1, dtype=k.float64), ("a b",), half=False,
        why="the result is float64, as exact as the rounded operands"),
    Row("cumprod_long", lambda k, x: (x / 2).cumprod(0), ("n",), sizes={"n": 40}, tol=8),
    Row("cumprod_bools", lambda k, x: x.cumprod(0), (Bool("a b"),), grad=False),
    Row("cumsum_long", lambda k, x: x.cumsum(0), ("n",), sizes={"n": 150}, ints=True, tol=8),
    Row("cummax", lambda k, x: tuple(x.cummax(1)), ("a b",), ints=True),
    Row("cummin", lambda k, x: tuple(x.cummin(-2)), ("a b c",), ints=True),
    Row("cummax_long", lambda k, x: tuple(x.cummax(0)), ("n",), sizes={"n": 150}, ints=True),
    Row("cummin_bools", lambda k, x: tuple(x.cummin(0)), (Bool("a b"),), grad=False),
    Row("logcumsumexp", lambda k, x: x.logcumsumexp(1), ("a b",)),
    Row("logcumsumexp_long", lambda k, x: x.logcumsumexp(0), ("n",), sizes={"n": 40}, tol=4),
    Row("diff", lambda k, x: x.diff(), ("a b",), ints=True),
    Row("diff_twice", lambda k, x: x.diff(2, 0), ("a b",), ints=True),
    Row("diff_often", lambda k, x: x.diff(9), ("a b",)),
    Row("diff_none", lambda k, x: x.diff(0) * 1, ("a b",)),
    Row("diff_bools", lambda k, x: x.diff(), (Bool("a b"),), grad=False),
    Row("diff_framed", lambda k, x, y, z: x.diff(dim=0, prepend=y, append=z),
        ("a b", "1 b", "c b"), ints=True),
    Row("trapezoid", lambda k, y: k.trapezoid(y), ("a b",), **ENDS),
    Row("trapezoid_dx", lambda k, y: k.trapezoid(y, dx=0.5, dim=0), ("a b",), **ENDS),
    Row("trapezoid_x", lambda k, y, x: k.trapezoid(y, x), ("a b", "b")),
    Row("trapezoid_wide_x", lambda k, y, x: k.trapezoid(y, x, dim=-1), ("a b", "a b")),
    Row("cumulative_trapezoid", lambda k, y: k.cumulative_trapezoid(y, dim=0), ("a b",)),
    Row("cumulative_trapezoid_x", lambda k, y, x: k.cumulative_trapezoid(y, x), ("a b", Pos("b"))),
]
