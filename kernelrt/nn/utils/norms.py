"""Weight normalization and spectral normalization."""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

from kernelrt.errors import DTypeError, ShapeError, StateError
from kernelrt.nn.computed import computed_by, let_compute, let_hold
from kernelrt.nn.hooks import dropped
from kernelrt.nn.module import Module
from kernelrt.nn.spatial import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from kernelrt.tensor import Tensor
from kernelrt.tensor.base import is_parameter
from kernelrt.tensor.nodes.arguments import axis_of, integer, real
from kernelrt.tensor.rng.random import normal
from kernelrt.tensor.state import no_grad

__all__ = ["norm_along", "power_iteration", "remove_spectral_norm", "remove_weight_norm",
           "spectral_norm", "weight_norm"]  # fmt: skip

M = TypeVar("M", bound=Module)

class _Norm:
    """Computes a weight from tensors that are called like the weight, with a suffix."""

    ends: ClassVar[tuple[str, ...]]

    def read(self, module: Any, name: str) -> Tensor:
        raise NotImplementedError

    def write(self, module: Any, name: str, value: object) -> None:  # noqa: ARG002 - the protocol has it
        raise StateError(
            f"{name}: cannot be assigned, because {type(module).__name__} computes it from other "
            f"tensors; assign to these: {', '.join(f'{name}_{end}' for end in self.ends)}"
        )


class _OfLength(_Norm):
    """Weight normalization: a direction times a norm."""

    ends = ("g", "v")

    def __init__(self, axis: int | None) -> None:
        self.axis = axis

    def read(self, module: Any, name: str) -> Tensor:
        direction, length = getattr(module, f"{name}_v"), getattr(module, f"{name}_g")
        out: Tensor = direction * (length / norm_along(direction, self.axis))
        return out


class _OfGreatest(_Norm):
    """Spectral normalization, and the hook that estimates the largest singular value."""

    ends = ("orig", "u", "v")

    def __init__(self, name: str, axis: int, rounds: int, least: float) -> None:
        self.name, self.axis, self.rounds, self.least = name, axis, rounds, least

    def matrix(self, module: Any) -> Tensor:
        w: Tensor = getattr(module, f"{self.name}_orig")
        return w.movedim(self.axis, 0).flatten(1) if w.ndim > 1 else w.unsqueeze(1)

    def _vectors(self, module: Any) -> tuple[Tensor, Tensor]:
        return getattr(module, f"{self.name}_u"), getattr(module, f"{self.name}_v")

    def __call__(self, module: Module, _args: object) -> None:
        if not module.training:
            return
        u, v = self._vectors(module)
        with no_grad():
            w = self.matrix(module).detach()
            left, right = u.detach(), v.detach()
            for _ in range(self.rounds):
                right = (w.mT @ left).normalize(dim=0, eps=self.least)
                left = (w @ right).normalize(dim=0, eps=self.least)
            u.assign(left)
            v.assign(right)

    def read(self, module: Any, name: str) -> Tensor:
        u, v = (vector.detach() for vector in self._vectors(module))
        out: Tensor = getattr(module, f"{name}_orig") / (u * (self.matrix(module) @ v)).sum()
        return out


def weight_norm(module: M, name: str = "weight", dim: int | None = 0) -> M:
    """Reparametrize a weight as ``g * v / |v|`` (weight normalization) with parameters g and v.

    Salimans and Kingma, arXiv:1602.07868. The weight is computed each time it is read.

    Parameters
    ----------
    module : Module
        Layer to change in place.
    name : str
        Name of the parameter; the new ones are called ``{name}_g`` and ``{name}_v``.
    dim : int, optional
        Axis along which each slice has its own norm; None for a single norm.

    Returns
    -------
    Module
        The same layer.

    Examples
    --------
    >>> layer = krt.nn.utils.weight_norm(krt.nn.Linear(3, 2))
    >>> layer.weight_g.shape, layer.weight_v.shape
    ((2, 1), (2, 3))
    """
    weight = _own(module, name)
    axis = None if dim is None else axis_of(dim, weight.ndim)
    v = weight.detach().clone()
    g = norm_along(v, axis)
    delattr(module, name)
    setattr(module, f"{name}_g", g.detach().requires_grad_())
    setattr(module, f"{name}_v", v.requires_grad_())
    let_compute(module, name, _OfLength(axis))
    return module


