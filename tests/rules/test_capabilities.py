"""Base classes of rules and relaxations: what does not derive from them is refused by name."""

from __future__ import annotations

import pytest
import torch

import boundlab as bl
from boundlab.relaxations.interval import Interval
from boundlab.rules.registry import RULES, Call, Relaxed, Rule, register, unregister

OP = torch.ops.aten.lgamma.default


def test_a_rule_that_does_not_derive_from_the_base_class_is_refused() -> None:
    class Plain:
        kind = "relaxed"

        def interval(self, call: Call) -> Interval:
            raise AssertionError

    with pytest.raises(bl.ArgumentError, match=r"must derive from .*Rule, not Plain"):
        register(OP, rule=Plain())  # type: ignore[arg-type]
    assert OP not in RULES


def test_what_is_no_relaxation_is_refused_with_the_node() -> None:
    whole = lambda call: Interval(*[torch.full(call.inputs[0].shape, v) for v in (-9.0, 9.0)])
    was = RULES.pop(OP.overloadpacket, None)
    register(OP, rule=Relaxed(whole, lambda call: object()))  # type: ignore[arg-type, return-value]
    try:
        x = torch.full((1, 3), 2.5)
        net = bl.capture(lambda x: torch.lgamma(x), x)
        with pytest.raises(bl.ArgumentError, match=r"lgamma.*must derive from .*Relaxation"):
            net.bounds(bl.Linf(x, 0.1), method="crown")
    finally:
        unregister(OP)
        if was is not None:
            register(OP.overloadpacket, rule=was)


def test_every_rule_states_its_capabilities_through_the_base_class() -> None:
    stated = {"kind", "uses_result", *(name for name in vars(Rule) if not name.startswith("_"))}
    for rule in RULES.values():
        assert isinstance(rule, Rule)
        public = {n for n in dir(rule) if not n.startswith("_") and callable(getattr(rule, n))}
        fields = set(getattr(rule, "__dataclass_fields__", ()))
        assert public - fields <= stated, type(rule)
