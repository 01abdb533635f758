"""Model files: functions as plain data, which run without Python and without a compiler.

A file holds four things: plans (with the bodies of their regions, and their preparations), machine
code, the state that the plans share, and a description of inputs and outputs. All memory of the
plans is one block; an offset in it is called a *place*. Items refer to memory by place, and to each
other by index. csrc/model.h describes the format; csrc/model.c reads it.
"""

from __future__ import annotations

import ctypes
import struct
import zlib
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn

from kernelrt._version import __version__
from kernelrt.device import registry
from kernelrt.device.byte_ranges import byte_range_of, islands
from kernelrt.device.program import CompiledSpec
from kernelrt.errors import ModelFileError
from kernelrt.ir import Op, UOp
from kernelrt.ir.status import INDEX
from kernelrt.native.core import under_locks
from kernelrt.native.routines import BY_NAME
from kernelrt.runtime.failures import failures
from kernelrt.runtime.kernel import FunctionProgram
from kernelrt.runtime.op_cost import THREAD_COSTS
from kernelrt.runtime.plan_ops import PreparedKernel, PreparedRegion, written
from kernelrt.runtime.sizes import variables_of
from kernelrt.runtime.verify_region import sites

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kernelrt._dispatch import OpTuple
    from kernelrt.device.buffer import Buffer
    from kernelrt.device.byte_ranges import ByteRange
    from kernelrt.dtype import DType
    from kernelrt.ir import Dim
    from kernelrt.runtime.kernel import CachedKernel
    from kernelrt.runtime.plan import ExecutionPlan
    from kernelrt.runtime.plan_ops import PreparedCustomFunction, PreparedOp

__all__ = ["ModelFunction", "Port", "State", "image", "of_plan"]

# As in csrc/model.h.
MAGIC: Final = b"krtmodel"
VERSION: Final = 1
#: As in csrc/krt_model.h.
MOST_AXES: Final = 32
MOST_SIZES: Final = 64
_DEEPEST: Final = 64
_SECTIONS = ("MODEL", "CODE", "DATA", "TEXT", "INTS", "ROUTINES", "PLANS", "OPS", "REGIONS", "VARS",
             "SIZES", "CHECKS", "FUNCS", "PORTS")  # fmt: skip
_HEADER = struct.Struct("<8sIIQII")
_SECTION = struct.Struct("<8sQQII")
_ALIGNMENT = 64
_STATUS, _PORT = -1, -2
_CODES = (
    "CONST", "VAR", "NEG", "ABS", "NOT", "TRUTH", "CAST", "ADD", "SUB", "MUL", "MAX", "MIN", "AND",
    "OR", "XOR", "LT", "LE", "EQ", "NE", "IDIV", "MOD", "SHL", "SHR", "WHERE",
)  # fmt: skip
_CODE = {name: number for number, name in enumerate(_CODES)}
#: Maximum number of instructions of a size program.
_LONGEST = 4096

