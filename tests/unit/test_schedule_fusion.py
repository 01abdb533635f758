"""What becomes one kernel, and that the kernels compute what the graph says."""

import gc

import numpy as np
import pytest
from support.graphs import (
    TARGET,
    Memory,
    add,
    alu,
    base,
    bound,
    cat,
    check,
    contiguous,
    conv2d,
    div,
    exp,
    expand,
    flip,
    gather,
    iota,
    layer_norm,
    matmul,
    mean,
    mul,
    one_hot,
    pad,
    permute,
    reduce,
    relu,
    reshape,
    scalar,
    scatter_add,
    shrink,
    softmax,
    sub,
    transpose,
    unwindows,
    windows,
)  # fmt: skip

from kernelrt import dtype as dt
from kernelrt.ir import Op, UOp, Variable, toposort
from kernelrt.schedule import KernelItem, Schedule, schedule


@pytest.fixture
def mem() -> Memory:
    return Memory(1)


def loops(plan: Schedule, item: int = 0) -> list[UOp]:
    kernel = plan.items[item]
    assert isinstance(kernel, KernelItem)
    return [n for n in toposort([kernel.ast]) if n.op is Op.RANGE]


def count(plan: Schedule, op: Op) -> int:
    return sum(n.op is op for k in plan.kernels for n in toposort([k.ast]))


def test_elementwise_chain_is_one_flat_loop(mem: Memory) -> None:
    x, y = mem.random(4, 5, 6), mem.random(4, 5, 6)
    plan = check(mem, [relu(add(mul(x, y), exp(x)))], kernels=1)
    assert [r.src[0].arg for r in loops(plan)] == [120]


def test_broadcast_keeps_two_loops(mem: Memory) -> None:
    x, b = mem.random(4, 5, 6), mem.random(6)
    plan = check(mem, [add(x, b)], kernels=1)
    assert [r.src[0].arg for r in loops(plan)] == [20, 6]


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_softmax_is_one_kernel(mem: Memory, axis: int) -> None:
    check(mem, [softmax(mem.random(3, 8, 16), axis)], kernels=1)


def test_layer_norm_is_one_kernel(mem: Memory) -> None:
    x, g, b = mem.random(8, 32), mem.random(32), mem.random(32)
    check(mem, [add(mul(layer_norm(x), g), b)], kernels=1)


def test_linear_bias_relu_is_one_kernel(mem: Memory) -> None:
    x, w, b = mem.random(8, 16), mem.random(16, 32), mem.random(32)
    check(mem, [relu(add(matmul(x, w), b))], kernels=1)


def test_two_layers_are_two_kernels(mem: Memory) -> None:
    x, w, v = mem.random(8, 16), mem.random(16, 32), mem.random(32, 4)
    check(mem, [matmul(relu(matmul(x, w)), v)], kernels=2)


def test_matrix_times_vector_after_a_reduction(mem: Memory) -> None:
    x, w, v = mem.random(1, 16), mem.random(16, 32), mem.random(32, 4)
    check(mem, [matmul(relu(matmul(x, w)), v)], kernels=2)


def cross_entropy(logits: UOp, labels: UOp) -> UOp:
    n, classes = logits.shape
    shifted = sub(logits, reduce(logits, Op.MAX, 1, keep=True))
    total = alu(Op.LOG, reduce(exp(shifted), Op.ADD, 1, keep=True))
    picked = mul(sub(shifted, total), one_hot(labels, int(classes)))
    return mul(reduce(picked, Op.ADD, 0, 1), -1.0 / int(n))


def test_cross_entropy_is_one_kernel(mem: Memory) -> None:
    check(mem, [cross_entropy(mem.random(8, 10), mem.indices(10, 8))], kernels=1)


