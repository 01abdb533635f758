"""Train an MLP on handwritten digits, save it, and load it again.

python examples/train_mlp.py
"""

import tempfile
from pathlib import Path

import numpy as np

import kernelrt as krt
from kernelrt import nn
from kernelrt.data import digits_split

EPOCHS, BATCH = 30, 64


def make_model() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


def main() -> float:
    data = digits_split()
    krt.manual_seed(0)
    model = make_model()
    opt = nn.optim.AdamW(nn.parameters(model), lr=2e-3)

    @krt.jit
    def train_step(x, y):
        opt.zero_grad()
        loss = model(x).cross_entropy(y)
        loss.backward()
        opt.step()
        return loss

    rng = np.random.default_rng(0)
    for epoch in range(EPOCHS):
        opt.lr = 2e-3 * (1 - epoch / EPOCHS)  # read by the plan: no new trace
        order = rng.permutation(len(data.train_labels))
        batches = order[: len(order) // BATCH * BATCH].reshape(-1, BATCH)
        losses = [train_step(data.train_images[b], data.train_labels[b]) for b in batches]
        if epoch % 10 == 9:
            print(f"epoch {epoch + 1}: loss {losses[-1].item():.4f}")

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "digits.npz")
        nn.save(model, path)
        restored = make_model()
        restored.load_state_dict(nn.load(path))

    predict = krt.jit(lambda x: restored(x).argmax(-1))
    accuracy = float((predict(data.test_images).numpy() == data.test_labels).mean())
    print(f"accuracy of the restored model: {accuracy:.1%}")
    return accuracy


if __name__ == "__main__":
    main()
