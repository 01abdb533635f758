"""Random plans, and an interpreter that computes their expected results.

A case is plain data: storages, the buffers in them, operations, and uses of the finished plan (such
as a run, or a new array for a storage). `check` runs a case as a real plan and in the interpreter,
and compares every byte that a user can see. The interpreter executes the operations one by one on
NumPy arrays. `shrink` leaves out operations and uses as long as a case still fails.
"""

from __future__ import annotations

import functools
import random
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from support import plan_kernels

from kernelrt import dtype as dt
from kernelrt.device.buffer import Buffer
from kernelrt.errors import CustomFunctionError, IndexBoundsError, PlanReleasedError, VariableError
from kernelrt.ir import UOp, Variable
from kernelrt.runtime import CachedKernel, ExecutionPlan, ExecutionPlanBuilder

COUNTS = (4, 8, 16)
N = Variable("n", 1, 4)
K = Variable("k", -3, 3)
#: Claimed cost that makes the pool run operations on other threads.
HEAVY = 1 << 26
GATHER_SIZE = 4


@dataclass(frozen=True)
class Place:
    """A buffer: `count` elements from `start` of a storage."""

    storage: int
    start: int
    count: int
    way: str  # "whole", "view" (of the whole) or "slice" (wrapped by itself)


@dataclass(frozen=True)
class Step:
    """An operation: its kind, its buffers (the destination first), and a number."""

    kind: str
    places: tuple[int, ...]
    number: int = 0
    after: tuple[int, ...] = ()


@dataclass(frozen=True)
class Case:
    """A plan and its uses."""

    storages: tuple[tuple[int, str], ...]  # elements; "kept", "scratch" or "own"
    places: tuple[Place, ...]
    ops: tuple[Step, ...]
    uses: tuple[tuple[Any, ...], ...]
    heavy: bool = False


class InjectedError(Exception):
    """The error that custom functions raise on request."""


@functools.cache
def kernel(kind: str, count: int, number: int, heavy: bool) -> CachedKernel:
    options: dict[str, Any] = {"flops": HEAVY} if heavy else {}
    make = functools.partial(plan_kernels.kernel, count=count, **options)
    if kind == "fill":
        return make(f"fill{number}", f"%r = add i64 %i, {number}", 0)
    if kind == "scale":
        return make(f"scale{number}", f"%r = mul i64 %x1, {number}", 1)
    if kind == "add":
        return make("add", "%r = add i64 %x1, %x2", 2)
    if kind == "add_k":
        return make("add_k", "%r = add i64 %x1, %k", 1, variables=[K])
    if kind in ("square_n", "split_n"):
        options["count"] = N
        return plan_kernels.kernel(
            kind, "%r = mul i64 %x1, %x1", 1, variables=[N], split=kind == "split_n", **options
        )
    return plan_kernels.gather(count, GATHER_SIZE)


# ---- Making cases


def generate(seed: int) -> Case:
    """Draw a case."""
    rng = random.Random(seed)  # noqa: S311 - no secrets here
    given = rng.randint(1, 3)
    storages = [(rng.choice((24, 40, 64)), rng.choice(("kept", "kept", "scratch")))
                for _ in range(given)]  # fmt: skip
    storages += [(rng.choice(COUNTS), "own") for _ in range(rng.choice((0, 0, 2, 5)))]
    places: list[Place] = []
    for s, (size, kind) in enumerate(storages):
        places.append(Place(s, 0, size, "whole"))
        way = "view" if kind == "own" or rng.random() < 0.6 else "slice"
        for _ in range(rng.randint(0, 5)):
            count = rng.choice([c for c in COUNTS if c <= size])
            places.append(Place(s, rng.randint(0, size - count), count, way))
    ops: list[Step] = []
    ready = {p for p in range(len(places)) if storages[places[p].storage][1] != "own"}
    for _ in range(rng.randint(2, rng.choice((6, 20, 60)))):
        op = _operation(rng, places, storages, ready)
        if op is not None:
            if ops and rng.random() < 0.1:
                op = replace(op, after=(rng.randrange(len(ops)),))
            ops.append(op)
    if len(storages) == given and rng.random() < 0.3:
        ops = _reordered(rng, ops)
    uses = [_use(rng, storages, ops) for _ in range(rng.randint(1, 6))]
    return Case(tuple(storages), tuple(places), tuple(ops), tuple(uses), rng.random() < 0.15)


