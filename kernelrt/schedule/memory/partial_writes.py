"""Merges chains of partial writes to a tensor.

In the graph, an assignment to a part of a tensor is a WHERE over the whole tensor. Inside the part
it selects the assigned value, which is padded to the tensor's shape. Elsewhere it selects the old
value. Likewise, if parts of a tensor are read, its gradient is a sum of zero-padded parts. So a
Python loop over n rows makes n WHEREs or n sums, each over n rows. This pass records where the
elements of each new value of such a tensor (a *version*) come from. A read of a part then uses the
value that was written there. The whole tensor is assembled once, with one CAT, which has as many
parts as the loop has steps.
"""

from __future__ import annotations

from itertools import accumulate, islice, pairwise
from math import prod
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, cast

from kernelrt.ir import Op, UOp, const, toposort
from kernelrt.ir.constants import full, is_zeros, uniform
from kernelrt.ir.origin import inherit
from kernelrt.ir.shape import is_static, total

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kernelrt.ir import Dim

__all__ = ["concatenate_assigned"]

#: Up to this many changes stay WHEREs and sums, which a kernel may fuse. It is also the maximum
#: number of parts that a read combines.
FEW: Final = 8


class _Span(NamedTuple):
    """A range of elements of a tensor that are contiguous in row-major order.

    `start` and `stop` count elements over several axes: from `axis` to the last one before a
    dynamic axis. Along all other axes, the range contains all elements.
    """

    axis: int
    start: int
    stop: int


class _Change(NamedTuple):
    """A change of `base`: its elements in `spans` are replaced by `values`, or added to them."""

    base: UOp
    spans: tuple[_Span, ...]
    values: tuple[UOp, ...]
    adds: bool


class _Source(NamedTuple):
    """Source of a range of elements. Element p of the version is element p - `begin` of `node`.

    `step` is the number of the change that wrote the range. Later changes that are sums add zero to
    it.
    """

    node: UOp
    begin: int
    step: int


class _Halves(NamedTuple):
    left: _Sources
    right: _Sources


#: Sources of the elements of an interval, as a binary tree of intervals. Trees share subtrees, so a
#: version only stores the path to the elements that it changes.
_Sources: TypeAlias = "_Source | _Halves"
#: Part of an interval: first position, end position, and source.
_Part: TypeAlias = "tuple[int, int, _Source]"


class _Version(NamedTuple):
    """Sources of the elements of a value.

    Attributes
    ----------
    axis : int
        First axis of the spans.
    sources : _Sources
        Sources of all elements.
    step : int
        Number of changes since the last value that is stored whole.
    added : int
        The last change that is a sum, by its number; 0 if there is none.
    disjoint : bool
        Whether all changes are sums of zero-padded parts that do not overlap.
    """

    axis: int
    sources: _Sources
    step: int = 0
    added: int = 0
    disjoint: bool = False


def concatenate_assigned(roots: Sequence[UOp]) -> list[UOp]:
    """Rewrite graphs so that each partially written tensor is assembled once.

    Values do not change. The original sum adds zero to the elements outside all its parts, which
    turns -0.0 into 0.0. So the new graph adds zero to them as well.

    Parameters
    ----------
    roots : sequence of UOp
        Simplified graphs of the tensor stage.
    """
    nodes = toposort(roots)
    changes = _changes(nodes)
    return _Joining(roots, nodes, changes).run() if changes else list(roots)


# ---- recognizing changes


def _changes(nodes: Iterable[UOp]) -> dict[UOp, _Change]:
    found: dict[UOp, _Change] = {}
    for node in nodes:
        change = None
        if node.op is Op.WHERE:
            change = _assignment(node)
        elif node.op is Op.ADD:
            change = _sum(node, found)
        if change is not None:
            found[node] = change
    return found


def _assignment(node: UOp) -> _Change | None:
    mask, value, base = node.src
    inner = mask.src[0] if mask.op is Op.RESHAPE else mask
    span = _padded(inner)
    if span is None or value is base:
        return None
    if mask is not inner and (span.axis or not is_static(node.shape)):
        return None  # the mask's span counts elements of another shape
    holds = uniform(inner.src[0])
    return _Change(base, (span,), (value,), adds=False) if holds is not None and holds.arg else None


