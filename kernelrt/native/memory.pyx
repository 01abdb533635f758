# cython: language_level=3, boundscheck=False, wraparound=False, binding=False
"""Memory that kernels read and write: owners, users and lifetimes.

Bookkeeping runs in C with the GIL held, and no signal handler or finalizer can interrupt it. So
this module takes no locks, and interrupting code sees each update either complete or not begun.
"""

cimport cython
from cpython.buffer cimport (
    PyBUF_WRITABLE, PyBuffer_FillInfo, PyObject_GetBuffer,
)
from cpython.memoryview cimport PyMemoryView_Check, PyMemoryView_GET_BUFFER
from cpython.ref cimport Py_DECREF
from libc.string cimport memcpy

from kernelrt.native.krt cimport krt_memory_alloc, krt_memory_discard, krt_memory_free

import os
import weakref

from kernelrt import errors
from kernelrt.errors import a_type

# Number of writes to memory that outlives the writer. It tells whether data derived from memory,
# such as a hoisted preparation, is stale. (The count in `thread_modes` is another one: it grows
# before a write, for lazy tensors.) These increment it after they write:
# - PlanCore.run, unless the plan writes only its own memory (`keep_to_own_memory`);
# - hand_over, draw and copy_over of `array_handle`: copies without a plan, random counters;
# - Buffer.copyin, and copyout into a Buffer;
# - Storage.share, for everything that exposes memory: outside writes are not reported.
# These do not, because nothing is prepared from such memory: copies of arguments to their homes
# (`replay`, and `grads` for gradients), results (`eager_plan`), memory that nobody has seen yet.
writes = 1

cdef size_t MAX_ALIGNMENT = 1 << 20
# Smaller blocks need no cache-line alignment, and malloc is faster for them.
cdef Py_ssize_t CACHED_FROM = 1024


cdef Py_ssize_t byte_count(str argument, value) except -1:
    """Return `value` as a number of bytes, or raise an error that names `argument`."""
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
    """Report a write to existing memory by code other than a plan."""
    global writes
    writes += 1


def count_writes():
    """Return the number of writes that `wrote` reported or plans made outside their own memory."""
    return writes


def no_copies(what):
    """Raise the CopyError for an object that refers to memory or code of this process."""
    raise errors.CopyError(
        f"{a_type(what)} refers to memory of this process and cannot be copied or "
        "pickled; copy the data that numpy() or copyout() returns"
    )


cdef void give_back(Memory memory) noexcept:
    """Free the bytes, if `memory` owns them; a second call does nothing."""
    cdef char *data = memory.data
    memory.data = NULL
    if data == NULL or memory.borrowed:
        return
    if memory.home is None:
        krt_memory_free(data, <size_t> memory.size)
    else:
        krt_blocks_give(memory.home.blocks, data, <size_t> memory.size)


