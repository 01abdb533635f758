"""Stacks modules of the same class into one module whose tensors have an axis for the members."""

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
    """Several modules of the same class as one module, whose tensors have a new first axis.

    :func:`stack_modules` makes a population. A call of the population calls all members at once,
    each with its slice of the inputs, like :func:`kernelrt.vmap`. Its parameters are trained like
    those of any module. Elementwise optimizers update each member exactly as they would update it
    alone.

    With the default axes, an input has shape ``(members, *)`` and an output ``(members, *)``, where
    ``(*)`` is the shape that a member takes or returns. ``len(population)`` is the number of
    members.

    Outside of jit, only one thread at a time may call a population, because its tensors stand for a
    single member during a call.

    Parameters
    ----------
    modules : sequence of Module
        The members, which are copied. They have the same class, and tensors of the same names,
        shapes and dtypes.
    in_axes, out_axes, randomness
        As in :func:`kernelrt.vmap`, for the arguments and results of the members.

    Attributes
    ----------
    members : Module
        A module like the members that holds the stacked tensors. Do not call it.
    in_axes, out_axes : int, None, or nested
        Axis of the members in arguments and results; None for a shared argument.

    Raises
    ------
    ShapeError
        There are no members.
    DTypeError
        A member is not a module.
    StateError
        The members differ in class, tensors or options.

    Examples
    --------
    >>> nn = krt.nn
    >>> pop = nn.Population([nn.Linear(3, 2), nn.Linear(3, 2)], in_axes=None)
    >>> len(pop), pop(krt.ones(4, 3)).shape
    (2, (2, 4, 2))
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
        """Map inputs ``(members, *)`` to outputs ``(members, *)``; keyword arguments are shared.

        Raises
        ------
        ShapeError
            `in_axes` has another number of entries than there are arguments.
        """
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
            raise ShapeError(
                f"in_axes: expected one entry for each of {len(args)} positional arguments, not "
                f"{len(axes)} entries"
            )
        call = func.vmap(one, (*axes, 0), self.out_axes, self.randomness, axis_size=self._count)
        return call(*args, tensors)

    def __len__(self) -> int:
        return self._count

    def member(self, index: int) -> Module:
        """Return one member as a module of its own, with copies of its tensors.

        Parameters
        ----------
        index : int
            Number of the member; negative numbers count from the end.

        Raises
        ------
        ShapeError
            The index is out of range.

        Examples
        --------
        >>> pop = krt.nn.stack_modules(lambda: krt.nn.Linear(3, 2), 5)
        >>> pop.member(-1).weight.shape
        (2, 3)
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
        """Copy the tensors of a module into one member.

        The state that optimizers keep for the member does not change.

        Parameters
        ----------
        index : int
            Number of the member; negative numbers count from the end.
        module : Module
            A module like the members.

        Raises
        ------
        ShapeError
            The index is out of range.
        StateError
            The tensors of the module are not like those of a member.

        Examples
        --------
        >>> pop = krt.nn.stack_modules(lambda: krt.nn.Linear(1, 1, bias=False), 2)
        >>> best = krt.nn.Linear(1, 1, bias=False)
        >>> _ = krt.nn.init.constant_(best.weight, 7.0)
        >>> pop.set_member(0, best)
        >>> pop.members.weight[0].tolist()
        [[7.0]]
        """
        forbid("set_member()")
        place = self._place(index)
        of_members = dict(named_tensors(self.members))
        given = dict(named_tensors(module))
        like = {name: _described(t, 1) for name, t in of_members.items()}
        found = {name: _described(t) for name, t in given.items()}
        if like != found:
            raise StateError(
                "module: expected a module with the tensors of a member, but "
                f"{_difference(like, found)}"
            )
        pairs = []
        for name, whole in of_members.items():
            rows = np.arange(self._count) == place
            here = Tensor(rows).reshape(self._count, *[1] * (whole.ndim - 1))
            pairs.append((whole, given[name].detach().where(here, whole.detach())))
        overwrite(pairs)

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> Tensor:
        """Clip the gradient norm of each member separately to `max_norm`.

        :func:`kernelrt.nn.utils.clip_grad_norm_` uses the norm of all members together.

        Parameters
        ----------
        max_norm : float
            Maximum norm of each member's gradients.
        norm_type : float, default 2.0
            Order of the norm; infinity is the maximum norm.

        Returns
        -------
        Tensor
            Norm of each member's gradients before clipping, of shape (members,).

        Raises
        ------
        DomainError
            `max_norm` is negative or not finite.

        Examples
        --------
        >>> pop = krt.nn.stack_modules(lambda: krt.nn.Linear(1, 1, bias=False), 2)
        >>> pop(krt.tensor([[3.0], [0.5]])).sum().backward()
        >>> pop.clip_grad_norm_(1.0).tolist()
        [3.0, 0.5]
        >>> pop.members.weight.grad.round(decimals=3).tolist()
        [[[1.0]], [[0.5]]]
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
            raise ShapeError(
                f"index: expected a number of a member, from {-self._count} to {self._count - 1}, "
                f"not {place}"
            )
        return place % self._count

    def extra_repr(self) -> str:
        """Return the number of members as text."""
        return f"{self._count} members"


def stack_modules(
    modules: Iterable[Module] | Callable[[], Module], count: int | None = None, *,
    in_axes: Any = 0, out_axes: Any = 0, randomness: str = "different",
) -> Population:  # fmt: skip
    """Stack modules into one that computes and trains all of them at once.

    Parameters
    ----------
    modules : iterable of Module, or callable
        The members, which are copied. Or a function that makes one member.
    count : int, optional
        Number of members to make, if `modules` is a function.
    in_axes : int, None, or a tuple of them, default 0
        Axis of each input that runs over the members; None for an input that all members share.
    out_axes : int, None, or nested, default 0
        Axis of the members in the results.
    randomness : {"different", "same", "error"}, default "different"
        Whether members draw different random numbers, for example in Dropout.

    Returns
    -------
    Population
        A module whose parameters and other tensors are those of the members, stacked along a new
        first axis.

    Raises
    ------
    ShapeError
        There are no members.
    DTypeError
        A member is not a module.
    StateError
        The members differ in class, tensors or options.

    Examples
    --------
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
            "modules: expected a list of modules, or a function that returns one module, not "
            f"{kind_name(modules)}; with a function, pass the number of modules as count="
        )
    elif count is not None:
        raise DTypeError("count: expected None, as `modules` is not a function to call repeatedly")
    else:
        made = list(modules)
    return Population(made, in_axes, out_axes, randomness)


