"""Constraints and the transforms to what they allow, against PyTorch's."""

from __future__ import annotations

import math

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import distributions as ours
from kernelrt.distributions import constraints

torch = pytest.importorskip("torch")
theirs = torch.distributions

NAN, INF = math.nan, math.inf
NUMBERS = np.array([NAN, -INF, -2, -1, -0.5, 0, 0.25, 1, 1.5, 2, 3, INF])
ROWS = np.array([[0.2, 0.3, 0.5], [1, 0, 0], [0, 1, 1], [2, 3, 1], [-1, 1, 1], [0.5, NAN, 0.5],
                 [0, 0, 0]])  # fmt: skip
MATRICES = np.array([
    np.eye(2), [[2, 1], [1, 2.0]], [[1, 2], [2, 1.0]], [[1, 0], [3, 2.0]], [[1, 0], [3, -2.0]],
    [[1, 0], [0.6, 0.8]], [[1, 1], [1, 1.0]], [[1, 1], [0, 1]], [[NAN, 0], [0, 1]],
    [[0, 0], [0, 0]],
])  # fmt: skip

#: How each is made, and values that it is asked about.
CASES = {
    **{name: (lambda c, name=name: getattr(c, name), values) for names, values in (
        ("real positive nonnegative unit_interval boolean nonnegative_integer positive_integer",
         NUMBERS),
        ("real_vector simplex one_hot", ROWS),
        ("lower_triangular lower_cholesky corr_cholesky", MATRICES),
        ("square symmetric positive_definite positive_semidefinite", MATRICES),
    ) for name in names.split()},
    "square of none": (lambda c: c.square, np.zeros((2, 0, 0))),
    "square of others": (lambda c: c.square, np.zeros((2, 2, 3))),
    "symmetric of others": (lambda c: c.symmetric, np.zeros((2, 2, 3))),
    **{f"{name}{ends}": (lambda c, name=name, ends=ends: getattr(c, name)(*ends), NUMBERS)
       for name, ends in (
           ("interval", (-1.0, 2.0)), ("half_open_interval", (-1, 1.5)), ("greater_than", (1,)),
           ("greater_than_eq", (1.0,)), ("less_than", (-0.5,)), ("integer_interval", (-1, 2)))},
    "independent": (lambda c: c.independent(c.positive, 1), ROWS),
    "independent twice": (lambda c: c.independent(c.independent(c.interval(-1, 2), 1), 1),
                          MATRICES),
    "mixture": (lambda c: c.MixtureSameFamilyConstraint(c.independent(c.positive, 1)), ROWS),
    "multinomial": (lambda c: c.multinomial(2), ROWS[[1, 2, 6]] * 2),
}  # fmt: skip


def test_the_names_are_those_of_torch():
    assert set(theirs.constraints.__all__) - set(constraints.__all__) == {"cat", "stack"}
    for name in constraints.__all__:
        assert hasattr(constraints, name)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # of NumPy, for infinity
@pytest.mark.parametrize("name", CASES)
def test_conditions_are_those_of_torch(name):
    make, values = CASES[name]
    mine, other = make(constraints), make(theirs.constraints)
    assert (mine.event_dim, mine.is_discrete) == (other.event_dim, other.is_discrete)
    # torch's sum may stay below the bound, and it has no NaN among eigenvalues.
    fine = np.isfinite(values).all((-1, -2)) if "definite" in name else slice(None)
    if name == "multinomial":
        fine = slice(0, 2)
    given = torch.tensor(values[fine])
    # Of matrices some of which are not symmetric, torch takes the others for definite.
    wanted = [other.check(v).item() for v in given] if "definite" in name else other.check(given)
    for found in (mine.check(values), mine.check(krt.tensor(values)).numpy()):
        np.testing.assert_array_equal(found[fine], wanted)
        if "definite" in name:
            assert not found[~fine].any()
    assert repr(mine)


@pytest.mark.parametrize("name", [
    n for n, kind in vars(theirs).items() if isinstance(kind, type) and hasattr(ours, n)
    and issubclass(kind, theirs.Distribution) and isinstance(kind.arg_constraints, dict)
])  # fmt: skip
def test_parameters_are_named_as_in_torch_and_can_be_made_of_any_numbers(name):
    mine, other = (getattr(d, name).arg_constraints for d in (ours, theirs))
    for key, wanted in other.items():
        if name == "MultivariateNormal" and key != "loc":
            continue  # one of three is checked before it is factored
        assert (mine[key].event_dim, mine[key].is_discrete) == (
            wanted.event_dim, wanted.is_discrete)  # fmt: skip
        if key not in ("total_count", "df", "concentration"):
            shape = [2] * (mine[key].event_dim + 1)
            made = ours.transform_to(mine[key])(krt.randn(*shape))
            assert bool(mine[key].check(made).all())


