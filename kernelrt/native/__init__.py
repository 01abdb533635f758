"""Compiled modules: the C core's plans, nodes, locks, memory, and the hot paths of eager and jit.

Importing this package checks that they were built for this Python, and says how to build them.
"""

from __future__ import annotations

import importlib.util

if None in map(importlib.util.find_spec, ("kernelrt._dispatch", "kernelrt.native.core")):
    import sysconfig
    from pathlib import Path

    _package = Path(__file__).parents[1]
    _suffix = sysconfig.get_config_var("EXT_SUFFIX")
    _others = ", ".join(sorted(path.name for path in _package.glob("_dispatch.*.so"))) or "none"
    raise ImportError(
        f"kernelrt in {_package} has no compiled modules for this Python: expected "
        f"_dispatch{_suffix}, found {_others}. Run `python -m pip install .` in "
        f"{_package.parent} with this Python, or start in another folder to use an installed "
        "kernelrt",
        name="kernelrt._dispatch",
        path=str(_package),
    )
