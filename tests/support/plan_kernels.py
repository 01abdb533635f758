"""Kernels in LLVM IR for tests of the runtime, independent of the code generator."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from kernelrt import dtype as dt
from kernelrt.device.buffer import Buffer
from kernelrt.device.program import CORE_ID
from kernelrt.ir import UOp
from kernelrt.runtime import CachedKernel, ExecutionPlan, ExecutionPlanBuilder

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Elements that one chunk of a split kernel computes.
CHUNK = 8


def source(
    name: str,
    body: str,
    inputs: int,
    *,
    count: int | str,
    names: Sequence[str] = (),
    element: str = "i64",
    split: bool = False,
) -> str:
    """Return LLVM IR of a loop that computes `out[i]` by `body` for each i below `count`.

    `count` is a number, or the name of a variable. `body` is LLVM IR that names its result %r. It
    may use %i, the inputs %x1, %x2, ..., and variables, such as %n.
    """
    lines = [f"define void @{name}(ptr %bufs, ptr %vals) {{", "entry:"]
    for slot in range(inputs + 1):
        lines.append(f"  %b{slot} = getelementptr ptr, ptr %bufs, i64 {slot}")
        lines.append(f"  %p{slot} = load ptr, ptr %b{slot}")
    for slot, variable in enumerate([*names, *([CORE_ID] if split else [])]):
        lines.append(f"  %a{slot} = getelementptr i64, ptr %vals, i64 {slot}")
        lines.append(f"  %{variable} = load i64, ptr %a{slot}")
    total = f"%{count}" if isinstance(count, str) else str(count)
    if split:
        lines.append(f"  %lo = mul i64 %{CORE_ID}, {CHUNK}")
        lines.append(f"  %top = add i64 %lo, {CHUNK}")
        lines.append(f"  %over = icmp slt i64 {total}, %top")
        lines.append(f"  %hi = select i1 %over, i64 {total}, i64 %top")
    else:
        lines += ["  %lo = add i64 0, 0", f"  %hi = add i64 {total}, 0"]
    lines += [
        "  br label %head",
        "head:",
        "  %i = phi i64 [%lo, %entry], [%next, %body]",
        "  %more = icmp slt i64 %i, %hi",
        "  br i1 %more, label %body, label %done",
        "body:",
    ]
    for slot in range(1, inputs + 1):
        lines.append(f"  %q{slot} = getelementptr {element}, ptr %p{slot}, i64 %i")
        lines.append(f"  %x{slot} = load {element}, ptr %q{slot}")
    lines += [f"  {line}" for line in body.strip().splitlines()]
    lines += [
        f"  %q0 = getelementptr {element}, ptr %p0, i64 %i",
        f"  store {element} %r, ptr %q0",
        "  %next = add i64 %i, 1",
        "  br label %head",
        "done:",
        "  ret void",
        "}",
    ]
    return "\n".join(lines)


def kernel(
    name: str,
    body: str,
    inputs: int,
    *,
    count: int | UOp,
    variables: Sequence[UOp] = (),
    element: str = "i64",
    split: bool = False,
    **options: object,
) -> CachedKernel:
    """Compile `source`; a symbolic `count` is a Variable."""
    names = [v.arg[0] for v in variables]
    size = count.arg[0] if isinstance(count, UOp) else count
    text = source(name, body, inputs, count=size, names=names, element=element, split=split)
    chunks = (count + (CHUNK - 1)) // CHUNK
    return CachedKernel.from_source(
        name,
        text,
        inputs + 1,
        [0],
        var_names=[*names, *([CORE_ID] if split else [])],
        variables=variables,
        global_size=(chunks, 1, 1) if split else None,
        **options,
    )


@functools.cache
def fill(value: int, count: int) -> CachedKernel:
    """out[i] = value"""
    return kernel(f"fill_{value}", f"%r = add i64 0, {value}", 0, count=count)


@functools.cache
def add(count: int) -> CachedKernel:
    """out[i] = x1[i] + x2[i]"""
    return kernel("add", "%r = add i64 %x1, %x2", 2, count=count)


@functools.cache
def scale(factor: int, count: int) -> CachedKernel:
    """out[i] = factor * x1[i]"""
    return kernel(f"scale_{factor}", f"%r = mul i64 %x1, {factor}", 1, count=count)


@functools.cache
def add_n(variable: UOp, count: int) -> CachedKernel:
    """out[i] = x1[i] + n, where n is `variable`"""
    body = f"%r = add i64 %x1, %{variable.arg[0]}"
    return kernel("add_n", body, 1, count=count, variables=[variable])


@functools.cache
def square_to(variable: UOp, *, split: bool = False) -> CachedKernel:
    """out[i] = x1[i] ** 2 for i below `variable`"""
    name = "square_split" if split else "square"
    return kernel(
        name, "%r = mul i64 %x1, %x1", 1, count=variable, variables=[variable], split=split
    )


@functools.cache
def gather(count: int, size: int) -> CachedKernel:
    """out[i] = x1[x2[i]] for indices in 0..size-1; others give 0 and set the status word."""
    text = f"""
define void @gather(ptr %bufs, ptr %vals) {{
entry:
  %b1 = getelementptr ptr, ptr %bufs, i64 1
  %b2 = getelementptr ptr, ptr %bufs, i64 2
  %b3 = getelementptr ptr, ptr %bufs, i64 3
  %out = load ptr, ptr %bufs
  %x = load ptr, ptr %b1
  %ix = load ptr, ptr %b2
  %status = load ptr, ptr %b3
  br label %head
head:
  %i = phi i64 [0, %entry], [%next, %store]
  %more = icmp slt i64 %i, {count}
  br i1 %more, label %body, label %done
body:
  %q = getelementptr i64, ptr %ix, i64 %i
  %j = load i64, ptr %q
  %ok = icmp ult i64 %j, {size}
  br i1 %ok, label %good, label %bad
good:
  %p = getelementptr i64, ptr %x, i64 %j
  %v = load i64, ptr %p
  br label %store
bad:
  store i64 1, ptr %status
  br label %store
store:
  %r = phi i64 [%v, %good], [0, %bad]
  %o = getelementptr i64, ptr %out, i64 %i
  store i64 %r, ptr %o
  %next = add i64 %i, 1
  br label %head
done:
  ret void
}}"""
    return CachedKernel.from_source("gather", text, 4, [0], may_fail=True)


class Chain:
    """A builder with a few buffers of 16 int64, to write small plans in a line or two."""

    def __init__(self, *arrays: np.ndarray, size: int = 16) -> None:
        self.builder = ExecutionPlanBuilder()
        self.size = size
        self.arrays = [np.ascontiguousarray(a, dtype=np.int64) for a in arrays]
        self.indices = [self.builder.add_buffer(Buffer.wrap(a)) for a in self.arrays]

    def scratch(self) -> int:
        return self.builder.add_intermediate(self.size, dt.int64)

    def scale(self, out: int, source: int, factor: int, **options: object) -> int:
        return self.builder.add_kernel(scale(factor, self.size), [out, source], **options)

    def add(self, out: int, a: int, b: int, **options: object) -> int:
        return self.builder.add_kernel(add(self.size), [out, a, b], **options)

    def build(self, *outputs: int, **options: object) -> ExecutionPlan:
        self.builder.set_output_buffers(outputs)
        return self.builder.build(**options)
