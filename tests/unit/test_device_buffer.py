"""Buffers: memory, views, copies, and sharing with NumPy, torch and JAX."""

from __future__ import annotations

import copy
import functools
import gc
import pickle
import threading

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import dtype as dt
from kernelrt.device import registry
from kernelrt.device.buffer import Buffer
from kernelrt.errors import (
    BufferReleasedError,
    CopyError,
    DeviceError,
    DTypeError,
    OutOfMemoryError,
    ShapeError,
)


def filled(n: int = 8, dtype: dt.DType = dt.float32) -> Buffer:
    buffer = Buffer(n, dtype)
    buffer.raw()[...] = np.arange(n)
    return buffer


# ---- Memory


def test_a_buffer_knows_its_size_type_and_device():
    buffer = Buffer(6, dt.int16)
    assert (buffer.size, buffer.dtype, buffer.nbytes, buffer.device) == (6, dt.int16, 12, "CPU")
    assert len(buffer) == 6
    assert not buffer.readonly


def test_memory_is_taken_when_first_needed():
    buffer = Buffer(6, dt.int16)
    assert not buffer.allocated
    address = buffer.address
    assert buffer.allocated
    assert buffer.address == address


def test_two_threads_allocate_once():
    for _ in range(50):
        buffer = Buffer(64, dt.float32)
        seen: list[int] = []
        note = functools.partial(lambda b, out: out.append(b.address), buffer, seen)
        threads = [threading.Thread(target=note) for _ in "ab"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(seen)) == 1


@pytest.mark.parametrize("size", [0, 1, 3, 100, 12345])
def test_memory_is_64_byte_aligned(size):
    assert Buffer(size, dt.uint8).address % 64 == 0


def test_ids_tell_buffers_apart():
    a, b = Buffer(4, dt.int8), Buffer(4, dt.int8)
    assert len({a.id, b.id, a.view(0, 2).id}) == 3


def test_a_negative_size_and_an_unknown_device_raise():
    with pytest.raises(ShapeError, match="-1"):
        Buffer(-1, dt.int8)
    with pytest.raises(DeviceError, match="'TPU'"):
        Buffer(1, dt.int8, "TPU")


def test_memory_that_cannot_be_had_raises_when_it_is_needed():
    buffer = Buffer(1 << 60, dt.int64)
    with pytest.raises(OutOfMemoryError):
        _ = buffer.address


def test_release_frees_and_refuses_further_use():
    buffer = filled()
    part = buffer.view(0, 4)
    buffer.release()
    buffer.release()
    for use in (lambda: buffer.address, lambda: part.address, buffer.raw, part.copyout):
        with pytest.raises(BufferReleasedError):
            use()
    assert "released" in repr(buffer)


def test_freed_memory_is_used_again():
    registry.allocator().trim()
    first = Buffer(1000, dt.float32)
    address = first.address
    del first
    assert Buffer(1000, dt.float32).address == address


def test_a_released_address_says_nothing_of_what_comes_there_next():
    kept = [filled(64) for _ in range(200)]
    for buffer in kept:
        buffer.release()
    registry.allocator().trim()
    arrays = [Buffer.wrap(memoryview(bytearray(256)), dt.float32) for _ in range(400)]
    again = [Buffer.wrap(b.numpy()) for b in arrays]
    fresh = [filled(64) for _ in range(400)]
    again += [Buffer.wrap(b.numpy()) for b in fresh]
    assert all(b.copyout().size == 64 for b in again)


@pytest.mark.parametrize("make", [lambda t: t, lambda t: t.detach(), lambda t: t.clone().realize()])
def test_memory_of_a_live_tensor_is_not_released(make):
    tensor = make(krt.tensor([1.0, 2.0, 3.0]).realize()).realize()
    with pytest.raises(BufferError, match="in use"):
        tensor._buffer.release()
    assert (tensor + 1).tolist() == [2, 3, 4]


def test_memory_of_a_jit_result_is_not_released():
    result = krt.jit(lambda x: x + 1)(np.ones(3, np.float32))
    with pytest.raises(BufferError):
        result._memory.release()
    result.uop  # noqa: B018 - gives the result a buffer
    with pytest.raises(BufferError):
        result._buffer.release()
    assert result.tolist() == [2, 2, 2]


def test_borrowed_memory_of_a_live_tensor_is_not_given_back():
    source = bytearray(np.arange(3, dtype=np.float32).tobytes())
    tensor = krt.from_numpy(np.frombuffer(source, np.float32))
    with pytest.raises(BufferError):
        tensor._buffer.release()
    with pytest.raises(BufferError):
        source.extend(b"more")
    assert (tensor * 2).tolist() == [0, 2, 4]


