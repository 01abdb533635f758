"""Variants of Adam: Adamax, NAdam, RAdam."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from kernelrt.nn.optim.adaptive import penalized
from kernelrt.nn.optim.hyperparameters import Hyperparameter, decays, flag, non_negative
from kernelrt.nn.optim.optimizer import Optimizer
from kernelrt.nn.optim.param_groups import at, share_of_square
from kernelrt.tensor.methods.comparison import where

if TYPE_CHECKING:
    from kernelrt.nn.optim.optimizer import Active, Params, TorchOptions
    from kernelrt.nn.optim.param_groups import Group
    from kernelrt.tensor import Tensor

__all__ = ["Adamax", "NAdam", "RAdam"]


class _Moments(Optimizer):
    """Base of optimizers with running means of gradients and of their squares."""

    betas = Hyperparameter(decays, live=True)
    eps = Hyperparameter(non_negative, live=True)
    weight_decay = Hyperparameter(non_negative, live=True)
    maximize = Hyperparameter(flag)
    _second = "exp_avg_sq"

    @classmethod
    def _prepare(cls, group: Group) -> None:
        group.scalars("step")
        group.zeros("exp_avg")
        group.zeros(cls._second)

    def _counted(self, group: Group, active: Active) -> tuple[Tensor, Tensor]:
        """Return the step counters, and their new value."""
        old = group.scalars("step")
        return old, group.only(active, old + 1, old)

    def _mean(self, group: Group, i: int, grad: Tensor) -> Tensor:
        mean = group.zeros("exp_avg")[i]
        new: Tensor = mean + (grad - mean) * at(1 - group["betas"][0], mean)
        return new

    def _square(self, group: Group, i: int, grad: Tensor) -> Tensor:
        square, beta = group.zeros("exp_avg_sq")[i], group["betas"][1]
        new: Tensor = square * at(beta, square) + share_of_square(grad, 1 - beta)
        return new


class Adamax(_Moments):
    """Adamax (Kingma and Ba, arXiv:1412.6980, section 7.1), as in ``torch.optim.Adamax``.

    Step ``t`` changes a parameter ``p`` with gradient ``g`` as follows::

        m = betas[0] * m + (1 - betas[0]) * g
        u = maximum(betas[1] * u, |g| + eps)
        p = p - lr / (1 - betas[0]**t) * m / u

    ``m`` and ``u`` are in the state as ``exp_avg`` and ``exp_inf``.

    Parameters
    ----------
    params : iterable of Tensor, or of dict
        Parameters to optimize, or parameter groups.
    lr : float or Tensor
        Learning rate.
    betas : (float, float)
        Decay rates of the running mean of the gradient and of the running maximum of its absolute
        value.
    eps : float
        Added to the absolute value of each gradient.
    weight_decay : float
        L2 penalty: adds ``weight_decay * param`` to the gradient.
    maximize : bool
        Whether to maximize the objective instead of minimizing it.
    **ways : bool, optional
        As in :class:`Optimizer`.

    Examples
    --------
    >>> w = krt.tensor([1.0, -2.0], requires_grad=True)
    >>> opt = krt.optim.Adamax([w], lr=0.25)
    >>> (w * w).sum().backward()
    >>> opt.step()
    >>> w.round(decimals=4).tolist()
    [0.75, -1.75]
    """

    _plain = True
    _second = "exp_inf"

    def __init__(
        self, params: Params, lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.0,
        *, maximize: bool = False, **ways: Unpack[TorchOptions],
    ) -> None:  # fmt: skip
        options = {"betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(params, lr, options, **ways)

    def _changes(self, group: Group, active: Active) -> list[tuple[Tensor, Tensor]]:
        beta1, beta2 = group["betas"]
        old, counts = self._counted(group, active)
        sizes = (group.rate / (1 - beta1**counts)).contiguous()
        new: list[tuple[Tensor, Tensor]] = [(old, counts)]
        for i, param, grad in active:
            grad = penalized(group, param, grad)  # noqa: PLW2901
            mean, held = self._mean(group, i, grad), group.zeros("exp_inf")[i]
            most = (held * at(beta2, param)).maximum(grad.abs() + at(group["eps"], param))
            new += [
                (group.zeros("exp_avg")[i], mean), (held, most),
                (param, param - mean / most * sizes[i].cast(param.dtype)),
            ]  # fmt: skip
        return new


class NAdam(_Moments):
    """Adam with Nesterov's momentum (Dozat, ICLR workshop 2016), as in ``torch.optim.NAdam``.

    Step ``t`` changes a parameter ``p`` with gradient ``g`` as follows, with the momentum ``mu[t]``
    (see `momentum_decay`)::

        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g**2
        c = mu[1] * ... * mu[t]
        s = (1 - mu[t]) / (1 - c) * g + mu[t + 1] / (1 - c * mu[t + 1]) * m
        p = p - lr * s / (sqrt(v / (1 - betas[1]**t)) + eps)

    ``m``, ``v`` and ``c`` are in the state as ``exp_avg``, ``exp_avg_sq`` and ``mu_product``.

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
    momentum_decay : float
        Rate at which the momentum grows to ``betas[0]``. In step t, the momentum is
        ``betas[0] * (1 - 0.96 ** (t * momentum_decay) / 2)``.
    decoupled_weight_decay : bool
        Whether a step subtracts ``lr * weight_decay * param`` from the parameter, as AdamW does,
        instead of adding the L2 penalty to the gradient.
    maximize : bool
        Whether to maximize the objective instead of minimizing it.
    **ways : bool, optional
        As in :class:`Optimizer`.

    Examples
    --------
    >>> w = krt.tensor([1.0, -2.0], requires_grad=True)
    >>> opt = krt.optim.NAdam([w], lr=0.25)
    >>> (w * w).sum().backward()
    >>> opt.step()
    >>> np.round(w.tolist(), 2).tolist()
    [0.74, -1.74]
    """

    _plain = True
    momentum_decay = Hyperparameter(non_negative)
    decoupled_weight_decay = Hyperparameter(flag)

    def __init__(
        self, params: Params, lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.0,
        momentum_decay: float = 4e-3, decoupled_weight_decay: bool = False, *,
        maximize: bool = False, **ways: Unpack[TorchOptions],
    ) -> None:  # fmt: skip
        options = {
            "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "momentum_decay": momentum_decay, "decoupled_weight_decay": decoupled_weight_decay,
            "maximize": maximize,
        }  # fmt: skip
        super().__init__(params, lr, options, **ways)

    @classmethod
    def _prepare(cls, group: Group) -> None:
        super()._prepare(group)
        group.scalars("mu_product", 1.0)

    def _changes(self, group: Group, active: Active) -> list[tuple[Tensor, Tensor]]:
        beta1, beta2 = group["betas"]
        decay, products = group["momentum_decay"], group.scalars("mu_product", 1.0)
        old, counts = self._counted(group, active)
        now, later = ((1 - 0.5 * 0.96 ** (c * decay)) * beta1 for c in (counts, counts + 1))
        product = products * now
        of_grad = (group.rate * (1 - now) / (1 - product)).contiguous()
        of_mean = (group.rate * later / (1 - product * later)).contiguous()
        scales = (1 - beta2**counts).rsqrt().contiguous()
        new = [(old, counts), (products, group.only(active, product, products))]
        for i, param, grad in active:
            value, grad = decayed(group, param, grad)  # noqa: PLW2901
            mean, square = self._mean(group, i, grad), self._square(group, i, grad)
            size = square.sqrt() * scales[i].cast(param.dtype) + at(group["eps"], param)
            step = grad * of_grad[i].cast(param.dtype) + mean * of_mean[i].cast(param.dtype)
            new += [
                (group.zeros("exp_avg")[i], mean), (group.zeros("exp_avg_sq")[i], square),
                (param, value - step / size),
            ]  # fmt: skip
        return new


def decayed(group: Group, param: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Apply the weight decay to the parameter or to the gradient, and return both."""
    if not group.on("weight_decay") or not group["decoupled_weight_decay"]:
        return param, penalized(group, param, grad)
    factor = (1 - group.rate * group["weight_decay"]).cast(param.dtype)
    return param * factor, grad


