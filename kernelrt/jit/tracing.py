"""Trace a function to the graphs of its results and of its state updates."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from kernelrt.device.buffer import Buffer
from kernelrt.dtype import float32, float64
from kernelrt.errors import DTypeError, JitError, a_type
from kernelrt.ir import Op, UOp, toposort
from kernelrt.ir.shape import dim_max, is_static
from kernelrt.ir.size import Real, Size
from kernelrt.jit.plan_guards import Watch
from kernelrt.jit.signature import Float, Spec, Static, Template, flatten
from kernelrt.native.signature import NO_LINEAGE, SEVERED, WHOLE
from kernelrt.native.thread_modes import GRAD, Setting
from kernelrt.nn import modes
from kernelrt.tensor import Tensor, Trace, state
from kernelrt.tensor.autograd.tags import ArgumentTag, Leaf, Severed, history, mark, origins, strip
from kernelrt.tensor.base import storage_node
from kernelrt.tensor.tracing.trace import lineage_kind
from kernelrt.util.lazy_import import Module

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from kernelrt.ir import ffi, region
    from kernelrt.jit.effects import purity, side_effects
    from kernelrt.tensor.base import TensorBase
    from kernelrt.tensor.methods import masked
    from kernelrt.tensor.tracing.trace import Asked
else:
    ffi = Module("kernelrt.ir.ffi")
    region = Module("kernelrt.ir.region")
    purity = Module("kernelrt.jit.effects.purity")
    side_effects = Module("kernelrt.jit.effects.side_effects")
    masked = Module("kernelrt.tensor.methods.masked")

__all__ = ["Call", "Traced", "active", "assigned_error", "check_result", "result_of", "trace"]

_TORCHS = re.compile(r"\bTensor\b.*, (?:but )?(?:not|got) Tensor\b")
"""Matches PyTorch's error messages for a tensor of another library."""

active: dict[int, str] = {}
"""Functions that are being traced; while there are any, no call replays a plan directly."""


