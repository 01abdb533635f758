"""Serve requests in batches whose size changes from call to call, with one plan for all sizes.

python examples/serve_dynamic_batch.py
"""

from time import perf_counter

import numpy as np

import kernelrt as krt
from kernelrt import nn

LARGEST = 256


class Server:
    """Answers whatever requests have come in since the last call, all at once."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model.eval()
        batch = krt.Variable("batch", 1, LARGEST)
        self.predict = krt.jit(self._predict, dynamic={"x": {0: batch}})

    def _predict(self, x):
        probabilities = self.model(x).softmax(-1)
        return probabilities.argmax(-1), probabilities.amax(-1)

    def answer(self, requests: list[np.ndarray]) -> list[tuple[int, float]]:
        classes, confidences = self.predict(np.stack(requests))
        return list(zip(classes.tolist(), confidences.tolist(), strict=True))


def main() -> int:
    krt.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, 5))
    server = Server(model)
    rng = np.random.default_rng(0)
    pending = [rng.standard_normal(16).astype(np.float32) for _ in range(20_000)]
    started = perf_counter()
    answers: list[tuple[int, float]] = []
    sizes = set()
    while len(answers) < len(pending):
        size = min(int(rng.integers(1, LARGEST + 1)), len(pending) - len(answers))
        sizes.add(size)
        answers += server.answer(pending[len(answers) : len(answers) + size])
    took = perf_counter() - started
    alone = server.answer(pending[:1])[0]
    assert alone[0] == answers[0][0]
    print(f"{len(answers):,} requests in batches of {len(sizes)} different sizes: {took:.2f} s")
    print(server.predict.explain())
    return len(server.predict.plans)


if __name__ == "__main__":
    main()
