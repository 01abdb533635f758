"""Gradient clipping."""

from __future__ import annotations

import math
from collections.abc import Iterable

from kernelrt.errors import DomainError, DTypeError, GradientError, JitError
from kernelrt.tensor import Tensor, is_tracing
from kernelrt.tensor.free_functions.creation import tensor
from kernelrt.tensor.free_functions.joining import stack
from kernelrt.tensor.nodes.arguments import check_floats, real, tensor_of
from kernelrt.tensor.state import no_grad

__all__ = ["clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm"]

Tensors = Tensor | Iterable[Tensor]


def _listed(tensors: Tensors, name: str) -> list[Tensor]:
    if isinstance(tensors, Tensor):
        return [tensors]
    if not isinstance(tensors, Iterable):
        raise DTypeError(f"{name}: expected Tensors, not {type(tensors).__name__}")
    found = list(tensors)
    for i, item in enumerate(found):
        tensor_of(item, f"{name}[{i}]")
    return found


def _with_gradients(parameters: Tensors) -> list[tuple[Tensor, Tensor]]:
    return [(p, g) for p in _listed(parameters, "parameters") if (g := p.grad) is not None]


def _order(norm_type: float) -> float:
    order = real(norm_type, "norm_type")
    if math.isnan(order):
        raise DomainError("norm_type: expected a number, not NaN")
    return order


def get_total_norm(
    tensors: Tensors, norm_type: float = 2.0, error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:  # fmt: skip
    """Return the norm of several tensors, as if all their elements formed one vector.

    Parameters
    ----------
    tensors : Tensor or iterable of Tensor
        Floating-point tensors.
    norm_type : float
        Order of the norm; infinity is the maximum norm.
    error_if_nonfinite : bool
        Whether to raise an error if the norm is not finite.
    foreach : bool, optional
        Accepted for compatibility; has no effect.

    Returns
    -------
    Tensor
        Norm, of shape (); 0 for no tensors.

    Raises
    ------
    GradientError
        The norm is not finite, and `error_if_nonfinite` is true.
    JitError
        `error_if_nonfinite` is true inside a traced function, where the norm is unknown.

    Examples
    --------
    >>> krt.nn.utils.get_total_norm([krt.tensor([3.0]), krt.tensor([[0.0, -4.0]])]).item()
    5.0
    """
    del foreach
    order = _order(norm_type)
    found = _listed(tensors, "tensors")
    with no_grad():
        if not found:
            return tensor(0.0)
        total = stack([_norm(t, order) for t in found]).norm(order)
    if error_if_nonfinite:
        _check_finite(total, order)
    return total


def _norm(x: Tensor, order: float) -> Tensor:
    check_floats(x.dtype, "tensors")
    return x.norm(order)


def _check_finite(total: Tensor, order: float) -> None:
    if is_tracing():
        raise JitError(
            "error_if_nonfinite: the norm is unknown inside a traced function; return the norm and "
            "check it outside of the function"
        )
    if not math.isfinite(total.item()):
        raise GradientError(
            f"parameters: the norm of order {order} of the gradients is {total.item()}, so they "
            "cannot be scaled; pass error_if_nonfinite=False to scale them anyway"
        )


def clip_grads_with_norm_(
    parameters: Tensors, max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """Scale gradients down by ``max_norm / (total_norm + 1e-6)``, if that is below 1.

    Parameters
    ----------
    parameters : Tensor or iterable of Tensor
        Parameters whose ``grad`` to change; those without a gradient are skipped.
    max_norm : float
        Maximum norm.
    total_norm : Tensor
        Norm of the gradients; see :func:`get_total_norm`.
    foreach : bool, optional
        Accepted for compatibility; has no effect.

    Examples
    --------
    >>> w = krt.ones(2, requires_grad=True)
    >>> (w * krt.tensor([3.0, -4.0])).sum().backward()
    >>> krt.nn.utils.clip_grads_with_norm_([w], 2.5, krt.nn.utils.get_total_norm([w.grad]))
    >>> w.grad.round(decimals=4).tolist()
    [1.5, -2.0]
    """
    del foreach
    most = real(max_norm, "max_norm")
    with no_grad():
        factor = (most / (total_norm + 1e-6)).clamp(max=1.0)
        for param, grad in _with_gradients(parameters):
            param.grad = (grad * factor.cast(grad.dtype.accumulator)).cast(grad.dtype)


def clip_grad_norm_(
    parameters: Tensors, max_norm: float, norm_type: float = 2.0,
    error_if_nonfinite: bool = False, foreach: bool | None = None,
) -> Tensor:  # fmt: skip
    """Scale all gradients down by a common factor so that their norm is at most `max_norm`.

    In a jitted function, it needs no extra pass over the parameters.

    Parameters
    ----------
    parameters : Tensor or iterable of Tensor
        Parameters whose ``grad`` to change; those without a gradient are skipped.
    max_norm : float
        Maximum norm.
    norm_type : float
        Order of the norm; infinity is the maximum norm.
    error_if_nonfinite : bool
        Whether to raise an error, and leave the gradients unchanged, if the norm is not finite.
    foreach : bool, optional
        Accepted for compatibility; has no effect.

    Returns
    -------
    Tensor
        Norm before clipping, of shape ().

    Raises
    ------
    GradientError
        The norm is not finite, and `error_if_nonfinite` is true.
    JitError
        `error_if_nonfinite` is true inside a traced function, where the norm is unknown.

    Examples
    --------
    >>> import kernelrt as krt
    >>> w = krt.tensor([3.0, 4.0], requires_grad=True)
    >>> (w * w / 2).sum().backward()
    >>> krt.nn.utils.clip_grad_norm_([w], 1.0)
    tensor(5.)
    >>> w.grad
    tensor([0.5999999 , 0.79999983])
    """
    found = _listed(parameters, "parameters")
    gradients = [g for _, g in _with_gradients(found)]
    total = get_total_norm(gradients, norm_type, error_if_nonfinite, foreach)
    clip_grads_with_norm_(found, max_norm, total, foreach)
    return total


def clip_grad_value_(
    parameters: Tensors, clip_value: float, foreach: bool | None = None
) -> None:
    """Clamp each element of the gradients between ``-clip_value`` and ``clip_value``.

    Parameters
    ----------
    parameters : Tensor or iterable of Tensor
        Parameters whose ``grad`` to change; those without a gradient are skipped.
    clip_value : float
        Maximum absolute value, at least 0.
    foreach : bool, optional
        Accepted for compatibility; has no effect.

    Examples
    --------
    >>> w = krt.ones(2, requires_grad=True)
    >>> (w * krt.tensor([3.0, -4.0])).sum().backward()
    >>> krt.nn.utils.clip_grad_value_([w], 3.5)
    >>> w.grad.tolist()
    [3.0, -3.5]
    """
    del foreach
    most = real(clip_value, "clip_value")
    if not most >= 0:
        raise DomainError(f"clip_value: expected at least 0, not {clip_value}")
    with no_grad():
        for param, grad in _with_gradients(parameters):
            param.grad = grad.clamp(-most, most)
