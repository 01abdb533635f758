"""Computing only the part of a value that is looked at.

A SHRINK is moved towards the leaves through everything that has no other consumer, so that what
gets a buffer is the part and not the whole: the input gradient of a padded convolution is not
computed for the padding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt.ir import Dim, Op, UOp, const, toposort
from kernelrt.ir.ops import ALU, MOVEMENT
from kernelrt.ir.shape import as_dim, as_uop, is_static
from kernelrt.schedule.indexing import groups_of_axes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

__all__ = ["crop_graph"]

#: The part of each axis that is kept.
Box = tuple[tuple[int, int], ...]
#: How many nodes below a SHRINK it is moved through at most.
_DEPTH = 64


def crop_graph(roots: Sequence[UOp]) -> list[UOp]:
    """Equal graphs with every SHRINK of known bounds as near to the leaves as it pays."""
    nodes = list(toposort(roots))
    if not any(n.op is Op.SHRINK for n in nodes):
        return list(roots)
    consumers: dict[UOp, int] = dict.fromkeys(roots, 2)
    for node in nodes:
        for s in node.src:
            consumers[s] = consumers.get(s, 0) + 1
    cropper = _Cropper({n for n, count in consumers.items() if count == 1})
    done: dict[UOp, UOp] = {}
    for node in nodes:
        src = tuple(done[s] for s in node.src)
        new = node if src == node.src else node.replace(src=src)
        if src != node.src and node in cropper.single:
            cropper.single.add(new)
        if new.op is Op.SHRINK and is_static(new.src[0].shape):
            new = cropper.crop(new.src[0], _box(new.arg), 0) if _is_static(new.arg) else new
        done[node] = new
    return [done[r] for r in roots]


def _is_static(bounds: Iterable[tuple[Dim, Dim]]) -> bool:
    return all(isinstance(n, int) for pair in bounds for n in pair)


def _box(bounds: Iterable[tuple[Dim, Dim]]) -> Box:
    return tuple((int(as_uop(lo).arg), int(as_uop(hi).arg)) for lo, hi in bounds)


class _Cropper:
    """Moves SHRINKs.

    Parameters
    ----------
    single : set of UOp
        Nodes with one consumer; others may be wanted whole.
    """

    def __init__(self, single: Collection[UOp]) -> None:
        self.single = set(single)
        self._known: dict[tuple[UOp, Box], UOp] = {}

    def crop(self, x: UOp, box: Box, depth: int) -> UOp:
        """The part `box` of `x`, which has known dimensions."""
        if all(pair == (0, d) for pair, d in zip(box, x.shape, strict=True)):
            return x
        known = self._known.get((x, box))
        if known is None:
            known = self._known[x, box] = self._crop(x, box, depth)
        return known

    def _crop(self, x: UOp, box: Box, depth: int) -> UOp:
        found: UOp | None = None
        shape = tuple(hi - lo for lo, hi in box)
        if depth < _DEPTH and is_static(x.shape) and 0 not in shape:
            if x.op in MOVEMENT:
                found = self._movement(x, box, shape, depth + 1)
            elif x in self.single:
                found = self._computed(x, box, depth + 1)
        return UOp(Op.SHRINK, x.dtype, (x,), box) if found is None else found

    def _computed(self, x: UOp, box: Box, depth: int) -> UOp | None:
        if x.op in ALU:
            return x.replace(src=tuple(self.crop(s, box, depth) for s in x.src))
        if x.op is Op.REDUCE_AXIS:
            source = x.src[0]
            outer = iter(box)
            inner = tuple(
                (0, int(as_uop(d).arg)) if a in x.arg[1] else next(outer)
                for a, d in enumerate(source.shape)
            )
            return x.replace(src=(self.crop(source, inner, depth),))
        if x.op is Op.GATHER:
            return x.replace(src=(x.src[0], *(self.crop(s, box, depth) for s in x.src[1:])))
        if x.op is Op.CAT:
            return self._joined(x, box, depth)
        return None

    def _joined(self, x: UOp, box: Box, depth: int) -> UOp:
        axis = x.arg
        low, high = box[axis]
        parts: list[UOp] = []
        start = 0
        for s in x.src:
            size = int(as_uop(s.shape[axis]).arg)
            lo, hi = max(low - start, 0), min(high - start, size)
            if lo < hi:
                parts.append(self.crop(s, (*box[:axis], (lo, hi), *box[axis + 1 :]), depth))
            start += size
        return parts[0] if len(parts) == 1 else x.replace(src=tuple(parts))

    def _movement(self, x: UOp, box: Box, shape: tuple[int, ...], depth: int) -> UOp | None:
        source = x.src[0]
        if not is_static(source.shape):
            return None
        if x.op is Op.EXPAND:
            inner = tuple((0, 1) if d == 1 else b for b, d in zip(box, source.shape, strict=True))
            return x.replace(src=(self.crop(source, inner, depth),), arg=shape)
        if x.op is Op.PERMUTE:
            turned = [(0, 0)] * len(box)
            for axis, pair in zip(x.arg, box, strict=True):
                turned[axis] = pair
            return x.replace(src=(self.crop(source, tuple(turned), depth),))
        if x.op is Op.FLIP:
            inner = tuple(
                (int(as_uop(d).arg) - hi, int(as_uop(d).arg) - lo) if axis in x.arg else (lo, hi)
                for axis, ((lo, hi), d) in enumerate(zip(box, x.shape, strict=True))
            )
            return x.replace(src=(self.crop(source, inner, depth),))
        if x.op is Op.SHRINK and _is_static(x.arg):
            inner = tuple(
                (a + lo, a + hi) for (a, _), (lo, hi) in zip(_box(x.arg), box, strict=True)
            )
            return self.crop(source, inner, depth)
        if x.op is Op.PAD and _is_static(x.arg):
            return self._padded(x, box, shape, depth)
        if x.op is Op.RESHAPE:
            return self._reshaped(x, box, shape, depth)
        if x.op is Op.WINDOW:
            return self._windowed(x, box, depth)
        return None

    def _padded(self, x: UOp, box: Box, shape: tuple[int, ...], depth: int) -> UOp:
        inner: list[tuple[int, int]] = []
        widths: list[tuple[int, int]] = []
        for (lo, hi), (before, _), d in zip(box, _box(x.arg), x.src[0].shape, strict=True):
            size = int(as_uop(d).arg)
            start, stop = max(lo - before, 0), min(hi - before, size)
            if start >= stop:
                zero = UOp(Op.RESHAPE, x.dtype, (const(0, x.dtype),), (1,) * len(shape))
                return UOp(Op.EXPAND, x.dtype, (zero,), shape)
            inner.append((start, stop))
            widths.append((max(before - lo, 0), max(hi - before - size, 0)))
        source = self.crop(x.src[0], tuple(inner), depth)
        return source if not any(map(any, widths)) else x.replace(src=(source,), arg=tuple(widths))

    def _reshaped(self, x: UOp, box: Box, shape: tuple[int, ...], depth: int) -> UOp | None:
        """Axes that the reshape leaves alone may be cropped below it."""
        old = x.src[0].shape
        inner = [(0, int(as_uop(d).arg)) for d in old]
        for mine, theirs in groups_of_axes(x.shape, old):
            if len(mine) == 1 and len(theirs) == 1:
                inner[theirs[0]] = box[mine[0]]
            elif any(box[a] != (0, as_dim(x.shape[a])) for a in mine):
                return None
        return x.replace(src=(self.crop(x.src[0], tuple(inner), depth),), arg=shape)

    def _windowed(self, x: UOp, box: Box, depth: int) -> UOp:
        rank = len(x.src[0].shape)
        inner = list(box[:rank])
        windows = []
        for (axis, _, stride, dilation), (first, last) in zip(x.arg, box[rank:], strict=True):
            lo, hi = box[axis]
            start = lo * stride + first * dilation
            stop = (hi - 1) * stride + (last - 1) * dilation + 1
            inner[axis] = (start, stop)
            windows.append((axis, last - first, stride, dilation))
        return x.replace(src=(self.crop(x.src[0], tuple(inner), depth),), arg=tuple(windows))
