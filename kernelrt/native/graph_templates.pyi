"""Types of the graph templates of operations."""

from collections.abc import Callable

from kernelrt.dtype import DType
from kernelrt.ir.ops import Op
from kernelrt.tensor.autograd.tags import Custom
from kernelrt.tensor.base import TensorBase
from kernelrt.tensor.views import Kind, Layout

def count_uses() -> int:
    """Return the number of calls that had a template."""

def enable(value: bool, /) -> None:
    """Set whether calls make and use templates."""

def verify(value: bool, /) -> None:
    """Set whether calls with a template also run the code; KernelrtError if the graphs differ."""

def _name_ops(
    buffer: Op,
    constant: Op,
    detach: Op,
    leaves: frozenset[Op],
    transparent: frozenset[Op],
    logic: frozenset[Op],
) -> None: ...
def _name_types(
    custom: type[Custom], dtype: type[DType], boolean: DType, plain: tuple[type, ...]
) -> None: ...
def _name_views(
    layout: Callable[[TensorBase], Layout | None],
    make_ordinary: Callable[[TensorBase], None],
    index: Kind,
) -> None: ...
