"""Sorting, ranks and lookup.

Elements that are equal have one order here (the sort is stable) and any in torch: rows whose
results tell which of them was chosen say nothing of special values, which contain equal ones.
"""

from surface.rows import In, Index, Row

TIES = "which of equal elements is chosen torch leaves open"
STEPS = "the derivative of a step is 0, and torch's raises"

ROWS = [
    Row("sort", lambda k, x: x.sort(dim=1, stable=True), ("a b",), ints=True),
    Row("sort_first_axis", lambda k, x: x.sort(dim=0, stable=True), ("a b c",), ints=True),
    Row("sort_long", lambda k, x: x.sort(dim=-1, stable=True), ("2 70",), zero=False,
        why="its sizes are numbers"),
    Row("sort_descending", lambda k, x: x.sort(dim=-1, descending=True, stable=True), ("a b",),
        ints=True),
    Row("sort_scalar", lambda k, x: x.sort(), ("",), ints=True),
    Row("argsort", lambda k, x: x.argsort(dim=-2, stable=True), ("a b c",), grad=False, ints=True),
    Row("argsort_descending", lambda k, x: x.argsort(0, True, True), ("a b",), grad=False,
        torch=lambda t, x: t.argsort(x, dim=0, descending=True, stable=True), ints=True),
    Row("msort", lambda k, x: x.msort(), ("a b",), ints=True),
    Row("topk", lambda k, x: x.topk(1, -1), ("a b",), special=False, why=TIES),
    Row("topk_values", lambda k, x: x.topk(3, 0).values, ("a b",), sizes={"a": 5}, ints=True),
    Row("topk_least", lambda k, x: x.topk(2, 1, largest=False).values, ("a b c",),
        sizes={"b": 4}, ints=True),
    Row("topk_long", lambda k, x: x.topk(7).values, ("3 90",), zero=False,
        why="its sizes are numbers"),
    Row("kthvalue", lambda k, x: x.kthvalue(2, 1), ("a b",), sizes={"b": 4}, special=False,
        why=TIES),
    Row("kthvalue_keepdim", lambda k, x: x.kthvalue(1, 0, True).values, ("a b",), ints=True),
    Row("median", lambda k, x: x.median(), ("a b",), ints=True),
    Row("median_dim", lambda k, x: x.median(-1), ("a b",), special=False, why=TIES),
    Row("median_values", lambda k, x: x.median(0, keepdim=True).values, ("a b c",), ints=True),
    Row("nanmedian", lambda k, x: x.nanmedian(), ("a b",), ints=True),
    Row("nanmedian_values", lambda k, x: x.nanmedian(1).values, ("a b",), ints=True),
    Row("quantile", lambda k, x: x.quantile(0.3), ("a b",), special=False,
        why="beside infinities torch gives NaN where nothing is taken of them", half=False),
    Row("quantile_dim", lambda k, x: x.quantile(0.75, 1, True), ("a b",), special=False,
        why="as above", half=False),
    Row("quantile_nearest", lambda k, x: x.quantile(0.4, 0, interpolation="nearest"), ("a b",),
        half=False, why="torch's is of float32 and float64 alone"),
    Row("nanquantile", lambda k, x: x.nanquantile(0.6, -1), ("a b",), special=False,
        why="as above", half=False),
    Row("mode_values", lambda k, x: x.mode(1).values, ("a b",), ints=True, special=False,
        why="torch takes NaNs for equal or not by the size"),
    Row("searchsorted", lambda k, x, v: x.sort(-1)[0].searchsorted(v), ("a b", "a c"),
        grad=False, ints=True,
        torch=lambda t, x, v: t.searchsorted(t.sort(x, dim=-1)[0].contiguous(), v.contiguous()),
        special=(1,), why="torch puts numbers behind NaNs or before, by the size"),
    Row("bucketize",
        lambda k, v: v.bucketize(k.tensor([-1.0, 0.0, 1.0], dtype=v.dtype), right=True),
        ("a b",), grad=False, torch=lambda t, v: t.bucketize(
            v.contiguous(), t.tensor([-1.0, 0.0, 1.0], dtype=v.dtype), right=True)),
    Row("isin", lambda k, x, y: x.isin(y), (Index("a b", "9"), Index("c", "9")), grad=False,
        torch=lambda t, x, y: t.isin(x, y)),
    Row("isin_floats", lambda k, x: x.isin(x[:1]), (In("a b"),), grad=False, ints=True,
        torch=lambda t, x: t.isin(x, x[:1]),
        zero=False, why="x[:1] is empty then, as isin has above"),
]  # fmt: skip
