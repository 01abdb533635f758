"""Hyperparameters with one value for each member of a population.

Such a hyperparameter is a vector, with one number for each row of the parameters' first axis. The
update is traced for one member, and vectorized over all members. So each member gets its own norms
and matrix products.
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
    """Whether a value is a vector of one number for each member."""
    return isinstance(value, Tensor | np.ndarray) and value.ndim == 1


def numbers_of(name: str, value: Any) -> np.ndarray[Any, Any]:
    """Return the numbers of a vector as float64.

    Raises
    ------
    DTypeError
        The vector does not hold numbers.
    """
    refuse_masked(value, name)
    found = value.detach().double().numpy() if isinstance(value, Tensor) else np.asarray(value)
    if found.dtype.kind not in "fiu":
        raise DTypeError(f"{name}: expected numbers, one for each member, not {found.dtype}")
    return found.astype(np.float64)


def checked(name: str, value: Any, rule: Hyperparameter[Any]) -> Any:
    """Return a checked hyperparameter, with vectors (one number per member) as arrays."""
    parts = value if isinstance(value, tuple | list) else (value,)
    if not any(map(is_vector, parts)):
        return rule.check(name, value)
    if not rule.live:
        raise DTypeError(
            f"{name}: expected one value, not one for each member, because {name} decides how "
            "steps are computed; pass one value for all members"
        )
    arrays = [numbers_of(name, p) if is_vector(p) else p for p in parts]
    (count,) = sizes_of(name, arrays)
    for k in range(count):
        each = tuple(p[k] if is_vector(p) else p for p in arrays)
        rule.check(name, each if isinstance(value, tuple | list) else each[0])
    made = tuple(p if is_vector(p) else float(p) for p in arrays)
    return made if isinstance(value, tuple | list) else made[0]


def sizes_of(name: str, value: Any) -> set[int]:
    """Return the length of the vectors in a value, as a set; empty if it has no vectors.

    Raises
    ------
    ShapeError
        The vectors differ in length.
    """
    parts = value if isinstance(value, tuple | list) else (value,)
    found = {int(p.shape[0]) for p in parts if is_vector(p)}
    if len(found) > 1:
        raise ShapeError(
            f"{name}: expected vectors of the same length, one number for each member, not "
            f"{' and '.join(map(str, sorted(found)))} numbers"
        )
    return found


def check_fit(kind: type[Any], params: Sequence[Tensor], name: str, count: int) -> None:
    """Raise ShapeError if `params` are not parameters of `count` members."""
    if not kind.per_member:
        raise ShapeError(
            f"{name}: expected one number, not {count} values, because {kind.__name__} computes "
            "one step of all parameters together"
        )
    for i, param in enumerate(params):
        if not param.ndim or param.dims[0] != count:
            raise ShapeError(
                f"{name}: with {count} values, one for each member, params[{i}] needs a first axis "
                f"of size {count}, but has shape {format_shape(param.dims)}; stack the members "
                "with kernelrt.nn.stack_modules"
            )


def changes(
    compute: Callable[[Group, Active], list[tuple[Tensor, Tensor]]], group: Group, active: Active,
    vectors: Mapping[str, Tensor],
) -> list[tuple[Tensor, Tensor]]:  # fmt: skip
    """Return (target, new value) pairs of an update in which members have different numbers.

    Parameters
    ----------
    compute : callable
        Function that returns such pairs for one member, given a group with its tensors.
    group : Group
        Group of all members.
    active : list of (int, Tensor, Tensor)
        (index, parameter, gradient) of each parameter to update.
    vectors : mapping of str to Tensor
        Tensors of the group with one number for each member, by hyperparameter name.
    """
    load("kernelrt.tensor.tracing.vmap_trace")
    from kernelrt.tensor.tracing.vmap_trace import ERROR, VmapTrace

    count = group.members
    assert count is not None
    trace = VmapTrace(count, ERROR, Tensor)
    states = [t for held in group.state.values() if isinstance(held, list) for t in held]
    for name, held in group.state.items():
        if isinstance(held, list) and any(
            s.dims != p.dims for s, p in zip(held, group.params, strict=True)
        ):
            raise ShapeError(
                f"{group.called}: the state {name!r} of the optimizer differs in shape from the "
                "parameters, so members cannot have separate hyperparameters; give one value for "
                "all members"
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
            new = Tensor._of(made.lifted(count))  # noqa: SLF001 - the result of vectorization
            found.append((targets[id(target)], new))
        elif not made.batched:
            found.append((target, Tensor._of(made.value)))  # noqa: SLF001
        else:
            raise ShapeError(
                f"{group.called}: the optimizer combines the parameters of all members into one "
                f"number, so {', '.join(sorted(vectors))} cannot have a value for each member; "
                "give one value for all members"
            )
    trace.close()
    return found
