"""The part of a result's tiles that a mask leaves, against a look at each element."""

import itertools

import pytest

from kernelrt import dtype as dt
from kernelrt.ir import Op, UOp, const
from kernelrt.loops.passes.predication import Predicate, computed
from kernelrt.loops.tiles import Tile


def loop(size, number):
    return UOp(Op.RANGE, dt.int64, (const(size, dt.int64),), number)


J, K, V = loop(48, 0), loop(3, 1), loop(16, 2)
COLUMN = K * 16 + V


def later(a, b):
    return (a + 1).alu(Op.LE, b)


def seen(u, at):
    """What a mask comes to."""
    if u in at:
        return at[u]
    if u.op is Op.CONST:
        return u.arg
    a, *rest = (seen(s, at) for s in u.src)
    if u.op is Op.NOT:
        return not a
    [b] = rest
    return {
        Op.ADD: lambda: a + b, Op.SUB: lambda: a - b, Op.MUL: lambda: a * b, Op.LE: lambda: a <= b,
        Op.LT: lambda: a < b, Op.AND: lambda: a and b, Op.OR: lambda: a or b,
    }[u.op]()  # fmt: skip


MASKS = {
    "causal": later(J, COLUMN),
    "strict": J.alu(Op.LT, COLUMN),
    "backwards": later(COLUMN, J),
    "band": later(J, COLUMN) | (COLUMN + 8).alu(Op.LT, J),
    "inside": ~(later(J, COLUMN) | (COLUMN + 8).alu(Op.LT, J)),
    "rows": J.alu(Op.LT, const(20, dt.int64)),
}


@pytest.mark.parametrize("holds", [False, True])
@pytest.mark.parametrize("sizes", [(4, 1, 16), (16, 1, 16), (5, 1, 16), (8, 2, 16), (4, 3, 16)])
@pytest.mark.parametrize("name", MASKS)
def test_tiles_are_left_out_where_no_element_is_looked_at(name, sizes, holds):
    mask = MASKS[name]
    tiles = dict(zip((J, K, V), (Tile(n, 16 if n == 16 else 1) for n in sizes), strict=True))
    turns = [
        [range(at, min(at + n, r.src[0].arg)) for at in range(0, r.src[0].arg, n)]
        for r, n in zip((J, K, V), sizes, strict=True)
    ]
    left = [
        any(seen(mask, dict(zip((J, K, V), at, strict=True))) is holds
            for at in itertools.product(*tile))
        for tile in itertools.product(*turns)
    ]  # fmt: skip
    assert computed(Predicate(mask, holds), tiles) == pytest.approx(sum(left) / len(left))


def test_of_many_tiles_some_are_looked_at():
    j, k = loop(4096, 0), loop(4096, 1)
    part = computed(Predicate(later(j, k), holds=False), {j: Tile(4, 1), k: Tile(16, 16)})
    assert part == pytest.approx(0.5, abs=0.02)


def test_a_mask_of_data_leaves_all():
    j = loop(8, 0)
    mask = (j * j).alu(Op.LT, const(0, dt.int64))
    assert computed(Predicate(mask, holds=True), {}) == 1.0


@pytest.mark.parametrize("tall", [1, 4, 64])
@pytest.mark.parametrize("wide", [16, 32, 128])
@pytest.mark.parametrize(("blocks", "parts"), [(32, 16), (8, 4), (48, 24)])
def test_of_rows_and_columns_in_parts_some_tiles_are_looked_at(blocks, parts, wide, tall):
    block, row, part, column = loop(blocks, 0), loop(64, 1), loop(parts, 2), loop(128, 3)
    predicate = Predicate(later(block * 64 + row, part * 128 + column), holds=False)
    rows, columns = blocks * 64 // tall, parts * 128 // wide
    left = sum(min(columns, (tall * i + tall - 1) // wide + 1) for i in range(rows))
    got = computed(predicate, {row: Tile(tall, 1), column: Tile(wide, 16)})
    assert got == pytest.approx(left / (rows * columns), abs=0.02)