def _operation(
    rng: random.Random,
    places: list[Place],
    storages: list[tuple[int, str]],
    ready: set[int],
) -> Step | None:
    fresh = [p for p in range(len(places)) if p not in ready]
    if fresh and rng.random() < 0.3:
        # The first write to a plan's own storage must cover it.
        first = next(p for p in fresh if places[p].way == "whole")
        ready |= {p for p in fresh if places[p].storage == places[first].storage}
        return Step("fill", (first,), rng.randint(0, 9))
    kind = rng.choice(
        ("fill", "scale", "add", "add", "add_k", "square_n", "split_n", "gather", "copy", "copy_n",
         "custom", "reverse", "custom_k")
    )  # fmt: skip
    count = rng.choice(COUNTS)
    inputs = {"fill": 0, "add": 2, "gather": 2}.get(kind, 1)
    fitting = [p for p in ready if places[p].count >= count and _usable(places[p], count)]
    if not fitting:
        return None
    chosen = tuple(rng.choice(fitting) for _ in range(inputs + 1))
    number = rng.randint(-3, 7)
    if kind in ("square_n", "split_n", "copy_n"):
        count = N.vmax
    if kind == "split_n" and _partly_same(chosen, places, count):
        return None  # chunks run in any order
    return Step(f"{kind}:{count}", chosen, number)


def _reordered(rng: random.Random, ops: list[Step]) -> list[Step]:
    """Make some operations wait for later ones, without making a cycle."""
    for _ in range(3):
        i, j = sorted(rng.sample(range(len(ops)), 2)) if len(ops) > 1 else (0, 0)
        reached, stack = set(), [j]
        while stack:
            here = stack.pop()
            if here not in reached:
                reached.add(here)
                stack += ops[here].after
        if i not in reached:
            ops[i] = replace(ops[i], after=(*ops[i].after, j))
    return ops


def _usable(place: Place, count: int) -> bool:
    return place.way != "whole" or place.count >= count


def _partly_same(chosen: tuple[int, ...], places: list[Place], count: int) -> bool:
    out, *rest = (places[p] for p in chosen)
    return any(
        p.storage == out.storage and p.start != out.start and abs(p.start - out.start) < count
        for p in rest
    )


def _use(rng: random.Random, storages: list[tuple[int, str]], ops: list[Step]) -> tuple[Any, ...]:
    kind = rng.choice(
        ("run", "run", "vars", "vars", "profile", "bad", "fail", "poke", "rebind", "replicate")
    )
    if kind == "vars":
        return kind, {v: rng.randint(*b) for v, b in (("n", N.bounds), ("k", K.bounds))
                      if rng.random() < 0.7}  # fmt: skip
    if kind == "bad":
        return kind, rng.choice(({"n": 0}, {"n": 5}, {"zz": 1}, {"core_id": 0}, {"n": 2, "k": 9}))
    if kind == "fail":
        return kind, rng.randrange(max(1, len(ops)))
    if kind in ("poke", "rebind"):
        return kind, rng.randrange(len(storages)), rng.randint(0, 1000)
    return (kind,)


# ---- The interpreter


@dataclass
class Model:
    """The expected contents of a plan's memory: one array per storage."""

    case: Case
    arrays: list[np.ndarray]
    values: dict[str, int] = field(default_factory=lambda: {"n": N.vmax, "k": K.vmax})
    armed: int = -1
    ran: bool = False  # the plan's own outputs hold nothing before

    def of(self, place: int) -> np.ndarray:
        p = self.case.places[place]
        return self.arrays[p.storage][p.start : p.start + p.count]

    def order(self) -> list[int]:
        """Return the operations in the listed order, except where dependencies need another one."""
        left = list(range(len(self.case.ops)))
        done: list[int] = []
        while left:
            i = next(i for i in left if all(d in done for d in self.case.ops[i].after))
            left.remove(i)
            done.append(i)
        return done

    def run(self) -> bool:
        """Run all operations; return whether none failed. A failure leaves storages unchanged."""
        before = [a.copy() for a in self.arrays]
        if all(self.apply(i, self.case.ops[i]) for i in self.order()):
            return True
        for array, old, (_, kind) in zip(self.arrays, before, self.case.storages, strict=True):
            if kind == "kept":
                array[:] = old
        return False

    def apply(self, index: int, op: Step) -> bool:
        kind, count = op.kind.split(":") if ":" in op.kind else (op.kind, "0")
        size = int(count) or self.case.places[op.places[0]].count
        out, *ins = (self.of(p) for p in op.places)
        if kind in ("square_n", "split_n", "copy_n"):
            size = self.values["n"]
        if kind in ("copy", "copy_n"):
            out[:size] = ins[0][:size].copy()
            return True
        if kind in ("custom", "reverse", "custom_k"):
            if index == self.armed:
                return False
            custom(kind, size, out, ins[0], self.values["k"])
            return True
        good = True
        for i in range(size):  # element after element, as the kernels do where buffers overlap
            if kind == "gather":
                j = int(ins[1][i])
                inside = 0 <= j < GATHER_SIZE
                good &= inside
                out[i] = ins[0][j] if inside else 0
            else:
                out[i] = self.element(kind, op.number, i, ins)
        return good

    def element(self, kind: str, number: int, i: int, ins: list[np.ndarray]) -> np.int64:
        with np.errstate(over="ignore"):
            if kind == "fill":
                return np.int64(i + number)
            if kind == "scale":
                return ins[0][i] * np.int64(number)
            if kind == "add":
                return ins[0][i] + ins[1][i]
            if kind == "add_k":
                return ins[0][i] + np.int64(self.values["k"])
            return ins[0][i] * ins[0][i]


