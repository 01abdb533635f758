"""Software prefetch of rows: finds loops whose strides hardware prefetchers do not follow.

A hardware prefetcher detects sequential reads, but no strides of a page or more. Such strides occur
down the columns of a wide matrix, where every row would wait for memory. This pass finds the loops
that should prefetch rows in software. Data that is read again for other elements of the result
stays in a cache, so it is not prefetched.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernelrt.device.costs import costs_of
from kernelrt.device.spec import PAGE
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
    from kernelrt.loops.loop_ir import Loop
    from kernelrt.loops.nests import Nest
    from kernelrt.loops.tiles import Tile

__all__ = [
    "AHEAD",
    "LONGEST_STRIDE",
    "Walk",
    "are_runs",
    "goes_by_rows",
    "is_beyond",
    "is_plain",
    "next_rows",
    "outlasts_memory",
    "reads_in_rows",
    "rows_ahead",
    "streams",
    "work_along",
]

#: Prefetch distance in elements of the loop over rows. Of 4, 8, 12 and 16, the distances from 8 on
#: are equally good for a row times a matrix of 4096 x 4096, and for sums of its columns (Zen 4;
#: `python -m bench.report products rows`). Rows are prefetched to the L2 cache: they would fill the
#: L1 cache, and both programs took 1.5 times as long with it. If rows are powers of two apart, more
#: rows than the L2 cache has ways would evict each other.
AHEAD = 8
#: The longest stride, in bytes, that hardware prefetchers follow: half a page, so that a page holds
#: two rows.
LONGEST_STRIDE = 2048
#: The shortest run, in bytes, that is read alone if its buffer fills the L3 cache. Rows of 512 to
#: 2048 bytes take a third of the time if they are read one by one and not 8 side by side. Rows of
#: 256 bytes, of which 8 fill half a page, gain nothing (maxima of 2**23 float32, Zen 4, AVX2 and
#: AVX-512).
SHORTEST_RUN = 512
#: The least bytes of a vector element; narrower numbers are widened.
_WORD = 4
#: Ops that make an index unknown before its iteration, or that have effects.
_LATE = CLOSING | {Op.LOAD, Op.BOUND}


def is_plain(index: UOp) -> bool:
    """Return whether `index` has only loop indices and Variables, so that it is known early."""
    return all(u.op not in _LATE for u in toposort([index]))


def is_beyond(x: UOp, device: DeviceSpec) -> bool:
    """Return whether the buffer that `x` reads or writes is larger than the L2 cache."""
    param = x.src[0]
    return bool(param.arg[1] * param.dtype.itemsize > device.l2_bytes)


def rows_ahead(
    info: Analysis,
    nodes: Sequence[UOp],
    r: UOp,
    tiles: Mapping[UOp, Tile],
    device: DeviceSpec,
) -> tuple[UOp, ...]:
    """Return the LOADs whose rows the loop over `r` should prefetch.

    Parameters
    ----------
    info : Analysis
        The kernel.
    nodes : sequence of UOp
        The REDUCEs and LOCALs that the loop computes.
    r : UOp
        The RANGE of the loop.
    tiles : mapping of UOp to Tile
        Tiles of the RANGEs. Default tile: one element.
    device : DeviceSpec
        The target. Buffers that fit its L1 cache are not prefetched.
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
    """Return whether the LOAD `x` streams a matrix from memory, row by row.

    Parameters
    ----------
    x : UOp
        The LOAD.
    along : UOp
        The RANGE of the elements of a row.
    rows : sequence of UOp
        The RANGEs of the rows; the last varies fastest.
    device : DeviceSpec
        The target. Buffers that fit its L2 cache do not count as streamed.
    """
    param = x.src[0]
    if param.op is not Op.PARAM or len(x.src) > 2:
        return False
    steps = [stride(x.src[1], r) for r in rows]
    if stride(x.src[1], along) != 1 or not all(steps):
        return False
    return abs(steps[-1] or 0) * param.dtype.itemsize >= LONGEST_STRIDE and is_beyond(x, device)


def are_runs(info: Analysis, nest: Nest, along: UOp, device: DeviceSpec) -> bool:
    """Return whether all loads of `nest` read long runs along `along`, each only once.

    Such runs should be read one by one, because hardware prefetchers then follow them. The buffers
    must exceed the L2 cache. If runs are shorter than a page, the buffers must also fill the L3
    cache. For example, if 8 rows of 1 KiB are read side by side, this takes three times as long
    from memory, but less time from the L3 cache.
    """
    if not nest.loads or not _streams_once(info, nest.loads, nest.ranges, device):
        return False
    for x in nest.loads:
        size = x.src[0].dtype.itemsize
        fills_caches = x.src[0].arg[1] * size >= device.l3_bytes
        if extent(along) * size < (SHORTEST_RUN if fills_caches else PAGE):
            return False
    return True


def reads_in_rows(
    info: Analysis, folds: Sequence[UOp], loops: Iterable[Loop], device: DeviceSpec
) -> bool:
    """Return whether a tile should read the rows that it reduces to `folds` one after the other.

    It reads several rows from start to end, each row once. The processor then reads memory in
    order. Hardware prefetchers follow this, but do not follow 8 short rows that are read side by
    side. For example, the maxima of 262144 rows of 64 float32 take 2.0 ms instead of 3.4 ms
    (AVX-512, Zen 4). Rows that the L2 cache holds gain nothing.
    """
    loads = [x for u in folds for x in info.loads(u.src[0])]
    whole = all(part.trips == 1 for loop in loops for part in loop.parts)
    return whole and _streams_once(info, loads, info.deps[folds[0]], device)


