"""Matrix products from 8 to 2048 in three layouts, and tall, wide and vector shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench.limits import Work, cases_of, normal

if TYPE_CHECKING:
    from bench.cases import Case

SQUARES = (8, 16, 32, 64, 128, 256, 512, 1024, 1536, 2048)
#: Rows, summed, columns.
OTHERS = (
    (1, 4096, 4096), (4096, 4096, 1), (1, 784, 128), (8, 4096, 4096), (4096, 16, 4096),
    (16, 4096, 16), (128, 784, 128), (784, 128, 128), (4096, 64, 64), (64, 64, 4096),
)  # fmt: skip


def _nn(a: Any, b: Any) -> Any:
    return a @ b


def _nt(a: Any, b: Any) -> Any:
    return a @ b.T


def _tn(a: Any, b: Any) -> Any:
    return a.T @ b


def product(layout: str, m: int, k: int, n: int) -> Work:
    """Product of (m, k) and (k, n), either of which may lie transposed in memory."""
    function = {"NN": _nn, "NT": _nt, "TN": _tn}[layout]
    shapes = {
        "NN": ((m, k), (k, n)), "NT": ((m, k), (n, k)), "TN": ((k, m), (k, n)),
    }[layout]  # fmt: skip
    return Work(
        f"{layout.lower()}-{m}x{k}x{n}",
        f"matmul {layout} {m} x {k} x {n}",
        normal(*shapes),
        function,
        function,
        numpy=function,
        aim=1.0,
        tolerance=1e-3,
    )


def works() -> tuple[Work, ...]:
    """All products."""
    shapes = [(n, n, n) for n in SQUARES] + list(OTHERS)
    return tuple(product(layout, *shape) for shape in shapes for layout in ("NN", "NT", "TN"))


def cases() -> tuple[Case, ...]:
    """Of the works."""
    return cases_of(works())
