"""The command line: what it prints, and how it ends."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.interrupts import heed_ctrl_c
from support.patience import PATIENCE

import kernelrt
from kernelrt.__main__ import main
from kernelrt.cli import calibrate, pages
from kernelrt.device.spec import DeviceSpec, machine, runnable
from kernelrt.jit import JitFunction

HOME = str(Path(kernelrt.__file__).parents[1])


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "kernelrt", *arguments]


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": HOME, **more}


def run(*arguments: str, **more: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, env=environment(**more), timeout=300
    )


@pytest.mark.cases(1 / 4)
def test_digits_learns_and_shows_where_the_time_goes(tmp_path: Path) -> None:
    done = run(KERNELRT_CACHE_DIR=str(tmp_path / "cache"))
    assert done.returncode == 0, done.stderr
    accuracy = re.search(r"test accuracy +([\d.]+)% \((\d+) of 360 held-out images\)", done.stdout)
    assert accuracy
    assert float(accuracy[1]) >= 96
    first = re.search(r"first step +([\d.]+) s, of which compiling ([\d.]+) s", done.stdout)
    assert first
    assert float(first[2]) <= float(first[1])
    assert re.search(r"steps +[\d,]+ a second \(\d+ us each\)", done.stdout)
    assert re.search(r"kernel +calls +time +share +GFLOP/s +GB/s", done.stdout)
    assert "total" in done.stdout
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    assert "\r" not in done.stdout


@pytest.mark.exhaustive
def test_cnn_learns(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["digits", "--cnn", "--no-profile"]) == 0
    out = capsys.readouterr().out
    accuracy = re.search(r"test accuracy +([\d.]+)%", out)
    assert accuracy
    assert float(accuracy[1]) >= 97
    assert "calls" not in out


def test_a_seed_gives_the_same_run(capsys: pytest.CaptureFixture[str]) -> None:
    found = []
    for seed in ("3", "3", "4"):
        assert main(["--epochs", "2", "--seed", seed, "--no-profile"]) == 0
        found.append(re.search(r"test accuracy .*", capsys.readouterr().out)[0])
    assert found[0] == found[1] != found[2]


def test_options_are_used(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--epochs", "1", "--batch", "500", "--lr", "0.01", "--threads", "1", "--no-profile"]
    assert main(["digits", *options]) == 0
    out = capsys.readouterr().out
    assert "batch 500" in out
    assert "1 epoch" in out
    assert "for 2 steps" in out


@pytest.mark.exhaustive
def test_calibrate_measures_what_is_built_in(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    measured, known = report["measured"], report["built_in"]
    threads = {"hand_over", "wake"}
    assert measured.keys() == known.keys() == {"ghz", "call", "loop", *threads, "bytes", "ops"}
    assert all(known[key] > 0 and 0 <= measured[key] < math.inf for key in threads)
    assert measured["bytes"].keys() == known["bytes"].keys() == {"L1", "L2", "L3", "memory"}
    assert measured["ops"].keys() == known["ops"].keys()
    for op, row in known["ops"].items():
        assert measured["ops"][op].keys() == row.keys()
        assert all(0 < cycles < math.inf for cycles in row.values()), op
        assert all(0 <= cycles < math.inf for cycles in measured["ops"][op].values()), op
    assert {"ADD", "DIV", "EXP", "POW", "GATHER"} <= known["ops"].keys()
    assert set(known["ops"]["EXP"]) == {"float32", "float64"}
    assert set(known["ops"]["ADD"]) == {"float32", "float64", "int32", "int64"}
    # An exponential is some twenty sums: no disturbance makes that one.
    assert measured["ops"]["EXP"]["float32"] > 3 * measured["ops"]["ADD"]["float32"] > 0
    assert 0.1 < measured["ghz"] < 10


def test_calibrate_prints_a_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibrate, "measure", calibrate.built_in)  # measuring takes half a minute
    assert main(["calibrate", "--target", "x86-64"]) == 0
    out = capsys.readouterr().out
    assert "vectors of 128 bits" in out
    assert re.search(r"clock, GHz +[\d.]+ +[\d.]+", out)
    assert re.search(r"byte in memory, cycles +[\d.]+ +[\d.]+", out)
    for op in ("ADD", "SQRT", "TANH", "GATHER"):
        assert re.search(rf"^{op} +[\d.]+ \([\d.]+\) +[\d.]+ \([\d.]+\)", out, re.MULTILINE)


def test_calibrate_refuses_code_that_cannot_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibrate, "machine", DeviceSpec.generic)
    assert main(["calibrate", "--target", "x86-64-v4"]) == 1
    error = capsys.readouterr().err
    assert "--target: this machine (x86-64) cannot run code for 'x86-64-v4'" in error
    assert "as it lacks sse3" in error
    assert error.endswith("set it to 'native', or to one of x86-64\n")


def test_calibrate_writes_the_object_format_of_the_machine(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    mac = replace(DeviceSpec.neon(8), triple="arm64-apple-darwin24", l2_bytes=16 << 20)
    measured: list[DeviceSpec] = []

    def measure(spec: DeviceSpec) -> dict[str, Any]:
        measured.append(spec)
        return calibrate.built_in(spec)

    monkeypatch.setattr(calibrate, "machine", lambda: mac)
    monkeypatch.setattr(calibrate, "measure", measure)
    for target in ("native", "armv8-a"):
        assert main(["calibrate", "--target", target]) == 0
    assert measured == [mac, mac]
    assert "vectors of 128 bits" in capsys.readouterr().out


def test_env(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env"]) == 0
    out = capsys.readouterr().out
    assert kernelrt.__version__ in out
    for label in ("Python", "NumPy", "LLVM", "CPU", "vectors", "threads", "object cache"):
        assert re.search(rf"^{label} +\S", out, re.MULTILINE), label


def test_env_names_the_target() -> None:
    name = runnable(machine())[0]
    for value, text in ((f" {name.upper()} ", rf"{name} \(KERNELRT_TARGET\)"), ("", "the CPU")):
        done = run("env", KERNELRT_TARGET=value)
        assert re.search(rf"^target +{text}$", done.stdout, re.MULTILINE), done.stdout


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, expected in (
        (["--help"], "digits"),
        (["digits", "--help"], "--epochs"),
        (["env", "--help"], "bug reports"),
        (["--version"], kernelrt.__version__),
    ):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 0
        assert expected in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["train"], "unknown command 'train'; expected digits, env, calibrate, view, export or "),
        (["--epochs", "0"], "--epochs: expected at least 1, not 0"),
        (["--epochs", "many"], "--epochs: expected an integer, not 'many'"),
        (["--lr", "-1"], "--lr: expected a positive number, not -1"),
        (["--lr", "nan"], "--lr: expected a positive number, not nan"),
        (["--batch"], "--batch: expected one argument"),
        (["--bogus"], "--bogus"),
        (["env", "--cnn"], "--cnn"),
    ],
)
def test_bad_options_exit_with_two_and_say_why(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert expected in capsys.readouterr().err


def test_no_output_is_no_error() -> None:
    closed = ["sh", "-c", 'exec "$@" >&-', "sh", *command("env")]
    done = subprocess.run(closed, stderr=subprocess.PIPE, env=environment(), timeout=300)
    assert (done.returncode, done.stderr) == (0, b"")


def test_docs_lists_pages_and_prints_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs"]) == 0
    listed = dict(line.split(None, 1) for line in capsys.readouterr().out.splitlines())
    assert listed["faq"] == "Questions and answers"
    assert "architecture/ir" in listed
    for name in ("threads", "threads.md", "docs/threads.md", "threads#signals"):
        assert main(["docs", name]) == 0
        assert capsys.readouterr().out.startswith("# Threads")
    assert main(["docs", "thread"]) == 1
    assert capsys.readouterr().err == (
        "kernelrt: there is no page 'thread'; similar names: threads\n"
    )


def test_pages_that_the_package_cites_exist() -> None:
    package = Path(kernelrt.__file__).parent
    files = [file for kind in ("*.py", "*.pyx", "*.pyi") for file in package.rglob(kind)]
    cited = {
        page
        for file in files
        for page in re.findall(r"\bdocs/([\w/]+)\.md", file.read_text(encoding="utf-8"))
    }
    assert "porting" in cited
    assert cited <= pages.names().keys()


def test_errors_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--batch", "5000"]) == 1
    captured = capsys.readouterr()
    assert captured.err == "kernelrt: --batch: expected at most 1437 images, not 5000\n"


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    process = subprocess.Popen(
        command("env"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert process.wait(PATIENCE) in (0, 1)
    assert errors == b""


@pytest.mark.cases(1 / 4)
def test_ctrl_c_ends_with_130() -> None:
    process = subprocess.Popen(
        command("--epochs", "1000000"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        preexec_fn=heed_ctrl_c,  # noqa: PLW1509
    )
    assert process.stdout is not None
    assert "training" in process.stdout.readline()
    time.sleep(1.5)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert errors == "\nkernelrt: interrupted\n"


@pytest.mark.cases(1 / 4)
def test_a_seed_and_a_thread_count_that_are_none_are_told() -> None:
    done = run("digits", "--seed", "-1")
    assert done.returncode == 2
    assert "argument --seed: expected at least 0, not -1" in done.stderr
    done = run("env", KERNELRT_THREADS="banana")
    assert done.returncode == 0
    assert "KERNELRT_THREADS: expected an integer of at least 1, not 'banana'" in done.stderr
    done = run("env", KERNELRT_THREADS="", OMP_NUM_THREADS="1,2")
    assert done.stderr == ""
    assert "(OMP_NUM_THREADS=1,2)" in done.stdout
    done = run("env", KERNELRT_THREADS="", OMP_NUM_THREADS="-1")
    assert "OMP_NUM_THREADS: expected an integer of at least 1, not '-1'" in done.stderr


SCRIPT = """
import sys
import kernelrt as krt