def adam(g: UOp, p: UOp, m: UOp, v: UOp, step: UOp) -> list[tuple[UOp, UOp]]:
    m2 = add(mul(m, 0.9), mul(g, 0.1))
    v2 = add(mul(v, 0.999), mul(mul(g, g), 0.001))
    rate = div(scalar(1e-3), sub(scalar(1.0), alu(Op.POW, scalar(0.9), step)))
    p2 = sub(p, div(mul(m2, rate), add(alu(Op.SQRT, v2), 1e-8)))
    return [(base(p), p2), (base(m), m2), (base(v), v2)]


def state(mem: Memory, *shape: int) -> tuple[UOp, UOp, UOp]:
    square = mem.random(*shape)
    mem.data[base(square)][:] **= 2
    return mem.random(*shape), mem.random(*shape), square


def committed(commits: list[tuple[UOp, UOp]]) -> list[tuple[UOp, UOp]]:
    return [(t, v if len(v.shape) == 1 else reshape(v, t.shape)) for t, v in commits]


def test_adam_is_fused_into_the_gradient_contraction(mem: Memory) -> None:
    x, dz = mem.random(8, 16), mem.random(8, 32)
    p, m, v = state(mem, 16, 32)
    step = reshape(mem.of(np.float32([3])), ())
    plan = check(mem, [], committed(adam(matmul(transpose(x), dz), p, m, v, step)))
    main = [k for k in plan.kernels if len(k.writes) == 3]
    assert len(main) == 1
    assert len(plan.items) <= 2, "the learning rate may be a kernel of its own"
    assert {b for k in main for b in k.outs} == {base(p), base(m), base(v)}


def mlp_step(mem: Memory) -> tuple[UOp, list[tuple[UOp, UOp]]]:
    n, sizes = 16, (12, 24, 10)
    x, labels = mem.random(n, sizes[0]), mem.indices(sizes[2], n)
    w1, b1 = state(mem, sizes[0], sizes[1]), state(mem, sizes[1])
    w2, b2 = state(mem, sizes[1], sizes[2]), state(mem, sizes[2])
    z1 = add(matmul(x, w1[0]), b1[0])
    h = relu(z1)
    logits = add(matmul(h, w2[0]), b2[0])
    loss = cross_entropy(logits, labels)
    dlogits = div(sub(softmax(logits), one_hot(labels, sizes[2])), float(n))
    dh = matmul(dlogits, transpose(w2[0]))
    dz = alu(Op.WHERE, alu(Op.LT, scalar(0.0), z1), dh, 0.0)
    counter = mem.of(np.float32([3]))
    step = add(reshape(counter, ()), 1.0)
    commits = [(base(counter), reshape(step, (1,)))]
    commits += adam(matmul(transpose(x), dz), *w1, step)
    commits += adam(reduce(dz, Op.ADD, 0), *b1, step)
    commits += adam(matmul(transpose(h), dlogits), *w2, step)
    commits += adam(reduce(dlogits, Op.ADD, 0), *b2, step)
    return loss, committed(commits)


def test_training_step(mem: Memory) -> None:
    loss, commits = mlp_step(mem)
    plan = check(mem, [loss], commits)
    assert all(isinstance(item, KernelItem) for item in plan.items), "every commit is in place"
    # the step scalars; pre-activation with hidden; logits; d-logits with what the loss needs of
    # the rows; loss; d-hidden; four updates
    assert len(plan.items) == 10
    targets = {t for t, _ in commits}
    assert sum(len(targets & set(k.outs)) == 3 for k in plan.kernels) == 4


def test_training_step_does_not_hold_gradients(mem: Memory) -> None:
    loss, commits = mlp_step(mem)
    plan = schedule([loss], commits)
    sizes = [h.size for h in plan.arena_offsets]
    assert 12 * 24 not in sizes
    assert 24 * 10 not in sizes


def test_convolution_without_padding_is_one_kernel(mem: Memory) -> None:
    x, w, b = mem.random(2, 3, 8, 9), mem.random(4, 3, 3, 3), mem.random(4)
    check(mem, [relu(add(conv2d(x, w), reshape(b, (4, 1, 1))))], kernels=1)


