"""Writes docs/torch_names.md: the public names of PyTorch that kernelrt has or lacks.

Run ``python -m tests.support.torch_names`` in the project's root, with PyTorch installed.
"""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import Any, Final

import kernelrt
from kernelrt.util import unsupported_names

PAGE: Final = Path(__file__).parents[2] / "docs" / "torch_names.md"
#: PyTorch's namespaces, and ours with the advice for missing names.
PLACES: Final = {
    "torch.Tensor": ("kernelrt.Tensor", unsupported_names.TENSOR),
    "torch": ("kernelrt", unsupported_names.TOP),
    "torch.nn": ("kernelrt.nn", unsupported_names.NN),
    "torch.nn.functional": ("kernelrt.nn.functional", {}),
    "torch.optim": ("kernelrt.optim", unsupported_names.OPTIM),
    "torch.linalg": ("kernelrt.linalg", {}),
}

#: Names that ordinary training loops, models and notebooks use most: a judgement, not a
#: measurement.
COMMON: Final = {
    "torch.Tensor": """
abs add addmm all allclose any amax amin argmax argmin argsort backward bool bmm byte
ceil chunk clamp clone contiguous copy_ cos cpu cummax cumprod cumsum data detach detach_ device
diagonal dim div dot double dtype element_size eq equal erf exp expand expand_as fill_ flatten flip
float floor gather ge grad grad_fn gt half index_add_ index_copy_ index_fill_ index_select int
is_contiguous is_cuda is_floating_point is_leaf isfinite isinf isnan item kthvalue le lerp log
log10 log2 logical_and logical_not logical_or logsumexp long lt masked_fill masked_fill_
masked_select matmul max maximum mean median min minimum mm mul mul_ multinomial nan_to_num narrow
ndim ne neg new_empty new_full new_ones new_tensor new_zeros nonzero norm numel numpy outer permute
pow prod quantile reciprocal register_hook relu repeat repeat_interleave requires_grad
requires_grad_ reshape roll round rsqrt scatter scatter_ scatter_add scatter_add_ select shape
sigmoid sign sin size softmax log_softmax sort split sqrt square squeeze std stride sub sub_ add_
div_ clamp_ exp_ sum swapaxes t T mT tan tanh tile to tolist topk transpose tril triu type type_as
unbind unfold unique unsqueeze unsqueeze_ uniform_ normal_ var view view_as where zero_ detach
retain_grad cuda is_sparse sinh cosh trunc
""",
    "torch": """
Tensor abs add all allclose any arange argmax argmin argsort as_tensor atan2 autocast baddbmm
bernoulli bfloat16 bincount bmm bool broadcast_to cat cdist ceil chunk clamp compile concat cos
cross
cumprod cumsum device diag diag_embed diff dist div dot dtype einsum empty empty_like equal erf exp
eye finfo flatten flip float float16 float32 float64 floor from_numpy full full_like gather
Generator get_default_dtype half histc hstack iinfo index_select inf inference_mode int int32 int64
int8 is_tensor isclose isfinite isinf isnan kron lerp linspace load log log1p logical_and
logical_not logical_or logsumexp long manual_seed masked_select matmul max maximum mean median
meshgrid min minimum mm movedim mul multinomial nan nan_to_num no_grad enable_grad
set_grad_enabled nonzero norm normal numel ones ones_like outer permute pi polygamma pow prod
quantile rand rand_like randint randn randn_like randperm relu repeat_interleave reshape roll
round rsqrt save scatter searchsorted sigmoid sign sin softmax sort split sqrt square squeeze stack
std sum take tan tanh tensor tensordot tile topk trace transpose tril tril_indices triu uint8
unbind unique unsqueeze var vmap vstack where zeros zeros_like set_num_threads get_num_threads
""",
    "torch.nn": """
AdaptiveAvgPool2d AvgPool2d BCELoss BCEWithLogitsLoss BatchNorm1d BatchNorm2d Conv1d Conv2d
Conv3d ConvTranspose2d CosineSimilarity CrossEntropyLoss Dropout Dropout2d ELU Embedding Flatten
GELU GRU GroupNorm Hardswish HuberLoss Identity InstanceNorm2d KLDivLoss L1Loss LSTM LSTMCell
LayerNorm LeakyReLU Linear LogSoftmax MSELoss MaxPool1d MaxPool2d Module ModuleDict ModuleList
MultiheadAttention NLLLoss PReLU Parameter ParameterDict ParameterList PixelShuffle RMSNorm RNN
ReLU ReLU6 ReflectionPad2d Sequential SiLU Sigmoid SmoothL1Loss Softmax Softplus Tanh Transformer
TransformerDecoder TransformerEncoder TransformerEncoderLayer Upsample ZeroPad2d functional init
utils
""",
    "torch.nn.functional": """
adaptive_avg_pool2d avg_pool2d batch_norm binary_cross_entropy binary_cross_entropy_with_logits
conv1d conv2d conv3d conv_transpose2d cosine_similarity cross_entropy ctc_loss dropout elu embedding
gelu glu group_norm gumbel_softmax hardtanh huber_loss interpolate kl_div l1_loss layer_norm
leaky_relu linear log_softmax logsigmoid max_pool1d max_pool2d mse_loss nll_loss normalize one_hot
pad pixel_shuffle relu scaled_dot_product_attention sigmoid silu smooth_l1_loss softmax softplus
tanh unfold
""",
    "torch.optim": "Adagrad Adam AdamW LBFGS Optimizer RMSprop SGD lr_scheduler",
    "torch.linalg": "cholesky det eigh inv lstsq matrix_norm norm pinv qr slogdet solve svd",
}


