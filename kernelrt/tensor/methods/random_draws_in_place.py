"""Random draws into a tensor, or from distributions whose parameters a tensor holds."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, Self, cast

from kernelrt import dtype as dt
from kernelrt.device.registry import check_device
from kernelrt.errors import DomainError, DTypeError, ShapeError
from kernelrt.ir.shape import format_shape
from kernelrt.tensor.nodes import build
from kernelrt.tensor.nodes.arguments import axis_of, check_floats, integer, real
from kernelrt.tensor.rng import random
from kernelrt.util.lazy_import import Module

if TYPE_CHECKING:
    from kernelrt.dtype import DType
    from kernelrt.ir import Dim, domain
    from kernelrt.tensor.methods.conversion import ConversionMethods as _Below
    from kernelrt.tensor.nodes import data_checks
    from kernelrt.tensor.rng.stream import Generator
    from kernelrt.tensor.tensor import Tensor
else:  # a mixin needs no base at run time, and freeing a tensor visits each base of Tensor
    _Below = object
    domain = Module("kernelrt.ir.domain")
    data_checks = Module("kernelrt.tensor.nodes.data_checks")

__all__ = ["DrawingMethods", "exponentials", "gumbels", "positive_rand", "randperm"]

#: Name in errors of the numbers of a tensor that holds probabilities.
_CHANCES: Final = "probabilities"


def positive_rand(
    shape: tuple[Dim, ...], dtype: DType, generator: Generator | None = None
) -> Tensor:
    """Return numbers drawn uniformly from (0, 1]: their logarithms are finite."""
    return 1 - random.rand(shape, dtype=dtype, generator=generator)


def exponentials(
    shape: tuple[Dim, ...], dtype: DType, generator: Generator | None = None
) -> Tensor:
    """Return numbers drawn from the exponential distribution of mean 1, all above 0."""
    least = 2.0**-54 if dtype is dt.float64 else 2.0**-25
    return (-positive_rand(shape, dtype, generator).log()).clamp(min=least)


def gumbels(
    shape: tuple[Dim, ...], dtype: DType, generator: Generator | None = None
) -> Tensor:
    """Return numbers drawn from the standard Gumbel distribution.

    float16 and bfloat16 are computed in float32: in them, exponential numbers may round to 0.
    """
    return -exponentials(shape, dtype.accumulator, generator).log().cast(dtype)


class DrawingMethods(_Below):
    """Random draws that depend on a tensor.

    Each run of a jitted function draws new numbers. Methods whose names end in ``_`` assign the
    numbers, which have no gradient, to the tensor and return it.

    Raises
    ------
    GradientError
        A method assigns to a parameter while gradients are recorded; see :func:`no_grad`.

    Examples
    --------
    >>> x = krt.zeros(1000)
    >>> x.uniform_(2, 3).amin().item() >= 2, x.amax().item() < 3
    (True, True)
    """

    __slots__ = ()

    # ---- of probabilities

    def bernoulli(
        self, p: float | None = None, *, generator: Generator | None = None
    ) -> Self:
        """Draw zeros and ones; each element of this tensor is the probability of a one there.

        Parameters
        ----------
        p : float, optional
            Probability of all elements, instead of this tensor's elements.
        generator : Generator, optional
            Generator to draw from.

        Returns
        -------
        Tensor
            New tensor of this shape and dtype.

        Raises
        ------
        DTypeError
            This tensor does not hold floats, and `p` is not given.
        DomainError
            `p` lies outside of [0, 1]. Or, at run time, a probability lies outside or is NaN.

        Examples
        --------
        >>> krt.tensor([0.0, 1.0, 1.0]).bernoulli().tolist()
        [0.0, 1.0, 1.0]
        """
        if p is not None:
            return self._hits(_probability(p), generator)

        check_floats(self.dtype, "bernoulli")
        chances = self.detach()
        drawn = random.rand(self.dims, dtype=_resolving(self.dtype), generator=generator)
        hits = cast("Self", (drawn < chances).cast(self.dtype))
        return data_checks.if_each(hits, chances, 0, 1, _CHANCES)

    def multinomial(
        self, num_samples: int, replacement: bool = False, *,
        generator: Generator | None = None,
    ) -> Self:  # fmt: skip
        """Draw positions along the last axis; the elements are their probabilities.

        Parameters
        ----------
        num_samples : int
            Number of draws from each row, at least 1.
        replacement : bool
            Whether a position can be drawn more than once.
        generator : Generator, optional
            Generator to draw from.

        Returns
        -------
        Tensor
            int64 of shape (num_samples,) or (n, num_samples), for this tensor's (c,) or (n, c).

        Raises
        ------
        DTypeError
            This tensor does not hold floats.
        ShapeError
            This tensor is neither a vector nor a matrix, or its last axis is empty. Or, without
            replacement, its last axis is shorter than `num_samples`.
        DomainError
            At run time, if a number is negative, NaN or infinite, or if a row has only zeros.
            Without replacement, also if a row has fewer than `num_samples` positive numbers.

        Notes
        -----
        The numbers of a row need not add up to 1. With replacement, positions are looked up in the
        cumulative sums, in float64. Without it, they are the positions of the greatest quotients
        of probability and exponential random number (Efraimidis and Spirakis, 2006). A position
        with probability 0 is never drawn.

        Examples
        --------
        >>> krt.tensor([0.0, 3.0]).multinomial(4, replacement=True).tolist()
        [1, 1, 1, 1]
        """
        check_floats(self.dtype, "multinomial")
        count = integer(num_samples, "num_samples", least=1)
        if self.ndim not in (1, 2):
            raise ShapeError(
                f"multinomial: expected shape (c,) or (n, c), not shape {format_shape(self.dims)}"
            )
        if build.has_zero(self.dims[-1:]):
            raise ShapeError(
                "multinomial: expected a last axis of at least one element, not of size 0"
            )
        chances = self.detach().cast(dt.float64)
        size = self.dims[-1]
        least, most = chances.amin(-1, keepdim=True), chances.amax(-1, keepdim=True)
        fine = (least >= 0) & (most < math.inf)
        if replacement:
            sums = chances.cumsum(-1)
            found = sums[..., -1:]
            enough = (found > 0) & (found < math.inf)
            wanted = "a finite sum above 0 in each row"
            marks = random.rand(*self.dims[:-1], count, dtype=dt.float64, generator=generator)
            # In (0, 1], as the first sum that reaches a positive target has a positive probability.
            drawn = cast("Any", sums).searchsorted((1 - marks) * found)
        else:
            if isinstance(size, int) and count > size:
                raise ShapeError(
                    f"num_samples: expected at most {size} without replacement, not {count}; draw "
                    "fewer, or pass replacement=True"
                )
            found = (chances > 0).sum(-1, keepdim=True)
            enough = found >= count
            wanted = f"at least {count} above 0 in each row"
            keys = chances / exponentials(self.dims, dt.float64, generator)
            drawn = cast("Any", keys).topk(count, -1)[1]
        place = drawn.uop
        for holds, told, expected in (
            (fine, least.where(~(least >= 0), most), "finite numbers of at least 0"),
            (enough | ~fine, found, wanted),
        ):
            nodes = [build.broadcast_to(t.uop, place.shape) for t in (holds, told)]
            limits = domain.Domain(_CHANCES, expected)
            place = data_checks.checked_index(place, size, nodes[0], nodes[1], limits)
        return self._of(place)

    def gumbel_softmax(
        self, tau: float = 1.0, hard: bool = False, eps: float = 1e-10, dim: int = -1, *,
        generator: Generator | None = None,
    ) -> Self:  # fmt: skip
        """Draw soft samples from categories with these logits (Jang et al., arXiv:1611.01144).

        Parameters
        ----------
        tau : float
            Temperature, above 0. The lower it is, the closer each sample is to one category.
        hard : bool
            Whether to return ones and zeros, with the gradient of the soft samples.
        eps : float
            Unused, as in PyTorch.
        dim : int
            Axis of the categories.
        generator : Generator, optional
            Generator to draw from.

        Returns
        -------
        Tensor
            New tensor of this shape and dtype, whose elements along `dim` add up to 1.

        Raises
        ------
        DTypeError
            This tensor does not hold floats.
        DomainError
            `tau` is not above 0.

        Examples
        --------
        >>> krt.tensor([0.0, 0.0, 1000.0]).gumbel_softmax(hard=True).tolist()
        [0.0, 0.0, 1.0]
        """
        del eps
        check_floats(self.dtype, "gumbel_softmax")
        axis = axis_of(dim, self.ndim)
        if not real(tau, "tau") > 0:
            raise DomainError(f"tau: expected a number above 0, not {tau}")
        noise = gumbels(self.dims, self.dtype, generator)
        soft = ((self + noise) / tau).softmax(axis)
        if not hard:
            return soft
        top = soft.detach().argmax(axis, keepdim=True)
        places = self._of(build.iota_along(self.dims, axis)) if self.ndim else top
        ones = (places == top).cast(self.dtype)
        return ones - soft.detach() + soft

    # ---- in place

    def normal_(
        self, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None
    ) -> Self:
        """Assign numbers drawn from a normal distribution.

        Parameters
        ----------
        mean, std : float
            Mean and standard deviation, which is at least 0.
        generator : Generator, optional
            Generator to draw from.

        Returns
        -------
        Tensor
            This tensor.

        Raises
        ------
        DTypeError
            This tensor does not hold floats.
        DomainError
            `std` is negative.

        Examples
        --------
        >>> krt.zeros(2).normal_(5, std=0).tolist()
        [5.0, 5.0]
        """
        check_floats(self.dtype, "normal_")
        center, spread = real(mean, "mean"), random.at_least_zero(std, "std")
        drawn = random.normal(
            self.dims, mean=center, std=spread, dtype=self.dtype, generator=generator
        )
        return self._put(drawn, "normal_")

    def uniform_(
        self, a: float = 0.0, b: float = 1.0, *, generator: Generator | None = None
    ) -> Self:
        """Assign numbers drawn uniformly from [`a`, `b`).

        Parameters
        ----------
        a, b : float
            Limits. If they are equal, all numbers are `a`.
        generator : Generator, optional
            Generator to draw from.

        Returns
        -------
        Tensor
            This tensor.

        Raises
        ------
        DTypeError
            This tensor does not hold floats.
        DomainError
            `a` is greater than `b`.

        Examples
        --------
        >>> x = krt.zeros(2, 3).uniform_(-1, 0)
        >>> (x < 0).all().item()
        True
        """
        low, high = real(a, "a"), real(b, "b")
        if not low <= high:
            raise DomainError(f"a, b: expected a <= b, not {a} and {b}")
        check_floats(self.dtype, "uniform_")
        drawn = random.uniform(
            self.dims, low=low, high=high, dtype=self.dtype, generator=generator
        )
        return self._put(drawn, "uniform_")

    def log_normal_(
        self, mean: float = 1.0, std: float = 2.0, *, generator: Generator | None = None
    ) -> Self:
        """Assign exponentials of numbers drawn from a normal distribution.

        Parameters
        ----------
        mean, std : float
            Mean and standard deviation of the normal distribution; `std` is above 0.
        generator : Generator, optional
            Generator to draw from.

        Returns
        -------
        Tensor
            This tensor.

        Raises
        ------
        DTypeError
            This tensor does not hold floats.
        DomainError
            `std` is not above 0.

        Examples
        --------
        >>> (krt.zeros(100).log_normal_() > 0).all().item()
        True
        """
        check_floats(self.dtype, "log_normal_")
        if not real(std, "std") > 0:
            raise DomainError(f"std: expected a number above 0, not {std}")
        wide = self.dtype.accumulator
        drawn = random.normal(
            self.dims, mean=real(mean, "mean"), std=std, dtype=wide, generator=generator
        )
        return self._put(drawn.exp(), "log_normal_")

    def exponential_(
        self, lambd: float = 1.0, *, generator: Generator | None = None
    ) -> Self:
        """Assign numbers drawn from the exponential distribution of rate `lambd`.

        Parameters
        ----------
        lambd : float
            Rate, above 0: the reciprocal of the mean.
        generator : Generator, optional
            Generator to draw from.

        Returns
        -------
        Tensor
            This tensor.

        Raises
        ------
        DTypeError
            This tensor does not hold floats.
        DomainError
            `lambd` is not above 0.

        Examples
        --------
        >>> (krt.zeros(100).exponential_(2.0) > 0).all().item()
        True
        """
        check_floats(self.dtype, "exponential_")
        if not real(lambd, "lambd") > 0:
            raise DomainError(f"lambd: expected a number above 0, not {lambd}")
        drawn = exponentials(self.dims, self.dtype.accumulator, generator)
        return self._put(drawn / lambd, "exponential_")

    def cauchy_(
        self, median: float = 0.0, sigma: float = 1.0, *, generator: Generator | None = None
    ) -> Self:
        """Assign numbers drawn from a Cauchy distribution.

        Parameters
        ----------
        median : float
            Center of the distribution.
        sigma : float
            Half of the width at half of the maximal density, above 0.
        generator : Generator, optional
            Generator to draw from.

        Returns
        -------
        Tensor
            This tensor.

        Raises
        ------
        DTypeError
            This tensor does not hold floats.
        DomainError
            `sigma` is not above 0.

        Examples
        --------
        >>> krt.zeros(2, 3).cauchy_(median=1.0).shape
        (2, 3)
        """
        check_floats(self.dtype, "cauchy_")
        if not real(sigma, "sigma") > 0:
            raise DomainError(f"sigma: expected a number above 0, not {sigma}")
        angle = (random.rand(self.dims, dtype=dt.float64, generator=generator) - 0.5) * math.pi
        return self._put(angle.tan() * sigma + real(median, "median"), "cauchy_")

    def geometric_(self, p: float, *, generator: Generator | None = None) -> Self:
        """Assign the number of random trials up to and including the first success.

        Parameters
        ----------
        p : float
            Probability of a success, above 0 and below 1.
        generator : Generator, optional
            Generator to draw from.

        Returns
        -------
        Tensor
            This tensor, with numbers of at least 1.

        Raises
        ------
        DTypeError
            This tensor holds bools.
        DomainError
            `p` is not between 0 and 1, exclusive.

        Examples
        --------
        >>> (krt.zeros(100, dtype=krt.int64).geometric_(0.5) >= 1).all().item()
        True
        """
        if not 0 < real(p, "p") < 1:
            raise DomainError(f"p: expected a probability between 0 and 1, exclusive, not {p}")
        if self.dtype.is_bool:
            raise DTypeError("geometric_: bools cannot hold counts; cast them")
        drawn = positive_rand(self.dims, dt.float64, generator)
        trials = (drawn.log() / math.log1p(-p)).ceil()
        return self._put(trials.clamp(min=1), "geometric_")

    def bernoulli_(self, p: Any = 0.5, *, generator: Generator | None = None) -> Self:
        """Assign zeros and ones drawn at random; `p` is the probability of a one.

        Parameters
        ----------
        p : float or Tensor of floats
            Probability of a one, for all elements or for each. A tensor expands to the shape of
            this tensor.
        generator : Generator, optional
            Generator to draw from.

        Returns
        -------
        Tensor
            This tensor.

        Raises
        ------
        DTypeError
            `p` is a tensor that does not hold floats.
        DomainError
            `p` is a number outside of [0, 1]. Or, at run time, an element of `p` lies outside or is
            NaN.
        ShapeError
            The shape of `p` does not expand to that of this tensor.

        Examples
        --------
        >>> krt.zeros(2, 2).bernoulli_(krt.tensor([0.0, 1.0])).tolist()
        [[0.0, 1.0], [0.0, 1.0]]
        """
        if isinstance(p, int | float):
            return self._put(self._hits(_probability(p), generator), "bernoulli_")

        chances = self._lift(p, "p")
        check_floats(chances.dtype, "p")
        drawn = random.rand(self.dims, dtype=_resolving(chances.dtype), generator=generator)
        chances = chances.detach().expand(self.dims)
        hits = (drawn < chances).cast(self.dtype)
        return self._put(data_checks.if_each(hits, chances, 0, 1, "p"), "bernoulli_")

    def random_(
        self, from_: int | None = None, to: int | None = None, *,
        generator: Generator | None = None,
    ) -> Self:  # fmt: skip
        """Assign integers drawn uniformly from [`from_`, `to`).

        By default they range from 0 to the greatest number of the dtype. For a floating dtype, they
        range up to the greatest n for which the dtype represents all integers from 0 to n.

        Parameters
        ----------
        from_, to : int, optional
            Limits. A single argument is `to`, with `from_` 0.
        generator : Generator, optional
            Generator to draw from.

        Returns
        -------
        Tensor
            This tensor.

        Raises
        ------
        DTypeError
            The dtype cannot represent all of the integers.
        DomainError
            `from_` is not below `to`.

        Examples
        --------
        >>> krt.zeros(3).random_(7, 8).tolist()
        [7.0, 7.0, 7.0]
        """
        if from_ is not None and to is None:
            from_, to = 0, from_
        kind = self.dtype
        most = 1 << kind.digits if kind.is_float else kind.max if not kind.is_bool else 1
        first = 0 if from_ is None else integer(from_, "from_")
        limit = int(most) + 1 if to is None else integer(to, "to")
        if not first < limit:
            raise DomainError(f"from_, to: expected from_ < to, not {first} and {limit}")
        least = -int(most) if kind.is_float else 0 if kind.is_bool else int(kind.min)
        if not least <= first < limit <= int(most) + 1:
            raise DTypeError(
                f"from_, to: {kind.name} cannot represent all integers from {first} to {limit - 1}"
                f"; pass limits from {least} to {int(most) + 1}"
            )
        word = "int64" if limit <= 1 << 63 else "uint64"
        drawn = random.randint(first, limit, self.dims, dtype=word, generator=generator)
        return self._put(drawn, "random_")

    # ---- parts

    def _hits(self, p: float, generator: Generator | None) -> Self:
        drawn = random.rand(self.dims, dtype=dt.float64, generator=generator) < p
        return cast("Self", drawn.cast(self.dtype))

    def _put(self, value: Any, name: str) -> Self:
        whole = cast("Any", self)  # a class above this one defines assign()
        whole._check_no_leaf(name)
        return cast("Self", whole.assign(value.cast(self.dtype)))


def _probability(p: float) -> float:
    number = real(p, "p")
    if not 0 <= number <= 1:
        raise DomainError(f"p: expected a probability from 0 to 1, not {p}")
    return number


def _resolving(dtype: DType) -> DType:
    """Return the dtype in which random numbers are compared with probabilities of `dtype`."""
    return dt.float64 if dtype is dt.float64 else dt.float32


def randperm(
    n: int, dtype: object = None, *, device: object = None, requires_grad: bool = False,
    generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Return the integers from 0 to `n` - 1 in random order.

    Parameters
    ----------
    n : int
        Number of integers, at least 0.
    dtype : DType, optional
        Dtype of the result, by default int64.
    device : str, optional
        Device of the result; "cpu" is the only one.
    requires_grad : bool
        Whether gradients are computed for the result, which must then hold floats.
    generator : Generator, optional
        Generator to draw from.

    Returns
    -------
    Tensor
        Tensor of shape (n,).

    Raises
    ------
    DTypeError
        `dtype` cannot represent all of the integers.
    ShapeError
        `n` is negative.

    Examples
    --------
    >>> sorted(krt.randperm(4).tolist())
    [0, 1, 2, 3]
    """
    check_device(device)
    count = integer(n, "n", least=0)
    wanted = dt.int64 if dtype is None else dt.parse(dtype)
    if count and not wanted.is_float and count - 1 > int(wanted.max):
        raise DTypeError(
            f"dtype: {wanted.name} cannot represent all integers up to {count - 1}; pass a "
            "wider one"
        )
    random.check_asked(wanted, requires_grad=requires_grad)
    # Two of 2**53 possible numbers are rarely equal; equal ones stay in order.
    drawn = random.rand(count, dtype=dt.float64, generator=generator)
    out = drawn.argsort().cast(wanted)
    return out.requires_grad_() if requires_grad else out
