"""The examples run, and reach what they are about."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "examples"

GOALS = {
    "train_mlp": lambda accuracy: accuracy >= 0.96,
    "train_cnn": lambda accuracy: accuracy >= 0.97,
    "online_regression": lambda ratio: ratio < 0.2,
    "reinforce_cartpole": lambda steps: steps > 100,
    "serve_dynamic_batch": lambda plans: plans == 1,
    "call_environment": lambda gain: gain > 3,
}


@pytest.mark.parametrize("name", GOALS)
def test_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert GOALS[name](module.main())
    assert capsys.readouterr().out


def test_every_example_is_run() -> None:
    own = {path.stem for path in FOLDER.glob("*.py") if not path.stem.startswith("plan_")}
    assert own == set(GOALS)
