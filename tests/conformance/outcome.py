"""What comes of a sample, as plain data."""

from __future__ import annotations

import linecache
import re
from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tests.support.package import is_in_package

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

__all__ = ["BAD", "KINDS", "Outcome", "counted", "of_error"]

KINDS = ("same", "known", "different", "refused", "crashed", "missing")
#: Kinds that are bugs of kernelrt; what `known.py` explains is of the kind "known".
BAD = ("different", "crashed")
#: A call with arguments that the function does not have.
SIGNATURE = re.compile(r"unexpected keyword|positional argument|required keyword|got multiple val")


@dataclass(frozen=True)
class Outcome:
    """The outcome of one sample in one way of calling it.

    Attributes
    ----------
    name : str
        The operation or the module.
    sample : str
        The type and the number of the sample among those of PyTorch, as ``float32 3``.
    mode : str
        "eager" or "jit".
    kind : str
        One of `KINDS`.
    reason : str
        How it differs, or the error.
    """

    name: str
    sample: str
    mode: str
    kind: str
    reason: str = ""

    def plain(self) -> dict[str, str]:
        """For JSON."""
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.kind:9} {self.name} [{self.sample}, {self.mode}] {self.reason}"


def counted(outcomes: Iterable[Outcome]) -> Counter[str]:
    """How many there are of each kind."""
    return Counter(outcome.kind for outcome in outcomes)


def of_error(error: BaseException) -> tuple[str, str]:
    """The kind and the reason of an error that a call raised."""
    import kernelrt as krt

    reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    named = isinstance(error, AttributeError) and _is_of_a_user(error)
    if named or isinstance(error, krt.errors.UnknownNameError):
        return "missing", reason
    if isinstance(error, krt.KernelrtError | NotImplementedError):
        return "refused", reason
    typed = isinstance(error, TypeError | ValueError | IndexError)
    if typed and (SIGNATURE.search(str(error)) or _raised(error.__traceback__)):
        return "refused", reason
    return "crashed", reason + _place(error.__traceback__)


def _frames(trace: TracebackType | None) -> list[Any]:
    found = []
    while trace is not None:
        found.append((trace.tb_frame.f_code.co_filename, trace.tb_lineno))
        trace = trace.tb_next
    return found


def _raised(trace: TracebackType | None) -> bool:
    """Whether a line of kernelrt raised the error itself."""
    file, line = _frames(trace)[-1]
    return is_in_package(file) and linecache.getline(file, line).lstrip().startswith("raise ")


def _is_of_a_user(error: AttributeError) -> bool:
    """Whether a name of kernelrt was looked up outside of kernelrt."""
    import kernelrt as krt

    file = _frames(error.__traceback__)[-1][0]
    ours = isinstance(error.obj, krt.Tensor) or error.obj is krt.Tensor
    return file.endswith("util/unsupported_names.py") or (ours and not is_in_package(file))


def _place(trace: TracebackType | None) -> str:
    ours = [(file, line) for file, line in _frames(trace) if is_in_package(file)]
    return f" [{ours[-1][0].rpartition('/')[2]}:{ours[-1][1]}]" if ours else ""
