"""Matrix products from 8 to 2048 in three layouts; tall, wide and vector shapes; narrow types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bench.limits import Work, cases_of, normal

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.cases import Case

SQUARES = (8, 16, 32, 64, 128, 256, 512, 1024, 1536, 2048)
#: Shapes (m, k, n).
OTHERS = (
    (1, 4096, 4096), (4096, 4096, 1), (1, 784, 128), (8, 4096, 4096), (4096, 16, 4096),
    (16, 4096, 16), (128, 784, 128), (784, 128, 128), (4096, 64, 64), (64, 64, 4096),
    (128, 768, 3072), (128, 3072, 768), (32, 4096, 4096),
    (32, 4096, 2), (64, 1024, 4),
    (32, 512, 512), (300, 300, 300), (1000, 100, 100),
)  # fmt: skip
#: Shapes (m, k, n) for narrow types.
NARROW = ((256, 256, 256), (512, 512, 512), (1024, 1024, 1024), (32, 1024, 1024), (1, 4096, 4096))


def _nn(a: Any, b: Any) -> Any:
    return a @ b


def _nt(a: Any, b: Any) -> Any:
    return a @ b.T


def _tn(a: Any, b: Any) -> Any:
    return a.T @ b


def product(layout: str, m: int, k: int, n: int) -> Work:
    """Return the product of (m, k) and (k, n), either of which may be transposed in memory."""
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


def integers(*shapes: tuple[int, ...]) -> Callable[[], list[Any]]:
    """Return a function that makes uniformly distributed int8 arguments."""

    def make() -> list[Any]:
        rng = np.random.default_rng(0)
        return [rng.integers(-128, 128, shape, np.int8) for shape in shapes]

    return make


def _halves(*shapes: tuple[int, ...]) -> Callable[[], list[Any]]:
    make = normal(*shapes)
    return lambda: [array.astype(np.float16) for array in make()]


def _upper_halves(*shapes: tuple[int, ...]) -> Callable[[], list[Any]]:
    """Return a function that makes arrays of bfloat16 bits, since NumPy has no bfloat16.

    The bits are the upper halves of float32 numbers."""
    make = normal(*shapes)
    return lambda: [(array.view(np.int32) >> 16).astype(np.int16) for array in make()]


def _ours_int8(a: Any, b: Any) -> Any:
    return a.cast("int32") @ b.cast("int32").T


def _theirs_int8(a: Any, b: Any) -> Any:
    import torch

    return torch._int_mm(a, b.T)  # noqa: SLF001 - the only product that accumulates in int32


def _ours_bfloat16(a: Any, b: Any) -> Any:
    return (a.bitcast("bfloat16") @ b.bitcast("bfloat16").T).float()


def _theirs_bfloat16(a: Any, b: Any) -> Any:
    import torch

    return (a.view(torch.bfloat16) @ b.view(torch.bfloat16).T).float()


def narrow(kind: str, m: int, k: int, n: int) -> Work:
    """Return the product of (m, k) and a transposed (n, k), with 8- or 16-bit elements.

    torch rounds bfloat16 products to bfloat16. Libraries without such a product are left out.
    """
    make, ours, theirs, tolerance = {
        "int8": (integers, _ours_int8, _theirs_int8, 0.0),
        "float16": (_halves, _nt, _nt, 1e-2),
        "bfloat16": (_upper_halves, _ours_bfloat16, _theirs_bfloat16, 2e-2),
    }[kind]
    return Work(
        f"{kind}-{m}x{k}x{n}",
        f"matmul NT {m} x {k} x {n} of {kind}",
        make((m, k), (n, k)),
        ours,
        theirs,
        aim=1.0,
        tolerance=tolerance,
    )


def works() -> tuple[Work, ...]:
    """Return all products."""
    shapes = [(n, n, n) for n in SQUARES] + list(OTHERS)
    squares = [product(layout, *shape) for shape in shapes for layout in ("NN", "NT", "TN")]
    few = [narrow(kind, *shape) for kind in ("int8", "float16", "bfloat16") for shape in NARROW]
    return (*squares, *few)


def cases() -> tuple[Case, ...]:
    """Return the cases of all products."""
    return cases_of(works())
