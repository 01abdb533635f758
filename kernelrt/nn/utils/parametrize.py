"""Parametrizations: module tensors that functions compute from others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

from kernelrt.errors import DTypeError, ShapeError, StateError
from kernelrt.ir.shape import format_shape
from kernelrt.nn.computed import let_compute, let_hold
from kernelrt.nn.module import Module
from kernelrt.tensor import Tensor
from kernelrt.tensor.base import is_parameter
from kernelrt.tensor.nodes import build
from kernelrt.tensor.nodes.arguments import tensor_of
from kernelrt.tensor.state import no_grad

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["ParametrizationList", "is_parametrized", "register_parametrization",
           "remove_parametrizations"]  # fmt: skip

M = TypeVar("M", bound=Module)
#: The attribute with what computes tensors, by their names.
_HELD = "parametrizations"


class ParametrizationList(Module):
    """The functions that compute a tensor, the first one first, and what they compute it from.

    Attributes
    ----------
    original : Tensor
        What the first one takes; ``original0``, ``original1`` ... where it takes several.
    """

    def __init__(self, first: Module, value: Tensor, unsafe: bool = False) -> None:
        self._steps: tuple[Module, ...] = (first,)
        with no_grad():
            made = _inverse(first, value)
            parts = _listed(made)
            _check(first(*parts), value, unsafe)
        # Nothing was changed so far.
        several = isinstance(made, tuple | list)
        for i, part in enumerate(parts):
            name = f"original{i}" if several else "original"
            setattr(self, name, _own(part, like=value, alone=not several))

    @property
    def originals(self) -> list[Tensor]:
        """What the first function takes."""
        return [t for n, t in self.__dict__.items() if n.startswith("original")]

    def forward(self) -> Tensor:
        """Compute the tensor."""
        first, *rest = self._steps
        out: Any = first(*self.originals)
        for step in rest:
            out = step(out)
        return cast("Tensor", out)

    def right_inverse(self, value: Tensor) -> None:
        """Assign to the originals what makes the tensor be `value`."""
        with no_grad():
            made: Any = value
            for step in self._steps[::-1]:
                made = _inverse(step, made)
            parts, originals = _listed(made), self.originals
            _check_parts(parts, originals)
            for original, part in zip(originals, parts, strict=True):
                original.assign(part)

    def append(self, step: Module) -> None:
        """Apply another function to what those before give; the tensor keeps its value."""
        with no_grad():
            made = _inverse(step, self())
        if isinstance(made, tuple | list):
            raise StateError(
                "parametrization: right_inverse gives several tensors, which only the first one "
                "of a tensor may"
            )
        self.right_inverse(made)
        self._steps = (*self._steps, step)

    def tree_items(self) -> Iterable[tuple[str, object]]:
        """The originals by their names, and the functions by their positions."""
        for name, value in self.__dict__.items():
            if name.startswith("original"):
                yield name, value
        yield from ((str(i), step) for i, step in enumerate(self._steps))

    def __len__(self) -> int:
        return len(self._steps)

    def __getitem__(self, index: int) -> Module:
        return self._steps[index]

    def __iter__(self) -> Iterator[Module]:
        return iter(self._steps)


class _Held(Module):
    """The lists of a module, by the names of its tensors."""


def _listed(made: Any) -> list[Tensor]:
    parts = list(made) if isinstance(made, tuple | list) else [made]
    for part in parts:
        if not isinstance(part, Tensor):
            raise DTypeError(
                f"parametrization: right_inverse gives Tensors, not {type(part).__name__}"
            )
    return parts


def _check_parts(parts: list[Tensor], originals: list[Tensor]) -> None:
    if len(parts) != len(originals):
        raise StateError(
            f"parametrization: right_inverse gives {len(parts)} tensors, and gave "
            f"{len(originals)} before"
        )
    for part, original in zip(parts, originals, strict=True):
        if not build.same_shape(part.dims, original.dims):
            raise ShapeError(
                f"parametrization: right_inverse gives the shape {format_shape(part.dims)}; what "
                f"it is assigned to has {format_shape(original.dims)}"
            )
        if part.dtype.is_float is not original.dtype.is_float:
            raise DTypeError(
                f"parametrization: right_inverse gives {part.dtype.name}; what it is assigned to "
                f"is of {original.dtype.name}"
            )


def _inverse(step: Module, value: Any) -> Any:
    found = getattr(step, "right_inverse", None)
    return value if found is None else found(value)


def _own(part: Tensor, like: Tensor, *, alone: bool) -> Tensor:
    if part is like:
        return part
    if alone and build.same_shape(part.dims, like.dims) and part.dtype is like.dtype:
        with no_grad():
            return like.assign(part)  # optimizers may know it
    made = part.detach().clone()
    return made.requires_grad_(like.requires_grad) if is_parameter(like) else made


def _lists(module: Module) -> dict[str, ParametrizationList]:
    held = module.__dict__.get(_HELD)
    return {} if held is None else dict(held.__dict__)


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether a tensor of `module` is computed by functions; any, if no name is given."""
    lists = _lists(module)
    return bool(lists) if tensor_name is None else tensor_name in lists


