"""The verifier of hand-built plans: what is decided for them passes, and each break is found."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from kernelrt import dtype as dt
from kernelrt.device.byte_ranges import HOST, ByteRange
from kernelrt.errors import SpecError
from kernelrt.schedule.memory.arena import plan_arena
from kernelrt.schedule.memory.hazards import Access, dependencies, reached
from kernelrt.schedule.memory.verify_plan import verify_steps
from kernelrt.schedule.types import Intermediate

if TYPE_CHECKING:
    from collections.abc import Sequence

Steps = list[Access]
Deps = list[tuple[int, ...]]
Places = dict[Intermediate, int]


class Written:
    """Which bytes some step has written so far."""

    def __init__(self) -> None:
        self._bytes: dict[int, set[int]] = {}

    def add(self, regions: Sequence[ByteRange]) -> None:
        for r in regions:
            self._bytes.setdefault(id(r.storage), set()).update(range(r.start, r.stop))

    def holds(self, r: ByteRange) -> bool:
        there = self._bytes.get(id(r.storage), set())
        return r.storage is HOST or there.issuperset(range(r.start, r.stop))


def drawn(seed: int) -> tuple[Steps, Deps, Places]:
    """Random accesses, ordered and placed by those who do so for plans."""
    rng = np.random.default_rng(seed)
    owns = [Intermediate(int(rng.integers(1, 5)) * 16, dt.float32) for _ in range(6)]

    def region(own: Intermediate) -> ByteRange:
        if rng.random() < 0.3:
            start = int(rng.integers(0, 200))
            return ByteRange(HOST, start, start + int(rng.integers(1, 100)))
        half = own.nbytes // 2
        return ByteRange(own, *[(0, own.nbytes), (0, half), (half, own.nbytes)][rng.integers(0, 3)])

    count = int(rng.integers(2, 14))
    steps = [
        Access(
            [region(owns[i]) for i in rng.integers(0, 6, rng.integers(0, 3))],
            [region(owns[i]) for i in rng.integers(0, 6, rng.integers(1, 3))],
            fails=bool(k < count // 2 and rng.random() < 0.3),
        )
        for k in range(count)
    ]  # fmt: skip
    known = Written()
    for k, step in enumerate(steps):
        steps[k] = replace(step, reads=[r for r in step.reads if known.holds(r)])
        known.add(step.writes)
    last = steps[-1]
    steps[-1] = Access(last.reads, [*last.writes, ByteRange(HOST, 0, 8)], lasts=True)
    deps = list(dependencies(steps))
    used = [
        dict.fromkeys(r.storage for r in (*s.reads, *s.writes) if r.storage is not HOST)
        for s in steps
    ]
    return steps, deps, plan_arena(used, deps, (), reuse=True)[0]


def check(steps: Steps, deps: Deps, places: Places) -> None:
    verify_steps(steps, deps, places, lambda k: f"step {k}")


@pytest.mark.parametrize("seed", range(200))
def test_what_is_decided_passes_and_each_dependency_is_needed(seed: int) -> None:
    steps, deps, places = drawn(seed)
    check(steps, deps, places)
    for k, waits in enumerate(deps):
        for d in waits:
            fewer = [*deps[:k], tuple(w for w in waits if w != d), *deps[k + 1 :]]
            if d in set(reached(fewer[k], fewer)):
                continue  # forced by way of others
            with pytest.raises(SpecError, match=f"step {k} "):
                check(steps, fewer, places)


@pytest.mark.parametrize("seed", range(50))
def test_a_step_that_may_fail_behind_one_that_lasts_is_found(seed: int) -> None:
    steps, deps, places = drawn(seed)
    late = Access((), [ByteRange(HOST, 5000, 5008)], fails=True)
    with pytest.raises(SpecError, match=f"step {len(steps) - 1} writes memory that a failing"):
        check([*steps, late], [*deps, (len(steps) - 1,)], places)
    steps[0] = replace(steps[0], lasts=True, fails=False)
    steps[1] = replace(steps[1], fails=True)
    with pytest.raises(SpecError, match="step 0 writes memory that a failing run"):
        check(steps, deps, places)


def test_intermediates_that_lie_over_each_other_are_found() -> None:
    a, b = Intermediate(16, dt.float32), Intermediate(16, dt.float32)
    whole_a, whole_b, out = ByteRange(a, 0, 64), ByteRange(b, 0, 64), ByteRange(HOST, 0, 64)
    steps = [Access((), [whole_a]), Access((), [whole_b]), Access([whole_a, whole_b], [out])]
    check(steps, list(dependencies(steps)), {a: 0, b: 64})
    in_turns: Deps = [(), (0,), (0, 1)]
    with pytest.raises(SpecError, match="step 2 reads an intermediate that step 1 overwrote"):
        check(steps, in_turns, {a: 0, b: 32})
    with pytest.raises(SpecError, match="step 1 does not wait for step 0, which writes the same"):
        check(steps, [(), (), (0, 1)], {a: 0, b: 32})
    with pytest.raises(SpecError, match="it may depend on earlier steps only"):
        check(steps, [(), (1,), (0, 1)], {a: 0, b: 64})


def test_a_read_of_what_no_step_wrote_is_found() -> None:
    found = 0
    for seed in range(100):
        steps, deps, places = drawn(seed)
        inner = [r for s in steps for r in s.writes if r.storage is not HOST]
        known = Written()
        for k, step in enumerate(steps):
            for region in inner if k else ():
                if known.holds(region) or any(region.meets(w) for w in step.writes):
                    continue
                read = replace(step, reads=[*step.reads, region])
                with pytest.raises(SpecError, match=rf"step {k} .*(no step wrote|same bytes)"):
                    check([*steps[:k], read, *steps[k + 1 :]], deps, places)
                found += 1
            known.add(step.writes)
    assert found > 100


def test_the_bytes_that_no_step_wrote_are_named() -> None:
    a = Intermediate(16, dt.float32)
    steps = [
        Access((), [ByteRange(a, 0, 32)]),
        Access([ByteRange(a, 0, 64)], [ByteRange(HOST, 0, 64)]),
    ]
    with pytest.raises(SpecError, match="step 1 reads bytes 32 to 64 of an intermediate that no"):
        check(steps, [(), (0,)], {a: 0})
    check([steps[0], Access([ByteRange(a, 0, 32)], ())], [(), (0,)], {a: 0})
