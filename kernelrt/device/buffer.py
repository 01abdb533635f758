"""Buffer: flat, typed memory that kernels read and write."""

from __future__ import annotations

import itertools
import operator
import sys
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from kernelrt import dtype as dt
from kernelrt.device import dlpack, registry
from kernelrt.errors import DTypeError, ShapeError
from kernelrt.native.memory import Exporter, Memory, Storage, StoredMemory, wrote

if TYPE_CHECKING:
    from kernelrt.dtype import DType

__all__ = ["Buffer", "Storage", "whole"]

# NumPy dtype for each element type. bfloat16, which NumPy lacks, is uint16.
_NUMPY = {d: np.dtype(np.uint16) if d is dt.bfloat16 else dt.to_numpy(d) for d in dt.ALL}
ids = itertools.count(1)
_MOST_BYTES = 2 * sys.maxsize + 1


class Buffer(Exporter):
    """Flat memory of `size` elements, allocated on first use.

    Owned memory is 64-byte aligned and uninitialized. Views share the bytes and keep them alive.
    The size never changes. While NumPy, torch, JAX, a memoryview or a plan uses the memory, it is
    neither freed nor moved.

    Parameters
    ----------
    size : int
        Number of elements.
    dtype : DType
        Element type.
    device : str
        Name of the device that owns the memory.

    Attributes
    ----------
    label : str
        Name of the buffer in error messages; empty by default.

    Raises
    ------
    ShapeError
        `size` is negative, or larger than an address space.
    DTypeError
        `size` is not an integer, or `dtype` is not a type.
    DeviceError
        The device is unknown.

    Examples
    --------
    >>> buffer = Buffer(4, dt.float32)
    >>> buffer.copyin([1.0, 2.0, 3.0, 4.0])
    >>> buffer.view(8, 2).numpy()
    array([3., 4.], dtype=float32)
    """

    __slots__ = ("__weakref__",)

    base: Buffer | None

    def __init__(self, size: int, dtype: DType, device: str = "CPU") -> None:
        size = whole("size", size)
        if size < 0:
            raise ShapeError(f"size: expected a number of elements of at least 0, not {size}")
        if not isinstance(dtype, dt.DType):
            dtype = dt.parse(dtype)
        nbytes = size * dtype.itemsize
        if nbytes > _MOST_BYTES:
            raise ShapeError(
                f"size: {size} elements of {dtype.name} are {nbytes} bytes; an address space has "
                f"at most {_MOST_BYTES}"
            )
        allocator = registry.allocator(device)
        self.id = next(ids)
        self.size = size
        self.dtype = dtype
        self.nbytes = nbytes
        self.offset = 0
        self.label = ""
        self.base = None
        self._storage = Storage(self.nbytes, device, allocator)

    @classmethod
    def wrap(cls, source: Any, dtype: DType | None = None) -> Self:
        """Make a buffer over memory that another object owns, without a copy.

        Parameters
        ----------
        source : array_like
            A NumPy array, or an object with DLPack or the buffer protocol. Its memory must be host
            memory, C-contiguous and aligned to the elements. The buffer keeps the object alive.
        dtype : DType, optional
            Element type to read the bytes as. Required for types that `source` cannot represent.

        Raises
        ------
        DTypeError
            `source` exposes no memory, or kernelrt lacks its element type.
        ShapeError
            The memory is not contiguous or not aligned.
        """
        array, found = _as_array(source, None if dtype is None else dt.parse(dtype))
        if not array.flags.c_contiguous:
            raise ShapeError(
                f"source: expected C-contiguous memory, not strides {array.strides} for shape "
                f"{array.shape}; pass numpy.ascontiguousarray(source)"
            )
        address = array.ctypes.data
        if address % found.itemsize:
            raise ShapeError(
                f"source: memory at {address:#x} is not aligned to elements of "
                f"{found.itemsize} bytes; pass a copy"
            )
        buffer = cls(array.nbytes // found.itemsize, found)
        if array.nbytes:
            storage = _owner(array)
            if storage is None:
                memory = StoredMemory.borrow(array.reshape(-1).view(np.uint8).data)
                storage = Storage(array.nbytes, "CPU", registry.allocator("CPU"), memory)
            buffer._storage, buffer.offset = storage, address - storage.address
        return buffer

    @classmethod
    def over(cls, memory: Memory, size: int, dtype: DType) -> Self:
        """Make a buffer over the first elements of memory that the C core allocated."""
        if not size:
            return cls(size, dtype)
        nbytes = size * dtype.itemsize
        return cls._lent(memory, size, nbytes, dtype, next(ids), registry.allocator("CPU"))

    def view(self, offset: int, size: int, dtype: DType | None = None) -> Buffer:
        """Return a part of this buffer as a buffer that shares its bytes.

        Parameters
        ----------
        offset : int
            Offset from the start of this buffer, in bytes. A multiple of the element size.
        size : int
            Number of elements.
        dtype : DType, optional
            Element type. Default: that of this buffer.
        """
        dtype = self.dtype if dtype is None else dt.parse(dtype)
        offset, size = whole("offset", offset), whole("size", size)
        nbytes = size * dtype.itemsize
        if size < 0 or offset < 0 or offset + nbytes > self.nbytes:
            raise ShapeError(
                f"view: expected a part of the buffer, which has {self.nbytes} bytes, not bytes "
                f"{offset} to {offset + nbytes}; pass a smaller offset or size"
            )
        # Owned memory is aligned for every element type; borrowed memory may start anywhere.
        start = self.offset if self._storage.owned else self.address
        if (start + offset) % dtype.itemsize:
            raise ShapeError(
                f"offset: memory at {offset} is not aligned to the {dtype.itemsize} bytes of "
                f"{dtype.name}; use a multiple of {dtype.itemsize}, or pass a copy"
            )
        part = Buffer.__new__(Buffer)
        part.label = self.label
        part.id = next(ids)
        part.size, part.dtype, part.nbytes = size, dtype, nbytes
        part.offset = self.offset + offset
        part.base = self if self.base is None else self.base
        part._storage = self._storage  # noqa: SLF001 - of the same class
        return part

    @property
    def device(self) -> str:
        """Name of the device that owns the memory."""
        return self._storage.device

    @property
    def storage(self) -> Storage:
        """Storage that this buffer shares with its views; :attr:`offset` counts from its start."""
        return self._storage

    @property
    def readonly(self) -> bool:
        """Whether the memory must not be written."""
        return self._storage.readonly

    @property
    def address(self) -> int:
        """Address of the first element. Allocates the memory if there is none yet.

        The address is valid while the buffer is alive and not released. To make sure of both, keep
        the result of :meth:`hold`.
        """
        return self._storage.address + self.offset

    @property
    def allocated(self) -> bool:
        """Whether the memory is allocated and not released."""
        return self._storage.allocated

    def hold(self) -> memoryview:
        """Return the bytes as a memoryview. While the memoryview lives, the memory stays in place.

        Raises
        ------
        BufferReleasedError
            The memory was released.
        """
        self._storage.share()
        return self.keep()

    def release(self) -> None:
        """Free the memory now, for this buffer and all its views.

        Raises
        ------
        BufferError
            An array, a tensor, a memoryview or a plan still shares the memory.
        """
        self._storage.release()

    def copyin(self, source: Any) -> None:
        """Fill this buffer from `source`, which has as many elements and casts without loss.

        Raises
        ------
        ShapeError
            `source` has another number of elements.
        DTypeError
            The type of `source` does not cast safely.
        """
        if self.readonly:
            raise BufferError(
                "copyin: expected a writable buffer, but this one wraps read-only memory; copy "
                "to a new buffer"
            )
        if isinstance(source, Buffer):
            array, found = source.content(), source.dtype
        elif _has_memory(source):
            array, found = _as_array(source, None)
        else:
            array = np.asarray(source, dtype=None if self.dtype is dt.bfloat16 else self._numpy)
            found = dt.from_numpy(array.dtype, "source")
        if array.size != self.size:
            raise ShapeError(f"source: expected {self.size} elements, not {array.size}")
        same = found is self.dtype
        if not same and (
            dt.bfloat16 in (found, self.dtype) or not np.can_cast(array.dtype, self._numpy)
        ):
            raise DTypeError(
                f"source: {found.name} does not cast to {self.dtype.name} without loss; "
                "convert it first"
            )
        self._take(array.reshape(-1))

    def copyout(self, out: Any = None) -> Any:
        """Copy the elements to `out`, or to a new NumPy array.

        Parameters
        ----------
        out : array_like, optional
            Writable C-contiguous memory with the size and dtype of this buffer.

        Returns
        -------
        numpy.ndarray or type of `out`
            `out` if you passed it, otherwise a new array. A new array holds bfloat16 elements as
            their bits in uint16.
        """
        if out is None:
            return self.content().copy()
        target = out
        if not isinstance(out, Buffer):
            known = self.dtype if isinstance(out, bytearray | memoryview) else None
            target = Buffer.wrap(out, known)
        if target.readonly:
            raise BufferError(
                "out: expected writable memory, but it is read-only; pass a new array, or leave "
                "out `out`"
            )
        if (target.size, target.dtype) != (self.size, self.dtype):
            raise ShapeError(
                f"out: expected {self.size} elements of {self.dtype.name}, not {target.size} of "
                f"{target.dtype.name}"
            )
        target._take(self.content())  # noqa: SLF001
        return out

    def _take(self, array: np.ndarray[Any, Any]) -> None:
        """Copy all elements of `array` into the buffer, then record the write.

        The write is recorded after the copy, so that concurrent readers read again.
        """
        own = self.content()
        if np.may_share_memory(own, array):
            array = array.copy()  # NumPy may read elements that it has overwritten
        try:
            own[...] = array
        finally:
            wrote()

    def numpy(self) -> np.ndarray[Any, Any]:
        """Return the memory as a one-dimensional NumPy array, without a copy."""
        dt.to_numpy(self.dtype)
        return self.raw()

    def raw(self) -> np.ndarray[Any, Any]:
        """Return the array of :meth:`numpy`, with bfloat16 elements as uint16 bits."""
        if self.nbytes:
            self._storage.share()
        return self.content()

    def content(self) -> np.ndarray[Any, Any]:
        """Return the array of :meth:`raw` without marking the memory as shared.

        Do not keep the array. Write only to memory that nothing else has read yet.
        """
        if not self.nbytes:
            return np.empty(0, self._numpy)
        return np.frombuffer(self._storage.hold(), self._numpy, self.size, self.offset)

    @property
    def _numpy(self) -> np.dtype[Any]:
        return _NUMPY[self.dtype]

    def __len__(self) -> int:
        return self.size

    def _export(self) -> memoryview:
        return self.raw().data

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        array = self.numpy()
        if copy or (dtype is not None and np.dtype(dtype) != array.dtype):
            if copy is False:
                raise ValueError(
                    f"copy: converting a buffer of {array.dtype} to {np.dtype(dtype)} needs a "
                    "copy; leave out copy=False"
                )
            return array.astype(array.dtype if dtype is None else dtype, copy=True)
        return array

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """NumPy's description of the memory. Reading it prevents an explicit release."""
        dtype = dt.to_numpy(self.dtype)
        address = self._storage.hand_out() + self.offset
        return {
            "version": 3,
            "shape": (self.size,),
            "typestr": dtype.str,
            "data": (address, self.readonly),
        }

    def __dlpack__(self, **options: Any) -> Any:
        return dlpack.export(self.raw(), self.dtype is dt.bfloat16, options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __reduce__(self) -> tuple[Any, ...]:
        known = self.allocated or self._storage.released
        content = self.content().tobytes() if known else None
        return _restore, (self.size, self.dtype, self.device, self.label, content)

    def __repr__(self) -> str:
        state = "" if self.allocated or not self.nbytes else ", not allocated"
        if self._storage.released:
            state = ", released"
        part = f", view at byte {self.offset}" if self.base is not None else ""
        return f"<Buffer of {self.size} {self.dtype.name} on {self.device}{part}{state}>"


def whole(argument: str, value: object) -> int:
    """Return `value` as an int: a Python or NumPy integer, or an object with ``__index__``.

    Raises
    ------
    DTypeError
        `value` is not an integer.
    """
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise DTypeError(
            f"{argument}: expected an integer, not {type(value).__name__} ({value!r})"
        ) from None


def _restore(size: int, dtype: DType, device: str, label: str, content: bytes | None) -> Buffer:
    """Make a buffer with the content of a pickled or copied buffer. It owns its memory."""
    buffer = Buffer(size, dtype, device)
    buffer.label = label
    if content is not None:
        buffer.content()[...] = np.frombuffer(content, _NUMPY[dtype])
    return buffer


def _owner(array: np.ndarray[Any, Any]) -> Storage | None:
    """Return the storage that an array is a view of, unless only one of the two is writable."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if not isinstance(base, memoryview) or not isinstance(base.obj, StoredMemory):
        return None
    storage = base.obj.storage
    if storage is None or storage.released or storage.readonly is array.flags.writeable:
        return None
    return storage


def _has_memory(source: Any) -> bool:
    if isinstance(source, np.ndarray | bytes | bytearray | memoryview) or hasattr(
        source, "__dlpack__"
    ):
        return True
    try:
        memoryview(source).release()
    except TypeError:
        return False
    return True


def _as_array(source: Any, dtype: DType | None) -> tuple[np.ndarray[Any, Any], DType]:
    """Return `source` as an array that shares its memory, and the element type."""
    bfloat16 = False
    if isinstance(source, Buffer):
        array, bfloat16 = source.raw(), source.dtype is dt.bfloat16
    elif isinstance(source, np.ndarray):
        array = source
        if array.dtype.name == "bfloat16":
            array, bfloat16 = array.view(np.uint16), True
    elif hasattr(source, "__dlpack__"):
        array, bfloat16 = dlpack.import_array(source)
    else:
        try:
            array = np.asarray(memoryview(source))
        except TypeError:
            raise DTypeError(
                f"source: {type(source).__name__} exposes no memory; expected a NumPy array, or "
                "an object with DLPack or the buffer protocol"
            ) from None
    if dtype is not None:
        if array.nbytes % dtype.itemsize:
            raise ShapeError(
                f"source: expected a whole number of {dtype.name} elements, not {array.nbytes} "
                "bytes"
            )
        return array, dtype
    return array, dt.bfloat16 if bfloat16 else dt.from_numpy(array.dtype, "source")
