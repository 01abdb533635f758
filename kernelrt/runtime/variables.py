"""Variables of a plan: sizes that each run may set, and the C table's entries that use them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernelrt.device.program import CORE_ID
from kernelrt.errors import PlanBuildError, VariableError
from kernelrt.ir import Dim, UOp
from kernelrt.ir.size import plain
from kernelrt.runtime.plan_ops import (
    PreparedCopy,
    PreparedCustomFunction,
    PreparedKernel,
    PreparedOp,
    RuntimeVar,
)
from kernelrt.runtime.sizes import evaluate_all, launch_size, variables_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Launch", "VariableTable", "merge_updates"]

# Number of sets of values whose table entries are kept, for a server that sees the same batch sizes
# again.
_REMEMBERED = 1024

#: Values ``(op, slot, v)`` and chunk counts ``(op, n)`` for the C table.
Launch = tuple[list[tuple[int, int, int]], list[tuple[int, int]]]


@dataclass(frozen=True, slots=True)
class _Size:
    """An entry of the C table that is computed from variables."""

    op: int
    dim: Dim
    what: str
    fixed: tuple[tuple[str, int], ...]
    kind: str  # "chunks", "check" or "value"
    slot: int = 0  # for the kind "value"


class VariableTable:
    """The variables of a plan and the entries of the C table that depend on them.

    Parameters
    ----------
    ops : sequence of PreparedOp
        Ops in the order of the C table.

    Raises
    ------
    PlanBuildError
        Two ops declare different bounds for a variable.
    """

    def __init__(self, ops: Sequence[PreparedOp]) -> None:
        self.variables: dict[str, RuntimeVar] = {}
        self.initial: dict[str, int] = {}
        self.fixed: set[str] = set()
        self._owner: dict[str, str] = {}
        self._sites: dict[str, list[tuple[int, int]]] = {}
        self._sizes: list[_Size] = []
        self._memo: dict[tuple[int, ...], Launch] = {}
        for index, op in enumerate(ops):
            if isinstance(op, PreparedKernel):
                self._add_kernel(index, op)
            elif isinstance(op, PreparedCopy):
                self._add_vars(op.label, [RuntimeVar(*v.arg) for v in variables_of([op.nbytes])])
                self._add_size(_Size(index, op.nbytes, f"{op.label}: nbytes", (), "value"))
            elif isinstance(op, PreparedCustomFunction):
                self._add_vars(op.label, [RuntimeVar(*v.arg) for v in op.variables])
        for name, variable in self.variables.items():
            self.initial.setdefault(name, variable.max_val)

    def check(self, updates: Mapping[str, Any]) -> dict[str, int]:
        """Check values for some variables.

        Raises
        ------
        VariableError
            A name is unknown, fixed or ``core_id``; or a value is not an integer or out of bounds.
        """
        out = {}
        for name, value in updates.items():
            variable = self.variables.get(name)
            if variable is None:
                raise VariableError(self._why_not(name))
            if type(value) is int and variable[1] <= value <= variable[2]:
                out[name] = value
                continue
            if not hasattr(value, "__index__") or isinstance(value, bool):
                raise VariableError(f"{name}: expected an integer, not {value!r}")
            number = value.__index__()
            if not variable.min_val <= number <= variable.max_val:
                raise VariableError(
                    f"{name}: {number} lies outside its bounds {variable.min_val} to "
                    f"{variable.max_val}"
                )
            out[name] = number
        return out

    def launch(self, values: Mapping[str, int]) -> Launch:
        """Return the entries of the C table for `values`, in the order of `initial`.

        Raises
        ------
        VariableError
            A launch size evaluates to less than one or overflows.
        """
        key = tuple(values.values())
        found = self._memo.get(key)
        if found is None:
            found = self._launch(values)
            if len(self._memo) >= _REMEMBERED:
                self._memo.clear()
            self._memo[key] = found
        return found

    def entries(self) -> Iterator[tuple[int, int, bool, Dim | str, dict[str, int]]]:
        """Yield the entries of the C table that depend on variables.

        Yields
        ------
        tuple of (int, int, bool, Dim or str, dict)
            Five items: the op, the slot of the value, whether the entry is the number of chunks
            instead of a value, the expression or the name of the variable, and the fixed variables
            of the op.
        """
        for name, sites in self._sites.items():
            for op, slot in sites:
                yield op, slot, False, name, {}
        for size in self._sizes:
            if size.kind != "check":
                yield size.op, size.slot, size.kind == "chunks", size.dim, dict(size.fixed)

    def _launch(self, values: Mapping[str, int]) -> Launch:
        table: list[tuple[int, int, int]] = []
        for name, sites in self._sites.items():
            table += [(op, slot, values[name]) for op, slot in sites]
        chunks: list[tuple[int, int]] = []
        groups: dict[tuple[tuple[str, int], ...], list[_Size]] = {}
        for size in self._sizes:
            groups.setdefault(size.fixed, []).append(size)
        for fixed, sizes in groups.items():
            known = {**values, **dict(fixed)}
            numbers = evaluate_all([s.dim for s in sizes], known)
            for size in sizes:
                number = numbers[size.dim]
                if size.kind == "value":
                    table.append((size.op, size.slot, number))
                    continue
                relevant = {v.arg[0]: known[v.arg[0]] for v in variables_of([size.dim])}
                launch_size(size.dim, number, size.what, relevant)
                if size.kind == "chunks":
                    chunks.append((size.op, number))
        return table, chunks

    def _add_kernel(self, index: int, op: PreparedKernel) -> None:
        self.fixed.update(op.fixedvars)
        self._add_vars(op.label, op.runtime_vars)
        for name, value in op.initial_vals.items():
            if name in self.variables:
                self.initial[name] = value
        fixed = tuple(sorted(op.fixedvars.items()))
        for slot, name in enumerate(op.kernel.var_names):
            what = f"{op.label}: {name}"
            if name in op.kernel.numbers:
                self._add_size(_Size(index, op.kernel.numbers[name], what, fixed, "value", slot))
            elif name not in op.fixedvars and name != CORE_ID:
                self._sites.setdefault(name, []).append((index, slot))
        for axis, dim in enumerate(op.kernel.global_size):
            kind = "chunks" if axis == 0 else "check"
            what = f"{op.label}: global_size[{axis}]"
            self._add_size(_Size(index, dim, what, fixed, kind))
        for axis, dim in enumerate(op.kernel.local_size or ()):
            what = f"{op.label}: local_size[{axis}]"
            self._add_size(_Size(index, dim, what, fixed, "check"))

    def _add_size(self, size: _Size) -> None:
        """Register an entry that depends on variables; check a constant launch size at once."""
        if isinstance(size.dim, UOp):
            self._sizes.append(size)
        elif size.kind != "value":
            launch_size(size.dim, size.dim, size.what, {})

    def _add_vars(self, label: str, variables: Iterable[RuntimeVar]) -> None:
        for variable in variables:
            known = self.variables.setdefault(variable.name, variable)
            if known != variable:
                raise PlanBuildError(
                    f"variable {variable.name!r} has bounds {variable.min_val} to "
                    f"{variable.max_val} in {label}, but {known.min_val} to {known.max_val} in "
                    f"{self._owner[variable.name]}; use the same Variable, or two different names"
                )
            self._owner.setdefault(variable.name, label)

    def _why_not(self, name: object) -> str:
        if name == CORE_ID:
            return f"{CORE_ID} is set by the plan for each chunk and cannot be given"
        if name in self.fixed:
            return f"variable {name!r} was fixed when the plan was prepared and cannot be set"
        known = ", ".join(map(repr, self.variables)) or "none"
        return f"unknown variable {name!r}; the plan has: {known}"


def merge_updates(given: object, keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Merge a mapping, or (name, value) pairs, with keywords.

    Raises
    ------
    VariableError
        `given` is neither, a name is not a string, or a name is given twice.
    """
    pairs: list[tuple[Any, Any]] = []
    if isinstance(given, Mapping):
        pairs = list(given.items())
    elif isinstance(given, Iterable) and not isinstance(given, str | bytes):
        for item in given:
            if not isinstance(item, tuple | list) or len(item) != 2:
                raise VariableError(f"expected (name, value) pairs, not {item!r}")
            pairs.append((item[0], item[1]))
    elif given is not None:
        raise VariableError(
            f"expected a mapping, (name, value) pairs or keywords, not {type(given).__name__}"
        )
    out: dict[str, Any] = {}
    for given_name, value in (*pairs, *keywords.items()):
        # A Variable may stand for its name.
        name = plain(given_name)
        key = name.arg[0] if isinstance(name, UOp) and isinstance(name.arg, tuple) else name
        if not isinstance(key, str):
            raise VariableError(f"expected the name of a variable, not {name!r}")
        if key in out:
            raise VariableError(f"variable {key!r} is given twice; pass it once")
        out[key] = value
    return out
