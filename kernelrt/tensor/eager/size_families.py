"""Shares one plan among eager graphs that differ only in sizes, by Variables.

A loop over sequences of any length, or over columns, makes graphs that are equal but for some of
their sizes. The third of them shows which sizes vary, and how they depend on each other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple, Self, cast

from kernelrt import dtype as dt
from kernelrt.device.buffer import Buffer
from kernelrt.device.byte_ranges import region_of
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

#: The graphs of a family that have plans of their own, before one plan serves all others.
MOST_APART: Final = 2
#: How many sizes may vary independently.
MOST_FREE: Final = 8
#: The least upper bound of a free size.
LEAST_ROOM: Final = 256
#: The largest number that counts as a size, so that products of two fit 64 bits.
MOST_SIZE: Final = 1 << 28
_INDEXING: Final = frozenset({Op.GATHER, Op.SCATTER})


@dataclass(frozen=True, slots=True)
class Term:
    """A size as a function of the free sizes: start + factor * product of free[i] for i in of."""

    start: int
    factor: int = 0
    of: tuple[int, ...] = ()

    def value(self, free: Sequence[int]) -> int:
        """The size where the free ones have these values."""
        found = self.factor
        for i in self.of:
            found *= free[i]
        return self.start + found

    def dim(self, free: Sequence[UOp]) -> Dim:
        """The same for Variables."""
        if not self.of:
            return self.start
        found = as_uop(self.factor)
        for i in self.of:
            found = found * free[i]
        return as_dim(found + self.start)


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """How the sizes of a family's graphs depend on each other.

    Attributes
    ----------
    places : tuple of int
        The positions of the free sizes among all sizes.
    distinct : tuple of Term
        Different sizes.
    which : tuple of int
        For each size, which of these it is.
    variables : tuple of UOp
        The Variables of the free sizes.
    numbers : frozenset of int
        The positions of the numbers that vary.
    """

    places: tuple[int, ...]
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

        A limit is taken for monotonic. Limits of two Variables are left out.
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
        free = [sizes[place] for place in self.places]
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
    """Note a graph that no plan fits; return forms that fit several, if there are enough.

    The first one fits all, the second one those whose sizes are most like `sizes`: columns of one
    tensor and rows of another are one family, but may have no plan in common.
    """
    family.note(sizes, numbers)
    seen = dict(family.seen)  # interrupting code may record others
    others = [other for other in seen if other != sizes]
    if len(others) < MOST_APART:
        return []
    apart = [sum(a != b for a, b in zip(sizes, other, strict=True)) for other in others]
    near = [o for o, n in zip(others, apart, strict=True) if n <= 2 * min(apart)]
    forms = [_fitting([sizes, *others], seen)]
    if MOST_APART <= len(near) < len(others):
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
    """What says which elements are read or written."""
    return [i for node in toposort(roots) if node.op in _INDEXING
            for i in node.src[1 if node.op is Op.GATHER else 2 :]]  # fmt: skip


def _narrowed(limit: UOp, name: str, least: int, most: int) -> tuple[int, int] | None:
    """The values from `least` to `most` where a monotonic expression is not negative."""

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
        return None  # these are numbers that elements are computed with
    free: list[tuple[int, ...]] = []
    terms = {c: Term(c[0]) for c in columns if len(set(c)) == 1}
    while left:
        # The one that most others are multiples of, or of its square; the smallest of equals.
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
    places = tuple(columns.index(c) for c in free)
    distinct = {c: i for i, c in enumerate(terms)}
    which = tuple(distinct[c] for c in columns)
    return Form(places, tuple(terms.values()), which, variables, numbers)


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


class Home(NamedTuple):
    """Memory of a plan, and where the plan takes its address from."""

    address: int
    sites: Sequence[tuple[int, int, int]]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class SizedPlan:
    """A plan that computes the graphs of a family, and which graphs and memory it is for.

    Attributes
    ----------
    form : Form
        Which graphs these are.
    plan : ExecutionPlan
        Made with Variables.
    numbers : tuple of UOp
        The numbers of the graph that it was made from.
    homes : list of Home
        The plan's own memory for the BUFFERs of a graph, then for the numbers that vary.
    results : list of Home
        The plan's own memory for its results.
    nbytes : int
        The memory of the plan.
    equal : tuple of (Dim, Dim)
        What has to be equal beside the sizes that the form gives.
    nodes : int
        The number of nodes of its graphs.
    checks : bool
        True if the graphs check indices or other data, and so can fail at run time.
    """

    form: Form
    plan: ExecutionPlan
    numbers: tuple[UOp, ...]
    homes: list[Home]
    results: list[Home]
    nbytes: int
    equal: tuple[tuple[Dim, Dim], ...]
    nodes: int
    checks: bool

    @classmethod
    def make(
        cls, form: Form, roots: Sequence[UOp], n_values: int, buffers: Sequence[UOp],
        numbers: Sequence[UOp], sized: Sequence[UOp],
    ) -> Self | None:  # fmt: skip
        """Make a plan of a graph with Variables.

        Parameters
        ----------
        form : Form
            How its sizes depend on each other.
        roots : sequence of UOp
            Values, what is written, and the storages that it is written to; without marks.
        n_values : int
            How many the values are.
        buffers, numbers, sized : sequence of UOp
            As ``survey_open`` gives them.

        Returns
        -------
        SizedPlan or None
            None if the verifier cannot prove that one plan computes the graphs of all sizes.
        """
        if any(without_kernel(value, buffers) for value in roots[:n_values]):
            return None
        middle = (len(roots) - n_values) // 2
        for storage in roots[n_values + middle :]:
            here = region_of(storage.arg)
            if any(b is not storage and here.meets(region_of(b.arg)) for b in buffers):
                return None  # memory that is written and read needs an order of its own
        varied = {numbers[i] for i in form.numbers if numbers[i].dtype.is_int}
        if varied and not varied.isdisjoint(toposort(_indices(roots))):
            return None  # what is known of the index may be known by the number
        lifted = [(numbers[i], build.memory(Buffer(1, numbers[i].dtype)))
                  for i in sorted(form.numbers)]  # fmt: skip
        terms = terms_of(sized, form)
        put = {number: build.reshape(m, ()) for number, m in lifted}
        found = generalized(form, roots, terms, put)
        if found is None:
            return None
        nodes, places = found.roots, found.memory
        storages = [places[storage] for storage in roots[n_values + middle :]]
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
        nodes = [*(places[b] for b in buffers), *(m for _, m in lifted)]
        homes = [Home(node.arg.address, sites_of(plan, indices.get(node))) for node in nodes]
        results = [Home(b.address, result_sites(plan, i))
                   for i, b in enumerate(plan.output_buffers)]  # fmt: skip
        order = toposort(roots)
        return cls(
            found.form, plan, tuple(numbers), homes, results, plan.arena_nbytes, found.equal,
            len(order), any(node.op is Op.BOUND for node in order),
        )  # fmt: skip

    def values(self, sizes: Sequence[int], numbers: Sequence[UOp]) -> dict[str, int] | None:
        """Return the values of the Variables for a graph; None if it computes another one."""
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
        """How to compute the graph of these sizes.

        Parameters
        ----------
        named : dict
            The values of the Variables.
        values : sequence of UOp
            The values, with marks or without.
        commits : sequence of (UOp, UOp)
            What is written.
        buffers : sequence of UOp
            The BUFFER nodes, as ``survey_open`` gives them.
        order : sequence of UOp
            The BUFFER nodes in the order in which the entry is given them; then numbers that vary.
        """
        known = self.plan.variables
        written = written_regions(commits)
        own = [*buffers, *order[len(order) - len(self.form.numbers) :]]
        homes = dict(zip(own, self.homes, strict=True))
        elsewhere = Home(0, ())  # a BUFFER that the marks alone know of
        places = []
        for node in order:
            home = homes.get(node, elsewhere)
            meets = bool(commits) and bool(written.meeting(region_of(node.arg)))
            places.append((home.address, node.arg.nbytes, meets, home.sites))
        outputs = tuple((math.prod(cast("tuple[int, ...]", v.shape)), v.dtype) for v in values)
        prepared = Prepared(
            self.plan,
            places,
            [(home.address, n * dtype.itemsize, home.sites)
             for home, (n, dtype) in zip(self.results, outputs, strict=True)],
            self.plan.bindings({name: n for name, n in named.items() if name in known}),
        )  # fmt: skip
        return Entry(prepared, tuple(range(len(outputs))), outputs, self.nbytes, None, self)
