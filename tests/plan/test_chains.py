"""Kernels that go slice by slice: where they may, and the same bits as one after the other."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import nn
from kernelrt.device.registry import opened
from kernelrt.runtime import plan as plans
from kernelrt.runtime import slice_pipelining as found_by
from kernelrt.runtime.kernel_cache import build
from kernelrt.runtime.slice_pipelining import find_pipelines

RNG = np.random.default_rng(7)


@pytest.fixture
def all_chains(monkeypatch):
    """Whatever may be a chain is one."""
    monkeypatch.setattr(found_by, "FEWEST", 2)
    monkeypatch.setattr(found_by, "FOR_EACH", 0)
    monkeypatch.setattr(found_by, "_saved", lambda chain, _slices: len(chain) - 1.0)


@pytest.fixture
def no_chains(monkeypatch):
    """Make plans without them for as long as it is entered."""

    class Without:
        def __enter__(self):
            monkeypatch.setattr(plans, "find_pipelines", lambda *_: [])

        def __exit__(self, *_):
            monkeypatch.setattr(plans, "find_pipelines", find_pipelines)

    return Without()


def array(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def chained(plan) -> int:
    """How many kernels of a plan, and of its bodies, are in chains."""
    here = sum(chain.end - chain.first for chain in plan.chains)
    return here + sum(chained(body) for body in plan.bodies)


def layers(x, *weights):
    """Products of members, each layer a kernel, as what each gives is wanted."""
    out = []
    for w in weights:
        x = (x @ w).tanh()
        out.append(x)
    return out


def members(count: int, rows: int, width: int, depth: int):
    return array(count, rows, width), *(
        array(count, width, width) * width**-0.5 for _ in range(depth)
    )


def test_layers_of_members_are_a_chain() -> None:
    """What a cache does not hold is computed member by member, by the estimate alone."""
    given = members(64, 512, 64, 3)
    run = krt.jit(layers)
    plan = run.plan(*given)
    [chain] = plan.chains
    assert (chain.first, chain.end) == (0, 3)
    assert chain.slices >= found_by.FEWEST
    assert "slice by slice" in plan.explain()
    expected = np.float64(given[0])
    for w, have in zip(given[1:], run(*given), strict=True):
        expected = np.tanh(expected @ np.float64(w))
        np.testing.assert_allclose(have.numpy(), expected, atol=2e-5)


def test_what_a_cache_holds_is_none() -> None:
    assert not krt.jit(layers).plan(*members(64, 16, 16, 3)).chains


def population(count: int, threads: int):
    """Losses and weights of a population after some steps of Adam."""
    krt.manual_seed(3)
    model = nn.stack_modules(
        lambda: nn.Sequential(
            nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3)
        ),
        count,
    )
    opt = nn.optim.Adam(model.parameters(), lr=1e-2)

    @krt.jit(threads=threads)
    def step(x, y):
        opt.zero_grad()
        losses = krt.vmap(lambda out, y: out.mse_loss(y))(model(x), y)
        losses.sum().backward()
        opt.step()
        return losses

    rng = np.random.default_rng(5)
    x, y = (rng.standard_normal((count, 256, n)).astype(np.float32) for n in (8, 3))
    losses = [step(x, y).numpy() for _ in range(4)]
    return step.plan(x, y), [*losses, *(p.numpy() for p in model.parameters())]


@pytest.mark.cases(1)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("count", [16, 40, 64])
def test_populations_have_the_same_bits(count, threads, all_chains, no_chains) -> None:
    with no_chains:
        plain, expected = population(count, threads)
    plan, have = population(count, threads)
    assert chained(plan) > chained(plain) == 0
    for a, b in zip(have, expected, strict=True):
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("threads", [1, 2])
def test_loops_have_the_same_bits(threads, all_chains, no_chains) -> None:
    """What is carried is written in place while it is read."""

    def run(w, v, x):
        def turn(h, x):
            h = ((h @ w).tanh() + x) @ v
            return h, h.square()

        return krt.scan(turn, krt.zeros(32, 64, 32), x)

    given = array(32, 32, 48) * 0.2, array(32, 48, 32) * 0.2, array(6, 32, 64, 48)
    with no_chains:
        expected = krt.jit(run, threads=threads)(*given)
    jitted = krt.jit(run, threads=threads)
    assert chained(jitted.plan(*given))
    for a, b in zip(jitted(*given), expected, strict=True):
        assert a.numpy().tobytes() == b.numpy().tobytes()


APART = {
    "what all slices sum up": lambda a, b: (h := (a @ b).tanh(), (h - h.sum(0)).exp() @ b)[1],
    "the next member": lambda a, b: ((a @ b).tanh().roll(1, 0)) @ b,
    "members in reverse": lambda a, b: ((a @ b).tanh().flip(0)) @ b,
    "another axis": lambda a, b: ((a @ b).tanh().transpose(0, 1).contiguous()) @ b,
    "rows of all": lambda a, b: ((a @ b).tanh().reshape(-1, 64 * 32).softmax(0)),
    "picked members": lambda a, b: (a @ b).tanh()[krt.arange(63, -1, -1)] @ b,
}


@pytest.mark.parametrize("name", APART)
@pytest.mark.parametrize("threads", [1, 2])
def test_what_needs_other_slices_waits_for_them(name, threads, all_chains, no_chains) -> None:
    a, b = array(64, 64, 32), array(64, 32, 32) * 0.3
    with no_chains:
        expected = krt.jit(APART[name], threads=threads)(a, b).numpy()
    assert krt.jit(APART[name], threads=threads)(a, b).numpy().tobytes() == expected.tobytes()


@pytest.mark.parametrize("seed", range(60))
def test_random_programs(seed, all_chains, no_chains) -> None:
    """Steps along members and across them, some of which overwrite what others have read."""
    rng = np.random.default_rng(seed)
    count, rows = int(rng.choice([16, 24, 32, 64])), int(rng.choice([24, 64, 90]))
    width = int(rng.choice([8, 16, 33]))
    state = krt.tensor(array(count, rows, width))
    choices = rng.integers(0, 9, int(rng.integers(3, 12)))

    def program(x, w, v):
        values = [x, state * 1.0]
        for k in choices:
            h, g = values[-1], values[len(values) // 2]
            values.append({
                0: lambda h, g: (h @ w).tanh(),
                1: lambda h, g: (h + g).sin().contiguous(),
                2: lambda h, g: h - h.mean(1, keepdim=True),
                3: lambda h, g: h.softmax(-1) + g,
                4: lambda h, g: h * v + (h.mT @ g).tanh().sum(1, keepdim=True),
                5: lambda h, g: h.roll(1, 0) + g,
                6: lambda h, g: (h - h.sum(0) * 0.1).tanh(),
                7: lambda h, g: h.flip(1) * 0.5,
                8: lambda h, g: (g @ w @ w.mT).contiguous() * 0.1,
            }[int(k)](h, g))  # fmt: skip
        state.assign(values[-1])
        return values[-1], values[len(values) // 2].sum(-1)

    given = array(count, rows, width), array(count, width, width) * 0.3, array(count, 1, width)
    first = state.numpy()
    results = []
    for way in range(3):
        state.assign(krt.tensor(first))
        jitted = krt.jit(program, threads=1 + (way == 2))
        if way:
            out = [jitted(*given), jitted(*given)]
        else:
            with no_chains:
                out = [jitted(*given), jitted(*given)]
        found = [*(t for pair in out for t in pair), state]
        results.append([t.numpy().tobytes() for t in found])
    assert results[1] == results[0]
    assert results[2] == results[0]


@pytest.mark.parametrize("threads", [1, 2])
def test_profiles_tell_of_each_kernel(threads, all_chains) -> None:
    given = members(32, 96, 32, 4)
    run = krt.jit(layers, threads=threads)
    assert chained(run.plan(*given)) == 4
    kernels = [sample for sample in run.profile(*given) if sample.chunks]
    assert len(kernels) == 4
    assert all(sample.elapsed > 0 for sample in kernels)
    for before, after in itertools.pairwise(kernels):
        assert before.start + before.elapsed <= after.start + 1e-9


def test_other_code_may_take_their_places(all_chains) -> None:
    """A chain is one where chunks share out the same, and again when they do again."""
    given = members(64, 256, 32, 3)
    run = krt.jit(layers)
    plan, expected = run.plan(*given), run(*given)[-1].numpy()
    first, slices = plan.kernels[0], plan.chains[0].slices
    found = {}
    for variant in opened("CPU").renderer.variants(first.ast):
        if variant.text == first.variant:
            continue
        [new] = build([(first.ast, variant.text)])
        spans = {s: n * new.global_size[0] for s, n in new.chunk_bytes.items()}
        fits = spans == {s: n * first.global_size[0] for s, n in first.chunk_bytes.items()}
        fits = fits and math.gcd(new.global_size[0], slices) > 1
        found.setdefault(fits, new)
        if len(found) == 2:
            break
    assert False in found
    for fits in (True, False, True):
        plan.exchange({plan.kernels[0]: found.get(fits, first)})
        assert chained(plan) == (3 if fits else 0)
        np.testing.assert_allclose(run(*given)[-1].numpy(), expected, atol=1e-5)
    plan.exchange({plan.kernels[0]: first})
    assert plan.chains[0].slices == slices
    plan.set_chunks(0, 1)
    assert not plan.chains
    assert "slice by slice" not in plan.explain()


def test_other_memory(all_chains) -> None:
    """Arguments and buffers that lie elsewhere, and plans over other buffers."""
    given = members(32, 200, 32, 3)
    run = krt.jit(layers)
    assert chained(run.plan(*given)) == 3
    for _ in range(3):
        x = np.concatenate([array(32, 200, 32), array(3, 200, 32)])[1:33]
        out = run(x, *given[1:])
        expected = x.astype(np.float64)
        for w, have in zip(given[1:], out, strict=True):
            expected = np.tanh(expected @ np.float64(w))
            np.testing.assert_allclose(have.numpy(), expected, atol=2e-5)


def test_epochs_over_members(all_chains, no_chains) -> None:
    """Steps of `over` whose rows lie elsewhere in each."""
    weights = [(krt.tensor(array(48, 32, 32)) * 0.2).realize() for _ in range(2)]

    def losses():
        total = krt.zeros(())

        @krt.jit
        def step(x):
            h = layers(x, *weights)
            total.assign(total + h[-1].square().mean())
            return total, *h

        rows = np.random.default_rng(1).standard_normal((240, 128, 32)).astype(np.float32)
        out = step.over(rows, batch_size=48, shuffle=True, seed=1, epochs=2)
        return [t.numpy().tobytes() for t in out], chained(step.plan(rows[:48]))

    with no_chains:
        expected, none = losses()
    found, some = losses()
    assert found == expected
    assert some > none == 0


@pytest.mark.parametrize("processors", [1, 2, 8, 9, 64, 1000])
def test_any_number_of_processors(processors: int, monkeypatch) -> None:
    monkeypatch.setattr(plans, "pool_limit", lambda: processors)
    [chain] = krt.jit(layers).plan(*members(64, 512, 64, 3)).chains
    assert chain.slices == 64


def test_looking_for_them_is_linear(monkeypatch) -> None:
    """Kernels with nothing in common are compared with those near them alone."""
    pairs = []
    compare = found_by._can_pipeline
    monkeypatch.setattr(found_by, "_can_pipeline", lambda *ab: pairs.append(1) or compare(*ab))
    monkeypatch.setattr(found_by, "_saved", lambda chain, _slices: pytest.fail("shares nothing"))
    xs = [krt.tensor(array(1024, 256)) for _ in range(80)]
    plan = krt.jit(lambda xs: [x.exp().tanh() for x in xs]).plan(xs)
    kernels = sum(kernel.is_split for kernel in (op.kernel for op in plan.prepared_kernels))
    assert kernels >= 80
    assert 0 < len(pairs) <= kernels * found_by.LONGEST
