"""Kernels are compiled on other threads while this one renders the next."""

from __future__ import annotations

import _thread
import gc
import itertools
import os
import random
import signal
import sys
import threading
import time

import pytest
from support import forks
from support.interrupts import count_steps, interrupted_at
from support.patience import PATIENCE, until

from kernelrt import dtype as dt
from kernelrt.backend.cpu import LLVMCompiler, ObjectCache, compiler, llvm
from kernelrt.backend.cpu.parallel import on_threads
from kernelrt.device.registry import Device, opened, register
from kernelrt.device.spec import host
from kernelrt.errors import CompileError, SpecError
from kernelrt.ir import Op, UOp, const
from kernelrt.runtime import KernelCache

INTERRUPTS = int(os.environ.get("KERNELRT_INTERRUPTS", "150"))


def square(x):
    return x * x


@pytest.fixture(autouse=True)
def no_thread_is_left():
    """Fail a test that leaves a thread running, those of ``_thread`` included.

    Threads are compared by identity: one that an earlier test started may end meanwhile.
    """
    before = set(sys._current_frames())
    yield
    until(lambda: set(sys._current_frames()) <= before)


@pytest.fixture(params=["main", "another"])
def called(request):
    """Calls a function on the main thread or on another one."""

    def on_another(function):
        outcome = []

        def run():
            try:
                outcome.append((function(), None))
            except BaseException as error:  # noqa: BLE001 - raised again by the caller
                outcome.append((None, error))

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        [(value, error)] = outcome
        if error is not None:
            raise error
        return value

    return on_another if request.param == "another" else lambda function: function()


@pytest.fixture
def two_threads(monkeypatch):
    """As on a machine of two cores."""
    monkeypatch.setattr(compiler, "pool_limit", lambda: 2)


@pytest.mark.parametrize("limit", [1, 2, 5])
@pytest.mark.parametrize("count", [0, 1, 2, 40])
def test_results_come_in_order(called, limit, count):
    rng = random.Random(count)  # noqa: S311 - no secrets here

    def slow(x):
        time.sleep(rng.random() * 1e-3)
        return x * x

    weigh = {"same": lambda _: 0, "last": lambda x: x, "first": lambda x: -x}
    for weight in weigh.values():
        made = called(lambda w=weight: on_threads(slow, iter(range(count)), limit, w))
        assert made == [x * x for x in range(count)]


def test_work_begins_before_the_last_item_is_made(called):
    begun, go_on = threading.Event(), threading.Event()
    seen = []

    def work(x):
        begun.set()
        assert go_on.wait(PATIENCE)
        return x

    def items():
        yield 0
        seen.append(begun.wait(PATIENCE))
        go_on.set()
        yield 1

    assert called(lambda: on_threads(work, items(), 2)) == [0, 1]
    assert seen == [True]


def test_of_those_that_wait_the_heaviest_comes_first(called):
    order = []
    called(lambda: on_threads(order.append, iter([5, 1, 9, 3, 9]), 1, lambda x: x))
    assert order == [9, 9, 5, 3, 1]


def test_one_thread_makes_all_items_before_the_first_is_worked_on(called):
    events = []

    def items():
        for x in range(3):
            events.append("made")
            yield x

    def work(x):
        events.append("worked")
        return x

    assert called(lambda: on_threads(work, items(), 1)) == [0, 1, 2]
    assert events == ["made"] * 3 + ["worked"] * 3


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_no_more_threads_work_than_allowed(called, limit):
    lock, now, most = threading.Lock(), 0, 0

    def work(x):
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(1e-3)
        with lock:
            now -= 1
        return x

    called(lambda: on_threads(work, iter(range(30)), limit))
    assert 1 <= most <= limit


def test_work_is_never_done_on_the_main_thread():
    done = on_threads(lambda _: threading.get_ident(), iter(range(20)), 3)
    assert threading.get_ident() not in done


@pytest.mark.parametrize("limit", [1, 2, 4])
def test_the_error_is_that_of_the_first_item_that_fails(called, limit):
    """Even where another one fails earlier, or heavier ones are worked on first."""

    def work(x):
        if x >= 7:
            raise CompileError(str(x))
        return x

    for heavier in (1, -1):
        with pytest.raises(CompileError, match=r"^7$"):
            called(lambda h=heavier: on_threads(work, iter(range(20)), limit, lambda x: h * x))


def test_an_error_in_making_an_item_comes_after_those_of_earlier_ones(called):
    def items():
        yield from range(3)
        raise SpecError("the fourth")

    def broken(x):
        if x == 1:
            raise CompileError("the second")
        return x

    for limit in (1, 2):
        with pytest.raises(SpecError, match="the fourth"):
            called(lambda n=limit: on_threads(square, items(), n))
        with pytest.raises(CompileError, match="the second"):
            called(lambda n=limit: on_threads(broken, items(), n))


