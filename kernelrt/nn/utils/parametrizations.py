"""weight_norm, spectral_norm and orthogonal as parametrizations."""

from __future__ import annotations

from typing import TypeVar

from kernelrt.errors import ShapeError, StateError
from kernelrt.ir.shape import format_shape
from kernelrt.nn.module import Module
from kernelrt.nn.utils.norms import norm_along, power_iteration
from kernelrt.nn.utils.parametrize import register_parametrization
from kernelrt.tensor import Tensor
from kernelrt.tensor.free_functions.creation import eye
from kernelrt.tensor.nodes.arguments import axis_of
from kernelrt.tensor.rng.random import normal
from kernelrt.tensor.state import no_grad

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]

M = TypeVar("M", bound=Module)


def _weight(module: Module, name: str) -> Tensor:
    found = getattr(module, name, None)
    if not isinstance(found, Tensor):
        raise StateError(f"name: {type(module).__name__} has no tensor {name!r}")
    return found


class _WeightNorm(Module):
    def __init__(self, axis: int | None) -> None:
        self.axis = axis

    def forward(self, length: Tensor, direction: Tensor) -> Tensor:
        return direction * (length / norm_along(direction, self.axis))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return norm_along(weight, self.axis), weight


def weight_norm(module: M, name: str = "weight", dim: int | None = 0) -> M:
    """Let a weight be ``g * v / |v|``, of two parameters.

    Salimans and Kingma, arXiv:1602.07868. They are ``parametrizations.{name}.original0`` and
    ``original1``.

    Parameters
    ----------
    module : Module
        The layer, which is changed.
    name : str
        Of its parameter.
    dim : int, optional
        The axis along which each slice has a norm of its own; with None there is one for all.

    Returns
    -------
    Module
        The layer.
    """
    weight = _weight(module, name)
    axis = None if dim is None else axis_of(dim, weight.ndim)
    return register_parametrization(module, name, _WeightNorm(axis))


class _SpectralNorm(Module):
    def __init__(self, weight: Tensor, rounds: int, axis: int, least: float) -> None:
        self.rounds, self.axis, self.least = rounds, axis, least
        rows, columns = self._matrix(weight).shape
        self._u = normal(rows, dtype=weight.dtype).normalize(dim=0, eps=least).detach()
        self._v = normal(columns, dtype=weight.dtype).normalize(dim=0, eps=least).detach()
        self._improve(weight, 15)

    def _matrix(self, weight: Tensor) -> Tensor:
        out = weight.movedim(self.axis, 0) if weight.ndim > 1 else weight.unsqueeze(1)
        return out.flatten(1)

    def _improve(self, weight: Tensor, rounds: int) -> None:
        with no_grad():
            w = self._matrix(weight).detach()
            left, right = self._u.detach(), self._v.detach()
            for _ in range(rounds):
                left = (w @ right).normalize(dim=0, eps=self.least)
                right = (w.mT @ left).normalize(dim=0, eps=self.least)
            self._u.assign(left)
            self._v.assign(right)

    def forward(self, weight: Tensor) -> Tensor:
        if self.training:
            self._improve(weight, self.rounds)
        u, v = self._u.detach().clone(), self._v.detach().clone()
        return weight / (u * (self._matrix(weight) @ v)).sum()

    def right_inverse(self, weight: Tensor) -> Tensor:
        return weight


def spectral_norm(
    module: M, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12,
    dim: int | None = None,
) -> M:  # fmt: skip
    """Let a weight be a parameter over its greatest singular value.

    Miyato et al., arXiv:1802.05957. The value is found by power iteration: in training each use of
    the weight does some more of it, from where the last one ended.

    Parameters
    ----------
    module : Module
        The layer, which is changed.
    name : str
        Of its parameter.
    n_power_iterations : int
        How many times the vectors are improved in each use.
    eps : float
        The least norm to divide by.
    dim : int, optional
        The axis of rows; 0 if not given, and 1 for transposed convolutions.

    Returns
    -------
    Module
        The layer.
    """
    weight = _weight(module, name)
    made = _SpectralNorm(weight, *power_iteration(module, weight, n_power_iterations, eps, dim))
    made.train(module.training)
    return register_parametrization(module, name, made)


class _Orthogonal(Module):
    def __init__(self, weight: Tensor, cayley: bool) -> None:
        self.cayley = cayley
        rows, columns = weight.shape[-2:]
        self.wide = bool(rows < columns)
        self.base = self._nearest(weight)

    def _tall(self, weight: Tensor) -> Tensor:
        return weight.mT if self.wide else weight

    def _nearest(self, weight: Tensor) -> Tensor:
        """A whole basis that begins with what the columns span, in their directions."""
        with no_grad():
            tall = self._tall(weight.detach())
            k = tall.shape[-1]
            q, r = tall.qr(some=False)
            signs = r[..., :k, :].diagonal(dim1=-2, dim2=-1).sign()
            signs = signs + (signs == 0).cast(signs.dtype)
            more = tall.shape[-2] - k
            return (q * signs.pad((0, more), value=1).unsqueeze(-2)).realize()

    def forward(self, x: Tensor) -> Tensor:
        lower = self._tall(x).tril(-1)
        n, k = (int(d) for d in lower.shape[-2:])
        lower = lower.pad((0, n - k))
        turned = lower - lower.mT
        if self.cayley:
            one = eye(n, dtype=x.dtype)
            q = (one - turned * 0.5).inverse() @ (one + turned * 0.5)
        else:
            q = turned.matrix_exp()
        out = (self.base.detach() @ q)[..., :k]
        return out.mT if self.wide else out

    def right_inverse(self, weight: Tensor) -> Tensor:
        self.base.assign(self._nearest(weight))
        return weight.detach() * 0


def orthogonal(module: M, name: str = "weight", orthogonal_map: str | None = None) -> M:
    """Let the columns of a weight, or its rows if there are less, stay orthonormal.

    The weight is a fixed orthogonal matrix, which the first value makes, times the exponential of
    a skew-symmetric one, or its Cayley transform, whose lower triangle is the parameter (Lezcano
    and Martinez-Rubio, arXiv:1901.08428).

    Parameters
    ----------
    module : Module
        The layer, which is changed.
    name : str
        Of its parameter, of at least two axes, the last two of which are the matrices.
    orthogonal_map : "matrix_exp" or "cayley"
        The exponential, or the cheaper transform.

    Returns
    -------
    Module
        The layer.
    """
    weight = _weight(module, name)
    if weight.ndim < 2:
        raise ShapeError(f"name: expected matrices, not the shape {format_shape(weight.dims)}")
    if orthogonal_map not in (None, "matrix_exp", "cayley"):
        raise ShapeError(
            f"orthogonal_map: expected 'matrix_exp' or 'cayley', not {orthogonal_map!r}"
        )
    made = _Orthogonal(weight, orthogonal_map == "cayley")
    return register_parametrization(module, name, made)
