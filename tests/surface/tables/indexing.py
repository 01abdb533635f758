"""Elements named by numbers, slices, integers and bools, and where sums of them go."""

from __future__ import annotations

from surface.rows import In, Index, Row, each, functions

F = functions


def _set(index, value=None):
    """What a tensor is after an assignment to a part of it."""

    def call(k, x, *others):
        out = x.clone()
        out[index] = others[0] if value is None else value
        return out

    return call


ROWS = [
    Row("int", "(x[1], x[-1], x[..., 0])", ("a b c",), ints=True),
    Row("ints", "(x[1, 0], x[0, ..., -1], x[0, 1, -2])", ("a b c",), ints=True,
        zero=False, why="these are not there in shapes of one"),
    Row("slices", "(x[1:], x[:-1, 1:], x[::2], x[:, 1:9:2])", ("a b",), ints=True),
    Row("slices_none", "(x[3:1], x[:0], x[9:])", ("a b",)),
    Row("newaxis", "(x[None], x[:, None, 1], x[..., None], x[None, ..., 0])", ("a b",)),
    Row("newaxis_scalar", "(x[None], x[...], x[()])", ("",)),
    Row("list", "x[[0, -1, 0]]", ("a b",), ints=True),
    Row("list_column", "(x[:, [0, -1]], x[[1, 0], [0, 1]])", ("a b",), ints=True,
        zero=False, why="these are not there in shapes of one"),
    Row("tensor", "x[i]", ("a b", Index("m", "a")), ints=True),
    Row("tensor_of_axes", "x[i]", ("a b", Index("m n", "a"))),
    Row("tensor_negative", "x[i]", ("5 b", Index("m", "5", low=-5))),
    Row("tensor_column", "x[:, i]", ("a b", Index("m", "b")), ints=True),
    Row("tensor_and_int", "(x[i, 0], x[0, i])", ("a a", Index("m", "a"))),
    Row("tensor_and_slice", "x[i, 1:, None]", ("a b", Index("m", "a"))),
    Row("two_tensors", "x[i, j]", ("a b", Index("m", "a"), Index("m", "b")),
        ints=True),
    Row("two_tensors_spread", "x[i, j]",
        ("a b", Index("m 1", "a"), Index("n", "b"))),
    Row("apart", "x[i, :, j]", ("a b c", Index("m", "a"), Index("m", "c"))),
    Row("ellipsis", "x[..., i, :]", ("a b c", Index("m", "b"))),
    Row("index_select", "x.index_select(0, i)", ("a b", Index("m", "a")), ints=True),
    Row("index_select_last", "x.index_select(-1, i)", ("a b c", Index("m", "c"))),
    *(Row(f"gather_{d}".replace("-", "minus_"), f"x.gather({d}, i)",
          ("a b", Index("c b", "a") if d == 0 else Index("a c", "b")), ints=True)
      for d in (0, 1, -1)),
    Row("gather_less", "x.gather(1, i)", ("4 b c", Index("2 m 1", "b"))),
    Row("gather_scalar", "x.gather(0, i)", ("a", Index("m", "a"))),
    Row("gather_at_scalar", "x.gather(0, i)", ("a", Index("", "a"))),
    Row("gather_from_scalar", "x.gather(0, i)", ("", Index("3", "1"))),
    Row("take_along_dim", "x.take_along_dim(i, 1)", ("a b", Index("1 m", "b")),
        ints=True),
    Row("take_along_dim_flat", "x.take_along_dim(i)", ("a b", Index("2 m", "a")), ints=True),
    Row("take_along_dim_first", "x.take_along_dim(i, 0)", ("a b", Index("m 1", "a"))),
    *(Row(f"scatter_add_{d}".replace("-", "minus_"), f"x.scatter_add({d}, i, y)",
          ("a b", Index("c b", "a") if d == 0 else Index("a c", "b"),
           "c b" if d == 0 else "a c"), ints=True) for d in (0, 1, -1)),
    Row("scatter_add_less", "x.scatter_add(1, i, y)",
        ("4 b c", Index("2 m 1", "b"), In("3 m 2", grad=False)),
        ints=True),
    Row("embedding", "F.embedding(i, w)", (Index("m n", "a"), "a b")),
    Row("embedding_scalar", "F.embedding(i, w)", (Index("", "a"), "a b")),
    Row("one_hot", "F.one_hot(i, 5)", (Index("m n", "5"),), grad=False),
    Row("one_hot_scalar", "F.one_hot(i, 5)", (Index("", "5"),), grad=False),
    Row("set_int", _set(1), ("a b", "b"), ints=True),
    Row("set_slice", _set((slice(None), slice(1, None))), ("a b", ""), ints=True),
    Row("set_number", _set((Ellipsis, 0), 3), ("a b",), ints=True),
    Row("set_step", _set(slice(None, None, 2), 0.5), ("a b",)),
    Row("set_spread", _set((slice(None), None, 0)), ("a b", "a 1")),
    *each("x[i]; x.index_select(0, i.reshape(-1)); x[i, 0]; x[i] * x[i]", "a b",
          Index("...", "a"), ints=True, values="any", grid=False),
    *each("F.embedding(i, x)", Index("...", "a"), "a b", ints=True, values="any", grid=False),
    *each("x[:, [0, -1]]; x[[0, -1, 0]]", "a b", ints=True, values="any", grid=False),
    *each("F.one_hot(i, 7)", Index("...", "7"), grad=False, grid=False),
    *each("x.scatter_add(1, i, y) * x", "a b", Index("a c", "b"), "a c", grid=False),
    *each("x[np.array([2, 0, 2])]; x[:, np.array([-1, 0])]; x[1, [0, 2], 1:3]; "
          "x[[0, 1], :, [3, 0]]", "3 4 5"),
    *each("x.gather({d}, T.zeros_like(x, dtype=T.int64)); "
          "x.gather({d}, x.argmax({d}, keepdim=True)); "
          "T.zeros_like(x).scatter_add({d}, T.zeros_like(x, dtype=T.int64), x)", "... a",
          grid=False),
    *each("T.zeros(3).scatter_add(0, T.zeros(5, dtype=T.int64), T.ones(5)) * x.sum()", "...",
          grid=False),
]  # fmt: skip
