"""LRScheduler, the base class of schedules: epoch, base learning rates and state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from kernelrt.device.dlpack import kind_name
from kernelrt.errors import DTypeError, JitError, ShapeError, StateError
from kernelrt.nn.optim.hyperparameters import any_number
from kernelrt.nn.optim.optimizer import Optimizer
from kernelrt.tensor import is_tracing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernelrt.nn.optim.param_groups import Group

__all__ = ["LRScheduler", "check_optimizer", "per_group"]

#: Entries that only PyTorch's state dicts have: bookkeeping, and values that follow from others.
_PYTORCHS: Final = frozenset(
    {"_get_lr_called_within_step", "_is_initial", "default_min_lr", "mode_worse", "verbose"}
)


class LRScheduler:
    """Base class of learning rate schedules.

    Subclasses define :meth:`get_lr`.

    Parameters
    ----------
    optimizer : Optimizer
        Optimizer whose learning rates the schedule sets.
    last_epoch : int
        Last epoch before the schedule resumes; -1 starts a new schedule.

    Raises
    ------
    DTypeError
        `optimizer` is not an Optimizer, or an argument has the wrong type.
    StateError
        `last_epoch` resumes a schedule, but the groups have no ``initial_lr``.

    Examples
    --------
    A schedule of your own:

    >>> class Halving(krt.optim.lr_scheduler.LRScheduler):
    ...     def get_lr(self):
    ...         return [rate / 2**self.last_epoch for rate in self.base_lrs]
    >>> opt = krt.optim.SGD([krt.zeros(1, requires_grad=True)], lr=1.0)
    >>> schedule = Halving(opt)
    >>> opt.step()
    >>> schedule.step()
    >>> opt.lr, schedule.get_last_lr(), schedule.last_epoch
    (0.5, [0.5], 1)
    """

    #: Attributes that are not in the state dict.
    _unsaved: ClassVar[tuple[str, ...]] = ("optimizer",)

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        self.optimizer = check_optimizer(optimizer)
        if isinstance(last_epoch, bool) or not isinstance(last_epoch, int):
            raise DTypeError(f"last_epoch: expected an int, not {type(last_epoch).__name__}")
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise StateError(
                    f"last_epoch: cannot resume after {last_epoch}, because param_groups[{i}] has "
                    "no 'initial_lr'; set it, or pass -1 and load the state of the schedule"
                )
        self.base_lrs: list[float] = [g["initial_lr"] for g in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._step_count = 0
        self._is_initial = False
        self._last_lr: list[float] = []
        self._begin()

    def _begin(self) -> None:
        """Set the first learning rates."""
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    @property
    def _groups(self) -> list[Group]:
        return self.optimizer.param_groups

    def _rates(self) -> list[float]:
        return [group["lr"] for group in self._groups]

    def get_last_lr(self) -> list[float]:
        """Return the learning rates that the schedule set last.

        Returns
        -------
        list of float
            One learning rate for each group.
        """
        return self._last_lr

    def get_lr(self) -> list[float]:
        """Return the learning rate of each group for the epoch ``last_epoch``.

        :meth:`step` calls it. Read ``get_last_lr()`` or ``optimizer.lr`` instead.

        Returns
        -------
        list of float
            One learning rate for each group.
        """
        raise NotImplementedError(
            f"{type(self).__name__}: expected the class to define get_lr, but it does not; define "
            "it in the class"
        )

    def _closed(self) -> list[float]:
        """Return the learning rates, computed from the epoch alone, not from the previous rates."""
        return self.get_lr()

    def step(self, epoch: int | None = None) -> None:
        """Set the learning rates of the next epoch. Call this method after the optimizer's step.

        Parameters
        ----------
        epoch : int, optional
            Epoch to jump to instead.

        Raises
        ------
        JitError
            The call is inside a traced function.
        ShapeError
            Groups were added to the optimizer after the schedule was made.
        """
        self._step_count += 1
        self._update(epoch)

    def _update(self, epoch: int | None = None) -> None:
        outside(self)
        if epoch is None:
            self.last_epoch += 1
            rates = self.get_lr()
        else:
            self.last_epoch = epoch
            rates = self._closed()
        self._set(rates)

    def _set(self, rates: list[float]) -> None:
        if len(rates) != len(self._groups):
            raise ShapeError(
                f"{type(self).__name__} sets {len(rates)} learning rates, but the optimizer has "
                f"{len(self._groups)} parameter groups; add groups before you make the schedule"
            )
        for group, rate in zip(self._groups, rates, strict=True):
            group["lr"] = rate
        self._last_lr = self._rates()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the schedule as plain values, without the optimizer and functions.

        Examples
        --------
        >>> opt = krt.optim.SGD([krt.zeros(1, requires_grad=True)], lr=1.0)
        >>> schedule = krt.optim.lr_scheduler.StepLR(opt, 2, gamma=0.5)
        >>> schedule.state_dict()["step_size"], schedule.state_dict()["last_epoch"]
        (2, 0)
        """
        return {k: v for k, v in self.__dict__.items() if k not in self._unsaved}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore a state from :meth:`state_dict`, or from PyTorch's schedule of the same name.

        States of PyTorch's OneCycleLR and CyclicLR cannot be loaded; they have other entries.

        Parameters
        ----------
        state_dict : mapping of str to object
            State of a schedule of the same class. The learning rates themselves are in the state of
            the optimizer.

        Raises
        ------
        StateError
            The state is that of another class of schedule.
        """
        self.__dict__.update(self._checked(state_dict))

    def _checked(self, state_dict: Mapping[str, Any]) -> dict[str, Any]:
        known = set(self.state_dict())
        given = set(state_dict) - (_PYTORCHS - known)
        if given != known:
            missing, more = sorted(known - given), sorted(given - known)
            raise StateError(
                f"state_dict does not fit {type(self).__name__}: missing {missing}, unexpected "
                f"{more}; pass the state of a schedule of this class"
            )
        return {name: state_dict[name] for name in known}


def outside(schedule: object) -> None:
    """Raise an error inside a traced function, because replays run no Python."""
    if is_tracing():
        raise JitError(
            f"{type(schedule).__name__}.step: cannot be called inside a traced function, because "
            "replays run no Python; call it outside, and the function reads the new learning rate"
        )


def check_optimizer(value: object) -> Optimizer:
    """Return an optimizer after checking its type."""
    if not isinstance(value, Optimizer):
        raise DTypeError(f"optimizer: expected an Optimizer, not {kind_name(value)}")
    return value


def per_group(name: str, optimizer: Optimizer, value: object) -> list[float]:
    """Return one number for each group; `value` is one number for all groups, or one for each."""
    count = len(optimizer.param_groups)
    if not isinstance(value, list | tuple):
        return [any_number(name, value)] * count
    if len(value) != count:
        raise ShapeError(f"{name}: expected {count} numbers, one for each group, not {len(value)}")
    return [any_number(f"{name}[{i}]", v) for i, v in enumerate(value)]
