"""Variables: what may be set, what follows, and what raises before anything runs."""

from __future__ import annotations

import numpy as np
import pytest
from support import plan_kernels
from support.plan_kernels import CHUNK, Chain

from kernelrt.device.buffer import Buffer
from kernelrt.errors import KernelrtError, VariableError
from kernelrt.ir import Variable
from kernelrt.runtime import CachedKernel

N = Variable("n", 1, 16)
M = Variable("m", -5, 5)


@pytest.fixture
def chain() -> Chain:
    """Squares the first n of buffer 0 into 1, and adds m to those of 0, into 2."""
    chain = Chain(np.arange(16), np.zeros(16), np.zeros(16))
    chain.builder.add_kernel(plan_kernels.square_to(N, split=True), [1, 0])
    chain.builder.add_kernel(plan_kernels.add_n(M, 16), [2, 0])
    return chain


@pytest.mark.parametrize(
    ("args", "keywords"),
    [
        (({"n": 5, "m": 2},), {}),
        ((), {"n": 5, "m": 2}),
        (([("n", 5), ("m", 2)],), {}),
        (({"n": 5},), {"m": 2}),
        (({N: 5, M: 2},), {}),
        (((pair for pair in [("n", np.int32(5)), ("m", 2)]),), {}),
    ],
)
def test_variables_come_as_a_mapping_keywords_or_pairs(chain, args, keywords):
    chain.build(1).execute_with_vars(*args, **keywords)
    np.testing.assert_array_equal(chain.arrays[1], [0, 1, 4, 9, 16] + [0] * 11)
    np.testing.assert_array_equal(chain.arrays[2], np.arange(16) + 2)


