"""Answer batches of any size from 1 to 256 with one prepared plan, on raw buffers.

python examples/plan_dynamic_batch.py

The plan is prepared once, for a batch that is a Variable. Each call writes its rows into the
plan's input, sets the variable, and reads as many rows of the output; nothing is compiled again.
"""

from time import perf_counter

import numpy as np

import kernelrt as krt
from kernelrt import nn

LARGEST, FEATURES, CLASSES = 256, 16, 5


def main() -> int:
    krt.manual_seed(0)
    model = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, CLASSES))

    rows = np.zeros((LARGEST, FEATURES), np.float32)  # the plan reads this array in place
    batch = krt.Variable("batch", 1, LARGEST)
    plan = model(krt.from_numpy(rows)[:batch]).softmax(-1).prepare()
    output = plan.output_buffer
    assert output is not None
    answers = output.numpy().reshape(LARGEST, CLASSES)
    print(plan)

    rng = np.random.default_rng(0)
    served = 0
    kernels = krt.runtime.kernels.compiled
    started = perf_counter()
    for size in rng.integers(1, LARGEST + 1, 2000):
        rows[:size] = rng.standard_normal((size, FEATURES), np.float32)
        plan.execute_with_vars(batch=int(size))
        assert abs(answers[:size].sum() - size) < 1e-3 * size
        served += int(size)
    took = perf_counter() - started
    print(f"{served:,} rows in 2,000 batches: {took / 2000 * 1e6:.0f} us a batch")
    return krt.runtime.kernels.compiled - kernels


if __name__ == "__main__":
    main()
