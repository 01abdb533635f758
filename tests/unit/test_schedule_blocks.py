"""Long sums of products to few results go by blocks that stay in a cache."""

import pytest
from support.graphs import Memory, conv2d, expand, matmul, mul, reduce, reshape, windows

from kernelrt.device.spec import DeviceSpec
from kernelrt.ir import Op, UOp, toposort
from kernelrt.schedule.rewrite.split_products import block_contractions

DEVICE = DeviceSpec.avx2()


@pytest.fixture
def mem() -> Memory:
    return Memory(7)


def filter_gradient(mem: Memory, count: int, size: int) -> UOp:
    g = mem.random(count, 8, size, size)
    seen = windows(mem.random(count, 4, size + 2, size + 2), (2, 3, 1, 1), (3, 3, 1, 1))
    shape = (count, 8, 4, size, size, 3, 3)
    left = expand(reshape(g, (count, 8, 1, size, size, 1, 1)), shape)
    right = expand(reshape(seen, (count, 1, 4, size, size, 3, 3)), shape)
    return reduce(mul(left, right), Op.ADD, 0, 3, 4)


def sums(root: UOp) -> list[UOp]:
    return [n for n in toposort([root]) if n.op is Op.REDUCE_AXIS]


def test_a_filter_gradient_of_many_images(mem: Memory) -> None:
    root = filter_gradient(mem, 64, 64)
    (blocked,) = block_contractions([root], DEVICE)
    partial, whole = sums(blocked)
    assert whole.shape == partial.shape[1:] == root.shape
    blocks = partial.shape[0]
    moved = (64 * 8 * 64 * 64 + 64 * 4 * 66 * 66) * 4
    assert isinstance(blocks, int)
    assert moved / blocks <= DEVICE.l2_bytes / 2


def test_a_product_of_few_long_rows(mem: Memory) -> None:
    root = matmul(mem.random(64, 9216), mem.random(9216, 128))
    (blocked,) = block_contractions([root], DEVICE)
    partial, whole = sums(blocked)
    assert partial.shape[1:] == whole.shape == root.shape
    assert whole.arg == (Op.ADD, (0,))
    blocks = partial.shape[0]
    moved = (64 * 9216 + 9216 * 128) * 4
    assert isinstance(blocks, int)
    assert moved / blocks <= DEVICE.l2_bytes / 2


def test_what_a_cache_holds_and_what_has_many_results_stay_as_they_are(mem: Memory) -> None:
    for root in (
        filter_gradient(mem, 2, 8),
        matmul(mem.random(2048, 2048), mem.random(2048, 2048)),
        matmul(mem.random(64, 1024), mem.random(1024, 128)),
        matmul(mem.random(512, 8192), mem.random(8192, 512)),
        conv2d(mem.random(64, 8, 66, 66), mem.random(8, 8, 3, 3)),
    ):
        assert block_contractions([root], DEVICE) == [root]
