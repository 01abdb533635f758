"""What masks and lists of positions select."""

from __future__ import annotations

from surface.rows import Bool, In, Index, Row

_DATA = "how many there are depends on data"
#: Few numbers, so that several are equal.
_FEW = In("a b", -0.4, 0.4, grad=False)


def _set(k, x, index, value):
    out = x.clone()
    out[index] = value
    return out


ROWS = [
    Row("mask", "x[m]", ("a b", Bool("a b")), ints=True, jit=False, why=_DATA),
    Row("mask_rows", "x[m]", ("a b", Bool("a")), ints=True, jit=False, why=_DATA),
    Row("mask_columns", "x[:, m]", ("a b c", Bool("b")), jit=False, why=_DATA),
    Row("mask_last", "x[..., m]", ("a b c", Bool("c")), jit=False, why=_DATA),
    Row("mask_two_axes", "x[:, m, None]", ("a b c", Bool("b c")), jit=False,
        why=_DATA),
    Row("mask_and_int", "(x[m, 0], x[0, m])", ("a a", Bool("a")), jit=False,
        zero=False, why=_DATA),
    Row("mask_and_one_place", "x[m, i]", ("a b", Bool("a"), Index("1", "b")),
        jit=False, why=_DATA),
    Row("mask_list", "(x[[True, False, True]], x[:, (False, True)])", ("3 2",),
        jit=False, why=_DATA),
    Row("set_tensor", _set,
        ("5 b", Index("3", "5", distinct=True), "3 b"), ints=True),
    Row("set_tensor_spread", lambda k, x, i, y: _set(k, x, (slice(None), i), y),
        ("a 5", Index("3", "5", distinct=True), "a 1"), ints=True),
    Row("set_two_tensors", lambda k, x, i, j, y: _set(k, x, (i, j), y),
        ("5 b", Index("3", "5", distinct=True), Index("3", "b"), ""), zero=False,
        why="there must be three places"),
    Row("set_apart", lambda k, x, i, j, y: _set(k, x, (i, slice(None), j), y),
        ("5 b c", Index("3", "5", distinct=True), Index("3", "c"), "3 b"), zero="b",
        why="there must be three places"),
    Row("set_tensor_and_step", lambda k, x, i, y: _set(k, x, (i, slice(1, None, 2), None), y),
        ("5 4", Index("3", "5", distinct=True), "3 2 1")),
    Row("set_tensor_number", lambda k, x, i: _set(k, x, (Ellipsis, i), 1.5),
        ("a b", Index("m", "b"))),
    Row("set_list", lambda k, x, y: _set(k, x, [2, 0], y), ("3 b", "b"), ints=True),
    Row("set_mask", _set, ("a b", Bool("a b"), ""), ints=True),
    Row("set_mask_rows", _set, ("a b", Bool("a"), "b"), ints=True),
    Row("set_mask_each", lambda k, x, y: _set(k, x, k.tensor([True, False, True]), y),
        ("3 b", "2 b"), ints=True),
    Row("set_mask_columns", lambda k, x, m, y: _set(k, x, (slice(None), m), y),
        ("a b", Bool("b"), "a 1"), jit=False, why=_DATA),
    Row("nonzero", "(x * 4).round().nonzero()", (_FEW,), grad=False, ints=True, jit=False,
        why=_DATA),
    Row("nonzero_tuple", "(x * 4).round().nonzero(as_tuple=True)", (_FEW,), grad=False,
        jit=False, why=_DATA),
    Row("nonzero_scalar", "(x.nonzero(), (x * 0).nonzero(), x.nonzero(as_tuple=True))",
        (In("", 1, 2, grad=False),), grad=False, jit=False, special=False, why=_DATA),
    Row("argwhere", "T.argwhere(x)", (Bool("a b c"),), grad=False, jit=False, why=_DATA),
    Row("masked_select", "x.masked_select(m)", ("a b", Bool("a b")), ints=True,
        jit=False, why=_DATA),
    Row("masked_select_spread", "x.masked_select(m)", ("a 1", Bool("b")), jit=False,
        why=_DATA),
    Row("unique", "(x * 4).round().unique()", (_FEW,), grad=False, ints=True, jit=False,
        special=False, why=_DATA),
    Row("unique_all", "(x * 4).round().unique(return_inverse=True, return_counts=True)", (_FEW,),
        grad=False, ints=True, jit=False, special=False, why=_DATA),
    Row("unique_counts", "(x * 4).round().unique(return_counts=True)", (_FEW,), grad=False,
        jit=False, special=False, why=_DATA),
    *(Row(f"unique_dim_{d}",
          f"i.unique(dim={d}, return_inverse=True, "
          f"return_counts=True)", (Index("6 2", "2"),), grad=False,
          jit=False, why=_DATA) for d in (0, 1)),
    Row("unique_consecutive",
        "(x * 4).round().unique_consecutive(return_inverse=True, "
        "return_counts=True)", (_FEW,), grad=False, ints=True, jit=False,
        special=False, why=_DATA),
    Row("unique_consecutive_dim",
        "i.unique_consecutive(dim=0, return_inverse=True, "
        "return_counts=True)", (Index("6 1", "2"),), grad=False,
        jit=False, why=_DATA),
    Row("bincount", "(i.bincount(), i.bincount(minlength=9))", (Index("n", "7"),),
        grad=False, jit=False, why=_DATA),
    Row("bincount_weights", "i.bincount(w)", (Index("n", "4"), In("n", grad=False)),
        grad=False, jit=False, half=False, why=_DATA),
    Row("histc", "(x.histc(4, -1, 1), x.histc(3, -5, 2))", (In("a b", grad=False),),
        grad=False, half=False, why="torch has none of half types"),
    Row("histc_own", "x.histc(5)", (In("a", grad=False),), grad=False, half=False,
        special=False, why="torch refuses ranges that are not finite"),
]  # fmt: skip
