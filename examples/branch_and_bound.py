"""Branch and bound on neurons: a complete verifier of small ReLU networks.

An unstable neuron is split: in one subdomain its preactivation is at least 0, in the other at most
0. It is linear in both; beta-CROWN's multipliers make the constraints count in the backward pass.
Subdomains are samples of a batch; a state carries intervals, slopes, splits and multipliers on.
"""

import torch
from torch import Tensor, nn

import boundlab as bl


def prove(problem: bl.Problem, layers: list[str], threshold: float, most: int = 400) -> bool:
    """Whether the only specification of a problem exceeds a threshold everywhere. layers: the
    modules that ReLUs read; most: the subdomains to give up after."""
    found = problem.bounds(bl.BoundState(), "alpha-crown", "lower")
    while most > 0 and found.state is not None:
        left = found.lower[:, 0] <= threshold
        if found.state.empty is not None:
            left &= ~found.state.empty
        if not left.any():
            return True
        most -= int(left.sum())
        state = found.state.take(left)
        found = problem.bounds(branch(state, layers), "beta-crown", "lower")
    return False


def branch(state: bl.BoundState, layers: list[str]) -> bl.BoundState:
    """Two subdomains for each: the neuron whose relaxation loses most on either side of 0. Those
    without an unstable neuron stay as they are, and get better multipliers."""
    scores = [(-x.lower * x.upper).clamp(min=0) for x in map(state.__getitem__, layers)]
    best, place = torch.cat(scores, 1).max(1)
    sides = dict.fromkeys((1, -1), state)
    for layer, score in zip(layers, scores, strict=True):
        here: Tensor = (place >= 0) & (place < score.shape[1]) & (best > 0)
        for sign, side in sides.items():
            sides[sign] = side.split(layer, place[here], sign, samples=here)
        place = place - score.shape[1]
    return bl.BoundState.join([sides[1], sides[-1].take(best > 0)])


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
    net = bl.capture(model, torch.zeros(1, 2))
    region = bl.Linf(torch.zeros(1, 2), 2.0)
    with torch.no_grad():
        problem = net.problem(region, spec=torch.ones(1, 1))
        crown = float(problem.bounds().lower)
        lowest = min(float(model(region.sample())) for _ in range(5000))
        print(f"crown proves {crown:.3f}; the least value of 5000 points is {lowest:.3f}")
        for threshold in (crown, lowest - 0.05, lowest + 0.001):
            print(f"always above {threshold:.3f}: {prove(problem, ['0', '2'], threshold)}")


if __name__ == "__main__":
    main()
