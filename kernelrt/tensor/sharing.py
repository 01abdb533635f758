"""Memory that code outside of kernelrt can write: its values are taken where they are read.

A lazy tensor reads memory later than the line that makes it. Of memory that kernelrt alone writes
that is never seen, as readers are computed before a write. What is made of an array that somebody
else holds, too, is made of a copy of what the array holds at that line. The graph has both, as for
a value that was computed already: a plan of :func:`kernelrt.prepare` reads the array itself.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from kernelrt.device.buffer import Buffer
from kernelrt.ir import Op
from kernelrt.ir.shape import is_static
from kernelrt.tensor import build, state
from kernelrt.tensor.marks import Kept, is_kept, mark
from kernelrt.tensor.rewriting import below, rewritten

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.device.buffer import Storage
    from kernelrt.ir import UOp
    from kernelrt.tensor.base import TensorBase

__all__ = ["computed", "in_place", "is_shared", "lend", "shared", "taken", "write_now"]

_T = TypeVar("_T", bound="TensorBase")

#: Whether any memory is shared with code outside, as the only element: most programs share none.
shared: list[bool] = [False]


def is_shared(tensor: TensorBase) -> bool:
    """Whether code outside can write the memory of a tensor, or of the root of a view."""
    owner = tensor if tensor._link is None else tensor._link.root
    buffer = owner._memory
    return type(buffer) is Buffer and buffer.allocated and not _is_steady(buffer.storage)


def _is_steady(storage: Storage) -> bool:
    """Whether nobody outside can write to `storage`."""
    if storage.own:
        return True
    lender = storage.lender
    if lender is None:
        return False
    # The array that was wrapped, as bytes: nobody else has that one, but perhaps what it shows.
    owner: Any = lender.obj
    while type(owner) is np.ndarray:
        base = owner.base
        if type(base) is np.ndarray and base.base is None:
            return sys.getrefcount(base) == 3  # by `owner`, `base` and the argument
        owner = base
    return isinstance(owner, bytes)


def lend(tensor: TensorBase) -> None:
    """Compute what waits to read a tensor whose memory is about to be given to code outside."""
    from kernelrt.tensor.realize import before_writes

    shared[0] = True
    buffer = tensor._buffer
    if buffer is not None:
        before_writes([buffer])


def write_now(tensor: TensorBase) -> None:
    """Carry out an assignment to a part of a tensor that was made of its other elements, too.

    Code outside may write to those, which must not have their former values again afterwards.
    """
    from kernelrt.tensor.realize import flush

    if shared[0] and state.local.trace is None and is_shared(tensor):
        flush()


def taken(tensor: TensorBase, node: UOp) -> UOp:
    """`node`, which reads shared memory of `tensor`, with the value that it has now."""
    source = node
    while source.op is not Op.BUFFER:
        if is_kept(source) or not source.src:
            return node
        source = source.src[0]
    buffer = source.arg
    owner = tensor if tensor._link is None else tensor._link.root
    known = getattr(owner, "_taken", None)
    if known is None or known[0] is not buffer or not _is_equal(known[1], buffer):
        copy = Buffer(buffer.size, buffer.dtype)
        copy.content()[...] = buffer.content()
        known = owner._taken = buffer, copy
    value = rewritten([_unmarked(node)], {source: build.memory(known[1])})[0]
    return mark(node, Kept(value, shared=True))


def computed(source: TensorBase, picked: _T) -> _T:
    """`picked`, elements of `source` that an index names, computed now if others can write them.

    A copy of the source may be large, and the index names few of its elements.
    """
    from kernelrt.tensor.realize import materialize

    if shared[0] and state.local.trace is None and is_shared(source) and is_static(picked.dims):
        materialize([picked])
    return picked


def _unmarked(node: UOp) -> UOp:
    """A movement of memory without marks."""
    if node.op is Op.BUFFER:
        return node
    first = _unmarked(node.src[0])
    return first if node.op is Op.DETACH else node.replace(src=(first, *node.src[1:]))


def _is_equal(a: Buffer, b: Buffer) -> bool:
    return bool(np.array_equal(a.content().view(np.uint8), b.content().view(np.uint8)))


def _never(node: UOp) -> bool:
    del node
    return False


def in_place(nodes: Sequence[UOp]) -> list[UOp]:
    """`nodes` with shared memory itself in the place of what was taken of it."""
    put = {
        n: n.src[0] for n in below(nodes, _never)
        if is_kept(n) and n.arg.shared
    }  # fmt: skip
    return rewritten(nodes, put) if put else list(nodes)
