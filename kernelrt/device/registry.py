"""Registry of devices by name. A device is opened on first use."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from kernelrt.device.allocator import CachingAllocator
from kernelrt.errors import DeviceError
from kernelrt.native import locks
from kernelrt.util.lazy_import import Module

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelrt.device.program import Compiler, Loader, Renderer
    from kernelrt.device.spec import DeviceSpec
    from kernelrt.device.tuned import Tuned

__all__ = ["Device", "allocator", "check_device", "free_programs", "is_device", "known", "opened",
           "register"]  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Device:
    """An open device.

    Attributes
    ----------
    spec : DeviceSpec
        Target of code generation.
    renderer : Renderer or None
        Turns kernel ASTs into source. None for devices that only run hand-written kernels.
    compiler : Compiler
        Turns source into objects.
    loader : Loader
        Loads objects into memory.
    tuned : Tuned or None
        Variants of kernels that autotuning found. None if the device stores none.
    """

    spec: DeviceSpec
    renderer: Renderer | None
    compiler: Compiler
    loader: Loader
    tuned: Tuned | None = None


@dataclass(slots=True, eq=False, repr=False)
class _Entry:
    factory: Callable[[], Device]
    allocator: CachingAllocator = field(default_factory=CachingAllocator)
    device: Device | None = None


def _of_backend(module: str) -> Callable[[], Device]:
    """Return a factory that imports a backend and opens its device."""
    backend = Module(module)
    return lambda: cast("Device", backend.open_device())


#: Built-in and registered devices.
_entries: dict[str, _Entry] = {"CPU": _Entry(_of_backend("kernelrt.backend.cpu"))}
_lock = locks.Lock(locks.DEVICES)


def register(name: str, factory: Callable[[], Device]) -> None:
    """Register `factory` to open the device `name`.

    If a device of this name is open already, code that holds it may continue to use it.
    """
    # No lock, because all locks may be held during a fork.
    before = _entries.get(name)
    _entries[name] = _Entry(factory) if before is None else _Entry(factory, before.allocator)


def known() -> tuple[str, ...]:
    """Return the names of all devices."""
    return tuple(_entries)


def opened(name: str = "CPU") -> Device:
    """Return the device `name`. The first call opens it.

    Raises
    ------
    DeviceError
        The name is unknown.
    """
    entry = _find(name)
    if entry.device is not None:
        return entry.device
    with _lock:
        if entry.device is None:
            entry.device = entry.factory()
        return entry.device


def free_programs() -> None:
    """Free the remaining memory of deleted programs on all devices."""
    for entry in list(_entries.values()):
        if entry.device is not None:
            entry.device.loader.collect()


def allocator(name: str = "CPU") -> CachingAllocator:
    """Return the allocator of the device `name`, without opening the device."""
    return _find(name).allocator


def _find(name: str) -> _Entry:
    entry = _entries.get(name)
    if entry is None:
        names = ", ".join(_entries)
        raise DeviceError(f"device: {name!r} is unknown; expected one of: {names}")
    return entry


#: Device names of kernelrt and other libraries. None of them is the name of a type.
_NAMES = ("cpu", "cuda", "mps", "gpu", "xpu", "meta")


def _text(device: object) -> object:
    """Return `device`, converted to a string if it is a ``torch.device``."""
    kind = type(device)
    return str(device) if kind.__module__ == "torch" and kind.__name__ == "device" else device


def is_device(given: object) -> bool:
    """Return whether an argument that may be a type or a device names a device."""
    text = _text(given)
    return isinstance(text, str) and (text is not given or text.lower().split(":")[0] in _NAMES)


def check_device(device: object) -> None:
    """Raise DeviceError unless `device` names the CPU."""
    if device is None:
        return
    text = _text(device)
    if not isinstance(text, str) or text.upper().split(":")[0] != "CPU":
        raise DeviceError(f"device: {text!r} is unknown; expected 'cpu'")