def _streams_once(
    info: Analysis, loads: Iterable[UOp], ranges: frozenset[UOp], device: DeviceSpec
) -> bool:
    """Return whether `loads` read other elements of a large buffer wherever `ranges` stand."""
    return all(
        x.src[0].op is Op.PARAM and ranges <= info.deps[x] and is_beyond(x, device) for x in loads
    )


def goes_by_rows(
    info: Analysis, nests: Sequence[Nest], abreast: int, device: DeviceSpec
) -> bool:
    """Return whether a kernel with several passes over its rows should handle one row at a time.

    It should in three cases:

    - One pass computes for so long that the next row can be prefetched meanwhile
      (:func:`next_rows`). ``logsumexp`` of 512 x 16000 takes 2.2 ms row by row, 3.6 ms with several
      rows together.
    - The L2 cache does not hold several rows until the next pass. The variance of 256 x 65536 takes
      1.5 ms row by row, 2.4 ms with several rows together. But the variance of 8 x 2,000,000, which
      is computed block by block, takes 1.8 ms row by row, 1.5 ms with several rows together.
    - The numbers are narrow, so that those of several rows would be packed into vectors one by one.
      The variance of 8 x 2,000,000 bfloat16 takes 1.2 ms row by row, 2.1 ms with several rows
      together.

    Parameters
    ----------
    info : Analysis
        The kernel.
    nests : sequence of Nest
        All nests of the kernel.
    abreast : int
        Number of rows that would be reduced together.
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
    """One loop over the elements of a row.

    Attributes
    ----------
    range : UOp
        The RANGE of the elements of the row.
    values : tuple of UOp
        The values computed for each element.
    stores : tuple of UOp
        The STOREs to the row.
    """

    range: UOp
    values: tuple[UOp, ...]
    stores: tuple[UOp, ...] = ()


def next_rows(
    info: Analysis, walks: Sequence[Walk], outer: UOp, step: int, device: DeviceSpec
) -> tuple[int, tuple[UOp, ...]]:
    """Return which loop over a row should prefetch the rows of the next iteration, and which LOADs.

    The first loop over a row waits for memory. Later loops compute, and leave memory idle. If one
    of these computes for at least half the time that a cache line takes to arrive, it can prefetch
    the next row. A softmax of 64 x 50000 then takes a fifth less time (`python -m bench.report
    rows`). Rows that fit the L1 cache gain nothing, because the hardware prefetches beyond their
    ends. Rows that are only written are not prefetched. The next row may belong to another core,
    and the prefetch would take cache lines from this core while it writes them. With such
    prefetches, the same softmax takes 1.5 times as long on two cores.

    Parameters
    ----------
    info : Analysis
        The kernel.
    walks : sequence of Walk
        The loops over a row in one iteration, in order.
    outer : UOp
        The RANGE of the rows.
    step : int
        Rows of one iteration.
    device : DeviceSpec
        The target.

    Returns
    -------
    int
        Index in `walks` of the loop that prefetches.
    tuple of UOp
        LOADs to prefetch at each of its elements; empty if prefetching gains nothing.
    """
    work = [work_along(info, walk.values, walk.range, device) for walk in walks]
    slowest = max(range(len(walks)), key=work.__getitem__)
    rows = _rows_of(info, walks, outer, device)
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
        replacements = {outer: outer + step, walks[number].range: walks[slowest].range}
        [index] = substitute([x.src[1]], replacements)
        found.append(x.replace(src=(x.src[0], simplify(index), *x.src[2:])))
    return slowest, tuple(found)


def work_along(info: Analysis, values: Iterable[UOp], r: UOp, device: DeviceSpec) -> float:
    """Return the compute cycles of one element of `values` along `r`."""
    costs = costs_of(device)
    order = info.order(values)
    return sum(costs.node(u) for u in order if u.op in ALU and r in info.deps_of([u]))


def outlasts_memory(work: float, itemsize: int, device: DeviceSpec) -> bool:
    """Return whether `work` cycles are at least half the time to load an element from memory."""
    return 2 * work >= itemsize * costs_of(device).levels[-1].cycles


def _rows_of(
    info: Analysis, walks: Sequence[Walk], outer: UOp, device: DeviceSpec
) -> dict[UOp, tuple[int, UOp]]:
    """Return the first access of each PARAM of which every iteration accesses another row.

    The access comes with the index of its loop in `walks`.
    """
    found: dict[UOp, tuple[int, UOp]] = {}
    for number, walk in enumerate(walks):
        loads = info.loads(*walk.values)
        for access in (*loads, *walk.stores):
            source, index = access.src[:2]
            if source.op is not Op.PARAM or (access.op is Op.LOAD and len(access.src) > 2):
                continue
            runs = stride(index, walk.range) == 1 and bool(stride(index, outer))
            if runs and is_beyond(access, device) and is_plain(index):
                found.setdefault(source, (number, access))
    return found


def _longest_array(info: Analysis, walks: Sequence[Walk]) -> int:
    """Return the bytes of the longest row of any local array that `walks` read."""
    return max(
        (
            extent(walk.range) * x.src[0].dtype.itemsize
            for walk in walks
            for x in info.loads(*walk.values)
            if x.src[0].op is Op.LOCAL
        ),
        default=0,
    )
