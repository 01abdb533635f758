"""Loops in plans: cost of an iteration, recurrent layers over many steps, and single steps.

``python -m bench.loops`` prints the cost of an iteration with one small kernel. It also prints
compile times with an empty cache: of an LSTM's training step over 128 and over 1,024 steps, and of
a Python loop over 256 and over 1,024 rows. ``python -m bench.report loops`` compares kernelrt with
other libraries.
"""

from __future__ import annotations

import functools
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.cases import OURS, Case, Side

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from bench.cases import Call

BATCH, INPUTS, HIDDEN = 16, 32, 64
RATE = 1e-3
#: Lengths whose compile times are compared: of a recurrent layer, and of a Python loop.
LENGTHS, ROWS = (128, 1024), (256, 1024)


def _random(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


# ---- one small kernel per iteration


def small(turns: int) -> Call:
    """Build a loop over one small kernel."""
    import kernelrt as krt

    run = krt.jit(lambda c, x: krt.scan(lambda c, x: (c * 0.5 + x, None), c, x)[0])
    c, x = krt.zeros(4), krt.tensor(_random(turns, 4))
    return lambda: run(c, x)


def small_jax(turns: int) -> Call:
    """Build the same loop in JAX."""
    import jax
    import jax.numpy as jnp

    def run(c: Any, x: Any) -> Any:
        return jax.lax.scan(lambda c, x: (c * 0.5 + x, None), c, x)[0]

    compiled = jax.jit(run)
    c, x = jnp.zeros(4), jnp.asarray(_random(turns, 4))
    return lambda: compiled(c, x).block_until_ready()


# ---- training steps of an LSTM


def lstm(steps: int) -> Call:
    """Build a training step: forward, backward and Adam."""
    import kernelrt as krt
    from kernelrt import nn

    krt.manual_seed(0)
    model = nn.LSTM(INPUTS, HIDDEN)
    optimizer = nn.optim.Adam(model.parameters(), lr=RATE)

    @krt.jit
    def step(x: krt.Tensor) -> krt.Tensor:
        optimizer.zero_grad()
        out, _ = model(x)
        loss: krt.Tensor = (out * out).mean()
        loss.backward()
        optimizer.step()
        return loss

    x = krt.tensor(_random(steps, BATCH, INPUTS))
    return lambda: step(x)


def lstm_torch(steps: int) -> Call:
    """Build the same step in PyTorch, with its own LSTM."""
    import torch

    torch.manual_seed(0)
    model = torch.nn.LSTM(INPUTS, HIDDEN)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE, fused=True)
    x = torch.tensor(_random(steps, BATCH, INPUTS))

    def step() -> object:
        optimizer.zero_grad()
        out, _ = model(x)
        loss = (out * out).mean()
        loss.backward()
        optimizer.step()
        return loss

    return step


