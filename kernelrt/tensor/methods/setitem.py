"""Assignment to parts of a tensor: ``x[index] = value``."""

from __future__ import annotations

import contextlib
import weakref
from typing import TYPE_CHECKING, Any, Self, TypeVar

from kernelrt import dtype as dt
from kernelrt.errors import GradientError, ShapeError
from kernelrt.ir import Op, UOp
from kernelrt.ir.shape import broadcasts_to, format_shape, is_static, prod, same
from kernelrt.ir.size import plain
from kernelrt.native.array_handle import exchange
from kernelrt.native.evaluate import copied
from kernelrt.native.fast_paths import put_rows, put_shown
from kernelrt.native.write_barrier import memory_of, reads
from kernelrt.tensor import state, views
from kernelrt.tensor.autograd import hooking
from kernelrt.tensor.autograd.tags import (
    Kept,
    Severed,
    Stale,
    below,
    detach,
    is_kept,
    lineage,
    mark,
    reads_of,
    rewritten,
    with_values,
)
from kernelrt.tensor.base import TensorBase, storage_node
from kernelrt.tensor.methods.scattering import replaced
from kernelrt.tensor.nodes import build
from kernelrt.tensor.nodes.positions import (
    is_array,
    is_number,
    is_one,
    limit,
    mask_rank,
    position,
    selection,
    spelled_out,
)
from kernelrt.tensor.nodes.promotion import as_scalar, check_size, element
from kernelrt.tensor.operation import operation
from kernelrt.util.lazy_import import Module

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kernelrt.ir import Dim
    from kernelrt.native.write_barrier import WrittenMemory
    from kernelrt.tensor.base import Operand
    from kernelrt.tensor.eager import realize
    from kernelrt.tensor.methods import masked
    from kernelrt.tensor.methods.indexing import IndexingMethods as _Below
else:  # a mixin needs no base at run time, and freeing a tensor visits each base of Tensor
    _Below = object
    masked = Module("kernelrt.tensor.methods.masked")
    realize = Module("kernelrt.tensor.eager.realize")

__all__ = ["PartMethods", "changes_in_place", "without_history"]

_T = TypeVar("_T", bound="PartMethods")

#: Operations whose result consists of elements of their operand.
_CUTS = frozenset({Op.SHRINK, Op.RESHAPE, Op.PERMUTE})

_SELECTED = "the selected elements"


def changes_in_place(name: str) -> GradientError:
    """Return the error for a change in place of a tensor that requires a gradient."""
    return GradientError(
        f"{name}: the tensor requires a gradient and would change in place; do that in "
        "'with kernelrt.no_grad():', or change a copy, as in y = x.clone()"
    )


def without_history(name: str, target: TensorBase) -> GradientError:
    """Return the error for storing a value that has a history where no history can be kept."""
    what = "a tensor from outside of the traced function"
    if target._is_parameter:
        what = "a frozen parameter"
    elif hasattr(target, "_whose"):
        what = "the .data of a tensor"
    return GradientError(
        f"{name}: the new value requires a gradient, but it would be stored in {what}, which "
        "records no history; change a copy, as in y = x.clone(), use y from then on, and store its "
        "elements with x.assign(y.detach()); if no gradient is meant to flow, detach() the value "
        "or use kernelrt.no_grad()"
    )


