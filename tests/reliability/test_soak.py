"""The soak itself: each way to fail is a finding, findings are made small, defects are seen."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.package import PACKAGE, is_in_package
from support.patience import PATIENCE
from support.skip_list import needs

import kernelrt

ROOT = Path(__file__).parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from tests.soak import record, worker  # noqa: E402
from tests.soak.__main__ import GENERATORS  # noqa: E402
from tests.soak.hunt import Hunt, minimize  # noqa: E402
from tests.soak.processes import DiedError, Worker  # noqa: E402

NEED_TORCH = {
    "calls",
    "compiling",
    "eager",
    "large",
    "loops",
    "ops",
    "programs",
    "stateful",
    "training",
}


def generator(name):
    if name in NEED_TORCH:
        pytest.importorskip("torch")
    return worker.load(name)


@pytest.mark.parametrize("name", GENERATORS)
def test_cases_are_plain_data_and_their_programs_parse(name):
    module = generator(name)
    for seed in range(12):
        case = module.generate(np.random.default_rng(seed))
        drawn = worker.draw(module, [seed])
        if isinstance(drawn, dict):
            assert drawn.pop("interprets") in (True, False)
        assert json.loads(json.dumps(case)) == drawn
        compile(module.source(case), name, "exec")
        for smaller, _ in zip(module.shrink(case), range(20), strict=False):
            json.dumps(smaller)
            assert smaller != case


FULL = [50, 60, 70, 80]


@pytest.mark.cases(1)
@needs("Linux")
@pytest.mark.parametrize(
    ("kind", "beginning"),
    [
        ("value", "values: "), ("error", "ZeroDivisionError: "), ("abort", "crash: SIGABRT"),
        ("leave", "exit: status 3"), ("spin", "hang: "), ("flood", "MemoryError"),
    ],
)  # fmt: skip
def test_every_way_to_fail_is_told(kind, beginning):
    with Worker("_faulty", seconds=2 if kind == "spin" else 20, memory=600 << 20) as process:
        assert process.ask({"kind": "fine", "numbers": FULL}) is None
        assert process.ask({"kind": kind, "numbers": FULL}).startswith(beginning)


@pytest.mark.cases(1)
@needs("Linux")
@pytest.mark.parametrize("kind", ["value", "error", "abort"])
def test_findings_are_made_small(kind):
    case, message, remark = minimize("_faulty", {"kind": kind, "numbers": [13, 3, 12]}, {
        "value": "values: 13", "error": "ZeroDivisionError: 13", "abort": "crash: SIGABRT",
    }[kind], PATIENCE)  # fmt: skip
    assert case["numbers"] == [11]
    assert message
    assert remark == ""


def test_what_does_not_fail_again_is_said_to():
    case, _, remark = minimize("_faulty", {"kind": "fine", "numbers": FULL}, "values: 1", PATIENCE)
    assert case["numbers"] == FULL
    assert "did not fail again" in remark


def test_files_of_the_package_are_told_from_those_of_a_checkout():
    """The folder of a checkout is called kernelrt, too."""
    assert is_in_package(kernelrt.__file__)
    assert not is_in_package(str(Path(PACKAGE).parent / "tests" / "test_a.py"))
    assert not is_in_package(str(Path(PACKAGE).parent / "kernelrt_more" / "a.py"))
    assert not is_in_package("/home/user/kernelrt/tests/test_a.py")


def test_a_worker_that_cannot_start_is_told():
    with pytest.raises(DiedError, match="exit"):
        Worker("no_such_generator")


@pytest.mark.exhaustive
@needs("Linux")
def test_a_hunt_goes_on_after_each_failure(capsys, monkeypatch):
    monkeypatch.setattr("tests.soak.hunt.SHRINK_SECONDS", 1.0)
    hunt = Hunt(["_faulty"], seed=3, seconds=PATIENCE, jobs=1)
    failed = hunt.failed

    def failed_until_two_are_found(*failure):
        failed(*failure)
        if len(hunt.findings) >= 2:
            hunt.end = 0.0

    monkeypatch.setattr(hunt, "failed", failed_until_two_are_found)
    findings = hunt.run()
    assert len({finding.case["kind"] for finding in findings}) >= 2
    assert hunt.counts["_faulty"].failures >= 2
    assert "--case '_faulty:" in capsys.readouterr().out


@pytest.mark.exhaustive
@needs("Linux")
def test_the_command_says_what_it_found_and_fails():
    case = json.dumps({"kind": "value", "numbers": [12]})
    done = subprocess.run(
        [sys.executable, "-m", "tests.soak", "--case", f"_faulty:{case}"],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "values: 11 is above 10" in done.stdout
    fine = json.dumps({"kind": "value", "numbers": [1]})
    done = subprocess.run(
        [sys.executable, "-m", "tests.soak", "--case", f"_faulty:{fine}"], cwd=ROOT
    )
    assert done.returncode == 0


# ---- each generator sees a defect of what it is for


def noticed(name, cases=60):
    module = generator(name)
    for seed in range(cases):
        message = worker.outcome(module, worker.draw(module, [seed, 7]))
        if message:
            return message
    pytest.fail("nothing was noticed")


@pytest.mark.exhaustive
@pytest.mark.parametrize("method", ["abs", "relu", "softmax"])
def test_programs_see_a_wrong_operation(monkeypatch, method):
    import kernelrt as krt

    right = getattr(krt.Tensor, method)
    for kind in krt.Tensor.__mro__:
        if method in vars(kind):
            monkeypatch.setattr(kind, method, lambda self, *a, **o: right(self, *a, **o) * 1.001)
    assert noticed("programs", 150).startswith("values: ")


def test_large_programs_see_other_bits_of_two_threads(monkeypatch):
    from tests.soak import texts

    module, right = generator("large"), texts.ways

    def wrong(case):
        for way, function in right(case):
            off = 2.0**-22 if way == "threads" else 0.0
            yield way, lambda *data, f=function, off=off: [t * (1 + off) for t in f(*data)]

    case = module.generate(np.random.default_rng(1))
    case |= {"inputs": {"a": "f(R(1).normal(size=(65, 400)))"}, "lines": ["x0 = a.exp()"]}
    case |= {"results": ["x0"], "dtype": "float32"}
    assert module.run(case) is None
    monkeypatch.setattr(texts, "ways", wrong)
    assert module.run(case).startswith("bits: ")


def test_integers_see_a_wrong_operation(monkeypatch):
    import kernelrt as krt

    right = krt.Tensor.__xor__
    for kind in krt.Tensor.__mro__:
        if "__xor__" in vars(kind):
            monkeypatch.setattr(kind, "__xor__", lambda x, y: right(x, y) & -2)
    assert noticed("integers").startswith("values: ")


def test_indices_see_a_missing_check(monkeypatch):
    from kernelrt.tensor.nodes import build

    def wrapped(index, size, **_):
        return index.alu(build.Op.MOD, build.full(size, index.dtype, index.shape))

    monkeypatch.setattr(build, "bound", wrapped)
    assert noticed("indices").startswith(("missed: ", "values: "))


def test_training_sees_a_wrong_update(monkeypatch):
    from kernelrt.nn.optim import SGD, Adam

    for kind in (SGD, Adam):
        right = kind.__init__

        def wrong(self, params, lr=1e-3, *args, right=right, **options):
            right(self, params, lr * 1.01, *args, **options)

        monkeypatch.setattr(kind, "__init__", wrong)
    assert noticed("training", 20).startswith("values: ")


@pytest.mark.parametrize(("bound", "beginning"), [("IR_BYTES", "IR: "), ("PLAN_SECONDS", "time: ")])
@pytest.mark.parametrize("name", ["calls", "programs", "wholes"])
def test_a_bound_of_compiling_holds_for_each_generator(monkeypatch, name, bound, beginning):
    generator(name)
    monkeypatch.setattr(record, bound, 0)
    with record.watching():
        assert noticed(name).startswith(beginning)


@pytest.mark.parametrize("off", [1.0, 1 + 1e-9])
def test_rounding_of_equal_numbers_is_allowed_and_no_more(monkeypatch, off):
    """A mean of six tenths is a unit off, of which layer_norm makes 300; torch's own may be 0."""
    import kernelrt as krt

    module = generator("ops")
    right = krt.Tensor.mean
    for kind in krt.Tensor.__mro__:
        if "mean" in vars(kind):
            monkeypatch.setattr(kind, "mean", lambda *a, **o: right(*a, **o) * off)
    case = {"inputs": {"a": "f(np.zeros((2, 6)))"}, "dtype": "float64", "grad": False,
            "lines": ["x = T.ones_like(a) * 0.1", "y = F.layer_norm(x, x.shape[-1:]) + x.mean()"],
            "results": ["y"], "ways": ["whole"], "sizes": [1]}  # fmt: skip
    message = module.run(case)
    assert (message is None) == (off == 1), message


