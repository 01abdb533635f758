"""Averages of weights: stochastic weight averaging and exponential moving averages."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from kernelrt.device.dlpack import refuse_torch_module
from kernelrt.errors import DomainError, DTypeError, ShapeError
from kernelrt.nn.module import Module
from kernelrt.nn.optim.hyperparameters import fraction, one_of, whole
from kernelrt.nn.optim.lr_scheduler.lr_base import LRScheduler, check_optimizer, per_group
from kernelrt.nn.tree import named_tensors
from kernelrt.tensor import Tensor
from kernelrt.tensor.base import is_parameter
from kernelrt.tensor.eager.assign import assign_all
from kernelrt.tensor.eager.realize import realize
from kernelrt.tensor.free_functions.creation import tensor
from kernelrt.tensor.state import no_grad

if TYPE_CHECKING:
    from kernelrt.nn.optim.optimizer import Optimizer

__all__ = ["SWALR", "AveragedModel", "get_ema_avg_fn", "get_ema_multi_avg_fn", "get_swa_avg_fn",
           "get_swa_multi_avg_fn", "update_bn"]  # fmt: skip

#: Function of the average, the value and the number of averaged values; returns the new average.
AverageFunction = Callable[[Tensor, Tensor, Tensor], Tensor]
#: Function of lists of the averages and the values, and of their number; it assigns to the
#: averages.
ManyFunction = Callable[[list[Tensor], list[Tensor], Tensor], None]


def get_swa_avg_fn() -> AverageFunction:
    """Return the update function of a running mean of all values.

    Returns
    -------
    callable
        Function of the average, the value and the number of averaged values; it returns ``average +
        (value - average) / (count + 1)``.

    Examples
    --------
    >>> mean = krt.optim.swa_utils.get_swa_avg_fn()
    >>> mean(krt.tensor([2.0]), krt.tensor([4.0]), krt.tensor(1)).tolist()
    [3.0]
    """

    def mean(averaged: Tensor, value: Tensor, count: Tensor) -> Tensor:
        return averaged + (value - averaged) / (count + 1).cast(averaged.dtype)

    return mean


def get_ema_avg_fn(decay: float = 0.999) -> AverageFunction:
    """Return the update function of an exponential moving average.

    Parameters
    ----------
    decay : float
        Weight of the old average, from 0 to 1.

    Returns
    -------
    callable
        Function of the average, the value and the number of averaged values; it returns ``decay *
        average + (1 - decay) * value``.

    Raises
    ------
    DomainError
        `decay` is below 0 or above 1.

    Examples
    --------
    >>> moving = krt.optim.swa_utils.get_ema_avg_fn(0.75)
    >>> moving(krt.tensor([2.0]), krt.tensor([4.0]), krt.tensor(1)).tolist()
    [2.5]
    """
    share = fraction("decay", decay)

    def moving(averaged: Tensor, value: Tensor, _count: Tensor) -> Tensor:
        return averaged * share + value * (1 - share)

    return moving


def _many(function: AverageFunction) -> ManyFunction:
    def average(averaged: list[Tensor], values: list[Tensor], count: Tensor) -> None:
        pairs = zip(averaged, values, strict=True)
        assign_all([(a, function(a, v, count).cast(a.dtype)) for a, v in pairs])

    return average


def get_swa_multi_avg_fn() -> ManyFunction:
    """Return the update function of a running mean, for lists of tensors.

    Returns
    -------
    callable
        Function of the averages, the values and the number of averaged values; it assigns the new
        averages to the old ones.

    Examples
    --------
    >>> averages, values = [krt.tensor([2.0])], [krt.tensor([4.0])]
    >>> krt.optim.swa_utils.get_swa_multi_avg_fn()(averages, values, krt.tensor(1))
    >>> averages[0].tolist()
    [3.0]
    """
    return _many(get_swa_avg_fn())


def get_ema_multi_avg_fn(decay: float = 0.999) -> ManyFunction:
    """Return the update function of an exponential moving average, for lists of tensors.

    Parameters
    ----------
    decay : float
        Weight of the old average, from 0 to 1.

    Returns
    -------
    callable
        Function of the averages, the values and the number of averaged values; it assigns the new
        averages to the old ones.

    Examples
    --------
    >>> averages, values = [krt.tensor([2.0])], [krt.tensor([4.0])]
    >>> krt.optim.swa_utils.get_ema_multi_avg_fn(0.75)(averages, values, krt.tensor(1))
    >>> averages[0].tolist()
    [2.5]
    """
    return _many(get_ema_avg_fn(decay))


class AveragedModel(Module):
    """A copy of a model whose parameters are averages of the model's parameters.

    Parameters
    ----------
    model : Module
        Model whose parameters to average.
    device : str, optional
        "cpu", the only device.
    avg_fn : callable, optional
        Function of the average, the parameter and the number of averaged values; it returns the new
        average. By default the average is the mean of all values.
    multi_avg_fn : callable, optional
        Alternative to `avg_fn`, for all parameters at once. Function of the list of averages, the
        list of parameters and the number of averaged values; it assigns the new averages to the old
        ones.
    use_buffers : bool
        Whether to average the floating-point buffers of the model, too. Otherwise they are copied.

    Attributes
    ----------
    module : Module
        The averaged copy.
    n_averaged : Tensor
        Number of averaged values, int64 of shape ().

    Raises
    ------
    DTypeError
        `model` is not a Module.
    ShapeError
        Both `avg_fn` and `multi_avg_fn` are given.

    Examples
    --------
    >>> model = krt.nn.Linear(1, 1)
    >>> averaged = krt.optim.swa_utils.AveragedModel(model)
    >>> for value in (1.0, 3.0):
    ...     with krt.no_grad():
    ...         _ = model.weight.fill_(value)
    ...     averaged.update_parameters(model)
    >>> averaged.module.weight.tolist(), averaged.n_averaged.item()
    ([[2.0]], 2)
    """

    def __init__(
        self, model: Module, device: object = None, avg_fn: AverageFunction | None = None,
        multi_avg_fn: ManyFunction | None = None, use_buffers: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        if device not in (None, "cpu"):
            raise DomainError(f"device: expected 'cpu' or None, not {device!r}")
        if not isinstance(model, Module):
            refuse_torch_module(model, "model")
            raise DTypeError(f"model: expected a Module, not {type(model).__name__}")
        if avg_fn is not None and multi_avg_fn is not None:
            raise ShapeError("avg_fn: pass avg_fn or multi_avg_fn, not both")
        self.module = copy.deepcopy(model)
        self.n_averaged = tensor(0)
        realize(self.n_averaged)
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the averaged copy.

        Parameters
        ----------
        *args, **kwargs : object
            Arguments of the model.

        Returns
        -------
        object
            Result of the averaged copy.
        """
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Module) -> None:
        """Add the parameters of `model` to the averages; the first call copies them.

        A jitted function may call this.

        Parameters
        ----------
        model : Module
            Module with parameters of the same shapes, usually the model that was passed to the
            constructor.

        Raises
        ------
        ShapeError
            A parameter has another shape than its average.
        """
        mine, other = (_split(m, both=self.use_buffers) for m in (self.module, model))
        for (name, a), (_, b) in zip(mine[0] + mine[1], other[0] + other[1], strict=True):
            if a.shape != b.shape:
                raise ShapeError(f"model: expected {name} of shape {a.shape}, not {b.shape}")
        averaged, values = ([t for _, t in side[0]] for side in (mine, other))
        with no_grad():
            first = self.n_averaged == 0
            values = [v.detach().cast(a.dtype) for a, v in zip(averaged, values, strict=True)]
            pairs = [(a, b.detach()) for (_, a), (_, b) in zip(mine[1], other[1], strict=True)]
            counted = (self.n_averaged, self.n_averaged + 1)
            if self.multi_avg_fn is None:
                rule = self.avg_fn or get_swa_avg_fn()
                news = [rule(a, v, self.n_averaged) for a, v in zip(averaged, values, strict=True)]
                kept = [(a, v.where(first, new.cast(a.dtype)))
                        for a, v, new in zip(averaged, values, news, strict=True)]  # fmt: skip
                assign_all([*kept, *pairs, counted])
                return
            # The mean of equal values is that value, so the first update averages it with itself.
            assign_all([(a, v.where(first, a)) for a, v in zip(averaged, values, strict=True)])
            self.multi_avg_fn(averaged, values, self.n_averaged)
            assign_all([(a, v.where(first, a)) for a, v in zip(averaged, values, strict=True)])
            assign_all([*pairs, counted])


