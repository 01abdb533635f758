"""Multi-step runner of `JitFunction.over`: batches of rows, their plans, and callbacks."""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from kernelrt.data.rows import fresh_seed, seed_of, size_option
from kernelrt.device.buffer import Buffer
from kernelrt.errors import (
    CustomFunctionError,
    DomainError,
    DTypeError,
    IndexBoundsError,
    JitError,
    KernelrtError,
    LinAlgError,
    NonFiniteError,
    ShapeError,
)
from kernelrt.ir.shape import format_shape
from kernelrt.jit.signature import flatten, flatten_arguments, normalize
from kernelrt.native.multi_step import MultiStepRun, hand_out, order_of
from kernelrt.tensor import Tensor, state
from kernelrt.tensor.free_functions.joining import stack
from kernelrt.tensor.nodes.arguments import flag, integer
from kernelrt.util.progress import INTERVAL, Progress, shown_option

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kernelrt.jit.epochs import Epochs
    from kernelrt.jit.signature import Template
    from kernelrt.jit.specializations import Plan
    from kernelrt.native.replay import Replay

__all__ = ["run_epochs"]

MOST_PLACES: Final = 1 << 18
"""Maximum number of row indices generated at once, unless one epoch has more."""
MOST_ATTEMPTS: Final = 64
"""Maximum number of plans that a step makes and finds stale before they run."""
_CONTAINERS: Final = (list, tuple, dict)


def run_epochs(
    function: Epochs[Any], args: tuple[Any, ...], kwargs: dict[str, Any],
    const: Mapping[str, Any], *, batch_size: object, shuffle: object, epochs: object,
    first_epoch: object, seed: object, drop_last: object, every: object, callback: Any,
    progress: object,
) -> Any:  # fmt: skip
    """Run `JitFunction.over`; its docstring describes the arguments."""
    size = size_option(batch_size, "batch_size")
    epochs = integer(epochs, "epochs", 0)
    first_epoch = integer(first_epoch, "first_epoch", 0)
    seed = seed_of(seed)
    calls = None if every is None and callback is None else _Calls(every, callback)
    run = _Run(function, args, kwargs, const)
    shown = shown_option(progress)
    shuffled = flag(shuffle, "shuffle")
    parts = run.parts(size, drop_last=flag(drop_last, "drop_last"))
    if not shuffled:
        seed = None
    elif seed is None and epochs:
        seed = fresh_seed()
    in_epoch = 0
    for _, _, steps in parts:
        in_epoch += steps
    if calls is not None:
        calls.begin(in_epoch)
    numbers = range(first_epoch, first_epoch + epochs)
    with Progress(shown, epochs * in_epoch) as bar:
        pace = _Pace(bar, in_epoch, first_epoch)
        if (state.local.stepwise or state.local.nonfinite) and epochs * in_epoch:
            orders = (None if seed is None else order_of(run.rows, seed, n) for n in numbers)
            return _one_by_one(run, parts, orders, calls, pace)
        native_run = run.begin(epochs * in_epoch, size, parts)
        return _in_c(run, native_run, parts, numbers, seed, calls, pace)


def _in_c(
    run: _Run, native_run: MultiStepRun, parts: Sequence[_Part], epochs: range, seed: int | None,
    calls: _Calls | None, pace: _Pace,
) -> Any:  # fmt: skip
    """Run the steps of all epochs in C; return their results.

    If `seed` is None, the rows keep their order.
    """
    together = 1 if seed is None else _together(parts)
    for epoch in range(epochs.start, epochs.stop, together):
        here = range(epoch, min(epoch + together, epochs.stop))
        if seed is not None:
            native_run.follow(_orders(run.rows, seed, here, parts))
        for rows, first, steps in parts:
            at, left = first, steps * len(here)
            while left:
                count = left if calls is None else calls.until_next(native_run.done, left)
                count = pace.most(count)
                run.run_steps(rows, at, count)
                at, left = at + count * rows, left - count
                pace.show(native_run.done)
                if calls is not None and calls.due(native_run.done):
                    if calls.call(native_run.done, run.results(own_memory=False)):
                        return run.results(own_memory=True)
                    run.read_arguments()
    return run.results(own_memory=True)


