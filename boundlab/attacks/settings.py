"""How hard an attack tries."""

from __future__ import annotations

from dataclasses import dataclass

from boundlab.defaults import RESTARTS, STEPS


@dataclass(frozen=True)
class AttackSettings:
    """Arguments of ``bl.attack`` that commands share: steps of a descent, descents for each sample,
    and where the random numbers begin."""

    steps: int = STEPS
    restarts: int = RESTARTS
    seed: int = 0
