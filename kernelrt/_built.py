"""Tells users how to build if the compiled modules for this Python are missing."""

from __future__ import annotations

import importlib.util

if importlib.util.find_spec("kernelrt._dispatch") is None:
    import sysconfig
    from pathlib import Path

    _here = Path(__file__).parent
    _suffix = sysconfig.get_config_var("EXT_SUFFIX")
    _others = ", ".join(sorted(path.name for path in _here.glob("_dispatch.*.so"))) or "none"
    raise ImportError(
        f"kernelrt in {_here} has no compiled modules for this Python: expected "
        f"_dispatch{_suffix}, found {_others}. Run `python -m pip install .` in "
        f"{_here.parent} with this Python, or start in another folder to use an installed kernelrt",
        name="kernelrt._dispatch",
        path=str(_here),
    )
