"""Optimizers that use signs of gradients (Rprop, Lion), and averaged SGD (ASGD)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from kernelrt.errors import DomainError
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
        raise DomainError(f"{name}: expected (factor between 0 and 1, factor above 1), not {value}")
    return pair


def _interval(name: str, value: object) -> tuple[float, ...]:
    """Check a lower and an upper bound."""
    low, high = pair = numbers(2)(name, value)
    if not 0 <= low <= high:
        raise DomainError(f"{name}: expected 0 <= lower bound <= upper bound, not {value}")
    return pair


class Rprop(Optimizer):
    """Resilient propagation (Riedmiller and Braun, ICNN 1993), as in ``torch.optim.Rprop``.

    The step of an element ``p`` with gradient ``g`` and step size ``s``::

        s = s * etas[1]             # if g has the sign of the previous gradient
        s = s * etas[0]; g = 0      # if the sign changed
        s = clamp(s, step_sizes[0], step_sizes[1])
        p = p - s * sign(g)

    ``s`` and the previous gradient are in the state as ``step_size`` and ``prev``.

    Parameters
    ----------
    params : iterable of Tensor, or of dict
        Parameters to optimize, or parameter groups.
    lr : float or Tensor
        Size of the first step of each element. Later sizes depend on the signs of gradients only.
    etas : (float, float)
        Factors of the step size where the sign of the gradient changed, and where it did not.
    step_sizes : (float, float)
        Lower and upper bound of the step size.
    maximize : bool
        Whether to maximize the objective instead of minimizing it.
    **ways : bool, optional
        As in :class:`Optimizer`.

    Examples
    --------
    >>> w = krt.tensor([1.0, -2.0], requires_grad=True)
    >>> opt = krt.optim.Rprop([w], lr=0.25, etas=(0.5, 2.0))
    >>> for _ in range(2):
    ...     opt.zero_grad()
    ...     (w * w).sum().backward()
    ...     opt.step()
    ...     print(w.tolist())
    [0.75, -1.75]
    [0.25, -1.25]
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
            size = where(same < 0, start * at(less, param), start)  # NaN has no sign
            size = where(same > 0, start * at(more, param), size).clamp(low, high)
            kept = grad.masked_fill(same < 0, 0)
            new += [(prev, kept), (sizes, size), (param, param - kept.sign() * size)]
        return new


class Lion(Optimizer):
    """Lion (Chen and others, arXiv:2302.06675, algorithm 2).

    A step changes a parameter ``p`` with gradient ``g`` as follows::

        c = betas[0] * m + (1 - betas[0]) * g
        p = p * (1 - lr * weight_decay) - lr * sign(c)
        m = betas[1] * m + (1 - betas[1]) * g

    ``m`` is in the state as ``exp_avg``. PyTorch has no optimizer of this name.

    Parameters
    ----------
    params : iterable of Tensor, or of dict
        Parameters to optimize, or parameter groups.
    lr : float or Tensor
        Learning rate: the amount by which each element moves in a step.
    betas : (float, float)
        Two weights of the old momentum: in the direction of the step, and in the new momentum.
    weight_decay : float
        Decoupled weight decay: each step subtracts ``lr * weight_decay * param``.
    maximize : bool
        Whether to maximize the objective instead of minimizing it.
    **ways : bool, optional
        As in :class:`Optimizer`.

    Examples
    --------
    >>> w = krt.tensor([1.0, -2.0], requires_grad=True)
    >>> opt = krt.optim.Lion([w], lr=0.25)
    >>> (w * w).sum().backward()
    >>> opt.step()
    >>> w.tolist()
    [0.75, -1.75]
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

    Step ``t`` changes a parameter ``p`` with gradient ``g`` as follows::

        p = p * (1 - lambd * eta) - eta * g
        a = a + mu * (p - a)
        eta = lr / (1 + lambd * lr * t)**alpha
        mu = 1 / max(1, t - t0)

    In the first step, ``eta`` is `lr`. The averages ``a`` are in the state as ``ax``. Up to step
    ``t0 + 2`` they are equal to the parameters. After it, they are the mean of the parameters since
    that step.

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

    Examples
    --------
    >>> w = krt.tensor([1.0, -2.0], requires_grad=True)
    >>> opt = krt.optim.ASGD([w], lr=0.25, lambd=0.0, t0=0.0)
    >>> for _ in range(3):
    ...     opt.zero_grad()
    ...     (w * w).sum().backward()
    ...     opt.step()
    ...     print(w.tolist())
    [0.5, -1.0]
    [0.25, -0.5]
    [0.125, -0.25]
    >>> opt.state[w]["ax"].tolist()                  # the mean of the last two
    [0.1875, -0.375]
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
