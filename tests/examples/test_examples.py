"""The examples run, and reach what they are about."""

from __future__ import annotations

import importlib.util
import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelrt as krt

FOLDER = Path(__file__).parents[2] / "examples"

GOALS = {
    "train_mlp": lambda accuracy: accuracy >= 0.96,
    "train_cnn": lambda accuracy: accuracy >= 0.97,
    "online_regression": lambda ratio: ratio < 0.2,
    "reinforce_cartpole": lambda steps: steps > 100,
    "ppo_cartpole": lambda reward: reward >= 475,
    "serve_dynamic_batch": lambda plans: plans == 1,
    "call_environment": lambda gain: gain > 3,
    "online_stream": lambda share: share < 0.01,
    "char_lstm": lambda known: known > 0.9,
    "evolution_strategies": lambda steps: steps > 400,
    "ensemble": lambda accuracy: accuracy > 0.97,
    "dqn_cartpole": lambda steps: steps > 300,
}


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.cases(1)
@pytest.mark.parametrize("name", GOALS)
def test_example(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = load(name)
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


@pytest.mark.exhaustive
def test_agents_of_several_seeds_learn_at_once(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    reward = load("ppo_cartpole").main(seeds=3, updates=12, file=str(tmp_path / "curve.png"))
    assert reward > 100  # poles that are pushed at random stand for 22 steps
    assert (tmp_path / "curve.png").stat().st_size > 1000


def test_poles_of_ppo_move_as_those_of_gymnasium() -> None:
    ppo = load("ppo_cartpole")
    rng = np.random.default_rng(0)
    state = rng.uniform(-1, 1, (50, 4)) * [2.6, 2, 0.25, 2]
    action = rng.random(50) < 0.5
    got, fell = ppo.physics(krt.tensor(state), krt.tensor(action))
    for before, up, after, down in zip(state, action, got.numpy(), fell.numpy(), strict=True):
        x, v, angle, spin = before
        total, length = 1.1, 0.5  # the pole weighs 0.1; half of it is 0.5 long
        part = ((10 if up else -10) + 0.1 * length * spin**2 * np.sin(angle)) / total
        gravity = 9.8 * np.sin(angle) - np.cos(angle) * part
        spin_up = gravity / (length * (4 / 3 - 0.1 * np.cos(angle) ** 2 / total))
        speed_up = part - 0.1 * length * spin_up * np.cos(angle) / total
        wanted = np.array([x + 0.02 * v, v + 0.02 * speed_up, angle + 0.02 * spin,
                           spin + 0.02 * spin_up])  # fmt: skip
        np.testing.assert_allclose(after, wanted, rtol=1e-10, atol=1e-12)
        assert down == (abs(wanted[0]) > 2.4 or abs(wanted[2]) > 12 * 2 * np.pi / 360)


def test_every_example_is_run() -> None:
    own = {path.stem for path in FOLDER.glob("*.py") if not path.stem.startswith("plan_")}
    assert own == set(GOALS)
