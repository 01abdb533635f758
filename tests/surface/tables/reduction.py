"""Sums, extrema and what is made of them."""

from __future__ import annotations

from surface.rows import Bool, In, Pos, Row, each, method

INF = float("inf")

#: Ways of naming axes.
DIMS = {
    "all": {}, "first": {"dim": 0}, "last": {"dim": -1}, "middle_kept": {"dim": 1, "keepdim": True},
    "pair": {"dim": (0, 2)}, "pair_kept": {"dim": (-1, 0), "keepdim": True}, "none": {"dim": None},
}  # fmt: skip
ONE = {way: options for way, options in DIMS.items() if not isinstance(options.get("dim"), tuple)}
ONE = {way: options for way, options in ONE.items() if way != "none"}
TIES = "a difference quotient does not see all branches"


def _rows(name, ways=DIMS, shape="a b c", label="", extra=None, **options):
    return [
        Row(f"{name}{label}_{way}", method(name, **dims, **(extra or {})), (shape,), **options)
        for way, dims in ways.items()
    ]


def _pair(name, **options):
    return f"tuple({method(name, **options)})"


ROWS = [
    # Positive and negative numbers cancel, and targets add them in different orders.
    *_rows("sum", ints=True, tol=4),
    *_rows("mean", tol=4),
    *_rows("var", tol=4),
    *_rows("std", tol=4),
    *_rows("var", label="_0", extra={"correction": 0}, tol=4),
    *_rows("std", label="_2", extra={"correction": 2}, tol=4),
    Row("var_biased", method("var", unbiased=False), ("a b",), tol=4),
    Row("std_unbiased", "x.std(1, unbiased=True)", ("a b",), tol=4),
    *_rows("prod", ONE, ints=True, tol=2),
    *_rows("amax", {w: d for w, d in DIMS.items() if w != "none"}, ints=True),
    *_rows("amin", {w: d for w, d in DIMS.items() if w != "none"}, ints=True),
    *(Row(f"{name}", method(name), ("a b",), ints=True) for name in ("max", "min")),
    *(Row(f"{name}_{way}", _pair(name, **dims), ("a b c",), ints=True)
      for name in ("max", "min") for way, dims in ONE.items() if dims),
    *(row for name in ("argmax", "argmin") for row in _rows(name, ONE, grad=False, ints=True)),
    *(row for name in ("any", "all") for row in _rows(name, grad=False, ints=True)),
    *(Row(f"{name}_bool", method(name), (Bool("a b"),), grad=False)
      for name in ("any", "all", "sum", "count_nonzero")),
    *_rows("count_nonzero", {w: d for w, d in DIMS.items() if "keepdim" not in d}, grad=False,
           ints=True),
    Row("sum_dtype", "x.sum(0, dtype=T.float64)", ("a b",), ints=True),
    Row("mean_dtype", "x.mean(dtype=T.float64)", ("a b",), ints=True),
    Row("prod_dtype", "x.prod(1, dtype=T.float64)", ("a b",), ints=True),
    Row("sum_scalar", "(x.sum(), x.sum(0), x.sum(-1))", ("",), ints=True),
    Row("extrema_scalar", "(x.max(), x.min(0)[0], x.amax(), x.argmax())", ("",),
        ints=True),
    Row("amax_ties", "(x * 0).amax(1)", ("a b",), second=False, why=TIES),
    Row("max_ties", "(x * 0).max()", ("a b",), second=False, why=TIES),
    Row("max_dim_ties", "(x * 0).max(1)[0]", ("a b",), second=False, why=TIES),
    *(Row(f"norm_{p}".replace("-", "minus_"), method("norm", p), (Pos("a b"),), tol=4)
      for p in (2, 1, 3, 0.5, -1, INF, -INF)),
    *(Row(f"norm_{p}_dim", method("norm", p, -1), ("a b",), tol=8) for p in (2, 1, 3, INF)),
    Row("norm_pair_kept", method("norm", 2, (0, 2), True), ("a b c",), tol=4),
    Row("norm_scalar", method("norm"), ("",), second=False, why="an absolute value: no slope"),
    *_rows("logsumexp", {w: d for w, d in DIMS.items() if d.get("dim") is not None}, tol=2),
    Row("logsumexp_far", method("logsumexp", 1), (In("a b", -300, 300),), tol=4),
    *(Row(f"{name}_{d}", method(name, d), ("a b c",), tol=2)
      for name in ("softmax", "log_softmax") for d in (0, 1, -1)),
    *(Row(f"{name}_far", method(name, -1), (In("a b", -60, 60),), tol=8)
      for name in ("softmax", "log_softmax")),
    *(Row(f"{name}_dtype", f"x.{name}(1, dtype=T.float64)", ("a b",),
          ints=True) for name in ("softmax", "log_softmax")),
    *(Row(f"{name}_scalar", method(name, 0), ("",)) for name in ("softmax", "log_softmax")),
    *(Row(f"cumsum_{d}", method("cumsum", d), ("a b c",), ints=True) for d in (0, 1, -1)),
    Row("cumsum_dtype", "x.cumsum(0, dtype=T.float64)", ("a b",), ints=True),
    Row("cumsum_scalar", method("cumsum", 0), ("",)),
    Row("cumsum_long", method("cumsum", 0), ("n 2",), sizes={"n": 300}, ints=True, tol=4),
    *each("x.sum(); x.sum({d}); x.sum({ds}, keepdim={k}); x.mean(); x.mean({d}); "
          "x.mean({ds}, keepdim={k}); x.prod(); x.prod({d}); x.var(); x.var({d}, unbiased={k}); "
          "x.var({ds}, correction={o}, keepdim={k}); x.std(); x.std({d}, correction={o}); "
          "x.norm(); x.norm(1, {ds}); x.norm(2, {d}, {k}); x.norm(3, {d}); x.norm(0.5, {d}); "
          "x.norm(float('inf'), {d}); x.norm(-2, {d}); x.norm(0, {ds}); x.logsumexp({d}); "
          "x.logsumexp({ds}, {k}); x.softmax({d}); x.log_softmax({d}); x.cumsum({d})", "...",
          grid=False),
    *each("x.sum({ds}, {k}); x.prod({d}, {k}); x.cumsum({d}); x.count_nonzero(); "
          "x.count_nonzero({d}); x.sum(dtype=T.float32); x.sum({d}, dtype=T.int64)", "...",
          label=" of integers", kinds="ib", values="any", grid=False),
    *each("x.amax({ds}, {k}); x.amin({ds}, {k}); x.amax(); x.max(); x.min(); x.max({d})[0]; "
          "x.min({d}, {k})[0]; x.max({d})[1]; x.min({d})[1]; x.argmax(); x.argmin(); "
          "x.argmax({d}, {k}); x.argmin({d}, {k})", "...", ints=True, values="ties", grid=False),
    *each("x.any().bool(); x.all().bool(); x.any({d}, {k}).bool(); x.all({d}, {k}).bool()", "...",
          grad=False, kinds="fib", values="ties", grid=False),
    *each("x.sum({d}); x.amax({d}).detach(); x.mean({d}); x.softmax({d}); x.norm(2, {d}).detach()",
          "...", label=" of any size", values="any", grid=False),
    *each("x.sum((0, 2)); x.mean((0, 1)); x.prod(1); x.amin(1, keepdim=True); x.norm(dim=1); "
          "x.min(-1, keepdim=True); x.var(1); x.var((0, 2), correction=0); x.std(-1, keepdim=True)",
          "a b c", tol=4),
    *each("(x > 0).any({d}); (x > 0).all({d}); x.argmax({d}); x.argmin({d}, keepdim=True); "
          "x.count_nonzero({d}); x.mean({d}, keepdim=True); x.std({d}, keepdim=True); x.var({d}); "
          "x.var({d}, correction=0); x.amin({d}, keepdim=True)", "... a", grad=False, grid=False),
    *each("x.std({d}, keepdim=True); x.var({d}); x.amin({d}, keepdim=True)", "... a",
          label=" with gradients", grid=False),
]  # fmt: skip
