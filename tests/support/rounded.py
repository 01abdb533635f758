"""torch with each step rounded to a narrow type, randomly up or down.

The spread of such results shows how many digits a computation keeps, whatever the order of its
steps. It reveals cancellation, intermediate overflow and decisions by the last digit, without a
list of such cases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch
from torch._decomp import core_aten_decompositions, decomposition_table
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["LOST", "Rounded"]

#: Digits, and the exponents of the least normal number and of the first overflow.
_TYPES: Final = {
    "float16": (11, -14, 16), "bfloat16": (8, -126, 128), "float32": (24, -126, 128),
    "float64": (41, -960, 1024),
}  # fmt: skip
#: Digits removed from a type that has no wider one.
LOST: Final = {"float64": 12}
_ATEN: Final = torch.ops.aten
#: Ops that torch does not decompose for its compilers but computes in several steps.
_WHOLE: Final = (
    _ATEN._softmax, _ATEN._log_softmax, _ATEN.native_layer_norm, _ATEN.native_group_norm,
    _ATEN.native_batch_norm, _ATEN.var, _ATEN.var_mean, _ATEN.linalg_vector_norm, _ATEN.gelu,
)  # fmt: skip
#: Ops that take integers and an accumulation type.
_ADDING: Final = (_ATEN.sum, _ATEN.mean, _ATEN.prod, _ATEN.cumsum, _ATEN.cumprod)
#: Ops that add many terms in one step, in an unspecified order.
_LONG: Final = (
    *_ADDING, _ATEN.mm, _ATEN.bmm, _ATEN.addmm, _ATEN.baddbmm, _ATEN.mv, _ATEN.dot,
    _ATEN.convolution, _ATEN.convolution_backward,
)  # fmt: skip
# torch's table is filled lazily, by iteration or by indexing.
_STEPS: Final = dict(core_aten_decompositions().items()) | {
    op: steps
    for op, steps in decomposition_table.items()
    if getattr(op, "overloadpacket", None) in _WHOLE
}


class Rounded(TorchDispatchMode):
    """A mode that rounds float64 results to `dtype`, in steps as small as torch's.

    Parameters
    ----------
    dtype : str
        A floating type; float64 counts as a type with 12 binary digits less.
    seed : int
        Seed of the random rounding.
    alike : bool
        Whether to round equal numbers equally. Then numbers that are computed in the same way stay
        equal, so comparisons of them do not depend on rounding. The errors of long sums are made as
        large as if their terms had been rounded separately.
    """

    def __init__(self, dtype: str, seed: int, *, alike: bool = False) -> None:
        super().__init__()
        self._key = (2 * seed + 1) * 0x1E3779B97F4A7C15 % 2**63 if alike else 0
        self._digits, self._least, beyond = _TYPES[dtype]
        self._top = 2.0**beyond if beyond < 1024 else torch.inf
        self._chance = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        steps = _STEPS.get(func)
        if steps is not None:
            with self:
                out = steps(*args, **(kwargs or {}))
            if out is not NotImplemented:
                return out
        kind = (kwargs or {}).get("dtype")
        if func.overloadpacket in _ADDING and kind is not None and kind.is_floating_point:
            args = (self._as_floats(args[0]), *args[1:])
            kwargs = {**kwargs, "dtype": args[0].dtype}
        if self._by_chance():  # some kernels convert numbers to their type
            args = tree_map(lambda x: self._number(x) if isinstance(x, float) else x, args)
        out = func(*args, **(kwargs or {}))
        if func.is_view:
            return out
        if func.overloadpacket is _ATEN.sum and out.numel() == args[0].numel():
            out = self._nudged(out)
        if self._key and func.overloadpacket in _LONG:
            return tree_map(lambda x: self._off(x, args) if self._takes(x) else x, out)
        if func._schema.is_mutable:
            return tree_map(lambda x: x.copy_(self._round(x)) if self._takes(x) else x, out)
        return tree_map(lambda x: self._round(x) if self._takes(x) else x, out)

    @staticmethod
    def _takes(x: Any) -> bool:
        return isinstance(x, torch.Tensor) and x.dtype is torch.float64

    def _by_chance(self) -> bool:
        if self._key:
            return bool(self._key & 2)
        return bool(torch.rand((), generator=self._chance) < 0.5)

    def _up(self, x: torch.Tensor) -> torch.Tensor:
        """Return which elements to round up. Of a number and its negative, one is rounded up."""
        if not self._key:
            return torch.rand(x.shape, generator=self._chance, dtype=x.dtype) < 0.5
        mixed = x.abs().contiguous().view(torch.int64) * self._key
        mixed = (mixed ^ (mixed >> 29)) * 0x2545F4914F6CDD1D
        return ((mixed >> 40) & 1 == 1) ^ (x < 0)

    def _number(self, x: float) -> float:
        return float(self._round(torch.tensor(x, dtype=torch.float64)))

    def _as_floats(self, x: Any) -> Any:
        """Return integers as rounded floats, since torch converts them before it sums them."""
        if not isinstance(x, torch.Tensor) or x.is_floating_point():
            return x
        return self._round(x.double())

    def _off(self, out: torch.Tensor, args: Any) -> torch.Tensor:
        """Perturb a sum of many terms by a rounding error times the root of their number.

        A sum that is exact in the narrow type, such as one of small integers, stays as it is.
        """
        terms = [x for x in args if isinstance(x, torch.Tensor) and x.numel()]
        quarters = all(torch.equal(x * 4, (x * 4).round()) for x in [*terms, out])
        if not out.numel() or (quarters and out.abs().max() < 2.0 ** (self._digits - 4)):
            return self._round(out)
        most = max(x.numel() for x in terms)
        size = torch.maximum(out.abs().max(), max(x.norm() for x in terms))
        off = size * 2.0**-self._digits * most**0.5
        return self._round(out + torch.where(self._up(out), off, -off))

    def _nudged(self, x: torch.Tensor) -> torch.Tensor:
        """Perturb a sum of a single term.

        The term may stand for several that another order of steps would round separately.
        """
        return x * (1 + 2.0 ** -(self._digits + 1)) if self._takes(x) else x

    def _round(self, x: torch.Tensor) -> torch.Tensor:
        _, exponent = torch.frexp(x)
        # Exponent of the last digit; constant for subnormal numbers.
        place = exponent.clamp(min=self._least + 1) - self._digits
        steps = torch.ldexp(x, -place.to(x.dtype))
        whole = torch.where(self._up(x), steps.ceil(), steps.floor())
        out = torch.ldexp(whole, place.to(x.dtype))
        out = torch.where(out.abs() < self._top, out, out.sign() * torch.inf)
        return torch.where(x.isfinite(), out, x)
