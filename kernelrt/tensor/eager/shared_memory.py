"""Memory that code outside kernelrt can write, such as an array passed to :func:`from_numpy`.

A lazy tensor reads memory when it is computed, later than the line that creates it. kernelrt
computes readers before it writes memory itself, but does not see writes from outside. So an
operation on shared memory reads a copy that is made at its line. No copy is made if nobody else
holds the array. The graph has both the copy and the memory, and a plan of :func:`kernelrt.prepare`
reads the memory.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from kernelrt.device.buffer import Buffer
from kernelrt.ir import Op, toposort
from kernelrt.ir.shape import is_static
from kernelrt.tensor import state
from kernelrt.tensor.autograd.tags import Kept, below, is_kept, mark, rewritten
from kernelrt.tensor.nodes import build
from kernelrt.util.lazy_import import Module

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kernelrt.device.buffer import Storage
    from kernelrt.ir import UOp
    from kernelrt.tensor.base import TensorBase
    from kernelrt.tensor.eager import realize
else:
    realize = Module("kernelrt.tensor.eager.realize")

__all__ = [
    "compute_readers",
    "computed",
    "in_place",
    "is_shared",
    "lend",
    "shared",
    "taken",
    "write_now",
]

_T = TypeVar("_T", bound="TensorBase")

#: The only element is True once this process has shared memory with other code. Before, no tensor
#: is checked.
shared: list[bool] = [False]


def is_shared(tensor: TensorBase) -> bool:
    """Return whether outside code can write the memory of a tensor or of a view's root."""
    owner = tensor if tensor._link is None else tensor._link.root
    return _is_outside(owner._memory)


def _is_outside(memory: object) -> bool:
    return type(memory) is Buffer and memory.allocated and not _is_steady(memory.storage)


def _is_steady(storage: Storage) -> bool:
    """Return whether no outside code can write to `storage`."""
    if storage.own:
        return True
    lender = storage.lender
    if lender is None or storage.shared:
        return False
    # A byte array that from_numpy made; its base is the user's array.
    owner: Any = lender.obj
    while type(owner) is np.ndarray:
        base = owner.base
        if type(base) is np.ndarray and base.base is None:
            return sys.getrefcount(base) == 3  # `owner`, `base` and the argument refer to it
        owner = base
    return isinstance(owner, bytes)


def lend(tensor: TensorBase) -> None:
    """Compute the lazy readers of a tensor before its memory is given to outside code."""
    shared[0] = True
    buffer = tensor._buffer
    if buffer is not None:
        realize.before_writes([buffer])


def write_now(targets: Iterable[TensorBase]) -> None:
    """Carry out assignments to shared memory, if some of `targets` are in shared memory.

    Then outside code sees the values, and its later writes are not overwritten.
    """
    if shared[0] and state.local.trace is None and any(map(is_shared, targets)):
        realize.flush_some(is_shared)


def compute_readers(results: Iterable[TensorBase]) -> None:
    """Compute those `results` that read shared memory itself, not a copy: loops and branches do."""
    if not shared[0] or state.local.trace is not None:
        return
    owners = (t if t._link is None else t._link.root for t in results)
    lazy = [
        t for t in owners
        if t._address is None and (node := t._uop) is not None and is_static(t.dims)
        and any(n.op is Op.BUFFER and _is_outside(n.arg) for n in toposort([node]))
    ]  # fmt: skip
    if lazy:
        realize.materialize(lazy)


def taken(tensor: TensorBase, node: UOp) -> UOp:
    """Tag `node`, which reads the shared memory of `tensor`, with a copy of its value."""
    owner = tensor if tensor._link is None else tensor._link.root
    source = node
    while source.op is not Op.BUFFER:
        if is_kept(source):  # a computed value with its history
            storage = source.arg.storage
            kept = Kept(_with_copy(storage, owner))
            return rewritten([node], {source: mark(source.src[0], kept)})[0]
        if not source.src:
            return node
        source = source.src[0]
    return mark(node, Kept(_with_copy(_unmarked(node), owner), shared=True))


def _with_copy(node: UOp, owner: TensorBase) -> UOp:
    """Return `node` over a copy of the memory it reads; cache the copy in `owner`."""
    source = node
    while source.op is not Op.BUFFER:
        source = source.src[0]
    buffer = source.arg
    known = getattr(owner, "_taken", None)
    if known is None or known[0] is not buffer or not _is_equal(known[1], buffer):
        copy = Buffer(buffer.size, buffer.dtype)
        copy.content()[...] = buffer.content()
        known = owner._taken = buffer, copy
    return rewritten([node], {source: build.memory(known[1])})[0]


def computed(source: TensorBase, picked: _T) -> _T:
    """Compute `picked`, selected elements of `source`, now if outside code can write them.

    A copy of the whole source could be much larger.
    """
    if shared[0] and state.local.trace is None and is_shared(source) and is_static(picked.dims):
        realize.materialize([picked])
    return picked


def _unmarked(node: UOp) -> UOp:
    """Return a view of memory without autograd tags."""
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
    """Rewrite `nodes` to read shared memory itself where they read a copy of it."""
    put = {
        n: n.src[0] for n in below(nodes, _never)
        if is_kept(n) and n.arg.shared
    }  # fmt: skip
    return rewritten(nodes, put) if put else list(nodes)
