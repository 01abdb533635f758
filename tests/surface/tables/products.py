"""Matrix products."""

from __future__ import annotations

from surface.rows import Row, each, method

SHAPES = {
    "matrices": ("n k", "k m"), "batch": ("b n k", "b k m"), "spread": ("b n k", "k m"),
    "spread_both": ("b 1 n k", "c k m"), "matrix_vector": ("n k", "k"),
    "vector_matrix": ("k", "k m"), "vectors": ("k", "k"), "batch_vector": ("b n k", "k"),
    "vector_batch": ("k", "b k m"),
}  # fmt: skip

ROWS = [
    *(Row(f"matmul_{way}", method("matmul"), shapes, ints=True, tol=4)
      for way, shapes in SHAPES.items()),
    Row("operator", "x @ y", ("n k", "k m"), ints=True, tol=4),
    Row("mm", method("mm"), ("n k", "k m"), ints=True, tol=4),
    Row("bmm", method("bmm"), ("b n k", "b k m"), ints=True, tol=4),
    Row("dot", method("dot"), ("k", "k"), ints=True, tol=4),
    Row("outer", method("outer"), ("n", "m"), ints=True),
    Row("transposed", "x.T @ y.T", ("k n", "m k"), tol=4),
    Row("gram", "x @ x.mT", ("b n k",), tol=4),
    Row("linear", "F.linear(x, w)", ("a b k", "m k"), tol=4),
    Row("linear_bias", "F.linear(x, w, b)", ("n k", "m k", "m"), tol=4),
    Row("linear_line", "F.linear(x, w, b)", ("k", "m k", "m"), tol=4),
    Row("larger", method("matmul"), ("n k", "k m"), sizes={"n": 17, "k": 33, "m": 19}, tol=8),
    *each("x @ x.mT", "... a b", grid=False),
    *each("x.dot(x); x.outer(x)", "a", ints=True, grid=False),
    *(Row(f"@ {way}", "x @ y", shapes, ints=True, grid=False) for way, shapes in SHAPES.items()),
]  # fmt: skip
