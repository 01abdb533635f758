"""Train a small CNN with dropout, and look at what each kernel of a step costs.

python examples/train_cnn.py
"""

import numpy as np

import kernelrt as krt
from kernelrt import nn
from kernelrt.data import digits_split
from kernelrt.runtime.profiler import table

EPOCHS, BATCH = 15, 64


class Net(nn.Module):
    """Two convolutions, pooling, dropout, and one linear layer."""

    def __init__(self) -> None:
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.drop = nn.Dropout(0.25)
        self.head = nn.Linear(512, 10)

    def forward(self, x):
        x = self.conv2(self.conv1(x).relu()).relu()
        return self.head(self.drop(self.pool(x).flatten(1)))


def main() -> float:
    data = digits_split()
    krt.manual_seed(0)
    model = Net()
    opt = nn.optim.Adam(nn.parameters(model), lr=2e-3)

    @krt.jit
    def train_step(x, y):
        opt.zero_grad()
        loss = model(x).cross_entropy(y)
        loss.backward()
        opt.step()
        return loss

    predict = krt.jit(lambda x: model(x).argmax(-1))
    rng = np.random.default_rng(0)
    accuracy = 0.0
    for epoch in range(EPOCHS):
        model.train()  # dropout draws afresh in every step
        order = rng.permutation(len(data.train_labels))
        for start in range(0, len(order) - BATCH + 1, BATCH):
            chosen = order[start : start + BATCH]
            train_step(data.train_images[chosen], data.train_labels[chosen])
        model.eval()  # jitted functions notice, and take the plan without dropout
        accuracy = float((predict(data.test_images).numpy() == data.test_labels).mean())
        if epoch % 5 == 4:
            print(f"epoch {epoch + 1}: accuracy {accuracy:.1%}")

    model.train()
    x, y = data.train_images[:BATCH], data.train_labels[:BATCH]
    print(table([p for _ in range(20) for p in train_step.profile(x, y)], limit=8))
    return accuracy


if __name__ == "__main__":
    main()