Named = list[tuple[str, Tensor]]


def _split(model: Module, *, both: bool) -> tuple[Named, Named]:
    """Return the tensors to average, and those to copy."""
    found: dict[int, tuple[str, Tensor]] = {}
    for name, held in named_tensors(model):
        found.setdefault(id(held), (name, held))
    averaged: Named = []
    copied: Named = []
    for name, held in found.values():
        mixes = held.dtype.is_float and (both or is_parameter(held))
        (averaged if mixes else copied).append((name, held))
    return averaged, copied


class SWALR(LRScheduler):
    """Anneal the learning rate to a constant, for stochastic weight averaging.

    The averaging is that of Izmailov and others (Averaging Weights Leads to Wider Optima and Better
    Generalization, arXiv:1803.05407, 2018).

    Parameters
    ----------
    optimizer : Optimizer
        Optimizer whose learning rates the schedule sets.
    swa_lr : float or list of float
        Final learning rate, one for all groups or one for each group.
    anneal_epochs : int
        Number of epochs until the learning rate is `swa_lr`.
    anneal_strategy : "cos" or "linear"
        Shape of the curve.
    last_epoch : int
        Epoch after which to resume; -1 starts anew.

    Examples
    --------
    >>> opt = krt.optim.SGD([krt.zeros(1, requires_grad=True)], lr=1.0)
    >>> schedule = krt.optim.swa_utils.SWALR(opt, 0.5, anneal_epochs=2, anneal_strategy="linear")
    >>> for _ in range(3):
    ...     print(opt.lr)
    ...     opt.step()
    ...     schedule.step()
    1.0
    0.75
    0.5
    """

    def __init__(
        self, optimizer: Optimizer, swa_lr: float | list[float], anneal_epochs: int = 10,
        anneal_strategy: str = "cos", last_epoch: int = -1,
    ) -> None:  # fmt: skip
        check_optimizer(optimizer)
        for rate, group in zip(
            per_group("swa_lr", optimizer, swa_lr), optimizer.param_groups, strict=True
        ):
            group["swa_lr"] = rate
        one_of(("cos", "linear"))("anneal_strategy", anneal_strategy)
        self._straight = anneal_strategy == "linear"
        self.anneal_epochs = whole(0)("anneal_epochs", anneal_epochs)
        super().__init__(optimizer, last_epoch)

    def _share(self, step: int) -> float:
        passed = max(0.0, min(1.0, step / max(1, self.anneal_epochs)))
        return passed if self._straight else (1 - math.cos(math.pi * passed)) / 2

    def get_lr(self) -> list[float]:
        """Return the learning rates of this epoch, computed from those of the previous epoch."""
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = self._share(step - 1), self._share(step)
        rates = []
        for group in self._groups:
            rate, last = group["lr"], group["swa_lr"]
            first = last if before == 1 else (rate - before * last) / (1 - before)
            rates.append(last * now + first * (1 - now))
        return rates


