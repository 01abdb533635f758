"""Single kernels: matrix products, an elementwise chain, softmax, layer norm, sum."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.cases import OURS, Case, Side
from bench.peers import torch_side

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bench.cases import Call

Array = Any
Function = Callable[..., Any]
WARM_UP = 3


@dataclass(frozen=True)
class Kernel:
    """A computation as users of each framework would write it.

    Attributes
    ----------
    name, title : str
        Short name, and title in the table.
    shapes : tuple of shapes
        Shapes of the float32 arguments.
    kernelrt, torch, jax, numpy : callable
        Functions of the computation. Each takes arrays of its framework.
    tolerance : float
        As for :class:`~bench.cases.Case`.
    """

    name: str
    title: str
    shapes: tuple[tuple[int, ...], ...]
    kernelrt: Function
    torch: Function
    jax: Function
    numpy: Function | None = None
    tolerance: float = 1e-4
    aim: float | None = None

    def arguments(self) -> list[NDArray[np.float32]]:
        """Return new random arrays."""
        rng = np.random.default_rng(0)
        return [rng.standard_normal(shape).astype(np.float32) for shape in self.shapes]


def kernelrt_call(kernel: Kernel) -> Call:
    """Build a call of a jitted function. Its arguments are bound once, so no call copies them."""
    import kernelrt as krt

    function = krt.jit(kernel.kernelrt)
    arguments = [krt.tensor(array) for array in kernel.arguments()]
    return _warm(lambda: function(*arguments))


def torch_call(kernel: Kernel) -> Call:
    """Build an eager call in inference mode."""
    import torch

    arguments = [torch.from_numpy(array) for array in kernel.arguments()]

    @torch.inference_mode()
    def call() -> object:
        return kernel.torch(*arguments)

    return _warm(call)


def jax_call(kernel: Kernel) -> Call:
    """Build a jitted call that waits for the result."""
    import jax

    function = jax.jit(kernel.jax)
    arguments = [jax.device_put(array) for array in kernel.arguments()]
    return _warm(lambda: function(*arguments).block_until_ready())


def numpy_call(kernel: Kernel) -> Call:
    """Build a plain NumPy call."""
    assert kernel.numpy is not None
    arguments = kernel.arguments()
    return _warm(functools.partial(kernel.numpy, *arguments))


def numba_chain(kernel: Kernel) -> Call:
    """Build the elementwise chain as one numba loop."""
    import numba

    @numba.njit(fastmath=False)  # type: ignore[untyped-decorator, unused-ignore]
    def loop(a: Array, b: Array, c: Array, out: Array) -> Array:
        for i in range(a.size):
            value = a[i] * b[i] + c[i]
            out[i] = (value if value > 0 else np.float32(0)) * np.float32(2) - a[i]
        return out

    a, b, c = kernel.arguments()
    return _warm(lambda: loop(a, b, c, np.empty_like(a)))


def _warm(call: Call) -> Call:
    for _ in range(WARM_UP):
        call()
    return call


def _jnp() -> Any:
    import jax.numpy

    return jax.numpy


def _jax_nn() -> Any:
    import jax.nn

    return jax.nn


def _layer_norm(x: Array, mean: Function, sqrt: Function) -> Array:
    centred = x - mean(x)
    return centred / sqrt(mean(centred * centred) + 1e-5)


def matmul(m: int, k: int, n: int, aim: float | None = None) -> Kernel:
    """Return the product of (m, k) and (k, n)."""
    return Kernel(
        f"matmul-{m}x{k}x{n}",
        f"matmul {m} x {k} x {n}",
        ((m, k), (k, n)),
        *[lambda a, b: a @ b] * 4,
        aim=aim,
    )


def kernels() -> tuple[Kernel, ...]:
    """Return all kernels to compare."""
    million = (1_000_000,)
    square = (1024, 1024)
    return (
        *(matmul(n, n, n) for n in (32, 64, 128, 256, 512, 1024)),
        matmul(128, 784, 128),
        matmul(784, 128, 128),
        Kernel(
            "chain",
            "relu(a * b + c) * 2 - a, 1M",
            (million,) * 3,
            lambda a, b, c: (a * b + c).relu() * 2 - a,
            lambda a, b, c: (a * b + c).relu() * 2 - a,
            lambda a, b, c: _jax_nn().relu(a * b + c) * 2 - a,
            lambda a, b, c: np.maximum(a * b + c, 0) * 2 - a,
        ),
        Kernel(
            "softmax",
            "softmax of rows, 1024 x 1024",
            (square,),
            lambda x: x.softmax(-1),
            lambda x: x.softmax(-1),
            lambda x: _jax_nn().softmax(x, axis=-1),
        ),
        Kernel(
            "layer-norm",
            "layer norm of rows, 1024 x 1024",
            (square,),
            lambda x: x.layer_norm((1024,)),
            lambda x: _torch_functional().layer_norm(x, (1024,)),
            lambda x: _layer_norm(x, lambda v: v.mean(-1, keepdims=True), _jnp().sqrt),
        ),
        Kernel(
            "sum",
            "sum of 1M",
            (million,),
            lambda x: x.sum(),
            lambda x: x.sum(),
            lambda x: x.sum(),
            lambda x: x.sum(),
            tolerance=1e-3,
        ),
    )


def _torch_functional() -> Any:
    import torch.nn.functional

    return torch.nn.functional


def case_of(kernel: Kernel) -> Case:
    """Return a case with a side for each framework that has the kernel."""
    sides = [Side(OURS, functools.partial(kernelrt_call, kernel))]
    sides += [
        Side(
            f"torch, {n} thread{'s' if n > 1 else ''}",
            functools.partial(torch_call, kernel),
            functools.partial(torch_side.threads, n),
            ("torch",),
        )
        for n in (1, 2)
    ]
    sides.append(Side("jax.jit", functools.partial(jax_call, kernel), needs=("jax",)))
    if kernel.numpy is not None:
        sides.append(Side("numpy", functools.partial(numpy_call, kernel)))
    if kernel.name == "chain":
        sides.append(Side("numba", functools.partial(numba_chain, kernel), needs=("numba",)))
    return Case(kernel.name, kernel.title, tuple(sides), tolerance=kernel.tolerance, aim=kernel.aim)


def cases() -> tuple[Case, ...]:
    """Return a case for each kernel."""
    return tuple(case_of(kernel) for kernel in kernels())
