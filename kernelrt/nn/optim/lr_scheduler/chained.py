"""Schedules composed of others, and ReduceLROnPlateau."""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from kernelrt.errors import DomainError, DTypeError, ShapeError, StateError
from kernelrt.nn.optim.hyperparameters import non_negative, one_of, whole
from kernelrt.nn.optim.lr_scheduler.lr_base import LRScheduler, check_optimizer, outside, per_group

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kernelrt.nn.optim.optimizer import Optimizer

__all__ = ["ChainedScheduler", "ReduceLROnPlateau", "SequentialLR"]


class _Composed(LRScheduler):
    """Base of schedules composed of others."""

    _unsaved: ClassVar[tuple[str, ...]] = ("optimizer", "_schedulers")
    _schedulers: list[LRScheduler]

    def state_dict(self) -> dict[str, Any]:
        """Return the state, including that of each schedule inside."""
        return {**super().state_dict(), "_schedulers": [s.state_dict() for s in self._schedulers]}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore the state that :meth:`state_dict` returned."""
        found = self._checked(state_dict)
        parts = found.pop("_schedulers")
        if len(parts) != len(self._schedulers):
            raise StateError(
                f"state_dict: expected {len(self._schedulers)} schedules, not {len(parts)}"
            )
        for schedule, held in zip(self._schedulers, parts, strict=True):
            schedule.load_state_dict(held)
        self.__dict__.update(found)


class SequentialLR(_Composed):
    """Run several schedules one after another, each for some epochs.

    Parameters
    ----------
    optimizer : Optimizer
        Optimizer whose learning rates the schedule sets.
    schedulers : list of LRScheduler
        Schedules of the same optimizer.
    milestones : list of int
        Epochs at which the second and the following schedules begin.
    last_epoch : int
        Last epoch before the schedule resumes; -1 starts a new schedule.

    Raises
    ------
    DTypeError
        An item of `schedulers` is not a schedule, or needs a metric.
    DomainError
        `milestones` is not in ascending order.
    ShapeError
        `schedulers` is empty or belongs to another optimizer, or `milestones` has another number of
        epochs than expected.

    Examples
    --------
    >>> opt = krt.optim.SGD([krt.zeros(1, requires_grad=True)], lr=1.0)
    >>> warmup = krt.optim.lr_scheduler.ConstantLR(opt, 0.5, total_iters=9)
    >>> decay = krt.optim.lr_scheduler.ExponentialLR(opt, 0.5)
    >>> schedule = krt.optim.lr_scheduler.SequentialLR(opt, [warmup, decay], milestones=[2])
    >>> rates = []
    >>> for _ in range(5):
    ...     rates.append(opt.lr)
    ...     opt.step()
    ...     schedule.step()
    >>> rates
    [0.5, 0.5, 1.0, 0.5, 0.25]
    """

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int],
        last_epoch: int = -1,
    ) -> None:  # fmt: skip
        self.optimizer = check_optimizer(optimizer)
        self._schedulers = _check_parts(schedulers, optimizer)
        if len(milestones) != len(schedulers) - 1:
            raise ShapeError(
                f"milestones: expected {len(schedulers) - 1} epochs for {len(schedulers)} "
                f"schedulers, not {len(milestones)}"
            )
        self._milestones = [whole(0)(f"milestones[{i}]", m) for i, m in enumerate(milestones)]
        if self._milestones != sorted(self._milestones):
            raise DomainError(f"milestones: expected epochs in ascending order, not {milestones}")
        self.last_epoch = last_epoch + 1
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"]
        for schedule in self._schedulers:
            _take_back(schedule)
        first = self._schedulers[bisect_right(self._milestones, 0)]
        first._begin()  # noqa: SLF001 - a part of this schedule
        self._last_lr = first.get_last_lr()

    def step(self, epoch: int | None = None) -> None:
        """Set the learning rates of the next epoch. Call this method after the optimizer's step.

        Parameters
        ----------
        epoch : None
            Must be None.

        Raises
        ------
        JitError
            The call is inside a traced function.
        ShapeError
            `epoch` is not None: a composed schedule cannot jump.
        """
        _no_epoch(epoch)
        outside(self)
        self.last_epoch += 1
        index = bisect_right(self._milestones, self.last_epoch)
        schedule = self._schedulers[index]
        if index > 0 and self._milestones[index - 1] == self.last_epoch:
            schedule._update(0)  # noqa: SLF001 - a part of this schedule
        else:
            schedule.step()
        self._last_lr = schedule.get_last_lr()


class ChainedScheduler(_Composed):
    """Apply several schedules in every epoch, one after another.

    Parameters
    ----------
    schedulers : list of LRScheduler
        Schedules of the same optimizer.
    optimizer : Optimizer, optional
        Optimizer of the schedules; by default that of the first.

    Raises
    ------
    DTypeError
        An item of `schedulers` is not a schedule, or needs a metric.
    ShapeError
        `schedulers` is empty, or a schedule belongs to another optimizer.

    Examples
    --------
    >>> opt = krt.optim.SGD([krt.zeros(1, requires_grad=True)], lr=1.0)
    >>> warmup = krt.optim.lr_scheduler.ConstantLR(opt, 0.5, total_iters=2)
    >>> decay = krt.optim.lr_scheduler.ExponentialLR(opt, 0.5)
    >>> schedule = krt.optim.lr_scheduler.ChainedScheduler([warmup, decay])
    >>> rates = []
    >>> for _ in range(4):
    ...     rates.append(opt.lr)
    ...     opt.step()
    ...     schedule.step()
    >>> rates
    [0.5, 0.25, 0.25, 0.125]
    """

    def __init__(
        self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None
    ) -> None:
        if not schedulers:
            raise ShapeError("schedulers: expected at least one schedule, got none")
        if optimizer is None:
            optimizer = getattr(schedulers[0], "optimizer", None)
        self.optimizer = check_optimizer(optimizer)
        self._schedulers = _check_parts(schedulers, self.optimizer)
        self._last_lr = self._rates()

    def step(self, epoch: int | None = None) -> None:
        """Set the learning rates of the next epoch. Call this method after the optimizer's step.

        Parameters
        ----------
        epoch : None
            Must be None.

        Raises
        ------
        JitError
            The call is inside a traced function.
        ShapeError
            `epoch` is not None: a composed schedule cannot jump.
        """
        _no_epoch(epoch)
        for schedule in self._schedulers:
            schedule.step()
        self._last_lr = self._rates()


def _no_epoch(epoch: int | None) -> None:
    if epoch is not None:
        raise ShapeError(
            f"epoch: expected None, as a composed schedule cannot jump to {epoch}; call step() "
            "once for each epoch"
        )


def _check_parts(schedulers: Sequence[LRScheduler], optimizer: Optimizer) -> list[LRScheduler]:
    if not schedulers:
        raise ShapeError("schedulers: expected at least one schedule, got none")
    for i, schedule in enumerate(schedulers):
        if isinstance(schedule, ReduceLROnPlateau) or not isinstance(schedule, LRScheduler):
            raise DTypeError(
                f"schedulers[{i}]: expected a schedule that needs no metric, not "
                f"{type(schedule).__name__}"
            )
        if schedule.optimizer is not optimizer:
            raise ShapeError(
                f"schedulers[{i}]: expected all schedules to be of the same optimizer, but "
                "this one is of another"
            )
    return list(schedulers)


def _take_back(schedule: LRScheduler) -> None:
    """Undo the first step of a schedule."""
    if isinstance(schedule, _Composed):
        for part in schedule._schedulers:  # noqa: SLF001 - a part of this schedule
            _take_back(part)
    else:
        schedule.last_epoch -= 1


class ReduceLROnPlateau(LRScheduler):
    """Reduce the learning rate when a metric has not improved for more than `patience` epochs.

    Parameters
    ----------
    optimizer : Optimizer
        Optimizer whose learning rates the schedule sets.
    mode : "min" or "max"
        Whether the metric should decrease or increase.
    factor : float
        Factor of the learning rate, below 1.
    patience : int
        Number of epochs without improvement that are tolerated.
    threshold : float
        Minimum change that counts as an improvement.
    threshold_mode : "rel" or "abs"
        Whether `threshold` is relative to the best value or an absolute difference.
    cooldown : int
        Number of epochs after a reduction that do not count as epochs without improvement.
    min_lr : float or list of float
        Minimum learning rate, one for all groups or one for each group.
    eps : float
        A reduction that changes the learning rate by no more than this is not applied.

    Notes
    -----
    The learning rate may be a vector with one number for each member of a population. Then the
    metric may be a vector, too, and each member's learning rate follows its own metric.

    Examples
    --------
    >>> opt = krt.optim.SGD([krt.zeros(1, requires_grad=True)], lr=1.0)
    >>> schedule = krt.optim.lr_scheduler.ReduceLROnPlateau(opt, factor=0.5, patience=1)
    >>> for loss in (3.0, 2.0, 2.0, 2.0):
    ...     opt.step()
    ...     schedule.step(loss)
    ...     print(opt.lr)
    1.0
    1.0
    1.0
    0.5
    """

    def __init__(
        self, optimizer: Optimizer, mode: str = "min", factor: float = 0.1, patience: int = 10,
        threshold: float = 1e-4, threshold_mode: str = "rel", cooldown: int = 0,
        min_lr: float | list[float] = 0, eps: float = 1e-8,
    ) -> None:  # fmt: skip
        self.optimizer = check_optimizer(optimizer)
        self.factor = non_negative("factor", factor)
        if self.factor >= 1:
            raise DomainError(f"factor: expected a number below 1, not {factor}")
        one_of(("min", "max"))("mode", mode)
        one_of(("rel", "abs"))("threshold_mode", threshold_mode)
        self.mode, self.threshold_mode = mode, threshold_mode
        self.threshold = non_negative("threshold", threshold)
        self.patience = whole(0)("patience", patience)
        self.cooldown = whole(0)("cooldown", cooldown)
        self.min_lrs = per_group("min_lr", optimizer, min_lr)
        self.eps = non_negative("eps", eps)
        self.last_epoch = 0
        self.best: Any = math.inf if mode == "min" else -math.inf
        self.cooldown_counter: Any = 0
        self.num_bad_epochs: Any = 0
        self._last_lr = self._rates()

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        """Record the metric of an epoch, and reduce the learning rate if it stopped improving.

        Parameters
        ----------
        metrics : float, Tensor or array
            One number, also as a tensor or array; or one number for each member.
        epoch : int, optional
            Number of the epoch; by default the next.

        Raises
        ------
        ShapeError
            There are several numbers, but the learning rate has another shape.
        """
        outside(self)
        current = self._seen(metrics)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        better = self._is_better(current)
        self.best = _plain(np.where(better, current, self.best))
        bad = np.where(better, 0, np.add(self.num_bad_epochs, 1))
        waits = np.greater(self.cooldown_counter, 0)
        left = np.where(waits, np.subtract(self.cooldown_counter, 1), self.cooldown_counter)
        bad = np.where(waits, 0, bad)
        due = bad > self.patience
        if due.any():
            self._reduce(due)
        self.cooldown_counter = _plain(np.where(due, self.cooldown, left))
        self.num_bad_epochs = _plain(np.where(due, 0, bad))
        self._last_lr = self._rates()

    def _seen(self, metrics: Any) -> Any:
        """Return the metric as a number, or as an array of one number for each member."""
        try:
            given = metrics.tolist() if hasattr(metrics, "tolist") else metrics
            values = np.asarray(given, np.float64)
        except (TypeError, ValueError):
            raise DTypeError(
                f"metrics: expected a number, or one for each member, not {type(metrics).__name__}"
            ) from None
        if values.size == 1:
            return values.item()
        for k, group in enumerate(self._groups):
            rates = np.shape(group["lr"])
            if rates != values.shape:
                raise ShapeError(
                    f"metrics: expected a number, or an array of shape {rates} as the learning "
                    f"rate of group {k}, not of shape {values.shape}; for one number per member, "
                    "create the optimizer with lr=np.full(members, rate)"
                )
        return values

    def _reduce(self, due: Any) -> None:
        if len(self.min_lrs) != len(self._groups):
            self.min_lrs += self.min_lrs[-1:] * (len(self._groups) - len(self.min_lrs))
        for group, least in zip(self._groups, self.min_lrs, strict=True):
            before = group["lr"]
            rate = np.maximum(np.multiply(before, self.factor), least)
            changed = due & (before - rate > self.eps)
            if changed.any():
                group["lr"] = _plain(np.where(changed, rate, before))

    @property
    def in_cooldown(self) -> bool:
        """Whether epochs are ignored at present, after a reduction."""
        return bool(np.any(np.greater(self.cooldown_counter, 0)))

    def _is_better(self, current: Any) -> Any:
        least = self.mode == "min"
        if self.threshold_mode == "abs":
            bar = self.best - self.threshold if least else self.best + self.threshold
        else:
            bar = self.best * (1.0 - self.threshold if least else self.threshold + 1.0)
        return current < bar if least else current > bar


def _plain(value: Any) -> Any:
    """Return a 0-d array as a Python number, and other arrays unchanged."""
    return value if value.ndim else value.item()
