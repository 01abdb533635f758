"""Traces: record the changes that a function makes to state instead of making them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, NoReturn, TypeAlias, cast

from kernelrt.device.buffer import Buffer
from kernelrt.device.byte_ranges import RegionMap, region_of, taken_region
from kernelrt.errors import JitError
from kernelrt.ir import Op, toposort
from kernelrt.ir.ffi import Foreign
from kernelrt.ir.shape import format_shape, is_static
from kernelrt.native.array_handle import ArrayHandle
from kernelrt.native.source_lines import advance
from kernelrt.native.thread_modes import TraceMode, count_read
from kernelrt.tensor import state
from kernelrt.tensor.autograd import gradient_state
from kernelrt.tensor.autograd.tags import Given, gradient_operands, history, origins, strip
from kernelrt.tensor.eager.data_alias import owner_of
from kernelrt.tensor.nodes import build
from kernelrt.tensor.tracing.weak_types import Numbers
from kernelrt.util.lazy_import import Module

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from kernelrt.ir import Dim, UOp
    from kernelrt.tensor.autograd.gradient_state import Effect, Spent
    from kernelrt.tensor.base import TensorBase
    from kernelrt.tensor.eager import realize
else:
    realize = Module("kernelrt.tensor.eager.realize")

__all__ = ["LEAF", "Asked", "ByValue", "Trace", "forbid", "is_tracing", "lineage_kind",
           "was_parameter"]  # fmt: skip

LEAF: Final = "leaf"

#: What was asked of the arguments: by place and question, the answer.
Asked: TypeAlias = "dict[tuple[int, Callable[[object], object]], object]"


def lineage_kind(value: object) -> str:
    """What an argument is to gradients: LEAF, a result that requires one, or nothing to them."""
    if not isinstance(value, ArrayHandle) or cast("TensorBase", value)._lineage is not True:
        return ""
    return "result" if cast("TensorBase", value)._leaf is None else LEAF


def was_parameter(value: object) -> bool:
    """Whether an argument is a parameter, frozen or not."""
    return isinstance(value, ArrayHandle) and cast("TensorBase", value)._is_parameter


class ByValue(BaseException):
    """A function needs the values of float arguments: the trace begins anew with these as numbers.

    Attributes
    ----------
    places : frozenset of int
        Which arguments.
    """

    def __init__(self, places: frozenset[int]) -> None:
        super().__init__(places)
        self.places = places


class Inner:
    """What a part of a trace assigned.

    Attributes
    ----------
    assigned : list of (Tensor, UOp)
        Tensors, and their values at the end.
    left : list of Tensor
        Those whose gradients were left there, and used by nobody.
    found : list of Tensor
        Those whose gradients from before were read.
    roots : list of UOp
        What gradients were taken of.
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
        """Look at what there is at the end."""
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
        """Whether a gradient is not there any more: an optimizer has used it, or it was dropped."""
        return not any(tensor is use.tensor for tensor in self.found)


