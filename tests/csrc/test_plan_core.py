"""PlanCore, line by line of its contract, on hand-made kernels."""

from __future__ import annotations

import signal
import sys
import threading
import time
from functools import partial

import numpy as np
import pytest
from support.patience import PATIENCE, until

from kernelrt import errors
from kernelrt._dispatch import (
    COPY,
    CUSTOM,
    HOST_PARALLEL_SAFE,
    KERNEL,
    MAY_FAIL,
    NOP,
    REGION,
    STATUS,
    PlanCore,
)


def kernel(fn, bufs, vals=(), *, chunks=1, core_slot=-1, flags=0, cost_ns=0, deps=()):
    return (KERNEL, fn, bufs, vals, chunks, core_slot, flags, cost_ns, deps)


def custom(fn, deps=()):
    return (CUSTOM, fn, (), (), 1, -1, 0, 0, deps)


def copy(dst, src, nbytes):
    return (COPY, None, (dst, src), (nbytes,), 1, -1, 0, 0, ())


NOTHING = (NOP, None, (), (), 1, -1, 0, 0, ())


@pytest.fixture
def log():
    return np.zeros(64, np.int64)


def test_empty_plan():
    plan = PlanCore([])
    assert plan.n_ops == 0
    plan.execute()
    assert plan.execute_profiled_raw() == []


def test_ops_run_in_order(kernels):
    a = np.arange(16, dtype=np.float32)
    b, c = np.ones_like(a), np.zeros_like(a)
    plan = PlanCore(
        [
            kernel(kernels.add, (b.ctypes.data, a.ctypes.data), (16,)),
            NOTHING,
            copy(c.ctypes.data, b.ctypes.data, b.nbytes),
            kernel(kernels.add, (c.ctypes.data, a.ctypes.data), (16,), deps=(2,)),
        ]
    )
    plan.execute()
    np.testing.assert_array_equal(c, 2 * a + 1)
    plan.execute()
    np.testing.assert_array_equal(c, 3 * a + 1)


def test_copy_may_overlap():
    a = np.arange(8, dtype=np.uint8)
    PlanCore([copy(a.ctypes.data + 2, a.ctypes.data, 6)]).execute()
    np.testing.assert_array_equal(a, [0, 1, 0, 1, 2, 3, 4, 5])


def test_every_chunk_gets_its_core_id(kernels, log):
    plan = PlanCore([kernel(kernels.mark, (log.ctypes.data,), (3, 99), chunks=5, core_slot=1)])
    plan.execute()
    assert log[:6].tolist() == [3, 3, 3, 3, 3, 0]


def test_set_value_reaches_all_chunks(kernels, log):
    plan = PlanCore([kernel(kernels.mark, (log.ctypes.data,), (3, 0), chunks=4, core_slot=1)])
    plan.set_value(0, 0, 10)
    assert plan.value(0, 0) == 10
    plan.execute()
    assert log[:5].tolist() == [10, 10, 10, 10, 0]
    with pytest.raises(errors.PlanBuildError, match="core_id"):
        plan.set_value(0, 1, 7)


@pytest.mark.parametrize("n", [0, 1, 3, 4, 40])
def test_set_chunks(kernels, log, n):
    plan = PlanCore([kernel(kernels.mark, (log.ctypes.data,), (1, 0), chunks=4, core_slot=1)])
    plan.set_chunks(0, n)
    assert plan.chunks(0) == n
    plan.execute()
    assert log.tolist() == [1] * n + [0] * (64 - n)


def test_grown_ops_keep_their_values(kernels, log):
    other = np.zeros(64, np.int64)
    plan = PlanCore(
        [
            kernel(kernels.mark, (log.ctypes.data,), (1, 0), chunks=2, core_slot=1),
            kernel(kernels.mark, (other.ctypes.data,), (5, 0), chunks=3, core_slot=1),
        ]
    )
    plan.set_value(1, 0, 6)
    plan.set_chunks(0, 50)
    plan.set_chunks(1, 4)
    plan.execute()
    assert log.tolist() == [1] * 50 + [0] * 14
    assert other.tolist() == [6] * 4 + [0] * 60


