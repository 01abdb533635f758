"""CachedKernel: compiled code and its metadata."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from kernelrt import dtype as dt
from kernelrt.device import registry
from kernelrt.device.buffer import whole
from kernelrt.device.program import CORE_ID, CompiledSpec, ProgramSpec, Sizes
from kernelrt.errors import CompileError, CopyError, PlanBuildError
from kernelrt.ir import Dim, Op, UOp, toposort
from kernelrt.ir.routine import is_call
from kernelrt.ir.size import plain
from kernelrt.runtime.sizes import evaluate, variables_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kernelrt.device.program import Program
    from kernelrt.device.spec import DeviceSpec
    from kernelrt.dtype import DType
    from kernelrt.ir.size import Size

__all__ = ["CachedKernel", "FunctionProgram", "address_of"]

_SINGLE: Sizes = (1, 1, 1)
_LAST_ADDRESS = (1 << 64) - 1
# ctypes has no public name for the base class of function pointers.
_FUNCTION_POINTER: Any = type(ctypes.pythonapi.PyCapsule_GetName).__mro__[1]


@dataclass(frozen=True, slots=True, eq=False)
class FunctionProgram:
    """A program that is a C function from outside the code generator.

    Attributes
    ----------
    name : str
        Name in errors and profiles.
    address : int
        Address of ``void (*)(void *const *bufs, const int64_t *vals)``.
    owner : object
        Object that the program keeps alive; None for the package's own routines.
    """

    name: str
    address: int
    owner: object


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class CachedKernel:
    """Compiled code, shared by all plans that launch it. It is freed when no plan uses it.

    Attributes
    ----------
    program : Program
        Loaded code.
    device : str
        Name of the device that runs the kernel.
    code : str
        Source text; empty if the kernel was given as an object file or a function.
    entry_point : str
        Name of the function.
    ast : UOp
        Kernel AST.
    vars : tuple of UOp
        Variables that the kernel reads.
    var_names : tuple of str
        Names of the values in ``vals``; ``core_id`` is last if the kernel is split.
    numbers : mapping of str to Dim
        Values in ``vals`` that are constants or are computed from Variables, by name.
    globals, outs, ins : tuple of int
        Slots that the kernel accesses, stores to, and only loads from.
    scratch_outputs : tuple of int
        Output slots that the kernel uses as scratch space before it stores the results, or to which
        it stores some results twice. No other slot may share a byte with them.
    chunk_bytes : mapping of int to int
        For each slot that the chunks divide into equal parts, the number of bytes of one part; as
        in :class:`~kernelrt.device.program.ProgramSpec`.
    buf_count : int
        Number of slots. If `may_fail`, the last one is the status word's.
    host_parallel_safe : bool
        Whether the kernel may run at the same time as kernels that do not depend on it, and on
        which it does not depend.
    may_fail : bool
        Whether the kernel may store an error to the status word.
    global_size : Sizes
        Symbolic number of chunks; ``global_size[0]`` is the number of values of ``core_id``.
    local_size : Sizes or None
        Local launch sizes. None if ids are global.
    flops, bytes : Dim
        Estimated operations and bytes moved of one launch.
    cycles : Dim
        Estimated cycles that one launch computes on one core; 0 if only `flops` is known.
    target : DeviceSpec or None
        Device spec that the code was generated for, used to estimate costs; None if unknown.
    variant : str
        Name of the renderer's code variant; empty if the renderer did not generate the kernel.
    stack_bytes : int
        Stack bytes that local arrays take.

    Examples
    --------
    >>> [kernel] = krt.jit(lambda x: x * 2).plan(np.ones(3, np.float32)).kernels
    >>> kernel.outs, kernel.ins, kernel.flops, kernel.bytes
    ((0,), (1,), 3, 24)
    >>> print(kernel.loops())
    for i in 3 by 3: vectors of 3
        p0[i] = p1[i] * 2.0
    """

    program: Program
    device: str
    code: str
    entry_point: str
    ast: UOp
    vars: tuple[UOp, ...]
    var_names: tuple[str, ...]
    globals: tuple[int, ...]
    outs: tuple[int, ...]
    ins: tuple[int, ...]
    buf_count: int
    host_parallel_safe: bool = True
    may_fail: bool = False
    global_size: Sizes = _SINGLE
    local_size: Sizes | None = None
    flops: Dim = 0
    bytes: Dim = 0
    cycles: Dim = 0
    target: DeviceSpec | None = None
    variant: str = ""
    stack_bytes: int = 0
    scratch_outputs: tuple[int, ...] = ()
    chunk_bytes: Mapping[int, int] = field(default_factory=dict)
    numbers: Mapping[str, Dim] = field(default_factory=dict)
    _params: tuple[tuple[int, int, DType], ...] = field(init=False, repr=False)

    def vals_for(self, known: Mapping[str, int]) -> list[int]:
        """Return ``vals`` of a launch, given the values of Variables. Missing values are 0.

        Parameters
        ----------
        known : mapping of str to int
            Values of Variables by name.

        Returns
        -------
        list of int
            Values in the order of `var_names`.
        """
        numbers = self.numbers
        return [evaluate(numbers[n], known) if n in numbers else known.get(n, 0)
                for n in self.var_names]  # fmt: skip

    @property
    def is_foreign(self) -> bool:
        """Whether the kernel is a C function from the user, which may do anything."""
        return isinstance(self.program, FunctionProgram) and self.program.owner is not None

    def __post_init__(self) -> None:
        params = [(*u.arg, u.dtype) for u in toposort([self.ast]) if u.op is Op.PARAM]
        object.__setattr__(self, "_params", tuple(params))
        sizes = self.global_size + (self.local_size or ())
        known = {v.arg[0] for v in self.vars}
        for var in variables_of(sizes):
            if var.arg[0] not in known and var.arg[0] not in self.var_names:
                raise PlanBuildError(
                    f"kernel {self.entry_point!r}: the launch size depends on {var.arg[0]!r}, "
                    "which is not among its variables; add it"
                )
        if self.global_size[1:] != (1, 1):
            raise PlanBuildError(
                f"kernel {self.entry_point!r}: global_size {self.global_size} must be 1 in the "
                "second and third dimension; put the number of chunks into the first"
            )
        if self.global_size != _SINGLE and CORE_ID not in self.var_names:
            raise PlanBuildError(
                f"kernel {self.entry_point!r}: a global_size of {self.global_size} calls it more "
                f"than once; add {CORE_ID!r} as its last variable to distinguish the calls"
            )

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        return self  # immutable

    def __reduce__(self) -> Any:
        raise CopyError(
            f"kernel {self.entry_point!r} refers to code in this process and cannot be pickled; "
            "save the measurements instead, as in [(p.title, p.elapsed) for p in profiles]"
        )

    @property
    def address(self) -> int:
        """Address of the function."""
        return self.program.address

    @property
    def params(self) -> tuple[tuple[int, int, DType], ...]:
        """(slot, minimum number of elements, dtype) of each pointer parameter of the AST."""
        return self._params

    @property
    def is_split(self) -> bool:
        """Whether the kernel takes a ``core_id``."""
        return self.var_names[-1:] == (CORE_ID,)

    def loops(self) -> str:
        """Return an outline of the kernel: its loops, their tiles and their statements.

        Returns
        -------
        str
            Indented lines, to print.

        Raises
        ------
        CompileError
            The kernel was given as code, or calls a routine or a user function.

        Examples
        --------
        >>> twice = krt.jit(lambda x: x * 2)
        >>> [kernel] = twice.plan(krt.ones(3)).kernels
        >>> print(kernel.loops())
        for i in 3 by 3: vectors of 3
            p0[i] = p1[i] * 2.0
        """
        renderer = registry.opened(self.device).renderer
        if is_call(self.ast):
            raise CompileError(
                f"kernel {self.entry_point!r} calls a routine or a user function; only kernels "
                "that kernelrt generated from a graph have loops to show"
            )
        if renderer is None or not self.ast.src:
            raise CompileError(
                f"kernel {self.entry_point!r} was given as code; only kernels that kernelrt "
                "generated from a graph have loops to show"
            )
        return renderer.outline(self.ast, self.variant or None)

    @classmethod
    def from_program(cls, spec: ProgramSpec, program: Program) -> Self:
        """Make a kernel from the renderer's metadata and the loaded code.

        Parameters
        ----------
        spec : ProgramSpec
            Source of the kernel, and what the renderer knows about its arguments.
        program : Program
            Compiled code of this source, in memory.
        """
        return cls(
            program=program,
            device=spec.device.name,
            code=spec.src,
            entry_point=spec.name,
            ast=spec.ast,
            vars=tuple(spec.vars),
            var_names=tuple(spec.var_names),
            globals=tuple(spec.globals),
            outs=tuple(spec.outs),
            ins=tuple(spec.ins),
            buf_count=spec.buf_count,
            host_parallel_safe=spec.host_parallel_safe,
            may_fail=spec.may_fail,
            global_size=spec.global_size or _SINGLE,
            local_size=spec.local_size,
            flops=spec.flops,
            bytes=spec.bytes,
            cycles=spec.cycles,
            target=spec.device,
            variant=spec.variant,
            stack_bytes=spec.stack_bytes,
            scratch_outputs=tuple(spec.scratch_outputs),
            chunk_bytes=dict(spec.chunk_bytes),
        )

    @classmethod
    def from_compiled(
        cls,
        spec: CompiledSpec,
        outs: Sequence[int],
        *,
        variables: Sequence[UOp | Size] = (),
        device: str = "CPU",
        may_fail: bool = False,
        host_parallel_safe: bool = True,
        flops: Dim = 0,
        bytes: Dim = 0,  # noqa: A002 - the field's name
    ) -> Self:
        """Load one compiled kernel, from source or from bytes.

        Parameters
        ----------
        spec : CompiledSpec
            Kernel to load.
        outs : sequence of int
            Slots that the kernel stores to.
        variables : sequence of Variable
            Variables for the names in `spec.var_names`, with their bounds. You may leave out those
            that the AST contains.
        device : str
            Device to load the kernel on.
        may_fail : bool
            Whether the kernel takes a status word (``int64_t *``) in an additional last slot. It
            stores a nonzero number there for an index out of range; see
            :mod:`kernelrt.ir.status`.

        host_parallel_safe : bool
            Whether the kernel may run at the same time as kernels that do not depend on it, and on
            which it does not depend.
        flops, bytes : int or UOp
            Estimated operations and bytes moved of one launch, for profiles and costs.

        Returns
        -------
        CachedKernel
            The kernel, loaded.

        Raises
        ------
        CompileError
            The source or the object file is invalid.
        PlanBuildError
            `outs` or the sizes do not match the kernel.
        """
        inside = [u for u in toposort([spec.ast]) if u.op is Op.VAR]
        bound: tuple[UOp, ...] = plain(tuple(variables))
        slots, outs = _slots(spec.name, spec.buf_count, outs, may_fail)
        opened_device = registry.opened(device)
        [program] = opened_device.loader.load([spec])
        return cls(
            program=program,
            device=device,
            code=spec.src or "",
            entry_point=spec.name,
            ast=spec.ast,
            vars=tuple(dict.fromkeys([*bound, *inside])),
            var_names=spec.var_names,
            globals=tuple(range(slots)),
            outs=outs,
            ins=tuple(slot for slot in range(slots) if slot not in outs),
            buf_count=spec.buf_count,
            host_parallel_safe=host_parallel_safe,
            may_fail=may_fail,
            global_size=spec.global_size or _SINGLE,
            local_size=spec.local_size,
            flops=flops,
            bytes=bytes,
            target=opened_device.spec,
        )

    @classmethod
    def from_source(
        cls,
        name: str,
        src: str,
        buf_count: int,
        outs: Sequence[int],
        *,
        var_names: Sequence[str] | None = None,
        variables: Sequence[UOp | Size] = (),
        global_size: Sizes | None = None,
        **options: Any,
    ) -> Self:
        """Compile LLVM IR text.

        Parameters
        ----------
        name : str
            Name of the function in `src`: ``define void @name(ptr %bufs, ptr %vals)``.
        src : str
            LLVM IR.
        buf_count : int
            Number of slots of ``bufs``.
        outs : sequence of int
            Slots that the kernel stores to.
        var_names : sequence of str, optional
            Names of the values in ``vals``; the names of `variables` by default.
        global_size : Sizes, optional
            Number of chunks; requires ``core_id`` as the last of `var_names`.
        **options
            Options of :meth:`from_compiled`.

        Returns
        -------
        CachedKernel
            The kernel, loaded.

        Raises
        ------
        CompileError
            The source is invalid.
        PlanBuildError
            `outs` or the sizes do not match the kernel.

        Examples
        --------
        >>> src = '''
        ... define void @one(ptr %bufs, ptr %vals) {
        ...   %out = load ptr, ptr %bufs
        ...   store float 1.0, ptr %out
        ...   ret void
        ... }'''
        >>> kernel = krt.runtime.CachedKernel.from_source("one", src, 1, [0])
        >>> kernel.entry_point, kernel.outs
        ('one', (0,))
        """
        bound: tuple[UOp, ...] = plain(tuple(variables))
        names = [v.arg[0] for v in bound] if var_names is None else var_names
        spec = CompiledSpec.from_source_with_sizes(
            name, src, _opaque(name), names, global_size, None, buf_count
        )
        return cls.from_compiled(spec, outs, variables=variables, **options)

    @classmethod
    def from_function(
        cls,
        function: object,
        buf_count: int,
        outs: Sequence[int],
        *,
        name: str | None = None,
        var_names: Sequence[str] | None = None,
        variables: Sequence[UOp | Size] = (),
        global_size: Sizes | None = None,
        may_fail: bool = False,
        host_parallel_safe: bool = False,
        flops: Dim = 0,
        bytes: Dim = 0,  # noqa: A002 - the field's name
    ) -> Self:
        """Make a kernel from a C function ``void (void *const *bufs, const int64_t *vals)``.

        The function runs without the GIL.

        Parameters
        ----------
        function : int or object
            Address, ctypes function pointer, numba cfunc or Cython capsule. Unless it is an
            address, the kernel keeps it alive.
        buf_count : int
            Number of slots of ``bufs``.
        outs : sequence of int
            Slots that the function stores to.
        name : str, optional
            Name in errors and profiles; by default that of `function`.
        var_names : sequence of str, optional
            Names of the values in ``vals``; the names of `variables` by default.
        variables : sequence of Variable
            Variables with their bounds.
        global_size : Sizes, optional
            Number of chunks; requires ``core_id`` as the last of `var_names`.
        may_fail : bool
            Whether the function takes a status word, as in :meth:`from_compiled`.
        host_parallel_safe : bool
            Whether the function may run at the same time as other kernels of the plan.

        flops, bytes : int or UOp
            Estimated operations and bytes moved of one call.

        Returns
        -------
        CachedKernel
            The kernel.

        Raises
        ------
        PlanBuildError
            `function` has no address, or `outs` lie outside of its slots.

        Examples
        --------
        >>> import ctypes
        >>> from kernelrt.device import Buffer
        >>> kind = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p)
        >>> @kind
        ... def seven(bufs, vals):
        ...     ctypes.c_int64.from_address(bufs[0]).value = 7
        >>> kernel = krt.runtime.CachedKernel.from_function(seven, 1, [0])
        >>> builder = krt.runtime.ExecutionPlanBuilder()
        >>> out = builder.add_intermediate(1, krt.int64)
        >>> op = builder.add_kernel(kernel, [out])
        >>> builder.set_output_buffer(out)
        >>> plan = builder.build()
        >>> plan.execute()
        >>> plan.output_buffer.numpy().tolist()
        [7]
        """
        address = address_of(function)
        name = name or str(getattr(function, "__name__", None) or f"function_{address:x}")
        slots, outs = _slots(name, buf_count, outs, may_fail)
        bound: tuple[UOp, ...] = plain(tuple(variables))
        names = [v.arg[0] for v in bound] if var_names is None else var_names
        return cls(
            program=FunctionProgram(name, address, function),
            device="CPU",
            code="",
            entry_point=name,
            ast=_opaque(name),
            vars=bound,
            var_names=tuple(names),
            globals=tuple(range(slots)),
            outs=outs,
            ins=tuple(slot for slot in range(slots) if slot not in outs),
            buf_count=slots + may_fail,
            host_parallel_safe=host_parallel_safe,
            may_fail=may_fail,
            global_size=plain(global_size) or _SINGLE,
            flops=flops,
            bytes=bytes,
        )

    def __repr__(self) -> str:
        return f"<CachedKernel {self.entry_point!r} on {self.device}>"


def _slots(
    name: str, buf_count: int, outs: Sequence[int], may_fail: bool
) -> tuple[int, tuple[int, ...]]:
    """Return the number of slots of a kernel, and the slots that it stores to, sorted."""
    slots = whole("buf_count", buf_count) - may_fail
    stored = sorted({whole("outs", slot) for slot in outs})
    bad = [slot for slot in stored if not 0 <= slot < slots]
    if bad:
        raise PlanBuildError(
            f"kernel {name!r}: outs: expected slots from 0 to {slots - 1}, not {bad}"
        )
    return slots, tuple(stored)


def _opaque(name: str) -> UOp:
    """Return a placeholder AST for a kernel that was not generated from an AST."""
    return UOp(Op.SINK, dt.int64, (), name)


def address_of(function: object, argument: str = "function") -> int:
    """Return the address of a C function. Raise PlanBuildError if it has none."""
    address = 0
    if isinstance(function, int):
        address = function
    elif isinstance(function, _FUNCTION_POINTER):
        address = ctypes.cast(function, ctypes.c_void_p).value or 0
    elif type(function).__name__ == "PyCapsule":
        address = _capsule_pointer(function)
    else:
        address = getattr(function, "address", 0)  # numba.cfunc
    if type(address) is not int or not 0 < address <= _LAST_ADDRESS:
        raise PlanBuildError(
            f"{argument}: {function!r} has no address; expected a ctypes function pointer, a numba "
            "cfunc, a capsule, or the address as an int from 1 to 2**64 - 1"
        )
    return address


def _capsule_pointer(capsule: object) -> int:
    name = ctypes.pythonapi.PyCapsule_GetName
    name.argtypes, name.restype = [ctypes.py_object], ctypes.c_char_p
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.argtypes, pointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
    return int(pointer(capsule, name(capsule)) or 0)