class PartMethods(_Below):
    """Assignment to the elements that an index selects."""

    __slots__ = ()

    def __setitem__(self, index: Any, value: Operand) -> None:
        """Assign to the elements that an index selects.

        Every index that reads elements can be assigned to. If integer tensors select an element
        several times, the last value in row-major order counts.

        A tensor with storage is written in place. If the selected elements are one contiguous run
        and no function is traced, only they are written. Otherwise, the whole tensor is written.

        Gradients flow through the assignment into the value and into the former elements. In a
        traced function they flow into results of operations made there, such as ``krt.zeros(3)``.

        Raises
        ------
        ShapeError
            The value does not broadcast to the selected elements.
        JitError
            A function is traced, and a mask that depends on tensor data is combined with other
            indices.
        DTypeError
            The value is a number that this tensor's dtype cannot represent.
        GradientError
            Gradients are recorded, and the tensor is a leaf that requires a gradient. Or the value
            has a history, and the tensor is a parameter, a detached view, another tensor's
            ``data``, or comes from outside of the traced function.
        """
        if state.changing is None and put_rows(self, index, value):
            return
        self._check_no_leaf("x[...] = value")
        mask = not isinstance(index, tuple) and mask_rank(index) is not None
        if state.local.trace is not None and self._takes_part(index, value, mask=mask):
            return
        if views.is_item(value, self, index):
            return  # after x[index] += 1, which has already changed x
        eager = state.local.trace is None
        chosen = mask or (
            any(is_array(i) for i in spelled_out(index, self.ndim))
            if isinstance(index, tuple) else is_array(index)
        )  # fmt: skip
        number = as_scalar(value) if eager else None
        if number is not None and self._put_elements(index, element(number, self.dtype, "value")):
            return
        new = self._new_elements(value)
        if eager and chosen and self._put_elements(index, new):
            return
        if not chosen:  # assign through a view, which leaves a lazy value lazy
            part = self[index]
            part._become_value(new._into(part.dims, _SELECTED), new, history=False)
            return
        # Reading and writing the whole must be one step, or another thread's write could be lost.
        with state.lock if eager else contextlib.nullcontext():
            self._put_in_whole(index, new, mask=mask)

    def _put_in_whole(self, index: Any, new: Self, *, mask: bool) -> None:
        """Assign the whole tensor, with `new` at the elements that an index selects."""
        if state.local.trace is None:
            _ = self._live()  # computes it if one of its inputs has been assigned to
        history = self._link is None and self._needs_history(new)
        if history and self.is_realized:
            self._write_part(lambda x, value: x.__setitem__(index, value), new)
            return
        value = self._masked(self._lift(index, "index"), new) if mask else self._placed(index, new)
        self._become_value(value, new, history)

    def _takes_part(self, index: Any, value: Any, *, mask: bool) -> bool:
        """Assign `value` if it is a MaskedPart, under a mask that the trace does not know."""
        if not isinstance(value, masked.MaskedPart):
            return False
        if not mask:
            raise masked.unknown_count()
        held = self._lift(index, "index")
        new = value.under(self, held).cast(self.dtype)
        whole = self._select(self._fitted_mask(held), new, self)
        self._become_value(whole, new, self._link is None and self._needs_history(new))
        return True

    def _put_elements(self, index: Any, value: Self | float) -> bool:
        """Write to the selected elements in memory; return False if a plan has to."""
        root: Self = self if self._link is None else self._link.root
        with state.lock:
            if not views.has_memory(self) or views.is_detached(self):
                return False
            found = selection(self, index)
            if found is None:
                return False
            new = None
            if isinstance(value, TensorBase):
                value = new = _squeezed(value, len(found.shape))
                if not broadcasts_to(new.dims, found.shape):
                    return False
            return (
                not root._needs_history(new) and root._bound_by(new) is None
                and views.copied_into(self, value, found.view, found.elements)
            )  # fmt: skip

    def _placed(self, index: Any, value: Self, *, accumulate: bool = False) -> Self:
        """Return this tensor with `value` at the elements that any index selects."""
        order = self._of(build.reshape(build.iota(prod(self.dims)), self.dims))
        selected = order[index]
        fitted = value._into(selected.dims, _SELECTED)
        line = build.reshape(selected.uop, (prod(selected.dims),))
        flat = build.reshape(self.uop, (prod(self.dims),))
        new = build.reshape(fitted.uop, line.shape)
        if accumulate:
            rule = build.scatter_add(flat, new, line)
        elif all(map(is_one, spelled_out(index, self.ndim))) and not build.has_zero(new.shape):
            rule = build.put(flat, new, line)
        else:
            rule = replaced(flat, new, [line])
        return self._of(build.reshape(rule, self.dims))

    def _needs_history(self, new: Self | None) -> bool:
        """Return whether an assignment of `new`, or of a number, has to be part of the history."""
        own = self.requires_grad and self._leaf is None
        if not state.local.grad:
            return False
        trace = state.local.trace
        bare = self._is_parameter or self._born is not trace or hasattr(self, "_whose")
        if not own and not (new is not None and new.requires_grad):
            stored = bare or self.is_realized
            return not stored and bool(self._lineage or (new is not None and new._lineage))
        if bare or (trace is not None and self.is_realized):
            raise without_history("value", self)
        return True

    def _check_no_leaf(self, name: str) -> None:
        """Raise GradientError if this tensor, or its root, is a leaf that requires a gradient."""
        if not state.local.grad or views.is_detached(self):
            return
        root: TensorBase = self if self._link is None else self._link.root
        # A trace records that the plan depends on this answer.
        requires = state.local.trace is None or root.requires_grad
        if requires and root._leaf is not None:
            raise changes_in_place(name)

    def _become_shown(self, value: Self, new: Self) -> None:
        """Assign to the elements that a view selects.

        Parameters
        ----------
        value : Tensor
            Elements to assign, with their history.
        new : Tensor
            Tensor that `value` was expanded from. It keeps its history even if `value` has no
            elements.
        """
        if state.changing is None and put_shown(self, value):
            return
        views.check_history(self)
        if views.is_detached(self):
            if state.local.grad and new.requires_grad:
                raise GradientError(
                    "value: the tensor requires a gradient, but a detached view records no "
                    "history; pass value.detach() if no gradient is meant to flow, or write to a "
                    "clone()"
                )
            value = new = value.detach()
        # Reading and writing the whole must be one step, or another thread's write could be lost.
        with state.lock if state.local.trace is None else contextlib.nullcontext():
            self._write_shown(value, new)

    def _write_shown(self, value: Self, new: Self) -> None:
        assert self._link is not None
        root: Self = self._link.root
        if state.local.trace is None:
            _ = root._live()  # carries out pending assignments of other threads
        history = not views.is_detached(self) and root._needs_history(new)
        if history and root.is_realized:
            root._write_part(
                lambda x, new: x._become_value(views.placed(self, new, x), new, x is not root),
                value,
            )
            return
        part = None if history else views.writable_part(self)
        bound = None if part is None and history else root._bound_by(new)
        if part is None:
            here = not history and bound is None and state.local.trace is None
            given = new if _is_expanded(value, new) else value  # NumPy expands it
            if not here or not views.copied_into(self, given):
                root._become_value(views.placed(self, value, root), new, history)
            return
        if bound is not None or state.local.trace is not None or not copied(part, value):
            part._assign(value)
        if bound is not None:
            root._sever(bound)

    def _with_index(self, items: tuple[Any, ...], value: Self) -> Self:
        """Return this tensor with `value` at the elements that any index selects."""
        if any(is_array(i) for i in items):
            return self._placed(items, value)
        return self._with_part(items, value)  # type: ignore[attr-defined, no-any-return]

    def _with_elements(self, positions: Self, value: Self) -> Self:
        """Return this tensor with `value` at row-major positions `positions`."""
        line = build.reshape(positions.uop, (prod(positions.dims),))
        if build.has_zero(line.shape):
            return self._of(self.uop)
        flat = build.reshape(self.uop, (prod(self.dims),))
        rule = replaced(flat, build.reshape(value.uop, line.shape), [line])
        return self._of(build.reshape(rule, self.dims))

    def _write_part(self, assign: Callable[[Self, Self], None], new: Self) -> None:
        """Write a value to a part of the storage if the value or the other elements have a history.

        The tensor gets the history of the same assignment to a tensor without storage. The elements
        of that tensor are never read, because the derivative depends only on the positions.

        Parameters
        ----------
        assign : callable
            Function that assigns: ``assign(x, value)`` assigns `value` to the part of x.
        new : Tensor
            Value to assign.
        """
        realize.flush(self)
        before, written = self._entered(), memory_of([self])
        known = before.src[0] if is_kept(before) else None
        later, value = new, new._recorded()
        if copies := self._copies(value, written):
            done = with_values([value], copies)
            with state.lock:
                _note_copies(done)
            later = self._of(done[value])
            later._plain = False
        if known is None or reads(known, written):
            bound = Stale(before) if self.requires_grad else self._severed
            known = build.full(0, self.dtype, self.dims)
            known = known if bound is None else mark(known, bound)
        with state.no_grad():
            assign(self, new.detach())
        # If this is interrupted, gradients that reach the tensor raise an error.
        self._sever(Stale(before))
        realize.flush(self)
        severed = self._entered()
        copy = self._of(known)
        copy._plain = False
        assign(copy, later)
        assert self._buffer is not None
        storage = storage_node(self._buffer, self.dims)
        if exchange(self, severed, mark(copy.uop, Kept(storage))):  # else it has a newer value
            self._severed = None
            state.births[0] += 1
            state.watched.add(self)
            hooking.follow(self, before)

    def _copies(self, value: UOp, written: WrittenMemory) -> dict[UOp, UOp]:
        """Copy the parts of the memory in `written` that `value` reads.

        Gradients may need these elements after they have been overwritten. Each copy has the
        history of the part that it replaces.
        """
        def is_stored(node: UOp) -> bool:
            return is_kept(node) and reads(node.arg.storage, written)

        stored: dict[UOp, UOp] = {}  # parts of the memory -> nodes that compute them
        used = {value}
        for node in below([value], is_stored):
            if is_stored(node):
                stored[node] = node.src[0]
            elif node.op is Op.BUFFER and written.overlaps(node.arg):
                stored[node] = node
            elif node.op in _CUTS and node.src[0] in stored:
                stored[node] = rewritten([node], {node.src[0]: stored[node.src[0]]})[0]
            else:
                used.update(reads_of(node))
        copies = {}
        for node in used & stored.keys():
            copy = self._of(detach(node)).clone()
            realize.realize(copy)
            assert copy._buffer is not None
            storage, history = storage_node(copy._buffer, copy.dims), stored[node]
            copies[node] = mark(history, Kept(storage)) if lineage(history) is True else storage
        return copies

    def _become_value(self, value: Self, new: Self, history: bool) -> None:
        if self._link is not None:
            self._become_shown(value, new)
            return
        if not history:
            bound = self._bound_by(new)
            self._assign(value)
            if bound is not None:
                self._sever(bound)
            return
        self._plain = False
        before = self._uop
        self._follow(value)
        hooking.follow(self, before)

    def _bound_by(self, new: Self | None) -> Severed | Stale | None:
        """Return the tag that stops gradients here once `new`, or a number, is written to a part.

        The other elements keep their values. So the tag still tells whether they were computed with
        a history, or by a jitted function from tensors that have a history.
        """
        outside = self._leaf is not None or self._born is not state.local.trace
        if outside or hasattr(self, "_whose"):
            return None
        own = self._lineage
        theirs = new._lineage if new is not None and state.local.grad else False
        if own is True:
            return Stale(self._entered())
        if not isinstance(theirs, Severed):
            return own or None
        # The tag does not distinguish which elements come from which of two functions.
        return theirs if own in (False, theirs) else Severed(theirs.function, None)

    @operation
    def _masked(self, mask: Self, new: Self) -> Self:
        """Return this tensor with `new` where a mask over the first axes is True."""
        wide = self._fitted_mask(mask)
        if state.local.trace is None and _squeezed(new, self.ndim - mask.ndim).ndim > (
            self.ndim - mask.ndim
        ):
            return self._placed(mask, new)
        return self._select(wide, self._under(mask, new), self)

    @operation
    def _under(self, mask: Self, new: Self) -> Self:
        """Return values in this tensor's shape for the elements under a mask over the first axes.

        There is one value for each selected position, or one value for all. The elements at other
        positions are arbitrary.
        """
        rest = self.dims[mask.ndim :]
        new = _squeezed(new, len(rest))
        if new.ndim <= len(rest):  # one value for all positions
            return new._into(rest, _SELECTED)
        rows = new.dims[0]
        values = new._into((rows, *rest), _SELECTED)
        if build.has_zero(self.dims):
            return self._of(self.uop).cast(new.dtype)
        held = mask.reshape(-1).cast(dt.int64)
        # If the numbers of selected positions and of values differ, every rank is out of bounds.
        fits = held.sum().eq(rows).expand(held.dims)
        rank = build.where(held.ne(0).uop, (held.cumsum(0) - 1).uop, 0)
        index = build.where(fits.uop, rank, -1)
        if build.has_zero(values.dims):  # then no position may be selected
            values, rows = values._pad([(0, 1), *((0, 0) for _ in rest)]), 1
        index = build.bound(index, rows)
        return values._take([(0, self._of(index))]).reshape(self.dims)

    def _fitted_mask(self, mask: Self) -> Self:
        """Return a mask over the first axes, or over all of them, with all axes of this tensor."""
        if mask.ndim > self.ndim or not all(map(same, mask.dims, self.dims)):
            raise ShapeError(
                f"index: a mask of shape {format_shape(mask.dims)} does not match a tensor of "
                f"shape {format_shape(self.dims)}; expected the sizes of all or of its first axes"
            )
        while mask.ndim < self.ndim:
            mask = mask.unsqueeze(-1)
        return mask

    def _into(self, shape: tuple[Dim, ...], named: str) -> Self:
        """Expand this value to `shape`; as in NumPy, it may have additional axes of size 1."""
        new = self
        if new.dims == shape and is_static(shape):
            return new
        new = _squeezed(new, len(shape))
        if not broadcasts_to(new.dims, shape):
            raise ShapeError(
                f"value: shape {format_shape(self.dims)} does not fit {named} of shape "
                f"{format_shape(shape)}; only axes of size 1 can expand"
            )
        return new.expand(shape)

    def _new_elements(self, value: Operand) -> Self:
        """Return `value` in this tensor's dtype.

        A number becomes data, so that assignments of different numbers share one program.
        """
        number = as_scalar(value)
        if number is not None:
            value = element(number, self.dtype, "value")
        check_size(value, self.dtype, "value")
        return self._lift(value, "value", like=True).cast(self.dtype)

    @operation
    def _spread(self, items: list[Any], value: Self) -> tuple[Self, Self]:
        """Return a mask of the elements that `items` selects, and `value` at their positions."""
        value = value.reshape(
            tuple(d for d, i in zip(_result_axes(value, items), items, strict=True)
                  if i is not None)
        )  # fmt: skip
        node = value.uop
        mask = build.full(True, dt.bool_, node.shape)
        axis = 0
        for item in items:
            if item is None:
                continue
            size = self.dims[axis]
            if not isinstance(item, slice):
                start = position(item, size, axis)
                before, behind, step = start, build.difference(size, build.total((start, 1))), 1
            elif item.step is None or item.step == 1:
                start, count = limit(item.start, 0, size, axis), node.shape[axis]
                before = start
                behind, step = build.difference(size, build.total((start, count))), 1
            elif not isinstance(size, int) or any(
                isinstance(end, UOp) for end in plain((item.start, item.stop))
            ):
                node, mask = self._spread_along(node, mask, axis, item)
                axis += 1
                continue
            else:
                first, stop, step = item.indices(size)
                count = len(range(first, stop, step))
                if step < 0:
                    node, mask = build.flip(node, (axis,)), build.flip(mask, (axis,))
                    first, step = first + (count - 1) * step, -step
                node, mask = (_dilate(n, axis, step) for n in (node, mask))
                before, behind = first, build.difference(size, first + count * step)
            widths: list[tuple[Dim, Dim]] = [(0, 0)] * len(node.shape)
            widths[axis] = (before, behind if not isinstance(behind, int) else max(behind, 0))
            node, mask = build.pad(node, widths), build.pad(mask, widths)
            bounds: list[tuple[Dim, Dim]] = [(0, d) for d in node.shape]
            bounds[axis] = (0, size)
            node, mask = build.shrink(node, bounds), build.shrink(mask, bounds)
            axis += 1
        return self._of(mask), self._of(node)

    def _spread_along(
        self, node: UOp, mask: UOp, axis: int, item: slice
    ) -> tuple[UOp, UOp]:
        """Spread value and mask along a dynamic axis that a slice with a step indexes."""
        size, count, step = self.dims[axis], node.shape[axis], int(item.step)
        first = limit(item.start, 0, size, axis, back=step < 0)
        if step < 0:
            first = build.difference(build.difference(size, 1), first)
        position = build.iota(size)
        away = position.alu(Op.SUB, build.full(first, dt.int64, position.shape))
        if step < 0:
            away, step = build.neg(away), -step
        number = away.alu(Op.IDIV, build.full(step, dt.int64, away.shape))
        zero, end = build.zeros_like(away), build.full(count, dt.int64, away.shape)
        hit = away.eq(build.mul(number, step)).alu(Op.AND, zero.alu(Op.LE, number))
        hit = hit.alu(Op.AND, number.alu(Op.LT, end))
        # Elements that the slice leaves out read the padding at index `count`.
        widths = [(0, 1 if a == axis else 0) for a in range(len(node.shape))]
        index = self._of(build.where(hit, number, end))
        picked = (self._of(build.pad(n, widths))._take([(axis, index)]).uop for n in (node, mask))
        values, among = picked
        return values, among


