"""PyTorch's own samples; ``python -m tests.conformance`` runs more, in processes of their own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("expecttest")  # torch's samples import it

ROOT = Path(__file__).parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from support import sample  # noqa: E402

from tests.conformance import known, report, runs  # noqa: E402
from tests.conformance.outcome import BAD, Outcome, counted, of_error  # noqa: E402
from tests.soak.processes import DiedError  # noqa: E402

#: Names are dealt out to so many cases, as listing them takes seconds.
OPS, MODULES = 120, 60


def _bad(suite, part, parts, config):
    draw = sample.number(config.option.draw)
    found = []
    for name in suite.names()[part::parts]:
        for outcomes in suite.examined(name, 1, draw):
            found += outcomes
    return [str(outcome) for outcome in found if outcome.kind in BAD]


@pytest.mark.cases(1)
@pytest.mark.parametrize("part", range(OPS))
def test_operations(part, request):
    from tests.conformance import ops

    assert not _bad(ops, part, OPS, request.config)


@pytest.mark.cases(1)
@pytest.mark.parametrize("part", range(MODULES))
def test_modules(part, request):
    from tests.conformance import modules

    assert not _bad(modules, part, MODULES, request.config)


def test_a_wrong_value_type_and_gradient_are_found():
    import torch

    import kernelrt as krt
    from tests.conformance.calls import Call, outcomes

    def kinds(ours):
        x = torch.tensor([1.0, 2.0], requires_grad=True)
        call = Call(torch.exp, ours, (x, (), {}), lambda out: out, differentiable=True)
        return [(o.mode, o.kind) for o in outcomes("exp", "float32 0", call)]

    assert kinds(krt.exp) == [("eager", "same"), ("jit", "same")]
    assert kinds(lambda x: x.exp() * 1.001) == [("eager", "different")]
    assert kinds(lambda x: x.exp().double()) == [("eager", "different")]
    assert kinds(lambda x: x.exp().reshape(1, 2)) == [("eager", "different")]
    assert kinds(lambda x: x.exp() + 0 * x.detach() + (x - x.detach())) == [("eager", "different")]
    assert kinds(lambda x: krt.matmul(x, x[:1])) == [("eager", "refused")]
    assert kinds(lambda x: x.exp(there_is_none=1)) == [("eager", "refused")]
    assert kinds(lambda x: x.there_is_none()) == [("eager", "missing")]
    assert kinds(lambda x: {}["key"]) == [("eager", "crashed")]
    of_its_value = kinds(lambda x: x.exp() if x[0].item() > 0 else x)
    assert of_its_value == [("eager", "same"), ("jit", "refused")]


def test_errors_that_no_line_of_kernelrt_raises_are_crashes():
    def raised(call):
        try:
            call()
        except Exception as error:  # noqa: BLE001 - the kind is what is tested
            return of_error(error)[0]
        return ""

    assert raised(lambda: len(3)) == "crashed"
    assert raised(lambda: sample.commit(1)) == "refused"  # an argument that is not taken


class Dying:
    """A worker that dies in the second of three samples."""

    started = 0

    def __init__(self, *_, **__):
        type(self).started += 1
        self.greeting = {"names": ["exp"]}
        self.replies = iter(())

    def send(self, first, **_):
        self.replies = iter([*range(first, 3), None])

    def reply(self):
        number = next(self.replies)
        if number == 1:
            raise DiedError("crash: SIGSEGV")
        same = Outcome("exp", f"float32 {number}", "eager", "same").plain()
        return {"over": True} if number is None else {"outcomes": [same]}

    def close(self):
        pass


def test_a_death_is_an_outcome_and_the_next_samples_run(monkeypatch):
    monkeypatch.setattr(runs, "Worker", Dying)
    told = []
    found = runs.run("ops", [], 3, 0, lambda name, outcomes: told.append(name))
    kinds = [(o.sample, o.kind) for o in found["exp"]]
    assert kinds == [("float32 0", "same"), ("number 1", "crashed"), ("float32 2", "same")]
    assert (told, Dying.started) == (["exp"], 2)
    with pytest.raises(ValueError, match="PyTorch has no samples of cos"):
        runs.run("ops", ["cos"], 3, 0, print)


def test_the_page_has_every_outcome():
    found = {
        "ops": {
            "exp": [Outcome("exp", "float32 0", "eager", "same")],
            "lu": [
                Outcome("lu", "float32 0", "eager", "same"),
                Outcome("lu", "float32 1", "eager", "refused", "TypeError: lu() takes 1 argument"),
            ],
            "fft.fft": [Outcome("fft.fft", "float32 0", "eager", "missing", "AttributeError: fft")],
        }
    }
    text = report.written(found, 4, "")
    assert "Operations: 1 agree in every sample, 1 do not. Missing: 1." in text
    assert "Outcomes: 2 same, 1 refused, 1 missing." in text
    assert "| `lu` | 1 | 1 | lu() takes n argument (1) |" in text
    assert "Operations that are missing: `fft.fft`." in text
    assert counted(found["ops"]["lu"]) == {"same": 1, "refused": 1}


def test_reasons_are_of_what_they_explain_alone():
    assert known.why("nn.CTCLoss", "gradient 0: 1.0 at (0,), expected 2.0")
    assert not known.why("nn.CTCLoss", "output 0: 1.0 at (0,), expected 2.0")
    assert not known.why("nn.Linear", "gradient 0: 1.0 at (0,), expected 2.0")
