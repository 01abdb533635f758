"""Loop unrolling: one iteration does the work of several."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt.tensor.autograd.tags import rewritten
from kernelrt.tensor.nodes import build
from kernelrt.tensor.tracing import region_graphs
from kernelrt.tensor.tracing.region_graphs import slot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.ir import UOp
    from kernelrt.tensor.tracing.region_graphs import Slot

__all__ = ["unrolled"]


def unrolled(
    carried: Sequence[tuple[Slot, UOp, UOp]],
    sliced: Sequence[tuple[Slot, UOp]],
    rows: Sequence[UOp],
    turns: int,
    many: int,
    *,
    since: int,
    reverse: bool = False,
    checkpoint: bool = False,
) -> tuple[list[UOp], list[UOp]]:
    """Build a loop like :func:`.region_graphs.loop`, unrolled by the factor `many`.

    The remaining iterations form a second loop of one iteration, which runs last.
    """
    low = turns % many if reverse else 0
    parts = [(low, low + turns // many * many, many)]
    if turns % many:
        rest = (0, low) if reverse else (parts[0][1], turns)
        parts.append((*rest, turns % many))
    firsts = [first for _, first, _ in carried]
    stacks: list[list[UOp]] = []
    for begin, end, count in parts:
        slots, news, made = _unrolled_body(carried, sliced, rows, count, reverse=reverse)
        wholes = [
            build.reshape(
                build.shrink(whole, [(begin, end), *((0, d) for d in whole.shape[1:])]),
                ((end - begin) // count, *wide.shape),
            )
            for (_, whole), wide in zip(sliced, slots, strict=True)
        ]
        own = [s for s, *_ in carried]
        firsts, found = region_graphs.loop(
            list(zip(own, firsts, news, strict=True)), list(zip(slots, wholes, strict=True)), made,
            (end - begin) // count, since=since, reverse=reverse, checkpoint=checkpoint,
        )  # fmt: skip
        stacks.append([
            build.reshape(s, (end - begin, *row.shape))
            for s, row in zip(found, rows, strict=True)
        ])
    sequential = reversed(stacks) if reverse else stacks
    return firsts, [build.cat(column, 0) for column in zip(*sequential, strict=True)]


def _unrolled_body(
    carried: Sequence[tuple[Slot, UOp, UOp]],
    sliced: Sequence[tuple[Slot, UOp]],
    rows: Sequence[UOp],
    count: int,
    *,
    reverse: bool,
) -> tuple[list[Slot], list[UOp], list[UOp]]:
    """Return placeholders of `count` slices, and the carries and rows after `count` iterations."""
    wides = [slot((count, *s.shape), s.node.dtype) for s, _ in sliced]
    now = [s.node for s, *_ in carried]
    graphs = [*(new for *_, new in carried), *rows]
    found: dict[int, list[UOp]] = {}
    for k in reversed(range(count)) if reverse else range(count):
        put = {
            s.memory: build.reshape(value, s.memory.shape)
            for (s, *_), value in zip(carried, now, strict=True)
        }
        for (s, _), wide in zip(sliced, wides, strict=True):
            row = build.shrink(wide.node, [(k, k + 1), *((0, d) for d in s.shape)])
            put[s.memory] = build.reshape(row, s.memory.shape)
        made = rewritten(graphs, put)
        now, found[k] = made[: len(now)], made[len(now) :]
    columns = zip(*(found[k] for k in range(count)), strict=True)
    lifted = [[build.reshape(r, (1, *r.shape)) for r in column] for column in columns]
    return wides, now, [build.cat(column, 0) for column in lifted]
