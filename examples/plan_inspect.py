"""Look inside a plan: what runs, in which order, on which memory, how long, and why.

python examples/plan_inspect.py
"""

import numpy as np

import kernelrt as krt
from kernelrt import nn
from kernelrt.runtime import profiler


def main() -> list[str]:
    krt.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    x = krt.from_numpy(np.random.default_rng(0).standard_normal((128, 64)).astype(np.float32))
    y = krt.from_numpy(np.random.default_rng(1).integers(0, 10, 128))
    loss = model(x).cross_entropy(y)
    gradients = krt.grad(loss, list(model.parameters()))
    plan = krt.prepare(loss, *gradients)

    print(plan.explain())

    print("\nEach launch, its buffers and its addresses:")
    for launch in plan.prepared_kernels:
        written = [launch.buffer_indices[i] for i in launch.output_indices]
        read = [b for b in launch.buffer_indices if b not in written]
        print(f"  op {launch.id}: {launch.kernel.entry_point}: {written} <- {read}")
        print(f"    at {', '.join(hex(p) for p in launch.buffer_ptrs)}")

    print("\nThe IR of the first kernel begins:")
    print("\n".join("  " + line for line in plan.kernels[0].code.splitlines()[:8]))

    plan.execute()
    profiles = [p for _ in range(20) for p in plan.execute_profiled()]
    print(f"\n{profiler.table(profiles)}")
    print(f"\nmemory: {plan.memory}")
    return [kernel.entry_point for kernel in plan.kernels]


if __name__ == "__main__":
    main()
