# cython: language_level=3, boundscheck=False, wraparound=False, binding=False
"""Memory that kernels read and write: who owns it, who uses it, and when it goes.

Bookkeeping happens in C with the GIL held, where neither a signal handler nor a finalizer comes
in between. So nothing here takes a lock, and an interrupt finds all of it done or none.
"""

cimport cython
from cpython.buffer cimport (
    PyBUF_WRITABLE, PyBuffer_FillInfo, PyObject_GetBuffer,
)
from cpython.memoryview cimport PyMemoryView_Check, PyMemoryView_GET_BUFFER
from cpython.ref cimport Py_DECREF

from kernelrt.native.krt cimport krt_memory_alloc, krt_memory_discard, krt_memory_free

import weakref

from kernelrt import errors

# Another count than that of `thread_modes`, which says that writing begins, for lazy tensors. Those that
# write to memory which outlives them let it grow, behind the write:
# - PlanCore.run, unless the plan writes to its own memory alone (`keep_to_own_memory`);
# - hand_over, draw and copy_over of `array_handle`: copies without a plan, and the count of a stream;
# - Buffer.copyin, and copyout into a Buffer;
# - Storage.share, for all that gives memory out: what writes there comes without a word.
# Not counted, as nothing is prepared from there: arguments copied to their homes (`replay`, and
# `grads` for gradients), results (`eager_plan`), and memory that was not handed to anybody yet.
writes = 1

cdef size_t MAX_ALIGNMENT = 1 << 20
# What is smaller needs no cache line; malloc is the quicker way to it.
cdef Py_ssize_t CACHED_FROM = 1024


cdef Py_ssize_t byte_count(str argument, value) except -1:
    """`value` as a number of bytes."""
    cdef Py_ssize_t count
    try:
        count = value
    except OverflowError:
        if value > 0:
            raise errors.OutOfMemoryError(f"cannot allocate {value} bytes") from None
        count = -1
    if count < 0:
        raise errors.ShapeError(
            f"{argument}: expected a number of bytes of at least 0, not {value}"
        )
    return count


def wrote():
    """Tell that memory which is there already is, or was, written by other means than a plan."""
    global writes
    writes += 1


def count_writes():
    """How often that was told, and plans wrote to memory that is not theirs alone."""
    return writes


def no_copies(what):
    """Raise the error of what cannot be copied because it stands for memory or code."""
    raise errors.CopyError(
        f"{type(what).__name__} stands for memory of this process and cannot be copied or "
        "pickled; copy the data, as numpy() or copyout() give them"
    )


cdef void give_back(Memory memory) noexcept:
    """Let the bytes go, now or never; also from the end of the object's life."""
    cdef char *data = memory.data
    memory.data = NULL
    if data == NULL or memory.borrowed:
        return
    if memory.home is None:
        krt_memory_free(data, <size_t> memory.size)
    else:
        krt_blocks_give(memory.home.blocks, data, <size_t> memory.size)


cdef class BlockCache:
    """Aligned memory; freed blocks are kept, the one freed longest ago is given back first."""

    def __cinit__(self, limit=256 << 20, **kwargs):
        self.blocks = krt_blocks_create(<size_t> byte_count("limit", limit))
        if self.blocks == NULL:
            raise errors.OutOfMemoryError("no memory for an allocator")

    def __dealloc__(self):
        krt_blocks_destroy(self.blocks)

    @property
    def limit(self):
        """Most bytes of free blocks that are kept."""
        return krt_blocks_stats(self.blocks).limit

    @limit.setter
    def limit(self, nbytes):
        krt_blocks_set_limit(self.blocks, <size_t> byte_count("limit", nbytes))

    def alloc(self, nbytes):
        """Memory of `nbytes` bytes with arbitrary content.

        Raises
        ------
        OutOfMemoryError
            The system has none left, even after the cache was emptied.
        """
        cdef Py_ssize_t size = byte_count("nbytes", nbytes)
        cdef StoredMemory memory = StoredMemory.__new__(StoredMemory)
        memory.data = <char *> krt_blocks_take(self.blocks, <size_t> size)
        if memory.data == NULL:
            raise errors.OutOfMemoryError(f"cannot allocate {nbytes} bytes")
        memory.size = size
        memory.home = self
        return memory

    def free(self, Memory memory not None):
        """Give back memory that nothing uses any more; with views alive it lives until they die."""
        if not memory.n_exports:
            give_back(memory)

    def trim(self, keep=0):
        """Give blocks back to the system until at most `keep` bytes are cached.

        Returns
        -------
        int
            Bytes given back.
        """
        return krt_blocks_trim(self.blocks, <size_t> byte_count("keep", keep))

    def _counts(self):
        cdef krt_block_stats stats = krt_blocks_stats(self.blocks)
        return stats.cached, stats.limit, stats.hits, stats.misses

    def __reduce__(self):
        no_copies(self)