def test_ends_may_be_tensors():
    low, high = krt.tensor([0.0, 1.0]), krt.tensor([2.0, 3.0])
    inner = constraints.independent(constraints.interval(low, high), 1)
    assert inner.check(krt.tensor([[0.5, 1.5], [0.5, 0.5]])).tolist() == [True, False]

    class Boxed(ours.Distribution):
        support = constraints.independent(constraints.interval(krt.zeros(3, 2), 1), 1)

        def log_prob(self, value):
            return self._value(value).sum(-1) * 0

    made = Boxed((3,), (2,))
    assert made.log_prob(krt.tensor([0.5, 1.0])).item() == 0
    with pytest.raises(krt.DomainError, match=r"Boxed expected for each .*, not \[0.5, 2.0\]"):
        made.log_prob(krt.tensor([0.5, 2.0]))


def test_values_of_a_batch_of_mixtures_are_checked():
    made = ours.MixtureSameFamily(
        ours.Categorical(krt.ones(3, 2)), ours.Uniform(krt.zeros(3, 2), krt.tensor([1.0, 2.0]))
    )
    other = theirs.MixtureSameFamily(
        theirs.Categorical(torch.ones(3, 2)),
        theirs.Uniform(torch.zeros(3, 2), torch.tensor([1.0, 2.0])),
    )
    found = made.log_prob(krt.full((3,), 0.5))
    wanted = other.log_prob(torch.full((3,), 0.5)).numpy()
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-6)
    with pytest.raises(krt.DomainError, match="value: MixtureSameFamily expected"):
        made.log_prob(krt.full((3,), -0.5))


def test_a_distribution_of_ones_own_with_constraints_that_depend():
    class Shifted(ours.Distribution):
        arg_constraints = {"low": constraints.dependent(event_dim=0)}  # noqa: RUF012

        def __init__(self, low):
            self.low = krt.tensor(low)
            super().__init__()

        @constraints.dependent_property(is_discrete=False, event_dim=0)
        def support(self):
            """The support."""
            return constraints.greater_than(self.low)

        def log_prob(self, value):
            return self.low - self._value(value)

    assert constraints.is_dependent(Shifted.support)
    assert (Shifted.support.event_dim, Shifted.support.is_discrete) == (0, False)
    assert Shifted(1.0).log_prob(krt.tensor(3.0)).item() == -2
    with pytest.raises(krt.DomainError, match=r"value: Shifted expected a number above 1\.0"):
        Shifted(1.0).log_prob(krt.tensor(0.0))
    with pytest.raises(krt.ShapeError, match="dependent"):
        constraints.dependent.check(krt.ones(2))
    assert not constraints.is_dependent(constraints.real)


def supports(d):
    """Of distributions, with what makes their values."""
    lib = torch if d is theirs else krt
    loc = lib.zeros(2, 3, dtype=lib.float64)
    return {
        "real": d.Normal(loc, 1.0).support, "vectors": d.Independent(d.Normal(loc, 1.0), 2).support,
        "interval": d.Uniform(loc - 1.5, loc + 2).support, "unit": d.Beta(loc + 1, 2.0).support,
        "positive": d.Gamma(loc + 1, 1.0).support, "above": d.Pareto(loc + 2, 1.0).support,
        "shares": d.Dirichlet(loc + 1).support, "positives": d.Independent(
            d.Exponential(loc + 1), 1).support,
        "transformed": d.TransformedDistribution(
            d.Independent(d.Normal(loc, 1.0), 1), d.ExpTransform()).support,
        "affine": d.TransformedDistribution(
            d.Normal(loc, 1.0), d.AffineTransform(1.0, 2.0, event_dim=1)).support,
        "shaped": d.TransformedDistribution(
            d.Independent(d.Normal(loc, 1.0), 1), d.ReshapeTransform((3,), (3, 1))).support,
        "logistic": d.LogisticNormal(loc, 1.0).support,
        "correlations": d.LKJCholesky(3).support,
        "diagonal": d.LowRankMultivariateNormal.arg_constraints["cov_diag"],
        "below": d.constraints.less_than(-2.5), "half open": d.constraints.half_open_interval(1, 4),
        "at least": d.constraints.greater_than_eq(1.5),
        "triangle": d.constraints.lower_cholesky, "definite": d.constraints.positive_definite,
        "semidefinite": d.constraints.positive_semidefinite,
        "integers": d.constraints.nonnegative_integer,
    }  # fmt: skip