def _is_expanded(value: TensorBase, source: TensorBase) -> bool:
    """Return whether `value` is `source` with axes of size 1 added and expanded."""
    return _unexpanded(value.uop) is _unexpanded(source.uop) and broadcasts_to(
        source.dims, value.dims
    )


def _unexpanded(node: UOp) -> UOp:
    while node.op is Op.EXPAND or node.op is Op.RESHAPE:
        node = node.src[0]
    return node


def _squeezed(value: _T, rank: int) -> _T:
    """Drop leading axes of size 1 while `value` has more than `rank` axes."""
    while value.ndim > rank and same(value.dims[0], 1):
        value = value.squeeze(0)
    return value


def _dilate(x: UOp, axis: int, step: int) -> UOp:
    """Insert `step` - 1 zeros after each element of `axis`."""
    shape = x.shape
    wide = build.reshape(x, (*shape[: axis + 1], 1, *shape[axis + 1 :]))
    widths: list[tuple[Dim, Dim]] = [(0, 0)] * len(wide.shape)
    widths[axis + 1] = (0, step - 1)
    padded = build.pad(wide, widths)
    joined = build.volume((shape[axis], step))
    return build.reshape(padded, (*shape[:axis], joined, *shape[axis + 1 :]))


def _result_axes(value: TensorBase, items: list[Any]) -> list[Dim]:
    """Return the size of each item in `value`; integers, which drop their axis, count as 1."""
    sizes = iter(value.dims)
    return [1 if is_number(i) else next(sizes) for i in items]


def _note_copies(done: Mapping[UOp, UOp]) -> None:
    """Record the replacements of nodes that read overwritten memory."""
    for node, copy in done.items():
        if copy is not node:
            state.copied[node] = (*state.copied.get(node, ()), weakref.ref(copy))
