"""Conversion between parameters and one vector."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt.errors import ShapeError
from kernelrt.tensor.eager.assign import assign_all
from kernelrt.tensor.free_functions.joining import cat
from kernelrt.tensor.nodes.arguments import tensor_of
from kernelrt.tensor.state import no_grad

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kernelrt.tensor import Tensor

__all__ = ["parameters_to_vector", "vector_to_parameters"]


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """Concatenate the elements of tensors to one vector of shape (n,).

    Parameters
    ----------
    parameters : iterable of Tensor
        Tensors of any shapes, with n elements in total.

    Examples
    --------
    >>> krt.nn.utils.parameters_to_vector([krt.ones(2), krt.zeros(1, 1)])
    tensor([1., 1., 0.])
    """
    return cat([p.reshape(-1) for p in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Assign the parts of a vector to tensors, in place.

    Parameters
    ----------
    vec : Tensor
        Vector of shape (n,), as :func:`parameters_to_vector` returns.
    parameters : iterable of Tensor
        Tensors with n elements in total.

    Examples
    --------
    >>> a, b = krt.zeros(2), krt.zeros(1, 1)
    >>> krt.nn.utils.vector_to_parameters(krt.tensor([1.0, 2.0, 3.0]), [a, b])
    >>> a.tolist(), b.tolist()
    ([1.0, 2.0], [[3.0]])
    """
    tensor_of(vec, "vec")
    found = list(parameters)
    size = sum(p.numel() for p in found)
    if vec.ndim != 1 or vec.shape[0] != size:
        raise ShapeError(f"vec: expected shape ({size},), not {vec.shape}")
    start, pairs = 0, []
    with no_grad():
        for param in found:
            end = start + param.numel()
            pairs.append((param, vec[start:end].reshape(param.shape).cast(param.dtype)))
            start = end
        assign_all(pairs)
