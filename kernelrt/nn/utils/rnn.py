"""Padding and packing of sequences of unequal lengths."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt import dtype as dt
from kernelrt.errors import DomainError, DTypeError, ShapeError
from kernelrt.ir.shape import format_shape
from kernelrt.nn.recurrent import PackedSequence
from kernelrt.tensor import Tensor, is_tracing
from kernelrt.tensor.free_functions.creation import arange, tensor
from kernelrt.tensor.free_functions.joining import stack
from kernelrt.tensor.nodes.arguments import tensor_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.tensor.base import TensorBase

__all__ = ["PackedSequence", "pack_padded_sequence", "pack_sequence", "pad_packed_sequence",
           "pad_sequence", "unpad_sequence"]  # fmt: skip


def pad_sequence(
    sequences: Sequence[Tensor], batch_first: bool = False, padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:  # fmt: skip
    """Pad sequences to the longest length and stack them.

    Parameters
    ----------
    sequences : sequence of Tensor
        Tensors of shape (length, ...) that differ in length only.
    batch_first : bool
        Whether the result is (batch, steps, ...) instead of (steps, batch, ...).
    padding_value : float
        Value of the padding.
    padding_side : "right" or "left"
        Whether to pad after or before the sequences.

    Examples
    --------
    >>> from kernelrt.nn.utils.rnn import pad_sequence
    >>> pad_sequence([krt.tensor([1, 2, 3]), krt.tensor([4])], batch_first=True).tolist()
    [[1, 2, 3], [4, 0, 0]]
    """
    if padding_side not in ("right", "left"):
        raise DomainError(f"padding_side: expected 'right' or 'left', not {padding_side!r}")
    given = _sequences(sequences)
    longest = max(_length(x) for x in given)
    padded = []
    for x in given:
        lack = longest - _length(x)
        ends = (0, lack) if padding_side == "right" else (lack, 0)
        padded.append(x.pad((*(0, 0) * (x.ndim - 1), *ends), value=padding_value))
    return stack(padded, 0 if batch_first else 1)


def unpad_sequence(
    padded_sequences: Tensor, lengths: Tensor | Sequence[int], batch_first: bool = False
) -> list[Tensor]:
    """Split a padded tensor into its sequences. This computes and reads `lengths`.

    Parameters
    ----------
    padded_sequences : Tensor, shape (steps, batch, ...), or (batch, steps, ...)
        Padded sequences, as :func:`pad_sequence` returns.
    lengths : Tensor or sequence of int
        Length of each sequence.
    batch_first : bool
        Whether the batch is the first axis.

    Examples
    --------
    >>> from kernelrt.nn.utils.rnn import unpad_sequence
    >>> padded = krt.tensor([[1, 2, 3], [4, 0, 0]])
    >>> [x.tolist() for x in unpad_sequence(padded, [3, 1], batch_first=True)]
    [[1, 2, 3], [4]]
    """
    x = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [x[i, :n] for i, n in enumerate(_known(lengths))]


def pack_padded_sequence(
    input: Tensor, lengths: Tensor | Sequence[int], batch_first: bool = False,
    enforce_sorted: bool = True,
) -> PackedSequence:  # fmt: skip
    """Combine padded sequences with their lengths, for recurrent layers to skip the padding.

    Inside a jitted function, lengths may be computed values, because no shape depends on them.

    Parameters
    ----------
    input : Tensor, shape (steps, batch, ...), or (batch, steps, ...)
        Padded sequences.
    lengths : Tensor or sequence of int
        Length of each sequence, from 1 to the number of steps.
    batch_first : bool
        Whether the batch is the first axis.
    enforce_sorted : bool
        Whether lengths must be in descending order, as in PyTorch. kernelrt does not sort the
        sequences in either case. Lengths that are computed by a traced function are compared only
        with the number of steps, when they are used.

    Examples
    --------
    >>> from kernelrt.nn.utils.rnn import pack_padded_sequence
    >>> padded = krt.ones(2, 3, 5)  # two sequences of at most three vectors
    >>> packed = pack_padded_sequence(padded, [3, 1], batch_first=True)
    >>> outputs, last = krt.nn.GRU(5, 4, batch_first=True)(packed)
    >>> outputs.lengths.tolist(), last.shape
    ([3, 1], (1, 2, 4))
    """
    x = input.transpose(0, 1) if batch_first else input
    if x.ndim < 2:
        raise ShapeError(
            f"input: expected shape (steps, batch, ...), not {format_shape(input.dims)}"
        )
    steps, batch = x.dims[:2]
    if isinstance(lengths, Tensor):
        if not lengths.dtype.is_int:
            raise DTypeError(f"lengths: expected integers, not {lengths.dtype.name}")
        found = lengths
    else:
        found = tensor(_known(lengths), dtype=dt.int64)
    if found.ndim != 1 or found.dims[0] != batch:
        raise ShapeError(
            f"lengths: expected one length for each of {batch} sequences, not shape "
            f"{format_shape(found.dims)}"
        )
    if not (isinstance(lengths, Tensor) and is_tracing()):
        numbers = _known(lengths)
        if numbers and (min(numbers) < 1 or (isinstance(steps, int) and max(numbers) > steps)):
            raise ShapeError(f"lengths: expected numbers from 1 to {steps}, not {numbers}")
        if enforce_sorted and numbers != sorted(numbers, reverse=True):
            raise ShapeError(
                f"lengths: expected descending lengths, not {numbers}; pass enforce_sorted=False, "
                "which costs nothing"
            )
    return PackedSequence(x, found)


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return the padded sequences of a packed one, and their lengths.

    Parameters
    ----------
    sequence : PackedSequence
        Packed sequences, as :func:`pack_padded_sequence` or a recurrent layer returns.
    batch_first : bool
        Whether the result is (batch, steps, ...) instead of (steps, batch, ...).
    padding_value : float
        Value of the padding.
    total_length : int, optional
        Number of steps of the result. The default, and the minimum, is the number of packed steps.
        Unlike PyTorch, kernelrt keeps all packed steps even if every sequence is shorter, because
        sizes do not depend on data.

    Examples
    --------
    >>> from kernelrt.nn.utils.rnn import pack_sequence, pad_packed_sequence
    >>> packed = pack_sequence([krt.tensor([1.0, 2.0, 3.0]), krt.tensor([4.0])])
    >>> padded, lengths = pad_packed_sequence(packed, batch_first=True, padding_value=-1)
    >>> padded.tolist(), lengths.tolist()
    ([[1.0, 2.0, 3.0], [4.0, -1.0, -1.0]], [3, 1])
    """
    if not isinstance(sequence, PackedSequence):
        raise DTypeError(f"sequence: expected a PackedSequence, not {type(sequence).__name__}")
    x, lengths = sequence
    steps = x.dims[0]
    if total_length is not None:
        if not isinstance(steps, int) or total_length < steps:
            raise ShapeError(f"total_length: expected at least {steps}, not {total_length}")
        x = x.pad((*(0, 0) * (x.ndim - 1), 0, total_length - steps))
    inside = arange(x.dims[0]).unsqueeze(1) < lengths
    x = x.where(inside.reshape(*inside.dims, *(1,) * (x.ndim - 2)), padding_value)
    return (x.transpose(0, 1) if batch_first else x), lengths


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Pack sequences of shape (length, ...); see :func:`pack_padded_sequence`.

    Parameters
    ----------
    sequences : sequence of Tensor
        Tensors of shape (length, ...) that differ in length only.
    enforce_sorted : bool
        Whether lengths must be in descending order, as in PyTorch. kernelrt does not sort the
        sequences in either case.

    Examples
    --------
    >>> from kernelrt.nn.utils.rnn import pack_sequence
    >>> packed = pack_sequence([krt.tensor([1.0, 2.0, 3.0]), krt.tensor([4.0])])
    >>> packed.data.shape, packed.lengths.tolist()
    ((3, 2), [3, 1])
    """
    given = _sequences(sequences)
    return pack_padded_sequence(
        pad_sequence(given), [_length(x) for x in given], enforce_sorted=enforce_sorted
    )


def _sequences(sequences: Sequence[Tensor]) -> list[Tensor]:
    given = list(sequences)
    if not given:
        raise ShapeError("sequences: expected at least one tensor, got none")
    for i, x in enumerate(given):
        tensor_of(x, f"sequences[{i}]")
        if not x.ndim or x.dims[1:] != given[0].dims[1:]:
            raise ShapeError(
                f"sequences[{i}]: expected shape (length, ...) that agrees with "
                f"{format_shape(given[0].dims)} in all but the length, not {format_shape(x.dims)}"
            )
    return given


def _length(x: TensorBase) -> int:
    size = x.dims[0]
    if not isinstance(size, int):
        raise ShapeError(
            "sequences: expected static lengths, not a Variable; call pack_padded_sequence with "
            "lengths in a tensor"
        )
    return size


def _known(lengths: Tensor | Sequence[int]) -> list[int]:
    values = lengths.tolist() if isinstance(lengths, Tensor) else lengths
    return [int(n) for n in values]
