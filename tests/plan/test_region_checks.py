"""What plans with loops refuse when they are built."""

from __future__ import annotations

import numpy as np
import pytest
from support import plan_kernels
from support.regions import WIDTH, Body, Outer

from kernelrt.device.buffer import Buffer
from kernelrt.errors import (
    PlanBuildError,
)
from kernelrt.ir import Variable


def refused(match: str, bindings=None, *, body=None, outputs=(0,), **options):
    outer = Outer()
    buffers = [outer.numbers(*range(8)), outer.numbers(*range(8))]
    if body is None:
        body = Body(2)
        body.add(0, 0, 1)
        body = body.builder.build()
    bindings = [(0, 0, 0), (0, 1, 1)] if bindings is None else bindings

    def make():
        outer.builder.add_region([body], buffers, bindings, outputs, **options)
        outer.builder.build()

    with pytest.raises(PlanBuildError, match=match):
        make()


@pytest.mark.parametrize(
    ("match", "bindings", "options"),
    [
        ("port 1 has no binding", [(0, 0, 0)], {}),
        ("buffer 0 is not a port, or is bound twice", [(0, 0, 0), (0, 0, 1)], {}),
        ("buffer 7 is not a port", [(0, 7, 0)], {}),
        ("bindings: 5 is neither", [(0, 0, 5), (0, 1, 1)], {}),
        ("exceeds the 64 bytes of slot 0", [(0, 0, 0, 32), (0, 1, 1)], {"count": 3}),
        ("exceeds the 64 bytes of slot 1", [(0, 0, 0), (0, 1, 1, -8)], {"count": 2}),
        ("misaligned", [(0, 0, 0, 4), (0, 1, 1)], {"count": 2}),
        ("shares bytes with port 1", [(0, 0, 0), (0, 1, 0)], {}),
        ("shares bytes with port 1", [(0, 0, 0, 32), (0, 1, 0)], {"count": 2}),
        ("count: expected at least 0", None, {"count": -1}),
        ("output_indices: slot 0 is written", None, {"outputs": ()}),
        ("output_indices: 2 is not a position", None, {"outputs": (2,)}),
        ("copies: cannot copy 65 bytes", None, {"copies": ((0, 1, 65),)}),
        ("copies: 3 is not a position", None, {"copies": ((0, 3, 8),)}),
        ("condition_slot: expected a buffer of dtype bool", None, {"condition_slot": 1}),
        ("count_slot: 2 is neither", None, {"count_slot": 2}),
        ("choice_slot is 0, and the number of bodies is 1", None, {"choice_slot": 0}),
        ("expected a port of 1 int64", [(0, 0, 0), (0, 1, -1)], {}),
    ],
)
def test_what_does_not_fit_is_named(match, bindings, options):
    refused(match, bindings, **options)


def test_bodies_with_variables_or_state_are_refused():
    body = Body(2)
    body.builder.add_kernel(plan_kernels.add_n(Variable("n", 0, 5), WIDTH), [0, 1])
    refused("variables n", body=body.builder.build())
    body = Body(2)
    state = body.builder.add_buffer(Buffer.wrap(np.zeros(WIDTH, np.int64)))
    body.scale(state, 0, 2)
    refused("writes to a buffer that it was given", body=body.builder.build())


def test_ports_that_never_meet_in_a_turn_may_share_a_buffer():
    """y[i + 1] = 2 * y[i], along one buffer."""
    body = Body(2)
    body.scale(1, 0, 2)
    outer = Outer()
    row = np.zeros((5, WIDTH), np.int64)
    row[0] = 1
    whole = outer.given(row)
    later = outer.builder.add_view(whole, 32, 4 * WIDTH)
    outer.builder.add_region(
        [body.builder.build()], [whole, later], [(0, 0, 0, 32), (0, 1, 1, 32)], [1], count=4
    )
    outer.builder.build().execute()
    np.testing.assert_array_equal(row, (2 ** np.arange(5))[:, None].repeat(WIDTH, 1))
