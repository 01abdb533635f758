"""Handwritten plans with loops and branches, for tests."""

from __future__ import annotations

import functools

import numpy as np
from support.plan_kernels import add, scale

from kernelrt import dtype as dt
from kernelrt.device.buffer import Buffer
from kernelrt.runtime import CachedKernel, ExecutionPlanBuilder

WIDTH = 4


class Body:
    """A builder of a plan whose buffers are ports of WIDTH int64."""

    def __init__(self, ports: int, size: int = WIDTH) -> None:
        self.builder = ExecutionPlanBuilder()
        self.ports = [self.builder.add_port(size, dt.int64) for _ in range(ports)]

    def add(self, out: int, a: int, b: int) -> None:
        self.builder.add_kernel(add(WIDTH), [out, a, b])

    def scale(self, out: int, source: int, factor: int) -> None:
        self.builder.add_kernel(scale(factor, WIDTH), [out, source])


class Outer:
    """A builder of a plan over arrays."""

    def __init__(self) -> None:
        self.builder = ExecutionPlanBuilder()

    def given(self, array: np.ndarray) -> int:
        return self.builder.add_buffer(Buffer.wrap(array))

    def numbers(self, *values: int) -> int:
        return self.given(np.array(values, np.int64))


def running_sum():
    """Return a loop body that computes carry += x and y = carry, with ports (carry, x, y)."""
    body = Body(3)
    carry, x, y = body.ports
    body.add(carry, carry, x)
    body.builder.add_copy(y, carry)
    return body.builder.build()


def sums(turns: int, **options: object):
    """Return a plan of running sums over the rows of `xs`, and its arrays: start, xs, ys."""
    rng = np.random.default_rng(turns)
    start = rng.integers(-9, 9, WIDTH)
    xs = rng.integers(-9, 9, (max(turns, 1), WIDTH))
    ys = np.full_like(xs, -7)
    outer = Outer()
    places = [outer.given(a) for a in (start, xs, ys)]
    carry = outer.builder.add_intermediate(WIDTH, dt.int64)
    row = WIDTH * 8
    outer.builder.add_region(
        [running_sum()],
        [carry, places[1], places[2], places[0]],
        [(0, 0, 0), (0, 1, 1, row), (0, 2, 2, row)],
        [0, 2],
        count=turns,
        copies=((0, 3, row),),
        **options,
    )
    outer.builder.set_output_buffer(carry)
    return outer.builder.build(), start, xs, ys


@functools.cache
def below(limit: int) -> CachedKernel:
    """out (a bool) = x1[0] < limit"""
    text = f"""
define void @below(ptr %bufs, ptr %vals) {{
  %b1 = getelementptr ptr, ptr %bufs, i64 1
  %out = load ptr, ptr %bufs
  %x = load ptr, ptr %b1
  %v = load i64, ptr %x
  %c = icmp slt i64 %v, {limit}
  %r = zext i1 %c to i8
  store i8 %r, ptr %out
  ret void
}}"""
    return CachedKernel.from_source("below", text, 2, [0])


def doubling(limit: int, most: int):
    """Return a plan that doubles a number while it is below `limit`."""
    body = Body(1)
    go = body.builder.add_port(1, dt.bool_)
    body.scale(0, 0, 2)
    body.builder.add_kernel(below(limit), [go, 0])
    outer = Outer()
    state = np.ones(WIDTH, np.int64)
    x = outer.given(state)
    holds = outer.builder.add_intermediate(1, dt.bool_)
    outer.builder.add_kernel(below(limit), [holds, x])
    outer.builder.add_region(
        [body.builder.build()], [x, holds], [(0, 0, 0), (0, go, 1)], [0, 1],
        count=most, condition_slot=1,
    )  # fmt: skip
    return outer.builder.build(), state


def chooser(bodies: int):
    """Return a plan that multiplies by 2, 3, 4 and so on, chosen by `which`."""
    made = []
    for i in range(bodies):
        body = Body(1)
        body.scale(0, 0, i + 2)
        made.append(body.builder.build())
    outer = Outer()
    which, state = np.zeros(1, np.int64), np.ones(WIDTH, np.int64)
    outer.builder.add_region(
        made, [outer.given(state), outer.given(which)], [(i, 0, 0) for i in range(bodies)], [0],
        choice_slot=1,
    )  # fmt: skip
    return outer.builder.build(), which, state
