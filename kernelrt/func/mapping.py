"""vmap: calls a function of one batch element for all elements of a batch at once."""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kernelrt.errors import (
    AxisError,
    DomainError,
    DTypeError,
    JitError,
    ShapeError,
    VariableError,
    a_type,
)
from kernelrt.func.bodies import computes_shared_reads, realized, stepwise
from kernelrt.func.trees import is_nested, mapped
from kernelrt.ir import Op
from kernelrt.ir.records import fields_of, is_record
from kernelrt.ir.shape import format_shape, same
from kernelrt.jit.effects.purity import MEMBERS, called_once
from kernelrt.jit.effects.side_effects import OuterState
from kernelrt.nn.tree import named_tensors
from kernelrt.tensor import Tensor, state
from kernelrt.tensor.eager.assign import assign_all
from kernelrt.tensor.free_functions.joining import stack
from kernelrt.tensor.methods.masked import refuse_part
from kernelrt.tensor.nodes import build
from kernelrt.tensor.nodes.arguments import integer
from kernelrt.tensor.rng.random import get_rng_state, set_rng_state
from kernelrt.tensor.rng.stream import is_counter
from kernelrt.tensor.tracing.batching_rules import BatchedValue, along
from kernelrt.tensor.tracing.vmap_trace import DIFFERENT, ERROR, SAME, VmapTrace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from kernelrt.ir import Dim, UOp
    from kernelrt.tensor.base import TensorBase

    #: Identity and batch axis of a tensor among the arguments.
    _Key = tuple[int, int]

__all__ = ["vmap"]

_NOT_GIVEN: Final = object()


def vmap(
    f: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0, randomness: str = DIFFERENT, *,
    axis_size: int | None = None, chunk_size: int | None = None,
    in_dims: Any = _NOT_GIVEN, out_dims: Any = _NOT_GIVEN,
) -> Callable[..., Any]:  # fmt: skip
    """Vectorize a function: map it over an axis of its arguments.

    `f` is called once, with tensors that stand for one element of the batch. Its graph is
    rewritten: every node that depends on the batch gets one more axis. So there is no loop, and the
    graph is fused and split among threads like any other.

    Parameters
    ----------
    f : callable
        Function of tensors, or of dicts, lists, tuples and dataclasses of tensors, that returns
        tensors or nested tensors. It cannot read values, since there is one per batch element.
    in_axes : int, None, or nested tuples, lists, dicts and dataclasses of them
        Batch axis of each argument; None for an argument that all batch elements share. One value
        for all arguments, or a tuple with one entry for each. An entry applies to all tensors of
        its argument, or is nested like it. Keyword arguments are shared.
    out_axes : int, None, or nested
        Position of the batch axis in the results; None for a result that does not depend on the
        batch.
    randomness : {"different", "same", "error"}
        Random numbers in `f`. "different": each batch element draws its own numbers. "same": all
        batch elements get the same numbers. "error": drawing numbers raises an error.
    axis_size : int, optional
        Batch size, if no argument has a batch axis.
    chunk_size : int, optional
        Maximum number of batch elements computed at a time; a smaller one takes less memory.
    in_dims, out_dims : optional
        PyTorch's names of `in_axes` and `out_axes`.

    Returns
    -------
    callable
        Takes the arguments of `f`. Those with an axis in `in_axes` have the batch axis in addition.

    Raises
    ------
    DTypeError
        During a call: an argument that has an axis in `in_axes` is not a tensor, or a result is
        not.
    ShapeError
        Sizes of batch axes disagree, an axis is out of range, `in_axes` or `out_axes` are not
        nested like the arguments or results, or a result with the axis None depends on the batch.
    JitError
        `f` reads a value, assigns a value that depends on the batch to a tensor that is not an
        argument, or has a side effect that would have to happen once for each batch element, such
        as setting an attribute or counting.

    Examples
    --------
    >>> x, y = krt.tensor([[1.0, 2.0], [3.0, 4.0]]), krt.tensor([10.0, 1.0])
    >>> krt.vmap(krt.dot, in_axes=(0, None))(x, y).tolist()
    [12.0, 34.0]
    >>> krt.vmap(krt.func.grad(lambda x: (x**3).sum()))(x).tolist()
    [[3.0, 12.0], [27.0, 48.0]]
    """
    if not callable(f):
        raise DTypeError(f"f: expected a function, not {type(f).__name__}")
    if randomness not in (DIFFERENT, SAME, ERROR):
        raise DomainError(
            f"randomness: expected 'different', 'same' or 'error', not {randomness!r}"
        )
    before = _either(in_axes, in_dims, "in_axes", "in_dims")
    behind = _either(out_axes, out_dims, "out_axes", "out_dims")
    size = None if axis_size is None else integer(axis_size, "axis_size", 0)
    chunk = None if chunk_size is None else integer(chunk_size, "chunk_size", 1)

    @computes_shared_reads
    def for_all(*args: Any, **kwargs: Any) -> Any:
        mapping = _Mapping(f, args, before, size, randomness, chunk)
        if stepwise() and mapping.goes_one_by_one:
            return mapping.one_by_one(kwargs, behind)
        return mapping.call(kwargs, behind)

    functools.update_wrapper(for_all, f, updated=())
    return for_all


