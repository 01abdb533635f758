"""Histories that were overwritten, below tensors that are not computed yet."""

import pytest

import kernelrt as krt


@pytest.mark.parametrize("forgotten", [False, True])
@pytest.mark.parametrize("jitted", [False, True])
def test_a_gradient_through_a_read_value_whose_source_was_assigned_is_refused(forgotten, jitted):
    s = krt.tensor(1.0).realize()
    w = krt.tensor(3.0, requires_grad=True).realize()
    t = s * w
    assert t.item() == 3.0
    y = t * t
    if forgotten:
        del t
    if jitted:
        krt.jit(lambda: s.assign(krt.tensor(7.0)))()
    else:
        s.assign(krt.tensor(7.0))
    with pytest.raises(krt.GradientError, match="assigned since"):
        y.backward()
    assert y.item() == 9.0


def test_a_gradient_that_passes_no_assigned_value_is_given():
    s = krt.tensor(1.0).realize()
    w = krt.tensor(3.0, requires_grad=True).realize()
    t = krt.tensor(2.0) * w
    assert t.item() == 6.0
    y = t * t
    s.assign(krt.tensor(7.0))
    y.backward()
    assert w.grad is not None
    assert w.grad.item() == 24.0


def test_a_run_captures_values_whose_source_is_assigned_later():
    s = krt.tensor(1.0).realize()
    w = krt.tensor(3.0, requires_grad=True).realize()
    t = s * w
    y = krt.cond(krt.tensor(True), lambda: t * t, lambda: t)
    s.assign(krt.tensor(7.0))
    with pytest.raises(krt.GradientError, match="assigned since"):
        y.backward()


def test_a_second_network_stepped_between_forward_and_backward_is_noticed():
    made, judged = krt.nn.Linear(3, 3), krt.nn.Linear(3, 1)
    opt = krt.optim.SGD(judged.parameters(), lr=0.1)
    logits = judged(made(krt.ones(2, 3)))
    logits.sum().item()
    loss = (logits * logits).mean()
    logits.square().mean().backward(retain_graph=True)
    opt.step()
    with pytest.raises(krt.GradientError, match="assigned since"):
        loss.backward()
