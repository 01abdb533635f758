"""Optimizers whose step depends on a whole parameter: LAMB, Adafactor, Muon."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Unpack

from kernelrt import dtype as dt
from kernelrt.errors import DomainError, DTypeError, ShapeError
from kernelrt.nn.optim.hyperparameters import (
    Hyperparameter,
    any_number,
    decays,
    flag,
    maybe_number,
    non_negative,
    numbers,
    one_of,
    positive,
    whole,
)
from kernelrt.nn.optim.optimizer import Optimizer
from kernelrt.nn.optim.param_groups import at, share_of_square, state_of

if TYPE_CHECKING:
    from kernelrt.nn.optim.optimizer import Active, Params, TorchOptions
    from kernelrt.nn.optim.param_groups import Group
    from kernelrt.tensor import Tensor

__all__ = ["LAMB", "Adafactor", "Muon"]


class LAMB(Optimizer):
    """LAMB (You and others, arXiv:1904.00962, algorithm 2), for large batches.

    The step of a parameter is Adam's step plus weight decay, scaled to the norm of the parameter.
    The factor is ``|param| / |step|``, or 1 if either norm is 0. Step ``t`` changes a parameter
    ``p`` with gradient ``g`` as follows::

        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g**2
        s = m / (1 - betas[0]**t) / (sqrt(v / (1 - betas[1]**t)) + eps) + weight_decay * p
        p = p - lr * |p| / |s| * s

    ``m`` and ``v`` are in the state as ``exp_avg`` and ``exp_avg_sq``. PyTorch has no optimizer of
    this name.

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
        Adds ``weight_decay * param`` to the step.
    maximize : bool
        Whether to maximize the objective instead of minimizing it.
    **ways : bool, optional
        As in :class:`Optimizer`.

    Examples
    --------
    >>> w = krt.tensor([2.0, -2.0], requires_grad=True)
    >>> opt = krt.optim.LAMB([w], lr=0.25)
    >>> (w * w).sum().backward()
    >>> opt.step()                                   # each element moves by a quarter of itself
    >>> w.round(decimals=4).tolist()
    [1.5, -1.5]
    """

    _plain = True
    betas = Hyperparameter(decays, live=True)
    eps = Hyperparameter(non_negative, live=True)
    weight_decay = Hyperparameter(non_negative, live=True)
    maximize = Hyperparameter(flag)

    def __init__(
        self, params: Params, lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-6, weight_decay: float = 0.0,
        *, maximize: bool = False, **ways: Unpack[TorchOptions],
    ) -> None:  # fmt: skip
        options = {"betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(params, lr, options, **ways)

    @classmethod
    def _prepare(cls, group: Group) -> None:
        group.scalars("step")
        group.zeros("exp_avg")
        group.zeros("exp_avg_sq")

    def _changes(self, group: Group, active: Active) -> list[tuple[Tensor, Tensor]]:
        beta1, beta2 = group["betas"]
        old = group.scalars("step")
        counts = group.only(active, old + 1, old)
        first = (1 / (1 - beta1**counts)).contiguous()
        second = (1 - beta2**counts).rsqrt().contiguous()
        new: list[tuple[Tensor, Tensor]] = [(old, counts)]
        for i, param, grad in active:
            kind = param.dtype
            means, squares = group.zeros("exp_avg")[i], group.zeros("exp_avg_sq")[i]
            mean = means + (grad - means) * at(1 - beta1, param)
            square = squares * at(beta2, param) + share_of_square(grad, 1 - beta2)
            size = square.sqrt() * second[i].cast(kind) + at(group["eps"], param)
            step = mean * first[i].cast(kind) / size
            if group.on("weight_decay"):
                step = step + param * at(group["weight_decay"], param)
            long, wide = param.norm(), step.norm()
            trust = (long / wide).where((long > 0) & (wide > 0), 1.0)
            new += [
                (means, mean), (squares, square),
                (param, param - step * (trust * group.rate.cast(kind))),
            ]  # fmt: skip
        return new


def _epsilons(name: str, value: object) -> tuple[float | None, float]:
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise DTypeError(f"{name}: expected a pair (number or None, number), not {value!r}")
    return maybe_number(f"{name}[0]", value[0]), non_negative(f"{name}[1]", value[1])


class Adafactor(Optimizer):
    """Adafactor (Shazeer and Stern, arXiv:1804.04235), as in ``torch.optim.Adafactor``.

    Step ``t`` changes a parameter ``p`` with gradient ``g`` as follows::

        v = v + (g**2 - v) * t**beta2_decay
        u = g / maximum(sqrt(v), eps[0])
        a = max(eps[1], rms(p)) * min(lr, 1 / sqrt(t))
        p = p * (1 - lr * weight_decay) - a * u / max(1, rms(u) / d)

    Here ``rms`` is the root of the mean square. For a parameter of shape ``(..., n, m)``, ``v`` is
    not stored. It is computed from two tensors in the state: ``row_var``, the mean squares of rows,
    ``(..., n, 1)``, and ``col_var``, those of columns, ``(..., 1, m)``. For other parameters, ``v``
    is in the state as ``variance``.

    Parameters
    ----------
    params : iterable of Tensor, or of dict
        Parameters to optimize, or parameter groups.
    lr : float or Tensor
        Upper bound of the relative step size.
    beta2_decay : float
        Exponent of the decay rate of mean squares: ``1 - t ** beta2_decay`` in step t.
    eps : (float or None, float)
        Two lower bounds. The first is that of ``sqrt(v)``, which gradients are divided by; by
        default the machine epsilon of the dtype. The second is that of ``rms(p)``, to which the
        step size is proportional.
    d : float
        Clipping threshold. An update whose root mean square is larger is scaled down to the
        threshold.
    weight_decay : float
        Decoupled weight decay: each step subtracts ``lr * weight_decay * param``.
    maximize : bool
        Whether to maximize the objective instead of minimizing it.
    **ways : bool, optional
        As in :class:`Optimizer`.

    Raises
    ------
    DomainError
        `beta2_decay` is above 0, or `d` is below 1.

    Examples
    --------
    >>> w = krt.tensor([[3.0, 0.0], [0.0, 4.0]], requires_grad=True)
    >>> opt = krt.optim.Adafactor([w], lr=0.5)
    >>> (w * w).sum().backward()
    >>> opt.step()
    >>> opt.state[w]["row_var"].tolist(), opt.state[w]["col_var"].tolist()
    ([[18.0], [32.0]], [[18.0, 32.0]])
    """

    _plain = True
    beta2_decay = Hyperparameter(any_number)
    eps = Hyperparameter(_epsilons)
    d = Hyperparameter(positive)
    weight_decay = Hyperparameter(non_negative, live=True)
    maximize = Hyperparameter(flag)

    def __init__(
        self, params: Params, lr: float | Tensor = 1e-2, beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3), d: float = 1.0, weight_decay: float = 0.0,
        *, maximize: bool = False, **ways: Unpack[TorchOptions],
    ) -> None:  # fmt: skip
        options = {
            "beta2_decay": beta2_decay, "eps": eps, "d": d, "weight_decay": weight_decay,
            "maximize": maximize,
        }  # fmt: skip
        super().__init__(params, lr, options, **ways)

    @classmethod
    def _prepare(cls, group: Group) -> None:
        if group["beta2_decay"] > 0:
            raise DomainError(
                f"beta2_decay: expected at most 0, not {group['beta2_decay']}"
            )
        if group["d"] < 1:
            raise DomainError(f"d: expected at least 1, not {group['d']}")
        group.scalars("step")
        if "row_var" in group.state:
            return
        rows, columns, flat = [], [], []
        for param in group.params:
            shape = tuple(int(d) for d in param.shape)
            many = len(shape) > 1
            rows.append(state_of((*shape[:-1], 1) if many else (0,), param.dtype))
            columns.append(state_of((*shape[:-2], 1, shape[-1]) if many else (0,), param.dtype))
            flat.append(state_of((0,) if many else shape, param.dtype))
        group.state |= {"row_var": rows, "col_var": columns, "variance": flat}

    def _changes(self, group: Group, active: Active) -> list[tuple[Tensor, Tensor]]:
        old, (least, small) = group.scalars("step"), group["eps"]
        counts = group.only(active, old + 1, old)
        fresh = (counts ** group["beta2_decay"]).contiguous()
        rates = group.rate.minimum(counts.rsqrt()).contiguous()
        new: list[tuple[Tensor, Tensor]] = [(old, counts)]
        for i, param, grad in active:
            kind, floor = param.dtype, 2.0 ** (1 - param.dtype.digits) if least is None else least
            alpha = _least(param.norm() / math.sqrt(param.numel()), small)
            alpha = alpha * rates[i].cast(kind)
            value = param
            if group.on("weight_decay"):
                value = param * (1 - group.rate * group["weight_decay"]).cast(kind)
            square = self._mean_square(group, i, grad, fresh[i].cast(kind), floor, new)
            update = grad * square.clamp(min=floor * floor).rsqrt()
            size = update.norm() / (math.sqrt(param.numel()) * group["d"])
            new.append((param, value - update * (alpha / _least(size, 1.0))))
        return new

    def _mean_square(
        self, group: Group, i: int, grad: Tensor, fresh: Tensor, floor: float,
        new: list[tuple[Tensor, Tensor]],
    ) -> Tensor:  # fmt: skip
        """Return the running mean of squares. Append the new values of its state to `new`."""
        found = {name: group.zeros(name)[i] for name in ("row_var", "col_var", "variance")}
        if grad.ndim < 2:
            held = found["variance"]
            square = held + (grad * grad - held) * fresh
            new.append((held, square))
            return square
        sides = []
        for name, dim in (("row_var", -1), ("col_var", -2)):
            held = found[name]
            mean = (grad * grad).sum(dim, keepdim=True) / float(grad.shape[dim])
            sides.append(held + (mean - held) * fresh)
            new.append((held, sides[-1]))
        row, column = sides
        return row * column / row.mean(-2, keepdim=True).clamp(min=floor)


def _least(x: Tensor, least: float) -> Tensor:
    """Return the greater of `x` and `least`; `least` if `x` is NaN."""
    return x.where(x > least, least)


#: A, B and C of x -> A x + B x^3 + C x^5. With these values by Keller Jordan, five iterations map
#: numbers between 0 and 1 close to 1 (kellerjordan.github.io/posts/muon).
_QUINTIC: Final = (3.4445, -4.775, 2.0315)


class Muon(Optimizer):
    """Muon (Jordan and others, 2024), for matrices, as in ``torch.optim.Muon``.

    The step is the momentum matrix, made nearly orthogonal by Newton-Schulz iterations. kernelrt
    computes these in the accumulation dtype of the parameter, while PyTorch computes them in
    bfloat16. A step changes a matrix ``p`` with gradient ``g`` as follows::

        b = momentum * b + (1 - momentum) * g
        s = (1 - momentum) * g + momentum * b        # without nesterov: b
        p = p * (1 - lr * weight_decay) - lr * factor * orthogonal(s)

    ``factor`` is that of `adjust_lr_fn`, and ``b`` is in the state as ``momentum_buffer``.
    ``orthogonal`` divides its argument by the norm, and then repeats, with the coefficients ``(a,
    b, c)``::

        y = x @ x.T
        x = a * x + (b * y + c * y @ y) @ x

    The default coefficients are Keller Jordan's (kellerjordan.github.io/posts/muon).

    Parameters
    ----------
    params : iterable of Tensor, or of dict
        Matrices to optimize. Use another optimizer, such as AdamW, for everything else.
    lr : float or Tensor
        Learning rate.
    weight_decay : float
        Decoupled weight decay: each step subtracts ``lr * weight_decay * param``.
    momentum : float
        Fraction of the momentum that is kept.
    nesterov : bool
        Whether to use Nesterov momentum.
    ns_coefficients : (float, float, float)
        Coefficients of the odd polynomial of an iteration.
    eps : float
        Lower bound of the norm that the momentum is divided by.
    ns_steps : int
        Number of iterations, below 100.
    adjust_lr_fn : "original", "match_rms_adamw" or None
        Factor of the learning rate for a matrix of shape (n, m): ``sqrt(max(1, n / m))`` for
        "original" and None, ``0.2 * sqrt(max(n, m))`` for "match_rms_adamw".
    **ways : bool, optional
        As in :class:`Optimizer`.

    Raises
    ------
    DomainError
        `ns_steps` is 100 or more.
    ShapeError
        A parameter is not a matrix.

    Examples
    --------
    >>> w = krt.tensor([[4.0, 0.0], [0.0, 4.0]], requires_grad=True)
    >>> opt = krt.optim.Muon([w], lr=0.5, weight_decay=0.0)
    >>> (w * w).sum().backward()
    >>> before = w.detach().clone()
    >>> opt.step()
    >>> moved = before - w.detach()                  # about 0.5 times the identity matrix
    >>> moved[0, 1].item(), 0.25 < moved[0, 0].item() < 0.75
    (0.0, True)
    """

    _plain = True
    weight_decay = Hyperparameter(non_negative, live=True)
    momentum = Hyperparameter(non_negative, live=True)
    nesterov = Hyperparameter(flag)
    ns_coefficients = Hyperparameter(numbers(3))
    eps = Hyperparameter(non_negative)
    ns_steps = Hyperparameter(whole(0))
    adjust_lr_fn = Hyperparameter(one_of((None, "original", "match_rms_adamw")))

    def __init__(
        self, params: Params, lr: float | Tensor = 1e-3, weight_decay: float = 0.1,
        momentum: float = 0.95, nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = _QUINTIC, eps: float = 1e-7,
        ns_steps: int = 5, adjust_lr_fn: str | None = None, **ways: Unpack[TorchOptions],
    ) -> None:  # fmt: skip
        options = {
            "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov,
            "ns_coefficients": ns_coefficients, "eps": eps, "ns_steps": ns_steps,
            "adjust_lr_fn": adjust_lr_fn,
        }  # fmt: skip
        super().__init__(params, lr, options, **ways)

    @classmethod
    def _prepare(cls, group: Group) -> None:
        if group["ns_steps"] >= 100:
            raise DomainError(f"ns_steps: expected fewer than 100, not {group['ns_steps']}")
        for i, param in enumerate(group.params):
            if param.ndim != 2 + (group.members is not None):
                raise ShapeError(
                    f"params[{i}]: expected a matrix, as Muon updates no others, not shape "
                    f"{param.shape}; give this parameter to another optimizer, such as AdamW"
                )
        group.zeros("momentum_buffer")

    def _changes(self, group: Group, active: Active) -> list[tuple[Tensor, Tensor]]:
        new: list[tuple[Tensor, Tensor]] = []
        momentum = group["momentum"]
        for i, param, grad in active:
            held, rest = group.zeros("momentum_buffer")[i], at(1 - momentum, param)
            buffer = held + (grad - held) * rest
            direction = buffer
            if group["nesterov"]:
                direction = grad + (buffer - grad) * at(momentum, param)
            rows, columns = (int(d) for d in param.shape)
            factor = math.sqrt(max(1, rows / columns))
            if group["adjust_lr_fn"] == "match_rms_adamw":
                factor = 0.2 * math.sqrt(max(rows, columns))
            value = param
            if group.on("weight_decay"):
                value = param * (1 - group.rate * group["weight_decay"]).cast(param.dtype)
            size = (group.rate * factor).cast(param.dtype)
            new += [(held, buffer), (param, value - _orthogonal(group, direction) * size)]
        return new


def _orthogonal(group: Group, matrix: Tensor) -> Tensor:
    """Return `matrix` with its singular values mapped close to 1."""
    a, b, c = group["ns_coefficients"]
    wide = dt.float32 if matrix.dtype.itemsize < 4 else matrix.dtype
    x = matrix.cast(wide)
    tall = int(x.shape[0]) > int(x.shape[1])
    x = x.mT if tall else x
    x = x / x.norm().clamp(min=group["eps"])
    for _ in range(group["ns_steps"]):
        gram = x @ x.mT
        x = x * a + (gram * b + (gram @ gram) * c) @ x
    return (x.mT if tall else x).cast(matrix.dtype)
