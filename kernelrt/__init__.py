"""kernelrt: an execution engine for training loops and low-latency inference on CPUs."""

from math import e, inf, nan, pi
from typing import TYPE_CHECKING, Final

from kernelrt import nn
from kernelrt._version import __version__
from kernelrt.dtype import PYTORCH as _DTYPES
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
    AxisError,
    BufferReleasedError,
    CompileError,
    CopyError,
    CustomFunctionError,
    DeviceError,
    DomainError,
    DTypeError,
    EagerLoopWarning,
    ForkError,
    GradientError,
    IndexBoundsError,
    JitError,
    KernelrtError,
    KernelrtWarning,
    LinAlgError,
    ModelFileError,
    NonFiniteError,
    OutOfMemoryError,
    PlanBuildError,
    PlanBusyError,
    PlanReleasedError,
    RetraceWarning,
    ScalarError,
    ShapeError,
    SharingError,
    SpecError,
    StateError,
    UnknownNameError,
    VariableError,
    ViewWarning,
)
from kernelrt.ir.size import Real, Size, Variable
from kernelrt.jit import jit
from kernelrt.native.core import get_num_threads, set_num_threads
from kernelrt.nn.cells import gru_cell, lstm_cell, rnn_relu_cell, rnn_tanh_cell
from kernelrt.tensor import Tensor
from kernelrt.tensor.autograd.named_gradients import grad
from kernelrt.tensor.eager.realize import prepare, realize
from kernelrt.tensor.free_functions.creation import (
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
    tril_indices,
    triu_indices,
    zeros,
    zeros_like,
)
from kernelrt.tensor.free_functions.dropout_functions import alpha_dropout, feature_alpha_dropout
from kernelrt.tensor.free_functions.dtype_info import (
    as_tensor,
    asarray,
    broadcast_shapes,
    can_cast,
    finfo,
    from_dlpack,
    get_default_dtype,
    iinfo,
    is_tensor,
    logspace,
    promote_types,
    result_type,
    scalar_tensor,
)
from kernelrt.tensor.free_functions.from_methods import provide as _provide
from kernelrt.tensor.free_functions.grids import gradient, unravel_index, vander
from kernelrt.tensor.free_functions.joining import (
    atleast_1d,
    atleast_2d,
    atleast_3d,
    block_diag,
    broadcast_tensors,
    cartesian_prod,
    cat,
    column_stack,
    combinations,
    concat,
    concatenate,
    dstack,
    hstack,
    meshgrid,
    row_stack,
    stack,
    vstack,
)
from kernelrt.tensor.methods.comparison import where
from kernelrt.tensor.methods.cumulative import cumulative_trapezoid, trapezoid, trapz
from kernelrt.tensor.methods.einsum import bilinear, chain_matmul, einsum, tensordot
from kernelrt.tensor.methods.matrix_decompositions import lu_unpack
from kernelrt.tensor.methods.random_draws_in_place import randperm
from kernelrt.tensor.methods.statistics import std_mean, var_mean
from kernelrt.tensor.nodes.window_functions import (
    bartlett_window,
    blackman_window,
    hamming_window,
    hann_window,
    kaiser_window,
)
from kernelrt.tensor.rng.discrete_draws import binomial, poisson
from kernelrt.tensor.rng.random import (
    get_rng_state,
    initial_seed,
    kaiming_normal,
    kaiming_uniform,
    manual_seed,
    normal,
    rand,
    rand_like,
    randint,
    randint_like,
    randn,
    randn_like,
    seed,
    set_rng_state,
    uniform,
    xavier_normal,
    xavier_uniform,
)
from kernelrt.tensor.rng.stream import Generator, default_generator
from kernelrt.tensor.state import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    no_grad,
    set_grad_enabled,
)
from kernelrt.util import displays as _displays
from kernelrt.util.environment import check_environment
from kernelrt.util.lazy_import import submodules as _submodules
from kernelrt.util.unsupported_names import TOP as _TOP
from kernelrt.util.unsupported_names import of_module as _of_module

