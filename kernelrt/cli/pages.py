"""``kernelrt docs``: lists the pages of the documentation, or prints one."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

import kernelrt

__all__ = ["names", "run"]


def _folder() -> Path:
    """Return the folder of the pages: in the installed package, or next to it in a checkout."""
    package = Path(kernelrt.__file__).parent
    for folder in (package / "docs", package.parent / "docs"):
        if (folder / "jit.md").exists():
            return folder
    raise FileNotFoundError(
        f"the pages of the documentation are not in {package / 'docs'}; reinstall kernelrt"
    )


def names() -> dict[str, Path]:
    """Map the name of each page, as ``kernelrt docs`` takes it, to its file."""
    folder = _folder()
    files = sorted(folder.rglob("*.md"), key=lambda file: (len(file.parts), file))
    return {file.relative_to(folder).with_suffix("").as_posix(): file for file in files}


def run(page: str | None) -> int:
    """List the pages with their titles, or print a page.

    Parameters
    ----------
    page : str or None
        Name of a page, as errors and other pages write it: "jit", "jit.md" or "docs/jit.md".

    Returns
    -------
    int
        0.
    """
    found = names()
    if page is None:
        width = max(map(len, found))
        for name, file in found.items():
            with file.open(encoding="utf-8") as lines:
                print(f"{name:{width}}  {next(lines).lstrip('# ').strip()}")
        return 0
    name = page.partition("#")[0].removeprefix("docs/").removesuffix(".md")
    if name not in found:
        similar = get_close_matches(name, found)
        known = f"similar names: {', '.join(similar)}" if similar else "kernelrt docs lists them"
        raise FileNotFoundError(f"there is no page {page!r}; {known}")
    print(found[name].read_text(encoding="utf-8"), end="")
    return 0