def test_no_more_items_are_made_after_a_failure():
    """There is no last item: the failure ends it, or nothing does."""

    def work(x):
        raise CompileError(str(x))

    def items():
        for x in itertools.count():
            yield x
            time.sleep(1e-3)

    with pytest.raises(CompileError, match=r"^0$"):
        on_threads(work, items(), 2)


@pytest.mark.parametrize("started", [0, 1])
def test_where_no_threads_can_be_had_this_one_does_all(called, monkeypatch, started):
    left = started

    def start(function, args):
        nonlocal left
        if not left:
            raise RuntimeError("can't start new thread")
        left -= 1
        return real(function, args)

    def work():
        nonlocal left
        for limit in (1, 2, 4):
            left = started
            assert on_threads(square, iter(range(20)), limit) == list(map(square, range(20)))

    def with_few():
        monkeypatch.setattr(_thread, "start_new_thread", start)
        try:
            work()
        finally:
            monkeypatch.undo()

    real = _thread.start_new_thread
    called(with_few)


def test_the_collector_rests_meanwhile():
    seen = []

    def items():
        yield 0
        seen.append(gc.isenabled())

    assert gc.isenabled()
    on_threads(lambda _: seen.append(gc.isenabled()), items(), 2)
    assert seen == [False, False]
    assert gc.isenabled()


def test_an_interrupt_anywhere_leaves_no_thread_and_no_lock(two_threads):
    names = [f"stopped{os.urandom(4).hex()}{i}" for i in range(4)]
    made_here = LLVMCompiler(host())

    def work():
        made = made_here.compile_sources((name, source(name)) for name in names)
        assert len(set(made)) == len(names)

    work()
    total = count_steps(work)
    steps = range(1, total + 1)
    if total > INTERRUPTS:
        steps = random.Random(1).sample(steps, INTERRUPTS)  # noqa: S311 - no secrets here
    hits = sum(interrupted_at(step, work) is not None for step in steps)
    work()
    assert hits > len(steps) // 2


def test_handlers_that_interrupt_rendering_leave_a_cache_that_works():
    class Stop(BaseException):
        pass

    armed = False

    def ring(*_):
        if armed:
            raise Stop

    rng = random.Random(3)  # noqa: S311 - no secrets here
    hits = 0
    before = signal.signal(signal.SIGALRM, ring)
    try:
        for turn in range(max(6, INTERRUPTS // 10)):
            cache = KernelCache()
            asts = [ast_of(float(turn) + i / 8) for i in range(4)]
            try:
                armed = True
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-4, 2e-2))
                cache.get_many(asts)
                armed = False
            except Stop:
                armed = False
                hits += 1
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert [k.ast for k in cache.get_many(asts)] == asts
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert hits


@pytest.mark.parametrize("limit", [1, 2])
def test_a_child_that_a_handler_forks_meanwhile_does_the_rest(limit):
    """A fork while one item is made, others wait and one is worked on by another thread."""
    parent = os.getpid()
    begun, go_on = threading.Event(), threading.Event()
    children = []

    def work(x):
        if os.getpid() == parent and limit > 1:
            begun.set()
            assert go_on.wait(PATIENCE)
        return x * x

    def items():
        yield from range(3)
        if limit > 1:
            assert begun.wait(PATIENCE)
        children.append(os.fork())
        go_on.set()
        yield from range(3, 6)

    try:
        with forks.quick_switches():
            made = on_threads(work, items(), limit)
        right = made == list(map(square, range(6)))
    except BaseException:
        right = False
        raise
    finally:
        if os.getpid() != parent:
            os._exit(not right)
    assert right
    assert forks.wait(children[0]) == 0


def test_a_child_that_is_forked_where_a_thread_was_just_started(monkeypatch):
    """By a handler, before that thread is known: it is not there to be waited for."""
    parent, children = os.getpid(), []
    real = _thread.start_new_thread

    def start(function, args):
        real(function, args)
        if not children:
            children.append(os.fork())

    monkeypatch.setattr(_thread, "start_new_thread", start)
    right = False
    try:
        right = on_threads(square, iter(range(6)), 2) == list(map(square, range(6)))
    finally:
        if os.getpid() != parent:
            os._exit(not right)
    assert right
    assert forks.wait(children[0]) == 0


def test_an_interrupt_of_the_work_itself_comes_before_all_errors(monkeypatch):
    """Where the main thread has to do the work: nothing else is begun."""

    def none(*_):
        raise RuntimeError("can't start new thread")

    begun = []

    def work(x):
        begun.append(x)
        if x == 2:
            raise KeyboardInterrupt
        raise CompileError(str(x))

    monkeypatch.setattr(_thread, "start_new_thread", none)
    with pytest.raises(KeyboardInterrupt):
        on_threads(work, iter(range(6)), 1, lambda x: x == 2)
    assert begun == [2]


