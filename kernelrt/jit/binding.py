"""The calling convention of a plan: copied or bound arguments, and addresses of results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from kernelrt.device import registry
from kernelrt.device.byte_ranges import byte_range_of, islands
from kernelrt.jit.signature import Array, Spec, Static
from kernelrt.native.replay import Replay
from kernelrt.native.signature import ARRAY, FLOAT, STATIC
from kernelrt.tensor import Tensor, state
from kernelrt.tensor.eager.execute import BIND_FROM_BYTES, result_sites
from kernelrt.tensor.eager.realize import before_writes, flush
from kernelrt.tensor.nodes import build
from kernelrt.util.lazy_import import Module

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kernelrt.device.buffer import Buffer
    from kernelrt.jit.tracing import Traced
    from kernelrt.native.core import Bindings
    from kernelrt.native.replay import Register
    from kernelrt.native.signature import InputSpec, Site, Structure
    from kernelrt.runtime import ExecutionPlan, sizes
else:
    sizes = Module("kernelrt.runtime.sizes")

__all__ = ["PendingWork", "input_sites", "make_replay"]

MOST_WRITTEN_RANGES: Final = 64
"""Plans that write more address ranges than this always copy their arguments in."""


def make_replay(
    plan: ExecutionPlan,
    traced: Traced,
    specs: Sequence[Spec],
    values: Mapping[str, int] | None = None,
    *,
    structure: Structure | None = None,
    pending: PendingWork | None = None,
) -> Replay:
    """Return the replay that runs a plan with the arguments and results of a traced function.

    Parameters
    ----------
    plan : ExecutionPlan
        The plan to run.
    traced : Traced
        The trace, with the buffers of the arguments and the nodes of the results.
    specs : sequence of Spec
        Specs of the arguments, with concrete shapes.
    values : mapping, optional
        Values of the Variables in the shapes of the results and in the plan.
    structure : Structure, optional
        Nesting of the arguments, if they are nested.
    pending : PendingWork, optional
        Work to do before a run.
    """
    writes = _written_ranges(plan)
    return Replay(
        plan,
        [
            _input_spec(spec, home, sites, traced.lineage(i))
            for i, (spec, home, sites) in enumerate(
                zip(specs, traced.homes, input_sites(plan, traced.homes), strict=True)
            )
        ],
        [
            (
                buffer.address,
                node.dtype.code,
                tuple(sizes.evaluate(d, values or {}) for d in node.shape),
                result_sites(plan, i),
            )
            for i, (buffer, node) in enumerate(zip(plan.output_buffers, traced.nodes, strict=True))
        ],
        Tensor,
        build=traced.result.builder,
        bindings=_bindings(plan, values) if values else None,
        structure=structure,
        registers=pending.registers if pending else (),
        make_way=pending,
        births=state.births if traced.targets else None,
        watch=traced.watch or None,
        entry=traced.watch.entry,
        names=traced.watch.names,
        records=-1 if traced.records is None else traced.records,
        guards=traced.guards,
        writes=writes,
        severed=traced.severed,
        by_argument=traced.by_argument,
        keep=(plan, traced.homes, traced.targets),
        results_from=registry.allocator(plan.device),
    )


class PendingWork:
    """Before a run, commit assignments, and compute lazy tensors that read memory the plan writes.

    Parameters
    ----------
    targets : tuple of Buffer
        State that the plan writes.
    """

    def __init__(self, targets: tuple[Buffer, ...]) -> None:
        self._targets = targets
        self._births = -1

    @property
    def registers(self) -> tuple[Register, ...]:
        """Registries of the tensors with pending work. If all are empty, there is nothing to do."""
        if not self._targets:
            return (state.pending,)
        return state.pending, state.watched

    def __call__(self) -> int:
        """Do the pending work; almost free if no tensor was created since the last call.

        Return the tensor creation count up to which the work is done; -1 if there are no targets.
        """
        flush()
        births = state.births[0]
        if not self._targets:
            return -1
        if births != self._births:
            self._births = births = before_writes(self._targets)
        return births


def _bindings(plan: ExecutionPlan, values: Mapping[str, int]) -> Callable[[], Bindings]:
    known = plan.variables
    return plan.bindings({name: value for name, value in values.items() if name in known})


def _input_spec(
    spec: Spec, home: Buffer | None, sites: Sequence[Site], lineage: int
) -> InputSpec:
    if home is None:
        assert isinstance(spec, Static)
        return (STATIC, spec.value, spec.by_value)
    if isinstance(spec, Array):
        shape = cast("tuple[int, ...]", spec.shape)
        return (ARRAY, spec.dtype.code, shape, home.address, sites, lineage)
    return (FLOAT, home.dtype.code, home.address)


def input_sites(plan: ExecutionPlan, homes: Sequence[Buffer | None]) -> list[Sequence[Site]]:
    """Return for each argument the sites in the plan that hold the argument's address.

    Parameters
    ----------
    plan : ExecutionPlan
        The plan.
    homes : sequence of Buffer or None
        Buffers of the arguments; None for constants.

    Returns
    -------
    list of sequences of Site
        One sequence of sites for each argument; empty if the argument must be copied.
    """
    bindable = len(_written_ranges(plan)) <= MOST_WRITTEN_RANGES
    return [_sites(plan, home) if home and bindable else () for home in homes]


def _sites(plan: ExecutionPlan, home: Buffer) -> Sequence[Site]:
    """Return the sites that hold an argument's address; empty if the argument must be copied."""
    here = byte_range_of(home)
    if here.nbytes < BIND_FROM_BYTES or any(
        here.meets(byte_range_of(b)) for b in plan.output_buffers
    ):
        return ()
    index = plan.buffer_index(build.memory(home))
    return () if index is None else plan.sites(index)


def _written_ranges(plan: ExecutionPlan) -> list[tuple[int, int]]:
    """Return the address ranges that the plan writes, merged."""
    buffers = plan.buffers
    written = [
        (byte_range_of(buffers[op.buffer_indices[slot]]), None)
        for op in plan.prepared_ops
        for slot in op.output_indices
    ]
    return [(whole.start, whole.stop) for whole, _ in islands(written, joined=True)]
