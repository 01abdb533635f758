"""Eager programs with changing sizes, compared with torch (tests/support/size_programs)."""

from __future__ import annotations

from ._drawn import Drawn

_drawn = Drawn("size_programs", "programs of many sizes")
generate, run, shrink = _drawn.generate, _drawn.run, _drawn.shrink
key, source = _drawn.key, _drawn.source
