"""Optimizers that divide by the root of averaged squares: RMSprop, Adagrad, Adadelta."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from kernelrt.nn.optim.hyperparameters import Hyperparameter, flag, fraction, non_negative
from kernelrt.nn.optim.optimizer import Optimizer
from kernelrt.nn.optim.param_groups import at, share_of_square

if TYPE_CHECKING:
    from kernelrt.nn.optim.optimizer import Active, Params, TorchOptions
    from kernelrt.nn.optim.param_groups import Group
    from kernelrt.tensor import Tensor

__all__ = ["Adadelta", "Adagrad", "RMSprop", "penalized"]


def penalized(group: Group, param: Tensor, grad: Tensor) -> Tensor:
    """Return the gradient with the L2 penalty of the parameter added."""
    if not group.on("weight_decay"):
        return grad
    total: Tensor = grad + param * at(group["weight_decay"], param)
    return total


class RMSprop(Optimizer):
    """RMSprop (Hinton's lecture 6e; Graves, arXiv:1308.0850), as in ``torch.optim.RMSprop``.

    A step changes a parameter ``p`` with gradient ``g`` as follows::

        v = alpha * v + (1 - alpha) * g**2
        b = momentum * b + g / (sqrt(v) + eps)
        p = p - lr * b

    ``v`` and ``b`` are in the state as ``square_avg`` and ``momentum_buffer``. If `centered` is
    true, the second line uses ``v - a**2`` instead of ``v``. Here ``a`` is the running mean of
    ``g``, in the state as ``grad_avg``.

    Parameters
    ----------
    params : iterable of Tensor, or of dict
        Parameters to optimize, or parameter groups.
    lr : float or Tensor
        Learning rate.
    alpha : float
        Decay rate of the running mean of the squared gradient.
    eps : float
        Added to the root of that mean.
    weight_decay : float
        L2 penalty: adds ``weight_decay * param`` to the gradient.
    momentum : float
        Momentum factor.
    centered : bool
        Whether to divide by the standard deviation of the gradient around its running mean.
    maximize : bool
        Whether to maximize the objective instead of minimizing it.
    **ways : bool, optional
        As in :class:`Optimizer`.

    Examples
    --------
    >>> w = krt.tensor([1.0, -2.0], requires_grad=True)
    >>> opt = krt.optim.RMSprop([w], lr=0.25, alpha=0.75)
    >>> (w * w).sum().backward()
    >>> opt.step()
    >>> w.round(decimals=4).tolist()
    [0.5, -1.5]
    """

    _plain = True
    alpha = Hyperparameter(non_negative, live=True)
    eps = Hyperparameter(non_negative, live=True)
    weight_decay = Hyperparameter(non_negative, live=True)
    momentum = Hyperparameter(non_negative, live=True)
    centered = Hyperparameter(flag)
    maximize = Hyperparameter(flag)

    def __init__(
        self, params: Params, lr: float | Tensor = 1e-2, alpha: float = 0.99, eps: float = 1e-8,
        weight_decay: float = 0.0, momentum: float = 0.0, centered: bool = False, *,
        maximize: bool = False, **ways: Unpack[TorchOptions],
    ) -> None:  # fmt: skip
        options = {
            "alpha": alpha, "eps": eps, "weight_decay": weight_decay, "momentum": momentum,
            "centered": centered, "maximize": maximize,
        }  # fmt: skip
        super().__init__(params, lr, options, **ways)

    @classmethod
    def _prepare(cls, group: Group) -> None:
        group.zeros("square_avg")
        if group.on("momentum"):
            group.zeros("momentum_buffer")
        if group["centered"]:
            group.zeros("grad_avg")

    def _changes(self, group: Group, active: Active) -> list[tuple[Tensor, Tensor]]:
        alpha = group["alpha"]
        new: list[tuple[Tensor, Tensor]] = []
        for i, param, grad in active:
            grad = penalized(group, param, grad)  # noqa: PLW2901
            keep, rest = at(alpha, param), at(1 - alpha, param)
            held = group.zeros("square_avg")[i]
            square = held * keep + share_of_square(grad, rest)
            new.append((held, square))
            if group["centered"]:
                center = group.zeros("grad_avg")[i]
                mean = center + (grad - center) * rest
                new.append((center, mean))
                square = square - mean * mean
            step = grad / (square.sqrt() + at(group["eps"], param))
            if group.on("momentum"):
                buffer = group.zeros("momentum_buffer")[i]
                step = buffer * at(group["momentum"], param) + step
                new.append((buffer, step))
            new.append((param, param - step * group.rate.cast(param.dtype)))
        return new


class Adagrad(Optimizer):
    """Adagrad (Duchi, Hazan and Singer, JMLR 12, 2011), as in ``torch.optim.Adagrad``.

    The step ``t``, counted from 0, of a parameter ``p`` with gradient ``g``::

        v = v + g**2
        p = p - lr / (1 + lr_decay * t) * g / (sqrt(v) + eps)

    ``v`` is in the state as ``sum``.

    Parameters
    ----------
    params : iterable of Tensor, or of dict
        Parameters to optimize, or parameter groups.
    lr : float or Tensor
        Learning rate.
    lr_decay : float
        Decay of the learning rate. In step t, counted from 0, the learning rate is divided by
        ``1 + lr_decay * t``.
    weight_decay : float
        L2 penalty: adds ``weight_decay * param`` to the gradient.
    initial_accumulator_value : float
        Initial value of the sums of squares.
    eps : float
        Added to the root of the sums.
    maximize : bool
        Whether to maximize the objective instead of minimizing it.
    **ways : bool, optional
        As in :class:`Optimizer`.

    Examples
    --------
    >>> w = krt.tensor([1.0, -2.0], requires_grad=True)
    >>> opt = krt.optim.Adagrad([w], lr=0.25)
    >>> (w * w).sum().backward()
    >>> opt.step()
    >>> w.round(decimals=4).tolist()
    [0.75, -1.75]
    """

    _plain = True
    lr_decay = Hyperparameter(non_negative)
    weight_decay = Hyperparameter(non_negative, live=True)
    initial_accumulator_value = Hyperparameter(non_negative)
    eps = Hyperparameter(non_negative, live=True)
    maximize = Hyperparameter(flag)

    def __init__(
        self, params: Params, lr: float | Tensor = 1e-2, lr_decay: float = 0.0,
        weight_decay: float = 0.0, initial_accumulator_value: float = 0.0, eps: float = 1e-10, *,
        maximize: bool = False, **ways: Unpack[TorchOptions],
    ) -> None:  # fmt: skip
        options = {
            "lr_decay": lr_decay, "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value, "eps": eps,
            "maximize": maximize,
        }  # fmt: skip
        super().__init__(params, lr, options, **ways)

    @classmethod
    def _prepare(cls, group: Group) -> None:
        group.scalars("step")
        if "sum" not in group.state:
            for total in group.zeros("sum"):
                total.fill_(group["initial_accumulator_value"])

    def _changes(self, group: Group, active: Active) -> list[tuple[Tensor, Tensor]]:
        old = group.scalars("step")
        sizes = (group.rate / (1 + old * group["lr_decay"])).contiguous()
        new: list[tuple[Tensor, Tensor]] = [(old, group.only(active, old + 1, old))]
        for i, param, grad in active:
            grad = penalized(group, param, grad)  # noqa: PLW2901
            held = group.zeros("sum")[i]
            total = held + grad * grad
            step = grad * sizes[i].cast(param.dtype) / (total.sqrt() + at(group["eps"], param))
            new += [(held, total), (param, param - step)]
        return new


class Adadelta(Optimizer):
    """Adadelta (Zeiler, arXiv:1212.5701), as in ``torch.optim.Adadelta``.

    A step changes a parameter ``p`` with gradient ``g`` as follows::

        v = rho * v + (1 - rho) * g**2
        d = sqrt(u + eps) / sqrt(v + eps) * g
        u = rho * u + (1 - rho) * d**2
        p = p - lr * d

    ``v`` and ``u`` are in the state as ``square_avg`` and ``acc_delta``.

    Parameters
    ----------
    params : iterable of Tensor, or of dict
        Parameters to optimize, or parameter groups.
    lr : float or Tensor
        Factor of each update.
    rho : float
        Decay rate of the running means of squares.
    eps : float
        Added to these means before their roots are taken.
    weight_decay : float
        L2 penalty: adds ``weight_decay * param`` to the gradient.
    maximize : bool
        Whether to maximize the objective instead of minimizing it.
    **ways : bool, optional
        As in :class:`Optimizer`.

    Examples
    --------
    >>> w = krt.tensor([1.0, -2.0], requires_grad=True)
    >>> opt = krt.optim.Adadelta([w], lr=0.25, rho=0.75, eps=1.0)
    >>> (w * w).sum().backward()
    >>> opt.step()
    >>> np.round(w.tolist(), 2).tolist()
    [0.65, -1.55]
    """

    _plain = True
    rho = Hyperparameter(fraction, live=True)
    eps = Hyperparameter(non_negative, live=True)
    weight_decay = Hyperparameter(non_negative, live=True)
    maximize = Hyperparameter(flag)

    def __init__(
        self, params: Params, lr: float | Tensor = 1.0, rho: float = 0.9, eps: float = 1e-6,
        weight_decay: float = 0.0, *, maximize: bool = False, **ways: Unpack[TorchOptions],
    ) -> None:  # fmt: skip
        options = {"rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(params, lr, options, **ways)

    @classmethod
    def _prepare(cls, group: Group) -> None:
        group.scalars("step")
        group.zeros("square_avg")
        group.zeros("acc_delta")

    def _changes(self, group: Group, active: Active) -> list[tuple[Tensor, Tensor]]:
        rho, old = group["rho"], group.scalars("step")
        new: list[tuple[Tensor, Tensor]] = [(old, group.only(active, old + 1, old))]
        for i, param, grad in active:
            grad = penalized(group, param, grad)  # noqa: PLW2901
            keep, rest, eps = at(rho, param), at(1 - rho, param), at(group["eps"], param)
            squares, deltas = group.zeros("square_avg")[i], group.zeros("acc_delta")[i]
            square = squares * keep + share_of_square(grad, rest)
            delta = (deltas + eps).sqrt() / (square + eps).sqrt() * grad
            new += [
                (squares, square), (deltas, deltas * keep + share_of_square(delta, rest)),
                (param, param - delta * group.rate.cast(param.dtype)),
            ]  # fmt: skip
        return new
