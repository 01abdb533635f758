"""Views: tensors that show elements of another tensor, their root.

``x[1]``, ``x.T`` and ``x.reshape(-1)`` are views of x, their root. A view stores its path from the
root: a list of view operations with their arguments. Reading a view reads the root; if the root
has a new value, the operations on the path are applied again. Writing to a view assigns to the
root: each operation has an inverse, a scatter into its operand.

A view of a view has the same root and a longer path. If PyTorch has to copy, as in
``x.T.reshape(-1)``, the result is no view but an ordinary tensor.
"""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import numpy as np

from kernelrt import dtype as dt
from kernelrt.device import registry
from kernelrt.device.buffer import Buffer, ids
from kernelrt.errors import GradientError, ShapeError, VariableError
from kernelrt.ir import Op, UOp
from kernelrt.ir.shape import (
    are_packed,
    format_shape,
    is_static,
    packed_strides,
    prod,
    reshaped_strides,
)  # fmt: skip
from kernelrt.ir.size import plain
from kernelrt.native.array_handle import ArrayHandle, Link
from kernelrt.native.evaluate import copied
from kernelrt.native.fast_paths import _name_views, shows_memory
from kernelrt.native.graph_templates import _name_views as _name_template_views
from kernelrt.native.memory import count_writes
from kernelrt.native.thread_modes import undisturbed
from kernelrt.tensor import state
from kernelrt.tensor.autograd.tags import Kept, detach, is_kept, mark
from kernelrt.tensor.eager import shared_memory
from kernelrt.tensor.nodes import build
from kernelrt.util.lazy_import import Module

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kernelrt.tensor.autograd import hooking
    from kernelrt.tensor.base import TensorBase
    from kernelrt.tensor.eager import realize
else:
    realize = Module("kernelrt.tensor.eager.realize")
    hooking = Module("kernelrt.tensor.autograd.hooking")

__all__ = [
    "AS_STRIDED",
    "BITS",
    "CONTIGUOUS",
    "DETACH",
    "DIAGONAL",
    "EXPAND",
    "INDEX",
    "PERMUTE",
    "RESHAPE",
    "UNFOLD",
    "Kind",
    "argument",
    "bare",
    "bits",
    "borrow",
    "check_history",
    "copied_into",
    "enter",
    "has_memory",
    "has_numbers",
    "is_detached",
    "is_item",
    "is_packed",
    "is_viewable",
    "node_of",
    "placed",
    "read",
    "undetached",
    "unlink",
    "unshared",
    "values_of",
    "view",
    "writable_part",
]  # fmt: skip

_T = TypeVar("_T", bound="TensorBase")

Path = tuple["Path | None", "Kind", tuple[Any, ...]]
"""Linked list of view operations: the source's path, the operation, and its arguments."""
Array = np.ndarray[Any, Any]
Layout = tuple[tuple[int, ...], tuple[int, ...]]
"""Sizes and strides: size of each axis, and distance of its elements in the row-major root."""


class Kind(NamedTuple):
    """A view operation.

    Attributes
    ----------
    get : callable
        ``get(x, *arguments)`` returns the view.
    put : callable, optional
        ``put(x, value, *arguments)`` returns x with the viewed elements replaced by `value`. The
        attribute is None if the view may show an element several times.
    layout : callable
        ``layout(sizes, strides, *arguments)`` returns the layout of the view.
    array : callable, optional
        ``array(a, *arguments)`` returns the view of a NumPy array, read-only if it may show an
        element several times, or None if NumPy would copy. The attribute is None if NumPy has no
        such view.
    """

    get: Callable[..., Any]
    put: Callable[..., Any] | None
    layout: Callable[..., Layout]
    array: Callable[..., Array | None] | None


# ---- the operations


def _permuted(sizes: Sequence[int], strides: Sequence[int], order: Sequence[int]) -> Layout:
    return tuple(sizes[a] for a in order), tuple(strides[a] for a in order)


