"""Traces: record the changes that a function makes to state, without executing them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, NoReturn, TypeAlias, cast

from kernelrt.device.buffer import Buffer
from kernelrt.device.byte_ranges import ByteRangeMap, byte_range_of, taken_byte_range
from kernelrt.errors import JitError
from kernelrt.ir import Op, toposort
from kernelrt.ir.ffi import FfiResult
from kernelrt.ir.shape import format_shape, is_static
from kernelrt.native.array_handle import ArrayHandle
from kernelrt.native.source_lines import advance
from kernelrt.native.thread_modes import TraceMode, count_read
from kernelrt.tensor import state
from kernelrt.tensor.autograd import gradient_state
from kernelrt.tensor.autograd.tags import ArgumentTag, gradient_operands, history, origins, strip
from kernelrt.tensor.eager.data_alias import owner_of
from kernelrt.tensor.nodes import build
from kernelrt.tensor.tracing.weak_types import Numbers
from kernelrt.util.lazy_import import Module

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from kernelrt.ir import Dim, UOp
    from kernelrt.tensor.autograd.gradient_state import ConsumedGradient, Effect
    from kernelrt.tensor.base import TensorBase
    from kernelrt.tensor.eager import realize
else:
    realize = Module("kernelrt.tensor.eager.realize")

__all__ = ["LEAF", "Asked", "ByValue", "Trace", "forbid", "is_tracing", "lineage_kind",
           "was_parameter"]  # fmt: skip

LEAF: Final = "leaf"

#: Properties of arguments that a function has queried: answer by argument index and query.
Asked: TypeAlias = "dict[tuple[int, Callable[[object], object]], object]"


def lineage_kind(value: object) -> str:
    """Return the gradient role of an argument: LEAF, "result", or "" if it requires none."""
    if not isinstance(value, ArrayHandle) or cast("TensorBase", value)._lineage is not True:
        return ""
    return "result" if cast("TensorBase", value)._leaf is None else LEAF


def was_parameter(value: object) -> bool:
    """Return whether an argument is a parameter, frozen or not."""
    return isinstance(value, ArrayHandle) and cast("TensorBase", value)._is_parameter


class ByValue(BaseException):
    """Raised if a function needs values of float arguments: it is traced again with constants.

    Attributes
    ----------
    arguments : frozenset of int
        Indices of the arguments.
    """

    def __init__(self, arguments: frozenset[int]) -> None:
        super().__init__(arguments)
        self.arguments = arguments


class TracePart:
    """Assignments and gradients in a part of a trace, such as the body of a loop.

    Attributes
    ----------
    assigned : list of (Tensor, UOp)
        Tensors that were assigned to, with their values at the end.
    left : list of Tensor
        Tensors whose new gradients were not used by an optimizer.
    found : list of Tensor
        Tensors whose gradients from before were read.
    roots : list of UOp
        Differentiated nodes.
    """

    def __init__(self, states: dict[int, tuple[TensorBase, UOp]]) -> None:
        self._before = states
        self.assigned: list[tuple[TensorBase, UOp]] = []
        self.left: list[TensorBase] = []
        self.found: list[TensorBase] = []
        self.roots: list[UOp] = []

    def note(
        self, states: Mapping[int, tuple[TensorBase, UOp]], uses: Iterable[gradient_state.Use]
    ) -> None:
        """Record the assignments and gradients at the end of the part."""
        for key, (tensor, node) in states.items():
            before = self._before.get(key)
            if before is None or before[1] is not node:
                self.assigned.append((tensor, node))
        for use in uses:
            if use.start is not None:
                self.found.append(use.tensor)
            elif use.now is not None and use.used is None:
                self.left.append(use.tensor)

    def cleared(self, use: gradient_state.Use) -> bool:
        """Return whether the part read no gradient that existed before it."""
        return not any(tensor is use.tensor for tensor in self.found)


class Trace(TraceMode):
    """Context that collects the assignments of this thread and computes nothing.

    A tensor with storage that is assigned to in the trace is added to `assigned`. Later reads in
    the trace see the new expression. The tensor itself does not change, so other threads do not
    see the assignment: the plan built from :meth:`commits` writes the storage. The same holds for
    the ``grad`` of each tensor; see :meth:`effects`.

    Raises
    ------
    JitError
        A trace is active on this thread already.
    """

    def __init__(self) -> None:
        self._written: ByteRangeMap[TensorBase] = ByteRangeMap()
        self._grads: dict[int, gradient_state.Use] = {}
        #: The first use of each existing gradient, by the identity of the gradient tensor.
        self._shared: dict[int, gradient_state.Use] = {}
        #: All uses of existing gradients, by the identity of the tensor that the function sees.
        self._starts: dict[int, gradient_state.Use] = {}
        self._named: dict[int, TensorBase] = {}
        self._roots: list[UOp] = []
        self._given: set[int] = set()
        #: Gradient role of each argument, by index; and the indices of arguments, by identity.
        self._kinds: Sequence[str] = ()
        self._were_parameters: Sequence[bool] = ()
        self._arguments: dict[int, int] = {}
        #: Tensors from outside whose `requires_grad` was read, with its value.
        self.asked_of: dict[int, tuple[TensorBase, bool]] = {}
        #: Tensors from outside whose `requires_grad` was set, with its value before.
        self.told: dict[int, tuple[TensorBase, bool]] = {}
        #: Those of them that were not parameters before.
        self._new: set[int] = set()
        #: Tensors from outside queried for whether they are parameters, with the answer.
        self.asked_parameters: dict[int, tuple[TensorBase, bool]] = {}
        #: Values computed in the trace whose `requires_grad` was read.
        self.asked_values: list[UOp] = []
        #: Cache of the answers of :meth:`met` by node.
        self._met: dict[UOp, bool] = {}
        self.asked_arguments: Asked = {}
        self._elsewhere: dict[int, Buffer] = {}
        #: The arguments that are Python numbers, and their indices.
        self.numbers = Numbers()
        self.number_arguments: dict[Buffer, int] = {}
        #: Whether the function queried if gradients are enabled.
        self.asked = False
        #: The data of tensors that the function created from lists and arrays.
        self.constants: set[Buffer] = set()

    def _begin(self) -> None:
        realize.flush()
        advance()

    @property
    def assigned(self) -> tuple[TensorBase, ...]:
        """Tensors with storage that were assigned to, in the order of the first assignment."""
        return tuple(t for t, _ in self._states.values())

    def assigned_to(self, tensor: TensorBase) -> UOp | None:
        """Return the last value assigned to `tensor`, or None."""
        found = self._states.get(id(tensor))
        return None if found is None else found[1]

    def commits(self) -> list[tuple[UOp, UOp]]:
        """Return (storage, value) for each assigned tensor whose value changed; both flat."""
        out = []
        values = strip(node for _, node in self._states.values())
        for tensor, value in zip(self.assigned, values, strict=True):
            buffer = tensor._buffer
            assert buffer is not None
            buffer = self._elsewhere.get(id(tensor), buffer)
            storage, flat = build.write(buffer, value)
            if flat is not storage:
                out.append((storage, flat))
        return out

    def record(self, tensor: TensorBase, node: UOp) -> None:
        """Record an assignment of `node` to `tensor`, which has storage."""
        self.check_alone(tensor, "is assigned to")
        if id(tensor) not in self._states:
            buffer = tensor._buffer
            assert buffer is not None
            self._written.add(byte_range_of(buffer), tensor)
            start = self._starts.get(id(tensor))
            if start is not None and start.other_buffer is not None:
                self._written.add(byte_range_of(start.other_buffer), tensor)
        self._states[id(tensor)] = tensor, node

    def check_alone(self, tensor: TensorBase, does: str) -> None:
        """Raise JitError if `tensor` shares memory with another tensor that was assigned to.

        The trace cannot express the value of one tensor after a write to the other: it is known
        only when the plan runs.
        """
        buffer = tensor._memory
        start = self._starts.get(id(tensor))
        if start is None and buffer in state.homes:
            self._named[id(tensor)] = tensor
        if not self._states or buffer is None:
            return
        buffers = (buffer, None if start is None else start.other_buffer)
        for b in buffers:
            region = None if b is None else taken_byte_range(b)
            for other in () if region is None else self._written.meeting(region):
                if other is not tensor:
                    raise JitError(
                        f"a tensor of shape {format_shape(tensor.dims)} {does}, but a tensor of "
                        f"shape {format_shape(other.dims)} that shares its memory was assigned to "
                        "earlier in the traced function; use only one of the two, or make a copy "
                        "of one with clone() before calling the function"
                    )

    @contextlib.contextmanager
    def within(self, begin: Sequence[tuple[TensorBase, UOp]] = ()) -> Iterator[TracePart]:
        """Return a context that collects assignments separately and discards them at its end.

        Parameters
        ----------
        begin : sequence of (Tensor, UOp)
            Tensors with another initial value in this context.
        """
        states, uses, n_roots = dict(self._states), dict(self._grads), len(self._roots)
        now = {key: (use.now, use.used) for key, use in uses.items()}
        for use in uses.values():
            use.now = None
        for tensor, node in begin:
            self._states[id(tensor)] = tensor, node
        inner = TracePart(dict(self._states))
        try:
            yield inner
            inner.note(self._states, self._grads.values())
            inner.roots = self._roots[n_roots:]
        finally:
            self._states = states
            del self._roots[n_roots:]
            for key, use in self._grads.items():
                if key in now:
                    use.now, use.used = now[key]
                else:
                    use.now = None if inner.cleared(use) else use.start

    # ---- gradients

    def name_arguments(
        self, arguments: Mapping[int, TensorBase], values: Sequence[object]
    ) -> None:
        """Set the tensors that stand for the arguments, by index, and the actual arguments."""
        self._kinds = [lineage_kind(value) for value in values]
        self._were_parameters = [was_parameter(value) for value in values]
        self._arguments = {id(tensor): i for i, tensor in arguments.items()}

    def requires_grad(self, tensor: TensorBase) -> bool:
        """Return whether `tensor` requires a gradient; the plan is only for this answer."""
        answer = tensor._lineage is True
        if self.is_from_outside(tensor):
            self.asked_of.setdefault(id(tensor), self.told.get(id(tensor), (tensor, answer)))
            return answer
        if not tensor.dtype.is_float or (tensor._plain and id(tensor) not in self._arguments):
            return False
        # Use `_uop` even if gradients are disabled: `uop` is detached then.
        return self.asks(tensor._uop or tensor.uop) or answer

    def asks(self, node: UOp) -> bool:
        """Return whether a gradient of `node` reaches an argument; record that this was queried."""
        self.asked_values.append(node)
        return self.met(node)

    def met(self, node: UOp) -> bool:
        """Return the same as :meth:`asks`, but record only the queried arguments."""
        for part in history(node, self._met.__contains__):
            if part not in self._met:
                self._met[part] = self._meets(part)
        return self._met[node]

    def _meets(self, node: UOp) -> bool:
        """Return the answer of :meth:`met` for `node`, given cached answers for its operands."""
        if node.op is Op.DETACH and isinstance(node.arg, ArgumentTag):
            i = node.arg.index
            self.asked_arguments[i, lineage_kind] = kind = self._kinds[i]
            return bool(kind)
        return any(self._met[operand] for operand in gradient_operands(node))

    def is_parameter(self, tensor: TensorBase) -> bool:
        """Return whether `tensor` is a parameter; the plan is only for this answer."""
        answer = tensor._is_parameter
        i = self._arguments.get(id(tensor))
        if i is not None:
            self.asked_arguments[i, was_parameter] = was = self._were_parameters[i]
            return answer or was
        if tensor._born is not self and not (answer and id(tensor) in self._new):
            self.asked_parameters.setdefault(id(tensor), (tensor, answer))
        return answer

    def tell(self, tensor: TensorBase) -> None:
        """Record an assignment to ``tensor.requires_grad``; replays repeat it."""
        if self.is_from_outside(tensor) and id(tensor) not in self.told:
            self.told[id(tensor)] = tensor, tensor._lineage is True
            if not tensor._is_parameter:
                self._new.add(id(tensor))

    def take_back(self) -> list[tuple[TensorBase, bool]]:
        """Restore `requires_grad` as it was before the trace; return the recorded settings."""
        settings = []
        for tensor, before in self.told.values():
            after = tensor._lineage is True
            became = id(tensor) in self._new and tensor._is_parameter
            if became and not after:
                settings.append((tensor, True))
            if became or after is not before:
                settings.append((tensor, after))
                tensor.requires_grad_(before)
            if became:
                tensor._never_required()
        return settings

    def is_from_outside(self, tensor: TensorBase) -> bool:
        """Return whether `tensor` was neither created in the trace nor is an argument."""
        return tensor._born is not self and id(tensor) not in self._arguments

    def is_leaf_given(self, tensor: TensorBase) -> bool:
        """Return whether `tensor` is an argument that collects gradients."""
        i = self._arguments.get(id(tensor))
        return i is not None and self._kinds[i] == LEAF

    def differentiate(self, root: UOp, *, for_all: bool) -> None:
        """Record that `root` is differentiated, with respect to all leaves or to some."""
        self._roots.append(root)
        if for_all:
            self.reach(root)

    def reach(self, root: UOp) -> None:
        """Record that gradients of `root` flow into all arguments that it depends on."""
        self._given |= origins(root)[1]

    def differentiated_within(self, roots: Iterable[UOp]) -> None:
        """Record nodes that were differentiated in a part that has ended."""
        self._roots += roots

    @property
    def reached(self) -> frozenset[int]:
        """Indices of the arguments that gradients flow into without being collected."""
        return frozenset(self._given)

    @property
    def differentiated(self) -> tuple[UOp, ...]:
        """Differentiated nodes."""
        return tuple(self._roots)

    def grad_of(self, tensor: TensorBase) -> TensorBase | ConsumedGradient | None:
        """Return the ``grad`` of `tensor` as the function sees it at this point."""
        return self._use(tensor, read=True).now

    def set_grad(self, tensor: TensorBase, value: TensorBase | None) -> None:
        """Record that the ``grad`` of `tensor` is set."""
        self._use(tensor, read=False).now = value

    def _use(self, tensor: TensorBase, *, read: bool) -> gradient_state.Use:
        use = self._grads.get(id(tensor))
        if use is None:
            self._grads[id(tensor)] = use = gradient_state.Use(tensor, read)
            before = use.before
            if isinstance(before, gradient_state.ConsumedGradient):
                use.now = before
            if read and gradient_state.kind_of(before) == gradient_state.GIVEN:
                self._start_from_existing(use)
        return use

    def _start_from_existing(self, use: gradient_state.Use) -> None:
        """Initialize `use` with the existing gradient.

        The function sees a new tensor of the trace over the home of the gradient. So it can be
        distinguished from the gradient tensor itself, if the function also reaches that tensor in
        another way.
        """
        home = gradient_state.home_of(use.tensor)
        gradient = gradient_state.tensor_of(use.before)
        first = None if gradient is None else self._shared.get(id(gradient))
        if first is not None:
            use.same, use.now = first.tensor, first.start
        else:
            use.now = home.over(use.tensor)
            use.now._born = self
            self._starts[id(use.now)] = use
        use.start = use.now
        if gradient is not None and first is None:
            self._shared[id(gradient)] = use
            use.gradient = gradient
            if use.before is not home:
                if not gradient.is_realized:
                    self.admit(gradient)
                # The plan may write another tensor's home, so the gradient must not stay there.
                gradient_state.move_out(gradient)
                use.other_buffer = gradient._buffer

    @property
    def starts(self) -> list[TensorBase]:
        """Tensors that the function saw as existing gradients; they have no value outside."""
        return [use.start for use in self._starts.values() if use.start is not None]

    @property
    def named(self) -> list[TensorBase]:
        """Tensors in homes of gradients that the function reached other than through ``grad``."""
        return list(self._named.values())

    def _value(self, tensor: object) -> UOp | None:
        """Return the node of a gradient."""
        if not isinstance(tensor, ArrayHandle):
            return None
        tensor = owner_of(cast("TensorBase", tensor))
        assigned = self._states.get(id(tensor))
        return tensor._uop if assigned is None else assigned[1]

    def _spare(self, use: gradient_state.Use) -> Buffer:
        """Return new storage for the value assigned to a gradient that the function found."""
        buffer = gradient_state.home_of(use.tensor).buffer
        other = self._elsewhere[id(use.start)] = Buffer(buffer.size, buffer.dtype)
        return other

    def use_up(self, tensor: TensorBase) -> None:
        """Record that an optimizer has used the current ``grad`` of `tensor`."""
        use = self._grads.get(id(tensor))
        if use is not None:
            use.used = self._value(use.now)

    def effects(
        self, name: str, arguments: Iterable[TensorBase], *, keep: bool
    ) -> tuple[list[Effect], list[tuple[UOp, UOp]]]:
        """Return the effects of the function `name` on gradients, and the writes of its plan.

        A gradient that the function clears, computes and uses up in an optimizer step is not
        written to ``.grad``, unless `keep` is true. Gradients of `arguments` are dropped.
        """
        own = {id(t) for t in arguments}
        kept = [
            u for u in self._grads.values()
            if id(u.tensor) not in own and u.tensor._born is not self
        ]
        storages = {id(t._buffer) for t in arguments}
        effects: list[Effect] = []
        written: dict[int, tuple[gradient_state.Use, TensorBase]] = {}
        for use in kept:
            now = use.now
            leaves: TensorBase | ConsumedGradient | gradient_state.GradientBuffer | None = now
            made = False
            source = None if now is use.start else self._starts.get(id(now))
            if id(now) in self._starts:
                leaves = None
            elif isinstance(now, ArrayHandle) and (
                now._born is self or id(now._buffer) in storages
            ):
                made = keep or use.read or self._value(now) is not use.used
                leaves = None if made else gradient_state.ConsumedGradient(name)
                if made and written.setdefault(id(now), (use, now))[0] is not use:
                    made, leaves = False, gradient_state.home_of(written[id(now)][0].tensor)
            changed = None
            owns = use.start is not None and use.same is None
            if owns and id(use.start) in self._states:
                changed = self._spare(use) if made else gradient_state.home_of(use.tensor).buffer
            effects.append(
                gradient_state.Effect(
                    tensor=use.tensor,
                    reads=gradient_state.kind_of(use.before) if use.read else None,
                    home=gradient_state.home_of(use.tensor) if made or owns else None,
                    renewed=now is not use.start or (not use.read and not made),
                    made=made,
                    leaves=leaves,
                    source=None if source is None else source.tensor,
                    same=use.same,
                    other_buffer=use.other_buffer,
                    changed=changed,
                )
            )
        values = strip(cast("UOp", self._value(now)) for _, now in written.values())
        return effects, [
            build.write(gradient_state.home_of(use.tensor).buffer, value)
            for (use, _), value in zip(written.values(), values, strict=True)
        ]

    def keeps(self, tensor: TensorBase) -> bool:
        """Return whether the trace records assignments to a tensor that has no storage yet.

        It does not for a tensor that it created itself.
        """
        return tensor._born is not self

    def holds(self, trace: Trace | None) -> bool:
        """Return whether `trace` encloses this trace."""
        del trace
        return False

    def drawn(
        self, size: tuple[Dim, ...], draw: Callable[..., TensorBase]
    ) -> TensorBase | None:
        """Return random numbers if the trace draws them in a special way; None if it does not."""
        del size, draw
        return None

    def take_by_value(self, values: Iterable[object]) -> None:
        """Raise ByValue if arguments of a failed operation are computed from float arguments.

        The operation may need Python numbers, to branch on them.
        """
        arguments: set[int] = set()
        trace: Trace | None = self
        while trace is not None:
            for value in values:
                if isinstance(value, ArrayHandle):
                    arguments |= trace.arguments_in(cast("TensorBase", value))
            trace = trace.around
        if arguments:
            raise ByValue(frozenset(arguments))

    def arguments_in(self, value: TensorBase) -> set[int]:
        """Return the indices of the float arguments of a value that depends on nothing else."""
        node = value._uop
        if not self.number_arguments or node is None:
            return set()
        read = {n.arg for n in toposort([node]) if n.op is Op.BUFFER}
        if not read <= self.number_arguments.keys():
            return set()
        return {self.number_arguments[buffer] for buffer in read}

    def knows(self, node: UOp) -> bool:
        """Return whether a value depends only on constants, whose values are known in the trace.

        These are numbers, and data that the function itself creates from lists and arrays. Tensors
        from outside are no constants.
        """
        constants, trace = set(self.constants), self.around
        while trace is not None:
            constants |= trace.constants
            trace = trace.around
        return is_static(node.shape) and all(
            n.arg in constants if n.op is Op.BUFFER
            else n.op is not Op.VAR and not isinstance(n.arg, FfiResult)
            for n in toposort([node])
        )

    def refuse_reading(self, what: str, instead: str) -> NoReturn:
        """Raise JitError because `what` needs a value that is not computed yet."""
        raise JitError(
            f"{what} reads a value while a function is traced, when no values are computed yet; "
            f"{instead}; to debug with values, call the function within kernelrt.disable_jit(), or "
            "set KERNELRT_JIT=0"
        )

    def admit(self, tensor: TensorBase) -> None:
        """Compute a lazy tensor that was created before the trace.

        Tensors from outside are state of the traced function. If the expression of such a tensor
        were traced, too, each replay would compute its initial value again.
        """
        state.local.trace = None
        try:
            realize.materialize([tensor])
        finally:
            state.local.trace = self


def is_tracing() -> bool:
    """Return whether this thread is tracing a function."""
    return state.local.trace is not None


#: Advice for errors: alternatives to reading a value in a traced function.
_INSTEAD: Final = (
    "return the tensor and read it outside, or branch inside with where() or kernelrt.cond() and "
    "loop with kernelrt.while_loop()"
)


def forbid(what: str, instead: str = _INSTEAD) -> None:
    """Raise JitError if a trace is active, because `what` needs a value not computed yet."""
    count_read()
    if state.local.trace is not None:
        state.local.trace.refuse_reading(what, instead)
