"""Random branching networks: no bound of any method is ever crossed."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import boundlab as bl
from tests.contract import check_sound
from tests.random_graphs import Program, as_graph, random_program, random_region

number = st.integers(0, (1 << 16) - 1)
programs = st.lists(st.tuples(number, number, number, number), min_size=1, max_size=8)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(program=programs, seed=number, double=st.booleans())
def test_random_graphs_are_sound(program: list[tuple[int, int, int, int]], seed: int, double: bool) -> None:
    dtype = torch.float64 if double else torch.float32
    region = random_region(random.Random(seed), dtype)
    with torch.no_grad():
        check_sound(Program(program, dtype), (region,), net=as_graph(program, dtype), count=6)


@pytest.mark.parametrize("seed", range(6))
def test_the_front_end_reads_the_same_graphs(seed: int) -> None:
    """The program through torch.export and the graph built by hand have the same bounds."""
    program = random_program(random.Random(seed))
    module, x = Program(program, torch.float64), torch.randn(2, 4, dtype=torch.float64)
    captured, direct = bl.capture(module, x), as_graph(program, torch.float64)
    for method in ("ibp", "crown"):
        a, b = captured.bounds(bl.Linf(x, 0.1), method=method), direct.bounds(bl.Linf(x, 0.1), method=method)
        torch.testing.assert_close(a.lower, b.lower)
        torch.testing.assert_close(a.upper, b.upper)
