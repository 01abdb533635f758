"""Optimizer, the base class: checks parameter groups, keeps the learning rate and the state."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypedDict, TypeVar

from kernelrt.device.dlpack import kind_name
from kernelrt.errors import (
    DTypeError,
    GradientError,
    JitError,
    ShapeError,
    UnknownNameError,
    a_type,
)
from kernelrt.nn import modes, state_dicts, tree
from kernelrt.nn.optim import member_hyperparameters, torch_state
from kernelrt.nn.optim.eager_steps import Steps
from kernelrt.nn.optim.hyperparameters import Hyper, non_negative, rules_of
from kernelrt.nn.optim.param_groups import IGNORED, Group, check_mapping
from kernelrt.tensor import Tensor, is_tracing
from kernelrt.tensor.base import is_parameter
from kernelrt.tensor.eager.assign import assign_all
from kernelrt.tensor.eager.realize import realize
from kernelrt.tensor.free_functions.creation import zeros_like
from kernelrt.tensor.nodes.arguments import flag
from kernelrt.tensor.state import enable_grad, local, no_grad
from kernelrt.util.unsupported_names import OPTIMIZER, install, near

if TYPE_CHECKING:
    from collections.abc import Hashable

    from kernelrt.nn.state_dicts import IncompatibleKeys

__all__ = ["Active", "Optimizer", "Params", "TorchOptions"]

_T = TypeVar("_T")

#: (index of the parameter, parameter, gradient) for each parameter that has a gradient.
Active = list[tuple[int, Tensor, Tensor]]

#: Parameters, (name, parameter) pairs, or parameter groups.
Params = Iterable[Tensor] | Iterable[tuple[str, Tensor]] | Iterable[dict[str, Any]]


class TorchOptions(TypedDict, total=False):
    """Implementation options of PyTorch's optimizers, which do not change the results."""

    foreach: bool | None
    capturable: bool
    fused: bool | None
    differentiable: bool