cdef class BlockCache:
    """Allocator of aligned memory that caches freed blocks and evicts the oldest first."""

    def __cinit__(self, limit=256 << 20, **kwargs):
        self.blocks = krt_blocks_create(<size_t> byte_count("limit", limit))
        if self.blocks == NULL:
            raise errors.OutOfMemoryError("out of memory: cannot create an allocator")

    def __dealloc__(self):
        krt_blocks_destroy(self.blocks)

    @property
    def limit(self):
        """Maximum number of bytes in cached free blocks."""
        return krt_blocks_stats(self.blocks).limit

    @limit.setter
    def limit(self, nbytes):
        krt_blocks_set_limit(self.blocks, <size_t> byte_count("limit", nbytes))

    def alloc(self, nbytes):
        """Return `nbytes` bytes of uninitialised memory.

        Raises
        ------
        OutOfMemoryError
            The system has no memory left, even after the cache was emptied.
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
        """Return unused memory to the cache; memory with live views is kept until they die."""
        if not memory.n_exports:
            give_back(memory)

    def trim(self, keep=0):
        """Return blocks to the system until at most `keep` bytes are cached.

        Returns
        -------
        int
            Number of bytes returned to the system.
        """
        return krt_blocks_trim(self.blocks, <size_t> byte_count("keep", keep))

    def _counts(self):
        cdef krt_block_stats stats = krt_blocks_stats(self.blocks)
        return stats.cached, stats.limit, stats.hits, stats.misses

    def __reduce__(self):
        no_copies(self)


cdef class Code:
    """Machine code that runs. Without references to this object, no program can call the code."""

    def __cinit__(self, bytes code not None):
        cdef size_t size = <size_t> len(code)
        self.start = krt_code_map(size) if size else NULL
        if self.start == NULL:
            raise errors.OutOfMemoryError(f"cannot allocate {size} bytes for machine code")
        self.size = size
        memcpy(self.start, <const char *> code, size)
        cdef int refused = krt_code_finish(self.start, size)
        if refused:
            raise errors.CompileError(
                f"the system does not let this process run new code: {os.strerror(refused)}; allow "
                "it executable memory (execmem in SELinux, MemoryDenyWriteExecute in systemd)"
            )

    def __dealloc__(self):
        if self.start != NULL:
            krt_code_unmap(self.start, self.size)

    @property
    def address(self):
        """Address of the first byte, at the start of a page."""
        return <size_t> self.start

    def __reduce__(self):
        no_copies(self)


@cython.no_gc  # its references form no cycles
cdef class Memory:
    """Owned or borrowed memory that exports a buffer of unsigned bytes."""

    def __init__(self, nbytes, *, alignment=64, bint zero=False):
        cdef size_t multiple
        if self.data != NULL or self.size or self.borrowed or self.home is not None:
            raise errors.BufferReleasedError("already initialised; make a new Memory")
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
            raise BufferError(f"{self.n_exports} view(s) of the memory exist; drop them first")
        give_back(self)

    def __reduce__(self):
        no_copies(self)

    def __repr__(self):
        if self.data == NULL:
            return f"<Memory of {self.size} bytes, released>"
        return f"<Memory of {self.size} bytes at {<size_t> self.data:#x}>"


@cython.no_gc_clear  # the lender must stay alive until the memory is gone
cdef class StoredMemory(Memory):
    """Memory of a Storage."""

    @staticmethod
    def borrow(view):
        """Borrow the bytes of a contiguous memoryview, and keep the view alive."""
        cdef StoredMemory memory
        if not PyMemoryView_Check(view):
            raise errors.DTypeError(f"view: expected a memoryview, not {type(view).__name__}")
        cdef Py_buffer *source = PyMemoryView_GET_BUFFER(view)
        if not view.c_contiguous or source.buf == NULL:
            raise errors.ShapeError("view: expected a contiguous memoryview")
        memory = StoredMemory.__new__(StoredMemory)
        memory.lender = view
        memory.data = <char *> source.buf
        memory.size = source.len
        memory.read_only = source.readonly
        memory.borrowed = True
        return memory

    @property
    def storage(self):
        """Storage that uses this memory; None if it is gone."""
        return None if self.owner is None else self.owner()


cdef Memory lender_of(StoredMemory memory):
    """Return the Memory object of kernelrt that lends `memory`; None if there is none."""
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
    """Bytes shared by one or more buffers: either owned and allocated on first use, or borrowed.

    Attributes
    ----------
    device : str
        Device that the memory belongs to.
    nbytes : int
        Length in bytes.
    readonly : bool
        Whether kernels must not write to the memory.
    """

    def __init__(self, nbytes, device, BlockCache cache not None, StoredMemory memory=None):
        if self.cache is not None:
            raise errors.BufferReleasedError("already initialised; make a new Storage")
        self.nbytes = nbytes
        self.device = device
        self.cache = cache
        self.memory = memory
        self.owned = memory is None
        if memory is not None:
            memory.owner = weakref.ref(self)
        self.readonly = memory is not None and memory.read_only

    cdef StoredMemory take(self):
        """Return the memory; allocate it if necessary."""
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
        """Address of the first byte. Allocates the memory; BufferReleasedError after release."""
        return <size_t> self.take().data

    @property
    def allocated(self):
        """Whether the memory is allocated and not released."""
        return self.memory is not None

    @property
    def released(self):
        """Whether the memory was released; it is not allocated again."""
        return self.gone

    @property
    def exported(self):
        """Whether a view of the bytes exists outside this object."""
        return self.memory is not None and self.memory.n_exports > 0

    def discard(self):
        """Return the pages to the system if the storage owns them; the content is lost."""
        if self.owned and self.memory is not None and self.memory.data != NULL:
            krt_memory_discard(self.memory.data, <size_t> self.memory.size)

    def hold(self):
        """Return a view of all bytes; they are neither freed nor moved while it exists."""
        return memoryview(self.take())

    cdef bint is_own(self) noexcept:
        cdef Memory lender
        if self.memory is None or self.memory.shared:
            return False
        lender = lender_of(self.memory)
        return not self.memory.borrowed or (lender is not None and not lender.shared)

    @property
    def own(self):
        """Whether no outside code can write here."""
        return self.is_own()

    cpdef int watch(self) except -1:
        """Make :meth:`share` call :func:`wrote`."""
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
        """View of the bytes of the object that owns them; None for memory of kernelrt."""
        return None if self.memory is None else self.memory.lender

    def share(self):
        """Note that outside code may write here from now on, without reporting it."""
        cdef StoredMemory memory = self.take()
        cdef Memory lender = lender_of(memory)
        memory.shared = True
        if lender is not None:
            lender.shared = True
        if memory.watched or (lender is not None and lender.watched):
            wrote()

    def hand_out(self):
        """Return the address to code that may use it at any time. The memory is never released."""
        cdef Memory memory = self.take()
        self.share()
        memory.n_exports += 1
        return <size_t> memory.data

    def release(self):
        """Free the bytes now; raise BufferError while a view of them exists."""
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
    """Buffer protocol for a Python class, which exports the object that `_export` returns.

    C code reads the fields of Buffer, so they are defined here.
    """

    @classmethod
    def _lent(cls, Memory memory not None, size_t size, size_t nbytes, dtype, number, cache):
        """Return an object over the first bytes of `memory`, which it keeps alive.

        `cache` is the allocator of the device.
        """
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

    cdef char *address(self) noexcept:
        if self._storage is None or self._storage.memory is None:
            return NULL
        return self._storage.memory.data + self.offset

    def __getbuffer__(self, Py_buffer *view, int flags):
        source = self._export()
        Py_DECREF(None)  # Cython's placeholder, as in Memory
        PyObject_GetBuffer(source, view, flags)