def remove_weight_norm(module: M, name: str = "weight") -> M:
    """Undo :func:`weight_norm`: make the weight a plain parameter again.

    Parameters
    ----------
    module : Module
        Layer to change in place.
    name : str
        Name that the parameter had before.

    Returns
    -------
    Module
        The same layer.

    Examples
    --------
    >>> layer = krt.nn.utils.weight_norm(krt.nn.Linear(3, 2))
    >>> sorted(krt.nn.utils.remove_weight_norm(layer).state_dict())
    ['bias', 'weight']
    """
    return _restore(module, name, _OfLength)


def spectral_norm(
    module: M, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12,
    dim: int | None = None,
) -> M:  # fmt: skip
    """Divide a weight by its largest singular value (spectral normalization).

    Miyato et al., arXiv:1802.05957. Power iteration estimates the singular value. In training mode,
    each call continues the iteration from its last result.

    Parameters
    ----------
    module : Module
        Layer to change in place.
    name : str
        Name of the parameter. The new parameter is called ``{name}_orig``. The singular vectors are
        called ``{name}_u`` and ``{name}_v``; they are part of the state.
    n_power_iterations : int
        Number of power iterations in each call.
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
    >>> layer = krt.nn.utils.spectral_norm(krt.nn.Linear(3, 2))
    >>> sorted(layer.state_dict()), layer.weight_u.shape, layer.weight_v.shape
    (['bias', 'weight_orig', 'weight_u', 'weight_v'], (2,), (3,))
    """
    weight = _own(module, name)
    rounds, axis, least = power_iteration(module, weight, n_power_iterations, eps, dim)
    made = _OfGreatest(name, axis, rounds, least)
    delattr(module, name)
    setattr(module, f"{name}_orig", weight)
    rows, columns = made.matrix(module).shape
    for end, size in (("u", rows), ("v", columns)):
        start = normal(size, dtype=weight.dtype).normalize(dim=0, eps=least)
        module.register_buffer(f"{name}_{end}", start.detach())
    module.register_forward_pre_hook(made)
    let_compute(module, name, made)
    return module


def power_iteration(
    module: Module, weight: Tensor, rounds: int, eps: float, dim: int | None
) -> tuple[int, int, float]:
    """Check and return the number of iterations, the axis of rows and the norm's lower bound."""
    if dim is None:
        transposed = (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)
        dim = 1 if isinstance(module, transposed) else 0
    rounds = integer(rounds, "n_power_iterations", 1)
    return rounds, axis_of(dim, weight.ndim), real(eps, "eps")


def remove_spectral_norm(module: M, name: str = "weight") -> M:
    """Undo :func:`spectral_norm`: make the weight a plain parameter again.

    Parameters
    ----------
    module : Module
        Layer to change in place.
    name : str
        Name that the parameter had before.

    Returns
    -------
    Module
        The same layer.

    Examples
    --------
    >>> layer = krt.nn.utils.spectral_norm(krt.nn.Linear(3, 2))
    >>> sorted(krt.nn.utils.remove_spectral_norm(layer).state_dict())
    ['bias', 'weight']
    """
    return _restore(module, name, _OfGreatest)


def norm_along(v: Tensor, axis: int | None) -> Tensor:
    """Return the norm of each slice along `axis`, or of all elements if `axis` is None.

    A slice of a vector is one element, so its norm is the absolute value.
    """
    if axis is None:
        return v.norm(2)
    return v.norm(2, tuple(a for a in range(v.ndim) if a != axis), True) if v.ndim > 1 else v.abs()


def _own(module: Module, name: str) -> Tensor:
    if not isinstance(module, Module):
        raise DTypeError(f"module: expected a Module, not {type(module).__name__}")
    weight = module.__dict__.get(name)
    if not isinstance(weight, Tensor) or not is_parameter(weight):
        raise StateError(
            f"name: expected the name of a parameter that {type(module).__name__} holds itself, "
            f"not {name!r}"
        )
    if not weight.ndim:
        raise ShapeError(f"name: expected a weight of at least one axis, but {name!r} is a scalar")
    return weight


def _restore(module: M, name: str, kind: type[_Norm]) -> M:
    given: Any = module
    found = computed_by(module, name) if isinstance(given, Module) else None
    if not isinstance(found, kind):
        raise StateError(
            f"name: expected an attribute of {type(module).__name__} that this normalization "
            f"computes, not {name!r}"
        )
    sources = [f"{name}_{end}" for end in found.ends]
    for source in sources:
        if source not in module.__dict__:
            raise StateError(
                f"name: {name!r} is computed from {source!r}, which {type(module).__name__} does "
                f"not hold itself; make {source!r} a plain parameter first"
            )
    with no_grad():
        weight = getattr(module, name).detach().clone()
    dropped(module, found)
    let_hold(module, name)
    for source in sources:
        delattr(module, source)
    setattr(module, name, weight.requires_grad_())
    return module
