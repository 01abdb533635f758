"""A hundred layers of 16x16 matrix products and ReLU at batch 1: most of the time is dispatch."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from bench.cases import OURS, Case, Side
from bench.peers import torch_side

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bench.cases import Call

LAYERS, WIDTH = 100, 16


def data() -> tuple[NDArray[np.float32], list[NDArray[np.float32]]]:
    """Return one input row, and square weights."""
    rng = np.random.default_rng(0)
    scale = (2 / WIDTH) ** 0.5
    weights = [
        (rng.standard_normal((WIDTH, WIDTH)) * scale).astype(np.float32) for _ in range(LAYERS)
    ]
    return rng.standard_normal((1, WIDTH)).astype(np.float32), weights


def kernelrt_call() -> Call:
    import kernelrt as krt

    x, arrays = data()
    weights = [krt.tensor(w) for w in arrays]

    @krt.jit
    def forward(x: krt.Tensor) -> krt.Tensor:
        for w in weights:
            x = (x @ w).relu()
        return x

    return lambda: forward(x).numpy()


def torch_call() -> Call:
    import torch

    x, arrays = data()
    weights = [torch.from_numpy(w) for w in arrays]

    @torch.inference_mode()
    def call() -> object:
        h = torch.from_numpy(x)
        for w in weights:
            h = torch.relu(h @ w)
        return h.numpy()

    return call


def jax_call() -> Call:
    import jax

    x, arrays = data()

    @jax.jit
    def forward(x: object, weights: list[object]) -> object:
        for w in weights:
            x = jax.nn.relu(x @ w)
        return x

    weights = [jax.device_put(w) for w in arrays]
    return lambda: np.asarray(forward(x, weights))


def onnx_call() -> Call:
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    x, weights = data()
    nodes = []
    value = "x"
    for i in range(LAYERS):
        nodes.append(helper.make_node("MatMul", [value, f"w{i}"], [f"h{i}"]))
        nodes.append(helper.make_node("Relu", [f"h{i}"], [f"a{i}"]))
        value = f"a{i}"
    shape = [1, WIDTH]
    graph = helper.make_graph(
        nodes, "deep",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(weights)],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return lambda: session.run(None, {"x": x})[0]


def numpy_call() -> Call:
    x, weights = data()

    def call() -> object:
        h = x
        for w in weights:
            h = np.maximum(h @ w, 0)
        return h

    return call


def case() -> Case:
    """Return the case with all sides, each from a NumPy array to a NumPy array."""
    sides = (
        Side(OURS, kernelrt_call),
        Side("torch, 1 thread", torch_call, functools.partial(torch_side.threads, 1), ("torch",)),
        Side("jax.jit", jax_call, needs=("jax",)),
        Side("onnxruntime", onnx_call, needs=("onnxruntime", "onnx")),
        Side("numpy", numpy_call),
    )
    return Case("deep-inference", "100 layers of 16x16 matmul + ReLU, batch 1", sides, aim=15)
