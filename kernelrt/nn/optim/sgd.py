"""Stochastic gradient descent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

import numpy as np

from kernelrt.errors import DomainError
from kernelrt.nn.optim.hyperparameters import Hyperparameter, flag, non_negative
from kernelrt.nn.optim.optimizer import Optimizer
from kernelrt.nn.optim.param_groups import at
from kernelrt.tensor.free_functions.creation import tensor

if TYPE_CHECKING:
    from kernelrt.nn.optim.optimizer import Active, Params, TorchOptions
    from kernelrt.nn.optim.param_groups import Group
    from kernelrt.tensor import Tensor

__all__ = ["SGD"]


class SGD(Optimizer):
    """Stochastic gradient descent with momentum, as in ``torch.optim.SGD``.

    A step changes a parameter ``p`` with gradient ``g`` as follows::

        b = momentum * b + (1 - dampening) * g
        p = p - lr * b                       # with nesterov: p - lr * (g + momentum * b)

    ``b`` is in the state as ``momentum_buffer``. Without momentum, ``b`` is ``g``. Nesterov's
    momentum is that of Sutskever and others (On the importance of initialization and momentum in
    deep learning, ICML 2013).

    Parameters
    ----------
    params : iterable of Tensor, or of dict
        Parameters to optimize, or parameter groups.
    lr : float or Tensor
        Learning rate.
    momentum : float
        Momentum factor.
    dampening : float
        Fraction of the gradient that is not added to the momentum buffer. The first step adds the
        whole gradient. If you set `dampening` later, a buffer of zeros counts as one before the
        first step.
    weight_decay : float
        L2 penalty: adds ``weight_decay * param`` to the gradient.
    nesterov : bool
        Whether to use Nesterov momentum; needs a momentum and no dampening.
    maximize : bool
        Whether to maximize the objective instead of minimizing it.
    **ways : bool, optional
        As in :class:`Optimizer`.

    Raises
    ------
    DomainError
        `nesterov` is true, but `momentum` is 0 or `dampening` is not 0.

    Examples
    --------
    >>> w = krt.tensor([1.0, -2.0], requires_grad=True)
    >>> opt = krt.optim.SGD([w], lr=0.25, momentum=0.5)
    >>> for _ in range(2):
    ...     opt.zero_grad()
    ...     (w * w).sum().backward()
    ...     opt.step()
    ...     print(w.tolist())
    [0.5, -1.0]
    [0.0, 0.0]
    """

    _plain = True
    momentum = Hyperparameter(non_negative, live=True)
    dampening = Hyperparameter(non_negative)
    weight_decay = Hyperparameter(non_negative, live=True)
    nesterov = Hyperparameter(flag)
    maximize = Hyperparameter(flag)

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        **ways: Unpack[TorchOptions],
    ) -> None:
        options = {
            "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay,
            "nesterov": nesterov, "maximize": maximize,
        }  # fmt: skip
        super().__init__(params, lr, options, **ways)

    @classmethod
    def _prepare(cls, group: Group) -> None:
        momentum, dampening = group["momentum"], group["dampening"]
        if group["nesterov"] and (not group.on("momentum") or dampening):
            raise DomainError(
                f"nesterov: expected momentum above 0 and dampening 0, not momentum={momentum} and "
                f"dampening={dampening}"
            )
        if not group.on("momentum") and "momentum_buffer" not in group.state:
            return
        # As in PyTorch, the first gradient is added whole, whatever the dampening.
        shares = np.ones(len(group.params))
        if "momentum_buffer" in group.state:
            buffers = group.zeros("momentum_buffer")
            shares[[b.numpy().any() for b in buffers]] = 1 - dampening
        else:
            group.zeros("momentum_buffer")
        if dampening:
            group.scalars("gradient_share", 1.0).assign(tensor(shares))

    def _changes(self, group: Group, active: Active) -> list[tuple[Tensor, Tensor]]:
        new: list[tuple[Tensor, Tensor]] = []
        moves = group.on("momentum")  # dampening has no effect without momentum
        damps = moves and group["dampening"]
        shares = group.scalars("gradient_share", 1.0) if damps else None
        for i, param, grad in active:
            if group.on("weight_decay"):
                grad = grad + param * at(group["weight_decay"], param)  # noqa: PLW2901
            update = grad
            if moves:
                momentum, held = at(group["momentum"], param), group.zeros("momentum_buffer")[i]
                kept = grad if shares is None else grad * shares[i].cast(grad.dtype)
                update = held * momentum + kept
                new.append((held, update))
                if group["nesterov"]:
                    update = grad + update * momentum
            new.append((param, param - update * group.rate.cast(param.dtype)))
        if shares is not None:
            later = shares * 0 + (1 - group["dampening"])
            new.append((shares, group.only(active, later, shares)))
        return new
