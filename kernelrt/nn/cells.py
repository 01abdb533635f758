"""Recurrent cells."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from kernelrt import dtype as dt
from kernelrt.device.dlpack import kind_name
from kernelrt.errors import DomainError, DTypeError, ShapeError
from kernelrt.ir.shape import format_shape, same
from kernelrt.nn import init
from kernelrt.nn.layers import parameter, positive
from kernelrt.nn.module import Module
from kernelrt.tensor import Tensor
from kernelrt.tensor.free_functions.creation import zeros
from kernelrt.tensor.nodes.arguments import tensor_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelrt.ir import Dim

__all__ = ["GRUCell", "LSTMCell", "RNNCell", "State", "activation", "check_features",
           "check_state", "gru_cell", "gru_step", "lstm_cell", "lstm_step", "rnn_relu_cell",
           "rnn_step", "rnn_tanh_cell"]  # fmt: skip

#: Tensors that a cell carries from step to step: the hidden state, and an LSTM's cell state.
State: TypeAlias = tuple[Tensor, ...]


# ---- One step of each cell, given the inputs' contributions to the gates


def rnn_step(activation: Callable[[Tensor], Tensor]) -> Callable[..., State]:
    """Return the step function of an RNN with an activation."""
    def step(gates: Tensor, state: State, weight: Tensor, bias: Tensor | None) -> State:
        (hidden,) = state
        return (activation(gates + hidden.linear(weight, bias)),)

    return step


def lstm_step(gates: Tensor, state: State, weight: Tensor, bias: Tensor | None) -> State:
    """Compute one LSTM step; the gates are input, forget, cell, output."""
    hidden, cell = state
    i, f, g, o = (gates + hidden.linear(weight, bias)).chunk(4, -1)
    cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
    return o.sigmoid() * cell.tanh(), cell


def gru_step(gates: Tensor, state: State, weight: Tensor, bias: Tensor | None) -> State:
    """Compute one GRU step; the gates are reset, update, new."""
    (hidden,) = state
    r, z, n = gates.chunk(3, -1)
    hr, hz, hn = hidden.linear(weight, bias).chunk(3, -1)
    new = (n + (r + hr).sigmoid() * hn).tanh()
    return (new + (z + hz).sigmoid() * (hidden - new),)


def lstm_cell(
    input: Tensor, hx: tuple[Tensor, Tensor], w_ih: Tensor, w_hh: Tensor,
    b_ih: Tensor | None = None, b_hh: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Compute one LSTM step with the given weights; see :class:`LSTMCell`.

    Parameters
    ----------
    input : Tensor of floats, shape (*, n)
        Input of the step.
    hx : (Tensor, Tensor), each of shape (*, m)
        Hidden state and cell state.
    w_ih, w_hh : Tensor, shapes (4 * m, n) and (4 * m, m)
        Weights of the input and of the hidden state, in the order input, forget, cell, output gate.
    b_ih, b_hh : Tensor, shape (4 * m,), optional
        Biases of the two products.

    Returns
    -------
    (Tensor, Tensor)
        Next hidden state and cell state, each of shape ``(*, m)``.

    Examples
    --------
    >>> zeros = krt.zeros(1, 2)
    >>> h, c = krt.lstm_cell(krt.ones(1, 3), (zeros, zeros), krt.zeros(8, 3), krt.zeros(8, 2))
    >>> h.tolist(), c.shape
    ([[0.0, 0.0]], (1, 2))
    """
    hidden, cell = lstm_step(input.linear(w_ih, b_ih), tuple(hx), w_hh, b_hh)
    return hidden, cell