def pickled(thing):
    return pickle.loads(pickle.dumps(thing))  # noqa: S301 - our own bytes


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, pickled])
@pytest.mark.parametrize("dtype", [dt.float32, dt.bfloat16, dt.bool_])
def test_a_copy_owns_its_memory(how, dtype):
    whole = filled(8, dtype)
    whole.label = "weights"
    for buffer in (whole, whole.view(2 * dtype.itemsize, 4), Buffer(3, dtype), Buffer(0, dtype)):
        before = buffer.allocated
        twin = how(buffer)
        assert (buffer.allocated, twin.allocated) == (before, before)
        assert (twin.size, twin.dtype, twin.label) == (buffer.size, dtype, buffer.label)
        assert twin.id != buffer.id
        if before:
            assert twin.raw().tolist() == buffer.raw().tolist()
        assert twin.size == 0 or twin.address != buffer.address
    whole.release()
    with pytest.raises(BufferReleasedError):
        how(whole)


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, pickled])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("jitted", [False, True])
def test_a_copy_of_a_tensor_is_apart(how, dtype, jitted):
    double = krt.jit(lambda x: x * 2) if jitted else lambda x: x * 2
    result = double(krt.tensor([1, 2, 3], dtype=dtype))
    twin = how(result)
    result.assign(result + 1)
    assert (twin.dtype, twin.cast("int64").tolist()) == (result.dtype, [2, 4, 6])
    assert result.cast("int64").tolist() == [3, 5, 7]


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, pickle.dumps])
def test_what_stands_for_memory_or_code_is_not_copied(how):
    jitted = krt.jit(lambda x: x + 1)
    jitted(np.ones(3, np.float32))
    storage = filled().storage
    memory = registry.allocator().alloc(64)
    things = [memory, storage, registry.allocator(), *jitted.plans, *jitted._replays]
    for thing in things:
        with pytest.raises(CopyError, match="cannot be copied"):
            how(thing)


# ---- Views


def test_a_view_shares_bytes_and_keeps_them_alive():
    buffer = filled()
    part = buffer.view(8, 4)
    assert part.address == buffer.address + 8
    assert (part.base, part.offset, part.storage) == (buffer, 8, buffer.storage)
    part.raw()[0] = 50
    assert buffer.raw()[2] == 50
    del buffer
    gc.collect()
    assert part.numpy().tolist() == [50, 3, 4, 5]


def test_a_view_of_a_view_counts_from_the_base():
    buffer = filled()
    part = buffer.view(8, 4).view(4, 2)
    assert (part.base, part.offset) == (buffer, 12)
    assert part.numpy().tolist() == [3, 4]


def test_a_view_may_have_another_type():
    buffer = Buffer(2, dt.float32)
    buffer.copyin([1.0, -2.0])
    assert buffer.view(0, 2, dt.uint32).numpy().tolist() == [0x3F800000, 0xC0000000]


@pytest.mark.parametrize(
    ("offset", "size", "match"),
    [
        (0, 9, "a part of"), (-4, 1, "a part of"), (32, 1, "a part of"), (0, -1, "a part of"),
        (2, 1, "multiple"),
    ],
)
def test_a_view_must_lie_inside_and_be_aligned(offset, size, match):
    with pytest.raises(ShapeError, match=match):
        filled().view(offset, size)


@pytest.mark.parametrize("start", range(8))
@pytest.mark.parametrize("dtype", dt.ALL, ids=lambda d: d.name)
def test_every_element_of_a_view_is_aligned(start, dtype):
    array = np.zeros(64, np.uint8)[start:]
    whole = Buffer.wrap(array)
    for offset in range(8):
        try:
            part = whole.view(offset, 2, dtype)
        except ShapeError:
            assert (array.ctypes.data + offset) % dtype.itemsize
        else:
            assert part.address == array.ctypes.data + offset
            assert part.address % dtype.itemsize == 0


# ---- Copies


def test_copyin_takes_sequences_arrays_and_buffers():
    buffer = Buffer(4, dt.float32)
    for source in ([1, 2, 3, 4], np.array([[1, 2], [3, 4]], np.float32), filled(4), b"\1\2\3\4"):
        buffer.copyin(source)
        assert buffer.numpy()[-1] in (3, 4)


def test_copyin_checks_size_and_type():
    with pytest.raises(ShapeError, match="expected 8 elements, not 3"):
        filled().copyin([1, 2, 3])
    with pytest.raises(DTypeError, match="int64 does not cast to int8"):
        filled(8, dt.int8).copyin(np.arange(8))


def test_copyin_refuses_read_only_memory():
    with pytest.raises(BufferError, match="read-only"):
        Buffer.wrap(b"abcd").copyin(b"efgh")


