"""Every public operation as a line of Python that means the same on our tensors and on torch's.

In a line `x`, `y` and `z` are tensors, `i` holds integers, `m` bools; ``F.f(x)`` is the method or
the function called f; words in braces are drawn for the shapes at hand.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ROWS", "Row"]


@dataclass(frozen=True)
class Row:
    """An operation.

    Attributes
    ----------
    line : str
        What is computed.
    types : str
        Kinds of scalar types: f(loating), n (not float64), i(nteger), b(ool).
    shapes : str
        How the shapes of the tensors are drawn; see op_cases.py.
    values : str
        What the elements are drawn from.
    """

    line: str
    types: str = "f"
    shapes: str = "any"
    values: str = "any"


def rows(text: str, types: str = "f", shapes: str = "any", values: str = "any") -> list[Row]:
    lines = [line.strip() for line in text.split(";")]
    return [Row(line, types, shapes, values) for line in lines if line]


ROWS: list[Row] = [
    # elementwise, one tensor
    *rows("x.abs(); x.sign(); -x; x.square(); x * x; x + x; x - x; x.maximum(x); +x", "fi"),
    *rows("x.floor(); x.ceil(); x.trunc(); x.round(); x.isnan(); x.isinf(); x.isfinite(); "
          "x.logical_not(); x.clone(); x.contiguous(); x.detach() * x; x.relu()", "fi"),
    *rows("x.exp(); x.exp2(); x.log(); x.log2(); x.log10(); x.log1p(); x.sqrt(); "
          "x.rsqrt(); x.reciprocal(); x.sin(); x.cos(); x.tanh(); x.erf(); x.sigmoid(); "
          "x.atan(); x.asinh(); (x.abs() + 1.5).acosh(); x.sin().asin(); x.sin().acos()", "fi"),
    *rows("F.softsign(x)"),
    *rows("F.hardsigmoid(x)", "n"),  # torch's gradient has the digits of float32
    *rows("x.tan(); x.expm1(); x.sinh(); x.cosh(); (x / 4).atanh(); (x / 4).asin(); x.erfc(); "
          "(x.abs() + 0.5).lgamma(); (x.abs() + 0.5).polygamma(2)", "fi", values="unit"),
    # Its gradient is torch's trigamma, which has ten digits.
    *rows("(x.abs() + 0.5).digamma().detach()", "fi", values="unit"),
    *rows("F.relu6(x); F.hardtanh(x); F.hardtanh(x, -0.5, 2); F.leaky_relu(x); "
          "F.leaky_relu(x, 0.3); F.elu(x); F.elu(x, 0.5); F.logsigmoid(x); F.silu(x); F.gelu(x); "
          "F.gelu(x, approximate='tanh'); F.softplus(x); F.softplus(x, 2.0, 5.0); F.mish(x); "
          "F.hardswish(x)"),
    *rows("~x; x.logical_not()", "ib"),
    *rows("x.half(); x.float(); x.double(); x.bfloat16()", "fib"),
    *rows("x.int(); x.long(); x.bool(); x.to(T.int8); x.abs().to(T.uint8); x.to(T.int16)", "fib",
          values="unit"),
    *rows("x == x; x != x; x <= x; x < x", "fib"),
    # two tensors
    *rows("x + y; x - y; x * y; x.add(y, alpha=3); x.sub(y, alpha=2); x.maximum(y); x.minimum(y); "
          "x.lerp(y, 0.25); x.addcmul(x, y); x.addcmul(y, y, value=-0.5)", "f", "pair"),
    *rows("x + y; x - y; x * y; x.add(y, alpha=3); x.sub(y, alpha=2); x.maximum(y); x.minimum(y)",
          "i", "pair"),
    *rows("x + y; x * y", "b", "pair"),
    *rows("x / y; x.div(y, rounding_mode='trunc')", "f", "pair"),
    *rows("(x.abs() + 1).atan2(y); x.atan2(y.abs() + 1)", "f", "pair", "unit"),
    # Elsewhere torch's are not exact; tests/ops/test_remainders.py compares with NumPy.
    *rows("x.div(y, rounding_mode='floor'); x % y; x.remainder(y); x.fmod(y)", "f", "pair",
          "unit"),
    *rows("x / y; x // y; x % y; x.fmod(y); x.div(y, rounding_mode='trunc')", "i", "pair",
          "nonzero"),
    *rows("x ** y", "f", "pair"), *rows("x ** y", "i", "pair"),
    *rows("x == y; x != y; x < y; x <= y; x > y; x >= y; x.logical_and(y); x.logical_or(y)",
          "fib", "pair"),
    *rows("x & y; x | y; x ^ y", "ib", "pair"),
    *rows("x << y; x >> y", "i", "pair", "shift"),
    *rows("T.where(m, x, y); x.where(m, y); x.masked_fill(m, 2); x.masked_fill(m, -0.5)",
          "f", "masked"),
    *rows("T.where(m, x, y); x.masked_fill(m, 3); T.where(m, x, 1.5); T.where(m, 2, x)", "i",
          "masked"),
    *rows("T.where(x > y, x, y); T.where(x == 0, 0.0, y)", "f", "pair"),
    *rows("x.clamp(y - 1, y + 1)", "f", "pair", "unit"),
    # numbers
    *rows("x + {c}; x - {c}; {c} - x; x * {c}; x / {c}; {c} / x; x ** {c}; x.clamp({c}); "
          "x.clamp(max={c}); {c} ** x; x < {c}; x >= {c}; x == {c}", "fi"),
    *rows("x.clamp(-1, {c}); x.lerp(x, {c})"),
    *rows("x % {c}; x // {c}; x.fmod({c})", "fi", values="unit"),
    *rows("x ** 0; x ** 1; x ** 2; x ** 3; x ** -1; x ** 0.5; x ** 2.5; x ** -2; x + 0; x * 1; "
          "x * 0; x / 1; x - 0; x % 1; x * -1; x + np.float32(0.1); x * np.float64(3); "
          "x * np.int64(2); x ** np.int64(2); x + True; x * False", "fi"),
    # reductions
    *rows("x.sum(); x.sum({d}); x.sum({ds}, keepdim={k}); x.mean({d}); x.mean({ds}, keepdim={k}); "
          "x.mean(); x.prod({d}); x.prod(); x.var({ds}, correction={o}, keepdim={k}); x.var(); "
          "x.var({d}, unbiased={k}); "
          "x.std({d}, correction={o}); x.std(); x.norm(); x.norm(1, {ds}); x.norm(2, {d}, {k}); "
          "x.norm(3, {d}); x.norm(0.5, {d}); x.norm(float('inf'), {d}); x.norm(-2, {d}); "
          "x.logsumexp({d}); x.logsumexp({ds}, {k}); x.softmax({d}); x.log_softmax({d}); "
          "x.cumsum({d}); x.norm(0, {ds})", "f", values="unit"),
    *rows("x.sum({ds}, {k}); x.prod({d}, {k}); x.cumsum({d}); x.count_nonzero(); "
          "x.count_nonzero({d}); x.sum(dtype=T.float32); x.sum({d}, dtype=T.int64)", "ib"),
    *rows("x.amax({ds}, {k}); x.amin({ds}, {k}); x.amax(); x.max(); x.min(); "
          "x.max({d})[0]; x.min({d}, {k})[0]; x.max({d})[1]; x.min({d})[1]; "
          "x.argmax(); x.argmin(); x.argmax({d}, {k}); x.argmin({d}, {k})", "fi", "full", "ties"),
    *rows("x.any().bool(); x.all().bool(); x.any({d}, {k}).bool(); x.all({d}, {k}).bool()", "fib",
          values="ties"),
    *rows("x.sum({d}); x.amax({d}).detach(); x.mean({d}); x.softmax({d}); "
          "x.norm(2, {d}).detach()", "f", "full", "any"),
    # order; which of equal elements is chosen torch leaves open where it does not sort
    *rows("x.sort(dim={d}, stable=True)[0]; x.sort(dim={d}, descending={k}, stable=True)[0]; "
          "x.sort(dim={d}, descending={k}, stable=True)[1]; x.argsort(dim={d}, stable=True); "
          "x.msort(); x.topk(1, {d})[0].detach(); x.kthvalue(1, {d}, {k})[0].detach(); "
          "x.median({d}, {k})[0].detach(); x.median(); x.nanmedian(); "
          "x.nanmedian({d})[0].detach()", "fi", "full1", "ties"),
    *rows("x.topk(1, {d})[0]; x.detach().gather({d}, x.topk(1, {d}, {k})[1]); "
          "x.kthvalue(1, {d})[0]; x.median({d})[0]", "f", "full1", "unit"),
    # movement
    *rows("x.reshape(-1); x.flatten(); x.T if x.ndim == 2 else x; x.unsqueeze({u}); x.squeeze(); "
          "x.squeeze({d}); x.transpose({d}, {e}); x.swapaxes({d}, {e}); x.movedim({d}, {e}); "
          "x.flip({d}); x.roll({s}, {d}); x.expand(3, *x.shape); x.repeat(2, *[1] * x.ndim); "
          "x.repeat(*[2] * max(x.ndim, 1)); F.pad(x, [{s}, 1] * min(x.ndim, 1)); "
          "F.pad(x, [1, {s}] * min(x.ndim, 2), value=2.0); x.view(x.shape); x.view_as(x); "
          "x.expand_as(x); x.broadcast_to(2, *x.shape); x.tile(2, *[1] * x.ndim)", "fib"),
    *rows("x.permute(*range(x.ndim)[::-1]); x.narrow({d}, 0, 1); x.split(2, {d})[-1]; "
          "x.chunk(2, {d})[-1]; x.unbind({d})[-1]; x.repeat_interleave(2, {d}); "
          "x.unflatten({d}, (1, -1)); x.flatten({d}); x[0]; x[-1:]; x[..., 0]; x[..., ::2]; "
          "x[None, ..., None]; x[1:]; T.cat([x, x], {d}); T.stack([x, x], {d}); "
          "T.cat([x * 2, x[:1], x])", "fib", "full1"),
    *rows("x.tril(); x.triu(1); x.tril({s}); x.mT; x.diagonal(); x.diagonal({s}); "
          "x.diagonal({s}, -1, 0); x.tril(-1) + x.triu()", "fi", "matrix"),
    *rows("T.meshgrid(x, x, indexing='ij')[0]; T.meshgrid(x, y, indexing='xy')[1]", "fi", "line"),
    # products
    *rows("x @ y; x.matmul(y)", "fi", "product", "unit"), *rows("x @ x.mT", "f", "matrix", "unit"),
    *rows("x.dot(x); x.outer(x)", "fi", "line", "unit"),
    *rows("F.linear(x, y); F.linear(x, y, z)", "f", "linear", "unit"),
    *rows("x.mm(y)", "f", "mm", "unit"), *rows("x.bmm(y)", "f", "bmm", "unit"),
    *rows("F.conv1d(x, y, None, {t}, {p}, {q}); F.conv1d(x, y, z, padding='same')", "f", "conv1",
          "unit"),
    *rows("F.conv2d(x, y, None, {t}, {p}, {q}); F.conv2d(x, y, z); F.conv2d(x, y, None, 1, {p})",
          "f", "conv2", "unit"),
    *rows("F.conv3d(x, y, None, {t}, {p}, {q}); F.conv3d(x, y, z)", "f", "conv3", "unit"),
    *rows("F.conv_transpose3d(x, y, None, {t}, {p}); F.conv_transpose3d(x, y, z, 2, 0, 1)", "f",
          "transposed3", "unit"),
    *rows("F.conv_transpose1d(x, y, None, {t}, {p}, 0, 1, {q}); F.conv_transpose1d(x, y, z)", "f",
          "transposed1", "unit"),
    *rows("F.conv_transpose2d(x, y, None, {t}, {p}, 0, 1, {q}); "
          "F.conv_transpose2d(x, y, z, 2, 0, 1)", "f", "transposed2", "unit"),
    *rows("F.max_pool1d(x, {n}, {t}); F.max_pool1d(x, {n}, padding={n} // 2); F.max_pool1d(x, 1); "
          "F.max_pool1d(x, {n}, {t}, 0, {q}); F.avg_pool1d(x, {n}, {t}); "
          "F.avg_pool1d(x, {n}, {t}, {n} // 2, count_include_pad={k})", "f", "pool1", "ties"),
    *rows("F.max_pool2d(x, {n}, {t}); F.max_pool2d(x, ({n}, 1)); F.max_pool2d(x, 1); "
          "F.max_pool2d(x, {n}, {t}, {n} // 2); F.avg_pool2d(x, {n}); "
          "F.avg_pool2d(x, {n}, {t}, {n} // 2, count_include_pad={k})", "f", "pool2", "ties"),
    *rows("F.interpolate(x, scale_factor=2); F.interpolate(x, scale_factor={n})", "f", "pool2"),
    # normalization and losses
    *rows("F.layer_norm(x, x.shape[-1:]); F.layer_norm(x, x.shape[-1:], y, z); "
          "F.rms_norm(x, x.shape[-1:], y, 1e-5); F.rms_norm(x, x.shape[-1:], eps=1e-6)", "f",
          "norm", "unit"),
    *rows("F.group_norm(x, 2); F.group_norm(x, 1, y, z); F.group_norm(x, 4, y)", "f", "group",
          "unit"),
    *rows("F.batch_norm(x, None, None, y, z, True); F.batch_norm(x, None, None, training=True); "
          "F.batch_norm(x, y, z.abs() + 0.5); F.batch_norm(x, y, y * y, z, y)", "f", "group",
          "unit"),
    *rows("F.mse_loss(x, y, reduction={r}); F.l1_loss(x, y, reduction={r}); "
          "F.huber_loss(x, y, reduction={r}); F.huber_loss(x, y, delta=0.5); "
          "F.smooth_l1_loss(x, y, reduction={r}); F.smooth_l1_loss(x, y, beta=0.3); "
          "F.binary_cross_entropy(x.sigmoid(), y.sigmoid(), reduction={r}); "
          "F.binary_cross_entropy_with_logits(x, y.sigmoid(), reduction={r}); "
          "F.binary_cross_entropy_with_logits(x, y.sigmoid(), pos_weight=y.exp()); "
          "F.binary_cross_entropy_with_logits(x, y.sigmoid(), y * y); "
          "F.kl_div(x, y.sigmoid(), reduction={r}); F.mse_loss(x, x); F.l1_loss(x, x)", "f",
          "same", "unit"),
    *rows("F.cross_entropy(x, i, reduction={r}); F.nll_loss(x, i, reduction={r}); "
          "F.cross_entropy(x, i, y.abs(), reduction={r}); F.nll_loss(x, i, y.abs()); "
          "F.cross_entropy(x, i, ignore_index=0); F.cross_entropy(x, i, label_smoothing=0.1); "
          "F.cross_entropy(x, i, y.abs(), label_smoothing=0.2); "
          "F.cross_entropy(x, x.softmax(1)); F.nll_loss(x.log_softmax(1), i)", "f", "labels",
          "unit"),
    # indexing
    *rows("x[i]; x.index_select(0, i.reshape(-1)); F.embedding(i, x); x[i, 0]; x[:, [0, -1]]; "
          "x[[0, -1, 0]]; x[i] * x[i]", "fi", "rows"),
    *rows("F.one_hot(i, 7)", "i", "rows"),
    *rows("x.gather({d}, i); x.scatter_add({d}, i, y); x.take_along_dim(i, {d}); "
          "x.scatter_add({d}, i, y) * x", "f", "gather", "unit"),
]  # fmt: skip