#: Modules of PyTorch that are public names.
MODULES = {"autograd", "distributions", "fft", "func", "functional", "init", "linalg",
           "lr_scheduler", "nn", "optim", "parametrizations", "rnn", "special", "swa_utils",
           "utils"}  # fmt: skip


#: Names that exist here with a slightly different meaning, or as another kind of object.
NEAR: Final = {
    ("torch", "Size"): "near: tuple, as shapes are; kernelrt.Size is a size that a run gives",
    ("torch", "cond"): "near: kernelrt.cond(pred, f, g, x, y), with operands one by one and not "
                       "in a tuple",
    ("torch", "device"): "near: kernelrt.device('cpu'), called as PyTorch's but no class",
    ("torch", "dtype"): "near: kernelrt.DType",
    ("torch", "load"): "near: kernelrt.nn.load, for tensors; kernelrt.load opens model files",
    ("torch", "save"): "near: kernelrt.nn.save, for tensors; kernelrt.save writes model files",
    ("torch", "while_loop"): "near: kernelrt.while_loop(cond, body, carry), whose functions take "
                             "the carry as one nest and give it so, not a tuple of arguments",
}  # fmt: skip


def _at(path: str) -> Any:
    """Return the object at a dotted path; None if there is none."""
    try:
        return importlib.import_module(path)
    except ImportError:
        head, _, last = path.rpartition(".")
        return getattr(_at(head), last, None) if head else None


def public(place: str) -> list[str]:
    """Return PyTorch's public names in a place, without modules that it imports for itself."""
    owner = _at(place)
    found = []
    for name in dir(owner):
        if name.startswith("_"):
            continue
        value = inspect.getattr_static(owner, name, None)
        if inspect.ismodule(value) and name not in MODULES:
            continue  # their presence depends on imports
        found.append(name)
    return sorted(found)


def _alike(theirs: Any, ours: Any) -> bool:
    """Return whether our object can replace theirs (a module cannot replace a class)."""
    if inspect.ismodule(theirs) or inspect.ismodule(ours):
        return inspect.ismodule(theirs) and inspect.ismodule(ours)
    return callable(ours) if callable(theirs) else ours is not None or theirs is None


def standing(place: str, name: str) -> tuple[str, str]:
    """Return the status of a PyTorch name here: "same", "near" with advice, or "no"."""
    ours, advice = PLACES[place]
    owner = _at(ours)
    if (place, name) in NEAR:
        return "near", NEAR[place, name]
    if owner is not None:
        if inspect.isclass(owner) and isinstance(
            inspect.getattr_static(owner, name, None), unsupported_names.Lacking
        ):
            return ("near", advice[name]) if advice.get(name) else ("no", "")
        if _alike(getattr(_at(place), name, None), getattr(owner, name, None)):
            return "same", ""
    return ("near", advice[name]) if advice.get(name) else ("no", "")


def common() -> dict[tuple[str, str], str]:
    """Map (place, name) to its status, for the names that programs use most."""
    return {(place, name): standing(place, name)[0]
            for place, text in COMMON.items() for name in dict.fromkeys(text.split())}  # fmt: skip


def written() -> str:
    """Return the text of the page."""
    found = common()
    same = sum(s == "same" for s in found.values())
    lines = [
        "# PyTorch's names", "",
        "This page lists the public names of PyTorch that kernelrt has or lacks. The command",
        "`python -m tests.support.torch_names` writes the page.",
        "",
        "- *Same*: kernelrt has the name, and it names an object of the same kind (a class, a",
        "  module or a function). A function may have fewer options; this page does not compare",
        "  them.",
        "- *Near*: the entry says what to write instead of the name.",
        "- *No*: kernelrt does not have the name, and this page names no replacement.",
        "",
        f"We chose {len(found)} names that ordinary programs use most, by judgement and not by",
        f"count. Of these, {same} are the same: {100 * same // len(found)} in 100. The others are:",
        "",
        *(f"- `{p}.{n}`: {s}" for (p, n), s in found.items() if s != "same"), "",
    ]  # fmt: skip
    for place in PLACES:
        kinds: dict[str, list[tuple[str, str]]] = {"same": [], "near": [], "no": []}
        for name in public(place):
            kind, text = standing(place, name)
            kinds[kind].append((name, text))
        counts = ", ".join(f"{len(v)} {k}" for k, v in kinds.items())
        lines += [f"## {place}", "", f"{counts}.", ""]
        lines += ["Same: " + ", ".join(f"`{n}`" for n, _ in kinds["same"]), ""]
        lines += [*(f"- `{n}`: {text}" for n, text in kinds["near"]), ""] if kinds["near"] else []
        lines += ["No: " + ", ".join(f"`{n}`" for n, _ in kinds["no"]), ""]
    return "\n".join(lines)


if __name__ == "__main__":
    assert kernelrt.__version__
    PAGE.write_text(written(), encoding="utf-8")
    counted = list(common().values())
    print(f"{counted.count('same')} of {len(counted)}")
