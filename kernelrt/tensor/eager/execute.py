"""Preparation of plans for graphs, and of their results' memory."""

from __future__ import annotations

import atexit
import contextlib
import gc
import sys
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kernelrt import dtype as dt
from kernelrt.device import registry
from kernelrt.device.buffer import Buffer
from kernelrt.device.byte_ranges import ByteRangeMap, byte_range_of
from kernelrt.errors import DeviceError, JitError, VariableError
from kernelrt.ir import Op, UOp, substitute, toposort
from kernelrt.native.eager_plan import Prepared, new_result
from kernelrt.native.evaluate import LARGE_BYTES, Entry
from kernelrt.tensor import state
from kernelrt.tensor.autograd.tags import strip
from kernelrt.tensor.nodes import build
from kernelrt.util.lazy_import import Module, load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from kernelrt import runtime
    from kernelrt import schedule as scheduling
    from kernelrt.native.memory import Memory
    from kernelrt.runtime import ExecutionPlan
    from kernelrt.schedule import Schedule
    from kernelrt.schedule.rewrite import hoist_invariants
else:
    runtime = Module("kernelrt.runtime")
    scheduling = Module("kernelrt.schedule")
    hoist_invariants = Module("kernelrt.schedule.rewrite.hoist_invariants")

__all__ = ["Constant", "Copy", "filled", "filled_like", "make_entry", "new_memory",
           "number_buffer", "plan_apart", "prepare", "prepare_apart", "result_sites", "results_of",
           "sites_of", "without_kernel", "written_regions"]  # fmt: skip

#: Arguments of at least this size are read in place, and results written in place; smaller ones are
#: copied.
BIND_FROM_BYTES: Final = 2048


def prepare(
    values: Sequence[UOp],
    commits: Sequence[tuple[UOp, UOp]] = (),
    stored: Mapping[int, UOp] | None = None,
) -> ExecutionPlan:
    """Make a plan that computes `values` and then writes each commit's value to its storage.

    Parameters
    ----------
    values : sequence of UOp
        Outputs, stripped of tags.
    commits : sequence of (UOp, UOp)
        BUFFER nodes and the flat values to write to them.
    stored : mapping of int to UOp, optional
        Outputs, by position, that use the storage of a commit instead of memory of their own.
    """
    check_outside([*values, *(value for _, value in commits)])
    schedule, runtime_prepare = _middle()
    stored = stored or {}
    began = perf_counter()
    made = schedule([v for i, v in enumerate(values) if i not in stored], commits)
    seconds = perf_counter() - began
    rest = iter(made.outputs)
    outputs = tuple(stored[i] if i in stored else next(rest) for i in range(len(values)))
    plan = runtime_prepare(replace(made, outputs=outputs))
    plan.build_times = replace(plan.build_times, schedule=seconds)
    return plan


def prepare_apart(
    values: Sequence[UOp],
    commits: Sequence[tuple[UOp, UOp]],
    changing: Iterable[Buffer],
    *,
    frozen: bool = False,
) -> ExecutionPlan:
    """Make a plan like :func:`prepare`, with run-invariant values hoisted out of its runs.

    Values computed from constants are computed here. Values computed from memory are run-invariant
    if neither the plan nor outside code writes this memory. They are computed before the first run,
    and again after any other write to the memory.

    Parameters
    ----------
    values, commits : sequence
        As in :func:`prepare`.
    changing : iterable of Buffer
        Buffers that are written other than by plans: the arguments.
    frozen : bool
        Whether run-invariant values stay the same for many runs. Then run-invariant matrices are
        packed for their products.
    """
    written: ByteRangeMap[None] = ByteRangeMap()
    for buffer in (*changing, *(storage.arg for storage, _ in commits)):
        written.add(byte_range_of(buffer), None)

    def is_invariant(node: UOp) -> bool:
        buffer = node.arg
        return (
            isinstance(buffer, Buffer)
            and buffer.storage.own
            and buffer not in state.homes
            and not written.meeting(byte_range_of(buffer))
        )

    roots = [*values, *(value for _, value in commits)]
    spec = registry.opened().spec
    roots, found = hoist_invariants.invariant_values(roots, is_invariant, spec, panels=frozen)
    if not found:
        return prepare(values, commits)
    buffers = {node: Buffer(int(build.volume(node.shape)), node.dtype) for node in found}  # type: ignore[arg-type]
    memory = {node: build.memory(buffer) for node, buffer in buffers.items()}
    roots = substitute(roots, {n: build.reshape(m, n.shape) for n, m in memory.items()})
    targets = [target for target, _ in commits]
    plan = prepare(roots[: len(values)], [*zip(targets, roots[len(values) :], strict=True)])
    fills = [(memory[node], build.reshape(node, memory[node].shape)) for node in found]
    constant = [fill for fill in fills if not hoist_invariants.sources_of(fill[1:])]
    if constant:
        prepare((), constant).execute()
    rest = [fill for fill in fills if hoist_invariants.sources_of(fill[1:])]
    if rest:
        reads = hoist_invariants.sources_of(value for _, value in rest)
        sources = {node.arg.storage for node in reads}
        plan.prepare_by(prepare((), rest), sources)
    return plan


