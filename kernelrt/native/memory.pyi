"""Types of the memory that kernels access."""

from typing import Any, NoReturn, Self

from typing_extensions import Buffer

from kernelrt.dtype import DType

def wrote() -> None:
    """Note that existing memory is, or was, written by other means than a plan."""

def count_writes() -> int:
    """Return the count of :func:`wrote` calls and of runs that write memory outside their plan."""

def no_copies(what: object) -> NoReturn:
    """Raise the CopyError of an object that refers to memory or code of this process."""

class BlockCache:
    """A cache of aligned memory blocks; the block freed longest ago is evicted first."""

    limit: int
    """Maximum number of bytes of cached free blocks."""

    def __init__(self, limit: int = ...) -> None: ...
    def alloc(self, nbytes: int) -> StoredMemory:
        """Return `nbytes` bytes of uninitialized memory.

        Raises
        ------
        OutOfMemoryError
            The system has no memory left, even after the cache was emptied.
        """
    def free(self, memory: Memory) -> None:
        """Free memory that is no longer used; live views keep it until they are deleted."""
    def trim(self, keep: int = 0) -> int:
        """Return blocks to the system until at most `keep` bytes are cached.

        Returns
        -------
        int
            Number of bytes returned to the system.
        """
    def _counts(self) -> tuple[int, int, int, int]:
        """Return cached bytes, the limit, hits and misses."""

class Memory(Buffer):
    """Memory that this object owns or borrows, as a buffer of unsigned bytes.

    Raises
    ------
    ShapeError
        `nbytes` is negative, or `alignment` is not a power of two of at most 2**20.
    OutOfMemoryError
        The memory could not be allocated.
    """

    def __init__(self, nbytes: int, *, alignment: int = 64, zero: bool = False) -> None: ...
    @property
    def address(self) -> int:
        """Address of the first byte, never 0. Raises BufferReleasedError after release."""
    @property
    def nbytes(self) -> int: ...
    @property
    def exports(self) -> int:
        """Number of live views of the memory through the buffer protocol."""
    @property
    def released(self) -> bool: ...
    def release(self) -> None:
        """Free the memory now. A second call does nothing.

        Raises
        ------
        BufferError
            A view of the memory is still alive.
        """
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __release_buffer__(self, view: memoryview, /) -> None: ...

class StoredMemory(Memory):
    """The memory of a storage."""

    @staticmethod
    def borrow(view: memoryview) -> StoredMemory:
        """Borrow the bytes of a contiguous memoryview, and keep a reference to it.

        Raises
        ------
        DTypeError, ShapeError
            `view` is not a memoryview, or its memory is not contiguous.
        """
    @property
    def storage(self) -> Storage | None:
        """The Storage of this memory, while it is alive."""

class Storage:
    """The memory of one or more buffers: owned and allocated on first use, or borrowed."""

    def __init__(
        self, nbytes: int, device: str, cache: BlockCache, memory: StoredMemory | None = None
    ) -> None: ...
    @property
    def device(self) -> str:
        """Device of the memory."""
    @property
    def nbytes(self) -> int:
        """Size in bytes."""
    @property
    def readonly(self) -> bool:
        """Whether kernels must not write here."""
    @property
    def own(self) -> bool:
        """Whether every writer is a plan or reports its writes by :func:`wrote`."""
    @property
    def shared(self) -> bool:
        """Whether :meth:`share` was called."""
    @property
    def lender(self) -> memoryview | None:
        """View of the object that owns the memory; None for memory of kernelrt."""
    def watch(self) -> int:
        """Call :func:`wrote` when the memory begins to be shared."""
    def share(self) -> None:
        """Note that other code may write here from now on without reporting it."""
    @property
    def owned(self) -> bool:
        """Whether kernelrt owns the memory, not a wrapped array."""
    @property
    def address(self) -> int:
        """Address of the first byte. Allocates; raises BufferReleasedError after release."""
    @property
    def allocated(self) -> bool:
        """Whether memory is allocated at present."""
    @property
    def released(self) -> bool:
        """Whether the memory was freed permanently."""
    @property
    def exported(self) -> bool:
        """Whether a view of the memory exists outside this object."""
    def discard(self) -> None:
        """Return the pages to the system if the storage owns them; their contents are lost."""
    def hold(self) -> memoryview:
        """Return a view of the memory; while it is alive, the memory is not freed or moved."""
    def hand_out(self) -> int:
        """Return the address for use of unknown duration; prevents release permanently."""
    def release(self) -> None:
        """Free the memory now; raise BufferError while a view of it exists."""

class Exporter(Buffer):
    """Base class that adds the buffer protocol to a Python class, also before Python 3.12."""

    _storage: Storage
    base: Any
    dtype: DType
    id: int
    label: str
    constant: bool
    """Whether this is a constant array of an operation, which is never written."""
    nbytes: int
    offset: int
    size: int

    def keep(self) -> memoryview:
        """Return a view of the bytes for code that writes only by plans; see `Buffer.hold`."""

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
        """Return an object over the first bytes of `memory`; `cache` is the cache of its device."""

    def _export(self) -> Any:
        """Return the exported object, which views keep alive instead of this; to be overridden."""
    def __buffer__(self, flags: int, /) -> memoryview: ...
