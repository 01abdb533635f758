"""Specs and protocols between code generator, compiler and loader."""

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

#: The variable that tells a kernel split over cores which share it computes.
CORE_ID = "core_id"
#: Three launch sizes: numbers, or integer expressions over Variables.
Sizes = tuple[Dim, Dim, Dim]


@dataclass(slots=True, eq=False)
class ProgramSpec:
    """A kernel as source, with what a compiler and a plan have to know about it.

    The source defines ``void name(void *const *bufs, const int64_t *vals)``.

    Attributes
    ----------
    name : str
        Entry point; an identifier.
    src : str
        Source text, LLVM IR for the CPU.
    device : DeviceSpec
        The target that the source was written for.
    ast : UOp
        The kernel AST (a SINK) that the source implements.
    global_size : Sizes or None
        Chunks in each direction. ``global_size[0]`` counts the values of ``core_id``.
    local_size : Sizes or None
        Threads of a group on devices that have groups; None means direct global ids.
    vars : list of UOp
        The Variables that the kernel reads, without ``core_id``.
    var_names : list of str
        Names of the values in ``vals``, in order; ``core_id`` is last if the kernel is split.
    globals : list of int
        Slots of ``bufs`` that the kernel touches, ascending.
    outs, ins : list of int
        Slots stored to, and slots loaded from that are no outputs.
    lent : list of int
        Those of `outs` that hold what the kernel computes before it stores its results there, or to
        which it stores some results twice. The code takes them for memory of its own: no other slot
        may share a byte with one of them.
    chunk_bytes : dict of int to int
        Slots that chunks share out among themselves -> bytes of each: chunk `c` touches none of the
        slot but some from ``c`` to before ``c + 1`` times as many. Of others it may touch all.
    buf_count : int
        Length of ``bufs``.
    flops, bytes : Dim
        Estimated floating-point operations, and bytes read and written, of one launch.
    cycles : Dim
        Estimated cycles that one launch computes for on one core, apart from what it waits for
        memory; see :mod:`kernelrt.device.costs`.
    host_parallel_safe : bool
        Whether the kernel may run beside kernels that it is not ordered with.
    may_fail : bool
        Whether it may store to the status word, which is then its last slot.
    variant : str
        How it was written, in the renderer's own words: `Renderer.render` takes them.
    stack_bytes : int
        What its local arrays take of the stack of the thread that runs it.

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
    lent: list[int] = field(default_factory=list)
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
        """Append a Variable to `vars` and its name to `var_names` (before ``core_id``)."""
        var = plain(var)
        if not isinstance(var, UOp) or var.op is not Op.VAR:
            raise SpecError(f"add_var: expected a Variable, not {var!r}")
        name = var.arg[0]
        if any(v.arg[0] == name and v is not var for v in self.vars):
            raise SpecError(f"add_var: two different Variables are called {name!r}")
        if var not in self.vars:
            self.vars.append(var)
        if name not in self.var_names:
            at = len(self.var_names) - (self.var_names[-1:] == [CORE_ID])
            self.var_names.insert(at, name)
        return self

    def set_work_sizes(self, global_size: Sizes, local_size: Sizes | None = None) -> Self:
        """Set how many chunks a launch has, and how large a group is."""
        self.global_size = _check_sizes("global_size", global_size)
        self.local_size = None if local_size is None else _check_sizes("local_size", local_size)
        return self

    def set_var_names(self, names: Iterable[str]) -> Self:
        """Set the order of values in ``vals``; ``core_id`` may only be last."""
        names = list(names)
        _check_var_names(names)
        self.var_names = names
        return self

    def set_buffer_metadata(
        self, outs: Iterable[int], ins: Iterable[int], buf_count: int | None = None
    ) -> Self:
        """Set which slots are stored to and which are loaded; `globals` is their union.

        A slot that is both is an output only.
        """
        out_set = set(outs)
        in_set = set(ins) - out_set
        both = sorted(out_set | in_set)
        count = (both[-1] + 1 if both else 0) if buf_count is None else buf_count
        if both and (both[0] < 0 or both[-1] >= count):
            raise SpecError(f"set_buffer_metadata: slots {both} do not fit {count} buffers")
        self.outs, self.ins, self.globals = sorted(out_set), sorted(in_set), both
        self.buf_count = count
        return self


@dataclass(frozen=True, slots=True, eq=False)
class CompiledSpec:
    """A compiled kernel: source that a loader compiles (JIT) or object bytes (AOT).

    Exactly one of `src` and `bytes` is set. Both run alike: `bytes` is how an object cache or
    an ahead-of-time build enters.

    Attributes
    ----------
    name : str
        Entry point.
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
                f"name: a compiled kernel needs the name of its entry point, not {self.name!r}"
            )
        if (self.src is None) == (self.bytes is None):
            raise CompileError(f"kernel {self.name!r}: give either src or bytes, not both or none")
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
        """Make a kernel from source text, launched once."""
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
    """One of the ways to write a kernel.

    Attributes
    ----------
    text : str
        It, in the renderer's own words; the same for the same way in every process.
    keeps_bits : bool
        Whether results are those of the renderer's own choice bit for bit, on any data.
    cycles : float
        An estimate, to compare variants of one kernel by.
    """

    text: str
    keeps_bits: bool
    cycles: float


class Renderer(Protocol):
    """Turns kernel ASTs into source."""

    @property
    def device(self) -> DeviceSpec:
        """The target that sources are written for."""

    def render(self, ast: UOp, variant: str | None = None) -> ProgramSpec:
        """Give the program of a kernel AST, written as `variant` says if it is given.

        Raises SpecError where the AST is not legal, or `variant` is none of it.
        """

    def variants(self, ast: UOp, around: str | None = None) -> Iterator[Variant]:
        """Give ways to write a kernel, `around` or else the renderer's choice first."""

    def outline(self, ast: UOp, variant: str | None = None) -> str:
        """Give the loops of a kernel AST as text for people."""


class Compiler(Protocol):
    """Turns sources into objects."""

    def compile(self, programs: Sequence[ProgramSpec]) -> list[CompiledSpec]:
        """Compile all `programs` in one go, in order.

        A program may be written when it is first looked at, by this thread, and the first ones
        can be compiled before that. What writing one raises is raised here.

        Raises
        ------
        CompileError
            A source was rejected; the message names the kernel and quotes the compiler.
        """

    def forget(self, programs: Sequence[ProgramSpec]) -> bool:
        """Drop what is kept of `programs`, which could not be loaded; whether there was anything.

        If so, compiling them again may help.
        """


@runtime_checkable
class Program(Protocol):
    """Code in memory. The address is valid for as long as this object is alive."""

    @property
    def name(self) -> str:
        """The entry point's name."""

    @property
    def address(self) -> int:
        """Address of ``void (*)(void *const *bufs, const int64_t *vals)``."""


class Loader(Protocol):
    """Brings compiled kernels into memory."""

    def load(self, compiled: Sequence[CompiledSpec]) -> list[Program]:
        """Link all `compiled` in one go. Raises CompileError where a symbol is missing."""

    def collect(self) -> None:
        """Free what is left of programs that are gone. Loading more may do so, too."""


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
        raise SpecError(f"var_names: {list(names)} names a variable twice")
    if CORE_ID in names[:-1]:
        raise SpecError(f"var_names: {CORE_ID} must come last, not as in {list(names)}")
