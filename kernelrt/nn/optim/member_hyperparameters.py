"""Hyperparameters with one value for each member of a population.

They are vectors over the first axis of the parameters. An update with such is computed as that of
one member, called for all of them at once: so whatever it computes, norms and products of matrices
included, is computed of each member alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kernelrt.errors import DTypeError, ShapeError
from kernelrt.ir.shape import format_shape
from kernelrt.tensor import Tensor
from kernelrt.tensor.free_functions.creation import refuse_masked
from kernelrt.util.lazy_import import load

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kernelrt.nn.optim.hyperparameters import Hyperparameter
    from kernelrt.nn.optim.optimizer import Active
    from kernelrt.nn.optim.param_groups import Group

__all__ = ["changes", "check_fit", "checked", "is_vector", "numbers_of", "sizes_of"]


def is_vector(value: object) -> bool:
    """Whether a value has one number for each member."""
    return isinstance(value, Tensor | np.ndarray) and value.ndim == 1


def numbers_of(name: str, value: Any) -> np.ndarray[Any, Any]:
    """The numbers of a vector, in float64.

    Raises
    ------
    DTypeError
        It does not hold numbers.
    """
    refuse_masked(value, name)
    found = value.detach().double().numpy() if isinstance(value, Tensor) else np.asarray(value)
    if found.dtype.kind not in "fiu":
        raise DTypeError(f"{name}: expected numbers, one for each member, not {found.dtype}")
    return found.astype(np.float64)


def checked(name: str, value: Any, rule: Hyperparameter[Any]) -> Any:
    """A hyperparameter in which vectors may stand for numbers, as arrays."""
    parts = value if isinstance(value, tuple | list) else (value,)
    if not any(map(is_vector, parts)):
        return rule.check(name, value)
    if not rule.live:
        raise DTypeError(
            f"{name}: it says how steps are computed, which is one for all members; give one value"
        )
    arrays = [numbers_of(name, p) if is_vector(p) else p for p in parts]
    (count,) = sizes_of(name, arrays)
    for k in range(count):
        each = tuple(p[k] if is_vector(p) else p for p in arrays)
        rule.check(name, each if isinstance(value, tuple | list) else each[0])
    made = tuple(p if is_vector(p) else float(p) for p in arrays)
    return made if isinstance(value, tuple | list) else made[0]


def sizes_of(name: str, value: Any) -> set[int]:
    """How many members the vectors in a value are for: one number, or none without vectors.

    Raises
    ------
    ShapeError
        They disagree.
    """
    parts = value if isinstance(value, tuple | list) else (value,)
    found = {int(p.shape[0]) for p in parts if is_vector(p)}
    if len(found) > 1:
        raise ShapeError(
            f"{name}: vectors of {' and '.join(map(str, sorted(found)))} numbers; give each one "
            "number for each member"
        )
    return found


def check_fit(kind: type[Any], params: Sequence[Tensor], name: str, count: int) -> None:
    """Raise ShapeError where `params` are not those of `count` members."""
    if not kind.per_member:
        raise ShapeError(
            f"{name}: {kind.__name__} makes one step of all parameters together, so it cannot have "
            f"{count} values, one for each member; give one number"
        )
    for i, param in enumerate(params):
        if not param.ndim or param.dims[0] != count:
            raise ShapeError(
                f"{name}: it has {count} values, one for each member, but params[{i}] has the "
                f"shape {format_shape(param.dims)}; its first axis would have to be {count}, as of "
                "what kernelrt.nn.stack_modules makes"
            )


def changes(
    compute: Callable[[Group, Active], list[tuple[Tensor, Tensor]]], group: Group, active: Active,
    vectors: Mapping[str, Tensor],
) -> list[tuple[Tensor, Tensor]]:  # fmt: skip
    """(target, value) for each parameter and its state, where each member has its own numbers.

    Parameters
    ----------
    compute : callable
        Gives these pairs for one member, of a group of its tensors.
    group : Group
        The group of all members.
    active : list of (int, Tensor, Tensor)
        Index of a parameter, the parameter, its gradient.
    vectors : mapping of str to Tensor
        The attributes of the group that have a number for each member; pairs of numbers with a dot.
    """
    load("kernelrt.tensor.tracing.vmap_trace")
    from kernelrt.tensor.tracing.vmap_trace import ERROR, MemberTrace

    count = group.members
    assert count is not None
    trace = MemberTrace(count, ERROR, Tensor)
    states = [t for held in group.state.values() if isinstance(held, list) for t in held]
    for name, held in group.state.items():
        if isinstance(held, list) and any(
            s.dims != p.dims for s, p in zip(held, group.params, strict=True)
        ):
            raise ShapeError(
                f"{group.called}: its state {name!r} has not the shapes of the parameters, so "
                "members cannot have values of their own; give one value for all"
            )
    whole = [*group.params, *(g for _, _, g in active), *states, *vectors.values()]
    stacks = {id(t): t.uop for t in whole}
    with trace:
        inside: dict[int, Any] = {key: trace.member(node) for key, node in stacks.items()}
        one = group.of_member(inside)
        pairs = compute(one, [(i, inside[id(p)], inside[id(g)]) for i, p, g in active])
        nodes = [value.uop for _, value in pairs]
    targets = {id(inside[id(t)]): t for t in (*group.params, *states)}
    found = []
    for (target, _), made in zip(pairs, trace.spread(nodes), strict=True):
        if id(target) in targets:
            new = Tensor._of(made.lifted(count))  # noqa: SLF001 - a tensor of what was batched
            found.append((targets[id(target)], new))
        elif not made.apart:
            found.append((target, Tensor._of(made.value)))  # noqa: SLF001
        else:
            raise ShapeError(
                f"{group.called}: a number that all members share is computed of "
                f"{', '.join(sorted(vectors))}, of which each has its own; give one value for all"
            )
    trace.close()
    return found