@dataclass(frozen=True, slots=True)
class Call:
    """How a function was called: everything but the leaves."""

    positional: int
    keywords: tuple[str, ...]
    template: Template
    leaves: tuple[str, ...]
    names: tuple[str, ...]

    @property
    def direct(self) -> bool:
        """Whether the leaves are the arguments themselves, all positional."""
        return self.template.flat and not self.keywords

    def arguments(self, leaves: Sequence[object]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the positional and keyword arguments with `leaves` in them."""
        values = self.template.fill(leaves)
        by_name = zip(self.keywords, values[self.positional :], strict=True)
        return values[: self.positional], dict(by_name)


@dataclass(frozen=True, slots=True)
class Result:
    """The structure of the value that a function returns.

    Attributes
    ----------
    template : Template
        The value without its leaves.
    fixed : sequence of (bool, object)
        For each leaf, whether it is a tensor, which the plan computes, and otherwise the constant.
    """

    template: Template
    fixed: Sequence[tuple[bool, object]]

    @property
    def builder(self) -> Callable[..., object] | None:
        """Function that builds the returned value from the result tensors.

        It is None if the value is a single tensor or a tuple of several tensors.
        """
        if all(is_tensor for is_tensor, _ in self.fixed) and (
            self.template.single or (self.template.flat and len(self.fixed) > 1)
        ):
            return None

        def build(*handles: object) -> object:
            fresh = iter(handles)
            leaves = [next(fresh) if is_tensor else value for is_tensor, value in self.fixed]
            return self.template.fill(leaves)

        return build


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Traced:
    """The result of a trace: graphs, state, and the buffers of the arguments."""

    nodes: list[UOp]
    commits: list[tuple[UOp, UOp]]
    targets: tuple[Buffer, ...]
    guards: list[tuple[TensorBase, int]]
    homes: tuple[Buffer | None, ...]
    watch: Watch
    records: bool | None
    numbers: tuple[str, ...]
    widening: str
    reached: frozenset[int]
    asked: Asked
    severed: list[tuple[Severed | None, frozenset[int]]]
    by_argument: Severed
    result: Result
    result_names: Sequence[str]

    def lineage(self, argument: int) -> int:
        """Return the code that tells the C core which autograd history an argument may have."""
        if argument in self.reached:
            return NO_LINEAGE
        return SEVERED if self.asked.get((argument, lineage_kind)) == "" else WHOLE

    @property
    def asked_in_c(self) -> bool:
        """Whether :meth:`lineage` covers all autograd queries of the function."""
        return all(ask is lineage_kind and not answer for (_, ask), answer in self.asked.items())


def trace(
    fn: Callable[..., Any],
    name: str,
    call: Call,
    specs: Sequence[Spec],
    leaves: Sequence[Any],
    *,
    keep_grads: bool = False,
) -> Traced:
    """Call `fn` with placeholders and collect the graphs of its results and assignments.

    Exceptions of `fn` propagate. Values of tensors, gradients and random state are always as
    before the trace.

    Raises
    ------
    JitError
        The function assigns to an argument, returns something other than tensors and numbers, or
        reads a value.
    """
    key = id(call)
    arguments: list[Tensor] = []
    current = Trace()
    try:
        active[key] = name
        with current, modes.observe() as asked:
            pairs = [
                _placeholder(i, *both, current)
                for i, both in enumerate(zip(specs, leaves, strict=True))
            ]
            homes = [home for home, _ in pairs]
            _label(homes, call.leaves, name)
            placed = _tensors([value for _, value in pairs])
            current.name_arguments(placed, leaves)
            args, kwargs = call.arguments([value for _, value in pairs])
            arguments += placed.values()
            own = {id(t) for t in arguments}
            given = [(call.leaves[i], value, value._uop) for i, value in placed.items()]

            around = side_effects.OuterState(
                ("", fn), *zip(call.names, (*args, *kwargs.values()), strict=True)
            )
            watched = purity.Observed(
                current, purity.REPLAYS, name, around, lambda value: id(value) in own
            )
            template, named = watched.call(lambda: result_of(name, fn, args, kwargs))
            results = [check_result(path, value, name) for path, value in named]
            marked = [tensor._recorded() for tensor in _tensors(results).values()]
            nodes = strip(marked)
            effects, kept = current.effects(name, arguments, keep=keep_grads)
            commits = current.commits() + kept
            assigned = current.assigned
            lost = _assigned_arguments(given, {tensor._buffer for tensor in assigned})
            values = (value for _, value in commits)
            graph = toposort([*nodes, *values, *current.differentiated])
            sources = _sources(graph)
            noted = [*modes.noted(asked), *around.noted(sources)]
            roots = [*current.differentiated, *_gradient_state(marked), *current.asked_values]
            targets = tuple(storage.arg for storage, _ in commits)
            settings = current.take_back()
            called = _called_by_plans(graph)
            around.tell_clocks(name, called)
            watch = Watch(
                noted, *around.names(called), roots, effects, sources, frozenset(targets),
                [*current.told.values(), *current.asked_of.values()], settings,
                [*current.asked_parameters.values()],
            )
            # A trace whose function did not use the gradient mode fits calls in both gradient
            # modes.
            matters = not state.local.grad or current.asked or current.differentiated
    finally:
        active.pop(key, None)
        current.take_back()
        # Placeholders that user code kept have no value outside the trace.
        for argument in (*arguments, *current.starts):
            argument._born = current
            if argument.is_realized:
                argument._unbind()
    if lost:
        raise assigned_error(lost[0], name)
    changed = set(targets)
    return Traced(
        nodes=[_copy_if_overwritten(node, changed) for node in nodes],
        commits=commits,
        targets=targets,
        guards=[
            (t, t._address)
            for t in (*assigned, *current.named)
            if t._address and (t._memory in changed or t._memory in state.homes)
        ],
        homes=tuple(homes),
        watch=watch,
        records=state.local.grad if matters else None,
        numbers=around.numbers,
        reached=current.reached,
        asked=current.asked_arguments,
        severed=[_severed_tag(node, name) for node in marked],
        by_argument=Severed(name, None),
        widening=_widening(nodes, commits, dict(zip(homes, call.leaves, strict=True))),
        result=Result(
            template, [(True, None) if isinstance(v, Tensor) else (False, v) for v in results]
        ),
        result_names=[
            path for (path, _), v in zip(named, results, strict=True) if isinstance(v, Tensor)
        ],
    )


def assigned_error(path: str, name: str) -> JitError:
    """Return the error for a function `name` that assigns to the argument at `path`."""
    return JitError(
        f"{path}: {name} assigns to its argument, and the new value would be lost; return the new "
        "value, or access the tensor through the closure or an attribute"
    )


# Loops with conditions are outside trace(): at the end of such a loop in a with block, CPython 3.13
# lets an interrupt leave the block without running __exit__.


def _label(homes: Sequence[Buffer | None], paths: Sequence[str], name: str) -> None:
    """Label the argument buffers of the function `name` for error messages."""
    for path, home in zip(paths, homes, strict=True):
        if home is not None:
            home.label = f"argument {path!r} of {name}"


def _tensors(values: Sequence[object]) -> dict[int, Tensor]:
    """Return the tensors in `values`, by index."""
    return {i: value for i, value in enumerate(values) if isinstance(value, Tensor)}


def _called_by_plans(graph: Iterable[UOp]) -> list[object]:
    """Return the Python functions that a plan calls when it runs."""
    nodes = list(graph)
    if not any(node.op is Op.CALL or node.op is Op.REGION for node in nodes):
        return []
    called = [n.arg for n in region.every_node(nodes) if isinstance(n.arg, ffi.FfiResult)]
    return [arg.callee.function for arg in called]


def _sources(graph: Iterable[UOp]) -> set[Buffer]:
    return {node.arg for node in graph if node.op is Op.BUFFER}


def result_of(
    name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Template, list[tuple[str, Any]]]:
    """Call the function `name` and flatten its result.

    Raise JitError if the function changes the gradient mode and does not restore it.
    """
    before = state.local.grad
    try:
        try:
            result = fn(*args, **kwargs)
        except TypeError as error:
            if not _TORCHS.search(str(error)):
                raise
            raise DTypeError(
                f"{error}: a PyTorch function or module was called with a kernelrt Tensor; use the "
                "kernelrt function of the same name, or build the model from layers of kernelrt.nn"
            ) from error
        found = flatten(result, "result")
        if state.local.grad is not before:
            raise JitError(
                f"set_grad_enabled() in {name} stays in effect after the function returns, but "
                "later calls would not repeat that effect; use set_grad_enabled() in a 'with' "
                "statement, or call it outside"
            )
        return found
    finally:
        if state.local.grad is not before:
            Setting(GRAD, before)


def _assigned_arguments(
    given: Sequence[tuple[str, Tensor, UOp]], written: Collection[Buffer | None]
) -> list[str]:
    """Return the paths of the arguments whose value changed from the given initial node."""
    return [
        path
        for path, argument, node in given
        if (
            argument._buffer in written
            if argument.is_realized
            else strip([argument._uop]) != strip([node])
        )
    ]


def _widening(
    nodes: Sequence[UOp], commits: Sequence[tuple[UOp, UOp]], homes: Mapping[Buffer | None, str]
) -> str:
    """Return the name of a float64 argument that converts float32 state; empty if none does."""
    seen = list(toposort([*nodes, *(value for _, value in commits)]))
    wide = [homes[n.arg] for n in seen if n.op is Op.BUFFER and n.dtype is float64
            and n.arg in homes and n.arg.size > 1]  # fmt: skip
    for node in seen if wide else ():
        if node.op is Op.CAST and node.dtype is float64 and node.src[0].dtype is float32:
            base = node.src[0]
            while len(base.src) == 1 and base.op in _MOVEMENT:
                base = base.src[0]
            if base.op is Op.BUFFER and base.arg not in homes and base.arg.size > 1:
                return wide[0]
    return ""


_MOVEMENT = frozenset({Op.RESHAPE, Op.EXPAND, Op.PERMUTE, Op.SHRINK, Op.PAD, Op.FLIP, Op.IM2COL})


def _severed_tag(result: UOp, function: str) -> tuple[Severed | None, frozenset[int]]:
    """Return the tag of a result, and the arguments to which its gradients do not flow.

    The tag is None if the result depends on no state that requires a gradient.
    """
    leaves, given, severed = origins(result)
    if not leaves and not severed:
        return None, given
    if any(before.sources is None for before in severed):
        return Severed(function, None), given
    sources = {b for before in severed for b in before.sources or ()}
    for leaf in leaves:
        tensor = state.bearer(leaf)
        if tensor is not None and tensor._memory is not None:
            sources.add(tensor._memory)
    return Severed(function, sources), given


def _gradient_state(results: Sequence[UOp]) -> list[UOp]:
    """Return the state to which gradients of the results flow, or would if it required them."""
    found = []
    for node in (n for root in results for n in history(root)):
        state_here = node.op is Op.DETACH and (node.arg is None or isinstance(node.arg, Leaf))
        base = node
        while state_here and base.op in (Op.DETACH, Op.RESHAPE):
            base = base.src[0]
        if base.op is Op.BUFFER and base.dtype.is_float:
            found.append(base)
    return found


def _placeholder(
    argument: int, spec: Spec, leaf: object, trace: Trace
) -> tuple[Buffer | None, object]:
    """Return the buffer that an argument is copied to, if any, and the placeholder for it."""
    if isinstance(spec, Static):
        return None, leaf
    if isinstance(spec, Float):
        # float64 holds a Python float exactly; type promotion treats it as weakly typed.
        home = Buffer(1, float64)
        trace.numbers.add(home)
        trace.number_arguments[home] = argument
        return home, Tensor._over(home, ())
    home = Buffer(math.prod(dim_max(d) for d in spec.shape), spec.dtype)
    if is_static(spec.shape):
        seen = Tensor._over(home, cast("tuple[int, ...]", spec.shape))
    else:
        seen = Tensor._of(storage_node(home, spec.shape))
    if spec.dtype.is_float:
        seen._uop, seen._plain = mark(seen._uop, ArgumentTag(argument)), False
    return home, seen


def check_result(name: str, value: object, function: str) -> object:
    """Return `value`, a leaf of a result; raise JitError if a plan cannot return such a value."""
    if value is None or isinstance(value, Tensor | bool | int | float | str):
        return value
    if isinstance(value, Size | Real):
        raise JitError(
            f"{name}: {function} returns {value!r}, a size that depends on the arguments; return "
            "kernelrt.tensor(size) instead, or read the size from the shape of a result"
        )

    masked.refuse_part(value)
    raise JitError(
        f"{name}: {function} returns {a_type(value)}; expected tensors, numbers, strings, "
        "None, and lists, tuples, dicts and dataclasses of these"
    )


def _copy_if_overwritten(node: UOp, targets: set[Buffer]) -> UOp:
    """Return `node`, or a copy of it if it is state that the plan overwrites."""
    base = node
    while base.op is Op.RESHAPE:
        base = base.src[0]
    if base.op is Op.BUFFER and base.arg in targets:
        return UOp(Op.CONTIGUOUS, node.dtype, (node,))
    return node