def custom(kind: str, size: int, out: np.ndarray, x: np.ndarray, k: int) -> None:
    """Run a custom function of a case."""
    if kind == "reverse":
        out[:size] = x[:size][::-1].copy()
    elif kind == "custom_k":
        out[:size] = x[:size] % 4 + k
    else:
        out[:size] = x[:size] & 3


# ---- The real plan


@dataclass
class Real:
    """The plan of a case, with a switch that makes one of its custom functions raise."""

    plan: ExecutionPlan
    index: list[int]  # of each place
    switch: list[int]


def build(case: Case, arrays: list[np.ndarray], reuse_memory: bool) -> Real:
    builder = ExecutionPlanBuilder()
    whole: dict[int, int] = {}
    index: list[int] = []
    for place in case.places:
        size, kind = case.storages[place.storage]
        scratch = kind == "scratch"
        if place.way == "view":
            index.append(builder.add_view(whole[place.storage], place.start * 8, place.count))
        elif place.way == "slice":
            part = arrays[place.storage][place.start : place.start + place.count]
            index.append(builder.add_buffer(Buffer.wrap(part), scratch=scratch))
        elif kind == "own":
            index.append(builder.add_intermediate(size, dt.int64))
            whole[place.storage] = index[-1]
        else:
            wrapped = Buffer.wrap(arrays[place.storage])
            index.append(builder.add_buffer(wrapped, scratch=scratch))
            whole[place.storage] = index[-1]
    switch = [-1]
    views = sum(place.way == "view" for place in case.places)
    for number, op in enumerate(case.ops):
        found = _add(builder, case, number, op, index, views, switch)
        assert found == views + number
    written = {case.places[op.places[0]].storage for op in case.ops}
    outputs = [index[p] for p, place in enumerate(case.places)
               if place.way == "whole" and case.storages[place.storage][1] == "own"
               and place.storage in written and place.storage % 2]  # fmt: skip
    builder.set_output_buffers(outputs)
    return Real(builder.build(reuse_memory=reuse_memory), index, switch)


