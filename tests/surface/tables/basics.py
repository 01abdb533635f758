"""A few operations of every kind."""

from __future__ import annotations

from surface.rows import Bool, In, Index, Pos, Row

ROWS = [
    Row("tanh", lambda k, x: x.tanh(), ("a b",), ints=True),
    Row("log", lambda k, x: x.log(), (Pos("a b"),), ints=True),
    Row("asin", lambda k, x: x.asin(), (In("a b", -0.9, 0.9),)),
    Row("add", lambda k, x, y: x + y, ("a b", "b"), ints=True),
    Row("mul_scalar", lambda k, x: x * 2.5, ("",), ints=True),
    Row("atan2", lambda k, x, y: x.atan2(y), ("a b", "a 1"), ints=True),
    Row("where", lambda k, m, x, y: k.where(m, x, y), (Bool("a b"), "a b", "b"), ints=True),
    Row("sum", lambda k, x: x.sum(), ("a b",), ints=True),
    Row("mean_dim", lambda k, x: x.mean(-1, keepdim=True), ("a b c",)),
    Row("max_dim", lambda k, x: tuple(x.max(1)), ("a b c",), ints=True),
    Row("argmin", lambda k, x: x.argmin(0), ("a b",), grad=False, ints=True),
    Row("softmax", lambda k, x: x.softmax(0), ("a b",)),
    Row("matmul", lambda k, x, y: x @ y, ("b n k", "k m"), ints=True),
    Row("index_select", lambda k, x, i: x.index_select(0, i), ("n c", Index("m", "n")), ints=True),
    Row("gather", lambda k, x, i: x.gather(1, i), ("a b", Index("a c", "b")), ints=True),
    Row("permute", lambda k, x: x.permute(2, 0, 1), ("a b c",), ints=True),
]
