"""The cost model: plain data by target, which decisions ask."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from kernelrt import dtype as dt
from kernelrt.device import Buffer
from kernelrt.device.costs import Costs, costs_of
from kernelrt.device.spec import TARGETS, DeviceSpec
from kernelrt.ir import Op, UOp
from kernelrt.ir.ops import ELEMENTWISE, EXPANSIONS
from kernelrt.schedule import schedule


@pytest.mark.parametrize("target", TARGETS)
def test_every_op_costs_something_on_every_target(target):
    costs = costs_of(TARGETS[target]())
    for d in (dt.float16, dt.float32, dt.float64, dt.int8, dt.int32, dt.int64, dt.bool_):
        for op in ELEMENTWISE - {Op.BITCAST}:
            assert 0 < costs.element(op, d) < math.inf
    assert costs.element(Op.RESHAPE, dt.float32) == 0


def test_arithmetic_without_a_cost_is_an_error(monkeypatch):
    costs = Costs(DeviceSpec.neon_dot())
    row = replace(costs._target, ops={})
    monkeypatch.setattr(costs, "_target", row)
    assert costs.element(Op.ADD, dt.int32) > 0
    with pytest.raises(KeyError, match="DOT has no cost on generic"):
        costs.element(Op.DOT, dt.int32)


def test_a_product_costs_its_sum_where_that_is_an_instruction_of_its_own():
    for dtype, target in ((dt.int32, DeviceSpec.avx2()), (dt.float32, DeviceSpec.sse4())):
        costs = costs_of(target)
        both = sum(costs.element(op, dtype) for op in (Op.MUL, Op.ADD))
        assert costs.added(Op.MUL, dtype) == both
    for dtype, op in ((dt.float32, Op.MUL), (dt.int32, Op.DOT)):
        costs = costs_of(DeviceSpec.neon_dot())
        assert costs.added(op, dtype) == costs.element(op, dtype)


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_dear_is_dearer(target):
    costs = costs_of(TARGETS[target]())
    for d in (dt.float32, dt.float64):
        assert costs.vector(Op.DIV, d) > 2 * costs.vector(Op.ADD, d)
        assert all(costs.vector(op, d) > 5 * costs.vector(Op.ADD, d) for op in EXPANSIONS)
    # A vector holds half as many elements of twice the size.
    assert costs.element(Op.ADD, dt.float64) == 2 * costs.element(Op.ADD, dt.float32)


@pytest.mark.parametrize("target", TARGETS)
def test_bytes_are_dearer_the_farther_they_lie(target):
    own = TARGETS[target]()
    costs = costs_of(own)
    sizes = (own.l1_bytes, own.l2_bytes, own.l3_bytes, 100 * own.l3_bytes)
    prices = [costs.byte(n) for n in sizes]
    assert prices == sorted(set(prices))
    assert costs.byte(own.l1_bytes + 1) == costs.byte(own.l2_bytes)
    assert prices == [level.cycles for level in costs.levels]


def test_costs_follow_the_spec_and_nothing_else():
    spec = DeviceSpec.avx2()
    assert costs_of(spec) is costs_of(DeviceSpec.avx2())
    large = costs_of(replace(spec, l1_bytes=1 << 20))
    assert large.byte(1 << 19) == costs_of(spec).byte(1)
    many = costs_of(replace(spec, cores=64))
    assert many.launch(1e6, 1 << 20) == costs_of(spec).launch(1e6, 1 << 20)


def test_arithmetic_and_traffic_run_side_by_side():
    costs = costs_of(DeviceSpec.avx512())
    nbytes = 1 << 26
    traffic = costs.launch(0, nbytes)
    assert costs.launch(traffic / 2, nbytes) == traffic
    assert costs.launch(2 * traffic, nbytes) > 1.9 * traffic
    assert costs.launch(0, 0) == costs.call
    assert costs.ns(costs.ghz) == 1


def test_fusion_asks_the_target():
    # Two kernels want the exponential of each of the rows' sums: whether these are worth a
    # buffer depends on what a byte costs there.
    x = UOp(Op.BUFFER, dt.float32, (), Buffer(256 * 256, dt.float32))
    rows = UOp(Op.RESHAPE, dt.float32, (x,), (256, 256))
    value = UOp(Op.TANH, dt.float32, (rows,))
    turned = UOp(Op.PERMUTE, dt.float32, (value,), (1, 0))
    wanted = [UOp(Op.REDUCE_AXIS, dt.float32, (v,), (Op.ADD, (1,))) for v in (value, turned)]
    spec = DeviceSpec.avx512()
    near = schedule(wanted, device=replace(spec, l1_bytes=1 << 30))
    far = schedule(wanted, device=replace(spec, l1_bytes=1, l2_bytes=2, l3_bytes=3))
    assert len(near.kernels) > len(far.kernels)