def test_set_pointer(kernels, log):
    other = np.zeros(1, np.int64)
    plan = PlanCore([kernel(kernels.mark, (log.ctypes.data,), (1, 0))])
    assert plan.pointer(0, 0) == log.ctypes.data
    plan.set_pointer(0, 0, other.ctypes.data)
    plan.execute()
    assert (log[0], other[0]) == (0, 1)
    with pytest.raises(errors.PlanBuildError, match="null"):
        plan.set_pointer(0, 0, 0)


@pytest.mark.parametrize("call", ["pointer", "value"])
@pytest.mark.parametrize(("op", "slot"), [(1, 0), (0, 2), (2**60, 0)])
def test_no_such_slot(kernels, log, call, op, slot):
    plan = PlanCore([kernel(kernels.mark, (log.ctypes.data,), (1, 0))])
    with pytest.raises(errors.PlanBuildError, match="there is no such"):
        getattr(plan, call)(op, slot)


GOOD = kernel(1, (8,), (1,))


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({0: 5}, "kind"),
        ({0: "x"}, "kind"),
        ({1: 0}, "fn"),
        ({1: -1}, "fn"),
        ({0: CUSTOM, 1: 3}, "fn"),
        ({2: (0,)}, "bufs"),
        ({2: (None,)}, "bufs"),
        ({2: (2**64,)}, "bufs"),
        ({3: (2**63,)}, "vals"),
        ({3: (1.5,)}, "vals"),
        ({0: COPY}, "bufs"),
        ({0: COPY, 2: (8, 8), 3: ()}, "vals"),
        ({0: COPY, 2: (8, 8), 3: (-1,)}, "vals"),
        ({4: -1}, "chunks"),
        ({4: 2}, "chunks"),
        ({4: 2**31, 5: 0}, "chunks"),
        ({5: -2}, "core_slot"),
        ({5: 1}, "core_slot"),
        ({6: 32}, "flags"),
        ({6: 8}, "slices"),
        ({6: -1}, "flags"),
        ({7: -1}, "cost_ns"),
        ({8: (1,)}, "deps"),
        ({8: (-1,)}, "deps"),
        ({8: ("a",)}, "deps"),
    ],
)
def test_a_malformed_op_is_named(change, field):
    bad = list(GOOD)
    for position, value in change.items():
        bad[position] = value
    with pytest.raises(errors.PlanBuildError, match=rf"op 1: {field}"):
        PlanCore([GOOD, tuple(bad)])


@pytest.mark.parametrize("row", [(), (1, 2, 3), 7, (0, 1, 5, (), 1, -1, 0, 0, ())])
def test_a_malformed_tuple_is_named(row):
    with pytest.raises(errors.PlanBuildError, match="op 0: expected"):
        PlanCore([row])


def test_chunks_that_cannot_be_allocated():
    vals = (0,) * 100_000
    with pytest.raises(MemoryError):
        PlanCore([kernel(1, (), vals, chunks=2**31 - 1, core_slot=0)] * 60_000)


def test_status_word_stops_the_plan(kernels, log):
    plan = PlanCore(
        [
            kernel(kernels.mark, (log.ctypes.data,), (1, 0)),
            kernel(kernels.fail, (log.ctypes.data + 8, STATUS), (1,), flags=MAY_FAIL),
            kernel(kernels.mark, (log.ctypes.data,), (1, 0), deps=(1,)),
        ]
    )
    for run in (1, 2):
        with pytest.raises(IndexError) as caught:
            plan.execute()
        assert isinstance(caught.value, errors.IndexBoundsError)
        assert caught.value.op == 1
        assert log[:2].tolist() == [run, run]
    plan.set_value(1, 0, 0)
    plan.execute()
    assert log[:2].tolist() == [4, 3]
    plan.set_value(1, 0, 1)
    with pytest.raises(IndexError):
        plan.execute_profiled_raw()