def _either(value: Any, other: Any, name: str, other_name: str) -> Any:
    if other is _NOT_GIVEN:
        return value
    if value != 0:
        raise DTypeError(f"{name}: {other_name} is an alias of {name}; give only one of the two")
    return other


@dataclass(frozen=True, slots=True, eq=False)
class _Mapped:
    """An argument with a batch axis."""

    path: str
    tensor: Tensor
    axis: int

    @property
    def size(self) -> Dim:
        return self.tensor.dims[self.axis]

    def stack(self) -> UOp:
        """Return the values with the batch axis first."""
        node = self.tensor.uop
        others = (a for a in range(len(node.shape)) if a != self.axis)
        return build.permute(node, (self.axis, *others)) if self.axis else node


class _Mapping:
    """One call of a function for a whole batch."""

    def __init__(
        self, f: Callable[..., Any], args: Sequence[Any], axes: Any, size: int | None,
        randomness: str, chunk: int | None,
    ) -> None:  # fmt: skip
        self._f, self._args, self._axes = f, args, _of_arguments(axes, args)
        self._given: dict[_Key, _Mapped] = {}
        for i, (arg, axis) in enumerate(zip(args, self._axes, strict=True)):
            for path, leaf, batch_axis in _with_axes(arg, axis, f"argument {i}", "in_axes"):
                if batch_axis is not None:
                    self._take(path, leaf, batch_axis)
        self._randomness = randomness
        self._count = self._size(size)
        self._chunk = chunk
        if chunk is not None and not isinstance(self._count, int):
            raise VariableError(
                f"chunk_size: expected a fixed batch size, not {self._count}, which is known only "
                "at run time; leave chunk_size out"
            )
        self._trace = VmapTrace(self._count, randomness, Tensor)

    def _take(self, path: str, leaf: Any, axis: int) -> None:
        if not isinstance(leaf, Tensor):
            raise DTypeError(
                f"{path}: expected a Tensor with the batch axis {axis}, not "
                f"{type(leaf).__name__}; convert an array with kernelrt.tensor(), or give it the "
                "axis None in in_axes if the whole batch shares it"
            )
        batch_axis = _axis(axis, leaf.ndim, leaf.dims, path, "in_axes")
        # A tensor that is given twice is one tensor in the function, too.
        self._given.setdefault((id(leaf), batch_axis), _Mapped(path, leaf, batch_axis))

    def _size(self, size: int | None) -> Dim:
        found: list[tuple[str, Dim]] = [] if size is None else [("axis_size", size)]
        found += [
            (f"{m.path} of shape {format_shape(m.tensor.dims)} along its axis {m.axis}", m.size)
            for m in self._given.values()
        ]
        if not found:
            raise ShapeError(
                "in_axes: no argument has a batch axis; give one an axis, or set the batch size "
                "with axis_size="
            )
        first, count = found[0]
        for other, n in found[1:]:
            if not same(n, count):
                raise ShapeError(
                    f"in_axes: {other} has size {n}, but {first} has size {count}; all batch axes "
                    "must have the same size"
                )
        return count

    def call(self, kwargs: dict[str, Any], out_axes: Any) -> Any:
        """Return the results for the whole batch; update the arguments that `f` assigned to."""
        trace = self._trace
        stacks = {key: m.stack() for key, m in self._given.items()}
        with trace:
            inside = {key: trace.member(stack) for key, stack in stacks.items()}
            nodes = {key: member._uop for key, member in inside.items()}
            args = [
                _replaced(arg, axis, inside)
                for arg, axis in zip(self._args, self._axes, strict=True)
            ]
            named = [(f"argument {i}", arg) for i, arg in enumerate(self._args)]
            out = called_once(
                trace, MEMBERS, "vmap", [self._f], lambda: self._f(*args, **kwargs),
                [*named, *kwargs.items()],
            )  # fmt: skip
            results = list(_with_axes(out, out_axes, "the result", "out_axes"))
            roots = _roots(results)
            changed = _changed(trace, inside, nodes)
            written = trace.written()
        values = self._values([*roots, *(node for _, node in changed), *(n for _, n in written)])
        found = values[: len(roots)]
        alike = self._alike(written, values[len(roots) + len(changed) :])
        trace.close()
        leaves = iter(self._left(found, [r for r in results if r[1] is not None]))
        given_back = mapped(lambda _: next(leaves), out)
        behind = values[len(roots) :]
        # Make all tensors before the first assignment, which may overwrite what others read.
        back = [
            (self._given[key], self._put_back(key, made))
            for (key, _), made in zip(changed, behind, strict=False)
        ]
        new = [(tensor, Tensor._of(node)) for tensor, node in alike]
        for given, value in back:
            path = f"{given.path}, to which the function that vmap calls assigns"
            given.tensor._replace(value, path)
        with state.no_grad():
            assign_all(new)
        return given_back

    # ---- step by step

    @property
    def goes_one_by_one(self) -> bool:
        """Whether `f` can be called for each batch element separately."""
        return isinstance(self._count, int) and self._count > 0 and self._randomness != ERROR

    def one_by_one(self, kwargs: dict[str, Any], out_axes: Any) -> Any:
        """Return the results for the whole batch, from one call of `f` for each element.

        Every call starts with the same state.
        """
        assert isinstance(self._count, int)
        outs, ends, members = [], [], []
        tensors = self._state()
        begin = [_copy(t) for t in tensors]
        numbers = get_rng_state()
        for i in range(self._count):
            if self._randomness == SAME:
                set_rng_state(numbers)
            inside = {
                key: realized(Tensor._of(m.tensor.select(m.axis, i).uop).clone())
                for key, m in self._given.items()
            }
            args = [
                _replaced(arg, axis, inside)
                for arg, axis in zip(self._args, self._axes, strict=True)
            ]
            outs.append(realized(self._f(*args, **kwargs)))
            members.append(inside)
            ends.append(_taken_back(tensors, begin))
        self._give_on(tensors, ends)
        for key, given in self._given.items():
            made = _copy(stack([inside[key] for inside in members], given.axis))
            if not _same(made, _copy(given.tensor)):
                path = f"{given.path}, to which the function that vmap calls assigns"
                given.tensor._replace(made, path)
        return self._put_together(outs, out_axes)

    def _state(self) -> list[Tensor]:
        """Return the tensors that the function reaches and so may assign to."""
        around = OuterState(("", self._f))
        given = {id(m.tensor) for m in self._given.values()}
        found = {
            id(t): t for _, t in around.reached((Tensor,))
            if isinstance(t, Tensor) and id(t) not in given
        }
        return realized(list(found.values()))  # type: ignore[no-any-return]

    def _give_on(self, tensors: Sequence[Tensor], ends: Sequence[dict[int, Tensor]]) -> None:
        """Assign the new values of state, which have to be the same for all batch elements."""
        for i in dict.fromkeys(i for end in ends for i in end):
            values = [end[i] for end in ends if i in end]
            if len(values) < len(ends) or not all(_same(v, values[0]) for v in values):
                raise self._differs(tensors[i])
            with state.no_grad():
                tensors[i].assign(values[0])

    def _put_together(self, outs: Sequence[Any], out_axes: Any) -> Any:
        """Stack the results of the batch elements."""
        columns = [list(_with_axes(out, out_axes, "the result", "out_axes")) for out in outs]
        for column in columns:
            _roots(column)
        leaves = []
        for parts in zip(*columns, strict=True):
            path, leaf, axis = parts[0]
            if leaf is None:
                continue
            if axis is None:
                leaves.append(leaf)
                continue
            batch_axis = _axis(axis, leaf.ndim + 1, leaf.dims, path, "out_axes", more=1)
            leaves.append(stack([part for _, part, _ in parts], batch_axis))
        rest = iter(leaves)
        return mapped(lambda _: next(rest), outs[0])

    def _values(self, roots: Sequence[UOp]) -> list[BatchedValue]:
        """Return values for the whole batch; those that depend on it have a first batch axis."""
        stacks, count, chunk = self._trace.stacks, self._count, self._chunk
        if chunk is None or not isinstance(count, int) or count <= chunk:
            return along(roots, stacks, count)
        parts = []
        for low in range(0, count, chunk):
            high = min(low + chunk, count)
            given = {node: _slice(stack, low, high) for node, stack in stacks.items()}
            parts.append(along(roots, given, high - low))
        return [_joined(part) for part in zip(*parts, strict=True)]

    def _left(
        self, values: Sequence[BatchedValue], results: Sequence[tuple[str, Any, int | None]]
    ) -> Iterator[Tensor]:
        """Yield the results, with the batch axis at the position that `out_axes` gives."""
        for made, (path, leaf, axis) in zip(values, results, strict=True):
            if axis is None:
                if made.batched:
                    raise ShapeError(
                        f"out_axes: {path} differs between batch elements, so the result needs a "
                        "batch axis; give an axis instead of None"
                    )
                yield Tensor._of(made.value)
                continue
            node = made.lifted(self._count)
            rank = len(node.shape)
            batch_axis = _axis(axis, rank, leaf.dims, path, "out_axes", more=1)
            order = [*range(1, rank)]
            order.insert(batch_axis, 0)
            yield Tensor._of(build.permute(node, order) if batch_axis else node)

    def _alike(
        self, written: Sequence[tuple[Any, UOp]], values: Sequence[BatchedValue]
    ) -> list[tuple[Any, UOp]]:
        """Return the values assigned to outside tensors; they must not depend on the batch."""
        found = []
        for (tensor, _), made in zip(written, values, strict=True):
            if made.batched and is_counter(tensor):
                raise JitError(
                    "vmap: random numbers are drawn in a branch or an iteration that only some "
                    "batch elements run; draw the numbers before the branch or loop, and use them "
                    "inside"
                )
            if made.batched:
                raise self._differs(tensor)
            found.append((tensor, made.value))
        return found

    def _differs(self, tensor: Any) -> JitError:
        """Return the error for state whose value depends on the batch element."""
        return JitError(
            f"{_name_of(tensor, self._f, self._args)} of shape {format_shape(tensor.dims)}: the "
            "function that vmap calls assigns to this tensor a value that differs between batch "
            "elements; return the value, or make the tensor an argument with a batch axis, as "
            "kernelrt.func.functional_call does with the running statistics of a module"
        )

    def _put_back(self, key: tuple[int, int], made: BatchedValue) -> Tensor:
        """Return an argument's new value, with the batch axis where the caller's tensor has it."""
        stack, batch_axis = made.lifted(self._count), self._given[key].axis
        order = [*range(1, len(stack.shape))]
        order.insert(batch_axis, 0)
        return Tensor._of(build.permute(stack, order) if batch_axis else stack)


