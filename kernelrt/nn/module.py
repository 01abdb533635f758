"""Module, the base class of layers, and the containers made of modules."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ParamSpec, Protocol, Self, TypeVar, cast, overload

from kernelrt._lacking import MODULE, install
from kernelrt._modes import Observed
from kernelrt.device.dlpack import kind_name
from kernelrt.errors import DTypeError, GradientError, StateError
from kernelrt.nn import modes, state, tree
from kernelrt.nn.scope import Scope
from kernelrt.tensor import Tensor
from kernelrt.tensor.state import local

__all__ = ["Module", "ModuleList", "Sequential"]


P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)


class _Forward(Protocol[P, R_co]):
    """What calling a module takes and gives: what its forward does."""

    def forward(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...


class Module(Observed):
    """Something with parameters that is called.

    A subclass sets tensors and other modules as attributes, at any depth of lists and dicts, and
    defines ``forward``. Nothing is registered: what is reachable belongs to the module, and a
    tensor that requires a gradient, or did until it was frozen, is a parameter.

    Examples
    --------
    >>> from kernelrt import nn
    >>> class Residual(nn.Module):
    ...     def __init__(self, width):
    ...         self.inner = nn.Sequential(nn.Linear(width, width), nn.ReLU())
    ...     def forward(self, x):
    ...         return x + self.inner(x)
    >>> [name for name, _ in Residual(4).named_parameters()]
    ['inner.0.weight', 'inner.0.bias']
    """

    def __call__(self: _Forward[P, R_co], *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call :meth:`forward`."""
        outer = local.scope
        local.scope = Scope(outer, self)
        try:
            return self.forward(*args, **kwargs)
        except AttributeError as error:
            complaint = _not_a_tensor(self, error, args, kwargs)
            if complaint is None:
                raise
            raise complaint from error
        finally:
            local.scope = outer

    def __setattr__(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)
        if modes.is_watched(self, name):
            modes.changed()

    def __delattr__(self, name: str) -> None:
        object.__delattr__(self, name)
        if modes.is_watched(self, name):
            modes.changed()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the module's result; to be overridden."""
        raise NotImplementedError(f"{type(self).__name__} defines no forward")

    # ---- modes

    @property
    def training(self) -> bool:
        """Whether layers such as Dropout act as in training; see :meth:`train`."""
        training: bool = self.__dict__.get("_training", True)
        modes.note(self, "_training", training, True)
        return training

    def train(self, mode: bool = True) -> Self:
        """Put this module and those in it into training mode, or into evaluation mode."""
        if not isinstance(mode, bool):
            raise DTypeError(f"mode: expected a bool, not {type(mode).__name__}")
        before = [module.__dict__.get("_training", True) for module in self.modules()]
        for module in self.modules():
            module.__dict__["_training"] = mode
        if any(was is not mode for was in before):
            modes.changed()
        return self

    def eval(self) -> Self:
        """Put this module and those in it into evaluation mode: Dropout passes all through."""
        return self.train(False)

    # ---- contents

    def modules(self) -> Iterator[Module]:
        """Yield this module and every module in it, each once."""
        for _, module in self.named_modules():
            yield module

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """(dotted name, module) for this module and every module in it, each once."""
        seen: set[int] = set()
        for name, value in tree.named_objects(self, prefix):
            if isinstance(value, Module) and id(value) not in seen:
                seen.add(id(value))
                yield name, value

    def parameters(self) -> Iterator[Tensor]:
        """Yield each parameter of this module once, frozen or not."""
        for _, tensor in self.named_parameters():
            yield tensor

    def named_parameters(self, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
        """(dotted name, tensor) for each parameter once, frozen or not."""
        return tree.named_parameters(self, prefix)

    def zero_grad(self) -> None:
        """Forget the gradients of all parameters."""
        for tensor in self.parameters():
            tensor.grad = None

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Freeze the parameters of this module, or let gradients be collected for them again.

        Other tensors, as the running mean of a normalization, stay what they are; see
        :func:`kernelrt.nn.parameters`.
        """
        for tensor in self.parameters():
            tensor.requires_grad_(requires_grad)
        return self

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Set an attribute, as PyTorch's modules want to be told: ``self.name = tensor``.

        A tensor that requires no gradient is part of the state and no parameter, however it became
        an attribute.

        Raises
        ------
        DTypeError
            `name` is no name of an attribute, or `tensor` is something else.
        GradientError
            `tensor` requires a gradient, so that it would be a parameter.
        StateError
            There is such an attribute, or `persistent` is False: what a module reaches is saved.
        """
        if not str(name).isidentifier():
            raise DTypeError(f"name: expected the name of an attribute, not {name!r}")
        if tensor is not None and not isinstance(tensor, Tensor):
            raise DTypeError(f"tensor: expected a Tensor or None, not {kind_name(tensor)}")
        if tensor is not None and tensor.requires_grad:
            raise GradientError(
                "tensor: requires a gradient and would be a parameter; give tensor.detach(), or "
                f"set self.{name} = tensor"
            )
        if hasattr(self, name):
            raise StateError(f"name: {type(self).__name__} has {name!r} already")
        if not persistent:
            raise StateError(
                "persistent: every tensor that a module reaches is saved with it; keep one that "
                "is not outside, as a global or in a closure"
            )
        setattr(self, name, tensor)

    # ---- state

    def state_dict(self) -> dict[str, Tensor]:
        """Every tensor in this module by its dotted name; the tensors themselves, no copies."""
        return state.state_dict(self)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True
    ) -> state.IncompatibleKeys:
        """Copy values into the tensors of this module; see :func:`kernelrt.nn.load_state_dict`."""
        return state.load_state_dict(self, state_dict, strict=strict)

    # ---- text

    def extra_repr(self) -> str:
        """Give what stands between the parentheses of this module's repr."""
        return ""

    def __repr__(self) -> str:
        lines = [
            f"({name}): " + repr(child).replace("\n", "\n  ")
            for name, child in _direct_modules(self)
        ]
        extra = self.extra_repr()
        if not lines:
            return f"{type(self).__name__}({extra})"
        body = "\n  ".join([extra, *lines] if extra else lines)
        return f"{type(self).__name__}(\n  {body}\n)"


