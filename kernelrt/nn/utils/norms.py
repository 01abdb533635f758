"""Weights that are computed from other tensors: weight and spectral normalization."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from kernelrt.errors import DTypeError, ShapeError, StateError
from kernelrt.nn.module import Module
from kernelrt.nn.spatial import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from kernelrt.tensor import Tensor
from kernelrt.tensor.arguments import axis_of, integer, real
from kernelrt.tensor.base import is_parameter
from kernelrt.tensor.random import normal
from kernelrt.tensor.state import no_grad

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["norm_along", "remove_spectral_norm", "remove_weight_norm", "spectral_norm",
           "weight_norm"]  # fmt: skip

M = TypeVar("M", bound=Module)
#: Where a class whose instance has a computed weight keeps what it was, by the weight's name.
_BEFORE = "_before_"


def weight_norm(module: M, name: str = "weight", dim: int | None = 0) -> M:
    """Let a weight be ``g * v / |v|``, with the parameters g and v in its place.

    Salimans and Kingma, arXiv:1602.07868. The weight is computed where it is read.

    Parameters
    ----------
    module : Module
        The layer, which is changed.
    name : str
        Of its parameter; the new ones are called ``{name}_g`` and ``{name}_v``.
    dim : int, optional
        The axis along which each slice has a norm of its own; with None there is one for all.

    Returns
    -------
    Module
        The layer.
    """
    weight = _own(module, name)
    axis = None if dim is None else axis_of(dim, weight.ndim)
    v = weight.detach().clone()
    g = norm_along(v, axis)

    def computed(layer: Any) -> Tensor:
        direction, length = getattr(layer, f"{name}_v"), getattr(layer, f"{name}_g")
        out: Tensor = direction * (length / norm_along(direction, axis))
        return out

    delattr(module, name)
    setattr(module, f"{name}_g", g.detach().requires_grad_())
    setattr(module, f"{name}_v", v.requires_grad_())
    _derive(module, name, computed)
    return module


def remove_weight_norm(module: M, name: str = "weight") -> M:
    """Let the weight that :func:`weight_norm` computes be a parameter again."""
    return _restore(module, name, (f"{name}_g", f"{name}_v"))


def spectral_norm(
    module: M, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12,
    dim: int | None = None,
) -> M:  # fmt: skip
    """Let a weight be a parameter over its greatest singular value.

    Miyato et al., arXiv:1802.05957. The value is found by power iteration: each call in training
    does some more of it, from where the last one ended.

    Parameters
    ----------
    module : Module
        The layer, which is changed.
    name : str
        Of its parameter; the new one is called ``{name}_orig``, the vectors, which are part of the
        state, ``{name}_u`` and ``{name}_v``.
    n_power_iterations : int
        How many times the vectors are improved in each call.
    eps : float
        The least norm to divide by.
    dim : int, optional
        The axis of rows; 0 if not given, and 1 for transposed convolutions.

    Returns
    -------
    Module
        The layer.
    """
    weight = _own(module, name)
    rounds = integer(n_power_iterations, "n_power_iterations", 1)
    least = real(eps, "eps")
    if dim is None:
        turned = (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)
        dim = 1 if isinstance(module, turned) else 0
    axis = axis_of(dim, weight.ndim)

    def matrix(layer: Any) -> Tensor:
        w: Tensor = getattr(layer, f"{name}_orig")
        return w.movedim(axis, 0).flatten(1) if w.ndim > 1 else w.unsqueeze(1)

    def improve(layer: Module, _args: object) -> None:
        if not layer.training:
            return
        u, v = getattr(layer, f"{name}_u"), getattr(layer, f"{name}_v")
        with no_grad():
            w = matrix(layer).detach()
            left, right = u.detach(), v.detach()
            for _ in range(rounds):
                right = (w.mT @ left).normalize(dim=0, eps=least)
                left = (w @ right).normalize(dim=0, eps=least)
            u.assign(left)
            v.assign(right)

    def computed(layer: Any) -> Tensor:
        u, v = getattr(layer, f"{name}_u").detach(), getattr(layer, f"{name}_v").detach()
        out: Tensor = getattr(layer, f"{name}_orig") / (u * (matrix(layer) @ v)).sum()
        return out

    delattr(module, name)
    setattr(module, f"{name}_orig", weight)
    rows, columns = matrix(module).shape
    for end, size in (("u", rows), ("v", columns)):
        start = normal(size, dtype=weight.dtype).normalize(dim=0, eps=least)
        module.register_buffer(f"{name}_{end}", start.detach())
    handle = module.register_forward_pre_hook(improve)
    _derive(module, name, computed, handle.remove)
    return module


def remove_spectral_norm(module: M, name: str = "weight") -> M:
    """Let the weight that :func:`spectral_norm` computes be a parameter again."""
    return _restore(module, name, tuple(f"{name}_{end}" for end in ("orig", "u", "v")))


def norm_along(v: Tensor, axis: int | None) -> Tensor:
    """The norm of each slice along an axis, or of all; of vectors the magnitudes."""
    if axis is None:
        return v.norm(2)
    return v.norm(2, tuple(a for a in range(v.ndim) if a != axis), True) if v.ndim > 1 else v.abs()


def _own(module: Module, name: str) -> Tensor:
    if not isinstance(module, Module):
        raise DTypeError(f"module: expected a Module, not {type(module).__name__}")
    weight = module.__dict__.get(name)
    if not isinstance(weight, Tensor) or not is_parameter(weight):
        raise StateError(f"name: {type(module).__name__} has no parameter {name!r} of its own")
    if not weight.ndim:
        raise ShapeError(f"name: {name!r} is a scalar; expected a weight of at least one axis")
    return weight


def _derive(
    module: Module, name: str, computed: Callable[[Any], Tensor],
    undo: Callable[[], None] | None = None,
) -> None:  # fmt: skip
    """Let `name` be computed where it is read: this module gets a class of its own for that."""
    kind = type(module)

    def refused(_layer: Any, _value: object) -> NoReturn:
        raise StateError(
            f"{name}: {kind.__name__} computes it from other tensors; assign to those"
        )

    body = {
        name: property(computed, refused), f"{_BEFORE}{name}": (kind, undo),
        "__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__,
    }  # fmt: skip
    module.__class__ = type(kind.__name__, (kind,), body)


def _restore(module: M, name: str, sources: tuple[str, ...]) -> M:
    before = vars(type(module)).get(f"{_BEFORE}{name}")
    if before is None or any(source not in module.__dict__ for source in sources):
        raise StateError(
            f"name: {name!r} of {type(module).__name__} is not computed so, or another weight is "
            "since; take that one back first"
        )
    kind, undo = before
    with no_grad():
        weight = getattr(module, name).detach().clone()
    if undo is not None:
        undo()
    module.__class__ = kind
    for source in sources:
        delattr(module, source)
    setattr(module, name, weight.requires_grad_())
    return module
