"""Saved models: the time to open one and compute, and the size of what a program ships.

``python -m bench.report ship`` compares the times with onnxruntime's. ``python -m bench.ship``
prints sizes and times: of the file, of the C core as a library, of a C program, of a process that
trains, and of the linker.
"""

from __future__ import annotations

import ctypes
import functools
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.cases import OURS, Case, Side
from bench.networks import CONTROL
from bench.peers import kernelrt_side, onnx_side
from kernelrt.cli.export import CORE, sources

if TYPE_CHECKING:
    from bench.cases import Call

ROOT = Path(__file__).parents[1]
_FOLDER = tempfile.TemporaryDirectory(prefix="kernelrt-ship-")

_PROGRAM = """
#include "model_host.h"
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    krt_model *model;
    krt_message why;
    int64_t start = krt_clock_ns();
    if (argc < 2 || krt_model_open(argv[1], NULL, &model, &why))
        return puts(why.text);
    int64_t opened = krt_clock_ns();
    krt_model_run(model, 0, &why);
    int64_t first = krt_clock_ns();
    size_t op;
    int preparation;
    krt_plan *plan = krt_model_plan(model, krt_model_function_plan(model, 0, &preparation));
    double call = 1e9, bare = 1e9;
    for (int round = 0; round < 300; ++round) {
        int64_t a = krt_clock_ns();
        for (int i = 0; i < 200; ++i)
            krt_model_run(model, 0, &why);
        int64_t b = krt_clock_ns();
        for (int i = 0; i < 200; ++i)
            krt_plan_execute(plan, &op);
        int64_t c = krt_clock_ns();
        call = (b - a) / 200.0 < call ? (b - a) / 200.0 : call;
        bare = (c - b) / 200.0 < bare ? (c - b) / 200.0 : bare;
    }
    char line[256];
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status))
        if (!strncmp(line, "RssAnon:", 8))
            printf("%s", line + 8);
    printf("%.1f %.1f %.1f %.1f\\n", (opened - start) / 1e3, (first - opened) / 1e3, call,
           call - bare);
    return 0;
}
"""


@functools.cache
def model_file() -> Path:
    """Write the control network to a model file, once."""
    import kernelrt as krt

    path = Path(_FOLDER.name, "control.krt")
    x, _ = CONTROL.example()
    krt.save(path, predict=(krt.jit(kernelrt_side.model_of(CONTROL)), x))
    return path


@functools.cache
def onnx_file() -> Path:
    """Write the control network to an ONNX file, once."""
    path = Path(_FOLDER.name, "control.onnx")
    path.write_bytes(onnx_side.content(CONTROL))
    return path


@functools.cache
def library() -> Path:
    """Compile the C core as a library, once, and strip it."""
    path = Path(_FOLDER.name, "libkernelrt.so")
    _cc("-Os", "-shared", "-fPIC", "-fvisibility=hidden", "-fno-asynchronous-unwind-tables", "-s",
        "-Wl,-z,noseparate-code", *_sources(), "-o", str(path))  # fmt: skip
    return path


def _sources() -> list[str]:
    return [str(sources() / f"{name}.c") for name in CORE]


def _cc(*options: str) -> None:
    command = [os.environ.get("CC", "cc"), "-std=c11", "-pthread", f"-I{sources()}", *options]
    subprocess.run(command, check=True)  # noqa: S603 - our own sources


def _opened_in_c() -> Call:
    """Build a call that opens the file, computes and closes it, in C."""
    core = ctypes.CDLL(str(library()))
    path, x = str(model_file()).encode(), CONTROL.example()[0]
    model, why = ctypes.c_void_p(), ctypes.create_string_buffer(512)
    out = np.empty((CONTROL.batch, CONTROL.sizes[-1]), np.float32)
    port = (ctypes.c_int64 * 64)()  # a krt_port: the address of the data follows the shape
    data_at = 2 + 32

    def call() -> object:
        if core.krt_model_open(path, None, ctypes.byref(model), why):
            raise RuntimeError(why.value.decode())
        core.krt_model_input(model, 0, 0, port)
        ctypes.memmove(port[data_at], x.ctypes.data, x.nbytes)
        core.krt_model_run(model, 0, why)
        core.krt_model_output(model, 0, 0, port)
        ctypes.memmove(out.ctypes.data, port[data_at], out.nbytes)
        core.krt_model_close(model)
        return out

    call()
    return call