#: Features that no generated code uses: instructions of the system, of cryptography, and hints.
_UNUSED = frozenset({
    "64bit", "cldemote", "clflushopt", "clwb", "clzero", "cmov", "cmpccxadd", "cx8", "enqcmd",
    "fsgsbase", "fxsr", "hreset", "invpcid", "kl", "lwp", "mmx", "movdir64b", "movdiri", "mwaitx",
    "pconfig", "pku", "prefetchi", "prfchw", "ptwrite", "raoint", "rdpid", "rdpru", "rdrnd",
    "rdseed", "rtm", "serialize", "sgx", "sha", "sha512", "shstk", "sm3", "sm4", "tsxldtrk",
    "uintr", "usermsr", "waitpkg", "wbnoinvd", "widekl", "xsavec", "xsaveopt", "xsaves",
    "reserve-x18",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of a function in a model file.

    Attributes
    ----------
    name : str
        Name of the argument or result.
    dtype : DType or None
        Type of the elements; None for a constant.
    shape : tuple of Dim
        Shape, which may depend on Variables.
    buffer : Buffer or None
        Buffer of the plan that holds it; None for a constant.
    is_number : bool
        True for a Python float, False for an array.
    constant : str
        Value of a constant argument as JSON.
    sites : sequence of (int, int, int)
        Slots of the plan that hold an address in the buffer, each as (op, slot, offset). If there
        are none, callers copy the array to the buffer.
    """

    name: str
    dtype: DType | None
    shape: tuple[Dim, ...] = ()
    buffer: Buffer | None = None
    is_number: bool = False
    constant: str = ""
    sites: Sequence[tuple[int, int, int]] = ()


@dataclass(frozen=True, slots=True)
class State:
    """Memory that functions of a model share, under a name."""

    name: str
    buffer: Buffer
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ModelFunction:
    """A function to save: a plan with its inputs and outputs."""

    name: str
    plan: ExecutionPlan
    inputs: Sequence[Port]
    outputs: Sequence[Port]


def image(
    functions: Sequence[ModelFunction], states: Sequence[State], python: str = ""
) -> list[bytes]:
    """Return the content of a model file.

    Parameters
    ----------
    functions : sequence of ModelFunction
        Functions to save. If plans share memory in this process, they share it in the file.
    states : sequence of State
        State to give a name.
    python : str
        Signatures of the functions, which :mod:`kernelrt.jit.loading` reads. If empty, the
        functions take no arguments and return their outputs.

    Returns
    -------
    list of bytes
        The parts of the file, in order.

    Raises
    ------
    ModelFileError
        A plan calls a Python function, or code from outside the code generator.
    """
    writer = _Writer(functions)
    for function in functions:
        writer.add_function(function)
    first = len(writer.ports)
    for state in states:
        dims = state.shape
        writer.add_port(Port(state.name, state.buffer.dtype, dims, state.buffer), {})
    return writer.file((first, len(states)), python)


def of_plan(plan: ExecutionPlan) -> list[bytes]:
    """Return the content of a model file with one plan, as ``plan.save`` writes it.

    Parameters
    ----------
    plan : ExecutionPlan
        Plan to save.
    """
    buffers = [*enumerate(plan.given_buffers())]
    states: dict[str, State] = {}
    for i, buffer in buffers:
        name = buffer.label if buffer.label and buffer.label not in states else f"buffer{i}"
        states[name] = State(name, buffer, (buffer.size,))
    outputs = [
        Port(f"output{i}", buffer.dtype, (buffer.size,), buffer)
        for i, buffer in enumerate(plan.output_buffers)
    ]
    return image([ModelFunction("run", plan, (), outputs)], [*states.values()])


class _Writer:
    """The sections of a file while it is made."""

    def __init__(self, functions: Sequence[ModelFunction]) -> None:
        device = functions[0].plan.device
        self._device = registry.opened(device)
        self._texts: dict[str, int] = {}
        self._text = bytearray()
        self._lists: dict[tuple[int, ...], int] = {}
        self._ints: list[int] = []
        # By id of a plan: its number, and the numbers of its sizes.
        self._numbers: dict[int, int] = {}
        self._variables: dict[int, dict[str, int]] = {}
        self._routines: dict[str, int] = {}
        self._names = {at: name for name, at in reversed(BY_NAME.items())}
        self.rows: dict[str, list[bytes]] = {name: [] for name in _SECTIONS}
        self.text("")
        self._functions = functions
        plans = list(_plans(function.plan for function in functions))
        kernels = dict.fromkeys(
            kernel for plan in plans for kernel in plan.kernels if self._is_generated(kernel)
        )
        specs = [
            CompiledSpec.from_source(k.entry_point, k.code, k.ast, k.buf_count) for k in kernels
        ]
        self.code, entries = self._device.loader.flat(specs)
        self._kernels = dict(zip(kernels, entries, strict=True))
        inputs = [port.buffer for f in functions for port in f.inputs if port.buffer is not None]
        prepares = [f.plan.preparation for f in functions if f.plan.preparation is not None]
        computed = [
            plan.buffers[index]
            for plan in prepares for op in plan.prepared_ops for index in written(op)
        ]  # fmt: skip
        self._places = _Places(plans, [*inputs, *computed])

    @property
    def ports(self) -> list[bytes]:
        """The rows of the section of ports."""
        return self.rows["PORTS"]

    # ---- Texts and numbers

    def text(self, value: str) -> int:
        """Return the offset of a string in the section of texts."""
        value = value.replace("\0", " ").encode(errors="backslashreplace").decode()
        found = self._texts.get(value)
        if found is None:
            found = self._texts[value] = len(self._text)
            self._text += value.encode() + b"\0"
        return found

    def ints(self, values: Iterable[int]) -> tuple[int, int]:
        """Return the range of a list of numbers in their section."""
        key = tuple(values)
        first = self._lists.get(key)
        if first is None:
            first = self._lists[key] = len(self._ints)
            self._ints += key
        return first, len(key)

    def program(
        self, dim: Dim, variables: Mapping[str, int], fixed: Mapping[str, int]
    ) -> tuple[int, int]:
        """Return the range of the program that evaluates an expression."""
        found: list[int] = []
        stack: list[Dim | tuple[int, int]] = [dim]
        while stack:
            if len(found) > 2 * _LONGEST or len(stack) > _DEEPEST:
                raise ModelFileError(
                    "a size depends on variables by a formula that is too long for a model file; "
                    "save the function with static sizes"
                )
            node = stack.pop()
            if isinstance(node, tuple):
                found += node
            elif not isinstance(node, UOp):
                found += (_CODE["CONST"], int(node))
            elif node.op is Op.CONST:
                found += (_CODE["CONST"], int(node.arg))
            elif node.op is Op.VAR:
                name = node.arg[0]
                known = name in fixed
                found += (_CODE["CONST"], fixed[name]) if known else (_CODE["VAR"], variables[name])
            else:
                stack.append(_instruction(node))
                stack += reversed(node.src)
        return self.ints(found)

    # ---- Plans

    def add_function(self, function: ModelFunction) -> None:
        """Add a function with its plan and its preparation."""
        plan = function.plan
        preparation = 0
        if plan.preparation is not None:
            preparation = 1 + self._add_plan(plan.preparation)
        number = self._add_plan(plan)
        variables = self._variables[id(plan)]
        ranges = []
        for side in (function.inputs, function.outputs):
            ranges += [len(self.ports), len(side)]
            for port in side:
                self.add_port(port, variables)
        pairs = self.ints(n for pair in self._written(plan) for n in pair)
        self.rows["FUNCS"].append(
            struct.pack(
                "<10I", self.text(function.name), number, preparation, 0, *ranges, *pairs
            )
        )

    def _written(self, plan: ExecutionPlan) -> list[tuple[int, int]]:
        """Return the places that a plan writes, merged."""
        found = []
        for op in plan.prepared_ops:
            for index in written(op):
                nbytes = plan.buffers[index].nbytes
                place = self._place(plan, index)
                if nbytes:
                    found.append((place, place + nbytes))
        merged: list[tuple[int, int]] = []
        for begin, end in sorted(found):
            if merged and begin <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((begin, end))
        return merged

    def add_port(self, port: Port, variables: Mapping[str, int]) -> None:
        """Add an input, an output or a state."""
        if len(port.shape) > MOST_AXES:
            raise ModelFileError(
                f"{port.name}: a model file holds arrays of at most {MOST_AXES} axes, not "
                f"{len(port.shape)}; reshape it in the function"
            )
        dims = [n for dim in port.shape for n in self.program(dim, variables, {})]
        place = nbytes = 0
        kind = 2 if port.buffer is None else 1 if port.is_number else 0
        if port.buffer is not None:
            place = self._places.of(byte_range_of(port.buffer))
            nbytes = port.buffer.nbytes
        slots = self.ints(n for site in port.sites for n in site)
        self.ports.append(
            struct.pack(
                "<8I2q", self.text(port.name), self.text(port.constant), kind,
                0 if port.dtype is None else port.dtype.code, len(port.shape), self.ints(dims)[0],
                *slots, place, nbytes,
            )
        )  # fmt: skip

    def _add_plan(self, plan: ExecutionPlan) -> int:
        known = self._numbers.get(id(plan))
        if known is not None:
            return known
        for body in plan.bodies:
            self._add_plan(body)
        bounds = {name: (v.min_val, v.max_val) for name, v in plan.variables.items()}
        for function in self._functions:  # shapes may depend on sizes that no kernel uses
            if function.plan is plan:
                dims = (d for p in (*function.inputs, *function.outputs) for d in p.shape)
                bounds |= {v.arg[0]: v.arg[1:] for v in variables_of(dims)}
        if len(bounds) > MOST_SIZES:
            raise ModelFileError(
                f"a function of a model file has at most {MOST_SIZES} sizes that may change, "
                f"not {len(bounds)}; make some of them static"
            )
        variables = self._variables[id(plan)] = {name: i for i, name in enumerate(bounds)}
        rows = plan.rows_for(
            lambda index: self._place(plan, index), self._address, self._refuse, _STATUS
        )
        packed = [
            self._op(plan, op, row, variables)
            for op, row in zip(plan.prepared_ops, rows, strict=True)
        ]
        ops = self._extend("OPS", packed)
        values = plan.values
        named = self._extend("VARS", (
            struct.pack("<2I3q", self.text(name), 0, least, most, values.get(name, most))
            for name, (least, most) in bounds.items()
        ))  # fmt: skip
        sizes = self._extend("SIZES", self._sizes(plan, variables))
        stack = max((op.kernel.stack_bytes for op in plan.prepared_kernels), default=0)
        self._numbers[id(plan)] = number = len(self.rows["PLANS"])
        self.rows["PLANS"].append(
            struct.pack("<8Iq", *ops, *named, *sizes, plan.is_lasting(), 0, stack)
        )
        return number

    def _extend(self, section: str, rows: Iterable[bytes]) -> tuple[int, int]:
        first = len(self.rows[section])
        self.rows[section] += rows
        return first, len(self.rows[section]) - first

    def _sizes(self, plan: ExecutionPlan, variables: Mapping[str, int]) -> Iterator[bytes]:
        for op, slot, is_chunks, dim, fixed in plan.size_entries():
            if isinstance(dim, str):
                code = self.ints((_CODE["VAR"], variables[dim]))
            else:
                code = self.program(dim, variables, fixed)
            yield struct.pack("<4I2I", op, slot, is_chunks, 0, *code)

    def _op(
        self, plan: ExecutionPlan, op: PreparedOp, row: OpTuple, variables: Mapping[str, int]
    ) -> bytes:
        kind, code, bufs, vals, chunks, core_slot, flags, cost, deps, *rest = row
        region = self._region(op) if isinstance(op, PreparedRegion) else 0
        return struct.pack(
            "<2I5q10I", kind, flags, code if isinstance(code, int) else 0, chunks, core_slot, cost,
            rest[0] if rest else 0, *self.ints(bufs), *self.ints(vals), *self.ints(deps),
            *self._extend("CHECKS", self._checks(plan, op, variables)), region,
            self.text(op.label),
        )  # fmt: skip

    def _checks(
        self, plan: ExecutionPlan, op: PreparedOp, variables: Mapping[str, int]
    ) -> Iterator[bytes]:
        if not isinstance(op, PreparedKernel):
            return
        for failure in failures(op, plan.buffers):
            size = (0, 0)
            if failure.kind == INDEX:
                size = self.program(failure.size, variables, op.fixedvars)
            yield struct.pack(
                "<i5I", failure.number, failure.kind, self.text(failure.text), failure.wraps, *size
            )

    def _region(self, op: PreparedRegion) -> int:
        """Add a region; return 1 plus its index."""
        numbers = self.ints(self._numbers[id(body)] for body in op.bodies)
        copies = self.ints(n for copy in op.copies for n in copy)
        bindings = self.ints(n for binding in sites(op) for n in binding)
        title = "" if op.is_choice else op.label
        self.rows["REGIONS"].append(
            struct.pack(
                "<8I4q", *numbers, *copies, *bindings, op.reverse, self.text(title), op.count,
                op.count_slot, op.condition_slot, op.choice_slot,
            )
        )  # fmt: skip
        return len(self.rows["REGIONS"])

    # ---- Addresses

    def _place(self, plan: ExecutionPlan, index: int) -> int:
        here = plan.region(index)
        return _PORT if here is None else self._places.of(here)

    def _is_generated(self, kernel: CachedKernel) -> bool:
        """Return whether the kernel was generated; raise an error if it cannot be saved."""
        if isinstance(kernel.program, FunctionProgram):
            if kernel.program.owner is None and kernel.address in self._names:
                return False
            raise ModelFileError(
                f"kernel {kernel.entry_point!r} calls a C function of this process; a model file "
                "holds only code that kernelrt generates. Leave the function out of the model, and "
                "call it before or after"
            )
        if not kernel.code:
            raise ModelFileError(
                f"kernel {kernel.entry_point!r} was given as an object file; a model file holds "
                "only code that kernelrt generates. Build the plan from kernel ASTs or LLVM IR"
            )
        return True

    def _address(self, kernel: CachedKernel) -> int:
        """Return the offset of a kernel's code, or -1 minus the index of a routine."""
        if kernel in self._kernels:
            return self._kernels[kernel]
        name = self._names[kernel.address]
        return -1 - self._routines.setdefault(name, len(self._routines))

    def _refuse(self, _index: int, op: PreparedCustomFunction) -> NoReturn:
        raise ModelFileError(
            f"{op.label} calls Python; a model file runs without Python. Leave the function out of "
            "the model, and call it before or after"
        )

    # ---- The file

    def file(self, states: tuple[int, int], python: str) -> list[bytes]:
        """Return the parts of the file."""
        spec = self._device.spec.in_files
        features = [
            f[1:] for f in spec.features.split(",")
            if f.startswith("+") and f[1:] not in _UNUSED and not f.startswith("+amx")
        ]  # fmt: skip
        architecture = spec.triple.partition("-")[0]
        routine_names = [self.text(name) for name in self._routines]
        head = [
            self.text(architecture), self.text(",".join(features)), self.text(spec.cpu),
            self.text(__version__), self.text(python), 0, *states,
        ]  # fmt: skip
        self.rows["MODEL"] = [
            struct.pack("<8I5q", *head, self._places.nbytes, *THREAD_COSTS)
        ]
        self.rows["CODE"] = [self.code]
        self.rows["DATA"] = [self._content()]
        self.rows["TEXT"] = [bytes(self._text)]
        self.rows["INTS"] = [struct.pack(f"<{len(self._ints)}q", *self._ints)]
        self.rows["ROUTINES"] = [struct.pack("<q", at) for at in routine_names]
        offset = _HEADER.size + len(_SECTIONS) * _SECTION.size
        parts, table = [], b""
        for name in _SECTIONS:
            data = b"".join(self.rows[name])
            pad = -offset % _ALIGNMENT
            table += _SECTION.pack(name.encode(), offset + pad, len(data), zlib.crc32(data), 0)
            parts += [bytes(pad), data]
            offset += pad + len(data)
        header = _HEADER.pack(MAGIC, VERSION, len(_SECTIONS), offset, zlib.crc32(table), 0)
        return [header, table, *parts]

    def _content(self) -> bytes:
        """Return the content of the state. It is read while no plan runs."""
        return under_locks([f.plan for f in self._functions], self._places.content)


def _instruction(node: UOp) -> tuple[int, int]:
    if node.op is Op.CAST:
        return _CODE["CAST"], node.dtype.code
    if node.op is Op.NOT and node.src[0].dtype.is_bool:
        return _CODE["TRUTH"], 0
    if node.op.name not in _CODE:
        raise ModelFileError(
            f"a size depends on {node.op.name}, which model files cannot hold; compute sizes with "
            "integer arithmetic"
        )
    return _CODE[node.op.name], 0


def _plans(roots: Iterable[ExecutionPlan]) -> Iterator[ExecutionPlan]:
    """Yield plans, and recursively their preparations and the bodies of their regions."""
    for plan in roots:
        yield plan
        if plan.preparation is not None:
            yield from _plans([plan.preparation])
        yield from _plans(plan.bodies)


class _Places:
    """Places of all memory of some plans. Memory that was given to them comes first, in DATA."""

    def __init__(self, plans: Sequence[ExecutionPlan], empty: Sequence[Buffer]) -> None:
        """The file has no content for `empty`: buffers of arguments and results of preparations."""
        ranges = [(here, given) for plan in plans for here, given in plan.ranges()]
        without = {byte_range_of(buffer) for buffer in empty}
        ranges += [(here, False) for here in without]  # a plan need not use all of its arguments
        found = islands((here, given and here not in without) for here, given in ranges)
        found.sort(key=lambda island: (not any(island[1]), island[0].start))
        self._starts: list[tuple[int, int, int]] = []  # start, end, place
        self.nbytes = self._initialised = 0
        for whole, given in found:
            # Kernels may rely on the alignment that memory has here.
            place = self.nbytes + (whole.start - self.nbytes) % _ALIGNMENT
            self._starts.append((whole.start, whole.stop, place))
            self.nbytes = place + whole.nbytes
            if any(given):
                self._initialised = self.nbytes
        self._starts.sort()

    def of(self, here: ByteRange) -> int:
        """Return the place of a range of bytes."""
        if not here.nbytes:
            return 0
        start, end, place = self._starts[bisect_right(self._starts, (here.start, 1 << 64, 0)) - 1]
        assert start <= here.start < here.stop <= end, "the range is no memory of the plans"
        return place + here.start - start

    def content(self) -> bytes:
        """Return the present content of the memory that was given."""
        data = bytearray(self._initialised)
        for start, end, place in self._starts:
            if place < self._initialised:
                data[place : place + end - start] = ctypes.string_at(start, end - start)
        return bytes(data)
