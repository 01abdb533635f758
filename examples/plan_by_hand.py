"""Build a plan without a Tensor: kernels in LLVM IR, a copy, a view, and a Python function.

python examples/plan_by_hand.py

The plan keeps a running mean of a stream of samples: new = old + (sample - old) / count.
"""

from time import perf_counter

import numpy as np

from kernelrt import Variable, dtype
from kernelrt.device import Buffer
from kernelrt.runtime import CachedKernel, ExecutionPlanBuilder

CHANNELS = 64

# bufs: mean (written), mean (read), sample. vals: count.
UPDATE = f"""
define void @update(ptr %bufs, ptr %vals) {{
entry:
  %slot1 = getelementptr ptr, ptr %bufs, i64 1
  %slot2 = getelementptr ptr, ptr %bufs, i64 2
  %out = load ptr, ptr %bufs
  %mean = load ptr, ptr %slot1
  %sample = load ptr, ptr %slot2
  %count = load i64, ptr %vals
  %n = sitofp i64 %count to float
  %ones = insertelement <16 x float> poison, float %n, i64 0
  %ns = shufflevector <16 x float> %ones, <16 x float> poison, <16 x i32> zeroinitializer
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  %m_at = getelementptr float, ptr %mean, i64 %i
  %s_at = getelementptr float, ptr %sample, i64 %i
  %o_at = getelementptr float, ptr %out, i64 %i
  %m = load <16 x float>, ptr %m_at, align 4
  %s = load <16 x float>, ptr %s_at, align 4
  %difference = fsub <16 x float> %s, %m
  %step = fdiv <16 x float> %difference, %ns
  %updated = fadd <16 x float> %m, %step
  store <16 x float> %updated, ptr %o_at, align 4
  %next = add i64 %i, 16
  %more = icmp slt i64 %next, {CHANNELS}
  br i1 %more, label %loop, label %done
done:
  ret void
}}"""


def main() -> float:
    count = Variable("count", 1, 1 << 30)
    update = CachedKernel.from_source("update", UPDATE, 3, [0], variables=[count])

    sample = np.zeros(CHANNELS, np.float32)
    mean = np.zeros(CHANNELS, np.float32)
    history = np.zeros(4 * CHANNELS, np.float32)
    alarms: list[float] = []

    def watch(channels: np.ndarray, *, count: int) -> None:
        """Look at the first four channels once in a while."""
        if count % 1000 == 0:
            alarms.append(float(channels.max()))

    builder = ExecutionPlanBuilder()
    s = builder.add_buffer(Buffer.wrap(sample))
    m = builder.add_buffer(Buffer.wrap(mean))
    h = builder.add_buffer(Buffer.wrap(history))
    new = builder.add_intermediate(CHANNELS, dtype.float32)
    builder.add_kernel(update, [new, m, s])
    older = builder.add_view(h, 4 * CHANNELS, 3 * CHANNELS)  # offset in bytes, size in elements
    newer = builder.add_view(h, 0, 3 * CHANNELS)
    builder.add_copy(newer, older)  # the history moves up by one
    builder.add_copy(builder.add_view(h, 12 * CHANNELS, CHANNELS), new)
    builder.add_custom(watch, [builder.add_view(new, 0, 4)], variables=[count])
    builder.add_copy(m, new)
    builder.set_output_buffer(m)
    plan = builder.build()
    print(plan.explain())

    rng = np.random.default_rng(0)
    stream = rng.normal(3.0, 1.0, (5000, CHANNELS)).astype(np.float32)
    started = perf_counter()
    for number, values in enumerate(stream, 1):
        sample[:] = values
        plan.execute_with_vars(count=number)
    took = perf_counter() - started
    error = float(np.abs(mean - stream.mean(0)).max())
    assert len(alarms) == 5
    assert np.array_equal(history[-CHANNELS:], mean)
    print(f"\n{len(stream):,} updates, {took / len(stream) * 1e6:.1f} us each; error {error:.1e}")
    return error


if __name__ == "__main__":
    main()
