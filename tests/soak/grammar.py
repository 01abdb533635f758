"""Lines of random programs: templates of calls whose meaning kernelrt shares with torch.

Whether a line fits is left to torch: it is drawn, tried, and dropped if torch refuses it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    Shape = tuple[int, ...]

UNARY = (
    "-{v}", "{v}.abs()", "{v}.sign()", "{v}.clamp(-2, 2).exp()", "({v}.abs() + 0.5).log()",
    "({v}.abs() + 0.25).sqrt()", "({v}.abs() + 0.5).rsqrt()", "{v}.square()", "{v}.sin()",
    "{v}.cos()", "{v}.tanh()", "{v}.erf()", "{v}.floor()", "{v}.ceil()", "{v}.round()",
    "{v}.trunc()", "{v}.sigmoid()", "{v}.relu()", "{v}.clamp(-0.5, 1)", "{v}.clamp(min=0)",
    "{v}.abs().log1p()", "{v}.clamp(-2, 2).expm1()", "1 / ({v}.abs() + 0.5)", "{v} ** 2",
    "{v} ** 3", "({v}.abs() + 0.5) ** 0.5", "{v} ** 1", "{v} * 2", "{v} + 1", "1 - {v}",
    "{v} / 3", "{v} * 0", "{v} - {v}", "{v} * {v}", "F.gelu({v})", "F.silu({v})",
    "F.softplus({v})", "F.elu({v})", "F.leaky_relu({v}, 0.1)", "F.relu6({v})", "F.hardtanh({v})",
    "F.mish({v})", "F.softsign({v})", "F.logsigmoid({v})", "{v}.detach()", "{v}.clone()",
    "{v}.contiguous()", "{v}.detach() * {v}",
    "T.where({v} > 0.25, {v}, {v} * 0.1)", "{v} * ({v} > 0)", "{v}.masked_fill({v} < 0, 0.5)",
    "{v}.logical_not() * 1.0", "{v}.isnan() * 1.0 + {v}", "T.zeros_like({v}) + 0.5",
    "T.ones_like({v}) * {v}", "{v} % 2", "{v} // 2",
)  # fmt: skip
BINARY = (
    "{v} + {w}", "{v} - {w}", "{v} * {w}", "{v} / ({w}.abs() + 0.5)", "{v}.maximum({w})",
    "{v}.minimum({w})", "T.where({v} > {w}, {v}, {w} * 0.5)", "{v}.lerp({w}, 0.25)",
    "{v} + {w}.sum()", "({v} <= {w}) * 1.0", "{v} + {w}.detach()", "F.mse_loss({v}, {w})",
    "F.l1_loss({v}, {w})", "F.huber_loss({v}, {w})", "F.smooth_l1_loss({v}, {w})",
    "F.binary_cross_entropy_with_logits({v}, {w}.sigmoid())",
)  # fmt: skip
PRODUCT = (
    "{v} @ {w}", "{v} @ {w}.transpose(-1, -2)", "{v}.transpose(-1, -2) @ {w}",
    "{v} @ {v}.transpose(-1, -2)", "F.linear({v}, {w})", "{v}.flatten().dot({w}.flatten())",
    "{v}.flatten().outer({w}.flatten())", "F.conv1d({v}, {w})", "F.conv1d({v}, {w}, padding=1)",
    "F.conv2d({v}, {w})", "F.conv2d({v}, {w}, stride=2, padding=1)",
)  # fmt: skip
WHOLE = (
    "{v}.sum()", "{v}.mean()", "{v}.amax()", "{v}.max()", "{v}.var()", "{v}.std()",
    "{v}.norm()", "{v}.flatten()", "{v}.flatten().cumsum(0)", "{v}.mT", "{v}.T", "{v}.tril()",
    "{v}.triu(1)", "{v}.diagonal()", "{v}.squeeze()", "{v}[None]", "{v}[..., 0]", "{v}[..., 1:]",
    "{v}[..., ::2]", "{v}[..., :-1]", "{v}[..., -1:]", "{v}[0]", "{v}[-1]", "{v}[1:]",
    "{v}[::2]", "{v}[:, 0]", "{v}[:, None]", "{v}[:0]", "F.layer_norm({v}, {v}.shape[-1:])",
    "F.rms_norm({v}, {v}.shape[-1:], eps=0.001)",
    "F.batch_norm({v}.flatten(1), None, None, training=True)",
    "F.group_norm({v}, 1)", "F.max_pool1d({v}, 2)", "F.max_pool1d({v}, 1)",
    "F.max_pool1d({v}, 3, 2, 1)", "F.avg_pool1d({v}, 2)", "F.max_pool2d({v}, 2)",
    "F.max_pool2d({v}, 1)", "F.max_pool2d({v}, 3, 2, 1)", "F.avg_pool2d({v}, 2)",
    "F.pad({v}, (1, 2))", "F.pad({v}, (0, 1, 2, 0))", "F.pad({v}, (-1, 1))", "F.pad({v}, (0, 0))",
    "{v}.expand(2, *{v}.shape)", "{v}.unsqueeze(-1).expand(*{v}.shape, 3)", "{v}.reshape(-1)",
    "{v}.reshape(-1, {v}.shape[-1])", "{v} * T.arange({v}.shape[-1])", "{v}.reshape(-1, 1)",
)  # fmt: skip
ALONG = (
    "{v}.sum({d})", "{v}.sum({d}, keepdim=True)", "{v}.mean({d})", "{v}.mean({d}, keepdim=True)",
    "{v}.amax({d})", "{v}.amin({d}, keepdim=True)", "{v}.prod({d})", "{v}.max({d})[0]",
    "{v}.min({d})[0]", "{v}.argmax({d}) * 1.0", "{v}.argmin({d}, keepdim=True) * {v}",
    "{v}.var({d})", "{v}.var({d}, correction=0)", "{v}.std({d}, keepdim=True)",
    "{v}.logsumexp({d})", "{v}.softmax({d})", "{v}.log_softmax({d})", "{v}.cumsum({d})",
    "{v}.norm(2, {d})", "{v}.norm(1, {d})", "{v}.norm(float('inf'), {d})", "{v}.flip({d})",
    "{v}.roll(1, {d})", "{v}.roll(-2, {d})", "{v}.unsqueeze({d})", "{v}.squeeze({d})",
    "{v}.transpose({d}, -1)", "{v}.transpose(0, {d})", "{v}.movedim(0, {d})",
    "{v}.narrow({d}, {i}, {k})", "{v}.split({k}, {d})[0]", "{v}.split({k}, {d})[-1]",
    "{v}.chunk(2, {d})[-1]", "{v}.unbind({d})[-1]", "{v}.repeat_interleave({k}, {d})",
    "{v}.index_select({d}, T.tensor([{i}, 0, {i}]))", "T.cat([{v}, {v} * 2], {d})",
    "T.cat([{v}, {w}], {d})", "T.stack([{v}, {w}], {d})", "T.stack([{v}, {v}], {d})",
    "{v}.gather({d}, {v}.argmax({d}, keepdim=True))", "{v}.count_nonzero({d}) * 1.0",
    "({v} > 0).any({d}) * 1.0", "({v} > 0).all({d}) * 1.0",
    "{v}.gather({d}, T.zeros_like({v}, dtype=T.int64))",
    "T.zeros_like({v}).scatter_add({d}, T.zeros_like({v}, dtype=T.int64), {v})",
)  # fmt: skip
PICK = (
    "{v}[T.tensor([{i}, 0])]", "{v}[T.tensor([[0], [{i}]])]", "{v}[:, T.tensor([{i}, {i}])]",
    "{v}[T.tensor({i})]", "{v}[T.tensor([0, {i}]), T.tensor([0, 0])]",
    "{v}.reshape({k}, -1)", "{v}.reshape(-1, {k})", "{v}.reshape(1, -1, {k})",
    "{v}.reshape({k}, -1).T", "{v}.repeat({k}, *[1] * {r})", "{v}.permute(*range({r})[::-1])",
    "{v}.unflatten(-1, (-1, {k}))", "{v} + T.full(({k}, 1), 0.5)", "{v} * T.ones({k}, 1, 1)",
    "{v}[{i}:{i}+{k}]", "{v}[..., {i}::{k}]", "F.pad({v}, ({k}, {i}))",
    "F.cross_entropy({v}, T.zeros({v}.shape[0], dtype=T.int64))",
    "{v}.expand({k}, *{v}.shape)", "{v}.expand(*{v}.shape[:-1], {k})",
    "T.zeros(3).scatter_add(0, T.zeros(5, dtype=T.int64), T.ones(5)) * {v}.sum()",
)  # fmt: skip

FAMILIES = (
    (UNARY, 5), (BINARY, 5), (PRODUCT, 3), (WHOLE, 5), (ALONG, 6), (PICK, 4),
)  # fmt: skip


def draw(rng: np.random.Generator, names: list[str], shape: Callable[[str], Any]) -> str:
    """The right side of a line over `names`, later ones more often."""
    weights = [w for _, w in FAMILIES]
    family = FAMILIES[rng.choice(len(FAMILIES), p=[w / sum(weights) for w in weights])][0]
    template = family[rng.integers(len(family))]
    v, w = (names[-1 - min(int(rng.geometric(0.35)) - 1, len(names) - 1)] for _ in range(2))
    if rng.integers(4) == 0:
        w = v
    rank = len(shape(v))
    return template.format(
        v=v, w=w, r=rank, d=int(rng.integers(-rank, rank)) if rank else 0,
        i=int(rng.integers(0, 4)), k=int(rng.choice([1, 1, 2, 2, 3, 4, 5])),
    )  # fmt: skip
