"""The README's code runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

README = Path(__file__).parents[2] / "README.md"


def test_the_examples_run(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 3
    names: dict[str, Any] = {}
    exec(blocks[0], names)  # noqa: S102 - our own text
    accuracy = re.search(r"accuracy ([\d.]+)", capsys.readouterr().out)
    assert accuracy
    assert float(accuracy[1]) >= 0.96
    exec(blocks[1], names)  # noqa: S102
    assert capsys.readouterr().out == "15.0\n"
    exec(blocks[2], names)  # noqa: S102
    assert "GFLOP/s" in capsys.readouterr().out


def test_the_files_it_points_to_exist() -> None:
    text = README.read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link]
    missing = [link for link in links if not (README.parent / link).exists()]
    assert links
    assert not missing
