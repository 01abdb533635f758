"""Random graphs: schedules agree with direct evaluation, whatever was fused."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.graphs import (
    Memory,
    add,
    alu,
    base,
    bound,
    cat,
    check,
    contiguous,
    expand,
    flip,
    gather,
    iota,
    mul,
    pad,
    permute,
    reduce,
    reshape,
    scalar,
    scatter,
    shrink,
    sub,
    unwindows,
    windows,
)  # fmt: skip

from kernelrt.ir import Op, UOp
from kernelrt.schedule.fuse import decide, fusion
from kernelrt.schedule.fuse.fusion_cost import Prices, elements
from kernelrt.schedule.rewrite import array_layouts

if TYPE_CHECKING:
    from kernelrt.device.spec import DeviceSpec

MOST = 400


class Grower:
    """Builds a random graph, each node from earlier ones."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.memory = Memory(draw(st.integers(0, 1000)))
        self.nodes: list[UOp] = []
        for _ in range(draw(st.integers(1, 3))):
            shape = draw(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=3))
            self.nodes.append(self.memory.random(*shape))
        self.state = list(self.nodes)

    def pick(self) -> UOp:
        return self.draw(st.sampled_from(self.nodes))

    def grow(self) -> None:
        rules = [
            self.unary, self.binary, self.binary, self.reduction, self.reduction, self.movement,
            self.movement, self.outer, self.normalize, self.cat, self.gather, self.scatter,
            self.windows, self.masked, self.contiguous,
        ]  # fmt: skip
        new = self.draw(st.sampled_from(rules))()
        if elements(new.shape) <= MOST and len(new.shape) <= 5:
            self.nodes.append(new)

    def unary(self) -> UOp:
        op = self.draw(st.sampled_from([Op.NEG, Op.ABS, Op.TANH, Op.SIN, Op.FLOOR]))
        return alu(op, self.pick())

    def binary(self) -> UOp:
        x, y = self.pick(), self.pick()
        op = self.draw(st.sampled_from([Op.ADD, Op.SUB, Op.MUL, Op.MAX, Op.MIN]))
        if elements(x.shape) == elements(y.shape):
            return alu(op, x, reshape(y, x.shape))
        number = self.draw(st.sampled_from([0.0, 1.0, 0.5, -1.0]))
        return alu(op, x, number)

    def axes(self, x: UOp, least: int = 0) -> tuple[int, ...]:
        every = list(range(len(x.shape)))
        if not every:
            return ()
        return tuple(sorted(self.draw(st.sets(st.sampled_from(every), min_size=least))))

    def reduction(self) -> UOp:
        x = self.pick()
        axes = self.axes(x)
        op = self.draw(st.sampled_from([Op.ADD, Op.ADD, Op.MAX, Op.MIN]))
        if op is not Op.ADD and any(x.shape[a] == 0 for a in axes):
            op = Op.ADD
        keep = self.draw(st.booleans())
        out = reduce(x, op, *axes, keep=keep)
        if keep and self.draw(st.booleans()):
            return sub(x, out)
        return out

    def normalize(self) -> UOp:
        x = alu(Op.TANH, self.pick())
        axes = self.axes(x)
        return alu(Op.DIV, x, add(reduce(mul(x, x), Op.ADD, *axes, keep=True), 1.0))

    def outer(self) -> UOp:
        """A sum over products of operands that vary along different axes."""
        x, y = self.pick(), self.pick()
        n = elements(x.shape)
        k = self.draw(st.sampled_from([d for d in (1, 2, 3, 4) if n % d == 0]))
        left = reshape(x, (n // k, 1, k))
        m = elements(y.shape)
        if m % k:
            right = reshape(reduce(reshape(y, (m, 1)), Op.ADD, 0), (1, 1, 1))
        else:
            right = permute(reshape(y, (k, m // k, 1)), 2, 1, 0)
        product = mul(left, right)
        return reduce(product, Op.ADD, 2) if elements(product.shape) <= 4 * MOST else x

    def movement(self) -> UOp:
        x = self.pick()
        kind = self.draw(st.sampled_from(["permute", "shrink", "pad", "flip", "reshape", "grow"]))
        rank = len(x.shape)
        if kind == "permute":
            return permute(x, *self.draw(st.permutations(range(rank))))
        if kind == "shrink":
            bounds = []
            for d in x.shape:
                low = self.draw(st.integers(0, d))
                bounds.append((low, self.draw(st.integers(low, d))))
            return shrink(x, *bounds)
        if kind == "pad":
            widths = [self.draw(st.tuples(*[st.integers(0, 2)] * 2)) for _ in range(rank)]
            return pad(x, *widths)
        if kind == "flip":
            return flip(x, *self.axes(x))
        if kind == "grow":
            return expand(x, (self.draw(st.integers(1, 3)), *x.shape))
        size = elements(x.shape)
        if size == 0:
            return x
        a = self.draw(st.sampled_from([d for d in range(1, size + 1) if size % d == 0]))
        return reshape(x, (a, size // a))

    def cat(self) -> UOp:
        x = self.pick()
        if not x.shape:
            return x
        axis = self.draw(st.integers(0, len(x.shape) - 1))
        low = self.draw(st.integers(0, x.shape[axis]))
        part = shrink(x, *((low, d) if k == axis else (0, d) for k, d in enumerate(x.shape)))
        other = alu(Op.COS, x) if self.draw(st.booleans()) else x
        return cat(axis, part, other, part) if self.draw(st.booleans()) else cat(axis, other, part)

    def gather(self) -> UOp:
        x = self.pick()
        if len(x.shape) != 2 or 0 in x.shape:
            return x
        n, m = x.shape
        picks = self.memory.indices(n, 3)
        rows = bound(picks, n) if self.draw(st.booleans()) else picks
        return gather(x, reshape(rows, (3, 1)), reshape(iota(m), (1, m)))

    def scatter(self) -> UOp:
        x = self.pick()
        if len(x.shape) != 2 or 0 in x.shape:
            return x
        n, m = x.shape
        rows = bound(self.memory.indices(5, n), 5)
        onto = self.draw(st.sampled_from(["zero", "value"]))
        target = expand(scalar(0.0), (5, m))
        if onto == "value":
            target = expand(reduce(x, Op.MAX, 0, keep=True), (5, m))
        how = self.draw(st.sampled_from([Op.ADD, Op.MUL, Op.MAX, Op.MIN]))
        return scatter(how, target, x, reshape(rows, (n, 1)), reshape(iota(m), (1, m)))

    def windows(self) -> UOp:
        x = self.pick()
        if not x.shape or x.shape[-1] < 3:
            return x
        args = (len(x.shape) - 1, self.draw(st.integers(1, 2)), self.draw(st.integers(1, 2)),
                self.draw(st.integers(1, 2)))  # fmt: skip
        y = windows(x, args)
        if self.draw(st.booleans()):
            return y
        return reduce(unwindows(alu(Op.SIN, y), x.shape, args), Op.ADD, len(x.shape))

    def masked(self) -> UOp:
        x = self.pick()
        if not x.shape:
            return x
        size = x.shape[-1]
        here = alu(Op.LT, iota(size), self.draw(st.integers(0, 4)))
        return alu(Op.WHERE, expand(here, x.shape), x, 0.25)

    def contiguous(self) -> UOp:
        return contiguous(self.pick())


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Memory, list[UOp], list[tuple[UOp, UOp]]]:
    grower = Grower(draw)
    for _ in range(draw(st.integers(1, 16))):
        grower.grow()
    outputs = draw(st.lists(st.sampled_from(grower.nodes), min_size=1, max_size=4))
    outputs.append(grower.nodes[-1])
    commits = []
    for target in draw(st.lists(st.sampled_from(grower.state), unique=True, max_size=3)):
        size = elements(target.shape)
        fitting = [n for n in grower.nodes if elements(n.shape) == size]
        value = draw(st.sampled_from(fitting))
        commits.append((base(target), reshape(value, (size,))))
    return grower.memory, outputs, commits


COUNT = int(os.environ.get("KERNELRT_TEST_GRAPHS", "150"))
SETTINGS = {"deadline": None, "suppress_health_check": list(HealthCheck)}
Case = tuple[Memory, list[UOp], list[tuple[UOp, UOp]]]


@given(graphs())
@settings(max_examples=COUNT, **SETTINGS)
@pytest.mark.cases(1 / 4)
def test_random_graphs(case: Case) -> None:
    memory, outputs, commits = case
    with np.errstate(all="ignore"):
        check(memory, outputs, commits, tolerance=1e-3)


@given(graphs(), st.sampled_from([1.0, 1e3, 1e9]), st.sampled_from([0.0, 1.0, 1e9]))
@settings(max_examples=COUNT, **SETTINGS)
@pytest.mark.cases(1 / 4)
def test_random_graphs_under_other_costs(case: Case, reuse: float, launch: float) -> None:
    """With the constants elsewhere: what is rare becomes common, small values included."""
    memory, outputs, commits = case

    class OtherPrices(Prices):
        def __init__(self, device: DeviceSpec) -> None:
            super().__init__(device)
            self.launch = self.row_byte = launch
            self.shared_bytes = 1

    with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
        patch.setattr(array_layouts, "_SMALL", 1)
        patch.setattr(array_layouts, "_SHORT", 2)
        patch.setattr(array_layouts, "_VECTOR", 1000)
        patch.setattr(decide, "_REUSE", 1 / reuse)
        patch.setattr(decide, "SHORT_LOOP", 1)
        patch.setattr(fusion, "Prices", OtherPrices)
        for module in (decide, fusion):
            patch.setattr(module, "MOST_WRITTEN", 32)
        check(memory, outputs, commits, tolerance=1e-3)
