"""Specs of kernels, and the protocols of code generator, compiler and loader."""

from __future__ import annotations

import builtins
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self, runtime_checkable

from kernelrt.errors import CompileError, SpecError
from kernelrt.ir import Dim, Op, UOp
from kernelrt.ir.size import Size, plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kernelrt.device.spec import DeviceSpec

__all__ = [
    "CORE_ID",
    "CompiledSpec",
    "Compiler",
    "Loader",
    "Program",
    "ProgramSpec",
    "Renderer",
    "Sizes",
    "Variant",
]

#: Variable with the index of the chunk that a call of a split kernel computes.
CORE_ID = "core_id"
#: Launch sizes in three dimensions: numbers, or integer expressions over Variables.
Sizes = tuple[Dim, Dim, Dim]


@dataclass(slots=True, eq=False)
class ProgramSpec:
    """A kernel as source, with the metadata that a compiler and a plan need.

    The source defines ``void name(void *const *bufs, const int64_t *vals)``.

    Attributes
    ----------
    name : str
        Name of the entry point, an identifier.
    src : str
        Source text; LLVM IR for the CPU.
    device : DeviceSpec
        The target of the source.
    ast : UOp
        The kernel AST (a SINK) that the source implements.
    global_size : Sizes or None
        Number of chunks in each dimension. ``global_size[0]`` counts the values of ``core_id``.
    local_size : Sizes or None
        Threads of a group, on devices with groups. None means global ids without groups.
    vars : list of UOp
        The Variables that the kernel reads, without ``core_id``.
    var_names : list of str
        Names of the values in ``vals``, in order; ``core_id`` is last if the kernel is split.
    globals : list of int
        Slots of ``bufs`` that the kernel touches, ascending.
    outs, ins : list of int
        Slots that the kernel stores to, and slots that it only loads from.
    scratch_outputs : list of int
        Slots of `outs` that hold local arrays before the results, or to which some results are
        stored twice. No other slot may share a byte with these, because the code assumes exclusive
        access.
    chunk_bytes : dict of int to int
        Maps each slot that the chunks divide among them to the number of bytes `n` of a chunk.
        Chunk `c` touches only bytes ``c * n`` to ``(c + 1) * n`` (exclusive) of such a slot. A
        chunk may touch all bytes of other slots.
    buf_count : int
        Length of ``bufs``.
    flops, bytes : Dim
        Estimated floating-point operations of one launch, and bytes that it reads and writes.
    cycles : Dim
        Estimated compute cycles of one launch on one core, without memory stalls; see
        :mod:`kernelrt.device.costs`.
    host_parallel_safe : bool
        Whether the kernel may run at the same time as kernels that do not depend on it, and on
        which it does not depend.
    may_fail : bool
        Whether the kernel may store to a status word. If so, the status word is its last slot.
    variant : str
        Variant that the source was generated from. `Renderer.render` accepts it.
    stack_bytes : int
        Bytes that the local arrays take on the stack of the thread that runs the kernel.

    Examples
    --------
    >>> from kernelrt import dtype
    >>> from kernelrt.device.spec import DeviceSpec
    >>> from kernelrt.ir import Variable
    >>> spec = ProgramSpec("k", "...", DeviceSpec.avx2(), UOp(Op.SINK, dtype.int64))
    >>> spec.add_var(Variable("n", 1, 8)).set_work_sizes((4, 1, 1)).var_names
    ['n']
    """

    name: str
    src: str
    device: DeviceSpec
    ast: UOp
    global_size: Sizes | None = None
    local_size: Sizes | None = None
    vars: list[UOp] = field(default_factory=list)
    var_names: list[str] = field(default_factory=list)
    globals: list[int] = field(default_factory=list)
    outs: list[int] = field(default_factory=list)
    ins: list[int] = field(default_factory=list)
    scratch_outputs: list[int] = field(default_factory=list)
    chunk_bytes: dict[int, int] = field(default_factory=dict)
    buf_count: int = 0
    flops: Dim = 0
    bytes: Dim = 0
    cycles: Dim = 0
    host_parallel_safe: bool = True
    may_fail: bool = False
    variant: str = ""
    stack_bytes: int = 0

    def add_var(self, var: UOp | Size) -> Self:
        """Add a Variable to `vars` and its name to `var_names` (before ``core_id``)."""
        var = plain(var)
        if not isinstance(var, UOp) or var.op is not Op.VAR:
            raise SpecError(f"add_var: expected a Variable, not {var!r}")
        name = var.arg[0]
        if any(v.arg[0] == name and v is not var for v in self.vars):
            raise SpecError(
                f"add_var: two different Variables are called {name!r}; use one, or two names"
            )
        if var not in self.vars:
            self.vars.append(var)
        if name not in self.var_names:
            at = len(self.var_names) - (self.var_names[-1:] == [CORE_ID])
            self.var_names.insert(at, name)
        return self

    def set_work_sizes(self, global_size: Sizes, local_size: Sizes | None = None) -> Self:
        """Set the number of chunks of a launch and the size of a group, and return the spec."""
        self.global_size = _check_sizes("global_size", global_size)
        self.local_size = None if local_size is None else _check_sizes("local_size", local_size)
        return self

    def set_var_names(self, names: Iterable[str]) -> Self:
        """Set the order of values in ``vals``, and return the spec.

        ``core_id``, if it is among them, must be last.
        """
        names = list(names)
        _check_var_names(names)
        self.var_names = names
        return self

    def set_buffer_metadata(
        self, outs: Iterable[int], ins: Iterable[int], buf_count: int | None = None
    ) -> Self:
        """Set the slots that are stored to and loaded from, and return the spec.

        `globals` becomes the union of both. A slot that is stored to and loaded from counts as an
        output only.
        """
        out_set = set(outs)
        in_set = set(ins) - out_set
        both = sorted(out_set | in_set)
        count = (both[-1] + 1 if both else 0) if buf_count is None else buf_count
        if both and (both[0] < 0 or both[-1] >= count):
            raise SpecError(
                f"set_buffer_metadata: expected slots of at least 0 and below {count}, the number "
                f"of buffers, not {both}"
            )
        self.outs, self.ins, self.globals = sorted(out_set), sorted(in_set), both
        self.buf_count = count
        return self


