"""A selection of the attack on casts; all chains with -m slow."""

from __future__ import annotations

import pytest
import torch

from tests.attacks.casts import METHODS, Chain, attack, chains

SELECTED = (
    Chain(torch.float32, (torch.bfloat16,)), Chain(torch.float64, (torch.float16,)),
    Chain(torch.float64, (torch.float32,)), Chain(torch.float32, (torch.float64,)),
    Chain(torch.float32, (torch.int8,)), Chain(torch.float32, (torch.uint8,)),
    Chain(torch.float64, (torch.int64,)), Chain(torch.float32, (torch.int32, torch.int16)),
    Chain(torch.float32, (torch.bool,)),
    Chain(torch.float32, (torch.bfloat16, torch.int16), "plus x"),
    Chain(torch.float32, (torch.bfloat16,), "times 3"),
)  # fmt: skip


def assert_sound(chain: Chain, count: int, methods: tuple[str, ...]) -> None:
    bad = [str(result) for result in attack(chain, count, methods=methods) if result.bad]
    assert not bad, "\n" + "\n".join(bad)


@pytest.mark.parametrize("chain", SELECTED, ids=str)
def test_casts(chain: Chain) -> None:
    assert_sound(chain, 500, ("ibp", "crown", "forward"))


@pytest.mark.slow
@pytest.mark.parametrize("chain", sorted(set(chains(0)), key=str), ids=str)
def test_all_casts(chain: Chain) -> None:
    assert_sound(chain, 5000, METHODS)
