"""``kernelrt calibrate``: measures the numbers of the cost model on this machine."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import kernelrt as krt
from kernelrt.cli.measure import TYPES, measure, ops_of
from kernelrt.device.costs import costs_of
from kernelrt.device.spec import machine, named

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernelrt.device.spec import DeviceSpec

__all__ = ["built_in", "run"]


def run(target: str, *, as_json: bool) -> int:
    """Measure and print the numbers. The result changes no plan: plans use the built-in numbers.

    Parameters
    ----------
    target : str
        Key of :data:`~kernelrt.device.spec.TARGETS`, or native for this machine.
    as_json : bool
        Whether to print one JSON object instead of a table.

    Raises
    ------
    DeviceError
        This machine cannot run code for `target`.
    """
    here = machine()
    spec = replace(
        named(target, here, "--target"),
        l1_bytes=here.l1_bytes, l2_bytes=here.l2_bytes, l3_bytes=here.l3_bytes,
    )  # fmt: skip
    report = {
        "kernelrt": krt.__version__,
        "cpu": here.cpu,
        "vector_bits": spec.vector_bits,
        "measured": measure(spec),
        "built_in": built_in(spec),
    }
    print(json.dumps(report, indent=2) if as_json else "\n".join(_lines(report)))
    return 0


def built_in(spec: DeviceSpec) -> dict[str, Any]:
    """Return the built-in numbers for `spec`, in the form of :func:`measure`."""
    costs = costs_of(spec)
    ops: dict[str, dict[str, float]] = {}
    for d in TYPES:
        for op in ops_of(d, spec):
            ops.setdefault(op.name, {})[d.name] = costs.vector(op, d)
    return {
        "ghz": costs.ghz,
        "call": costs.call,
        "loop": costs.loop,
        "hand_over": costs.hand_over,
        "wake": costs.wake,
        "bytes": {level.name: level.cycles for level in costs.levels},
        "ops": ops,
    }


def _lines(report: dict[str, Any]) -> Iterator[str]:
    measured, known = report["measured"], report["built_in"]
    yield f"kernelrt {report['kernelrt']}, {report['cpu']}, vectors of {report['vector_bits']} bits"
    yield ""
    yield f"{'':<28}{'measured':>10}{'built in':>10}"
    titles = {
        "ghz": "clock, GHz", "call": "kernel, cycles", "loop": "inner loop, cycles",
        "hand_over": "hand-over, cycles", "wake": "waking a thread, cycles",
    }  # fmt: skip
    for key, title in titles.items():
        yield f"{title:<28}{measured[key]:>10.2f}{known[key]:>10.2f}"
    for level in measured["bytes"]:
        found, assumed = measured["bytes"][level], known["bytes"][level]
        yield f"{f'byte in {level}, cycles':<28}{found:>10.4f}{assumed:>10.4f}"
    yield ""
    yield "cycles per vector, measured (built in)"
    names = [d.name for d in TYPES]
    yield f"{'':<10}" + "".join(f"{name:>18}" for name in names)
    for op, row in measured["ops"].items():
        cells = (
            f"{row[d]:.2f} ({known['ops'][op][d]:.2f})" if d in row else "" for d in names
        )
        yield f"{op:<10}" + "".join(f"{cell:>18}" for cell in cells)