def register_parametrization(
    module: M, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> M:
    """Let a parameter or buffer of `module` be what a function computes from another tensor.

    That one is ``module.parametrizations.{tensor_name}.original``; it has the value that the
    tensor had, or what ``parametrization.right_inverse`` makes of it. The tensor is computed where
    it is read, and assigning to ``module.{tensor_name}`` takes the way back. Further functions
    are applied to what those before give.

    Parameters
    ----------
    module : Module
        The layer, which is changed.
    tensor_name : str
        Of its tensor.
    parametrization : Module
        Takes a tensor, or as many as its ``right_inverse`` gives, and gives one.
    unsafe : bool
        Let the tensor have another shape or type than before.

    Returns
    -------
    Module
        The layer.

    Examples
    --------
    >>> import kernelrt as krt
    >>> from kernelrt.nn.utils import parametrize
    >>> class Symmetric(krt.nn.Module):
    ...     def forward(self, x):
    ...         return x.triu() + x.triu(1).T
    >>> layer = parametrize.register_parametrization(krt.nn.Linear(3, 3), "weight", Symmetric())
    >>> layer.weight.equal(layer.weight.T)
    True
    """
    if not isinstance(module, Module):
        raise DTypeError(f"module: expected a Module, not {type(module).__name__}")
    if not isinstance(parametrization, Module):
        raise DTypeError(
            f"parametrization: expected a Module, not {type(parametrization).__name__}"
        )
    lists = _lists(module)
    if tensor_name in lists:
        before = getattr(module, tensor_name)
        _check(parametrization(before), before, unsafe)
        lists[tensor_name].append(parametrization)
        return module
    value = module.__dict__.get(tensor_name)
    if not isinstance(value, Tensor):
        raise StateError(f"tensor_name: {type(module).__name__} has no tensor {tensor_name!r}")
    made = ParametrizationList(parametrization, value, unsafe)
    delattr(module, tensor_name)
    held = module.__dict__.get(_HELD)
    if held is None:
        held = _Held()
        setattr(module, _HELD, held)
    setattr(held, tensor_name, made)
    let_compute(module, tensor_name, _Listed())
    return module


def _check(made: object, before: Tensor, unsafe: bool) -> None:
    if not isinstance(made, Tensor):
        raise DTypeError(f"parametrization: gives a Tensor, not {type(made).__name__}")
    fits = build.same_shape(made.dims, before.dims) and made.dtype is before.dtype
    if not fits and not unsafe:
        raise ShapeError(
            f"parametrization: expected it to give {before.dtype.name} of shape "
            f"{format_shape(before.dims)} as before, not {made.dtype.name} of shape "
            f"{format_shape(made.dims)}; pass unsafe=True where that is meant"
        )


class _Listed:
    """Computes what the list of the name gives."""

    def read(self, module: Any, name: str) -> Tensor:
        return _lists(module)[name]()

    def write(self, module: Any, name: str, value: object) -> None:
        value = tensor_of(value, name)
        _lists(module)[name].right_inverse(value)


def remove_parametrizations(
    module: M, tensor_name: str, leave_parametrized: bool = True
) -> M:
    """Let a tensor be one of the module again.

    Parameters
    ----------
    module : Module
        The layer, which is changed.
    tensor_name : str
        Of its tensor.
    leave_parametrized : bool
        Whether it has the value that was computed last, or that of the original.
    """
    if not is_parametrized(module, tensor_name):
        raise StateError(
            f"tensor_name: {tensor_name!r} of {type(module).__name__} is not computed"
        )
    made = _lists(module)[tensor_name]
    original = made.originals[0]
    if leave_parametrized:
        with no_grad():
            value = made().detach().clone()
        if is_parameter(original):
            value.requires_grad_(original.requires_grad)
    elif len(made.originals) > 1:
        raise StateError("leave_parametrized: several tensors are no original value; pass True")
    else:
        value = original
    held = module.__dict__[_HELD]
    delattr(held, tensor_name)
    let_hold(module, tensor_name)
    if not _lists(module):
        delattr(module, _HELD)
    setattr(module, tensor_name, value)
    return module
