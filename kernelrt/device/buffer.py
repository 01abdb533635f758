"""Buffer: flat, typed storage that kernels read and write."""

from __future__ import annotations

import itertools
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from kernelrt import dtype as dt
from kernelrt._dispatch import Exporter, Memory
from kernelrt.device import dlpack, registry
from kernelrt.errors import BufferReleasedError, DeviceError, DTypeError, ShapeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelrt.dtype import DType

__all__ = ["Buffer", "Storage"]

# NumPy's name for the bytes of each element type.
_NUMPY = {d: np.dtype(np.uint16) if d is dt.bfloat16 else dt.to_numpy(d) for d in dt.ALL}
_RELEASED = "the buffer's memory was released; make a new buffer"
_allocation = threading.Lock()
_ids = itertools.count(1)


class Storage:
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

    __slots__ = ("__weakref__", "_address", "_handed_out", "_memory", "_source", "device",
                 "nbytes", "readonly")  # fmt: skip

    def __init__(self, nbytes: int, device: str, source: memoryview | None, address: int) -> None:
        self.device = device
        self.nbytes = nbytes
        self.readonly = source is not None and source.readonly
        self._memory: Memory | None = None
        self._source = source
        self._address = address
        self._handed_out = False

    def __del__(self, finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        # As the interpreter ends, modules are gone and the memory frees itself.
        memory = self._memory
        if memory is not None and not self._handed_out and not finalizing():
            registry.allocator(self.device).free(memory)

    @property
    def address(self) -> int:
        """Address of the first byte. Allocates; raises BufferReleasedError after release."""
        return self._address if self._address > 0 else self._allocate()

    @property
    def allocated(self) -> bool:
        """Whether there is memory already, and still."""
        return self._address > 0

    @property
    def released(self) -> bool:
        """Whether the memory was freed for good."""
        return self._address < 0

    @property
    def owned(self) -> bool:
        """Whether the bytes are kernelrt's own, not those of an array that was wrapped."""
        return self._source is None

    @property
    def exported(self) -> bool:
        """Whether a view of the bytes is held outside this object."""
        return self._handed_out or (self._memory is not None and self._memory.exports > 0)

    def hold(self) -> memoryview:
        """All bytes as a view; while it lives they are neither freed nor moved."""
        if self._source is not None:
            return self._source[:]
        if self._address <= 0:
            self._allocate()
        memory = self._memory
        if memory is None:
            raise BufferReleasedError(_RELEASED)
        return memoryview(memory)[: self.nbytes]

    def hand_out(self) -> int:
        """Give the address to someone who will not say when done with it; bars release for good."""
        self._handed_out = True
        return self.address

    def release(self) -> None:
        """Free the bytes now; BufferError while a view of them is held."""
        if self.exported:
            raise BufferError(
                "the buffer's memory is in use: drop the arrays, tensors, memoryviews and plans "
                "that share it before releasing it"
            )
        with _allocation:
            memory, self._memory, self._source = self._memory, None, None
            self._address = -1
        if memory is not None:
            registry.allocator(self.device).free(memory)

    def _allocate(self) -> int:
        if self._address < 0:
            raise BufferReleasedError(_RELEASED)
        memory = registry.allocator(self.device).alloc(self.nbytes)
        with _allocation:
            if not self._address:
                self._memory, self._address = memory, memory.address
                _storages[self._address] = self
        return self._address


#: Owned storages by address, to recognize memory that comes back as an array.
_storages: weakref.WeakValueDictionary[int, Storage] = weakref.WeakValueDictionary()


class Buffer(Exporter):
    """Flat storage of `size` elements; memory is taken when it is first needed.

    Owned memory is 64-byte aligned and has arbitrary content at first. Views share bytes and
    keep them alive. The size never changes, and memory that is exported (to NumPy, torch, JAX,
    a memoryview, or a plan) is never freed or moved.

    Parameters
    ----------
    size : int
        Elements.
    dtype : DType
        Their type.
    device : str
        Name of the device whose memory it is.

    Attributes
    ----------
    label : str
        What error messages call it; empty until somebody names it.

    Raises
    ------
    ShapeError
        `size` is negative.
    DeviceError
        The device is unknown.

    Examples
    --------
    >>> buffer = Buffer(4, dt.float32)
    >>> buffer.copyin([1.0, 2.0, 3.0, 4.0])
    >>> buffer.view(8, 2).numpy()
    array([3., 4.], dtype=float32)
    """

    __slots__ = ("__weakref__", "_storage", "base", "dtype", "id", "label", "nbytes", "offset",
                 "size")  # fmt: skip

    def __init__(self, size: int, dtype: DType, device: str = "CPU") -> None:
        if size < 0:
            raise ShapeError(f"size: expected a number of elements of at least 0, not {size}")
        registry.allocator(device)
        self.id = next(_ids)
        self.size = size
        self.dtype = dtype
        self.nbytes = size * dtype.itemsize
        self.offset = 0
        self.label = ""
        self.base: Buffer | None = None
        self._storage = Storage(self.nbytes, device, None, 0)

    @classmethod
    def wrap(cls, source: Any, dtype: DType | None = None) -> Self:
        """Make a buffer over memory that another object owns, without a copy.

        Parameters
        ----------
        source : array_like
            A NumPy array, or anything with DLPack or the buffer protocol: C-contiguous,
            aligned to its elements, in host memory. It is kept alive.
        dtype : DType, optional
            Read the bytes as this type; needed for types that `source` cannot name.

        Raises
        ------
        DTypeError
            The element type is not one of kernelrt's.
        ShapeError
            The memory is not contiguous or not aligned.
        """
        array, found = _as_array(source, dtype)
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
                flat = array.reshape(-1).view(np.uint8).data
                storage = Storage(array.nbytes, "CPU", flat, address)
            buffer._storage, buffer.offset = storage, address - storage.address
        return buffer

    def view(self, offset: int, size: int, dtype: DType | None = None) -> Buffer:
        """Part of this buffer as a buffer that shares its bytes.

        Parameters
        ----------
        offset : int
            Bytes from the start of this buffer; a multiple of the element size.
        size : int
            Elements.
        dtype : DType, optional
            Type of the elements; this buffer's if not given.
        """
        dtype = dtype or self.dtype
        nbytes = size * dtype.itemsize
        if size < 0 or offset < 0 or offset + nbytes > self.nbytes:
            raise ShapeError(
                f"view: bytes {offset} to {offset + nbytes} leave the buffer's {self.nbytes}"
            )
        if (self.offset + offset) % dtype.itemsize:
            raise ShapeError(
                f"offset: {offset} is not a multiple of the {dtype.itemsize} bytes of {dtype.name}"
            )
        part = Buffer.__new__(Buffer)
        part.label = self.label
        part.id = next(_ids)
        part.size, part.dtype, part.nbytes = size, dtype, nbytes
        part.offset = self.offset + offset
        part.base = self if self.base is None else self.base
        part._storage = self._storage  # noqa: SLF001 - of the same class
        return part

    @property
    def device(self) -> str:
        """Name of the device whose memory this is."""
        return self._storage.device

    @property
    def storage(self) -> Storage:
        """The bytes, shared by a buffer and its views; `offset` counts from their start."""
        return self._storage

    @property
    def readonly(self) -> bool:
        """Whether the memory must not be written."""
        return self._storage.readonly

    @property
    def address(self) -> int:
        """Address of the first element; allocates if need be.

        It stays valid while the buffer lives and is not released; a caller that cannot ensure
        that keeps ``storage.hold()``.
        """
        return self._storage.address + self.offset

    @property
    def allocated(self) -> bool:
        """Whether the memory has been taken already, and is still there."""
        return self._storage.allocated

    def release(self) -> None:
        """Free the memory now, for this buffer and all its views.

        Raises
        ------
        BufferError
            An array, a tensor, a memoryview or a plan still shares the memory.
        """
        self._storage.release()

    def copyin(self, source: Any) -> None:
        """Fill this buffer from `source`: as many elements, of a type that casts without loss.

        Raises
        ------
        ShapeError
            `source` has another number of elements.
        DTypeError
            Its type does not cast safely.
        """
        if self.readonly:
            raise BufferError("the buffer wraps read-only memory and cannot be filled")
        if _has_memory(source):
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
        self.raw()[...] = array.reshape(-1)

    def copyout(self, out: Any = None) -> Any:
        """Copy the elements to `out`, or to a new NumPy array.

        Parameters
        ----------
        out : array_like, optional
            Writable C-contiguous memory of as many elements of this type.

        Returns
        -------
        numpy.ndarray or the object given
            bfloat16 comes as its uint16 bits where no `out` is given.
        """
        if out is None:
            return self.raw().copy()
        target = Buffer.wrap(out, self.dtype if isinstance(out, bytearray | memoryview) else None)
        if target.readonly:
            raise BufferError("out: the memory is read-only")
        if (target.size, target.dtype) != (self.size, self.dtype):
            raise ShapeError(
                f"out: expected {self.size} elements of {self.dtype.name}, not {target.size} of "
                f"{target.dtype.name}"
            )
        target.raw()[...] = self.raw()
        return out

    def numpy(self) -> np.ndarray[Any, Any]:
        """Give the memory as a one-dimensional NumPy array, without a copy."""
        dt.to_numpy(self.dtype)
        return self.raw()

    def raw(self) -> np.ndarray[Any, Any]:
        """Like :meth:`numpy`, with bfloat16 as its uint16 bits."""
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
                raise ValueError(f"a {array.dtype} buffer as {np.dtype(dtype)} needs a copy")
            return array.astype(array.dtype if dtype is None else dtype, copy=True)
        return array

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """NumPy's description of the memory; whoever takes it bars an explicit release."""
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

    def __repr__(self) -> str:
        state = "" if self.allocated or not self.nbytes else ", not allocated"
        if self._storage.released:
            state = ", released"
        part = f", view at byte {self.offset}" if self.base is not None else ""
        return f"<Buffer of {self.size} {self.dtype.name} on {self.device}{part}{state}>"


def _owner(array: np.ndarray[Any, Any]) -> Storage | None:
    """Find the storage that an array is a writable view of, if it is one of kernelrt's own."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if not isinstance(base, memoryview) or not isinstance(base.obj, Memory):
        return None
    return _storages.get(base.obj.address) if array.flags.writeable else None


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
    """`source` as an array that shares its memory, and what its elements are."""
    bfloat16 = False
    if isinstance(source, Buffer):
        array, bfloat16 = source.raw(), source.dtype is dt.bfloat16
    elif isinstance(source, np.ndarray):
        array = source
        if array.dtype.name == "bfloat16":
            array, bfloat16 = array.view(np.uint16), True
    elif hasattr(source, "__dlpack__"):
        if source.__dlpack_device__()[0] != 1:
            raise DeviceError(
                f"source: {type(source).__name__} is not in host memory; move it to the CPU"
            )
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
                f"source: {array.nbytes} bytes are no whole number of {dtype.name} elements"
            )
        return array, dtype
    return array, dt.bfloat16 if bfloat16 else dt.from_numpy(array.dtype, "source")