# The loops below run inside `with trace`, so they have no conditions: if an interrupt arrives at
# the end of a loop with one, CPython 3.13 leaves the block without __exit__, and the trace stays
# active.


def _roots(results: Sequence[tuple[str, Any, Any]]) -> list[UOp]:
    """Return the nodes of the results."""
    for path, leaf, _ in results:
        if leaf is not None and not isinstance(leaf, Tensor):
            refuse_part(leaf)
            raise DTypeError(
                f"{path} of the function that vmap calls is {a_type(leaf)}; "
                "expected Tensors, or dicts, lists, tuples and dataclasses of them"
            )
    return [leaf.uop for _, leaf, _ in results if leaf is not None]


def _copy(tensor: Tensor) -> Tensor:
    """Return a computed copy of a tensor."""
    return realized(tensor.detach().clone())  # type: ignore[no-any-return]


def _same(one: Tensor, other: Tensor) -> bool:
    """Return whether two computed tensors have equal bits."""
    a, b = (t._buffer.content() for t in (one, other))  # type: ignore[union-attr]
    return bool(a.tobytes() == b.tobytes())


def _taken_back(tensors: Sequence[Tensor], begin: Sequence[Tensor]) -> dict[int, Tensor]:
    """Return the state that one call changed, by index, and restore the old values."""
    ends = {}
    for i, (tensor, before) in enumerate(zip(tensors, begin, strict=True)):
        now = _copy(tensor)
        if not _same(now, before):
            ends[i] = now
            with state.no_grad():
                tensor.assign(before)
    return ends


