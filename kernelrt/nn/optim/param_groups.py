"""Parameter groups: parameters with the same hyperparameters, and their state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kernelrt import dtype as dt
from kernelrt.errors import DTypeError, JitError, ShapeError, UnknownNameError
from kernelrt.ir.shape import dim_max
from kernelrt.nn import modes, state_dicts
from kernelrt.nn.optim import member_hyperparameters
from kernelrt.nn.optim.hyperparameters import (
    Hyperparameter,
    any_number,
    non_negative,
    numbers,
    rules_of,
)
from kernelrt.tensor import Tensor, is_tracing
from kernelrt.tensor.eager.realize import before_writes, flush, realize
from kernelrt.tensor.free_functions.creation import tensor
from kernelrt.tensor.state import births

if TYPE_CHECKING:
    from collections.abc import Hashable

    from kernelrt.device.buffer import Buffer

__all__ = ["IGNORED", "Group", "at", "check_mapping", "share_of_square", "state_of",
           "zeros_state"]  # fmt: skip

#: Options of PyTorch that select an implementation. They do not change the results.
IGNORED: Final = ("foreach", "capturable", "fused")
#: Keys that schedules and their users may store in a group.
_NOTES: Final = ("initial_lr", "max_lr", "min_lr", "base_momentum", "max_momentum", "swa_lr",
                 "name", "param_names", "lr_scale", *IGNORED, "differentiable")  # fmt: skip
#: Prefix of such keys among the attributes of a group.
_KEPT: Final = "_kept_"


class Group(MutableMapping[str, Any]):
    """One parameter group of an optimizer; it works like a dict.

    Parameters
    ----------
    kind : type
        Class of the optimizer.
    params : list of Tensor
        Parameters of the group.
    lr : float, Tensor or array
        Learning rate. Numbers are copied to memory that plans read; a Tensor is used itself.
    values : mapping of str to object
        Value of each hyperparameter, and optionally entries of schedules.
    own : iterable of str
        Names of hyperparameters that the class does not declare; they may have any value.
    """

    def __init__(
        self, kind: type[Any], params: list[Tensor], lr: float | Tensor,
        values: Mapping[str, object], own: Iterable[str] = (),
    ) -> None:  # fmt: skip
        self._kind = kind
        #: Name of the group in errors and in explanations of retraces.
        self.called = kind.__name__
        self.params = params
        #: Tensors that an update changes together with the parameters: one for all, or one each.
        self.state: dict[str, Tensor | list[Tensor]] = {}
        self._rules = rules = rules_of(kind)
        rules.update((n, Hyperparameter(_anything)) for n in own if n not in rules)
        self._births = -1
        self._key: Hashable = None
        #: Number of members, if some hyperparameter has a value for each member of a population.
        self.members: int | None = None
        self.rate = _rate(lr)
        self._count_members("lr", self.rate)
        for name, value in values.items():
            if name in rules:
                if "_" + name in self.__dict__:
                    raise UnknownNameError(
                        f"{name}: parameter groups have an attribute of this name; use another name"
                    )
                self._begin(name, member_hyperparameters.checked(name, value, rules[name]))
            else:
                self.__dict__[_KEPT + self._known(name)] = value
        self.prepare()

    # ---- as a dict

    def __getitem__(self, name: str) -> Any:
        if name in self._rules:
            return self.read(name)
        if name == "lr":
            # Inside a traced function: the tensor that plans read.
            if is_tracing():
                return self.rate
            if not self.rate.ndim:
                return float(self.rate.item())
            rates = self.rate.double().numpy()
            rates.setflags(write=False)  # a copy, so writing to it would have no effect
            return rates
        if name == "params":
            return list(self.params)
        key = _KEPT + name
        value = self.__dict__.get(key, modes.MISSING)
        modes.note(self, key, value)
        if value is modes.MISSING:
            raise KeyError(name)
        return value

    def __setitem__(self, name: str, value: object) -> None:
        if name == "lr":
            self.set_rate(value)
        elif name in self._rules:
            self._set(name, value)
        elif name == "params":
            raise UnknownNameError(
                "params: the parameters of a group cannot be changed; use add_param_group to add "
                "others"
            )
        else:
            self._check_untraced(self._known(name))
            self.__dict__[_KEPT + name] = value
            modes.changed()

    def __delitem__(self, name: str) -> None:
        if name in self._rules or name in ("lr", "params"):
            raise UnknownNameError(
                f"{name}: the key cannot be deleted, because every parameter group needs it; "
                "set another value instead"
            )
        self._check_untraced(name)
        if self.__dict__.pop(_KEPT + name, modes.MISSING) is modes.MISSING:
            raise KeyError(name)
        modes.changed()

    def __iter__(self) -> Iterator[str]:
        kept = [n.removeprefix(_KEPT) for n in self.__dict__ if n.startswith(_KEPT)]
        return iter(("params", "lr", *self._rules, *kept))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __repr__(self) -> str:
        rest = {n: "traced" if n == "lr" and is_tracing() else self[n] for n in self
                if n != "params"}  # fmt: skip
        return f"{{'params': {len(self.params)} tensors, {str(rest)[1:]}"

    def __getstate__(self) -> dict[str, Any]:
        # `births` counts the tensors of this process only, so a copy starts anew.
        return {**self.__dict__, "_births": -1}

    def _known(self, name: str) -> str:
        if name not in _NOTES:
            raise UnknownNameError(
                f"{self.called}: unknown key {name!r} of a parameter group, expected one of "
                f"{', '.join(['lr', *self._rules])}"
            )
        return name

    # ---- hyperparameters

    def read(self, name: str) -> Any:
        """Return a hyperparameter. In a traced step, values that often change are tensors."""
        held = self.__dict__
        # The group of a single member refers to the group of all members.
        whole = held.get("_whole", self)
        if is_tracing() and (found := held.get("_live_" + name)) is not None:
            modes.note(whole, "_live_" + name, whole.__dict__["_live_" + name])
            return found
        value = held["_" + name]
        modes.note(whole, "_" + name, value)
        return value

    def on(self, name: str) -> bool:
        """Whether a hyperparameter is nonzero, or may become nonzero."""
        value = self.read(name)
        parts = value if isinstance(value, tuple) else (value,)
        return any(isinstance(v, Tensor | np.ndarray) or bool(v) for v in parts)

    def has_new(self, name: str, value: object) -> bool:
        """Whether setting a hyperparameter to `value` changes it."""
        return not modes.same(self.__dict__["_" + name], value)

    def _check_untraced(self, name: str) -> None:
        if is_tracing():
            raise JitError(
                f"{name}: cannot be set inside a traced function, because replays run no Python; "
                f"set {self.called}.{name} outside of the function"
            )

    def _set(self, name: str, value: object) -> None:
        self._give(name, member_hyperparameters.checked(name, value, self._rules[name]))

    def schedule(self, name: str, value: float | tuple[Any, ...]) -> None:
        """Set a hyperparameter to a schedule's value, which may exceed the bounds slightly."""
        check = numbers(len(value)) if isinstance(value, tuple) else any_number
        loose = Hyperparameter[Any](check, live=self._rules[name].live)
        self._give(name, member_hyperparameters.checked(name, value, loose))

    def _give(self, name: str, checked: Any) -> None:
        self._check_untraced(name)
        if not self.has_new(name, checked):
            return
        self._count_members(name, checked)
        names, key = self.__dict__, "_" + name
        before = names[key]
        names[key] = checked
        try:
            self.prepare()
        except BaseException:
            names[key] = before
            raise
        self._key = None
        live = names.get("_live" + key)
        if live is not None and all(map(_takes, _each(live), _each(checked))):
            for place, number in zip(_each(live), _each(checked), strict=True):
                _write(place, number)
            return
        if self._rules[name].live and (isinstance(checked, tuple) or self.on(name)):
            # A value that changed once will change again: from now on plans read it from memory.
            self._let_live(name, checked)
        modes.changed()

    def _begin(self, name: str, checked: Any) -> None:
        """Initialize a hyperparameter; plans read it from memory if each member has its own."""
        self.__dict__["_" + name] = checked
        if self._count_members(name, checked):
            self._let_live(name, checked)

    def _let_live(self, name: str, checked: Any) -> None:
        made = tuple(_with_storage(np.array(v), dt.float64) for v in _each(checked))
        self.__dict__["_live_" + name] = made if isinstance(checked, tuple) else made[0]

    def _count_members(self, name: str, value: Any) -> bool:
        """Set `members` if `value` has one number for each member; return whether it has."""
        (count,) = member_hyperparameters.sizes_of(name, value) or (None,)
        if count is None:
            return False
        member_hyperparameters.check_fit(self._kind, self.params, name, count)
        self.members = count
        return True

    def vectors(self) -> dict[str, Tensor]:
        """Return the tensors with one number for each member, by hyperparameter name."""
        found = {"lr": self.rate} if self.rate.ndim else {}
        for name in self._rules:
            live = self.__dict__.get("_live_" + name, ())
            found |= {f"{name}[{i}]": t for i, t in enumerate(_each(live)) if t.ndim}
        return found

    def of_member(self, inside: Mapping[int, Tensor]) -> Group:
        """Return this group for one member, with tensors replaced by those in `inside` (by id)."""

        def seen(value: Any) -> Any:
            if isinstance(value, tuple | list):
                return type(value)(seen(v) for v in value)
            return inside.get(id(value), value)

        one = object.__new__(type(self))
        # One member's parameters have the same names as those of all members.
        one.__dict__.update(self.__dict__, _whole=self, params=seen(self.params))
        one.state = {name: seen(held) for name, held in self.state.items()}
        one.rate = seen(self.rate)
        lives = {n: seen(v) for n, v in self.__dict__.items() if n.startswith("_live_")}
        one.__dict__.update(lives)
        return one

    def prepare(self) -> None:
        """Check hyperparameters against each other, and create the state that they need."""
        self._kind._prepare(self)  # noqa: SLF001 - only the optimizer class knows its state

    def key(self) -> Hashable:
        """Return the Python values that updates depend on."""
        if self._key is None:
            held = self.__dict__
            self._key = tuple(
                [self.members]
                + [None if "_live_" + n in held else held["_" + n] for n in self._rules]
            )
        return self._key

    # ---- learning rate

    def set_rate(
        self, value: object, check: Callable[[str, object], float] = any_number
    ) -> None:
        """Write the learning rate to the memory that plans read.

        Schedules may give numbers below 0, by rounding or by their formulas. So any finite number
        is accepted by default; pass `check` for a stricter rule.
        """
        if member_hyperparameters.is_vector(value) and not self.rate.ndim:
            raise ShapeError(
                "lr: expected one number, because the optimizer was created with one number and "
                "its plans read one number; for a rate per member, create the optimizer with a "
                "vector as lr"
            )
        if not isinstance(value, Tensor):
            several = member_hyperparameters.is_vector(value)
            number = _rates(value, check) if several else check("lr", value)
            self._check_rate(number)
            if not is_tracing():
                self._write_rate(number)
                return
            value = tensor(np.array(number))
        self._check_rate(value)
        if self.rate.ndim:
            value = value.expand(*self.rate.shape)
        value = value.detach().cast(self.rate.dtype)
        if is_tracing():
            self.rate.assign(value)
        else:
            state_dicts.overwrite([(self.rate, value)])

    def _check_rate(self, value: Any) -> None:
        shape = () if isinstance(value, float) else tuple(value.shape)
        if shape not in ((), self.rate.shape):
            fits = "() or " * bool(self.rate.ndim) + str(self.rate.shape)
            raise ShapeError(f"lr: expected a float or a Tensor of shape {fits}, not {shape}")

    def _write_rate(self, value: float | np.ndarray[Any, Any]) -> None:
        flush()
        if self._births != births[0]:  # a tensor created since may lazily read the old value
            self._births = before_writes([_storage(self.rate)])
        if self.rate.dtype is dt.bfloat16:
            given = tensor(np.asarray(value, np.float32)).cast(dt.bfloat16)
            state_dicts.overwrite([(self.rate, given.expand(*self.rate.shape))])
        else:
            _storage(self.rate).numpy()[...] = value

    # ---- state

    def zeros(self, name: str) -> list[Tensor]:
        """Return the state called `name`: one tensor like each parameter, initially zeros."""
        found = self.state.get(name)
        if found is None:
            found = self.state[name] = [zeros_state(p) for p in self.params]
        assert isinstance(found, list)
        return found

    def scalars(self, name: str, start: float = 0.0) -> Tensor:
        """Return the state called `name`: one float64 for each parameter, initially `start`."""
        found = self.state.get(name)
        if found is None:
            made = np.full(len(self.params), start)
            found = self.state[name] = _with_storage(made, dt.float64)
        assert isinstance(found, Tensor)
        return found

    def only(self, active: list[tuple[int, Tensor, Tensor]], new: Tensor, old: Tensor) -> Tensor:
        """Return `new` for the parameters that are updated and `old` for the others."""
        if len(active) == len(self.params):
            return new
        chosen = np.zeros(len(self.params), np.bool_)
        chosen[[i for i, _, _ in active]] = True
        return new.where(tensor(chosen), old)


