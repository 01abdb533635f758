"""Containers of modules and of parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Self, cast, overload

from kernelrt.device.dlpack import kind_name, refuse_torch_module
from kernelrt.errors import DTypeError, StateError
from kernelrt.nn.module import Module
from kernelrt.nn.tree import ranked
from kernelrt.tensor import Tensor
from kernelrt.tensor.base import is_parameter
from kernelrt.tensor.free_functions.creation import tensor
from kernelrt.tensor.nodes.arguments import own_axis, tensor_of

__all__ = ["Buffer", "ModuleDict", "ModuleList", "Parameter", "ParameterDict", "ParameterList",
           "Sequential"]  # fmt: skip

Layer = Callable[..., Any]


class _Container(Module):
    """A module that holds items by name. The item called ``x`` is also the attribute ``x``.

    Other attributes belong to the container as they do to any module.
    """

    #: Attribute that holds the items. Each change of the items replaces the value of the attribute,
    #: so that traces notice the change.
    _held: str

    def _items_by_name(self) -> Mapping[str, object]:
        raise NotImplementedError

    def _put(self, name: str, module: Module) -> bool:
        """Make `module` the item called `name`; return False if the name is not valid for items."""
        raise NotImplementedError

    def _take(self, name: str) -> None:
        """Remove the item of this name."""
        raise NotImplementedError

    def tree_items(self) -> Iterable[tuple[str, object]]:
        """Yield (name, value) pairs: tensor attributes, then the items, then other attributes."""
        own = [(name, value) for name, value in self.__dict__.items() if name != self._held]
        yield from ranked((n, v) for n, v in own if isinstance(v, Tensor))
        if self._held in self.__dict__:
            yield from self._items_by_name().items()
        yield from ((n, v) for n, v in own if not isinstance(v, Tensor))

    def __setattr__(self, name: str, value: object) -> None:
        if not isinstance(value, Module) or name.startswith("_"):
            super().__setattr__(name, value)
            return
        if self._held not in self.__dict__:
            raise StateError(
                f"{name}: cannot add a module to {type(self).__name__} before its constructor ran; "
                "call super().__init__() first"
            )
        if not self._put(name, value):
            super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        if self._held in self.__dict__ and name in (items := self._items_by_name()):
            return items[name]
        return object.__getattribute__(self, name)  # raises the usual AttributeError

    def __delattr__(self, name: str) -> None:
        if name not in self.__dict__ and name in self._items_by_name():
            self._take(name)
        else:
            super().__delattr__(name)


class Sequential(_Container):
    """Apply modules, or any functions of one tensor, one after another.

    If you set an attribute to a module, the module becomes the last layer, or replaces the layer of
    that name.

    Parameters
    ----------
    *layers : Module or callable, or one mapping of names to them
        Layers, in the order of application.

    Raises
    ------
    DTypeError
        A layer is not callable, or is a module of PyTorch.

    Examples
    --------
    >>> from kernelrt import nn
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> len(model), model[0]
    (3, Linear(4, 8))
    >>> model(krt.ones(5, 4)).shape
    (5, 2)
    """

    _held = "_layers"

    def __init__(self, *layers: Layer | Mapping[str, Layer]) -> None:
        named: Mapping[str, object]
        if len(layers) == 1 and isinstance(layers[0], Mapping):
            named = layers[0]
        else:
            named = {str(i): layer for i, layer in enumerate(layers)}
        self._layers = {name: _check_layer(name, layer) for name, layer in named.items()}

    def forward(self, input: Any) -> Tensor:
        """Apply all layers in order; return the result of the last."""
        result = input
        for layer in self._layers.values():
            result = layer(result)
        return cast("Tensor", result)

    def append(self, layer: Layer) -> Self:
        """Append a layer, and return this module.

        Parameters
        ----------
        layer : Module or callable
            The layer.

        Examples
        --------
        >>> len(krt.nn.Sequential(krt.nn.Linear(4, 2)).append(krt.nn.ReLU()))
        2
        """
        return self.extend((layer,))

    def extend(self, layers: Iterable[Layer]) -> Self:
        """Append layers, and return this module.

        Parameters
        ----------
        layers : iterable of Module or callable
            The layers, for example another Sequential.

        Examples
        --------
        >>> len(krt.nn.Sequential(krt.nn.Linear(4, 2)).extend([krt.nn.ReLU(), krt.nn.Tanh()]))
        3
        """
        for layer in tuple(layers):
            name = str(len(self._layers))
            self._layers = {**self._layers, name: _check_layer(name, layer)}
        return self

    def insert(self, index: int, layer: Layer) -> Self:
        """Insert a layer before position `index`, and return this module.

        The following layers are renumbered.

        Parameters
        ----------
        index : int
            Position of the new layer.
        layer : Module or callable
            The layer.

        Examples
        --------
        >>> model = krt.nn.Sequential(krt.nn.Linear(4, 2), krt.nn.ReLU())
        >>> model.insert(1, krt.nn.LayerNorm(2))[1]
        LayerNorm((2,), eps=1e-05)
        """
        items = list(self._layers.items())
        items.insert(index, ("0", _check_layer(str(index), layer)))
        self._layers = _renumbered(items)
        return self

    def pop(self, index: int = -1) -> Any:
        """Remove a layer and return it.

        Parameters
        ----------
        index : int, default -1
            Position of the layer; IndexError if it does not exist.

        Examples
        --------
        >>> model = krt.nn.Sequential(krt.nn.Linear(4, 2), krt.nn.ReLU())
        >>> model.pop(), len(model)
        (ReLU(), 1)
        """
        layer = self[index]
        del self[index]
        return layer

    def _items_by_name(self) -> Mapping[str, object]:
        return self._layers

    def _put(self, name: str, module: Module) -> bool:
        self._layers = {**self._layers, name: module}
        return True

    def _take(self, name: str) -> None:
        self._layers = {k: v for k, v in self._layers.items() if k != name}

    def __len__(self) -> int:
        return len(self._layers)

    def __iter__(self) -> Iterator[Layer]:
        return iter(self._layers.values())

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Sequential: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return Sequential(dict(list(self._layers.items())[index]))
        return list(self._layers.values())[index]

    def __setitem__(self, index: int, layer: Layer) -> None:
        name = list(self._layers)[index]
        self._layers = {**self._layers, name: _check_layer(name, layer)}

    def __delitem__(self, index: int | slice) -> None:
        left = list(self._layers.items())
        del left[index]
        self._layers = _renumbered(left)

    def __add__(self, other: Iterable[Layer]) -> Sequential:
        return Sequential(*self, *other)

    __iadd__ = extend


def _renumbered(items: Iterable[tuple[str, Layer]]) -> dict[str, Layer]:
    """Return layers by name, with numeric names replaced by positions."""
    pairs = enumerate(items)
    return {str(i) if name.isdecimal() else name: layer for i, (name, layer) in pairs}


def _check_module(module: object, name: str = "module") -> Module:
    if not isinstance(module, Module):
        refuse_torch_module(module, name)
        raise DTypeError(f"{name}: expected a Module, not {kind_name(module)}")
    return module


class ModuleList(_Container):
    """Hold modules in a list. State dicts name their parameters as in PyTorch: ``"0.weight"``.

    An attribute of a module may also be a plain list. A ModuleList has no ``forward``: call its
    items. Like a list, it has indices, slices, ``+`` and iteration.

    Parameters
    ----------
    modules : iterable of Module, optional
        Items of the list.

    Raises
    ------
    DTypeError
        An item is not a Module.

    Examples
    --------
    >>> heads = krt.nn.ModuleList(krt.nn.Linear(4, n) for n in (2, 3))
    >>> [head(krt.ones(5, 4)).shape for head in heads]
    [(5, 2), (5, 3)]
    """

    _held = "_items"

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        super().__init__()
        self._items: tuple[Module, ...] = ()
        self.extend(modules)

    def append(self, module: Module) -> Self:
        """Append a module, and return this list.

        Parameters
        ----------
        module : Module
            The module.

        Examples
        --------
        >>> len(krt.nn.ModuleList([krt.nn.ReLU()]).append(krt.nn.Tanh()))
        2
        """
        self._items = (*self._items, _check_module(module))
        return self

    def extend(self, modules: Iterable[Module]) -> Self:
        """Append modules, and return this list.

        Parameters
        ----------
        modules : iterable of Module
            The modules.

        Examples
        --------
        >>> list(krt.nn.ModuleList([krt.nn.ReLU()]).extend([krt.nn.Tanh(), krt.nn.Sigmoid()]))
        [ReLU(), Tanh(), Sigmoid()]
        """
        self._items = (*self._items, *(_check_module(m, "modules") for m in modules))
        return self

    def insert(self, index: int, module: Module) -> None:
        """Insert a module before position `index`.

        Parameters
        ----------
        index : int
            Position of the new item.
        module : Module
            The module.

        Examples
        --------
        >>> layers = krt.nn.ModuleList([krt.nn.ReLU()])
        >>> layers.insert(0, krt.nn.Linear(4, 2))
        >>> list(layers)
        [Linear(4, 2), ReLU()]
        """
        items = list(self._items)
        items.insert(index, _check_module(module))
        self._items = tuple(items)

    def pop(self, index: int = -1) -> Module:
        """Remove a module and return it.

        Parameters
        ----------
        index : int, default -1
            Position of the module; IndexError if it does not exist.

        Examples
        --------
        >>> layers = krt.nn.ModuleList([krt.nn.Linear(4, 2), krt.nn.ReLU()])
        >>> layers.pop(0), len(layers)
        (Linear(4, 2), 1)
        """
        items = list(self._items)
        module = items.pop(index)
        self._items = tuple(items)
        return module

    def _items_by_name(self) -> Mapping[str, object]:
        return {str(i): module for i, module in enumerate(self._items)}

    def _put(self, name: str, module: Module) -> bool:
        if not name.isdecimal() or int(name) > len(self):
            return False
        self._items = (*self._items[: int(name)], module, *self._items[int(name) + 1 :])
        return True

    def _take(self, name: str) -> None:
        del self[int(name)]

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._items)

    def __getitem__(self, index: int | slice) -> Any:
        found = self._items[index]
        return ModuleList(cast("tuple[Module, ...]", found)) if isinstance(index, slice) else found

    def __setitem__(self, index: int, module: Module) -> None:
        items = list(self._items)
        items[index] = _check_module(module)
        self._items = tuple(items)

    def __delitem__(self, index: int | slice) -> None:
        items = list(self._items)
        del items[index]
        self._items = tuple(items)

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList((*self._items, *other))

    __iadd__ = extend


class _Named(_Container):
    """Base of containers with keys."""

    _held = "_named"

    def __init__(self, items: Mapping[str, Any] | Iterable[tuple[str, Any]] | None = None) -> None:
        super().__init__()
        self._named: dict[str, Any] = {}
        if items is not None:
            self.update(items)

    def _check(self, name: str, value: object) -> Any:
        raise NotImplementedError

    def update(self, items: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> None:
        """Add items, or replace existing ones.

        Parameters
        ----------
        items : mapping of str to item, or iterable of pairs
            New items by name.

        Examples
        --------
        >>> layers = krt.nn.ModuleDict({"inner": krt.nn.ReLU()})
        >>> layers.update({"inner": krt.nn.Tanh(), "outer": krt.nn.Sigmoid()})
        >>> list(layers.items())
        [('inner', Tanh()), ('outer', Sigmoid())]
        """
        pairs = items.items() if isinstance(items, Mapping) else items
        new = dict(self._named)
        for key, value in pairs:
            if not isinstance(key, str):
                raise DTypeError(f"key: expected a str, not {kind_name(key)}")
            new[key] = self._check(key, value)
        self._named = new

    def _items_by_name(self) -> Mapping[str, object]:
        return self._named

    def _put(self, name: str, module: Module) -> bool:
        self.update({name: module})
        return True

    def _take(self, name: str) -> None:
        del self[name]

    def keys(self) -> Iterable[str]:
        """Return the names of the items, in the order of insertion."""
        return self._named.keys()

    def values(self) -> Iterable[Any]:
        """Return the items, in the order of insertion."""
        return self._named.values()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Return (name, item) pairs, in the order of insertion."""
        return self._named.items()

    def pop(self, key: str) -> Any:
        """Remove an item and return it.

        Parameters
        ----------
        key : str
            Name of the item; KeyError if it does not exist.

        Examples
        --------
        >>> layers = krt.nn.ModuleDict({"inner": krt.nn.ReLU()})
        >>> layers.pop("inner"), len(layers)
        (ReLU(), 0)
        """
        found = self[key]
        del self[key]
        return found

    def clear(self) -> None:
        """Remove all items."""
        self._named = {}

    def __len__(self) -> int:
        return len(self._named)

    def __iter__(self) -> Iterator[str]:
        return iter(self._named)

    def __contains__(self, key: object) -> bool:
        return key in self._named

    def __getitem__(self, key: str) -> Any:
        return self._named[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.update({key: value})

    def __delitem__(self, key: str) -> None:
        self._named = {k: v for k, v in self._named.items() if k != key}


class ModuleDict(_Named):
    """Hold modules in a dict. State dicts name their parameters as in PyTorch: ``"key.weight"``.

    An attribute of a module may also be a plain dict. A ModuleDict has no ``forward``: call its
    items.

    Parameters
    ----------
    items : mapping of str to Module, or iterable of pairs, optional
        Items of the dict.

    Raises
    ------
    DTypeError
        An item is not a Module, or a key is not a str.

    Examples
    --------
    >>> heads = krt.nn.ModuleDict({"mean": krt.nn.Linear(4, 2), "scale": krt.nn.Linear(4, 2)})
    >>> [name for name, _ in heads.named_parameters()]
    ['mean.weight', 'mean.bias', 'scale.weight', 'scale.bias']
    """

    def _check(self, name: str, value: object) -> Module:
        return _check_module(value, name)


class ParameterDict(_Named):
    """Hold parameters in a dict; other tensors are converted to parameters.

    Parameters
    ----------
    items : mapping of str to Tensor, or iterable of pairs, optional
        Items of the dict.

    Raises
    ------
    DTypeError
        An item is not a Tensor, or a key is not a str.
    GradientError
        An item does not have a floating-point dtype.

    Examples
    --------
    >>> scales = krt.nn.ParameterDict({"low": krt.ones(2), "high": krt.ones(3)})
    >>> scales["low"].requires_grad, scales["high"].shape
    (True, (3,))
    """

    def _check(self, name: str, value: object) -> Tensor:
        return _as_parameter(value, name)

    def _put(self, name: str, module: Module) -> bool:
        del name, module
        return False


class ParameterList(_Container):
    """Hold parameters in a list; other tensors are converted to parameters.

    Parameters
    ----------
    values : iterable of Tensor, optional
        Items of the list.

    Raises
    ------
    DTypeError
        An item is not a Tensor.
    GradientError
        An item does not have a floating-point dtype.

    Examples
    --------
    >>> weights = krt.nn.ParameterList([krt.ones(2), krt.ones(3)])
    >>> [name for name, _ in weights.named_parameters()], weights[1].shape
    (['0', '1'], (3,))
    """

    _held = "_items"

    def __init__(self, values: Iterable[Tensor] = ()) -> None:
        super().__init__()
        self._items: tuple[Tensor, ...] = ()
        self.extend(values)

    def append(self, value: Tensor) -> Self:
        """Append a parameter, and return this list.

        Parameters
        ----------
        value : Tensor
            A parameter, or a tensor to convert to one.

        Examples
        --------
        >>> krt.nn.ParameterList().append(krt.ones(2))[0].requires_grad
        True
        """
        self._items = (*self._items, _as_parameter(value, "value"))
        return self

    def extend(self, values: Iterable[Tensor]) -> Self:
        """Append parameters, and return this list.

        Parameters
        ----------
        values : iterable of Tensor
            Parameters, or tensors to convert to them.

        Examples
        --------
        >>> len(krt.nn.ParameterList().extend([krt.ones(2), krt.ones(3)]))
        2
        """
        self._items = (*self._items, *(_as_parameter(v, "values") for v in values))
        return self

    def _items_by_name(self) -> Mapping[str, object]:
        return {str(i): value for i, value in enumerate(self._items)}

    def _put(self, name: str, module: Module) -> bool:
        del name, module
        return False

    def _take(self, name: str) -> None:
        self._items = (*self._items[: int(name)], *self._items[int(name) + 1 :])

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self._items)

    def __getitem__(self, index: int) -> Tensor:
        return self._items[index]

    def __setitem__(self, index: int, value: Tensor) -> None:
        place = own_axis(index, len(self._items), "index")
        new = _as_parameter(value, "value")
        self._items = (*self._items[:place], new, *self._items[place + 1 :])


