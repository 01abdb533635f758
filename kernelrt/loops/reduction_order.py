"""Reduction order: a key of the order in which a tiling adds the terms of floating-point sums.

If two tilings of a kernel have equal keys, the kernel's results have equal bits. The order of a sum
follows from the tiles of its reduced RANGEs and from the number of accumulators. This number
depends on how many results one iteration computes. Tilings that add in the same order get equal
keys only if this module recognizes the order; otherwise their keys differ. All other values of a
kernel round the same in every tiling.
"""

from __future__ import annotations

import itertools
import json
import math
from typing import TYPE_CHECKING, Any

from kernelrt.ir.ops import Op
from kernelrt.loops.loop_ir import Loop, Pass, Step
from kernelrt.loops.tiles import extent, is_fixed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kernelrt.ir.uop import UOp
    from kernelrt.loops.loop_ir import Item, LoopNest

    Loops = Mapping[UOp, Loop]

__all__ = ["order_of_sums"]


def order_of_sums(nest: LoopNest) -> str:
    """Return the key of `nest`. Nests of one kernel with equal keys give bitwise equal results.

    Integer sums wrap, so their order does not matter. A MAX or MIN of floats also depends on the
    order: 0.0 and -0.0 compare equal, so the result is the one that comes first.
    """
    keys = {json.dumps(key, separators=(",", ":")) for key in _keys(nest.body, {})}
    return "\n".join(sorted(keys))


def _keys(items: Sequence[Item], opened: Loops) -> Iterator[Any]:
    """Yield the keys of the sums in `items`, under the loops `opened`, outermost first."""
    for item in items:
        if isinstance(item, Loop):
            yield from _keys(item.body, {**opened, item.range: item})
        elif isinstance(item, Pass):
            inside = {loop.range: loop for loop in item.loops()}
            if item.kept:
                [fold] = item.folds
                visits = _visits([inside[r] for r in fold.src[1:]], 1)
                yield [[int(r.arg) for r in fold.src[1:]], [], [visits]]
            elif any(u.dtype.is_float for u in item.folds):
                yield [[int(r.arg) for r in item.closed], *_of_pass(item, opened, inside)]
            for at, loop in enumerate(inside.values(), 1):
                around = dict(itertools.islice(inside.items(), at))
                yield from _keys(loop.body[:-1], {**opened, **around})
        elif isinstance(item, Step):
            for store in item.nodes:
                if store.op is Op.STORE and store.arg is not None and store.dtype.is_float:
                    yield ["store", int(store.src[0].arg[0]), *_tiles(opened.values())]


def _tiles(loops: Any) -> list[list[int]]:
    """Return the tiles of `loops`; used for loops that have no more general key."""
    return [
        [int(loop.range.arg), loop.tile.factor, loop.tile.lanes, _share(loop)] for loop in loops
    ]


def _share(loop: Loop) -> int:
    """Return the chunk size, or 0 for a constant extent, whose chunks are always whole tiles."""
    return 0 if is_fixed(loop.range) else loop.share


def _of_pass(item: Pass, opened: Loops, inside: Loops) -> list[Any]:
    """Return the key of a pass: the order of each result's sum, by part of the enclosing loops."""
    around = [opened[r] for r in item.outer]
    if sum(loop.tile.lanes > 1 for loop in around) > 1:
        # Which of the vectors are computed lane by lane depends on the part of each loop.
        return ["raw", _tiles(around), _tiles(inside.values())]
    counts = [_results(loop, lone=item.vector is not None) for loop in around]
    copies = {
        at: item.copies(
            len(item.folds) * math.prod(c[i] for c, i in zip(counts, at, strict=True))
        )
        for at in itertools.product(*(range(len(c)) for c in counts))
    }
    seen = [i for i in range(len(around)) if _matters(copies, i)]
    parts = sorted({tuple(at[i] for i in seen): n for at, n in copies.items()}.items())
    loops = list(inside.values())
    return [[_boundary(around[i]) for i in seen], [_visits(loops, n) for _, n in parts]]


def _results(loop: Loop, *, lone: bool) -> list[int]:
    """Return the number of points of the tile in each part of `loop`; with `lone`, of elements."""
    return [p.tile.factor if lone else len(p.tile.positions()) for p in loop.parts]


def _matters(copies: dict[tuple[int, ...], int], axis: int) -> bool:
    """Return whether the parts of the loop at `axis` differ in the number of accumulators."""
    return any(n != copies[*at[:axis], 0, *at[axis + 1 :]] for at, n in copies.items())


def _boundary(loop: Loop) -> Any:
    """Return a key of where the parts of a loop begin and end."""
    if is_fixed(loop.range):
        factor = loop.tile.factor
        return [int(loop.range.arg), extent(loop.range) // factor * factor]
    return _tiles([loop])


def _visits(closed: Sequence[Loop], copies: int) -> Any:
    """Return a key of the order in which `copies` accumulators visit the elements of a result."""
    loops = [loop for loop in closed if not is_fixed(loop.range) or extent(loop.range) > 1]
    lanes = [[int(w.range.arg), w.tile.lanes] for w in loops if w.tile.lanes > 1]
    steps = [len(loop.tile.positions()) for loop in loops]
    unrolled = next((i for i, count in enumerate(steps) if count > 1), None)
    blocks = [[int(loop.range.arg), loop.block] for loop in loops if loop.block]
    if blocks:
        return ["in blocks", copies, blocks, _tiles(loops)]
    if _in_order(loops, steps):
        if copies == 1 or unrolled is None:
            return ["in order", lanes]
        even = math.prod(steps) % copies == 0 or _is_whole(loops[unrolled])
        if even and all(is_fixed(loop.range) for loop in loops[unrolled:]):
            return ["in turn", copies, int(loops[unrolled].range.arg), lanes]
    return ["raw", copies, _tiles(loops)]


def _in_order(loops: Sequence[Loop], steps: Sequence[int]) -> bool:
    """Return whether unrolling keeps the order of vectors, and only the last one is not full."""
    for i, loop in enumerate(loops):
        if steps[i] > 1 and not all(map(_is_whole, loops[i + 1 :])):
            return False
        if loop.tile.factor % loop.tile.lanes and not _is_whole(loop):
            return False
    return True


def _is_whole(loop: Loop) -> bool:
    """Return whether one tile covers the whole loop."""
    return is_fixed(loop.range) and loop.tile.factor >= extent(loop.range)
