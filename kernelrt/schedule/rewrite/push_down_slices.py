"""Slice push-down: computes only the part of a value that is read.

A SHRINK is moved toward the leaves of the graph, through nodes that have no other consumer. Then
the buffer holds only the part that is read, not the whole value. For example, the input gradient of
a padded convolution is not computed for the padding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt.ir import Dim, Op, UOp, const, toposort
from kernelrt.ir.constants import full
from kernelrt.ir.ops import ALU, MOVEMENT
from kernelrt.ir.shape import difference, is_static, same, total
from kernelrt.schedule.fuse.index_maps import groups_of_axes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

__all__ = ["push_slices_down"]

#: The bounds that are kept of each axis: the whole axis, or static bounds of a static axis.
Box = tuple[tuple[Dim, Dim], ...]
#: Maximum number of nodes that a SHRINK is moved through.
_DEPTH = 64


def push_slices_down(roots: Sequence[UOp]) -> list[UOp]:
    """Move every SHRINK with static bounds toward the leaves, as far as this saves work."""
    nodes = list(toposort(roots))
    if not any(n.op is Op.SHRINK for n in nodes):
        return list(roots)
    consumers: dict[UOp, int] = dict.fromkeys(roots, 1)
    for node in reversed(nodes):
        # Each consumer of a movement op counts as one of its operand: a value that is read in two
        # views has two consumers, even if the views share their lower movement ops.
        ways = consumers[node] if node.op in MOVEMENT else 1
        for s in node.src:
            consumers[s] = consumers.get(s, 0) + ways
    cropper = _Cropper({n for n, count in consumers.items() if count == 1}.difference(roots))
    done: dict[UOp, UOp] = {}
    for node in nodes:
        src = tuple(done[s] for s in node.src)
        new = node if src == node.src else node.replace(src=src)
        if src != node.src and node in cropper.single:
            cropper.single.add(new)
        if new.op is Op.SHRINK and _may_crop(new.src[0], new.arg):
            new = cropper.crop(new.src[0], new.arg, 0)
        done[node] = new
    return [done[r] for r in roots]


def _may_crop(x: UOp, box: Box) -> bool:
    return all(
        _whole(pair, d) or is_static((*pair, d)) for pair, d in zip(box, x.shape, strict=True)
    )


def _whole(pair: tuple[Dim, Dim], size: Dim) -> bool:
    return pair[0] == 0 and same(pair[1], size)


def _sizes(box: Box) -> tuple[Dim, ...]:
    return tuple(difference(hi, lo) for lo, hi in box)


def _all_of(shape: Iterable[Dim]) -> list[tuple[Dim, Dim]]:
    return [(0, d) for d in shape]


class _Cropper:
    """Moves SHRINKs toward the leaves.

    Parameters
    ----------
    single : set of UOp
        Nodes with one consumer. Of other nodes, all elements may be needed.
    """

    def __init__(self, single: Collection[UOp]) -> None:
        self.single = set(single)
        self._known: dict[tuple[UOp, Box], UOp] = {}

    def crop(self, x: UOp, box: Box, depth: int) -> UOp:
        """Return the part `box` of `x`."""
        if all(_whole(pair, d) for pair, d in zip(box, x.shape, strict=True)):
            return x
        known = self._known.get((x, box))
        if known is None:
            known = self._known[x, box] = self._crop(x, box, depth)
        return known

    def _crop(self, x: UOp, box: Box, depth: int) -> UOp:
        found: UOp | None = None
        shape = _sizes(box)
        if depth < _DEPTH and 0 not in shape and _may_crop(x, box):
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
                (0, d) if a in x.arg[1] else next(outer) for a, d in enumerate(source.shape)
            )
            return x.replace(src=(self.crop(source, inner, depth),))
        if x.op is Op.GATHER:
            return x.replace(src=(x.src[0], *(self.crop(s, box, depth) for s in x.src[1:])))
        if x.op is Op.CAT:
            return self._joined(x, box, depth)
        return None

    def _joined(self, x: UOp, box: Box, depth: int) -> UOp | None:
        axis = x.arg
        low, high = box[axis]
        if _whole(box[axis], x.shape[axis]):
            parts = [
                self.crop(s, (*box[:axis], (0, s.shape[axis]), *box[axis + 1 :]), depth)
                for s in x.src
            ]
            return x.replace(src=tuple(parts))
        parts = []
        start = 0
        for s in x.src:
            size = s.shape[axis]
            if not isinstance(size, int) or not isinstance(low, int) or not isinstance(high, int):
                return None
            lo, hi = max(low - start, 0), min(high - start, size)
            if lo < hi:
                parts.append(self.crop(s, (*box[:axis], (lo, hi), *box[axis + 1 :]), depth))
            start += size
        return parts[0] if len(parts) == 1 else x.replace(src=tuple(parts))

    def _movement(self, x: UOp, box: Box, shape: tuple[Dim, ...], depth: int) -> UOp | None:
        source = x.src[0]
        inner: Box | None = None
        if x.op is Op.EXPAND:
            inner = tuple((0, 1) if d == 1 else b for b, d in zip(box, source.shape, strict=True))
            return x.replace(src=(self.crop(source, inner, depth),), arg=shape)
        if x.op is Op.PERMUTE:
            turned: list[tuple[Dim, Dim]] = [(0, 0)] * len(box)
            for axis, pair in zip(x.arg, box, strict=True):
                turned[axis] = pair
            return x.replace(src=(self.crop(source, tuple(turned), depth),))
        if x.op is Op.FLIP:
            inner = tuple(
                (difference(d, hi), difference(d, lo)) if axis in x.arg else (lo, hi)
                for axis, ((lo, hi), d) in enumerate(zip(box, x.shape, strict=True))
            )
            return x.replace(src=(self.crop(source, inner, depth),))
        if x.op is Op.SHRINK:
            inner = tuple(
                (total((a, lo)), total((a, hi)))
                for (a, _), (lo, hi) in zip(x.arg, box, strict=True)
            )
            return self.crop(source, inner, depth)
        if x.op is Op.PAD:
            return self._padded(x, box, shape, depth)
        if x.op is Op.RESHAPE:
            return self._reshaped(x, box, shape, depth)
        if x.op is Op.IM2COL:
            return self._windowed(x, box, depth)
        return None

    def _padded(self, x: UOp, box: Box, shape: tuple[Dim, ...], depth: int) -> UOp | None:
        inner: list[tuple[Dim, Dim]] = []
        widths: list[tuple[Dim, Dim]] = []
        for pair, padding, size, d in zip(box, x.arg, x.src[0].shape, x.shape, strict=True):
            if _whole(pair, d):
                inner.append((0, size))
                widths.append(padding)
                continue
            (lo, hi), before = pair, padding[0]
            if not (isinstance(lo, int) and isinstance(hi, int) and isinstance(size, int)
                    and isinstance(before, int)):  # fmt: skip
                return None
            start, stop = max(lo - before, 0), min(hi - before, size)
            if start >= stop:
                return full(const(0, x.dtype), shape)
            inner.append((start, stop))
            widths.append((max(before - lo, 0), max(hi - before - size, 0)))
        source = self.crop(x.src[0], tuple(inner), depth)
        if all(lo == 0 and hi == 0 for lo, hi in widths):
            return source
        return x.replace(src=(source,), arg=tuple(widths))

    def _reshaped(self, x: UOp, box: Box, shape: tuple[Dim, ...], depth: int) -> UOp | None:
        """Move a SHRINK below the RESHAPE `x`, if it shrinks only axes that the RESHAPE keeps."""
        old = x.src[0].shape
        inner = _all_of(old)
        for mine, theirs in groups_of_axes(x.shape, old):
            if len(mine) == 1 and len(theirs) == 1:
                inner[theirs[0]] = box[mine[0]]
            elif not all(_whole(box[a], x.shape[a]) for a in mine):
                return None
        return x.replace(src=(self.crop(x.src[0], tuple(inner), depth),), arg=shape)

    def _windowed(self, x: UOp, box: Box, depth: int) -> UOp | None:
        rank = len(x.src[0].shape)
        inner = list(box[:rank])
        windows = []
        for (axis, taps, stride, dilation), (first, last) in zip(x.arg, box[rank:], strict=True):
            lo, hi = box[axis]
            if isinstance(first, int) and isinstance(last, int) and is_static((lo, hi)):
                start = total((lo * stride, first * dilation))
                inner[axis] = (start, (hi - 1) * stride + (last - 1) * dilation + 1)
                windows.append((axis, last - first, stride, dilation))
            elif _whole((lo, hi), x.shape[axis]) and _whole((first, last), taps):
                inner[axis] = (0, x.src[0].shape[axis])
                windows.append((axis, taps, stride, dilation))
            else:
                return None
        return x.replace(src=(self.crop(x.src[0], tuple(inner), depth),), arg=tuple(windows))