@cython.no_gc  # its references never lead back here
cdef class Memory:
    """Memory that this object owns, or has borrowed, as a buffer of unsigned bytes."""

    def __init__(self, nbytes, *, alignment=64, bint zero=False):
        cdef size_t multiple
        if self.data != NULL or self.size or self.borrowed or self.home is not None:
            raise errors.BufferReleasedError("memory is initialised once")
        cdef Py_ssize_t size = byte_count("nbytes", nbytes)
        try:
            multiple = alignment
        except OverflowError:
            multiple = 0
        if multiple == 0 or multiple & (multiple - 1) or multiple > MAX_ALIGNMENT:
            raise errors.ShapeError(
                f"alignment must be a power of two of at most {MAX_ALIGNMENT}, not {alignment}"
            )
        self.data = <char *> krt_memory_alloc(<size_t> size, multiple, zero)
        if self.data == NULL:
            raise errors.OutOfMemoryError(f"cannot allocate {nbytes} bytes")
        self.size = size

    def __dealloc__(self):
        give_back(self)

    def __getbuffer__(self, Py_buffer *view, int flags):
        if self.data == NULL:
            raise errors.BufferReleasedError("the memory was released")
        if self.read_only and flags & PyBUF_WRITABLE:
            raise BufferError("the memory is read-only")
        Py_DECREF(None)  # Cython's placeholder in view.obj, which the call overwrites
        PyBuffer_FillInfo(view, self, self.data, self.size, self.read_only, flags)
        self.n_exports += 1

    def __releasebuffer__(self, Py_buffer *view):
        self.n_exports -= 1

    @property
    def address(self):
        if self.data == NULL:
            raise errors.BufferReleasedError("the memory was released")
        return <size_t> self.data

    @property
    def nbytes(self):
        return self.size

    @property
    def exports(self):
        return self.n_exports

    @property
    def released(self):
        return self.data == NULL

    def release(self):
        if self.n_exports:
            raise BufferError(f"{self.n_exports} view(s) of the memory are alive")
        give_back(self)

    def __reduce__(self):
        no_copies(self)

    def __repr__(self):
        if self.data == NULL:
            return f"<Memory of {self.size} bytes, released>"
        return f"<Memory of {self.size} bytes at {<size_t> self.data:#x}>"


@cython.no_gc_clear  # whose memory it is must be known to the end
cdef class StoredMemory(Memory):
    """The memory of a storage."""

    @staticmethod
    def borrow(view):
        """The bytes of a contiguous memoryview, which is kept; they stay those of its owner."""
        cdef StoredMemory memory
        if not PyMemoryView_Check(view):
            raise errors.DTypeError(f"view: expected a memoryview, not {type(view).__name__}")
        cdef Py_buffer *source = PyMemoryView_GET_BUFFER(view)
        if not view.c_contiguous or source.buf == NULL:
            raise errors.ShapeError("view: expected contiguous memory")
        memory = StoredMemory.__new__(StoredMemory)
        memory.lender = view
        memory.data = <char *> source.buf
        memory.size = source.len
        memory.read_only = source.readonly
        memory.borrowed = True
        return memory

    @property
    def storage(self):
        """The Storage that this is the memory of, while it lives."""
        return None if self.owner is None else self.owner()


cdef Memory lender_of(StoredMemory memory):
    """The Memory of ours that `memory` is borrowed from; None if it is not."""
    lender = None if memory.lender is None else memory.lender.obj
    return <Memory> lender if type(lender) is Memory else None


cdef Memory new_memory(BlockCache cache, Py_ssize_t nbytes):
    cdef Memory memory = Memory.__new__(Memory)
    if cache is None or nbytes < CACHED_FROM:
        memory.data = <char *> krt_memory_alloc(<size_t> nbytes, 16, False)
    else:
        memory.data = <char *> krt_blocks_take(cache.blocks, <size_t> nbytes)
        memory.home = cache
    if memory.data == NULL:
        raise errors.OutOfMemoryError(f"cannot allocate {nbytes} bytes")
    memory.size = nbytes
    memory.n_exports = 1
    return memory