def check_outside(roots: Iterable[UOp]) -> None:
    """Raise JitError if graphs read a placeholder of the body of a loop or branch."""
    for node in toposort(roots):
        if node.op is Op.BUFFER and getattr(node.arg, "stands_in", False):
            raise JitError(
                "a tensor that the body of a loop or branch created or received is used outside "
                "that body, where it has no value; return it from the body"
            )


def _middle() -> tuple[Callable[..., Schedule], Callable[[Schedule], ExecutionPlan]]:
    """Return the scheduler and the plan builder; import them when the first graph is computed."""
    return partial(scheduling.schedule, device=registry.opened().spec), runtime.prepare


def _import_for_finalizers() -> None:
    """At exit, import all modules that computations need, if a finalizer may still compute.

    Finalizers that run later cannot import.
    """
    if not any(map(_may_compute, {type(found) for found in gc.get_objects()})):
        return
    if sys.version_info[:2] == (3, 12):
        # Python 3.12 starts a scheduled collection within its last one, when a finalizer runs
        # bytecode, and can then loop over the broken list of objects forever.
        gc.disable()
    with contextlib.suppress(ImportError, DeviceError):  # raised again if a finalizer needs them
        registry.opened()
        _import_every_module()


def _import_every_module() -> None:
    """Import all modules that are imported late, and all that these import late, recursively."""
    known: set[str] = set()
    while more := {module.__name__ for module in Module.every} - known:
        load(*more)
        known |= more


def _may_compute(kind: type) -> bool:
    """Return whether a user's class has a finalizer in a module that uses kernelrt."""
    for base in kind.__mro__:
        finalizer = vars(base).get("__del__")
        if isinstance(finalizer, FunctionType) and not _is_ours(finalizer):
            names: dict[str, object] = finalizer.__globals__
            return any(map(_is_ours, list(names.values())))  # a copy: other threads may still run
    return False


def _is_ours(value: object) -> bool:
    """Return whether a module, class or function belongs to kernelrt."""
    if not isinstance(value, ModuleType | FunctionType | type):
        return False
    name: object = value.__name__ if isinstance(value, ModuleType) else value.__module__
    return isinstance(name, str) and name.partition(".")[0] == "kernelrt"


atexit.register(_import_for_finalizers)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Constant:
    """A result whose elements all equal one number, or that has no elements."""

    value: bool | float


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Copy:
    """A result that is the content of a buffer, by the buffer's index in the graph."""

    index: int


def results_of(entry: Entry, buffers: Sequence[UOp]) -> list[Memory]:
    """Return memory for each result of `entry`; fill it for results that need no plan."""
    return [
        new_memory(size, dtype)
        if isinstance(source, int)
        else _filled(source, size, dtype, buffers)
        for source, (size, dtype) in zip(entry.sources, entry.sizes, strict=True)
    ]


def new_memory(size: int, dtype: dt.DType) -> Memory:
    """Return uninitialized memory for `size` elements."""
    return new_result(registry.allocator("CPU"), size * dtype.itemsize)


def filled(number: bool | float, size: int, dtype: dt.DType) -> Buffer:
    """Make a buffer filled with one number."""
    data = Buffer.over(new_memory(size, dtype), size, dtype)
    if size:
        data.content()[...] = _stored(number, dtype)
    return data


def filled_like(node: UOp, buffer: Buffer) -> Buffer | None:
    """Return a new buffer like `buffer` with the value of constant `node`; None for other nodes."""
    number = build.const_value(node)
    return None if number is None else filled(number, buffer.size, buffer.dtype)


def number_buffer(node: UOp) -> UOp:
    """Return a BUFFER node over memory that holds the number of a CONST node."""
    return build.memory(filled(node.arg, 1, node.dtype))


def _stored(number: bool | float, dtype: dt.DType) -> np.ndarray[Any, Any]:
    """Return a number in the representation that buffers of a dtype use."""
    if dtype is not dt.bfloat16:
        return np.array(number).astype(dt.to_numpy(dtype))
    single = np.array(dt.nearest(number, dtype), np.float32)
    return (single.view(np.uint32) >> 16).astype(np.uint16)


def _filled(
    source: Constant | Copy, size: int, dtype: dt.DType, buffers: Sequence[UOp]
) -> Memory:
    made = new_memory(size, dtype)
    if size:
        data = Buffer.over(made, size, dtype)
        if isinstance(source, Constant):
            data.content()[...] = _stored(source.value, dtype)
        else:
            data.content()[...] = buffers[source.index].arg.content()
    return made


