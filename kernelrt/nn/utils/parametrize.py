"""Parametrizations: module tensors that functions compute from other tensors."""

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
#: Attribute of a module that holds the ParametrizationList of each tensor, by name.
_HELD = "parametrizations"


class ParametrizationList(Module):
    """The functions that compute a tensor, in the order of application, and their inputs.

    Parameters
    ----------
    first : Module
        First function. If it has a method ``right_inverse``, the originals are
        ``right_inverse(value)``. Otherwise the original is `value`.
    value : Tensor
        Tensor to compute from now on.
    unsafe : bool
        Whether the function may change the shape and dtype.

    Attributes
    ----------
    original : Tensor
        Input of the first function; ``original0``, ``original1`` ... if it takes several.

    Examples
    --------
    >>> from kernelrt.nn.utils.parametrizations import weight_norm
    >>> layer = weight_norm(krt.nn.Linear(3, 2))
    >>> steps = layer.parametrizations.weight
    >>> len(steps), [x.shape for x in steps.originals], steps().shape
    (1, [(2, 1), (2, 3)], (2, 3))
    """

    def __init__(self, first: Module, value: Tensor, unsafe: bool = False) -> None:
        self._steps: tuple[Module, ...] = (first,)
        with no_grad():
            made = _inverse(first, value)
            parts = _listed(made)
            _check(first(*parts), value, unsafe)
        # No errors from here on: nothing was changed so far.
        several = isinstance(made, tuple | list)
        for i, part in enumerate(parts):
            name = f"original{i}" if several else "original"
            setattr(self, name, _own(part, like=value, alone=not several))

    @property
    def originals(self) -> list[Tensor]:
        """The inputs of the first function."""
        return [t for n, t in self.__dict__.items() if n.startswith("original")]

    def forward(self) -> Tensor:
        """Compute the tensor."""
        first, *rest = self._steps
        out: Any = first(*self.originals)
        for step in rest:
            out = step(out)
        return cast("Tensor", out)

    def right_inverse(self, value: Tensor) -> None:
        """Assign values to the originals such that the tensor becomes equal to `value`.

        Parameters
        ----------
        value : Tensor
            Value that the tensor gets, of the same shape.
        """
        with no_grad():
            made: Any = value
            for step in self._steps[::-1]:
                made = _inverse(step, made)
            parts, originals = _listed(made), self.originals
            _check_parts(parts, originals)
            for original, part in zip(originals, parts, strict=True):
                original.assign(part)

    def append(self, step: Module) -> None:
        """Append a function that is applied to the result; the tensor keeps its value.

        Parameters
        ----------
        step : Module
            Function of one tensor; its ``right_inverse``, if any, must return one tensor.
        """
        with no_grad():
            made = _inverse(step, self())
        if isinstance(made, tuple | list):
            raise StateError(
                "parametrization: right_inverse returns several tensors, but only the first "
                "parametrization of a tensor may do that; return one tensor"
            )
        self.right_inverse(made)
        self._steps = (*self._steps, step)

    def tree_items(self) -> Iterable[tuple[str, object]]:
        """Yield the originals by their names, and the functions by their positions."""
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
    """Holds the ParametrizationLists of a module, by the names of its tensors."""


def _listed(made: Any) -> list[Tensor]:
    parts = list(made) if isinstance(made, tuple | list) else [made]
    for part in parts:
        if not isinstance(part, Tensor):
            raise DTypeError(
                f"parametrization: expected right_inverse to return Tensors, not "
                f"{type(part).__name__}"
            )
    return parts


def _check_parts(parts: list[Tensor], originals: list[Tensor]) -> None:
    if len(parts) != len(originals):
        raise StateError(
            f"parametrization: right_inverse returns {len(parts)} tensors, expected "
            f"{len(originals)} as before"
        )
    for part, original in zip(parts, originals, strict=True):
        if not build.same_shape(part.dims, original.dims):
            raise ShapeError(
                "parametrization: right_inverse returns a tensor of shape "
                f"{format_shape(part.dims)}, expected {format_shape(original.dims)}"
            )
        if part.dtype.is_float is not original.dtype.is_float:
            raise DTypeError(
                f"parametrization: right_inverse returns {part.dtype.name}, expected "
                f"{original.dtype.name}"
            )


def _inverse(step: Module, value: Any) -> Any:
    found = getattr(step, "right_inverse", None)
    return value if found is None else found(value)


