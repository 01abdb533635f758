"""Probability distributions, with PyTorch's names, parameters and formulas.

:func:`kernelrt.manual_seed` seeds the samples. Each run of a jitted function draws new ones.
Arguments are checked only if their values are known, that is, outside of traces.
"""

from kernelrt.distributions import constraints, transforms
from kernelrt.distributions.bundles import (
    CorrCholeskyTransform,
    LowerCholeskyTransform,
    PositiveDefiniteTransform,
    SoftmaxTransform,
    StickBreakingTransform,
)
from kernelrt.distributions.circular import VonMises
from kernelrt.distributions.composed import Independent, MixtureSameFamily
from kernelrt.distributions.constraint_registry import biject_to, transform_to
from kernelrt.distributions.continuous import (
    Cauchy,
    Gumbel,
    Laplace,
    Normal,
    StudentT,
    Uniform,
)
from kernelrt.distributions.continuous_bernoulli import ContinuousBernoulli
from kernelrt.distributions.counts import (
    Binomial,
    Geometric,
    Multinomial,
    NegativeBinomial,
    Poisson,
)
from kernelrt.distributions.discrete import (
    Bernoulli,
    Categorical,
    OneHotCategorical,
    OneHotCategoricalStraightThrough,
)
from kernelrt.distributions.distribution import Distribution, UnsupportedError
from kernelrt.distributions.divergence import kl_divergence, register_kl
from kernelrt.distributions.halves import HalfCauchy, HalfNormal
from kernelrt.distributions.matrices import LKJCholesky, Wishart
from kernelrt.distributions.multivariate import LowRankMultivariateNormal, MultivariateNormal
from kernelrt.distributions.positive import (
    Beta,
    Chi2,
    Dirichlet,
    Exponential,
    FisherSnedecor,
    Gamma,
    InverseGamma,
)
from kernelrt.distributions.powers import GeneralizedPareto, Kumaraswamy, Pareto, Weibull
from kernelrt.distributions.relaxed import RelaxedBernoulli, RelaxedOneHotCategorical
from kernelrt.distributions.transformed import (
    LogisticNormal,
    LogNormal,
    TanhNormal,
    TransformedDistribution,
)
from kernelrt.distributions.transforms import (
    AbsTransform,
    AffineTransform,
    ComposeTransform,
    CumulativeDistributionTransform,
    ExpTransform,
    IndependentTransform,
    PowerTransform,
    ReshapeTransform,
    SigmoidTransform,
    SoftplusTransform,
    TanhTransform,
    Transform,
    identity_transform,
)

__all__ = [
    "AbsTransform",
    "AffineTransform",
    "Bernoulli",
    "Beta",
    "Binomial",
    "Categorical",
    "Cauchy",
    "Chi2",
    "ComposeTransform",
    "ContinuousBernoulli",
    "CorrCholeskyTransform",
    "CumulativeDistributionTransform",
    "Dirichlet",
    "Distribution",
    "ExpTransform",
    "Exponential",
    "FisherSnedecor",
    "Gamma",
    "GeneralizedPareto",
    "Geometric",
    "Gumbel",
    "HalfCauchy",
    "HalfNormal",
    "Independent",
    "IndependentTransform",
    "InverseGamma",
    "Kumaraswamy",
    "LKJCholesky",
    "Laplace",
    "LogNormal",
    "LogisticNormal",
    "LowRankMultivariateNormal",
    "LowerCholeskyTransform",
    "MixtureSameFamily",
    "Multinomial",
    "MultivariateNormal",
    "NegativeBinomial",
    "Normal",
    "OneHotCategorical",
    "OneHotCategoricalStraightThrough",
    "Pareto",
    "Poisson",
    "PositiveDefiniteTransform",
    "PowerTransform",
    "RelaxedBernoulli",
    "RelaxedOneHotCategorical",
    "ReshapeTransform",
    "SigmoidTransform",
    "SoftmaxTransform",
    "SoftplusTransform",
    "StickBreakingTransform",
    "StudentT",
    "TanhNormal",
    "TanhTransform",
    "Transform",
    "TransformedDistribution",
    "Uniform",
    "UnsupportedError",
    "VonMises",
    "Weibull",
    "Wishart",
    "biject_to",
    "constraints",
    "identity_transform",
    "kl_divergence",
    "register_kl",
    "transform_to",
    "transforms",
]
