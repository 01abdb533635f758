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
absolute = x.abs()
arccos = x.acos()
arccosh = x.acosh()
arcsin = x.asin()
arcsinh = x.asinh()
arctan = x.atan()
arctan2 = x.atan2(y)
arctanh = x.atanh()
multiply = x * y
divide true_divide = x / y
subtract = x - y
negative = -x
positive = x
greater = x > y
greater_equal = x >= y
less = x < y
less_equal = x <= y
not_equal = x != y
bitwise_and = x & y
bitwise_or = x | y
bitwise_xor = x ^ y
logical_xor = (x != 0) != (y != 0)
bitwise_not = ~x
bitwise_left_shift = x * 2**n
bitwise_right_shift = x // 2**n
clamp_min = x.clamp(min=a)
clamp_max = x.clamp(max=b)
fix = x.trunc()
frac = x - x.trunc()
sgn = x.sign()
addcdiv = x + value * a / b
addmm addmv baddbmm = x + a @ b
addbmm = x + (a @ b).sum(0)
addr = x + a.outer(b)
ger = x.outer(y)
mv vdot = x @ y
inner = x @ y.mT: of vectors, x @ y
equal = x.shape == y.shape and bool((x == y).all().item())
allclose = bool(((x == y) | ((x - y).isfinite() & ((x - y).abs() <= atol + rtol * y.abs()))).all())
isclose = (x == y) | ((x - y).isfinite() & ((x - y).abs() <= atol + rtol * y.abs()))
data = x.detach() to read it, x.assign(value) to write it
grad_fn = the graph that a tensor is itself, see x.uop and x.requires_grad
retain_grad register_hook = near: kernelrt.grad(loss, x), which gives gradients of any leaf
is_cuda = False, as kernelrt computes on CPUs
is_cpu = True, as kernelrt computes on CPUs
get_device = -1, as kernelrt computes on CPUs
cuda xpu mtia ipu = x itself: kernelrt computes on CPUs
pin_memory share_memory_ = x itself
is_floating_point = x.dtype.is_float
is_complex is_conj = False, as there are no complex types
is_signed = not (x.dtype.is_unsigned or x.dtype.is_bool)
is_contiguous = True, as a tensor is a value, which has no strides
stride storage_offset = x.permute, x.reshape or a slice: tensors have no strides
storage untyped_storage storage_type = near: x.data_ptr() or x.numpy()
nbytes = x.numel() * x.element_size()
itemsize = x.element_size()
nelement = x.numel()
ndimension = x.ndim
byte = x.to("uint8")
char = x.to("int8")
short = x.to("int16")
H mH adjoint = x.mT
sort argsort topk kthvalue median quantile msort mode = NumPy's on x.numpy()
cumprod = near: x.log().cumsum(dim).exp(), for elements above 0
cummax = near: numpy.maximum.accumulate(x.numpy(), dim)
cummin = near: numpy.minimum.accumulate(x.numpy(), dim)
logcumsumexp = numpy.logaddexp.accumulate(x.numpy(), dim): without a gradient
aminmax = x.amin(dim), x.amax(dim)
diff = x[..., 1:] - x[..., :-1]
dist = (x - y).norm(p)
nansum = x.masked_fill(x.isnan(), 0).sum()
nanmean = x.masked_fill(x.isnan(), 0).sum() / (~x.isnan()).sum()
nan_to_num = x.masked_fill(x.isnan(), 0).clamp(-3.40282347e38, 3.40282347e38): of float32
logaddexp = kernelrt.stack([x, y]).logsumexp(0)
logit = (x / (1 - x)).log()
xlogy = kernelrt.where((x == 0) & ~y.isnan(), 0.0, x * y.log())
hypot = (x * x + y * y).sqrt(): where squares do not overflow
prelu = x.leaky_relu(slope)
hardshrink = x.where(~(x.abs() <= a), 0)
new_zeros = kernelrt.zeros(shape, dtype=x.dtype)
new_ones = kernelrt.ones(shape, dtype=x.dtype)
new_full = kernelrt.full(shape, value, dtype=x.dtype)
new_empty = kernelrt.empty(shape, dtype=x.dtype)
new_tensor = kernelrt.tensor(data, dtype=x.dtype)
inverse pinverse cholesky det logdet slogdet lu qr svd solve lstsq = numpy.linalg on x.numpy()
real conj = x itself: there are no complex types
to_sparse to_dense coalesce = x itself: there are no sparse tensors
is_sparse = False, as there are no sparse tensors
resize_ resize_as_ set_ = another tensor: the shape of a tensor never changes
detach_ = x.detach()
celu = alpha * (x / alpha).elu()
selu = 1.0507009873554805 * x.elu(1.6732632423543772)
glu = x.chunk(2, dim)[0] * x.chunk(2, dim)[1].sigmoid()
normalize = x / x.norm(2, dim, keepdim=True).clamp(min=1e-12)
""")

#: Of tensors, too; an error names what is called nearly so.
OTHERS: Final = _words("""
angle
cholesky_inverse cholesky_solve copysign corrcoef cov cross deg2rad erfinv
fmax fmin float_power frexp gcd heaviside histogram i0 igamma
imag index is_nonzero is_same_size isneginf isposinf isreal istft kron lcm ldexp
logaddexp2 matrix_exp matrix_power mvlgamma nanmedian nanquantile narrow_copy
nextafter positive_ rad2deg record_stream renorm resize resize_as signbit sinc stft
sum_to_size values indices
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
BatchNorm1d BatchNorm2d BatchNorm3d = x.batch_norm(mean, variance, weight, bias, training)
SyncBatchNorm = near: x.batch_norm(mean, variance, weight, bias, training)
GroupNorm = x.group_norm(groups, weight, bias)
InstanceNorm1d InstanceNorm2d = x.group_norm(x.shape[1])
RMSNorm = x.rms_norm(shape, weight, eps)
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
MaxPool1d = x.max_pool1d(kernel)
AvgPool1d = x.avg_pool1d(kernel)
AdaptiveAvgPool1d = x.mean(2, keepdim=True): for a size of 1
AdaptiveAvgPool2d = x.mean((2, 3), keepdim=True): for a size of 1
AdaptiveAvgPool3d = x.mean((2, 3, 4), keepdim=True): for a size of 1
AdaptiveMaxPool1d = x.amax(2, keepdim=True): for a size of 1
AdaptiveMaxPool2d = x.amax((2, 3), keepdim=True): for a size of 1
AdaptiveMaxPool3d = x.amax((2, 3, 4), keepdim=True): for a size of 1
Dropout1d Dropout2d Dropout3d AlphaDropout = near: nn.Dropout
UpsamplingNearest2d = nn.Upsample
UpsamplingBilinear2d = near: nn.Upsample, which knows "nearest"
ZeroPad1d ZeroPad2d ZeroPad3d = x.pad(widths)
ConstantPad1d ConstantPad2d = x.pad(widths, value=value)
MultiheadAttention = nn.Linear layers and (q @ k.mT / d**0.5).softmax(-1) @ v
Transformer TransformerEncoder TransformerEncoderLayer TransformerDecoder = modules of nn.Linear and nn.LayerNorm
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
as_tensor asarray = kernelrt.tensor
from_dlpack = near: kernelrt.from_numpy
save = kernelrt.nn.save
load = kernelrt.nn.load
float = kernelrt.float32
double = kernelrt.float64
half = kernelrt.float16
long = kernelrt.int64
int = kernelrt.int32
bool = kernelrt.bool_
einsum tensordot = matmul, bmm, or products and sums
cuda device mps = no device: kernelrt computes on CPUs
is_tensor = isinstance(x, kernelrt.Tensor)
seed random = kernelrt.manual_seed
logspace = 10 ** kernelrt.linspace(a, b, n)
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
