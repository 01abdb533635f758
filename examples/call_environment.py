"""Reinforcement learning with an environment in C: acting and learning are one plan.

64 poles are balanced at once. The environment is a C function, which `krt.call` puts between the
policy's steps; so a whole iteration, 16 steps of all poles, their gradient and Adam's update, runs
without Python. The state of the poles goes in as an operand and comes out as a result.

Needs a C compiler (cc); python examples/call_environment.py
"""

import ctypes
import subprocess
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

import kernelrt as krt
from kernelrt import nn

POLES, STEPS, ITERATIONS, GAMMA = 64, 16, 400, 0.96

SOURCE = """
#include <math.h>
#include <stdint.h>

/* Poles on carts (Barto, Sutton and Anderson, 1983), 50 steps a second. bufs: the next states,
 * which poles fell; the states, the actions, and the states of poles that begin anew. */
void step(void *const *bufs, const int64_t *vals)
{
    float *next = bufs[0], *fell = bufs[1];
    const float *state = bufs[2], *action = bufs[3], *fresh = bufs[4];
    for (int64_t i = 0; i < vals[1]; ++i) {
        const float *s = state + 4 * i;
        float force = action[i] > 0.5f ? 10.0f : -10.0f;
        float sine = sinf(s[2]), cosine = cosf(s[2]);
        float push = (force + 0.05f * s[3] * s[3] * sine) / 1.1f;
        float turn = (9.8f * sine - cosine * push) /
                     (0.5f * (4.0f / 3.0f - 0.1f * cosine * cosine / 1.1f));
        float after[4] = {s[0] + 0.02f * s[1],
                          s[1] + 0.02f * (push - 0.05f * turn * cosine / 1.1f),
                          s[2] + 0.02f * s[3], s[3] + 0.02f * turn};
        fell[i] = fabsf(after[0]) > 2.4f || fabsf(after[2]) > 0.21f;
        for (int k = 0; k < 4; ++k)
            next[4 * i + k] = fell[i] ? fresh[4 * i + k] : after[k];
    }
}
"""


def compiled() -> Any:
    """The C function."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "poles.c"), Path(folder, "poles.so")
        source.write_text(SOURCE, encoding="ascii")
        command = ["cc", "-shared", "-fPIC", "-O2", str(source), "-o", str(target), "-lm"]
        subprocess.run(command, check=True)  # noqa: S603 - the text above
        return ctypes.CDLL(str(target)).step


def main() -> float:
    """Train; how many times longer poles stand at the end than in the beginning."""
    krt.manual_seed(0)
    poles = compiled()
    policy = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))
    opt = nn.optim.Adam(policy.parameters(), lr=1e-2)
    state = ((krt.rand(POLES, 4) - 0.5) * 0.1).realize()
    out = (((POLES, 4), krt.float32), ((POLES,), krt.float32))

    @krt.jit
    def iteration() -> krt.Tensor:
        log_chances, falls = [], []
        for _ in range(STEPS):
            logits = policy(state * 1.0)[:, 0]
            action = (krt.rand(POLES) < logits.detach().sigmoid()).float()
            log_chances.append(-(logits * (1 - 2 * action)).softplus())
            fresh = (krt.rand(POLES, 4) - 0.5) * 0.1
            after, fell = krt.call(poles, state, action, fresh, out=out)
            state.assign(after)
            falls.append(fell)
        lost, behind = [], krt.zeros(POLES)
        for fell in reversed(falls):
            behind = fell + GAMMA * behind * (1 - fell)
            lost.append(behind)
        penalty = krt.stack(lost[::-1])
        loss = (krt.stack(log_chances) * (penalty - penalty.mean())).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return krt.stack(falls).mean()

    started = perf_counter()
    iteration()
    print(f"traced and compiled in {perf_counter() - started:.1f} s")
    started = perf_counter()
    rates = np.array([iteration().item() for _ in range(ITERATIONS)])
    took = (perf_counter() - started) / (ITERATIONS * STEPS * POLES)
    before, after = rates[:20].mean(), rates[-100:].mean()
    print(f"{took * 1e9:.0f} ns for a step of one pole, learning included")
    print(f"a pole stands for {1 / before:.0f} steps in the beginning, {1 / after:.0f} in the end")
    return float(before / after)


if __name__ == "__main__":
    main()