def _put_permuted(x: Any, value: Any, order: Sequence[int]) -> Any:
    del x
    return value.permute([order.index(a) for a in range(len(order))])


def _reshaped(
    sizes: tuple[int, ...], strides: tuple[int, ...], shape: tuple[int, ...]
) -> Layout:
    found = reshaped_strides(sizes, strides, shape)
    assert found is not None
    return shape, found


def _expanded(sizes: Sequence[int], strides: Sequence[int], shape: tuple[int, ...]) -> Layout:
    more = len(shape) - len(sizes)
    return shape, tuple(
        0 if i < more or sizes[i - more] != n else strides[i - more] for i, n in enumerate(shape)
    )


def _get_indexed(x: Any, items: tuple[Any, ...], *_: object) -> Any:
    return x[items]


def _put_indexed(x: Any, value: Any, items: tuple[Any, ...], *_: object) -> Any:
    return x._with_index(items, value)


def _indexed(
    sizes: Sequence[int], strides: Sequence[int], items: Sequence[Any], *_: object
) -> Layout:
    out: list[tuple[int, int]] = []
    axes = iter(zip(sizes, strides, strict=True))
    for item in items:
        if item is None:
            out.append((1, 0))
            continue
        size, stride = next(axes)
        if type(item) is slice and item.start is item.stop is item.step is None:
            out.append((size, stride))
        elif isinstance(item, slice) and has_numbers(item):
            start, stop, step = item.indices(size)
            out.append((len(range(start, stop, step)), stride * step))
        elif isinstance(item, slice):  # the ends depend on Variables; the count may be a number
            first, end = plain(item.start), plain(item.stop)
            end = size if end is None else end + size if isinstance(end, int) and end < 0 else end
            count = build.difference(end, 0 if first is None else first)
            out.append((cast("int", count), stride * (item.step or 1)))
    return tuple(n for n, _ in out), tuple(s for _, s in out)


def _diagonal(
    sizes: Sequence[int], strides: Sequence[int], offset: int, dim1: int, dim2: int
) -> Layout:
    rest = [a for a in range(len(sizes)) if a not in (dim1, dim2)]
    n = min(sizes[dim1] - max(-offset, 0), sizes[dim2] - max(offset, 0))
    return (
        (*(sizes[a] for a in rest), max(n, 0)),
        (*(strides[a] for a in rest), strides[dim1] + strides[dim2]),
    )


def _unfolded(
    sizes: Sequence[int], strides: Sequence[int], axis: int, size: int, step: int
) -> Layout:
    count = (sizes[axis] - size) // step + 1
    return (
        (*sizes[:axis], count, *sizes[axis + 1 :], size),
        (*strides[:axis], strides[axis] * step, *strides[axis + 1 :], strides[axis]),
    )


def _strided(
    sizes: Sequence[int], strides: Sequence[int], size: Sequence[int], stride: Sequence[int],
    offset: int,
) -> Layout:  # fmt: skip
    del sizes, strides, offset
    return tuple(size), tuple(stride)


def _same(sizes: Sequence[int], strides: Sequence[int]) -> Layout:
    return tuple(sizes), tuple(strides)