class Numbered:
    """An integer, as others say it."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __index__(self) -> int:
        return self.number


@pytest.mark.parametrize("kind", [int, np.int8, np.int32, np.int64, Numbered])
def test_bounds_belong_to_what_may_be_set(chain, kind):
    plan = chain.build(1)
    for n, m in ((1, -5), (16, 5)):
        plan.execute_with_vars(n=kind(n), m=kind(m))
        assert plan.values == {"n": n, "m": m}
        np.testing.assert_array_equal(chain.arrays[2], np.arange(16) + m)
    for name, beyond in (("n", 0), ("n", 17), ("m", -6), ("m", 6)):
        with pytest.raises(VariableError, match="outside its bounds"):
            plan.execute_with_vars({name: kind(beyond)})


def test_variables_not_named_keep_their_last_value(chain):
    plan = chain.build(1)
    plan.execute_with_vars(n=3, m=1)
    plan.execute_with_vars(m=2)
    assert plan.values == {"n": 3, "m": 2}
    assert plan.chunks(0) == 1
    plan.execute()
    assert plan.values == {"n": 3, "m": 2}
    np.testing.assert_array_equal(chain.arrays[2], np.arange(16) + 2)


def test_no_variables_at_all_is_execute(chain):
    plan = chain.build(1)
    plan.execute_with_vars()
    plan.execute_with_vars({})
    np.testing.assert_array_equal(chain.arrays[1], np.arange(16) ** 2)


def test_symbolic_launch_sizes_follow_the_variables(chain):
    plan = chain.build(1)
    for n in (1, CHUNK, CHUNK + 1, 16):
        chain.arrays[1][:] = 0
        plan.execute_with_vars(n=n)
        assert plan.chunks(0) == -(-n // CHUNK)
        np.testing.assert_array_equal(chain.arrays[1][:n], np.arange(n) ** 2)
        np.testing.assert_array_equal(chain.arrays[1][n:], 0)


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ({"n": 0}, "n: 0 lies outside its bounds 1 to 16"),
        ({"n": 17}, "n: 17 lies outside"),
        ({"m": -6}, "m: -6 lies outside its bounds -5 to 5"),
        ({"k": 3}, "unknown variable 'k'; the plan has: 'n', 'm'"),
        ({"core_id": 1}, "core_id is set by the plan"),
        ({"n": 2.0}, "expected an integer"),
        ({"n": True}, "expected an integer"),
        ({"n": None}, "expected an integer"),
        ({3: 3}, "expected the name of a variable"),
        ([("n", 1), ("n", 2)], "given twice"),
        ([3], "pairs"),
        ("n", "mapping"),
        (7, "mapping"),
    ],
)
def test_a_wrong_name_or_value_raises_before_anything_runs(chain, values, match):
    plan = chain.build(1)
    plan.execute_with_vars(n=2, m=1)
    for array in chain.arrays[1:]:
        array[:] = -1
    with pytest.raises(VariableError, match=match):
        plan.execute_with_vars(values, **({"m": 3} if values != {"m": -6} else {}))
    assert plan.values == {"n": 2, "m": 1}
    assert all((array == -1).all() for array in chain.arrays[1:])
    plan.execute()
    np.testing.assert_array_equal(chain.arrays[1], [0, 1] + [-1] * 14)


def test_a_fixed_variable_is_never_overridden():
    chain = Chain(np.arange(16), np.zeros(16))
    chain.builder.add_kernel(plan_kernels.square_to(N, split=True), [1, 0], fixedvars={"n": 4})
    plan = chain.build(1)
    with pytest.raises(VariableError, match="'n' was fixed"):
        plan.execute_with_vars(n=9)
    plan.execute()
    assert plan.variables == {}
    np.testing.assert_array_equal(chain.arrays[1], [0, 1, 4, 9] + [0] * 12)


def test_a_variable_fixed_in_one_kernel_stays_free_in_another():
    chain = Chain(np.arange(16), np.zeros(16), np.zeros(16))
    chain.builder.add_kernel(plan_kernels.square_to(N), [1, 0], fixedvars={"n": 4})
    chain.builder.add_kernel(plan_kernels.square_to(N), [2, 0])
    plan = chain.build(1)
    plan.execute_with_vars(n=2)
    np.testing.assert_array_equal(chain.arrays[1], [0, 1, 4, 9] + [0] * 12)
    np.testing.assert_array_equal(chain.arrays[2], [0, 1] + [0] * 14)
    assert plan.prepared_kernels[0].vals == (4,)


def test_a_launch_size_below_one_raises_and_changes_nothing():
    n = Variable("k", 0, 16)
    text = plan_kernels.source("fill", "%r = add i64 0, 9", 0, count="k", names=["k"], split=True)
    kernel = CachedKernel.from_source(
        "fill", text, 1, [0], var_names=["k", "core_id"], variables=[n],
        global_size=((n + 7) // 8, 1, 1),
    )  # fmt: skip
    chain = Chain(np.zeros(16))
    chain.builder.add_kernel(kernel, [0])
    plan = chain.build(0)
    with pytest.raises(VariableError, match=r"global_size\[0\]: .* from 1 to .* is 0 for k=0"):
        plan.execute_with_vars(k=0)
    assert plan.values == {"k": 16}
    assert not chain.arrays[0].any()
    plan.execute_with_vars(k=3)
    np.testing.assert_array_equal(chain.arrays[0], [9] * 3 + [0] * 13)


def test_a_launch_size_that_overflows_raises():
    n = Variable("k", 1, 1 << 40)
    kernel = CachedKernel.from_source(
        "f", plan_kernels.source("f", "%r = add i64 0, 9", 0, count=0, names=["k"], split=True),
        1, [0], var_names=["k", "core_id"], variables=[n], global_size=(n * n, 1, 1),
    )  # fmt: skip
    chain = Chain(np.zeros(16))
    chain.builder.add_kernel(kernel, [0], vals={"k": 1})
    plan = chain.build(0)
    with pytest.raises(VariableError, match=r"expected a number from 1 to 2\*\*63 - 1"):
        plan.execute_with_vars(k=1 << 40)
    assert plan.values == {"k": 1}
    plan.execute()


def test_first_values_are_the_upper_bounds_or_those_given():
    chain = Chain(np.arange(16), np.zeros(16))
    chain.builder.add_kernel(plan_kernels.square_to(N), [1, 0], vals={"n": 2})
    plan = chain.build(1)
    assert plan.values == {"n": 2}
    plan.execute()
    np.testing.assert_array_equal(chain.arrays[1], [0, 1] + [0] * 14)


def test_profiled_execution_takes_variables_too(chain):
    plan = chain.build(1)
    profiles = plan.execute_with_vars_profiled(n=9, m=0)
    assert [p.chunks for p in profiles] == [2, 1]
    assert plan.values == {"n": 9, "m": 0}
    with pytest.raises(VariableError):
        plan.execute_with_vars_profiled(n=99)


def test_every_core_id_is_run_once_for_each_execution(chain):
    seen = []
    import ctypes

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int64))
    def note(bufs, vals):
        seen.append((vals[0], vals[1]))

    kernel = CachedKernel.from_function(
        note, 0, [], var_names=["n", "core_id"], variables=[N], global_size=(N, 1, 1)
    )
    chain.builder.add_kernel(kernel, [])
    plan = chain.build(1)
    plan.execute_with_vars(n=4)
    assert sorted(seen) == [(4, core) for core in range(4)]


def test_what_the_table_refuses_is_not_remembered(chain, monkeypatch):
    """The same call fails again, and the table still runs with the values of plan.values."""
    plan = chain.build(1)
    plan.execute_with_vars(n=3, m=1)
    launch = plan._table.launch
    monkeypatch.setattr(plan._table, "launch", lambda v: (launch(v)[0], [(0, 2**40)]))
    for _ in range(2):
        for use in (plan.execute_with_vars, plan.execute_with_vars_profiled):
            with pytest.raises(KernelrtError):
                use(n=5, m=2)
            assert plan.values == {"n": 3, "m": 1}
    chain.arrays[1][:] = chain.arrays[2][:] = 0
    plan.execute()
    np.testing.assert_array_equal(chain.arrays[1], [0, 1, 4] + [0] * 13)
    np.testing.assert_array_equal(chain.arrays[2], np.arange(16) + 1)
    monkeypatch.undo()
    plan.execute_with_vars(n=5, m=2)
    np.testing.assert_array_equal(chain.arrays[2], np.arange(16) + 2)


def test_a_rebind_that_is_refused_changes_nothing(chain, monkeypatch):
    plan = chain.build(1)
    other = Buffer.wrap(np.full(16, 7, chain.arrays[0].dtype))
    monkeypatch.setattr(plan._memory, "_uses", lambda: [(99, 0, 0)])
    before = plan.buffers
    for _ in range(2):
        with pytest.raises(KernelrtError):
            plan.rebind(0, other)
        assert plan.buffers == before
    monkeypatch.undo()
    plan.rebind(0, other)
    plan.execute_with_vars(n=2, m=0)
    assert chain.arrays[1][:3].tolist() == [49, 49, 0]
