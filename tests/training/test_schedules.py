"""Schedules of radius and weights."""

from __future__ import annotations

import itertools
import math

import pytest

import boundlab as bl
from boundlab.training.schedules import Adaptive, Schedule


@pytest.mark.parametrize("kind", ["fixed", "linear", "smooth"])
def test_schedules_rise_from_0_to_1_once(kind: str) -> None:
    schedule = Schedule(kind, start=2.0, length=5.0)
    shares = [schedule.share(t / 50) for t in range(500)]
    assert shares[:100] == [0.0] * 100 and set(shares[351:]) == {1.0}
    assert all(a <= b for a, b in itertools.pairwise(shares))


def test_the_smooth_schedule_has_no_jump_and_no_kink() -> None:
    schedule, h = Schedule("smooth", 0.0, 10.0), 1e-5
    values = [schedule.share(10 * i / 1000) for i in range(1001)]
    assert max(b - a for a, b in itertools.pairwise(values)) < 0.002
    slope = lambda t: (schedule.share(t + h) - schedule.share(t - h)) / (2 * h)
    assert slope(4.0 - 1e-3) == pytest.approx(slope(4.0 + 1e-3), rel=1e-2)
    assert schedule.share(1.0) < 0.01  # slow at first


def test_the_adaptive_schedule_waits_for_the_loss() -> None:
    schedule = Adaptive(step=0.25, target=1.0, memory=0.0)
    for loss, share in (
        (2.0, 0.0),
        (0.5, 0.25),
        (3.0, 0.25),
        (0.9, 0.5),
        (0.9, 0.75),
        (0.9, 1.0),
        (0.9, 1.0),
    ):
        schedule.note(loss)
        assert schedule.share == share
    other = Adaptive(step=0.25, target=1.0)
    other.load(schedule.state)
    assert other.state == schedule.state


@pytest.mark.parametrize(
    "wrong", [{"kind": "slow"}, {"start": -1.0}, {"length": -1.0}, {"length": math.nan}]
)
def test_wrong_schedules(wrong: dict[str, object]) -> None:
    with pytest.raises(bl.ArgumentError):
        Schedule(**wrong)  # type: ignore[arg-type]
