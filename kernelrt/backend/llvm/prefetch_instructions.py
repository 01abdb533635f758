"""Emits prefetch instructions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt.device.spec import LINE
from kernelrt.ir.ops import Op
from kernelrt.loops.passes.prefetch_streams import AHEAD
from kernelrt.loops.tiles import lanes_of, vector_range

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.backend.llvm.addresses import Array
    from kernelrt.backend.llvm.emitter import Emitter
    from kernelrt.backend.llvm.llvm_types import Value
    from kernelrt.ir.uop import UOp
    from kernelrt.loops.tiles import Point

__all__ = ["Prefetches"]

#: LLVM's locality hints: the first-level cache, for data needed soon, or a farther cache.
_NEAR, _FAR = 3, 2


class Prefetches:
    """Emits the prefetches of the kernel of `emitter`."""

    def __init__(self, emitter: Emitter) -> None:
        self.text = emitter.text
        self.memory = emitter.memory
        #: LOADs whose rows are prefetched, and the loop that steps from row to row.
        self.ahead: dict[UOp, UOp] = {}

    def ask_ahead(self, u: UOp, array: Array, address: str, point: Point) -> None:
        """If `u` is in :attr:`ahead`, prefetch the lines that it reads some iterations later."""
        if u not in self.ahead:
            return
        along = vector_range(point)
        step = self.memory.stride(u.src[1], self.ahead[u])
        assert along is not None
        assert step is not None
        offset, lanes = point[along]
        size = u.dtype.itemsize
        for first in range(-offset * size % LINE, lanes * size, LINE):
            self._prefetch(array, address, AHEAD * step + first // size, to=_FAR)

    def fetch(self, u: UOp, points: Sequence[Point], *, later: bool) -> None:
        """Prefetch the lines that the LOAD or STORE `u` accesses at `points`, each line once.

        Lines that are needed `later` go to the second-level cache.
        """
        lines: dict[str, tuple[Value | None, dict[int, None]]] = {}
        array = self.memory.array(u.src[0], points[0])
        for point in points:
            along = vector_range(point)
            if along is not None and self.memory.stride(u.src[1], along) != 1:
                return
            total, constant = self.memory.index(u.src[1], point)
            _, found = lines.setdefault("" if total is None else total.text, (total, {}))
            end = (constant + lanes_of(point)) * array.align
            found.update(dict.fromkeys(range(constant * array.align // LINE, -(-end // LINE))))
        for total, found in lines.values():
            address = array.pointer
            if total is not None:
                address = self.text.emit(
                    f"getelementptr {array.type}, ptr {address}, i64 {total.text}"
                )
            for line in found:
                first = line * LINE // array.align
                to = _FAR if later else _NEAR
                self._prefetch(array, address, first, u.op is Op.STORE, to)

    def _prefetch(
        self, array: Array, address: str, ahead: int, writes: bool = False, to: int = _NEAR
    ) -> None:
        """Prefetch the cache line of the element that is `ahead` elements after `address`.

        The address may be beyond the end of the buffer: the processor then ignores the prefetch.
        """
        if ahead:
            address = self.text.emit(f"getelementptr {array.type}, ptr {address}, i64 {ahead}")
        how = (("i32", str(number)) for number in (int(writes), to, 1))
        self.text.void_call("llvm.prefetch.p0", ("ptr", address), *how)