def _sum(node: UOp, known: dict[UOp, _Change]) -> _Change | None:
    """If `node` adds a few zero-padded parts to a value, return this change; otherwise None."""
    for base, value in (node.src, node.src[::-1]):
        parts = _parts_among_zeros(value, known)
        if parts is not None and all(s.axis == parts[0][0].axis for s, _ in parts):
            spans, values = zip(*parts, strict=True)
            return _Change(base, spans, values, adds=True)
    return None


def _parts_among_zeros(node: UOp, known: dict[UOp, _Change]) -> list[tuple[_Span, UOp]] | None:
    """If `node` is a sum of a few PADs that do not overlap, return them with their spans."""
    out: list[tuple[_Span, UOp]] = []
    while (change := known.get(node)) is not None and change.adds and len(out) < FEW:
        out += zip(change.spans, change.values, strict=True)
        node = change.base
    span = _padded(node)
    if span is None or len(out) >= FEW:
        return None
    out.append((span, node))
    spans = sorted(s for s, _ in out)
    return None if any(a.stop > b.start for a, b in pairwise(spans)) else out


def _padded(node: UOp) -> _Span | None:
    """Return the span that a PAD's operand takes in the result; None if `node` is no such PAD."""
    if node.op is not Op.PAD:
        return None
    sizes = zip(node.arg, node.src[0].shape, strict=True)
    return _span([(low, total((low, size))) for (low, _), size in sizes], node.shape)


def _given(node: UOp, axis: int) -> list[tuple[_Span, UOp]] | None:
    """Return the parts of a PAD or CAT that are not zeros, with their spans; None for others."""
    span = _padded(node)
    if span is not None:
        return [(span, node.src[0])] if span.axis == axis else None
    if node.op is not Op.CAT or node.arg != axis or not is_static(s.shape[axis] for s in node.src):
        return None
    ends = list(accumulate((_count(s.shape, axis) for s in node.src), initial=0))
    spans = [_Span(axis, *ends) for ends in pairwise(ends)]
    return [(at, s) for at, s in zip(spans, node.src, strict=True) if not is_zeros(s)]


def _known_axes(shape: tuple[Dim, ...], axis: int) -> tuple[int, ...]:
    """Return the sizes of the axes from `axis` on, up to the first dynamic one."""
    out: list[int] = []
    for size in shape[axis:]:
        if not isinstance(size, int):
            break
        out.append(size)
    return tuple(out)


def _count(shape: tuple[Dim, ...], axis: int) -> int:
    return prod(_known_axes(shape, axis))


def _span(box: Sequence[tuple[Dim, Dim]], shape: tuple[Dim, ...]) -> _Span | None:
    """Return the span of the elements of `box` if they are contiguous, else None."""
    pairs = zip(box, shape, strict=True)
    partial = [a for a, (pair, size) in enumerate(pairs) if pair != (0, size)]
    if not partial or 0 in shape:
        return None
    first, last = partial[0], partial[-1]
    sizes, bounds = _known_axes(shape, first), box[first : last + 1]
    if len(sizes) < len(bounds) or not is_static(b for pair in bounds for b in pair):
        return None
    known = cast("Sequence[tuple[int, int]]", bounds)
    if any(hi - lo != 1 for lo, hi in known[:-1]) or known[-1][0] >= known[-1][1]:
        return None
    start = 0
    for (low, _), size in zip(known, sizes, strict=False):
        start = start * size + low
    behind = prod(sizes[len(known) :])
    return _Span(first, start * behind, (start + known[-1][1] - known[-1][0]) * behind)


# ---- traversal


