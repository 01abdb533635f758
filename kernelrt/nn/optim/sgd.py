"""Stochastic gradient descent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kernelrt.errors import ShapeError
from kernelrt.nn.optim.hyper import Hyperparameter, flag, non_negative
from kernelrt.nn.optim.optimizer import Optimizer, ones_state
from kernelrt.tensor.assign import assign_all
from kernelrt.tensor.creation import tensor

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator

    from kernelrt.tensor import Tensor

__all__ = ["SGD"]


class SGD(Optimizer):
    """Stochastic gradient descent with momentum, as in ``torch.optim.SGD``.

    Parameters
    ----------
    params : iterable of Tensor
        What to optimize.
    lr : float or Tensor
        Learning rate.
    momentum : float
        How much of the last update stays in the next.
    dampening : float
        How much of the gradient is kept out of the momentum, after the first step. When it is
        set later, a momentum of zeros counts as one before the first step.
    weight_decay : float
        L2 penalty: so much of the parameter is added to its gradient.
    nesterov : bool
        Look ahead along the momentum; needs a momentum and no dampening.
    """

    momentum = Hyperparameter(non_negative)
    dampening = Hyperparameter(non_negative)
    weight_decay = Hyperparameter(non_negative)
    nesterov = Hyperparameter(flag)

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float | Tensor = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ) -> None:
        super().__init__(params, lr)
        self.momentum = momentum
        self.dampening = dampening
        self.weight_decay = weight_decay
        self.nesterov = nesterov
        self._buffers: list[Tensor] = []
        self._shares: Tensor | None = None
        self.adjust()

    def adjust(self) -> None:
        """Make the state that a momentum and a dampening need."""
        if self.nesterov and (not self.momentum or self.dampening):
            raise ShapeError(
                f"nesterov: needs a positive momentum and no dampening, not momentum="
                f"{self.momentum} and dampening={self.dampening}"
            )
        if not self.momentum:
            return
        # PyTorch keeps the whole of the first gradient, whatever the dampening.
        shares = np.ones(len(self.params))
        if not self._buffers:
            self._buffers = self._zeros()
        else:
            shares[[b.numpy().any() for b in self._buffers]] = 1 - self.dampening
        if self.dampening:
            if self._shares is None:
                self._shares = ones_state(len(self.params))
            self._shares.assign(tensor(shares))

    def _numbers(self) -> Hashable:
        if type(self) is not SGD:
            return None  # what the update of a derived class depends on is not known
        return self.momentum, self.dampening, self.weight_decay, self.nesterov

    def _update(self, active: list[tuple[int, Tensor, Tensor]]) -> None:
        new: list[tuple[Tensor, Tensor]] = []
        for i, param, grad in active:
            if self.weight_decay:
                grad = grad + param * self.weight_decay  # noqa: PLW2901
            update = grad
            if self.momentum:
                update = self._buffers[i] * self.momentum + self._kept(i, grad)
                new.append((self._buffers[i], update))
                if self.nesterov:
                    update = grad + update * self.momentum
            new.append((param, param - update * self._lr.cast(param.dtype)))
        if self._shares is not None and self.dampening:
            later = self._shares * 0 + (1 - self.dampening)
            new.append((self._shares, self._only(active, later, self._shares)))
        assign_all(new)

    def _kept(self, i: int, grad: Tensor) -> Tensor:
        """Take the part of gradient `i` that goes into the momentum."""
        if self._shares is None or not self.dampening:
            return grad
        return grad * self._shares[i].cast(grad.dtype)

    def tree_items(self) -> Iterator[tuple[str, object]]:
        """(name, tensor or list of tensors) for what a checkpoint needs beside the parameters."""
        yield from super().tree_items()
        if self._buffers:
            yield "momentum_buffer", self._buffers
        if self._shares is not None:
            yield "gradient_share", self._shares

    def _options(self) -> dict[str, object]:
        return super()._options() | {
            "momentum": self.momentum,
            "dampening": self.dampening,
            "weight_decay": self.weight_decay,
            "nesterov": self.nesterov,
        }
