"""Optimizer steps outside of jit: plans that are cached for each set of gradients."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from kernelrt.device.buffer import Buffer
from kernelrt.native.eager_plan import CHANGED
from kernelrt.native.evaluate import LruTable, LruValue
from kernelrt.native.graph_key import structural_key
from kernelrt.native.write_barrier import WrittenMemory
from kernelrt.tensor import Tensor, Trace, state
from kernelrt.tensor.eager import execute
from kernelrt.tensor.eager.realize import MOST_PASSES, before_writes

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from kernelrt.ir import UOp
    from kernelrt.native.evaluate import Entry

    #: (index of the parameter, parameter, gradient) for each parameter that has a gradient.
    Active = list[tuple[int, Tensor, Tensor]]

__all__ = ["Steps"]

#: Maximum number of plans an optimizer caches: one for each set of parameters that have gradients.
MOST_STEPS: Final = 8


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Step(LruValue):
    """A plan that updates parameters and state in place.

    Attributes
    ----------
    entry : Entry
        The plan.
    buffers : tuple
        BUFFER nodes that the plan reads; an int is the index of a gradient.
    targets : tuple of (Tensor, Buffer)
        Tensors that the plan assigns to, and their buffers when the plan was made.
    written : WrittenMemory
        Memory of these tensors.
    """

    entry: Entry
    buffers: tuple[UOp | int, ...]
    targets: tuple[tuple[Tensor, Buffer], ...]
    written: WrittenMemory

    def fits(self) -> bool:
        """Whether all targets still have the buffers that the plan was made for."""
        return all(tensor._memory is buffer for tensor, buffer in self.targets)


class Steps:
    """Cached plans of one optimizer.

    Parameters
    ----------
    update : callable
        Assigns new values to parameters and state, given a list of (index, parameter, gradient).
    """

    def __init__(self, update: Callable[[Active], None]) -> None:
        self._update = update
        self._steps: LruTable[_Step] = LruTable(MOST_STEPS)

    def run(self, active: Active, numbers: Hashable) -> None:
        """Update the parameters in `active`.

        Parameters
        ----------
        active : list of (int, Tensor, Tensor)
            (index, parameter, gradient) of each parameter to update.
        numbers : hashable
            Python values that the update depends on.
        """
        if state.local.nonfinite:  # debug_nans checks each operation, a cached plan does not
            self._update(active)
            return
        key = numbers, tuple([(i, id(param)) for i, param, _ in active])
        with state.lock:
            step = self._steps.get(key)
            if step is None or not step.fits():
                step = self._made(active)
                self._steps.put(key, step)
            gradients = [grad for _, _, grad in active]
            for left in reversed(range(MOST_PASSES)):
                births = state.births[0]
                if state.pending or len(state.watched):
                    births = before_writes([b for _, b in step.targets], gradients)
                nodes: list[Any] = [
                    gradients[b]._storage() if isinstance(b, int) else b for b in step.buffers
                ]
                before = state.changing
                try:
                    state.changing = step.written if before is None else before
                    # First compute the lazy tensors that interrupting code (a signal handler) has
                    # made since.
                    born = (state.births, births) if left else None
                    outcome = step.entry.run(nodes, [], [], [], born)
                finally:
                    state.changing = before
                if outcome != CHANGED:
                    break
        if outcome:  # a written buffer shares memory with one that is read
            self._update(active)

    def _made(self, active: Active) -> _Step:
        places = [
            grad._over(Buffer(math.prod(shape), grad.dtype), shape)
            for grad, shape in [(g, cast("tuple[int, ...]", g.shape)) for _, _, g in active]
        ]
        with Trace() as trace, state.no_grad():
            self._update(
                [(i, p, place) for (i, p, _), place in zip(active, places, strict=True)]
            )
            commits = trace.commits()
            assigned = trace.assigned
        targets = [t for t in assigned if t._memory is not None]
        found = structural_key([u for pair in commits for u in pair])
        assert found is not None
        buffers = found[1]
        entry = execute.make_entry((), commits, buffers)
        where = {id(place._memory): i for i, place in enumerate(places)}
        return _Step(
            entry,
            tuple(where.get(id(b.arg), b) for b in buffers),
            tuple((cast("Tensor", t), t._memory) for t in targets),
            WrittenMemory(storage.arg for storage, _ in commits),
        )
