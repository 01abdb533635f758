"""kernelrt: an execution engine for training loops and low-latency inference on CPUs."""

from typing import TYPE_CHECKING, Any

from kernelrt._dispatch import get_num_threads, set_num_threads
from kernelrt._version import __version__
from kernelrt.dtype import (
    DType,
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    promote,
    uint8,
    uint16,
    uint32,
    uint64,
)
from kernelrt.errors import (
    BufferReleasedError,
    CompileError,
    CustomFunctionError,
    DeviceError,
    DTypeError,
    GradientError,
    IndexBoundsError,
    JitError,
    KernelrtError,
    OutOfMemoryError,
    PlanBuildError,
    PlanBusyError,
    PlanReleasedError,
    ShapeError,
    SpecError,
    VariableError,
)
from kernelrt.ir import Variable
from kernelrt.tensor import Tensor
from kernelrt.tensor.creation import (
    arange,
    empty,
    empty_like,
    eye,
    from_numpy,
    full,
    full_like,
    linspace,
    ones,
    ones_like,
    tensor,
    zeros,
    zeros_like,
)
from kernelrt.tensor.elementwise import where
from kernelrt.tensor.gradient import grad
from kernelrt.tensor.movement import cat, meshgrid, stack
from kernelrt.tensor.random import (
    kaiming_normal,
    kaiming_uniform,
    manual_seed,
    normal,
    rand,
    rand_like,
    randint,
    randn,
    randn_like,
    uniform,
    xavier_normal,
    xavier_uniform,
)
from kernelrt.tensor.realize import prepare, realize
from kernelrt.tensor.state import enable_grad, is_grad_enabled, no_grad

if TYPE_CHECKING:
    from kernelrt import nn
    from kernelrt.jit import jit

__all__ = [
    "BufferReleasedError",
    "CompileError",
    "CustomFunctionError",
    "DType",
    "DTypeError",
    "DeviceError",
    "GradientError",
    "IndexBoundsError",
    "JitError",
    "KernelrtError",
    "OutOfMemoryError",
    "PlanBuildError",
    "PlanBusyError",
    "PlanReleasedError",
    "ShapeError",
    "SpecError",
    "Tensor",
    "Variable",
    "VariableError",
    "__version__",
    "arange",
    "bfloat16",
    "bool_",
    "cat",
    "empty",
    "empty_like",
    "enable_grad",
    "eye",
    "float16",
    "float32",
    "float64",
    "from_numpy",
    "full",
    "full_like",
    "get_num_threads",
    "grad",
    "int16",
    "int32",
    "int64",
    "int8",
    "is_grad_enabled",
    "jit",
    "kaiming_normal",
    "kaiming_uniform",
    "linspace",
    "manual_seed",
    "meshgrid",
    "nn",
    "no_grad",
    "normal",
    "ones",
    "ones_like",
    "prepare",
    "promote",
    "rand",
    "rand_like",
    "randint",
    "randn",
    "randn_like",
    "realize",
    "set_num_threads",
    "stack",
    "tensor",
    "uint16",
    "uint32",
    "uint64",
    "uint8",
    "uniform",
    "where",
    "xavier_normal",
    "xavier_uniform",
    "zeros",
    "zeros_like",
]


def __getattr__(name: str) -> Any:
    """Import the floors above Tensor when they are first asked for."""
    if name in ("nn", "jit"):
        from importlib import import_module

        module = import_module(f"kernelrt.{name}")
        found = module if name == "nn" else module.jit
        globals()[name] = found
        return found
    raise AttributeError(f"module 'kernelrt' has no attribute {name!r}")
