"""Cyclic schedules of the learning rate and the momentum."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

from kernelrt.errors import DomainError, DTypeError, ShapeError, StateError
from kernelrt.nn.optim.hyperparameters import any_number, flag, fraction, one_of, positive, whole
from kernelrt.nn.optim.lr_scheduler.lr_base import LRScheduler, check_optimizer, outside, per_group

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kernelrt.nn.optim.optimizer import Optimizer
    from kernelrt.nn.optim.param_groups import Group

__all__ = ["CosineAnnealingWarmRestarts", "CyclicLR", "OneCycleLR"]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Anneal along a half cosine to `eta_min`, then restart.

    The learning rate is as follows, where ``t`` is the number of epochs since the last restart, and
    ``T_i`` the number of epochs between this restart and the next::

        eta_min + (initial_lr - eta_min) * (1 + cos(pi * t / T_i)) / 2

    The method is Loshchilov and Hutter's (SGDR: Stochastic Gradient Descent with Warm Restarts,
    arXiv:1608.03983, 2016).

    Parameters
    ----------
    optimizer : Optimizer
        Optimizer whose learning rates the schedule sets.
    T_0 : int
        Number of epochs until the first restart.
    T_mult : int
        Factor by which the number of epochs grows after each restart.
    eta_min : float
        Minimum learning rate.
    last_epoch : int
        Last epoch before the schedule resumes; -1 starts a new schedule.

    Examples
    --------
    >>> opt = krt.optim.SGD([krt.zeros(1, requires_grad=True)], lr=1.0)
    >>> schedule = krt.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, 2, T_mult=2)
    >>> rates = []
    >>> for _ in range(7):
    ...     rates.append(round(opt.lr, 3))
    ...     opt.step()
    ...     schedule.step()
    >>> rates
    [1.0, 0.5, 1.0, 0.854, 0.5, 0.146, 1.0]
    """

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0,  # noqa: N803 - torch's names
        last_epoch: int = -1,
    ) -> None:  # fmt: skip
        self.T_0 = self.T_i = whole(1)("T_0", T_0)
        self.T_mult = whole(1)("T_mult", T_mult)
        self.eta_min = any_number("eta_min", eta_min)
        self.T_cur: float = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """Return the learning rates at the current position between two restarts."""
        height = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (base - self.eta_min) * height for base in self.base_lrs]

    def step(self, epoch: float | None = None) -> None:
        """Set the learning rates of the next epoch, or of `epoch`, which may be fractional.

        Parameters
        ----------
        epoch : float, optional
            Epoch to jump to, at least 0; for example ``epoch + batch / batches`` after each batch.

        Raises
        ------
        JitError
            The call is inside a traced function.
        DomainError
            `epoch` is negative.
        """
        outside(self)
        if epoch is None and self.last_epoch < 0:
            epoch = 0
        if epoch is None:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur %= self.T_i
                self.T_i *= self.T_mult
        elif epoch < 0:
            raise DomainError(f"epoch: expected at least 0, not {epoch}")
        else:
            self._go_to(epoch)
        self.last_epoch = math.floor(epoch)
        self._set(self.get_lr())

    def _go_to(self, epoch: float) -> None:
        if epoch < self.T_0:
            self.T_i, self.T_cur = self.T_0, epoch
        elif self.T_mult == 1:
            self.T_cur = epoch % self.T_0
        else:
            longer = self.T_mult - 1
            restarts = int(math.log(epoch / self.T_0 * longer + 1, self.T_mult))
            self.T_cur = epoch - self.T_0 * (self.T_mult**restarts - 1) / longer
            self.T_i = self.T_0 * self.T_mult**restarts


