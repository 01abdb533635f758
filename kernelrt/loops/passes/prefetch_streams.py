"""Software prefetch of rows: finds loops whose strides hardware prefetchers do not follow.

A processor notices by itself that memory is read from one end to the other. It does not notice
steps from page to page, as down the columns of a wide matrix: there each row would be waited for.
What is read again for other elements of the result stays in a cache, and is not asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernelrt.device.costs import costs_of
from kernelrt.ir.ops import ALU, Op
from kernelrt.ir.rewrite import substitute
from kernelrt.ir.symbolic import simplify
from kernelrt.ir.uop import toposort
from kernelrt.loops.analysis import CLOSING, stride
from kernelrt.loops.tiles import ONE, extent

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kernelrt.device.spec import DeviceSpec
    from kernelrt.ir.uop import UOp
    from kernelrt.loops.analysis import Analysis
    from kernelrt.loops.nests import Nest
    from kernelrt.loops.tiles import Tile

__all__ = [
    "AHEAD",
    "LINE",
    "LONGEST_STRIDE",
    "PAGE",
    "WAY",
    "Walk",
    "are_runs",
    "goes_by_rows",
    "is_beyond",
    "is_plain",
    "next_rows",
    "outlasts_memory",
    "rows_ahead",
    "streams",
    "work_along",
]

#: Elements of the loop between what is asked for and what is read. Of 4, 8, 12 and 16 on a Zen 4,
#: from 8 on as good as any for a row times a matrix of 4096 x 4096 and sums of its columns
#: (`python -m bench.report products rows`). They are fetched to the second cache: the first would
#: be full of them, and both took half as long again. More rows than that has ways would drive each
#: other out where they are powers of two apart.
AHEAD = 8
#: Bytes of a line of the cache.
LINE = 64
#: Bytes of a page: physical memory is contiguous within one.
PAGE = 4096
#: Bytes after which addresses map to the same set of the first cache. The cache is indexed while
#: the address is translated, so a way of it is no larger than a page.
WAY = 4096
#: The longest stride, in bytes, that hardware prefetchers follow: half of a page, so that a page
#: holds two rows.
LONGEST_STRIDE = 2048
#: Bytes of the numbers that vectors hold at least.
_WORD = 4
#: What is not known of an index before its turn, or has effects.
_LATE = CLOSING | {Op.LOAD, Op.BOUND}


def is_plain(index: UOp) -> bool:
    """Whether `index` is made of loops and Variables alone, so that it may be computed early."""
    return all(u.op not in _LATE for u in toposort([index]))


def is_beyond(x: UOp, device: DeviceSpec) -> bool:
    """Whether the array that `x` reads or writes does not fit the second cache."""
    param = x.src[0]
    return bool(param.arg[1] * param.dtype.itemsize > device.l2_bytes)


def rows_ahead(
    info: Analysis,
    nodes: Sequence[UOp],
    r: UOp,
    tiles: Mapping[UOp, Tile],
    device: DeviceSpec,
) -> tuple[UOp, ...]:
    """LOADs of which the loop over `r` should ask for rows ahead.

    Parameters
    ----------
    info : Analysis
        The kernel.
    nodes : sequence of UOp
        The REDUCEs and LOCALs that it computes.
    r : UOp
        The RANGE of the loop.
    tiles : mapping of UOp to Tile
        Tiles of the ranges that have one.
    device : DeviceSpec
        The target: what fits its first cache needs no asking for.
    """
    if extent(r) <= AHEAD:
        return ()
    found = dict.fromkeys(x for u in nodes for x in info.loads(u.src[0]))
    once = info.deps[nodes[0]] | {r}
    return tuple(
        x for x in found if info.deps[x] >= once and _is_row(info, x, r, tiles, device)
    )


def _is_row(
    info: Analysis, x: UOp, r: UOp, tiles: Mapping[UOp, Tile], device: DeviceSpec
) -> bool:
    param = x.src[0]
    if param.op is not Op.PARAM or len(x.src) > 2:
        return False
    size = param.dtype.itemsize
    step = stride(x.src[1], r)
    if step is None or abs(step) * size < LONGEST_STRIDE or param.arg[1] * size <= device.l1_bytes:
        return False
    along = (q for q in info.deps[x] if tiles.get(q, ONE).lanes > 1)
    return any(stride(x.src[1], q) == 1 for q in along)


def streams(x: UOp, along: UOp, rows: Sequence[UOp], device: DeviceSpec) -> bool:
    """Whether the LOAD `x` reads a matrix from memory, row by row of `rows`.

    Parameters
    ----------
    x : UOp
        The LOAD.
    along : UOp
        The RANGE of the elements of a row.
    rows : sequence of UOp
        The RANGEs of the rows, of which the last varies fastest.
    device : DeviceSpec
        The target: what stays in its second cache is not streamed.
    """
    param = x.src[0]
    if param.op is not Op.PARAM or len(x.src) > 2:
        return False
    steps = [stride(x.src[1], r) for r in rows]
    if stride(x.src[1], along) != 1 or not all(steps):
        return False
    return abs(steps[-1] or 0) * param.dtype.itemsize >= LONGEST_STRIDE and is_beyond(x, device)


def are_runs(info: Analysis, nest: Nest, along: UOp, device: DeviceSpec) -> bool:
    """Whether `nest` reads nothing but pages along a RANGE that no cache of a core holds, once.

    One run after the other is what a processor fetches ahead.
    """
    for x in nest.loads:
        if x.src[0].op is not Op.PARAM or not nest.ranges <= info.deps[x]:
            return False
        if not is_beyond(x, device) or extent(along) * x.src[0].dtype.itemsize < PAGE:
            return False
    return bool(nest.loads)


def goes_by_rows(
    info: Analysis, nests: Sequence[Nest], abreast: int, device: DeviceSpec
) -> bool:
    """Whether a kernel goes along its rows several times, and best along one row at a time.

    Where one walk computes for long, the next row comes meanwhile (:func:`next_rows`), which is
    worth more than waiting for the sums of several rows together: ``logsumexp`` of 512 x 16000
    takes 2.2 ms in the place of 3.6. Else rows go together if the second cache holds them until
    they are gone along again: the variance of 8 x 2,000,000, block by block, takes 1.5 ms so and
    1.8 one by one, that of 256 x 65536, of which it does not, 2.4 and 1.5. Narrow numbers of
    several rows would be put side by side one at a time: that of 8 x 2,000,000 of bfloat16 takes
    2.1 and 1.2.

    Parameters
    ----------
    info : Analysis
        The kernel.
    nests : sequence of Nest
        All of it.
    abreast : int
        Rows that go together.
    device : DeviceSpec
        The target.
    """
    if len(nests) < 2:
        return False
    for nest in nests:
        along = nest.closed[-1]
        if nest.fills or not nest.reduces or not are_runs(info, nest, along, device):
            return False
        if any(stride(x.src[1], along) != 1 for x in nest.loads):
            return False
    itemsize = max(x.src[0].dtype.itemsize for nest in nests for x in nest.loads)
    row = itemsize * max(extent(nest.closed[-1]) for nest in nests)
    if row <= device.l1_bytes:
        return False
    work = max(
        work_along(info, [u.src[0] for u in nest.reduces], nest.closed[-1], device)
        for nest in nests
    )
    if itemsize < _WORD or 2 * abreast * row > device.l2_bytes:
        return True
    return outlasts_memory(work, itemsize, device)


@dataclass(frozen=True, slots=True)
class Walk:
    """One walk along a row.

    Attributes
    ----------
    range : UOp
        The RANGE of the elements of the row.
    values : tuple of UOp
        What is computed of each.
    stores : tuple of UOp
        The STOREs to it.
    """

    range: UOp
    values: tuple[UOp, ...]
    stores: tuple[UOp, ...] = ()


def next_rows(
    info: Analysis, walks: Sequence[Walk], turn: UOp, step: int, device: DeviceSpec
) -> tuple[int, tuple[UOp, ...]]:
    """What one of `walks` should ask for, of the rows that the next turn of a loop goes along.

    The first walk along a row waits for memory, while later ones compute and leave memory idle.
    Where one of these computes for at least half the time that a line takes to come, the lines of
    the next row come meanwhile: so a softmax of 64 x 50000 takes a fifth less (`python -m
    bench.report rows`). Rows that the first cache holds gain nothing: processors read on beyond
    their ends. What is only written is not asked for: the next row may be another core's, which
    the lines would be taken from while it writes them, and the same softmax takes half as long
    again on two cores.

    Parameters
    ----------
    info : Analysis
        The kernel.
    walks : sequence of Walk
        The walks of one turn, in order.
    turn : UOp
        The RANGE of the rows.
    step : int
        Rows that are gone along in one turn.
    device : DeviceSpec
        The target.

    Returns
    -------
    int
        The number of the walk.
    tuple of UOp
        LOADs to ask for at each of its elements; none if asking gains nothing.
    """
    work = [work_along(info, walk.values, walk.range, device) for walk in walks]
    slowest = max(range(len(walks)), key=work.__getitem__)
    rows = _rows_of(info, walks, turn, device)
    if not any(number < slowest for number, _ in rows.values()):
        return 0, ()
    lengths = [extent(walks[n].range) * x.src[0].dtype.itemsize for n, x in rows.values()]
    kept = step * (2 * sum(lengths) + _longest_array(info, walks))
    widest = max(x.src[0].dtype.itemsize for _, x in rows.values())
    near = step * sum(lengths) <= device.l1_bytes
    if near or kept > device.l2_bytes or not outlasts_memory(work[slowest], widest, device):
        return 0, ()
    found = []
    for number, x in rows.values():
        if x.op is Op.STORE:
            continue
        places = {turn: turn + step, walks[number].range: walks[slowest].range}
        [index] = substitute([x.src[1]], places)
        found.append(x.replace(src=(x.src[0], simplify(index), *x.src[2:])))
    return slowest, tuple(found)


def work_along(info: Analysis, values: Iterable[UOp], r: UOp, device: DeviceSpec) -> float:
    """Cycles of one element of `values` along `r`."""
    costs = costs_of(device)
    order = info.order(values)
    return sum(costs.node(u) for u in order if u.op in ALU and r in info.deps_of([u]))


def outlasts_memory(work: float, itemsize: int, device: DeviceSpec) -> bool:
    """Whether `work` cycles an element take half as long as its bytes do to come, or longer."""
    return 2 * work >= itemsize * costs_of(device).levels[-1].cycles


def _rows_of(
    info: Analysis, walks: Sequence[Walk], turn: UOp, device: DeviceSpec
) -> dict[UOp, tuple[int, UOp]]:
    """Arrays in memory of which each turn touches another row: the first access, and its walk."""
    found: dict[UOp, tuple[int, UOp]] = {}
    for number, walk in enumerate(walks):
        loads = info.loads(*walk.values)
        for access in (*loads, *walk.stores):
            source, index = access.src[:2]
            if source.op is not Op.PARAM or (access.op is Op.LOAD and len(access.src) > 2):
                continue
            runs = stride(index, walk.range) == 1 and bool(stride(index, turn))
            if runs and is_beyond(access, device) and is_plain(index):
                found.setdefault(source, (number, access))
    return found


def _longest_array(info: Analysis, walks: Sequence[Walk]) -> int:
    """Bytes of the longest row that is kept between `walks`, beside those in memory."""
    return max(
        (
            extent(walk.range) * x.src[0].dtype.itemsize
            for walk in walks
            for x in info.loads(*walk.values)
            if x.src[0].op is Op.LOCAL
        ),
        default=0,
    )
