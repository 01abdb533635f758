"""Types of `memory`: memory that kernels read and write."""

from typing import Any, NoReturn, Self

from typing_extensions import Buffer

from kernelrt.dtype import DType

def wrote() -> None:
    """Report a write to existing memory by code other than a plan."""

def count_writes() -> int:
    """Return the number of writes that `wrote` reported or plans made outside their own memory."""

def no_copies(what: object) -> NoReturn:
    """Raise the CopyError for an object that refers to memory or code of this process."""

class BlockCache:
    """Allocator of aligned memory that caches freed blocks and evicts the oldest first."""

    limit: int
    """Maximum number of bytes in cached free blocks."""

    def __init__(self, limit: int = ...) -> None: ...
    def alloc(self, nbytes: int) -> StoredMemory:
        """Return `nbytes` bytes of uninitialised memory.

        Raises
        ------
        OutOfMemoryError
            The system has no memory left, even after the cache was emptied.
        """
    def free(self, memory: Memory) -> None:
        """Return unused memory to the cache; memory with live views is kept until they die."""
    def trim(self, keep: int = 0) -> int:
        """Return blocks to the system until at most `keep` bytes are cached.

        Returns
        -------
        int
            Number of bytes returned to the system.
        """
    def _counts(self) -> tuple[int, int, int, int]:
        """Return the cached bytes, the limit, and the numbers of hits and misses."""

class Code:
    """Machine code that runs. Without references to this object, no program can call the code.

    Parameters
    ----------
    code : bytes
        Position-independent code, at least one byte.

    Raises
    ------
    CompileError
        The system does not let this process run new code.
    OutOfMemoryError
        The memory cannot be allocated.
    """

    def __init__(self, code: bytes) -> None: ...
    @property
    def address(self) -> int:
        """Address of the first byte, at the start of a page."""

class Memory(Buffer):
    """Owned or borrowed memory that exports a buffer of unsigned bytes.

    Raises
    ------
    ShapeError
        `nbytes` is negative, or `alignment` is not a power of two of at most 2**20.
    OutOfMemoryError
        The memory cannot be allocated.
    """

    def __init__(self, nbytes: int, *, alignment: int = 64, zero: bool = False) -> None: ...
    @property
    def address(self) -> int:
        """Address of the first byte, never 0. Raises BufferReleasedError after release."""
    @property
    def nbytes(self) -> int: ...
    @property
    def exports(self) -> int:
        """Number of live views of the memory, taken through the buffer protocol."""
    @property
    def released(self) -> bool: ...
    def release(self) -> None:
        """Free the memory now. A second call does nothing.

        Raises
        ------
        BufferError
            A view of the memory still exists.
        """
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __release_buffer__(self, view: memoryview, /) -> None: ...

class StoredMemory(Memory):
    """Memory of a Storage."""

    @staticmethod
    def borrow(view: memoryview) -> StoredMemory:
        """Borrow the bytes of a contiguous memoryview, and keep the view alive.

        Raises
        ------
        DTypeError, ShapeError
            `view` is not a memoryview, or not contiguous.
        """
    @property
    def storage(self) -> Storage | None:
        """Storage that uses this memory; None if it is gone."""

class Storage:
    """Bytes shared by one or more buffers: either owned and allocated on first use, or borrowed."""

    def __init__(
        self, nbytes: int, device: str, cache: BlockCache, memory: StoredMemory | None = None
    ) -> None: ...
    @property
    def device(self) -> str:
        """Device that the memory belongs to."""
    @property
    def nbytes(self) -> int:
        """Length in bytes."""
    @property
    def readonly(self) -> bool:
        """Whether kernels must not write to the memory."""
    @property
    def own(self) -> bool:
        """Whether only plans, and code that reports writes by :func:`wrote`, can write here."""
    @property
    def shared(self) -> bool:
        """Whether :meth:`share` was called."""
    @property
    def lender(self) -> memoryview | None:
        """View of the bytes of the object that owns them; None for memory of kernelrt."""
    def watch(self) -> int:
        """Make :meth:`share` call :func:`wrote`."""
    def share(self) -> None:
        """Note that outside code may write here from now on, without reporting it."""
    @property
    def owned(self) -> bool:
        """Whether kernelrt owns the bytes; False for a wrapped array."""
    @property
    def address(self) -> int:
        """Address of the first byte. Allocates the memory; BufferReleasedError after release."""
    @property
    def allocated(self) -> bool:
        """Whether the memory is allocated and not released."""
    @property
    def released(self) -> bool:
        """Whether the memory was released; it is not allocated again."""
    @property
    def exported(self) -> bool:
        """Whether a view of the bytes exists outside this object."""
    def discard(self) -> None:
        """Return the pages to the system if the storage owns them; the content is lost."""
    def hold(self) -> memoryview:
        """Return a view of all bytes; they are neither freed nor moved while it exists."""
    def hand_out(self) -> int:
        """Return the address to code that may use it at any time. The memory is never released."""
    def release(self) -> None:
        """Free the bytes now; raise BufferError while a view of them exists."""

class Exporter(Buffer):
    """Base class of Python classes with the buffer protocol, also before Python 3.12."""

    _storage: Storage
    base: Any
    dtype: DType
    id: int
    label: str
    constant: bool
    """Whether the buffer is a constant array of an operation, which is never written."""
    nbytes: int
    offset: int
    size: int

    def keep(self) -> memoryview:
        """Return the bytes as a view, for callers that write only by plans.

        See :meth:`Buffer.hold`.
        """

    @classmethod
    def _lent(
        cls,
        memory: Memory,
        size: int,
        nbytes: int,
        dtype: DType,
        number: int,
        cache: BlockCache,
        /,
    ) -> Self:
        """Return an object over the first bytes of `memory`, which it keeps alive.

        `cache` is the allocator of the device.
        """

    def _export(self) -> Any:
        """Return the object to export; views keep that object alive, not this one. Override it."""
    def __buffer__(self, flags: int, /) -> memoryview: ...