class _Cycle(LRScheduler):
    """Base of schedules that can cycle the momentum inversely to the learning rate."""

    cycle_momentum: bool
    use_beta1: bool

    def _cycled(self, optimizer: Optimizer, base: Any, most: Any, begins: bool) -> None:
        """Store the bounds of the momentum, and set its first value."""
        self.use_beta1 = "betas" in optimizer.defaults
        if not self.use_beta1 and "momentum" not in optimizer.defaults:
            raise ShapeError(
                f"cycle_momentum: expected an optimizer with a momentum or betas, not "
                f"{type(optimizer).__name__}; pass cycle_momentum=False"
            )
        self.max_momentums = per_group("max_momentum", optimizer, most)
        self.base_momentums = per_group("base_momentum", optimizer, base)
        if not begins:
            return
        for i, group in enumerate(optimizer.param_groups):
            group["max_momentum"] = self.max_momentums[i]
            group["base_momentum"] = self.base_momentums[i]
            self._set_momentum(group, self.max_momentums[i])

    def _set_momentum(self, group: Group, value: float) -> None:
        if self.use_beta1:
            group.schedule("betas", (value, *group["betas"][1:]))
        else:
            group.schedule("momentum", value)

    def _momentums(self) -> list[float]:
        return [g["betas"][0] if self.use_beta1 else g["momentum"] for g in self._groups]

    def state_dict(self) -> dict[str, Any]:
        """Return the state, with the momentum of each group, which the optimizer does not save."""
        held = super().state_dict()
        return {**held, "momentums": self._momentums()} if self.cycle_momentum else held

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore the state that :meth:`state_dict` returned, including the momentum."""
        found = self._checked(state_dict)
        momentums = found.pop("momentums", [])
        if self.cycle_momentum and len(momentums) != len(self._groups):
            raise StateError(
                f"state_dict: expected the momentum of {len(self._groups)} groups, not of "
                f"{len(momentums)}"
            )
        self.__dict__.update(found)
        for group, value in zip(self._groups, momentums, strict=False):
            self._set_momentum(group, value)


class CyclicLR(_Cycle):
    """Cycle the learning rate between two bounds.

    The method is Smith's (Cyclical Learning Rates for Training Neural Networks, arXiv:1506.01186,
    2015). Call ``step`` after each batch.

    Parameters
    ----------
    optimizer : Optimizer
        Optimizer whose learning rates the schedule sets.
    base_lr, max_lr : float or list of float
        Lower and upper bound of the learning rate, one for all groups or one for each group.
    step_size_up, step_size_down : int
        Number of rising and of falling steps; by default equal.
    mode : "triangular", "triangular2" or "exp_range"
        Amplitude of the cycles: constant ("triangular"), halved in each cycle ("triangular2"), or
        multiplied by `gamma` in each step ("exp_range").
    gamma : float
        Factor of the amplitude in mode "exp_range".
    scale_fn : callable, optional
        Function that returns the amplitude, instead of `mode`.
    scale_mode : "cycle" or "iterations"
        Argument that `scale_fn` gets: the number of the cycle, counted from 1, or the number of the
        step.
    cycle_momentum : bool
        Whether to lower the momentum (or the first beta) while the learning rate rises.
    base_momentum, max_momentum : float or list of float
        Bounds of the momentum.
    last_epoch : int
        Step after which to resume; -1 starts anew.

    Raises
    ------
    ShapeError
        `cycle_momentum` is true, but the optimizer has neither a momentum nor betas.

    Examples
    --------
    >>> opt = krt.optim.SGD([krt.zeros(1, requires_grad=True)], lr=1.0)
    >>> schedule = krt.optim.lr_scheduler.CyclicLR(
    ...     opt, 0.5, 1.0, step_size_up=2, cycle_momentum=False)
    >>> rates = []
    >>> for _ in range(6):
    ...     rates.append(opt.lr)
    ...     opt.step()
    ...     schedule.step()
    >>> rates
    [0.5, 0.75, 1.0, 0.75, 0.5, 0.75]
    """

    _unsaved: ClassVar[tuple[str, ...]] = ("optimizer", "_scale")

    def __init__(
        self, optimizer: Optimizer, base_lr: float | list[float], max_lr: float | list[float],
        step_size_up: int = 2000, step_size_down: int | None = None, mode: str = "triangular",
        gamma: float = 1.0, scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle", cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.8, max_momentum: float | list[float] = 0.9,
        last_epoch: int = -1,
    ) -> None:  # fmt: skip
        check_optimizer(optimizer)
        low = per_group("base_lr", optimizer, base_lr)
        self.max_lrs = per_group("max_lr", optimizer, max_lr)
        up = whole(1)("step_size_up", step_size_up)
        down = up if step_size_down is None else whole(1)("step_size_down", step_size_down)
        self.total_size = float(up + down)
        self.step_ratio = up / self.total_size
        self.mode, self.gamma = mode, any_number("gamma", gamma)
        one_of(("cycle", "iterations"))("scale_mode", scale_mode)
        if scale_fn is None:
            one_of(("triangular", "triangular2", "exp_range"))("mode", mode)
            scale_mode = "iterations" if mode == "exp_range" else "cycle"
        elif not callable(scale_fn):
            raise DTypeError(f"scale_fn: expected a function, not {type(scale_fn).__name__}")
        self._scale, self.scale_mode = scale_fn, scale_mode
        self.cycle_momentum = flag("cycle_momentum", cycle_momentum)
        if last_epoch == -1:
            for rate, group in zip(low, optimizer.param_groups, strict=True):
                group["lr"] = rate
        if self.cycle_momentum:
            self._cycled(optimizer, base_momentum, max_momentum, last_epoch == -1)
        super().__init__(optimizer, last_epoch)
        self.base_lrs = low

    def _height(self, cycle: int) -> float:
        place = cycle if self.scale_mode == "cycle" else self.last_epoch
        if self._scale is not None:
            return self._scale(place)
        if self.mode == "triangular":
            return 1.0
        if self.mode == "triangular2":
            return float(1 / 2.0 ** (place - 1))
        return float(self.gamma**place)

    def get_lr(self) -> list[float]:
        """Return the learning rates of this step, and set the momentum."""
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        place = 1.0 + self.last_epoch / self.total_size - cycle
        rising = place <= self.step_ratio
        share = place / self.step_ratio if rising else (place - 1) / (self.step_ratio - 1)
        height = share * self._height(cycle)
        if self.cycle_momentum:
            ends = zip(self._groups, self.base_momentums, self.max_momentums, strict=True)
            for group, low, high in ends:
                self._set_momentum(group, high - (high - low) * height)
        return [
            low + (high - low) * height
            for low, high in zip(self.base_lrs, self.max_lrs, strict=True)
        ]


class OneCycleLR(_Cycle):
    """Raise the learning rate once, then lower it below its start.

    The method is Smith and Topin's (Super-Convergence: Very Fast Training of Neural Networks Using
    Large Learning Rates, arXiv:1708.07120, 2017). Call ``step`` after each batch.

    Parameters
    ----------
    optimizer : Optimizer
        Optimizer whose learning rates the schedule sets.
    max_lr : float or list of float
        Maximum learning rate, one for all groups or one for each group.
    total_steps : int, optional
        Total number of steps; by default ``epochs * steps_per_epoch``.
    epochs, steps_per_epoch : int, optional
        Number of epochs, and of steps in each.
    pct_start : float
        Fraction of the steps in which the learning rate rises.
    anneal_strategy : "cos" or "linear"
        Shape of the curve.
    cycle_momentum : bool
        Whether to lower the momentum (or the first beta) while the learning rate rises.
    base_momentum, max_momentum : float or list of float
        Bounds of the momentum.
    div_factor : float
        The initial learning rate is ``max_lr / div_factor``.
    final_div_factor : float
        The final learning rate is the initial one divided by this.
    three_phase : bool
        Whether to use three phases: up, symmetrically down to the initial learning rate, and down
        to the final one.
    last_epoch : int
        Step after which to resume; -1 starts anew.

    Raises
    ------
    DomainError
        A step exceeds `total_steps`.
    ShapeError
        `total_steps` is missing, or `cycle_momentum` is true although the optimizer has neither a
        momentum nor betas.

    Examples
    --------
    >>> opt = krt.optim.SGD([krt.zeros(1, requires_grad=True)], lr=1.0)
    >>> schedule = krt.optim.lr_scheduler.OneCycleLR(
    ...     opt, 1.0, total_steps=4, pct_start=0.5, anneal_strategy="linear", cycle_momentum=False,
    ...     div_factor=4.0, final_div_factor=2.0)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates.append(opt.lr)
    ...     opt.step()
    ...     schedule.step()
    >>> rates
    [0.25, 1.0, 0.5625, 0.125]
    """

    def __init__(
        self, optimizer: Optimizer, max_lr: float | list[float], total_steps: int | None = None,
        epochs: int | None = None, steps_per_epoch: int | None = None, pct_start: float = 0.3,
        anneal_strategy: str = "cos", cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.85, max_momentum: float | list[float] = 0.95,
        div_factor: float = 25.0, final_div_factor: float = 1e4, three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:  # fmt: skip
        check_optimizer(optimizer)
        if total_steps is not None:
            self.total_steps = whole(1)("total_steps", total_steps)
        elif epochs is None or steps_per_epoch is None:
            raise ShapeError(
                "total_steps: expected a number of steps, not None; or pass both epochs and "
                "steps_per_epoch"
            )
        else:
            each = whole(1)("steps_per_epoch", steps_per_epoch)
            self.total_steps = whole(1)("epochs", epochs) * each
        share = fraction("pct_start", pct_start)
        one_of(("cos", "linear"))("anneal_strategy", anneal_strategy)
        self._straight = anneal_strategy == "linear"
        self._phases = _phases(share, self.total_steps, flag("three_phase", three_phase))
        tops = per_group("max_lr", optimizer, max_lr)
        first, last = positive("div_factor", div_factor), positive("final_div_factor",
                                                                   final_div_factor)  # fmt: skip
        if last_epoch == -1:
            for top, group in zip(tops, optimizer.param_groups, strict=True):
                group["initial_lr"] = top / first
                group["max_lr"] = top
                group["min_lr"] = top / first / last
        self.cycle_momentum = flag("cycle_momentum", cycle_momentum)
        if self.cycle_momentum:
            self._cycled(optimizer, base_momentum, max_momentum, last_epoch == -1)
        super().__init__(optimizer, last_epoch)

    def _between(self, start: float, end: float, share: float) -> float:
        if self._straight:
            return (end - start) * share + start
        return end + (start - end) / 2.0 * (math.cos(math.pi * share) + 1)

    def get_lr(self) -> list[float]:
        """Return the learning rates of this step, and set the momentum."""
        step = self.last_epoch
        if step > self.total_steps:
            raise DomainError(
                f"OneCycleLR: cannot go to step {step}, as the schedule has {self.total_steps} "
                "steps; pass a larger total_steps"
            )
        start, phase = 0.0, self._phases[0]
        for phase in self._phases:
            if step <= phase[0]:
                break
            start = phase[0] if phase is not self._phases[-1] else start
        end, (rate, next_rate), (momentum, next_momentum) = phase
        share = (step - start) / (end - start)
        if self.cycle_momentum:
            for group in self._groups:
                value = self._between(group[momentum], group[next_momentum], share)
                self._set_momentum(group, value)
        return [self._between(group[rate], group[next_rate], share) for group in self._groups]


_Phase = tuple[float, tuple[str, str], tuple[str, str]]


def _phases(share: float, steps: int, three: bool) -> list[_Phase]:
    """Return for each phase its last step, and the two keys of a group to interpolate between."""
    top = float(share * steps) - 1
    up: _Phase = (top, ("initial_lr", "max_lr"), ("max_momentum", "base_momentum"))
    down = ("base_momentum", "max_momentum")
    if not three:
        return [up, (steps - 1, ("max_lr", "min_lr"), down)]
    back = float(2 * share * steps) - 2
    return [
        up, (back, ("max_lr", "initial_lr"), down),
        (steps - 1, ("initial_lr", "min_lr"), ("max_momentum", "max_momentum")),
    ]  # fmt: skip
