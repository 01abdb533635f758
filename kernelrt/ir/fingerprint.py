"""A content hash of a graph that is stable across processes."""

from __future__ import annotations

import hashlib

from kernelrt.ir.uop import UOp, toposort

__all__ = ["content", "fingerprint"]


def content(root: UOp) -> str:
    """Write all of a graph down, in the same words in each process.

    BUFFERs have no content, so no graph that holds some has any; kernel ASTs hold none.
    """
    numbers: dict[UOp, int] = {}
    lines = []
    for node in toposort([root]):
        numbers[node] = len(numbers)
        arg = node.arg.hex() if type(node.arg) is float else repr(node.arg)
        src = ",".join([str(numbers[s]) for s in node.src])
        lines.append(f"{node.op.name} {node.dtype.name} {src} {arg}\n")
    return "".join(lines)


def fingerprint(root: UOp) -> str:
    """Sixteen hexadecimal digits that name the content of `root`."""
    return hashlib.blake2b(content(root).encode(), digest_size=8).hexdigest()
