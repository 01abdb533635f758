"""Plans with Variables, shared by eager graphs that differ only in sizes.

A loop over sequences of varying length, or over columns, makes graphs that differ only in sizes.
From the third such graph on it is known which sizes vary, and how they depend on each other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple, Self, cast

from kernelrt import dtype as dt
from kernelrt.device.buffer import Buffer
from kernelrt.device.byte_ranges import byte_range_of
from kernelrt.errors import KernelrtError
from kernelrt.ir import Op, UOp, Variable, toposort
from kernelrt.ir.shape import as_dim, as_uop
from kernelrt.native.eager_plan import Prepared
from kernelrt.native.evaluate import Entry
from kernelrt.runtime.sizes import evaluate, variables_of
from kernelrt.tensor.eager.execute import (
    plan_apart,
    result_sites,
    sites_of,
    without_kernel,
    written_regions,
)
from kernelrt.tensor.eager.generalize_sizes import generalized, terms_of
from kernelrt.tensor.nodes import build

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kernelrt.ir import Dim
    from kernelrt.runtime import ExecutionPlan
    from kernelrt.tensor.eager.plan_cache import SizeFamily

__all__ = ["Form", "SizedPlan", "forms_of"]

#: Number of sizes of a family that get plans of their own, before one plan computes all others.
MOST_SPECIALIZED: Final = 2
#: Maximum number of sizes that vary independently (free sizes).
MOST_FREE: Final = 8
#: Minimum upper bound of the Variable of a free size.
LEAST_ROOM: Final = 256
#: Largest number that counts as a size, so that products of two fit 64 bits.
MOST_SIZE: Final = 1 << 28
_INDEXING: Final = frozenset({Op.GATHER, Op.SCATTER})


@dataclass(frozen=True, slots=True)
class Term:
    """A size as a function of the free sizes.

    It is ``start + factor * p``, where p is the product of ``free[i]`` for all i in `of`.
    """

    start: int
    factor: int = 0
    of: tuple[int, ...] = ()

    def value(self, free: Sequence[int]) -> int:
        """Return the size for these values of the free sizes."""
        found = self.factor
        for i in self.of:
            found *= free[i]
        return self.start + found

    def dim(self, free: Sequence[UOp]) -> Dim:
        """Return the size as a function of Variables."""
        if not self.of:
            return self.start
        found = as_uop(self.factor)
        for i in self.of:
            found = found * free[i]
        return as_dim(found + self.start)


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """How the sizes in the graphs of a family depend on each other.

    Attributes
    ----------
    free : tuple of int
        Positions of the free sizes among all sizes.
    distinct : tuple of Term
        Distinct sizes.
    which : tuple of int
        Index into `distinct` for each size.
    variables : tuple of UOp
        Variables of the free sizes.
    numbers : frozenset of int
        Positions of the numbers that vary.
    """

    free: tuple[int, ...]
    distinct: tuple[Term, ...]
    which: tuple[int, ...]
    variables: tuple[UOp, ...]
    numbers: frozenset[int]

    @property
    def terms(self) -> list[Term]:
        """All sizes."""
        return [self.distinct[i] for i in self.which]

    def within(self, limits: Iterable[UOp]) -> Form | None:
        """Narrow the Variables so that no limit is negative; None if no value remains.

        Limits are assumed to be monotonic. Limits that depend on two Variables are ignored.
        """
        bounds: dict[str, tuple[int, int]] = {v.arg[0]: v.arg[1:] for v in self.variables}
        for limit in limits:
            names = [v.arg[0] for v in variables_of([limit])]
            if len(names) == 1:
                found = _narrowed(limit, names[0], *bounds[names[0]])
                if found is None:
                    return None
                bounds[names[0]] = found
        variables = tuple(Variable(name, *ends) for name, ends in bounds.items())
        return self if variables == self.variables else replace(self, variables=variables)

    def values(self, sizes: Sequence[int]) -> dict[str, int] | None:
        """Return the values of the Variables for these sizes, or None if the form does not fit."""
        free = [sizes[i] for i in self.free]
        found = [term.value(free) for term in self.distinct]
        if tuple([found[i] for i in self.which]) != tuple(sizes):
            return None
        named = {v.arg: value for v, value in zip(self.variables, free, strict=True)}
        if any(not least <= value <= most for (_, least, most), value in named.items()):
            return None
        return {name: value for (name, _, _), value in named.items()}


def forms_of(
    family: SizeFamily, sizes: tuple[int, ...], numbers: tuple[UOp, ...]
) -> list[Form]:
    """Record a graph that no plan fits; return forms that fit it and earlier graphs, if any.

    The first form fits all recorded graphs, the second one those whose sizes are most similar to
    `sizes`. For example, columns of one tensor and rows of another are one family, but may have no
    common plan.
    """
    family.note(sizes, numbers)
    seen = dict(family.seen)  # interrupting code may record others
    others = [other for other in seen if other != sizes]
    if len(others) < MOST_SPECIALIZED:
        return []
    differences = [sum(a != b for a, b in zip(sizes, other, strict=True)) for other in others]
    near = [o for o, n in zip(others, differences, strict=True) if n <= 2 * min(differences)]
    forms = [_fitting([sizes, *others], seen)]
    if MOST_SPECIALIZED <= len(near) < len(others):
        forms.append(_fitting([sizes, *near], seen))
    return [form for form in forms if form is not None]


def _fitting(
    sizes: Sequence[tuple[int, ...]], seen: Mapping[tuple[int, ...], Sequence[tuple[UOp, ...]]]
) -> Form | None:
    """Return a form that fits the graphs of these sizes."""
    known = [numbers for size in sizes for numbers in seen[size]]
    varied = frozenset(i for i, column in enumerate(zip(*known, strict=True))
                       if any(n is not column[0] for n in column))  # fmt: skip
    return fitted(sizes, varied)


def _indices(roots: Sequence[UOp]) -> list[UOp]:
    """Return the index operands of gathers and scatters."""
    return [i for node in toposort(roots) if node.op in _INDEXING
            for i in node.src[1 if node.op is Op.GATHER else 2 :]]  # fmt: skip


def _narrowed(limit: UOp, name: str, least: int, most: int) -> tuple[int, int] | None:
    """Return the subrange of `least` to `most` where a monotonic expression is not negative."""

    def holds(value: int) -> bool:
        return evaluate(limit, {name: value}) >= 0

    if holds(least) and holds(most):
        return least, most
    good, bad = (least, most) if holds(least) else (most, least)
    if not holds(good):
        return None
    while abs(bad - good) > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if holds(middle) else (good, middle)
    return (least, good) if good < bad else (good, most)


def fitted(seen: Sequence[tuple[int, ...]], numbers: frozenset[int]) -> Form | None:
    """Return a form with few free sizes that gives all these sizes, or None."""
    columns = list(zip(*seen, strict=True))
    left = [c for c in dict.fromkeys(columns) if len(set(c)) > 1]
    if any(abs(n) > MOST_SIZE for column in left for n in column):
        return None  # these are numbers in computations, not sizes
    free: list[tuple[int, ...]] = []
    terms = {c: Term(c[0]) for c in columns if len(set(c)) == 1}
    while left:
        # Choose the size that most others are multiples of (or of its square), then the smallest.
        chosen = max(left, key=lambda c: (_multiples(c, left), -c[0]))
        if len(free) == MOST_FREE or min(chosen) < 0:
            return None
        free.append(chosen)
        rest = []
        for column in left:
            term = _explained(column, free)
            if term is None:
                rest.append(column)
            else:
                terms[column] = term
        left = rest
    variables = tuple(
        Variable(f"size_{i}", min(1, *column), max(LEAST_ROOM, 1 << (2 * max(column)).bit_length()))
        for i, column in enumerate(free)
    )
    for term in terms.values():
        most = abs(term.factor) * math.prod([variables[i].arg[2] for i in term.of])
        if term.of and abs(term.start) + most > int(dt.int64.max):
            return None
    positions = tuple(columns.index(c) for c in free)
    distinct = {c: i for i, c in enumerate(terms)}
    which = tuple(distinct[c] for c in columns)
    return Form(positions, tuple(terms.values()), which, variables, numbers)


def _multiples(column: tuple[int, ...], others: Sequence[tuple[int, ...]]) -> int:
    square = tuple(n * n for n in column)
    return sum(_factor(o, column) is not None or _factor(o, square) is not None for o in others)


def _factor(column: tuple[int, ...], base: tuple[int, ...]) -> int | None:
    """Return k with column == k * base, or None."""
    if not base[0] or column[0] % base[0]:
        return None
    factor = column[0] // base[0]
    return factor if all(c == factor * b for c, b in zip(column, base, strict=True)) else None


def _explained(column: tuple[int, ...], free: Sequence[tuple[int, ...]]) -> Term | None:
    for i, base in enumerate(free):
        other = next(k for k, b in enumerate(base) if b != base[0])
        factor, rest = divmod(column[other] - column[0], base[other] - base[0])
        start = column[0] - factor * base[0]
        if not rest and all(c == start + factor * b for c, b in zip(column, base, strict=True)):
            return Term(start, factor, (i,))
    for i, a in enumerate(free):
        for j, b in enumerate(free[i:], start=i):
            product = _factor(column, tuple(x * y for x, y in zip(a, b, strict=True)))
            if product is not None:
                return Term(0, product, (i, j))
    return None


class BufferSites(NamedTuple):
    """Memory of a plan, and the sites where the plan uses its address."""

    address: int
    sites: Sequence[tuple[int, int, int]]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class SizedPlan:
    """A plan that computes graphs of a family, with the conditions for its use.

    Attributes
    ----------
    form : Form
        Sizes of the graphs that it computes.
    plan : ExecutionPlan
        Plan with Variables.
    numbers : tuple of UOp
        Numbers of the graph that it was made from.
    operands : list of BufferSites
        The plan's own memory for the BUFFERs of a graph, then for the numbers that vary.
    results : list of BufferSites
        The plan's own memory for its results.
    nbytes : int
        Size of the plan's memory in bytes.
    equal : tuple of (Dim, Dim)
        Pairs of sizes that must be equal, in addition to the form.
    nodes : int
        Number of nodes of its graphs.
    checks : bool
        Whether the graphs check indices or other data, and so can fail at run time.
    """

    form: Form
    plan: ExecutionPlan
    numbers: tuple[UOp, ...]
    operands: list[BufferSites]
    results: list[BufferSites]
    nbytes: int
    equal: tuple[tuple[Dim, Dim], ...]
    nodes: int
    checks: bool

    @classmethod
    def make(
        cls, form: Form, roots: Sequence[UOp], n_values: int, buffers: Sequence[UOp],
        numbers: Sequence[UOp], sized: Sequence[UOp],
    ) -> Self | None:  # fmt: skip
        """Make a plan with Variables for a graph.

        Parameters
        ----------
        form : Form
            Dependence of its sizes on each other.
        roots : sequence of UOp
            Values, then written values, then the storages that they are written to; without tags.
        n_values : int
            Number of values.
        buffers, numbers, sized : sequence of UOp
            Results of ``size_free_key``.

        Returns
        -------
        SizedPlan or None
            None if the verifier cannot prove that one plan computes the graphs of all sizes.
        """
        if any(without_kernel(value, buffers) for value in roots[:n_values]):
            return None
        middle = (len(roots) - n_values) // 2
        for storage in roots[n_values + middle :]:
            here = byte_range_of(storage.arg)
            if any(b is not storage and here.meets(byte_range_of(b.arg)) for b in buffers):
                return None  # the order of reads and writes of one memory may depend on the sizes
        varied = {numbers[i] for i in form.numbers if numbers[i].dtype.is_int}
        if varied and not varied.isdisjoint(toposort(_indices(roots))):
            return None  # the known bounds of the index may come from the number
        lifted = [(numbers[i], build.memory(Buffer(1, numbers[i].dtype)))
                  for i in sorted(form.numbers)]  # fmt: skip
        terms = terms_of(sized, form)
        put = {number: build.reshape(m, ()) for number, m in lifted}
        found = generalized(form, roots, terms, put)
        if found is None:
            return None
        nodes, memory = found.roots, found.memory
        storages = [memory[storage] for storage in roots[n_values + middle :]]
        news = nodes[n_values : n_values + middle]
        try:
            plan = plan_apart(
                nodes[:n_values],
                [(s, build.reshape(new, (build.volume(new.shape),)))
                 for s, new in zip(storages, news, strict=True)],
            )  # fmt: skip
        except KernelrtError:
            return None
        indices = plan.ast_to_buffer_map
        nodes = [*(memory[b] for b in buffers), *(m for _, m in lifted)]
        operands = [BufferSites(n.arg.address, sites_of(plan, indices.get(n))) for n in nodes]
        results = [BufferSites(b.address, result_sites(plan, i))
                   for i, b in enumerate(plan.output_buffers)]  # fmt: skip
        order = toposort(roots)
        return cls(
            found.form, plan, tuple(numbers), operands, results, plan.arena_nbytes, found.equal,
            len(order), any(node.op is Op.BOUND for node in order),
        )  # fmt: skip

    def values(self, sizes: Sequence[int], numbers: Sequence[UOp]) -> dict[str, int] | None:
        """Return the values of the Variables for a graph; None if the plan does not fit."""
        named = self.form.values(sizes)
        if named is None or any(evaluate(a, named) != evaluate(b, named) for a, b in self.equal):
            return None
        varied = self.form.numbers
        pairs = enumerate(zip(self.numbers, numbers, strict=True))
        return named if all(a is b or i in varied for i, (a, b) in pairs) else None

    def entry(
        self, named: dict[str, int], values: Sequence[UOp], commits: Sequence[tuple[UOp, UOp]],
        buffers: Sequence[UOp], order: Sequence[UOp],
    ) -> Entry:  # fmt: skip
        """Return an entry that computes a graph with these sizes.

        Parameters
        ----------
        named : dict
            Values of the Variables.
        values : sequence of UOp
            Nodes to compute, with or without tags.
        commits : sequence of (UOp, UOp)
            BUFFER nodes, each with the value to write there.
        buffers : sequence of UOp
            BUFFER nodes from ``size_free_key``.
        order : sequence of UOp
            BUFFER nodes in the order in which the entry takes them, then the varying numbers.
        """
        known = self.plan.variables
        written = written_regions(commits)
        own = [*buffers, *order[len(order) - len(self.form.numbers) :]]
        operands = dict(zip(own, self.operands, strict=True))
        unused = BufferSites(0, ())  # for a BUFFER that only tags refer to
        bound = []
        for node in order:
            memory = operands.get(node, unused)
            meets = bool(commits) and bool(written.meeting(byte_range_of(node.arg)))
            bound.append((memory.address, node.arg.nbytes, meets, memory.sites))
        outputs = tuple((math.prod(cast("tuple[int, ...]", v.shape)), v.dtype) for v in values)
        prepared = Prepared(
            self.plan,
            bound,
            [(memory.address, n * dtype.itemsize, memory.sites)
             for memory, (n, dtype) in zip(self.results, outputs, strict=True)],
            self.plan.bindings({name: n for name, n in named.items() if name in known}),
        )  # fmt: skip
        return Entry(prepared, tuple(range(len(outputs))), outputs, self.nbytes, None, self)
