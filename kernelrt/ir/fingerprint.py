"""A content hash of a graph that is stable across processes."""

from __future__ import annotations

import hashlib

from kernelrt.ir.uop import UOp, toposort

__all__ = ["fingerprint"]


def fingerprint(root: UOp) -> str:
    """Sixteen hexadecimal digits that name the content of `root`.

    BUFFERs have no content, so a graph that holds some has no fingerprint; kernel ASTs hold none.
    """
    numbers: dict[UOp, int] = {}
    digest = hashlib.blake2b(digest_size=8)
    for node in toposort([root]):
        numbers[node] = len(numbers)
        arg = node.arg.hex() if type(node.arg) is float else repr(node.arg)
        src = ",".join(str(numbers[s]) for s in node.src)
        digest.update(f"{node.op.name} {node.dtype.name} {src} {arg}\n".encode())
    return digest.hexdigest()