@pytest.mark.parametrize("stride", [1, 2])
def test_padding_of_a_convolution_is_stored_first(mem: Memory, stride: int) -> None:
    x, w = mem.random(2, 8, 12, 12), mem.random(16, 8, 3, 3)
    # Rows of six leave vectors empty: channels are innermost, and the filters and result copied.
    plan = check(mem, [conv2d(x, w, stride, 1)], kernels=2 if stride == 1 else 4)
    nodes = toposort([kernel.ast for kernel in plan.kernels])
    predicates = [n for n in nodes if n.op is Op.LOAD and len(n.src) == 3]
    assert not predicates, "no condition in the inner loop"


def test_gradient_of_windows(mem: Memory) -> None:
    shape = (2, 3, 8, 9)
    args = ((2, 3, 2, 1), (3, 2, 1, 2))
    y = mem.random(*windows(mem.random(*shape), *args).shape)
    check(mem, [reduce(unwindows(y, shape, *args), Op.ADD, 4, 5)], kernels=1)


def test_max_pool(mem: Memory) -> None:
    taps = windows(mem.random(2, 3, 8, 8), (2, 2, 2, 1), (3, 2, 2, 1))
    check(mem, [reduce(taps, Op.MAX, 4, 5)], kernels=1)


def test_movement_costs_no_kernel(mem: Memory) -> None:
    x = mem.random(4, 6)
    y = flip(permute(pad(shrink(x, (1, 4), (0, 5)), (1, 2), (0, 3)), 1, 0), 1)
    check(mem, [add(y, 1.0)], kernels=1)


def test_cat_is_one_kernel(mem: Memory) -> None:
    parts = [exp(mem.random(3, n)) for n in (2, 5, 1)]
    check(mem, [cat(1, *parts)], kernels=1)
    check(mem, [softmax(cat(0, *(transpose(p) for p in parts)))])


def test_gather_and_scatter(mem: Memory) -> None:
    table, picks = mem.random(20, 6), mem.indices(20, 7)
    rows = reshape(bound(picks, 20), (7, 1))
    looked = gather(table, rows, reshape(iota(6), (1, 6)))
    check(mem, [mul(looked, 2.0)], kernels=1)
    zero = expand(scalar(0.0), (20, 6))
    gradient = scatter_add(zero, exp(looked), rows, reshape(iota(6), (1, 6)))
    plan = check(mem, [gradient, add(gradient, 1.0)])
    assert count(plan, Op.STORE) == 3


def test_gather_from_a_contraction_inside_a_row(mem: Memory) -> None:
    x, w, labels = mem.random(8, 16), mem.random(16, 10), mem.indices(10, 8)
    logits = matmul(x, w)
    picked = gather(logits, iota(8), bound(labels, 10))
    check(mem, [sub(picked, reduce(logits, Op.MAX, 1))], kernels=2)


def test_attention(mem: Memory) -> None:
    q, k, v = (mem.random(2, 3, 8, 16) for _ in range(3))
    scores = mul(matmul(q, permute(k, 0, 1, 3, 2)), 0.25)
    mask = alu(Op.LE, reshape(iota(8), (1, 8)), reshape(iota(8), (8, 1)))
    masked = alu(Op.WHERE, mask, scores, -1e9)
    check(mem, [matmul(softmax(masked), v)], kernels=3)


@pytest.mark.parametrize(("split", "kernels"), [((32, 2), 2), ((2, 32), 1), ((16, 4), 2)])
def test_a_contraction_has_lanes_where_it_is_wanted(
    mem: Memory, split: tuple[int, int], kernels: int
) -> None:
    """An axis that another operand splits leaves loops of that length; vectors want longer ones."""
    x, w, each = mem.random(64, 256), mem.random(256, 64), mem.random(64, split[0], 1)
    product = reshape(matmul(x, w), (64, *split))
    check(mem, [add(product, expand(each, (64, *split)))], kernels=kernels)