def _opened() -> Call:
    import kernelrt as krt

    path, (x, _) = model_file(), CONTROL.example()

    def call() -> object:
        return krt.load(path)(x).numpy()

    call()
    return call


def _opened_by_onnxruntime() -> Call:
    path, (x, _) = str(onnx_file()), CONTROL.example()

    def call() -> object:
        return onnx_side.session(path).run(None, {"x": x})[0]

    call()
    return call


def _called() -> Call:
    import kernelrt as krt

    predict, (x, _) = krt.load(model_file()).predict, CONTROL.example()

    def call() -> object:
        return predict(x).numpy()

    call()
    return call


def _fresh(code: str) -> Call:
    """Build a call that runs a script in a new process."""
    command = [sys.executable, "-c", code]

    def call() -> object:
        return float(subprocess.run(command, check=True, capture_output=True).stdout)  # noqa: S603

    call()
    return call


def _script(imports: str, result: str) -> str:
    sizes = (CONTROL.batch, CONTROL.sizes[0])
    return f"""
import numpy as np
{imports}
x = np.ones({sizes}, np.float32)
print(({result}).sum())
"""


def _started() -> Call:
    return _fresh(_script("import kernelrt", f"kernelrt.load({str(model_file())!r})(x).numpy()"))


def _started_by_onnxruntime() -> Call:
    session = f"onnxruntime.InferenceSession({str(onnx_file())!r})"
    return _fresh(_script("import onnxruntime", f"{session}.run(None, dict(x=x))[0]"))


def cases() -> tuple[Case, ...]:
    """Return the cases: to open and compute in Python and C, to call, to start a process."""
    name = "MLP 8-64-64-4"
    needs = ("onnxruntime", "onnx")
    opened = Side("onnxruntime", _opened_by_onnxruntime, needs=needs)
    return (
        Case("ship-open", f"{name}: open a file, first result", (Side(OURS, _opened), opened)),
        Case("ship-open-c", f"{name}: open a file, first result, in C",
             (Side(OURS, _opened_in_c), opened)),
        Case("ship-call", f"{name}: a call of the opened model",
             (Side(OURS, _called),
              Side("onnxruntime", functools.partial(onnx_side.inference, CONTROL), needs=needs))),
        Case("ship-start", f"{name}: a process that opens a file and computes",
             (Side(OURS, _started), Side("onnxruntime", _started_by_onnxruntime, needs=needs)),
             tolerance=1e-4),
    )  # fmt: skip


def main() -> None:
    """Print sizes and the times of a C program."""
    program, source = Path(_FOLDER.name, "program"), Path(_FOLDER.name, "program.c")
    source.write_text(_PROGRAM, encoding="ascii")
    _cc("-O2", str(source), *_sources(), "-o", str(program))
    runs = [
        subprocess.run(  # noqa: S603 - the program above
            [str(program), str(model_file())], check=True, capture_output=True, text=True
        ).stdout.split()
        for _ in range(9)
    ]
    memory = runs[0][0]
    opened, first, call, over = (min(float(run[k]) for run in runs) for k in range(2, 6))
    own, llvms = _linking_us()
    rows: list[tuple[str, Any]] = [
        ("bytes of the file", model_file().stat().st_size),
        ("bytes of its weights", sum(w.nbytes + b.nbytes for w, b in CONTROL.weights())),
        ("bytes of the C core as a library", library().stat().st_size),
        ("kB of memory of a C program", memory),
        ("us to open in C", opened), ("us to the first result", first),
        ("ns of a call in C", call), ("of these beyond the kernels", over),
        ("ms to start a training script", round(_training_start() * 1e3, 1)),
        ("ms to open and compute in a new process, after imports", _fresh_ms(
            "import kernelrt, kernelrt.jit.loading",
            f"kernelrt.load({str(model_file())!r})(x).numpy()")),
        ("onnxruntime's", _fresh_ms(
            "import onnxruntime",
            f"onnxruntime.InferenceSession({str(onnx_file())!r}).run(None, dict(x=x))")),
        ("us to link a kernel", own), ("LLVM's linker", llvms),
        ("MB of a process that trains with kernels of the cache", _training_mb()),
        ("the same with LLVM loaded", _training_mb("import llvmlite.binding")),
    ]  # fmt: skip
    print("| what | |\n|---|---|")
    print("\n".join(f"| {what} | {value} |" for what, value in rows))


