"""What a chunk of a kernel touches of its arguments: no more than it says."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

import kernelrt as krt

RNG = np.random.default_rng(11)


def kernels_of(fn, *args):
    """Kernels of a jitted function and of the bodies of its loops."""

    def within(plan):
        yield from plan.kernels
        for body in plan.bodies:
            yield from within(body)

    return [k for k in within(krt.jit(fn).plan(*args)) if k.is_split and not k.may_fail]


def run_chunk(kernel, arrays, chunk: int) -> None:
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(kernel.address)
    bufs = (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))
    function(bufs, (ctypes.c_int64 * 1)(chunk))


def random_arrays(kernel):
    """Numbers for each slot; places in a table for what is an index."""
    arrays: list[np.ndarray] = [np.zeros(0, np.uint8)] * kernel.buf_count
    for slot, size, dtype in kernel.params:
        if dtype is krt.bfloat16:
            bits = RNG.standard_normal(size).astype(np.float32).view(np.uint32)
            arrays[slot] = (bits >> 16).astype(np.uint16)
            continue
        numpy = krt.dtype.to_numpy(dtype)
        if dtype.is_float:
            arrays[slot] = RNG.standard_normal(size).astype(numpy)
        else:
            arrays[slot] = RNG.integers(0, 2, size).astype(numpy)
    return arrays


def check(kernel) -> None:
    """Each chunk alone, with other numbers where all others have theirs, gives the same."""
    given = random_arrays(kernel)
    whole = [a.copy() for a in given]
    chunks = kernel.global_size[0]
    for chunk in range(chunks):
        run_chunk(kernel, whole, chunk)
    for chunk in RNG.choice(chunks, min(chunks, 4), replace=False):
        others = random_arrays(kernel)
        alone = [a.copy() for a in given]
        for slot, nbytes in kernel.chunk_bytes.items():
            mine = slice(chunk * nbytes, (chunk + 1) * nbytes)
            alone[slot].view(np.uint8)[:] = others[slot].view(np.uint8)
            alone[slot].view(np.uint8)[mine] = given[slot].view(np.uint8)[mine]
        before = [a.copy() for a in alone]
        run_chunk(kernel, alone, int(chunk))
        for slot in range(kernel.buf_count):
            found, was = alone[slot].view(np.uint8), before[slot].view(np.uint8)
            changed = np.flatnonzero(found != was)
            if slot not in kernel.outs:
                assert not changed.size
            elif slot in kernel.chunk_bytes:
                nbytes = kernel.chunk_bytes[slot]
                mine = slice(chunk * nbytes, (chunk + 1) * nbytes)
                assert not changed.size or (changed[0] >= mine.start and changed[-1] < mine.stop)
                np.testing.assert_array_equal(found[mine], whole[slot].view(np.uint8)[mine])


def stacked(x):
    a, b = x.unbind(-1)
    return krt.stack([a.sin() + b, (b * a).exp()], -1)


PROGRAMS = {
    "elementwise": (lambda x, y: (x * 2 + y).tanh(), [(64, 4000), (64, 4000)]),
    "broadcast": (lambda x, y: (x + y).tanh(), [(64, 4000), (4000,)]),
    "transposed": (lambda x: x.T + 1.0, [(700, 900)]),
    "rows": (lambda x: x.softmax(-1), [(512, 600)]),
    "columns": (lambda x: x.sum(0), [(600, 2000)]),
    "product": (lambda x, y: (x @ y).relu(), [(300, 200), (200, 250)]),
    "members": (lambda x, y: (x @ y).tanh(), [(48, 64, 32), (48, 32, 64)]),
    "members of one batch": (lambda x, y: (x @ y).tanh(), [(128, 32), (48, 32, 64)]),
    "slope": (lambda x, y: x.mT @ y, [(48, 64, 32), (48, 64, 40)]),
    "norm": (lambda x: (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True), [(400, 512)]),
    "shifted": (lambda x: x[:, 1:] - x[:, :-1], [(300, 1000)]),
    "shifted rows": (lambda x: x[1:] - x[:-1], [(300, 1000)]),
    "rolled": (lambda x: x.roll(1, 0) * x, [(300, 1000)]),
    "flipped": (lambda x: x.flip(0).exp(), [(300, 1000)]),
    "strided": (lambda x: x[::2].exp(), [(300, 1000)]),
    "stacked": (stacked, [(70000, 2)]),
    "joined": (lambda x, y: krt.cat([x, y], 1).exp(), [(300, 400), (300, 300)]),
    "image": (krt.nn.functional.conv2d, [(16, 3, 32, 32), (8, 3, 3, 3)]),
    "pooled": (lambda x: krt.nn.functional.max_pool2d(x, 2), [(16, 8, 32, 32)]),
    "attention": (krt.nn.functional.scaled_dot_product_attention, [(4, 4, 128, 32)] * 3),
    "picked": (lambda x, i: x[i], [(500, 300), "rows"]),
    "uneven": (lambda x, y: (x * y).exp(), [(67, 3001), (67, 3001)]),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_chunks_touch_their_slices(name: str, dtype: str) -> None:
    fn, shapes = PROGRAMS[name]
    args = [
        krt.tensor(RNG.integers(0, 500, 400)) if shape == "rows"
        else krt.tensor(RNG.standard_normal(shape).astype(np.float32)).to(dtype)
        for shape in shapes
    ]  # fmt: skip
    for kernel in kernels_of(fn, *args):
        check(kernel)


def test_gradients() -> None:
    def step(x, w, v):
        w.requires_grad_(True)
        loss = ((x @ w).tanh() @ v).square().mean((1, 2)).sum()
        loss.backward()
        return w.grad

    x, w, v = (krt.tensor(RNG.standard_normal(s).astype(np.float32))
               for s in ((32, 64, 32), (32, 32, 48), (32, 48, 8)))  # fmt: skip
    found = kernels_of(lambda x, w, v: step(x, w * 1.0, v), x, w, v)
    assert found
    for kernel in found:
        check(kernel)


def test_what_is_shared_out() -> None:
    """Rows of members are slices; what all of them read is none."""
    [product] = kernels_of(*_program("members of one batch"))
    chunks = product.global_size[0]
    [out], sizes = product.outs, {slot: size for slot, size, _ in product.params}
    assert product.chunk_bytes[out] == -(-48 // chunks) * sizes[out] // 48 * 4
    whole = [slot for slot in sizes if slot not in product.chunk_bytes]
    assert [sizes[slot] for slot in whole] == [128 * 32]

    [shifted] = kernels_of(*_program("shifted rows"))
    assert set(shifted.chunk_bytes) == set(shifted.outs)
    [turned] = kernels_of(*_program("rolled"))
    assert set(turned.chunk_bytes) == set(turned.outs)


def _program(name: str):
    fn, shapes = PROGRAMS[name]
    return fn, *(krt.tensor(RNG.standard_normal(s).astype(np.float32)) for s in shapes)
