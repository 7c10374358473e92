"""Splits that seem best are tried: their children are bounded once, with the slopes of their
parents (filtered smart branching, De Palma et al. 2021).

Gradients tell the gain of a split to first order, and of relaxations without a kink they do not
tell where to split. One backward pass for each child tells both, and costs far less than the ascent
that bounds the children in the end. Of kinks at 0 it tells too little more to be worth its time.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from boundlab.methods.alpha import Alpha
from boundlab.methods.method import Method
from boundlab.methods.state import BoundState
from boundlab.verify.branch import Brancher, Splits, worth

TRIED = 3
"""Elements of each domain that are tried."""
SHARES = (0.25, 0.75)
"""Where else than in the middle of its interval an element without a kink is split."""
ONCE = Alpha(iterations=0)
TRIAL = Method("trial", "interval", "backward", optimize=True)


def best_tried(brancher: Brancher, state: BoundState, levels: int) -> Splits:
    """The best splits of domains, as trials tell; fewer levels if not all domains have so many."""
    found = brancher.best_splits(state, levels)
    if bool(found.kinked.all()):
        return found
    if levels < TRIED:
        found = brancher.best_splits(state, TRIED)
    scores, points = _trial(brancher, state, found), found.points
    for share in SHARES:
        other = replace(found, points=found.lower + share * (found.upper - found.lower))
        better = torch.where(found.kinked, -torch.inf, _trial(brancher, state, other))
        points = torch.where(better > scores, other.points, points)
        scores = torch.maximum(scores, better)
    scores = torch.where(found.scores > 0, scores, -torch.inf)
    order = scores.argsort(1, descending=True)[:, :levels]
    return replace(found, points=points).ordered(order)


def _trial(brancher: Brancher, state: BoundState, splits: Splits) -> Tensor:
    """What each split is worth: (domains, splits). Elements without a middle, of infinite
    intervals, are not split in the end, and are tried at 0."""
    count = splits.places.shape[1]
    points = splits.points.nan_to_num(0.0, 0.0, 0.0)
    halves = [brancher.halved(state, splits.places[:, i], points[:, i]) for i in range(count)]
    found = brancher.problem.bounds(BoundState.join(halves), TRIAL, "lower", ONCE)
    assert found.state is not None
    bound = torch.where(found.lower.isfinite(), found.lower, -torch.inf).amax(1)
    bound = torch.where(found.state.known_empty(), torch.inf, bound).clamp(max=0)
    above, below = bound.reshape(count, 2, -1).unbind(1)
    return worth(above, below).T
