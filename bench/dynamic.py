"""What a size that is known only at run time costs, against plans compiled for the very size.

Both sides are kernelrt. The bound is on bandwidth-bound kernels and matrix products: one compile
for all sizes may take at most 15% longer than a compile for each.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.cases import OURS, Case, Side
from bench.peers import kernelrt_side

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.cases import Call

STATIC = "compiled for the size"
LARGEST, WIDTH = 1024, 256
SIZES = (100, 1000)
AIM = round(1 / 1.15, 2)


def matmul(x: Any) -> Any:
    import kernelrt as krt

    weight = np.random.default_rng(1).standard_normal((WIDTH, WIDTH)).astype(np.float32)
    return x @ krt.from_numpy(weight)


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "relu(x * 1.5 + 2)": lambda x: (x * 1.5 + 2.0).relu(),
    "softmax": lambda x: x.softmax(-1),
    "sum over rows": lambda x: x.sum(0),
    "matmul": matmul,
}


def plan(function: Callable[[Any], Any], size: int, *, dynamic: bool) -> Call:
    """Execute one prepared plan; the variable keeps the value it was given here."""
    import kernelrt as krt

    rows = np.random.default_rng(0).standard_normal((LARGEST, WIDTH)).astype(np.float32)
    x = krt.from_numpy(rows)[: krt.Variable("n", 1, LARGEST) if dynamic else size]
    prepared = function(x).prepare()
    if dynamic:
        prepared.execute_with_vars(n=size)
    prepared.execute()
    result = prepared.output_buffer.numpy()
    used = result if result.size == WIDTH else result[: size * WIDTH]
    execute = prepared.execute

    def call() -> object:
        execute()
        return used

    return call


@functools.cache
def cases() -> tuple[Case, ...]:
    """Each function at each size, on one thread."""
    one = functools.partial(kernelrt_side.threads, 1)
    found = []
    for title, function in FUNCTIONS.items():
        for size in SIZES:
            sides = (
                Side(OURS, functools.partial(plan, function, size, dynamic=True), one),
                Side(STATIC, functools.partial(plan, function, size, dynamic=False), one),
            )
            name = f"{title.split('(')[0].split()[0]}-{size}"
            what = f"{title}, {size} of at most {LARGEST} rows of {WIDTH}"
            found.append(Case(name, what, sides, aim=AIM))
    return tuple(found)
