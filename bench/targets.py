"""Hold kernelrt and the other libraries to one instruction set, for ``bench.report --target``.

Most libraries read these variables when they are imported, so the report starts itself again in an
environment that has them.
"""

from __future__ import annotations

import os
import sys
from typing import Final, NamedTuple

__all__ = ["HELD", "TARGETS", "described", "restart"]

#: The variable of a process that :func:`restart` started; it holds the target.
HELD: Final = "BENCH_TARGET"


class _Names(NamedTuple):
    """The name of an instruction set (a level of x86-64) in the variable of each library."""

    openblas: str
    torch: str
    onednn: str
    mkl: str
    mkl_branch: str
    """Code path of MKL's products, which may use wider vectors on AMD's processors than `mkl` says;
    empty for MKL's choice."""
    jax: str
    numba: str
    above: tuple[str, ...]
    """Starts of NumPy's names for features above the level."""


#: By the names of ``KERNELRT_TARGET``.
TARGETS: Final = {
    "x86-64-v2": _Names(
        "Nehalem", "default", "SSE41", "SSE4_2", "COMPATIBLE", "SSE4_2", "nehalem",
        ("X86_V3", "X86_V4", "AVX", "F16C", "FMA"),
    ),
    "x86-64-v3": _Names(
        "Haswell", "avx2", "AVX2", "AVX2", "", "AVX2", "haswell", ("X86_V4", "AVX512"),
    ),
    "x86-64-v4": _Names(
        "SkylakeX", "avx512", "AVX512_CORE", "AVX512", "", "AVX512", "skylake-avx512", (),
    ),
}  # fmt: skip


def restart(target: str | None, threads: int | None) -> None:
    """Start this process again, held to a target and a number of threads.

    In the new process, the function returns at once.

    Parameters
    ----------
    target : str or None
        Key of :data:`TARGETS`; None for the machine's own instructions.
    threads : int or None
        Threads of all libraries; None for those that each case sets.

    Raises
    ------
    ValueError
        :data:`HELD` holds another target already.
    """
    held = os.environ.get(HELD)
    if held is not None:
        if held != (target or ""):
            raise ValueError(
                f"{HELD}={held!r} is set, so this process is held to {held or 'no target'}, and "
                f"not to {target or 'no target'}; unset {HELD}"
            )
        return
    wanted = _variables(target) if target else {}
    if threads:
        limits = ("KERNELRT", "OMP_NUM", "OPENBLAS_NUM", "MKL_NUM", "NUMBA_NUM")
        wanted |= {f"{name}_THREADS": str(threads) for name in limits}
    if not wanted:
        return
    environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_L2_SIZE"}
    os.execve(  # noqa: S606 - the same program
        sys.executable, sys.orig_argv, {**environment, **wanted, HELD: target or ""}
    )


def _variables(target: str) -> dict[str, str]:
    """Return the variables that hold kernelrt and the other libraries to `target`."""
    names = TARGETS[target]
    values = {
        "KERNELRT_TARGET": target, "OPENBLAS_CORETYPE": names.openblas,
        "NPY_DISABLE_CPU_FEATURES": _numpy_features(names.above),
        "ATEN_CPU_CAPABILITY": names.torch, "ONEDNN_MAX_CPU_ISA": names.onednn,
        "MKL_ENABLE_INSTRUCTIONS": names.mkl, "MKL_CBWR": names.mkl_branch,
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_max_isa={names.jax}".strip(),
        "NUMBA_CPU_NAME": names.numba,
    }  # fmt: skip
    return {name: value for name, value in values.items() if value}


def _numpy_features(above: tuple[str, ...]) -> str:
    """Return those features NumPy would use on this machine whose names start with `above`.

    Features that the environment switches off stay off: NumPy does not report them.
    """
    from numpy._core import _multiarray_umath as umath

    off = os.environ.get("NPY_DISABLE_CPU_FEATURES", "").replace(",", " ").split()
    used = [name for name in umath.__cpu_dispatch__ if umath.__cpu_features__.get(name)]
    found = [name for name in used if above and name.startswith(above)]
    return " ".join(dict.fromkeys([*off, *found]))


def described() -> str:
    """Describe what each library is held to, or return "" if nothing is."""
    target = os.environ.get(HELD)
    if not target:
        return ""
    held = ", ".join(f"{name}={os.environ.get(name)}" for name in _variables(target))
    return f" Held to {target}: {held}. onnxruntime has no such variable and is not held."