def test_custom_functions_run_in_place(kernels, log):
    seen = []
    mark = kernel(kernels.mark, (log.ctypes.data,), (1, 0))
    plan = PlanCore([mark, custom(lambda: seen.append(int(log[0]))), mark])
    plan.execute()
    plan.execute()
    assert seen == [1, 3]


def test_a_custom_function_that_raises(kernels, log):
    plan = PlanCore(
        [NOTHING, custom(lambda: 1 / 0), kernel(kernels.mark, (log.ctypes.data,), (1, 0))]
    )
    with pytest.raises(errors.CustomFunctionError, match=r"op 1.*ZeroDivisionError") as caught:
        plan.execute()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert log[0] == 0


@pytest.mark.parametrize("cost_ns", [0, 1_000_000])
def test_reentry_is_refused_and_nesting_is_not(kernels, log, cost_ns):
    inner = PlanCore([kernel(kernels.mark, (log.ctypes.data,), (1, 0))])

    def reenter():
        inner.execute()
        for call in (plan.execute, plan.release, lambda: plan.set_chunks(0, 0)):
            with pytest.raises(errors.PlanBusyError):
                call()

    plan = PlanCore([(CUSTOM, reenter, (), (), 1, -1, 0, cost_ns, ())])
    plan.execute()
    plan.execute()
    assert log[0] == 2


def test_release(kernels, log):
    plan = PlanCore([kernel(kernels.mark, (log.ctypes.data,), (1, 0))])
    plan.execute()
    plan.release()
    plan.release()
    assert plan.released
    assert plan.n_ops == 1
    for call in (plan.execute, plan.execute_profiled_raw, lambda: plan.chunks(0)):
        with pytest.raises(errors.PlanReleasedError):
            call()
    assert log[0] == 1


def test_a_plan_is_initialised_once():
    plan = PlanCore([])
    with pytest.raises(errors.PlanBuildError, match="once"):
        plan.__init__([])
    with pytest.raises(errors.PlanReleasedError):
        PlanCore.__new__(PlanCore).execute()


def test_profile(kernels, log):
    plan = PlanCore(
        [
            kernel(kernels.burn, (log.ctypes.data,), (300,)),
            NOTHING,
            custom(lambda: time.sleep(0.001)),
            kernel(kernels.mark, (log.ctypes.data,), (1, 0), chunks=3, core_slot=1),
        ]
    )
    rows = plan.execute_profiled_raw()
    assert [row[3] for row in rows] == [1, 0, 1, 3]
    assert rows[1] == (0, 0, 0, 0, 0, ())
    assert rows[0][1] >= 300_000
    assert rows[2][1] >= 1_000_000
    assert rows[0][0] + rows[0][1] <= rows[2][0]
    assert log[:3].tolist() == [2, 1, 1]