@pytest.mark.parametrize("off", [1.0, 1 + 1e-9])
@pytest.mark.parametrize("logit", [-7, 1, 6])
def test_what_cancels_within_an_operation_is_allowed_and_no_more(monkeypatch, off, logit):
    """Terms as great as the logit leave 0.007 at -7, and torch's digits end with theirs."""
    import kernelrt as krt

    module = generator("ops")
    right = krt.Tensor.binary_cross_entropy_with_logits
    for kind in krt.Tensor.__mro__:
        if "binary_cross_entropy_with_logits" in vars(kind):
            monkeypatch.setattr(
                kind, "binary_cross_entropy_with_logits", lambda *a: right(*a) * off
            )
    case = {"inputs": {"a": f"f(np.full(1, {logit}))"}, "dtype": "float64", "grad": False,
            "lines": ["x = F.binary_cross_entropy_with_logits(a, a.sigmoid())"],
            "results": ["x"], "ways": ["jit"], "sizes": [1]}  # fmt: skip
    message = module.run(case)
    assert (message is None) == (off == 1), message


def test_what_torch_refuses_is_not_counted():
    module = generator("programs")
    case = {"inputs": {"a": "f(np.ones(3))"}, "lines": ["x = a @ T.ones(2)"], "results": ["x"],
            "dtype": "float32", "grad": False, "ways": ["whole"], "sizes": [1]}  # fmt: skip
    message, done = worker.recorded(module, case)
    assert (message, done.compared) == (None, {})
    message, done = worker.recorded(module, {**case, "lines": ["x = a * 2"]})
    assert (message, done.compared) == (None, {"random programs": 1})


