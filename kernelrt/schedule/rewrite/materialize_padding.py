"""Materializes padding: stores the padded operand of a contraction once.

A convolution reads its image with zero padding, so it needs a padded copy. If the image is computed
element by element and has other users, only the padded copy is stored, and the other users read the
interior of the copy. So one buffer and one pass replace two. If users need different widths of
padding, all share the buffer with the largest width.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kernelrt.ir import Dim, Op, UOp, toposort
from kernelrt.ir.ops import ALU, MOVEMENT
from kernelrt.ir.origin import inherit
from kernelrt.ir.shape import is_static, total
from kernelrt.schedule.fuse.fusion_cost import (
    Prices,
    contraction_reuse,
    elements,
    product_of,
    strip,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kernelrt.device.spec import DeviceSpec

__all__ = ["materialize_padding"]


def materialize_padding(roots: Sequence[UOp], device: DeviceSpec) -> list[UOp]:
    """Store each value that a contraction reads with padding once, including the padding.

    Parameters
    ----------
    roots : sequence of UOp
        Graphs of the tensor stage.
    device : DeviceSpec
        Target of the kernels.

    Returns
    -------
    list of UOp
        Graphs with equal values.
    """
    order = list(toposort(roots))
    paddings = _paddings(order, set(roots), device)
    if not paddings:
        return list(roots)
    done: dict[UOp, UOp] = {}
    stored: dict[UOp, UOp] = {}
    for node in order:
        x = strip(node.src[0]) if node.op is Op.PAD else node
        if x is not node and x in paddings:
            done[node] = _within(stored[x], paddings[x], node.arg, node.shape)
            continue
        src = tuple(done[s] for s in node.src)
        done[node] = node if src == node.src else node.replace(src=src)
        if node in paddings:
            padding = paddings[node]
            stored[node] = _padded(done[node], padding)
            inherit(stored[node], node)
            part = _within(stored[node], padding, ((0, 0),) * len(padding.shape), padding.shape)
            done[node] = _reshaped(part, node.shape)
    return [done[root] for root in roots]


class _Padding(NamedTuple):
    """The shape that a value has when it is padded, and the zeros before and after each axis."""

    shape: tuple[Dim, ...]
    widths: tuple[tuple[int, int], ...]

    def holds(self, widths: Sequence[tuple[int, int]]) -> bool:
        """Return whether this padding is at least as wide as `widths` everywhere."""
        pairs = zip(widths, self.widths, strict=True)
        return all(lo <= low and hi <= high for (lo, hi), (low, high) in pairs)


def _padded(x: UOp, padding: _Padding) -> UOp:
    """Return the padded copy of `x` that is stored."""
    pad = UOp(Op.PAD, x.dtype, (_reshaped(x, padding.shape),), padding.widths)
    return UOp(Op.CONTIGUOUS, x.dtype, (pad,))


def _reshaped(x: UOp, shape: tuple[Dim, ...]) -> UOp:
    return x if x.shape == shape else UOp(Op.RESHAPE, x.dtype, (x,), shape)


def _within(
    x: UOp, padding: _Padding, widths: Sequence[tuple[int, int]], shape: Sequence[Dim]
) -> UOp:
    """Return the part of the padded value `x` whose padding has only the widths `widths`."""
    if tuple(shape) == x.shape:
        return x
    box = tuple(
        (low - lo, total((low - lo, size)))
        for (low, _), (lo, _), size in zip(padding.widths, widths, shape, strict=True)
    )
    return UOp(Op.SHRINK, x.dtype, (x,), box)


def _paddings(
    order: Sequence[UOp], roots: set[UOp], device: DeviceSpec
) -> dict[UOp, _Padding]:
    """Return the values to store with padding, each with the widest padding that a user reads."""
    if all(node.op is not Op.PAD for node in order):
        return {}
    users: dict[UOp, int] = {}
    for node in order:
        for s in dict.fromkeys(node.src):
            users[s] = users.get(s, 0) + 1
    found: dict[UOp, _Padding] = {}
    for pad in _stored_pads(order, device):
        x, shape = strip(pad.src[0]), pad.src[0].shape
        shared = users[x] > 1 or users[pad.src[0]] > 1
        if x.op not in ALU or x in roots or not shared:
            continue
        known = found.get(x, _Padding(shape, ((0, 0),) * len(shape)))
        if known.shape == shape:
            pairs = zip(known.widths, pad.arg, strict=True)
            widths = tuple((max(a, c), max(b, d)) for (a, b), (c, d) in pairs)
            found[x] = _Padding(shape, widths)
    for node in order:
        x = strip(node.src[0]) if node.op is Op.PAD else node
        padding = None if x is node else found.get(x)
        if padding is None:
            continue
        # A value that is also padded in another shape would need a copy anyway.
        if padding.shape != node.src[0].shape or not padding.holds(node.arg):
            del found[x]
    return found


def _stored_pads(order: Sequence[UOp], device: DeviceSpec) -> Iterator[UOp]:
    """Yield PADs that contractions read often enough to store them."""
    prices = Prices(device)
    for node in order:
        if not contraction_reuse(node):
            continue
        product = product_of(node)
        for pad in map(_below_movement, product.src):
            if pad.op is not Op.PAD or not is_static(pad.shape):
                continue
            if prices.is_stored(pad, elements(product.shape)):
                yield pad


def _below_movement(x: UOp) -> UOp:
    while x.op in MOVEMENT and x.op is not Op.PAD:
        (x,) = x.src
    return x
