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

__all__ = ["INIT", "IN_PLACE", "MODULE", "NN", "OPTIM", "OTHERS", "TENSOR", "TOP", "Lacking",
           "in_place", "install", "of_module"]  # fmt: skip


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
grad_fn = the graph that a tensor is itself, see x.uop and x.requires_grad
retain_grad register_hook = near: kernelrt.grad(loss, x), which gives gradients of any leaf
cuda xpu mtia ipu = x itself: kernelrt computes on CPUs
pin_memory share_memory_ = x itself
as_strided = x.permute, x.reshape or a slice: tensors have no strides
storage untyped_storage storage_type = near: x.data_ptr() or x.numpy()
ravel = x.flatten()
reshape_as = x.view_as(y)
moveaxis = x.movedim(a, b)
swapdims = x.transpose(a, b)
H mH adjoint = x.mT
fliplr = x.flip(1)
flipud = x.flip(0)
rot90 = x.transpose(0, 1).flip(0)
select = x[:, i]
take = x.flatten()[i]
masked_select = near: x.where(mask, 0), which keeps the shape: no size depends on data
nonzero argwhere unique unique_consecutive bincount = NumPy's on x.numpy(): no size depends on data
index_add = x.scatter_add(0, index.unsqueeze(1).expand_as(source), source): along dim 0 of two
scatter_reduce index_put = near: x.scatter_add(dim, index, source)
scatter index_copy index_fill masked_scatter = near: x.where(mask, y), or scatter_add on zeros
select_scatter slice_scatter = near: y = x.clone(), then y[part] = value
diagonal_scatter = near: x.where(mask, y), where mask is kernelrt.eye(n) == 0
diag = x.diagonal(): of a vector, x * kernelrt.eye(n)
diag_embed = x.unsqueeze(-1) * kernelrt.eye(n): of finite elements
diagflat = x.flatten() * kernelrt.eye(n): of finite elements
trace = x.diagonal().sum()
tensor_split = near: x.split(sizes, dim), where sizes are those of the parts
split_with_sizes unsafe_split = x.split(sizes, dim)
unsafe_chunk = x.chunk(n, dim)
hsplit = x.chunk(n, 1): of a vector, x.chunk(n, 0)
vsplit = x.chunk(n, 0)
dsplit = x.chunk(n, 2)
inverse pinverse cholesky det logdet slogdet lu qr svd solve lstsq = numpy.linalg on x.numpy()
to_sparse to_dense coalesce = x itself: there are no sparse tensors
scatter_ scatter_reduce_ index_put_ index_add_ = near: x.assign(x.scatter_add(dim, index, source))
resize_ resize_as_ set_ = another tensor: the shape of a tensor never changes
unfold = slices x[i : i + size] joined by kernelrt.stack
""")

#: Of tensors, too; an error names what is called nearly so.
OTHERS: Final = _words("""
angle
cholesky_inverse cholesky_solve
fill_diagonal_ histc histogram igamma
imag index index_reduce istft
matrix_exp matrix_power narrow_copy
positive_ put put_ record_stream resize resize_as stft
sum_to_size values indices
""")

#: Operations of PyTorch that also write their result to the tensor, by a name with an underscore.
IN_PLACE: Final = """
abs acos acosh add addcmul asin asinh atan atan2 atanh ceil clamp clip cos cosh cumsum digamma
div eq erf erfc exp exp2 expm1 floor floor_divide fmod ge gt le lerp lgamma log log10 log1p log2
logical_and logical_not logical_or lt masked_fill mul ne neg polygamma pow reciprocal relu
remainder round rsqrt scatter_add sigmoid sign sin sinh sqrt square squeeze sub t tan tanh
transpose tril triu trunc unsqueeze
"""  # fmt: skip

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
SyncBatchNorm = near: x.batch_norm(mean, variance, weight, bias, training)
CrossEntropyLoss = x.cross_entropy(target)
MSELoss = x.mse_loss(target)
L1Loss = x.l1_loss(target)
SmoothL1Loss = x.smooth_l1_loss(target)
HuberLoss = x.huber_loss(target)
NLLLoss = x.nll_loss(target)
KLDivLoss = x.kl_div(target)
BCEWithLogitsLoss = x.binary_cross_entropy_with_logits(target)
ELU = x.elu()
ReLU6 = x.relu6()
Mish = x.mish()
Hardtanh = x.hardtanh()
Hardswish = x.hardswish()
Hardsigmoid = x.hardsigmoid()
LogSigmoid = x.logsigmoid()
Softsign = x.softsign()
PReLU RReLU = near: nn.LeakyReLU
CELU = alpha * (x / alpha).elu()
SELU = 1.0507009873554805 * x.elu(1.6732632423543772)
Dropout1d Dropout2d Dropout3d AlphaDropout = near: nn.Dropout
ZeroPad1d ZeroPad2d ZeroPad3d = x.pad(widths)
ConstantPad1d ConstantPad2d = x.pad(widths, value=value)
""")  # noqa: E501

#: Of kernelrt.nn.optim.
OPTIM: Final = _pairs("""
SparseAdam = near: Adam or AdamW
""")

#: Of kernelrt.nn.init.
INIT: Final = _pairs("""
trunc_normal_ = near: normal_
orthogonal_ sparse_ dirac_ eye_ = near: kaiming_normal_, or tensor.assign(value)
""")

#: Of kernelrt itself.
TOP: Final = _pairs("""
compile = kernelrt.jit
inference_mode set_grad_enabled = kernelrt.no_grad
autograd = near: kernelrt.grad
vmap = a leading axis, over which operations broadcast
concat concatenate = kernelrt.cat
hstack vstack = near: kernelrt.cat
save = kernelrt.nn.save
load = kernelrt.nn.load
cuda mps = no device: kernelrt computes on CPUs
seed random = kernelrt.manual_seed
utils = plain Python, or kernelrt.data
linalg fft special = NumPy's on x.numpy()
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


def in_place(kind: type) -> dict[str, str]:
    """What to write for names such as ``relu_``."""
    return {
        f"{name}_": f"x = x.{name}(...), or x.assign(x.{name}(...)) to write to its memory"
        for name in IN_PLACE.split() if hasattr(kind, name)
    }  # fmt: skip


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