class _Pace:
    """Splits the steps of a run into parts, so that its progress bar is drawn between them.

    Parameters
    ----------
    bar : Progress
        The bar. If it is not drawn, all steps are one part.
    in_epoch, first_epoch : int
        Number of steps of an epoch, and number of epochs that were run before.
    """

    def __init__(self, bar: Progress, in_epoch: int, first_epoch: int) -> None:
        self._bar = bar
        self._in_epoch, self._first_epoch = max(in_epoch, 1), first_epoch
        self._most = 1
        self._done = 0
        self._began = monotonic()

    def most(self, steps: int) -> int:
        """Return the number of steps to run before the bar is drawn, at most `steps`."""
        return min(steps, self._most) if self._bar.shown else steps

    def show(self, done: int) -> None:
        """Draw the bar after `done` steps in total, and choose the length of the next part."""
        if not self._bar.shown:
            return
        now = monotonic()
        if now - self._began >= INTERVAL:
            self._most = max(1, (done - self._done) // 2)
        elif done - self._done == self._most:
            self._most *= 2
        self._began, self._done = now, done
        self._bar.show(done, f"epoch {self._first_epoch + (done - 1) // self._in_epoch + 1}")


def _one_by_one(
    run: _Run, parts: Sequence[_Part], orders: Iterable[np.ndarray[Any, Any] | None],
    calls: _Calls | None, pace: _Pace,
) -> Any:  # fmt: skip
    """Call the function for each batch (for step-by-step and nonfinite modes); stack results."""
    results: list[Any] = []
    for order in orders:
        for rows, first, steps in parts:
            for at in range(first, first + rows * steps, rows):
                chosen = slice(at, at + rows) if order is None else order[at : at + rows]
                try:
                    results.append(run.call(chosen))
                except KernelrtError as error:
                    _add_step(error, len(results))
                    raise
                pace.show(len(results))
                if calls is not None and calls.due(len(results)):
                    if calls.call(len(results), _stacked(run, results)):
                        return _stacked(run, results)
                    run.read_arguments()
    return _stacked(run, results)


def _stacked(run: _Run, results: Sequence[Any]) -> Any:
    """Return the results of all steps, each tensor stacked along a new first axis."""
    taken = [flatten(result, "result") for result in results]
    template, first = taken[0]
    columns = list(zip(*[[leaf for _, leaf in leaves] for _, leaves in taken], strict=True))
    if any(other != template for other, _ in taken) or not all(map(_can_stack, columns)):
        raise run.stacking_error()
    leaves = [
        stack([t.detach() for t in column]).realize() if isinstance(leaf, Tensor) else leaf
        for (_, leaf), column in zip(first, columns, strict=True)
    ]
    return template.fill(leaves)


def _can_stack(column: Sequence[Any]) -> bool:
    """Return whether the results of all steps can be stacked."""
    first = column[0]
    if isinstance(first, Tensor):
        return all(
            isinstance(t, Tensor) and (t.shape, t.dtype) == (first.shape, first.dtype)
            for t in column
        )
    return all(type(value) is type(first) and value == first for value in column)


_Part: TypeAlias = tuple[int, int, int]
"""Batches of one size: rows per batch, index of the first row, number of batches."""


def _together(parts: Sequence[_Part]) -> int:
    """Return the number of epochs to generate orders for at once.

    The result is more than 1 only if all batches of an epoch have the same size.
    """
    if len(parts) != 1:
        return 1
    size, _, steps = parts[0]
    return max(1, MOST_PLACES // (size * steps))


def _orders(
    rows: int, seed: int, epochs: range, parts: Sequence[_Part]
) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the concatenated row orders of some epochs, without the rows that are dropped."""
    if len(epochs) == 1:
        return order_of(rows, seed, epochs[0])
    used = sum(size * steps for size, _, steps in parts)
    return np.concatenate([order_of(rows, seed, epoch)[:used] for epoch in epochs])


class _Calls:
    """The callback of `over`, and the step at which it is called next."""

    def __init__(self, every: object, callback: Any) -> None:
        if callback is None:
            raise DTypeError(
                "every: expected callback= as well, because `every` only says how often to call "
                "it; pass callback=, or leave out `every`"
            )
        if not callable(callback):
            raise DTypeError(f"callback: expected a function, not {type(callback).__name__}")
        self._callback = callback
        self._every = None if every is None else size_option(every, "every")
        self._next = 0

    def begin(self, steps: int) -> None:
        """Set the number of steps of an epoch, the default of `every`."""
        self._every = self._every or max(steps, 1)
        self._next = self._every

    def until_next(self, done: int, most: int) -> int:
        """Return the number of steps to run before the callback is called, at most `most`."""
        return min(most, self._next - done)

    def due(self, done: int) -> bool:
        """Return whether the callback is due after `done` steps."""
        return done == self._next

    def call(self, done: int, results: object) -> bool:
        """Call the callback; return whether to stop."""
        assert self._every
        self._next += self._every
        return bool(self._callback(done, results))


class _Run:
    """One call of `over`: its arguments, and the replays found for them."""

    __slots__ = (
        "_batches", "_direct", "_form", "_function", "_given", "_keywords", "_leaves", "_names",
        "_native_run", "_positional", "_replays", "_rows", "_template", "_whole", "rows",
    )  # fmt: skip

    def __init__(
        self, function: Epochs[Any], args: tuple[Any, ...], kwargs: dict[str, Any],
        const: Mapping[str, Any],
    ) -> None:  # fmt: skip
        self._function = function
        if type(const) is not dict and not isinstance(const, Mapping):
            raise DTypeError(
                f"const: expected a dict of arguments by name, not {type(const).__name__}; each "
                'step receives them unsliced, as in const={"table": table}'
            )
        if kwargs or const:
            twice = [name for name in const if name in kwargs]
            if twice:
                raise TypeError(
                    f"{self._what}: {twice[0]} is given as an argument and in const; leave out one "
                    "of the two"
                )
            args, kwargs = function._parameters.positional(
                function._name, args, {**kwargs, **const}
            )
        self._positional, self._keywords = len(args), tuple(kwargs)
        self._names: Sequence[str] = function._parameters.names(len(args))
        self._given: Sequence[Any] = args
        if kwargs:
            self._names = [*self._names, *kwargs]
            self._given = [*args, *kwargs.values()]
        self._template: Template | None = None
        for value in self._given:
            if isinstance(value, _CONTAINERS):
                self._template, named = flatten_arguments(
                    list(zip(self._names, self._given, strict=True))
                )
                self._names = [name for name, _ in named]
                self._given = [leaf for _, leaf in named]
                break
        self._direct = self._template is None and not kwargs
        self._whole = {name for name in self._names if _belongs(name, const)} if const else ()
        self._native_run: MultiStepRun | None = None
        self._batches: dict[int, tuple[Any, ...]] = {}
        self._replays: dict[int, Replay] = {}
        self._form: Replay | None = None
        self.rows = -1
        self.read_arguments()

    def read_arguments(self) -> None:
        """Read the arguments again: their memory may have changed."""
        leaves: list[Any] = []
        with_rows: list[Any] = []
        rows, first = self.rows, "before"
        for name, value in zip(self._names, self._given, strict=True):
            leaf = normalize(name, value)
            leaves.append(leaf)
            if not _has_rows(leaf) or name in self._whole:
                with_rows.append(None)
                continue
            with_rows.append(leaf)
            if rows < 0:
                rows, first = leaf.shape[0], f"in {name}"
            elif leaf.shape[0] != rows:
                raise ShapeError(
                    f"{name}: expected {rows} rows (size of the first axis), as {first}, not shape "
                    f"{format_shape(leaf.shape)}; to pass an argument unsliced to each step, use "
                    f"const={{{name!r}: ...}}"
                )
        if rows < 0:
            raise ShapeError(
                f"{self._what}: none of the arguments has rows; expected at least one array with "
                "samples along its first axis"
            )
        self._leaves, self._rows, self.rows = tuple(leaves), with_rows, rows
        self._batches.clear()
        if self._native_run is not None:
            self._native_run.read(with_rows, rows)

    @property
    def _what(self) -> str:
        return f"{self._function._name}.over()"

    def parts(self, size: int, *, drop_last: bool) -> Sequence[_Part]:
        """Return the batches of an epoch."""
        count, rest = divmod(self.rows, size)
        parts = [(size, 0, count)] if count else []
        if rest and not drop_last:
            parts.append((rest, count * size, 1))
        return parts

    def begin(self, steps: int, size: int, parts: Sequence[_Part]) -> MultiStepRun:
        """Find plans for all batch sizes, and allocate their results, before any step runs."""
        native_run = MultiStepRun(steps)
        native_run.read(self._rows, self.rows)
        self._native_run = native_run
        for rows, _, _ in parts or ((size, 0, 0),):
            self._find(rows, known=True)
        return native_run

    def results(self, *, own_memory: bool) -> Any:
        """Return the results of the steps that were run."""
        assert self._native_run is not None
        assert self._form is not None
        return hand_out(self._form, self._native_run.so_far(self._form, own_memory))

    def run_steps(self, rows: int, first: int, count: int) -> None:
        """Run `count` steps of `rows` rows each, starting at row `first`."""
        native_run = self._native_run
        assert native_run is not None
        attempts = 0
        while count:
            variant = None
            replay = self._replays.get(rows)
            if replay is None:
                variant, replay = self._find(rows)
            try:
                ran = native_run.run(replay, self._leaves, first, rows, count)
            except KernelrtError as error:
                _add_step(error, native_run.done)
                raise
            count -= ran
            first += ran * rows
            if not count:
                return
            # Something changed: a tensor moved to other memory, or a plan no longer fits.
            attempts = 0 if ran else attempts + 1
            if attempts > MOST_ATTEMPTS:
                raise JitError(
                    f"{self._what}: in each of {MOST_ATTEMPTS} attempts, the state that the "
                    "function reads was changed or moved in memory before the plan could run, for "
                    "example because another thread assigned to it; do not change that state "
                    "during a call"
                )
            if not ran and variant is not None and variant.fits():
                self._function._drop(variant)
            self._replays.pop(rows, None)
            self.read_arguments()

    def _batch(self, rows: int) -> tuple[Any, ...]:
        """Return the leaves, with sliced arguments replaced by arrays of one batch."""
        found = self._batches.get(rows)
        if found is None:
            found = self._batches[rows] = tuple(
                leaf if all_rows is None else _batch_of(all_rows, rows)
                for leaf, all_rows in zip(self._leaves, self._rows, strict=True)
            )
        return found

    def _find(self, rows: int, *, known: bool = False) -> tuple[Plan | None, Replay]:
        """Return the plan and replay for batches of `rows` rows.

        If `known` is true, try the existing replays first. If one of them fits, the plan is None.
        """
        variant = replay = None
        if known and self._direct:
            assert self._native_run is not None
            replay = self._native_run.find(self._function._replays, self._leaves, rows)
        if replay is None:
            leaves = self._batch(rows)
            values = leaves if self._template is None else self._template.fill(leaves)
            by_name = dict(zip(self._keywords, values[self._positional :], strict=True))
            variant, _, replay = self._function._variant_for(values[: self._positional], by_name)
        self._check(replay, rows)
        if not known or variant is None or not variant.once:
            self._replays[rows] = replay
        return variant, replay

    def _check(self, replay: Replay, rows: int) -> None:
        """Raise ShapeError if the results of a plan cannot be stacked with those of the first."""
        assert self._native_run is not None
        if self._form is None:
            self._form = replay
            self._native_run.begin(replay)
        if replay is self._form:
            return
        marks = [range(i) for i in range(len(self._native_run.results or ()))]  # no containers
        same = self._native_run.fits(replay)
        if same:
            first, other = (
                flatten(hand_out(r, tuple(marks)), "result") for r in (self._form, replay)
            )
            same = first[0] == other[0] and all(
                type(a) is type(b) and a == b
                for (_, a), (_, b) in zip(first[1], other[1], strict=True)
            )
        if not same:
            raise self.stacking_error(f" with {rows} rows")

    def stacking_error(self, which: str = "") -> ShapeError:
        """Return the error for results that cannot be stacked."""
        return ShapeError(
            f"{self._what}: the results of a step{which} cannot be stacked, because they differ "
            "from the results of the first step in shape, dtype or Python value; pass "
            "drop_last=True, or return results that do not depend on the number of rows"
        )

    def call(self, chosen: slice | np.ndarray[Any, Any]) -> Any:
        """Call the function with these rows."""
        leaves = tuple(
            leaf if all_rows is None else all_rows[chosen]
            for leaf, all_rows in zip(self._leaves, self._rows, strict=True)
        )
        values = leaves if self._template is None else self._template.fill(leaves)
        by_name = dict(zip(self._keywords, values[self._positional :], strict=True))
        return self._function(*values[: self._positional], **by_name)


def _belongs(leaf: str, arguments: Mapping[str, Any]) -> bool:
    """Return whether a leaf of this name belongs to one of the arguments."""
    return any(
        leaf.startswith(name) and leaf[len(name) : len(name) + 1] in ("", "[", ".")
        for name in arguments
    )


def _has_rows(leaf: object) -> bool:
    if isinstance(leaf, np.ndarray):
        return leaf.ndim > 0
    return isinstance(leaf, Tensor) and len(leaf.dims) > 0


def _batch_of(leaf: Any, rows: int) -> Any:
    """Return an uninitialized array with `rows` rows and the autograd history of `leaf`."""
    if isinstance(leaf, np.ndarray) and rows <= leaf.shape[0]:
        return leaf[:rows]
    shape = (rows, *leaf.shape[1:])
    if isinstance(leaf, np.ndarray):
        return np.broadcast_to(np.zeros((), leaf.dtype), shape)
    if leaf._lineage and rows <= leaf.shape[0]:
        return leaf[:rows].realize()
    size = int(np.prod(shape, dtype=object))
    return Tensor._over(Buffer(size, leaf.dtype), shape)


def _add_step(error: KernelrtError, step: int) -> None:
    """Add the number of the failed step to an error."""
    if error.args:
        error.args = (f"step {step}: {error.args[0]}", *error.args[1:])
    known = CustomFunctionError | DomainError | IndexBoundsError | LinAlgError | NonFiniteError
    if isinstance(error, known):
        error.step = step
