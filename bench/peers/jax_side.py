"""JAX, with the whole step jitted and its state donated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bench.networks import BETA1, BETA2, EPS

if TYPE_CHECKING:
    from bench.cases import Call
    from bench.networks import Network


def _forward(network: Network, params: Any, x: Any) -> Any:
    import jax
    import jax.numpy as jnp

    activation = jnp.tanh if network.activation == "tanh" else jax.nn.relu
    *hidden, (weight, bias) = params
    for w, b in hidden:
        x = activation(x @ w + b)
    return x @ weight + bias


def _params(network: Network) -> list[tuple[Any, Any]]:
    import jax.numpy as jnp

    return [(jnp.asarray(w.T), jnp.asarray(b)) for w, b in network.weights()]


def inference(network: Network) -> Call:
    """Build the forward pass of one batch, NumPy to NumPy."""
    import jax

    params = _params(network)
    x, _ = network.example()
    forward = jax.jit(lambda params, x: _forward(network, params, x))

    def call() -> object:
        return np.asarray(forward(params, x))

    call()
    return call


def training(network: Network) -> Call:
    """Build a forward, backward and Adam step of one batch that returns the loss."""
    import jax
    import jax.numpy as jnp

    x, y = network.example()
    y = y.astype(np.int32) if network.loss == "cross_entropy" else y

    def loss_of(params: Any, x: Any, y: Any) -> Any:
        out = _forward(network, params, x)
        if network.loss == "mse":
            return jnp.mean((out - y) ** 2)
        log_probabilities = jax.nn.log_softmax(out)
        return -jnp.mean(jnp.take_along_axis(log_probabilities, y[:, None], axis=1))

    def step(state: Any, x: Any, y: Any) -> Any:
        params, m, v, t = state
        loss, grads = jax.value_and_grad(loss_of)(params, x, y)
        t = t + 1
        tree_map = jax.tree_util.tree_map
        m = tree_map(lambda m, g: BETA1 * m + (1 - BETA1) * g, m, grads)
        v = tree_map(lambda v, g: BETA2 * v + (1 - BETA2) * g * g, v, grads)
        size = network.lr / (1 - BETA1**t)
        root = jnp.sqrt(1 - BETA2**t)
        params = tree_map(lambda p, m, v: p - size * m / (jnp.sqrt(v) / root + EPS), params, m, v)
        return (params, m, v, t), loss

    jitted = jax.jit(step, donate_argnums=0)
    params = _params(network)
    state = (
        params,
        jax.tree_util.tree_map(jnp.zeros_like, params),
        jax.tree_util.tree_map(jnp.zeros_like, params),
        jnp.float32(0),
    )

    def call() -> object:
        nonlocal state
        state, loss = jitted(state, x, y)
        return float(np.asarray(loss))

    return call