def gru_cell(
    input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Compute one GRU step with the given weights; see :class:`GRUCell`.

    Parameters
    ----------
    input : Tensor of floats, shape (*, n)
        Input of the step.
    hx : Tensor, shape (*, m)
        Hidden state.
    w_ih, w_hh : Tensor, shapes (3 * m, n) and (3 * m, m)
        Weights of the input and of the hidden state, in the order reset, update, new gate.
    b_ih, b_hh : Tensor, shape (3 * m,), optional
        Biases of the two products.

    Returns
    -------
    Tensor
        Next hidden state, of shape ``(*, m)``.

    Examples
    --------
    With weights of zeros the gates are 1/2 and the new state is half of the old one:

    >>> krt.gru_cell(krt.ones(1, 3), krt.ones(1, 2), krt.zeros(6, 3), krt.zeros(6, 2)).tolist()
    [[0.5, 0.5]]
    """
    return gru_step(input.linear(w_ih, b_ih), (hx,), w_hh, b_hh)[0]


def rnn_tanh_cell(
    input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Compute one RNN step with the given weights and tanh activation; see :class:`RNNCell`.

    Parameters
    ----------
    input : Tensor of floats, shape (*, n)
        Input of the step.
    hx : Tensor, shape (*, m)
        Hidden state.
    w_ih, w_hh : Tensor, shapes (m, n) and (m, m)
        Weights of the input and of the hidden state.
    b_ih, b_hh : Tensor, shape (m,), optional
        Biases of the two products.

    Returns
    -------
    Tensor
        Next hidden state, of shape ``(*, m)``.

    Examples
    --------
    >>> krt.rnn_tanh_cell(krt.ones(1, 3), krt.ones(1, 2), krt.zeros(2, 3), krt.zeros(2, 2)).tolist()
    [[0.0, 0.0]]
    """
    return rnn_step(activation("tanh"))(input.linear(w_ih, b_ih), (hx,), w_hh, b_hh)[0]


def rnn_relu_cell(
    input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Compute one RNN step with the given weights and ReLU activation; see :class:`RNNCell`.

    Parameters
    ----------
    input : Tensor of floats, shape (*, n)
        Input of the step.
    hx : Tensor, shape (*, m)
        Hidden state.
    w_ih, w_hh : Tensor, shapes (m, n) and (m, m)
        Weights of the input and of the hidden state.
    b_ih, b_hh : Tensor, shape (m,), optional
        Biases of the two products.

    Returns
    -------
    Tensor
        Next hidden state, of shape ``(*, m)``.

    Examples
    --------
    >>> krt.rnn_relu_cell(krt.ones(1, 3), krt.ones(1, 2), krt.ones(2, 3), krt.ones(2, 2)).tolist()
    [[5.0, 5.0]]
    """
    return rnn_step(activation("relu"))(input.linear(w_ih, b_ih), (hx,), w_hh, b_hh)[0]


_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": lambda x: x.tanh(),
    "relu": lambda x: x.relu(),
}


def activation(name: object) -> Callable[[Tensor], Tensor]:
    """Return the activation called `name`."""
    found = _ACTIVATIONS.get(str(name))
    if found is None:
        raise DomainError(f"nonlinearity: expected 'tanh' or 'relu', not {name!r}")
    return found


def check_features(x: Tensor, size: int, what: str) -> None:
    """Raise ShapeError if the last axis of `x` has another size."""
    tensor_of(x, "input")
    if not x.ndim or not same(x.dims[-1], size):
        raise ShapeError(
            f"input: {what} expects {size} features in the last axis, not the shape "
            f"{format_shape(x.dims)}"
        )


def check_state(value: object, shape: tuple[Dim, ...], name: str) -> Tensor:
    """Return a state after checking its shape."""
    value = tensor_of(value, name)
    if len(value.dims) != len(shape) or not all(map(same, value.dims, shape)):
        raise ShapeError(
            f"{name}: expected the shape {format_shape(shape)}, not {format_shape(value.dims)}"
        )
    return value


# ---- Cells


class _Cell(Module):
    """Base of RNNCell, GRUCell and LSTMCell."""

    _gates: ClassVar[int]
    _states: ClassVar[int] = 1

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, *, dtype: object = dt.float32
    ) -> None:
        super().__init__()
        self.input_size = positive("input_size", input_size)
        self.hidden_size = positive("hidden_size", hidden_size)
        rows = self._gates * hidden_size
        self.weight_ih = parameter((rows, input_size), dtype)
        self.weight_hh = parameter((rows, hidden_size), dtype)
        self.bias_ih = parameter((rows,), dtype) if bias else None
        self.bias_hh = parameter((rows,), dtype) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values of all parameters, uniformly between ±1/sqrt(hidden_size)."""
        bound = 1 / math.sqrt(self.hidden_size)
        for tensor in self.parameters():
            init.uniform_(tensor, -bound, bound)

    def _step(self, gates: Tensor, state: State, weight: Tensor, bias: Tensor | None) -> State:
        raise NotImplementedError

    def _next(self, x: Tensor, hx: Any) -> State:
        check_features(x, self.input_size, f"{type(self).__name__}({self.input_size}, ...)")
        shape = (*x.dims[:-1], self.hidden_size)
        if hx is None:
            state: State = (zeros(*shape, dtype=x.dtype),) * self._states
        else:
            given = hx if self._states > 1 else (hx,)
            if not isinstance(given, tuple | list) or len(given) != self._states:
                raise DTypeError(
                    "hx: expected a pair of Tensors, the hidden state and the cell state, not "
                    f"{kind_name(hx)}"
                )
            state = tuple(check_state(value, shape, "hx") for value in given)
        return self._step(x.linear(self.weight_ih, self.bias_ih), state, self.weight_hh,
                          self.bias_hh)  # fmt: skip

    def extra_repr(self) -> str:
        """Return the sizes as text."""
        text = f"{self.input_size}, {self.hidden_size}"
        return text if self.bias_ih is not None else text + ", bias=False"


class RNNCell(_Cell):
    """Compute one step of :class:`RNN`.

    Maps an input ``(batch, input_size)`` and a state ``(batch, hidden_size)`` to the next state
    ``(batch, hidden_size)``; the batch may be missing.

    Parameters
    ----------
    input_size, hidden_size : int
        Number of features of the input, and of the state.
    bias : bool, default True
        Whether to use biases.
    nonlinearity : "tanh" or "relu", default "tanh"
        Activation function.
    dtype : DType or str, default float32
        Floating-point dtype of the parameters.

    Attributes
    ----------
    weight_ih, weight_hh : Tensor, shapes (hidden_size, input_size) and (hidden_size, hidden_size)
        Weights of the input and of the state.
    bias_ih, bias_hh : Tensor of shape (hidden_size,), or None
        Biases of the two products. All parameters are drawn uniformly between
        ±1/sqrt(hidden_size).

    Raises
    ------
    DomainError
        `nonlinearity` is unknown.
    ShapeError
        In a call: input or state have another shape.

    Examples
    --------
    >>> cell = krt.nn.RNNCell(3, 2)
    >>> state = cell(krt.ones(5, 3))
    >>> cell(krt.ones(5, 3), state).shape
    (5, 2)
    """

    _gates = 1

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh", *,
        dtype: object = dt.float32,
    ) -> None:  # fmt: skip
        self.nonlinearity = nonlinearity
        activation(nonlinearity)
        super().__init__(input_size, hidden_size, bias, dtype=dtype)

    def _step(self, gates: Tensor, state: State, weight: Tensor, bias: Tensor | None) -> State:
        return rnn_step(activation(self.nonlinearity))(gates, state, weight, bias)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """Map ``(batch, input_size)`` and a state (default: zeros) to ``(batch, hidden_size)``."""
        (hidden,) = self._next(input, hx)
        return hidden


class GRUCell(_Cell):
    """Compute one step of :class:`GRU`.

    Maps an input ``(batch, input_size)`` and a state ``(batch, hidden_size)`` to the next state
    ``(batch, hidden_size)``; the batch may be missing.

    Parameters
    ----------
    input_size, hidden_size : int
        Number of features of the input, and of the state.
    bias : bool, default True
        Whether to use biases.
    dtype : DType or str, default float32
        Floating-point dtype of the parameters.

    Attributes
    ----------
    weight_ih, weight_hh : Tensor
        Weights of the input and of the state, of shapes (3 * hidden_size, input_size) and
        (3 * hidden_size, hidden_size); the gates are reset, update, new.
    bias_ih, bias_hh : Tensor of shape (3 * hidden_size,), or None
        Biases of the two products. All parameters are drawn uniformly between
        ±1/sqrt(hidden_size).

    Examples
    --------
    >>> cell = krt.nn.GRUCell(3, 2)
    >>> state = cell(krt.ones(5, 3))
    >>> cell(krt.ones(5, 3), state).shape
    (5, 2)
    """

    _gates = 3

    def _step(self, gates: Tensor, state: State, weight: Tensor, bias: Tensor | None) -> State:
        return gru_step(gates, state, weight, bias)

    forward = RNNCell.forward


class LSTMCell(_Cell):
    """Compute one step of :class:`LSTM`.

    Maps an input ``(batch, input_size)`` and two states ``(batch, hidden_size)``, the hidden state
    and the cell state, to the next two; the batch may be missing.

    Parameters
    ----------
    input_size, hidden_size : int
        Number of features of the input, and of the states.
    bias : bool, default True
        Whether to use biases.
    dtype : DType or str, default float32
        Floating-point dtype of the parameters.

    Attributes
    ----------
    weight_ih, weight_hh : Tensor
        Weights of the input and of the hidden state, of shapes (4 * hidden_size, input_size) and
        (4 * hidden_size, hidden_size); the gates are input, forget, cell, output.
    bias_ih, bias_hh : Tensor of shape (4 * hidden_size,), or None
        Biases of the two products. All parameters are drawn uniformly between
        ±1/sqrt(hidden_size).

    Examples
    --------
    >>> cell = krt.nn.LSTMCell(3, 2)
    >>> hidden, memory = cell(krt.ones(5, 3))
    >>> hidden, memory = cell(krt.ones(5, 3), (hidden, memory))
    >>> hidden.shape, memory.shape
    ((5, 2), (5, 2))
    """

    _gates = 4
    _states = 2

    def _step(self, gates: Tensor, state: State, weight: Tensor, bias: Tensor | None) -> State:
        return lstm_step(gates, state, weight, bias)

    def forward(
        self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Map ``(batch, input_size)`` and two states to two states ``(batch, hidden_size)``."""
        hidden, cell = self._next(input, hx)
        return hidden, cell