def _begun(module: Module) -> Module:
    """Compute the tensors of a new module, and return it.

    Each draw of random numbers checks all lazy tensors, so many modules with lazy tensors would
    take long to make.
    """
    realize(*(t for _, t in named_tensors(module)))
    return module


def stacked_tensors(modules: Sequence[Module]) -> dict[str, Tensor]:
    """Return the tensors of modules that are alike, by name, stacked along a new first axis.

    A stack of parameters is a parameter; a stack of frozen parameters is frozen. A tensor with
    several names is returned under its first name.
    """
    forbid("stacking modules")
    if not modules:
        raise ShapeError("modules: expected at least one, got none")
    for i, module in enumerate(modules):
        if not isinstance(module, Module):
            raise DTypeError(f"modules[{i}]: expected a Module, not {kind_name(module)}")
    named = [dict(named_tensors(module)) for module in modules]
    first = {name: _described(t) for name, t in named[0].items()}
    text, shared = repr(modules[0]), _ties(named[0])
    for i, (module, tensors) in enumerate(zip(modules, named, strict=True)):
        found = {name: _described(t) for name, t in tensors.items()}
        if found != first:
            why = _difference(first, found)
            raise StateError(f"modules[{i}]: expected a module like the first one, but {why}")
        if type(module) is not type(modules[0]):
            raise StateError(
                f"modules[{i}]: expected a module of the same class as the first one, "
                f"{type(modules[0]).__qualname__}, not {type(module).__qualname__}"
            )
        ties = _ties(tensors)
        if ties != shared:
            name = next(n for n in ties if ties[n] != shared[n])
            ours, theirs = (_shared(name, names[name]) for names in (shared, ties))
            raise StateError(
                f"modules[{i}]: expected the tied tensors of the first module, where {name!r} is "
                f"{ours}; here {name!r} is {theirs}"
            )
        if repr(module) != text:
            raise StateError(
                f"modules[{i}]: expected a module that computes the same as the first one, {text}, "
                f"not {module!r}"
            )
    realize(*(t for tensors in named for t in tensors.values()))
    return {
        name: _copied(t, np.concatenate([_content(other[name]) for other in named]),
                      (len(modules), *t.shape))  # type: ignore[arg-type]
        for name, t in named[0].items() if shared[name] == name
    }  # fmt: skip


def _described(t: Tensor, skipped: int = 0) -> tuple[tuple[Any, ...], DType, bool, bool]:
    return t.shape[skipped:], t.dtype, is_parameter(t), is_parameter(t) and t.requires_grad


def _difference(first: dict[str, Any], found: dict[str, Any]) -> str:
    name = next(n for n in (*first, *found) if first.get(n) != found.get(n))
    if name not in found:
        return f"it lacks the tensor {name!r} ({_in_words(first[name])})"
    if name not in first:
        return f"it has the extra tensor {name!r} ({_in_words(found[name])})"
    return f"its tensor {name!r} is {_in_words(found[name])}, instead of {_in_words(first[name])}"


def _in_words(described: tuple[Any, ...]) -> str:
    shape, dtype, parameter, trained = described
    kind = "not a parameter" if not parameter else "a parameter" if trained else "frozen"
    return f"{dtype.name} of shape {shape}, {kind}"


def _ties(tensors: dict[str, Tensor]) -> dict[str, str]:
    """Map each name to the first name of the same tensor (tied weights)."""
    names: dict[int, str] = {}
    return {name: names.setdefault(id(t), name) for name, t in tensors.items()}


def _shared(name: str, first: str) -> str:
    return "a tensor of its own" if first == name else f"the tensor {first!r}"


def _content(t: Tensor) -> np.ndarray[Any, Any]:
    buffer = t._buffer  # noqa: SLF001 - reads the raw memory, of any dtype
    assert buffer is not None
    return buffer.content()


def _copied(like: Tensor, content: np.ndarray[Any, Any], shape: tuple[int, ...]) -> Tensor:
    """Return a tensor over a copy of `content`; a parameter if `like` is a parameter."""
    buffer = Buffer(content.size, like.dtype)
    buffer.content()[...] = content
    made = Tensor._over(buffer, shape)  # noqa: SLF001 - makes a tensor with its own memory
    if is_parameter(like):
        made._become_parameter(like.requires_grad)  # noqa: SLF001 - a new tensor
    return made