@pytest.mark.parametrize(
    ("sizes", "rows", "turned", "kernels"),
    [
        ((2, 64, 64), 512, False, 1),  # little is computed, rows stay in the kernel
        ((784, 256, 16), 128, False, 2),  # alone both have larger tiles
        ((784, 256, 16), 128, True, 2),  # and what is to be turned has panels
        ((128, 512, 128), 256, False, 2),  # so have those beside which rows would be in blocks
        ((128, 512, 128), 256, True, 2),
        ((17, 256, 256), 256, True, 2),  # the first is small, but the second has panels
    ],
)
def test_layers_are_kernels_of_their_own_where_their_matrices_gain_from_panels(
    mem: Memory, sizes: tuple[int, int, int], rows: int, turned: bool, kernels: int
) -> None:
    first, hidden, last = sizes
    x, v, w = mem.random(rows, first), mem.random(hidden, first), mem.random(last, hidden)
    if turned:
        v, w = transpose(v), transpose(w)
    else:
        v, w = reshape(v, (first, hidden)), reshape(w, (hidden, last))
    plan = schedule([matmul(relu(matmul(x, v)), w)], device=TARGET)
    sums = [any(n.op is Op.REDUCE for n in toposort([k.ast])) for k in plan.kernels]
    assert sum(sums) == kernels


@pytest.mark.parametrize("turned", [False, True])
def test_sums_of_products_that_are_reshaped_on_the_way(mem: Memory, turned: bool) -> None:
    """Their operands have other axes than what is summed up."""
    a, b, c = mem.random(12, 36), mem.random(20, 36), mem.random(20, 8)
    shape = (12, 20, 6, 6)
    left = expand(reshape(a, (12, 1, 6, 6)), shape)
    product = mul(left, expand(reshape(b, (1, 20, 6, 6)), shape))
    flat = reshape(product, (12, 20, 36))
    total = reduce(permute(flat, 2, 0, 1), Op.ADD, 0) if turned else reduce(flat, Op.ADD, 2)
    check(mem, [matmul(relu(total), c)], tolerance=1e-3)


def test_rows_stay_in_the_kernel_where_a_buffer_would_fill_all_caches(mem: Memory) -> None:
    q, k, v = (mem.random(8192, 16) for _ in range(3))
    plan = schedule([matmul(relu(matmul(q, transpose(k))), v)], device=TARGET)
    assert plan.arena_size < 8192 * 16 * 4 * 2


def test_one_contraction_a_kernel(mem: Memory) -> None:
    x, h = mem.random(8, 16), mem.random(8, 16)
    w, u = mem.random(16, 32), mem.random(16, 32)
    plan = check(mem, [alu(Op.TANH, add(matmul(x, w), matmul(h, u)))], kernels=2)
    assert all(
        sum(n.op is Op.REDUCE for n in toposort([k.ast])) == 1 for k in plan.kernels
    )


def test_sum_of_squared_error_keeps_the_contraction_apart(mem: Memory) -> None:
    x, w, y = mem.random(8, 16), mem.random(16, 32), mem.random(8, 32)
    error = sub(matmul(x, w), y)
    check(mem, [reduce(mul(error, error), Op.ADD, 0, 1)], kernels=2)


def test_value_and_activation_are_one_kernel(mem: Memory) -> None:
    x, w, b = mem.random(8, 16), mem.random(16, 32), mem.random(32)
    z = add(matmul(x, w), b)
    plan = check(mem, [z, relu(z)], kernels=1)
    assert len(plan.kernels[0].writes) == 2


def test_one_pass_over_a_large_input_for_two_sums(mem: Memory) -> None:
    x = mem.random(64, 256)
    plan = check(mem, [reduce(x, Op.ADD, 1), reduce(mul(x, x), Op.ADD, 1)], kernels=1)
    assert len(plan.kernels[0].writes) == 2