def _changed(
    trace: VmapTrace, inside: Mapping[_Key, TensorBase], before: Mapping[_Key, UOp]
) -> list[tuple[_Key, UOp]]:
    """Return the arguments that the function assigned to, with their new nodes."""
    return [
        (key, member.uop)
        for key, member in inside.items()
        if trace.assigned_to(member) is not None or not _is_marked(member._uop, before[key])
    ]


def _is_marked(node: UOp, before: UOp) -> bool:
    """Return whether no value was assigned: `node` is `before`, possibly with tags of hooks."""
    while node is not before and node.op is Op.DETACH:
        node = node.src[0]
    return node is before


def _slice(stack: UOp, low: int, high: int) -> UOp:
    return build.shrink(stack, [(low, high), *((0, d) for d in stack.shape[1:])])


def _joined(parts: Sequence[BatchedValue]) -> BatchedValue:
    """Concatenate the chunks of a batch."""
    first = parts[0]
    return BatchedValue(build.cat([p.value for p in parts], 0), True) if first.batched else first


def _axis(
    axis: int, rank: int, dims: Sequence[Dim], path: str, name: str, more: int = 0
) -> int:
    """Return a checked, nonnegative axis of a tensor with `rank` axes.

    `dims` is the shape for the error message. It lacks the `more` batch axes that `rank` includes.
    """
    if not -rank <= axis < rank:
        with_one = ", plus a batch axis" if more else ""
        raise AxisError(
            f"{name}: {path} has no axis {axis}; its shape is {format_shape(tuple(dims))}"
            f"{with_one}"
        )
    return axis % rank


