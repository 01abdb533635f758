"""Recurrent layers, with PyTorch's names: RNN, LSTM, GRU."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from kernelrt import dtype as dt
from kernelrt.device.dlpack import kind_name
from kernelrt.errors import DomainError, DTypeError, ShapeError
from kernelrt.ir.shape import dim_span, format_shape, format_size, same, total
from kernelrt.nn import init
from kernelrt.nn.cells import (
    State,
    activation,
    check_features,
    check_state,
    gru_step,
    lstm_step,
    rnn_step,
)
from kernelrt.nn.layers import parameter, positive
from kernelrt.nn.module import Module
from kernelrt.tensor import Tensor
from kernelrt.tensor.free_functions.creation import arange, zeros
from kernelrt.tensor.free_functions.joining import cat, stack
from kernelrt.tensor.nodes.arguments import flag
from kernelrt.tensor.nodes.positions import within

if TYPE_CHECKING:
    from collections.abc import Iterator


__all__ = ["GRU", "LSTM", "RNN", "PackedSequence"]


class PackedSequence(NamedTuple):
    """Padded sequences and their lengths; see :func:`kernelrt.nn.utils.rnn.pack_padded_sequence`.

    Attributes
    ----------
    data : Tensor, shape (steps, batch, ...)
        Padded sequences; elements beyond the end of a sequence have no meaning.
    lengths : Tensor of integers, shape (batch,)
        Length of each sequence.

    Examples
    --------
    >>> packed = krt.nn.utils.rnn.pack_sequence([krt.ones(3, 2), krt.ones(1, 2)])
    >>> packed.data.shape, packed.lengths.tolist()
    ((3, 2, 2), [3, 1])
    """

    data: Tensor
    lengths: Tensor


# ---- Layers


class _Recurrent(Module):
    """Base of RNN, GRU and LSTM."""

    _gates: ClassVar[int]
    _states: ClassVar[int] = 1

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, *,
        proj_size: int = 0, dtype: object = dt.float32,
    ) -> None:  # fmt: skip
        super().__init__()
        self.input_size = positive("input_size", input_size)
        self.hidden_size = positive("hidden_size", hidden_size)
        self.num_layers = positive("num_layers", num_layers)
        self.bias, self.batch_first = flag(bias, "bias"), flag(batch_first, "batch_first")
        self.bidirectional = flag(bidirectional, "bidirectional")
        if not 0 <= dropout <= 1:
            raise DomainError(f"dropout: expected a probability from 0 to 1, not {dropout!r}")
        self.dropout = float(dropout)
        if proj_size and not 0 < proj_size < hidden_size:
            raise ShapeError(
                f"proj_size: expected 0 for no projection, or a number below the hidden size "
                f"{hidden_size}, not {proj_size!r}"
            )
        self.proj_size = proj_size
        for layer, suffix in self._places():
            inside = input_size if layer == 0 else self._width * (1 + bidirectional)
            rows = self._gates * hidden_size
            self._set("weight_ih", suffix, parameter((rows, inside), dtype))
            self._set("weight_hh", suffix, parameter((rows, self._width), dtype))
            if bias:
                self._set("bias_ih", suffix, parameter((rows,), dtype))
                self._set("bias_hh", suffix, parameter((rows,), dtype))
            if proj_size:
                self._set("weight_hr", suffix, parameter((proj_size, hidden_size), dtype))
        self.reset_parameters()

    @property
    def _width(self) -> int:
        """Size of a hidden state."""
        return self.proj_size or self.hidden_size

    def _places(self) -> Iterator[tuple[int, str]]:
        """Yield (layer, parameter name suffix) for each layer and direction."""
        for layer in range(self.num_layers):
            yield layer, f"_l{layer}"
            if self.bidirectional:
                yield layer, f"_l{layer}_reverse"

    def _set(self, name: str, suffix: str, value: Tensor) -> None:
        setattr(self, name + suffix, value)

    def _get(self, name: str, suffix: str) -> Tensor | None:
        found: Tensor | None = getattr(self, name + suffix, None) if self._has(name) else None
        return found

    def _has(self, name: str) -> bool:
        return self.bias if name.startswith("bias") else bool(self.proj_size) or name != "weight_hr"

    def reset_parameters(self) -> None:
        """Draw new initial values of all parameters, uniformly between ±1/sqrt(hidden_size)."""
        bound = 1 / math.sqrt(self.hidden_size)
        for tensor in self.parameters():
            init.uniform_(tensor, -bound, bound)

    def _step(self, gates: Tensor, state: State, weight: Tensor, bias: Tensor | None) -> State:
        raise NotImplementedError

    def _run(
        self, x: Tensor, state: State, suffix: str, inside: Tensor | None
    ) -> tuple[Tensor, State]:
        """Run one layer in one direction over (steps, batch, features)."""
        weight, recurrent = self._get("weight_ih", suffix), self._get("weight_hh", suffix)
        assert weight is not None
        assert recurrent is not None
        gates = x.linear(weight, self._get("bias_ih", suffix))
        bias, projection = self._get("bias_hh", suffix), self._get("weight_hr", suffix)

        def step(state: State, now: tuple[Tensor, Tensor | None]) -> tuple[State, Tensor]:
            gate, within = now
            hidden, *rest = self._step(gate, state, recurrent, bias)
            if projection is not None:
                hidden = hidden.linear(projection)
            new = (hidden, *rest)
            if within is not None:
                new = tuple(n.where(within, s) for n, s in zip(new, state, strict=True))
                hidden = hidden.where(within, 0)
            return new, hidden

        from kernelrt.func.loops import scan

        kind = dt.promote(gates.dtype, recurrent.dtype, *(s.dtype for s in state))
        begin = tuple(s.cast(kind) for s in state)
        ends, out = scan(step, begin, (gates, inside), reverse=suffix.endswith("_reverse"))
        return out, ends

    def _all(self, x: Tensor, states: list[State], inside: Tensor | None) -> tuple[Tensor, State]:
        """Run all layers; return the output and the final states, stacked."""
        ends: list[State] = []
        directions = 1 + self.bidirectional
        for layer in range(self.num_layers):
            suffixes = [s for number, s in self._places() if number == layer]
            runs = [
                self._run(x, states[layer * directions + k], suffix, inside)
                for k, suffix in enumerate(suffixes)
            ]
            ends += [state for _, state in runs]
            x = runs[0][0] if directions == 1 else cat([out for out, _ in runs], -1)
            if layer < self.num_layers - 1:
                x = x.dropout(self.dropout, self.training)
        return x, tuple(stack(parts) for parts in zip(*ends, strict=True))

    def _forward(
        self, input: Any, hx: Any, lengths: Tensor | None
    ) -> tuple[Any, State]:
        packed = isinstance(input, PackedSequence)
        if packed:
            if lengths is not None:
                raise ShapeError(
                    "lengths: expected None, as a PackedSequence has its own lengths; leave them "
                    "out"
                )
            x, lengths = input
        else:
            x = input
        check_features(x, self.input_size, f"{type(self).__name__}({self.input_size}, ...)")
        if x.ndim not in (2, 3) or (x.ndim == 2 and lengths is not None):
            wanted = (
                "axes (steps, batch, features) or (steps, features)" if lengths is None else
                "axes (steps, batch, features) with lengths"
            )
            raise ShapeError(f"input: expected {wanted}, not the shape {format_shape(x.dims)}")
        single = x.ndim == 2
        across = self.batch_first and not packed and not single
        x = x.unsqueeze(1) if single else x.transpose(0, 1) if across else x
        if dim_span(x.dims[0])[0] < 1:
            raise ShapeError(f"input: expected at least 1 step, not shape {format_shape(x.dims)}")
        inside = None
        if lengths is not None:
            inside = _inside(lengths, x)
        out, ends = self._all(x, self._begin(x, hx, single=single), inside)
        if single:
            out, ends = out.squeeze(1), tuple(end.squeeze(1) for end in ends)
        elif across:
            out = out.transpose(0, 1)
        return PackedSequence(out, lengths) if packed and lengths is not None else out, ends

    def _begin(self, x: Tensor, hx: Any, *, single: bool) -> list[State]:
        """Return the initial state of each layer and direction."""
        count = self.num_layers * (1 + self.bidirectional)
        batch = x.dims[1]
        widths = (self._width, self.hidden_size)[: self._states]
        if hx is None:
            return [tuple(zeros(batch, w, dtype=x.dtype) for w in widths)] * count
        given = hx if self._states > 1 else (hx,)
        if not isinstance(given, tuple | list) or len(given) != self._states:
            raise DTypeError(
                "hx: expected a pair of Tensors, the hidden state and the cell state, not "
                f"{kind_name(hx)}"
            )
        names = ("hx",) if self._states == 1 else ("hx[0]", "hx[1]")
        whole = []
        for name, value, width in zip(names, given, widths, strict=True):
            shape = (count, width) if single else (count, batch, width)
            tensor = check_state(value, shape, name)
            whole.append(tensor.unsqueeze(1) if single else tensor)
        return [tuple(part[k] for part in whole) for k in range(count)]

    def extra_repr(self) -> str:
        """Return the sizes and the options that differ from the defaults as text."""
        text = f"{self.input_size}, {self.hidden_size}"
        usual = {"num_layers": 1, "bias": True, "batch_first": False, "dropout": 0.0,
                 "bidirectional": False, "proj_size": 0}  # fmt: skip
        for name, value in usual.items():
            if getattr(self, name) != value:
                text += f", {name}={getattr(self, name)}"
        return text


def _inside(lengths: Tensor, x: Tensor) -> Tensor:
    """Return whether each step is inside its sequence, as a mask of shape (steps, batch, 1)."""
    if not isinstance(lengths, Tensor):
        raise DTypeError(f"lengths: expected a Tensor of integers, not {type(lengths).__name__}")
    if not lengths.dtype.is_int or lengths.ndim != 1 or not same(lengths.dims[0], x.dims[1]):
        raise ShapeError(
            f"lengths: expected an integer for each of {format_size(x.dims[1])} sequences, not "
            f"{lengths.dtype.name} of shape {format_shape(lengths.dims)}"
        )
    held = within(lengths, total((x.dims[0], 1)))
    return (arange(x.dims[0]).unsqueeze(1) < held).unsqueeze(-1)


class RNN(_Recurrent):
    """Apply ``h = tanh(x @ w_ih.T + b_ih + h @ w_hh.T + b_hh)`` over the steps of sequences.

    Maps ``(steps, batch, input_size)`` to the outputs ``(steps, batch, directions * hidden_size)``
    and the final states ``(num_layers * directions, batch, hidden_size)``; the batch may be
    missing. ``directions`` is 2 with `bidirectional`, otherwise 1.

    Parameters
    ----------
    input_size, hidden_size : int
        Number of features of the input, and of a state.
    num_layers : int, default 1
        Number of stacked layers; each reads the outputs of the layer before.
    nonlinearity : "tanh" or "relu", default "tanh"
        Activation function.
    bias : bool, default True
        Whether to use biases.
    batch_first : bool, default False
        Whether inputs and outputs have the axes (batch, steps, features), instead of
        (steps, batch, features).
    dropout : float, default 0.0
        Dropout probability between layers, in training.
    bidirectional : bool, default False
        Whether each layer also runs backwards, from the last step to the first. The results of both
        directions are concatenated.
    dtype : DType or str, default float32
        Floating-point dtype of the parameters.

    Attributes
    ----------
    weight_ih_l0, weight_hh_l0 : Tensor
        Weights of the first layer, shapes (hidden_size, input_size) and (hidden_size, hidden_size).
        The names of the next layers end in ``_l1``, ``_l2`` and so on. Names of the reverse
        direction have the suffix ``_reverse``.
    bias_ih_l0, bias_hh_l0 : Tensor, shape (hidden_size,)
        Biases of the first layer.

    Raises
    ------
    DomainError
        `dropout` is not from 0 to 1, or `nonlinearity` is unknown.
    ShapeError
        A size is below 1; in a call: input, states or lengths have another shape, or there are no
        steps.

    Examples
    --------
    >>> rnn = krt.nn.RNN(3, 4, num_layers=2)
    >>> outputs, states = rnn(krt.ones(7, 5, 3))
    >>> outputs.shape, states.shape
    ((7, 5, 4), (2, 5, 4))
    """

    _gates = 1

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, nonlinearity: str = "tanh",
        bias: bool = True, batch_first: bool = False, dropout: float = 0.0,
        bidirectional: bool = False, *, dtype: object = dt.float32,
    ) -> None:  # fmt: skip
        self.nonlinearity = nonlinearity
        activation(nonlinearity)
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional,
            dtype=dtype,
        )  # fmt: skip

    def _step(self, gates: Tensor, state: State, weight: Tensor, bias: Tensor | None) -> State:
        return rnn_step(activation(self.nonlinearity))(gates, state, weight, bias)

    def forward(
        self, input: Any, hx: Tensor | None = None, *,
        lengths: Tensor | None = None,
    ) -> tuple[Any, Tensor]:  # fmt: skip
        """Map ``(steps, batch, input_size)`` to outputs ``(steps, batch, width)`` and final states.

        Parameters
        ----------
        input : Tensor, or PackedSequence
            Shape (steps, batch, input_size), (batch, steps, input_size) with `batch_first`, or
            (steps, input_size).
        hx : Tensor, optional
            Initial states, shape (num_layers * directions, batch, hidden_size); zeros by default.
        lengths : Tensor of integers, shape (batch,), optional
            Number of steps of each sequence in the batch, checked at run time. After its last step
            a sequence's outputs are 0 and its state stays the same.

        Returns
        -------
        output : Tensor, or PackedSequence for a PackedSequence
            States of the last layer at each step.
        h_n : Tensor
            Final states, of the shape of `hx`.

        Raises
        ------
        IndexBoundsError
            At run time, if a length is below 0 or above the number of steps.

        Examples
        --------
        >>> rnn = krt.nn.RNN(3, 2)
        >>> outputs, states = rnn(krt.ones(4, 2, 3), lengths=krt.tensor([4, 1]))
        >>> outputs[1:, 1].tolist()
        [[0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
        """
        out, (hidden,) = self._forward(input, hx, lengths)
        return out, hidden


class GRU(_Recurrent):
    """Apply gated recurrent units over the steps of sequences, as ``torch.nn.GRU`` does.

    Maps ``(steps, batch, input_size)`` to the outputs ``(steps, batch, directions * hidden_size)``
    and the final states ``(num_layers * directions, batch, hidden_size)``; the batch may be
    missing. The order of the gates is reset, update, new. :class:`RNN` describes the errors and the
    attributes. Here, the attributes have 3 * hidden_size rows.

    Parameters
    ----------
    input_size, hidden_size : int
        Number of features of the input, and of a state.
    num_layers : int, default 1
        Number of stacked layers; each reads the outputs of the layer before.
    bias : bool, default True
        Whether to use biases.
    batch_first : bool, default False
        Whether inputs and outputs have the axes (batch, steps, features), instead of
        (steps, batch, features).
    dropout : float, default 0.0
        Dropout probability between layers, in training.
    bidirectional : bool, default False
        Whether each layer also runs backwards, from the last step to the first. The results of both
        directions are concatenated.
    dtype : DType or str, default float32
        Floating-point dtype of the parameters.

    Notes
    -----
    Cho et al., "Learning phrase representations using RNN encoder-decoder", 2014
    (arXiv:1406.1078).

    Examples
    --------
    >>> gru = krt.nn.GRU(3, 4, batch_first=True, bidirectional=True)
    >>> outputs, states = gru(krt.ones(5, 7, 3))
    >>> outputs.shape, states.shape
    ((5, 7, 8), (2, 5, 4))
    """

    _gates = 3

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, *,
        dtype: object = dt.float32,
    ) -> None:  # fmt: skip
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional,
            dtype=dtype,
        )  # fmt: skip

    def _step(self, gates: Tensor, state: State, weight: Tensor, bias: Tensor | None) -> State:
        return gru_step(gates, state, weight, bias)

    forward = RNN.forward


class LSTM(_Recurrent):
    """Apply long short-term memory over the steps of sequences, as ``torch.nn.LSTM`` does.

    Maps ``(steps, batch, input_size)`` to the outputs ``(steps, batch, directions * hidden_size)``
    and a pair of final states, both ``(num_layers * directions, batch, hidden_size)``: the hidden
    state and the cell state. The batch may be missing. If `proj_size` is not 0, outputs and hidden
    states have `proj_size` features instead of `hidden_size`. The order of the gates is input,
    forget, cell, output. :class:`RNN` describes the errors and the attributes. Here, the attributes
    have 4 * hidden_size rows.

    Parameters
    ----------
    input_size, hidden_size : int
        Number of features of the input, and of a state.
    num_layers : int, default 1
        Number of stacked layers; each reads the outputs of the layer before.
    bias : bool, default True
        Whether to use biases.
    batch_first : bool, default False
        Whether inputs and outputs have the axes (batch, steps, features), instead of
        (steps, batch, features).
    dropout : float, default 0.0
        Dropout probability between layers, in training.
    bidirectional : bool, default False
        Whether each layer also runs backwards, from the last step to the first. The results of both
        directions are concatenated.
    proj_size : int, default 0
        If not 0, ``weight_hr_l0`` projects hidden states and outputs to this number of features,
        which must be below `hidden_size`.
    dtype : DType or str, default float32
        Floating-point dtype of the parameters.

    Notes
    -----
    Hochreiter and Schmidhuber, "Long short-term memory", 1997.

    Examples
    --------
    >>> lstm = krt.nn.LSTM(3, 4)
    >>> outputs, (hidden, cell) = lstm(krt.ones(7, 5, 3))
    >>> outputs.shape, hidden.shape, cell.shape
    ((7, 5, 4), (1, 5, 4), (1, 5, 4))
    """

    _gates = 4
    _states = 2

    def _step(self, gates: Tensor, state: State, weight: Tensor, bias: Tensor | None) -> State:
        return lstm_step(gates, state, weight, bias)

    def forward(
        self, input: Any, hx: tuple[Tensor, Tensor] | None = None, *,
        lengths: Tensor | None = None,
    ) -> tuple[Any, tuple[Tensor, Tensor]]:  # fmt: skip
        """Map ``(steps, batch, input_size)`` to outputs ``(steps, batch, width)`` and final states.

        `hx` and the final states are pairs: hidden states and cell states. :meth:`RNN.forward`
        describes the other arguments.
        """
        out, (hidden, cell) = self._forward(input, hx, lengths)
        return out, (hidden, cell)