@pytest.mark.parametrize(
    ("defect", "actions"),
    [
        (
            "numbers",
            [["loop", [1.5, 2.5, 3.5, 4.5, 5.5], [["binary", "add", 0, {"number": "i"}]]]],
        ),
        (
            "pending",
            [["at", 0, [[1, 3, 1]]], ["set", 0, [1], {"number": 7}], ["binary", "mul", 0,
             {"number": 2}], ["set", 0, [2], {"number": 5}], ["at", 0, [[0, 2, 1]]]],
        ),
    ],
)  # fmt: skip
def test_eager_programs_see_defects(monkeypatch, defect, actions):
    module = generator("eager")
    case = {"start": [[[5], "float64", "plain", 3]], "memory": 6, "actions": actions}
    assert module.run(case) is None
    import kernelrt as krt
    from kernelrt.native.evaluate import number_buffer
    from kernelrt.native.fast_paths import _name_copy
    from kernelrt.tensor import base
    from kernelrt.tensor.eager import plan_cache, realize
    from kernelrt.tensor.nodes import build

    class Wrong(plan_cache.PlanCache):
        def look_up(self, values, commits):
            found = super().look_up(values, commits)
            if len(found.buffers) > len(found.read):
                found.buffers = [*found.read, number_buffer(build.full(-1.0, krt.float64, ()))]
            return found

    if defect == "numbers":
        monkeypatch.setattr(plan_cache, "plans", Wrong())
    else:
        monkeypatch.setattr(base, "is_changing", lambda *_: False)
        _name_copy(realize.copied, lambda _: None, realize.realize)
    try:
        assert module.run(case).startswith("values: ")
    finally:
        _name_copy(realize.copied, realize.flush, realize.realize)


def test_disturbances_see_state_that_changes_by_halves(monkeypatch):
    module = worker.load("disturb")
    right = module.World.step

    def halves(self):
        right(self)
        self.two.assign(self.two + 1)

    monkeypatch.setattr(module.World, "step", halves)
    world = module.World()
    assert module.after(world).startswith("state: ")


@pytest.mark.parametrize("line", ["b = a @ x", "b = T.matmul(a, x)"])
def test_products_of_two_types_are_not_asked_of_torch(line):
    # It refuses them, and returns one of the types where there is nothing to add up.
    pytest.importorskip("torch")
    from tests.soak import truth

    case = {
        "inputs": {"a": "f(np.zeros((0, 3)))", "x": "np.zeros((3, 0), int)"},
        "lines": [line], "results": ["b"], "dtype": "float64", "grad": False,
    }  # fmt: skip
    with pytest.raises(truth.Invalid):
        truth.torch_values(case, truth.arrays(case, 1), "float64")
    case["inputs"]["x"] = "np.zeros((3, 0))"
    (found,) = truth.torch_values(case, truth.arrays(case, 1), "float64").values
    assert found.shape == (0, 0)