def other_operand(mem: Memory, rng: np.random.Generator, shape: tuple[int, ...]) -> UOp:
    """What a large input meets below a reduction: more loops, conditions, indices from data."""
    a, b, c = shape
    kind = rng.integers(5)
    if kind == 0:
        return flip(mem.random(*shape), 2)
    if kind == 1:
        return pad(mem.random(a, b, c - 3), (0, 0), (0, 0), (1, 2))
    if kind == 2:
        picks = bound(mem.indices(20, c), 20)
        return expand(reshape(gather(exp(mem.random(20)), picks), (1, 1, c)), shape)
    if kind == 3:
        rows = reduce(mem.random(a, b, 5), Op.MAX, 2, keep=True)
        return expand(rows, shape)
    picks = bound(mem.indices(20, a, b, c), 20)
    return reduce(gather(mem.random(20, 3), reshape(picks, (*shape, 1)), iota(3)), Op.MAX, 3)


@pytest.mark.parametrize("seed", range(16))
def test_kernels_with_loops_of_their_own_become_one(seed: int) -> None:
    rng, mem, shape = np.random.default_rng(seed), Memory(seed), (24, 16, 32)
    shared = mem.random(*shape)
    axes = (2,) if rng.integers(2) else (1, 2)
    sums = []
    for _ in range(rng.integers(2, 5)):
        operands = [shared, other_operand(mem, rng, shape)]
        rng.shuffle(operands)
        sums.append(reduce(alu((Op.MUL, Op.ADD)[rng.integers(2)], *operands), Op.MAX, *axes))
    plan = check(mem, sums)
    reason = "traversed in the same order"
    assert any(d.choice == "merge" and reason in d.reason for d in plan.decisions)


def test_scheduling_leaves_nothing_to_the_collector(mem: Memory) -> None:
    x, w, b = mem.random(8, 16), mem.random(16, 32), mem.random(32)
    z = softmax(add(matmul(x, w), b))
    gc.collect()
    gc.disable()
    try:
        plan = schedule([z, relu(z)], device=TARGET)
        assert gc.collect() == 0
    finally:
        gc.enable()
    assert plan.kernels


def test_expensive_values_are_not_recomputed(mem: Memory) -> None:
    x, w, v = mem.random(64, 64), mem.random(64, 64), mem.random(64, 64)
    h = alu(Op.TANH, x)
    plan = check(mem, [matmul(h, w), matmul(h, v)], kernels=3)
    assert count(plan, Op.TANH) == 1


@pytest.mark.parametrize(("inner", "kernels"), [(8, 2), (512, 1)])
def test_functions_before_a_short_loop_have_vectors_of_their_own(
    mem: Memory, inner: int, kernels: int
) -> None:
    """They are had beside a long one, though they are computed one by one."""
    x, a = mem.random(16 if inner > 8 else 512, 48), mem.random(48, inner)
    rows = int(x.shape[0])
    spread = expand(reshape(exp(x), (rows, 48, 1)), (rows, 48, inner))
    check(mem, [mul(spread, expand(reshape(a, (1, 48, inner)), (rows, 48, inner)))],
          kernels=kernels)  # fmt: skip


@pytest.mark.parametrize("rows", [1, 64, 512])
def test_functions_of_a_row_are_not_computed_for_each(mem: Memory, rows: int) -> None:
    x, scale = mem.random(rows, 256), mem.random(256)
    spread = expand(reshape(exp(scale), (1, 256)), (rows, 256))
    check(mem, [mul(x, spread)], kernels=1 if rows == 1 else 2)
    times = expand(reshape(mul(scale, 2.0), (1, 256)), (rows, 256))
    check(mem, [mul(x, times)], kernels=1)


def test_cheap_values_are_recomputed(mem: Memory) -> None:
    x, a, b = mem.random(64, 64), mem.random(64), mem.random(64)
    y = add(x, 1.0)
    check(mem, [add(y, a), transpose(add(y, b))], kernels=2)


def test_long_reduction_to_a_scalar_is_not_repeated_per_core(mem: Memory) -> None:
    x = mem.random(256, 256)
    check(mem, [div(x, reduce(x, Op.ADD, 0, 1, keep=True))], kernels=2)