class Optimizer(Hyper):
    """Base class of optimizers.

    A step assigns new values to the parameters and the state. In most optimizers, each new element
    depends only on the elements at the same position, so one pass over memory updates a parameter
    together with its state. The constructor, not the first step, allocates the state. The state has
    memory of its own, which plans of jitted steps update in place.

    Parameters
    ----------
    params : iterable of Tensor, or of dict
        Parameters to optimize (see :func:`kernelrt.nn.parameters`), or parameter groups. A group is
        a dict with the key "params", and with "lr" and other hyperparameters that differ from those
        of the optimizer. A step skips parameters without a gradient, such as frozen ones.
    lr : float, Tensor or dict
        Learning rate. It is kept in a tensor that plans read, so setting ``optimizer.lr`` takes
        effect in the next step, jitted or not. A tensor of shape () is used itself, not copied. A
        dict holds the defaults of a class of your own, as in PyTorch's base class: "lr" and other
        hyperparameters, which your ``step`` reads from the groups.
    options : mapping of str to object, optional
        Hyperparameters for the groups that do not have their own.
    **ways : bool, optional
        ``foreach``, ``fused`` and ``capturable`` have no effect; ``differentiable=True`` raises an
        error.

    Attributes
    ----------
    param_groups : list of Group
        The groups. Each works like a dict: ``group["lr"] = 0.1``. The first time you change a
        number, jitted steps trace again; from then on they read it from memory.
    params : list of Tensor
        The parameters of all groups.

    Raises
    ------
    DTypeError
        `params` holds anything but floating-point tensors.
    GradientError
        A tensor is not a parameter, or ``differentiable`` is true.
    DomainError
        `lr` is negative, or another number is out of its range.
    ShapeError
        There are no parameters, or a parameter is given twice.
    UnknownNameError
        A group has a key that is not a hyperparameter of this optimizer.

    Examples
    --------
    Groups with different learning rates, one of which changes later:

    >>> model = krt.nn.Linear(2, 1)
    >>> opt = krt.optim.SGD([
    ...     {"params": [model.weight]},
    ...     {"params": [model.bias], "lr": 0.5},
    ... ], lr=0.25)
    >>> opt.param_groups[0]["lr"] = 0.125
    >>> [group["lr"] for group in opt.param_groups]
    [0.125, 0.5]

    An optimizer of your own defines ``step``:

    >>> class Signs(krt.optim.Optimizer):
    ...     def step(self):
    ...         with krt.no_grad():
    ...             for group in self.param_groups:
    ...                 for p in group["params"]:
    ...                     p.sub_(p.grad.sign() * group["lr"])
    >>> w = krt.tensor([1.0, -2.0], requires_grad=True)
    >>> opt = Signs([w], lr=0.25)
    >>> (w * w).sum().backward()
    >>> opt.step()
    >>> w.tolist()
    [0.75, -1.75]
    """

    def __init__(
        self, params: Params, lr: float | Tensor | Mapping[str, Any],
        options: Mapping[str, object] | None = None, **ways: object,
    ) -> None:  # fmt: skip
        _check_ways(type(self), ways)
        named = lr if isinstance(lr, Mapping) else {"lr": lr}
        self.defaults: dict[str, Any] = {"lr": 0.0, **named, **(options or {})}
        self._state: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)
        self._params: list[Tensor] = []
        self._groups: list[Group] = []
        self._size = 0
        given = _check_groups(params)
        for i, group in enumerate(given):
            self._add(group, f"params[{i}]['params']" if "grouped" in group else "params")

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "step" in vars(cls):  # a step of its own may keep anything in `state`
            setattr(cls, tree.KEEPS_MORE, True)

    @property
    def params(self) -> list[Tensor]:
        """The parameters of all groups."""
        self._note_size()
        return self._params

    @property
    def param_groups(self) -> list[Group]:
        """The parameter groups, each of which works like a dict."""
        self._note_size()
        return self._groups

    def add_param_group(self, param_group: Mapping[str, Any]) -> None:
        """Add a parameter group to the optimizer.

        Parameters
        ----------
        param_group : dict
            ``"params"``: a tensor or an iterable of tensors. The other keys are hyperparameters;
            their defaults are those given to the optimizer.

        Raises
        ------
        DTypeError
            ``"params"`` holds anything but floating-point tensors.
        JitError
            The call is inside a traced function.
        ShapeError
            A parameter is in the optimizer already.

        Examples
        --------
        >>> v, w = (krt.zeros(2, requires_grad=True) for _ in range(2))
        >>> opt = krt.optim.SGD([v], lr=0.25)
        >>> opt.add_param_group({"params": w, "lr": 0.5})
        >>> [group["lr"] for group in opt.param_groups]
        [0.25, 0.5]
        """
        if is_tracing():
            raise JitError(
                "add_param_group: cannot be called inside a traced function, because replays run "
                "no Python; call it outside of the function"
            )
        self._add(check_mapping(param_group, "param_group"), "param_group['params']")
        modes.changed()

    def _add(self, given: Mapping[str, Any], name: str) -> None:
        given = {**self.defaults, **{k: v for k, v in given.items() if k != "grouped"}}
        found = given.pop("params")
        params = _check_params([found] if isinstance(found, Tensor) and name != "params" else found,
                               name, self.params)  # fmt: skip
        if is_tracing():
            raise JitError(
                f"{type(self).__name__}: an optimizer cannot be created inside a traced function, "
                "because replays run no Python; create it outside and use it inside"
            )
        realize(*params)
        lr = given.pop("lr")
        names = [n for n in self.defaults if n != "lr"]
        self.param_groups.append(Group(type(self), params, lr, given, names))
        self.params.extend(params)
        self._size = len(self.params)

    @classmethod
    def _prepare(cls, group: Group) -> None:
        """Create the state of a group; check that its hyperparameters do not conflict."""

    @property
    def lr(self) -> float | Tensor:
        """Learning rate of the first group; inside a traced function, the tensor that holds it.

        Setting it sets the learning rate of all groups. It is a float, or a float64 array if each
        member of a population has its own.
        """
        rate: float | Tensor = self.param_groups[0]["lr"]
        return rate

    @lr.setter
    def lr(self, value: float | Tensor) -> None:
        for group in self.param_groups:
            group.set_rate(value, non_negative)

    @property
    def state(self) -> defaultdict[Tensor, dict[str, Any]]:
        """State of each parameter: a dict of names and values (moments, counters) by parameter.

        The optimizers of kernelrt keep their state in tensors that plans update; read it here. A
        class with a ``step`` of its own stores its state here; tensors and numbers are part of its
        :meth:`state_dict`.

        Examples
        --------
        >>> w = krt.tensor([1.0, -2.0], requires_grad=True)
        >>> opt = krt.optim.Adam([w])
        >>> sorted(opt.state[w]), opt.state[w]["exp_avg"].tolist()
        (['exp_avg', 'exp_avg_sq', 'step'], [0.0, 0.0])
        """
        for group in self.param_groups:
            for i, param in enumerate(group.params):
                for name, held in group.state.items():
                    self._state[param][name] = held[i]
        return self._state

    @property
    def _lr(self) -> Tensor:
        return self.param_groups[0].rate

    def _set_everywhere(self, name: str, value: object) -> None:
        before = [(group, group.__dict__["_" + name]) for group in self.param_groups]
        try:
            for group in self.param_groups:
                group[name] = value
        except BaseException:
            for group, old in before:
                if group.has_new(name, old):
                    group[name] = old
            raise

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients of all parameters, or replace them by zeros.

        Parameters
        ----------
        set_to_none : bool
            Whether to set each ``grad`` to None, so that the next step skips parameters without a
            new gradient. Otherwise each gradient becomes zeros.

        Examples
        --------
        >>> w = krt.tensor([1.0, -2.0], requires_grad=True)
        >>> opt = krt.optim.SGD([w])
        >>> (w * w).sum().backward()
        >>> opt.zero_grad(set_to_none=False)
        >>> w.grad.tolist()
        [0.0, 0.0]
        >>> opt.zero_grad()
        >>> w.grad is None
        True
        """
        for param in self.params:
            if set_to_none:
                param.grad = None
            elif (grad := param.grad) is not None:
                param.grad = zeros_like(grad)

    def step(self, closure: Callable[[], _T] | None = None) -> _T | None:
        """Update every parameter that has a gradient.

        Parameters
        ----------
        closure : callable, optional
            Function without arguments that is called first, to compute the gradients. The step
            returns its result.

        Returns
        -------
        object
            Result of `closure`; None without one.

        Examples
        --------
        >>> w = krt.tensor([1.0, -2.0], requires_grad=True)
        >>> opt = krt.optim.SGD([w], lr=0.25)
        >>> (w * w).sum().backward()
        >>> opt.step()
        >>> w.tolist()
        [0.5, -1.0]
        """
        loss: _T | None = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        active = [
            (i, param, grad)
            for i, param in enumerate(self.params)
            if (grad := param.grad) is not None
        ]
        with no_grad():
            trace = local.trace
            if not active:
                pass
            elif trace is not None or (numbers := self._numbers()) is None:
                self._update(active)
            else:
                self._steps.run(active, numbers)
            if trace is not None:
                for _, param, _ in active:
                    trace.use_up(param)
        return loss

    def _note_size(self) -> None:
        """Note the number of parameters for the trace: one more parameter needs a new plan."""
        if local.trace is not None:
            modes.note(self, "_size", self._size)

    #: Whether a step can be computed for each member of a population separately.
    per_member: ClassVar[bool] = True
    #: Set in each class whose update depends on no Python values but hyperparameters. A class
    #: counts only if it sets this itself: an update in a subclass may read other values.
    _plain: ClassVar[bool] = True

    def _numbers(self) -> Hashable:
        """Return the Python values that an update depends on, or None if they are not known."""
        if "_plain" not in vars(type(self)):
            return None  # a subclass may read other values
        groups = self.param_groups
        return groups[0].key() if len(groups) == 1 else tuple([g.key() for g in groups])

    @functools.cached_property
    def _steps(self) -> Steps:
        return Steps(self._update)

    def _update(self, active: Active) -> None:
        """Assign new values to parameters and state, given (index, parameter, gradient) tuples."""
        pairs: list[tuple[Tensor, Tensor]] = []
        start = 0
        for group in self.param_groups:
            end = start + len(group.params)
            part = [(i - start, p, g) for i, p, g in active if start <= i < end]
            if part:
                if group.get("maximize"):
                    part = [(i, p, -g) for i, p, g in part]
                modes.note(group, "members", group.members)
                if group.members is None:
                    pairs += self._changes(group, part)
                else:
                    vectors = group.vectors()
                    pairs += member_hyperparameters.changes(self._changes, group, part, vectors)
            start = end
        assign_all(pairs)

    def _changes(self, group: Group, active: Active) -> list[tuple[Tensor, Tensor]]:
        """Return (target, new value) pairs for parameters and state.

        The index of a parameter is its position in the group.
        """
        raise NotImplementedError(
            f"{type(self).__name__} does not define step(); define it in the subclass"
        )

    # ---- state

    def tree_items(self) -> Iterator[tuple[str, object]]:
        """Yield (name, tensor or list of tensors) for the state that a checkpoint needs."""
        groups = self.param_groups
        if len(groups) == 1:
            yield "lr", groups[0].rate
            yield from groups[0].state.items()
            return
        yield "lr", [g.rate for g in groups]
        for name in dict.fromkeys(n for g in groups for n in g.state):
            found: dict[str, Tensor] = {}
            start = 0
            for k, group in enumerate(groups):
                value = group.state.get(name, [])
                if isinstance(value, Tensor):
                    found[str(k)] = value
                else:
                    found |= {str(start + i): t for i, t in enumerate(value)}
                start += len(group.params)
            yield name, found

    @tree.walks
    def state_dict(self) -> dict[str, Tensor]:
        """Return learning rate, counters and moments by name: the tensors themselves, not copies.

        For a class with a ``step`` of its own the dict also holds the entries of :attr:`state`:
        tensors as "state.INDEX.NAME", with the index of the parameter, and numbers as
        "numbers.INDEX.NAME".

        Returns
        -------
        dict of str to Tensor
            Names such as "lr", "step" and "exp_avg.0", with the index of the parameter.

        Raises
        ------
        StateError
            A class of your own keeps anything but tensors and numbers in :attr:`state`.

        Examples
        --------
        >>> w = krt.tensor([1.0, -2.0], requires_grad=True)
        >>> sorted(krt.optim.Adam([w]).state_dict())
        ['exp_avg.0', 'exp_avg_sq.0', 'lr', 'step']
        """
        found = tree.tensors_by_name(self)
        if self._has_own_state():
            from kernelrt.nn.optim import user_state

            found |= user_state.collected(self)
        return found

    def _has_own_state(self) -> bool:
        return getattr(type(self), tree.KEEPS_MORE, False)

    @tree.walks
    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True
    ) -> IncompatibleKeys:
        """Copy values into the state, in place; see :func:`kernelrt.nn.load_state_dict`.

        Parameters
        ----------
        state_dict : mapping of str to array_like
            Result of :meth:`state_dict`. A state dict of PyTorch's optimizer of the same name is
            accepted, too; it also sets the hyperparameters.
        strict : bool
            Whether the names must be exactly those of :meth:`state_dict`.

        Returns
        -------
        IncompatibleKeys
            The missing and the unexpected names. If `strict` is true, both lists are empty.

        Raises
        ------
        StateError
            `strict` is true, and names are missing or unexpected. Or shapes or dtypes do not fit.
            Or the parameter groups of PyTorch's state dict have other sizes.

        Examples
        --------
        >>> w = krt.tensor([1.0, -2.0], requires_grad=True)
        >>> opt, other = krt.optim.SGD([w], lr=0.25), krt.optim.SGD([w], lr=0.5)
        >>> opt.load_state_dict(other.state_dict())
        IncompatibleKeys(missing_keys=[], unexpected_keys=[])
        >>> opt.lr
        0.5
        """
        given: object = state_dict
        is_torchs = isinstance(given, Mapping) and {"state", "param_groups"} <= set(given)
        found = torch_state.read(self.param_groups, state_dict) if is_torchs else state_dict
        if self._has_own_state() and isinstance(given, Mapping):
            from kernelrt.nn.optim import user_state

            more = user_state.of_torch(self, state_dict) if is_torchs else {}
            return user_state.taken(self, {**found, **more}, strict=strict)
        return state_dicts.copy_into(self, found, strict=strict)

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_steps"}

    def __repr__(self) -> str:
        names = ", ".join(f"{k}={v!r}" for k, v in self._options().items())
        groups = len(self.param_groups)
        count = f"{len(self.params)} parameters" + (f" in {groups} groups" if groups > 1 else "")
        return f"{type(self).__name__}({count}, {names})"

    def _options(self) -> dict[str, object]:
        """Return the hyperparameters of the first group."""
        group = self.param_groups[0]
        return {
            "lr": "traced" if is_tracing() else self.lr,
            **{name: group[name] for name in rules_of(type(self))},
        }


install(Optimizer, "an Optimizer of kernelrt", OPTIMIZER)


#: Names of hyperparameters in other libraries.
_ELSEWHERE: Final = {"learning_rate": "lr", "beta1": "betas", "beta2": "betas", "epsilon": "eps"}


def _unknown(kind: type, key: str) -> str:
    known = ["lr", *rules_of(kind)]
    meant = [n for n in (_ELSEWHERE.get(key), *near(key, known)) if n in known]
    word = f"; did you mean {meant[0]}?" if meant else ""
    return f"{kind.__name__}: unknown option {key!r}, expected one of {', '.join(known)}{word}"


def _check_ways(kind: type, ways: Mapping[str, object]) -> None:
    for key, value in ways.items():
        if key != "differentiable" and key not in IGNORED:
            raise UnknownNameError(_unknown(kind, key))
        if value is not None:
            flag(value, key)
    if ways.get("differentiable"):
        raise GradientError(
            "differentiable: expected False, as kernelrt does not differentiate steps; to "
            "differentiate an update, write it as tensor operations"
        )


def _check_groups(params: Params) -> list[Mapping[str, Any]]:
    """Return `params` as a list of groups."""
    if isinstance(params, Tensor) or not isinstance(params, Iterable):
        raise DTypeError(
            f"params: expected an iterable of Tensors, not {type(params).__name__}; pass "
            "kernelrt.nn.parameters(model)"
        )
    _check_order("params", params)
    items: list[Any] = list(params)
    if not items:
        raise ShapeError("params: expected at least one parameter, got none")
    if not isinstance(items[0], Mapping):
        return [{"params": items}]
    return [{**check_mapping(g, f"params[{i}]"), "grouped": True} for i, g in enumerate(items)]


def _check_order(name: str, params: object) -> None:
    if isinstance(params, AbstractSet) and not isinstance(params, KeysView | ItemsView):
        raise DTypeError(
            f"{name}: expected an ordered iterable, as state dicts identify parameters by position "
            f"and the order of {a_type(params)} differs between processes; pass a list"
        )


def _of_torch(value: object) -> str:
    """Return a hint for objects of PyTorch."""
    if not kind_name(value).startswith("torch."):
        return ""
    return (
        ", where model is built from kernelrt.nn; its load_state_dict() accepts the state_dict() "
        "of the PyTorch model"
    )


def _check_params(params: object, name: str, others: Iterable[Tensor]) -> list[Tensor]:
    if isinstance(params, Tensor) or not isinstance(params, Iterable):
        raise DTypeError(
            f"{name}: expected an iterable of Tensors, not {type(params).__name__}; pass "
            "kernelrt.nn.parameters(model)"
        )
    _check_order(name, params)
    checked: list[Tensor] = []
    seen = {id(p) for p in others}
    for i, given in enumerate(params):
        named = isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str)
        param = given[1] if named else given
        if not isinstance(param, Tensor):
            raise DTypeError(
                f"{name}[{i}]: expected a Tensor, not {kind_name(param)}; pass "
                f"kernelrt.nn.parameters(model){_of_torch(param)}"
            )
        if not is_parameter(param):
            if param.requires_grad:
                raise GradientError(
                    f"{name}[{i}]: expected a parameter, not the result of operations; pass the "
                    "tensors that it was computed from"
                )
            raise GradientError(
                f"{name}[{i}]: expected a parameter, but the tensor never required a gradient; "
                "create it with requires_grad=True"
            )
        if id(param) in seen:
            raise ShapeError(f"{name}[{i}]: the same tensor is given twice; pass it once")
        seen.add(id(param))
        checked.append(param)
    if not checked:
        raise ShapeError(f"{name}: expected at least one parameter, got none")
    return checked