def test_copyout_gives_an_array_of_its_own():
    buffer = filled()
    out = buffer.copyout()
    buffer.raw()[...] = 0
    assert out.tolist() == list(range(8))


def test_copyout_fills_what_is_given():
    buffer = filled()
    array, data = np.zeros((2, 4), np.float32), bytearray(32)
    assert buffer.copyout(array) is array
    assert array.ravel().tolist() == list(range(8))
    buffer.copyout(data)
    assert np.frombuffer(data, np.float32).tolist() == list(range(8))


def test_copyout_checks_its_target():
    with pytest.raises(ShapeError, match="8 elements of float32"):
        filled().copyout(np.zeros(7, np.float32))
    with pytest.raises(ShapeError, match="float64"):
        filled().copyout(np.zeros(8))
    with pytest.raises(BufferError, match="read-only"):
        filled(4, dt.uint8).copyout(b"abcd")


# ---- NumPy and the buffer protocol


def test_numpy_shares_memory():
    buffer = filled()
    buffer.numpy()[3] = 30
    assert buffer.copyout()[3] == 30


def test_asarray_shares_memory():
    buffer = filled()
    np.asarray(buffer)[3] = 30
    assert buffer.numpy()[3] == 30


def test_the_buffer_protocol_shares_memory():
    buffer = filled(4, dt.int16)
    view = memoryview(buffer)
    assert (view.format, view.itemsize, view.shape, view.readonly) == ("h", 2, (4,), False)
    view[1] = 70
    assert buffer.numpy()[1] == 70
    del buffer
    gc.collect()
    assert view.tolist() == [0, 70, 2, 3]


def test_exported_memory_is_not_freed_until_the_view_goes():
    buffer = filled()
    view = memoryview(buffer)
    with pytest.raises(BufferError):
        buffer.release()
    view.release()
    buffer.release()
    with pytest.raises(BufferReleasedError):
        memoryview(buffer)


def test_read_only_memory_is_exported_read_only():
    view = memoryview(Buffer.wrap(b"abcd"))
    assert view.readonly
    assert bytes(view) == b"abcd"
    with pytest.raises(ValueError, match="WRITEABLE"):
        np.frombuffer(Buffer.wrap(b"abcd"), np.uint8).setflags(write=True)


def test_array_conversion_follows_dtype_and_copy():
    buffer = filled()
    assert np.array(buffer).ctypes.data != buffer.address
    assert buffer.__array__(np.float64).dtype == np.float64
    assert buffer.__array__(copy=True).ctypes.data != buffer.address
    with pytest.raises(ValueError, match="needs a copy"):
        buffer.__array__(np.float64, copy=False)


def test_array_interface_describes_the_memory():
    buffer = filled()
    interface = buffer.__array_interface__
    assert interface["data"] == (buffer.address, False)
    assert (interface["shape"], interface["typestr"], interface["version"]) == ((8,), "<f4", 3)


def test_bfloat16_has_no_numpy_type_but_its_bits():
    buffer = Buffer(4, dt.bfloat16)
    assert buffer.raw().dtype == np.uint16
    with pytest.raises(DTypeError, match="bfloat16"):
        buffer.numpy()


@pytest.mark.parametrize("dtype", [d for d in dt.ALL if d is not dt.bfloat16], ids=lambda d: d.name)
def test_every_numpy_type_goes_both_ways(dtype):
    array = np.array([0, 1, 1, 0], dtype.name)
    buffer = Buffer.wrap(array)
    assert (buffer.dtype, buffer.address) == (dtype, array.ctypes.data)
    assert buffer.numpy().tolist() == array.tolist()


def test_memory_that_numpy_holds_is_not_freed():
    buffer = filled()
    array = buffer.numpy()
    with pytest.raises(BufferError, match="in use"):
        buffer.release()
    del buffer
    gc.collect()
    assert array.tolist() == list(range(8))
    fresh = Buffer(8, dt.float32)
    assert fresh.address != array.ctypes.data


def test_memory_handed_out_as_an_interface_is_never_freed_under_it():
    buffer = filled()
    _ = buffer.__array_interface__
    with pytest.raises(BufferError):
        buffer.release()


def test_a_zero_size_buffer_is_an_empty_array():
    buffer = Buffer(0, dt.float32)
    assert buffer.numpy().shape == (0,)
    assert buffer.address != 0
    assert Buffer.wrap(np.empty((0, 3), np.float32)).size == 0


# ---- Wrapping


def test_wrap_shares_and_keeps_the_array():
    array = np.arange(6.0)
    buffer = Buffer.wrap(array.reshape(2, 3))
    array[1] = 10
    assert buffer.numpy().tolist() == [0, 10, 2, 3, 4, 5]
    address = array.ctypes.data
    del array
    gc.collect()
    assert buffer.address == address
    assert buffer.numpy()[5] == 5


