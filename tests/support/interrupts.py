"""Sends Ctrl-C before any chosen bytecode, at the points where the interpreter handles signals.

A tracer in machine code counts the bytecodes and sends the signal, so that no Python code of the
tracer is interrupted instead of the tested code.
"""

from __future__ import annotations

import ctypes
import functools
import signal
from typing import TYPE_CHECKING

import llvmlite.binding as llvm

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["count_steps", "heed_ctrl_c", "interrupted_at"]

_TEXT = """
target triple = "{triple}"
@count = global i64 0
@target = global i64 0
@name = private constant [16 x i8] c"f_trace_opcodes\\00"
declare i32 @PyObject_SetAttrString(ptr, ptr, ptr)
declare void @PyErr_SetInterrupt()

define i32 @trace(ptr %obj, ptr %frame, i32 %what, ptr %arg) {{
  switch i32 %what, label %done [i32 0, label %call
                                 i32 7, label %opcode]
call:
  %set = call i32 @PyObject_SetAttrString(ptr %frame, ptr @name, ptr %obj)
  ret i32 %set
opcode:
  %before = load i64, ptr @count
  %now = add i64 %before, 1
  store i64 %now, ptr @count
  %goal = load i64, ptr @target
  %here = icmp eq i64 %now, %goal
  br i1 %here, label %send, label %done
send:
  call void @PyErr_SetInterrupt()
  ret i32 0
done:
  ret i32 0
}}
"""


class _Tracer:
    def __init__(self) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        for name in ("PyObject_SetAttrString", "PyErr_SetInterrupt"):
            function = getattr(ctypes.pythonapi, name)
            llvm.add_symbol(name, ctypes.cast(function, ctypes.c_void_p).value)
        module = llvm.parse_assembly(_TEXT.format(triple=llvm.get_process_triple()))
        target = llvm.Target.from_default_triple().create_target_machine()
        self.engine = llvm.create_mcjit_compiler(module, target)
        self.engine.finalize_object()
        address = self.engine.get_function_address
        self.function = address("trace")
        self.count = ctypes.c_int64.from_address(self.engine.get_global_value_address("count"))
        self.target = ctypes.c_int64.from_address(self.engine.get_global_value_address("target"))
        self.set = ctypes.pythonapi.PyEval_SetTrace
        self.set.argtypes = [ctypes.c_void_p, ctypes.py_object]
        self.set.restype = None


@functools.cache
def _tracer() -> _Tracer:
    return _Tracer()


def heed_ctrl_c() -> None:
    """Let a child process end by Ctrl-C; use it as `preexec_fn`.

    Background processes of a shell ignore Ctrl-C, and their children inherit that.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def interrupted_at(step: int, function: Callable[[], object]) -> KeyboardInterrupt | None:
    """Call `function` with an interrupt before its bytecode number `step`; return the exception.

    The returned exception keeps the frames that it passed through alive.
    """
    tracer = _tracer()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        tracer.count.value, tracer.target.value = 0, step
        try:
            tracer.set(tracer.function, True)
            function()
        finally:
            tracer.set(None, None)
    except KeyboardInterrupt as error:
        return error
    finally:
        signal.signal(signal.SIGINT, before)
    return None


def count_steps(
    function: Callable[..., object], prepare: Callable[[], tuple[object, ...]] = tuple
) -> int:
    """Return the number of bytecodes of a call of `function` with arguments from `prepare`.

    In CPython 3.12, the first tracer of a process sees no bytecode, and in 3.13, a tracer does not
    see the first call of a function. So `function` is called twice under the tracer, and the
    bytecodes of the second call are counted.

    Raises
    ------
    AssertionError
        The tracer counts nothing, so that a loop over the steps would test nothing.
    """
    for _ in range(2):
        interrupted_at(-1, functools.partial(function, *prepare()))
    steps = _tracer().count.value
    assert steps, f"the tracer counts no bytecode of {function}"
    return steps
