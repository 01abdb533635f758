"""Kernels compared with peers and with the limits of the machine, on one and two threads.

A case is one computation with one number of threads. For bandwidth-bound work, one side is a copy
of the same number of bytes: no implementation can take less time.
"""

from __future__ import annotations

import ctypes
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
THREADS = (1, 2)
WARM_UP = 3


@dataclass(frozen=True)
class Work:
    """A computation as users of each framework would write it.

    Attributes
    ----------
    name, title : str
        Short name, and title in the table.
    arguments : callable
        Returns new random arrays, the same each time.
    kernelrt : callable
        Takes and returns tensors.
    torch, jax, numpy : callable or None
        The same computation on arrays of the framework.
    gradient : bool
        Whether to compute the gradients of the result's sum by all floating arguments, too.
    copied : int
        Number of bytes that are read and written; 0 if a copy does not limit the time.
    aim : float or None
        See Case.
    tolerance : float
        See Case.
    threads : tuple of int
        Numbers of threads to compare with.
    """

    name: str
    title: str
    arguments: Callable[[], list[NDArray[Any]]]
    kernelrt: Function
    torch: Function | None = None
    jax: Function | None = None
    numpy: Function | None = None
    gradient: bool = False
    copied: int = 0
    aim: float | None = None
    tolerance: float = 1e-4
    threads: tuple[int, ...] = THREADS


def normal(*shapes: tuple[int, ...]) -> Callable[[], list[NDArray[Any]]]:
    """Return a function that makes float32 arrays from a standard normal distribution."""

    def make() -> list[NDArray[Any]]:
        rng = np.random.default_rng(0)
        return [rng.standard_normal(shape, np.float32) for shape in shapes]

    return make


def _warm(call: Call) -> Call:
    for _ in range(WARM_UP):
        call()
    return call


def our_threads(count: int) -> None:
    """Set kernelrt's number of threads."""
    import kernelrt as krt

    krt.set_num_threads(count)


def _blas_threads(count: int) -> None:
    import threadpoolctl

    threadpoolctl.threadpool_limits(count)


def _kernelrt(work: Work) -> Call:
    import kernelrt as krt

    arguments = [krt.tensor(array) for array in work.arguments()]
    floating = [number for number, a in enumerate(arguments) if a.dtype.is_float]

    def value_and_gradients(*given: Any) -> Any:
        leaves = [given[number] for number in floating]
        for leaf in leaves:
            leaf.requires_grad_()
        value = work.kernelrt(*given)
        return value, *krt.grad(value.sum(), leaves)

    function = krt.jit(value_and_gradients if work.gradient else work.kernelrt)
    if work.gradient:
        return _warm(lambda: function(*arguments)[0])
    return _warm(lambda: function(*arguments))


def _torch(work: Work) -> Call:
    import torch

    assert work.torch is not None
    compute = work.torch
    arguments = [torch.from_numpy(array) for array in work.arguments()]

    @torch.inference_mode()
    def forward() -> object:
        return compute(*arguments)

    leaves = [a.requires_grad_() for a in arguments if work.gradient and a.is_floating_point()]

    def backward() -> object:
        value = compute(*arguments)
        torch.autograd.grad(value.sum(), leaves)
        return value.detach()

    return _warm(backward if work.gradient else forward)


def _jax(work: Work) -> Call:
    import jax

    assert work.jax is not None
    compute = work.jax
    arrays = work.arguments()
    floating = tuple(n for n, array in enumerate(arrays) if array.dtype.kind == "f")
    arguments = [jax.device_put(array) for array in arrays]

    def with_gradients(*given: Any) -> Any:
        def total(*inner: Any) -> Any:
            value = compute(*inner)
            return value.sum(), value

        gradients, value = jax.grad(total, floating, has_aux=True)(*given)
        return value, gradients

    if work.gradient:
        both = jax.jit(with_gradients)

        def call() -> object:
            value, gradients = both(*arguments)
            jax.block_until_ready(gradients)
            return value.block_until_ready()

        return _warm(call)
    function = jax.jit(compute)
    return _warm(lambda: function(*arguments).block_until_ready())


def _numpy(work: Work) -> Call:
    assert work.numpy is not None
    return _warm(functools.partial(work.numpy, *work.arguments()))


def _copy(nbytes: int) -> Call:
    """Build a copy that reads half of `nbytes` and writes the other half."""
    import torch

    source, target = torch.ones(nbytes // 8), torch.ones(nbytes // 8)
    return _warm(lambda: target.copy_(source))


def multiply_adds(flops: float) -> Call:
    """Build a loop of `flops` float32 operations on one core at peak speed, without memory."""
    from bench.dispatch import library

    code = library()
    rounds = round(flops / ctypes.c_int64.in_dll(code, "round_flops").value)
    cells = (ctypes.c_float * 16)(*[0.5] * 16)
    table, values = (ctypes.c_void_p * 1)(ctypes.addressof(cells)), (ctypes.c_int64 * 1)(rounds)

    def call(_keep: object = cells) -> object:
        return code.multiply_adds(table, values)

    return _warm(call)


def sides_of(work: Work, threads: int) -> tuple[Side, ...]:
    """Return all sides of a computation for a number of threads."""
    ours = functools.partial(our_threads, threads)
    out = [Side(OURS, functools.partial(_kernelrt, work), ours)]
    if work.torch is not None:
        peer = functools.partial(torch_side.threads, threads)
        out.append(Side("torch", functools.partial(_torch, work), peer, ("torch",)))
    if work.jax is not None and threads > 1:
        # JAX chooses its number of threads when the process starts.
        out.append(Side("jax.jit", functools.partial(_jax, work), needs=("jax",)))
    if work.numpy is not None:
        limit = functools.partial(_blas_threads, threads)
        out.append(Side("numpy", functools.partial(_numpy, work), limit, ("threadpoolctl",)))
    if work.copied:
        make = functools.partial(_copy, work.copied)
        peer = functools.partial(torch_side.threads, threads)
        out.append(Side("copy", make, peer, ("torch",), limit=True))
    return tuple(out)


def cases_of(works: tuple[Work, ...]) -> tuple[Case, ...]:
    """Return a case for each computation and number of threads."""
    return tuple(
        Case(
            f"{work.name}-{threads}",
            f"{work.title}, {threads} thread{'s' if threads > 1 else ''}",
            sides_of(work, threads),
            tolerance=work.tolerance,
            aim=work.aim,
        )
        for work in works
        for threads in work.threads
    )
