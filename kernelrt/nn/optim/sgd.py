"""Stochastic gradient descent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt.errors import ShapeError
from kernelrt.nn.optim.optimizer import Optimizer, non_negative, ones_state
from kernelrt.tensor.base import assign_all

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

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
        How much of the gradient is kept out of the momentum, after the first step.
    weight_decay : float
        L2 penalty: so much of the parameter is added to its gradient.
    nesterov : bool
        Look ahead along the momentum; needs a momentum and no dampening.
    """

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
        self._momentum = non_negative("momentum", momentum)
        self._dampening = non_negative("dampening", dampening)
        self._weight_decay = non_negative("weight_decay", weight_decay)
        self._nesterov = bool(nesterov)
        if nesterov and (not momentum or dampening):
            raise ShapeError(
                f"nesterov: needs a positive momentum and no dampening, not momentum={momentum} "
                f"and dampening={dampening}"
            )
        self._buffers = self._zeros() if momentum else []
        # PyTorch keeps the whole of the first gradient, whatever the dampening.
        self._shares = ones_state(len(self.params)) if momentum and dampening else None

    def _update(self, active: list[tuple[int, Tensor, Tensor]]) -> None:
        new: list[tuple[Tensor, Tensor]] = []
        for i, param, grad in active:
            if self._weight_decay:
                grad = grad + param * self._weight_decay  # noqa: PLW2901
            update = grad
            if self._momentum:
                update = self._buffers[i] * self._momentum + self._kept(i, grad)
                new.append((self._buffers[i], update))
                if self._nesterov:
                    update = grad + update * self._momentum
            new.append((param, param - update * self._lr.cast(param.dtype)))
        if self._shares is not None:
            later = self._shares * 0 + (1 - self._dampening)
            new.append((self._shares, self._only(active, later, self._shares)))
        assign_all(new)

    def _kept(self, i: int, grad: Tensor) -> Tensor:
        """Take the part of gradient `i` that goes into the momentum."""
        return grad if self._shares is None else grad * self._shares[i].cast(grad.dtype)

    def tree_items(self) -> Iterator[tuple[str, object]]:
        """(name, tensor or list of tensors) for what a checkpoint needs beside the parameters."""
        yield from super().tree_items()
        if self._buffers:
            yield "momentum_buffer", self._buffers
        if self._shares is not None:
            yield "gradient_share", self._shares

    def _options(self) -> dict[str, object]:
        return super()._options() | {
            "momentum": self._momentum,
            "dampening": self._dampening,
            "weight_decay": self._weight_decay,
            "nesterov": self._nesterov,
        }
