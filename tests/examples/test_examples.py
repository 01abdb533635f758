"""The examples run, and reach what they are about."""

from __future__ import annotations

import importlib.util
import inspect
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
    "online_stream": lambda share: share < 0.01,
    "char_lstm": lambda known: known > 0.9,
    "evolution_strategies": lambda steps: steps > 400,
    "ensemble": lambda accuracy: accuracy > 0.97,
    "dqn_cartpole": lambda steps: steps > 300,
}


@pytest.mark.parametrize("name", GOALS)
def test_example(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    shown: list[None] = []
    plot = inspect.signature(module.main).parameters.get("plot")
    if plot is not None and plot.default is False and importlib.util.find_spec("matplotlib"):
        monkeypatch.setenv("MPLBACKEND", "Agg")
        monkeypatch.setattr("matplotlib.pyplot.show", lambda: shown.append(None))
        assert GOALS[name](module.main(plot=True))
        assert shown
    else:
        assert GOALS[name](module.main())
    assert capsys.readouterr().out


def test_every_example_is_run() -> None:
    own = {path.stem for path in FOLDER.glob("*.py") if not path.stem.startswith("plan_")}
    assert own == set(GOALS)
