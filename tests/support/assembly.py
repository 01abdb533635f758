"""Assembly of kernels for any target, which need not be able to run here, and its inner loops."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from surface.rows import draw, leaves, sizes

import kernelrt as krt
from kernelrt.backend.cpu import LLVMCompiler
from kernelrt.backend.llvm import LLVMRenderer
from kernelrt.ir.routine import is_call
from kernelrt.schedule import KernelItem, schedule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from surface.rows import Row

    from kernelrt.device.spec import DeviceSpec
    from kernelrt.dtype import DType
    from kernelrt.ir import UOp

_LABEL = re.compile(r"(\.?L\w+):")
_INSTRUCTION = re.compile(r"\t([a-z{].*)")  # "{vex}" may precede it
#: Of x86-64 and of arm64; the label is the last operand.
_JUMP = re.compile(r"(?:j\w+|b|b\.\w+|cbn?z|tbn?z)\s+(?:[^/#]*, ?(?:#\d+, )?)?(\.?L\w+)\b")


def assembly(ast: UOp, spec: DeviceSpec) -> str:
    """Return the assembly of a kernel for a target."""
    program = LLVMRenderer(spec).render(ast)
    return LLVMCompiler(spec).assembly(program.name, program.src)


def inner_loops(text: str) -> list[list[str]]:
    """Return the instructions of the loops of `text` that have no label but their own.

    LLVM's comments stay, as "32-byte Spill".
    """
    found = []
    label, body = "", list[str]()
    for line in text.splitlines():
        if start := _LABEL.match(line):
            label, body = start[1], []
        elif instruction := _INSTRUCTION.match(line):
            body.append(instruction[1])
            jump = _JUMP.match(instruction[1])
            if jump and jump[1] == label:
                found.append(body)
                label, body = "", []
    return found


def inner_loop(text: str, word: str) -> list[str]:
    """Return the inner loop of `text` with the most instructions that match the pattern `word`."""
    return max(inner_loops(text), key=lambda lines: count(lines, word))


def count(lines: list[str], word: str) -> int:
    """Return how many of `lines` match the pattern `word` somewhere."""
    return sum(re.search(word, line) is not None for line in lines)


def kernels_of(row: Row, spec: DeviceSpec, dtype: DType = krt.float32) -> Iterator[UOp]:
    """Yield the kernels of a row of the surface tables as they are scheduled for a target.

    Floating-point operands are of `dtype`.
    """
    arrays = draw(row, sizes(row))
    tensors = [krt.tensor(a, dtype=dtype if a.dtype.kind == "f" else None) for a in arrays]
    out = [t.uop for t in leaves(row.call(krt, *tensors)) if isinstance(t, krt.Tensor)]
    for item in schedule(out, device=spec).items:
        if isinstance(item, KernelItem) and not is_call(item.ast):
            yield item.ast