def test_a_wrapped_array_cannot_be_resized():
    data = bytearray(16)
    buffer = Buffer.wrap(data, dt.int32)
    with pytest.raises(BufferError):
        data.extend(b"more")
    del buffer
    gc.collect()
    data.extend(b"more")


def test_wrap_reads_bytes_as_any_type():
    assert Buffer.wrap(bytes(8), dt.float64).size == 1
    with pytest.raises(ShapeError, match="whole number"):
        Buffer.wrap(bytes(7), dt.float32)


def test_wrap_keeps_read_only_read_only():
    array = np.zeros(4)
    array.flags.writeable = False
    assert Buffer.wrap(array).readonly
    assert Buffer.wrap(b"abc").readonly
    assert not Buffer.wrap(bytearray(b"abc")).readonly
    assert not Buffer.wrap(array).numpy().flags.writeable


def test_wrap_recognizes_kernelrt_s_own_memory():
    buffer = filled()
    again = Buffer.wrap(buffer.numpy()[2:6])
    assert again.storage is buffer.storage
    assert (again.offset, again.address) == (8, buffer.address + 8)
    del buffer
    gc.collect()
    assert again.numpy().tolist() == [2, 3, 4, 5]


def test_wrap_refuses_strides_and_odd_addresses():
    with pytest.raises(ShapeError, match="contiguous"):
        Buffer.wrap(np.zeros((4, 4))[:, 1])
    odd = np.frombuffer(bytearray(33), np.uint8)[1:33].view(np.float64)
    with pytest.raises(ShapeError, match="aligned"):
        Buffer.wrap(odd)


@pytest.mark.parametrize("source", [[1, 2], 3, None, "text"])
def test_wrap_refuses_what_has_no_memory(source):
    with pytest.raises(DTypeError, match="exposes no memory"):
        Buffer.wrap(source)


def test_wrap_refuses_types_that_kernels_do_not_have():
    with pytest.raises(DTypeError, match="complex128"):
        Buffer.wrap(np.zeros(3, complex))
    with pytest.raises(DTypeError):
        Buffer.wrap(np.zeros(3, ">f4"))


# ---- DLPack


def test_dlpack_to_and_from_numpy():
    buffer = filled()
    array = np.from_dlpack(buffer)
    array[2] = 20
    assert buffer.numpy()[2] == 20
    assert buffer.__dlpack_device__() == (1, 0)
    with pytest.raises(BufferError):
        buffer.release()


@pytest.mark.parametrize("name", ["float32", "int64", "bool", "float16", "bfloat16", "uint8"])
def test_dlpack_to_and_from_torch(name):
    torch = pytest.importorskip("torch")
    buffer = Buffer(6, dt.parse(name))
    buffer.raw()[...] = 0
    tensor = torch.from_dlpack(buffer)
    assert tensor.dtype == getattr(torch, name)
    tensor[2] = 1
    assert tensor.data_ptr() == buffer.address
    assert buffer.raw()[2] != 0
    back = Buffer.wrap(tensor)
    assert (back.dtype, back.address, back.size) == (buffer.dtype, buffer.address, 6)
    del buffer, back
    gc.collect()
    assert tensor[2] == 1


def test_an_imported_torch_tensor_outlives_its_name():
    torch = pytest.importorskip("torch")
    buffer = Buffer.wrap(torch.arange(5.0))
    gc.collect()
    assert buffer.numpy().tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("name", ["float32", "int32", "bfloat16"])
def test_dlpack_to_and_from_jax(name):
    jax = pytest.importorskip("jax")
    buffer = Buffer(16, dt.parse(name))
    buffer.raw()[...] = 0
    array = jax.numpy.from_dlpack(buffer)
    assert str(array.dtype) == name
    source = jax.numpy.ones(16, name)
    imported = Buffer.wrap(source)
    assert (imported.dtype.name, imported.size, imported.readonly) == (name, 16, True)
    buffer.copyin(imported)
    assert (buffer.raw() == imported.raw()).all()


def test_memory_elsewhere_is_refused():
    class OnGpu:
        def __dlpack__(self, **_):
            raise AssertionError("must not be asked")

        def __dlpack_device__(self):
            return (2, 0)

    with pytest.raises(DeviceError, match="host memory"):
        Buffer.wrap(OnGpu())


def test_copying_from_another_order_of_the_same_memory():
    buffer = Buffer.wrap(np.arange(8.0))
    buffer.view(16, 4).copyin(buffer.numpy()[::2])
    assert buffer.numpy().tolist() == [0, 1, 0, 2, 4, 6, 6, 7]
    buffer.copyin(buffer.numpy()[::-1])
    assert buffer.numpy().tolist() == [7, 6, 6, 4, 2, 0, 1, 0]