@dataclass(frozen=True, slots=True, eq=False)
class CompiledSpec:
    """A compiled kernel: source that a loader compiles (JIT) or object bytes (AOT).

    Either `src` or `bytes` is set. Object caches and ahead-of-time builds use `bytes`.

    Attributes
    ----------
    name : str
        Name of the entry point.
    src : str or None
        Source text.
    bytes : bytes or None
        A relocatable object that defines `name`.
    ast : UOp
        The kernel AST.
    var_names : tuple of str
        Names of the values in ``vals``.
    global_size, local_size : Sizes or None
        As in :class:`ProgramSpec`.
    buf_count : int
        Length of ``bufs``.
    """

    name: str
    src: str | None
    bytes: builtins.bytes | None
    ast: UOp
    var_names: tuple[str, ...] = ()
    global_size: Sizes | None = None
    local_size: Sizes | None = None
    buf_count: int = 0

    def __post_init__(self) -> None:
        given: object = self.name
        if not isinstance(given, str) or not given:
            raise CompileError(
                f"name: expected the name of the entry point, a non-empty str, not {self.name!r}"
            )
        if (self.src is None) == (self.bytes is None):
            raise CompileError(
                f"kernel {self.name!r}: expected exactly one of src and bytes, not "
                f"{'none' if self.src is None else 'both'}"
            )
        if not isinstance(self.src, str | None):
            raise CompileError(
                f"kernel {self.name!r}: src: expected LLVM IR as a str, not "
                f"{type(self.src).__name__}"
            )
        if self.bytes is not None and not self.bytes:
            raise CompileError(f"kernel {self.name!r}: bytes is empty; expected an object file")
        _check_var_names(self.var_names)

    @classmethod
    def from_source(cls, name: str, src: str, ast: UOp, buf_count: int) -> Self:
        """Make a kernel from source text, without variables and launch sizes."""
        return cls(name, src, None, ast, buf_count=buf_count)

    @classmethod
    def from_source_with_sizes(
        cls,
        name: str,
        src: str,
        ast: UOp,
        var_names: Sequence[str],
        global_size: Sizes | None,
        local_size: Sizes | None,
        buf_count: int,
    ) -> Self:
        """Make a kernel from source text, with its variables and launch sizes."""
        return cls(name, src, None, ast, tuple(var_names), global_size, local_size, buf_count)

    @classmethod
    def from_bytes(
        cls,
        name: str,
        data: builtins.bytes,
        ast: UOp,
        buf_count: int,
        *,
        var_names: Sequence[str] = (),
        global_size: Sizes | None = None,
        local_size: Sizes | None = None,
    ) -> Self:
        """Make a kernel from a relocatable object."""
        sizes = (global_size, local_size)
        return cls(name, None, builtins.bytes(data), ast, tuple(var_names), *sizes, buf_count)


