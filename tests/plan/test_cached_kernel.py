"""CachedKernel and the cache of kernels."""

from __future__ import annotations

import ctypes
import gc
import threading
import time
import weakref
from pathlib import Path

import numpy as np
import pytest
from support import plan_kernels

import kernelrt as krt
from kernelrt import dtype as dt
from kernelrt.backend.llvm import LLVMRenderer
from kernelrt.device.buffer import Buffer
from kernelrt.device.registry import Device, opened, register
from kernelrt.errors import CompileError, DeviceError, DTypeError, PlanBuildError
from kernelrt.ir import Op, UOp, Variable, const
from kernelrt.ir.routine import is_call
from kernelrt.runtime import (
    CachedKernel,
    ExecutionPlanBuilder,
    KernelCache,
    kernel_cache,
    kernels,
)


def ast_of(factor: float, count: int = 16) -> UOp:
    """out[i] = factor * in[i]"""
    index = UOp(Op.RANGE, dt.int64, (const(count, dt.int64),), 0)
    out, a = (UOp(Op.PARAM, dt.float32, (), (slot, count)) for slot in range(2))
    value = UOp(Op.LOAD, dt.float32, (a, index)) * factor
    return UOp(Op.SINK, dt.float32, (UOp(Op.STORE, dt.float32, (out, index, value)),))


class Counting:
    """A device like the CPU that counts, slows down and breaks compiles."""

    def __init__(self) -> None:
        real = opened("CPU")
        self.spec, self.renderer, self.loader = real.spec, real.renderer, real.loader
        self._real = real
        self.batches: list[int] = []
        self.delay = 0.0
        self.broken: set[UOp] = set()

    def compile(self, programs):
        self.batches.append(len(programs))
        time.sleep(self.delay)
        if any(p.ast in self.broken for p in programs):
            raise CompileError(f"kernel {programs[0].name!r}: told to fail")
        return self._real.compiler.compile(programs)


@pytest.fixture
def counting():
    device = Counting()
    register("COUNTING", lambda: Device(device.spec, device.renderer, device, device.loader))
    return device


def test_fields_of_a_kernel_from_an_ast():
    kernel = KernelCache().get(ast_of(2.0))
    assert kernel.device == "CPU"
    assert kernel.entry_point == kernel.program.name
    assert kernel.entry_point in kernel.code
    assert kernel.ast is ast_of(2.0)
    assert (kernel.globals, kernel.outs, kernel.ins, kernel.buf_count) == ((0, 1), (0,), (1,), 2)
    assert (kernel.vars, kernel.var_names) == ((), ())
    assert kernel.global_size == (1, 1, 1)
    assert kernel.local_size is None
    assert kernel.host_parallel_safe
    assert not kernel.may_fail
    assert kernel.address == kernel.program.address > 0


def test_a_split_kernel_has_a_symbolic_global_size():
    n = Variable("n", 1, 1000)
    kernel = plan_kernels.square_to(n, split=True)
    assert kernel.is_split
    assert kernel.var_names == ("n", "core_id")
    assert kernel.global_size[0].bounds == (1, 125)


def test_a_kernel_called_more_than_once_needs_core_id():
    with pytest.raises(PlanBuildError, match="core_id"):
        CachedKernel.from_function(1234, 1, [0], name="k", global_size=(4, 1, 1))


def test_only_the_first_direction_of_global_size_is_counted():
    with pytest.raises(PlanBuildError, match="second and third"):
        CachedKernel.from_function(
            1234, 1, [0], name="k", var_names=["core_id"], global_size=(4, 2, 1)
        )


def test_a_launch_size_depends_on_variables_of_the_kernel_only():
    with pytest.raises(PlanBuildError, match="'m'"):
        CachedKernel.from_function(
            1234, 1, [0], name="k", var_names=["core_id"], global_size=(Variable("m", 1, 2), 1, 1)
        )


def test_outs_lie_among_the_slots():
    with pytest.raises(PlanBuildError, match="outs"):
        CachedKernel.from_function(1234, 2, [2], name="k")


def test_from_function_takes_a_ctypes_pointer_a_capsule_and_an_address():
    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(lambda *_: None)
    address = ctypes.cast(callback, ctypes.c_void_p).value
    new = ctypes.pythonapi.PyCapsule_New
    new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    new.restype = ctypes.py_object
    capsule = new(address, b"void (void **, int64_t *)", None)
    for function in (callback, address, capsule):
        assert CachedKernel.from_function(function, 1, [0]).address == address


def test_from_function_keeps_the_function_alive():
    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(lambda *_: None)
    watch = weakref.ref(callback)
    kernel = CachedKernel.from_function(callback, 1, [0])
    del callback
    gc.collect()
    assert watch() is kernel.program.owner


@pytest.mark.parametrize("function", [0, -5, "name", object(), True])
def test_from_function_refuses_what_has_no_address(function):
    with pytest.raises(PlanBuildError, match="address"):
        CachedKernel.from_function(function, 1, [0])