def _own(part: Tensor, like: Tensor, *, alone: bool) -> Tensor:
    if part is like:
        return part
    if alone and build.same_shape(part.dims, like.dims) and part.dtype is like.dtype:
        with no_grad():
            return like.assign(part)  # keep the tensor, which an optimizer may hold
    made = part.detach().clone()
    if is_parameter(like):
        made._become_parameter(like.requires_grad)  # noqa: SLF001 - a new tensor
    return made


def _lists(module: Module) -> dict[str, ParametrizationList]:
    held = module.__dict__.get(_HELD)
    return {} if held is None else dict(held.__dict__)


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Return whether a tensor of a module is parametrized.

    Parameters
    ----------
    module : Module
        Module that has the tensor.
    tensor_name : str, optional
        Name of the tensor; by default, any tensor of the module counts.

    Examples
    --------
    >>> from kernelrt.nn.utils.parametrizations import weight_norm
    >>> from kernelrt.nn.utils.parametrize import is_parametrized
    >>> layer = weight_norm(krt.nn.Linear(3, 2))
    >>> is_parametrized(layer), is_parametrized(layer, "weight"), is_parametrized(layer, "bias")
    (True, True, False)
    """
    lists = _lists(module)
    return bool(lists) if tensor_name is None else tensor_name in lists


def register_parametrization(
    module: M, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> M:
    """Make a parameter or buffer of `module` the result of a function of another tensor.

    The other tensor is ``module.parametrizations.{tensor_name}.original``. Its initial value is the
    value of the tensor. If ``parametrization.right_inverse`` is defined, it is applied to this
    value, and to each value that you assign to ``module.{tensor_name}``. The tensor is computed
    each time it is read. Functions registered later are applied to the result of the earlier ones.

    Parameters
    ----------
    module : Module
        Layer to change in place.
    tensor_name : str
        Name of the tensor.
    parametrization : Module
        Function that returns a tensor, given the original tensor or tensors.
    unsafe : bool
        Whether the tensor may change its shape or dtype.

    Returns
    -------
    Module
        The same layer.

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
        raise StateError(
            f"tensor_name: {type(module).__name__} has no tensor {tensor_name!r}; pass the name of "
            "an attribute that is a tensor"
        )
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
        raise DTypeError(
            f"parametrization: expected it to return a Tensor, not {type(made).__name__}"
        )
    fits = build.same_shape(made.dims, before.dims) and made.dtype is before.dtype
    if not fits and not unsafe:
        raise ShapeError(
            f"parametrization: expected a result of {before.dtype.name} and shape "
            f"{format_shape(before.dims)} as before, not {made.dtype.name} and shape "
            f"{format_shape(made.dims)}; pass unsafe=True to allow this"
        )


class _Listed:
    """Computes an attribute from its ParametrizationList."""

    def read(self, module: Any, name: str) -> Tensor:
        return _lists(module)[name]()

    def write(self, module: Any, name: str, value: object) -> None:
        value = tensor_of(value, name)
        _lists(module)[name].right_inverse(value)


def remove_parametrizations(
    module: M, tensor_name: str, leave_parametrized: bool = True
) -> M:
    """Make a parametrized tensor a plain tensor of the module again.

    Parameters
    ----------
    module : Module
        Layer to change in place.
    tensor_name : str
        Name of the tensor.
    leave_parametrized : bool
        Whether the tensor keeps its computed value. Otherwise it gets the value of the original.

    Returns
    -------
    Module
        The same layer.

    Examples
    --------
    >>> from kernelrt.nn.utils.parametrizations import weight_norm
    >>> from kernelrt.nn.utils.parametrize import remove_parametrizations
    >>> layer = weight_norm(krt.nn.Linear(3, 2))
    >>> sorted(remove_parametrizations(layer, "weight").state_dict())
    ['bias', 'weight']
    """
    if not is_parametrized(module, tensor_name):
        raise StateError(
            f"tensor_name: {tensor_name!r} of {type(module).__name__} is not parametrized; "
            f"parametrized are: {', '.join(_lists(module)) or 'none'}"
        )
    made = _lists(module)[tensor_name]
    original = made.originals[0]
    if leave_parametrized:
        with no_grad():
            value = made().detach().clone()
        if is_parameter(original):
            value._become_parameter(original.requires_grad)  # noqa: SLF001 - a new tensor
    elif len(made.originals) > 1:
        raise StateError(
            "leave_parametrized: expected True, because the tensor is computed from several "
            "originals, of which none can replace it; leave it out"
        )
    else:
        value = original
    held = module.__dict__[_HELD]
    delattr(held, tensor_name)
    let_hold(module, tensor_name)
    if not _lists(module):
        delattr(module, _HELD)
    setattr(module, tensor_name, value)
    return module
