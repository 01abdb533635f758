"""Content hash of a graph that is stable across processes."""

from __future__ import annotations

import hashlib

from kernelrt.ir.uop import UOp, toposort

__all__ = ["content", "fingerprint"]


def content(root: UOp) -> str:
    """Return a text of the whole graph that is the same in every process.

    The graph must contain no BUFFERs, which have no content; kernel ASTs contain none.
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
    """Return a hash of the content of `root` as sixteen hexadecimal digits."""
    return hashlib.blake2b(content(root).encode(), digest_size=8).hexdigest()
