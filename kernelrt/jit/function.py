"""jit: trace a function of tensors into one plan per argument signature, replayed in C."""

from __future__ import annotations

import functools
import itertools
import sys
import threading
import warnings
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Self, TypeVar, overload

from kernelrt.device.dlpack import refuse_torch_module
from kernelrt.errors import DTypeError, JitError, KernelrtWarning, RetraceWarning
from kernelrt.ir.size import SizeWatch
from kernelrt.jit import tracing
from kernelrt.jit.binding import PendingWork
from kernelrt.jit.dynamic import (
    OWN_AFTER,
    Dynamic,
    SizedReplays,
    SizeHistory,
    check_dynamic,
    dynamic_axes,
    generalize,
    is_open,
)
from kernelrt.jit.epochs import Epochs
from kernelrt.jit.parameters import Parameters, name_of
from kernelrt.jit.signature import Array, Spec, flatten_arguments, normalize, spec_of
from kernelrt.jit.specializations import Variant, reason
from kernelrt.jit.tracing import Call, trace
from kernelrt.native.replay import MISMATCH, Replay
from kernelrt.tensor import Tensor, is_tracing, state
from kernelrt.tensor.autograd.tags import Severed
from kernelrt.tensor.eager import execute
from kernelrt.tensor.nodes import build
from kernelrt.tensor.nodes.arguments import flag
from kernelrt.tensor.tracing.trace import ByValue, forbid
from kernelrt.util.lazy_import import Module

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from kernelrt.device.buffer import Buffer
    from kernelrt.jit import saving, stepwise
    from kernelrt.jit.effects import side_effects
    from kernelrt.jit.tracing import Traced
    from kernelrt.runtime import ExecutionPlan, KernelProfile
    from kernelrt.runtime import sizes as plan_sizes
    from kernelrt.tensor.eager import nonfinite
else:
    saving = Module("kernelrt.jit.saving")
    stepwise = Module("kernelrt.jit.stepwise")
    side_effects = Module("kernelrt.jit.effects.side_effects")
    plan_sizes = Module("kernelrt.runtime.sizes")
    nonfinite = Module("kernelrt.tensor.eager.nonfinite")

__all__ = ["JitFunction", "jit"]

R = TypeVar("R")

RETRACES_BEFORE_WARNING: Final = 8
"""Retraces after which a function warns. Static plans for frequent sizes, which are few, are not
counted."""
FREQUENT_SIZES: Final = f"a static plan for these sizes, after {OWN_AFTER} calls"
"""Reason for these plans."""
MOST_PLANS: Final = 256
"""Maximum number of plans that a function keeps; the oldest is dropped first."""
MOST_ATTEMPTS: Final = 64
"""Maximum number of plans that a call makes and finds stale before they run."""
MOST_REPLAYS: Final = 1024
"""Maximum number of replays that a call tries in order; beyond it the list is cleared."""


