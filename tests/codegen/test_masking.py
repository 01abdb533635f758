"""Where masks leave a block of an array zero."""

from __future__ import annotations

import itertools

import pytest

from kernelrt import dtype as dt
from kernelrt.ir.ops import Op
from kernelrt.ir.rewrite import substitute
from kernelrt.ir.symbolic import simplify
from kernelrt.ir.uop import UOp, const
from kernelrt.loops.passes.masked_tiles import needed
from kernelrt.loops.passes.pack_operands import new_range

BLOCKS, COLUMNS, ROWS = 6, 4, 3
BLOCK, COLUMN, ROW = (new_range(n, i) for i, n in enumerate((BLOCKS, COLUMNS, ROWS)))
PLACE = BLOCK * COLUMNS + COLUMN


def where(mask: UOp, yes: float, no: float) -> UOp:
    return UOp(Op.WHERE, dt.float32, (mask, const(yes, dt.float32), const(no, dt.float32)))


def computed(element: UOp) -> list[bool] | None:
    """For each block whether it is computed."""
    predicate = needed(element, (COLUMN, ROW), ROW, itertools.count(10))
    if predicate is None:
        return None
    blocks = [{BLOCK: const(b, dt.int64)} for b in range(BLOCKS)]
    found = [simplify(substitute([predicate], block)[0]) for block in blocks]
    assert all(x.op is Op.CONST for x in found)
    return [bool(x.arg) for x in found]


TRIANGLE = PLACE.alu(Op.LE, ROW + 8)  # Its last element is at 10, in the third of the blocks.


@pytest.mark.parametrize(
    ("element", "blocks"),
    [
        (where(TRIANGLE, 1.0, 0.0), [True] * 3 + [False] * 3),
        (where(TRIANGLE, 0.0, 1.0), [False] * 2 + [True] * 4),
        (where(TRIANGLE, 1.0, 2.0), None),
        (where(TRIANGLE, 1.0, -0.0), None),
    ],
    ids=["ones below", "ones above", "no zeros", "minus zero"],
)
def test_a_number_that_is_not_zero_leaves_the_question_open(element, blocks):
    assert computed(element) == blocks


#: Masks that begin or end at some distance from the diagonal.
MASKS = {
    "at most": lambda edge: PLACE.alu(Op.LE, edge),
    "below": lambda edge: PLACE.alu(Op.LT, edge),
    "at least": lambda edge: edge.alu(Op.LE, PLACE),
    "above": lambda edge: edge.alu(Op.LT, PLACE),
    "not at most": lambda edge: ~PLACE.alu(Op.LE, edge),
    "not above": lambda edge: ~edge.alu(Op.LT, PLACE),
    "within": lambda edge: PLACE.alu(Op.LT, edge + 5) & edge.alu(Op.LE, PLACE),
    "outside": lambda edge: PLACE.alu(Op.LT, edge) | (edge + 5).alu(Op.LE, PLACE),
}


def element_of(mask: UOp, block: int, column: int, row: int) -> bool:
    at = {BLOCK: block, COLUMN: column, ROW: row}
    numbers = {r: const(number, dt.int64) for r, number in at.items()}
    return bool(simplify(substitute([mask], numbers)[0]).arg)


@pytest.mark.parametrize("inside", [True, False], ids=["zero inside", "zero outside"])
@pytest.mark.parametrize("name", MASKS)
def test_blocks_with_an_element_are_computed_at_any_distance(name, inside):
    """Also where the mask ends with the first or the last element of a block."""
    left_out = 0
    for distance in range(-COLUMNS, BLOCKS * COLUMNS + 1):
        mask = MASKS[name](ROW + distance)
        blocks = computed(where(mask, 0.0, 1.0) if inside else where(mask, 1.0, 0.0))
        for block in range(BLOCKS) if blocks is not None else ():
            places = itertools.product(range(COLUMNS), range(ROWS))
            nonzero = any(element_of(mask, block, *at) is not inside for at in places)
            assert blocks[block] or not nonzero, (distance, block)
            left_out += not blocks[block]
    assert left_out or name in ("within", "outside")
