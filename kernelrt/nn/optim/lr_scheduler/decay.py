"""Schedules that multiply the learning rate by a factor that depends on the epoch."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar

from kernelrt.errors import DomainError, DTypeError, ShapeError
from kernelrt.nn.optim.hyperparameters import any_number, non_negative, whole
from kernelrt.nn.optim.lr_scheduler.lr_base import LRScheduler, check_optimizer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kernelrt.nn.optim.optimizer import Optimizer

__all__ = ["ConstantLR", "CosineAnnealingLR", "ExponentialLR", "LambdaLR", "LinearLR",
           "MultiStepLR", "MultiplicativeLR", "PolynomialLR", "StepLR"]  # fmt: skip


class _Factor(LRScheduler):
    """Base of schedules that multiply the current learning rates by a factor in each epoch."""

    def _factor(self) -> float:
        """Return the factor of this epoch."""
        raise NotImplementedError

    def _total(self) -> float:
        """Return the product of the factors up to this epoch."""
        raise NotImplementedError

    def get_lr(self) -> list[float]:
        """Return the learning rates of this epoch, computed from those of the previous epoch."""
        factor = self._factor()
        return [rate * factor for rate in self._rates()]

    def _closed(self) -> list[float]:
        total = self._total()
        return [rate * total for rate in self.base_lrs]


class StepLR(_Factor):
    """Multiply the learning rate by `gamma` after every `step_size` epochs.

    Parameters
    ----------
    optimizer : Optimizer
        Optimizer whose learning rates the schedule sets.
    step_size : int
        Number of epochs between two changes.
    gamma : float
        Factor of each change.
    last_epoch : int
        Last epoch before the schedule resumes; -1 starts a new schedule.

    Examples
    --------
    >>> opt = krt.optim.SGD([krt.zeros(1, requires_grad=True)], lr=1.0)
    >>> schedule = krt.optim.lr_scheduler.StepLR(opt, 2, gamma=0.5)
    >>> rates = []
    >>> for _ in range(5):
    ...     rates.append(opt.lr)
    ...     opt.step()
    ...     schedule.step()
    >>> rates
    [1.0, 1.0, 0.5, 0.5, 0.25]
    """

    def __init__(
        self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.step_size = whole(1)("step_size", step_size)
        self.gamma = any_number("gamma", gamma)
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float:
        due = self.last_epoch != 0 and self.last_epoch % self.step_size == 0
        return self.gamma if due else 1.0

    def _total(self) -> float:
        return self.gamma ** (self.last_epoch // self.step_size)


class MultiStepLR(_Factor):
    """Multiply the learning rate by `gamma` at each of `milestones`.

    Parameters
    ----------
    optimizer : Optimizer
        Optimizer whose learning rates the schedule sets.
    milestones : iterable of int
        Epochs at which the learning rate changes. An epoch that is given twice counts twice.
    gamma : float
        Factor of each change.
    last_epoch : int
        Last epoch before the schedule resumes; -1 starts a new schedule.

    Examples
    --------
    >>> opt = krt.optim.SGD([krt.zeros(1, requires_grad=True)], lr=1.0)
    >>> schedule = krt.optim.lr_scheduler.MultiStepLR(opt, [1, 3], gamma=0.5)
    >>> rates = []
    >>> for _ in range(5):
    ...     rates.append(opt.lr)
    ...     opt.step()
    ...     schedule.step()
    >>> rates
    [1.0, 0.5, 0.5, 0.25, 0.25]
    """

    def __init__(
        self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1,
        last_epoch: int = -1,
    ) -> None:  # fmt: skip
        self.milestones = Counter(
            whole(0)(f"milestones[{i}]", m) for i, m in enumerate(milestones)
        )
        self.gamma = any_number("gamma", gamma)
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float:
        return float(self.gamma ** self.milestones[self.last_epoch])

    def _total(self) -> float:
        passed = bisect_right(sorted(self.milestones.elements()), self.last_epoch)
        return float(self.gamma**passed)


class ConstantLR(_Factor):
    """Multiply the learning rate by `factor` until the epoch `total_iters`.

    Parameters
    ----------
    optimizer : Optimizer
        Optimizer whose learning rates the schedule sets.
    factor : float
        Factor from 0 to 1.
    total_iters : int
        First epoch without the factor.
    last_epoch : int
        Last epoch before the schedule resumes; -1 starts a new schedule.

    Examples
    --------
    >>> opt = krt.optim.SGD([krt.zeros(1, requires_grad=True)], lr=1.0)
    >>> schedule = krt.optim.lr_scheduler.ConstantLR(opt, 0.5, total_iters=2)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates.append(opt.lr)
    ...     opt.step()
    ...     schedule.step()
    >>> rates
    [0.5, 0.5, 1.0, 1.0]
    """

    def __init__(
        self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:  # fmt: skip
        self.factor = non_negative("factor", factor)
        if self.factor > 1:
            raise DomainError(f"factor: expected a number from 0 to 1, not {factor}")
        self.total_iters = whole(0)("total_iters", total_iters)
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float:
        if self.last_epoch == 0:
            return self.factor
        return 1.0 / self.factor if self.last_epoch == self.total_iters else 1.0

    def _total(self) -> float:
        return self.factor + (self.last_epoch >= self.total_iters) * (1 - self.factor)


class LinearLR(_Factor):
    """Multiply the learning rate by a factor that changes linearly over `total_iters` epochs.

    Parameters
    ----------
    optimizer : Optimizer
        Optimizer whose learning rates the schedule sets.
    start_factor : float
        Factor of the first epoch, above 0 and up to 1.
    end_factor : float
        Final factor, from 0 to 1.
    total_iters : int
        Epoch from which on the factor is `end_factor`.
    last_epoch : int
        Last epoch before the schedule resumes; -1 starts a new schedule.

    Examples
    --------
    >>> opt = krt.optim.SGD([krt.zeros(1, requires_grad=True)], lr=1.0)
    >>> schedule = krt.optim.lr_scheduler.LinearLR(opt, start_factor=0.5, total_iters=2)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates.append(opt.lr)
    ...     opt.step()
    ...     schedule.step()
    >>> rates
    [0.5, 0.75, 1.0, 1.0]
    """

    def __init__(
        self, optimizer: Optimizer, start_factor: float = 1.0 / 3, end_factor: float = 1.0,
        total_iters: int = 5, last_epoch: int = -1,
    ) -> None:  # fmt: skip
        self.start_factor = any_number("start_factor", start_factor)
        if not 0 < self.start_factor <= 1:
            raise DomainError(
                f"start_factor: expected a number above 0 and at most 1, not {start_factor}"
            )
        self.end_factor = any_number("end_factor", end_factor)
        if not 0 <= self.end_factor <= 1:
            raise DomainError(f"end_factor: expected a number from 0 to 1, not {end_factor}")
        self.total_iters = whole(0)("total_iters", total_iters)
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float:
        if self.last_epoch == 0:
            return self.start_factor
        if self._is_initial or self.last_epoch > self.total_iters:
            return 1.0
        rise = self.end_factor - self.start_factor
        before = self.total_iters * self.start_factor + (self.last_epoch - 1) * rise
        return 1.0 + rise / before

    def _total(self) -> float:
        rise = self.end_factor - self.start_factor
        passed = min(self.total_iters, self.last_epoch)
        return self.start_factor + rise * passed / max(self.total_iters, 1)


class ExponentialLR(_Factor):
    """Multiply the learning rate by `gamma` in each epoch.

    Parameters
    ----------
    optimizer : Optimizer
        Optimizer whose learning rates the schedule sets.
    gamma : float
        Factor of each epoch.
    last_epoch : int
        Last epoch before the schedule resumes; -1 starts a new schedule.

    Examples
    --------
    >>> opt = krt.optim.SGD([krt.zeros(1, requires_grad=True)], lr=1.0)
    >>> schedule = krt.optim.lr_scheduler.ExponentialLR(opt, 0.5)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates.append(opt.lr)
    ...     opt.step()
    ...     schedule.step()
    >>> rates
    [1.0, 0.5, 0.25, 0.125]
    """

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = any_number("gamma", gamma)
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float:
        return 1.0 if self._is_initial else self.gamma

    def _total(self) -> float:
        return float(self.gamma**self.last_epoch)


class PolynomialLR(_Factor):
    """Multiply the learning rate by ``(1 - epoch / total_iters) ** power``, up to `total_iters`.

    Parameters
    ----------
    optimizer : Optimizer
        Optimizer whose learning rates the schedule sets.
    total_iters : int
        Epoch in which the learning rate reaches 0.
    power : float
        Exponent of the polynomial.
    last_epoch : int
        Last epoch before the schedule resumes; -1 starts a new schedule.

    Examples
    --------
    >>> opt = krt.optim.SGD([krt.zeros(1, requires_grad=True)], lr=1.0)
    >>> schedule = krt.optim.lr_scheduler.PolynomialLR(opt, total_iters=4)
    >>> rates = []
    >>> for _ in range(5):
    ...     rates.append(opt.lr)
    ...     opt.step()
    ...     schedule.step()
    >>> rates
    [1.0, 0.75, 0.5, 0.25, 0.0]
    """

    def __init__(
        self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1
    ) -> None:
        self.total_iters = whole(1)("total_iters", total_iters)
        self.power = any_number("power", power)
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float:
        if self._is_initial or self.last_epoch > self.total_iters:
            return 1.0
        now, before = (1.0 - e / self.total_iters for e in (self.last_epoch, self.last_epoch - 1))
        return float((now / before) ** self.power)

    def _total(self) -> float:
        passed = min(self.total_iters, self.last_epoch)
        return float((1.0 - passed / self.total_iters) ** self.power)


class CosineAnnealingLR(LRScheduler):
    """Anneal along a half cosine to `eta_min` in `T_max` epochs, and back.

    The learning rate in epoch ``t`` is::

        eta_min + (initial_lr - eta_min) * (1 + cos(pi * t / T_max)) / 2

    The formula is Loshchilov and Hutter's (SGDR: Stochastic Gradient Descent with Warm Restarts,
    arXiv:1608.03983, 2016), without restarts.

    Parameters
    ----------
    optimizer : Optimizer
        Optimizer whose learning rates the schedule sets.
    T_max : int
        Number of epochs from the maximum to the minimum.
    eta_min : float
        Minimum learning rate.
    last_epoch : int
        Last epoch before the schedule resumes; -1 starts a new schedule.

    Examples
    --------
    >>> opt = krt.optim.SGD([krt.zeros(1, requires_grad=True)], lr=1.0)
    >>> schedule = krt.optim.lr_scheduler.CosineAnnealingLR(opt, 2)
    >>> rates = []
    >>> for _ in range(5):
    ...     rates.append(round(opt.lr, 6))
    ...     opt.step()
    ...     schedule.step()
    >>> rates
    [1.0, 0.5, 0.0, 0.5, 1.0]
    """

    def __init__(
        self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1  # noqa: N803 - torch's name
    ) -> None:  # fmt: skip
        self.T_max = whole(1)("T_max", T_max)
        self.eta_min = any_number("eta_min", eta_min)
        super().__init__(optimizer, last_epoch)

    def _height(self, epoch: int) -> float:
        return 1 + math.cos(math.pi * epoch / self.T_max)

    def get_lr(self) -> list[float]:
        """Return the learning rates of this epoch, computed from those of the previous epoch."""
        if self._is_initial:
            return self._rates()
        if self._step_count == 1 and self.last_epoch > 0:
            return self._closed()
        low = self.eta_min
        if (self.last_epoch - 1 - self.T_max) % (2 * self.T_max) == 0:
            rise = (1 - math.cos(math.pi / self.T_max)) / 2
            return [
                rate + (base - low) * rise
                for rate, base in zip(self._rates(), self.base_lrs, strict=True)
            ]
        factor = self._height(self.last_epoch) / self._height(self.last_epoch - 1)
        return [factor * (rate - low) + low for rate in self._rates()]

    def _closed(self) -> list[float]:
        height = self._height(self.last_epoch) / 2
        return [self.eta_min + (base - self.eta_min) * height for base in self.base_lrs]


Rule = Callable[[int], float]


class _Ruled(LRScheduler):
    """Base of schedules given by functions of the epoch, one for each group."""

    _unsaved: ClassVar[tuple[str, ...]] = ("optimizer", "lr_lambdas")

    def __init__(
        self, optimizer: Optimizer, lr_lambda: Rule | list[Rule], last_epoch: int = -1
    ) -> None:
        count = len(check_optimizer(optimizer).param_groups)
        rules = list(lr_lambda) if isinstance(lr_lambda, list | tuple) else [lr_lambda] * count
        if len(rules) != count:
            raise ShapeError(
                f"lr_lambda: expected {count} functions, one for each group, not {len(rules)}"
            )
        for rule in rules:
            if not callable(rule):
                raise DTypeError(f"lr_lambda: expected a function, not {type(rule).__name__}")
        self.lr_lambdas = rules
        super().__init__(optimizer, last_epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the state, including attributes of callable objects, but no plain functions."""
        held = [
            None if isinstance(r, FunctionType) else dict(getattr(r, "__dict__", {}))
            for r in self.lr_lambdas
        ]
        return {**super().state_dict(), "lr_lambdas": held}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore the state that :meth:`state_dict` returned."""
        found = self._checked(state_dict)
        for rule, held in zip(self.lr_lambdas, found.pop("lr_lambdas"), strict=True):
            if held:
                rule.__dict__.update(held)
        self.__dict__.update(found)


class LambdaLR(_Ruled):
    """Multiply the initial learning rate by a function of the epoch.

    Parameters
    ----------
    optimizer : Optimizer
        Optimizer whose learning rates the schedule sets.
    lr_lambda : callable or list of callable
        Function that takes the epoch and returns the factor; one for all groups or one for each
        group.
    last_epoch : int
        Last epoch before the schedule resumes; -1 starts a new schedule.

    Examples
    --------
    >>> opt = krt.optim.SGD([krt.zeros(1, requires_grad=True)], lr=1.0)
    >>> schedule = krt.optim.lr_scheduler.LambdaLR(opt, lambda epoch: 1 / 2**epoch)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates.append(opt.lr)
    ...     opt.step()
    ...     schedule.step()
    >>> rates
    [1.0, 0.5, 0.25, 0.125]
    """

    def get_lr(self) -> list[float]:
        """Return the learning rates of this epoch."""
        pairs = zip(self.base_lrs, self.lr_lambdas, strict=True)
        return [base * rule(self.last_epoch) for base, rule in pairs]


class MultiplicativeLR(_Ruled):
    """Multiply the current learning rate by a function of the epoch.

    Parameters
    ----------
    optimizer : Optimizer
        Optimizer whose learning rates the schedule sets.
    lr_lambda : callable or list of callable
        Function that takes the epoch, counted from 1, and returns the factor; one for all groups or
        one for each group.
    last_epoch : int
        Last epoch before the schedule resumes; -1 starts a new schedule.

    Examples
    --------
    >>> opt = krt.optim.SGD([krt.zeros(1, requires_grad=True)], lr=1.0)
    >>> halve_later = lambda epoch: 0.5 if epoch > 1 else 1.0
    >>> schedule = krt.optim.lr_scheduler.MultiplicativeLR(opt, halve_later)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates.append(opt.lr)
    ...     opt.step()
    ...     schedule.step()
    >>> rates
    [1.0, 1.0, 0.5, 0.25]
    """

    def get_lr(self) -> list[float]:
        """Return the learning rates of this epoch, computed from those of the previous epoch."""
        if self._is_initial:
            return self._rates()
        pairs = zip(self._rates(), self.lr_lambdas, strict=True)
        return [rate * rule(self.last_epoch) for rate, rule in pairs]