def _bits(
    sizes: Sequence[int], strides: Sequence[int], new: dt.DType, old: dt.DType
) -> Layout:
    if new.bits == old.bits:
        return tuple(sizes), tuple(strides)
    *lead, last = (n * old.bits // new.bits if a == len(sizes) - 1 else n
                   for a, n in enumerate(sizes))  # fmt: skip
    return (*lead, last), (*(s * old.bits // new.bits for s in strides[:-1]), 1)


def _put_bits(x: Any, value: Any, *_: object) -> Any:
    return value.bitcast(x.dtype)


def _put_whole(x: Any, value: Any) -> Any:
    del x
    return value


def _array_reshaped(array: Array, shape: tuple[int, ...]) -> Array | None:
    found = array.reshape(shape)
    return found if np.may_share_memory(found, array) else None


def _array_indexed(array: Array, items: tuple[Any, ...], *_: object) -> Array | None:
    numbers = _numbers_of(items)
    if numbers is None:
        return None
    try:
        return array[(*numbers, ...)]  # the Ellipsis makes a view even for a single element
    except IndexError:
        return None


def _array_diagonal(array: Array, offset: int, dim1: int, dim2: int) -> Array:
    found = np.diagonal(array, offset, dim1, dim2)
    found.flags.writeable = array.flags.writeable
    return found


RESHAPE = Kind(
    lambda x, shape: x.reshape(shape), lambda x, value, *_: value.reshape(x.dims), _reshaped,
    _array_reshaped,
)  # fmt: skip
PERMUTE = Kind(
    lambda x, order: x.permute(order), _put_permuted, _permuted, lambda a, order: a.transpose(order)
)
EXPAND = Kind(lambda x, shape: x.expand(shape), None, _expanded, np.broadcast_to)
INDEX = Kind(_get_indexed, _put_indexed, _indexed, _array_indexed)
DIAGONAL = Kind(
    lambda x, *axes: x.diagonal(*axes),
    lambda x, value, *axes: x.diagonal_scatter(value, *axes),
    _diagonal, _array_diagonal,
)  # fmt: skip
UNFOLD = Kind(lambda x, *windows: x.unfold(*windows), None, _unfolded, None)
AS_STRIDED = Kind(lambda x, *layout: x.as_strided(*layout), None, _strided, None)
DETACH = Kind(lambda x: x.detach(), _put_whole, _same, lambda a: a)
BITS = Kind(lambda x, new, _: x.bitcast(new), _put_bits, _bits, None)
CONTIGUOUS = Kind(lambda x: x.contiguous(), _put_whole, _same, lambda a: a)

_name_views(Buffer, ids, registry.allocator("CPU"), INDEX)


# ---- layouts


def _steps(path: Path | None) -> Iterator[tuple[Kind, tuple[Any, ...]]]:
    """Iterate over the operations of a path, starting at the root."""
    steps: list[tuple[Kind, tuple[Any, ...]]] = []
    while path is not None:
        path, kind, arguments = path
        steps.append((kind, arguments))
    return iter(reversed(steps))


def _layout(tensor: TensorBase) -> Layout | None:
    """Return the layout of a view in its root; None if a size is known only at run time."""
    link = tensor._link
    assert link is not None
    if link.layout is not None:
        return link.layout
    dims = link.root.dims
    if not is_static(dims) or not is_static(tensor.dims):
        return None
    sizes, strides = tuple(dims), packed_strides(dims)
    for kind, arguments in _steps(link.path):
        sizes, strides = kind.layout(sizes, strides, *arguments)
        if not is_static(sizes):
            return None
    link.layout = sizes, strides
    return sizes, strides


def is_viewable(tensor: TensorBase, shape: tuple[Any, ...]) -> bool:
    """Return whether PyTorch would reshape a tensor without a copy."""
    if tensor._link is None:
        return True
    layout = _layout(tensor)
    return layout is None or not is_static(shape) or reshaped_strides(*layout, shape) is not None


def is_packed(tensor: TensorBase) -> bool:
    """Return whether the elements of a view are contiguous in its root, in row-major order."""
    if tensor._link is None:
        return True
    layout = _layout(tensor)
    if layout is None:
        return True
    return are_packed(*layout)


def bits(source: _T, dtype: dt.DType) -> _T:
    """Return a view of the bits of `source` as another dtype, without its history."""
    old = source.dtype
    if dtype.bits != old.bits and source._link is not None and source.ndim:
        layout = _layout(source)
        count = max(dtype.bits // old.bits, 1)
        if layout is not None and (
            (layout[0][-1] > 1 and layout[1][-1] != 1) or any(s % count for s in layout[1][:-1])
        ):
            raise ShapeError(
                f"view: the rows of shape {format_shape(source.dims)} do not lie in memory so that "
                f"whole elements of {dtype.name} could show them; copy them first, as in "
                "x.contiguous().view(dtype)"
            )
    plain = cast("Any", source).detach()
    if dtype is old:
        return cast("_T", plain)
    node, below = read(plain)
    seen = cast("UOp", plain._of(node).bitcast(dtype)._uop)
    return cast("_T", view(plain, seen, below, BITS, dtype, old))


# ---- reading


def read(source: TensorBase) -> tuple[UOp, UOp | None]:
    """Return the node of `source`, and the root's node that it is computed from.

    If a finalizer or signal handler computes the root meanwhile, the second value is None. A view
    made of the returned node then applies its path again when it is read.
    """
    node = source._live()
    link = source._link
    if state.local.trace is not None:  # finalizers and handlers do not run in a trace
        if link is not None and source._born is state.local.trace:
            return node, link.below
        return node, (source if link is None else link.root)._recorded()
    # Read the root's value first: if both change afterwards, the nodes differ below.
    below = source._uop if link is None else link.below
    shown = source._uop if link is None or source._uop is node else link.node
    known = node is shown or (shown is not None and node is detach(shown))
    return node, below if known else None


def bare(source: _T) -> tuple[_T, UOp | None]:
    """Return a lazy tensor over the node from :func:`read`, for an operation of several steps.

    The tensor owns no memory, so tensors computed from it do not read a copy of shared memory.
    """
    node, below = read(source)
    found = source._of(node)
    found._plain = True  # the node as it is, with its history
    return found, below


def view(source: _T, node: UOp, below: UOp | None, kind: Kind, *arguments: Any) -> _T:
    """Make a view.

    Parameters
    ----------
    source : Tensor
        Tensor whose elements the view shows.
    node : UOp
        Node of the view's elements.
    below : UOp, optional
        Node of the root that `node` is computed from, returned by :func:`read` before the
        operation.
    kind, arguments
        The view operation and its arguments.
    """
    tensor = source._of(node)
    link = source._link
    root, path = (source, None) if link is None else (link.root, link.path)
    if kind is RESHAPE and path is not None and path[1] is RESHAPE:
        path = path[0]  # the shape in between does not matter
    tensor._link = made = Link(root, (path, kind, arguments), tensor._plain, below, node)
    if link is not None and link.fixed is not None:
        made.fixed = link.fixed
    if link is not None and link.layout is not None and is_static(node.shape):
        layout = kind.layout(*link.layout, *arguments)
        made.layout = layout if is_static(layout[0]) else None
    state.watched.discard(tensor)
    return tensor


def _apply_path(link: Link, value: UOp) -> UOp:
    """Apply the path of a view to `value`, the node of its root, and return the view's node.

    Code that writes memory first computes the lazy tensors that read it. If it computed an
    intermediate tensor of the path, the remaining operations would show a copy. So other threads
    must wait, and the path is applied again if other code interrupted it.
    """
    if state.local.trace is not None:
        return _apply_path_once(link, value)
    with state.lock:
        return undisturbed(lambda: _apply_path_once(link, value), _apply_path, any_write=False)


def _apply_path_once(link: Link, value: UOp) -> UOp:
    root = link.root
    found = root._of(detach(value) if link.plain and not root._plain else value)
    found._plain = True  # the node as it is, with its history
    for kind, arguments in _steps(link.path):
        found = kind.get(found, *arguments)
        found._plain = True
    return cast("UOp", found._recorded())


def _is_here(tensor: TensorBase) -> bool:
    """Return whether the active trace made the tensor, so that its node may be replaced.

    Raises
    ------
    JitError
        A trace that is no longer active made the tensor.
    """
    if tensor._born is state.local.trace:
        return True
    tensor._check_trace()
    return False


def _update(tensor: TensorBase, link: Link) -> None:
    """Update the node of a view if its root has changed."""
    value = link.root._recorded()
    computed = False
    if value is not link.below or _index_changed(link):
        # Whether the root was only computed: it still has the value that the view was made from.
        computed = is_kept(value) and value.src[0] is link.below and not _index_changed(link)
        link.node = _apply_path(link, value)
        if link.fixed is not None:
            link.fixed = tuple((index, index._recorded()) for index, _ in link.fixed)
    elif _has_current_data(tensor, link):
        return
    before = tensor._uop
    _drop_data(tensor, link)
    link.below = value  # last: after an interrupt before this line, all is done again
    if before is not None and before.op is Op.DETACH:
        if computed and hooking.is_hooked(tensor, before):
            before = before.src[0] if is_kept(before) else before
            shown = _apply_path(link, value.arg.storage)
            link.node = tensor._uop = mark(before, Kept(shown))
            return
        used, tensor._used = tensor._used, False  # nothing is computed from the new value yet
        hooking.follow(tensor, before)
        tensor._used = used


def _index_changed(link: Link) -> bool:
    """Return whether an index tensor on the path has a new node since the view was made."""
    return link.fixed is not None and any(index._uop is not node for index, node in link.fixed)


def _has_current_data(tensor: TensorBase, link: Link) -> bool:
    """Return whether the data of a view, if any, is up to date with its root."""
    if tensor._address is None or link.lent is not None or not link.root.is_realized:
        return True
    return bool(link.seen == count_writes())


def _drop_data(tensor: TensorBase, link: Link) -> None:
    """Make a view lazy again, because its data may be out of date."""
    tensor._uop = link.node
    tensor._plain = link.plain
    if tensor._address is not None:
        tensor._unbind()
    link.lent = None


def enter(tensor: TensorBase, link: Link) -> None:
    """Update a view from its root, unless a trace reads a view from outside the trace."""
    if _is_here(tensor):
        _update(tensor, link)


def node_of(tensor: TensorBase, link: Link) -> UOp:
    """Return the node of a view, with its history."""
    if not _is_here(tensor):
        return _apply_path(link, link.root._recorded())
    _update(tensor, link)
    # Views of a copy would not follow the root, so results are computed from the root's memory.
    if tensor._address is not None and link.root.is_realized:
        return cast("UOp", link.node)
    return tensor._entered()


def borrow(tensor: TensorBase, link: Link) -> None:
    """Bind a view to the memory of its root if the elements are contiguous there."""
    if tensor._address is not None or tensor._leaf is not None:
        return
    run = _contiguous_part(link)
    if run is not None:
        buffer, shape = run
        tensor._bind(buffer, buffer.keep(), buffer.dtype.code, shape, link.node)
        link.lent = link.root._memory


def _contiguous_part(link: Link, *, marked: bool = False) -> tuple[Buffer, tuple[int, ...]] | None:
    """Return the memory and shape of a view if its elements are contiguous in its root.

    Return None if they are not contiguous. Also return None if the node of the view has a tag that
    gradients depend on, because memory carries no tags. If `marked` is true, ignore the tag.
    """
    if not link.root.is_realized:
        return None
    node, detached = link.node, False
    while node.op is Op.RESHAPE or node.op is Op.DETACH:
        if is_kept(node):
            node = node.arg.storage
            continue
        detached = detached or (node.op is Op.DETACH and node.arg is None)
        if node.op is Op.DETACH and not detached and not marked:
            return None
        node = node.src[0]
    if node.op is not Op.BUFFER:
        return None
    return node.arg, cast("tuple[int, ...]", link.node.shape)


def argument(tensor: _T) -> _T:
    """Return an ordinary tensor with the data of a view, to pass as an argument of a program."""
    link = tensor._link
    assert link is not None
    if tensor._lineage is not False or not _is_here(tensor):
        found = tensor._of(node_of(tensor, link))
        realize.realize(found)
        return found
    if not link.root.is_realized:
        realize.realize(link.root)
    realize.realize(tensor)
    buffer, shape = tensor._buffer, tensor._shape
    assert buffer is not None
    assert shape is not None
    return tensor._over(buffer, shape)


def unshared(result: _T, source: TensorBase) -> _T:
    """Return `result`, copied if it is `source` or a view; PyTorch's operation always copies."""
    if result is source or result._link is not None:
        return cast("_T", cast("Any", result).clone())
    return result


def unlink(tensor: TensorBase) -> None:
    """Turn a view into an ordinary tensor with the same value."""
    link = tensor._link
    if link is None:
        return
    enter(tensor, link)
    _drop_data(tensor, link)
    if shared_memory.shared[0] and state.local.trace is None and shared_memory.is_shared(tensor):
        tensor._uop = shared_memory.taken(tensor, link.node)
    tensor._link = None
    if tensor._born is None:
        state.births[0] += 1
        state.watched.add(tensor)
        state.births[0] += 1


_name_template_views(_layout, unlink, INDEX)


# ---- writing


def is_item(value: object, source: TensorBase, index: object) -> bool:
    """Return whether `value` is the view ``source[index]``, whose assignment is a no-op."""
    link = getattr(value, "_link", None)
    if link is None:
        return False
    path, kind, arguments = link.path
    own = source._link
    root, before = (source, None) if own is None else (own.root, own.path)
    if link.root is not root or path is not before or kind is not INDEX:
        return False
    _, given, nodes = arguments
    if given is not index:
        return False
    # Index tensors and arrays may have changed since. Only in a trace do their nodes show that.
    arrays = [i for i in (index if isinstance(index, tuple) else (index,)) if _is_changeable(i)]
    if arrays and state.local.trace is None:
        return False
    return len(arrays) == len(nodes) and all(
        isinstance(i, ArrayHandle) and cast("TensorBase", i).uop is node
        for i, node in zip(arrays, nodes, strict=True)
    )


def _is_changeable(item: object) -> bool:
    return not (item is None or item is Ellipsis or isinstance(item, int | slice))


def placed(tensor: _T, value: _T, root: _T) -> _T:
    """Return `root` with the elements that the view `tensor` shows replaced by `value`."""
    link = tensor._link
    assert link is not None
    steps = list(_steps(link.path))
    if any(kind is BITS for kind, _ in steps):
        # Integers keep the bits of elements that are not replaced. As float16 or bfloat16, bits of
        # other dtypes can be signaling NaNs, which loads make quiet.
        steps = [(kind, tuple(map(_whole_of, given)) if kind is BITS else given)
                 for kind, given in steps]  # fmt: skip
        whole, part = (cast("Any", t).bitcast(_whole_of(t.dtype)) for t in (root, value))
        return cast("_T", _placed(tensor, steps, part, whole).bitcast(root.dtype))
    return cast("_T", _placed(tensor, steps, value, root))


def _whole_of(dtype: dt.DType) -> dt.DType:
    """Return the signed integer dtype of the same width."""
    return dt.parse(f"int{dtype.bits}")


def _placed(
    tensor: TensorBase, steps: Sequence[tuple[Kind, tuple[Any, ...]]], value: Any, root: Any
) -> Any:
    if any(kind.put is None for kind, _ in steps):
        _check_no_broadcast(tensor)
        # The view may show elements twice (overlapping windows), so no inverse exists: apply the
        # path to the row-major positions of the root's elements, and scatter to these positions.
        positions = root._of(build.reshape(build.iota(prod(root.dims)), root.dims))
        for kind, arguments in steps:
            if kind is not BITS:
                positions = kind.get(positions, *arguments)
            elif arguments[0].bits != arguments[1].bits:
                raise ShapeError(
                    f"cannot write through view({tensor.dtype.name}) to sliding windows, as from "
                    "unfold(), or to an expanded view, since its item size differs from that of "
                    f"{root.dtype.name}; copy the view first, as in x.clone()"
                )
        return root._with_elements(positions, value)
    levels = [root]
    for kind, arguments in steps[:-1]:
        levels.append(kind.get(levels[-1], *arguments))
    for (kind, arguments), level in zip(reversed(steps), reversed(levels), strict=True):
        assert kind.put is not None
        value = kind.put(level, value, *arguments)
    return value


def _check_no_broadcast(tensor: TensorBase) -> None:
    """Raise ShapeError if a view shows an element of its root several times by a stride of 0."""
    layout = _layout(tensor)
    if layout is not None and any(n > 1 and s == 0 for n, s in zip(*layout, strict=True)):
        raise ShapeError(
            f"cannot write to an expanded view of shape {format_shape(tensor.dims)}: several of "
            "its elements share one element of the viewed tensor; copy it first, as in "
            "x.expand(3, 4).clone()"
        )


def is_detached(tensor: TensorBase) -> bool:
    """Return whether a tensor is a view that is detached from its root's history."""
    link = tensor._link
    return link is not None and any(kind is DETACH for kind, _ in _steps(link.path))


def undetached(tensor: _T) -> _T:
    """Return the root of a view that only detaches it; otherwise return the tensor itself."""
    link = tensor._link
    whole = link is not None and all(kind is DETACH for kind, _ in _steps(link.path))
    return cast("_T", link.root) if link is not None and whole else tensor


def check_history(tensor: TensorBase) -> None:
    """Raise GradientError if a write to a detached view would invalidate a history."""
    link = tensor._link
    assert link is not None
    root = link.root
    if root._lineage is True and root._leaf is None and is_detached(tensor):
        raise GradientError(
            "cannot write to y.detach(), as y was computed with gradients recorded, and the write "
            "would make them wrong; write to a copy, as in y.detach().clone(), or make a new "
            "tensor, as in y = y * 3"
        )


def values_of(tensor: TensorBase) -> Array | None:
    """Compute a tensor and return a NumPy array over its memory.

    Return None if NumPy cannot show the elements, or if they depend on Variables.
    """
    if not is_static(tensor.dims):
        return None
    found = _elements_of(tensor)
    if found is None:
        try:
            realize.realize(tensor)
        except VariableError:
            return None
        found = _elements_of(tensor)
    return found


def copied_from_memory(view: TensorBase) -> Array | None:
    """Copy the elements of a view from the memory of its root, if the view has no data of its own.

    Return None if there is no such memory, if it may change, or for bfloat16.
    """
    if not shows_memory(view):
        return None
    found = view._copy_out()
    if found is None and view.dtype is not dt.bfloat16:
        shown = _array_of(view)
        with contextlib.suppress(MemoryError):  # computing the view raises its own error
            found = None if shown is None else shown.copy()
    return found


def _elements_of(tensor: TensorBase) -> Array | None:
    """Return an array over the memory of a computed tensor, or None if it has no memory."""
    node = tensor.uop  # carries out assignments that are pending
    while node.op is Op.RESHAPE:
        node = node.src[0]
    if node.op is Op.BUFFER and isinstance(node.arg, Buffer) and node.arg.allocated:
        return node.arg.content().reshape(cast("tuple[int, ...]", tensor.dims))
    return _array_of(tensor)


def _numbers_of(items: Sequence[Any]) -> list[Any] | None:
    """Replace the 0-d index tensors among `items` by ints; None if a size is unknown."""
    found: list[Any] = []
    for item in items:
        if isinstance(item, ArrayHandle):
            values = values_of(cast("TensorBase", item))
            if values is None:
                return None
            found.append(int(values.item()))
        elif isinstance(item, UOp) or (isinstance(item, slice) and not has_numbers(item)):
            return None
        else:
            found.append(item)
    return found


def has_numbers(item: slice) -> bool:
    """Return whether NumPy accepts a slice: each part is an integer or None, the step not 0."""
    parts = (item.start, item.stop, item.step)
    return item.step != 0 and all(p is None or isinstance(p, int | np.integer) for p in parts)


def _array_of(tensor: TensorBase) -> Array | None:
    """Return an array over the memory of a tensor, or None if it has no memory."""
    link = tensor._link
    root = tensor if link is None or not link.root.is_realized else link.root
    if not root.is_realized:
        return None
    memory = root._buffer
    assert memory is not None
    array = memory.content().reshape(root._shape)
    if root is tensor:
        return array
    assert link is not None
    for kind, arguments in _steps(link.path):
        found = None if kind.array is None else kind.array(array, *arguments)
        if found is None:
            return None
        array = found
    return array


def has_memory(tensor: TensorBase) -> bool:
    """Return whether :func:`copied_into` may succeed for a tensor."""
    root = tensor if tensor._link is None else tensor._link.root
    return not (
        state.computing or state.changing is not None or root._leaf is not None
        or hasattr(root, "_whose") or not root.is_realized or root.dtype is dt.bfloat16
    )  # fmt: skip


def copied_into(
    tensor: TensorBase, value: TensorBase | float, *selection: tuple[Any, ...]
) -> bool:
    """Copy `value` directly to elements of a tensor or view, if it has memory.

    The caller holds the lock, and no function is traced. A lazy `value` is computed first: a plan
    would write the whole tensor instead.

    Parameters
    ----------
    tensor : Tensor
        Tensor or view to write to.
    value : Tensor or number
        Value that broadcasts to the elements to write. A number must be in the range of the
        tensor's dtype; a float is rounded to it.
    selection : tuple
        Two NumPy indices that are applied one after the other to select the elements; the first
        one makes a view. Omit both to write all elements.

    Returns
    -------
    bool
        False if nothing was written, and a plan must assign to the tensor.
    """
    if not has_memory(tensor):
        return False
    number = build.const_value(value.uop) if isinstance(value, ArrayHandle) else value
    given: Any = number
    if number is None:
        given = values_of(cast("TensorBase", value))
    elif tensor.dtype is dt.float16:
        return False  # NumPy rounds once; a plan rounds to float32 first
    elif tensor.dtype.is_float:
        given = dt.nearest(number, tensor.dtype)
    _ = tensor._live()  # carries out assignments that are pending
    array = _array_of(tensor)
    if array is None or given is None or not array.flags.writeable:
        return False
    index: Any = ...
    if selection:
        view, index = selection
        array = array[view]
        index = tuple([  # the index may share the written memory, as in x[1:][x[:-1]] = True
            i.copy() if isinstance(i, np.ndarray) and np.may_share_memory(array, i) else i
            for i in index
        ])  # fmt: skip
    if isinstance(given, np.ndarray) and np.may_share_memory(array, given):
        if index is ... and _is_same(array, given):
            return True  # x[index] += 1 assigns after it has already changed x in place
        given = given.copy()  # NumPy copies overlapping vectors of other strides in order
    root = tensor if tensor._link is None else tensor._link.root
    return copied(root, given, array, index)


def _is_same(one: Array, two: Array) -> bool:
    """Return whether two arrays show the same elements."""
    return (
        one.ctypes.data == two.ctypes.data and one.shape == two.shape and one.strides == two.strides
    )


def writable_part(tensor: _T) -> _T | None:
    """Return a tensor over the memory of a view if it can be written without its root.

    Return None otherwise. A lazy root is computed first: assignments to parts of a lazy root in a
    loop would build an ever-growing graph of assignments to the whole root.
    """
    link = tensor._link
    assert link is not None
    root = link.root
    if state.local.trace is not None or root._leaf is not None or hasattr(root, "_whose"):
        return None
    if not root.is_realized:
        layout = _layout(tensor)
        whole = layout is not None and math.prod(layout[0]) == math.prod(cast("Any", root.dims))
        if layout is None or whole or not is_packed(tensor):
            return None
        realize.materialize([root])
    enter(tensor, link)
    run = _contiguous_part(link, marked=True)
    if run is None or run[0] is root._memory:
        return None
    return tensor._over(*run)
