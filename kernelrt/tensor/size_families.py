"""Share one plan among eager graphs that differ only in sizes, by Variables.

A loop over sequences of any length, or over columns, makes graphs that are equal but for some of
their sizes. The third of them shows which sizes vary, and how they depend on each other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Self, cast

from kernelrt import dtype as dt
from kernelrt._eager import Prepared
from kernelrt.device.buffer import Buffer
from kernelrt.device.region import region_of
from kernelrt.errors import KernelrtError
from kernelrt.ir import Op, UOp, Variable, toposort
from kernelrt.ir.shape import as_dim, as_uop, dim_max
from kernelrt.ir.tensor_spec import verify_tensor
from kernelrt.tensor import build
from kernelrt.tensor.execute import (
    Entry,
    plan_apart,
    result_sites,
    sites_of,
    without_kernel,
    written_regions,
)

if TYPE_CHECKING:
    import weakref
    from collections.abc import Iterable, Mapping, Sequence

    from kernelrt.ir import Dim
    from kernelrt.runtime import ExecutionPlan

__all__ = ["Form", "SizeFamily", "SizedPlan"]

#: The graphs of a family that have plans of their own, before one plan serves all others.
MOST_APART: Final = 2
#: How many sizes may vary independently.
MOST_FREE: Final = 4
#: The least upper bound of a free size.
LEAST_ROOM: Final = 256
#: The largest number that counts as a size, so that products of two fit 64 bits.
MOST_SIZE: Final = 1 << 28
#: How many forms a family tries before each graph gets a plan of its own.
MOST_TRIES: Final = 4
#: Operations that keep a graph from sharing a plan.
_REFUSED: Final = frozenset({Op.CALL, Op.REGION, Op.VAR})
_INDEXED: Final = frozenset({Op.BOUND, Op.GATHER, Op.SCATTER})
_PAIRED: Final = frozenset({Op.SHRINK, Op.PAD})


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
    terms : tuple of Term
        All sizes.
    variables : tuple of UOp
        The Variables of the free sizes.
    numbers : frozenset of int
        The positions of the numbers that vary.
    """

    places: tuple[int, ...]
    terms: tuple[Term, ...]
    variables: tuple[UOp, ...]
    numbers: frozenset[int]

    def within(self, limits: Iterable[tuple[Term, int, int]]) -> Form | None:
        """Narrow the Variables so that terms stay within limits; None if no value remains.

        A limit is a term, a number, and 1 if that is the upper bound of the term, -1 if it is the
        lower one. Terms of two free sizes are left out.
        """
        bounds = [v.arg for v in self.variables]
        for term, limit, sign in limits:
            if len(term.of) != 1 or not term.factor:
                continue
            name, least, most = bounds[term.of[0]]
            room, factor = sign * (limit - term.start), sign * term.factor
            if factor > 0:
                most = min(most, room // factor)
            else:
                least = max(least, -(room // -factor))
            if least > most:
                return None
            bounds[term.of[0]] = name, least, most
        return replace(self, variables=tuple(Variable(*bound) for bound in bounds))

    def values(self, sizes: Sequence[int]) -> dict[str, int] | None:
        """Return the values of the Variables for these sizes, or None if the form does not fit."""
        free = [sizes[place] for place in self.places]
        if any(term.value(free) != size for term, size in zip(self.terms, sizes, strict=True)):
            return None
        named = {v.arg: value for v, value in zip(self.variables, free, strict=True)}
        if any(not least <= value <= most for (_, least, most), value in named.items()):
            return None
        return {name: value for (name, _, _), value in named.items()}


@dataclass(slots=True, eq=False)
class SizeFamily:
    """Graphs that are equal up to their sizes and numbers.

    Attributes
    ----------
    seen : dict
        For each tuple of sizes that no plan fitted, the numbers of its graphs.
    plan : weakref to SizedPlan, optional
        The plan that computes the others, while an entry of the plan cache keeps it.
    tries : int
        How many forms were made.
    """

    seen: dict[tuple[int, ...], list[tuple[UOp, ...]]] = field(default_factory=dict)
    plan: weakref.ref[SizedPlan] | None = None
    tries: int = 0

    def record(self, sizes: tuple[int, ...], numbers: tuple[UOp, ...]) -> Form | None:
        """Record a graph; return a new form that fits all, once there are enough of them."""
        if self.tries >= MOST_TRIES:
            return None
        met = self.seen.setdefault(sizes, [])
        if len(met) < MOST_TRIES:
            met.append(numbers)
        seen = list(self.seen.items())  # interrupting code may record others
        if len(seen) <= MOST_APART:
            return None
        self.tries += 1
        known = [numbers for _, met in seen for numbers in met]
        varied = frozenset(i for i, column in enumerate(zip(*known, strict=True))
                           if any(n is not column[0] for n in column))  # fmt: skip
        form = fitted([sizes for sizes, _ in seen], varied)
        if self.tries >= MOST_TRIES:
            self.seen.clear()
        return form


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
    return Form(places, tuple(terms[c] for c in columns), variables, numbers)


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
    homes : list of UOp
        The plan's own BUFFER nodes for those of a graph, then for the numbers that vary.
    nbytes : int
        The memory of the plan.
    """

    form: Form
    plan: ExecutionPlan
    numbers: tuple[UOp, ...]
    homes: list[UOp]
    nbytes: int

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
        varied = [numbers[i].dtype for i in form.numbers]
        if dt.bfloat16 in varied or (
            any(dtype.is_int for dtype in varied)  # it may bound an index
            and not _INDEXED.isdisjoint([node.op for node in toposort(roots)])
        ):
            return None
        lifted = [(numbers[i], build.memory(Buffer(1, numbers[i].dtype)))
                  for i in sorted(form.numbers)]  # fmt: skip
        terms = _terms_of(sized, form)
        limits = [(t, 0, -1) for node, each in terms.items() if node.op is not Op.CONST
                  for t in each]  # fmt: skip
        put = {number: build.reshape(m, ()) for number, m in lifted}
        for _ in range(2):  # the second pass keeps every slice inside its axis
            within = form.within(limits)
            made = None if within is None else _generalized(roots, terms, within.variables, put)
            if within is None or made is None:
                return None
            form = within
            found, memory, limits = made
        news, storages = found[n_values : n_values + middle], found[n_values + middle :]
        if any(storage.op is not Op.BUFFER for storage in storages):
            return None
        try:
            plan = plan_apart(
                found[:n_values],
                [(s, build.reshape(new, s.shape)) for s, new in zip(storages, news, strict=True)],
            )
        except KernelrtError:
            return None
        homes = [*(memory[b] for b in buffers), *(m for _, m in lifted)]
        return cls(form, plan, tuple(numbers), homes, plan.arena_nbytes)

    def fits(self, sizes: Sequence[int], numbers: Sequence[UOp]) -> bool:
        """Return whether it computes a graph with these sizes and numbers."""
        if self.form.values(sizes) is None:
            return False
        pairs = enumerate(zip(self.numbers, numbers, strict=True))
        return all(a is b or i in self.form.numbers for i, (a, b) in pairs)

    def entry(
        self, sizes: Sequence[int], values: Sequence[UOp], commits: Sequence[tuple[UOp, UOp]],
        buffers: Sequence[UOp], order: Sequence[UOp],
    ) -> Entry:  # fmt: skip
        """How to compute the graph of these sizes.

        Parameters
        ----------
        sizes : sequence of int
            They fit.
        values : sequence of UOp
            The values, without marks.
        commits : sequence of (UOp, UOp)
            What is written.
        buffers : sequence of UOp
            The BUFFER nodes, as ``survey_open`` gives them.
        order : sequence of UOp
            The BUFFER nodes in the order in which the entry is given them; then numbers that vary.
        """
        named = self.form.values(sizes)
        assert named is not None
        known = self.plan.variables
        indices = self.plan.ast_to_buffer_map
        written = written_regions(commits)
        homes = dict(zip([*buffers, *order[len(order) - len(self.form.numbers) :]], self.homes,
                         strict=True))  # fmt: skip
        places = []
        for node in order:
            home = homes.get(node, node)
            meets = bool(written.meeting(region_of(node.arg)))
            places.append(
                (home.arg.address, node.arg.nbytes, meets, sites_of(self.plan, indices.get(home)))
            )
        outputs = tuple((math.prod(cast("tuple[int, ...]", v.shape)), v.dtype) for v in values)
        prepared = Prepared(
            self.plan,
            places,
            [(b.address, n * dtype.itemsize, result_sites(self.plan, i))
             for i, (b, (n, dtype)) in enumerate(
                 zip(self.plan.output_buffers, outputs, strict=True))],
            self.plan.bindings({name: n for name, n in named.items() if name in known}),
        )  # fmt: skip
        return Entry(prepared, tuple(range(len(outputs))), outputs, self.nbytes, sized=self)


def _terms_of(sized: Sequence[UOp], form: Form) -> dict[UOp, list[Term]]:
    """The terms of each node that has sizes."""
    rest, found = iter(form.terms), {}
    for node in sized:
        one = node.op is Op.BUFFER or node.op is Op.CONST
        count = 1 if one else len(node.arg) * (2 if node.op in _PAIRED else 1)
        found[node] = [next(rest) for _ in range(count)]
    return found


def _generalized(
    roots: Sequence[UOp], terms: Mapping[UOp, Sequence[Term]], free: Sequence[UOp],
    lifted: Mapping[UOp, UOp],
) -> tuple[list[UOp], dict[UOp, UOp], list[tuple[Term, int, int]]] | None:
    """Put Variables in the place of sizes, and other memory in the place of all memory.

    Returns the graph, the new BUFFER nodes by the old ones, and limits for `Form.within` of slices
    that could leave their axis; None if it may not be one graph for all sizes.
    """
    limits: list[tuple[Term, int, int]] = []
    memory: dict[UOp, UOp] = {}
    done: dict[UOp, UOp] = {}
    try:
        args = {node: [term.dim(free) for term in each] for node, each in terms.items()}
        for node in toposort(roots):
            if node.op in _REFUSED:
                return None
            src = tuple(done[s] for s in node.src)
            if node.op is Op.SHRINK:
                limits += [
                    (stop, size, 1)
                    for stop, size in zip(terms[node][1::2], src[0].shape, strict=True)
                    if isinstance(size, int) and dim_max(stop.dim(free)) > size
                ]
            if node in lifted:
                done[node] = lifted[node]
            elif node.op is Op.BUFFER:
                size = args[node][0]
                memory[node] = whole = build.memory(Buffer(dim_max(size), node.dtype))
                done[node] = build.shrink(whole, [(0, size)])
            else:
                done[node] = _renewed(node, src, args.get(node))
        found = [done[root] for root in roots]
        verify_tensor(found)
    except KernelrtError:
        return None
    return found, memory, limits


def _renewed(node: UOp, src: tuple[UOp, ...], dims: list[Dim] | None) -> UOp:
    """The node with other operands, and with `dims` if it has sizes."""
    if dims is None:
        made = node.replace(src=src)
    elif node.op is Op.CONST:
        return as_uop(dims[0])
    elif node.op in _PAIRED:
        made = node.replace(src=src, arg=tuple(zip(dims[::2], dims[1::2], strict=True)))
    else:
        made = node.replace(src=src, arg=tuple(dims))
    _ = made.shape
    return made
