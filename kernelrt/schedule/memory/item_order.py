"""Orders the items of a schedule topologically."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from kernelrt.errors import SpecError
from kernelrt.schedule.types import Intermediate

if TYPE_CHECKING:
    from kernelrt.ir import UOp
    from kernelrt.schedule.kernels.unscheduled import UnscheduledItem
    from kernelrt.schedule.memory.commits import Graph

__all__ = ["execution_order"]


def execution_order(graph: Graph) -> list[UnscheduledItem]:
    """Return the drafts of `graph` in topological order.

    Several drafts may be ready. The next one is the draft after which the fewest bytes of
    intermediates are alive; of equal ones, the draft that was created first.
    """
    alive = [n for n, draft in enumerate(graph.drafts) if draft is not None]
    waiting = dict.fromkeys(alive, 0)
    for n in alive:
        for later in graph.after[n]:
            waiting[later] += 1
    readers: dict[UOp, int] = {}
    for n in alive:
        for buffer in _intermediates(graph.drafts[n], writes=False):
            readers[buffer] = readers.get(buffer, 0) + 1

    def growth(n: int) -> int:
        made = sum(int(b.arg.nbytes) for b in _intermediates(graph.drafts[n], writes=True))
        freed = sum(
            int(b.arg.nbytes)
            for b in _intermediates(graph.drafts[n], writes=False)
            if readers[b] == 1
        )
        return made - freed

    ready = [(growth(n), n) for n in alive if waiting[n] == 0]
    heapq.heapify(ready)
    out: list[UnscheduledItem] = []
    while ready:
        promised, n = heapq.heappop(ready)
        now = growth(n)
        if now < promised and ready and (now, n) > ready[0]:
            heapq.heappush(ready, (now, n))
            continue
        draft = graph.drafts[n]
        assert draft is not None
        out.append(draft)
        for buffer in _intermediates(draft, writes=False):
            readers[buffer] -= 1
        for later in sorted(graph.after[n]):
            waiting[later] -= 1
            if waiting[later] == 0:
                heapq.heappush(ready, (growth(later), later))
    if len(out) < len(alive):
        raise SpecError(
            f"{len(alive) - len(out)} of {len(alive)} items wait for each other in a cycle; "
            "this is a bug in the scheduler, please report it"
        )
    return out


def _intermediates(draft: UnscheduledItem | None, *, writes: bool) -> list[UOp]:
    if draft is None:
        return []
    buffers = draft.writes if writes else draft.reads
    return [b for b in buffers if isinstance(b.arg, Intermediate)]
