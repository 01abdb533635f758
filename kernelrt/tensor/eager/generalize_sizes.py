"""Rebuilding of a graph with Variables in place of sizes.

A form (`size_families.Form`) says how the sizes of similar graphs depend on each other. It does not
list sizes that follow from others, such as the number of windows. If such a size must equal another
size, the new graph assumes that they are equal and records the pair. Its plan computes only graphs
in which both are equal.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kernelrt.device.buffer import Buffer
from kernelrt.errors import KernelrtError
from kernelrt.ir import Op, UOp, toposort
from kernelrt.ir.ops import ALU
from kernelrt.ir.region import Loop, Outcome
from kernelrt.ir.routine import Routine
from kernelrt.ir.shape import (
    as_uop,
    difference,
    dim_max,
    dim_span,
    missing_size,
    prod,
    same,
    window_count,
)
from kernelrt.ir.tensor_spec import verify_tensor
from kernelrt.native.graph_key import _name_programs
from kernelrt.tensor.nodes import build

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kernelrt.ir import Dim
    from kernelrt.tensor.eager.size_families import Form, Term

__all__ = ["Generalized", "generalized", "terms_of"]

_name_programs(Routine, Outcome, Loop)

#: Maximum number of times that a graph is built, each time with narrower Variables.
_MOST_PASSES: Final = 8


@dataclass(frozen=True, slots=True, eq=False)
class Generalized:
    """A graph with Variables.

    Attributes
    ----------
    form : Form
        Form with the Variables of the graph.
    roots : list of UOp
        New roots.
    memory : dict
        New BUFFER nodes by the old ones.
    equal : tuple of (Dim, Dim)
        Pairs of sizes that must be equal in the graphs that it computes.
    """

    form: Form
    roots: list[UOp]
    memory: dict[UOp, UOp]
    equal: tuple[tuple[Dim, Dim], ...]


def terms_of(sized: Sequence[UOp], form: Form) -> dict[UOp, list[Term]]:
    """Return the terms of each node that has sizes."""
    rest, found = iter(form.terms), {}
    for node in sized:
        count = itertools.count()
        _renewed(node, count)
        found[node] = [next(rest) for _ in range(next(count))]
    return found


def generalized(
    form: Form, roots: Sequence[UOp], terms: Mapping[UOp, Sequence[Term]],
    lifted: Mapping[UOp, UOp],
) -> Generalized | None:  # fmt: skip
    """Replace sizes by Variables, and all memory by new memory.

    Parameters
    ----------
    form : Form
        Dependence of the sizes on each other.
    roots : sequence of UOp
        Roots of the graph.
    terms : mapping
        Terms of the nodes that have sizes, from `terms_of`.
    lifted : mapping
        Replacements of numbers.

    Returns
    -------
    Generalized or None
        None if it cannot be proved to be one graph for all sizes.
    """
    limits = [as_uop(term.dim(form.variables)) for node, each in terms.items()
              if node.op is not Op.CONST for term in each if term.of]  # fmt: skip
    made: Generalized | None = None
    for _ in range(_MOST_PASSES):
        within = form.within(limits)
        if within is None or (made is not None and within is form):
            break
        form = within
        attempt = _Attempt(form, terms, lifted)
        try:
            made = attempt.run(roots)
        except KernelrtError:
            if not attempt.limits:
                return None
            made = None
        limits = attempt.limits
    return made if within is not None else None


@dataclass(slots=True, eq=False)
class _Attempt:
    """One attempt to rebuild a graph."""

    form: Form
    terms: Mapping[UOp, Sequence[Term]]
    lifted: Mapping[UOp, UOp]
    limits: list[UOp] = field(default_factory=list)
    memory: dict[UOp, UOp] = field(default_factory=dict)
    equal: dict[tuple[Dim, Dim], None] = field(default_factory=dict)

    def run(self, roots: Sequence[UOp]) -> Generalized | None:
        """Build the graph.

        Raises
        ------
        KernelrtError
            One graph cannot serve all values of the Variables. It may serve those within the new
            `limits`.
        """
        done: dict[UOp, UOp] = {}
        for node in toposort(roots):
            if node.op is Op.VAR:
                return None
            dims = [term.dim(self.form.variables) for term in self.terms.get(node, ())]
            done[node] = self._made(node, [done[s] for s in node.src], dims)
        found = [done[root] for root in roots]
        verify_tensor(found)
        return Generalized(self.form, found, self.memory, tuple(self.equal))

    def _made(self, node: UOp, src: list[UOp], dims: list[Dim]) -> UOp:
        if node in self.lifted:
            return self.lifted[node]
        if node.op is Op.BUFFER:
            self.memory[node] = whole = build.memory(Buffer(dim_max(dims[0]), node.dtype))
            return build.shrink(whole, [(0, dims[0])])
        if node.op is Op.CONST and dims:
            return as_uop(dims[0])
        arg: Any = _renewed(node, iter(dims)) if dims else node.arg
        self._note_limits(node, src, arg)
        src = self._matching(node, src, arg)
        made = node.replace(src=tuple(src), arg=arg)
        _ = made.shape
        return made

    def _note_limits(self, node: UOp, src: list[UOp], arg: Any) -> None:
        """Record bounds of Variables that keep slices and windows within their axis."""
        if node.op is Op.SHRINK:
            self.limits += [
                size - stop for (_, stop), size in zip(arg, src[0].shape, strict=True)
                if isinstance(size, int) and isinstance(stop, UOp) and dim_max(stop) > size
            ]  # fmt: skip
        elif node.op is Op.IM2COL:
            for axis, taps, stride, dilation in arg:
                count = window_count(src[0].shape[axis], taps, stride, dilation)
                self.limits += [least for least in (count, difference(taps, 1))
                                if isinstance(least, UOp) and dim_span(least)[0] < 0]  # fmt: skip

    def _matching(self, node: UOp, src: list[UOp], arg: Any) -> list[UOp]:
        """Return the operands, cut so that sizes which the op requires to be equal are equal."""
        match node.op:
            case Op.GATHER | Op.SCATTER:
                return [src[0], *(self._as(s, src[1].shape) for s in src[1:])]
            case Op.CAT:
                return [self._as(s, _but(src[0].shape, arg, s.shape[arg])) for s in src]
            case Op.EXPAND:
                sizes = zip(src[0].shape, arg, node.src[0].shape, node.arg, strict=True)
                return [self._as(src[0], [d if old != new else e for d, e, old, new in sizes])]
            case Op.COL2IM:
                shape, windows = arg
                for axis, *along in windows:
                    shape = _but(shape, axis, window_count(shape[axis], *along))
                return [self._as(src[0], [*shape, *(w[1] for w in windows)])]
            case Op.REGION if isinstance(arg.program, Loop):
                return self._repeated(src, arg.program)
            case Op.RESHAPE:
                return [self._regrouped(src[0], arg)]
        return [self._as(s, src[0].shape) for s in src] if node.op in ALU else src

    def _repeated(self, src: list[UOp], loop: Loop) -> list[UOp]:
        """Return the operands of a loop, and the number of iterations if it varies."""
        found = [self._as(s, _but(s.shape, 0, loop.trip_count)) if loop.slices(k) else s
                 for k, s in enumerate(src)]  # fmt: skip
        return [*found, loop.trip_count] if isinstance(loop.trip_count, UOp) else found

    def _as(self, x: UOp, shape: Sequence[Dim]) -> UOp:
        """Return `x` cut to `shape`; record the sizes that must be equal for that."""
        if build.same_shape(x.shape, tuple(shape)):
            return x
        for have, want in zip(x.shape, shape, strict=True):
            if not same(have, want):
                self.equal[have, want] = None
        return build.shrink(x, [(0, want) for want in shape])

    def _regrouped(self, x: UOp, shape: tuple[Dim, ...]) -> UOp:
        """Return `x` cut to as many elements as `shape` has."""
        if same(prod(x.shape), prod(shape)):
            return x
        mine, theirs = [[d for d in sizes if d != 1] for sizes in (x.shape, shape)]
        if len(mine) == len(theirs):
            rest = iter(theirs)
            return self._as(x, [d if d == 1 else next(rest) for d in x.shape])
        for axis, have in enumerate(x.shape):
            others = [d for a, d in enumerate(x.shape) if a != axis]
            want = missing_size(shape, others) if isinstance(have, UOp) else None
            if want is not None:
                return self._as(x, _but(x.shape, axis, want))
        return x


def _but(shape: Sequence[Dim], axis: int, size: Dim) -> list[Dim]:
    """Return a shape with another size along an axis."""
    return [size if a == axis else d for a, d in enumerate(shape)]


def _renewed(node: UOp, dims: Iterator[Dim]) -> Any:
    """Return the arg of a node with other sizes, in the order of `size_free_key`."""
    arg = node.arg
    match node.op:
        case Op.IM2COL:
            return _other_kernels(arg, dims)
        case Op.COL2IM:
            return tuple(next(dims) for _ in arg[0]), _other_kernels(arg[1], dims)
        case Op.SHRINK | Op.PAD:
            return tuple((next(dims), next(dims)) for _ in arg)
        case Op.CALL:
            return Routine(arg.name, next(dims), tuple(next(dims) for _ in arg.numbers))
        case Op.REGION:
            return arg.with_trip_count(next(dims))
        case Op.RESHAPE | Op.EXPAND:
            return tuple(next(dims) for _ in arg)
    return next(dims)


def _other_kernels(windows: Sequence[tuple[int, ...]], dims: Iterator[Dim]) -> Any:
    return tuple((axis, next(dims), *rest) for axis, _, *rest in windows)