@pytest.mark.parametrize("registry", ["transform_to", "biject_to"])
@pytest.mark.parametrize("name", supports(theirs))
def test_transforms_to_constraints_are_those_of_torch(name, registry):
    mine, other = supports(ours)[name], supports(theirs)[name]
    assert (mine.event_dim, mine.is_discrete) == (other.event_dim, other.is_discrete)
    try:
        wanted = getattr(theirs, registry)(other)
    except NotImplementedError:
        with pytest.raises(ours.UnsupportedError, match="register"):
            getattr(ours, registry)(mine)
        return
    made = getattr(ours, registry)(mine)
    shape = (3, 3) if name in ("triangle", "definite", "semidefinite") else (2, 3)
    if name == "shaped":
        shape = (2, 3, 1)
    x = np.random.default_rng(1).standard_normal(shape)
    a, b = krt.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    y, z = made(a), wanted(b)

    def agree(found, expected):
        np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), rtol=1e-6)
        weights = np.random.default_rng(2).uniform(0.5, 2, expected.shape)
        a.grad = b.grad = None
        (found * krt.tensor(weights)).sum().backward()
        (expected * torch.tensor(weights)).sum().backward(retain_graph=True)
        np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-6, atol=1e-9)

    agree(y, z)
    assert bool(mine.check(y.detach()).all())
    assert (made.domain.event_dim, made.codomain.event_dim) == (
        wanted.domain.event_dim, wanted.codomain.event_dim)  # fmt: skip
    # Of a value that it has not made.
    np.testing.assert_allclose(made.inv(y.detach() * 1).numpy(),
                               wanted.inv(z.detach().clone()).numpy(), rtol=1e-6, atol=1e-9)
    if registry == "biject_to":
        assert made.bijective
        size = wanted.log_abs_det_jacobian(b, z)
        if size.requires_grad:
            agree(made.log_abs_det_jacobian(a, y), size)
        else:
            assert made.log_abs_det_jacobian(a, y).tolist() == size.tolist()
    jitted = krt.jit(made)(a.detach())
    np.testing.assert_allclose(jitted.numpy(), y.detach().numpy(), rtol=1e-12)


def test_parameters_are_fitted_without_limits():
    """What transform_to is for: any optimizer keeps a scale above 0."""
    krt.manual_seed(0)
    x = ours.Gamma(3.0, 2.0).sample((500,))
    free = krt.zeros(2, requires_grad=True)
    opt = krt.optim.Adam([free], 0.1)
    for _ in range(100):
        opt.zero_grad()
        k, rate = ours.transform_to(ours.Gamma.arg_constraints["rate"])(free).unbind()
        loss = -ours.Gamma(k, rate).log_prob(x).mean()
        loss.backward()
        opt.step()
    assert (k / rate).item() == pytest.approx(x.mean().item(), rel=0.02)


def test_registries_of_ones_own():
    class Doubled(constraints.Constraint):
        pass

    lone = constraints.Constraint("anything", lambda x: x == x)
    registry = type(ours.transform_to)()
    registry.register(Doubled(), lambda _: ours.AffineTransform(0.0, 2.0))
    registry.register(lone, lambda _: ours.AffineTransform(0.0, 3.0))

    @registry.register(constraints.GreaterThan)
    def above(constraint):
        return ours.AffineTransform(constraint.lower_bound, 1.0)

    assert registry(Doubled())(krt.tensor(2.0)).item() == 4
    assert registry(lone)(krt.tensor(2.0)).item() == 6
    assert registry(constraints.positive)(krt.tensor(2.0)).item() == 2
    assert above(constraints.positive).scale == 1
    for missing in (constraints.real, constraints.Constraint("other", lambda x: x == x)):
        with pytest.raises(ours.UnsupportedError, match="no transform is registered"):
            registry(missing)
    with pytest.raises(krt.DTypeError, match="constraint: expected a Constraint"):
        registry.register(int, lambda _: ours.ExpTransform())
    with pytest.raises(krt.DTypeError, match="constraint: expected a Constraint"):
        registry(3)
    with pytest.raises(krt.DTypeError, match="base_constraint"):
        constraints.independent(3, 1)
    with pytest.raises(krt.ShapeError, match="at least 0"):
        constraints.independent(constraints.real, -1)
    with pytest.raises(krt.ShapeError, match="value: expected at least 2 axes, not 1"):
        constraints.independent(constraints.real, 2).check(krt.ones(2))
    with pytest.raises(NotImplementedError, match="defines no check"):
        Doubled().check(krt.ones(2))
