"""Verifier of control-flow regions: bodies, ports and memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt import dtype as dt
from kernelrt.errors import PlanBuildError

if TYPE_CHECKING:
    from kernelrt.runtime.buffer_layout import Entry, Layout
    from kernelrt.runtime.plan import ExecutionPlan
    from kernelrt.runtime.plan_ops import PortBinding, PreparedRegion

__all__ = ["check_ranges", "check_region", "sites"]


def check_region(op: PreparedRegion) -> None:
    """Check everything about a region that does not depend on the plan that contains it.

    Raises
    ------
    PlanBuildError
        The region breaks a rule; the message names it.
    """
    label = op.label
    if not op.bodies:
        raise PlanBuildError(f"{label}: bodies: expected at least one plan, got none")
    if op.count < 0:
        raise PlanBuildError(f"{label}: count: expected at least 0 iterations, not {op.count}")
    if (op.choice_slot >= 0) != (len(op.bodies) > 1):
        raise PlanBuildError(
            f"{label}: choice_slot is {op.choice_slot}, and the number of bodies is "
            f"{len(op.bodies)}; several bodies need a choice_slot, and a single body must have none"
        )
    positions = range(len(op.buffer_indices))
    for what, slots in (
        ("count_slot", [op.count_slot]),
        ("condition_slot", [op.condition_slot]),
        ("choice_slot", [op.choice_slot]),
        ("bindings", [b.slot for b in op.bindings]),
    ):
        if bad := [slot for slot in slots if slot != -1 and slot not in positions]:
            raise PlanBuildError(
                f"{label}: {what}: {bad[0]} is neither -1 nor a position in its {len(positions)} "
                "buffers"
            )
    for what, slots in (
        ("output_indices", list(op.output_indices)),
        ("copies", [slot for dst, src, _ in op.copies for slot in (dst, src)]),
    ):
        if bad := [slot for slot in slots if slot not in positions]:
            raise PlanBuildError(
                f"{label}: {what}: {bad[0]} is not a position in its {len(positions)} buffers"
            )
    for number, body in enumerate(op.bodies):
        _check_body(op, number, body)


def _check_body(op: PreparedRegion, number: int, body: ExecutionPlan) -> None:
    who = f"{op.label}: body {number}"
    if body.variables:
        names = ", ".join(body.variables)
        raise PlanBuildError(
            f"{who} has the variables {names}; set them with fixedvars, or pass values that depend "
            "on them through ports"
        )
    if body.preparation is not None:
        raise PlanBuildError(
            f"{who} has a preparation; a plan with a preparation cannot be the body of a region"
        )
    if written := body.state:
        raise PlanBuildError(
            f"{who} writes to a buffer that it was given ({written[0].size} "
            f"{written[0].dtype.name}); let the body write to a port, and bind the port to the "
            "buffer"
        )
    ports = set(body.ports)
    bound = [b for b in op.bindings if b.body == number]
    for binding in bound:
        if binding.buffer not in ports:
            raise PlanBuildError(
                f"{who}: bindings: buffer {binding.buffer} is not a port, or is bound twice; "
                f"bind each of the ports {sorted(body.ports)} once"
            )
        ports.remove(binding.buffer)
    if ports:
        raise PlanBuildError(
            f"{who}: bindings: port {min(ports)} has no binding; bind each port once"
        )


def check_ranges(op: PreparedRegion, layout: Layout) -> None:
    """Check that a region reads and writes only bytes within the buffers of its plan.

    Raises
    ------
    PlanBuildError
        A port exceeds its buffer in some iteration, or has another dtype. Or a buffer is too small
        for the value that the region reads from it. Or a port that a body writes overlaps another
        port.
    """
    entries = [layout.entries[i] for i in op.buffer_indices]
    for what, slot, dtype in (
        ("count_slot", op.count_slot, dt.int64),
        ("condition_slot", op.condition_slot, dt.bool_),
        ("choice_slot", op.choice_slot, dt.int64),
    ):
        if slot >= 0 and (entries[slot].dtype is not dtype or not entries[slot].size):
            raise PlanBuildError(
                f"{op.label}: {what}: expected a buffer of dtype {dtype.name} with at least one "
                f"element, not of dtype {entries[slot].dtype.name} with {entries[slot].size}"
            )
    for dst, src, nbytes in op.copies:
        most = min(entries[dst].nbytes, entries[src].nbytes)
        if not 0 <= nbytes <= most:
            raise PlanBuildError(
                f"{op.label}: copies: cannot copy {nbytes} bytes from slot {src} to slot {dst}; "
                f"expected 0 to {most}, the size of the smaller buffer"
            )
    needed = {dst for dst, _, _ in op.copies}
    for binding in op.bindings:
        _check_binding(op, binding, entries)
        if binding.slot >= 0 and op.bodies[binding.body].writes_to(binding.buffer):
            needed.add(binding.slot)
    if missing := needed.difference(op.output_indices):
        raise PlanBuildError(
            f"{op.label}: output_indices: slot {min(missing)} is written, but missing; add the slot"
        )
    for number, body in enumerate(op.bodies):
        bindings = [b for b in op.bindings if b.body == number and b.slot >= 0]
        _check_disjoint(op, bindings, body, layout)


def _check_binding(op: PreparedRegion, binding: PortBinding, entries: list[Entry]) -> None:
    port = op.bodies[binding.body].port(binding.buffer)
    who = f"{op.label}: bindings: port {binding.buffer} of body {binding.body}"
    if binding.slot < 0:
        if port.dtype is not dt.int64 or port.size != 1 or binding.stride:
            raise PlanBuildError(
                f"{who}: expected a port of 1 int64 with stride 0 for the iteration number, not "
                f"{port.size} {port.dtype.name} with stride {binding.stride}"
            )
        return
    entry = entries[binding.slot]
    if port.dtype is not entry.dtype:
        raise PlanBuildError(
            f"{who}: expected a buffer of {port.dtype.name}, not slot {binding.slot} of "
            f"{entry.dtype.name}"
        )
    reach = binding.stride * max(op.count - 1, 0)
    if binding.stride % port.dtype.itemsize or reach < 0 or reach + port.nbytes > entry.nbytes:
        raise PlanBuildError(
            f"{who} has {port.nbytes} bytes and stride {binding.stride}; in {op.count} iterations "
            f"it exceeds the {entry.nbytes} bytes of slot {binding.slot} or is misaligned; bind a "
            "larger buffer, or use another stride"
        )


def _check_disjoint(
    op: PreparedRegion, bindings: list[PortBinding], body: ExecutionPlan, layout: Layout
) -> None:
    """Check that no port that a body writes overlaps another port in the same iteration."""
    ranges = []
    for b in bindings:
        start = layout.region(op.buffer_indices[b.slot])
        ranges.append((b, start.part(0, body.port(b.buffer).nbytes)))
    for b, here in ranges:
        if not body.writes_to(b.buffer):
            continue
        for other, there in ranges:
            if other is b or here.storage is not there.storage or not op.count:
                continue
            # The ports overlap in iteration t if -here.nbytes < distance + t * drift <
            # there.nbytes.
            distance, drift = here.start - there.start, b.stride - other.stride
            ends = sorted((distance, distance + drift * (op.count - 1)))
            if ends[1] <= -here.nbytes or ends[0] >= there.nbytes:
                continue
            if any(-here.nbytes < distance + t * drift < there.nbytes for t in range(op.count)):
                raise PlanBuildError(
                    f"{op.label}: bindings: port {b.buffer}, which its body writes, shares bytes "
                    f"with port {other.buffer}; use one port, or bind disjoint bytes"
                )


def sites(op: PreparedRegion) -> list[tuple[int, int, int, int, int, int]]:
    """List the addresses in the C tables of the bodies that bindings set.

    Returns
    -------
    list of tuple
        (body, op and slot in the body, the region's slot or -1 for the iteration number, offset,
        stride).
    """
    return [
        (b.body, op_index, at, b.slot, offset, b.stride)
        for b in op.bindings
        for op_index, at, offset in op.bodies[b.body].sites(b.buffer)
    ]