class Trace(TraceMode):
    """While it is entered, assignments of this thread are collected and nothing is computed.

    A tensor with storage that is assigned to within the trace becomes part of `assigned`; reads
    that follow, within the trace, see the new expression. The tensor itself stays as it is, so
    other threads notice nothing: the plan made of :meth:`commits` is what writes its storage.
    The same holds for the ``grad`` of each tensor; :meth:`effects` says what becomes of it.

    Raises
    ------
    JitError
        A trace is active on this thread already.
    """

    def __init__(self) -> None:
        self._written: RegionMap[TensorBase] = RegionMap()
        self._grads: dict[int, gradient_state.Use] = {}
        #: The first use of each gradient that was found, by the tensor it is.
        self._shared: dict[int, gradient_state.Use] = {}
        #: The same uses, and those without such a tensor, by what the function sees of it.
        self._starts: dict[int, gradient_state.Use] = {}
        self._named: dict[int, TensorBase] = {}
        self._roots: list[UOp] = []
        self._given: set[int] = set()
        #: Of each argument, by place, what it is to gradients, and by identity, its place.
        self._kinds: Sequence[str] = ()
        self._were_parameters: Sequence[bool] = ()
        self._places: dict[int, int] = {}
        #: Tensors that were there before, and whether they required a gradient when asked.
        self.asked_of: dict[int, tuple[TensorBase, bool]] = {}
        #: Those that were told whether to, and whether they did before.
        self.told: dict[int, tuple[TensorBase, bool]] = {}
        #: Those of them that were never told so before.
        self._new: set[int] = set()
        #: Tensors that were there before, and whether they were parameters when asked.
        self.asked_parameters: dict[int, tuple[TensorBase, bool]] = {}
        #: Values computed by the trace for which it was asked whether they do.
        self.asked_values: list[UOp] = []
        #: What :meth:`met` said, of all that it looked at: a graph is looked at once.
        self._met: dict[UOp, bool] = {}
        self.asked_arguments: Asked = {}
        self._elsewhere: dict[int, Buffer] = {}
        #: Those of the arguments that are numbers, and their places.
        self.numbers = Numbers()
        self.number_places: dict[Buffer, int] = {}
        #: Whether the function asked if gradients are recorded.
        self.asked = False
        #: The data of tensors that the function made of lists and arrays.
        self.constants: set[Buffer] = set()

    def _begin(self) -> None:
        realize.flush()
        advance()

    @property
    def assigned(self) -> tuple[TensorBase, ...]:
        """The tensors with storage that were assigned to, in the order of first assignment."""
        return tuple(t for t, _ in self._states.values())

    def assigned_to(self, tensor: TensorBase) -> UOp | None:
        """What was assigned to `tensor` last, None if nothing was."""
        found = self._states.get(id(tensor))
        return None if found is None else found[1]

    def commits(self) -> list[tuple[UOp, UOp]]:
        """(storage, value) for each assigned tensor whose value changed; both flat."""
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
        """Note that `node` is assigned to `tensor`, which has storage."""
        self.check_alone(tensor, "is assigned to")
        if id(tensor) not in self._states:
            buffer = tensor._buffer
            assert buffer is not None
            self._written.add(region_of(buffer), tensor)
            start = self._starts.get(id(tensor))
            if start is not None and start.beside is not None:
                self._written.add(region_of(start.beside), tensor)
        self._states[id(tensor)] = tensor, node

    def check_alone(self, tensor: TensorBase, does: str) -> None:
        """Raise JitError if `tensor` shares memory with another that was assigned to.

        What another tensor holds once this one is assigned to is known only when the plan runs.
        """
        buffer = tensor._memory
        start = self._starts.get(id(tensor))
        if start is None and buffer in state.homes:
            self._named[id(tensor)] = tensor
        if not self._states or buffer is None:
            return
        places = (buffer, None if start is None else start.beside)
        if any(
            other is not tensor
            for place in places
            if place is not None and (region := taken_region(place)) is not None
            for other in self._written.meeting(region)
        ):
            raise JitError(
                f"a tensor of shape {format_shape(tensor.dims)} {does} after another tensor over "
                "the same memory was assigned to in the traced function; use only one of the two, "
                "or make a copy with clone() outside the function"
            )

    @contextlib.contextmanager
    def within(self, begin: Sequence[tuple[TensorBase, UOp]] = ()) -> Iterator[Inner]:
        """While it is entered, what is assigned is noted apart, and forgotten at the end.

        Parameters
        ----------
        begin : sequence of (Tensor, UOp)
            Tensors that have another value there.
        """
        states, uses, n_roots = dict(self._states), dict(self._grads), len(self._roots)
        now = {key: (use.now, use.used) for key, use in uses.items()}
        for use in uses.values():
            use.now = None
        for tensor, node in begin:
            self._states[id(tensor)] = tensor, node
        inner = Inner(dict(self._states))
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
        """Tell what stands for the arguments, by place, and what they are outside."""
        self._kinds = [lineage_kind(value) for value in values]
        self._were_parameters = [was_parameter(value) for value in values]
        self._places = {id(tensor): place for place, tensor in arguments.items()}

    def requires_grad(self, tensor: TensorBase) -> bool:
        """Whether `tensor` requires a gradient, which the plan is made for from now on."""
        answer = tensor._lineage is True
        if self.is_from_outside(tensor):
            self.asked_of.setdefault(id(tensor), self.told.get(id(tensor), (tensor, answer)))
            return answer
        if not tensor.dtype.is_float or (tensor._plain and id(tensor) not in self._places):
            return False
        # Also where nothing is recorded: `uop` is detached then.
        return self.asks(tensor._uop or tensor.uop) or answer

    def asks(self, node: UOp) -> bool:
        """Whether a gradient of `node` comes to an argument that has one; noted as a question."""
        self.asked_values.append(node)
        return self.met(node)

    def met(self, node: UOp) -> bool:
        """As :meth:`asks`, of which only the arguments are noted."""
        for part in history(node, self._met.__contains__):
            if part not in self._met:
                self._met[part] = self._meets(part)
        return self._met[node]

    def _meets(self, node: UOp) -> bool:
        """What :meth:`met` says of `node`, where it is known of what a gradient flows on to."""
        if node.op is Op.DETACH and isinstance(node.arg, Given):
            place = node.arg.place
            self.asked_arguments[place, lineage_kind] = kind = self._kinds[place]
            return bool(kind)
        return any(self._met[operand] for operand in gradient_operands(node))

    def is_parameter(self, tensor: TensorBase) -> bool:
        """Whether `tensor` is a parameter, which the plan is made for from now on."""
        answer = tensor._is_parameter
        place = self._places.get(id(tensor))
        if place is not None:
            self.asked_arguments[place, was_parameter] = was = self._were_parameters[place]
            return answer or was
        if tensor._born is not self and not (answer and id(tensor) in self._new):
            self.asked_parameters.setdefault(id(tensor), (tensor, answer))
        return answer

    def tell(self, tensor: TensorBase) -> None:
        """Note that `tensor` is told whether it requires a gradient, which replays repeat."""
        if self.is_from_outside(tensor) and id(tensor) not in self.told:
            self.told[id(tensor)] = tensor, tensor._lineage is True
            if not tensor._is_parameter:
                self._new.add(id(tensor))

    def take_back(self) -> list[tuple[TensorBase, bool]]:
        """Let tensors require gradients as they did before the trace; what it told them."""
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
        """Whether `tensor` is neither made in the trace nor one of the arguments."""
        return tensor._born is not self and id(tensor) not in self._places

    def is_leaf_given(self, tensor: TensorBase) -> bool:
        """Whether `tensor` is an argument that gradients are collected for."""
        place = self._places.get(id(tensor))
        return place is not None and self._kinds[place] == LEAF

    def differentiate(self, root: UOp, *, for_all: bool) -> None:
        """Note that gradients of `root` are taken: with respect to all leaves, or to some."""
        self._roots.append(root)
        if for_all:
            self.reach(root)

    def reach(self, root: UOp) -> None:
        """Note that gradients of `root` flow into all that it is made of."""
        self._given |= origins(root)[1]

    def differentiated_within(self, roots: Iterable[UOp]) -> None:
        """Note of what gradients were taken in a part that is over."""
        self._roots += roots

    @property
    def reached(self) -> frozenset[int]:
        """The arguments, by place, that a gradient flows into without coming to anything."""
        return frozenset(self._given)

    @property
    def differentiated(self) -> tuple[UOp, ...]:
        """What gradients were taken of."""
        return tuple(self._roots)

    def grad_of(self, tensor: TensorBase) -> TensorBase | Spent | None:
        """The ``grad`` of `tensor` as the function finds it here."""
        return self._use(tensor, read=True).now

    def set_grad(self, tensor: TensorBase, value: TensorBase | None) -> None:
        """Note that the ``grad`` of `tensor` is set."""
        self._use(tensor, read=False).now = value

    def _use(self, tensor: TensorBase, *, read: bool) -> gradient_state.Use:
        use = self._grads.get(id(tensor))
        if use is None:
            self._grads[id(tensor)] = use = gradient_state.Use(tensor, read)
            before = use.before
            if isinstance(before, gradient_state.Spent):
                use.now = before
            if read and gradient_state.kind_of(before) == gradient_state.GIVEN:
                self._begin_with(use)
        return use

    def _begin_with(self, use: gradient_state.Use) -> None:
        """Let `use` begin with the gradient that is there.

        The function sees a tensor of the trace over the home of the gradient, so the gradient
        itself is told from it where the function reaches that by another way.
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
                # The home of another is for what the plan leaves there.
                gradient_state.move_out(gradient)
                use.beside = gradient._buffer

    @property
    def starts(self) -> list[TensorBase]:
        """What the function found as gradients; without a value outside of the trace."""
        return [use.start for use in self._starts.values() if use.start is not None]

    @property
    def named(self) -> list[TensorBase]:
        """Tensors that lie where plans leave gradients, and that were reached by other ways."""
        return list(self._named.values())

    def _value(self, tensor: object) -> UOp | None:
        """The node of a gradient."""
        if not isinstance(tensor, ArrayHandle):
            return None
        tensor = owner_of(cast("TensorBase", tensor))
        assigned = self._states.get(id(tensor))
        return tensor._uop if assigned is None else assigned[1]

    def _apart(self, use: gradient_state.Use) -> Buffer:
        """Other storage for what was assigned to the gradient that the function found."""
        buffer = gradient_state.home_of(use.tensor).buffer
        other = self._elsewhere[id(use.start)] = Buffer(buffer.size, buffer.dtype)
        return other

    def use_up(self, tensor: TensorBase) -> None:
        """Note that an optimizer has taken the ``grad`` of `tensor` as it is now."""
        use = self._grads.get(id(tensor))
        if use is not None:
            use.used = self._value(use.now)

    def effects(
        self, name: str, arguments: Iterable[TensorBase], *, keep: bool
    ) -> tuple[list[Effect], list[tuple[UOp, UOp]]]:
        """What the function `name` does to gradients, and what its plan writes for that.

        Gradients that the function has cleared, computed and used up are not written, unless
        `keep` says so. Those of `arguments` are nobody's.
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
            leaves: TensorBase | Spent | gradient_state.Home | None = now
            made = False
            source = None if now is use.start else self._starts.get(id(now))
            if id(now) in self._starts:
                leaves = None
            elif isinstance(now, ArrayHandle) and (
                now._born is self or id(now._buffer) in storages
            ):
                made = keep or use.read or self._value(now) is not use.used
                leaves = None if made else gradient_state.Spent(name)
                if made and written.setdefault(id(now), (use, now))[0] is not use:
                    made, leaves = False, gradient_state.home_of(written[id(now)][0].tensor)
            changed = None
            owns = use.start is not None and use.same is None
            if owns and id(use.start) in self._states:
                changed = self._apart(use) if made else gradient_state.home_of(use.tensor).buffer
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
                    beside=use.beside,
                    changed=changed,
                )
            )
        values = strip(cast("UOp", self._value(now)) for _, now in written.values())
        return effects, [
            build.write(gradient_state.home_of(use.tensor).buffer, value)
            for (use, _), value in zip(written.values(), values, strict=True)
        ]

    def keeps(self, tensor: TensorBase) -> bool:
        """Whether what is assigned to a tensor without storage is kept as that of state is."""
        return tensor._born is not self

    def holds(self, trace: Trace | None) -> bool:
        """Whether `trace`, another one, is around this one."""
        del trace
        return False

    def drawn(
        self, size: tuple[Dim, ...], draw: Callable[..., TensorBase]
    ) -> TensorBase | None:
        """Random numbers of shape `size`, where there is more to them than to draw so many."""
        del size, draw
        return None

    def take_by_value(self, values: Iterable[object]) -> None:
        """Raise ByValue if there are numbers among the arguments of an operation that has failed.

        It may be one that takes Python's numbers only, to decide with.
        """
        places: set[int] = set()
        trace: Trace | None = self
        while trace is not None:
            for value in values:
                if isinstance(value, ArrayHandle):
                    places |= trace.places_in(cast("TensorBase", value))
            trace = trace.around
        if places:
            raise ByValue(frozenset(places))

    def places_in(self, value: TensorBase) -> set[int]:
        """The float arguments that a value is made of, if it is made of nothing else."""
        node = value._uop
        if not self.number_places or node is None:
            return set()
        read = {n.arg for n in toposort([node]) if n.op is Op.BUFFER}
        if not read <= self.number_places.keys():
            return set()
        return {self.number_places[buffer] for buffer in read}

    def knows(self, node: UOp) -> bool:
        """Return whether a value is computed from constants alone, the function's included."""
        constants, trace = set(self.constants), self.around
        while trace is not None:
            constants |= trace.constants
            trace = trace.around
        return is_static(node.shape) and all(
            n.arg in constants if n.op is Op.BUFFER
            else n.op is not Op.VAR and not isinstance(n.arg, Foreign)
            for n in toposort([node])
        )

    def refuse_reading(self, what: str) -> NoReturn:
        """Raise JitError: `what` would need a value that is not computed yet."""
        raise JitError(
            f"{what} reads a value while a function is traced, when no values are computed yet; "
            "return the tensor and read it outside, or branch inside with where() or "
            "kernelrt.cond() and loop with kernelrt.while_loop(); to debug with values, call the "
            "function within kernelrt.disable_jit(), or set KERNELRT_JIT=0"
        )

    def admit(self, tensor: TensorBase) -> None:
        """Compute a tensor that was made before the trace.

        What the traced function reaches from outside is state: were its expression traced too, a
        replay would compute the initial value again and again.
        """
        state.local.trace = None
        try:
            realize.materialize([tensor])
        finally:
            state.local.trace = self


def is_tracing() -> bool:
    """Whether this thread is tracing a function."""
    return state.local.trace is not None


def forbid(what: str) -> None:
    """Raise JitError if a trace is active: `what` would need a value that is not computed yet."""
    count_read()
    if state.local.trace is not None:
        state.local.trace.refuse_reading(what)
