"""Random branching networks: no bound of any method is ever crossed."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import boundlab as bl
from tests.helpers.contract import check_sound
from tests.random_graphs import Program, attack, random_program, random_region

number = st.integers(0, (1 << 16) - 1)
programs = st.lists(st.tuples(number, number, number, number), min_size=1, max_size=8)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(program=programs, seed=number, double=st.booleans())
def test_random_graphs_are_sound(
    program: list[tuple[int, int, int, int]], seed: int, double: bool
) -> None:
    attack(
        program,
        lambda dtype: random_region(random.Random(seed), dtype),
        torch.float64 if double else torch.float32,
    )


@pytest.mark.parametrize("seed", range(6))
def test_random_programs_through_the_front_end(seed: int) -> None:
    """The same programs as plain modules: torch.export reads them, the graph computes what they
    compute, bounds hold."""
    program = random_program(random.Random(seed))
    module, x = Program(program, torch.float64), torch.randn(2, 4, dtype=torch.float64)
    net = bl.capture(module, x)
    values = net.graph.run(net.reader.parameters() | {net.graph.inputs[0]: x})
    torch.testing.assert_close(values[net.graph.outputs[0].name], module(x))
    check_sound(module, (bl.Linf(x, 0.1),), net=net, count=6)
