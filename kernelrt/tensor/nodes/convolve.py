"""Convolutions and their transposes, over nodes of the tensor stage.

Both are a sum over products of expanded operands, and each is the gradient of the other.
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

#: Remainders of a position by the strides that a transposed convolution has kernels of their own
#: for: a kernel takes about 10 ms to compile.
_PHASES = 16


class Windows(NamedTuple):
    """How the windows of a convolution lie over the axes behind batch and channels.

    Attributes
    ----------
    taps, strides, dilations : tuple of int
        Taps along each axis, steps from window to window and from tap to tap.
    low, high : tuple of int
        Zeros before and behind each axis.
    groups : int
        Into how many independent parts the channels are divided.
    """

    taps: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]
    groups: int

    @property
    def axes(self) -> tuple[tuple[int, int, int, int], ...]:
        """Of each axis its number, taps, stride and dilation."""
        each = zip(self.taps, self.strides, self.dilations, strict=True)
        return tuple((axis, *along) for axis, along in enumerate(each, 2))

    @property
    def spans(self) -> tuple[int, ...]:
        """Elements from the first to the last tap."""
        return tuple(d * (k - 1) + 1 for k, d in zip(self.taps, self.dilations, strict=True))

    def padded(self, x: UOp) -> UOp:
        """`x` with the zeros around it."""
        return build.pad(x, [(0, 0), (0, 0), *zip(self.low, self.high, strict=True)])


def convolve(x: UOp, w: UOp, windows: Windows) -> UOp:
    """Cross-correlation of `x` (batch, in, ...) with `w` (out, in / groups, ...)."""
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
    """Convolution transposed of `x` (batch, in, ...) with `w` (in, out / groups, ...).

    As the gradient of a convolution of an image of `sizes`: each element times the filters, added
    up where they lie.
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
    # Behind the last element of `x` there may be room for further windows.
    return build.shrink(convolve(g, w, windows), [(0, d) for d in x.shape])


def _rows(x: UOp, windows: Windows) -> UOp:
    n, groups = len(windows.taps), windows.groups
    x = windows.padded(x)
    seen = UOp(Op.WINDOW, x.dtype, (x,), windows.axes)
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
    """The gradient of the filters `w`, from the image and the gradient of the result."""
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
    """Each element of `g` times the filters, added up where they lie in an image of `shape`.

    Elements of the result that lie a stride apart take the same taps, so each remainder of a
    position by the stride is a convolution with its own taps, and no product is one with the zeros
    between. Where there are many remainders, they are channels of one convolution, if all of them
    have as many taps.
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
    """What `spread` makes of all that windows cover, without the zeros around the image."""
    whole = tuple(
        total((low, size, high))
        for low, size, high in zip(windows.low, shape[2:], windows.high, strict=True)
    )
    reached = tuple(
        total((prod((size, stride)), span - stride))
        for size, stride, span in zip(g.shape[2:], windows.strides, windows.spans, strict=True)
    )
    # What is behind the last tap may be more than a stride.
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
    """A convolution for each remainder of a position by the stride."""
    parts = [
        [_phase(taps, stride, dilation, low + first) for first in range(stride)]
        for (_, taps, stride, dilation), low in zip(windows.axes, windows.low, strict=True)
    ]
    counts = tuple(-(-size // s) for size, s in zip(shape[2:], windows.strides, strict=True))
    rows = [
        _phase_of(g, w, (*shape[:2], *counts), phases, windows.groups)
        for phases in itertools.product(*parts)
    ]
    # The remainders of the last axis change fastest.
    for k in reversed(range(len(counts))):
        stride, behind = windows.strides[k], 3 + 2 * k
        rows = [build.cat(rows[i : i + stride], behind) for i in range(0, len(rows), stride)]
    sizes = (count * s for count, s in zip(counts, windows.strides, strict=True))
    found = build.reshape(rows[0], (*shape[:2], *sizes))
    return build.shrink(found, [(0, d) for d in shape], alike=True)


def _shuffled(g: UOp, w: UOp, shape: build.Shape, windows: Windows) -> UOp:
    """Convolution transposed whose remainders are channels: each stride-th tap is one's own.

    Source: sub-pixel convolution, Shi et al., "Real-time single image and video super-resolution
    using an efficient sub-pixel convolutional neural network", 2016.
    """
    n = len(windows.taps)
    batch, channels, *sizes = shape
    out, inside = w.shape[:2]
    strides = windows.strides
    remainders = math.prod(strides)
    own = tuple(taps // stride for taps, stride in zip(windows.taps, strides, strict=True))
    # out, in / group, (taps of its own, remainder)... with the remainders beside the channels.
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
    """The taps that reach positions of one remainder by the stride: each `step`-th.

    The results of the taps `first`, `first + step`, ... lie `dilation` apart, behind `ahead`
    elements that none of them reaches; where that is negative, so many of theirs are not wanted.
    """

    first: int
    step: int
    taps: int
    dilation: int
    ahead: int


def _phase(taps: int, stride: int, dilation: int, start: int) -> _Phase:
    """The phase of the positions `start`, `start + stride`, ..."""
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
    """The results of one remainder along each axis, and behind each axis one for the remainder."""
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
    """Windows one element apart."""
    none = (0,) * len(taps)
    return Windows(taps, (1,) * len(taps), dilations, none, none, groups)


def _every(w: UOp, axis: int, phase: _Phase) -> UOp:
    """The taps of `w` along `axis` that belong to `phase`."""
    if phase.step == 1:
        return w
    last = phase.first + (phase.taps - 1) * phase.step + 1
    w = build.shrink(
        w, [(phase.first, last) if a == axis else (0, d) for a, d in enumerate(w.shape)]
    )
    seen = UOp(Op.WINDOW, w.dtype, (w,), ((axis, phase.taps, 1, phase.step),))
    rank = len(w.shape)
    order = [rank if a == axis else a for a in range(rank)]
    shape = tuple(seen.shape[a] for a in order)
    return build.reshape(build.permute(seen, (*order, axis)), shape)


def _moved(x: UOp, axis: int, ahead: int, size: Dim) -> UOp:
    """`x` behind `ahead` zeros along `axis`, or without as many if that is negative.

    It is cut or filled with zeros to `size`.
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
    """One contraction over output channels and taps: the taps of `g` are gathered first."""
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
