"""The base class of schedules: epoch, base learning rates and state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from kernelrt.errors import DTypeError, JitError, ShapeError, StateError
from kernelrt.nn.optim.hyperparameters import any_number
from kernelrt.nn.optim.optimizer import Optimizer
from kernelrt.tensor import is_tracing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernelrt.nn.optim.param_groups import Group

__all__ = ["LRScheduler", "check_optimizer", "per_group"]

#: What PyTorch's state dicts have beside: its own bookkeeping, and what follows from the rest.
_PYTORCHS: Final = frozenset(
    {"_get_lr_called_within_step", "_is_initial", "default_min_lr", "mode_worse", "verbose"}
)


class LRScheduler:
    """Base class of schedules.

    A schedule of one's own defines :meth:`get_lr`.

    Parameters
    ----------
    optimizer : Optimizer
        Whose learning rates to set.
    last_epoch : int
        The epoch to go on after; -1 begins.

    Raises
    ------
    DTypeError
        `optimizer` is none, or a number is something else.
    StateError
        `last_epoch` goes on, but the groups know no ``initial_lr``.
    """

    #: What a state dict leaves out.
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
                    f"last_epoch: {last_epoch} goes on, but param_groups[{i}] has no 'initial_lr'; "
                    "set it, or begin with -1 and load the state of the schedule"
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
        """The learning rate of each group that was set last."""
        return self._last_lr

    def get_lr(self) -> list[float]:
        """The learning rate of each group for the epoch ``last_epoch``."""
        raise NotImplementedError(f"{type(self).__name__} defines no get_lr")

    def _closed(self) -> list[float]:
        """The learning rates by the epoch alone."""
        return self.get_lr()

    def step(self, epoch: int | None = None) -> None:
        """Set the learning rates of the next epoch; after the optimizer's step.

        Parameters
        ----------
        epoch : int, optional
            Another epoch to go to.
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
                f"{type(self).__name__}: it has {len(rates)} learning rates for "
                f"{len(self._groups)} groups; make the schedule after adding groups"
            )
        for group, rate in zip(self._groups, rates, strict=True):
            group["lr"] = rate
        self._last_lr = self._rates()

    def state_dict(self) -> dict[str, Any]:
        """What to save of the schedule: plain values, without the optimizer and functions."""
        return {k: v for k, v in self.__dict__.items() if k not in self._unsaved}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state_dict` gave, or that of PyTorch's schedule of this name.

        Not those of OneCycleLR and CyclicLR, which keep other things.

        Raises
        ------
        StateError
            It is that of another kind of schedule.
        """
        self.__dict__.update(self._checked(state_dict))

    def _checked(self, state_dict: Mapping[str, Any]) -> dict[str, Any]:
        known = set(self.state_dict())
        given = set(state_dict) - (_PYTORCHS - known)
        if given != known:
            missing, more = sorted(known - given), sorted(given - known)
            raise StateError(
                f"state_dict does not fit {type(self).__name__}: missing {missing}, unexpected "
                f"{more}"
            )
        return {name: state_dict[name] for name in known}


def outside(schedule: object) -> None:
    """Raise where a function is traced: replays run no Python."""
    if is_tracing():
        raise JitError(
            f"{type(schedule).__name__}.step: a traced function calls it, and replays run no "
            "Python; call it outside of the function, which sees the new learning rate"
        )


def check_optimizer(value: object) -> Optimizer:
    """An optimizer of kernelrt."""
    if not isinstance(value, Optimizer):
        raise DTypeError(f"optimizer: expected an Optimizer, not {type(value).__name__}")
    return value


def per_group(name: str, optimizer: Optimizer, value: object) -> list[float]:
    """A number for each group, given as one for all or one for each."""
    count = len(optimizer.param_groups)
    if not isinstance(value, list | tuple):
        return [any_number(name, value)] * count
    if len(value) != count:
        raise ShapeError(f"{name}: expected {count} numbers, one for each group, not {len(value)}")
    return [any_number(f"{name}[{i}]", v) for i, v in enumerate(value)]
