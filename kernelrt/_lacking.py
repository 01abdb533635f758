"""What PyTorch has and kernelrt has not: the names, and what to write in their place.

Plain data, and the errors that are made of it. Looking up what is there costs nothing: the names
that objects lack are descriptors of their classes, modules ask when a name was not found.
"""

from __future__ import annotations

import difflib
import functools
from typing import TYPE_CHECKING, Any, Final, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["INIT", "MODULE", "NN", "OPTIM", "OTHERS", "TENSOR", "TOP", "Lacking",
           "install", "of_module"]  # fmt: skip


def _pairs(text: str) -> dict[str, str]:
    """Names and what stands for them, from lines ``name = text``; several names may share one."""
    found = {}
    for line in text.strip().splitlines():
        names, instead = line.split(" = ", 1)
        found.update(dict.fromkeys(names.split(), instead.strip()))
    return found


def _words(text: str) -> dict[str, str]:
    """Names that nothing stands for."""
    return dict.fromkeys(text.split(), "")


_NEAR: Final = "near: "

#: Of tensors. The rows are words, or code where `x` is the tensor. Code means the same,
#: and what follows a colon says of what; rows that begin with "near: " may give other numbers.
TENSOR: Final = _pairs("""
cuda xpu mtia ipu = x itself: kernelrt computes on CPUs
pin_memory share_memory_ = x itself
storage untyped_storage storage_type = near: x.data_ptr() or x.numpy()
solve = kernelrt.linalg.solve
lstsq = kernelrt.linalg.lstsq
triangular_solve = kernelrt.linalg.solve_triangular
register_post_accumulate_grad_hook = near: x.register_hook
to_sparse to_dense coalesce = x itself: there are no sparse tensors
squeeze_ = x = x.squeeze(): the shape of a tensor never changes
unsqueeze_ = x = x.unsqueeze(dim): the shape of a tensor never changes
t_ = x = x.t(): the shape of a tensor never changes
transpose_ swapaxes_ swapdims_ = x = x.transpose(dim0, dim1): the shape of a tensor never changes
resize_ resize_as_ set_ = another tensor: the shape of a tensor never changes
""")

#: Of tensors, too; an error names what is called nearly so.
OTHERS: Final = _words("""
igamma igammac
imag index istft
positive_ record_stream resize resize_as stft
values indices
""")

#: Of modules.
MODULE: Final = _pairs("""
cuda xpu = the module itself: kernelrt computes on CPUs
set_submodule = the attribute itself, as module.layers[0] = layer
compile = kernelrt.jit(module)
register_full_backward_hook register_backward_hook = near: kernelrt.grad(loss, x), which gives gradients of any tensor
register_state_dict_pre_hook register_load_state_dict_pre_hook = a dict of your own from state_dict()
get_extra_state set_extra_state = a tensor as an attribute, which is part of the state
""")  # noqa: E501

#: Of kernelrt.nn.
NN: Final = _pairs("""
SyncBatchNorm = near: nn.BatchNorm2d
""")

#: Of kernelrt.nn.optim.
OPTIM: Final = _pairs("""
SparseAdam = near: Adam or AdamW
""")

#: Of kernelrt.nn.init, which lacks none.
INIT: Final[dict[str, str]] = {}

#: Of kernelrt itself.
TOP: Final = _pairs("""
compile = kernelrt.jit
autograd = near: kernelrt.grad, which gives a tensor, not a tuple, for one input
vmap = a leading axis, over which operations broadcast
save = kernelrt.nn.save
load = kernelrt.nn.load
cuda mps = no device: kernelrt computes on CPUs
random = kernelrt.manual_seed
solve = kernelrt.linalg.solve
lstsq = kernelrt.linalg.lstsq
matrix_rank = kernelrt.linalg.matrix_rank
triangular_solve = kernelrt.linalg.solve_triangular
frobenius_norm = kernelrt.linalg.matrix_norm(x)
nuclear_norm = kernelrt.linalg.matrix_norm(x, "nuc")
range = near: kernelrt.arange, which leaves out the end
autocast = near: module.to(kernelrt.bfloat16) and x.to(kernelrt.bfloat16)
set_default_dtype set_default_tensor_type = dtype= of what makes a tensor
set_printoptions = numpy.set_printoptions, whose options tensors are printed by
utils = plain Python, or kernelrt.data
fft special = NumPy's on x.numpy()
""")


def _advice(instead: str) -> str:
    if instead.startswith(_NEAR):
        return f"; nothing means the same, near it is {instead.removeprefix(_NEAR)}"
    return f"; use {instead}"


@functools.cache
def _text(kind: type, owner: str, name: str, instead: str) -> str:
    text = f"{owner} has no {name!r}, which PyTorch's has"
    if instead:
        return text + _advice(instead)
    there = [n for base in kind.__mro__ for n, value in vars(base).items()
             if not n.startswith("_") and not isinstance(value, Lacking)]  # fmt: skip
    near = difflib.get_close_matches(name, there, 3)
    return f"{text}; near it are {', '.join(near)}" if near else text


class Lacking:
    """A name that a class lacks: whoever looks it up is told what there is in its place."""

    __slots__ = ("_instead", "_name", "_owner")

    def __init__(self, owner: str, name: str, instead: str) -> None:
        self._owner = owner
        self._name = name
        self._instead = instead

    def __get__(self, instance: object, kind: type) -> NoReturn:
        raise AttributeError(_text(kind, self._owner, self._name, self._instead))


class _Sealed(Lacking):
    """One that cannot be set either."""

    __slots__ = ()

    def __set__(self, instance: object, value: object) -> NoReturn:
        self.__get__(instance, type(instance))


def install(
    kind: type, owner: str, table: dict[str, str], *, sealed: bool = False
) -> None:
    """Let `kind` tell of the names in `table`, where it has no such attribute."""
    make = _Sealed if sealed else Lacking
    for name, instead in table.items():
        if not hasattr(kind, name):
            setattr(kind, name, make(owner, name, instead))


def of_module(
    module: str, table: dict[str, str], names: Iterable[str], methods: type | None = None
) -> Callable[[str], NoReturn]:
    """A ``__getattr__`` for a module that has `names`.

    Parameters
    ----------
    module : str
        What the module is called.
    table : dict of str to str
        What to write for names that it lacks.
    names : iterable of str
        Its public names.
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
                near = difflib.get_close_matches(name, known, 3)
                text += f"; near it are {', '.join(near)}" if near else ""
            else:
                text += _advice(instead)
        raise AttributeError(text, name=name)

    return missing


def _is_method(kind: type, name: str) -> bool:
    found: Any = getattr(kind, name, None)
    return callable(found)
