"""Put a function compiled by numba into a plan, between kernels of kernelrt.

pip install numba; python examples/plan_numba_cfunc.py

The function is called straight from the plan's loop in C, without the GIL. Here it bins values
into a histogram, which branches too much to be a tensor expression.
"""

import numba
import numpy as np
from numba import types

import kernelrt as krt
from kernelrt import dtype
from kernelrt.device import Buffer
from kernelrt.runtime import CachedKernel, ExecutionPlanBuilder

SAMPLES, BINS = 10_000, 32

SIGNATURE = types.void(types.CPointer(types.voidptr), types.CPointer(types.int64))


@numba.cfunc(SIGNATURE)
def histogram(bufs, vals):
    """bufs: counts (int64), values (float32 in 0..1). vals: how many values there are."""
    counts = numba.carray(bufs[0], (BINS,), np.int64)
    values = numba.carray(bufs[1], (SAMPLES,), np.float32)
    for b in range(BINS):
        counts[b] = 0
    for i in range(vals[0]):
        b = int(values[i] * BINS)
        counts[min(max(b, 0), BINS - 1)] += 1


def main() -> np.ndarray:
    values = np.random.default_rng(0).normal(size=SAMPLES).astype(np.float32)

    # A kernel of kernelrt's own, taken from a plan that a tensor expression was prepared to.
    x = krt.from_numpy(values)
    squash = krt.prepare(x.sigmoid()).prepared_kernels[0].kernel

    count = krt.Variable("count", 1, SAMPLES)
    binning = CachedKernel.from_function(
        histogram, 2, [0], name="histogram", variables=[count], host_parallel_safe=True
    )
    builder = ExecutionPlanBuilder()
    source = builder.add_buffer(Buffer.wrap(values))
    squashed = builder.add_intermediate(SAMPLES, dtype.float32)
    counts = builder.add_intermediate(BINS, dtype.int64)
    builder.add_kernel(squash, [squashed, source])
    builder.add_kernel(binning, [counts, squashed])
    builder.set_output_buffer(counts)
    plan = builder.build()

    plan.execute_with_vars(count=SAMPLES)
    output = plan.output_buffer
    assert output is not None
    found = output.copyout()
    expected, _ = np.histogram(1 / (1 + np.exp(-values)), BINS, (0, 1))
    print(found)
    print(f"{found.sum():,} values; {int(np.abs(found - expected).sum())} differ from NumPy's bins")
    for profile in plan.execute_profiled():
        print(f"{profile.kernel.entry_point:<40} {profile.elapsed * 1e6:8.1f} us")
    return found


if __name__ == "__main__":
    main()