def test_broken_source_names_the_kernel_and_quotes_llvm():
    with pytest.raises(CompileError, match=r"(?s)'bad'.*expected") as caught:
        CachedKernel.from_source("bad", "define void @bad(ptr %a) { ret i32 }", 1, [0])
    assert "ret i32" in str(caught.value)


def test_equal_asts_are_one_kernel():
    cache = KernelCache()
    assert cache.get(ast_of(3.0)) is cache.get(ast_of(3.0))
    assert cache.get(ast_of(3.0)) is not cache.get(ast_of(4.0))
    assert cache.compiled == len(cache) == 2
    assert ast_of(3.0) in cache
    assert ast_of(5.0) not in cache


def test_devices_have_kernels_of_their_own(counting):
    cache = KernelCache()
    assert cache.get(ast_of(3.0)) is not cache.get(ast_of(3.0), "COUNTING")


def test_an_unknown_device_raises():
    with pytest.raises(DeviceError, match="NOWHERE"):
        KernelCache().get(ast_of(3.0), "NOWHERE")


def test_missing_kernels_are_compiled_in_one_go(counting):
    cache = KernelCache()
    cache.get(ast_of(0.0), "COUNTING")
    asts = [ast_of(float(i % 5)) for i in range(10)]
    found = cache.get_many(asts, "COUNTING")
    assert counting.batches == [1, 4]
    assert [k.ast for k in found] == asts


def test_concurrent_requests_compile_once(counting):
    cache = KernelCache()
    counting.delay = 0.2
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(cache.get(ast_of(7.0), "COUNTING")))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(counting.batches) == 1
    assert len(found) == 8
    assert len(set(map(id, found))) == 1


def test_a_failed_compile_fails_all_its_waiters_and_is_not_remembered(counting):
    cache = KernelCache()
    counting.delay = 0.2
    counting.broken = {ast_of(8.0)}
    errors = []

    def ask():
        try:
            cache.get(ast_of(8.0), "COUNTING")
        except CompileError as error:
            errors.append(error)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(errors) == 4
    assert ast_of(8.0) not in cache
    counting.broken = set()
    assert cache.get(ast_of(8.0), "COUNTING").ast is ast_of(8.0)


def test_one_broken_kernel_does_not_fail_those_compiled_with_it(counting):
    cache = KernelCache()
    counting.broken = {ast_of(2.5)}
    with pytest.raises(CompileError):
        cache.get_many([ast_of(1.5), ast_of(2.5), ast_of(3.5)], "COUNTING")
    assert ast_of(1.5) in cache
    assert ast_of(3.5) in cache
    assert ast_of(2.5) not in cache


def test_an_index_error_of_the_renderer_is_no_end(monkeypatch):
    broken = [ast_of(factor) for factor in (91.0, 92.0)]
    render = LLVMRenderer.render

    def fails(self, ast, variant=None):
        if ast in broken:
            raise IndexError(f"kernel {broken.index(ast)} of the broken ones")
        return render(self, ast, variant)

    monkeypatch.setattr(LLVMRenderer, "render", fails)
    asts = [ast_of(90.0), *broken, ast_of(93.0)]
    with pytest.raises(IndexError, match="kernel 0 of"):
        KernelCache().get_many(asts)
    with pytest.raises(IndexError, match="kernel 0 of"):
        kernel_cache.build([(ast, None) for ast in asts])


def test_an_interrupted_compile_is_taken_over_by_a_waiter(counting):
    cache = KernelCache()
    started = threading.Event()
    compile_ = counting.compile

    def interrupted(programs):
        counting.compile = compile_
        started.set()
        time.sleep(0.2)
        raise KeyboardInterrupt

    counting.compile = interrupted
    caught, found = [], []

    def first():
        try:
            cache.get(ast_of(9.0), "COUNTING")
        except KeyboardInterrupt as error:
            caught.append(error)

    thread = threading.Thread(target=first)
    thread.start()
    started.wait()
    found.append(cache.get(ast_of(9.0), "COUNTING"))
    thread.join()
    assert len(caught) == len(found) == 1


def test_code_that_interrupts_a_compile_may_want_the_same_kernel(counting):
    """As a handler of a signal does, or a finalizer; others still wait for the thread's own."""
    cache = KernelCache()
    compile_ = counting.compile
    inside, outside, others = [], [], []
    other = threading.Thread(
        target=lambda: others.append(cache.get(ast_of(9.5), "COUNTING")), daemon=True
    )

    def interrupted(programs):
        counting.compile = compile_
        inside.append(cache.get(ast_of(9.5), "COUNTING"))
        other.start()
        return compile_(programs)

    counting.compile = interrupted
    thread = threading.Thread(
        target=lambda: outside.append(cache.get(ast_of(9.5), "COUNTING")), daemon=True
    )
    thread.start()
    thread.join(60)
    assert not thread.is_alive(), "a thread waits for itself"
    other.join(60)
    assert [k.ast for k in (*inside, *outside, *others)] == [ast_of(9.5)] * 3


