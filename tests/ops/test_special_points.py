"""Values and gradients at NaN, infinities, zeros, ties, kinks and the ends of a type.

The oracle is torch. Where torch contradicts itself (a value depends on the length of the tensor,
an end is not treated like the other, 0 times infinity stands where a limit exists), what we do is
written out.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from support.skip_list import Package

import kernelrt as krt

torch = Package("torch")

NAN, INF = np.nan, np.inf
TYPES = [np.float32, np.float64]


def outcome(lib, line, arrays, dtype):
    """Value and gradients of `line` over tensors x and y of a library."""
    given = {name: lib.tensor(np.array(a, dtype), requires_grad=True)
             for name, a in zip("xy", arrays, strict=False)}  # fmt: skip

    class Functions:
        def __getattr__(self, name):
            if lib is torch:
                return getattr(torch.nn.functional, name)
            return lambda x, *args, **options: getattr(x, name)(*args, **options)

    names = {"F": Functions(), "T": lib, "inf": INF, "nan": NAN, **given}
    out = eval(line, names)  # noqa: S307 - of our own
    out.sum().backward()
    return [out.detach().numpy(), *(given[k].grad.numpy() for k in given)]


def agree(line, arrays, dtype, expected=None):
    got = outcome(krt, line, arrays, dtype)
    want = outcome(torch, line, arrays, dtype) if expected is None else expected
    tolerance = 1e-4 if dtype is np.float32 else 1e-9
    for name, a, b in zip(["value", "x.grad", "y.grad"], got, want, strict=False):
        np.testing.assert_allclose(
            a, b, rtol=tolerance, atol=float(np.finfo(dtype).tiny) * 4 + tolerance * 1e-4,
            err_msg=f"{line}: {name} at {[np.array(x).tolist() for x in arrays]}",
        )  # fmt: skip


def lines(text):
    return [line.strip() for line in text.split(";")]


def points(dtype):
    most = float(np.finfo(dtype).max)
    return [NAN, INF, -INF, 0.0, -0.0, 1, -1, 0.5, -0.5, 2, -2.5, 3, -3, 6, 20, -15, 90, -90, most,
            -most, most / 4, float(np.finfo(dtype).tiny), 1e-8, -1e-8]  # fmt: skip


# ---- one tensor

UNARY = lines(
    "x.abs(); x.sign(); x.square(); x.floor(); x.ceil(); x.trunc(); x.round(); x.relu(); x.exp();"
    "x.exp2(); x.log(); x.log2(); x.log10(); x.log1p(); x.expm1(); x.sqrt(); x.rsqrt();"
    "x.reciprocal(); x.erf(); x.sigmoid(); x.tanh(); -x; x * 0; x * x; x - x; x / x; 1 / x;"
    "x ** 0; x ** 1; x ** 2; x ** 3; x ** -1; x ** -2; x ** 0.5; x ** 4; 0.0 ** x; 2.0 ** x;"
    "0.5 ** x; x.fmod(3); x.div(3, rounding_mode='trunc');"
    "F.softsign(x); F.relu6(x); F.hardtanh(x); F.hardtanh(x, -0.5, 2);"
    "F.leaky_relu(x); F.leaky_relu(x, 0.0); F.logsigmoid(x); F.silu(x);"
    "F.softplus(x); F.softplus(x, 2.0, 5.0); F.mish(x);"
    "x.clamp(-1, 1); x.clamp(min=0); x.clamp(max=2); x.clamp(0.5, 0.5); x.clamp(1, -1);"
    "x.clamp(-inf, inf); x.clamp(min=nan); x.clamp(-1, nan); x.masked_fill(x > 1, 0);"
    "T.where(x > 0, x, x * 2)"
)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("line", UNARY)
def test_functions_of_one_tensor(line, dtype):
    agree(line, [points(dtype)], dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("x", [[0.0], [0.0, 0.0], [0.0, -0.0, 0.0], [3.0, 0.0]])
@pytest.mark.parametrize("line", ["x.norm()", "x.norm() ** 0.5", "x.norm(dim=0).sqrt()",
                                  "x.norm().log()", "x.norm() ** 2", "1 / x.norm()"])  # fmt: skip
def test_norms_of_zeros(line, x, dtype):
    agree(line, [x], dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("line", ["T.cdist(x, x).sqrt()", "T.cdist(x, x.detach()).sqrt()",
                                  "F.pdist(x).log1p()", "F.pdist(x).sqrt()"])  # fmt: skip
def test_distances_of_0(line, dtype):
    agree(line, [[[0, 0], [0, 0], [1, 2]]], dtype)


# torch's gradients of elu and hardswish at NaN depend on how many elements there are; its hardswish
# and gelu overflow too early and its hardsigmoid has the digits of float32.
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("line", ["F.elu(x)", "F.elu(x, 0.5)", "F.hardswish(x)", "F.hardsigmoid(x)",
                                  "F.gelu(x)", "F.gelu(x, approximate='tanh')"])  # fmt: skip
def test_functions_that_torch_has_within_limits_only(line, dtype):
    inner = [-15, -2.5, -1, -0.5, -0.0, 0.0, 1, 2, 20, 90]
    ends = [] if "gelu" in line else [-INF, -3, 3, *([] if "swish" in line else [INF])]
    got = outcome(krt, line, [inner + ends], dtype)
    want = outcome(torch, line, [inner + ends], dtype)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("line", ["F.hardswish(x)", "F.gelu(x)", "F.gelu(x, approximate='tanh')"])
def test_no_overflow_before_the_end(line, dtype):
    x = [INF, float(np.finfo(dtype).max) / 2]
    np.testing.assert_array_equal(outcome(krt, line, [x], dtype)[0], x)


@pytest.mark.parametrize("dtype", TYPES)
def test_the_hard_sigmoid_is_flat_at_its_limits_and_nan(dtype):
    got = outcome(krt, "F.hardsigmoid(x)", [[NAN, -3, 3, INF, -INF]], dtype)
    np.testing.assert_array_equal(got, [[NAN, 0, 1, 1, 0], [0] * 5])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", ["i0", "i0e"])
def test_the_bessel_function_of_order_0_is_1_at_0(name, dtype):
    kind = np.dtype(dtype)
    x = np.array([0.0, -0.0, 1e-30, -1e-20, np.finfo(kind).eps / 3], kind)
    got = getattr(krt.tensor(x), name)().numpy()
    assert got.dtype == kind
    # To the last digit: i0(x) = 1 + x**2 / 4, and i0e(x) = 1 - |x|.
    np.testing.assert_array_equal(got, 1 - np.abs(x) if name == "i0e" else np.ones(5, kind))


ACTIVATIONS = lines(
    "F.relu(x); F.relu6(x); F.hardtanh(x); F.hardtanh(x, -0.5, 2); F.hardsigmoid(x);"
    "F.hardswish(x); F.elu(x); F.elu(x, 0.5); F.celu(x); F.celu(x, 0.5); F.selu(x);"
    "F.leaky_relu(x); F.silu(x); F.mish(x); F.softplus(x); F.logsigmoid(x); F.softsign(x);"
    "F.gelu(x); F.gelu(x, approximate='tanh'); F.tanhshrink(x); F.hardshrink(x);"
    "F.hardshrink(x, 0.0); F.softshrink(x); F.softshrink(x, 2.0); F.threshold(x, 0.5, -0.25);"
    "x.sigmoid(); x.tanh()"
)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("line", ACTIVATIONS)
def test_activations_are_those_of_torchs_vector_code_at_every_place(line, dtype):
    # torch's vector code and its code for the numbers that fill no vector differ at NaN.
    places = [NAN, INF, -INF, 0.0, -0.0, -3, 3, -1, 1, 0.5, -0.5, 2, -2, 6]
    if "gelu" in line:
        places.remove(INF)  # torch's vector code has NaN, where the definition has infinity
    want = outcome(torch, line, [np.repeat(places, 64)], dtype)
    for times in (1, 40):
        got = outcome(krt, line, [np.repeat(places, times)], dtype)
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, np.repeat(b[::64], times), rtol=1e-6, atol=1e-6)


# ---- two tensors

BINARY = lines(
    "x + y; x - y; x * y; x / y; x ** y; x.maximum(y); x.minimum(y); x.lerp(y, 0.25);"
    "x.div(y, rounding_mode='trunc'); x.clamp(min=y); x.clamp(max=y);"
    "x.clamp(y, y + 1).where(abs(y) < 1e9, x);"
    "F.mse_loss(x, y, reduction='none'); F.l1_loss(x, y, reduction='none');"
    "F.huber_loss(x, y, reduction='none'); F.huber_loss(x, y, reduction='none', delta=0.5);"
    "F.huber_loss(x, y, reduction='none', delta=3.0);"
    "F.smooth_l1_loss(x, y, reduction='none'); F.smooth_l1_loss(x, y, reduction='none', beta=3.);"
    "F.smooth_l1_loss(x, y, reduction='none', beta=0.5);"
    "F.smooth_l1_loss(x, y, reduction='none', beta=0.0);"
    "F.huber_loss(x, y, reduction='sum'); F.smooth_l1_loss(x, y)"
)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("line", BINARY)
def test_functions_of_two_tensors(line, dtype):
    most = float(np.finfo(dtype).max)
    ends = [NAN, INF, -INF, 0.0, -0.0, 1, -1, 0.5, 2, -2.5, 3, most, -most]
    agree(line, [a.ravel() for a in np.meshgrid(ends, ends)], dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("beta", [1e-40, 1e-30, 1e30])
def test_smooth_l1_with_a_bend_at_the_ends_of_float32(beta, dtype):
    x, y = [1e-3, -2, 5, 1e25], [0, 0.5, 5, -1e25]
    line = f"F.smooth_l1_loss(x, y, reduction='none', beta={beta})"
    agree(line, [x, y], dtype, outcome(torch, line, [x, y], np.float64))


def logistic(x, y, p):
    """Value and gradients of the loss, with what has no weight left out."""
    with np.errstate(all="ignore"):
        wrong, right = np.logaddexp(0, x), np.logaddexp(0, -x)  # -log(sigmoid(-x)) and of x
        share = 1 / (1 + np.exp(-x))
        value = np.where(y == 1, 0, (1 - y) * wrong) + np.where(p * y == 0, 0, p * y * right)
        slope = (1 - y) * share - p * y * (1 - share)
        by_y = (0 if p == 0 else p * right) - wrong
    return [np.where(np.isnan(x), NAN, u) for u in (value, slope, by_y)]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("factor", [None, 1.0, 0.5, 3.0, 0.0])
def test_infinite_scores_cost_what_finite_ones_tend_to(factor, dtype):
    ends = np.array([NAN, INF, -INF, -0.0, 0.0, 1, -1, 30, -30, 1e30, -1e30])
    x, y = (a.ravel() for a in np.meshgrid(ends, [0.0, 0.25, 0.5, 1.0]))
    more = "" if factor is None else f", pos_weight=T.tensor({factor}, dtype=x.dtype)"
    line = f"F.binary_cross_entropy_with_logits(x, y, reduction='none'{more})"
    agree(line, [x, y], dtype, logistic(x, y, 1.0 if factor is None else factor))


@pytest.mark.parametrize("dtype", TYPES)
def test_binary_cross_entropy_between_the_ends(dtype):
    x, y = (a.ravel() for a in np.meshgrid([-40, -1, -0.0, 0, 0.3, 2, 50], [0, 0.25, 1, -0.5, 2]))
    for more in ("", ", T.tensor(2., dtype=x.dtype)", ", pos_weight=T.tensor(3., dtype=x.dtype)"):
        agree(f"F.binary_cross_entropy_with_logits(x, y{more})", [x, y], dtype)


@pytest.mark.parametrize("dtype", TYPES)
def test_divergence(dtype):
    line = "F.kl_div(x, y, reduction='none')"
    x, y = (a.ravel() for a in np.meshgrid([NAN, -INF, INF, -1, 0], [NAN, -1, -INF, 0.5, 2, 1e-30]))
    agree(line, [x, y], dtype)
    # What has the probability 0 costs nothing.
    none = [0.0, 0.0, 0.0]
    agree(line, [[-INF, -1, INF], none], dtype, [none, none, none])
    assert np.isnan(outcome(krt, line, [[NAN], [0.0]], dtype)[0]).all()


@pytest.mark.parametrize("name", ["delta", "beta"])
@pytest.mark.parametrize("value", [-1.0, NAN])
def test_bends_that_there_are_not(name, value):
    x = krt.zeros(2)
    loss = x.huber_loss if name == "delta" else x.smooth_l1_loss
    with pytest.raises(krt.DomainError, match=name):
        loss(x, **{name: value})


# ---- several elements

VECTORS = [[NAN, 1, NAN], [1, NAN, 2], [0, 2, INF], [0, 0, INF], [INF, INF, 1], [-INF, 1, 2],
           [INF, -INF, 1], [3, 3, 1], [-INF, -INF, -INF], [INF], [NAN], [0.0], [-0.0, 0.0, 0.0],
           [1, 1, 1], [2, 3, 4], [0, NAN, 2], [0, 0, NAN], [-1, -2, -2], [0, INF, NAN], [5],
           [1e30, 1e30, 1], [1e-30, 1e-30, 1e-30]]  # fmt: skip
REDUCTIONS = ["x.sum()", "x.mean()", "x.max()", "x.min()", "x.max(0).values", "x.min(0).values",
              "x.norm(1)", "x.norm(inf)", "x.norm(-inf)", "x.cumsum(0)",
              "(x.softmax(0) ** 2).sum()", "x.log_softmax(0)[0]",
              "F.max_pool1d(x.reshape(1, 1, -1), 1)",
              "F.cross_entropy(x.reshape(1, -1), T.tensor([0]))",
              "F.nll_loss(x.reshape(1, -1), T.tensor([0]))"]  # fmt: skip


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("line", REDUCTIONS)
def test_reductions(line, dtype):
    for vector in VECTORS:
        agree(line, [vector], dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", ["max", "min"])
def test_extrema_over_axes_are_those_over_all(name, dtype):
    # torch's amax divides the gradient by the number of elements equal to NaN, which is 0.
    for vector in VECTORS:
        want = outcome(torch, f"x.{name}()", [vector], dtype)
        for line in (f"x.a{name}()", f"x.a{name}(0)", f"x.reshape(1, -1).a{name}(1)"):
            agree(line, [vector], dtype, want)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("line", ["x.prod()", "x.prod(0)", "x.reshape(1, -1).prod(1)"])
def test_the_slope_of_a_product_is_the_product_of_the_others(line, dtype):
    # torch divides the product by the element where no element is 0.
    more = [[0, 0], [INF, 0], [-INF, 0, 3], [-INF, -INF], [-2, INF, -3]]
    for vector in [*VECTORS[:-2], *more]:
        with np.errstate(all="ignore"):
            x = np.array(vector, dtype)
            others = [np.delete(x, i).prod() for i in range(len(x))]
            agree(line, [vector], dtype, [x.prod(), others])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("p", [0.5, 1.5, 2, 3, -1])
def test_the_norm_of_one_element(p, dtype):
    for number, slope in [(NAN, NAN), (INF, 1), (-INF, -1), (0, 0), (-3, -1), (1e30, 1)]:
        agree(f"x.norm({p})", [[number]], dtype, [abs(number), [slope]])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("p", [1.5, 2, 3])
def test_norms(p, dtype):
    for vector in [[NAN, 1], [INF, 1], [INF, NAN], [0, 0], [3, -4], [1, 1, 1], [INF, -INF]]:
        agree(f"x.norm({p})", [vector], dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("dim", ["", "0"])
def test_variances_that_overflow_are_infinite(dim, dtype):
    most = float(np.finfo(dtype).max)
    for vector in [[0, 0, most / 10], [0, 0, -most / 10], [most / 1e300, -most / 1e305, most / 2],
                   [most**0.5, -(most**0.5), 3 * most**0.5]]:  # fmt: skip
        agree(f"x.var({dim})", [vector], dtype)
        # The root of what overflows is infinite here, where torch may compute it in float64.
        got = outcome(krt, f"x.std({dim})", [vector], dtype)
        assert got[0] == INF
        np.testing.assert_array_equal(got[1], np.zeros(3))
    for line in ("x.var()", "x.var(correction=0)"):  # the mean overflows, too
        agree(line, [[most, most]], dtype)
        agree(line, [[-most, -most, -most]], dtype)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_variances_that_overflow_narrow_floats(dtype):
    x = [0.0, 0.0, 6e4 if dtype == "float16" else 3e38]
    theirs = torch.tensor(x, dtype=getattr(torch, dtype))
    assert krt.tensor(x, dtype=dtype).var().item() == theirs.var().item() == INF
    assert krt.tensor(x, dtype=dtype).std().item() == (INF if dtype == "bfloat16" else 34656)


# ---- the gamma function

@pytest.mark.parametrize("dtype", [np.float16, *TYPES])
@pytest.mark.parametrize("line", ["x.digamma()", "x.lgamma()"])
def test_ends_and_sides_of_zero_of_the_gamma_function(line, dtype):
    most, tiny = float(np.finfo(dtype).max), float(np.finfo(dtype).tiny)
    ends = [INF, most, most / 4, 0.0, -0.0, tiny, -tiny, NAN, -INF]
    got, want = outcome(krt, line, [ends], dtype), outcome(torch, line, [ends], dtype)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3 if dtype is np.float16 else 1e-6)


@pytest.mark.parametrize("dtype", TYPES)
def test_lgamma_of_subnormal_numbers(dtype):
    least = np.finfo(dtype).smallest_subnormal
    x = np.array([least, -least, 2 * least, -5 * least, -1e9 * least], dtype)
    want = [math.lgamma(float(value)) for value in x]
    np.testing.assert_allclose(krt.tensor(x).lgamma().numpy(), want, rtol=1e-6)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n", [1, 2, 3])
def test_derivatives_of_the_digamma_function_vanish_far_out(n, dtype):
    most = float(np.finfo(dtype).max)
    slope = 1 / most if n == 1 else 0
    got = krt.tensor(np.array([INF, most, -INF, 0.0, -0.0, NAN], dtype)).polygamma(n).numpy()
    end = (-1) ** (n + 1) * INF
    np.testing.assert_allclose(got, [0, slope, NAN, end, end, NAN], rtol=1e-6)


# ---- angles

@pytest.mark.parametrize("dtype", TYPES)
def test_the_angle_of_nothing_is_flat(dtype):
    y, x = (a.ravel() for a in np.meshgrid([0.0, -0.0, 3, -1e30, NAN], [0.0, -0.0, 4, -1e30]))
    agree("x.atan2(y)", [y, x], dtype)


@pytest.mark.parametrize("y", [0.0, -0.0])
@pytest.mark.parametrize("x", [0.0, -0.0])
def test_the_slope_of_the_angle_of_nothing_is_flat(y, x):
    # torch has NaN.
    given = [krt.tensor(v, requires_grad=True) for v in (y, x)]
    for slope in krt.grad(given[0].atan2(given[1]), given, create_graph=True):
        assert [bend.item() for bend in krt.grad(slope, given)] == [0, 0]


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("padding", ["border", "reflection"])
def test_places_on_the_edge_of_an_image_have_torchs_gradient(padding: str, align: bool) -> None:
    torch = pytest.importorskip("torch")
    image = np.arange(12.0).reshape(1, 1, 3, 4) ** 2
    edges = [-1.5, -1.0, -0.75, 0.75, 1.0, 1.5]  # +-0.75: the middle of the outermost of 4
    grid = np.array([[[(x, y) for x in edges] for y in (-1.0, 0.1, 1.0)]])
    ours, theirs = krt.tensor(grid, requires_grad=True), torch.tensor(grid, requires_grad=True)
    krt.nn.functional.grid_sample(
        krt.tensor(image), ours, padding_mode=padding, align_corners=align
    ).sum().backward()
    torch.nn.functional.grid_sample(
        torch.tensor(image), theirs, padding_mode=padding, align_corners=align
    ).sum().backward()
    np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), rtol=1e-9, atol=1e-9)


TAILS = {
    "x.sigmoid()": lambda e: e / (1 + e) ** 2,
    "F.logsigmoid(x)": lambda e: e / (1 + e),
    "F.softplus(-x)": lambda e: -e / (1 + e),
    "F.binary_cross_entropy_with_logits(x, x.detach() * 0 + 1, reduction='none')": lambda e: (
        -e / (1 + e)
    ),
    "F.binary_cross_entropy_with_logits(-x, x.detach() * 0, reduction='none')": lambda e: (
        -e / (1 + e)
    ),
    "T.logaddexp(-x, x.detach() * 0)": lambda e: -e / (1 + e),
    "T.logsumexp(T.stack([-x, x.detach() * 0]), 0)": lambda e: -e / (1 + e),
}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("line", TAILS)
def test_slopes_keep_their_digits_next_to_zero(line, dtype):
    given = np.array([0.5, 4, 9, 17.5, 30, 37.43, 60, 80], dtype)
    exact = TAILS[line](np.exp(-given.astype(np.longdouble))).astype(np.float64)
    for options in ({}, {"create_graph": True}):
        x = krt.tensor(given, requires_grad=True)
        value = eval(line, {"F": krt.nn.functional, "T": krt, "x": x})  # noqa: S307 - of our own
        slope = krt.grad(value.sum(), x, **options)
        np.testing.assert_allclose(slope.numpy(), exact, rtol=1e2 * np.finfo(dtype).eps)
    # Far out each of them falls, or grows, as the exponential does.
    bend = krt.grad(slope.sum(), x).numpy()[-3:]
    np.testing.assert_allclose(bend, -exact[-3:], rtol=1e2 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", TYPES)
def test_the_slope_of_tanhshrink_keeps_its_digits_at_zero(dtype):
    x = krt.tensor(np.array([1e-7, 1e-3, -1e-10, 0.5, 0], dtype), requires_grad=True)
    slope = krt.grad(krt.nn.functional.tanhshrink(x).sum(), x).numpy()
    exact = np.tanh(x.numpy().astype(np.float64)) ** 2
    np.testing.assert_allclose(slope, exact, rtol=10 * np.finfo(dtype).eps)


@pytest.mark.parametrize("line", [
    "x.cdist(y, p=float('inf'))", "x.dist(y, float('inf'))",
    "T.stack([x[0], y[0]]).pdist(p=float('inf'))",
    "x.pairwise_distance(y, p=float('inf'), eps=0.0)",
])  # fmt: skip
def test_equal_largest_differences_share_the_gradient(line):
    """PyTorch gives each of them the whole in cdist and pdist, which is no subgradient."""
    x = krt.tensor([[1.0, 2.0, 3.0]], requires_grad=True)
    distance = eval(line, {"T": krt, "x": x, "y": krt.tensor([[0.0, 1.0, 3.0]])})  # noqa: S307
    (found,) = krt.grad(distance.sum(), [x])
    assert found.tolist() == [[0.5, 0.5, 0.0]]
