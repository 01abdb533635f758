"""Adam and AdamW."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from kernelrt.nn.optim.hyperparameters import Hyperparameter, decays, flag, non_negative
from kernelrt.nn.optim.optimizer import Optimizer
from kernelrt.nn.optim.param_groups import at, share_of_square

if TYPE_CHECKING:
    from kernelrt.nn.optim.optimizer import Active, Params, TorchOptions
    from kernelrt.nn.optim.param_groups import Group
    from kernelrt.tensor import Tensor

__all__ = ["Adam", "AdamW"]


class Adam(Optimizer):
    """Adam (Kingma and Ba, arXiv:1412.6980), as in ``torch.optim.Adam``.

    Step ``t`` changes a parameter ``p`` with gradient ``g`` as follows::

        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g**2
        p = p - lr * m / (1 - betas[0]**t) / (sqrt(v / (1 - betas[1]**t)) + eps)

    ``m`` and ``v`` are in the state as ``exp_avg`` and ``exp_avg_sq``.

    Parameters
    ----------
    params : iterable of Tensor, or of dict
        Parameters to optimize, or parameter groups.
    lr : float or Tensor
        Learning rate.
    betas : (float, float)
        Decay rates of the running means of the gradient and of its square.
    eps : float
        Added to the denominator.
    weight_decay : float
        L2 penalty: adds ``weight_decay * param`` to the gradient.
    amsgrad : bool
        Whether to divide by the maximum of the mean squares so far (Reddi, Kale and Kumar,
        arXiv:1904.09237).
    maximize : bool
        Whether to maximize the objective instead of minimizing it.
    decoupled_weight_decay : bool
        Whether a step subtracts ``lr * weight_decay * param`` from the parameter, as :class:`AdamW`
        does, instead of adding the L2 penalty to the gradient.
    **ways : bool, optional
        As in :class:`Optimizer`.

    Examples
    --------
    The first step moves each element by about `lr`, whatever the size of its gradient:

    >>> w = krt.tensor([1.0, -2.0], requires_grad=True)
    >>> opt = krt.optim.Adam([w], lr=0.25)
    >>> (w * w).sum().backward()
    >>> opt.step()
    >>> w.round(decimals=4).tolist()
    [0.75, -1.75]
    """

    _plain = True
    betas = Hyperparameter(decays, live=True)
    eps = Hyperparameter(non_negative, live=True)
    weight_decay = Hyperparameter(non_negative, live=True)
    amsgrad = Hyperparameter(flag)
    maximize = Hyperparameter(flag)
    decoupled_weight_decay = Hyperparameter(flag)

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        decoupled_weight_decay: bool = False,
        **ways: Unpack[TorchOptions],
    ) -> None:
        options = {
            "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad,
            "maximize": maximize, "decoupled_weight_decay": decoupled_weight_decay,
        }  # fmt: skip
        super().__init__(params, lr, options, **ways)

    @classmethod
    def _prepare(cls, group: Group) -> None:
        # Each parameter has its own counter: only steps in which it had a gradient count.
        group.scalars("step")
        group.zeros("exp_avg")
        group.zeros("exp_avg_sq")
        if group["amsgrad"]:
            group.zeros("max_exp_avg_sq")

    def _changes(self, group: Group, active: Active) -> list[tuple[Tensor, Tensor]]:
        beta1, beta2 = group["betas"]
        eps, amsgrad, old = group["eps"], group["amsgrad"], group.scalars("step")
        counts = group.only(active, old + 1, old)
        # Scalars of the step: computed once, not for each element.
        sizes = (group.rate / (1 - beta1**counts)).contiguous()
        scales = (1 - beta2**counts).rsqrt().contiguous()
        rest = 1 - beta1, 1 - beta2
        means, squares = group.zeros("exp_avg"), group.zeros("exp_avg_sq")
        new: list[tuple[Tensor, Tensor]] = []
        for i, param, grad in active:
            value, grad = self._decay(group, param, grad)  # noqa: PLW2901
            size, scale = sizes[i].cast(param.dtype), scales[i].cast(param.dtype)
            mean, square = means[i], squares[i]
            mean = mean.addcmul(grad - mean, at(rest[0], param))
            square = share_of_square(grad, rest[1]).addcmul(square, at(beta2, param))
            new += [(means[i], mean), (squares[i], square)]
            if amsgrad:
                most = group.zeros("max_exp_avg_sq")[i]
                square = most.maximum(square)
                new.append((most, square))
            step = mean * size / (square.sqrt() * scale + at(eps, param))
            new.append((param, value - step))
        return [*new, (old, counts)]

    def _decay(self, group: Group, param: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
        """Apply the weight decay to the parameter or to the gradient, and return both."""
        if not group.on("weight_decay"):
            return param, grad
        if not group["decoupled_weight_decay"]:
            return param, grad + param * at(group["weight_decay"], param)
        factor = (1 - group.rate * group["weight_decay"]).cast(param.dtype)
        return param * factor, grad


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter, arXiv:1711.05101).

    A step first computes ``p = p * (1 - lr * weight_decay)``. Then it is a step of :class:`Adam`
    without weight decay.

    Parameters
    ----------
    params, lr, betas, eps, amsgrad, maximize
        As in :class:`Adam`.
    weight_decay : float
        Decoupled weight decay: each step subtracts ``lr * weight_decay * param``.
    **ways : bool, optional
        As in :class:`Optimizer`.

    Examples
    --------
    >>> w = krt.tensor([1.0, -2.0], requires_grad=True)
    >>> opt = krt.optim.AdamW([w], lr=0.5, weight_decay=0.5)
    >>> (w * w).sum().backward()
    >>> opt.step()                                   # w * (1 - 0.25) - 0.5 * sign(w)
    >>> w.round(decimals=4).tolist()
    [0.25, -1.0]
    """

    _plain = True

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        **ways: Unpack[TorchOptions],
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize,
                         decoupled_weight_decay=True, **ways)  # fmt: skip
