"""Axes of intermediates lie in the order that suits the contractions between them."""

import pytest
from support.graphs import (
    Memory,
    add,
    alu,
    base,
    check,
    conv2d,
    expand,
    matmul,
    mul,
    pad,
    permute,
    reduce,
    relu,
    reshape,
    shrink,
    sub,
    windows,
)  # fmt: skip

from kernelrt.ir import Op, UOp, toposort
from kernelrt.ir.terms import linear
from kernelrt.schedule import Schedule, schedule
from kernelrt.schedule.fuse.index_maps import Indexer
from kernelrt.schedule.rewrite.array_layouts import innermost, is_row_major, preferred_orders


@pytest.fixture
def mem() -> Memory:
    return Memory(7)


def orders(*roots: UOp) -> dict[UOp, tuple[int, ...]]:
    return preferred_orders(list(toposort(roots)), (), Indexer())


def pool(x: UOp) -> UOp:
    taps = windows(x, (2, 2, 2, 1), (3, 2, 2, 1))
    return reduce(taps, Op.MAX, 4, 5)


def contractions(plan: Schedule) -> list[UOp]:
    return [k.ast for k in plan.kernels if any(is_sum(n) for n in toposort([k.ast]))]


def is_sum(node: UOp) -> bool:
    return node.op is Op.REDUCE and node.arg is Op.ADD and node.src[0].op is Op.MUL


def stride(access: UOp, loop: UOp) -> int:
    return linear(access.src[1])[0].get(loop, 0)


def innermost_loop(ast: UOp) -> UOp:
    nodes = list(toposort([ast]))
    closed = {r for n in nodes if n.op is Op.REDUCE for r in n.src[1:]}
    loops = [n for n in nodes if n.op is Op.RANGE and n not in closed]
    return max(loops, key=lambda r: int(r.arg))


def test_products_over_small_images_have_channels_innermost(mem: Memory) -> None:
    x, w, b = mem.random(8, 16, 6, 6), mem.random(32, 16, 3, 3), mem.random(32, 1, 1)
    y = relu(add(conv2d(x, w), b))
    found = orders(y)
    assert found[y] == (0, 2, 3, 1)
    assert innermost(y, found[y]) == 1
    padded = pad(y, (0, 0), (0, 0), (1, 1), (1, 1))
    assert orders(padded)[padded] == (0, 2, 3, 1)
    pooled = pool(y)
    assert orders(pooled)[pooled] == (0, 2, 3, 1)
    rows = reduce(y, Op.ADD, 0)
    assert orders(rows)[rows] == (1, 2, 0)


def test_products_over_long_rows_stay_as_they_are(mem: Memory) -> None:
    x, w = mem.random(2, 16, 18, 18), mem.random(32, 16, 3, 3)
    assert not orders(conv2d(x, w))
    assert not orders(matmul(mem.random(64, 64), mem.random(64, 64)))


def test_splitting_and_joining_axes(mem: Memory) -> None:
    x, w = mem.random(8, 16, 6, 6), mem.random(32, 16, 3, 3)
    y = conv2d(x, w)
    split = reshape(y, (8, 32, 2, 2, 2, 2))
    assert orders(split)[split] == (0, 2, 3, 4, 5, 1)
    joined = reshape(y, (8, 32, 16))
    assert orders(joined)[joined] == (0, 2, 1)
    assert reshape(y, (8, 512)) not in orders(reshape(y, (8, 512)))
    turned = permute(y, 1, 0, 2, 3)
    assert orders(turned)[turned] == (1, 2, 3, 0)


def test_row_major() -> None:
    x = expand(reshape(Memory().random(4), (1, 4, 1)), (3, 4, 1))
    assert is_row_major(x, (2, 0, 1))
    assert not is_row_major(x, (1, 2, 0))
    assert innermost(x, None) == 1


def network(mem: Memory) -> UOp:
    x = mem.random(8, 4, 8, 8)
    w1, b1 = mem.random(16, 4, 3, 3), mem.random(16, 1, 1)
    w2, b2 = mem.random(32, 16, 3, 3), mem.random(32, 1, 1)
    h = pool(relu(add(conv2d(x, w1, padding=1), b1)))
    y = relu(add(conv2d(h, w2, padding=1), b2))
    return matmul(reshape(y, (8, 512)), mem.random(512, 10))


def test_a_network_of_convolutions(mem: Memory) -> None:
    plan = check(mem, [network(mem)])
    kernels = contractions(plan)
    assert len(kernels) == 3
    for ast in kernels:
        loop = innermost_loop(ast)
        accesses = [n for n in toposort([ast]) if n.op in (Op.LOAD, Op.STORE)]
        assert {stride(a, loop) for a in accesses} <= {0, 1}
        assert all(len(a.src) == 2 for a in accesses if a.op is Op.LOAD), "a predicate inside"


