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


#: Of tensors. What stands for a name is code where `x` is the tensor, or words.
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
bitwise_xor logical_xor = x ^ y
bitwise_not = ~x
bitwise_left_shift bitwise_right_shift = x * 2**n or x // 2**n
clamp_min = x.clamp(min=a)
clamp_max = x.clamp(max=b)
fix = x.trunc()
frac = x - x.trunc()
sgn = x.sign()
addcdiv = x + value * a / b
addmm addbmm addmv baddbmm = x + a @ b
addr ger = x + a.outer(b)
mv inner vdot = x @ y
equal = bool((x == y).all().item())
allclose = bool(((x - y).abs() <= atol + rtol * y.abs()).all().item())
isclose = (x - y).abs() <= atol + rtol * y.abs()
data = x.detach() to read it, x.assign(value) to write it
grad_fn = x.requires_grad; a tensor is its own graph, see x.uop
retain_grad register_hook = kernelrt.grad(loss, x), which gives gradients of any leaf
is_cuda get_device is_cpu = x.device, which is always "CPU"
cuda xpu mtia ipu = x itself: kernelrt computes on CPUs
pin_memory share_memory_ = x itself
is_floating_point = x.dtype.is_float
is_complex is_conj = False, as there are no complex types
is_signed = not x.dtype.is_unsigned
is_contiguous = True, as a tensor is a value, which has no strides
stride storage_offset as_strided = x.permute, x.reshape or a slice: tensors have no strides
storage untyped_storage storage_type = x.data_ptr() or x.numpy()
nbytes = x.numel() * x.element_size()
itemsize = x.element_size()
nelement = x.numel()
ndimension = x.ndim
byte = x.to("uint8")
char = x.to("int8")
short = x.to("int16")
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
masked_select = x.where(mask, 0), which keeps the shape: no size depends on data
nonzero argwhere unique unique_consecutive bincount = NumPy's on x.numpy(): no size depends on data
index_add scatter_reduce index_put = x.scatter_add(dim, index, source)
scatter index_copy index_fill masked_scatter = x.where(mask, y), or scatter_add on zeros
select_scatter slice_scatter diagonal_scatter = x[part] = value
sort argsort topk kthvalue median quantile msort mode = NumPy's on x.numpy(), or x.max(dim)
cumprod = x.log().cumsum(dim).exp() for elements above 0
cummax cummin logcumsumexp = x.cumsum(dim)
aminmax = x.amin(dim), x.amax(dim)
diff = x[1:] - x[:-1]
dist = (x - y).norm(p)
nansum = x.masked_fill(x.isnan(), 0).sum()
nanmean = x.masked_fill(x.isnan(), 0).sum() / (~x.isnan()).sum()
nan_to_num = x.masked_fill(x.isnan(), 0)
logaddexp = kernelrt.stack([x, y]).logsumexp(0)
logit = (x / (1 - x)).log()
xlogy = x * y.log()
hypot = (x * x + y * y).sqrt()
prelu = x.leaky_relu(slope)
hardshrink = x.where(x.abs() > a, 0)
diag = x.diagonal(), or x.unsqueeze(-1) * kernelrt.eye(n)
diag_embed diagflat = x.unsqueeze(-1) * kernelrt.eye(n)
trace = x.diagonal().sum()
tensor_split split_with_sizes unsafe_split = x.split(sizes, dim)
unsafe_chunk hsplit vsplit dsplit = x.chunk(n, dim)
new_zeros new_ones new_full new_empty new_tensor = kernelrt.zeros(shape, dtype=x.dtype) and its kin
multinomial bernoulli = (kernelrt.rand(shape) < p), or Gumbel noise and argmax
normal_ = x.assign(kernelrt.randn(shape))
uniform_ random_ = x.assign(kernelrt.rand(shape))
bernoulli_ = x.assign(kernelrt.rand(shape) < p)
inverse pinverse cholesky det logdet slogdet lu qr svd solve lstsq = numpy.linalg on x.numpy()
real imag angle conj = x itself: there are no complex types
to_sparse to_dense is_sparse coalesce = x itself: there are no sparse tensors
scatter_ scatter_reduce_ index_put_ index_add_ = x.assign(x.scatter_add(dim, index, source))
resize_ resize_as_ set_ = another tensor: the shape of a tensor never changes
detach_ = x.detach()
celu selu = x.elu()
glu = a, b = x.chunk(2, dim) and a * b.sigmoid()
normalize = x / x.norm(2, dim, keepdim=True)
unfold = slices x[i : i + size] joined by kernelrt.stack
""")

#: Of tensors, too; an error names what is called nearly so.
OTHERS: Final = _words("""
cauchy_ cholesky_inverse cholesky_solve copysign corrcoef cov cross deg2rad erfinv exponential_
fmax fmin fill_diagonal_ float_power frexp gcd geometric_ heaviside histc histogram i0 igamma
index index_reduce is_nonzero is_same_size isneginf isposinf isreal istft kron lcm ldexp
log_normal_ logaddexp2 matrix_exp matrix_power mvlgamma nanmedian nanquantile narrow_copy
nextafter positive_ put put_ rad2deg record_stream renorm resize resize_as signbit sinc stft
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
to cuda cpu xpu = dtype= of each layer for a type; there are no other devices than CPUs
float double half bfloat16 type = dtype= of each layer
buffers named_buffers = kernelrt.nn.state_dict(module), which has every tensor of the module
children named_children = module.named_modules()
apply = a loop over module.modules()
add_module register_module = module.name = layer: what is reachable belongs to the module
register_parameter = module.name = kernelrt.tensor(data, requires_grad=True)
get_parameter get_buffer get_submodule set_submodule = the attribute itself, as module.layers[0].weight
compile = kernelrt.jit(module)
register_forward_hook register_forward_pre_hook register_full_backward_hook register_backward_hook = a forward that calls what the hook would
register_state_dict_pre_hook register_load_state_dict_pre_hook = a dict of your own from state_dict()
get_extra_state set_extra_state = a tensor as an attribute, which is part of the state
""")  # noqa: E501

#: Of kernelrt.nn.
NN: Final = _pairs("""
functional = a method of Tensor, as in x.relu() for functional.relu(x)
Parameter = kernelrt.tensor(data, requires_grad=True)
Buffer = a tensor that requires no gradient, as an attribute
ParameterList ModuleDict ParameterDict = a plain list or dict of them as an attribute
utils = a loop over model.parameters(), as for clipping gradients
BatchNorm1d BatchNorm2d BatchNorm3d SyncBatchNorm = x.batch_norm(mean, variance, weight, bias, training)
GroupNorm InstanceNorm1d InstanceNorm2d = x.group_norm(groups, weight, bias)
RMSNorm = x.rms_norm(shape, weight)
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
PReLU RReLU = nn.LeakyReLU
CELU SELU = x.elu()
MaxPool1d = x.max_pool1d(kernel)
AvgPool1d = x.avg_pool1d(kernel)
AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d = x.mean((2, 3), keepdim=True) for a size of 1
AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d = x.amax((2, 3), keepdim=True) for a size of 1
Dropout1d Dropout2d Dropout3d AlphaDropout = nn.Dropout
UpsamplingNearest2d = nn.Upsample
UpsamplingBilinear2d = nn.Upsample, which knows "nearest"
ZeroPad1d ZeroPad2d ZeroPad3d ConstantPad1d ConstantPad2d = x.pad(widths)
MultiheadAttention = nn.Linear layers and (q @ k.mT / d**0.5).softmax(-1) @ v
LSTM GRU RNN LSTMCell GRUCell RNNCell = a module of nn.Linear layers, called once a step
Transformer TransformerEncoder TransformerEncoderLayer TransformerDecoder = modules of nn.Linear and nn.LayerNorm
""")  # noqa: E501

#: Of kernelrt.nn.optim.
OPTIM: Final = _pairs("""
lr_scheduler = optimizer.lr = value, in each step or epoch
RMSprop Adagrad Adadelta Adamax NAdam RAdam Rprop ASGD = Adam, AdamW or SGD
LBFGS Muon Adafactor SparseAdam = Adam or AdamW
""")

#: Of kernelrt.nn.init.
INIT: Final = _pairs("""
trunc_normal_ = normal_
orthogonal_ sparse_ dirac_ eye_ = kaiming_normal_, or tensor.assign(value)
""")

#: Of kernelrt itself.
TOP: Final = _pairs("""
optim = kernelrt.nn.optim
compile = kernelrt.jit
inference_mode set_grad_enabled = kernelrt.no_grad
autograd = kernelrt.grad
func vmap vjp jvp = kernelrt.grad
as_tensor asarray = kernelrt.tensor
from_dlpack = kernelrt.from_numpy
concat concatenate hstack vstack = kernelrt.cat
save = kernelrt.nn.save
load = kernelrt.nn.load
float = kernelrt.float32
double = kernelrt.float64
half = kernelrt.float16
long int = kernelrt.int64 or kernelrt.int32
bool = kernelrt.bool_
einsum tensordot = matmul, bmm, or products and sums
cuda device mps = no device: kernelrt computes on CPUs
is_tensor = isinstance(x, kernelrt.Tensor)
seed random = kernelrt.manual_seed
randperm multinomial = kernelrt.tensor(numpy.random.permutation(n))
logspace = 10 ** kernelrt.linspace(a, b, n)
utils = plain Python, or kernelrt.data
linalg fft special = NumPy's on x.numpy()
""")


@functools.cache
def _text(kind: type, owner: str, name: str, instead: str) -> str:
    text = f"{owner} has no {name!r}, which PyTorch's has"
    if instead:
        return f"{text}; use {instead}"
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
                text += f"; use {instead}"
        raise AttributeError(text, name=name)

    return missing


def _is_method(kind: type, name: str) -> bool:
    found: Any = getattr(kind, name, None)
    return callable(found)
