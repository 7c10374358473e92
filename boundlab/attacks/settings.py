"""How hard an attack tries."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class AttackSettings:
    """Arguments of ``bl.attack`` that commands share: steps of a descent, descents for each sample,
    and where the random numbers begin."""

    steps: int = 40
    restarts: int = 2
    seed: int = 0