def test_outputs_are_row_major(mem: Memory) -> None:
    x, w = mem.random(8, 16, 6, 6), mem.random(32, 16, 3, 3)
    y = relu(conv2d(x, w))
    check(mem, [y])
    check(mem, [y, pool(y)])
    check(mem, [y, reduce(y, Op.ADD, 0, 2, 3)])


def test_weight_gradient_and_its_update(mem: Memory) -> None:
    x, dy = mem.random(8, 16, 6, 6), mem.random(8, 32, 4, 4)
    w, m = mem.random(32, 16, 3, 3), mem.random(32, 16, 3, 3)
    taps = windows(x, (2, 3, 1, 1), (3, 3, 1, 1))
    shape = (32, 16, 3, 3, 8, 4, 4)
    left = expand(reshape(permute(taps, 1, 4, 5, 0, 2, 3), (1, *shape[1:])), shape)
    right = expand(reshape(permute(dy, 1, 0, 2, 3), (32, 1, 1, 1, 8, 4, 4)), shape)
    g = reduce(mul(left, right), Op.ADD, 4, 5, 6)
    m2 = add(mul(m, 0.9), g)
    commits = [(base(m), reshape(m2, (4608,))), (base(w), reshape(sub(w, mul(m2, 0.1)), (4608,)))]
    plan = check(mem, [], commits, tolerance=1e-3)
    assert all(b.arg.size != 0 for k in plan.kernels for b in k.outs)
    update = next(k for k in plan.kernels if base(w) in k.outs)
    assert base(m) in update.outs


def test_part_of_a_reordered_value(mem: Memory) -> None:
    x, w = mem.random(8, 16, 6, 6), mem.random(32, 16, 3, 3)
    y = conv2d(x, w)
    part = shrink(y, (0, 8), (0, 32), (1, 3), (0, 4))
    check(mem, [add(part, 1.0), reduce(alu(Op.TANH, y), Op.MAX, 1)])


def test_decisions_tell(mem: Memory) -> None:
    reasons = [d.reason for d in schedule([network(mem)]).decisions]
    assert "laid out for the contraction that reads it" in reasons


def test_rows_that_leave_vectors_half_empty_give_way_where_a_sum_follows(mem: Memory) -> None:
    filters = mem.random(32, 4, 3, 3)
    images = conv2d(mem.random(8, 4, 26, 26), filters)  # 24 columns: a vector and a half
    assert images not in orders(images)
    assert images not in orders(relu(images))
    assert orders(reduce(relu(images), Op.ADD, 0, 2, 3))[images] == (0, 2, 3, 1)
    full = conv2d(mem.random(8, 4, 34, 34), filters)
    assert full not in orders(reduce(relu(full), Op.ADD, 0, 2, 3))


def test_what_windows_of_one_channel_read_keeps_its_rows(mem: Memory) -> None:
    """The next sum has an axis with both operands, and one operand has no other."""
    images = conv2d(mem.random(8, 4, 26, 26), mem.random(32, 4, 3, 3))
    seen = windows(images, (2, 3, 1, 1), (3, 3, 1, 1))
    taps = expand(reshape(mem.random(32, 3, 3), (1, 32, 1, 1, 3, 3)), seen.shape)
    assert images not in orders(reduce(reduce(mul(seen, taps), Op.ADD, 4, 5), Op.ADD, 0, 2, 3))


def test_a_wanted_gradient_of_filters_is_summed_along_its_channels(mem: Memory) -> None:
    """Row-major, as the caller sees it, it has rows of three."""
    x, g = mem.random(4, 16, 8, 8), mem.random(4, 32, 6, 6)
    seen = reshape(windows(x, (2, 3, 1, 1), (3, 3, 1, 1)), (4, 1, 16, 6, 6, 3, 3))
    shape = (4, 32, 16, 6, 6, 3, 3)
    left = expand(reshape(g, (4, 32, 1, 6, 6, 1, 1)), shape)
    filters = reduce(mul(left, expand(seen, shape)), Op.ADD, 0, 3, 4)
    plan = check(mem, [filters, add(filters, 1.0)], tolerance=1e-3)
    [product] = contractions(plan)
    assert innermost_loop(product).src[0].arg == 32


def test_a_wanted_product_is_stored_as_it_is_computed(mem: Memory) -> None:
    y = matmul(mem.random(64, 48), mem.random(48, 32))
    check(mem, [y, reduce(relu(y), Op.ADD, 1)], kernels=2)