def make_entry(
    values: Sequence[UOp],
    commits: Sequence[tuple[UOp, UOp]],
    buffers: Sequence[UOp],
    lifted: Mapping[UOp, UOp] | None = None,
) -> Entry:
    """Make a plan for graphs that read only these buffers.

    `lifted` maps nodes to the nodes that are read in their place.
    """
    nodes = strip([*values, *(new for _, new in commits)])
    if lifted:
        nodes = substitute(nodes, lifted)
    wanted = nodes[: len(values)]
    writes = [
        (storage, flat)
        for (storage, _), new in zip(commits, nodes[len(values) :], strict=True)
        if (flat := build.reshape(new, storage.shape)) is not storage
    ]
    sizes = tuple((int(build.volume(v.shape)), v.dtype) for v in wanted)  # type: ignore[arg-type]
    alone = [without_kernel(v, buffers) for v in wanted]
    computed = [v for v, source in zip(wanted, alone, strict=True) if source is None]
    if not computed and not writes:
        return Entry(None, tuple([s for s in alone if s is not None]), sizes, 0)
    plan = plan_apart(computed, writes)
    if plan.variables:
        names = ", ".join(map(repr, plan.variables))
        raise VariableError(
            f"the tensor depends on Variable {names}, which has a value only while a plan runs; "
            "compute the tensor in the jitted function whose argument has that size, or prepare() "
            "it and pass a value to execute_with_vars"
        )
    position = iter(range(len(computed)))
    sources = tuple(next(position) if s is None else s for s in alone)
    written = written_regions(writes)
    indices = plan.ast_to_buffer_map
    bound = [
        (b.arg.address, b.arg.nbytes, bool(written.meeting(byte_range_of(b.arg))),
         sites_of(plan, indices.get(b)))
        for b in buffers
    ]  # fmt: skip
    prepared = Prepared(plan, bound, [_output(plan, i) for i in range(len(computed))])
    given = {key: n for key, n in plan.given_storages().items() if n >= LARGE_BYTES}
    return Entry(prepared, sources, sizes, plan.arena_nbytes, given)


def written_regions(commits: Iterable[tuple[UOp, UOp]]) -> ByteRangeMap[None]:
    """Return the byte ranges that commits write."""
    written: ByteRangeMap[None] = ByteRangeMap()
    for storage, _ in commits:
        written.add(byte_range_of(storage.arg), None)
    return written


def sites_of(plan: ExecutionPlan, index: int | None) -> Sequence[tuple[int, int, int]]:
    """Return the sites where a plan uses the address of buffer `index`; no sites for None."""
    return () if index is None else plan.sites(index)


def plan_apart(values: Sequence[UOp], commits: Sequence[tuple[UOp, UOp]]) -> ExecutionPlan:
    """Make a plan whose outputs are new memory, and not buffers that the graph reads.

    The plan is run again with other buffers.
    """
    check_outside([*values, *(value for _, value in commits)])
    schedule, runtime_prepare = _middle()
    made = schedule(values, commits)
    given = [isinstance(node.arg, Buffer) for node in made.outputs]
    if any(given):
        values = [
            UOp(Op.CONTIGUOUS, v.dtype, (v,)) if g else v
            for v, g in zip(values, given, strict=True)
        ]
        made = schedule(values, commits)
    return runtime_prepare(made)


def _output(plan: ExecutionPlan, i: int) -> tuple[int, int, Sequence[tuple[int, int, int]]]:
    buffer = plan.output_buffers[i]
    return buffer.address, buffer.nbytes, result_sites(plan, i)


def result_sites(plan: ExecutionPlan, i: int) -> Sequence[tuple[int, int, int]]:
    """Return the sites where `plan` uses the address of result `i`.

    There the caller can put the address of its own memory. Return no sites if copying the result is
    cheaper, or if two results are the same memory. Nor are there sites if the result is memory that
    was given to the plan, because no kernel writes it.
    """
    index = plan.output_indices[i]
    if plan.output_buffers[i].nbytes < BIND_FROM_BYTES or plan.output_indices.count(index) > 1:
        return ()
    return plan.sites(index) if plan.owns(index) else ()


def without_kernel(value: UOp, buffers: Sequence[UOp]) -> Constant | Copy | None:
    """Return the source of a value that needs no kernel; None if the value needs a kernel."""
    if build.has_zero(value.shape):
        return Constant(0)
    number = build.const_value(value)
    if number is not None:
        return Constant(number)
    while value.op is Op.RESHAPE:
        value = value.src[0]
    if value.op is Op.BUFFER and isinstance(value.arg, Buffer):
        return Copy(next(i for i, b in enumerate(buffers) if b is value))
    return None