def _add(
    builder: ExecutionPlanBuilder,
    case: Case,
    number: int,
    op: Step,
    index: list[int],
    first_id: int,
    switch: list[int],
) -> int:
    kind, count = op.kind.split(":") if ":" in op.kind else (op.kind, "0")
    size = int(count) or case.places[op.places[0]].count
    buffers = [index[p] for p in op.places]
    after = [first_id + i for i in op.after]
    if kind in ("copy", "copy_n"):
        nbytes: UOp | int = N * 8 if kind == "copy_n" else size * 8
        return builder.add_copy(buffers[0], buffers[1], nbytes, dependencies=after)
    if kind in ("custom", "reverse", "custom_k"):

        def function(out: np.ndarray, x: np.ndarray, k: int = 0) -> None:
            if switch[0] == number:
                out[: size // 2] = -77  # half-written, as real failures are
                raise InjectedError
            custom(kind, size, out, x, k)

        variables = [K] if kind == "custom_k" else []
        return builder.add_custom(function, buffers, [0], variables=variables, dependencies=after)
    what = kernel(kind, size, op.number, case.heavy and kind != "gather")
    return builder.add_kernel(what, buffers, dependencies=after)


# ---- Comparing


def check(case: Case, seed: int, reuse_memory: bool) -> None:
    """Run `case` on both sides; raise AssertionError if they differ."""
    rng = np.random.default_rng(seed)
    arrays = [rng.integers(-4, 12, size) for size, _ in case.storages]
    model = Model(case, [a.copy() for a in arrays])
    real = build(case, arrays, reuse_memory)
    pairs = [(real, model)]
    for number, use in enumerate(case.uses):
        real, model = pairs[number % len(pairs)]
        _carry_out(use, real, model, rng, pairs)
        for each_real, each_model in pairs:
            _compare(each_real, each_model, str(use))
    for real, _ in pairs:
        real.plan.release_all_buffers()
        try:
            real.plan.execute()
        except PlanReleasedError:
            continue
        raise AssertionError("a plan ran after release_all_buffers(); expected PlanReleasedError")


def _carry_out(
    use: tuple[Any, ...],
    real: Real,
    model: Model,
    rng: np.random.Generator,
    pairs: list[tuple[Real, Model]],
) -> None:
    kind = use[0]
    if kind in ("run", "profile", "vars", "fail"):
        if kind == "vars":
            model.values |= {n: v for n, v in use[1].items() if n in real.plan.variables}
        model.armed = real.switch[0] = use[1] if kind == "fail" else -1
        _execute(kind, use, real, model)
    elif kind == "bad":
        try:
            real.plan.execute_with_vars(use[1])
        except VariableError:
            return
        raise AssertionError(f"the plan accepted the values {use[1]}; expected VariableError")
    elif kind in ("poke", "rebind"):
        _exchange(use, real, model, rng)
    elif kind == "replicate":
        case = model.case
        written = {case.places[op.places[0]].storage for op in case.ops}
        arrays = [a.copy() if s in written or _sliced(case, s) else a
                  for s, a in enumerate(model.arrays)]  # fmt: skip
        twin = Real(real.plan.replicate(), real.index, real.switch)
        pairs.append((twin, Model(case, arrays, dict(model.values), ran=model.ran)))


def _execute(kind: str, use: tuple[Any, ...], real: Real, model: Model) -> None:
    plan = real.plan
    known = {n: v for n, v in use[1].items() if n in plan.variables} if kind == "vars" else {}
    expected = model.run()
    model.ran = True
    caught: Exception | None = None
    try:
        if kind == "profile":
            plan.execute_profiled()
        elif kind == "vars":
            plan.execute_with_vars(known)
        else:
            plan.execute()
    except (CustomFunctionError, IndexBoundsError) as error:
        caught = error
    assert expected == (caught is None), f"expected success: {expected}; raised: {caught!r}"
    if caught is not None:
        # Memory that is neither kept nor an output may hold anything now.
        _adopt(real, model)


def _adopt(real: Real, model: Model) -> None:
    for p, place in enumerate(model.case.places):
        if model.case.storages[place.storage][1] != "kept" and place.way == "whole":
            model.arrays[place.storage][:] = real.plan.buffers[real.index[p]].numpy()


def _sliced(case: Case, storage: int) -> bool:
    return any(p.storage == storage and p.way == "slice" for p in case.places)


def _exchange(use: tuple[Any, ...], real: Real, model: Model, rng: np.random.Generator) -> None:
    """Write to a storage from outside, or replace its array."""
    kind, storage, start = use
    case = model.case
    if case.storages[storage][1] == "own" or _sliced(case, storage):
        return
    place = next(i for i, p in enumerate(case.places) if p.storage == storage and p.way == "whole")
    size = case.storages[storage][0]
    fresh = (np.arange(size) * 7 + start) % 12
    if kind == "poke":
        real.plan.buffers[real.index[place]].numpy()[:] = fresh
        model.arrays[storage][:] = fresh
    else:
        real.plan.rebind(real.index[place], Buffer.wrap(fresh.copy()))
        model.arrays[storage] = fresh


def _compare(real: Real, model: Model, use: str) -> None:
    assert real.plan.values == {n: model.values[n] for n in real.plan.variables}
    for p, place in enumerate(model.case.places):
        kind = model.case.storages[place.storage][1]
        if kind == "own" and not (model.ran and real.index[p] in real.plan.output_indices):
            continue
        found = real.plan.buffers[real.index[p]].numpy()
        expected = model.of(p)
        assert np.array_equal(found, expected), (
            f"after {use}: place {p} ({place}) holds {found.tolist()}, expected {expected.tolist()}"
        )


# ---- Shrinking


def failure(case: Case, seed: int, reuse_memory: bool) -> str | None:
    """Return the failure of `case`, or None."""
    try:
        check(case, seed, reuse_memory)
    except Exception as error:  # noqa: BLE001 - any difference counts
        return f"{type(error).__name__}: {error}"
    return None


def shrink(case: Case, seed: int, reuse_memory: bool) -> Case:
    """Return a smaller case that still fails, made by leaving out operations and uses."""
    smaller = True
    while smaller:
        smaller = False
        for candidate in _smaller(case):
            if failure(candidate, seed, reuse_memory) is not None:
                case, smaller = candidate, True
                break
    return case


def _smaller(case: Case) -> list[Case]:
    out = [replace(case, uses=case.uses[:i] + case.uses[i + 1 :]) for i in range(len(case.uses))]
    for i in reversed(range(len(case.ops))):
        rest = [
            replace(op, after=tuple(d - (d > i) for d in op.after if d != i))
            for j, op in enumerate(case.ops)
            if j != i
        ]
        out.append(replace(case, ops=tuple(rest)))
    return out