def lstm_jax(steps: int) -> Call:
    """Build the same step in JAX, with scan."""
    import jax
    import jax.numpy as jnp

    keys = np.random.default_rng(0)
    bound = HIDDEN**-0.5
    shapes = ((INPUTS, 4 * HIDDEN), (HIDDEN, 4 * HIDDEN), (4 * HIDDEN,))
    weights = [jnp.asarray(keys.uniform(-bound, bound, s).astype(np.float32)) for s in shapes]
    x = jnp.asarray(_random(steps, BATCH, INPUTS))

    def loss(weights: list[Any], x: Any) -> Any:
        w, u, b = weights

        def turn(carry: tuple[Any, Any], gates: Any) -> tuple[tuple[Any, Any], Any]:
            h, c = carry
            i, f, g, o = jnp.split(gates + h @ u, 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zero = jnp.zeros((BATCH, HIDDEN))
        out = jax.lax.scan(turn, (zero, zero), x @ w + b)[1]
        return (out * out).mean()

    @jax.jit
    def step(weights: list[Any], m: list[Any], v: list[Any], n: Any, x: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(weights, x)
        n = n + 1
        m = [0.9 * a + 0.1 * g for a, g in zip(m, grads, strict=True)]
        v = [0.999 * a + 0.001 * g * g for a, g in zip(v, grads, strict=True)]
        new = [
            p - RATE * (a / (1 - 0.9**n)) / (jnp.sqrt(s / (1 - 0.999**n)) + 1e-8)
            for p, a, s in zip(weights, m, v, strict=True)
        ]
        return new, m, v, n, value

    zeros = [jnp.zeros_like(p) for p in weights]
    state = [weights, zeros, zeros, jnp.zeros(())]

    def call() -> object:
        state[0], state[1], state[2], state[3], value = step(*state, x)
        return value.block_until_ready()

    return call


# ---- a Python loop over rows


def advantages(steps: int) -> Call:
    """Build the generalized advantages of an episode: each step reads rows and assigns one."""
    import kernelrt as krt

    @krt.jit
    def run(rewards: krt.Tensor, values: krt.Tensor) -> krt.Tensor:
        out, last = krt.zeros_like(rewards), krt.zeros(rewards.shape[1])
        for t in reversed(range(steps - 1)):
            delta = rewards[t] + 0.99 * values[t + 1] - values[t]
            out[t] = last = delta + 0.9 * last
        return out

    rewards, values = krt.tensor(_random(steps, 8)), krt.tensor(_random(steps, 8))
    return lambda: run(rewards, values)


# ---- one step of a stream


def stream() -> Call:
    """Build one step of a GRU at batch 1, from a NumPy array to one. The state stays in the plan.

    The weights are constants, as in ONNX Runtime's model.
    """
    import kernelrt as krt
    from kernelrt import nn

    model = nn.GRU(INPUTS, HIDDEN)
    state = krt.zeros(1, 1, HIDDEN)

    def stepped(x: krt.Tensor) -> krt.Tensor:
        with krt.no_grad():
            out, new = model(x, state)
            state.assign(new)
        return out

    step = krt.jit(stepped, freeze=True)
    x = _random(1, 1, INPUTS)
    return lambda: step(x).numpy()


def stream_torch() -> Call:
    """Build the same step in PyTorch."""
    import torch

    model = torch.nn.GRU(INPUTS, HIDDEN).eval()
    state = [torch.zeros(1, 1, HIDDEN)]
    x = _random(1, 1, INPUTS)

    def step() -> object:
        with torch.inference_mode():
            out, state[0] = model(torch.from_numpy(x), state[0])
            return out.numpy()

    return step


def stream_onnx() -> Call:
    """Build the same step in ONNX Runtime."""
    import onnxruntime
    from onnx import TensorProto, helper

    value = functools.partial(helper.make_tensor_value_info, elem_type=TensorProto.FLOAT)
    weights = {
        "w": _random(1, 3 * HIDDEN, INPUTS), "r": _random(1, 3 * HIDDEN, HIDDEN),
        "b": _random(1, 6 * HIDDEN),
    }  # fmt: skip
    graph = helper.make_graph(
        [helper.make_node("GRU", ["x", "w", "r", "b", "", "h"], ["y", "new"],
                          hidden_size=HIDDEN, linear_before_reset=1)],
        "gru",
        [value("x", shape=[1, 1, INPUTS]), value("h", shape=[1, 1, HIDDEN])],
        [value("y", shape=[1, 1, 1, HIDDEN]), value("new", shape=[1, 1, HIDDEN])],
        [helper.make_tensor(k, TensorProto.FLOAT, a.shape, a.ravel()) for k, a in weights.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    x, state = _random(1, 1, INPUTS), [np.zeros((1, 1, HIDDEN), np.float32)]

    def step() -> object:
        y, state[0] = session.run(None, {"x": x, "h": state[0]})
        return y

    return step


def _sides(builds: dict[str, tuple[Callable[..., Call], tuple[str, ...]]], *args: int) -> Any:
    return tuple(
        Side(name, functools.partial(build, *args), needs=needs)
        for name, (build, needs) in builds.items()
    )


def cases() -> tuple[Case, ...]:
    """Return the cases to compare."""
    of_lstm = {
        OURS: (lstm, ()), "torch": (lstm_torch, ("torch",)), "jax.jit": (lstm_jax, ("jax",)),
    }  # fmt: skip
    return (
        Case(
            "scan", "scan of 1000 turns, one small kernel",
            _sides({OURS: (small, ()), "jax.jit": (small_jax, ("jax",))}, 1000),
        ),
        *(
            Case(
                f"lstm-{n}", f"LSTM of {HIDDEN}, {n} steps, batch {BATCH}, Adam",
                _sides(of_lstm, n),
            )
            for n in LENGTHS
        ),
        Case(
            "gru-stream", f"GRU of {HIDDEN}, a step of a stream, from NumPy to NumPy",
            _sides({
                OURS: (stream, ()), "torch": (stream_torch, ("torch",)),
                "onnxruntime": (stream_onnx, ("onnxruntime", "onnx")),
            }),
        ),
    )  # fmt: skip


def _best(call: Call, times: int = 50) -> float:
    found = []
    for _ in range(times):
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return min(found)


def turn_ns() -> tuple[float, float]:
    """Return the nanoseconds of a loop iteration with one small kernel, and of its plain launch."""
    few, many = small(2000), small(20000)
    few(), many()
    whole = (_best(many) - _best(few)) / 18000
    import kernelrt as krt

    def steps(count: int) -> Call:
        run = krt.jit(lambda c: _chain(c, count))
        c = krt.zeros(4)
        return lambda: run(c)

    def _chain(c: krt.Tensor, count: int) -> krt.Tensor:
        for _ in range(count):
            c = (c * 0.5 + 1.0).contiguous()
        return c

    one, other = steps(20), steps(220)
    one(), other()
    return whole * 1e9, (_best(other) - _best(one)) / 200 * 1e9


def compile_seconds(case: str, steps: int) -> float:
    """Return the processor time of the first call, in a new process with an empty cache."""
    code = (
        f"import time; from bench.loops import {case} as build; import kernelrt; build(2)();"
        f"call = build({steps}); start = time.process_time(); call();"
        "print(time.process_time() - start)"
    )
    with tempfile.TemporaryDirectory() as folder:
        import os

        env = {**os.environ, "KERNELRT_CACHE_DIR": folder}
        out = subprocess.run(  # noqa: S603 - our own command
            [sys.executable, "-c", code], check=True, env=env, capture_output=True, text=True
        )
    return float(out.stdout)


def main() -> None:
    """Measure and print."""
    whole, alone = turn_ns()
    print(f"a turn of one small kernel: {whole:.1f} ns; as one more in a plan: {alone:.1f} ns")
    for case, lengths in (("lstm", LENGTHS), ("advantages", ROWS)):
        few, many = (compile_seconds(case, steps) for steps in lengths)
        print(
            f"{case}, {lengths[0]} and {lengths[1]} steps: first calls {few:.2f} and {many:.2f} s "
            f"with an empty cache, {many / few:.1f} times as long"
        )


if __name__ == "__main__":
    main()