def _fresh_ms(imports: str, work: str) -> float:
    """Return the least milliseconds that `work` takes in new processes, after `imports`."""
    sizes = (CONTROL.batch, CONTROL.sizes[0])
    code = f"""
import time
import numpy as np
{imports}
x = np.ones({sizes}, np.float32)
start = time.perf_counter()
{work}
print(time.perf_counter() - start)
"""
    command = [sys.executable, "-c", code]
    runs = (subprocess.run(command, check=True, capture_output=True).stdout for _ in range(9))  # noqa: S603
    return round(min(map(float, runs)) * 1e3, 2)


def _linking_us() -> tuple[float, float]:
    """Return the least microseconds that a kernel takes in kernelrt's linker, and in LLVM's."""
    from kernelrt.backend.cpu import LLVMCompiler, LLVMLoader
    from kernelrt.device.spec import host

    source = (
        "define void @NAME(ptr %bufs, ptr %vals) {{\n  %to = load ptr, ptr %bufs\n"
        "  store <4 x float> splat (float {0}.5), ptr %to\n  ret void\n}}"
    )
    compiler = LLVMCompiler(host())
    loader, names = LLVMLoader(compiler), [f"kernel{i}" for i in range(100)]
    objects = compiler.compile_sources(
        (name, source.format(i).replace("NAME", name)) for i, name in enumerate(names)
    )
    times: dict[Any, float] = {}
    for name, data in zip(names, objects, strict=True):
        for link in (loader._link_here, loader._link):  # noqa: SLF001 - both sides of load()
            start = time.perf_counter()
            link([name], [data])
            taken = time.perf_counter() - start
            times[link] = min(times.get(link, taken), taken)
    own, llvms = (round(least * 1e6, 1) for least in times.values())
    return own, llvms


def _training_mb(also: str = "") -> float:
    """Return the memory of a process after some steps of training, the second time it runs."""
    code = f"""
import numpy as np, kernelrt as krt
from kernelrt import nn
{also}
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
optimizer = nn.optim.Adam(model.parameters(), lr=1e-3)
@krt.jit
def step(x, y):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss
for _ in range(3):
    step(np.ones((32, 64), np.float32), np.zeros(32, np.int64)).item()
[line] = [line for line in open("/proc/self/status") if line.startswith("VmRSS")]
print(line.split()[1])
"""
    environment = {**os.environ, "KERNELRT_CACHE": "1", "KERNELRT_CACHE_DIR": _FOLDER.name}
    command = [sys.executable, "-c", code]
    runs = [
        subprocess.run(command, check=True, capture_output=True, env=environment).stdout  # noqa: S603
        for _ in range(2)
    ]
    return round(float(runs[-1]) / 1024, 1)


def _training_start() -> float:
    """Return the seconds from the import of kernelrt to the first loss of a saved Adam step."""
    import kernelrt as krt
    from kernelrt import nn

    model = kernelrt_side.model_of(CONTROL)
    optimizer = nn.optim.Adam(nn.parameters(model), lr=1e-3)

    @krt.jit
    def step(x: krt.Tensor, y: krt.Tensor) -> krt.Tensor:
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    path = Path(_FOLDER.name, "step.krt")
    krt.save(path, step=(step, *CONTROL.example()))
    code = f"""
import time, numpy as np, kernelrt as krt
start = time.perf_counter()
x, y = np.ones((1, 8), np.float32), np.ones((1, 4), np.float32)
krt.load({str(path)!r}).step(x, y).item()
print(time.perf_counter() - start)
"""
    command = [sys.executable, "-c", code]
    return min(
        float(subprocess.run(command, check=True, capture_output=True).stdout)  # noqa: S603
        for _ in range(9)
    )


if __name__ == "__main__":
    main()
