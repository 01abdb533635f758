"""Triple, name and features of the processor of this machine, as LLVM tells them."""

from __future__ import annotations

import json

from kernelrt._version import __version__
from kernelrt.native.core import processor_identity
from kernelrt.util.lazy_import import aside
from kernelrt.util.llvm_binding import binding, llvmlite_version
from kernelrt.util.object_cache import ObjectCache

__all__ = ["described"]


def described() -> tuple[str, str, dict[str, bool]]:
    """Return the triple, name and features of this processor, as LLVM tells them.

    The answer is kept in the cache on disk, so that a process that compiles nothing does not load
    LLVM.
    """
    identity, cache = processor_identity(), ObjectCache.default()
    if cache is None or not identity:
        return _ask_llvm()
    key = ("processor", __version__, llvmlite_version(), identity)
    data = cache.get(key)
    if data is not None:
        triple, name, features = json.loads(data)
        return triple, name, features
    found = _ask_llvm()
    cache.put(key, json.dumps(found).encode())
    return found


def _ask_llvm() -> tuple[str, str, dict[str, bool]]:
    """Ask LLVM for the triple, name and features of this processor.

    Another thread calls LLVM. Otherwise a signal handler that computes could wait forever for a
    lock that the thread which it interrupts holds.
    """
    llvm = binding()
    found: list[tuple[str, str, dict[str, bool]]] = []

    def ask() -> None:
        # Pass both to LLVM: a hypervisor may hide features that the CPU's name implies.
        features = dict(llvm.get_host_cpu_features())
        found.append((llvm.get_process_triple(), llvm.get_host_cpu_name(), features))

    aside(ask, 1)
    if not found:
        ask()
    return found[0]