class _Joining:
    def __init__(
        self, roots: Sequence[UOp], nodes: Sequence[UOp], changes: dict[UOp, _Change]
    ) -> None:
        self._roots = roots
        self._nodes = nodes
        self._changes = changes
        self._versions: dict[UOp, _Version] = {}
        self._done: dict[UOp, UOp] = {}
        #: For a change and its span: the elements of another version that the change uses there.
        self._taken: dict[tuple[UOp, _Span], UOp] = {}
        self._users: dict[UOp, list[UOp]] = {n: [] for n in changes}
        for node in nodes:
            for s in dict.fromkeys(node.src):
                if s in self._users:
                    self._users[s].append(node)

    def run(self) -> list[UOp]:
        stored = set(self._roots)
        for node in self._nodes:
            if node in self._done:
                continue
            src = tuple(self._done[s] for s in node.src)
            self._done[node] = node if src == node.src else node.replace(src=src)
            if node in self._changes:
                version = self._version(node)
                if not self._is_read_in_parts(node, version) or node in stored:
                    if version.step > FEW or version.disjoint:
                        self._done[node] = self._whole(node, version)
                    version = _Version(version.axis, _Source(self._done[node], 0, 0))
                self._versions[node] = version
        return [self._done[root] for root in self._roots]

    def _version(self, node: UOp) -> _Version:
        change = self._changes[node]
        axis = change.spans[0].axis
        before = self._before(change.base, axis)
        here = 0, _count(node.shape, axis)
        sources, step, disjoint = before.sources, before.step + 1, before.disjoint and change.adds
        for span, value in zip(change.spans, change.values, strict=True):
            found = self._taken.get((node, span))
            if not change.adds:
                put = _part(self._done[value], span) if found is None else found
            else:
                parts = list(_parts(sources, here, span[1:]))
                disjoint = disjoint and all(is_zeros(s.node) for *_, s in parts)
                disjoint = disjoint and span.start % _behind(node.shape, axis) == 0
                known = _joined(parts, span, node.shape, before.added) if found is None else found
                new = _part(self._done[value], span)
                put = _sum_of(known, new if len(change.spans) == 1 else _plus_zero(new))
            sources = _put(sources, here, span[1:], _Source(put, span.start, step))
        return _Version(axis, sources, step, step if change.adds else before.added, disjoint)

    def _before(self, base: UOp, axis: int) -> _Version:
        found = self._versions.get(base)
        if found is not None and found.axis == axis:
            return found
        parts = _given(base, axis)
        if parts is None:
            return _Version(axis, _Source(self._done[base], 0, 0))
        sources: _Sources = _Source(full(const(0, base.dtype), base.shape), 0, 0)
        for span, node in parts:
            put = _Source(self._done[node], span.start, 0)
            sources = _put(sources, (0, _count(base.shape, axis)), span[1:], put)
        disjoint = all(span.start % _behind(base.shape, axis) == 0 for span, _ in parts)
        return _Version(axis, sources, disjoint=disjoint)

    def _is_read_in_parts(self, node: UOp, version: _Version) -> bool:
        """Replace all reads of parts of `node`; return whether no other use of `node` is left."""
        given = [self._reads_parts(user, node, version) for user in self._users[node]]
        return all(given)

    def _reads_parts(self, user: UOp, node: UOp, version: _Version) -> bool:
        if user.op is Op.SHRINK:
            span = _span(user.arg, node.shape)
            part = None if span is None else self._read(span, node, version)
            if part is not None:
                self._done[user] = inherit(_reshaped(part, user.shape), user)
            return part is not None
        change = self._changes.get(user)
        if change is None:
            return False
        if change.base is node and not change.adds:
            return change.spans[0].axis == version.axis
        if change.base is not node and change.adds:
            return False
        found = {(user, span): self._read(span, node, version) for span in change.spans}
        self._taken |= {key: part for key, part in found.items() if part is not None}
        return None not in found.values()

    def _read(self, span: _Span, node: UOp, version: _Version) -> UOp | None:
        """Return the elements of `span` if they have few sources, else None."""
        if span.axis != version.axis:
            return None
        here = 0, _count(node.shape, span.axis)
        parts = list(islice(_parts(version.sources, here, span[1:]), FEW + 1))
        return None if len(parts) > FEW else _joined(parts, span, node.shape, version.added)

    def _whole(self, node: UOp, version: _Version) -> UOp:
        span = _Span(version.axis, 0, _count(node.shape, version.axis))
        parts = list(_parts(version.sources, span[1:], span[1:]))
        joined = _joined(parts, span, node.shape, version.added)
        return inherit(_reshaped(joined, node.shape), node)


# ---- sources


def _put(
    sources: _Sources, here: tuple[int, int], to: tuple[int, int], source: _Source
) -> _Sources:
    """Return `sources`, which cover the interval `here`, with `source` in the interval `to`."""
    low, high = here
    if to[0] <= low and high <= to[1]:
        return source
    if to[1] <= low or high <= to[0]:
        return sources
    middle = (low + high) // 2
    left, right = (sources, sources) if isinstance(sources, _Source) else sources
    return _Halves(_put(left, (low, middle), to, source), _put(right, (middle, high), to, source))