class Variant(NamedTuple):
    """A variant of a kernel: one of the ways to generate code for it.

    Attributes
    ----------
    text : str
        Description of the variant, in a format of the renderer. It is the same in every process.
    keeps_bits : bool
        Whether results are bitwise equal to those of the renderer's default, on any data.
    cycles : float
        Estimated cycles, to compare variants of one kernel.
    """

    text: str
    keeps_bits: bool
    cycles: float


class Renderer(Protocol):
    """Turns kernel ASTs into source."""

    @property
    def device(self) -> DeviceSpec:
        """The target of the sources."""

    def render(self, ast: UOp, variant: str | None = None) -> ProgramSpec:
        """Return the program of a kernel AST. By default the renderer chooses the variant.

        Raises
        ------
        SpecError
            The AST is invalid, or `variant` is not a variant of it.
        """

    def variants(self, ast: UOp, around: str | None = None) -> Iterator[Variant]:
        """Yield variants of a kernel that are similar to the variant `around`, which comes first.

        `around` is the choice of the renderer by default.
        """

    def outline(self, ast: UOp, variant: str | None = None) -> str:
        """Return the loops of a kernel AST as readable text."""


class Compiler(Protocol):
    """Turns sources into objects."""

    def compile(self, programs: Sequence[ProgramSpec]) -> list[CompiledSpec]:
        """Compile all `programs` together, and return them in order.

        `programs` may be lazy: then a source is generated when it is first read, while earlier
        sources are compiled already. In this case, errors of code generation are raised here.

        Raises
        ------
        CompileError
            A source was rejected. The message names the kernel and quotes the compiler.
        """

    def forget(self, programs: Sequence[ProgramSpec]) -> bool:
        """Drop cached objects of `programs`, which could not be loaded.

        Return whether there were such objects. If so, it may help to compile the programs again.
        """


@runtime_checkable
class Program(Protocol):
    """Code in memory. The address is valid while this object is alive."""

    @property
    def name(self) -> str:
        """Name of the entry point."""

    @property
    def address(self) -> int:
        """Address of ``void (*)(void *const *bufs, const int64_t *vals)``."""


class Loader(Protocol):
    """Loads compiled kernels into memory."""

    def load(self, compiled: Sequence[CompiledSpec]) -> list[Program]:
        """Link all `compiled` kernels together. Raise CompileError if a symbol is missing."""

    def collect(self) -> None:
        """Free the remaining memory of deleted programs. :meth:`load` may do this as well."""

    def flat(self, compiled: Sequence[CompiledSpec]) -> tuple[bytes, list[int]]:
        """Link all `compiled` kernels to position-independent code; return it and their offsets.

        Raises CompileError if a kernel calls a function.
        """


def _check_sizes(argument: str, sizes: Sizes) -> Sizes:
    checked: object = plain(sizes)
    if not (
        isinstance(checked, tuple)
        and len(checked) == 3
        and all(isinstance(s, int | UOp) for s in checked)
    ):
        raise SpecError(f"{argument}: expected three ints or integer UOps, not {sizes!r}")
    return checked


def _check_var_names(names: Sequence[str]) -> None:
    if len(set(names)) != len(names):
        raise SpecError(f"var_names: {list(names)} names a variable twice; name it once")
    if CORE_ID in names[:-1]:
        raise SpecError(f"var_names: {CORE_ID} must come last, not as in {list(names)}")
