"""Norms of torch.linalg."""

from __future__ import annotations

from surface.rows import Row, function

INF = float("inf")
#: Names of orders.
ORDERS = {"fro": "fro", "nuc": "nuc", "1": 1, "minus_1": -1, "2": 2, "minus_2": -2, "inf": INF,
          "minus_inf": -INF}  # fmt: skip
SINGULAR = {"special": False, "half": False, "tol": 200.0,
            "why": "matrices that are not finite have no singular values"}  # fmt: skip


def _norm(name, *args, **options):
    return function(f"T.linalg.{name}", *args, **options)


def _more(order):
    return SINGULAR if order in ("nuc", 2, -2) else {"tol": 4.0}


ROWS = [
    *(Row(f"vector_{name}", _norm("vector_norm", order, 1), ("a b c",), tol=8)
      for name, order in
      {"0": 0, "1": 1, "2": 2, "3": 3, "inf": INF, "minus_inf": -INF}.items()),
    Row("vector_all", _norm("vector_norm"), ("a b",)),
    Row("vector_half", _norm("vector_norm", 0.5, (0, 2), keepdim=True), ("a b c",), tol=8),
    Row("vector_dtype", "T.linalg.vector_norm(x, dim=0, dtype=T.float64)", ("a b",),
        half=False, why="the result is float64, as exact as the rounded operands"),
    *(Row(f"matrix_{name}", _norm("matrix_norm", order), ("c a b",), **_more(order))
      for name, order in ORDERS.items()),
    *(Row(f"matrix_kept_{name}", _norm("matrix_norm", order, (0, -2), True), ("a b c",),
          **_more(order)) for name, order in ORDERS.items()),
    *(Row(f"matrix_turned_{name}", _norm("matrix_norm", order, dim=(2, 0)), ("a b c",),
          **_more(order)) for name, order in ORDERS.items()),
    Row("norm_all", _norm("norm"), ("a b c",)),
    Row("norm_vector", _norm("norm", 3, -1), ("a b",), tol=4),
    Row("norm_of_a_vector", _norm("norm", INF), ("a",)),
    Row("norm_matrix", _norm("norm", "nuc"), ("a b",), **SINGULAR),
    Row("norm_matrices", _norm("norm", 1, (0, 2), keepdim=True), ("a b c",)),
    Row("norm_dims", _norm("norm", dim=(-1, 0)), ("a b c",)),
]  # fmt: skip
