"""What rendering says a kernel costs, and what that decides."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import dtype as dt
from kernelrt.backend.llvm import LLVMRenderer
from kernelrt.device.costs import costs_of
from kernelrt.device.spec import TARGETS, DeviceSpec
from kernelrt.ir import Op, UOp, rewrite, toposort
from kernelrt.ir.ops import ALU, EXPANSIONS
from kernelrt.ir.size import plain
from kernelrt.loops.math.decompositions import decompositions
from kernelrt.tensor.autograd.rules import RULES

BINARY = {Op.POW, Op.ATAN2}


def applied(op, build, dtype=dt.float32, size=4096):
    """A kernel that applies `op` to every element."""
    r = build.range(size, 0)
    operands = [build.load(build.param(slot, size, dtype), r) for slot in (1, 2)]
    value = UOp(op, dtype, tuple(operands[: 1 + (op in BINARY)]))
    return build.sink(build.store(build.param(0, size, dtype), r, value))


@pytest.mark.parametrize("dtype", [dt.float32, dt.float64], ids=str)
@pytest.mark.parametrize("op", EXPANSIONS)
def test_functions_cost_what_they_become(op, dtype, build):
    ast = applied(op, build, dtype)
    for spec in (make() for make in TARGETS.values()):
        written = rewrite([ast], decompositions(spec))[0]
        costs = costs_of(spec)
        parts = sum(costs.node(u) for u in toposort([written]) if u.op in ALU)
        assert 0.6 < costs.element(op, dtype) / parts < 1.6, (spec.vector_bits, parts)


def test_every_function_has_a_polynomial_and_a_derivative():
    for make in TARGETS.values():
        assert set(decompositions(make())) - {Op.FMA} == set(EXPANSIONS)
    assert set(EXPANSIONS) <= set(RULES)


def test_kernels_cost_what_their_functions_do(build):
    spec = DeviceSpec.avx512()
    found = {op: LLVMRenderer(spec).render(applied(op, build)) for op in (*EXPANSIONS, Op.NEG)}
    costs = costs_of(spec)
    for op in EXPANSIONS:
        expected = 4096 * costs.element(op, dt.float32)
        assert 0.6 < found[op].cycles / expected < 1.6
        # What users are told of is operations as they wrote them.
        assert (found[op].flops, found[op].bytes) == (4096, (2 + (op in BINARY)) * 4 * 4096)
    assert found[Op.POW].cycles > 50 * found[Op.NEG].cycles


def test_cycles_follow_the_variables(build):
    n = krt.Variable("n", 1, 1 << 20)
    r = build.range(plain(n), 0)
    value = UOp(Op.SIN, dt.float32, (build.load(build.param(1, 1 << 20), r),))
    ast = build.sink(build.store(build.param(0, 1 << 20), r, value))
    cycles = LLVMRenderer(DeviceSpec.avx512()).render(ast).cycles
    assert isinstance(cycles, UOp)
    assert [u.arg[0] for u in toposort([cycles]) if u.op is Op.VAR] == ["n"]
    whole = LLVMRenderer(DeviceSpec.avx512()).render(applied(Op.SIN, build, size=1 << 20))
    assert cycles.vmax == whole.cycles


def test_chunks_follow_work_and_never_cores(build):
    def chunks(op, size, **changes):
        spec = replace(DeviceSpec.avx512(), **changes)
        return LLVMRenderer(spec).render(applied(op, build, size=size)).global_size[0]

    assert chunks(Op.NEG, 1 << 10) == 1
    assert chunks(Op.POW, 1 << 16) > chunks(Op.NEG, 1 << 16)
    for op in (Op.NEG, Op.SIN):
        assert chunks(op, 1 << 20, cores=1) == chunks(op, 1 << 20, cores=64) > 1


def test_functions_are_seen_by_threads_and_the_gil():
    x = np.linspace(0.5, 1.5, 1 << 14, dtype=np.float32)
    plans = [krt.jit(f).plan(x) for f in (lambda v: v + v, lambda v: v**v)]
    [cheap], [dear] = (plan.execute_profiled() for plan in plans)
    assert dear.flops == cheap.flops
    assert dear.expected > 5 * cheap.expected > 0
