"""C programs run model files with the bits of Python, clean under sanitizers."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.saved_programs import CALL_ROUTINES, PROGRAMS, normal
from support.skip_list import lack, require_sanitizers

import kernelrt as krt
from kernelrt import nn
from kernelrt.cli import export, main
from kernelrt.jit.signature import flatten
from kernelrt.native.routines import BY_NAME

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.once import Once
    from support.saved_programs import Program

HERE = Path(__file__).parents[1] / "support"
CC = os.environ.get("CC", "cc")
WARNINGS = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-pthread")
#: Flags for the core. Routines are compiled once, as setup.py does.
FLAGS = {"plain": ("-O1",), "sanitized": ("-O1", "-g", "-fsanitize=address,undefined")}


def calls_routines(file: Path) -> bool:
    """Return whether a model file calls routines of the core."""
    content = file.read_bytes()
    return any(f"{name}\0".encode() in content for name in BY_NAME)


@pytest.fixture
def runner(once: Once) -> Callable[..., Path]:
    """Return the function that compiles a program of tests/support once with some flags."""
    csrc = export.sources()

    def objects(label: str, names: tuple[str, ...], flags: tuple[str, ...]) -> list[Path]:
        def compiled(folder: Path) -> None:
            files = [csrc / f"{name}.c" for name in names]
            command = [CC, *WARNINGS, *flags, f"-I{csrc}", "-c", *files]
            subprocess.run(command, cwd=folder, check=True)

        return [*once(f"model-{label}", compiled).glob("*.o")]

    def made(kind: str, program: str = "model_runner", file: Path | None = None) -> Path:
        calls = file is not None and calls_routines(file)
        require_sanitizers(CC, FLAGS[kind])

        def compiled(folder: Path) -> None:
            files = [HERE / f"{program}.c", *objects(f"core-{kind}", export.CORE, FLAGS[kind])]
            if calls:
                files += objects("routines", export.ROUTINES, export.FLAGS)
            options = [*FLAGS[kind], *["-DWITH_ROUTINES"] * calls, f"-I{csrc}"]
            command = [CC, *WARNINGS, *options, *files, "-lm", "-o", folder / "program"]
            subprocess.run(command, check=True)

        return once(f"{program}-{kind}{'-routines' * calls}", compiled) / "program"

    return made


def run(
    runner: Path, file: Path, leaves: list[Any], *sizes: str, runs: int = 3, threads: int = 1
) -> subprocess.CompletedProcess[bytes]:
    given = b"".join(
        np.asarray(leaf).tobytes() for leaf in leaves if isinstance(leaf, float | np.ndarray)
    )
    command = [str(runner), str(file), str(runs), str(threads), *sizes]
    return subprocess.run(command, input=given, capture_output=True, check=False)


def bytes_of(value: object) -> bytes:
    _, leaves = flatten(value, "result")
    return b"".join(
        (t.view(krt.uint16) if t.dtype is krt.bfloat16 else t).numpy().tobytes()
        for _, t in leaves if isinstance(t, krt.Tensor)
    )  # fmt: skip


@pytest.mark.cases(4)
@pytest.mark.parametrize("kind", FLAGS)
@pytest.mark.parametrize(
    "make", [make for make in PROGRAMS if make not in CALL_ROUTINES], ids=lambda make: make.__name__
)
def test_outputs_have_the_same_bits(
    make: Callable[[], Program], kind: str, runner: Callable[..., Path], tmp_path: Path
) -> None:
    compare_outputs(make, kind, runner, tmp_path / "f.krt")


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", FLAGS)
@pytest.mark.parametrize("make", CALL_ROUTINES, ids=lambda make: make.__name__)
def test_outputs_of_routines_have_the_same_bits(
    make: Callable[[], Program], kind: str, runner: Callable[..., Path], tmp_path: Path
) -> None:
    """Not a part of each run: the routines take half a minute to compile."""
    compare_outputs(make, kind, runner, tmp_path / "f.krt")
    assert calls_routines(tmp_path / "f.krt")


def compare_outputs(
    make: Callable[[], Program], kind: str, runner: Callable[..., Path], file: Path
) -> None:
    krt.manual_seed(0)
    program = make()
    program.function.save(file, *program.args, **program.kwargs)
    _, leaves = flatten((*program.args, *program.kwargs.values()), "x")
    values = program.function.plan(*program.args, **program.kwargs).values
    sizes = [f"{name}={value}" for name, value in values.items()]
    made = runner(kind, file=file)
    found = run(made, file, [leaf for _, leaf in leaves], *sizes)
    assert found.returncode == 0, found.stderr.decode()
    calls = [program.function(*program.args, **program.kwargs) for _ in range(3)]
    assert found.stdout == b"".join(map(bytes_of, calls))
    # The saved state goes on in Python.
    [later] = krt.load(f"{file}.later").functions.values()
    expected = program.function(*program.args, **program.kwargs)
    assert bytes_of(later(*program.args, **program.kwargs)) == bytes_of(expected)


@pytest.mark.parametrize("routines", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
def test_two_threads_give_the_same_bits(
    routines: bool, runner: Callable[..., Path], tmp_path: Path
) -> None:
    w = krt.tensor(normal(256, 256))
    function = krt.jit(lambda x: ((x @ w).relu(), x.cumsum(1) if routines else x.sum(1)))
    function.save(tmp_path / "f.krt", normal(256, 256))
    file = tmp_path / "f.krt"
    found = run(runner("plain", file=file), file, [normal(256, 256)], runs=20, threads=2)
    assert found.stdout == 20 * bytes_of(function(normal(256, 256)))


def test_sizes_and_errors(runner: Callable[..., Path], tmp_path: Path) -> None:
    table = krt.tensor(normal(10, 3))
    function = krt.jit(lambda i: table[i], dynamic={"i": {0: krt.Variable("n", 1, 8)}})
    file = tmp_path / "f.krt"
    function.save(file, np.arange(3))
    for n in (1, 5, 8):
        found = run(runner("plain"), file, [np.arange(n)], f"n={n}")
        assert found.stdout == 3 * bytes_of(function(np.arange(n)))
    for sizes, given, message in (
        ("n=9", np.arange(9), "n: 9 lies outside its bounds 1 to 8"),
        ("m=2", np.arange(3), "has no size m"),
        ("n=2", np.array([3, 10]), "index 10 is out of range for an axis of size 10"),
        ("n=2", np.array([3, -11]), "index -11 is out of range for an axis of size 10"),
    ):
        wrong = run(runner("plain"), file, [given], sizes)
        assert wrong.returncode == 3
        assert message in wrong.stderr.decode()


@pytest.mark.cases(3)
@pytest.mark.parametrize("seed", range(10))
def test_damaged_files_are_refused_or_harmless(
    seed: int, runner: Callable[..., Path], tmp_path: Path
) -> None:
    """Under sanitizers, 2,000 files a case; half of them have checksums that fit."""
    net = nn.Linear(3, 4)
    total = krt.zeros(4)

    def run(x: krt.Tensor, i: krt.Tensor) -> Any:
        sums, _ = krt.scan(lambda c, v: (c + v, c.sum()), total, net(x))
        total.assign(sums)
        return x.softmax(0)[i], krt.cond(sums[0] > 0, lambda: sums, lambda: -sums)

    function = krt.jit(run, dynamic={"x": {0: krt.Variable("n", 2, 9)}}, freeze=True)
    function.save(tmp_path / "f.krt", normal(3, 3), np.arange(2))
    command = [str(runner("sanitized", "model_fuzz")), str(tmp_path / "f.krt"), "2000", str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout) > 50


def test_odd_names_are_names_of_c(tmp_path: Path) -> None:
    """Names of C, its headers and the core get a suffix. Two sizes are valid only together."""
    n, m = (krt.Variable(name, 1, 9) for name in ("memcpy", "krt_port"))

    def run(NULL: Any, double: Any, x: Any) -> Any:  # noqa: N803
        return {"*/ int": NULL.sum(0), "/*": double * x}

    function = krt.jit(run, dynamic={"NULL": {0: n}, "double": {0: m}})
    names = {"for": (function, normal(3, 2), normal(4, 2), 2.0)}
    for file in ("string", "krt_model", "1 odd"):
        krt.save(tmp_path / f"{file}.krt", **names)
        folder = tmp_path / f"out {file}"
        assert main(["export", str(tmp_path / f"{file}.krt"), "--c", str(folder)]) == 0
        files = [*folder.glob("*.c"), *folder.glob("kernelrt/*.c"), *folder.glob("example/*.c")]
        command = [CC, *WARNINGS, "-O0", "-std=gnu11", f"-I{folder}", *files, "-lm"]
        subprocess.run([*command, "-o", tmp_path / "run"], check=True)
        subprocess.run([str(tmp_path / "run")], check=True, capture_output=True)


def test_state_that_changed_is_prepared_anew(
    runner: Callable[..., Path], tmp_path: Path
) -> None:
    """Panels of frozen weights, after training and two files."""
    net = nn.Linear(16, 16)
    optimizer = nn.optim.SGD(net.parameters(), lr=1.0)

    @krt.jit
    def step(x: krt.Tensor) -> krt.Tensor:
        optimizer.zero_grad()
        loss = (net(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    predict = krt.jit(net, freeze=True)
    x = normal(8, 16)
    krt.save(tmp_path / "a.krt", predict=(predict, x), step=(step, x))
    model = krt.load(tmp_path / "a.krt")
    for _ in range(5):
        model.step(x)
        step(x)
    model.save(tmp_path / "b.krt")
    found = run(runner("plain"), tmp_path / "b.krt", [x], runs=1)
    assert found.stdout == bytes_of(predict(x))


@pytest.mark.exhaustive
def test_exported_sources_with_routines(tmp_path: Path) -> None:
    function = krt.jit(lambda x: (x.sort(0)[0], krt.linalg.eigh(x)[1], x.cumsum(1)))
    function.save(tmp_path / "net.krt", normal(5, 5))
    folder = tmp_path / "out"
    assert main(["export", str(tmp_path / "net.krt"), "--c", str(folder)]) == 0
    files = [*folder.glob("*.c"), *folder.glob("kernelrt/*.c"), *folder.glob("example/*.c")]
    command = [CC, *WARNINGS, *export.FLAGS, f"-I{folder}", *files, "-lm", "-o", tmp_path / "run"]
    subprocess.run(command, check=True)
    done = subprocess.run([str(tmp_path / "run")], check=True, capture_output=True, text=True)
    assert done.stdout.count("100 bytes") == 3


@pytest.mark.cases(1)
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_exported_sources_build_and_run(compiler: str, tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        compiler = CC
    dynamic = {"x": {0: krt.Variable("int", 1, 9)}}
    scaled = krt.jit(lambda x, by: (x * by).relu(), dynamic=dynamic)
    total = krt.zeros(3)
    add = krt.jit(lambda x: total.assign(total + x.sum(0)))
    file, folder = tmp_path / "my-net.krt", tmp_path / "out"
    krt.save(file, **{"scaled": (scaled, normal(4, 3), 2.0), "add 1": (add, normal(4, 3))})
    assert main(["export", str(file), "--c", str(folder)]) == 0
    assert (folder / "example" / "main.c").exists()
    (folder / "main.c").write_text(
        """
        #include "my_net.h"
        #include <stdio.h>
        int main(void)
        {
            krt_message why;
            krt_model *model;
            float x[12], y[12], sum[3];
            const double factor = 3;
            if (my_net_open(&model, &why) || fread(x, 4, 12, stdin) != 12)
                return 2;
            if (my_net_scaled(model, 4, x, &factor, y, &why)
                || my_net_add_1(model, x, NULL, &why) || my_net_add_1(model, x, sum, &why))
                return puts(why.text);
            fwrite(y, 4, 12, stdout);
            fwrite(sum, 4, 3, stdout);
            krt_model_close(model);
            return 0;
        }
        """
    )
    files = [*folder.glob("*.c"), *folder.glob("kernelrt/*.c")]
    target = folder / "run"
    command = [compiler, *WARNINGS, *export.FLAGS, f"-I{folder}", *files, "-lm", "-o", target]
    subprocess.run(command, check=True)
    done = subprocess.run(
        [str(target)], input=normal(4, 3).tobytes(), capture_output=True, check=False
    )
    assert done.returncode == 0, done.stdout
    add(normal(4, 3))
    assert done.stdout == bytes_of((scaled(normal(4, 3), 3.0), add(normal(4, 3))))


def test_a_cpp_program_uses_the_headers(tmp_path: Path) -> None:
    compiler = os.environ.get("CXX", "c++")
    if shutil.which(compiler) is None:
        lack("a C++ compiler")
    file, folder = tmp_path / "net.krt", tmp_path / "out"
    w = krt.full((4,), 2.0)
    krt.save(file, double=(krt.jit(lambda x: x * w), normal(4)))
    assert main(["export", str(file), "--c", str(folder)]) == 0
    (folder / "main.cpp").write_text(
        """
        #include "net.h"
        #include <cstdio>
        int main()
        {
            krt_message why;
            krt_model *model = nullptr;
            float x[4], y[4];
            if (net_open(&model, &why) || std::fread(x, 4, 4, stdin) != 4
                || net_double(model, x, y, &why))
                return std::puts(why.text);
            if (krt_model_find(model, "double") || krt_model_find_input(model, 0, "x")
                || krt_model_find_output(model, 0, "result") || krt_model_find_state(model, "w")
                || krt_model_find_input(model, 0, "y") != -1
                || krt_model_find_output(model, -1, "result") != -1
                || krt_model_find_state(model, "x") != -1 || krt_model_find(model, "x") != -1)
                return 2;
            std::fwrite(y, 4, 4, stdout);
            krt_model_close(model);
        }
        """
    )
    files = [folder / "net.c", *folder.glob("kernelrt/*.c")]
    subprocess.run([CC, *WARNINGS, "-O1", f"-I{folder}", "-c", *files], cwd=tmp_path, check=True)
    options = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-pthread", f"-I{folder}"]
    objects = tmp_path.glob("*.o")
    target = tmp_path / "run"
    command = [compiler, *options, folder / "main.cpp", *objects, "-lm", "-o", target]
    subprocess.run(command, check=True)
    done = subprocess.run(
        [str(target)], input=normal(4).tobytes(), capture_output=True, check=False
    )
    assert done.stdout == (normal(4) * 2).tobytes()


def test_bad_input_of_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.krt").write_bytes(b"PK" + bytes(100))
    assert main(["export", str(tmp_path / "m.krt"), "--c", str(tmp_path / "out")]) == 1
    assert "this is no model file" in capsys.readouterr().err
    assert main(["export", str(tmp_path / "none.krt"), "--c", str(tmp_path / "out")]) == 1
    assert "there is no file" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
