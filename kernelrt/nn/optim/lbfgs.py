"""L-BFGS."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from kernelrt.errors import DTypeError, JitError, ShapeError, StateError
from kernelrt.nn import state_dicts, tree
from kernelrt.nn.optim.hyperparameters import Hyperparameter, non_negative, one_of, whole
from kernelrt.nn.optim.line_search import Point, search
from kernelrt.nn.optim.optimizer import Optimizer
from kernelrt.tensor import Tensor, is_tracing
from kernelrt.tensor.free_functions.creation import tensor
from kernelrt.tensor.state import enable_grad, no_grad

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kernelrt.nn.optim.optimizer import Params
    from kernelrt.nn.optim.param_groups import Group

    Array = np.ndarray[Any, Any]

__all__ = ["LBFGS"]

_T = TypeVar("_T")


class LBFGS(Optimizer):
    """Limited-memory BFGS (Nocedal, Math. Comp. 35, 1980), as in ``torch.optim.LBFGS``.

    A step evaluates the loss several times and branches on its value, so it cannot be part of a
    jitted function. The closure may call a jitted function that computes loss and gradients.

    Each iteration moves the parameters along ``-H @ g``. Here ``g`` is the gradient, and ``H`` an
    approximation of the inverse Hessian matrix. ``H`` is computed from the last `history_size`
    changes of parameters and gradients.

    Parameters
    ----------
    params : iterable of Tensor
        Parameters to optimize; a single group.
    lr : float or Tensor
        Step length; with a line search, the first length to try.
    max_iter : int
        Maximum number of iterations in a step.
    max_eval : int, optional
        Maximum number of evaluations of the loss in a step; ``max_iter * 5 // 4`` by default.
    tolerance_grad : float
        A step ends when no element of the gradient exceeds this.
    tolerance_change : float
        A step ends when no parameter changes by more than this, or when the loss changes by less
        than this.
    history_size : int
        Number of past gradient changes to keep.
    line_search_fn : "strong_wolfe" or None
        Method that finds the step length.

    Raises
    ------
    ShapeError
        There is more than one parameter group.

    Examples
    --------
    >>> w = krt.tensor([1.0, -2.0], requires_grad=True)
    >>> opt = krt.optim.LBFGS([w], line_search_fn="strong_wolfe")
    >>> def closure():
    ...     opt.zero_grad()
    ...     loss = ((w - 3) ** 2).sum()
    ...     loss.backward()
    ...     return loss
    >>> opt.step(closure).item()                     # the loss before the step
    29.0
    >>> w.round(decimals=4).tolist()
    [3.0, 3.0]
    """

    _plain = True
    per_member = False
    max_iter = Hyperparameter(whole(1))
    max_eval = Hyperparameter(whole(1))
    tolerance_grad = Hyperparameter(non_negative)
    tolerance_change = Hyperparameter(non_negative)
    history_size = Hyperparameter(whole(1))
    line_search_fn = Hyperparameter(one_of((None, "strong_wolfe")))

    def __init__(
        self, params: Params, lr: float | Tensor = 1, max_iter: int = 20,
        max_eval: int | None = None, tolerance_grad: float = 1e-7, tolerance_change: float = 1e-9,
        history_size: int = 100, line_search_fn: str | None = None,
    ) -> None:  # fmt: skip
        options = {
            "max_iter": max_iter, "tolerance_grad": tolerance_grad,
            "max_eval": whole(1)("max_iter", max_iter) * 5 // 4 if max_eval is None else max_eval,
            "tolerance_change": tolerance_change, "history_size": history_size,
            "line_search_fn": line_search_fn,
        }  # fmt: skip
        super().__init__(params, lr, options)
        self._memory: _Memory | None = None

    @classmethod
    def _prepare(cls, group: Group) -> None:
        pass

    def _add(self, given: Mapping[str, Any], name: str) -> None:
        if self.param_groups:
            raise ShapeError(
                "params: LBFGS supports only one parameter group; use an optimizer for each group"
            )
        super()._add(given, name)

    def step(self, closure: Callable[[], _T] | None = None) -> _T | None:
        """Minimize the loss for some iterations.

        Parameters
        ----------
        closure : callable
            Function that computes the loss, sets the gradients to those of the loss, and returns
            the loss.

        Returns
        -------
        object
            Result of the first call of the closure.

        Raises
        ------
        DTypeError
            There is no closure, or it returns anything but one number.
        JitError
            The call is inside a traced function.
        """
        if not callable(closure):
            raise DTypeError(
                "closure: expected a function that calls zero_grad() and backward() and returns "
                f"the loss, not {type(closure).__name__}, because LBFGS evaluates the loss several "
                "times in a step"
            )
        if is_tracing():
            raise JitError(
                "LBFGS.step: cannot run inside a jitted function, because it branches on computed "
                "values; jit the work of the closure instead"
            )
        with enable_grad():
            first = closure()

        def again() -> float:
            with enable_grad():
                return _number(closure())

        with no_grad():
            self._minimize(_number(first), again)
        return first

    def _minimize(self, loss: float, closure: Callable[[], float]) -> None:
        group = self.param_groups[0]
        gradient, count = self._gradient(), 1
        if _widest(gradient) <= group["tolerance_grad"]:
            return
        memory = self._memory = self._memory or _Memory()
        for iteration in range(1, group["max_iter"] + 1):
            direction = memory.direction(gradient, group["history_size"])
            memory.gradient, before = gradient, loss
            length = float(group["lr"])
            if memory.iterations == 1:
                length *= min(1.0, 1.0 / float(np.abs(gradient).sum()))
            memory.length = length
            slope = float(gradient @ direction)
            if slope > -group["tolerance_change"]:
                return
            if group["line_search_fn"] is None:
                self._move(self._values(), length, direction)
                if iteration == group["max_iter"]:
                    return
                loss, gradient = closure(), self._gradient()
                count += 1
            else:
                origin = self._values()
                found, tried = search(
                    lambda t, d=direction, origin=origin: self._look(closure, origin, t, d),  # type: ignore[misc]
                    Point(0.0, loss, gradient, slope), length, _widest(direction), 1e-9,
                    group["max_eval"] - count,
                )  # fmt: skip
                memory.length, loss, gradient, _ = found
                self._move(origin, memory.length, direction)
                count += tried
            if iteration == group["max_iter"] or count >= group["max_eval"]:
                return
            if _widest(gradient) <= group["tolerance_grad"]:
                return
            little = group["tolerance_change"]
            if _widest(direction * memory.length) <= little or abs(loss - before) < little:
                return

    def _look(
        self, closure: Callable[[], float], origin: list[Array], length: float, direction: Array
    ) -> Point:
        """Return the point at a step length; the parameters are restored."""
        self._move(origin, length, direction)
        loss, gradient = closure(), self._gradient()
        self._move(origin, 0.0, direction)
        return Point(length, loss, gradient, float(gradient @ direction))

    def _values(self) -> list[Array]:
        return [_array(p) for p in self.params]

    def _gradient(self) -> Array:
        """Return all gradients as one vector; missing gradients count as zeros."""
        parts = [
            np.zeros(p.numel(), _array(p).dtype) if p.grad is None else _array(p.grad).reshape(-1)
            for p in self.params
        ]
        return np.concatenate(parts)

    def _move(self, origin: list[Array], length: float, direction: Array) -> None:
        start, pairs = 0, []
        for param, value in zip(self.params, origin, strict=True):
            part = direction[start : start + value.size].reshape(value.shape)
            start += value.size
            moved = value + (part * length).astype(value.dtype) if length else value
            pairs.append((param, tensor(moved).cast(param.dtype)))
        state_dicts.overwrite(pairs)

    # ---- state

    @tree.completes
    def state_dict(self) -> dict[str, Tensor]:
        """Return learning rate and history by name; the learning rate is the tensor itself."""
        found = super().state_dict()
        memory = self._memory
        if memory is not None and memory.gradient is not None and memory.last_direction is not None:
            found |= {
                "n_iter": tensor(np.array(memory.iterations)), "t": tensor(np.array(memory.length)),
                "d": tensor(memory.last_direction), "prev_flat_grad": tensor(memory.gradient),
                "H_diag": tensor(np.array(memory.scale)),
                "ro": tensor(np.array(memory.inverse_curvatures)),
                "old_dirs": tensor(_stacked(memory.changes, memory.last_direction)),
                "old_stps": tensor(_stacked(memory.steps, memory.last_direction)),
            }  # fmt: skip
        return found

    @tree.completes
    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True
    ) -> state_dicts.IncompatibleKeys:
        """Restore the state that :meth:`state_dict` returned.

        Parameters
        ----------
        state_dict : mapping of str to array_like
            State of an L-BFGS optimizer with as many parameters.
        strict : bool
            Whether the names must be exactly those of :meth:`state_dict`.

        Returns
        -------
        IncompatibleKeys
            The missing and the unexpected names. If `strict` is true, both lists are empty.

        Raises
        ------
        StateError
            The state dict is PyTorch's, entries of the history are missing, or shapes do not fit.
        """
        if "param_groups" in state_dict:
            raise StateError(
                "state_dict: LBFGS cannot load a state dict of PyTorch; use a new LBFGS, which "
                "starts with an empty history"
            )
        found = state_dicts.copy_into(
            self, {k: v for k, v in state_dict.items() if k not in _HISTORY}, strict=strict
        )
        held = {k: _array(v) for k, v in state_dict.items() if k in _HISTORY}
        if held and len(held) < len(_HISTORY):
            raise StateError(
                f"state_dict: the keys {sorted(_HISTORY - set(held))} are missing; pass all that "
                "LBFGS.state_dict() returned, or no key of the history"
            )
        if held and held["d"].shape != (size := sum(p.numel() for p in self.params),):
            raise StateError(f"state_dict: 'd' has shape {held['d'].shape}, expected ({size},)")
        self._memory = _Memory.of(held) if held else None
        return found


_HISTORY = frozenset({"n_iter", "t", "d", "prev_flat_grad", "H_diag", "ro", "old_dirs", "old_stps"})


class _Memory:
    """Past steps and gradient changes, which approximate the second derivatives."""

    def __init__(self) -> None:
        self.iterations = 0
        self.length = 0.0
        self.scale = 1.0
        self.last_direction: Array | None = None
        self.gradient: Array | None = None
        self.steps: list[Array] = []
        self.changes: list[Array] = []
        self.inverse_curvatures: list[float] = []

    @classmethod
    def of(cls, held: dict[str, Array]) -> _Memory:
        """Return the history that a state dict holds."""
        made = cls()
        made.iterations, made.length = int(held["n_iter"]), float(held["t"])
        made.scale, made.last_direction = float(held["H_diag"]), held["d"]
        made.gradient = held["prev_flat_grad"]
        made.steps, made.changes = list(held["old_stps"]), list(held["old_dirs"])
        made.inverse_curvatures = [float(v) for v in held["ro"]]
        return made

    def direction(self, gradient: Array, most: int) -> Array:
        """Return the next search direction, by the two-loop recursion."""
        self.iterations += 1
        if self.last_direction is None or self.gradient is None:
            self.last_direction = -gradient
            return self.last_direction
        self._remember(gradient - self.gradient, self.last_direction * self.length, most)
        direction: Array = -gradient
        weights: list[float] = []
        past = list(zip(self.steps, self.changes, self.inverse_curvatures, strict=True))
        kind = gradient.dtype.type
        for step, change, rho in reversed(past):
            weights.append(float(step @ direction) * rho)
            direction = direction - change * kind(weights[-1])
        direction = direction * kind(self.scale)
        for (step, change, rho), weight in zip(past, reversed(weights), strict=True):
            direction = direction + step * kind(weight - float(change @ direction) * rho)
        self.last_direction = direction
        return direction

    def _remember(self, change: Array, step: Array, most: int) -> None:
        curvature = float(change @ step)
        if not curvature > 1e-10:
            return
        self.steps.append(step.astype(change.dtype))
        self.changes.append(change)
        self.inverse_curvatures.append(1.0 / curvature)
        for past in (self.steps, self.changes, self.inverse_curvatures):
            del past[: max(0, len(past) - most)]
        self.scale = curvature / float(change @ change)


def _array(value: Any) -> Array:
    """Return a copy as an array; bfloat16 becomes float32."""
    if isinstance(value, Tensor):
        value = value.detach()
        value = (value.float() if value.dtype.name == "bfloat16" else value).numpy()
    return np.array(value)


def _stacked(parts: list[Array], like: Array) -> Array:
    return np.stack(parts) if parts else np.zeros((0, like.size), like.dtype)


def _number(loss: object) -> float:
    if isinstance(loss, Tensor):
        return float(loss.item())
    if not isinstance(loss, int | float | np.floating):
        raise DTypeError(
            "closure: expected a function that returns the loss, but it returned a value of type "
            f"{type(loss).__name__}"
        )
    return float(loss)


def _widest(values: Array) -> float:
    return float(np.abs(values).max(initial=0.0))
