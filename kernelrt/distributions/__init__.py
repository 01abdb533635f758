"""Probability distributions, by PyTorch's names, parameters and formulas.

Draws follow :func:`kernelrt.manual_seed`, and each run of a jitted function draws afresh. Arguments
are checked where their values are known, which is outside of traces.
"""

from kernelrt.distributions import constraints, transforms
from kernelrt.distributions.base import Distribution, UnsupportedError
from kernelrt.distributions.circular import VonMises
from kernelrt.distributions.composed import Independent, MixtureSameFamily
from kernelrt.distributions.continuous import (
    Cauchy,
    Gumbel,
    Laplace,
    Normal,
    StudentT,
    Uniform,
)
from kernelrt.distributions.counts import (
    Binomial,
    Geometric,
    Multinomial,
    NegativeBinomial,
    Poisson,
)
from kernelrt.distributions.discrete import Bernoulli, Categorical, OneHotCategorical
from kernelrt.distributions.divergence import kl_divergence, register_kl
from kernelrt.distributions.halves import HalfCauchy, HalfNormal
from kernelrt.distributions.multivariate import MultivariateNormal
from kernelrt.distributions.positive import (
    Beta,
    Chi2,
    Dirichlet,
    Exponential,
    Gamma,
    InverseGamma,
)
from kernelrt.distributions.powers import Kumaraswamy, Pareto, Weibull
from kernelrt.distributions.relaxed import RelaxedBernoulli, RelaxedOneHotCategorical
from kernelrt.distributions.transformed import LogNormal, TanhNormal, TransformedDistribution
from kernelrt.distributions.transforms import (
    AffineTransform,
    ComposeTransform,
    ExpTransform,
    SigmoidTransform,
    TanhTransform,
    Transform,
)

__all__ = [
    "AffineTransform",
    "Bernoulli",
    "Beta",
    "Binomial",
    "Categorical",
    "Cauchy",
    "Chi2",
    "ComposeTransform",
    "Dirichlet",
    "Distribution",
    "ExpTransform",
    "Exponential",
    "Gamma",
    "Geometric",
    "Gumbel",
    "HalfCauchy",
    "HalfNormal",
    "Independent",
    "InverseGamma",
    "Kumaraswamy",
    "Laplace",
    "LogNormal",
    "MixtureSameFamily",
    "Multinomial",
    "MultivariateNormal",
    "NegativeBinomial",
    "Normal",
    "OneHotCategorical",
    "Pareto",
    "Poisson",
    "RelaxedBernoulli",
    "RelaxedOneHotCategorical",
    "SigmoidTransform",
    "StudentT",
    "TanhNormal",
    "TanhTransform",
    "Transform",
    "TransformedDistribution",
    "Uniform",
    "UnsupportedError",
    "VonMises",
    "Weibull",
    "constraints",
    "kl_divergence",
    "register_kl",
    "transforms",
]
