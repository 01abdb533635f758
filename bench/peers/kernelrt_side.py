"""kernelrt, used as the README shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.cases import Call
    from bench.networks import Network
    from kernelrt import nn

WARM_UP = 20


def threads(count: int) -> None:
    """Set the number of threads of plans."""
    import kernelrt

    kernelrt.set_num_threads(count)


def model_of(network: Network) -> nn.Sequential:
    """Build the network with the given weights."""
    from kernelrt import nn

    layers: list[nn.Module] = []
    for weight, bias in network.weights():
        linear = nn.Linear(weight.shape[1], weight.shape[0])
        linear.load_state_dict({"weight": weight, "bias": bias})
        layers += [linear, nn.Tanh() if network.activation == "tanh" else nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def inference(network: Network, *, freeze: bool = False) -> Call:
    """Build the forward pass of one batch, NumPy to NumPy."""
    import kernelrt as krt

    model = model_of(network)
    forward = krt.jit(model, freeze=freeze)
    x, _ = network.example()

    def call() -> object:
        return forward(x).numpy()

    for _ in range(WARM_UP):
        call()
    return call


def training(network: Network) -> Call:
    """Build a forward, backward and Adam step of one batch that returns the loss."""
    import kernelrt as krt
    from kernelrt import nn

    model = model_of(network)
    optimizer = nn.optim.Adam(nn.parameters(model), lr=network.lr)

    @krt.jit
    def step(x: krt.Tensor, y: krt.Tensor) -> krt.Tensor:
        optimizer.zero_grad()
        out = model(x)
        loss: krt.Tensor = out.mse_loss(y) if network.loss == "mse" else out.cross_entropy(y)
        loss.backward()
        optimizer.step()
        return loss

    x, y = network.example()

    def call() -> object:
        return step(x, y).item()

    return call
