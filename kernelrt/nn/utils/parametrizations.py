"""weight_norm, spectral_norm and orthogonal as parametrizations."""

from __future__ import annotations

from typing import TypeVar

from kernelrt.errors import DomainError, ShapeError, StateError
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
        raise StateError(
            f"name: {type(module).__name__} has no tensor {name!r}; pass the name of an attribute "
            "that is a tensor"
        )
    return found


class _WeightNorm(Module):
    def __init__(self, axis: int | None) -> None:
        self.axis = axis

    def forward(self, length: Tensor, direction: Tensor) -> Tensor:
        return direction * (length / norm_along(direction, self.axis))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return norm_along(weight, self.axis), weight


def weight_norm(module: M, name: str = "weight", dim: int | None = 0) -> M:
    """Reparametrize a weight as ``g * v / |v|`` (weight normalization).

    Salimans and Kingma, arXiv:1602.07868. The parameters g and v are
    ``parametrizations.{name}.original0`` and ``original1``.

    Parameters
    ----------
    module : Module
        Layer to change in place.
    name : str
        Name of the parameter.
    dim : int, optional
        Axis along which each slice has its own norm; None for a single norm.

    Returns
    -------
    Module
        The same layer.

    Examples
    --------
    >>> from kernelrt.nn.utils.parametrizations import weight_norm
    >>> layer = weight_norm(krt.nn.Linear(3, 2))
    >>> [x.shape for x in layer.parametrizations.weight.originals]
    [(2, 1), (2, 3)]
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
    """Divide a weight by its largest singular value (spectral normalization).

    Miyato et al., arXiv:1802.05957. Power iteration estimates the singular value. In training mode,
    each use of the weight continues the iteration from its last result.

    Parameters
    ----------
    module : Module
        Layer to change in place.
    name : str
        Name of the parameter.
    n_power_iterations : int
        Number of power iterations at each use.
    eps : float
        Lower bound of the norm to divide by.
    dim : int, optional
        Axis of the rows; by default 1 for transposed convolutions, else 0.

    Returns
    -------
    Module
        The same layer.

    Examples
    --------
    >>> from kernelrt.nn.utils.parametrizations import spectral_norm
    >>> layer = spectral_norm(krt.nn.Linear(3, 2), n_power_iterations=20)
    >>> round(krt.linalg.matrix_norm(layer.weight, 2).item(), 1)
    1.0
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
        """Return a square orthogonal matrix whose first columns are the orthonormalized weight.

        If the weight is orthonormal, the first columns are equal to it, signs included.
        """
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
    """Keep the columns of a weight orthonormal, or the rows if there are fewer rows than columns.

    The weight is a product of two orthogonal matrices. The first is fixed, and made from the
    initial value. The second is the matrix exponential, or the Cayley transform, of a
    skew-symmetric matrix, whose lower triangle is the parameter (Lezcano and Martinez-Rubio,
    arXiv:1901.08428).

    Parameters
    ----------
    module : Module
        Layer to change in place.
    name : str
        Name of the parameter. Its last two axes are those of the matrices.
    orthogonal_map : "matrix_exp" or "cayley"
        Map to use: the matrix exponential (default), or the cheaper Cayley transform.

    Returns
    -------
    Module
        The same layer.

    Examples
    --------
    >>> from kernelrt.nn.utils.parametrizations import orthogonal
    >>> rows = orthogonal(krt.nn.Linear(3, 2)).weight
    >>> (rows @ rows.mT).allclose(krt.eye(2), atol=1e-4)
    True
    """
    weight = _weight(module, name)
    if weight.ndim < 2:
        raise ShapeError(f"name: expected matrices, not the shape {format_shape(weight.dims)}")
    if orthogonal_map not in (None, "matrix_exp", "cayley"):
        raise DomainError(
            f"orthogonal_map: expected 'matrix_exp' or 'cayley', not {orthogonal_map!r}"
        )
    made = _Orthogonal(weight, orthogonal_map == "cayley")
    return register_parametrization(module, name, made)
