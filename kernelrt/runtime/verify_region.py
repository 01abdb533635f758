"""Verifier of regions: their bodies, ports and memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt import dtype as dt
from kernelrt.errors import PlanBuildError

if TYPE_CHECKING:
    from kernelrt.runtime.buffer_layout import Entry, Layout
    from kernelrt.runtime.plan import ExecutionPlan
    from kernelrt.runtime.plan_ops import PortBinding, PreparedRegion

__all__ = ["check_places", "check_region", "sites"]


def check_region(op: PreparedRegion) -> None:
    """Check all that can be told without the plan that the region is in.

    Raises
    ------
    PlanBuildError
        Naming what does not fit.
    """
    label = op.label
    if not op.bodies:
        raise PlanBuildError(f"{label}: bodies: there is none; give at least one plan")
    if op.count < 0:
        raise PlanBuildError(f"{label}: count: expected at least 0 turns, not {op.count}")
    if (op.choice_slot >= 0) != (len(op.bodies) > 1):
        raise PlanBuildError(
            f"{label}: choice_slot is {op.choice_slot} and there are {len(op.bodies)} bodies; "
            "one of several is chosen by a buffer, a single one without"
        )
    places = range(len(op.buffer_indices))
    for what, slots in (
        ("count_slot", [op.count_slot]),
        ("condition_slot", [op.condition_slot]),
        ("choice_slot", [op.choice_slot]),
        ("bindings", [b.slot for b in op.bindings]),
    ):
        if bad := [slot for slot in slots if slot != -1 and slot not in places]:
            raise PlanBuildError(
                f"{label}: {what}: {bad[0]} is neither -1 nor a position in its {len(places)} "
                "buffers"
            )
    for what, slots in (
        ("output_indices", list(op.output_indices)),
        ("copies", [slot for dst, src, _ in op.copies for slot in (dst, src)]),
    ):
        if bad := [slot for slot in slots if slot not in places]:
            raise PlanBuildError(
                f"{label}: {what}: {bad[0]} is no position in its {len(places)} buffers"
            )
    for number, body in enumerate(op.bodies):
        _check_body(op, number, body)


def _check_body(op: PreparedRegion, number: int, body: ExecutionPlan) -> None:
    who = f"{op.label}: body {number}"
    if body.variables:
        names = ", ".join(body.variables)
        raise PlanBuildError(
            f"{who} has the variables {names}; give them values by fixedvars, or pass what depends "
            "on them through ports"
        )
    if body.preparation is not None:
        raise PlanBuildError(f"{who} has a preparation, which only a plan of its own can run")
    if written := body.state:
        raise PlanBuildError(
            f"{who} writes to a buffer of {written[0].size} {written[0].dtype.name} that was given "
            "to it; let it write to a port, and bind that to the buffer"
        )
    ports = set(body.ports)
    bound = [b for b in op.bindings if b.body == number]
    for binding in bound:
        if binding.buffer not in ports:
            raise PlanBuildError(
                f"{who}: bindings: buffer {binding.buffer} is no port, or comes twice; its ports "
                f"are {sorted(body.ports)}"
            )
        ports.remove(binding.buffer)
    if ports:
        raise PlanBuildError(
            f"{who}: bindings: port {min(ports)} is bound to nothing; each port needs a binding"
        )


def check_places(op: PreparedRegion, layout: Layout) -> None:
    """Check that what a region reads and writes lies within the buffers of its plan.

    Raises
    ------
    PlanBuildError
        A port leaves its buffer in some turn or has another type, a buffer is too small for what
        is read there, or a body writes to bytes that it takes for those of another port.
    """
    entries = [layout.entries[i] for i in op.buffer_indices]
    for what, slot, dtype in (
        ("count_slot", op.count_slot, dt.int64),
        ("condition_slot", op.condition_slot, dt.bool_),
        ("choice_slot", op.choice_slot, dt.int64),
    ):
        if slot >= 0 and (entries[slot].dtype is not dtype or not entries[slot].size):
            raise PlanBuildError(
                f"{op.label}: {what}: expected a buffer of {dtype.name}, not of "
                f"{entries[slot].size} {entries[slot].dtype.name}"
            )
    for dst, src, nbytes in op.copies:
        most = min(entries[dst].nbytes, entries[src].nbytes)
        if not 0 <= nbytes <= most:
            raise PlanBuildError(
                f"{op.label}: copies: {nbytes} bytes from slot {src} to slot {dst}; the smaller "
                f"has {most}"
            )
    needed = {dst for dst, _, _ in op.copies}
    for binding in op.bindings:
        _check_binding(op, binding, entries)
        if binding.slot >= 0 and op.bodies[binding.body].writes_to(binding.buffer):
            needed.add(binding.slot)
    if missing := needed.difference(op.output_indices):
        raise PlanBuildError(
            f"{op.label}: output_indices: slot {min(missing)} is written, and not among them"
        )
    for number, body in enumerate(op.bodies):
        _check_apart(op, [b for b in op.bindings if b.body == number and b.slot >= 0], body, layout)


def _check_binding(op: PreparedRegion, binding: PortBinding, entries: list[Entry]) -> None:
    port = op.bodies[binding.body].port(binding.buffer)
    who = f"{op.label}: bindings: port {binding.buffer} of body {binding.body}"
    if binding.slot < 0:
        if port.dtype is not dt.int64 or port.size != 1 or binding.stride:
            raise PlanBuildError(
                f"{who}: the number of the turn is 1 int64 without a stride, not {port.size} "
                f"{port.dtype.name} with stride {binding.stride}"
            )
        return
    entry = entries[binding.slot]
    if port.dtype is not entry.dtype:
        raise PlanBuildError(
            f"{who} holds {port.dtype.name}, slot {binding.slot} {entry.dtype.name}"
        )
    reach = binding.stride * max(op.count - 1, 0)
    if binding.stride % port.dtype.itemsize or reach < 0 or reach + port.nbytes > entry.nbytes:
        raise PlanBuildError(
            f"{who} has {port.nbytes} bytes and stride {binding.stride}; in {op.count} turns it "
            f"leaves the {entry.nbytes} bytes of slot {binding.slot}, or is not aligned"
        )


def _check_apart(
    op: PreparedRegion, bindings: list[PortBinding], body: ExecutionPlan, layout: Layout
) -> None:
    """Check that no port that a body writes shares bytes with another one in the same turn."""
    places = []
    for b in bindings:
        start = layout.region(op.buffer_indices[b.slot])
        places.append((b, start.part(0, body.port(b.buffer).nbytes)))
    for b, here in places:
        if not body.writes_to(b.buffer):
            continue
        for other, there in places:
            if other is b or here.storage is not there.storage or not op.count:
                continue
            # They meet in turn t where -here.nbytes < apart + t * drift < there.nbytes.
            apart, drift = here.start - there.start, b.stride - other.stride
            ends = sorted((apart, apart + drift * (op.count - 1)))
            if ends[1] <= -here.nbytes or ends[0] >= there.nbytes:
                continue
            if any(-here.nbytes < apart + t * drift < there.nbytes for t in range(op.count)):
                raise PlanBuildError(
                    f"{op.label}: bindings: port {b.buffer}, which its body writes, shares bytes "
                    f"with port {other.buffer}; make them one port, or bind them apart"
                )


def sites(op: PreparedRegion) -> list[tuple[int, int, int, int, int, int]]:
    """List what the C table is told of ports.

    Returns
    -------
    list of tuple
        Body, op and slot there, the region's slot (-1: the number of the turn), offset, stride.
    """
    return [
        (b.body, place, at, b.slot, offset, b.stride)
        for b in op.bindings
        for place, at, offset in op.bodies[b.body].sites(b.buffer)
    ]
