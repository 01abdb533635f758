"""Wrong input raises a typed error that names the argument, what came, and the way out."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import nn
from kernelrt.errors import DomainError, DTypeError, GradientError, KernelrtError, ShapeError

X = krt.ones(2, 3)
INTS = krt.ones(2, 3, dtype="int64")
IMAGE = krt.ones(1, 4, 5, 5)

WRONG = [
    (lambda: X + krt.ones(4), ShapeError, r"\(2, 3\) and \(4,\) do not broadcast"),
    (lambda: X * [1, 2, 3], DTypeError, "other: .*list.*kernelrt.tensor"),
    (lambda: X + "a", DTypeError, "other: .*str"),
    (lambda: X + None, DTypeError, "NoneType"),
    (X.type, DTypeError, r"dtype: .*x\.dtype"),
    (lambda: X.reshape(4, 2), ShapeError, r"\(2, 3\) has 6 elements and cannot become \(4, 2\)"),
    (lambda: X.reshape(-1, -1), ShapeError, "more than one -1"),
    (lambda: X.reshape(-1, 4), ShapeError, "cannot become"),
    (lambda: X.reshape(2.0, 3), DTypeError, "shape"),
    (lambda: X.expand(3, 3), ShapeError, "only axes of size 1"),
    (lambda: X.expand(3), ShapeError, "fewer axes"),
    (lambda: X.permute(0, 0), ShapeError, "each of the 2 axes once"),
    (lambda: X.sum(2), ShapeError, "axis 2 is out of range for .* 2 axes; expected -2 to 1"),
    (lambda: X.sum((0, -2)), ShapeError, "names an axis twice"),
    (lambda: X.sum("a"), DTypeError, "dim: expected an int"),
    (lambda: X.transpose(0, 5), ShapeError, "dim1"),
    (lambda: X.flatten(1, 0), ShapeError, "start_dim"),
    (lambda: X.split(0), ShapeError, "split_size"),
    (lambda: X.split([1, 3], 1)[0] and X.split([1, 1], 1), ShapeError, "does not add up"),
    (lambda: X.narrow(1, 2, 2), ShapeError, "fit in axis 1"),
    (lambda: X.pad((1, 2, 3)), ShapeError, "pairs"),
    (lambda: X.pad((-2, -2)), ShapeError, "removes more than"),
    (lambda: X.pad((1, 1, 1, 1), mode="reflect"), ShapeError, "'reflect' expects one to three"),
    (lambda: X[0].mT, ShapeError, "at least 2 axes"),
    (lambda: krt.ones(2, 2, 2).t(), ShapeError, "mT"),
    (lambda: krt.cat([]), ShapeError, "at least one"),
    (lambda: krt.cat([X, krt.ones(2, 4)]), ShapeError, r"tensors\[1\]: shape \(2, 4\)"),
    (lambda: krt.cat([X, 3]), DTypeError, r"tensors\[1\]"),
    (lambda: krt.stack([X, X.T]), ShapeError, r"tensors\[1\]"),
    (lambda: X @ X, ShapeError, "matmul: .* last axis of the first has 3 .* 2"),
    (lambda: X @ krt.tensor(2.0), ShapeError, "scalar"),
    (lambda: X.bool() @ X.T.bool(), DTypeError, "bools"),
    (lambda: X.dot(X), ShapeError, "two vectors"),
    (lambda: X.addmm(X, X.T), ShapeError, r"self: shape \(2, 3\) .* \(2, 2\) of the product"),
    (lambda: X[0].addmv(X, X[0]), ShapeError, r"self: shape \(3,\) .* \(2,\) of the product"),
    (lambda: X.addr(X[:, 0], X[:, 0]), ShapeError, "self: shape"),
    (lambda: X.baddbmm(IMAGE[0], IMAGE[0]), ShapeError, "self: shape"),
    (lambda: X.addbmm(IMAGE[0], IMAGE[0]), ShapeError, "self: shape"),
    (lambda: X.linear(krt.ones(2, 4)), ShapeError, r"weight: expected shape \(out, 3\)"),
    (lambda: IMAGE.conv2d(krt.ones(2, 3, 3, 3)), ShapeError, "weight: expected size 4 on axis 1"),
    (lambda: IMAGE.conv2d(krt.ones(2, 4, 7, 7)), ShapeError, "does not fit"),
    (lambda: IMAGE.conv2d(krt.ones(2, 4, 3)), ShapeError, "weight of 4"),
    (lambda: IMAGE.conv2d(krt.ones(3, 2, 3, 3), groups=2), ShapeError, "groups"),
    (lambda: IMAGE.conv2d(krt.ones(2, 4, 3, 3), stride=0), ShapeError, "stride"),
    (lambda: IMAGE.conv2d(krt.ones(2, 4, 3, 3), krt.ones(3)), ShapeError, "bias"),
    (lambda: IMAGE.conv2d(krt.ones(2, 4, 3, 3), padding="full"), DomainError, "padding"),
    (lambda: IMAGE.conv2d(krt.ones(3, 4, 3, 3), groups=2), ShapeError, "3 output channels"),
    (lambda: IMAGE.conv_transpose2d(krt.ones(3, 2, 3, 3)), ShapeError, "size 4 on its axis 0"),
    (lambda: IMAGE.conv_transpose2d(krt.ones(4, 2, 3)), ShapeError, "weight of 4"),
    (lambda: IMAGE.conv_transpose2d(krt.ones(4, 2, 3, 3), groups=3), ShapeError, "groups"),
    (lambda: IMAGE.conv_transpose2d(krt.ones(4, 2, 3, 3), krt.ones(4)), ShapeError, "bias"),
    (lambda: IMAGE.conv_transpose2d(krt.ones(4, 2, 1, 1), None, 1, 9), ShapeError, "no output"),
    (lambda: IMAGE.conv_transpose2d(krt.ones(4, 2, 3, 3), None, 2, 0, 2), ShapeError,
     "output_padding: expected less than the greater of stride 2"),
    (lambda: IMAGE.conv_transpose2d(krt.ones(4, 2, 3, 3), None, 2, "same"), DTypeError, "padding"),
    (lambda: IMAGE.max_pool2d(7), ShapeError, "does not fit"),
    (lambda: IMAGE.max_pool2d(2, padding=2), ShapeError, "at most half"),
    (lambda: X[0].max_pool2d(2), ShapeError, "axes"),
    (INTS.mean, DTypeError, r"mean: .*int64.*x.float\(\)"),
    (INTS.softmax, DTypeError, "softmax"),
    (X.bool().softmin, DTypeError, "softmin: expected a floating type, not bool"),
    (INTS.dropout, DTypeError, "dropout"),
    (lambda: X.dropout(1.5), DomainError, "p: "),
    (lambda: krt.zeros(0, 3).amax(0), ShapeError, "empty"),
    (krt.zeros(0, 3).argmax, ShapeError, "empty"),
    (X.item, ShapeError, "with one element, not of"),
    (lambda: bool(X), ShapeError, "any"),
    (lambda: len(krt.tensor(1.0)), ShapeError, "no length"),
    (lambda: iter(krt.tensor(1.0)), ShapeError, "item"),
    (lambda: X & X, DTypeError, "integers or bools"),
    (lambda: ~X, DTypeError, "integers or bools"),
    (lambda: X.bool() - X.bool(), DTypeError, "bools"),
    (lambda: -X.bool(), DTypeError, "~x"),
    (lambda: INTS**-2, DTypeError, "exponent"),
    (lambda: X.bitcast("bool"), DTypeError, "cast"),
    (lambda: krt.ones(3).bitcast("float64"), ShapeError, "multiple of 2 .* not 3"),
    (lambda: krt.tensor(1.0).view(krt.uint8), ShapeError, "with at least one axis"),
    (lambda: krt.where(X, X, X), DTypeError, "condition: expected bools"),
    (lambda: krt.where(True, 1, 2), DTypeError, "at least one Tensor"),
    (lambda: X.gather(0, X), DTypeError, "index: expected integers"),
    (lambda: X.gather(0, INTS[0]), ShapeError, "index"),
    (lambda: X.scatter_add(0, INTS, krt.ones(1, 1)), ShapeError, "src"),
    (lambda: X.scatter_add(0, INTS, INTS), DTypeError, "src"),
    (lambda: X.embedding(X), DTypeError, "integers"),
    (lambda: INTS.one_hot(-2), ShapeError, "num_classes"),
    (lambda: INTS.one_hot(0), ShapeError, "num_classes"),
    (INTS[:0].one_hot, ShapeError, "num_classes: expected a number of at least 1 for an empty"),
    (X.one_hot, DTypeError, "one_hot: expected integer labels"),
    (lambda: krt.normal(0.0, -1.0, (3,)), DomainError, "std: expected a number of at least 0"),
    (lambda: krt.normal(3, std=-1), DomainError, "std: expected a number of at least 0"),
    (lambda: krt.normal(3, std=float("nan")), DomainError, "std: expected a number of at least 0"),
    (lambda: krt.normal(X, -1.0), DomainError, "std: expected a number of at least 0"),
    (lambda: krt.normal(3, std="a"), DTypeError, "std: expected a number"),
    (lambda: nn.init.normal_(krt.ones(3), 0, -1), DomainError, "std: expected a number"),
    (lambda: nn.init.uniform_(krt.ones(3), 1, 0), DomainError, "a, b: expected a <= b, not 1 and"),
    (lambda: nn.init.uniform_(krt.ones(3), "x", 0), DTypeError, "a: expected a number, not str"),
    (lambda: nn.init.trunc_normal_(krt.ones(3), a=2, b=1), DomainError,
     "a, b: expected a <= b, not 2 and 1"),
    (lambda: nn.init.trunc_normal_(krt.ones(3), a=float("nan")), DomainError, "a, b: expected a"),
    (lambda: nn.init.trunc_normal_(krt.ones(3), std=0), DomainError, "std: expected a number a"),
    (lambda: krt.uniform(2, low=2.0, high=1.0), DomainError,
     r"low, high: expected low <= high, not 2.0 and 1.0"),
    (lambda: krt.uniform(2, low=float("nan")), DomainError, "low, high: expected low <= high"),
    (lambda: krt.uniform(2, low="x"), DTypeError, "low: expected a number, not str"),
    (lambda: krt.prepare(X, 5), DTypeError, r"tensors\[1\]: expected a Tensor, not int"),
    (lambda: krt.prepare(X, threads=1.5), DTypeError, "threads: expected an int"),
    (lambda: krt.set_num_threads("x"), DTypeError, "threads: expected an int.*str"),
    (lambda: krt.set_num_threads(1.5), DTypeError, "threads: expected an int.*float"),
    (lambda: krt.num_threads("x"), DTypeError, "threads: expected an int.*str"),
    (lambda: X.cross_entropy(krt.tensor([0.0, np.nan])), DTypeError, "expected integer labels"),
    (lambda: X.cross_entropy(krt.tensor([0, 1, 2])), ShapeError, r"target: expected shape \(2,\)"),
    (lambda: X.cross_entropy(krt.tensor([0, 1]), reduction="max"), DomainError, "reduction"),
    (lambda: X.cross_entropy(krt.tensor([0, 1]), label_smoothing=2), DomainError, "smoothing"),
    (lambda: INTS.cross_entropy(krt.tensor([0, 1])), DTypeError, "cross_entropy"),
    (lambda: X.mse_loss(krt.ones(3)), ShapeError, "target"),
    (lambda: X.layer_norm(4), ShapeError, "normalized_shape"),
    (lambda: X.rms_norm(4), ShapeError, "normalized_shape"),
    (lambda: X.rms_norm(()), ShapeError, "normalized_shape"),
    (lambda: X.cross_entropy(krt.tensor([0, 1]), krt.ones(9)), ShapeError, "weight: expected one"),
    (lambda: X.nll_loss(krt.tensor([0, 1]), krt.ones(2)), ShapeError, "weight: expected one"),
    (lambda: X.layer_norm(3, krt.ones(2)), ShapeError, "weight"),
    (lambda: X.group_norm(2), ShapeError, "num_groups"),
    (lambda: X.batch_norm(None, None), ShapeError, "running_mean"),
    (lambda: X.batch_norm(krt.ones(2), None, training=True), ShapeError,
     r"running_mean: expected one number for each channel, of shape \(3,\), not \(2,\)"),
    (lambda: X.batch_norm(krt.ones(1), None, training=True), ShapeError, "running_mean: expected"),
    (lambda: X.batch_norm(krt.ones(3), krt.ones(1, 3)), ShapeError, "running_var: expected one"),
    (lambda: IMAGE.instance_norm(None, krt.ones(3)), ShapeError, "running_var: expected one"),
    (lambda: IMAGE.instance_norm(krt.ones(1)), ShapeError, r"running_mean: .* \(4,\), not \(1,\)"),
    (lambda: IMAGE.grid_sample(krt.ones(2, 1, 1, 2)), ShapeError,
     "grid: expected a grid for each of the 1 images of the batch, not 2 grids"),
    (lambda: krt.ones(2, 4, 5, 5).grid_sample(krt.ones(1, 1, 1, 2)), ShapeError, "grid: .*the 2"),
    (lambda: krt.ones(1, 3).batch_norm(None, None, training=True), ShapeError, "more than one"),
    (lambda: X.gelu("sigmoid"), DomainError, "approximate"),
    (X.clamp, ShapeError, "clamp"),
    (lambda: X.div(2, rounding_mode="up"), DomainError, "rounding_mode"),
    (lambda: X.repeat(2), ShapeError, "repeats"),
    (lambda: X.assign(krt.ones(4)), ShapeError, "does not broadcast"),
    (lambda: INTS.assign(0.5), DTypeError, "int64"),
    (lambda: krt.randint(3, 3, (2,)), DomainError, "low"),
    (lambda: krt.rand(2, dtype="int32"), DTypeError, "randint"),
    (lambda: krt.int8.digits, DTypeError, "digits: expected a floating type, not int8"),
    (lambda: krt.bool_.exponent_bits, DTypeError, "exponent_bits: expected a floating type, not b"),
    (lambda: krt.kaiming_uniform(3), ShapeError, "2 axes"),
    (lambda: krt.kaiming_uniform(3, 3, mode="fan"), DomainError, "mode"),
    (lambda: krt.manual_seed(1.5), DTypeError, "seed"),
    (INTS.requires_grad_, GradientError, r"int64.*x.float\(\)"),
    (INTS.sum().backward, GradientError, "int64"),
    (X.sum().backward, GradientError, "requires_grad=True"),
    (lambda: krt.ones(1, 1, 4).interpolate(scale_factor=float("inf")), DomainError,
     "scale_factor: expected finite numbers above 0, not inf"),
    (lambda: krt.func.jvp(X.sin, X, X), DTypeError, "primals: expected a tuple or list with"),
    (lambda: X.max_unpool2d(X.int(), 2), ShapeError, r"3 or 4 axes, not shape \(2, 3\)"),
    (lambda: nn.functional.scaled_dot_product_attention(X[0], X, X), ShapeError,
     r"query: expected at least 2 axes, not shape \(3,\)"),
    (lambda: nn.MultiheadAttention(3, 1)(X[0], X, X), ShapeError,
     r"2 or 3 axes, the last of size 3, not shape \(3,\)"),
    *((lambda solve=solve: solve(krt.eye(2), krt.ones(2, 1, dtype="float64")), DTypeError,
       f"{name}: expected right-hand sides of float32, as the matrices are, not of float64; cast")
      for name, solve in (
          ("solve", krt.linalg.solve), ("solve", krt.linalg.solve_ex),
          ("solve", lambda a, b: krt.linalg.solve(a, b.mT, left=False)),
          ("solve_triangular", partial(krt.linalg.solve_triangular, upper=True)),
          ("cholesky_solve", lambda a, b: b.cholesky_solve(a)),
          ("lu_solve", lambda a, b: b.lu_solve(*krt.linalg.lu_factor(a))),
          ("lu_solve", lambda a, b: krt.linalg.lu_solve(*krt.linalg.lu_factor(a), b, adjoint=True)),
      )),
    (lambda: krt.linalg.matrix_norm(X[0]), ShapeError,
     r"two axes, of a tensor with at least 2 axes, not \(-2, -1\) for shape \(3,\)"),
    (lambda: X[0].ctc_loss(X, X, X), ShapeError, r"\(T, N, C\) or \(T, C\), not \(3,\)"),
    (lambda: X[0].histogram(X), ShapeError, r"2 edges, not shape \(2, 3\)"),
    (lambda: krt.nn.BatchNorm1d(4)(X), ShapeError, r"4 channels in axis 1, not shape \(2, 3\)"),
    (lambda: krt.nn.GroupNorm(2, 4)(X), ShapeError, r"4 channels in axis 1, not shape \(2, 3\)"),
    (lambda: krt.nn.RNN(3, 4)(X[:0]), ShapeError, r"at least 1 step, not shape \(0, 1, 3\)"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_wrong_input(number):
    action, kind, message = WRONG[number]
    with pytest.raises(kind, match=f"(?s){message}") as caught:
        action()
    assert isinstance(caught.value, KernelrtError)
    builtin = {DTypeError: TypeError, GradientError: RuntimeError}.get(kind, ValueError)
    assert isinstance(caught.value, builtin)


def test_a_gradient_needs_one_element_or_a_gradient():
    x = krt.tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(GradientError, match=r"shape \(2,\).*loss.mean\(\).*gradient="):
        (x * 2).backward()
    with pytest.raises(ShapeError, match="gradient"):
        (x * 2).backward(krt.ones(3))
    assert x.grad is None


def test_a_wrong_grad_is_refused():
    x = krt.tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(ShapeError, match="grad"):
        x.grad = krt.ones(3)
    with pytest.raises(DTypeError, match="grad"):
        x.grad = 3


@pytest.mark.parametrize(
    ("made", "name"),
    [(lambda n: krt.ones(1, 1, 4).interpolate(n), "size"),
     (lambda n: krt.ones(1, 1, 4).interpolate(n, mode="linear"), "size"),
     (lambda n: krt.ones(1, 1, 4).interpolate(scale_factor=n, mode="linear"), "size"),
     (lambda n: krt.ones(1, 1, 4).adaptive_avg_pool1d(n), "output_size")],
)  # fmt: skip
def test_sizes_that_no_memory_is_there_for(made, name):
    with pytest.raises(krt.OutOfMemoryError, match=f"{name}: not enough memory for .* elements"):
        made(1 << 50)