class JitFunction(Epochs[R]):
    """A function that is traced once per argument signature and replayed from then on.

    Created by :func:`jit`. Calls are thread-safe; runs of the same plan exclude each other.

    Attributes
    ----------
    instance : object
        The object that a jitted method is bound to, or None.

    Examples
    --------
    >>> double = krt.jit(lambda x: x * 2)
    >>> double(krt.ones(3)).tolist(), double(krt.ones(2)).tolist()
    ([2.0, 2.0, 2.0], [2.0, 2.0])
    >>> type(double).__name__, double.retraces
    ('JitFunction', 1)
    """

    _parameters: Parameters

    made: ClassVar[list[JitFunction[Any]] | None] = None
    """The functions made since this was set to a list; ``kernelrt view`` sets it."""

    def __init__(
        self,
        fn: Callable[..., R],
        *,
        dynamic: Dynamic | Literal[False] | None = None,
        threads: int | None = None,
        keep_grads: bool = False,
        freeze: bool = False,
    ) -> None:
        if not callable(fn):
            raise DTypeError(f"fn: expected a function, not {type(fn).__name__}")
        refuse_torch_module(getattr(fn, "__self__", fn), "fn")
        functools.update_wrapper(self, fn, updated=())
        if JitFunction.made is not None:
            JitFunction.made.append(self)
        self._fn = fn
        self._parameters = Parameters(fn)
        self._dynamic = check_dynamic(dynamic)
        self._sizes = SizeHistory() if self._dynamic is None else None
        self._threads = threads
        self._keep_grads = keep_grads
        self._freeze = flag(freeze, "freeze")
        self._variants: dict[object, list[Variant]] = {}
        self._serials = itertools.count()
        self._traced = self._frequent = 0  # traces; those that made plans for frequent sizes
        self._widened: set[str] = set()
        #: Float arguments that are constants of the program because the trace needs their values.
        self._by_value: frozenset[str] = frozenset()
        self._name = name_of(fn)
        self._attribute = self._name
        self._key = f"_jit_{self._name}"
        self.instance: object = None
        """The object that a jitted method is bound to."""
        self._method: JitFunction[R] | None = None
        self._require_empty((tracing.active, state.differentiating))
        self._name_parameters(self._parameters.passed_either_way())

    # ---- calling

    if TYPE_CHECKING:  # arrays and floats stand in for tensors, so parameters are not checked

        def __call__(self, *args: Any, **kwargs: Any) -> R:
            """Run the plan for these arguments; trace the function if there is none."""

    def _slow(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call with arguments, or in a state, that the replays cannot handle directly."""
        if is_tracing() or threading.get_ident() in state.differentiating:
            return self._fn(*args, **kwargs)
        if state.local.stepwise:
            return stepwise.run_stepwise(self._name, self._fn, self._parameters, args, kwargs)
        if state.local.nonfinite:
            return self._attempt(args, kwargs, self._run_checked, exact=True)[1]
        return self._attempt(args, kwargs, _run)[1]

    def _run_checked(self, variant: Variant, replay: Replay, leaves: Sequence[Any]) -> Any:
        """Run the plan, or raise NonFiniteError if it would compute a non-finite number."""
        variant.traced.watch.before()  # puts gradients where the plan reads them
        if replay.load(*leaves) is MISMATCH:
            return MISMATCH

        def named(buffer: Buffer) -> str:
            roots = zip(variant.call.leaves, leaves, strict=True)
            around = side_effects.OuterState(("", self._fn), *roots)
            names = [
                name for name, tensor in around.reached((Tensor,))
                if isinstance(tensor, Tensor) and tensor._buffer is buffer
            ]
            return min(names, key=lambda name: "._" in name, default="")  # prefers public names

        traced = variant.traced
        nonfinite.check(traced.nodes, traced.commits, plan=variant.plan, named=named)
        return replay(*leaves)

    def plan(self, *args: Any, **kwargs: Any) -> ExecutionPlan:
        """Return the plan for these arguments, with the arguments copied in.

        The function is traced if there is no plan yet. An execution of the plan takes no arguments,
        and writes state as a call does. It returns no results, and sets no gradients: a ``grad``
        that is None stays None.

        Parameters
        ----------
        *args, **kwargs : object
            Arguments of the function.

        Returns
        -------
        ExecutionPlan
            The plan that a call with these arguments runs; its ``explain()`` lists kernels and
            buffers.

        Raises
        ------
        JitError
            The call is inside a traced function, or the trace fails.

        Examples
        --------
        >>> double = krt.jit(lambda x: x * 2)
        >>> plan = double.plan(np.ones(3, np.float32))
        >>> len(plan.prepared_kernels), plan.device
        (1, 'CPU')
        """
        forbid(f"{self._name}.plan()")
        return self._specialized(args, kwargs).plan

    def _specialized(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Variant:
        """Return the specialization for some arguments; trace the function if there is none."""
        return self._attempt(args, kwargs, _load, sized=False)[0]

    def save(self, path: str | os.PathLike[str], *args: Any, **kwargs: Any) -> None:
        """Save the function and its state to a file that runs without Python or a compiler.

        :func:`kernelrt.save` saves several functions that share state; it also documents what a
        file holds.

        Parameters
        ----------
        path : str or path
            File to write.
        *args, **kwargs : object
            Arguments for which to save the function. Without any, all plans made so far are saved.

        Raises
        ------
        ModelFileError
            There is no plan yet, or the function cannot run without Python.

        Examples
        --------
        >>> import tempfile
        >>> double = krt.jit(lambda x: x * 2)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     double.save(f"{folder}/double.krt", np.ones(3, np.float32))
        ...     krt.load(f"{folder}/double.krt")(np.ones(3, np.float32)).tolist()
        [2.0, 2.0, 2.0]
        """
        saving.save_one(path, self, args, kwargs)

    def profile(self, *args: Any, **kwargs: Any) -> list[KernelProfile]:
        """Run once as a call does, and return the time that each kernel took.

        Parameters
        ----------
        *args, **kwargs : object
            Arguments of the function.

        Returns
        -------
        list of KernelProfile
            One item for each launch of a kernel; ``kernelrt.runtime.profiler.table`` prints them.

        Raises
        ------
        JitError
            The call is inside a traced function, or the trace fails.

        Examples
        --------
        >>> double = krt.jit(lambda x: x * 2)
        >>> profiles = double.profile(np.ones(3, np.float32))
        >>> len(profiles), profiles[0].elapsed > 0
        (1, True)
        """
        forbid(f"{self._name}.profile()")
        variant, samples = self._attempt(args, kwargs, _profile)
        return variant.plan.profiles_of(samples)

    def _attempt(
        self, args: tuple[Any, ...], kwargs: dict[str, Any],
        what: Callable[[Variant, Replay, Sequence[Any]], Any], *, sized: bool = True,
        exact: bool = False,
    ) -> tuple[Variant, Any]:  # fmt: skip
        """Apply `what` to the replay for these arguments; return the variant and the result."""
        for _ in range(MOST_ATTEMPTS):
            variant, leaves, replay = self._variant_for(args, kwargs, sized=sized, exact=exact)
            result = what(variant, replay, leaves)
            if result is not MISMATCH:
                return variant, result
            if variant.fits():  # if so, state moved in memory; if not, another thread changed it
                self._drop(variant)
        raise JitError(
            f"{self._name}: in each of {MOST_ATTEMPTS} attempts, the state that the function reads "
            "was changed or moved in memory before the plan could run, for example because another "
            "thread assigned to it; do not change that state during a call"
        )

    if not TYPE_CHECKING:  # with __getattr__, type checkers would accept any attribute

        def __getattr__(self, name: str) -> Any:
            fn = self.__dict__.get("_fn")
            text = f"{type(self).__name__!r} object has no attribute {name!r}"
            if not name.startswith("_") and hasattr(fn, name):
                text += (
                    f", but the wrapped {type(fn).__name__} has it: keep both objects, as in "
                    "run = kernelrt.jit(model), and read the attribute from the wrapped one"
                )
            raise AttributeError(text, name=name, obj=self)

    # ---- plans

    @property
    def name(self) -> str:
        """Name of the wrapped function in errors and reports."""
        return self._name

    @property
    def plans(self) -> tuple[ExecutionPlan, ...]:
        """The plans made so far, oldest first."""
        return tuple(variant.plan for variant in self._order)

    def tunable(self) -> list[tuple[ExecutionPlan, list[int]]]:
        """Return the plans, each with the indices of the buffers that arguments are copied to.

        Returns
        -------
        list of (ExecutionPlan, list of int)
            One pair for each plan, oldest first.
        """
        found = []
        for variant in self._order:
            indices = variant.plan.ast_to_buffer_map
            homes = [build.memory(home) for home in variant.traced.homes if home is not None]
            found.append((variant.plan, [indices[node] for node in homes if node in indices]))
        return found

    @property
    def retraces(self) -> int:
        """Number of traces after the first; :meth:`explain` gives their reasons."""
        return max(0, self._traced - 1)

    def explain(self) -> str:
        """Describe the plans. For each plan after the first, say why it was made.

        Returns
        -------
        str
            One line for each plan.

        Examples
        --------
        >>> @krt.jit
        ... def double(x):
        ...     return x * 2
        >>> _ = double(np.zeros(3, np.float32)), double(np.zeros(4, np.float32))
        >>> print(double.explain())
        double: 2 plans
          1. x: float32 (3,)
          2. x: float32 (4,); x changed its shape from (3,) to (4,)
        """
        count = len(self._order)
        lines = [f"{self._name}: {count} plan" + ("" if count == 1 else "s")]
        for i, variant in enumerate(self._order, 1):
            lines += variant.lines(i)
        return "\n".join(lines)

    def clear(self) -> None:
        """Drop all plans; the next call traces again.

        Examples
        --------
        >>> double = krt.jit(lambda x: x * 2)
        >>> _ = double(np.ones(3, np.float32))
        >>> double.clear()
        >>> double.plans
        ()
        """
        with state.lock:
            self._clear_replays()
            self._variants = {}
            self._traced = self._frequent = 0
            if self._sizes is not None:
                self._sizes.clear()

    # ---- finding or making a plan

    @property
    def _order(self) -> list[Variant]:
        """The plans, oldest first; sorted in each read, because only `_variants` stores them."""
        with state.lock:
            every = [variant for alike in list(self._variants.values()) for variant in alike]
        return sorted(every, key=lambda variant: variant.serial)

    def _variant_for(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, sized: bool = True,
        exact: bool = False,
    ) -> tuple[Variant, list[Any], Replay]:  # fmt: skip
        """Return the plan for these arguments (traced if necessary), their leaves and the replay.

        If `sized` is true, the plan may be dynamic. If `exact` is true, it is for these sizes only.
        """
        sized = sized and not exact
        if kwargs:
            args, kwargs = self._parameters.positional(self._name, args, kwargs)
        names = [*self._parameters.names(len(args)), *kwargs]
        values = (*args, *kwargs.values())
        template, named = flatten_arguments(list(zip(names, values, strict=True)))
        leaf_names = tuple(name for name, _ in named)
        call = Call(len(args), tuple(kwargs), template, leaf_names, tuple(names))
        leaves = [normalize(name, leaf) for name, leaf in named]
        actual = tuple(
            spec_of(leaf, by_value=name in self._by_value)
            for name, leaf in zip(leaf_names, leaves, strict=True)
        )
        specs = actual
        if self._dynamic and not exact:
            missing = self._parameters.optional - {*names}
            specs = generalize(self._dynamic, call.leaves, actual, missing)
        variant = self._known(call, specs, leaves)
        made = None
        try:
            if variant is None and sized and self._sizes is not None:
                specs, variant, made = self._for_many(call, actual, leaves, self._sizes)
            # No lock is held while the function runs: it may wait for a thread that makes a call.
            if variant is None and made is None:
                made = self._make(call, specs, leaves)
        except ByValue as asked:
            self._by_value |= {leaf_names[i] for i in asked.arguments}
            return self._variant_for(args, kwargs, sized=sized, exact=exact)
        if made is not None:
            self._warn_of_widening(made.traced.widening)
        with state.lock:
            variant = variant or self._known(call, specs, leaves) or made
            assert variant is not None
            for i in variant.traced.reached:
                self._check_without_gradient(leaf_names[i], leaves[i])
            if variant is made:
                self._variants.setdefault((call, specs), []).append(variant)
                self._traced += 1
                if made.why == FREQUENT_SIZES:
                    self._frequent += 1
                else:
                    self._warn_of_retraces()
                for oldest in self._order[:-MOST_PLANS]:
                    self._drop(oldest)
            replay = variant.replays.replay(actual)
            if variant.taken_in_c and replay not in self._replays:
                if len(self._replays) >= MOST_REPLAYS:
                    self._clear_replays()
                self._add_replay(replay)
        return variant, leaves, replay

    def _check_without_gradient(self, name: str, leaf: Any) -> None:
        """Raise JitError if a gradient computed by the function would stop at this argument."""
        if not isinstance(leaf, Tensor) or not leaf._lineage:
            return
        is_result = isinstance(leaf._lineage, Severed)
        what = "is the result of a jitted function" if is_result else "requires a gradient"
        raise JitError(
            f"{name}: the argument {what}, but gradients that {self._name} computes stop at its "
            f"arguments; pass {name}.detach(), or let {self._name} read {name}, or the tensors "
            f"that {name} was computed from, through the closure or an attribute"
        )

    def _known(
        self, call: Call, specs: tuple[Spec, ...], leaves: Sequence[Any]
    ) -> Variant | None:
        """Return the plan for these arguments if there is one."""
        with state.lock:
            known = self._variants.get((call, specs), ())
            return next((v for v in known if v.takes(leaves) and v.fits()), None)

    def _for_many(
        self, call: Call, actual: tuple[Spec, ...], leaves: Sequence[Any], sizes: SizeHistory
    ) -> tuple[tuple[Spec, ...], Variant | None, Variant | None]:
        """Find or make a plan for many sizes.

        Return three values: the specs, the known plan or None, and the new plan or None. If both
        plans are None, the caller makes a static plan.
        """
        specs = sizes.known(call, actual)
        known = None if specs is None else self._known(call, specs, leaves)
        if specs is not None and known is not None:
            if not known.replays.often(actual):
                return specs, known, None
            if not sizes.grants(call, actual):
                known.replays.keep(actual)
                return specs, known, None
            return actual, None, self._make(call, actual, leaves, why=FREQUENT_SIZES)
        why: str | None = None
        specs = specs or sizes.found(call, actual)
        while specs is not None:
            try:
                made = self._make(call, specs, leaves, why=dynamic_axes(call.leaves, specs))
            except Warning:
                raise
            except Exception as error:  # noqa: BLE001 - the trace with static sizes raises it again
                why = f"{reason(self._order, call, actual, leaves)}; not dynamic: {error}"
                helps = not isinstance(error, JitError)
                specs = sizes.narrowed(call, actual, specs, helps=helps)
            else:
                return specs, None, made
        return actual, None, None if why is None else self._make(call, actual, leaves, why=why)

    def _make(
        self, call: Call, specs: tuple[Spec, ...], leaves: Sequence[Any], why: str | None = None
    ) -> Variant:
        began = perf_counter()
        traced = self._traced_for(call, specs, leaves)
        seconds = perf_counter() - began
        homes = [home for home in traced.homes if home is not None]
        with state.lock:
            plan = execute.prepare_apart(
                traced.nodes, traced.commits, homes, frozen=self._freeze
            )
        plan.build_times = replace(plan.build_times, trace=seconds)
        self._check_bound(plan, specs)
        if self._threads is not None:
            plan.set_threads(self._threads)
        pending = PendingWork(traced.targets)
        structure = None if call.direct else call.template.structure
        own = self._sizes is not None and is_open(specs)
        replays = SizedReplays(plan, traced, specs, structure, pending, OWN_AFTER if own else 0)
        comparable = not call.keywords and (call.direct or structure is not None)
        taken_in_c = comparable and traced.asked_in_c
        if why is None:
            why = reason(self._order, call, specs, leaves)
        return Variant(
            next(self._serials), call, specs, traced, plan, replays, pending, taken_in_c, why
        )

    def _traced_for(self, call: Call, specs: tuple[Spec, ...], leaves: Sequence[Any]) -> Traced:
        """Trace the function; raise JitError if it treats dynamic sizes differently from ints."""
        traced = functools.partial(
            trace, self._fn, self._name, call, specs, leaves, keep_grads=self._keep_grads
        )
        if self._sizes is None or not is_open(specs):
            return traced()
        with SizeWatch() as watch:
            found = traced()
        if told := watch.told():
            raise JitError(
                f"the code of {self._name} treats a dynamic size differently from an int ({told}), "
                "so a plan with dynamic sizes might give other results; use the size only in "
                "arithmetic"
            )
        return found

    def _check_bound(self, plan: ExecutionPlan, specs: tuple[Spec, ...]) -> None:
        """Raise JitError if the plan depends on a Variable that no argument has as a size."""
        dims = [d for spec in specs if isinstance(spec, Array) for d in spec.shape]
        bound = {v.arg[0] for v in plan_sizes.variables_of(dims)}
        strange = [name for name in plan.variables if name not in bound]
        if strange:
            names = ", ".join(map(repr, strange))
            raise JitError(
                f"{self._name}() depends on Variable {names}, but none of its arguments has that "
                "size: the function kept the Variable from another trace, or created it; pass the "
                "size as a tensor, or pass the array that has it and name its axis in dynamic="
            )

    def _warn_of_retraces(self) -> None:
        if self.retraces - self._frequent == RETRACES_BEFORE_WARNING:
            warnings.warn(
                f"{self._name} was traced {self._traced} times; reason for the last trace: "
                f"{self._order[-1].why}. Pass changing numbers as floats or arrays, and make axes "
                "of changing size dynamic, or pad them. explain() lists all plans.",
                RetraceWarning,
                stacklevel=5,
            )

    def _warn_of_widening(self, name: str) -> None:
        if name and name not in self._widened:
            self._widened.add(name)
            warnings.warn(
                f"{name}: the argument is float64, but {self._name} combines it with float32 "
                "state, so the results are float64 and take about twice the time; pass "
                f"{name}.astype(numpy.float32), or make the state float64",
                KernelrtWarning,
                stacklevel=5,
            )

    def _drop(self, variant: Variant) -> None:
        """Drop a plan."""
        with state.lock:
            key = (variant.call, variant.specs)
            left = _others(self._variants.get(key, ()), variant)
            if left:
                self._variants[key] = left
            else:
                self._variants.pop(key, None)
            self._clear_replays()

    # ---- methods

    def __set_name__(self, owner: type, name: str) -> None:
        self._attribute = name
        # The key contains the descriptor's id, so that a method can call the one it overrides.
        self._key = f"_jit_{owner.__qualname__}.{name}.{id(self)}"

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> JitFunction[R]: ...
    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if instance is None:
            return self
        try:
            bound = instance.__dict__[self._key]
        except (AttributeError, KeyError):
            bound = None
        # A copied instance still holds the bound functions of its original, hence the other tests.
        if bound is None or bound.instance is not instance or bound._method is not self:
            bound = self._bind(instance)
        return bound

    def _bind(self, instance: object) -> JitFunction[R]:
        """Return the jitted method bound to one instance, and store it there."""
        bound = JitFunction(
            functools.partial(self._fn, instance), **self._options()
        )
        functools.update_wrapper(bound, self._fn, updated=())
        bound.instance, bound._name, bound._attribute = instance, self._name, self._attribute
        bound._method = self
        try:
            if isinstance(instance, type):  # a class method; a class's __dict__ is read-only
                setattr(instance, self._key, bound)
            else:
                instance.__dict__[self._key] = bound
        except (AttributeError, TypeError):
            raise JitError(
                f"{self._name}: a jitted method needs an instance with a __dict__, but "
                f"{type(instance).__name__} has none; jit a function instead"
            ) from None
        return bound

    def __set__(self, instance: object, value: object) -> None:
        raise AttributeError(
            f"{self._name} is a jitted method and cannot be replaced; use another attribute name"
        )

    @property
    def __wrapped_function__(self) -> Callable[..., R]:
        """The function that is traced."""
        return self._fn

    def tree_items(self) -> tuple[()]:
        """Hide plans and closure from the search for parameters."""
        return ()

    def __reduce__(self) -> str | tuple[Any, ...]:
        if self.instance is not None:
            return _jitted_method, (self.instance, self._attribute)
        path: str = getattr(self, "__qualname__", "")  # a partial function has no __qualname__
        if _named(self.__module__, path) is self:
            return path  # pickled by name, as functions are
        return _jitted, (self._fn, self._options())

    def _options(self) -> dict[str, Any]:
        return {
            "dynamic": self._dynamic, "threads": self._threads, "keep_grads": self._keep_grads,
            "freeze": self._freeze,
        }  # fmt: skip

    def __repr__(self) -> str:
        return f"<jit {self._name}, {len(self._order)} plans>"


def _run(_variant: Variant, replay: Replay, leaves: Sequence[Any]) -> Any:
    return replay(*leaves)


def _load(_variant: Variant, replay: Replay, leaves: Sequence[Any]) -> Any:
    return replay.load(*leaves)


def _profile(_variant: Variant, replay: Replay, leaves: Sequence[Any]) -> Any:
    return replay.profile(*leaves)


def _jitted(fn: Callable[..., object], options: dict[str, Any]) -> JitFunction[Any]:
    return JitFunction(fn, **options)


def _others(variants: Iterable[Variant], one: Variant) -> list[Variant]:
    return [variant for variant in variants if variant is not one]


def _named(module: object, path: str) -> object:
    """Return the object at this path in a module, or None."""
    found: object = sys.modules.get(str(module))
    for name in path.split("."):
        found = getattr(found, name, None)
    return found


def _jitted_method(instance: object, name: str) -> object:
    return getattr(instance, name)


@overload
def jit(
    fn: Callable[..., R],
    *,
    dynamic: Dynamic | Literal[False] | None = None,
    threads: int | None = None,
    keep_grads: bool = False,
    freeze: bool = False,
) -> JitFunction[R]: ...
@overload
def jit(
    fn: None = None,
    *,
    dynamic: Dynamic | Literal[False] | None = None,
    threads: int | None = None,
    keep_grads: bool = False,
    freeze: bool = False,
) -> Callable[[Callable[..., R]], JitFunction[R]]: ...
def jit(
    fn: Callable[..., R] | None = None,
    *,
    dynamic: Dynamic | Literal[False] | None = None,
    threads: int | None = None,
    keep_grads: bool = False,
    freeze: bool = False,
) -> Any:
    """Trace a function once per argument signature, and replay the plan from then on.

    Arrays, tensors and Python floats are inputs. Ints, bools, strings, None and modules are static:
    a call with another value traces the function again, and so does a call with another shape or
    dtype. Tensors that the function reaches in another way, such as parameters and moments, are
    state. The plan reads state from memory, and updates it in place if the function assigns to it.
    Results are new arrays that the caller owns.

    Parameters
    ----------
    fn : callable
        Function or method that takes arrays, tensors, floats and static values, and returns
        tensors. Arguments and results may be nested in lists, tuples and dicts.
    dynamic : mapping of str to mapping of int to Variable, or False, optional
        Axes of arguments whose size may change without a new plan, as in
        ``{"x": {0: Variable("batch", 1, 256)}}``. By default an axis becomes dynamic when it has
        its third size, if one trace can serve all sizes; `explain` reports it. With False, each
        size has a separate plan.
    threads : int, optional
        Maximum number of threads of the plans.
    keep_grads : bool
        Whether to store the gradients of parameters for which the function does everything itself:
        it clears the gradients, computes them, and uses them in an optimizer's step. By default
        these gradients are not stored, and reading such a ``grad`` outside the function raises
        GradientError. All other gradients are always stored.
    freeze : bool
        Declares that state which the function only reads, such as the weights of a trained model,
        changes rarely. The plan then keeps a second copy of its matrices, in the layout that matrix
        products read. This saves 10 to 40 % of the time of inference with four or more rows. If the
        state changes, the next call sees the change, but takes longer because it packs the matrices
        again.

    Returns
    -------
    JitFunction
        Called like `fn`. Has `over`, `plan`, `profile`, `explain`, `retraces` and `clear`.

    Raises
    ------
    JitError
        Raised by a call if the function reads a value while it is traced, assigns to an argument,
        or takes or returns another type than those above. Values of tensors, gradients and random
        state are as they were before the call.

    Examples
    --------
    >>> total = krt.zeros(())
    >>> @krt.jit
    ... def add(x):
    ...     total.assign(total + x.sum())
    ...     return total
    >>> add(np.ones(3, np.float32)).item(), add(np.ones(3, np.float32)).item()
    (3.0, 6.0)
    """
    options: dict[str, Any] = {
        "dynamic": dynamic, "threads": threads, "keep_grads": keep_grads, "freeze": freeze,
    }  # fmt: skip
    if fn is None:
        return lambda fn: JitFunction(fn, **options)
    return JitFunction(fn, **options)
