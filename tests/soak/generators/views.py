"""Programs that change views in place, compared with torch (tests/support/view_programs)."""

from __future__ import annotations

from ._drawn import Drawn

_drawn = Drawn("view_programs", "programs with views")
generate, run, shrink = _drawn.generate, _drawn.run, _drawn.shrink
key, source = _drawn.key, _drawn.source
