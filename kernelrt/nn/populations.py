"""Stacks modules of one kind into one whose tensors have an axis for the members."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelrt.device.buffer import Buffer
from kernelrt.device.dlpack import kind_name
from kernelrt.errors import DTypeError, ShapeError, StateError
from kernelrt.nn.module import Module
from kernelrt.nn.optim.hyperparameters import non_negative
from kernelrt.nn.state_dicts import overwrite
from kernelrt.nn.tree import named_tensors
from kernelrt.tensor import Tensor
from kernelrt.tensor.base import is_parameter
from kernelrt.tensor.eager.realize import realize
from kernelrt.tensor.free_functions.creation import zeros
from kernelrt.tensor.free_functions.joining import stack
from kernelrt.tensor.nodes.arguments import integer
from kernelrt.tensor.state import no_grad
from kernelrt.tensor.tracing.trace import forbid
from kernelrt.util.lazy_import import load

if TYPE_CHECKING:
    from kernelrt.dtype import DType

__all__ = ["Population", "stack_modules", "stacked_tensors"]


class Population(Module):
    """Modules of one kind as one, whose tensors have a first axis for the members.

    Called, it calls all members at once, each with its slice of the inputs, as does
    :func:`kernelrt.vmap`. Its parameters are trained like any other's: what optimizers do with each
    element alone is what they would do with each member alone. Made by :func:`stack_modules`.

    While it is called without jit, its tensors stand for one member: one thread at a time calls it.

    Parameters
    ----------
    modules : sequence of Module
        The members: of one class, with tensors of the same names, shapes and types. They are
        copied.
    in_axes, out_axes, randomness
        As of :func:`kernelrt.vmap`, for the arguments and results of the members.

    Attributes
    ----------
    members : Module
        A module like the members, with the tensors of all. It is no module to be called.
    in_axes, out_axes : int, None, or nested
        Where the axis of the members is; None for what they share.
    """

    def __init__(
        self, modules: Sequence[Module], in_axes: Any = 0, out_axes: Any = 0,
        randomness: str = "different",
    ) -> None:  # fmt: skip
        stacked = stacked_tensors(modules)
        own = dict(named_tensors(modules[0]))
        memo: dict[int, Any] = {id(own[name]): tensor for name, tensor in stacked.items()}
        self.members = copy.deepcopy(modules[0], memo)
        self.in_axes, self.out_axes, self.randomness = in_axes, out_axes, randomness
        self._count = len(modules)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call all members, each with its slices of `args`; keyword arguments are shared."""
        load("kernelrt.func")
        func = sys.modules["kernelrt.func"]
        tensors = list({id(t): t for _, t in named_tensors(self.members)}.values())

        def one(*given: Any) -> Any:
            *inputs, own = given
            new = {id(t): o for t, o in zip(tensors, own, strict=True)}
            return func.modules.call_with(
                self.members, new, lambda: self.members(*inputs, **kwargs)
            )

        axes = self.in_axes
        if not isinstance(axes, tuple | list):
            axes = [axes] * len(args)
        elif len(axes) != len(args):
            raise ShapeError(f"in_axes: {len(axes)} entries for {len(args)} arguments")
        call = func.vmap(one, (*axes, 0), self.out_axes, self.randomness, axis_size=self._count)
        return call(*args, tensors)

    def __len__(self) -> int:
        return self._count

    def member(self, index: int) -> Module:
        """A module of its own with copies of one member's tensors.

        Raises
        ------
        ShapeError
            There is no such member.
        """
        place = self._place(index)
        tensors = {id(t): t for _, t in named_tensors(self.members)}
        realize(*tensors.values())
        memo: dict[int, Any] = {
            key: _copied(t, _content(t).reshape(self._count, -1)[place], t.shape[1:])  # type: ignore[arg-type]
            for key, t in tensors.items()
        }
        return copy.deepcopy(self.members, memo)

    def set_member(self, index: int, module: Module) -> None:
        """Give one member the values of a module's tensors.

        What optimizers keep of it stays what it is.

        Raises
        ------
        ShapeError
            There is no such member.
        StateError
            The module has not the tensors of a member.
        """
        forbid("set_member()")
        place = self._place(index)
        of_members = dict(named_tensors(self.members))
        given = dict(named_tensors(module))
        like = {name: _described(t, 1) for name, t in of_members.items()}
        found = {name: _described(t) for name, t in given.items()}
        if like != found:
            raise StateError(f"module: it is not like the members: {_difference(like, found)}")
        pairs = []
        for name, whole in of_members.items():
            rows = np.arange(self._count) == place
            here = Tensor(rows).reshape(self._count, *[1] * (whole.ndim - 1))
            pairs.append((whole, given[name].detach().where(here, whole.detach())))
        overwrite(pairs)

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> Tensor:
        """Scale down the gradients of each member whose norm is above `max_norm`.

        :func:`kernelrt.nn.utils.clip_grad_norm_` takes the norm of all members together.

        Parameters
        ----------
        max_norm : float
            The norm that each member may have.
        norm_type : float
            Order of the norm; infinity is the greatest size.

        Returns
        -------
        Tensor
            The norm of each member before, of shape (members,).
        """
        most = non_negative("max_norm", max_norm)
        pairs = [(p, g) for p in self.parameters() if (g := p.grad) is not None]
        with no_grad():
            flat = [g.reshape(self._count, -1).norm(norm_type, 1) for _, g in pairs]
            if not flat:
                return zeros(self._count)
            norms = stack(flat).norm(norm_type, 0)
            factor = (most / (norms + 1e-6)).clamp(max=1.0)
            for param, grad in pairs:
                by = factor.reshape(self._count, *[1] * (grad.ndim - 1)).cast(grad.dtype)
                param.grad = grad * by
        return norms

    def _place(self, index: object) -> int:
        place = integer(index, "index")
        if not -self._count <= place < self._count:
            raise ShapeError(f"index: there are {self._count} members, and no number {place}")
        return place % self._count

    def extra_repr(self) -> str:
        """Give how many members there are."""
        return f"{self._count} members"