def _as_parameter(value: object, name: str) -> Tensor:
    value = tensor_of(value, name)
    return value if is_parameter(value) else Parameter(value)


class _Parameters(type):
    """Metaclass: ``isinstance(x, nn.Parameter)`` tells whether a tensor is a parameter."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Tensor) and is_parameter(instance)

    def __call__(cls, data: Any = None, requires_grad: bool = True) -> Any:
        if data is None:
            data = tensor([])
        value = data.detach() if isinstance(data, Tensor) else data
        return tensor(value)._become_parameter(requires_grad)  # noqa: SLF001 - a new tensor


class Parameter(Tensor, metaclass=_Parameters):
    """Make a parameter: a new tensor with the values of `data`.

    Every tensor that requires a gradient is a parameter, and stays one when it is frozen.
    ``isinstance(x, Parameter)`` is true for all parameters.
    ``krt.tensor(data, requires_grad=True)`` makes a parameter, too.

    Parameters
    ----------
    data : Tensor or array_like, optional
        Values, which are copied; by default no elements.
    requires_grad : bool, default True
        False makes a frozen parameter, which may have any dtype.

    Raises
    ------
    GradientError
        `requires_grad` is True, and `data` does not have a floating-point dtype.

    Examples
    --------
    >>> scale = krt.nn.Parameter([1.0, 2.0])
    >>> scale.requires_grad, isinstance(scale, krt.nn.Parameter)
    (True, True)
    """

    __slots__ = ()


def Buffer(data: Tensor | None = None, *, persistent: bool = True) -> Tensor:  # noqa: N802
    """Return a tensor that is a buffer: part of a module's state, but not a parameter.

    Every tensor that requires no gradient is a buffer.

    Parameters
    ----------
    data : Tensor, optional
        Values, which are copied; by default no elements.
    persistent : bool, default True
        Must be True; :meth:`Module.register_buffer` makes buffers that are not saved.

    Returns
    -------
    Tensor
        Same shape and dtype as `data`.

    Raises
    ------
    DTypeError
        `persistent` is False.

    Examples
    --------
    >>> calls = krt.nn.Buffer(krt.tensor([1.0, 2.0], requires_grad=True))
    >>> calls.tolist(), calls.requires_grad
    ([1.0, 2.0], False)
    """
    if not persistent:
        raise DTypeError(
            "persistent: expected True, as only a module can leave a buffer out of its state; use "
            "module.register_buffer(name, tensor, persistent=False)"
        )
    return tensor([]) if data is None else data.detach().clone()


def _check_layer(name: str, layer: object) -> Layer:
    if not callable(layer):
        raise DTypeError(
            f"layer {name}: expected a Module or a function of one tensor, not "
            f"{type(layer).__name__}"
        )
    refuse_torch_module(layer, f"layer {name}")
    return layer
