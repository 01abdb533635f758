"""Count the instructions of matrix products for arm64, which needs no arm64 machine.

``python -m bench.instructions`` prints a row for each product: the instructions of its inner loop,
and the greatest fraction of a processor's peak that the loop can reach. This fraction follows from
the number of multiply-adds, loads and instructions that the processor can start in a cycle.
Latencies and caches are left out.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kernelrt import dtype as dt
from kernelrt.device.spec import DeviceSpec
from kernelrt.ir import Op, UOp, const, simplify

if TYPE_CHECKING:
    from kernelrt.dtype import DType

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

__all__ = ["LAYOUTS", "PROCESSORS", "Counts", "Processor", "inner_loop", "product"]

LAYOUTS = ("NN", "NT", "TN")
SIZES = (128, 512)
_MULTIPLY_ADD = r"^(?:fmla|fmls|fmadd)\b"
_LOAD = re.compile(r"\bld\w+")


class Processor(NamedTuple):
    """Issue rates of a processor: how many instructions on 128-bit vectors it starts in a cycle."""

    name: str
    multiply_adds: int
    loads: int
    instructions: int


#: From Arm's Software Optimization Guides; Apple's is measured by others.
PROCESSORS = (
    Processor("Neoverse N1", 2, 2, 4), Processor("Neoverse V1, V2", 4, 3, 8),
    Processor("Apple M1", 4, 3, 8),
)  # fmt: skip


class Counts(NamedTuple):
    """The instructions of an iteration of an inner loop."""

    multiply_adds: int
    loads: int
    spills: int
    instructions: int

    def peak(self, processor: Processor) -> float:
        """Return the greatest fraction of the peak that the loop can reach."""
        least = self.multiply_adds / processor.multiply_adds
        cycles = max(
            least, self.loads / processor.loads, self.instructions / processor.instructions
        )
        return least / cycles


def product(size: int, layout: str, dtype: DType) -> UOp:
    """Return the kernel of a product of square matrices; T is a transposed operand."""
    i, j, t = (UOp(Op.RANGE, dt.int64, (const(size, dt.int64),), n) for n in range(3))
    at = (t * size + i if layout[0] == "T" else i * size + t,
          j * size + t if layout[1] == "T" else t * size + j)  # fmt: skip
    out, *operands = (UOp(Op.PARAM, dtype, (), (slot, size * size)) for slot in range(3))
    a, b = (UOp(Op.LOAD, dtype, (p, simplify(x))) for p, x in zip(operands, at, strict=True))
    total = UOp(Op.REDUCE, dtype, (a * b, t), Op.ADD)
    store = UOp(Op.STORE, dtype, (out, simplify(i * size + j), total))
    return UOp(Op.SINK, dtype, (store,))


def inner_loop(ast: UOp, spec: DeviceSpec) -> Counts:
    """Return the counts of the loop of a kernel with the most multiply-adds."""
    from support.assembly import assembly, count
    from support.assembly import inner_loop as largest

    lines = largest(assembly(ast, spec), _MULTIPLY_ADD)
    return Counts(
        count(lines, _MULTIPLY_ADD),
        sum((2 if x.startswith("ldp\tq") else 1) for x in lines if _LOAD.match(x)),
        sum("[sp" in x for x in lines),
        len(lines),
    )


def main() -> None:
    """Print the table."""
    heads = ["product", "multiply-adds", "loads", "spills", "instructions", "per multiply-add"]
    print("|", " | ".join([*heads, *(p.name for p in PROCESSORS)]), "|")
    print("|---" * (len(heads) + len(PROCESSORS)) + "|")
    for dtype in (dt.float32, dt.float64):
        for size in SIZES:
            for layout in LAYOUTS:
                found = inner_loop(product(size, layout, dtype), DeviceSpec.neon())
                ratio = found.instructions / found.multiply_adds
                cells = [f"{size} {layout} {dtype.name}", found.multiply_adds, found.loads,
                         found.spills, found.instructions, f"{ratio:.2f}"]  # fmt: skip
                peaks = (f"{found.peak(p):.0%}" for p in PROCESSORS)
                print("|", " | ".join(map(str, [*cells, *peaks])), "|")


if __name__ == "__main__":
    main()
