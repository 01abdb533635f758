"""Where kernelrt differs from PyTorch on purpose, and the reasons."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["LOOSE", "RANDOM", "TIES", "UP_TO_SIGN", "why"]


@dataclass(frozen=True)
class Known:
    """Samples of which kernelrt makes something else.

    Attributes
    ----------
    names : str
        Operations and modules, separated by spaces.
    pattern : str
        What the difference looks like, as a regular expression.
    why : str
        The reason, for users.
    """

    names: str
    pattern: str
    why: str


KNOWN = (
    Known(
        "linspace", r"^output 0: np.int\d+",
        "PyTorch rounds some whole numbers down, depending on the vectors of the processor",
    ),
    Known(
        "linalg.lstsq", r"^output [12]: shape",
        "kernelrt returns residuals and ranks with every driver; PyTorch leaves some out",
    ),
    Known(
        "nn.CTCLoss", r"^gradient 0",
        "kernelrt's gradient holds for all `log_probs`; PyTorch's only for those that come from "
        "`log_softmax`",
    ),
    Known(
        "nn.LPPool1d nn.LPPool2d nn.LPPool3d", r"^gradient 0: \S+\(0\.0\) .*expected \S+\(nan\)",
        "the derivative of `abs` at NaN is zero in kernelrt, and NaN in PyTorch",
    ),
)  # fmt: skip


def why(name: str, reason: str) -> str:
    """The explanation of a difference; empty where there is none."""
    for known in KNOWN:
        if name in known.names.split() and re.search(known.pattern, reason):
            return known.why
    return ""


#: Functions that PyTorch rounds more, and how far float64 may be off.
LOOSE = {
    "nn.functional.hardsigmoid": 1e-7,  # its slope of 1/6 is a float32
    "nn.Hardsigmoid": 1e-7,
}

#: Results are random, or nothing in particular: only types and shapes are compared. So it is
#: with any sample that has a `dropout_p`.
RANDOM = frozenset({
    "bernoulli", "cauchy", "empty", "empty_like", "empty_permuted", "empty_strided",
    "exponential", "geometric", "log_normal", "multinomial", "new_empty", "new_empty_strided",
    "nn.functional.alpha_dropout", "nn.functional.dropout", "nn.functional.dropout2d",
    "nn.functional.dropout3d", "nn.functional.feature_alpha_dropout",
    "nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d",
    "nn.functional.rrelu", "normal", "pca_lowrank", "rand_like", "randint", "randint_like",
    "randn", "randn_like", "resize_", "resize_as_", "svd_lowrank", "uniform",
})  # fmt: skip

#: Vectors that are unique up to a sign, or up to a rotation: what PyTorch's own tests make of them
#: is compared.
UP_TO_SIGN = frozenset({"linalg.eig", "linalg.eigh", "linalg.svd", "svd"})

#: Positions of elements, where PyTorch leaves open which of several equal ones is meant: with
#: integers, only so many of the results are compared.
TIES = {"argsort": 0, "kthvalue": 1, "median": 1, "mode": 1, "nanmedian": 1, "sort": 1, "topk": 1}
