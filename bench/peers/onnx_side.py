"""ONNX Runtime on the same network written as an ONNX graph (inference only)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.cases import Call
    from bench.networks import Network


def content(network: Network) -> bytes:
    """Return the network as the content of an ONNX file."""
    from onnx import TensorProto, helper, numpy_helper

    nodes, initializers = [], []
    value = "x"
    layers = network.weights()
    for i, (weight, bias) in enumerate(layers):
        initializers += [
            numpy_helper.from_array(weight, f"w{i}"),
            numpy_helper.from_array(bias, f"b{i}"),
        ]
        nodes.append(helper.make_node("Gemm", [value, f"w{i}", f"b{i}"], [f"h{i}"], transB=1))
        value = f"h{i}"
        if i < len(layers) - 1:
            kind = "Tanh" if network.activation == "tanh" else "Relu"
            nodes.append(helper.make_node(kind, [value], [f"a{i}"]))
            value = f"a{i}"
    graph = helper.make_graph(
        nodes,
        "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [network.batch, network.sizes[0]])],
        [
            helper.make_tensor_value_info(
                value, TensorProto.FLOAT, [network.batch, network.sizes[-1]]
            )
        ],
        initializers,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    data: bytes = model.SerializeToString()
    return data


def session(model: bytes | str, threads: int = 1) -> Any:
    """Open a model: the content of an ONNX file, or its path."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def inference(network: Network, *, threads: int = 1) -> Call:
    """Build the forward pass of one batch, NumPy to NumPy, with all graph optimizations."""
    opened = session(content(network), threads)
    x, _ = network.example()

    def call() -> object:
        return opened.run(None, {"x": x})[0]

    call()
    return call
