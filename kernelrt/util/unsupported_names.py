"""PyTorch names that kernelrt lacks, and errors that suggest a replacement for each.

Access to an existing attribute costs nothing extra. Each missing name of a class is a descriptor,
and a module calls ``__getattr__`` only for a name that it does not have.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any, Final, NoReturn

from kernelrt.util.lazy_import import load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["INIT", "LINALG", "MODULE", "NN", "OPTIM", "OPTIMIZER", "OTHERS", "TENSOR", "TOP",
           "Lacking", "install", "near", "of_module"]  # fmt: skip


def _pairs(text: str) -> dict[str, str]:
    """Return a dict of names and replacements from lines ``name name ... = text``."""
    found = {}
    for line in text.strip().splitlines():
        names, instead = line.split(" = ", 1)
        found.update(dict.fromkeys(names.split(), instead.strip()))
    return found


def _words(text: str) -> dict[str, str]:
    """Return a dict of names without a replacement."""
    return dict.fromkeys(text.split(), "")


_NEAR: Final = "near: "
_LEFT_OUT: Final = "leave it out"

#: Names of Tensor. A replacement is words, or code for a tensor `x` with the same meaning; a colon
#: separates an explanation. Replacements that begin with "near: " may give other numbers. Names
#: that need no replacement have "leave it out" and the reason.
TENSOR: Final = _pairs("""
cuda xpu mtia ipu = x itself: kernelrt computes on CPUs
pin_memory share_memory_ = x itself
apply_ map_ map2_ = near: operations of tensors, or kernelrt.call for a function of NumPy arrays
storage untyped_storage storage_type = near: x.data_ptr() or x.numpy()
solve = kernelrt.linalg.solve
lstsq = kernelrt.linalg.lstsq
triangular_solve = kernelrt.linalg.solve_triangular
register_post_accumulate_grad_hook = near: x.register_hook
stft istft = near: numpy.fft of x.numpy()
to_sparse to_dense coalesce = x itself: there are no sparse tensors
squeeze_ = x = x.squeeze(): the shape of a tensor never changes
unsqueeze_ = x = x.unsqueeze(dim): the shape of a tensor never changes
t_ = x = x.t(): the shape of a tensor never changes
transpose_ swapaxes_ swapdims_ = x = x.transpose(dim0, dim1): the shape of a tensor never changes
as_strided_ = x = x.as_strided(size, stride): the shape of a tensor never changes
resize_ resize_as_ set_ = another tensor: the shape of a tensor never changes
""")

#: Names of Tensor without a replacement; the error suggests similar names.
OTHERS: Final = _words("""
igamma igammac
imag index
positive_ record_stream resize resize_as
values indices
""")

#: Names of nn.Module.
MODULE: Final = _pairs("""
cuda xpu = the module itself: kernelrt computes on CPUs
set_submodule = the attribute itself, as module.layers[0] = layer
compile = kernelrt.jit(module)
register_full_backward_hook register_backward_hook = near: kernelrt.grad(loss, x), which gives gradients of any tensor
register_state_dict_pre_hook register_load_state_dict_pre_hook = a dict of your own from state_dict()
get_extra_state set_extra_state = a tensor as an attribute, which is part of the state
""")  # noqa: E501

#: Names of torch.nn.
NN: Final = _pairs("""
SyncBatchNorm = near: nn.BatchNorm2d
DataParallel parallel = near: kernelrt.set_num_threads, as one process uses all cores
quantized qat intrinsic = near: x.to(kernelrt.bfloat16), as there are no quantized tensors
""")

#: Names of torch.linalg.
LINALG: Final = _pairs("""
eig eigvals = near: kernelrt.linalg.eigh for symmetric matrices, or numpy.linalg.eig(x.numpy())
tensorinv tensorsolve = kernelrt.linalg.inv or solve, with reshape
ldl_factor ldl_factor_ex ldl_solve = near: kernelrt.linalg.lu_factor and lu_solve
householder_product = near: kernelrt.linalg.qr
lu_factor_ex = kernelrt.linalg.lu_factor
""")

#: Names of torch.optim.
OPTIM: Final = _pairs("""
SparseAdam = near: Adam or AdamW
""")

#: Names of optimizers.
OPTIMIZER: Final = _pairs("""
register_step_pre_hook register_step_post_hook = plain Python before and after step()
register_state_dict_pre_hook register_state_dict_post_hook = a dict of your own from state_dict()
register_load_state_dict_pre_hook register_load_state_dict_post_hook = a dict of your own for load_state_dict()
""")  # noqa: E501

#: Names of torch.nn.init; kernelrt has them all.
INIT: Final[dict[str, str]] = {}

#: Names of torch.
TOP: Final = _pairs("""
compile = kernelrt.jit
autograd = near: kernelrt.grad, which returns a tensor, not a tuple, for one input; for a custom Function see docs/porting.md
cuda mps xpu accelerator = leave it out, and write False for is_available(): kernelrt computes on CPUs
cpu set_default_device get_default_device get_device_module = leave it out: kernelrt computes on CPUs
random = kernelrt.manual_seed
solve = kernelrt.linalg.solve
lstsq = kernelrt.linalg.lstsq
matrix_rank = kernelrt.linalg.matrix_rank
triangular_solve = kernelrt.linalg.solve_triangular
svd_lowrank = near: kernelrt.linalg.svd(x, False), which gives all singular values
pca_lowrank = near: kernelrt.linalg.svd(x - x.mean(-2, True), False), which gives all components
lobpcg = near: kernelrt.linalg.eigh, which gives all eigenvalues
frobenius_norm = kernelrt.linalg.matrix_norm(x)
nuclear_norm = kernelrt.linalg.matrix_norm(x, "nuc")
range = near: kernelrt.arange, which leaves out the end
autocast amp GradScaler = near: module.to(kernelrt.bfloat16) and x.to(kernelrt.bfloat16)
set_default_dtype set_default_tensor_type = dtype= of the function that makes a tensor, and module.double()
set_printoptions = numpy.set_printoptions, whose options apply to tensors
FloatTensor DoubleTensor HalfTensor BFloat16Tensor LongTensor IntTensor = kernelrt.tensor and its dtype=
ByteTensor CharTensor ShortTensor BoolTensor = kernelrt.tensor and its dtype=
complex64 complex128 cfloat cdouble complex polar view_as_complex view_as_real = near: two tensors, as there are no complex numbers
backends set_float32_matmul_precision set_flush_denormal = leave it out: kernelrt has no such settings
use_deterministic_algorithms are_deterministic_algorithms_enabled = leave it out: equal programs give bitwise equal results
memory_format channels_last channels_last_3d contiguous_format preserve_format layout strided = leave it out: kernelrt chooses memory layouts itself
version = kernelrt.__version__
profiler = near: kernelrt.prepare(x).execute_profiled()
testing = numpy.testing
sparse = near: indices, as in x[index]: there are no sparse tensors
multiprocessing distributed = near: kernelrt.set_num_threads, as one process uses all cores
utils = plain Python, or kernelrt.data
fft = numpy.fft on x.numpy()
special = methods of Tensor such as x.erf(), or scipy.special on x.numpy()
script trace = kernelrt.jit
quantization ao = near: x.to(kernelrt.bfloat16), as there are no quantized tensors
onnx export hub fx package = near: kernelrt.nn.save of module.state_dict(), which stores tensors only
""")  # noqa: E501


def _advice(instead: str) -> str:
    if instead.startswith(_NEAR):
        return f"; no exact equivalent, the closest is {instead.removeprefix(_NEAR)}"
    return f"; {instead}" if instead.startswith(_LEFT_OUT) else f"; use {instead}"


@functools.cache
def _text(kind: type, owner: str, name: str, instead: str) -> str:
    text = f"{owner} has no {name!r}, unlike PyTorch's"
    if instead:
        return text + _advice(instead)
    there = [n for base in kind.__mro__ for n, value in vars(base).items()
             if not n.startswith("_") and not isinstance(value, Lacking)]  # fmt: skip
    return text + _named(near(name, there))


class Lacking:
    """A descriptor for a name that a class lacks. A read raises an error with a replacement."""

    __slots__ = ("_instead", "_name", "_owner")

    def __init__(self, owner: str, name: str, instead: str) -> None:
        self._owner = owner
        self._name = name
        self._instead = instead

    def __get__(self, instance: object, kind: type) -> NoReturn:
        text = _text(kind, self._owner, self._name, self._instead)
        raise AttributeError(text, name=self._name)  # no `obj`: Python would add its suggestion


class _Sealed(Lacking):
    """A descriptor for a missing name that raises the error for assignments, too."""

    __slots__ = ()

    def __set__(self, instance: object, value: object) -> NoReturn:
        self.__get__(instance, type(instance))


def install(
    kind: type, owner: str, table: dict[str, str], *, sealed: bool = False
) -> None:
    """For each name in `table` that `kind` lacks, add a descriptor that raises an error."""
    make = _Sealed if sealed else Lacking
    for name, instead in table.items():
        if not hasattr(kind, name):
            setattr(kind, name, make(owner, name, instead))


def of_module(
    module: str, table: dict[str, str], names: Iterable[str], methods: type | None = None
) -> Callable[[str], NoReturn]:
    """Return a ``__getattr__`` for a module that raises errors with replacements.

    Parameters
    ----------
    module : str
        Name of the module.
    table : dict of str to str
        Replacements for missing names.
    names : iterable of str
        Public names of the module.
    methods : type, optional
        A class whose methods are functions in PyTorch.
    """
    known = tuple(names)

    def missing(name: str) -> NoReturn:
        text = f"module {module!r} has no attribute {name!r}"
        if not name.startswith("_"):
            instead = table.get(name)
            if instead is None and methods is not None and _is_method(methods, name):
                instead = f"x.{name}(...), a method of Tensor"
            if instead is None:
                listed = vars(sys.modules[module]).get("__dir__", tuple)
                text += _named(near(name, (*known, *listed())))
            else:
                text += _advice(instead)
        raise AttributeError(text, name=name)

    return missing


def _named(found: list[str]) -> str:
    return f"; similar names: {', '.join(found)}" if found else ""


def near(name: str, known: Iterable[str]) -> list[str]:
    """Return the names in `known` most similar to `name`, ignoring case, the closest first."""
    load("difflib")
    import difflib

    alike: dict[str, list[str]] = {}
    for there in dict.fromkeys(known):
        alike.setdefault(there.lower(), []).append(there)
    found = difflib.get_close_matches(name.lower(), alike, 3, 0.7)
    return [n for lowered in found for n in alike[lowered]]


def _is_method(kind: type, name: str) -> bool:
    found: Any = getattr(kind, name, None)
    return callable(found)
