"""Convolutions and transposed convolutions of tensor-stage nodes.

Both are sums of products of expanded operands, and each is the gradient of the other.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, NamedTuple

from kernelrt.ir import Dim, Op, UOp
from kernelrt.ir.shape import difference, is_static, prod, same, total, window_count
from kernelrt.tensor.autograd.rules import unwindow
from kernelrt.tensor.autograd.tags import custom
from kernelrt.tensor.nodes import build

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Windows", "convolve", "transposed"]

#: Maximum number of phases (output position modulo stride) that a transposed convolution computes
#: in separate kernels: a kernel takes about 10 ms to compile.
_PHASES = 16


class Windows(NamedTuple):
    """The geometry of a convolution over the spatial axes (those after batch and channels).

    Attributes
    ----------
    taps, strides, dilations : tuple of int
        Kernel size, distance between windows and distance between taps along each axis.
    low, high : tuple of int
        Zero padding before and after each axis.
    groups : int
        Number of independent groups of channels.
    """

    taps: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]
    groups: int

    @property
    def axes(self) -> tuple[tuple[int, int, int, int], ...]:
        """Index, taps, stride and dilation of each spatial axis."""
        each = zip(self.taps, self.strides, self.dilations, strict=True)
        return tuple((axis, *along) for axis, along in enumerate(each, 2))

    @property
    def spans(self) -> tuple[int, ...]:
        """Number of elements from the first to the last tap of each axis, inclusive."""
        return tuple(d * (k - 1) + 1 for k, d in zip(self.taps, self.dilations, strict=True))

    def padded(self, x: UOp) -> UOp:
        """Return `x` with its zero padding."""
        return build.pad(x, [(0, 0), (0, 0), *zip(self.low, self.high, strict=True)])


def convolve(x: UOp, w: UOp, windows: Windows) -> UOp:
    """Return the cross-correlation of `x` (batch, in, ...) and `w` (out, in / groups, ...)."""
    n = len(windows.taps)
    seen = _rows(x, windows)  # batch, group, 1, positions, in / group, taps
    filters = _filters(w, n, windows.groups)  # 1, group, out / group, 1s, in / group, taps
    left, right = build.align(seen, filters)
    axes = range(len(left.shape) - n - 1, len(left.shape))
    out = build.reduce(left.alu(Op.MUL, right), Op.ADD, axes)
    positions = seen.shape[3 : 3 + n]
    out = build.reshape(out, (x.shape[0], w.shape[0], *positions))
    return custom(out, _convolve_rule, x, w, arg=windows)


def transposed(x: UOp, w: UOp, sizes: build.Shape, windows: Windows) -> UOp:
    """Return the transposed convolution of `x` (batch, in, ...) and `w` (in, out / groups, ...).

    It is the gradient of a convolution whose image has these `sizes`. Each element of `x` is
    multiplied by the filters, and the products are summed where they overlap.
    """
    channels = w.shape[1]
    assert isinstance(channels, int)
    shape = (x.shape[0], channels * windows.groups, *sizes)
    return custom(_spread(x, w, shape, windows), _transposed_rule, x, w, arg=windows)


def _convolve_rule(node: UOp, g: UOp, i: int) -> UOp:
    windows, (x, w) = node.arg.arg, node.arg.inputs
    return _spread(g, w, x.shape, windows) if i == 0 else _weights(x, w, g, windows)


def _transposed_rule(node: UOp, g: UOp, i: int) -> UOp:
    windows, (x, w) = node.arg.arg, node.arg.inputs
    if i == 1:
        return _weights(g, w, x, windows)
    # The padded image may have room for more windows than `x` has elements.
    return build.shrink(convolve(g, w, windows), [(0, d) for d in x.shape])


def _rows(x: UOp, windows: Windows) -> UOp:
    n, groups = len(windows.taps), windows.groups
    x = windows.padded(x)
    seen = UOp(Op.IM2COL, x.dtype, (x,), windows.axes)
    batch, channels, *rest = seen.shape
    assert isinstance(channels, int)
    seen = build.reshape(seen, (batch, groups, channels // groups, *rest))
    order = (0, 1, *range(3, 3 + n), 2, *range(3 + n, 3 + 2 * n))
    seen = build.permute(seen, order)
    return build.reshape(seen, (batch, groups, 1, *seen.shape[2:]))


def _filters(w: UOp, n: int, groups: int) -> UOp:
    out, channels, *taps = w.shape
    assert isinstance(out, int)
    return build.reshape(w, (1, groups, out // groups, *(1,) * n, channels, *taps))


def _weights(x: UOp, w: UOp, g: UOp, windows: Windows) -> UOp:
    """Return the gradient of the filters `w`, given the image and the gradient of the result."""
    n, groups = len(windows.taps), windows.groups
    batch, out, *positions = g.shape
    assert isinstance(out, int)
    seen = _rows(x, windows)
    seen = build.shrink(
        seen, [(0, d) for d in (*seen.shape[:3], *positions, *seen.shape[3 + n :])]
    )
    g = build.reshape(g, (batch, groups, out // groups, *positions, *(1,) * (n + 1)))
    left, right = build.align(g, seen)
    whole = build.reduce(left.alu(Op.MUL, right), Op.ADD, (0, *range(3, 3 + n)))
    return build.reshape(whole, w.shape)


def _spread(g: UOp, w: UOp, shape: build.Shape, windows: Windows) -> UOp:
    """Multiply each element of `g` by the filters and sum them up in an image of `shape`.

    Output elements that are a multiple of the stride apart use the same taps. So each phase
    (position modulo stride) is a separate convolution with its own taps, without multiplications by
    inserted zeros. If there are many phases with equal numbers of taps, they become channels of one
    convolution.
    """
    remainders = math.prod(windows.strides)
    if remainders == 1 or not is_static(shape[2:]):
        return _uncovered(_gathered, g, w, shape, windows)
    if remainders <= _PHASES:
        return _phased(g, w, shape, windows)
    even = all(
        taps % stride == 0 and dilation == 1 for _, taps, stride, dilation in windows.axes
    )
    return _uncovered(_shuffled if even else _gathered, g, w, shape, windows)


def _uncovered(
    spread: Callable[[UOp, UOp, build.Shape, Windows], UOp],
    g: UOp,
    w: UOp,
    shape: build.Shape,
    windows: Windows,
) -> UOp:
    """Call `spread` for the part of the padded image that windows cover, and crop the padding."""
    whole = tuple(
        total((low, size, high))
        for low, size, high in zip(windows.low, shape[2:], windows.high, strict=True)
    )
    reached = tuple(
        total((prod((size, stride)), span - stride))
        for size, stride, span in zip(g.shape[2:], windows.strides, windows.spans, strict=True)
    )
    # More than a stride of elements may follow the last tap.
    covered = tuple(
        size if same(window_count(size, *along), position) else reach
        for size, reach, position, (_, *along) in zip(
            whole, reached, g.shape[2:], windows.axes, strict=True
        )
    )
    found = spread(g, w, (*shape[:2], *covered), windows)
    left = [(0, difference(a, b)) for a, b in zip(whole, covered, strict=True)]
    found = build.pad(found, [(0, 0), (0, 0), *left])
    ends = zip(windows.low, shape[2:], strict=True)
    inside = [(low, total((low, size))) for low, size in ends]
    return build.shrink(found, [*((0, d) for d in shape[:2]), *inside])


def _phased(g: UOp, w: UOp, shape: build.Shape, windows: Windows) -> UOp:
    """Compute a transposed convolution as one convolution per phase (position modulo stride)."""
    parts = [
        [_phase(taps, stride, dilation, low + first) for first in range(stride)]
        for (_, taps, stride, dilation), low in zip(windows.axes, windows.low, strict=True)
    ]
    counts = tuple(-(-size // s) for size, s in zip(shape[2:], windows.strides, strict=True))
    rows = [
        _phase_of(g, w, (*shape[:2], *counts), phases, windows.groups)
        for phases in itertools.product(*parts)
    ]
    # The phases of the last axis vary fastest.
    for k in reversed(range(len(counts))):
        stride, behind = windows.strides[k], 3 + 2 * k
        rows = [build.cat(rows[i : i + stride], behind) for i in range(0, len(rows), stride)]
    sizes = (count * s for count, s in zip(counts, windows.strides, strict=True))
    found = build.reshape(rows[0], (*shape[:2], *sizes))
    return build.shrink(found, [(0, d) for d in shape], alike=True)


def _shuffled(g: UOp, w: UOp, shape: build.Shape, windows: Windows) -> UOp:
    """Compute a transposed convolution with the phases as channels of one convolution.

    Each phase uses every stride-th tap. Source: sub-pixel convolution, Shi et al., "Real-time
    single image and video super-resolution using an efficient sub-pixel convolutional neural
    network", 2016.
    """
    n = len(windows.taps)
    batch, channels, *sizes = shape
    out, inside = w.shape[:2]
    strides = windows.strides
    remainders = math.prod(strides)
    own = tuple(taps // stride for taps, stride in zip(windows.taps, strides, strict=True))
    # From (out, in / group, (own taps, phase)...): move the phases next to the channels.
    w = build.reshape(w, (out, inside, *itertools.chain(*zip(own, strides, strict=True))))
    w = build.permute(w, (0, 1, *range(3, 3 + 2 * n, 2), *range(2, 2 + 2 * n, 2)))
    w = build.reshape(w, (out, inside * remainders, *own))
    counts = [-(-size // stride) for size, stride in zip(sizes, strides, strict=True)]
    plain = _unpadded(own, (1,) * n, windows.groups)
    reached = [size + tap - 1 for size, tap in zip(g.shape[2:], own, strict=True)]
    found = _gathered(g, w, (batch, channels * remainders, *reached), plain)
    for axis, count in enumerate(counts, 2):
        found = _moved(found, axis, 0, count)
    found = build.reshape(found, (batch, channels, *strides, *counts))
    order = itertools.chain(*((2 + n + k, 2 + k) for k in range(n)))
    found = build.permute(found, (0, 1, *order))
    whole = build.reshape(found, (batch, channels, *(
        count * stride for count, stride in zip(counts, strides, strict=True)
    )))  # fmt: skip
    return build.shrink(whole, [(0, d) for d in shape])


class _Phase(NamedTuple):
    """The taps of one phase (output positions with one remainder modulo the stride).

    These are the taps `first`, `first + step`, ...; within the phase their results are `dilation`
    apart. The first `ahead` elements get no result; if `ahead` is negative, the first ``-ahead``
    results are dropped.
    """

    first: int
    step: int
    taps: int
    dilation: int
    ahead: int


def _phase(taps: int, stride: int, dilation: int, start: int) -> _Phase:
    """Return the phase of the positions `start`, `start + stride`, ..."""
    shift, remainder = divmod(start, stride)
    common = math.gcd(stride, dilation)
    step = stride // common
    first = next((k for k in range(step) if k * dilation % stride == remainder), taps)
    count = max(0, -(-(taps - first) // step))
    ahead = (first * dilation - remainder) // stride - shift
    return _Phase(first, step, count, dilation // common, ahead)


def _phase_of(
    g: UOp, w: UOp, shape: build.Shape, phases: Sequence[_Phase], groups: int
) -> UOp:
    """Return the results of one phase per axis, with an axis of size 1 after each spatial axis."""
    apart = (*shape[:2], *(d for size in shape[2:] for d in (size, 1)))
    if any(phase.taps == 0 for phase in phases):
        return build.full(0, g.dtype, apart)
    for axis, phase in enumerate(phases, 2):
        w = _every(w, axis, phase)
    taps, dilations = tuple(p.taps for p in phases), tuple(p.dilation for p in phases)
    plain = _unpadded(taps, dilations, groups)
    reached = tuple(
        total((size, span - 1)) for size, span in zip(g.shape[2:], plain.spans, strict=True)
    )
    out = _gathered(g, w, (*shape[:2], *reached), plain)
    for axis, phase in enumerate(phases, 2):
        out = _moved(out, axis, phase.ahead, shape[axis])
    return build.reshape(out, apart)


def _unpadded(taps: tuple[int, ...], dilations: tuple[int, ...], groups: int) -> Windows:
    """Return windows with stride 1 and no padding."""
    none = (0,) * len(taps)
    return Windows(taps, (1,) * len(taps), dilations, none, none, groups)


def _every(w: UOp, axis: int, phase: _Phase) -> UOp:
    """Return the taps of `w` along `axis` that belong to `phase`."""
    if phase.step == 1:
        return w
    last = phase.first + (phase.taps - 1) * phase.step + 1
    w = build.shrink(
        w, [(phase.first, last) if a == axis else (0, d) for a, d in enumerate(w.shape)]
    )
    seen = UOp(Op.IM2COL, w.dtype, (w,), ((axis, phase.taps, 1, phase.step),))
    rank = len(w.shape)
    order = [rank if a == axis else a for a in range(rank)]
    shape = tuple(seen.shape[a] for a in order)
    return build.reshape(build.permute(seen, (*order, axis)), shape)


def _moved(x: UOp, axis: int, ahead: int, size: Dim) -> UOp:
    """Shift `x` by `ahead` elements along `axis`, then crop or zero-pad it to `size`.

    A negative `ahead` drops elements.
    """
    assert isinstance(size, int)
    have = x.shape[axis]
    assert isinstance(have, int)
    skipped, ahead = max(0, -ahead), max(0, ahead)
    kept = min(have - skipped, size - ahead)
    if kept <= 0:
        return build.full(0, x.dtype, (*x.shape[:axis], size, *x.shape[axis + 1 :]))
    wanted = skipped, skipped + kept
    bounds = [wanted if a == axis else (0, d) for a, d in enumerate(x.shape)]
    x = build.shrink(x, bounds, alike=True)
    widths = [(ahead, size - ahead - kept) if a == axis else (0, 0) for a in range(len(x.shape))]
    return build.pad(x, widths, alike=True)


def _gathered(g: UOp, w: UOp, shape: build.Shape, windows: Windows) -> UOp:
    """Compute a transposed convolution as one contraction over output channels and taps."""
    n, groups, taps = len(windows.taps), windows.groups, windows.taps
    batch, out, *positions = g.shape
    channels = shape[1]
    assert isinstance(out, int)
    assert isinstance(channels, int)
    g = build.expand(
        build.reshape(g, (batch, out, *positions, *(1,) * n)), (batch, out, *positions, *taps)
    )
    spread = unwindow(g, (batch, out, *shape[2:]), windows.axes)
    spread = build.reshape(spread, (batch, groups, out // groups, *spread.shape[2:]))
    spread = build.permute(spread, (0, 1, *range(3, 3 + n), 2, *range(3 + n, 3 + 2 * n)))
    spread = build.reshape(spread, (batch, groups, 1, *spread.shape[2:]))
    filters = build.reshape(w, (groups, out // groups, channels // groups, *taps))
    filters = build.permute(filters, (0, 2, 1, *range(3, 3 + n)))
    filters = build.reshape(
        filters, (1, groups, channels // groups, *(1,) * n, out // groups, *taps)
    )
    left, right = build.align(spread, filters)
    whole = build.reduce(
        left.alu(Op.MUL, right), Op.ADD, range(len(left.shape) - n - 1, len(left.shape))
    )
    return build.reshape(whole, shape)
