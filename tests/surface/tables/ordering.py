"""Sorting, ranks and lookup.

Elements that are equal have one order here (the sort is stable) and any in torch: rows whose
results tell which of them was chosen say nothing of special values, which contain equal ones.
"""

from surface.rows import In, Index, Row, each

TIES = "which of equal elements is chosen torch leaves open"
STEPS = "the derivative of a step is 0, and torch's raises"

ROWS = [
    Row("sort", "x.sort(dim=1, stable=True)", ("a b",), ints=True),
    Row("sort_first_axis", "x.sort(dim=0, stable=True)", ("a b c",), ints=True),
    Row("sort_long", "x.sort(dim=-1, stable=True)", ("2 70",), zero=False,
        why="its sizes are numbers"),
    Row("sort_descending", "x.sort(dim=-1, descending=True, stable=True)", ("a b",),
        ints=True),
    Row("sort_scalar", "x.sort()", ("",), ints=True),
    Row("argsort", "x.argsort(dim=-2, stable=True)", ("a b c",), grad=False, ints=True),
    Row("argsort_descending", "x.argsort(0, True, True)", ("a b",), grad=False,
        torch="T.argsort(x, dim=0, descending=True, stable=True)", ints=True),
    Row("msort", "x.msort()", ("a b",), ints=True, torch="x.sort(dim=0, stable=True)[0]"),
    Row("topk", "x.topk(1, -1)", ("a b",), values="apart", special=False, why=TIES),
    Row("topk_values", "x.topk(3, 0).values", ("a b",), values="apart", sizes={"a": 5}, ints=True),
    Row("topk_least", "x.topk(2, 1, largest=False).values", ("a b c",), values="apart",
        sizes={"b": 4}, ints=True),
    Row("topk_long", "x.topk(7).values", ("3 90",), values="apart", zero=False,
        why="its sizes are numbers"),
    Row("kthvalue", "x.kthvalue(2, 1)", ("a b",), sizes={"b": 4}, values="apart", special=False,
        why=TIES),
    Row("kthvalue_keepdim", "x.kthvalue(1, 0, True).values", ("a b",), values="apart", ints=True),
    Row("median", "x.median()", ("a b",), values="apart", ints=True),
    Row("median_dim", "x.median(-1)", ("a b",), values="apart", special=False, why=TIES),
    Row("median_values", "x.median(0, keepdim=True).values", ("a b c",), values="apart", ints=True),
    Row("nanmedian", "x.nanmedian()", ("a b",), values="apart", ints=True),
    Row("nanmedian_values", "x.nanmedian(1).values", ("a b",), values="apart", ints=True),
    Row("quantile", "x.quantile(0.3)", ("a b",), values="apart", special=False,
        why="beside infinities torch gives NaN where nothing is taken of them", half=False),
    Row("quantile_dim", "x.quantile(0.75, 1, True)", ("a b",), values="apart", special=False,
        why="as above", half=False),
    Row("quantile_nearest", "x.quantile(0.4, 0, interpolation='nearest')", ("a b",), values="apart",
        half=False, why="torch's is of float32 and float64 alone"),
    Row("nanquantile", "x.nanquantile(0.6, -1)", ("a b",), values="apart", special=False,
        why="as above", half=False),
    Row("mode_values", "x.mode(1).values", ("a b",), ints=True, special=False, values="apart",
        why="torch takes NaNs for equal or not by the size; which of equal elements gets the "
        "gradient is open"),
    Row("searchsorted", "x.sort(-1)[0].searchsorted(v)", ("a b", "a c"),
        grad=False, ints=True,
        torch="T.searchsorted(T.sort(x, dim=-1)[0].contiguous(), v.contiguous())",
        special=(1,), why="torch puts numbers behind NaNs or before, by the size"),
    Row("bucketize",
        "v.bucketize(T.tensor([-1.0, 0.0, 1.0], dtype=v.dtype), right=True)",
        ("a b",), grad=False, torch="T.bucketize(v.contiguous(), T.tensor([-1.0, 0.0, 1.0], "
                                    "dtype=v.dtype), right=True)"),
    Row("isin", "x.isin(y)", (Index("a b", "9"), Index("c", "9")), grad=False,
        torch="T.isin(x, y)"),
    Row("isin_floats", "x.isin(x[:1])", (In("a b"),), grad=False, ints=True,
        torch="T.isin(x, x[:1])",
        zero=False, why="x[:1] is empty then, as isin has above"),
    *each("x.sort(dim={d}, stable=True)[0]; x.sort(dim={d}, descending={k}, stable=True)[0]; "
          "x.sort(dim={d}, descending={k}, stable=True)[1]; x.argsort(dim={d}, stable=True); "
          "x.msort().detach(); x.topk(1, {d})[0].detach(); x.kthvalue(1, {d}, {k})[0].detach(); "
          "x.median({d}, {k})[0].detach(); x.median(); x.nanmedian(); "
          "x.nanmedian({d})[0].detach()", "... a", ints=True, values="ties", grid=False),
    *each("x.topk(1, {d})[0]; x.detach().gather({d}, x.topk(1, {d}, {k})[1]); "
          "x.kthvalue(1, {d})[0]; x.median({d})[0]", "... a", values="apart", grid=False),
]  # fmt: skip