def _of_arguments(axes: Any, args: Sequence[Any]) -> Sequence[Any]:
    """Return the entry of `in_axes` for each argument."""
    if not isinstance(axes, tuple | list):
        return [axes] * len(args)
    if len(axes) != len(args):
        raise ShapeError(
            f"in_axes: {len(axes)} entries for {len(args)} arguments; give one for each, None for "
            "arguments that the whole batch shares"
        )
    return axes


def _with_axes(
    tree: Any, axes: Any, path: str, name: str
) -> Iterator[tuple[str, Any, int | None]]:
    """Yield the leaves of nested data, each with its path and its axis."""
    if axes is None or (isinstance(axes, int) and not isinstance(axes, bool)):
        for step, child in _children(tree):
            yield from _with_axes(child, axes, path + step, name)
        if tree is not None and not is_nested(tree):
            yield path, tree, axes
        return
    fits = (
        (isinstance(axes, dict) and isinstance(tree, dict) and axes.keys() == tree.keys())
        or (isinstance(axes, list | tuple) and isinstance(tree, list | tuple)
            and len(axes) == len(tree))
        or (is_record(axes) and type(axes) is type(tree))
    )  # fmt: skip
    if not fits:
        raise ShapeError(
            f"{name}: expected an int, None, or axes with the nesting of {path}, a "
            f"{type(tree).__name__}, not {axes!r}"
        )
    if isinstance(axes, dict):
        axes = {key: axes[key] for key in tree}  # in the tree's order
    for (step, child), (_, own) in zip(_children(tree), _children(axes), strict=True):
        yield from _with_axes(child, own, path + step, name)


def _children(tree: Any) -> Iterator[tuple[str, Any]]:
    """Yield the children of a container, each with the path step that leads to it."""
    if isinstance(tree, dict):
        yield from ((f"[{key!r}]", child) for key, child in tree.items())
    elif isinstance(tree, list | tuple):
        yield from ((f"[{i}]", child) for i, child in enumerate(tree))
    elif is_record(tree):
        yield from ((f".{key}", getattr(tree, key)) for key in fields_of(type(tree)))


def _replaced(arg: Any, axes: Any, inside: dict[tuple[int, int], Any]) -> Any:
    """Return an argument whose batched tensors are replaced by those for one batch element."""
    batch_axes = iter([batch_axis for _, _, batch_axis in _with_axes(arg, axes, "", "in_axes")])

    def seen(leaf: Any) -> Any:
        batch_axis = next(batch_axes)
        return leaf if batch_axis is None else inside[id(leaf), batch_axis % leaf.ndim]

    return mapped(seen, arg)


def _name_of(tensor: Any, f: Any, args: Sequence[Any]) -> str:
    """Return the user's name for a tensor that `f` reaches, or a general one."""
    reached: dict[str, Any] = {}
    inner = inspect.unwrap(f) if callable(f) else f
    code = getattr(inner, "__code__", None)
    if code is not None:
        found = inspect.getclosurevars(inner)
        reached.update({**found.globals, **found.nonlocals})
        for i, arg in enumerate(args):
            reached[code.co_varnames[i] if i < code.co_argcount else f"argument {i}"] = arg
    reached.setdefault(getattr(f, "__name__", type(f).__name__), f)
    for name, value in reached.items():
        for path, held in named_tensors(value, name):
            if held is tensor:
                return path
    return "a tensor"