class RAdam(_Moments):
    """Rectified Adam (Liu and others, arXiv:1908.03265), as in ``torch.optim.RAdam``.

    Step ``t`` changes a parameter ``p`` with gradient ``g`` as follows::

        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g**2
        r = r_max - 2 * t * betas[1]**t / (1 - betas[1]**t)
        s = sqrt((r - 4) * (r - 2) * r_max / ((r_max - 4) * (r_max - 2) * r))
        p = p - lr * s * m / (1 - betas[0]**t) / ((sqrt(v) + eps) / sqrt(1 - betas[1]**t))

    Here ``r_max`` is ``2 / (1 - betas[1]) - 1``. In the first steps, while ``r`` is at most 5, the
    last line is instead ``p = p - lr * m / (1 - betas[0]**t)``. ``m`` and ``v`` are in the state as
    ``exp_avg`` and ``exp_avg_sq``.

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
    decoupled_weight_decay : bool
        Whether a step subtracts ``lr * weight_decay * param`` from the parameter, as AdamW does,
        instead of adding the L2 penalty to the gradient.
    maximize : bool
        Whether to maximize the objective instead of minimizing it.
    **ways : bool, optional
        As in :class:`Optimizer`.

    Examples
    --------
    >>> w = krt.tensor([1.0, -2.0], requires_grad=True)
    >>> opt = krt.optim.RAdam([w], lr=0.25)
    >>> (w * w).sum().backward()
    >>> opt.step()                                   # as SGD in the first steps
    >>> w.round(decimals=4).tolist()
    [0.5, -1.0]
    """

    _plain = True
    decoupled_weight_decay = Hyperparameter(flag)

    def __init__(
        self, params: Params, lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.0,
        decoupled_weight_decay: bool = False, *, maximize: bool = False,
        **ways: Unpack[TorchOptions],
    ) -> None:  # fmt: skip
        options = {
            "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "decoupled_weight_decay": decoupled_weight_decay, "maximize": maximize,
        }  # fmt: skip
        super().__init__(params, lr, options, **ways)

    def _changes(self, group: Group, active: Active) -> list[tuple[Tensor, Tensor]]:
        beta1, beta2 = group["betas"]
        old, counts = self._counted(group, active)
        kept = beta2**counts
        most = 2 / (1 - beta2) - 1
        length = most - counts * 2 * kept / (1 - kept)
        # Above 5 the variance of the step is tractable, and the factor makes it constant.
        known = length > 5
        safe = where(known, length, 6.0)
        factor = (safe - 4) * (safe - 2) * most / ((most - 4) * (most - 2) * safe)
        size = group.rate / (1 - beta1**counts)
        rectified = (size * ((1 - kept) * factor.abs()).sqrt()).contiguous()
        plain, sure = size.contiguous(), known.contiguous()
        new: list[tuple[Tensor, Tensor]] = [(old, counts)]
        for i, param, grad in active:
            value, grad = decayed(group, param, grad)  # noqa: PLW2901
            mean, square = self._mean(group, i, grad), self._square(group, i, grad)
            divided = rectified[i].cast(param.dtype) / (square.sqrt() + at(group["eps"], param))
            new += [
                (group.zeros("exp_avg")[i], mean), (group.zeros("exp_avg_sq")[i], square),
                (param, value - mean * divided.where(sure[i], plain[i].cast(param.dtype))),
            ]  # fmt: skip
        return new
