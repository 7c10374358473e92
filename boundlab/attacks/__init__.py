"""Searching for members of a region whose outputs are violations: goals.py says how far outputs are
from one, descent.py moves points, attack.py is the search."""

from boundlab.attacks.attack import Attack, attack
from boundlab.attacks.settings import AttackSettings

__all__ = ["Attack", "AttackSettings", "attack"]
