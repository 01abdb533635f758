"""Optimizers that use signs of gradients (Rprop, Lion), and averaged SGD (ASGD)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from kernelrt.errors import ShapeError
from kernelrt.nn.optim.adaptive import penalized
from kernelrt.nn.optim.hyperparameters import (
    Hyperparameter,
    any_number,
    decays,
    flag,
    non_negative,
    numbers,
)
from kernelrt.nn.optim.optimizer import Optimizer
from kernelrt.nn.optim.param_groups import at
from kernelrt.tensor.methods.comparison import where

if TYPE_CHECKING:
    from kernelrt.nn.optim.optimizer import Active, Params, TorchOptions
    from kernelrt.nn.optim.param_groups import Group
    from kernelrt.tensor import Tensor

__all__ = ["ASGD", "Lion", "Rprop"]


def _etas(name: str, value: object) -> tuple[float, ...]:
    """Check two factors: one between 0 and 1, and one above 1."""
    low, high = pair = numbers(2)(name, value)
    if not 0 < low < 1 < high:
        raise ShapeError(f"{name}: expected a factor between 0 and 1 and one above 1, not {value}")
    return pair


def _interval(name: str, value: object) -> tuple[float, ...]:
    """Check a lower and an upper bound."""
    low, high = pair = numbers(2)(name, value)
    if not 0 <= low <= high:
        raise ShapeError(f"{name}: expected 0 <= lower bound <= upper bound, not {value}")
    return pair


class Rprop(Optimizer):
    """Resilient propagation (Riedmiller and Braun, ICNN 1993), as in ``torch.optim.Rprop``.

    Parameters
    ----------
    params : iterable of Tensor, or of dict
        Parameters to optimize, or parameter groups.
    lr : float or Tensor
        Size of the first step of each element; later sizes depend on signs only.
    etas : (float, float)
        Factors of the step size where the sign of the gradient changed, and where it did not.
    step_sizes : (float, float)
        Lower and upper bound of the step size.
    maximize : bool
        Whether to maximize the objective instead of minimizing it.
    **ways : bool, optional
        As in :class:`Optimizer`.
    """

    _plain = True
    etas = Hyperparameter(_etas)
    step_sizes = Hyperparameter(_interval)
    maximize = Hyperparameter(flag)

    def __init__(
        self, params: Params, lr: float | Tensor = 1e-2, etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50.0), *, maximize: bool = False,
        **ways: Unpack[TorchOptions],
    ) -> None:  # fmt: skip
        options = {"etas": etas, "step_sizes": step_sizes, "maximize": maximize}
        super().__init__(params, lr, options, **ways)

    @classmethod
    def _prepare(cls, group: Group) -> None:
        group.scalars("step")
        group.zeros("prev")
        group.zeros("step_size")

    def _changes(self, group: Group, active: Active) -> list[tuple[Tensor, Tensor]]:
        (less, more), (low, high) = group["etas"], group["step_sizes"]
        old = group.scalars("step")
        first = (old == 0).contiguous()
        new: list[tuple[Tensor, Tensor]] = [(old, group.only(active, old + 1, old))]
        for i, param, grad in active:
            prev, sizes = group.zeros("prev")[i], group.zeros("step_size")[i]
            same = grad * prev
            start = sizes.where(~first[i], group.rate.cast(param.dtype))
            factor = where(same > 0, more, where(same < 0, less, 1.0))  # NaN has no sign
            size = (start * factor.cast(param.dtype)).clamp(low, high)
            kept = grad.masked_fill(same < 0, 0)
            new += [(prev, kept), (sizes, size), (param, param - kept.sign() * size)]
        return new


class Lion(Optimizer):
    """Lion (Chen and others, arXiv:2302.06675, algorithm 2).

    Parameters
    ----------
    params : iterable of Tensor, or of dict
        Parameters to optimize, or parameter groups.
    lr : float or Tensor
        Learning rate: the amount by which each element moves in a step.
    betas : (float, float)
        Weight of the momentum in the direction of the step, and in the next momentum.
    weight_decay : float
        Decoupled weight decay: each step subtracts ``lr * weight_decay * param``.
    maximize : bool
        Whether to maximize the objective instead of minimizing it.
    **ways : bool, optional
        As in :class:`Optimizer`.
    """

    _plain = True
    betas = Hyperparameter(decays, live=True)
    weight_decay = Hyperparameter(non_negative, live=True)
    maximize = Hyperparameter(flag)

    def __init__(
        self, params: Params, lr: float | Tensor = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99), weight_decay: float = 0.0, *,
        maximize: bool = False, **ways: Unpack[TorchOptions],
    ) -> None:  # fmt: skip
        options = {"betas": betas, "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(params, lr, options, **ways)

    @classmethod
    def _prepare(cls, group: Group) -> None:
        group.zeros("exp_avg")

    def _changes(self, group: Group, active: Active) -> list[tuple[Tensor, Tensor]]:
        beta1, beta2 = group["betas"]
        new: list[tuple[Tensor, Tensor]] = []
        for i, param, grad in active:
            held, value = group.zeros("exp_avg")[i], param
            if group.on("weight_decay"):
                value = param * (1 - group.rate * group["weight_decay"]).cast(param.dtype)
            direction = held * at(beta1, param) + grad * at(1 - beta1, param)
            new += [
                (held, held * at(beta2, param) + grad * at(1 - beta2, param)),
                (param, value - direction.sign() * group.rate.cast(param.dtype)),
            ]
        return new


class ASGD(Optimizer):
    """Averaged SGD (Polyak and Juditsky, SIAM J. Control Optim. 30, 1992), as ``torch.optim.ASGD``.

    The averages are in the state ``ax``.

    Parameters
    ----------
    params : iterable of Tensor, or of dict
        Parameters to optimize, or parameter groups.
    lr : float or Tensor
        Learning rate.
    lambd : float
        Decay of the parameters, and of the step size.
    alpha : float
        Exponent of the decay of the step size.
    t0 : float
        Step from which on parameters are averaged.
    weight_decay : float
        L2 penalty: adds ``weight_decay * param`` to the gradient.
    maximize : bool
        Whether to maximize the objective instead of minimizing it.
    **ways : bool, optional
        As in :class:`Optimizer`.
    """

    _plain = True
    lambd = Hyperparameter(any_number)
    alpha = Hyperparameter(any_number)
    t0 = Hyperparameter(any_number)
    weight_decay = Hyperparameter(non_negative, live=True)
    maximize = Hyperparameter(flag)

    def __init__(
        self, params: Params, lr: float | Tensor = 1e-2, lambd: float = 1e-4, alpha: float = 0.75,
        t0: float = 1e6, weight_decay: float = 0.0, *, maximize: bool = False,
        **ways: Unpack[TorchOptions],
    ) -> None:  # fmt: skip
        options = {
            "lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay,
            "maximize": maximize,
        }  # fmt: skip
        super().__init__(params, lr, options, **ways)

    @classmethod
    def _prepare(cls, group: Group) -> None:
        group.scalars("step")
        group.scalars("eta")
        group.scalars("mu", 1.0)
        group.zeros("ax")

    def _changes(self, group: Group, active: Active) -> list[tuple[Tensor, Tensor]]:
        lambd, rate = group["lambd"], group.rate
        old, etas, mus = group.scalars("step"), group.scalars("eta"), group.scalars("mu", 1.0)
        counts = old + 1
        eta = where(old == 0, rate.cast(etas.dtype), etas)
        later = rate / (1 + counts * (rate * lambd)) ** group["alpha"]
        share = 1 / (counts - group["t0"]).clamp(min=1)
        keep, step = (1 - eta * lambd).contiguous(), eta.contiguous()
        new = [
            (old, group.only(active, counts, old)), (etas, group.only(active, later, etas)),
            (mus, group.only(active, share, mus)),
        ]  # fmt: skip
        for i, param, grad in active:
            grad = penalized(group, param, grad)  # noqa: PLW2901
            kind, ax, mu = param.dtype, group.zeros("ax")[i], mus[i]
            value = param * keep[i].cast(kind) - grad * step[i].cast(kind)
            mean = ax + (value - ax) * mu.cast(kind)
            new += [(ax, value.where(mu == 1, mean)), (param, value)]
        return new
