"""``kernelrt env``: prints the machine's properties that kernelrt detected."""

from __future__ import annotations

import os
import platform

import numpy as np

import kernelrt as krt

__all__ = ["run"]


def run() -> int:
    """Print version, CPU, vector width, threads, LLVM, cache folder."""
    import llvmlite
    from llvmlite import binding

    from kernelrt.device.spec import SETTING, host, machine, target_name

    spec, here = host(), machine()
    llvm = ".".join(map(str, binding.llvm_version_info))
    sizes = f"L1 {_size(spec.l1_bytes)}, L2 {_size(spec.l2_bytes)}, L3 {_size(spec.l3_bytes)}"
    rows = (
        ("kernelrt", krt.__version__),
        ("Python", f"{platform.python_version()} on {platform.platform()}"),
        ("NumPy", np.__version__),
        ("LLVM", f"{llvm} (llvmlite {llvmlite.__version__})"),
        ("CPU", f"{here.cpu} ({here.triple})"),
        ("target", "the CPU" if spec is here else f"{target_name()} ({SETTING})"),
        ("vectors", f"{spec.vector_bits} bits, {spec.vector_registers} registers"),
        ("caches", sizes),
        ("threads", f"{krt.get_num_threads()} of {spec.cores} cores{_limit()}"),
        ("object cache", _cache()),
    )
    width = max(len(label) for label, _ in rows)
    for label, text in rows:
        print(f"{label:<{width}}  {text}")
    return 0


def _size(nbytes: int) -> str:
    return f"{nbytes >> 20} MiB" if nbytes >= 1 << 20 else f"{nbytes >> 10} KiB"


def _limit() -> str:
    for name in ("KERNELRT_THREADS", "OMP_NUM_THREADS"):
        if limit := os.environ.get(name):
            return f" ({name}={limit})"
    return ""


def _cache() -> str:
    from kernelrt.util.object_cache import ObjectCache

    cache = ObjectCache.default()
    if cache is None:
        return f"off (KERNELRT_CACHE={os.environ['KERNELRT_CACHE']})"
    return f"{cache.folder}" + (f", {cache.limit >> 20} MB" if cache.usable else " (not usable)")
