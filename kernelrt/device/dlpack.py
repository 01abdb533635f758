"""DLPack exchange of bfloat16 arrays, which NumPy lacks.

NumPy exchanges all other element types of kernelrt. bfloat16 data is exchanged as uint16: this
module changes the type in the DLPack capsule, on export and on import.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from kernelrt.errors import DeviceError, DTypeError, KernelrtError

__all__ = ["REFUSALS", "export", "import_array", "kind_name", "nothing"]

REFUSALS = (BufferError, RuntimeError, TypeError, ValueError, OverflowError)
"""Exceptions that objects of other libraries raise when they cannot be read."""

# Layout of DLManagedTensor and DLManagedTensorVersioned (dlpack.h 1.0): the offset of DLTensor, and
# in it the offset of DLDataType {uint8 code, uint8 bits, uint16 lanes}.
_CAPSULES = {b"dltensor": 0, b"dltensor_versioned": 32}
_DTYPE_OFFSET = 20
_UINT, _BFLOAT = 1, 4
_CPU = (1, 0)

_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.argtypes = [ctypes.py_object, ctypes.c_char_p]
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_pointer.restype = ctypes.c_void_p


def export(array: np.ndarray[Any, Any], bfloat16: bool, options: dict[str, Any]) -> Any:
    """Return a DLPack capsule of `array`. If `bfloat16` is true, change its type to bfloat16."""
    capsule = array.__dlpack__(**options)
    if bfloat16:
        _set_code(capsule, _BFLOAT)
    return capsule


def import_array(source: Any, name: str = "source") -> tuple[np.ndarray[Any, Any], bool]:
    """Return a DLPack exporter's memory as an array, and whether its uint16 numbers are bfloat16.

    Raises
    ------
    DeviceError
        The memory is not host memory.
    DTypeError
        The exporter refuses the export. The message has its reason.
    """
    try:
        if source.__dlpack_device__()[0] != 1:
            raise DeviceError(
                f"{name}: {kind_name(source)} is not in host memory; move it to the CPU"
            )
        if hasattr(source, "resolve_neg") and source.is_neg():
            # The imaginary part of a conjugate in PyTorch: PyTorch exports it without the sign.
            raise DTypeError(
                f"{name}: {kind_name(source)} has its negative bit set, which DLPack cannot "
                f"represent; pass {name}.resolve_neg()"
            )
        return _imported(source)
    except KernelrtError:
        raise
    except REFUSALS as error:
        raise DTypeError(f"{name}: {kind_name(source)} cannot be converted: {error}") from None


def _imported(source: Any) -> tuple[np.ndarray[Any, Any], bool]:
    try:
        return np.from_dlpack(source), False
    except (BufferError, RuntimeError, TypeError):
        try:
            capsule = source.__dlpack__(max_version=(1, 0))
        except TypeError:  # an exporter of DLPack before version 1
            capsule = source.__dlpack__()
        if _code(capsule) != (_BFLOAT, 16):
            raise
        _set_code(capsule, _UINT)
        return np.from_dlpack(_Once(capsule)), True


def nothing(value: object) -> str:
    """Return a hint for an error message if `value` is None: a function may lack a return."""
    return "; did a function return nothing?" if value is None else ""


def kind_name(value: object) -> str:
    """Return the type name of `value` with its library, because several libraries have a Tensor."""
    kind = type(value)
    library = kind.__module__.partition(".")[0]
    return kind.__qualname__ if library in ("builtins", "__main__") else (
        f"{library}.{kind.__qualname__}"
    )


def refuse_torch_module(value: object, name: str) -> None:
    """Raise DTypeError if `value` is a PyTorch module, which computes with PyTorch tensors."""
    kinds = [(kind.__module__, kind.__name__) for kind in type(value).__mro__]
    if ("torch.nn.modules.module", "Module") in kinds:
        raise DTypeError(
            f"{name}: {type(value).__name__} is a PyTorch module and computes with PyTorch "
            "tensors; build the same module from the layers of kernelrt.nn, and load its weights "
            "with load_state_dict(module.state_dict())"
        )


class _Once:
    """DLPack exporter that returns a given capsule."""

    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CPU


def _field(capsule: object) -> int | None:
    for name, offset in _CAPSULES.items():
        if _is_valid(capsule, name):
            return int(_pointer(capsule, name)) + offset + _DTYPE_OFFSET
    return None


def _code(capsule: object) -> tuple[int, int] | None:
    field = _field(capsule)
    if field is None:
        return None
    code, bits = (ctypes.c_uint8 * 2).from_address(field)
    return code, bits


def _set_code(capsule: object, code: int) -> None:
    field = _field(capsule)
    if field is None:
        raise BufferError("the exporter returned no DLPack capsule")
    ctypes.c_uint8.from_address(field).value = code
