"""CALL: from the graph through the schedule to a plan."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
from support.graphs import Memory, add, alu, check, gather, reduce, reshape, shrink, transpose
from support.kernel_reference import HostBuffer

import kernelrt as krt
from kernelrt import dtype as dt
from kernelrt.device.registry import opened
from kernelrt.errors import GradientError, SpecError, VariableError
from kernelrt.ir import Op, UOp, routine
from kernelrt.ir.kernel_spec import verify_kernel
from kernelrt.ir.routine import SIGNATURES, Routine, is_call
from kernelrt.ir.size import plain
from kernelrt.ir.tensor_spec import verify_tensor
from kernelrt.native.routines import ADDRESSES
from kernelrt.runtime.routines import routine_kernel
from kernelrt.tensor.nodes import build

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def mem() -> Memory:
    return Memory(5)


def keys(mem: Memory, *shape: int) -> UOp:
    return mem.of(mem.generator.integers(0, 9, shape).astype(np.uint32))


def argsort(x: UOp) -> UOp:
    """The CALL, whose rows hold twice as much as is asked for."""
    rows, n = x.shape
    return UOp(Op.CALL, dt.int64, (x,), Routine("argsort_u32", rows, (n,)))


def places(x: UOp) -> UOp:
    rows, n = x.shape
    return shrink(argsort(x), (0, rows), (0, n))


def test_of_stored_data(mem: Memory) -> None:
    plan = check(mem, [places(keys(mem, 3, 7))], kernels=2)
    assert is_call(plan.kernels[0].ast)
    assert plan.kernels[0].writes == (0,)


def test_of_what_is_computed_first(mem: Memory) -> None:
    x = alu(Op.XOR, keys(mem, 4, 6), keys(mem, 4, 6))
    check(mem, [places(x)], kernels=3)


@pytest.mark.parametrize("how", ["transposed", "cut", "expanded", "constant", "reduced"])
def test_operands_are_made_row_major(mem: Memory, how: str) -> None:
    x = {
        "transposed": lambda: transpose(keys(mem, 5, 4)),
        "cut": lambda: shrink(keys(mem, 6, 9), (1, 5), (2, 7)),
        "expanded": lambda: build.expand(keys(mem, 1, 5), (4, 5)),
        "constant": lambda: build.full(3, dt.uint32, (4, 5)),
        "reduced": lambda: reduce(keys(mem, 4, 5, 3), Op.MAX, 2),
    }[how]()
    check(mem, [places(x)])


def test_a_result_that_several_want(mem: Memory) -> None:
    x = keys(mem, 4, 6)
    order = places(x)
    rows = build.iota_along((4, 6), 0)
    check(mem, [gather(x, rows, order), reduce(order, Op.ADD, 1), order])


def test_an_operand_that_others_read_too(mem: Memory) -> None:
    x = alu(Op.AND, keys(mem, 4, 6), keys(mem, 4, 6))
    check(mem, [places(x), reduce(x, Op.MAX, 0), x])


def test_calls_in_a_chain(mem: Memory) -> None:
    once = places(keys(mem, 4, 6)).cast(dt.uint32)
    check(mem, [places(once)])


def test_the_same_operand_twice_is_one_call(mem: Memory) -> None:
    x = keys(mem, 2, 5)
    plan = check(mem, [places(x), add(places(x), places(x))])
    assert sum(is_call(item.ast) for item in plan.kernels) == 1


def whole(mem: Memory, rows: int, n: int) -> UOp:
    """The BUFFER of some int64 state, as large as the result of a call."""
    return mem.add(HostBuffer(np.arange(rows * 2 * n)), dt.int64)


def test_a_commit_goes_straight_to_its_target(mem: Memory) -> None:
    x, state = keys(mem, 3, 8), whole(mem, 3, 8)
    call = argsort(x)
    plan = check(mem, [], [(state, reshape(call, (48,)))], kernels=1)
    assert plan.kernels[0].outs == (state,)


def test_a_commit_waits_for_readers_of_the_old_value(mem: Memory) -> None:
    x, state = keys(mem, 3, 8), whole(mem, 3, 8)
    check(mem, [add(state, 1)], [(state, reshape(argsort(x), (48,)))])


def test_a_commit_to_what_is_called_with_goes_through_a_copy(mem: Memory) -> None:
    state = mem.add(HostBuffer(np.arange(12, dtype=np.uint32)[::-1].copy()), dt.uint32)
    order = places(reshape(state, (3, 4))).cast(dt.uint32)
    check(mem, [], [(state, reshape(order, (12,)))])


def test_a_committed_result_is_an_output_too(mem: Memory) -> None:
    state, call = whole(mem, 3, 8), argsort(keys(mem, 3, 8))
    check(mem, [call], [(state, reshape(call, (48,)))])


def test_faults() -> None:
    x = keys(Memory(), 2, 3)
    with pytest.raises(SpecError, match="must be a Routine"):
        verify_tensor([UOp(Op.CALL, dt.int64, (x,), "argsort")])
    empty = build.full(0, dt.uint32, (0, 3))
    with pytest.raises(SpecError, match="at least one element"):
        verify_tensor([UOp(Op.CALL, dt.int64, (empty,), Routine("argsort_u32", 1, (3,)))])
    with pytest.raises(SpecError, match=r"must have \(8,\) elements"):
        verify_tensor([UOp(Op.CALL, dt.int64, (x,), Routine("argsort_u32", 2, (4,)))])
    with pytest.raises(SpecError, match="must read uint64"):
        verify_tensor([UOp(Op.CALL, dt.int64, (x,), Routine("argsort_u64", 2, (3,)))])
    param = UOp(Op.PARAM, dt.int64, (), (0, 4))
    keys_ = UOp(Op.PARAM, dt.uint32, (), (1, 2))
    call = UOp(Op.CALL, dt.int64, (param, keys_), Routine("argsort_u32", 1, (2,)))
    verify_kernel(UOp(Op.SINK, dt.int64, (call,)))
    for size in (0, 3):
        short = call.replace(src=(param, UOp(Op.PARAM, dt.uint32, (), (1, size))))
        with pytest.raises(SpecError, match="int64 x 4, uint32 x 2"):
            verify_kernel(UOp(Op.SINK, dt.int64, (short,)))
    with pytest.raises(SpecError, match="operands must all be STOREs, or one CALL"):
        verify_kernel(UOp(Op.SINK, dt.int64, (call, call)))
    params = [UOp(Op.PARAM, dt.float32, (), (k, 4)) for k in (0, 1)]
    status = UOp(Op.PARAM, dt.int64, (), (2, 1))
    for checked, more in ((0, []), (1, [status])):
        factor = Routine("cholesky_f32", 1, (2, checked))
        assert bool(factor.failure) == bool(checked)
        call = UOp(Op.CALL, dt.float32, (*params, *more), factor)
        verify_kernel(UOp(Op.SINK, dt.float32, (call,)))
        other = call.replace(src=(*params, *([] if more else [status])))
        with pytest.raises(SpecError, match="its PARAMs must be"):
            verify_kernel(UOp(Op.SINK, dt.float32, (other,)))


def test_a_routine_that_there_is_not() -> None:
    with pytest.raises(SpecError, match="no routine 'no_such'"):
        Routine("no_such", 1, ())
    with pytest.raises(SpecError, match=r"expected the numbers \('n',\)"):
        Routine("argsort_u32", 1, (2, 3))
    with pytest.raises(SpecError, match="at least 0"):
        Routine("argsort_u32", 1, (-1,))
    assert 128 in ADDRESSES
    for addresses in ADDRESSES.values():
        assert all(addresses.values())
        assert addresses.keys() == SIGNATURES.keys()


@pytest.mark.parametrize("bits", [64, 128, 256, 512, 2048])
def test_the_version_is_that_of_the_device(bits: int) -> None:
    """Of those that this processor runs, the widest that the device has."""
    cpu = opened()
    other = dataclasses.replace(cpu, spec=dataclasses.replace(cpu.spec, vector_bits=bits))
    (kernel,) = (
        k.ast for k in krt.jit(krt.linalg.svdvals).plan(krt.ones(3, 3)).kernels if is_call(k.ast)
    )
    widest = max(b for b in ADDRESSES if b <= max(128, bits))
    program = routine_kernel(kernel, other).program
    assert program.address == ADDRESSES[widest]["svd_f32"]


def test_what_is_worked_in_is_as_large_as_c_has_it() -> None:
    names = "KRT_BLOCK|KRT_FRAME|KRT_SUM_STRIP|KRT_RUN_STRIP"
    constants = dict(re.findall(rf"({names}) = (\d+)", "".join(HEADERS)))
    assert constants == {
        "KRT_BLOCK": str(routine._BLOCK), "KRT_FRAME": str(routine._FRAME),
        "KRT_SUM_STRIP": str(routine._STRIP), "KRT_RUN_STRIP": str(routine._STRIP),
    }  # fmt: skip


HEADERS = [
    (ROOT / "csrc" / f"{name}.h").read_text() for name in ("linalg", "cumsum", "running", "sort")
]


@pytest.mark.parametrize("name", sorted({name.rpartition("_")[0] for name in SIGNATURES}))
def test_the_headers_say_the_same(name: str) -> None:
    """Numbers in their order, operands, and whether it may fail."""
    said = re.search(
        rf"/\* \[([^]]*)\]([^/]*)\*/\s*krt_routine krt_{name}_"
        rf"| {name} +\[([^]]*)\]([^.;]*(;[^.]*)?\.( May fail)?)",
        re.sub(r"\n \* +", " ", "".join(HEADERS)),
    )
    assert said is not None
    numbers, text = said[1] or said[3], said[2] or said[4]
    known = next(s for n, s in SIGNATURES.items() if n.rpartition("_")[0] == name)
    assert tuple(numbers.split(", ")) == known.numbers
    operands = re.sub(r"^[^A-Za-z]*(m >= n, )?", "", text).partition(" -> ")[0].split(", ")
    assert len(operands) == len(known.operands)
    assert ("May fail" in text) == bool(known.failure)


def test_sizes_that_depend_on_a_variable() -> None:
    """Rows may, and keys; the sizes of matrices may not."""
    m, n = krt.Variable("m", 0, 40), krt.Variable("n", 0, 300)
    sort = krt.jit(lambda x: x.argsort(-1), dynamic={"x": {0: m, 1: n}})
    inverse = krt.jit(krt.linalg.inv, dynamic={"A": {0: m}})
    rng = np.random.default_rng(0)
    for rows, size in ((40, 300), (1, 7), (30, 1), (3, 0), (0, 5), (7, 65)):
        x, matrices = rng.normal(size=(rows, size)), rng.normal(size=(rows, 3, 3))
        np.testing.assert_array_equal(sort(krt.tensor(x)).numpy(), np.argsort(x, -1, kind="stable"))
        found = inverse(krt.tensor(matrices)).numpy()
        np.testing.assert_allclose(found, np.linalg.inv(matrices), 1e-6, 1e-6)
    with pytest.raises(VariableError, match="fixed sizes"):
        Routine("cholesky_f32", 1, (plain(n), 1))


def test_a_call_has_no_derivative_of_its_own() -> None:
    x = krt.ones(4, requires_grad=True)
    node = build.call(Routine("triangular_f32", 1, (2, 2, 0, 0)), x.uop, x.uop)
    with pytest.raises(GradientError, match="no derivative"):
        krt.Tensor._of(node).sum().backward()


def test_a_plan_names_and_times_it() -> None:
    sort = krt.jit(lambda x: x.argsort())
    x = krt.randn(64, 300)
    sort(x)
    plan = sort.plan(x)
    profiles = plan.execute_profiled()
    assert any("argsort" in p.kernel.entry_point for p in profiles)
    assert "argsort" in plan.explain()
    called = next(k for k in plan.kernels if is_call(k.ast))
    assert called.is_split
    assert called.code == ""
    with pytest.raises(krt.CompileError, match="loops to show"):
        called.loops()


@pytest.mark.parametrize("threads", [1, 2])
def test_chunks_give_the_same(threads: int) -> None:
    a = np.random.default_rng(0).standard_normal((67, 1000)).astype(np.float32)
    before = krt.get_num_threads()
    krt.set_num_threads(threads)
    try:
        found = krt.jit(lambda x: x.argsort())(krt.tensor(a)).numpy()
    finally:
        krt.set_num_threads(before)
    np.testing.assert_array_equal(found, a.argsort(1, kind="stable"))