def _anything(_name: str, value: object) -> object:
    return value


def at(value: Any, like: Tensor) -> Any:
    """Return a tensor cast to the dtype of `like`; return a Python number unchanged."""
    return value.cast(like.dtype) if isinstance(value, Tensor) else value


def share_of_square(value: Tensor, share: Any) -> Tensor:
    """Return ``share * value ** 2``, which is infinite only if that product itself overflows.

    The multiplication by `share` comes first, as in PyTorch: in float32 the plain square of a value
    above 1.8e19 overflows.
    """
    product: Tensor = value * (value * at(share, value))
    return product


def _each(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _rate(lr: float | Tensor) -> Tensor:
    if not isinstance(lr, Tensor):
        # float64, so that the scalars of a step are as precise as Python floats.
        vector = member_hyperparameters.is_vector(lr)
        number = _rates(lr, non_negative) if vector else non_negative("lr", lr)
        return _with_storage(np.array(number), dt.float64)
    if lr.ndim > 1 or not lr.dtype.is_float:
        raise ShapeError(
            "lr: expected a float or a floating-point Tensor of shape (), or (members,), not "
            f"{lr.dtype.name} of shape {lr.shape}"
        )
    realize(lr)
    return lr


def _rates(value: Any, check: Callable[[str, object], float]) -> np.ndarray[Any, Any]:
    found = member_hyperparameters.numbers_of("lr", value)
    for number in found:
        check("lr", number)
    return found


def _takes(place: Tensor, value: Any) -> bool:
    """Whether a value fits into the memory of `place`."""
    return np.shape(value) in ((), place.shape)


def _write(place: Tensor, number: float | np.ndarray[Any, Any]) -> None:
    flush()
    before_writes([_storage(place)])
    _storage(place).numpy()[...] = number


def _storage(place: Tensor) -> Buffer:
    buffer = place._buffer  # noqa: SLF001 - written as a plan writes it
    assert buffer is not None
    return buffer


def zeros_state(like: Tensor) -> Tensor:
    """Return zeros of the shape and dtype of `like`, with storage."""
    shape = tuple(dim_max(d) for d in like.dims)
    return _with_storage(np.zeros(shape, np.float32), like.dtype)


def state_of(shape: tuple[int, ...], dtype: dt.DType) -> Tensor:
    """Return zeros with storage."""
    return _with_storage(np.zeros(shape, np.float32), dtype)


def _with_storage(array: np.ndarray[Any, Any], dtype: dt.DType) -> Tensor:
    made = tensor(array, dtype=dtype)
    realize(made)
    return made


def check_mapping(value: object, name: str) -> Mapping[str, Any]:
    """Return a group as given, after checking that it is a dict with "params"."""
    if not isinstance(value, Mapping):
        raise DTypeError(f"{name}: expected a dict with 'params', not {type(value).__name__}")
    if "params" not in value:
        found = f"keys are {', '.join(map(repr, value))}" if value else "dict is empty"
        raise DTypeError(f"{name}: expected a dict with the key 'params', but the {found}")
    return value
