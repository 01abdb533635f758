"""Types of the way of a call of a jitted function: to the replay that takes its arguments."""

from collections.abc import Iterable
from typing import Any

from kernelrt.native.replay import Register, Replay

class JitCore:
    """Base class of a jitted function: tries its replays and otherwise calls `_slow`.

    The replay that matched last is tried first. Keyword arguments are brought into the order of
    the named parameters, if they continue the positional ones.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def _slow(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Trace, or bring the arguments into the form that a replay takes. To be overridden."""
    def _require_empty(self, registers: Iterable[Register]) -> None:
        """Call `_slow` as long as any of these dicts holds something."""
    def _name_parameters(self, names: Iterable[str]) -> None:
        """Say what the parameters that may be passed by position are called."""
    def _add_replay(self, replay: Replay) -> None: ...
    def _clear_replays(self) -> None: ...
    @property
    def _replays(self) -> tuple[Replay, ...]: ...
