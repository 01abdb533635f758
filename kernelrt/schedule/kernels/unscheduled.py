"""Drafts: items of a schedule before their order and buffers are final."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kernelrt import dtype as dt
from kernelrt.ir import Dim, Op, UOp, toposort
from kernelrt.ir.origin import resolve
from kernelrt.schedule.kernels.region_bodies import RegionDraft
from kernelrt.schedule.types import CopyItem, KernelItem, root

if TYPE_CHECKING:
    from kernelrt.schedule.fuse.fusion_groups import Group
    from kernelrt.schedule.kernels.canonical_form import Forms

__all__ = ["CallDraft", "CopyDraft", "KernelDraft", "UnscheduledItem"]


@dataclass(eq=False, slots=True)
class KernelDraft:
    """A kernel whose STOREs and LOADs refer to BUFFERs, not to slots.

    Attributes
    ----------
    group : Group
        Fusion group that the kernel was lowered from.
    stores : list of UOp
        STOREs of the kernel.
    loads : dict
        BUFFERs that are loaded, as keys.
    fails : bool
        Whether the kernel checks an index.
    renewed : set of UOp
        BUFFERs from which the kernel loads the new value of a commit.
    """

    group: Group
    stores: list[UOp]
    loads: dict[UOp, None] = field(default_factory=dict)
    fails: bool = False
    renewed: set[UOp] = field(default_factory=set)
    _renamed: dict[UOp, UOp] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rewrite(self.stores)

    def rewrite(self, stores: list[UOp]) -> None:
        """Replace the STOREs of the kernel by `stores`, before any commit is merged into it."""
        self.stores, self.fails = stores, False
        self.loads.clear()
        for node in toposort(stores):
            if node.op is Op.LOAD and node.src[0].op is Op.BUFFER:
                self.loads[node.src[0]] = None
            self.fails |= node.op is Op.BOUND

    @property
    def reads(self) -> list[UOp]:
        """BUFFERs that are loaded or updated."""
        updated = [self.buffer_of(s) for s in self.stores if s.arg is not None]
        return list(dict.fromkeys([*self.loads, *updated]))

    @property
    def writes(self) -> list[UOp]:
        """BUFFERs that are written."""
        return list(dict.fromkeys(map(self.buffer_of, self.stores)))

    def buffer_of(self, access: UOp) -> UOp:
        """Return the BUFFER that a STORE or LOAD accesses."""
        return self._renamed.get(access.src[0], access.src[0])

    def stores_to(self, buffer: UOp) -> list[UOp]:
        """Return the STOREs to `buffer`. There are several if `buffer` holds a CAT or a PAD."""
        return [s for s in self.stores if self.buffer_of(s) is buffer]

    def loads_of(self, buffer: UOp) -> list[UOp]:
        """Return the LOADs of `buffer`."""
        nodes = toposort(self.stores)
        return [n for n in nodes if n.op is Op.LOAD and self.buffer_of(n) is buffer]

    def redirect(self, old: UOp, new: UOp) -> None:
        """Replace BUFFER `old` by `new` in all reads and writes."""
        self._renamed[old] = new
        if old in self.loads:
            self.renewed.add(new)
            del self.loads[old]
            self.loads[new] = None

    def finish(self, forms: Forms) -> KernelItem:
        """Return the kernel with canonical loops and numbered slots."""
        form = forms.of(self.stores, self.group.loops, self._renamed)
        renewed = tuple(k for k, b in enumerate(form.slots) if root(b) in self.renewed)
        return KernelItem(
            form.ast, form.slots, tuple(range(form.writes)), self.fails, renewed,
            tuple(reversed(self.group.origins)),
            tuple(None if n.origin is None else resolve(n.origin) for n in form.checks),
        )  # fmt: skip


@dataclass(eq=False, slots=True)
class CopyDraft:
    """A copy of the first `nbytes` bytes of `src` to `dst`."""

    dst: UOp
    src: UOp
    nbytes: Dim
    fails: bool = False
    renewed: bool = False

    @property
    def reads(self) -> list[UOp]:
        """The BUFFER that is read."""
        return [self.src]

    @property
    def writes(self) -> list[UOp]:
        """The BUFFER that is written."""
        return [self.dst]

    def redirect(self, old: UOp, new: UOp) -> None:
        """Replace BUFFER `old` by `new`."""
        if self.src is old:
            self.src, self.renewed = new, True
        self.dst = new if self.dst is old else self.dst

    def finish(self, _forms: Forms) -> CopyItem:
        """Return the copy as an item."""
        return CopyItem(self.dst, self.src, self.nbytes, self.renewed)


@dataclass(eq=False, slots=True)
class CallDraft:
    """A call of a routine or of a user's function.

    Attributes
    ----------
    group : Group
        Fusion group that the call was made from.
    node : UOp
        The CALL in the tensor graph. If the function has several results, the graph has one CALL
        for each result, and `node` is any of them.
    buffers : list of UOp
        BUFFERs of the results, then of the operands.
    renewed : set of UOp
        BUFFERs from which the call reads the new value of a commit.
    """

    group: Group
    node: UOp
    buffers: list[UOp]
    renewed: set[UOp] = field(default_factory=set)

    @property
    def fails(self) -> bool:
        """Whether the function may fail."""
        return bool(self.node.arg.failure)

    @property
    def reads(self) -> list[UOp]:
        """BUFFERs of the operands."""
        return list(dict.fromkeys(self.buffers[self._n :]))

    @property
    def writes(self) -> list[UOp]:
        """BUFFERs of the results."""
        return self.buffers[: self._n]

    @property
    def _n(self) -> int:
        return int(self.node.arg.callee.n_results)

    def redirect(self, old: UOp, new: UOp) -> None:
        """Replace BUFFER `old` by `new` in all reads and writes."""
        if old in self.buffers[self._n :]:
            self.renewed.add(new)
        self.buffers = [new if buffer is old else buffer for buffer in self.buffers]

    def finish(self, _forms: Forms) -> KernelItem:
        """Return the call as a kernel whose AST is only this call."""
        slots, callee, n = [*self.buffers], self.node.arg.callee, self._n
        params = [UOp(Op.PARAM, b.dtype, (), (k, int(b.arg.size))) for k, b in enumerate(slots)]
        if callee.takes_status:
            params.append(UOp(Op.PARAM, dt.int64, (), (len(slots), 1)))
        call = UOp(Op.CALL, params[0].dtype, tuple(params), callee)
        renewed = tuple(k for k, b in enumerate(slots) if k >= n and root(b) in self.renewed)
        return KernelItem(
            UOp(Op.SINK, call.dtype, (call,)), tuple(slots), tuple(range(n)), self.fails, renewed,
            tuple(reversed(self.group.origins)),
        )  # fmt: skip


UnscheduledItem = KernelDraft | CopyDraft | CallDraft | RegionDraft
