"""Search for the operation that computed the first non-finite value of a graph.

The results of a run are computed before the run, into separate memory. If a result is not finite,
the search follows non-finite operands to an operation whose operands are finite. It looks only at
values that pass from one of the user's operations to another. Values inside an operation that are
computed and discarded, such as the other side of a `where`, are ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kernelrt import dtype as dt
from kernelrt.device.buffer import Buffer
from kernelrt.errors import NonFiniteError
from kernelrt.ir import Op, substitute, toposort
from kernelrt.ir.ffi import FfiResult
from kernelrt.ir.origin import resolve, spread
from kernelrt.ir.region import Loop, every_node
from kernelrt.ir.shape import is_static
from kernelrt.tensor import state
from kernelrt.tensor.autograd.tags import strip
from kernelrt.tensor.eager import execute
from kernelrt.tensor.eager.plan_cache import PlanCache
from kernelrt.tensor.nodes import build

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kernelrt.ir import UOp
    from kernelrt.ir.origin import Origin
    from kernelrt.runtime import ExecutionPlan
    from kernelrt.runtime.plan_ops import PreparedKernel

__all__ = ["check"]

#: Ops that do not change values of elements.
_STILL: Final = frozenset({Op.RESHAPE, Op.EXPAND, Op.PERMUTE, Op.FLIP, Op.DETACH, Op.CONTIGUOUS})
_NO_WORK: Final = frozenset({Op.BUFFER, Op.CONST, Op.VAR, Op.IOTA})
#: Values with more than this many times the elements of the largest input are not computed
#: separately: they are terms of a sum.
_LARGEST: Final = 4

_plans = PlanCache(most_plans=256)
_plans.interprets = False  # an interpreter may give up, and this module does not compile then


def check(
    values: Iterable[UOp],
    commits: Iterable[tuple[UOp, UOp]] = (),
    *,
    plan: ExecutionPlan | None = None,
    named: Callable[[Buffer], str] | None = None,
) -> None:
    """Raise NonFiniteError if an operation of a run would compute a NaN or an infinity.

    Parameters
    ----------
    values, commits : iterable
        Values that the run computes, and its writes, with or without tags.
    plan : ExecutionPlan, optional
        Plan of the run, whose kernels the error names; a new plan if not given.
    named : callable, optional
        Returns the user's name of the tensor in a buffer, or "" if unknown.
    """
    stripped = strip([*values, *(value for _, value in commits)])
    roots = list(dict.fromkeys(
        base for node in stripped if (base := _base(node)).dtype.is_float
        and base.op not in _NO_WORK and is_static(base.shape)
    ))  # fmt: skip
    if _is_ordered(roots):
        roots = [root for root in roots if not _is_ordered([root])]
    if not roots:
        return
    with state.lock:
        _Search(roots, stripped, plan, named).look(_computed(roots))


def _base(node: UOp) -> UOp:
    """Return the value below ops that only move elements."""
    while node.op in _STILL:
        node = node.src[0]
    return node


def _is_ordered(roots: Iterable[UOp]) -> bool:
    """Return whether the graphs contain a call with pure=False, which must not be repeated."""
    return any(isinstance(n.arg, FfiResult) and n.arg.callee.ordered for n in every_node(roots))


@dataclass(frozen=True, slots=True)
class _Kind:
    """Which kinds of non-finite numbers a value contains."""

    nan: bool
    inf: bool

    def __bool__(self) -> bool:
        return self.nan or self.inf


_FINITE: Final = _Kind(nan=False, inf=False)


def _computed(nodes: Sequence[UOp]) -> list[Buffer]:
    """Compute nodes, and return their elements."""
    entry, buffers = _plans.find([*nodes], [])
    results = entry.results(buffers)
    entry.run(buffers, results, [], [])
    return [
        Buffer.over(memory, size, dtype)
        for memory, (size, dtype) in zip(results, entry.sizes, strict=True)
    ]


def _numbers(data: Buffer) -> np.ndarray[Any, Any]:
    found = data.content()
    if data.dtype is dt.bfloat16:
        found = (found.astype(np.uint32) << 16).view(np.float32)
    return found


def _kind(data: Buffer) -> _Kind:
    if not data.dtype.is_float or not data.size:
        return _FINITE
    numbers = _numbers(data)
    if np.isfinite(numbers).all():
        return _FINITE
    return _Kind(nan=bool(np.isnan(numbers).any()), inf=bool(np.isinf(numbers).any()))


class _Search:
    """The search for the first non-finite value of a graph.

    Parameters
    ----------
    roots : list of UOp
        Results of the run, below ops that only move elements.
    nodes : sequence of UOp
        Results of the run.
    plan, named
        As in :func:`check`.
    iteration : int, optional
        Index of the iteration, if the graph is the body of a loop.
    """

    def __init__(
        self, roots: list[UOp], nodes: Sequence[UOp], plan: ExecutionPlan | None,
        named: Callable[[Buffer], str] | None, iteration: int | None = None,
    ) -> None:  # fmt: skip
        self._roots, self._nodes = roots, nodes
        self._plan, self._named, self._iteration = plan, named, iteration
        self._data: dict[object, Buffer] = {}
        self._kinds: dict[object, _Kind] = {}

    def look(self, results: Sequence[Buffer]) -> None:
        """Raise NonFiniteError if an operation made `results`, the root values, non-finite."""
        kinds = [_kind(data) for data in results]
        if not any(kinds):
            return
        spread(toposort(self._nodes))
        order = toposort(self._roots)
        self._compute(order)
        position = {node: i for i, node in enumerate(order)}
        bad = sorted(
            ((not kind.nan, position[root], root)
             for root, kind in zip(self._roots, kinds, strict=True) if kind),
            key=lambda entry: entry[:2],
        )  # fmt: skip
        for no_nan, _, root in bad:
            if no_nan:
                found = self._infinity(root)
                if found is not None:
                    self._tell(found, nan=False)
            else:
                self._follow(root)

    def _compute(self, order: Sequence[UOp]) -> None:
        """Compute the values that pass from one operation to another."""
        sizes = [build.volume(n.shape) for n in order if n.op is Op.BUFFER or n in self._roots]
        most = _LARGEST * max(int(size) for size in (*sizes, 1))  # type: ignore[arg-type]
        wanted: dict[object, UOp] = {root: root for root in self._roots}
        for node in order:
            for i, operand in enumerate(node.src):
                base = _base(operand)
                differs = node.op is Op.REGION or base.op is Op.REGION or _key(base) != _key(node)
                if base.op is Op.BUFFER and base.dtype.is_float:
                    wanted[base] = base
                elif (
                    not base.dtype.is_float or not differs or base.op in _NO_WORK
                    or not is_static(base.shape) or int(build.volume(base.shape)) > most  # type: ignore[arg-type]
                ):  # fmt: skip
                    continue
                wanted.setdefault(base, base)
                if node.op is Op.WHERE and i and int(build.volume(node.shape)) <= most:  # type: ignore[arg-type]
                    parts = [node.src[1], node.src[2]]
                    parts[2 - i] = build.zeros_like(node)
                    wanted[node, i] = build.where(node.src[0], *parts)
        for key, data in zip(wanted, _computed(list(wanted.values())), strict=True):
            self._data[key], self._kinds[key] = data, _kind(data)

    def _operands(self, node: UOp) -> list[tuple[UOp, _Kind]]:
        """Return the computed or given values that an operation reads, each with its `_Kind`."""
        found: dict[UOp, _Kind] = {}
        stack, seen = [node], {node}
        while stack:
            inner = stack.pop()
            for i, operand in enumerate(inner.src):
                base = _base(operand)
                if not base.dtype.is_float:
                    continue
                if base.op is Op.CONST:
                    value = float(base.arg)
                    found[base] = _Kind(nan=value != value, inf=abs(value) == float("inf"))
                elif base in self._kinds:
                    kind = self._kinds.get((inner, i), self._kinds[base])
                    before = found.get(base, _FINITE)
                    found[base] = _Kind(nan=kind.nan or before.nan, inf=kind.inf or before.inf)
                elif base not in seen:
                    seen.add(base)
                    stack.append(base)
        found.pop(node, None)
        return list(found.items())

    def _follow(self, node: UOp) -> None:
        """Raise NonFiniteError for the origin of a NaN."""
        seen: set[UOp] = set()
        while True:
            seen.add(node)
            operands = self._operands(node)
            before = [n for n, kind in operands if kind.nan and n not in seen]
            computed = [n for n in before if n.op not in _NO_WORK]
            if not before:
                break
            if not computed:
                self._tell_given(before[0], node)
            node = computed[0]
        for operand, kind in operands:
            if kind.inf and operand.op not in _NO_WORK:
                found = self._infinity(operand)
                if found is not None:
                    self._tell(found, nan=False)
        self._tell(node, nan=True)

    def _infinity(self, start: UOp) -> UOp | None:
        """Return the operation that made an infinity from finite numbers; None if there is none."""
        stack, seen = [start], {start}
        while stack:
            node = stack.pop()
            before = [n for n, kind in self._operands(node) if kind.inf]
            if not before:
                return node
            for operand in before:
                if operand.op not in _NO_WORK and operand not in seen:
                    seen.add(operand)
                    stack.append(operand)
        return None

    # ---- bodies of loops, and branches

    def _within(self, node: UOp) -> None:
        """Search the body of a loop or the chosen branch."""
        program = node.arg.program
        operands = [data.content().copy() for data in _computed(list(node.src))]
        homes = [Buffer(p.arg.size, p.dtype) for p in program.ports]
        put = {p: build.memory(home) for p, home in zip(program.ports, homes, strict=True)}
        if not isinstance(program, Loop):
            _fill(homes, operands[1:])
            graphs = list(substitute([node.arg.values[int(operands[0][0])]], put))
            self._body(graphs, None)
            return
        graphs = list(substitute(node.arg.graphs, put))
        carried = len(program.carries)
        iterations = int(operands.pop()[0]) if program.counted else int(program.trip_count)  # type: ignore[arg-type]
        _fill(homes[:carried], operands[:carried])
        for iteration in range(iterations):
            if program.conditional and not homes[0].content()[0]:
                return
            at = iteration
            if program.reverse:
                at = int(operands[-1].size and iterations - 1 - iteration)
            for k in range(carried, len(operands)):
                rows = operands[k]
                size = homes[k].size
                _fill(homes[k : k + 1], [rows[at * size :][:size] if program.slices(k) else rows])
            if program.numbered:
                homes[-1].content()[...] = iteration
            _fill(homes[:carried], self._body(graphs, iteration)[:carried])

    def _body(self, graphs: list[UOp], iteration: int | None) -> list[np.ndarray[Any, Any]]:
        """Compute the graphs of a body, and search them if a result is not finite."""
        results = _computed(graphs)
        roots = list(dict.fromkeys(
            base for g in graphs if (base := _base(g)).dtype.is_float and base.op not in _NO_WORK
        ))  # fmt: skip
        if roots and any(_kind(data) for data in results):
            _Search(roots, graphs, self._plan, self._named, iteration).look(_computed(roots))
        return [data.content().copy() for data in results]

    # ---- error messages

    def _tell(self, node: UOp, *, nan: bool) -> None:
        """Raise NonFiniteError for the operation that computed `node`."""
        if node.op is Op.REGION:
            self._within(node)
        data = _numbers(self._data[node])
        where = int(np.argmax(np.isnan(data) if nan else np.isinf(data)))
        origin = None if node.origin is None else resolve(node.origin)
        kernel = self._kernel(origin)
        value = float(data[where])
        what = "NaN" if nan else "infinity"
        who = "an operation" if origin is None else str(origin)
        text = f"{who} makes the first {what}: {_element(node, where, value)}"
        if (given := self._given(node)) != "":
            text += f", inputs: {given}"
        if self._iteration is not None:
            text += f", in iteration {self._iteration} of a loop"
        if kernel is not None:
            text += f", in {kernel.label}"
        raise _error(text, value, origin, kernel, iteration=self._iteration)

    def _tell_given(self, given: UOp, reader: UOp) -> None:
        """Raise NonFiniteError for a NaN in an input or a constant."""
        origin = None if reader.origin is None else resolve(reader.origin)
        name = ""
        if given.op is Op.CONST:
            text, value = "a constant is NaN", float("nan")
        else:
            data = _numbers(self._data[given])
            where = int(np.argmax(np.isnan(data)))
            value = float(data[where])
            name = (self._named(given.arg) if self._named else "") or given.arg.label
            text = f"{name or 'an input'} holds NaN: element {where} of {data.size}"
            text += f" {given.dtype.name}"
        who = "" if origin is None else f"; {origin} reads it first"
        kernel = self._kernel(origin)
        raise _error(text + who, value, origin, kernel, name=name, iteration=self._iteration)

    def _given(self, node: UOp) -> str:
        """Return the ranges of the operands of an operation as text."""
        known = [n for n, _ in self._operands(node) if n in self._data and self._data[n].size]
        if node.op is Op.REGION or not known:
            return ""
        parts = []
        for operand in known[:2]:
            numbers = _numbers(self._data[operand])
            low, high = float(np.min(numbers)), float(np.max(numbers))
            parts.append(f"{low:.6g}" if low == high else f"{low:.6g} to {high:.6g}")
        return " and ".join(dict.fromkeys(parts))

    def _kernel(self, origin: Origin | None) -> PreparedKernel | None:
        """Return the first kernel that computes operations of an origin."""
        if origin is None:
            return None
        plan = self._plan
        if plan is None:
            plan = execute.plan_apart(self._roots, ())
        return next((k for k in _kernels(plan) if origin in k.origins), None)


def _key(node: UOp) -> object:
    """Return a key that nodes of one user operation share."""
    return node.origin and (*node.origin[:5], node.origin[6])


def _fill(homes: Sequence[Buffer], contents: Sequence[np.ndarray[Any, Any]]) -> None:
    for home, content in zip(homes, contents, strict=False):
        home.content()[...] = content


def _kernels(plan: ExecutionPlan) -> list[PreparedKernel]:
    return [*plan.prepared_kernels, *(k for body in plan.bodies for k in _kernels(body))]


def _element(node: UOp, where: int, value: float) -> str:
    shape = tuple(int(d) for d in node.shape)  # type: ignore[arg-type]
    if not shape:
        return f"the {node.dtype.name} value is {value}"
    place = tuple(int(i) for i in np.unravel_index(where, shape))
    at = place[0] if len(place) == 1 else place
    return f"element {at} of {node.dtype.name} {shape} is {value}"


def _error(
    text: str, value: float, origin: Origin | None, kernel: PreparedKernel | None,
    *, name: str = "", iteration: int | None = None,
) -> NonFiniteError:  # fmt: skip
    error = NonFiniteError(text)
    error.value, error.iteration, error.input = value, iteration, name
    if origin is not None:
        error.file, error.line, error.function = origin.file, origin.line, origin.function
        error.op, error.layer, error.backward = origin.op, origin.layer, origin.backward
    if kernel is not None:
        error.kernel = kernel.kernel.entry_point
    return error
