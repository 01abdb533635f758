"""State dicts: collect, check and load them. kernelrt.nn.files reads and writes files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from kernelrt.errors import DTypeError, KernelrtError, ShapeError, StateError
from kernelrt.ir.shape import format_shape
from kernelrt.native.array_handle import copy_over
from kernelrt.nn import tree
from kernelrt.tensor import Tensor, is_tracing, views
from kernelrt.tensor.eager.assign import assign_all
from kernelrt.tensor.eager.realize import before_writes, flush, realize
from kernelrt.tensor.free_functions.creation import from_data
from kernelrt.tensor.state import births, lock, watched

__all__ = ["IncompatibleKeys", "copy_into", "load_state_dict", "overwrite", "read",
           "state_dict"]  # fmt: skip


class IncompatibleKeys(NamedTuple):
    """Names that :func:`load_state_dict` skipped, because `strict` was false.

    Attributes
    ----------
    missing_keys : list of str
        Tensors of the object that got no value.
    unexpected_keys : list of str
        Values that belong to no tensor of the object.

    Examples
    --------
    >>> layer = krt.nn.Linear(2, 1)
    >>> layer.load_state_dict({"scale": [1.0], "bias": [3.0]}, strict=False)
    IncompatibleKeys(missing_keys=['weight'], unexpected_keys=['scale'])
    """

    missing_keys: list[str]
    unexpected_keys: list[str]


def state_dict(root: object, prefix: str = "") -> dict[str, Tensor]:
    """Return every tensor reachable from `root` by its dotted name, without copies.

    If the class of an object in `root` has a ``state_dict`` method of its own that returns tensors,
    as LBFGS does, the result of this method is used for the object.

    Parameters
    ----------
    root : object
        A module, an optimizer, or any object, list, tuple or dict of them.
    prefix : str, default ""
        Prefix of each name, joined by a dot.

    Returns
    -------
    dict of str to Tensor
        The tensors themselves; parameters still require gradients.

    Raises
    ------
    StateError
        Two tensors have the same name, as in ``{"a.b": x, "a": {"b": y}}``; a lazy layer has not
        created its parameters yet; or a class defines ``get_extra_state``.

    Examples
    --------
    >>> model = krt.nn.Linear(2, 1)
    >>> list(krt.nn.state_dict({"model": model, "heads": [krt.nn.Linear(1, 3)]}))
    ['model.weight', 'model.bias', 'heads.0.weight', 'heads.0.bias']
    """
    return tree.tensors_by_name(root, prefix, ask_root=tree.is_complete(root))


def load_state_dict(
    root: object, values: Mapping[str, Any], *, strict: bool = True
) -> IncompatibleKeys:
    """Copy `values` into the tensors of `root`, in place: existing plans see the new values.

    All values are checked before the first is copied. If the class of an object in `root` has a
    ``load_state_dict`` method of its own, as LBFGS does, the object loads the values below its name
    with this method.

    Parameters
    ----------
    root : object
        A module, an optimizer, or any object, list, tuple or dict of them.
    values : mapping of str to array_like
        Tensors, NumPy arrays, or anything that NumPy or DLPack can read, such as a state dict of
        PyTorch.
    strict : bool, default True
        Whether the names have to match those of ``state_dict(root)`` exactly.

    Returns
    -------
    IncompatibleKeys
        The missing and the unexpected names. If `strict` is true, both lists are empty.

    Raises
    ------
    DTypeError
        `values` is not a mapping.
    StateError
        Names are missing or unexpected (if `strict`), or shapes or dtypes do not fit. The message
        lists all problems.

    Examples
    --------
    >>> heads = {"mean": krt.nn.Linear(2, 1, bias=False)}
    >>> krt.nn.load_state_dict(heads, {"mean.weight": np.array([[1.0, 2.0]])})
    IncompatibleKeys(missing_keys=[], unexpected_keys=[])
    >>> heads["mean"].weight.tolist()
    [[1.0, 2.0]]
    """
    if tree.is_complete(root):
        found: IncompatibleKeys = _give(root, values, strict)
        return found
    return copy_into(root, values, strict=strict)


def copy_into(root: object, values: Mapping[str, Any], *, strict: bool) -> IncompatibleKeys:
    """Do the work of :func:`load_state_dict`, even if the class of `root` defines its own."""
    if not isinstance(values, Mapping):
        raise DTypeError(
            f"state_dict: expected a mapping of names to arrays, not {type(values).__name__}"
        )
    targets, kept = tree.found_state(root)
    givers = [(name, value) for name, value, _ in kept if _takes(value)]
    inside = tuple(f"{name}." for name, _ in givers)
    if inside:
        targets = {n: target for n, target in targets.items() if not n.startswith(inside)}
    missing = [name for name in targets if name not in values]
    unexpected = [
        name for name in values if name not in targets and not name.startswith(inside)
    ]
    faults = []
    if strict:
        faults += [f"missing: {_describe(name, targets[name])}" for name in missing]
        faults += [f"unexpected: {name!r}" for name in unexpected]
    staged: list[tuple[Tensor, Tensor]] = []
    for name, target in targets.items():
        if name in values:
            try:
                staged.append((target, _fitting(name, values[name], target)))
            except KernelrtError as error:
                faults.append(str(error))
    if faults:
        raise StateError(
            f"state_dict does not fit {type(root).__name__}:\n  " + "\n  ".join(faults)
            + _prefixed(targets, list(values))
        )
    overwrite(staged)
    for name, giver in givers:
        start = f"{name}."
        part = {k.removeprefix(start): v for k, v in values.items() if k.startswith(start)}
        result = _give(giver, part, strict)
        if isinstance(result, IncompatibleKeys):
            missing += [start + k for k in result.missing_keys]
            unexpected += [start + k for k in result.unexpected_keys]
    return IncompatibleKeys(missing, unexpected)


def _takes(value: object) -> bool:
    """Whether an object loads its state with a ``load_state_dict`` of its own."""
    return tree.defines(value, "load_state_dict")


def _give(taker: Any, values: Mapping[str, Any], strict: bool) -> Any:
    with tree.asking(taker):
        return taker.load_state_dict(values) if strict else taker.load_state_dict(values, strict)


def _prefixed(targets: Mapping[str, Tensor], names: list[str]) -> str:
    """Return a hint if all names have a common prefix, as those of a wrapped module do."""
    first, wanted = names[0] if names else "", next(iter(targets), "")
    prefix = first.removesuffix(wanted)
    if not prefix or prefix == first or not all(n.startswith(prefix) for n in names):
        return ""
    return (
        f"\nAll names begin with {prefix!r}; remove the prefix: {{name.removeprefix({prefix!r}): "
        "value for name, value in state_dict.items()}"
    )


def _describe(name: str, tensor: Tensor) -> str:
    return f"{name!r} ({tensor.dtype.name} of shape {format_shape(tensor.dims)})"


def _fitting(name: str, value: object, target: Tensor) -> Tensor:
    """Return `value` in the dtype of `target`, or raise an error that says why it does not fit."""
    source = read(name, value)
    if source.shape != target.shape:
        raise ShapeError(
            f"{name!r} has shape {format_shape(source.dims)}, expected "
            f"{format_shape(target.dims)}"
        )
    if not (source.dtype.is_float <= target.dtype.is_float):
        raise DTypeError(f"{name!r} holds {source.dtype.name}, expected {target.dtype.name}")
    return source if source.dtype is target.dtype else source.cast(target.dtype)


def read(name: str, value: object) -> Tensor:
    """Return `value` as a tensor; errors name the entry of the state dict."""
    if isinstance(value, Tensor):
        return views.undetached(value)
    if getattr(value, "requires_grad", False) is True and hasattr(value, "detach"):
        value = value.detach()  # PyTorch refuses to export tensors that require gradients
    return from_data(Tensor, value, repr(name))


def overwrite(pairs: Iterable[tuple[Tensor, Tensor]]) -> None:
    """Write the value of each source into the memory of its target, immediately."""
    pairs = list(pairs)
    if is_tracing() or not _copied(pairs):
        assign_all(pairs)
        realize(*(target for target, _ in pairs))


def _copied(pairs: list[tuple[Tensor, Tensor]]) -> bool:
    """Copy memory directly if possible; return whether that was done."""
    with lock:
        flush()
        buffers = [target._buffer for target, _ in pairs]  # noqa: SLF001 - copies as a plan does
        if any(buffer is None or buffer.readonly for buffer in buffers):
            return False
        known = births[0]
        if len(watched):
            known = before_writes(b for b in buffers if b is not None)
        return copy_over(pairs, births, known)