def test_reshape_between_contraction_and_activation_leaves_no_division(mem: Memory) -> None:
    x, w, b = mem.random(2, 3, 8, 9), mem.random(4, 3, 3, 3), mem.random(4, 6, 7)
    flat = reshape(conv2d(x, w), (2, 4 * 6 * 7))
    plan = check(mem, [relu(add(flat, reshape(b, (4 * 6 * 7,))))], kernels=1)
    assert count(plan, Op.IDIV) == count(plan, Op.MOD) == 0


def test_equal_computations_are_one_kernel_ast(mem: Memory) -> None:
    def layer() -> UOp:
        return relu(add(matmul(mem.random(8, 16), mem.random(16, 32)), mem.random(32)))

    first, second = (schedule([layer()]).kernels[0].ast for _ in range(2))
    assert first is second


def test_contiguous_has_a_buffer(mem: Memory) -> None:
    x = mem.random(4, 6)
    check(mem, [reduce(contiguous(transpose(x)), Op.ADD, 1)], kernels=2)


def test_long_chains_are_split_without_recursion(mem: Memory) -> None:
    x = y = mem.random(3)
    for k in range(3000):
        y = add(y, x) if k % 2 else mul(y, 0.5)
    plan = check(mem, [y])
    assert len(plan.kernels) > 1
    assert all(len(list(toposort([k.ast]))) < 2000 for k in plan.kernels)


@pytest.mark.parametrize("n", [1, 3, 16])
def test_symbolic_batch(mem: Memory, n: int) -> None:
    batch = Variable("batch", 1, 16)
    w, b = mem.random(12, 10), mem.random(10)
    flat = mem.random(16 * 12)
    x = reshape(shrink(flat, (0, batch * 12)), (batch, 12))
    logits = add(matmul(x, w), b)
    outputs = [softmax(logits), reduce(logits, Op.ADD, 0), transpose(relu(logits))]
    plan = check(mem, outputs, batch=n)
    assert [v.arg[0] for v in plan.variables] == ["batch"]
    assert plan.outputs[0].arg.size == 160


def test_symbolic_elementwise_is_one_flat_loop(mem: Memory) -> None:
    n = Variable("n", 1, 16)
    x = reshape(shrink(mem.random(160), (0, n * 10)), (10, n))
    plan = check(mem, [exp(x)], n=7)
    assert len(loops(plan)) == 1


def test_zero_size_outputs_need_no_kernel(mem: Memory) -> None:
    x = shrink(mem.random(4, 6), (2, 2), (0, 6))
    plan = check(mem, [exp(x), reduce(x, Op.ADD, 0)])
    assert plan.outputs[0].arg.size == 0
    assert len(plan.items) == 1


def test_stored_data_is_its_own_output(mem: Memory) -> None:
    x = mem.random(4, 6)
    plan = check(mem, [reshape(x, (24,))], kernels=0)
    assert plan.outputs == (base(x),)


def test_narrow_types(mem: Memory) -> None:
    x = UOp(Op.CAST, dt.float16, (mem.random(4, 6),))
    check(mem, [UOp(Op.CAST, dt.float32, (mul(x, 2.0),))], kernels=1, tolerance=1e-2)


def test_mean_over_rows_of_a_sum(mem: Memory) -> None:
    check(mem, [mean(reduce(mem.random(6, 8), Op.ADD, 1), 0)], kernels=1)


def test_kernels_that_read_different_scalars_are_one_ast(mem: Memory) -> None:
    rates = contiguous(div(scalar(1.0), sub(scalar(1.0), mem.of(np.float32([0.5, 0.2, 0.1])))))
    weights = [mem.random(6, 4) for _ in range(3)]
    commits = [
        (base(w), reshape(mul(w, reshape(shrink(rates, (k, k + 1)), (1, 1))), (24,)))
        for k, w in enumerate(weights)
    ]
    plan = check(mem, [], commits, kernels=4)
    updates = [k for k in plan.kernels if k.outs[0] in {t for t, _ in commits}]
    assert len({k.ast for k in updates}) == 1
    parts = [b.arg for k in updates for b in k.ins]
    assert sorted((p.offset, p.size) for p in parts) == [(0, 1), (4, 1), (8, 1)]
    assert all(plan.deps[plan.items.index(k)] == (0,) for k in updates)


