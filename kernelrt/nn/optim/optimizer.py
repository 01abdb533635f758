"""What all optimizers share: checked parameters, a live learning rate, state with storage."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelrt import dtype as dt
from kernelrt.errors import DTypeError, GradientError, ShapeError
from kernelrt.ir.shape import dim_max
from kernelrt.nn import state
from kernelrt.nn.optim.hyper import Hyper, non_negative
from kernelrt.nn.optim.steps import Steps
from kernelrt.tensor import Tensor, is_tracing
from kernelrt.tensor.base import is_parameter
from kernelrt.tensor.creation import tensor
from kernelrt.tensor.realize import before_writes, flush, realize
from kernelrt.tensor.state import births, local, no_grad

if TYPE_CHECKING:
    from collections.abc import Hashable

    from kernelrt.device.buffer import Buffer

__all__ = ["Optimizer"]


class Optimizer(Hyper):
    """Base class of optimizers.

    A step assigns new values to parameters and state, all as functions of the gradient at the
    same place, so that one pass over memory updates a parameter with everything that belongs to
    it. State is made with the optimizer, not in the first step, and lies in storage of its own:
    under ``jit`` the plan updates it in place.

    Parameters
    ----------
    params : iterable of Tensor
        What to optimize; see :func:`kernelrt.nn.parameters`. Frozen ones wait: a step leaves
        alone what has no gradient.
    lr : float or Tensor
        Learning rate. It is held as a tensor that plans read, so setting ``optimizer.lr`` takes
        effect with the next step, jitted or not. A tensor of shape () is used as it is.

    Raises
    ------
    DTypeError
        `params` holds something else than floating-point tensors.
    GradientError
        A tensor is no parameter.
    ShapeError
        There are no parameters, or one comes twice, or `lr` is negative.
    """

    def __init__(self, params: Iterable[Tensor], lr: float | Tensor) -> None:
        self.params = _check_params(params)
        realize(*self.params)
        self._births = -1
        if isinstance(lr, Tensor):
            if lr.shape != () or not lr.dtype.is_float:
                raise ShapeError(
                    f"lr: expected a float or a floating-point Tensor of shape (), not "
                    f"{lr.dtype.name} of shape {lr.shape}"
                )
            self._lr = lr
            realize(lr)
        else:
            # float64, so that the scalars of a step are as precise as Python's.
            self._lr = _with_storage(np.array(non_negative("lr", lr)), dt.float64)

    @property
    def lr(self) -> float | Tensor:
        """Learning rate: a float; while a function is traced, the tensor that holds it."""
        return self._lr if is_tracing() else float(self._lr.item())

    @lr.setter
    def lr(self, value: float | Tensor) -> None:
        if not isinstance(value, Tensor):
            number = non_negative("lr", value)
            if not is_tracing():
                self._set_lr(number)
                return
            value = tensor(np.array(number))
        elif value.shape != ():
            raise ShapeError(f"lr: expected a float or a Tensor of shape (), not {value.shape}")
        value = value.detach().cast(self._lr.dtype)
        if is_tracing():
            self._lr.assign(value)
        else:
            state.overwrite([(self._lr, value)])

    def _set_lr(self, value: float) -> None:
        """Write a number to the storage of the learning rate."""
        flush()
        if self._births != births[0]:  # a tensor that came since may read what is to change
            self._births = before_writes([self._lr_storage])
        if self._lr.dtype is dt.bfloat16:
            state.overwrite([(self._lr, tensor(value).cast(dt.bfloat16))])
        else:
            self._lr_storage.numpy()[0] = value

    @property
    def _lr_storage(self) -> Buffer:
        buffer = self._lr._buffer  # noqa: SLF001 - written as a plan writes it
        assert buffer is not None
        return buffer

    def zero_grad(self) -> None:
        """Forget the gradients of all parameters."""
        for param in self.params:
            param.grad = None

    def step(self) -> None:
        """Update every parameter that has a gradient; the others stay as they are."""
        with no_grad():
            active = [
                (i, param, grad)
                for i, param in enumerate(self.params)
                if (grad := param.grad) is not None
            ]
            numbers = self._numbers()
            if not active:
                pass
            elif numbers is None or is_tracing():
                self._update(active)
            else:
                self._steps.run(active, numbers)
            trace = local.trace
            if trace is not None:
                for _, param, _ in active:
                    trace.use_up(param)

    def _numbers(self) -> Hashable:
        """The Python values that updates are made with; None if they may depend on others."""
        return None

    @functools.cached_property
    def _steps(self) -> Steps:
        return Steps(self._update)

    def _update(self, active: list[tuple[int, Tensor, Tensor]]) -> None:
        """Assign to each parameter in (index, parameter, gradient), and to the state."""
        raise NotImplementedError(f"{type(self).__name__} defines no _update")

    # ---- state

    def tree_items(self) -> Iterator[tuple[str, object]]:
        """(name, tensor or list of tensors) for what a checkpoint needs beside the parameters."""
        yield "lr", self._lr

    def state_dict(self) -> dict[str, Tensor]:
        """Learning rate, counters and moments by name; the tensors themselves, no copies."""
        return state.state_dict(self)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True
    ) -> state.IncompatibleKeys:
        """Copy values into the state, in place; see :func:`kernelrt.nn.load_state_dict`."""
        return state.load_state_dict(self, state_dict, strict=strict)

    def _only(self, active: list[tuple[int, Tensor, Tensor]], new: Tensor, old: Tensor) -> Tensor:
        """Take `new` for the parameters that are updated and `old` for the others."""
        if len(active) == len(self.params):
            return new
        chosen = np.zeros(len(self.params), np.bool_)
        chosen[[i for i, _, _ in active]] = True
        return new.where(tensor(chosen), old)

    def _zeros(self) -> list[Tensor]:
        """Zeros like each parameter, with storage."""
        return [zeros_state(param) for param in self.params]

    def __getstate__(self) -> dict[str, Any]:
        # The count is that of this process; a copy looks again.
        return {**{k: v for k, v in self.__dict__.items() if k != "_steps"}, "_births": -1}

    def __repr__(self) -> str:
        names = ", ".join(f"{k}={v!r}" for k, v in self._options().items())
        return f"{type(self).__name__}({len(self.params)} parameters, {names})"

    def _options(self) -> dict[str, object]:
        return {"lr": "traced" if is_tracing() else self.lr}


def counts_state(count: int) -> Tensor:
    """`count` zeros in float64, with storage."""
    return _with_storage(np.zeros(count), dt.float64)


def ones_state(count: int) -> Tensor:
    """`count` ones in float64, with storage."""
    return _with_storage(np.ones(count), dt.float64)


def zeros_state(like: Tensor) -> Tensor:
    """Zeros of the shape and type of `like`, with storage."""
    shape = tuple(dim_max(d) for d in like.dims)
    return _with_storage(np.zeros(shape, np.float32), like.dtype)


def _with_storage(array: np.ndarray[Any, Any], dtype: dt.DType) -> Tensor:
    made = tensor(array, dtype=dtype)
    realize(made)
    return made


def _check_params(params: Iterable[Tensor]) -> list[Tensor]:
    if isinstance(params, Tensor) or not isinstance(params, Iterable):
        raise DTypeError(
            f"params: expected an iterable of Tensors, not {type(params).__name__}; pass "
            "kernelrt.nn.parameters(model)"
        )
    checked: list[Tensor] = []
    seen: set[int] = set()
    for i, param in enumerate(params):
        if not isinstance(param, Tensor):
            raise DTypeError(
                f"params[{i}]: expected a Tensor, not {type(param).__name__}; pass "
                "kernelrt.nn.parameters(model)"
            )
        if not is_parameter(param):
            if param.requires_grad:
                raise GradientError(
                    f"params[{i}]: the tensor is the result of operations; pass the tensors that "
                    "it was computed from"
                )
            raise GradientError(
                f"params[{i}]: the tensor never required a gradient; make it with "
                "requires_grad=True"
            )
        if id(param) in seen:
            raise ShapeError(f"params[{i}]: the same tensor was given before")
        seen.add(id(param))
        checked.append(param)
    if not checked:
        raise ShapeError("params: expected at least one parameter, got none")
    return checked
