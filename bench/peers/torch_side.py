"""PyTorch in eager mode."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from bench.cases import Call
    from bench.networks import Network

WARM_UP = 20


def threads(count: int) -> None:
    """Set the number of threads of PyTorch's kernels."""
    import torch

    torch.set_num_threads(count)


def model_of(network: Network) -> torch.nn.Sequential:
    """Build the network with the given weights."""
    import torch
    from torch import nn

    modules: list[nn.Module] = []
    for weight, bias in network.weights():
        linear = nn.Linear(weight.shape[1], weight.shape[0])
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(weight))
            linear.bias.copy_(torch.from_numpy(bias))
        modules += [linear, nn.Tanh() if network.activation == "tanh" else nn.ReLU()]
    return nn.Sequential(*modules[:-1])


def inference(network: Network) -> Call:
    """Build the forward pass of one batch, in inference mode."""
    import torch

    model = model_of(network).eval()
    x, _ = network.example()

    @torch.inference_mode()
    def call() -> object:
        return model(torch.from_numpy(x)).numpy()

    for _ in range(WARM_UP):
        call()
    return call


def training(network: Network, *, fused: bool = False) -> Call:
    """Build a forward, backward and Adam step of one batch that returns the loss."""
    import torch
    from torch import nn

    model = model_of(network)
    loss_of = nn.MSELoss() if network.loss == "mse" else nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=network.lr, fused=fused)
    x, y = network.example()

    def call() -> object:
        optimizer.zero_grad()
        loss = loss_of(model(torch.from_numpy(x)), torch.from_numpy(y))
        loss.backward()
        optimizer.step()
        return loss.item()

    return call
