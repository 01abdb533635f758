"""Module, the base class of layers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, ParamSpec, Protocol, Self, TypeVar, cast

from kernelrt.device.dlpack import kind_name
from kernelrt.errors import DTypeError, GradientError, StateError, UnknownNameError
from kernelrt.native.thread_modes import Observed
from kernelrt.nn import modes, state_dicts, tree
from kernelrt.nn.convert import converted
from kernelrt.nn.hooks import Handle, Hook, added, called, hooks_of
from kernelrt.nn.scope import Scope
from kernelrt.tensor import Tensor
from kernelrt.tensor.base import is_parameter
from kernelrt.tensor.nodes.arguments import flag, type_of_to
from kernelrt.tensor.state import local
from kernelrt.util import displays
from kernelrt.util.unsupported_names import MODULE, install

__all__ = ["Module"]


P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")


class _Forward(Protocol[P, R_co]):
    """Signature of a module's call: that of its ``forward``."""

    def forward(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...


class Module(Observed):
    """Base class of layers and models.

    A subclass sets tensors and other modules as attributes, also inside lists and dicts at any
    depth, and defines ``forward``. No registration is needed: every tensor that is reachable from
    the attributes belongs to the module. A tensor that requires a gradient is a parameter, and
    stays a parameter when it is frozen.

    Examples
    --------
    >>> from kernelrt import nn
    >>> class Residual(nn.Module):
    ...     def __init__(self, width):
    ...         self.inner = nn.Sequential(nn.Linear(width, width), nn.ReLU())
    ...     def forward(self, x):
    ...         return x + self.inner(x)
    >>> model = Residual(4)
    >>> model(krt.ones(5, 4)).shape
    (5, 4)
    >>> [name for name, _ in model.named_parameters()]
    ['inner.0.weight', 'inner.0.bias']
    """

    def __call__(self: _Forward[P, R_co], *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call :meth:`forward` with the hooks of the module around it.

        Raises
        ------
        DTypeError
            An argument should be a Tensor, and is an array, a list or another object.
        """
        outer = local.scope
        local.scope = Scope(outer, self)
        try:
            hooks = hooks_of(self)
            if hooks:
                return cast("R_co", called(cast("Any", self).forward, self, hooks, args, kwargs))
            return self.forward(*args, **kwargs)
        except AttributeError as error:
            complaint = _not_a_tensor(self, error, args, kwargs)
            if complaint is None:
                raise
            raise complaint from error
        finally:
            local.scope = outer

    def __setattr__(self, name: str, value: object) -> None:
        if "." in name:
            raise StateError(
                f"{name!r} is not a valid attribute name: it contains a dot; set the item on its "
                "container, as in module.layers[0] = ..."
            )
        if isinstance(value, Tensor) and not is_parameter(value):
            before = self.__dict__.get(name)
            if isinstance(before, Tensor) and is_parameter(before):
                raise DTypeError(
                    f"{name}: this would replace a parameter of {type(self).__name__} by a tensor "
                    "that is not a parameter; write to the parameter with .assign(value), set an "
                    "nn.Parameter, or delete the attribute first"
                )
        object.__setattr__(self, name, value)
        if modes.is_watched(self, name):
            modes.changed()

    def __delattr__(self, name: str) -> None:
        object.__delattr__(self, name)
        if modes.is_watched(self, name):
            modes.changed()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the module's result. Subclasses override this.

        Parameters
        ----------
        *args, **kwargs
            Arguments of the call.

        Raises
        ------
        NotImplementedError
            The class does not define ``forward``.
        """
        raise NotImplementedError(
            f"{type(self).__name__}: expected the class to define forward, but it does not; define "
            "it, or call its submodules"
        )

    # ---- modes

    @property
    def training(self) -> bool:
        """Whether the module is in training mode; see :meth:`train`.

        Examples
        --------
        >>> layer = krt.nn.Dropout()
        >>> layer.training, layer.eval().training
        (True, False)
        """
        training: bool = self.__dict__.get("_training", True)
        modes.note(self, "_training", training, True)
        return training

    def train(self, mode: bool = True) -> Self:
        """Set training mode (or evaluation mode) for this module and all its submodules.

        Jitted functions that depend on the mode trace again.

        Parameters
        ----------
        mode : bool, default True
            True for training mode, False for evaluation mode.

        Returns
        -------
        Module
            This module.

        Examples
        --------
        >>> drop = krt.nn.Dropout(1.0)
        >>> drop.train()(krt.ones(2)).tolist(), drop.eval()(krt.ones(2)).tolist()
        ([0.0, 0.0], [1.0, 1.0])
        """
        mode = flag(mode, "mode")
        before = [module.__dict__.get("_training", True) for module in self.modules()]
        for module, was in zip(self.modules(), before, strict=True):
            modes.note_write(module, "_training", was, True)
            module.__dict__["_training"] = mode
        if any(was is not mode for was in before):
            modes.changed()
        return self

    def eval(self) -> Self:
        """Set evaluation mode, in which dropout does nothing, for this module and its submodules.

        Returns
        -------
        Module
            This module.

        Examples
        --------
        >>> krt.nn.Dropout(0.5).eval()(krt.ones(2)).tolist()
        [1.0, 1.0]
        """
        return self.train(False)

    # ---- contents

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        """Yield this module and all its submodules; see :meth:`named_modules`.

        Parameters
        ----------
        remove_duplicate : bool, default True
            Whether to yield a module that has several names only once.

        Examples
        --------
        >>> model = krt.nn.Sequential(krt.nn.Linear(4, 2), krt.nn.ReLU())
        >>> [type(module).__name__ for module in model.modules()]
        ['Sequential', 'Linear', 'ReLU']
        """
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """Yield (dotted name, module) for this module and all its submodules.

        Parameters
        ----------
        memo : set of Module, optional
            Modules to leave out. The method adds each module that it yields to this set, unless it
            is not hashable.
        prefix : str, default ""
            Prefix of each name, joined by a dot.
        remove_duplicate : bool, default True
            Whether to yield a module that has several names only once.

        Examples
        --------
        >>> model = krt.nn.Sequential(krt.nn.Linear(4, 2), krt.nn.ReLU())
        >>> [name for name, _ in model.named_modules()]
        ['', '0', '1']
        """
        once = flag(remove_duplicate, "remove_duplicate")
        # By id, as a class may define __eq__. A dict keeps the modules, so that ids stay unique.
        seen: dict[int, Module] = {id(module): module for module in memo or ()}
        for name, value in tree.named_objects(self, prefix):
            if isinstance(value, Module) and not (once and id(value) in seen):
                seen[id(value)] = value
                if memo is not None and isinstance(value, Hashable):
                    memo.add(value)
                yield name, value

    def parameters(self, recurse: bool = True) -> Iterator[Tensor]:
        """Yield each parameter of this module once, frozen or not; see :meth:`named_parameters`.

        Parameters
        ----------
        recurse : bool, default True
            Whether to include the parameters of submodules.

        Examples
        --------
        >>> [parameter.shape for parameter in krt.nn.Linear(4, 2).parameters()]
        [(2, 4), (2,)]
        """
        for _, tensor in self.named_parameters(recurse=recurse):
            yield tensor

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Yield (dotted name, tensor) for each parameter, frozen or not.

        Parameters
        ----------
        prefix : str, default ""
            Prefix of each name, joined by a dot.
        recurse : bool, default True
            Whether to include the parameters of submodules.
        remove_duplicate : bool, default True
            Whether to yield a tensor that has several names only once.

        Raises
        ------
        StateError
            A lazy layer has not created its parameters yet.

        Examples
        --------
        >>> [name for name, _ in krt.nn.Linear(4, 2).named_parameters("head")]
        ['head.weight', 'head.bias']
        """
        return self._named_tensors(prefix, recurse, remove_duplicate, parameters=True)

    def _named_tensors(
        self, prefix: str, recurse: bool, remove_duplicate: bool, *, parameters: bool
    ) -> Iterator[tuple[str, Tensor]]:
        outside = None if flag(recurse, "recurse") else Module
        once = flag(remove_duplicate, "remove_duplicate")
        seen: dict[int, Tensor] = {}
        for name, tensor in tree.named_tensors(self, prefix, outside=outside):
            if is_parameter(tensor) is parameters and not (once and id(tensor) in seen):
                seen[id(tensor)] = tensor
                yield name, tensor

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients of all parameters, or set them to zero.

        Parameters
        ----------
        set_to_none : bool, default True
            Whether ``grad`` becomes None instead of zeros.

        Examples
        --------
        >>> layer = krt.nn.Linear(1, 1)
        >>> layer(krt.ones(1)).sum().backward()
        >>> layer.zero_grad()
        >>> layer.weight.grad is None
        True
        """
        for tensor in tree.made_parameters(self):
            if set_to_none or tensor.grad is None:
                tensor.grad = None
            else:
                tensor.grad.zero_()

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Freeze the parameters of this module, or unfreeze them.

        Buffers, such as the running mean of a normalization layer, do not change; see
        :func:`kernelrt.nn.parameters`.

        Parameters
        ----------
        requires_grad : bool, default True
            False freezes.

        Returns
        -------
        Module
            This module.

        Examples
        --------
        >>> layer = krt.nn.Linear(4, 2).requires_grad_(False)
        >>> layer.weight.requires_grad, len(list(layer.parameters()))
        (False, 2)
        """
        for tensor in tree.made_parameters(self):
            tensor.requires_grad_(requires_grad)
        for module in self.modules():
            later = module.__dict__
            if tree.UNMADE in later:
                later[tree.UNMADE] = {**later[tree.UNMADE], "requires_grad": requires_grad}
        return self

    def register_buffer(self, name: str, tensor: Any, persistent: bool = True) -> None:
        """Set an attribute to a buffer, like ``self.name = tensor``.

        Registration is optional and exists for compatibility with PyTorch: every tensor attribute
        that requires no gradient is a buffer and part of the state.

        Parameters
        ----------
        name : str
            Name of the attribute.
        tensor : Tensor or None
            Value of the attribute.
        persistent : bool, default True
            Whether :meth:`state_dict` includes the buffer.

        Raises
        ------
        DTypeError
            `name` is not a valid attribute name, or `tensor` is neither a Tensor nor None.
        GradientError
            `tensor` requires a gradient, so that it would be a parameter.
        StateError
            The attribute exists and is not a buffer.

        Examples
        --------
        >>> layer = krt.nn.Linear(4, 2)
        >>> layer.register_buffer("calls", krt.tensor(0), persistent=False)
        >>> [name for name, _ in layer.named_buffers()], list(layer.state_dict())
        (['calls'], ['weight', 'bias'])
        """
        self._check_new(name, lambda old: isinstance(old, Tensor) and not is_parameter(old))
        if tensor is not None and not isinstance(tensor, Tensor):
            raise DTypeError(f"tensor: expected a Tensor or None, not {kind_name(tensor)}")
        if tensor is not None and tensor.requires_grad:
            raise GradientError(
                "tensor: expected a tensor that requires no gradient (it would be a parameter); "
                f"pass tensor.detach(), or set self.{name} = tensor"
            )
        if not persistent:
            self.__dict__[tree.TRANSIENT] = (*self.__dict__.get(tree.TRANSIENT, ()), name)
        setattr(self, name, tensor)

    def register_parameter(self, name: str, param: Any) -> None:
        """Set an attribute to a parameter, or to None: ``self.name = param``.

        Parameters
        ----------
        name : str
            Name of the attribute.
        param : Tensor or None
            A parameter, such as ``nn.Parameter(data)``.

        Raises
        ------
        DTypeError
            `name` is not a valid attribute name, or `param` is not a parameter.
        StateError
            The attribute exists and is not a parameter.

        Examples
        --------
        >>> layer = krt.nn.Linear(4, 2, bias=False)
        >>> layer.register_parameter("scale", krt.nn.Parameter(krt.ones(2)))
        >>> [name for name, _ in layer.named_parameters()]
        ['weight', 'scale']
        """
        self._check_new(name, lambda old: isinstance(old, Tensor) and is_parameter(old))
        if param is not None and not (isinstance(param, Tensor) and is_parameter(param)):
            raise DTypeError(
                f"param: expected a parameter or None, not {kind_name(param)}; make one with "
                "nn.Parameter"
            )
        setattr(self, name, param)

    def add_module(self, name: str, module: Any) -> None:
        """Set an attribute to a submodule, or to None: ``self.name = module``.

        Parameters
        ----------
        name : str
            Name of the attribute.
        module : Module or None
            The submodule.

        Raises
        ------
        DTypeError
            `name` is not a valid attribute name, or `module` is neither a Module nor None.
        StateError
            The attribute exists and is not a module.

        Examples
        --------
        >>> model = krt.nn.Sequential(krt.nn.Linear(4, 2))
        >>> model.add_module("activation", krt.nn.ReLU())
        >>> [name for name, _ in model.named_children()]
        ['0', 'activation']
        """
        self._check_new(name, lambda old: isinstance(old, Module))
        if module is not None and not isinstance(module, Module):
            raise DTypeError(f"module: expected a Module or None, not {kind_name(module)}")
        setattr(self, name, module)

    register_module = add_module

    def _check_new(self, name: object, is_alike: Callable[[object], bool]) -> None:
        """Raise an error if `name` is no attribute name, or `is_alike` is false for its value."""
        if not isinstance(name, str) or not name or "." in name:
            raise DTypeError(f"name: expected an attribute name without dots, not {name!r}")
        if hasattr(self, name):
            old = getattr(self, name)
            if old is not None and not is_alike(old):
                raise StateError(
                    f"name: {type(self).__name__} already has an attribute {name!r} of type "
                    f"{type(old).__name__}; choose another name"
                )

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Yield (name, module) for each direct submodule, each once.

        Examples
        --------
        >>> model = krt.nn.Sequential(krt.nn.Linear(4, 2), krt.nn.ReLU())
        >>> list(model.named_children())
        [('0', Linear(4, 2)), ('1', ReLU())]
        """
        seen: dict[int, Module] = {}
        for name, module in _direct_modules(self):
            if id(module) not in seen:
                seen[id(module)] = module
                yield name, module

    def children(self) -> Iterator[Module]:
        """Yield each direct submodule once.

        Examples
        --------
        >>> list(krt.nn.Sequential(krt.nn.Linear(4, 2), krt.nn.ReLU()).children())
        [Linear(4, 2), ReLU()]
        """
        for _, module in self.named_children():
            yield module

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Yield (dotted name, tensor) for each buffer: each tensor that is not a parameter.

        Parameters
        ----------
        prefix : str, default ""
            Prefix of each name, joined by a dot.
        recurse : bool, default True
            Whether to include the buffers of submodules.
        remove_duplicate : bool, default True
            Whether to yield a tensor that has several names only once.

        Examples
        --------
        >>> [name for name, _ in krt.nn.BatchNorm1d(3).named_buffers()]
        ['running_mean', 'running_var', 'num_batches_tracked']
        """
        return self._named_tensors(prefix, recurse, remove_duplicate, parameters=False)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Yield each buffer of this module once; see :meth:`named_buffers`.

        Parameters
        ----------
        recurse : bool, default True
            Whether to include the buffers of submodules.

        Examples
        --------
        >>> [buffer.shape for buffer in krt.nn.BatchNorm1d(3).buffers()]
        [(3,), (3,), ()]
        """
        for _, tensor in self.named_buffers(recurse=recurse):
            yield tensor

    def get_submodule(self, target: str) -> Module:
        """Return the submodule with a dotted name; an empty name means this module.

        Parameters
        ----------
        target : str
            Name, as :meth:`named_modules` yields it.

        Raises
        ------
        UnknownNameError
            There is no such submodule; the message lists some names that exist.

        Examples
        --------
        >>> model = krt.nn.Sequential(krt.nn.Linear(4, 2), krt.nn.ReLU())
        >>> model.get_submodule("0")
        Linear(4, 2)
        """
        return _found(self, dict(self.named_modules()), target, "module")

    def get_parameter(self, target: str) -> Tensor:
        """Return the parameter with a dotted name.

        Parameters
        ----------
        target : str
            Name, as :meth:`named_parameters` yields it.

        Raises
        ------
        UnknownNameError
            There is no such parameter; the message lists some names that exist.

        Examples
        --------
        >>> model = krt.nn.Sequential(krt.nn.Linear(4, 2), krt.nn.ReLU())
        >>> model.get_parameter("0.weight").shape
        (2, 4)
        """
        return _found(self, dict(self.named_parameters()), target, "parameter")

    def get_buffer(self, target: str) -> Tensor:
        """Return the buffer with a dotted name.

        Parameters
        ----------
        target : str
            Name, as :meth:`named_buffers` yields it.

        Raises
        ------
        UnknownNameError
            There is no such buffer; the message lists some names that exist.

        Examples
        --------
        >>> krt.nn.BatchNorm1d(3).get_buffer("running_mean").tolist()
        [0.0, 0.0, 0.0]
        """
        return _found(self, dict(self.named_buffers()), target, "buffer")

    def apply(self, fn: Callable[[Module], object]) -> Self:
        """Call `fn` once with every submodule, then with this module, and return the module.

        Parameters
        ----------
        fn : callable
            Function of a module; its result is ignored.

        Examples
        --------
        >>> def clear(module):
        ...     if isinstance(module, krt.nn.Linear):
        ...         krt.nn.init.zeros_(module.bias)
        >>> krt.nn.Sequential(krt.nn.Linear(4, 2)).apply(clear)[0].bias.tolist()
        [0.0, 0.0]
        """
        for module in reversed(list(self.modules())):
            fn(module)
        return self

    # ---- hooks

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> Handle:
        """Register a hook ``hook(module, args)`` that runs before :meth:`forward`.

        Parameters
        ----------
        hook : callable
            Returns None, or new arguments: a single argument or a tuple of them. With
            `with_kwargs` it is called as ``hook(module, args, kwargs)`` and returns None or
            ``(args, kwargs)``.
        prepend : bool, default False
            Whether the hook runs before the hooks that are already registered.
        with_kwargs : bool, default False
            Whether the hook receives the keyword arguments.

        Returns
        -------
        Handle
            Its ``remove()`` removes the hook.

        Examples
        --------
        >>> layer = krt.nn.ReLU()
        >>> handle = layer.register_forward_pre_hook(lambda module, args: -args[0])
        >>> layer(krt.tensor([-2.0, 3.0])).tolist()
        [2.0, 0.0]
        """
        return added(self, Hook(hook, True, with_kwargs), prepend)

    def register_forward_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False,
        always_call: bool = False,
    ) -> Handle:  # fmt: skip
        """Register a hook ``hook(module, args, result)`` that runs after :meth:`forward`.

        If the hook returns anything but None, this replaces the result. A jitted function that
        calls the module contains the tensor operations of its hooks, and is traced again after you
        add or remove a hook.

        Parameters
        ----------
        hook : callable
            With `with_kwargs` it is called as ``hook(module, args, kwargs, result)``.
        prepend : bool, default False
            Whether the hook runs before the hooks that are already registered.
        with_kwargs : bool, default False
            Whether the hook receives the keyword arguments.
        always_call : bool, default False
            Whether to call the hook also if forward or an earlier hook raises an exception. Then
            the hook gets None as the result; what it returns or raises is ignored.

        Returns
        -------
        Handle
            Its ``remove()`` removes the hook.

        Examples
        --------
        >>> layer = krt.nn.ReLU()
        >>> handle = layer.register_forward_hook(lambda module, args, result: result * 10)
        >>> layer(krt.tensor([-2.0, 3.0])).tolist()
        [0.0, 30.0]
        >>> handle.remove()
        >>> layer(krt.tensor([-2.0, 3.0])).tolist()
        [0.0, 3.0]
        """
        hook_ = Hook(hook, False, with_kwargs, flag(always_call, "always_call"))
        return added(self, hook_, prepend)

    # ---- types

    def to(
        self, *args: object, dtype: object = None, device: object = None, non_blocking: bool = False
    ) -> Self:
        """Convert the floating-point tensors of this module to another dtype.

        The module gets new tensors, so convert it before you pass its parameters to an optimizer.

        Parameters
        ----------
        *args : DType, str, Tensor
            A dtype, "cpu", or a tensor whose dtype to use.
        dtype, device : optional
            The same as keyword arguments.
        non_blocking : bool, default False
            Accepted for compatibility, without effect.

        Returns
        -------
        Module
            This module.

        Raises
        ------
        DTypeError
            The dtype is not a floating-point dtype.
        DeviceError
            The device is not the CPU.
        StateError
            A tensor is in a tuple or another immutable object.

        Examples
        --------
        >>> layer = krt.nn.Linear(4, 2).to(krt.float64)
        >>> layer.weight.dtype.name
        'float64'
        """
        del non_blocking
        wanted = type_of_to(args, dtype, device)
        return self if wanted is None else converted(self, wanted)

    def float(self) -> Self:
        """Convert the floating-point tensors to float32 and return this module; see :meth:`to`.

        Examples
        --------
        >>> krt.nn.Linear(4, 2, dtype="float64").float().weight.dtype.name
        'float32'
        """
        return converted(self, "float32")

    def double(self) -> Self:
        """Convert the floating-point tensors to float64 and return this module; see :meth:`to`.

        Examples
        --------
        >>> krt.nn.Linear(4, 2).double().weight.dtype.name
        'float64'
        """
        return converted(self, "float64")

    def half(self) -> Self:
        """Convert the floating-point tensors to float16 and return this module; see :meth:`to`.

        Examples
        --------
        >>> krt.nn.Linear(4, 2).half().weight.dtype.name
        'float16'
        """
        return converted(self, "float16")

    def bfloat16(self) -> Self:
        """Convert the floating-point tensors to bfloat16 and return this module; see :meth:`to`.

        Examples
        --------
        >>> krt.nn.Linear(4, 2).bfloat16().weight.dtype.name
        'bfloat16'
        """
        return converted(self, "bfloat16")

    def type(self, dst_type: object) -> Self:
        """Convert the floating-point tensors to another dtype and return this module.

        Parameters
        ----------
        dst_type : DType or str
            The dtype.

        Raises
        ------
        DTypeError
            `dst_type` is not a floating-point dtype.

        Examples
        --------
        >>> krt.nn.Linear(4, 2).type("float64").weight.dtype.name
        'float64'
        """
        return converted(self, dst_type)

    def cpu(self) -> Self:
        """Return this module, which is already on the CPU."""
        return self

    # ---- state

    @tree.walks
    def state_dict(
        self, *, destination: dict[str, Tensor] | None = None, prefix: str = "",
        keep_vars: bool = False,
    ) -> dict[str, Tensor]:  # fmt: skip
        """Return every tensor in this module by its dotted name, without copies.

        Tensors that require gradients are returned as detached views, which you can change in
        place. :func:`kernelrt.nn.save` writes the result to a file.

        Parameters
        ----------
        destination : dict, optional
            Dict that the tensors are added to, and that is returned. By default a new dict.
        prefix : str, default ""
            Prefix of each name. A dot is added if it does not end with one.
        keep_vars : bool, default False
            Whether to return the parameters themselves instead of detached views.

        Returns
        -------
        dict of str to Tensor
            Parameters and persistent buffers.

        Raises
        ------
        StateError
            A lazy layer has not created its parameters yet, or two tensors have the same name.

        Examples
        --------
        >>> state = krt.nn.Linear(4, 2).state_dict()
        >>> {name: tensor.shape for name, tensor in state.items()}
        {'weight': (2, 4), 'bias': (2,)}
        """
        found = tree.tensors_by_name(self, prefix.removesuffix("."))
        if not flag(keep_vars, "keep_vars"):
            found = {name: t.detach() if t.requires_grad else t for name, t in found.items()}
        if destination is None:
            return found
        destination.update(found)
        return destination

    @tree.walks
    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> state_dicts.IncompatibleKeys:
        """Copy values into the tensors of this module; see :func:`kernelrt.nn.load_state_dict`.

        Parameters
        ----------
        state_dict : mapping of str to array_like
            Tensors, arrays, or a state dict of PyTorch.
        strict : bool, default True
            Whether the names have to match those of :meth:`state_dict` exactly.
        assign : bool, default False
            Option of PyTorch: must be False.

        Returns
        -------
        IncompatibleKeys
            The missing and the unexpected names. If `strict` is true, both lists are empty.

        Raises
        ------
        StateError
            `strict` is true, and names are missing or unexpected. Or shapes or dtypes do not fit.
            Or `assign` is true, although optimizers and plans refer to the tensors of the module.

        Examples
        --------
        >>> layer = krt.nn.Linear(2, 1)
        >>> layer.load_state_dict({"weight": [[1.0, 2.0]], "bias": [3.0]})
        IncompatibleKeys(missing_keys=[], unexpected_keys=[])
        >>> layer(krt.ones(2)).tolist()
        [6.0]
        """
        if flag(assign, "assign"):
            raise StateError(
                "assign: expected False, because optimizers and plans refer to the tensors of the "
                "module; leave out assign to copy the values (after module.to(dtype) if the dtypes "
                "differ), or set the attribute, as in module.weight = nn.Parameter(value)"
            )
        return state_dicts.copy_into(self, state_dict, strict=strict)

    # ---- text

    def extra_repr(self) -> str:
        """Return the text between the parentheses of this module's repr; subclasses override it.

        Examples
        --------
        >>> krt.nn.Linear(4, 2).extra_repr()
        '4, 2'
        """
        return ""

    def _repr_html_(self) -> str | None:
        """Return a table of the submodules and their parameters, for notebooks."""
        return displays.html_of(self)

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


def _found(module: Module, known: Mapping[str, R], target: str, kind: str) -> R:
    if target not in known:
        raise UnknownNameError(
            f"target: {type(module).__name__} has no {kind} {target!r}; it has "
            f"{', '.join(repr(n) for n in list(known)[:8] if n) or 'none'}"
        )
    return known[target]


def _direct_modules(module: Module) -> Iterator[tuple[str, Module]]:
    for name, value in tree.children(module):
        if isinstance(value, Module):
            yield name, value
        elif isinstance(value, list | tuple | Mapping):
            for key, child in tree.children(value):
                if isinstance(child, Module):
                    yield f"{name}.{key}", child


def _not_a_tensor(
    module: Any, error: AttributeError, args: tuple[object, ...], kwargs: dict[str, object]
) -> DTypeError | None:
    """Return an error for an argument that should have been a Tensor, or None."""
    wrong = error.obj
    if isinstance(wrong, Tensor) or not hasattr(Tensor, str(error.name)):
        return None
    given = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    for name, value in given.items():
        if value is wrong:
            is_array = hasattr(value, "__array__") or hasattr(value, "__dlpack__")
            way = ", or pass it to a jitted function, which takes arrays" if is_array else ""
            return DTypeError(
                f"{name}: {type(module).__name__} expects a Tensor, not {kind_name(value)}; "
                f"convert it with kernelrt.tensor{way}"
            )
    return None
