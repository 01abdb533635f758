"""Where graphs become plans and plans run; eager code that repeats itself finds its plan again."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kernelrt.device.buffer import Buffer
from kernelrt.errors import PlanBuildError
from kernelrt.ir import Op, UOp, substitute, toposort
from kernelrt.tensor import state

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kernelrt.runtime import ExecutionPlan

__all__ = ["PlanCache", "compute", "plans", "prepare"]


def prepare(
    values: Sequence[UOp],
    commits: Sequence[tuple[UOp, UOp]] = (),
    stored: Mapping[int, UOp] | None = None,
) -> ExecutionPlan:
    """Make a plan that computes `values` and then writes each commit's value to its storage.

    Parameters
    ----------
    values : sequence of UOp
        The outputs, stripped of marks.
    commits : sequence of (UOp, UOp)
        BUFFER nodes and flat values.
    stored : mapping of int to UOp, optional
        Outputs, by position, that are the storage of a commit rather than memory of their own.
    """
    from kernelrt import runtime
    from kernelrt.schedule import schedule

    if not stored:
        return runtime.prepare(schedule(values, commits))
    made = schedule([v for i, v in enumerate(values) if i not in stored], commits)
    rest = iter(made.outputs)
    outputs = tuple(stored[i] if i in stored else next(rest) for i in range(len(values)))
    return runtime.prepare(replace(made, outputs=outputs))


def compute(values: Sequence[UOp], commits: Sequence[tuple[UOp, UOp]] = ()) -> list[Buffer]:
    """Give buffers of their own with `values`, once the commits are carried out."""
    with state.lock:
        plan = plans.find(values, commits)
        plan.execute()
        return [_copy(plan.output_buffers[i]) for i in range(len(values))]


def _copy(source: Buffer) -> Buffer:
    out = Buffer(source.size, source.dtype)
    out.raw()[...] = source.raw()
    return out


@dataclass(frozen=True)
class _Place:
    """Stands for the buffer that comes `position`-th in a graph; the `arg` of its BUFFER."""

    position: int
    size: int


@dataclass(slots=True)
class _Entry:
    """A plan, and the index in it of each buffer that its graph reads or writes."""

    plan: ExecutionPlan
    indices: list[int | None]
    bound: list[Buffer]
    nbytes: int


class PlanCache:
    """Plans by the structure of their graphs, so that a loop is scheduled and compiled once.

    Two graphs have one structure if they are equal up to which buffers they read. The least
    recently used plans go first; a plan keeps its memory and the buffers it ran with last.

    Parameters
    ----------
    most_plans : int
        How many plans to keep.
    most_bytes : int
        How much memory they may keep in all.
    """

    def __init__(self, most_plans: int = 256, most_bytes: int = 256 << 20) -> None:
        self.most_plans = most_plans
        self.most_bytes = most_bytes
        self.hits = 0
        self.misses = 0
        self._entries: OrderedDict[object, _Entry] = OrderedDict()
        self._nbytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def clear(self) -> None:
        """Forget all plans."""
        self._entries.clear()
        self._nbytes = 0

    def find(self, values: Sequence[UOp], commits: Sequence[tuple[UOp, UOp]]) -> ExecutionPlan:
        """Give a plan for the graph, bound to its buffers; the caller holds ``state.lock``."""
        nodes = [*values, *(u for pair in commits for u in pair)]
        buffers = [n for n in toposort(nodes) if n.op is Op.BUFFER]
        places = {
            b: b.replace(arg=_Place(i, b.arg.size)) for i, b in enumerate(buffers)
        }
        key = (len(values), *substitute(nodes, places))
        entry = self._entries.get(key)
        if entry is not None and _bind(entry, buffers):
            self._entries.move_to_end(key)
            self.hits += 1
            return entry.plan
        self.misses += 1
        plan = prepare(values, commits)
        self._keep(key, plan, buffers)
        return plan

    def _keep(self, key: object, plan: ExecutionPlan, buffers: list[UOp]) -> None:
        old = self._entries.pop(key, None)
        if old is not None:
            self._nbytes -= old.nbytes
        nbytes = sum(b.nbytes for b in plan.buffers)
        if nbytes > self.most_bytes // 4:
            return
        indices = plan.ast_to_buffer_map
        bound = [b.arg for b in buffers]
        self._entries[key] = _Entry(plan, [indices.get(b) for b in buffers], bound, nbytes)
        self._nbytes += nbytes
        while len(self._entries) > self.most_plans or self._nbytes > self.most_bytes:
            _, oldest = self._entries.popitem(last=False)
            self._nbytes -= oldest.nbytes


def _bind(entry: _Entry, buffers: list[UOp]) -> bool:
    """Let the plan work on these buffers; False where that would change its order."""
    for i, node in enumerate(buffers):
        index, buffer = entry.indices[i], node.arg
        if index is None or entry.bound[i] is buffer:
            continue
        try:
            entry.plan.rebind(index, buffer)
        except PlanBuildError:
            return False
        entry.bound[i] = buffer
    return True


#: The plans of eager code.
plans = PlanCache()