@krt.jit
def twice(x):
    return (x * 2).sum()

def main():
    twice(krt.ones(100))
    print("ran with", sys.argv[1:])

if __name__ == "__main__":
    main()
"""


def test_view_draws_the_plans_of_a_script(tmp_path: Path) -> None:
    script, target = tmp_path / "train.py", tmp_path / "page.html"
    script.write_text(SCRIPT)
    done = run("view", "-o", str(target), str(script), "--epochs", "3")
    assert done.returncode == 0, done.stderr
    assert "ran with ['--epochs', '3']" in done.stdout
    assert f"{target}: 1 plan of {script}" in done.stdout
    assert '<h1 id="plan">twice</h1>' in target.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("more", "printed"),
    [
        ("os.chdir('folder')", "1 plan"),
        ("if not os.fork(): sys.exit()\nos.wait()", "1 plan"),
        ("if os.fork(): os.wait()", "1 plan"),
        ("if not os.fork(): raise ValueError\nos.wait()", "1 plan"),
        ("sys.path.clear(); sys.argv.clear()", "1 plan"),
        ("sys.stdout = sys.stderr = None", "1 plan"),
        ("sys.stdout.close(); sys.stderr.close()", ""),
        ("sys.stdout.detach()", ""),
        ("twice.plans[0].release(); twice(krt.ones(5))", "1 plan"),
        ("import pickle; pickle.loads(pickle.dumps(main))", "1 plan"),
    ],
)
def test_a_script_may_do_anything_before_the_page_is_drawn(
    more: str, printed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "train.py").write_text(f"import os\n{SCRIPT}\n{more}\n")
    monkeypatch.chdir(tmp_path)
    done = run("view", "-o", "page.html", "train.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("KB") == printed.count("1 plan")
    assert printed in done.stdout
    assert (tmp_path / "page.html").exists()
    assert not any((tmp_path / "folder").iterdir())


def test_a_script_may_draw_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script, outer = tmp_path / "train.py", []
    script.write_text(SCRIPT)
    monkeypatch.setattr(JitFunction, "made", outer)
    before = [sys.argv, sys.path, sys.modules["__main__"], sys.stdout]
    assert main(["view", "-o", str(tmp_path / "page.html"), str(script)]) == 0
    assert JitFunction.made is outer
    now = [sys.argv, sys.path, sys.modules["__main__"], sys.stdout]
    assert all(a is b for a, b in zip(before, now, strict=True))


@pytest.mark.parametrize(
    ("text", "code", "expected"),
    [
        ("x = 1", 1, "the script called no jitted function"),
        (f"{SCRIPT}\ntwice.plans[0].release()", 1, "all plans of twice were released"),
        ("def f(:", 1, "SyntaxError"),
        ("raise ValueError('mine')", 1, "ValueError: mine"),
        ("raise SystemExit(7)", 7, ""),
        (None, 1, "No such file"),
    ],
)
def test_view_tells_why_there_is_no_page(
    text: str | None, code: int, expected: str, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    if text is not None:
        script.write_text(text)
    done = run("view", "-o", str(tmp_path / "page.html"), str(script))
    assert done.returncode == code
    assert expected in done.stderr
    assert not (tmp_path / "page.html").exists()


def test_a_missing_folder_is_named_before_the_script_runs(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("print('ran')")
    done = run("view", "-o", str(tmp_path / "missing" / "page.html"), str(script))
    assert done.returncode == 1
    assert "missing' does not exist; create it first" in done.stderr
    assert done.stdout == ""