install(Module, "a Module of kernelrt", MODULE)


def _direct_modules(module: Module) -> Iterator[tuple[str, Module]]:
    for name, value in tree.children(module):
        if isinstance(value, Module):
            yield name, value
        elif isinstance(value, list | tuple | Mapping):
            for key, child in tree.children(value):
                if isinstance(child, Module):
                    yield f"{name}.{key}", child


Layer = Callable[..., Any]


class Sequential(Module):
    """Modules, or any functions of one tensor, applied one after the other.

    Parameters
    ----------
    *layers : Module or callable, or one mapping of names to them
        Applied in the order given.

    Examples
    --------
    >>> from kernelrt import nn
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> len(model), model[0]
    (3, Linear(4, 8))
    """

    def __init__(self, *layers: Layer | Mapping[str, Layer]) -> None:
        named: Mapping[str, object]
        if len(layers) == 1 and isinstance(layers[0], Mapping):
            named = layers[0]
        else:
            named = {str(i): layer for i, layer in enumerate(layers)}
        self._layers = {name: _check_layer(name, layer) for name, layer in named.items()}

    def forward(self, x: Any) -> Tensor:
        """Apply all layers to `x`."""
        result = x
        for layer in self._layers.values():
            result = layer(result)
        return cast("Tensor", result)

    def append(self, layer: Layer) -> Self:
        """Add a layer at the end."""
        name = str(len(self._layers))
        self._layers = {**self._layers, name: _check_layer(name, layer)}  # traces see another one
        return self

    def tree_items(self) -> Iterable[tuple[str, object]]:
        """(name, layer) in order; the names are the positions unless a mapping was given."""
        return self._layers.items()

    def __len__(self) -> int:
        return len(self._layers)

    def __iter__(self) -> Iterator[Layer]:
        return iter(self._layers.values())

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Sequential: ...
    def __getitem__(self, index: int | slice) -> Any:
        layers = list(self._layers.values())
        return Sequential(*layers[index]) if isinstance(index, slice) else layers[index]


class ModuleList(Module):
    """A list of modules with torch's names for their parameters; a plain list does as well.

    Parameters
    ----------
    modules : iterable of Module
        Its items.
    """

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        self._items: tuple[Module, ...] = ()
        for module in modules:
            self.append(module)

    def append(self, module: Module) -> Self:
        """Add a module at the end."""
        if not isinstance(module, Module):
            raise DTypeError(f"module: expected a Module, not {type(module).__name__}")
        self._items = (*self._items, module)
        return self

    def tree_items(self) -> Iterable[tuple[str, object]]:
        """(position, module) in order."""
        return ((str(i), module) for i, module in enumerate(self._items))

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._items)

    def __getitem__(self, index: int) -> Any:
        return self._items[index]


def _not_a_tensor(
    module: Any, error: AttributeError, args: tuple[object, ...], kwargs: dict[str, object]
) -> DTypeError | None:
    """What there is to say where an argument lacks what a Tensor has."""
    wrong = error.obj
    if isinstance(wrong, Tensor) or not hasattr(Tensor, str(error.name)):
        return None
    given = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    for name, value in given.items():
        if value is wrong:
            is_array = hasattr(value, "__array__") or hasattr(value, "__dlpack__")
            way = ", or pass it to a jitted function, which takes arrays" if is_array else ""
            return DTypeError(
                f"{name}: {type(module).__name__} expects a Tensor, not {kind_name(value)}; make "
                f"one with kernelrt.tensor{way}"
            )
    return None


def _check_layer(name: str, layer: object) -> Layer:
    if not callable(layer):
        raise DTypeError(
            f"layer {name}: expected a Module or a function of one tensor, not "
            f"{type(layer).__name__}"
        )
    return layer