def test_threads_take_turns(kernels, log):
    plan = PlanCore(
        [
            kernel(kernels.mark, (log.ctypes.data,), (1, 0), cost_ns=20000),
            kernel(kernels.burn, (log.ctypes.data + 8,), (1,)),
        ]
    )
    threads = [
        threading.Thread(target=lambda: [plan.execute() for _ in range(500)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert log[:2].tolist() == [2000, 2000]


def test_release_waits_for_its_turn(kernels, log):
    begun = threading.Event()
    burn = kernel(kernels.burn, (log.ctypes.data,), (50_000,), cost_ns=50_000_000)
    plan = PlanCore([custom(begun.set), burn])
    thread = threading.Thread(target=plan.execute)
    thread.start()
    assert begun.wait(PATIENCE)
    plan.release()
    assert log[0] == 1
    thread.join()


def test_the_gil_is_released_for_long_plans(kernels, log):
    """The kernel waits until this thread counts to two with it."""
    here = (log.ctypes.data, log.ctypes.data + 8)
    plan = PlanCore([kernel(kernels.meet, here, (2, int(PATIENCE * 1e6)), cost_ns=200_000_000)])
    thread = threading.Thread(target=plan.execute)
    thread.start()
    until(lambda: log[0])
    log[0] += 1
    thread.join()
    assert log[:2].tolist() == [2, 0]


def test_a_signal_ends_a_long_plan_between_ops(kernels, log):
    burn = kernel(kernels.burn, (log.ctypes.data,), (1_000,), cost_ns=1_000_000)
    interrupt = kernel(kernels.interrupt, (), ())
    plan = PlanCore([burn] * 10 + [interrupt] + [burn] * 90)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            plan.execute()
        # A plan asks every 20 ms, in which at most 20 ops of a millisecond run.
        assert 10 <= log[0] <= 10 + 21
        log[:] = 0
        signal.signal(signal.SIGINT, lambda *_: None)
        plan.execute()
    finally:
        signal.signal(signal.SIGINT, before)
    assert log[0] == 100


def test_no_python_call_within_a_plan(kernels):
    plan = PlanCore([kernel(kernels.nothing, (), (), flags=HOST_PARALLEL_SAFE)] * 1000)
    events = []
    sys.setprofile(
        lambda _frame, event, what: events.append((event, getattr(what, "__name__", "")))
    )
    plan.execute()
    sys.setprofile(None)
    assert [event for event in events if event[1] != "setprofile"] in (
        [("c_call", "execute"), ("c_return", "execute")],
        [],
    )


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_is_no_failure_leaves_a_custom_function_as_itself(error, log):
    def stop():
        raise error("enough")

    plan = PlanCore([custom(stop)])
    outer = PlanCore([custom(plan.execute)])
    for each in (plan, outer, plan):
        with pytest.raises(error, match="enough"):
            each.execute()
        with pytest.raises(error, match="enough"):
            each.execute_profiled_raw()


class Rude(PlanCore):
    """What tells of a failure raises itself."""

    def _index_error(self, *_):
        raise KeyboardInterrupt

    _op_name = _index_error


def test_whatever_tells_of_a_failure_runs_after_the_turn(kernels, log):
    plans = [
        Rude([kernel(kernels.fail, (log.ctypes.data, STATUS), (1,), flags=MAY_FAIL)]),
        Rude([custom(lambda: 1 / 0)]),
    ]
    free = []

    def look(plan):
        free.append(plan.cost_ns)

    for plan in plans:
        with_nothing = partial(plan.execute_with, nothing)
        for use in (plan.execute, plan.execute_profiled_raw, with_nothing):
            with pytest.raises(KeyboardInterrupt):
                use()
            thread = threading.Thread(target=look, args=(plan,), daemon=True)
            thread.start()
            thread.join(PATIENCE)
    assert len(free) == 6


def nothing():
    return (), (), (), ()


GROWN = 3


@pytest.mark.parametrize(
    "wrong",
    [
        ([(0, 0, 0)], [], []),
        ([(0, 5, 8)], [], []),
        ([(0, 0, "x")], [], []),
        ([], [(0, 1, 7)], []),
        ([], [(9, 0, 7)], []),
        ([], [(0, 0, 2**70)], []),
        ([], [(0, 0, None)], []),
        ([], [], [(0, -1)]),
        ([], [], [(0, 2**40)]),
        ([], [], [(7, 1)]),
        ([], [], [(0, 1.5)]),
    ],
)
def test_changes_are_made_together_or_not_at_all(kernels, log, wrong):
    class Owner:
        told = False

    other = np.zeros(64, np.int64)
    plan = PlanCore([kernel(kernels.mark, (log.ctypes.data,), (1, 0), chunks=2, core_slot=1)])
    right = ([(0, 0, other.ctypes.data)], [(0, 0, 5)], [(0, GROWN)])
    for first in (right, wrong):
        second = wrong if first is right else right
        both = [a + b for a, b in zip(first, second, strict=True)]
        with pytest.raises(errors.PlanBuildError):
            plan.execute_with(lambda both=both: (*both, [(Owner, "told", True)]))
    assert (plan.pointer(0, 0), plan.value(0, 0), plan.chunks(0)) == (log.ctypes.data, 1, 2)
    assert not Owner.told
    plan.execute()
    assert log[:3].tolist() == [1, 1, 0]
    plan.execute_with(lambda: (*right, [(Owner, "told", True)]))
    assert Owner.told
    assert other[:4].tolist() == [5, 5, 5, 0]


def test_plans_that_call_each_other_from_two_threads():
    """Each waits, the first time that it runs, for the other one to be running."""
    meet, met, outcomes = threading.Barrier(2), set(), []

    def call(name):
        def function():
            if name not in met:
                met.add(name)
                meet.wait(PATIENCE)
            plans[name].execute()

        return function

    plans = {"a": PlanCore([custom(call("b"))]), "b": PlanCore([custom(call("a"))])}

    def run(name):
        try:
            plans[name].execute()
        except errors.KernelrtError as error:
            while isinstance(error, errors.CustomFunctionError):
                error = error.__cause__
            outcomes.append(type(error))

    threads = [threading.Thread(target=run, args=(name,), daemon=True) for name in plans]
    for thread in threads:
        thread.start()
    # A third party may wait for its turn meanwhile.
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert errors.PlanBusyError in outcomes


def test_coroutines_interleave_turns():
    greenlet = pytest.importorskip("greenlet")
    order = []

    def switcher(name):
        def function():
            order.append(name)
            greenlet.getcurrent().parent.switch()
            order.append(name)

        return function

    plans = [PlanCore([custom(switcher(i))]) for i in range(4)]
    runs = [greenlet.greenlet(plan.execute) for plan in plans]
    for run in runs:
        run.switch()
    for plan in plans:
        with pytest.raises(errors.PlanBusyError):
            plan.execute()
    for run in runs:
        run.switch()
    assert order == [*range(4), *range(4)]
    assert all(run.dead for run in runs)
    for run in [greenlet.greenlet(plan.execute) for plan in plans]:
        run.switch()
        run.switch()


def exchange(plan, *items, attributes=()):
    plan.exchange_with(lambda: ([(plan, items)], attributes))


def test_kernels_are_exchanged_with_their_values_and_chunks(kernels, log):
    here = (log.ctypes.data,)
    plan = PlanCore([
        kernel(kernels.mark, here, (3, 99), chunks=5, core_slot=1),
        NOTHING,
        kernel(kernels.mark, (log[10:].ctypes.data,), (7, 2)),
    ])  # fmt: skip
    plan.execute()
    assert log[:14].tolist() == [3] * 5 + [0] * 7 + [7, 0]
    exchange(plan, (2, kernels.mark, (8, 9, 0), 3, 1, 0), (0, kernels.mark, (4, 1), 1, -1, 0))
    assert [plan.chunks(i) for i in range(3)] == [1, 0, 3]
    log[:] = 0
    plan.execute()
    assert log[:14].tolist() == [0, 4] + [0] * 8 + [8, 8, 8, 0]
    assert [s[3] for s in plan.execute_profiled_raw()] == [1, 0, 3]
    plan.set_value(2, 0, 5)
    plan.set_chunks(2, 4)
    exchange(plan, (0, kernels.mark, (6, 0), 2, 1, 0))
    log[:] = 0
    plan.execute()
    assert log[:14].tolist() == [6, 6] + [0] * 8 + [5, 5, 5, 5]


def test_the_estimate_of_what_is_exchanged_follows_its_chunks(kernels, log):
    plan = PlanCore([kernel(kernels.mark, (log.ctypes.data,), (3, 0), cost_ns=1000)])
    exchange(plan, (0, kernels.mark, (3, 0), 4, 1, 1200))
    assert plan.cost_ns == 1200
    plan.set_chunks(0, 2)
    assert plan.cost_ns == 600


def test_what_is_skipped_stays_so_when_it_is_exchanged(kernels, log):
    plan = PlanCore([kernel(kernels.mark, (log.ctypes.data,), (3, 0))])
    plan.set_chunks(0, 0)
    exchange(plan, (0, kernels.mark, (3, 0), 4, 1, 0))
    plan.execute()
    assert not log.any()
    plan.set_chunks(0, 4)
    plan.execute()
    assert log[:5].tolist() == [3, 3, 3, 3, 0]


def test_a_malformed_exchange_changes_nothing(kernels, log):
    class Told:
        value = 0

    told = Told()
    plan = PlanCore([
        kernel(kernels.mark, (log.ctypes.data,), (3, 0), chunks=2, core_slot=1), NOTHING,
    ])  # fmt: skip
    good = (0, kernels.mark, (4, 0), 1, -1, 0)
    for bad in (
        (1, kernels.mark, (4, 0), 1, -1, 0), (2, kernels.mark, (4, 0), 1, -1, 0),
        (1 << 40, kernels.mark, (4, 0), 1, -1, 0), good, (-1, kernels.mark, (4, 0), 1, -1, 0),
        (1, 0, (4, 0), 1, -1, 0), (1, kernels.mark, ("x", 0), 1, -1, 0),
    ):  # fmt: skip
        with pytest.raises((errors.PlanBuildError, OverflowError)):
            exchange(plan, good, bad, attributes=((told, "value", 1),))
    for alone in (
        (0, kernels.mark, (4, 0), 2, -1, 0), (0, kernels.mark, (4, 0), 1, 2, 0),
        (0, kernels.mark, (4, 0), -1, 1, 0), (0, kernels.mark, (4, 0), 1, 1, -5),
        (0, 0, (4, 0), 1, 1, 0),
    ):  # fmt: skip
        with pytest.raises(errors.PlanBuildError):
            exchange(plan, alone, attributes=((told, "value", 1),))
    assert told.value == 0
    plan.execute()
    assert log[:4].tolist() == [3, 3, 0, 0]
    with pytest.raises(ZeroDivisionError):
        plan.exchange_with(lambda: 1 // 0)
    plan.execute()


def test_kernels_of_a_plan_and_its_bodies_are_exchanged_together(kernels, log):
    here = (log.ctypes.data,)
    body = PlanCore([kernel(kernels.mark, here, (3, 0))])
    region = ((body,), 1, False, -1, -1, -1, (), ())
    plan = PlanCore([(REGION, region, (), (), 1, -1, 0, 0, ()),
                     kernel(kernels.mark, here, (4, 1))])  # fmt: skip
    stranger = PlanCore([kernel(kernels.mark, here, (9, 2))])
    own, within = (1, kernels.mark, (6, 1), 1, -1, 0), (0, kernels.mark, (5, 0), 1, -1, 0)
    for changes in (
        [(plan, [own]), (body, [(7, *within[1:])])],
        [(body, [within]), (plan, [(0, *own[1:])])],
        [(plan, [own]), (stranger, [within])],
        [(body, [within]), (body, [within])],
    ):
        with pytest.raises(errors.PlanBuildError):
            plan.exchange_with(lambda changes=changes: (changes, ()))
        log[:] = 0
        plan.execute()
        assert log[:2].tolist() == [3, 4]
    with pytest.raises(errors.PlanBuildError):
        body.exchange_with(lambda: ([(body, [within])], ()))
    plan.exchange_with(lambda: ([(plan, [own]), (body, [within])], ()))
    log[:] = 0
    plan.execute()
    assert log[:3].tolist() == [5, 6, 0]


def test_a_plan_is_released_with_its_bodies_or_not_at_all(kernels, log):
    inner = PlanCore([kernel(kernels.mark, (log.ctypes.data,), (3, 0))])
    middle = PlanCore([(REGION, ((inner,), 1, False, -1, -1, -1, (), ()), (), (), 1, -1, 0, 0, ())])
    plan = PlanCore([(REGION, ((middle,), 2, False, -1, -1, -1, (), ()), (), (), 1, -1, 0, 0, ())])
    refused = []

    def release():
        with pytest.raises(errors.PlanBusyError):
            plan.release()
        refused.append([p.released for p in (plan, middle, inner)])

    assert inner.unless_busy(release)
    assert refused == [[False] * 3]
    assert inner.is_body
    plan.execute()
    assert log[:2].tolist() == [6, 0]
    plan.release()
    for p in (plan, middle, inner):
        assert p.released
        assert not p.is_body
        with pytest.raises(errors.PlanReleasedError):
            p.execute()