def test_an_interrupt_before_the_compile_leaves_nothing_that_others_wait_for(counting, monkeypatch):
    cache = KernelCache()
    monkeypatch.setattr(cache, "_compile", _interrupt)
    with pytest.raises(KeyboardInterrupt):
        cache.get(ast_of(10.5), "COUNTING")
    monkeypatch.undo()
    found = []
    thread = threading.Thread(
        target=lambda: found.append(cache.get(ast_of(10.5), "COUNTING")), daemon=True
    )
    thread.start()
    thread.join(60)
    assert len(found) == 1


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_clear_forgets_kernels_but_plans_keep_theirs(counting):
    cache = KernelCache()
    kernel = cache.get(ast_of(2.0), "COUNTING")
    cache.clear()
    assert len(cache) == 0
    assert cache.get(ast_of(2.0), "COUNTING") is not kernel
    assert kernel.address > 0


def plan_of(kernel: CachedKernel):
    builder = ExecutionPlanBuilder()
    source, target = Buffer(16, dt.float32), Buffer(16, dt.float32)
    source.copyin(np.ones(16, np.float32))
    builder.add_kernel(kernel, [builder.add_buffer(target), builder.add_buffer(source)])
    builder.set_output_buffer(0)
    return builder.build()


def test_collect_frees_kernels_that_no_live_plan_uses():
    cache = KernelCache()
    used = plan_of(cache.get(ast_of(2.0)))
    gone = weakref.ref(cache.get(ast_of(3.0)))
    library = weakref.ref(cache.get(ast_of(3.0)).program.library)
    assert cache.collect() == 1
    assert gone() is None
    assert library() is None
    assert ast_of(2.0) in cache
    used.execute()
    np.testing.assert_array_equal(used.output_buffer.numpy(), 2.0)
    del used
    assert cache.collect() == 1


def test_a_kernel_in_use_is_found_again_after_it_was_pushed_out():
    cache = KernelCache(limit=2)
    first = cache.get(ast_of(1.0))
    for factor in (2.0, 3.0, 4.0):
        cache.get(ast_of(factor))
    assert len(cache) == 2
    assert cache.get(ast_of(1.0)) is first


def test_the_process_has_one_cache():
    assert kernels.get(ast_of(2.0)) is kernels.get(ast_of(2.0))


def rss() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4096


@pytest.mark.exhaustive
def test_code_memory_is_freed_over_many_distinct_compiles():
    source = "define void @k(ptr %bufs, ptr %vals) {{\n store i64 {}, ptr %bufs\n ret void\n}}"

    def compile_some(first: int, count: int) -> None:
        for i in range(first, first + count):
            CachedKernel.from_source("k", source.format(i), 1, [0])

    compile_some(0, 200)
    grown = []
    # What leaks does so in every round; other memory of the process comes and goes.
    for start in range(200, 6200, 2000):
        before = rss()
        compile_some(start, 2000)
        grown.append(rss() - before)
        if grown[-1] < 4 << 20:
            return
    raise AssertionError(f"each 2,000 compiles took {grown} bytes")


@pytest.mark.parametrize("function", [0, -1, 2**64, 2**70, 1.5, "name", None])
def test_a_function_without_an_address_is_refused(function):
    with pytest.raises(PlanBuildError, match="no address"):
        CachedKernel.from_function(function, 1, [0])


@pytest.mark.parametrize("source", [5, b"define", ["define"]])
def test_a_source_is_text(source):
    with pytest.raises(CompileError, match="src"):
        CachedKernel.from_source("twice", source, 1, [0])


@pytest.mark.parametrize("name", ["", 5, b"twice", None])
def test_a_name_is_text(name):
    with pytest.raises(CompileError, match="name"):
        CachedKernel.from_source(name, "define", 1, [0])


@pytest.mark.parametrize(("buf_count", "outs"), [(1.0, [0]), ("1", [0]), (1, [0.0]), (1, ["0"])])
def test_slots_are_integers(buf_count, outs):
    with pytest.raises(DTypeError, match="expected an integer"):
        CachedKernel.from_function(4096, buf_count, outs)


def test_a_kernel_shows_its_loops():
    kernel = KernelCache().get(ast_of(2.0))
    assert kernel.loops().splitlines()[-1].strip() == "p0[i] = p1[i] * 2.0"
    assert kernel.loops().startswith("for i in 16")


def test_code_that_was_given_has_no_loops_to_show():
    with pytest.raises(CompileError, match="given as code"):
        plan_kernels.add(16).loops()


def test_calls_of_routines_have_no_loops_to_show():
    plan = krt.jit(lambda x: x.sort()[0]).plan(krt.ones(3000))
    calls = [kernel for kernel in plan.kernels if is_call(kernel.ast)]
    assert calls
    for kernel in calls:
        with pytest.raises(CompileError, match="calls a routine or a user function; only"):
            kernel.loops()
