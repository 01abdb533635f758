"""Build the site: ``python -m docs.build [--out DIR]``.

The site is made of docs/*.md and of the docstrings of the package, by Sphinx; the packages that it
needs are the extra ``docs``. Building it needs no network, and the pages load nothing from one. A
warning of Sphinx fails the build, and so does everything that docs/check.py finds.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import kernelrt
from docs import check, pages

ROOT: Final = Path(__file__).parents[1]
SETTINGS: Final[dict[str, Any]] = {
    "project": "kernelrt",
    "author": "kernelrt developers",
    "copyright": "kernelrt developers",
    "version": kernelrt.__version__,
    "release": kernelrt.__version__,
    "extensions": ["myst_parser", "docs.links"],
    "source_suffix": {".md": "markdown", ".rst": "restructuredtext"},
    "root_doc": "index",
    "myst_heading_anchors": 4,
    "highlight_language": "none",
    "html_theme": "furo",
    "html_title": f"kernelrt {kernelrt.__version__}",
    "html_static_path": [str(ROOT / "docs" / "static")],
    "html_css_files": ["site.css"],
    "html_copy_source": False,
    "html_show_sourcelink": False,
    "html_show_sphinx": False,
    "nitpicky": True,
    "python_maximum_signature_line_length": 88,
    "toc_object_entries": False,
}


def build(out: Path, jobs: int) -> int:
    """Build the site in the folder `out`; return the number of pages."""
    from sphinx.application import Sphinx
    from sphinx.util.docutils import docutils_namespace, patch_docutils

    with tempfile.TemporaryDirectory() as temporary:
        source = Path(temporary) / "source"
        count = pages.write(source)
        shutil.rmtree(out, ignore_errors=True)
        with patch_docutils(None), docutils_namespace():
            app = Sphinx(
                source, None, out, Path(temporary) / "trees", "html",
                confoverrides=SETTINGS, status=None, warning=sys.stderr, freshenv=True,
                warningiserror=True, parallel=jobs,
            )  # fmt: skip
            app.build(force_all=True)
        if app.statuscode:
            raise SystemExit("docs.build: Sphinx has warnings; see above")
    return count


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m docs.build", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "site", help="the folder")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--no-examples", action="store_true", help="do not run the examples")
    options = parser.parse_args()
    began = time.monotonic()
    count = build(options.out.resolve(), options.jobs)
    print(f"{count} pages in {time.monotonic() - began:.0f} s: {options.out / 'index.html'}")
    return check.check(options.out, examples=not options.no_examples)


if __name__ == "__main__":
    sys.exit(main())
