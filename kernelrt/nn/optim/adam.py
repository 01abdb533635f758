"""Adam and AdamW."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt.nn.optim.hyper import Hyperparameter, decays, non_negative
from kernelrt.nn.optim.optimizer import Optimizer, counts_state
from kernelrt.tensor.assign import assign_all

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator

    from kernelrt.tensor import Tensor

__all__ = ["Adam", "AdamW"]


class Adam(Optimizer):
    """Adam (Kingma and Ba, arXiv:1412.6980), as in ``torch.optim.Adam``.

    Parameters
    ----------
    params : iterable of Tensor
        What to optimize.
    lr : float or Tensor
        Learning rate.
    betas : (float, float)
        Decay of the running means of the gradient and of its square.
    eps : float
        Added to the denominator.
    weight_decay : float
        L2 penalty: so much of the parameter is added to its gradient.
    """

    betas = Hyperparameter(decays)
    eps = Hyperparameter(non_negative)
    weight_decay = Hyperparameter(non_negative)

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, lr)
        self.betas = betas
        self.eps = eps
        self.weight_decay = weight_decay
        self._means = self._zeros()
        self._squares = self._zeros()
        # The steps of each parameter are those in which it had a gradient.
        self._counts = counts_state(len(self.params))

    def _numbers(self) -> Hashable:
        # What the update of a class derived from these depends on is not known.
        if type(self) not in (Adam, AdamW):
            return None
        return self.betas, self.eps, self.weight_decay

    def _update(self, active: list[tuple[int, Tensor, Tensor]]) -> None:
        beta1, beta2 = self.betas
        counts = self._only(active, self._counts + 1, self._counts)
        # Scalars of the step, computed once and not again for each element.
        sizes = (self._lr / (1 - beta1**counts)).contiguous()
        scales = (1 - beta2**counts).rsqrt().contiguous()
        new: list[tuple[Tensor, Tensor]] = []
        for i, param, grad in active:
            value, grad = self._decay(param, grad)  # noqa: PLW2901
            size, scale = sizes[i].cast(param.dtype), scales[i].cast(param.dtype)
            mean, square = self._means[i], self._squares[i]
            mean = mean.addcmul(grad - mean, 1 - beta1)
            square = (grad * grad * (1 - beta2)).addcmul(square, beta2)
            step = mean * size / (square.sqrt() * scale + self.eps)
            new += [(param, value - step), (self._means[i], mean), (self._squares[i], square)]
        assign_all([*new, (self._counts, counts)])

    def _decay(self, param: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
        """Parameter and gradient with the weight decay in one of them."""
        return param, grad + param * self.weight_decay if self.weight_decay else grad

    def tree_items(self) -> Iterator[tuple[str, object]]:
        """(name, tensor or list of tensors) for what a checkpoint needs beside the parameters."""
        yield from super().tree_items()
        yield "step", self._counts
        yield "exp_avg", self._means
        yield "exp_avg_sq", self._squares

    def _options(self) -> dict[str, object]:
        return super()._options() | {
            "betas": self.betas,
            "eps": self.eps,
            "weight_decay": self.weight_decay,
        }


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter, arXiv:1711.05101).

    Parameters
    ----------
    params, lr, betas, eps
        As in :class:`Adam`.
    weight_decay : float
        Each step takes ``lr * weight_decay`` of the parameter away.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay)

    def _decay(self, param: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
        if not self.weight_decay:
            return param, grad
        factor = (1 - self._lr * self.weight_decay).cast(param.dtype)
        return param * factor, grad