def update_bn(loader: Iterable[Any], model: Module, device: object = None) -> None:
    """Recompute the running means and variances of batch normalization layers.

    Parameters
    ----------
    loader : iterable
        Batches: input tensors, or tuples or lists whose first item is the input.
    model : Module
        Its modules with ``running_mean`` and ``running_var`` are updated in place.
    device : str, optional
        "cpu", the only device.

    Examples
    --------
    >>> model = krt.nn.Sequential(krt.nn.BatchNorm1d(1))
    >>> krt.optim.swa_utils.update_bn([krt.tensor([[1.0], [3.0]])], model)
    >>> model[0].running_mean.tolist(), model[0].running_var.tolist()
    ([2.0], [2.0])
    """
    if device not in (None, "cpu"):
        raise DomainError(f"device: expected 'cpu', not {device!r}")
    norms = [m for m in model.modules() if getattr(m, "running_mean", None) is not None]
    if not norms:
        return
    held = [(m, m.momentum) for m in norms]  # type: ignore[attr-defined]
    was_training = model.training
    for norm in norms:
        norm.running_mean.zero_()  # type: ignore[attr-defined]
        norm.running_var.fill_(1)  # type: ignore[attr-defined]
        if isinstance(seen := getattr(norm, "num_batches_tracked", None), Tensor):
            seen.zero_()
    model.train()
    try:
        with no_grad():
            for k, batch in enumerate(loader):
                for norm in norms:
                    norm.momentum = 1 / (k + 1)
                model(batch[0] if isinstance(batch, tuple | list) else batch)
    finally:
        for norm, momentum in held:
            norm.momentum = momentum
        model.train(was_training)