@pytest.mark.parametrize("n", [1, 5, 16])
def test_symbolic_training_step(mem: Memory, n: int) -> None:
    batch = Variable("batch", 1, 16)
    features, hidden, classes = 12, 24, 10
    x = reshape(shrink(mem.random(16 * features), (0, batch * features)), (batch, features))
    labels = shrink(mem.indices(classes, 16), (0, batch))
    w, m, v = state(mem, features, hidden)
    u = mem.random(hidden, classes)
    z = matmul(x, w)
    logits = matmul(relu(z), u)
    count = UOp(Op.CAST, dt.float32, (batch,))
    shifted = sub(logits, reduce(logits, Op.MAX, 1, keep=True))
    log_sum = alu(Op.LOG, reduce(exp(shifted), Op.ADD, 1, keep=True))
    hot = one_hot(bound(labels, classes), classes)
    loss = div(reduce(mul(sub(log_sum, shifted), hot), Op.ADD, 0, 1), count)
    dlogits = div(sub(softmax(logits), hot), reshape(count, (1, 1)))
    dz = alu(Op.WHERE, alu(Op.LT, scalar(0.0), z), matmul(dlogits, transpose(u)), 0.0)
    commits = adam(matmul(transpose(x), dz), w, m, v, scalar(3.0))
    plan = check(mem, [loss], committed(commits), batch=n)
    assert all(isinstance(item, KernelItem) for item in plan.items), "every commit is in place"
    failing = [k for k in plan.kernels if k.may_fail]
    assert failing
    assert not any(set(k.outs) & {t for t, _ in commits} for k in failing)


@pytest.mark.parametrize("n", [1, 4, 9])
def test_symbolic_movement(mem: Memory, n: int) -> None:
    rows = Variable("rows", 1, 9)
    x = reshape(shrink(mem.random(9 * 4), (0, rows * 4)), (rows, 4))
    y = mem.random(3, 4)
    picks = bound(alu(Op.MOD, mem.indices(100, 7), expand(rows, (7,))), rows)
    outputs = [
        cat(0, x, y, x),
        pad(x, (2, 0), (0, 1)),
        flip(x, 0),
        gather(x, reshape(picks, (7, 1)), reshape(iota(4), (1, 4))),
        reduce(expand(reshape(x, (1, rows, 4)), (3, rows, 4)), Op.MAX, 0),
        reshape(x, (rows * 4,)),
    ]
    for output in outputs:
        check(mem, [output, reduce(exp(alu(Op.NEG, alu(Op.ABS, output))), Op.ADD, 0)], rows=n)


@pytest.mark.parametrize("turned", [False, True])
def test_sums_across_rows_are_not_walked_along_what_repeats_them(mem: Memory, turned: bool) -> None:
    x = mem.random(1000, 200)
    columns = permute(x, 1, 0) if turned else x
    total = reshape(reduce(columns, Op.ADD, 1 if turned else 0), (200, 1))
    wide = mul(expand(total, (200, 64)), mem.random(200, 64))
    # A kernel of its own adds rows to each other, in vectors.
    check(mem, [wide], kernels=2)


def test_sums_along_rows_stay_with_what_repeats_them(mem: Memory) -> None:
    total = reduce(mem.random(200, 128), Op.ADD, 1, keep=True)
    check(mem, [mul(expand(total, (200, 64)), mem.random(200, 64))], kernels=1)


def test_sums_across_rows_stay_where_vectors_go_along_them(mem: Memory) -> None:
    total = reduce(mem.random(128, 200), Op.ADD, 0)
    check(mem, [mul(expand(total, (4, 200)), mem.random(4, 200))], kernels=1)
