"""Module, the base class of layers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
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
from kernelrt.util.unsupported_names import MODULE, install

__all__ = ["Module"]


P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")


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
                f"{name!r} is the name of no attribute; set the item of what holds it, as in "
                "module.layers[0] = ..."
            )
        if isinstance(value, Tensor) and not is_parameter(value):
            before = self.__dict__.get(name)
            if isinstance(before, Tensor) and is_parameter(before):
                raise DTypeError(
                    f"{name}: setting the attribute would replace a parameter of "
                    f"{type(self).__name__} by a tensor that is none; write to the parameter with "
                    ".assign(value), set an nn.Parameter, or delete the attribute first"
                )
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
        mode = flag(mode, "mode")
        before = [module.__dict__.get("_training", True) for module in self.modules()]
        for module, was in zip(self.modules(), before, strict=True):
            modes.note_write(module, "_training", was, True)
            module.__dict__["_training"] = mode
        if any(was is not mode for was in before):
            modes.changed()
        return self

    def eval(self) -> Self:
        """Put this module and those in it into evaluation mode: Dropout passes all through."""
        return self.train(False)

    # ---- contents

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        """Yield this module and every module in it; see :meth:`named_modules`."""
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """(dotted name, module) for this module and every module in it.

        Parameters
        ----------
        memo : set of Module, optional
            Modules to leave out; those that are yielded are added.
        prefix : str
            Put before each name, with a dot.
        remove_duplicate : bool
            Whether a module with several names is yielded once only.
        """
        once = flag(remove_duplicate, "remove_duplicate")
        seen: set[Module] = set() if memo is None else memo
        for name, value in tree.named_objects(self, prefix):
            if isinstance(value, Module) and not (once and value in seen):
                seen.add(value)
                yield name, value

    def parameters(self, recurse: bool = True) -> Iterator[Tensor]:
        """Yield each parameter of this module once, frozen or not; see :meth:`named_parameters`."""
        for _, tensor in self.named_parameters(recurse=recurse):
            yield tensor

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """(dotted name, tensor) for each parameter, frozen or not.

        Parameters
        ----------
        prefix : str
            Put before each name, with a dot.
        recurse : bool
            Whether parameters of the modules in this one are among them.
        remove_duplicate : bool
            Whether a tensor with several names is yielded once only.
        """
        return self._named_tensors(prefix, recurse, remove_duplicate, parameters=True)

    def _named_tensors(
        self, prefix: str, recurse: bool, remove_duplicate: bool, *, parameters: bool
    ) -> Iterator[tuple[str, Tensor]]:
        outside = None if flag(recurse, "recurse") else Module
        once = flag(remove_duplicate, "remove_duplicate")
        seen: set[int] = set()
        for name, tensor in tree.named_tensors(self, prefix, outside=outside):
            if is_parameter(tensor) is parameters and not (once and id(tensor) in seen):
                seen.add(id(tensor))
                yield name, tensor

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters; or set them to zeros."""
        for tensor in tree.made_parameters(self):
            if set_to_none or tensor.grad is None:
                tensor.grad = None
            else:
                tensor.grad.zero_()

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Freeze the parameters of this module, or let gradients be collected for them again.

        Other tensors, as the running mean of a normalization, stay what they are; see
        :func:`kernelrt.nn.parameters`.
        """
        for tensor in tree.made_parameters(self):
            tensor.requires_grad_(requires_grad)
        for module in self.modules():
            later = module.__dict__
            if tree.UNMADE in later:
                later[tree.UNMADE] = {**later[tree.UNMADE], "requires_grad": requires_grad}
        return self

    def register_buffer(self, name: str, tensor: Any, persistent: bool = True) -> None:
        """Set an attribute, as PyTorch's modules want to be told: ``self.name = tensor``.

        A tensor that requires no gradient is part of the state and no parameter, however it became
        an attribute.

        Parameters
        ----------
        name : str
            Of the attribute.
        tensor : Tensor or None
            Its value.
        persistent : bool
            Whether :meth:`state_dict` has it.

        Raises
        ------
        DTypeError
            `name` is no name of an attribute, or `tensor` is something else.
        GradientError
            `tensor` requires a gradient, so that it would be a parameter.
        StateError
            There is such an attribute, and it is no buffer.
        """
        self._check_new(name, lambda old: isinstance(old, Tensor) and not is_parameter(old))
        if tensor is not None and not isinstance(tensor, Tensor):
            raise DTypeError(f"tensor: expected a Tensor or None, not {kind_name(tensor)}")
        if tensor is not None and tensor.requires_grad:
            raise GradientError(
                "tensor: requires a gradient and would be a parameter; give tensor.detach(), or "
                f"set self.{name} = tensor"
            )
        if not persistent:
            self.__dict__[tree.TRANSIENT] = (*self.__dict__.get(tree.TRANSIENT, ()), name)
        setattr(self, name, tensor)

    def register_parameter(self, name: str, param: Any) -> None:
        """Set an attribute to a parameter, or to None: ``self.name = param``.

        Raises
        ------
        DTypeError
            `name` is no name of an attribute, or `param` is no parameter.
        StateError
            There is such an attribute, and it is no parameter.
        """
        self._check_new(name, lambda old: isinstance(old, Tensor) and is_parameter(old))
        if param is not None and not (isinstance(param, Tensor) and is_parameter(param)):
            raise DTypeError(
                f"param: expected a parameter or None, not {kind_name(param)}; make one with "
                "nn.Parameter"
            )
        setattr(self, name, param)

    def add_module(self, name: str, module: Any) -> None:
        """Set an attribute to a module, or to None: ``self.name = module``."""
        self._check_new(name, lambda old: isinstance(old, Module))
        if module is not None and not isinstance(module, Module):
            raise DTypeError(f"module: expected a Module or None, not {kind_name(module)}")
        setattr(self, name, module)

    register_module = add_module

    def _check_new(self, name: object, is_alike: Callable[[object], bool]) -> None:
        """Names are texts without dots; what has one already gives way to its like alone."""
        if not isinstance(name, str) or not name or "." in name:
            raise DTypeError(f"name: expected the name of an attribute, not {name!r}")
        if hasattr(self, name):
            old = getattr(self, name)
            if old is not None and not is_alike(old):
                raise StateError(f"name: {type(self).__name__} has {name!r} already")

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """(name, module) for each module directly in this one, each once."""
        seen: set[int] = set()
        for name, module in _direct_modules(self):
            if id(module) not in seen:
                seen.add(id(module))
                yield name, module

    def children(self) -> Iterator[Module]:
        """Yield each module directly in this one once."""
        for _, module in self.named_children():
            yield module

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """(dotted name, tensor) for each tensor in this module that is no parameter.

        Parameters are those of :meth:`named_parameters`.
        """
        return self._named_tensors(prefix, recurse, remove_duplicate, parameters=False)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Yield each tensor in this module that is no parameter once."""
        for _, tensor in self.named_buffers(recurse=recurse):
            yield tensor

    def get_submodule(self, target: str) -> Module:
        """Give the module of a dotted name; this one for an empty name."""
        return _found(self, dict(self.named_modules()), target, "module")

    def get_parameter(self, target: str) -> Tensor:
        """Give the parameter of a dotted name."""
        return _found(self, dict(self.named_parameters()), target, "parameter")

    def get_buffer(self, target: str) -> Tensor:
        """Give the tensor of a dotted name that is no parameter."""
        return _found(self, dict(self.named_buffers()), target, "buffer")

    def apply(self, fn: Callable[[Module], object]) -> Self:
        """Call `fn` with every module in this one, each once, and last with this one."""
        for module in reversed(list(self.modules())):
            fn(module)
        return self

    # ---- hooks

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> Handle:
        """Let ``hook(module, args)`` be called before :meth:`forward`; what it gives replaces args.

        Parameters
        ----------
        hook : callable
            Gives None, an argument or a tuple of them; with `with_kwargs` it is called with
            ``(module, args, kwargs)`` and gives None or both.
        prepend : bool
            Whether it comes before the hooks that are there.
        with_kwargs : bool
            Whether it sees keyword arguments.

        Returns
        -------
        Handle
            Its ``remove()`` takes the hook away.
        """
        return added(self, Hook(hook, True, with_kwargs), prepend)

    def register_forward_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False,
        always_call: bool = False,
    ) -> Handle:  # fmt: skip
        """Let ``hook(module, args, result)`` be called after :meth:`forward`.

        What it gives, unless None, is the result. A jitted function is traced again where hooks
        changed, and its traces hold what they computed.

        Parameters
        ----------
        hook : callable
            With `with_kwargs` it is called with ``(module, args, kwargs, result)``.
        prepend : bool
            Whether it comes before the hooks that are there.
        with_kwargs : bool
            Whether it sees keyword arguments.
        always_call : bool
            Whether it is also called, with None as the result, where forward or a hook before it
            raises; what it gives or raises then is left aside.

        Returns
        -------
        Handle
            Its ``remove()`` takes the hook away.
        """
        hook_ = Hook(hook, False, with_kwargs, flag(always_call, "always_call"))
        return added(self, hook_, prepend)

    # ---- types

    def to(
        self, *args: object, dtype: object = None, device: object = None, non_blocking: bool = False
    ) -> Self:
        """Convert the floating-point tensors of this module to another type.

        They become other tensors: do it before an optimizer takes them.

        Parameters
        ----------
        *args : DType, str, Tensor
            A type, "cpu", or a tensor of such a type.
        dtype, device : optional
            The same by name.
        non_blocking : bool
            Accepted, and without a meaning on the CPU.
        """
        del non_blocking
        wanted = type_of_to(args, dtype, device)
        return self if wanted is None else converted(self, wanted)

    def float(self) -> Self:
        """Convert to float32; see :meth:`to`."""
        return converted(self, "float32")

    def double(self) -> Self:
        """Convert to float64; see :meth:`to`."""
        return converted(self, "float64")

    def half(self) -> Self:
        """Convert to float16; see :meth:`to`."""
        return converted(self, "float16")

    def bfloat16(self) -> Self:
        """Convert to bfloat16; see :meth:`to`."""
        return converted(self, "bfloat16")

    def type(self, dst_type: object) -> Self:
        """Convert to `dst_type`; see :meth:`to`."""
        return converted(self, dst_type)

    def cpu(self) -> Self:
        """Give this module, which is on the CPU."""
        return self

    # ---- state

    @tree.walks
    def state_dict(
        self, *, destination: dict[str, Tensor] | None = None, prefix: str = "",
        keep_vars: bool = False,
    ) -> dict[str, Tensor]:  # fmt: skip
        """Every tensor in this module by its dotted name, without copies.

        Those that require gradients are given as detached views, which can be changed in place.

        Parameters
        ----------
        destination : dict, optional
            What the tensors are put into and is given back, in the place of a new dict.
        prefix : str
            Put before each name; where it does not end with a dot, with one.
        keep_vars : bool
            Give the parameters themselves instead of views.
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

        Raises
        ------
        StateError
            `assign` is true: modules keep their tensors, which optimizers and plans hold.
        """
        if flag(assign, "assign"):
            raise StateError(
                "assign: a module keeps its tensors, which optimizers and plans hold; leave it "
                "out to copy the values, after module.to(dtype) where types differ, or set the "
                "attribute, as in module.weight = nn.Parameter(value)"
            )
        return state_dicts.copy_into(self, state_dict, strict=strict)

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