def _parts(sources: _Sources, here: tuple[int, int], within: tuple[int, int]) -> Iterator[_Part]:
    """Cut the interval `within` into parts that have a single source each, and yield the parts."""
    last: _Part | None = None
    for low, high, source in _leaves(sources, here, within):
        if last is not None and last[2] is source:
            last = last[0], high, source
            continue
        if last is not None:
            yield last
        last = low, high, source
    if last is not None:
        yield last


def _leaves(sources: _Sources, here: tuple[int, int], within: tuple[int, int]) -> Iterator[_Part]:
    low, high = here
    start, stop = max(low, within[0]), min(high, within[1])
    if start >= stop:
        return
    if isinstance(sources, _Source):
        yield start, stop, sources
        return
    middle = (low + high) // 2
    yield from _leaves(sources.left, (low, middle), within)
    yield from _leaves(sources.right, (middle, high), within)


# ---- building nodes


def _reshaped(node: UOp, shape: tuple[Dim, ...]) -> UOp:
    return node if node.shape == shape else UOp(Op.RESHAPE, node.dtype, (node,), shape)


def _sum_of(x: UOp, y: UOp) -> UOp:
    return UOp(Op.ADD, x.dtype, (x, _reshaped(y, x.shape)))


def _plus_zero(x: UOp) -> UOp:
    if not x.dtype.is_float or (x.op is Op.ADD and any(map(is_zeros, x.src))):
        return x
    return UOp(Op.ADD, x.dtype, (x, full(const(0, x.dtype), x.shape)))


def _part(node: UOp, span: _Span) -> UOp:
    """Return the elements of `span` of `node`.

    If `node` only pads these elements with zeros, return the operand that is padded.
    """
    flat = not span.axis and is_static(node.shape)
    padded = node.src[0] if flat and node.op is Op.RESHAPE else node
    return padded.src[0] if _padded(padded) == span else _elements(node, span)


def _elements(node: UOp, span: _Span) -> UOp:
    """Return the elements of `span` of any node; axes of the result may be merged into one."""
    axis, start, stop = span
    if (start, stop) == (0, _count(node.shape, axis)):
        return node
    shape, unit = _grouped(node.shape, axis, (start, stop))
    box: list[tuple[Dim, Dim]] = [(0, d) for d in shape]
    box[axis] = (start // unit, stop // unit)
    return UOp(Op.SHRINK, node.dtype, (_reshaped(node, shape),), tuple(box))


def _joined(parts: Sequence[_Part], span: _Span, shape: tuple[Dim, ...], added: int) -> UOp:
    """Concatenate `parts` of a value of `shape`; axes of the result may be merged into one."""
    axis, first, _ = span
    bounds = [p - first for low, high, _ in parts for p in (low, high)]
    grouped, unit = _grouped(shape, axis, bounds)
    out: list[UOp] = []
    for low, high, source in parts:
        own = _Span(axis, low - source.begin, high - source.begin)
        part = _elements(source.node, own)
        part = _plus_zero(part) if source.step < added else part
        sizes = (*grouped[:axis], (high - low) // unit, *grouped[axis + 1 :])
        out.append(part if len(parts) == 1 else _reshaped(part, sizes))
    return out[0] if len(out) == 1 else UOp(Op.CAT, out[0].dtype, tuple(out), axis)


def _behind(shape: tuple[Dim, ...], axis: int) -> int:
    """Return how many elements of a span one step along `axis` skips."""
    return prod(_known_axes(shape, axis)[1:])


def _grouped(
    shape: tuple[Dim, ...], axis: int, bounds: Sequence[int]
) -> tuple[tuple[Dim, ...], int]:
    """Merge axes of `shape`, from `axis` on, so that `bounds` are bounds of whole elements.

    As few axes as possible are merged.

    Returns
    -------
    shape : tuple of Dim
        The new shape.
    unit : int
        Number of span elements in one element of the merged axis.
    """
    sizes = _known_axes(shape, axis)
    units = [prod(sizes[k:]) for k in range(1, len(sizes) + 1)]
    k = next(k for k, unit in enumerate(units, 1) if all(p % unit == 0 for p in bounds))
    return (*shape[:axis], prod(sizes[:k]), *shape[axis + k :]), units[k - 1]
