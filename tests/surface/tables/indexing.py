"""Elements named by numbers, slices, integers and bools, and where sums of them go."""

from __future__ import annotations

from surface.rows import In, Index, Row, functions

F = functions


def _set(index, value=None):
    """What a tensor is after an assignment to a part of it."""

    def call(k, x, *others):
        out = x.clone()
        out[index] = others[0] if value is None else value
        return out

    return call


ROWS = [
    Row("int", lambda k, x: (x[1], x[-1], x[..., 0]), ("a b c",), ints=True),
    Row("ints", lambda k, x: (x[1, 0], x[0, ..., -1], x[0, 1, -2]), ("a b c",), ints=True,
        zero=False, why="these are not there in shapes of one"),
    Row("slices", lambda k, x: (x[1:], x[:-1, 1:], x[::2], x[:, 1:9:2]), ("a b",), ints=True),
    Row("slices_none", lambda k, x: (x[3:1], x[:0], x[9:]), ("a b",)),
    Row("newaxis", lambda k, x: (x[None], x[:, None, 1], x[..., None], x[None, ..., 0]), ("a b",)),
    Row("newaxis_scalar", lambda k, x: (x[None], x[...], x[()]), ("",)),
    Row("list", lambda k, x: x[[0, -1, 0]], ("a b",), ints=True),
    Row("list_column", lambda k, x: (x[:, [0, -1]], x[[1, 0], [0, 1]]), ("a b",), ints=True,
        zero=False, why="these are not there in shapes of one"),
    Row("tensor", lambda k, x, i: x[i], ("a b", Index("m", "a")), ints=True),
    Row("tensor_of_axes", lambda k, x, i: x[i], ("a b", Index("m n", "a"))),
    Row("tensor_negative", lambda k, x, i: x[i], ("5 b", Index("m", "5", low=-5))),
    Row("tensor_column", lambda k, x, i: x[:, i], ("a b", Index("m", "b")), ints=True),
    Row("tensor_and_int", lambda k, x, i: (x[i, 0], x[0, i]), ("a a", Index("m", "a"))),
    Row("tensor_and_slice", lambda k, x, i: x[i, 1:, None], ("a b", Index("m", "a"))),
    Row("two_tensors", lambda k, x, i, j: x[i, j], ("a b", Index("m", "a"), Index("m", "b")),
        ints=True),
    Row("two_tensors_spread", lambda k, x, i, j: x[i, j],
        ("a b", Index("m 1", "a"), Index("n", "b"))),
    Row("apart", lambda k, x, i, j: x[i, :, j], ("a b c", Index("m", "a"), Index("m", "c"))),
    Row("ellipsis", lambda k, x, i: x[..., i, :], ("a b c", Index("m", "b"))),
    Row("index_select", lambda k, x, i: x.index_select(0, i), ("a b", Index("m", "a")), ints=True),
    Row("index_select_last", lambda k, x, i: x.index_select(-1, i), ("a b c", Index("m", "c"))),
    *(Row(f"gather_{d}".replace("-", "minus_"), lambda k, x, i, d=d: x.gather(d, i),
          ("a b", Index("c b", "a") if d == 0 else Index("a c", "b")), ints=True)
      for d in (0, 1, -1)),
    Row("gather_less", lambda k, x, i: x.gather(1, i), ("4 b c", Index("2 m 1", "b"))),
    Row("gather_scalar", lambda k, x, i: x.gather(0, i), ("a", Index("m", "a"))),
    Row("take_along_dim", lambda k, x, i: x.take_along_dim(i, 1), ("a b", Index("1 m", "b")),
        ints=True),
    Row("take_along_dim_first", lambda k, x, i: x.take_along_dim(i, 0), ("a b", Index("m 1", "a"))),
    *(Row(f"scatter_add_{d}".replace("-", "minus_"), lambda k, x, i, y, d=d: x.scatter_add(d, i, y),
          ("a b", Index("c b", "a") if d == 0 else Index("a c", "b"),
           "c b" if d == 0 else "a c"), ints=True) for d in (0, 1, -1)),
    Row("scatter_add_less", lambda k, x, i, y: x.scatter_add(1, i, y),
        ("4 b c", Index("2 m 1", "b"), In("3 m 2", grad=False)),
        ints=True),
    Row("embedding", lambda k, i, w: F(k).embedding(i, w), (Index("m n", "a"), "a b")),
    Row("embedding_scalar", lambda k, i, w: F(k).embedding(i, w), (Index("", "a"), "a b")),
    Row("one_hot", lambda k, i: F(k).one_hot(i, 5), (Index("m n", "5"),), grad=False),
    Row("one_hot_scalar", lambda k, i: F(k).one_hot(i, 5), (Index("", "5"),), grad=False),
    Row("set_int", _set(1), ("a b", "b"), ints=True),
    Row("set_slice", _set((slice(None), slice(1, None))), ("a b", ""), ints=True),
    Row("set_number", _set((Ellipsis, 0), 3), ("a b",), ints=True),
    Row("set_step", _set(slice(None, None, 2), 0.5), ("a b",)),
    Row("set_spread", _set((slice(None), None, 0)), ("a b", "a 1")),
]  # fmt: skip