__all__ = [
    "AxisError",
    "BufferReleasedError",
    "CompileError",
    "CopyError",
    "CustomFunctionError",
    "DType",
    "DTypeError",
    "DeviceError",
    "DomainError",
    "EagerLoopWarning",
    "ForkError",
    "Generator",
    "GradientError",
    "IndexBoundsError",
    "JitError",
    "KernelrtError",
    "KernelrtWarning",
    "LinAlgError",
    "ModelFileError",
    "NonFiniteError",
    "OutOfMemoryError",
    "PlanBuildError",
    "PlanBusyError",
    "PlanReleasedError",
    "Real",
    "RetraceWarning",
    "ScalarError",
    "ShapeError",
    "SharingError",
    "Size",
    "SpecError",
    "StateError",
    "Tensor",
    "UnknownNameError",
    "Variable",
    "VariableError",
    "ViewWarning",
    "__version__",
    "alpha_dropout",
    "arange",
    "array_api",
    "as_tensor",
    "asarray",
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "autotune",
    "bartlett_window",
    "bfloat16",
    "bilinear",
    "binomial",
    "blackman_window",
    "block_diag",
    "bool_",
    "broadcast_shapes",
    "broadcast_tensors",
    "call",
    "can_cast",
    "cartesian_prod",
    "cat",
    "chain_matmul",
    "column_stack",
    "combinations",
    "concat",
    "concatenate",
    "cond",
    "cumulative_trapezoid",
    "data",
    "debug_nans",
    "default_generator",
    "detect_anomaly",
    "disable_jit",
    "distributions",
    "dstack",
    "e",
    "einsum",
    "empty",
    "empty_like",
    "enable_grad",
    "eye",
    "feature_alpha_dropout",
    "finfo",
    "float16",
    "float32",
    "float64",
    "fori_loop",
    "from_dlpack",
    "from_numpy",
    "full",
    "full_like",
    "func",
    "get_default_dtype",
    "get_num_threads",
    "get_rng_state",
    "grad",
    "gradient",
    "gru_cell",
    "hamming_window",
    "hann_window",
    "hstack",
    "iinfo",
    "inf",
    "inference_mode",
    "initial_seed",
    "int8",
    "int16",
    "int32",
    "int64",
    "is_grad_enabled",
    "is_tensor",
    "jit",
    "kaiming_normal",
    "kaiming_uniform",
    "kaiser_window",
    "linalg",
    "linspace",
    "load",
    "logspace",
    "lstm_cell",
    "lu_unpack",
    "manual_seed",
    "meshgrid",
    "nan",
    "newaxis",
    "nn",
    "no_grad",
    "normal",
    "num_threads",
    "ones",
    "ones_like",
    "optim",
    "pi",
    "poisson",
    "prepare",
    "promote",
    "promote_types",
    "rand",
    "rand_like",
    "randint",
    "randint_like",
    "randn",
    "randn_like",
    "randperm",
    "realize",
    "result_type",
    "rnn_relu_cell",
    "rnn_tanh_cell",
    "row_stack",
    "save",
    "scalar_tensor",
    "scan",
    "seed",
    "set_grad_enabled",
    "set_num_threads",
    "set_rng_state",
    "stack",
    "std_mean",
    "summary",
    "switch",
    "tensor",
    "tensordot",
    "trapezoid",
    "trapz",
    "tril_indices",
    "triu_indices",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "uniform",
    "unravel_index",
    "vander",
    "var_mean",
    "view",
    "vmap",
    "vstack",
    "where",
    "while_loop",
    "xavier_normal",
    "xavier_uniform",
    "zeros",
    "zeros_like",
]

newaxis: Final = None

if TYPE_CHECKING:
    from kernelrt import array_api, data, distributions, func, linalg, optim
    from kernelrt import errors as errors
    from kernelrt import runtime as runtime
    from kernelrt import threads as threads
    from kernelrt import tune as tune
    from kernelrt import viewer as viewer
    from kernelrt._dtypes import *  # noqa: F403 - dtypes with names of Python builtins
    from kernelrt.func import cond, fori_loop, scan, switch, vmap, while_loop
    from kernelrt.jit.loading import load
    from kernelrt.jit.saving import save
    from kernelrt.tensor.eager.debug_modes import debug_nans, detect_anomaly, disable_jit
    from kernelrt.tensor.free_functions.from_methods import *  # noqa: F403
    from kernelrt.tensor.tracing.ffi_calls import call
    from kernelrt.threads import num_threads
    from kernelrt.tune import autotune
    from kernelrt.viewer import view
    from kernelrt.viewer.summary import summary
else:  # type checkers would accept any name if they saw __getattr__
    _functions, __dir__ = _provide(
        "kernelrt", Tensor, None, _of_module("kernelrt", _TOP, __all__, Tensor), _DTYPES
    )
    __getattr__ = _submodules(
        "kernelrt",
        ("array_api", "data", "distributions", "func", "linalg", "optim", "runtime", "tune",
         "viewer"),
        _functions,
        {
            "autotune": "kernelrt.tune",
            "call": "kernelrt.tensor.tracing.ffi_calls",
            "load": "kernelrt.jit.loading",
            "num_threads": "kernelrt.threads",
            "save": "kernelrt.jit.saving",
            "summary": "kernelrt.viewer.summary",
            "view": "kernelrt.viewer",
            **dict.fromkeys(
                ("debug_nans", "detect_anomaly", "disable_jit"),
                "kernelrt.tensor.eager.debug_modes",
            ),
            **dict.fromkeys(
                ("cond", "fori_loop", "scan", "switch", "vmap", "while_loop"), "kernelrt.func"
            ),
        },
    )  # fmt: skip


def _html_of(value: object) -> str | None:
    from kernelrt.viewer.notebook import html_of

    return html_of(value)


_displays.html_of = _html_of
check_environment()
del check_environment