def stack_modules(
    modules: Iterable[Module] | Callable[[], Module], count: int | None = None, *,
    in_axes: Any = 0, out_axes: Any = 0, randomness: str = "different",
) -> Population:  # fmt: skip
    """One module of many, which computes them, and is trained, all at once.

    Parameters
    ----------
    modules : iterable of Module, or callable
        The members, which are copied; or what makes one of them.
    count : int, optional
        How many are made, where `modules` makes them.
    in_axes : int, None, or a tuple of them
        The axis of each input that runs over the members; None for an input that all share.
    out_axes : int, None, or nested
        Where that axis is in the results.
    randomness : {"different", "same", "error"}
        Whether members draw numbers of their own, as Dropout does.

    Returns
    -------
    Population
        Its parameters and other tensors are those of the members, with the members along a new
        first axis.

    Raises
    ------
    ShapeError
        There are no members.
    DTypeError
        They are no modules.
    StateError
        They are not alike.

    Examples
    --------
    >>> import kernelrt as krt
    >>> nn = krt.nn
    >>> pop = nn.stack_modules(lambda: nn.Linear(3, 2), 5)
    >>> pop(krt.ones(5, 4, 3)).shape, pop.members.weight.shape
    ((5, 4, 2), (5, 2, 3))
    >>> pop.member(0)
    Linear(3, 2)
    """
    if callable(modules) and not isinstance(modules, Module):
        n = integer(count, "count", 1)
        made = [_begun(modules()) for _ in range(n)]
    elif isinstance(modules, Module) or not isinstance(modules, Iterable):
        raise DTypeError(
            f"modules: expected several modules, or a function that makes one, and count=, not "
            f"{kind_name(modules)}"
        )
    elif count is not None:
        raise DTypeError("count: it is how often a function is called; the modules are given")
    else:
        made = list(modules)
    return Population(made, in_axes, out_axes, randomness)


def _begun(module: Module) -> Module:
    """A new module with its values computed: what waits is looked at with each draw."""
    realize(*(t for _, t in named_tensors(module)))
    return module


def stacked_tensors(modules: Sequence[Module]) -> dict[str, Tensor]:
    """The tensors of modules that are alike, by name, with the modules along a new first axis.

    Parameters are parameters, frozen where they are; of a tensor with several names the first
    counts.
    """
    forbid("stacking modules")
    if not modules:
        raise ShapeError("modules: expected at least one, got none")
    for i, module in enumerate(modules):
        if not isinstance(module, Module):
            raise DTypeError(f"modules[{i}]: expected a Module, not {kind_name(module)}")
    named = [dict(named_tensors(module)) for module in modules]
    first = {name: _described(t) for name, t in named[0].items()}
    text = repr(modules[0])
    for i, (module, tensors) in enumerate(zip(modules, named, strict=True)):
        found = {name: _described(t) for name, t in tensors.items()}
        if type(module) is not type(modules[0]) or found != first:
            why = _difference(first, found)
            raise StateError(f"modules[{i}]: it is not like the first one: {why}")
        if repr(module) != text or _ties(tensors) != _ties(named[0]):
            raise StateError(
                f"modules[{i}]: it is not like the first one, but computes something else: "
                f"{module!r}, not {text}"
            )
    realize(*(t for tensors in named for t in tensors.values()))
    ties = _ties(named[0])
    return {
        name: _copied(t, np.concatenate([_content(other[name]) for other in named]),
                      (len(modules), *t.shape))  # type: ignore[arg-type]
        for name, t in named[0].items() if ties[name] == name
    }  # fmt: skip


def _described(t: Tensor, skipped: int = 0) -> tuple[tuple[Any, ...], DType, bool, bool]:
    return t.shape[skipped:], t.dtype, is_parameter(t), is_parameter(t) and t.requires_grad


def _difference(first: dict[str, Any], found: dict[str, Any]) -> str:
    for name in dict.fromkeys((*first, *found)):
        if first.get(name) != found.get(name):
            ours, theirs = (_in_words(d.get(name)) for d in (first, found))
            return f"{name!r} is {theirs}, expected {ours}"
    return "it is of another class"


def _in_words(described: tuple[Any, ...] | None) -> str:
    if described is None:
        return "not there"
    shape, dtype, parameter, trained = described
    kind = "no parameter" if not parameter else "a parameter" if trained else "frozen"
    return f"{dtype.name} of shape {shape}, {kind}"


def _ties(tensors: dict[str, Tensor]) -> dict[str, str]:
    """For each name the first one of the same tensor."""
    names: dict[int, str] = {}
    return {name: names.setdefault(id(t), name) for name, t in tensors.items()}


def _content(t: Tensor) -> np.ndarray[Any, Any]:
    buffer = t._buffer  # noqa: SLF001 - read as it lies there, of any type
    assert buffer is not None
    return buffer.content()


def _copied(like: Tensor, content: np.ndarray[Any, Any], shape: tuple[int, ...]) -> Tensor:
    """A tensor over a copy of `content`, a parameter where `like` is one."""
    buffer = Buffer(content.size, like.dtype)
    buffer.content()[...] = content
    made = Tensor._over(buffer, shape)  # noqa: SLF001 - tensors of their own memory
    if is_parameter(like):
        made.requires_grad_()
        made.requires_grad_(like.requires_grad)
    return made
