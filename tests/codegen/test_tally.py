"""Cycles of nests under tiles, against sums by hand."""

import math

import pytest

from kernelrt.native.tile_cost import Load, MachineModel, NestCost, Read, Tiles, charge, cycles

BY = MachineModel(
    ops_per_cycle=2.0, exposed_latency=1.0, spill_cycles=1e30, fold_cycles=6.0, registers=32,
    lanes=16, widest_step=4, late_fraction=0.25, tracked_streams=8, line=64,
    cache_sets=64, l1_bytes=4096, wait_cycles=8.0, body_limit=128, contention=0.1,
    parallel_sums=8.0, latency=4.0, ports=2.0, remainder_factor=1.05, doubling_cost=0.05,
)  # fmt: skip
ROW, DEPTH = "row", "depth"


def tally(loads=(), reads=(), extents=(100, 64), **numbers):
    tiles = Tiles({ROW: 0, DEPTH: 1}, extents, [True, True])
    usual = {
        "sums": 1, "fills": 0, "work": 1.0, "filling": 0.0, "singles": extents[0],
        "reserved": 2, "sequential": False, "is_row": False, "is_interleaved": False,
    }  # fmt: skip
    return NestCost(tiles, BY, [0], [1], list(loads), list(reads), **(usual | numbers))


def step(*units):
    return max(units) + 0.1 * sum(units) + 1.0


def test_a_sum_waits_for_its_chain():
    nest = tally()
    assert cycles([nest], {}) == pytest.approx(step(1.0, 4.0) * 6400)
    # Eight rows hide the latency of one but for the part that is exposed.
    tiled = step(8 / 2 * (1 + 1 / 8), 4.0) * (12 + (4 + 1) / 8) * 64
    assert cycles([nest], {ROW: (8, 1)}) == pytest.approx(tiled)


def test_nests_are_added_up():
    nest = tally()
    assert cycles([nest, nest], {}) == 2 * cycles([nest], {})
    assert cycles([], {ROW: (4, 1)}) == 0.0


def test_tiles_of_the_call_before_are_forgotten():
    nest = tally()
    before = cycles([nest], {})
    cycles([nest], {ROW: (8, 1), DEPTH: (16, 16)})
    assert cycles([nest], {}) == before


@pytest.mark.parametrize(
    ("stride", "plain", "loads", "shuffles"),
    [(1, True, 1, 0), (3, True, 3, 3), (3, False, 16, 32), (7, True, 16, 32), (None, True, 16, 32)],
)
def test_strides_cost_loads_and_shuffles(stride, plain, loads, shuffles):
    load = Load([1], [stride], [True], [], plain, 4, 0.0)
    nest = tally([load])
    found = cycles([nest], {DEPTH: (16, 16)})
    folded = 100 * (2.0 * 4 + 3.0)
    assert found == pytest.approx(step(1.0, loads / 2, shuffles, 4.0) * 400 + folded)


@pytest.mark.parametrize(
    ("turn", "loads"),
    # Each turn moves the window of eight rows on by one, by three, by all of it and more.
    [(1, 8 + 3), (3, 8 + 3 * 3), (8, 8 * 4), (9, 8 * 4), (None, 8 * 4)],
)
def test_what_a_window_slides_over_is_read_once_and_stays(turn, loads):
    window = Load([0, 1], [1, turn], [False, True], [], True, 4, 0.0)
    tiles = {ROW: (8, 1), DEPTH: (4, 1)}
    turns = (12 + (4 + 1) / 8) * 16
    units = (4 * 8 / 2 * (1 + 1 / 8), loads / 2, 4.0 * 4)
    assert cycles([tally([window])], tiles) == pytest.approx(step(*units) * turns)
    # Of 32 registers one is held for all, and two are for what comes and goes, or what stays is.
    for rows in range(8, 40):
        beside = rows - turn if turn and turn < rows else 2
        spills = cycles([tally([window])], {ROW: (rows, 1), DEPTH: (4, 1)}) >= 1e30
        assert spills == (rows + 1 + beside >= 32)


def test_too_many_accumulators_are_no_choice():
    nest = tally()
    assert cycles([nest], {ROW: (28, 1)}) < 1e30 <= cycles([nest], {ROW: (29, 1)})


def test_lines_that_lie_apart_are_waited_for():
    # Rows a page apart, of which each takes a line in the same place of a way.
    read = Read(4, [1, 0], [4, 4096], [64, 1], [64, 0])
    nest = tally(reads=[read])
    free = tally()
    few = cycles([nest], {ROW: (4, 1)}) - cycles([free], {ROW: (4, 1)})
    assert few >= 0.0
    many, alone = (cycles([one], {ROW: (16, 1)}) for one in (nest, free))
    assert many > alone


def test_remainders_and_copies_are_charged():
    nest = tally(fills=1, filling=200.0)
    assert charge(nest, {ROW: (7, 1)}) == pytest.approx(
        1.05 * (1 + 0.05 * math.log2(7 * 201 / 128))
    )
    nest = tally()
    assert charge(nest, {ROW: (10, 1), DEPTH: (32, 16)}) == 1.0


def test_a_loop_that_is_not_there_is_an_error():
    nest = tally()
    with pytest.raises(KeyError, match="elsewhere"):
        cycles([nest], {"elsewhere": (4, 1)})


def test_the_longest_loops_do_not_overflow():
    nest = tally(extents=(2**62, 2**62), singles=float(2**62))
    assert math.isfinite(cycles([nest], {ROW: (8, 1), DEPTH: (16, 16)}))
