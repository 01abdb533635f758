"""Dynamic axes: one plan and one set of kernels for all sizes of an axis."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

from kernelrt.errors import DTypeError, ShapeError, VariableError
from kernelrt.ir import Op, UOp
from kernelrt.ir.shape import as_uop, is_static
from kernelrt.ir.size import Size, plain
from kernelrt.jit.binding import input_sites, make_replay
from kernelrt.jit.signature import Array, Spec, Static
from kernelrt.native.evaluate import LruTable, LruValue
from kernelrt.tensor.eager.execute import result_sites
from kernelrt.util.lazy_import import Module

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence

    from kernelrt.jit.binding import PendingWork
    from kernelrt.jit.tracing import Call, Traced
    from kernelrt.native.replay import Replay
    from kernelrt.native.signature import Site, Structure
    from kernelrt.runtime import ExecutionPlan
    from kernelrt.tensor.eager import size_families
    from kernelrt.tensor.eager.size_families import Form
else:
    size_families = Module("kernelrt.tensor.eager.size_families")

__all__ = ["Dynamic", "SizeHistory", "SizedReplays", "check_dynamic", "dynamic_axes", "generalize",
           "is_open"]  # fmt: skip

#: Argument name -> axis -> the Variable that stands for its size.
Dynamic: TypeAlias = "Mapping[str, Mapping[int, UOp | Size]]"

MOST_SIZES: Final = 1024
"""Maximum number of size combinations that a plan has replays for. One more drops all replays."""
_FORM: Final = '{"x": {0: Variable("batch", 1, 256)}}'
#: Minimum size of a dynamic axis. An axis of size 1 is broadcast and squeezed, so it is static.
LEAST_SIZE: Final = 2
#: Maximum number of size combinations remembered per call signature.
MOST_SEEN: Final = 16
#: Maximum number of call signatures remembered.
MOST_KINDS: Final = 64
#: The upper bound for the smallest sizes, and the ratio between successive upper bounds. Kernels
#: are tuned for the upper bound: three rows by 784 x 256 take 9 us with a static plan, 16 us with
#: a plan for up to 16 rows, and 78 us with a plan for up to 256 (Zen 5).
LEAST_BOUND: Final = 16
GROWTH: Final = 4
#: How far the bounds of sizes are narrowed. If the function cannot be traced with WIDE bounds,
#: FROM_LEAST raises the lower bounds to the smallest sizes seen, and AS_SEEN also lowers the upper
#: bounds to the largest sizes seen. With GIVEN_UP, no size is dynamic.
WIDE, FROM_LEAST, AS_SEEN, GIVEN_UP = range(4)
#: Number of calls with the same sizes after which these sizes get a static plan, and the maximum
#: number of sizes that get one. Small kernels of a dynamic plan may take twice as long.
OWN_AFTER: Final = 64
MOST_OWN: Final = 4
#: Maximum number of forms kept per call signature; the oldest is dropped first. A form says how the
#: sizes of all arguments follow from Variables, such as (n, 2 * n).
MOST_FORMS: Final = 64


def check_dynamic(dynamic: object) -> dict[str, dict[int, UOp]] | Literal[False] | None:
    """Return `dynamic` as plain dicts; return None and False unchanged.

    Raises
    ------
    DTypeError
        It is neither False nor of the form ``{"x": {0: Variable("batch", 1, 256)}}``.
    VariableError
        Two different Variables have the same name.
    """
    if dynamic is None or dynamic is False:
        return dynamic
    given: Any = dynamic
    try:
        out = {
            name: {axis: plain(v) for axis, v in axes.items()} for name, axes in given.items()
        }
    except AttributeError:
        raise DTypeError(
            f"dynamic: expected False or a mapping such as {_FORM}, not {dynamic!r}"
        ) from None
    named: dict[str, UOp] = {}
    for name, axes in out.items():
        for axis, variable in axes.items():
            fits = isinstance(variable, UOp) and variable.op is Op.VAR
            if not isinstance(name, str) or not isinstance(axis, int) or not fits:
                raise DTypeError(
                    f"dynamic[{name!r}]: expected axes and Variables as in {_FORM}, not "
                    f"{{{axis!r}: {variable!r}}}"
                )
            other = named.setdefault(variable.arg[0], variable)
            if other is not variable:
                raise VariableError(
                    f"dynamic: two Variables are called {variable.arg[0]!r}, with bounds "
                    f"{other.arg[1:]} and {variable.arg[1:]}; use one Variable for both axes"
                )
    return out


def generalize(
    dynamic: Mapping[str, Mapping[int, UOp]], names: Sequence[str], specs: Sequence[Spec],
    absent: Collection[str] = (),
) -> tuple[Spec, ...]:  # fmt: skip
    """Replace sizes in `specs` by the Variables of `dynamic`.

    Two kinds of arguments have no sizes: those that are None, and those in `absent`, which were not
    passed and have a default.

    Raises
    ------
    ShapeError
        An argument lacks the axis, or one Variable would have two sizes.
    VariableError
        A size lies outside the bounds of its Variable.
    DTypeError
        A name in `dynamic` is not the name of an array argument.
    """
    out = list(specs)
    sizes: dict[str, tuple[int, str]] = {}
    for name, axes in dynamic.items():
        where = [i for i, leaf in enumerate(names) if leaf == name]
        spec = specs[where[0]] if where else None
        if name in absent or spec == Static(None):
            continue
        if not isinstance(spec, Array):
            raise DTypeError(
                f"dynamic: {name!r} is not the name of an array argument; the arguments are "
                f"{', '.join(names) or 'none'}; use a name of this list"
            )
        shape = list(spec.shape)
        for axis, variable in axes.items():
            if not -len(shape) <= axis < len(shape):
                raise ShapeError(
                    f"{name}: dynamic names axis {axis}, but the argument has {len(shape)} axes; "
                    "leave out this axis, or pass an array that has it"
                )
            size = shape[axis]
            assert isinstance(size, int)
            _check_size(name, axis, size, variable, sizes)
            shape[axis] = variable
        out[where[0]] = Array(spec.dtype, tuple(shape))
    return tuple(out)


def _check_size(
    name: str, axis: int, size: int, variable: UOp, sizes: dict[str, tuple[int, str]]
) -> None:
    label, least, most = variable.arg
    if not least <= size <= most:
        raise VariableError(
            f"{name}: axis {axis} has size {size}, but Variable {label!r} goes from {least} to "
            f"{most}; pass a size within these bounds, or widen them"
        )
    known, first = sizes.setdefault(label, (size, name))
    if known != size:
        raise ShapeError(
            f"{name}: axis {axis} has size {size}, but {first} gave Variable {label!r} the size "
            f"{known}; pass arrays of one size, or give the axes different Variables"
        )


class SizedReplays:
    """The replays of one plan, one per combination of argument sizes.

    Parameters
    ----------
    plan : ExecutionPlan
        Plan with Variables for sizes; its buffers hold the largest sizes.
    traced : Traced
        The trace, with the buffers of the arguments and the nodes of the results.
    specs : sequence of Spec
        Specs of the arguments, with Variables in their shapes.
    structure : Structure or None
        Nesting of the arguments, if they are nested.
    pending : PendingWork
        Work to do before a run.
    most_calls : int
        Number of calls with the same sizes after which :meth:`often` returns True; 0 means never.
    """

    def __init__(
        self,
        plan: ExecutionPlan,
        traced: Traced,
        specs: Sequence[Spec],
        structure: Structure | None,
        pending: PendingWork,
        most_calls: int = 0,
    ) -> None:
        self._plan = plan
        self._traced = traced
        self._specs = tuple(specs)
        self._structure = structure
        self._pending = pending
        self._most_calls = most_calls
        self._made: dict[tuple[Spec, ...], Replay] = {}

    def replay(self, actual: tuple[Spec, ...]) -> Replay:
        """Return the replay for arguments with the specs `actual`; make it on first use."""
        found = self._made.get(actual)
        if found is None:
            found = make_replay(
                self._plan,
                self._traced,
                actual,
                self.values(actual),
                structure=self._structure,
                pending=self._pending,
            )
            found.most_calls = self._most_calls
            if len(self._made) >= MOST_SIZES:
                self._made.clear()
            self._made[actual] = found
        return found

    def input_sites(self) -> list[Sequence[Site]]:
        """Return for each argument the slots of the plan that hold an address in it."""
        return input_sites(self._plan, self._traced.homes)

    def output_sites(self) -> list[Sequence[Site]]:
        """Return for each result the slots of the plan that hold an address in it."""
        return [result_sites(self._plan, i) for i in range(len(self._traced.nodes))]

    def often(self, actual: tuple[Spec, ...]) -> bool:
        """Return whether these sizes reached `most_calls` calls, so that calls go to Python."""
        found = self._made.get(actual)
        return found is not None and 0 < found.most_calls <= found.calls

    def keep(self, actual: tuple[Spec, ...]) -> None:
        """Stop counting calls with these sizes, so that :meth:`often` returns False from now on."""
        self.replay(actual).most_calls = 0

    def values(self, actual: Sequence[Spec]) -> dict[str, int]:
        """Return the values of the Variables for arguments with the specs `actual`."""
        values: dict[str, int] = {}
        for spec, given in zip(self._specs, actual, strict=True):
            if isinstance(spec, Array) and isinstance(given, Array):
                for dim, size in zip(spec.shape, given.shape, strict=True):
                    if isinstance(dim, UOp) and dim.op is Op.VAR and isinstance(size, int):
                        values[dim.arg[0]] = size
        return values


@dataclass(slots=True, eq=False, repr=False)
class _Kind(LruValue):
    """The history of one call signature: calls that differ only in the sizes of arrays.

    Attributes
    ----------
    seen : dict
        The sizes of all axes in the newest calls that found no plan, oldest first.
    forms : list of (Form, int)
        One pair for each set of calls that share a plan. The form says how the sizes follow from
        Variables. The number says how far the bounds of these Variables were narrowed: WIDE,
        FROM_LEAST or AS_SEEN.
    limits : int
        How far to narrow the bounds of the next form. No trace has failed with bounds this narrow
        yet.
    own : int
        Number of size combinations that got a static plan because they are frequent.
    """

    seen: dict[tuple[int, ...], None] = field(default_factory=dict)
    forms: list[tuple[Form, int]] = field(default_factory=list)
    limits: int = WIDE
    own: int = 0


class SizeHistory:
    """The sizes that the arguments of a jitted function had, and the axes to make dynamic.

    The first two combinations of sizes get static plans. The third combination shows which sizes
    change, and how they depend on each other. The sizes that change become Variables.
    """

    def __init__(self) -> None:
        self._kinds: LruTable[_Kind] = LruTable(MOST_KINDS)

    def clear(self) -> None:
        """Forget all sizes."""
        self._kinds.clear()

    def known(self, call: Call, actual: tuple[Spec, ...]) -> tuple[Spec, ...] | None:
        """Return specs with Variables for sizes; None if no known form fits these sizes."""
        kind = self._kinds.get(_key(call, actual))
        if kind is None:
            return None
        sizes = _sizes(actual)
        fitting = (form for form, _ in reversed(kind.forms) if form.values(sizes) is not None)
        form = next(fitting, None)
        return None if form is None else _generalized(actual, form)

    def grants(self, call: Call, actual: tuple[Spec, ...]) -> bool:
        """Return whether frequent sizes may get a static plan. If they may, count this plan."""
        kind = self._kinds.get(_key(call, actual))
        if kind is None or kind.own >= MOST_OWN:
            return False
        kind.own += 1
        return True

    def found(self, call: Call, actual: tuple[Spec, ...]) -> tuple[Spec, ...] | None:
        """Record a call that has no plan. If sizes changed twice, return specs with Variables.

        If a trace with these specs fails, :meth:`narrowed` returns the specs to try next.
        """
        sizes = _sizes(actual)
        if not sizes:
            return None
        key = _key(call, actual)
        kind = self._kinds.get(key) or _Kind()
        self._kinds.put(key, kind)
        kind.seen.pop(sizes, None)
        kind.seen[sizes] = None  # the newest
        for oldest in list(kind.seen)[:-MOST_SEEN]:
            kind.seen.pop(oldest, None)
        limits = kind.limits
        form = None if limits >= GIVEN_UP else _form(list(kind.seen), sizes, limits)
        if form is None or form.values(sizes) is None:
            return None
        kind.forms = [*kind.forms, (form, limits)][-MOST_FORMS:]
        return _generalized(actual, form)

    def narrowed(
        self, call: Call, actual: tuple[Spec, ...], specs: tuple[Spec, ...], *, helps: bool
    ) -> tuple[Spec, ...] | None:
        """Return the specs to try after a trace with `specs` failed: with narrower bounds of sizes.

        If `helps` is false, narrower bounds would not help. No size can be dynamic then, so return
        None.
        """
        kind = self._kinds.get(_key(call, actual))
        for form, limits in [] if kind is None else kind.forms:
            if kind is not None and _generalized(actual, form) == specs:
                # Another thread may have failed with the same specs.
                kind.forms = [pair for pair in kind.forms if pair[0] is not form]
                kind.limits = max(kind.limits, limits + 1 if helps else GIVEN_UP)
        return self.found(call, actual)


def is_open(specs: Iterable[Spec]) -> bool:
    """Return whether a size of an argument depends on a Variable."""
    return any(isinstance(spec, Array) and not is_static(spec.shape) for spec in specs)


def dynamic_axes(names: Sequence[str], specs: Sequence[Spec]) -> str:
    """Describe the dynamic axes of the arguments and the bounds of their sizes."""
    shapes = [(name, spec.shape) for name, spec in zip(names, specs, strict=True)
              if isinstance(spec, Array)]  # fmt: skip
    axes = [f"axis {axis} of {name}" for name, shape in shapes
            for axis, dim in enumerate(shape) if isinstance(dim, UOp)]  # fmt: skip
    found = {dim for _, shape in shapes for dim in shape if isinstance(dim, UOp)}
    free = sorted(dim.arg for dim in found if dim.op is Op.VAR)
    bounds = ", ".join(f"{name} from {least} to {most}" for name, least, most in free)
    return f"dynamic since the third size: {', '.join(axes)} ({bounds})"


def _key(call: Call, actual: Sequence[Spec]) -> Hashable:
    """Return the call signature without sizes, as a dict key."""
    return call, tuple(
        (spec.dtype, len(spec.shape)) if isinstance(spec, Array) else spec for spec in actual
    )


def _sizes(actual: Sequence[Spec]) -> tuple[int, ...]:
    shapes = [spec.shape for spec in actual if isinstance(spec, Array)]
    return tuple(cast("int", size) for shape in shapes for size in shape)


def _form(seen: list[tuple[int, ...]], now: tuple[int, ...], limits: int) -> Form | None:
    """Return how the sizes in `seen` follow from Variables; None if no rule is found.

    Calls in which a varying axis is smaller than LEAST_SIZE are left out.
    """
    while True:
        if len(seen) <= size_families.MOST_SPECIALIZED:
            return None
        varying = [len(set(column)) > 1 for column in zip(*seen, strict=True)]
        fits = [
            sizes for sizes in seen
            if all(n >= LEAST_SIZE for n, varies in zip(sizes, varying, strict=True) if varies)
        ]  # fmt: skip
        if len(fits) == len(seen):
            break
        seen = fits
    form = size_families.fitted(seen, frozenset()) if any(varying) else None
    if form is None:
        return None
    bounds = [as_uop(term.dim(form.variables)) - LEAST_SIZE for term in form.terms if term.of]
    for variable, i in zip(form.variables, form.free, strict=True):
        met, most = [sizes[i] for sizes in seen], LEAST_BOUND
        while most < now[i]:
            most *= GROWTH
        bounds.append(as_uop(most) - variable)
        bounds += [variable - (most // GROWTH + 1)] if most > LEAST_BOUND else []
        bounds += [variable - min(met)] if limits >= FROM_LEAST else []
        bounds += [as_uop(max(met)) - variable] if limits >= AS_SEEN else []
    return form.within(bounds)


def _generalized(actual: Sequence[Spec], form: Form) -> tuple[Spec, ...]:
    """Return the specs with Variables for the sizes that vary."""
    dims = iter([term.dim(form.variables) for term in form.terms])
    return tuple(
        Array(spec.dtype, tuple([next(dims) for _ in spec.shape]))
        if isinstance(spec, Array)
        else spec
        for spec in actual
    )
