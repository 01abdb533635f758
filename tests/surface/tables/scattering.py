"""Writes to places that are data."""

from __future__ import annotations

from surface.rows import Bool, Index, Row

#: Indices that are drawn apart: torch's gradients of equal places are not those of the result.
_APART = Index("a c", "b", distinct=True)
_SIZES = {"a": 3, "b": 5, "c": 4}
_UNCHECKED = "torch checks no index into an axis of size 0"
_FIXED = "places that are drawn apart need as many of them"


def _columns(t, x, i, y):
    out = x.clone()
    out[:, i] = y
    return out


ROWS = [
    Row("scatter", "x.scatter(1, i, y)", ("a b", _APART, "a c"), sizes=_SIZES, ints=True,
        zero="a", why=_FIXED),
    Row("scatter_last", "x.scatter(-1, i, y)", ("a b", Index("a 2", "b", distinct=True), "a 2"),
        sizes=_SIZES, zero="a", why=_FIXED),
    Row("scatter_number", "x.scatter(1, i, value=2.5)", ("a b", Index("a c", "b"))),
    Row("scatter_number_first", "x.scatter(0, i, value=3)", ("a b", Index("c b", "a")), ints=True),
    Row("scatter_scalar", "x.scatter(0, i, y)", ("", Index("", "1"), "")),
    Row("scatter_scalar_into_vector", "x.scatter(0, i, y)", ("a", Index("", "a"), "")),
    Row("scatter_vector_into_scalar", "x.scatter(0, i, y)", ("", Index("1", "1"), "1")),
    Row("scatter_add_scalar", "x.scatter_add(0, i, y)", ("a", Index("1", "a"), "")),
    Row("scatter_reduce_scalar", "x.scatter_reduce(0, i, y, 'prod')", ("a", Index("", "a"), "")),
    Row("scatter_reduce_add", "x.scatter(1, i, y, reduce='add')", ("a b", Index("a c", "b"), "a c"),
        grad=False),
    Row("scatter_reduce_multiply", "x.scatter(1, i, y, reduce='multiply')",
        ("a b", Index("a c", "b"), "a c"), grad=False),
    *(Row(f"scatter_reduce_{how}{'' if own else '_alone'}",
          f"x.scatter_reduce(1, i, y, {how!r}, include_self={own})",
          ("a b", Index("a c", "b"), "a c"), ints=how != "mean" or own, second=how != "prod",
          values="apart", tol=4, special=how in ("sum", "amax", "amin"),
          why="torch's quotients of infinities and zeros are its own; it has no second gradient")
      for how in ("sum", "prod", "mean", "amax", "amin") for own in (True, False)),
    Row("scatter_reduce_first", "x.scatter_reduce(0, i, y, 'amax')",
        ("a b", Index("c b", "a"), "c b")),
    Row("scatter_reduce_less", "x.scatter_reduce(-1, i, y, 'sum')",
        ("4 b", Index("2 m", "b"), "2 m")),
    Row("index_add", "x.index_add(0, i, y)", ("a b", Index("m", "a"), "m b"), ints=True,
        zero="b m", why=_UNCHECKED),
    Row("index_add_alpha", "x.index_add(-1, i, y, alpha=2)",
        ("a b c", Index("m", "c"), "a b m"), ints=True, zero="a b m", why=_UNCHECKED),
    Row("index_add_scalar", "x.index_add(0, i, y)", ("", Index("1", "1"), "")),
    Row("index_copy", "x.index_copy(0, i, y)",
        ("a b", Index("m", "a", distinct=True), "m b"), sizes={"a": 5, "m": 3}, ints=True,
        zero="b", why=_FIXED),
    Row("index_copy_last", "x.index_copy(-1, i, y)",
        ("b a", Index("m", "a", distinct=True), "b m"), sizes={"a": 5, "m": 3},
        zero="b", why=_FIXED),
    Row("index_fill", "x.index_fill(1, i, 2)", ("a b", Index("m", "b")), ints=True),
    Row("index_fill_negative", "x.index_fill(0, i, -1.5)",
        ("5 b", Index("m", "5", low=-5))),
    Row("index_fill_tensor", "x.index_fill(0, i, v)", ("a", Index("m", "a"), "")),
    Row("index_fill_scalar", "x.index_fill(0, i, 2)", ("", Index("1", "1"))),
    *(Row(f"index_reduce_{how}", f"x.index_reduce(1, i, y, {how!r})",
          ("a b c", Index("m", "b"), "a m c"), ints=how != "mean", second=how != "prod",
          values="apart", tol=4,
          special=how in ("amax", "amin"),
          why="torch's quotients of infinities and zeros are its own; it has no second gradient")
      for how in ("prod", "mean", "amax", "amin")),
    Row("index_reduce_alone",
        "x.index_reduce(0, i, y, 'mean', include_self=False)",
        ("a b", Index("m", "a"), "m b")),
    Row("take", "x.take(i)", ("3 4", Index("m n", "12", low=-12)), ints=True),
    Row("take_scalar", "x.take(i)", ("", Index("m", "1"))),
    Row("put", "x.put(i, y)", ("3 4", Index("m", "12", distinct=True), "m"),
        ints=True),
    Row("put_accumulate", "x.put(i, y, accumulate=True)",
        ("3 4", Index("m n", "12", low=-12), "m n"), ints=True),
    Row("index_put", "x.index_put((i, j), y)",
        ("5 b", Index("3", "5", distinct=True), Index("3", "b"), "3"), zero=False,
        why=_FIXED, ints=True),
    Row("index_put_row", "x.index_put((i,), y)",
        ("5 b", Index("3", "5", distinct=True), "b"), ints=True),
    Row("index_put_accumulate", "x.index_put((i, j), y, accumulate=True)",
        ("a b", Index("m", "a", low=0), Index("m", "b"), "m"), ints=True),
    Row("index_put_none", "x.index_put((None, i), y)",
        ("a 5", Index("3", "5", distinct=True), "a 3"), torch=_columns),
    Row("index_put_mask", "x.index_put((m,), y)", ("a b", Bool("a b"), ""),
        ints=True, jit=False, why="how many there are depends on data"),
    Row("masked_scatter", "x.masked_scatter(m, y)", ("a b", Bool("a b"), "a b"),
        ints=True),
    Row("masked_scatter_spread", "x.masked_scatter(m, y)",
        ("a b", Bool("b"), "a b 2")),
    Row("select", "(x.select(0, 1), x.select(-1, -1))", ("a b",), ints=True,
        zero=False, why="what is not there cannot be selected"),
    Row("select_scatter", "x.select_scatter(y, 1, -1)", ("a 3 b", "a b"), ints=True),
    Row("slice_scatter", "x.slice_scatter(y, 1, 1, 4)", ("a 5", "a 3"), ints=True),
    Row("slice_scatter_step", "x.slice_scatter(y, 0, 0, 6, 2)", ("6 b", "3 b")),
    Row("slice_scatter_whole", "x.slice_scatter(y)", ("a b", "a b")),
    Row("slice_scatter_end", "x.slice_scatter(y, -1, -2)", ("a 5", "a 2")),
    Row("diagonal_scatter", "x.diagonal_scatter(y)", ("4 5", "4"), ints=True),
    Row("diagonal_scatter_batch", "x.diagonal_scatter(y, -1, 2, 0)",
        ("4 b 5", "b 4"), ints=True),
]  # fmt: skip
