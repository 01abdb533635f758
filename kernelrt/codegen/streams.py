"""Which rows a loop should ask for before it comes to them.

A processor notices by itself that memory is read from one end to the other. It does not notice
steps from page to page, as down the columns of a wide matrix: there each row would be waited for.
What is read again for other elements of the result stays in a cache, and is not asked for.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kernelrt.codegen.analysis import CLOSING, stride
from kernelrt.codegen.tiles import ONE, extent
from kernelrt.device.costs import costs_of
from kernelrt.ir.ops import ALU, Op
from kernelrt.ir.rewrite import substitute
from kernelrt.ir.symbolic import simplify
from kernelrt.ir.uop import const, toposort

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kernelrt.codegen.analysis import Analysis
    from kernelrt.codegen.tiles import Tile
    from kernelrt.device.spec import DeviceSpec
    from kernelrt.ir.uop import UOp

__all__ = [
    "AHEAD",
    "LINE",
    "WAY",
    "Walk",
    "is_plain",
    "next_parts",
    "next_rows",
    "read_after",
    "read_next",
    "rows_ahead",
    "streams",
    "touched_late",
]

#: Elements of the loop between what is asked for and what is read. Of 4, 8, 12 and 16 on a Zen 4,
#: from 8 on as good as any for a row times a matrix of 4096 x 4096 and sums of its columns
#: (`python -m bench.report products rows`). They are fetched to the second cache: the first would
#: be full of them, and both took half as long again. More rows than that has ways would drive each
#: other out where they are powers of two apart.
AHEAD = 8
#: Bytes of a line of the cache.
LINE = 64
#: Bytes after which addresses take the same place in a first cache: it is looked up while the page
#: is, so that a way of it is no larger than a page.
WAY = 4096
#: Vectors of products that one line has to be asked for with, so that asking costs nothing.
_WORTH = 64
#: The same where a line that is not asked for is waited for.
_WORTH_A_ROW = 16
#: Bytes from row to row up to which processors follow by themselves: half of a page, so that two
#: rows are met in each.
_FOLLOWED = 2048
#: What is not known of an index before its turn, or has effects.
_LATE = CLOSING | {Op.LOAD, Op.BOUND}


def is_plain(index: UOp) -> bool:
    """Whether `index` is made of loops and Variables alone, so that it may be computed early."""
    return all(u.op not in _LATE for u in toposort([index]))


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
    if step is None or abs(step) * size < _FOLLOWED or param.arg[1] * size <= device.l1_bytes:
        return False
    along = (q for q in info.deps[x] if tiles.get(q, ONE).lanes > 1)
    return any(stride(x.src[1], q) == 1 for q in along)


def touched_late(
    info: Analysis, stores: Sequence[UOp], innermost: UOp, device: DeviceSpec
) -> tuple[UOp, ...]:
    """LOADs and STOREs of what `stores` are that are to be asked for before it is computed.

    Those of arrays larger than the first cache, of which each turn of the loop over `innermost`
    touches others.
    """
    found: dict[tuple[UOp, UOp], UOp] = {}
    values = [s.src[2] for s in stores if s.src[2] not in info.reduces]
    loads = (x for value in values for x in info.loads(value))
    for access in (*stores, *loads):
        param, index = access.src[:2]
        if param.op is not Op.PARAM or (access.op is Op.LOAD and len(access.src) > 2):
            continue
        deps = info.deps_of([index])
        large = param.arg[1] * param.dtype.itemsize > device.l1_bytes
        known = is_plain(index) and None not in {stride(index, r) for r in deps}
        if large and known and innermost in deps:
            found.setdefault((param, index), access)
    return tuple(found.values())


def read_next(
    info: Analysis,
    values: Sequence[UOp],
    opened: Sequence[UOp],
    closed: Sequence[UOp],
    tiles: Mapping[UOp, Tile],
    device: DeviceSpec,
) -> tuple[UOp, ...]:
    """LOADs of what the sums of `values` read at the next turn of the loop around, and not before.

    They are of one turn of the outermost loop of the sums: an image that a convolution slides over
    is read again and again, but for the row and the column that its window moves on to.

    Parameters
    ----------
    info : Analysis
        The kernel.
    values : sequence of UOp
        What is summed up.
    opened : sequence of UOp
        RANGEs of the loops around, outermost first.
    closed : sequence of UOp
        RANGEs of the sums, outermost first.
    tiles : mapping of UOp to Tile
        Tiles of the ranges that have one.
    device : DeviceSpec
        The target: what its second cache holds needs no asking for.
    """

    def turns(r: UOp) -> int:
        return -(-extent(r) // tiles.get(r, ONE).factor)

    around = [r for r in opened if turns(r) > 1]
    if not around or turns(closed[0]) < 2:
        return ()
    places = math.prod(
        len(tiles.get(r, ONE).positions()) for r in info.deps_of(values) & set(opened)
    )
    inner = math.prod(extent(c) for c in closed[1:]) * tiles.get(closed[0], ONE).factor
    found = []
    for x in dict.fromkeys(x for value in values for x in info.loads(value)):
        read = _first_read(info, x, around, closed, tiles)
        large = x.src[0].op is Op.PARAM and x.src[0].arg[1] * x.dtype.itemsize > device.l2_bytes
        if read is None or not large:
            continue
        lines = math.prod(
            tiles.get(r, ONE).factor
            for r in info.deps[x] & set(opened)
            if abs(stride(x.src[1], r) or 0) * x.dtype.itemsize >= LINE
        )
        if lines * _WORTH <= places * inner:
            found.append(read)
    return tuple(found)


def read_after(
    info: Analysis,
    values: Sequence[UOp],
    opened: Sequence[UOp],
    closed: Sequence[UOp],
    tiles: Mapping[UOp, Tile],
    device: DeviceSpec,
) -> tuple[UOp, ...]:
    """LOADs of what the sums of `values` read in the next tile and in none before.

    They are asked for row by row, as those of this tile are read: of the images that a filter's
    gradient is summed over, each tile reads those of other channels, in runs too short for a
    processor to follow.

    Parameters
    ----------
    info : Analysis
        The kernel.
    values : sequence of UOp
        What is summed up.
    opened : sequence of UOp
        RANGEs of the loops around, outermost first, within one chunk.
    closed : sequence of UOp
        RANGEs of the sums, outermost first; the last one goes along a row.
    tiles : mapping of UOp to Tile
        Tiles of the ranges that have one.
    device : DeviceSpec
        The target: what its second cache holds needs no asking for.
    """
    if len(closed) < 2:
        return ()
    places = math.prod(
        len(tiles.get(r, ONE).positions()) for r in info.deps_of(values) & set(opened)
    )
    found: list[UOp] = []
    for x in dict.fromkeys(x for value in values for x in info.loads(value)):
        if _is_far(x, device) and set(closed[-2:]) <= info.deps[x]:
            most = places * extent(closed[-1]) // _WORTH_A_ROW
            found += _row_after(x, info.deps[x], opened, closed, tiles, most)
    return tuple(found)


def _row_after(
    x: UOp,
    deps: Iterable[UOp],
    opened: Sequence[UOp],
    closed: Sequence[UOp],
    tiles: Mapping[UOp, Tile],
    most: int,
) -> list[UOp]:
    """The LOAD `x` at no more than `most` lines of one turn of the last loop but one, a tile on."""
    steps = {r: stride(x.src[1], r) for r in deps}
    far = {r: abs(step or 0) for r, step in steps.items()}
    if None in steps.values() or min(steps[r] or 0 for r in closed[-2:]) <= 0:
        return []

    def reach(r: UOp) -> int:
        """Elements from the first to the last that is read in one turn of the loop over `r`."""
        return 1 + sum((extent(q) - 1) * far[q] for q in far if q is not r and far[q] <= far[r])

    def is_apart(r: UOp) -> bool:
        """Whether turns of the loop over `r` read nothing of each other's."""
        beyond = (far[q] for q in far if far[q] > far[r])
        return reach(r) <= far[r] and all(far[r] * extent(r) <= step for step in beyond)

    around = [r for r in opened if extent(r) > tiles.get(r, ONE).factor]
    # The innermost of these; that within it goes shares.
    last = next((r for r in reversed(around) if r in far and is_apart(r)), None)
    if last is None:
        return []
    *_, within = (last, *around[around.index(last) + 1 :])
    line = LINE // x.dtype.itemsize
    lines = -(-min(far[closed[-2]], reach(closed[-2])) // line)
    factor, start = tiles.get(last, ONE).factor, const(0, last.dtype)
    if within is not last:
        inner = tiles.get(within, ONE).factor
        lines = -(-lines // -(-extent(within) // inner))
        start = within * (lines * line // inner) if lines * line % inner == 0 else start
    if factor * lines > most:
        return []
    # Where windows slide, each row is asked for by one tap.
    at = {r: const(0, r.dtype) for r in (*opened, closed[-1]) if far.get(r, 0) < far[last]}
    found = []
    for row, number in itertools.product(range(factor), range(lines)):
        [index] = substitute([x.src[1]], {**at, last: last + (factor + row)})
        found.append(x.replace(src=(x.src[0], simplify(index + start + number * line))))
    return found


class _Tiled(NamedTuple):
    """A loop over tiles: its RANGE, elements of one, and how many there are."""

    range: UOp
    factor: int
    trips: int


def next_parts(
    info: Analysis,
    fold: UOp,
    turn: UOp,
    tiles: Sequence[tuple[UOp, Tile]],
    device: DeviceSpec,
) -> tuple[UOp, ...]:
    """LOADs by which the tiles of one turn ask for what the next one copies.

    Copies of a part of a matrix whose rows are pages apart wait for each line, while the products
    that follow leave memory idle. So the lines of the next part are shared out among the tiles.

    Parameters
    ----------
    info : Analysis
        The kernel.
    fold : UOp
        A REDUCE that reads copies, LOCALs, and adds into the elements of an array.
    turn : UOp
        The RANGE of the turns, for each of which the copies are made again.
    tiles : sequence of (UOp, Tile)
        The RANGEs of the array and their tiles, outermost first.
    device : DeviceSpec
        The target: what its second cache holds needs no asking for.

    Returns
    -------
    tuple of UOp
        LOADs at indices that begin with the tile; none where lines and tiles do not come out even.
    """
    loops = [_Tiled(r, tile.factor, extent(r) // tile.factor) for r, tile in tiles]
    several = [loop for loop in loops if loop.trips > 1]
    if not several or any(extent(r) % factor for r, factor, _ in loops):
        return ()
    *outer, inner = several
    found: list[UOp] = []
    for held in dict.fromkeys(x.src[0] for x in info.loads(fold.src[0])):
        if held.op is not Op.LOCAL or turn not in info.deps[held]:
            continue
        for x in info.loads(held.src[0]):
            found += _shares(x, turn, held.src[1:], outer, inner, device)
    return tuple(found)


def _shares(
    x: UOp,
    turn: UOp,
    own: Sequence[UOp],
    outer: Sequence[_Tiled],
    inner: _Tiled,
    device: DeviceSpec,
) -> list[UOp]:
    """The LOAD `x` of a copy over `own`, as the lines that one tile asks for, a turn ahead.

    Each turn of the loops `outer` has some rows, each of the loop `inner` a part of them.
    """
    param = x.src[0]
    size = x.dtype.itemsize
    steps = {r: stride(x.src[1], r) for r in (*own, turn)}
    if not _is_far(x, device) or None in steps.values():
        return []
    run, rows, apart = 1, 1, 0
    for r in sorted(own, key=lambda r: abs(steps[r] or 0)):
        step = steps[r] or 0
        if rows == 1 and step == run:
            run *= extent(r)
        elif rows == 1 or step == apart * rows:
            apart, rows = (step if rows == 1 else apart), rows * extent(r)
        else:
            return []
    line = LINE // size
    of_run, rest = divmod(run, line * inner.trips)
    of_rows, left = divmod(rows, math.prod(loop.trips for loop in outer))
    if rest or left or apart * size < _FOLLOWED:
        return []
    apart_in = {inner: of_run * line}
    far = of_rows * apart
    for loop in reversed(outer):
        apart_in[loop] = far
        far *= loop.trips
    if any(step % loop.factor for loop, step in apart_in.items()):
        return []
    places = {turn: turn + 1, **{r: const(0, r.dtype) for r in own}}
    [start] = substitute([x.src[1]], places)
    for loop, step in apart_in.items():
        start = start + loop.range * (step // loop.factor)
    return [
        x.replace(src=(param, simplify(start + (row * apart + number * line))))
        for row in range(of_rows)
        for number in range(of_run)
    ]


def _is_far(x: UOp, device: DeviceSpec) -> bool:
    """Whether the LOAD `x` is of memory that the second cache does not hold, known beforehand."""
    param = x.src[0]
    if param.op is not Op.PARAM or len(x.src) > 2 or not is_plain(x.src[1]):
        return False
    return bool(param.arg[1] * x.dtype.itemsize > device.l2_bytes)


def _first_read(
    info: Analysis,
    x: UOp,
    around: Sequence[UOp],
    closed: Sequence[UOp],
    tiles: Mapping[UOp, Tile],
) -> UOp | None:
    """The LOAD `x` one turn of the innermost loop around later, where a window moves on."""
    first, last = closed[0], around[-1]
    deps = info.deps[x]
    steps = {r: stride(x.src[1], r) for r in deps}
    if x.src[0].op is not Op.PARAM or len(x.src) > 2 or not {first, last} <= deps:
        return None
    if None in steps.values() or not is_plain(x.src[1]):
        return None
    moves = {abs(steps[r] or 0): steps[r] or 0 for r in around if r in deps}
    if abs(steps[first] or 0) in moves:
        return None
    places = {last: last + tiles.get(last, ONE).factor}
    for c in closed[1:]:
        if c not in deps:
            continue
        step = steps[c] or 0
        if abs(step) not in moves:
            return None
        forward = (step > 0) == (moves[abs(step)] > 0)
        places[c] = const(extent(c) - 1 if forward else 0, c.dtype)
    if len(places) == 1:
        return None
    [index] = substitute([x.src[1]], places)
    return x.replace(src=(x.src[0], simplify(index)))


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
    size = param.dtype.itemsize
    steps = [stride(x.src[1], r) for r in rows]
    if stride(x.src[1], along) != 1 or not all(steps):
        return False
    far = abs(steps[-1] or 0) * size >= _FOLLOWED
    return far and bool(param.arg[1] * size > device.l2_bytes)


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
    costs = costs_of(device)
    work = [
        sum(
            costs.node(u)
            for u in info.order(walk.values)
            if u.op in ALU and walk.range in info.deps_of([u])
        )
        for walk in walks
    ]
    slowest = max(range(len(walks)), key=work.__getitem__)
    rows = _rows_of(info, walks, turn, device)
    if not any(number < slowest for number, _ in rows.values()):
        return 0, ()
    lengths = [extent(walks[n].range) * x.src[0].dtype.itemsize for n, x in rows.values()]
    kept = step * (2 * sum(lengths) + _longest_array(info, walks))
    widest = max(x.src[0].dtype.itemsize for _, x in rows.values())
    near = step * sum(lengths) <= device.l1_bytes
    if near or kept > device.l2_bytes or 2 * work[slowest] < widest * costs.levels[-1].cycles:
        return 0, ()
    found = []
    for number, x in rows.values():
        if x.op is Op.STORE:
            continue
        places = {turn: turn + step, walks[number].range: walks[slowest].range}
        [index] = substitute([x.src[1]], places)
        found.append(x.replace(src=(x.src[0], simplify(index), *x.src[2:])))
    return slowest, tuple(found)


def _rows_of(
    info: Analysis, walks: Sequence[Walk], turn: UOp, device: DeviceSpec
) -> dict[UOp, tuple[int, UOp]]:
    """Arrays in memory of which each turn touches another row: the first access, and its walk."""
    found: dict[UOp, tuple[int, UOp]] = {}
    for number, walk in enumerate(walks):
        loads = (x for value in walk.values for x in info.loads(value))
        for access in (*loads, *walk.stores):
            source, index = access.src[:2]
            if source.op is not Op.PARAM or (access.op is Op.LOAD and len(access.src) > 2):
                continue
            runs = stride(index, walk.range) == 1 and bool(stride(index, turn))
            far = source.arg[1] * source.dtype.itemsize > device.l2_bytes
            if runs and far and is_plain(index):
                found.setdefault(source, (number, access))
    return found


def _longest_array(info: Analysis, walks: Sequence[Walk]) -> int:
    """Bytes of the longest row that is kept between `walks`, beside those in memory."""
    return max(
        (
            extent(walk.range) * x.src[0].dtype.itemsize
            for walk in walks
            for value in walk.values
            for x in info.loads(value)
            if x.src[0].op is Op.LOCAL
        ),
        default=0,
    )