cdef class Storage:
    """The bytes behind one or more buffers: owned and allocated when first needed, or borrowed.

    Attributes
    ----------
    device : str
        Whose memory it is.
    nbytes : int
        Length.
    readonly : bool
        Whether kernels must not write here.
    """

    def __init__(self, nbytes, device, BlockCache cache not None, StoredMemory memory=None):
        if self.cache is not None:
            raise errors.BufferReleasedError("a storage is initialised once")
        self.nbytes = nbytes
        self.device = device
        self.cache = cache
        self.memory = memory
        self.owned = memory is None
        if memory is not None:
            memory.owner = weakref.ref(self)
        self.readonly = memory is not None and memory.read_only

    cdef StoredMemory take(self):
        """The memory; allocated now if it was not."""
        cdef StoredMemory memory
        while self.memory is None and not self.gone:
            memory = self.cache.alloc(self.nbytes)
            memory.owner = weakref.ref(self)
            if self.memory is None and not self.gone:
                self.memory = memory
        if self.memory is None or self.memory.data == NULL:
            raise errors.BufferReleasedError("the buffer's memory was released; make a new buffer")
        return self.memory

    @property
    def address(self):
        """Address of the first byte. Allocates; raises BufferReleasedError after release."""
        return <size_t> self.take().data

    @property
    def allocated(self):
        """Whether there is memory already, and still."""
        return self.memory is not None

    @property
    def released(self):
        """Whether the memory was freed for good."""
        return self.gone

    @property
    def exported(self):
        """Whether a view of the bytes is held outside this object."""
        return self.memory is not None and self.memory.n_exports > 0

    def discard(self):
        """Return the pages to the system if the storage owns them; their contents are lost."""
        if self.owned and self.memory is not None and self.memory.data != NULL:
            krt_memory_discard(self.memory.data, <size_t> self.memory.size)

    def hold(self):
        """All bytes as a view; while it lives they are neither freed nor moved."""
        return memoryview(self.take())

    cdef bint is_own(self) noexcept:
        cdef Memory lender
        if self.memory is None or self.memory.shared:
            return False
        lender = lender_of(self.memory)
        return not self.memory.borrowed or (lender is not None and not lender.shared)

    @property
    def own(self):
        """Whether nothing outside can write here."""
        return self.is_own()

    cpdef int watch(self) except -1:
        """Have it told by :func:`wrote` where the memory begins to be shared."""
        cdef StoredMemory memory = self.take()
        cdef Memory lender = lender_of(memory)
        memory.watched = True
        if lender is not None:
            lender.watched = True
        return 0

    @property
    def shared(self):
        """Whether :meth:`share` was called."""
        cdef Memory lender
        if self.memory is None:
            return False
        lender = lender_of(self.memory)
        return self.memory.shared or (lender is not None and lender.shared)

    @property
    def lender(self):
        """A view of the bytes of the object that owns them; None for memory of kernelrt."""
        return None if self.memory is None else self.memory.lender

    def share(self):
        """Note that others may write here from now on, without a word."""
        cdef StoredMemory memory = self.take()
        cdef Memory lender = lender_of(memory)
        memory.shared = True
        if lender is not None:
            lender.shared = True
        if memory.watched or (lender is not None and lender.watched):
            wrote()

    def hand_out(self):
        """Give the address to someone who will not say when done with it; bars release for good."""
        cdef Memory memory = self.take()
        self.share()
        memory.n_exports += 1
        return <size_t> memory.data

    def release(self):
        """Free the bytes now; BufferError while a view of them is held."""
        cdef StoredMemory memory = self.memory
        if memory is not None and memory.n_exports:
            raise BufferError(
                "the buffer's memory is in use: drop the arrays, tensors, memoryviews and plans "
                "that share it before releasing it"
            )
        self.gone = True
        self.memory = None
        if memory is not None:
            give_back(memory)
            memory.lender = None

    def __reduce__(self):
        no_copies(self)


cdef class Exporter:
    """The buffer protocol for a class in Python; what `_export` returns is what is exported.

    Its fields are those of Buffer, which C code reads.
    """

    @classmethod
    def _lent(cls, Memory memory not None, size_t size, size_t nbytes, dtype, number, cache):
        """One over the first bytes of `memory`, which is kept; `cache` is that of its device."""
        cdef Exporter made = cls.__new__(cls)
        cdef StoredMemory lent = StoredMemory.__new__(StoredMemory)
        if nbytes > <size_t> memory.size:
            raise errors.ShapeError(f"expected {nbytes} bytes of memory, not {memory.size}")
        lent.lender = memoryview(memory)
        lent.data, lent.size, lent.read_only = memory.data, memory.size, memory.read_only
        lent.borrowed = True
        made._storage = Storage(memory.size, "CPU", cache, lent)
        made.dtype, made.id, made.label = dtype, number, ""
        made.size, made.nbytes = size, nbytes
        return made

    cpdef object keep(self):
        cdef StoredMemory memory = self._storage.take()
        whole = memoryview(memory)
        if self.offset == 0 and self.nbytes == <size_t> memory.size:
            return whole
        return whole[self.offset : self.offset + self.nbytes]

    cdef char *place(self) noexcept:
        if self._storage is None or self._storage.memory is None:
            return NULL
        return self._storage.memory.data + self.offset

    def __getbuffer__(self, Py_buffer *view, int flags):
        source = self._export()
        Py_DECREF(None)  # the placeholder again
        PyObject_GetBuffer(source, view, flags)
