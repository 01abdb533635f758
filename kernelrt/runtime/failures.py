"""Errors of kernels: indices out of range, values outside a domain, systems without solution.

A :class:`Failure` describes an error before it occurs, so model files can contain its message.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kernelrt.errors import CustomFunctionError, DomainError, IndexBoundsError, LinAlgError
from kernelrt.ir import Op, UOp, toposort
from kernelrt.ir.domain import Domain, decoded
from kernelrt.ir.ffi import FfiFunction
from kernelrt.ir.routine import is_call
from kernelrt.ir.shape import as_dim
from kernelrt.ir.status import DOMAIN, INDEX, LARGEST, LEAST, SOLVE, unpack
from kernelrt.runtime.sizes import evaluate

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kernelrt.device.buffer import Buffer
    from kernelrt.ir import Dim
    from kernelrt.runtime.plan_ops import PreparedKernel

__all__ = ["ANY", "Failure", "failures", "index_error"]

#: Number of a check that stands for all others.
ANY: Final = -1


@dataclass(frozen=True, slots=True)
class Failure:
    """An error that a check in a kernel may report.

    Attributes
    ----------
    number : int
        Number of the check in the status word, or :data:`ANY`.
    kind : int
        INDEX, DOMAIN or SOLVE.
    text : str
        The message. These fields are filled in later: ``{index}``, ``{size}``, ``{value}``,
        ``{takes}`` (the valid indices), and ``{wraps}`` (the valid indices, negative ones
        included).
    size : Dim
        Size of the axis.
    wraps : bool
        True if negative indices count from the end of the axis.
    """

    number: int
    kind: int
    text: str
    size: Dim = 0
    wraps: bool = False

    def error(
        self, index: int, values: Mapping[str, int]
    ) -> IndexBoundsError | DomainError | LinAlgError:
        """Return the exception for a reported index and values of the plan's Variables."""
        if self.kind == SOLVE:
            return LinAlgError(self.text.replace("{index}", str(index)))
        if self.kind == DOMAIN:
            wrong = DomainError(self.text.replace("{value}", f"{decoded(index):.12g}"))
            wrong.value = decoded(index)
            return wrong
        size = evaluate(self.size, values)
        beyond = {LARGEST: " or more", LEAST: " or less"}.get(index, "")
        if self.wraps and index < 0 and not beyond:
            index -= size
        text = self.text.replace("{index}", f"{index}{beyond}").replace("{size}", str(size))
        for token, least in (("{takes}", 0), ("{wraps}", -size)):
            text = text.replace(token, f"{least} to {size - 1}" if size else "no index")
        error = IndexBoundsError(text)
        if self.number != ANY:
            error.index, error.size = index, size
        return error


def failures(launch: PreparedKernel, buffers: Sequence[Buffer]) -> list[Failure]:
    """Return the errors that the checks of a launch may report.

    Parameters
    ----------
    launch : PreparedKernel
        The launch.
    buffers : sequence of Buffer
        Buffers of the plan.
    """
    if not launch.kernel.may_fail:
        return []
    if is_call(launch.ast):
        failure = getattr(launch.ast.src[0].arg, "failure", "")
        text = f"{launch.title}: {failure} (problem {{index}} of the batch)"
        return [Failure(ANY, SOLVE, text)]
    found = [_failure(launch, n, buffers) for n in toposort([launch.ast]) if n.op is Op.BOUND]
    # Kernels from the user have no checks in their ASTs.
    other = f"{launch.label} read an index that lies outside its axis"
    return [*found, Failure(ANY, INDEX, other)]


def _failure(launch: PreparedKernel, check: UOp, buffers: Sequence[Buffer]) -> Failure:
    number, what = check.arg
    origin = launch.checks[number] if number < len(launch.checks) else None
    who = launch.label if origin is None else str(origin)
    if isinstance(what, Domain):
        text = f"{what.name}: {who} expected {what.expected}, not {{value}}"
        return Failure(number, DOMAIN, text if origin is None else f"{text} ({launch.label})")
    axis = check.src[1]
    # A WHERE gives the size of the axis only where the condition of the lookup holds.
    while axis.op is Op.WHERE:
        axis = axis.src[1]
    takes = "{wraps}" if what else "{takes}"
    text = f"index {{index}} is out of range for an axis of size {{size}}: {who} takes {takes}"
    load = next(_read(check.src[0]), None)
    if load is not None:
        i = launch.buffer_indices[load.src[0].arg[0]]
        buffer = buffers[i]
        source = f"{buffer.label or f'buffer {i}'} ({buffer.size} {buffer.dtype.name})"
        text += f"; the index was read from {source}"
    if origin is not None:
        text += f", in {launch.label}"
    return Failure(number, INDEX, text, as_dim(axis), bool(what))


def index_error(
    launch: PreparedKernel,
    status_word: int,
    values: Mapping[str, int],
    buffers: Sequence[Buffer],
) -> IndexBoundsError | DomainError | LinAlgError | CustomFunctionError:
    """Return the exception for a failure that `launch` reported, such as an index out of range.

    Parameters
    ----------
    launch : PreparedKernel
        Launch that failed.
    status_word : int
        Status word that it stored; see :mod:`kernelrt.ir.status`.
    values : mapping
        Values of the plan's Variables.
    buffers : sequence of Buffer
        Buffers of the plan.
    """
    if is_call(launch.ast) and isinstance(launch.ast.src[0].arg, FfiFunction):
        return CustomFunctionError(
            f"{launch.label}, {launch.title}: the function reported failure {status_word}"
        )
    number, index = unpack(status_word)
    failure = next(f for f in failures(launch, buffers) if f.number in (number, ANY))
    return failure.error(index, {**values, **launch.fixedvars})


def _read(index: UOp) -> Iterator[UOp]:
    """Yield the LOADs of arguments in an index expression; leave out conditions of WHEREs."""
    pending, seen = [index], {index}
    while pending:
        node = pending.pop()
        if node.op is Op.LOAD:
            if node.src[0].op is Op.PARAM:
                yield node
            continue
        values = node.src[1:] if node.op is Op.WHERE else node.src
        pending += [s for s in reversed(values) if s not in seen]
        seen.update(values)
