"""Devices by name, opened when first used."""

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
        What the code generator has to know.
    renderer : Renderer or None
        Turns kernel ASTs into source; None where only hand-written kernels run.
    compiler : Compiler
        Turns source into objects.
    loader : Loader
        Brings objects into memory.
    tuned : Tuned or None
        Which kernels are written otherwise than the renderer would; None where nobody notes it.
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


#: The devices that come with kernelrt, and others that were registered.
_entries: dict[str, _Entry] = {"CPU": _Entry(_of_backend("kernelrt.backend.cpu"))}
_lock = locks.Lock(locks.DEVICES)


def register(name: str, factory: Callable[[], Device]) -> None:
    """Make `factory` the way to open the device `name`.

    A device that was opened before stays open for whoever holds it.
    """
    # No lock: a fork may hold all of them.
    before = _entries.get(name)
    _entries[name] = _Entry(factory) if before is None else _Entry(factory, before.allocator)


def known() -> tuple[str, ...]:
    """Names of all devices."""
    return tuple(_entries)


def opened(name: str = "CPU") -> Device:
    """Give the device `name`, opened by the first call. Raises DeviceError for an unknown name."""
    entry = _find(name)
    if entry.device is not None:
        return entry.device
    with _lock:
        if entry.device is None:
            entry.device = entry.factory()
        return entry.device


def free_programs() -> None:
    """Free what is left on all devices of programs that are gone."""
    for entry in list(_entries.values()):
        if entry.device is not None:
            entry.device.loader.collect()


def allocator(name: str = "CPU") -> CachingAllocator:
    """Give the memory of the device `name`; works without opening it."""
    return _find(name).allocator


def _find(name: str) -> _Entry:
    entry = _entries.get(name)
    if entry is None:
        names = ", ".join(_entries)
        raise DeviceError(f"device: {name!r} is unknown; expected one of: {names}")
    return entry


#: Names that are those of devices, ours or not, and of no type.
_NAMES = ("cpu", "cuda", "mps", "gpu", "xpu", "meta")


def _text(device: object) -> object:
    """What names a device, as a string where it is PyTorch's."""
    kind = type(device)
    return str(device) if kind.__module__ == "torch" and kind.__name__ == "device" else device


def is_device(given: object) -> bool:
    """Whether an argument that may be a type or a device names a device."""
    text = _text(given)
    return isinstance(text, str) and (text is not given or text.lower().split(":")[0] in _NAMES)


def check_device(device: object) -> None:
    """Raise DeviceError unless `device` names the CPU."""
    if device is None:
        return
    text = _text(device)
    if not isinstance(text, str) or text.upper().split(":")[0] != "CPU":
        raise DeviceError(f"device: {text!r} is unknown; expected 'cpu'")