# ---- kernels


def source(name: str, number: int = 1) -> str:
    return f"define void @{name}(ptr %bufs, ptr %vals) {{ %a{number} = add i64 1, 2 ret void }}"


def ast_of(factor: float, count: int = 16) -> UOp:
    """out[i] = factor * in[i]"""
    index = UOp(Op.RANGE, dt.int64, (const(count, dt.int64),), 0)
    out, a = (UOp(Op.PARAM, dt.float32, (), (slot, count)) for slot in range(2))
    value = UOp(Op.LOAD, dt.float32, (a, index)) * factor
    return UOp(Op.SINK, dt.float32, (UOp(Op.STORE, dt.float32, (out, index, value)),))


class Watching:
    """The CPU, with a renderer and a compiler that tell what they do."""

    def __init__(self) -> None:
        real = opened("CPU")
        self._real = real
        self.device = real.spec
        self.begun, self.rendered = threading.Event(), 0
        self.waits_after: int | None = None
        self.overlapped: list[bool] = []
        self.compiler = LLVMCompiler(real.spec)
        usual = self.compiler._object

        def compiling(name: str, src: str) -> bytes:
            self.begun.set()
            return usual(name, src)

        self.compiler._object = compiling
        register("WATCHING", lambda: Device(real.spec, self, self.compiler, real.loader))

    def render(self, ast, variant=None):
        if self.rendered == self.waits_after:
            self.overlapped.append(self.begun.wait(PATIENCE))
        self.rendered += 1
        return self._real.renderer.render(ast, variant)


def test_a_plan_begins_to_compile_before_its_last_kernel_is_rendered(two_threads):
    device = Watching()
    device.waits_after = 2
    asts = [ast_of(100.5 + i) for i in range(4)]
    found = KernelCache().get_many(asts, "WATCHING")
    assert [k.ast for k in found] == asts
    assert device.overlapped == [True]
    assert device.rendered == 4


def test_with_one_thread_all_kernels_are_rendered_first(monkeypatch):
    monkeypatch.setattr(compiler, "pool_limit", lambda: 1)
    device = Watching()
    asts = [ast_of(400.5 + i) for i in range(4)]
    render, begun = device.render, []

    def rendering(ast, variant=None):
        begun.append(device.begun.is_set())
        return render(ast, variant)

    device.render = rendering
    assert [k.ast for k in KernelCache().get_many(asts, "WATCHING")] == asts
    assert begun == [False] * 4
    assert device.begun.is_set()


def test_equal_kernels_are_rendered_once(two_threads):
    device = Watching()
    found = KernelCache().get_many([ast_of(0.5 + i % 3) for i in range(30)], "WATCHING")
    assert device.rendered == 3
    assert len(set(map(id, found))) == 3


def test_a_kernel_that_cannot_be_rendered_does_not_fail_the_others(two_threads):
    device = Watching()
    render = device.render
    asts = [ast_of(200.5 + i) for i in range(4)]

    def broken(ast, variant=None):
        if ast is asts[2]:
            raise SpecError("told to fail")
        return render(ast, variant)

    device.render = broken
    cache = KernelCache()
    with pytest.raises(SpecError, match="told to fail"):
        cache.get_many(asts, "WATCHING")
    assert [ast in cache for ast in asts] == [True, True, False, True]


def test_what_the_disk_has_is_not_compiled(two_threads, tmp_path):
    cache = ObjectCache(tmp_path / "objects")
    kernels = [(f"k{i}", source(f"k{i}")) for i in range(6)]
    first = LLVMCompiler(host(), cache=cache).compile_sources(kernels[::2])
    again = LLVMCompiler(host(), cache=cache)
    compiled = []
    usual = again._object
    again._object = lambda name, src: compiled.append(name) or usual(name, src)
    assert again.compile_sources(kernels)[::2] == first
    assert sorted(compiled) == ["k1", "k3", "k5"]


def test_the_first_broken_source_is_told(two_threads):
    names = [f"k{i}" for i in range(8)]
    sources = [source(name) if i < 5 else "nonsense" for i, name in enumerate(names)]
    for _ in range(10):
        with pytest.raises(CompileError, match="'k5'"):
            LLVMCompiler(host()).compile_sources(zip(names, sources, strict=True))


def test_one_call_makes_the_object_that_several_make(monkeypatch):
    ast = ast_of(300.5)
    program = opened("CPU").renderer.render(ast)
    [at_once] = LLVMCompiler(host()).compile_sources([(program.name, program.src)])
    monkeypatch.setattr(llvm, "_emitter", lambda: None)
    [in_steps] = LLVMCompiler(host()).compile_sources([(program.name, program.src)])
    assert at_once == in_steps
