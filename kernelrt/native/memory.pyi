"""Types of the memory that kernels read and write."""

from typing import Any, NoReturn, Self

from typing_extensions import Buffer

from kernelrt.dtype import DType

def wrote() -> None:
    """Tell that memory which is there already is, or was, written by other means than a plan."""

def count_writes() -> int:
    """How often that was told, and plans wrote to memory that is not theirs alone."""

def no_copies(what: object) -> NoReturn:
    """Raise the CopyError of what stands for memory or code of this process."""

class BlockCache:
    """Aligned memory; freed blocks are kept, the one freed longest ago is given back first."""

    limit: int
    """Most bytes of free blocks that are kept."""

    def __init__(self, limit: int = ...) -> None: ...
    def alloc(self, nbytes: int) -> StoredMemory:
        """Memory of `nbytes` bytes with arbitrary content.

        Raises
        ------
        OutOfMemoryError
            The system has none left, even after the cache was emptied.
        """
    def free(self, memory: Memory) -> None:
        """Give back memory that nothing uses any more; with views alive it lives until they die."""
    def trim(self, keep: int = 0) -> int:
        """Give blocks back to the system until at most `keep` bytes are cached.

        Returns
        -------
        int
            Bytes given back.
        """
    def _counts(self) -> tuple[int, int, int, int]:
        """Bytes cached, the limit, hits and misses."""

class Memory(Buffer):
    """Memory that this object owns, or has borrowed, as a buffer of unsigned bytes.

    Raises
    ------
    ShapeError
        `nbytes` is negative, or `alignment` is not a power of two of at most 2**20.
    OutOfMemoryError
        The memory could not be had.
    """

    def __init__(self, nbytes: int, *, alignment: int = 64, zero: bool = False) -> None: ...
    @property
    def address(self) -> int:
        """Address of the first byte, never 0. Raises BufferReleasedError after release."""
    @property
    def nbytes(self) -> int: ...
    @property
    def exports(self) -> int:
        """How many live views hold the memory through the buffer protocol."""
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
        """The bytes of a contiguous memoryview, which is kept; they stay those of its owner.

        Raises
        ------
        DTypeError, ShapeError
            It is no memoryview, or not of contiguous memory.
        """
    @property
    def storage(self) -> Storage | None:
        """The Storage that this is the memory of, while it lives."""

class Storage:
    """The bytes behind one or more buffers: owned and allocated when first needed, or borrowed."""

    def __init__(
        self, nbytes: int, device: str, cache: BlockCache, memory: StoredMemory | None = None
    ) -> None: ...
    @property
    def device(self) -> str:
        """Whose memory it is."""
    @property
    def nbytes(self) -> int:
        """Length."""
    @property
    def readonly(self) -> bool:
        """Whether kernels must not write here."""
    @property
    def own(self) -> bool:
        """Whether all that may write here says so by :func:`wrote`, or is a plan."""
    @property
    def shared(self) -> bool:
        """Whether :meth:`share` was called."""
    @property
    def lender(self) -> memoryview | None:
        """The bytes of the object that owns them; None for memory of kernelrt."""
    def watch(self) -> int:
        """Have it told by :func:`wrote` where the memory begins to be shared."""
    def share(self) -> None:
        """Note that others may write here from now on, without a word."""
    @property
    def owned(self) -> bool:
        """Whether the bytes are kernelrt's own, not those of an array that was wrapped."""
    @property
    def address(self) -> int:
        """Address of the first byte. Allocates; raises BufferReleasedError after release."""
    @property
    def allocated(self) -> bool:
        """Whether there is memory already, and still."""
    @property
    def released(self) -> bool:
        """Whether the memory was freed for good."""
    @property
    def exported(self) -> bool:
        """Whether a view of the bytes is held outside this object."""
    def discard(self) -> None:
        """Return the pages to the system if the storage owns them; their contents are lost."""
    def hold(self) -> memoryview:
        """All bytes as a view; while it lives they are neither freed nor moved."""
    def hand_out(self) -> int:
        """Give the address to someone who will not say when done with it; bars release for good."""
    def release(self) -> None:
        """Free the bytes now; BufferError while a view of them is held."""

class Exporter(Buffer):
    """Base class that gives a Python class the buffer protocol, also before Python 3.12."""

    _storage: Storage
    base: Any
    dtype: DType
    id: int
    label: str
    constant: bool
    """True for a constant array of an operation. Nobody writes to it."""
    nbytes: int
    offset: int
    size: int

    def keep(self) -> memoryview:
        """The bytes as a view, for who writes there by plans alone; see :meth:`Buffer.hold`."""

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
        """One over the first bytes of `memory`, which is kept; `cache` is that of its device."""

    def _export(self) -> Any:
        """What is exported; views of it keep it alive, not this object. To be overridden."""
    def __buffer__(self, flags: int, /) -> memoryview: ...
