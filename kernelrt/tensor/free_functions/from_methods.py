"""Operations as functions: ``krt.exp(x)`` is ``x.exp()``.

Functions are created from Tensor's methods on first use: each operation is defined once, and
imports stay fast. Their types are in ``from_methods.pyi``, which tests/support/function_stub.py
generates.
"""

from __future__ import annotations

import functools
import inspect
import sys
from typing import TYPE_CHECKING, Any, Final

from kernelrt.errors import DTypeError
from kernelrt.native.array_handle import ArrayHandle
from kernelrt.native.thread_modes import aliases_of, several_of
from kernelrt.tensor.free_functions import creation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["function", "names", "provide"]

#: Methods that are not functions: they query or convert a tensor, or the module uses the name for
#: something else.
_NO_FUNCTIONS: Final = """
assign backward bfloat16 bool byte cast char contiguous cpu data_ptr dim double
element_size expand expand_as float half int is_contiguous is_pinned item long ndimension nelement
new_empty new_full new_ones new_tensor new_zeros numpy prepare realize repeat requires_grad_
register_hook reshape_as retain_grad short size storage storage_offset stride to to_device tolist
type type_as uop view view_as zero_grad is_realized where
"""
#: In-place methods that are functions too, as in PyTorch.
_IN_PLACE: Final = """
abs_ acos_ acosh_ addmv_ arccos_ arccosh_ arcsin_ arcsinh_ arctan_ arctanh_ asin_ asinh_ atan_
atanh_ ceil_ clamp_ clamp_max_ clamp_min_ clip_ conj_physical_ cos_ cosh_ deg2rad_ detach_ erf_
erfc_ exp2_ exp_ expm1_ fill_ fix_ floor_ frac_ gcd_ i0_ index_put_ lcm_ ldexp_ log10_ log1p_
log2_ log_ logit_ nan_to_num_ neg_ negative_ rad2deg_ reciprocal_ relu_ round_ rsqrt_ sigmoid_
sin_ sinc_ sinh_ sqrt_ square_ tan_ tanh_ trunc_ xlogy_ zero_
"""
#: The argument before the tensor in PyTorch's functions of these names.
_SECOND: Final = {"embedding": "weight", "polygamma": "n"}
#: PyTorch's name of the tensor argument where it is not ``input``.
_FIRST: Final = {
    "cosine_embedding_loss": "input1", "ctc_loss": "log_probs", "gumbel_softmax": "logits",
    "margin_ranking_loss": "input1", "triplet_margin_loss": "anchor",
    "triplet_margin_with_distance_loss": "anchor",
    "cdist": "x1", "cosine_similarity": "x1", "pairwise_distance": "x1", "isin": "elements",
    "searchsorted": "sorted_sequence", "split": "tensor", "unsafe_split": "tensor",
    "matrix_exp": "A",
}


@functools.cache
def names(kind: type) -> frozenset[str]:
    """Return the names of the methods of `kind` that are also functions."""
    return frozenset(name for name in dir(kind) if is_function(kind, name))


def is_function(kind: type, name: str) -> bool:
    """Return whether `name` is a method of `kind` that is also a function."""
    if name.startswith("_") or (name.endswith("_") and name not in _IN_PLACE.split()):
        return False
    if name in _NO_FUNCTIONS.split():
        return False
    return callable(next((own[name] for own in map(vars, kind.__mro__) if name in own), None))


def function(kind: type, name: str, module: str) -> Callable[..., Any]:
    """Return the method `name` of `kind` as a function with a first parameter ``input``.

    ``input`` may also be an array. It may be a number if another argument is a tensor.
    """
    method = getattr(kind, name)
    plain = inspect.unwrap(method)
    before = module == "kernelrt" and name in _SECOND  # nn.functional uses another order
    own = _FIRST.get(name, "input")

    def call(*args: Any, **options: Any) -> Any:
        if "out" in options:
            raise TypeError(
                f"{name}() has no out=; write y = {name}(...), or out[...] = {name}(...) to "
                "overwrite a tensor"
            )
        if before and len(args) > 1:
            args = (args[1], args[0], *args[2:])
        if args and not (before and own in options):
            first, *rest = args
        elif own in options:
            first, rest = options.pop(own), list(args)
        else:
            raise TypeError(f"{name}() missing 1 required positional argument: {own!r}")
        if not isinstance(first, kind) and name.endswith("_"):
            raise DTypeError(f"{name}: input: expected a Tensor, not {type(first).__name__}")
        if not isinstance(first, kind):
            first = _lifted(kind, first, (*rest, *options.values()))
        return method(first, *rest, **options)

    functools.update_wrapper(call, plain, ("__doc__", "__annotations__"), ())
    call.__name__, call.__qualname__, call.__module__ = name, name, module
    # Profiles and the grad_fn of a result take the function's name from its code object.
    call.__code__ = call.__code__.replace(co_name=name, co_qualname=name)
    del call.__wrapped__  # type: ignore[attr-defined]  # the wrapped method has `self`
    call.__signature__ = signature(plain, name, before=before)  # type: ignore[attr-defined]
    others = (*(several_of(plain) or ()), *(aliases_of(plain) or ()))
    call.other_names = frozenset(others)  # type: ignore[attr-defined]
    return call


def signature(method: Callable[..., Any], name: str, *, before: bool) -> inspect.Signature:
    """Return the signature of a method as a function.

    `before` says whether the function takes another argument before the tensor.
    """
    known = inspect.signature(method)
    _, *rest = known.parameters.values()
    own = _FIRST.get(name, "input")
    first = inspect.Parameter(own, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    others = [p for p in rest if p.name != own]
    others.insert(1 if before else 0, first)
    return known.replace(parameters=others)


def _lifted(kind: Any, value: object, others: Iterable[object]) -> Any:
    """Return `value` as a tensor; a number gets a dtype that suits the first tensor in `others`."""
    for other in others:
        if isinstance(other, kind) and isinstance(other, ArrayHandle):
            return other._lift(value, "input", like=True)  # type: ignore[attr-defined]

    return creation.from_data(kind, value, "input")


def provide(
    module: str, kind: type, public: Iterable[str] | None, otherwise: Callable[[str], Any],
    values: Mapping[str, object] | None = None,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` for a module with the methods of `kind` as functions.

    Parameters
    ----------
    module : str
        Name of the module.
    kind : type
        Class with the methods.
    public : iterable of str or None
        Names to provide; None for all. Names that are not functions are skipped.
    values : mapping, optional
        Further names of the module, with their values.
    otherwise : callable
        Function that ``__getattr__`` calls with any other name.
    """
    given = values or {}
    chosen = None if public is None else frozenset(public)

    def wanted() -> frozenset[str]:
        return names(kind) if chosen is None else names(kind) & chosen

    def found(name: str) -> Any:
        if name in given:
            return given[name]
        if not (is_function(kind, name) and (chosen is None or name in chosen)):
            return otherwise(name)
        made = function(kind, name, module)
        setattr(sys.modules[module], name, made)
        return made

    def listed() -> list[str]:
        own = vars(sys.modules[module])
        return sorted({*own.get("__all__", own), *wanted(), *given})

    return found, listed


