"""Draw the pictures of docs/pictures/, which explain how bounds are found. Everything in them is
computed by boundlab.

python scripts/draw_pictures.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle
from torch import Tensor, nn

import boundlab as bl
from boundlab.plot.half_planes import polygon
from boundlab.plot.style import FILL, INK, LOWER, PROVED, UPPER, figure, label_ends, save

PICTURES = Path(__file__).resolve().parent.parent / "docs" / "pictures"
SIDE = 1.0
"""The box of the pictures in the plane is [-SIDE, SIDE]^2."""


# -- what a relaxation is --------------------------------------------------------------------------


def relaxations() -> None:
    """One panel an operator: the function, and a line below and above it on an interval."""
    made, axes = figure(3, 7.6, 4.6, rows=2)
    functions = (
        ("relu", torch.relu, -1.0, 2.0),
        ("sigmoid, S-shaped", torch.sigmoid, -3.0, 5.0),
        ("tanh, where it is concave", torch.tanh, 0.0, 2.5),
        ("sin, over most of a wave", torch.sin, -1.0, 4.0),
        ("x sin(x), two rules", lambda x: x * torch.sin(x), 0.5, 3.5),
    )
    for ax, (title, function, lower, upper) in zip(axes, functions, strict=False):
        bl.plot.relaxation(function, lower, upper, ax=ax)
        ax.set_title(title, loc="left", fontsize=8.5)
    product(axes[5])
    for ax in (axes[2], axes[5]):
        label_ends(ax, gap=0.1)
    for ax in axes[:3]:
        ax.set_xlabel("")
    save(made, PICTURES / "relaxations.svg")


class Product(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[:, :1] * x[:, 1:]


def product(ax: Axes) -> None:
    """The planes of McCormick below and above x y, along both diagonals' common line x = y."""
    corners = torch.tensor([[-1.0, -1.0], [2.0, 2.0]], dtype=torch.float64)
    net = bl.capture(Product(), corners[:1])
    lines = net.linear_bounds(bl.Box(corners[:1], corners[1:]))
    t = torch.linspace(-1.0, 2.0, 61, dtype=torch.float64)
    ax.plot(t, t * t, color=INK, linestyle="-", label="function")
    for matrix, offset, colour, label in (
        (lines.upper_A, lines.upper_b, UPPER, "upper line"),
        (lines.lower_A, lines.lower_b, LOWER, "lower line"),
    ):
        (slope,) = matrix.values()
        line = slope.sum() * t[[0, -1]] + offset.sum()
        ax.plot(t[[0, -1]], line, color=colour, linestyle="-", label=label)
    ax.set_title("x · y over a box, along x = y", loc="left", fontsize=8.5)
    ax.set_xlabel("x = y")


# -- methods ---------------------------------------------------------------------------------------


def methods() -> None:
    """A network of one input: what is below and above it by two methods over one interval, and the
    bounds of three methods over intervals of growing width."""
    torch.manual_seed(5)
    model = nn.Sequential(
        nn.Linear(1, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1)
    ).double()
    net = bl.capture(model, torch.zeros(1, 1, dtype=torch.float64))
    made, axes = figure(3, 8.0, 2.7)
    x = torch.linspace(-1.0, 1.0, 201, dtype=torch.float64)[:, None]
    y = model(x).detach()
    for ax, method in zip(axes, ("ibp", "crown"), strict=False):
        below, above = lines_of(net, interval(1.0), method)
        ax.fill_between((-1, 1), below, above, color=INK, alpha=FILL / 2, linewidth=0)
        ax.plot(x[:, 0], y[:, 0], color=INK, linestyle="-")
        ax.plot((-1, 1), above, color=UPPER, linestyle="-")
        ax.plot((-1, 1), below, color=LOWER, linestyle="-")
        ax.set(xlabel="input", ylabel="output")
        ax.set_title(f"{method} over [-1, 1]", loc="left")
        ax.sharey(axes[0])
    by_width(axes[2], net, model)
    save(made, PICTURES / "methods.svg")


def interval(radius: float) -> bl.Box:
    end = torch.tensor([[radius]], dtype=torch.float64)
    return bl.Box(-end, end)


def by_width(ax: Axes, net: bl.Net, model: nn.Module) -> None:
    """Bounds of the output over [-r, r] by three methods, and the range that is sampled."""
    radii = torch.linspace(0.05, 1.0, 20, dtype=torch.float64)
    seen = [model(r * torch.linspace(-1, 1, 201, dtype=r.dtype)[:, None]) for r in radii]
    least, greatest = (torch.tensor([f(y.detach()) for y in seen]) for f in (torch.min, torch.max))
    ax.fill_between(radii, least, greatest, color=INK, alpha=FILL, linewidth=0)
    for method in ("ibp", "crown", "alpha-crown"):
        with torch.no_grad():
            found = [net.bounds(interval(float(r)), method=method) for r in radii]
        (line,) = ax.plot(radii, [bounds.lower.item() for bounds in found], "-")
        ax.plot(
            radii, [bounds.upper.item() for bounds in found], "-", color=line.get_color(),
            label=method,
        )  # fmt: skip
    ax.plot(radii, greatest, color=INK, linewidth=0.8, linestyle="-", label="sampled")
    ax.plot(radii, least, color=INK, linewidth=0.8, linestyle="-")
    ax.set(xlabel="r")
    ax.set_title("bounds over [-r, r]", loc="left")
    label_ends(ax, gap=0.09)


def lines_of(net: bl.Net, region: bl.Box, method: str) -> tuple[Tensor, Tensor]:
    """What is below and above the output at both ends of an interval: lines, or for interval
    arithmetic constants."""
    with torch.no_grad():
        if method == "ibp":
            bounds = net.bounds(region, method=method)
            return bounds.lower.expand(1, 2)[0], bounds.upper.expand(1, 2)[0]
        lines = net.linear_bounds(region, method=method)
    ends = torch.cat([region.lower, region.upper])[:, 0]
    (lower,), (upper,) = lines.lower_A.values(), lines.upper_A.values()
    return (
        lower.reshape(()) * ends + lines.lower_b.reshape(()),
        upper.reshape(()) * ends + lines.upper_b.reshape(()),
    )


# -- branch and bound ------------------------------------------------------------------------------


def positive_network() -> nn.Sequential:
    """A network of two inputs whose output is a little above 0 everywhere in the box."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1)
    ).double()
    with torch.no_grad():
        model[0].weight.mul_(4)
        model[2].weight.mul_(1.5)
        least = float(model(grid(101)).min())
        model[4].bias.add_(0.03 - least)
    return model


def grid(count: int) -> Tensor:
    at = torch.linspace(-SIDE, SIDE, count, dtype=torch.float64)
    return torch.cartesian_prod(at, at)


def halves(boxes: Tensor) -> Tensor:
    """(boxes, 2, 2), lower and upper corners: each box as two, across its longer side."""
    lower, upper = boxes[:, 0], boxes[:, 1]
    longer = torch.nn.functional.one_hot((upper - lower).argmax(1), 2).bool()
    middle = (lower + upper) / 2
    left = torch.stack([lower, torch.where(longer, middle, upper)], 1)
    right = torch.stack([torch.where(longer, middle, lower), upper], 1)
    return torch.cat([left, right])


def branch_and_bound() -> None:
    """Boxes that crown proves, and those that it leaves open, which are split, round by round."""
    model = positive_network()
    boxes = torch.tensor([[[-SIDE, -SIDE], [SIDE, SIDE]]], dtype=torch.float64)
    net = bl.capture(model, boxes[:, 0])
    proved: list[Tensor] = []
    rounds: list[tuple[int, list[Tensor], Tensor]] = []
    bounded = 0
    while len(boxes):
        with torch.no_grad():
            lower = net.bounds(bl.Box(boxes[:, 0], boxes[:, 1]), sides="lower").lower[:, 0]
        bounded += len(boxes)
        proved = [*proved, boxes[lower > 0]]
        still_open = boxes[lower <= 0]
        rounds.append((bounded, proved, still_open))
        boxes = halves(still_open)
    print(f"branch and bound: {len(rounds)} rounds, {bounded} boxes")
    shown = [rounds[round(k * (len(rounds) - 1) / 3)] for k in range(4)]
    made, axes = figure(4, 8.4, 2.3)
    for ax, (count, done, still_open) in zip(axes, shown, strict=True):
        for sort, colour in ((torch.cat(done), PROVED), (still_open, UPPER)):
            for low, high in sort.tolist():
                ax.add_patch(box_patch(low, high, colour))
        frame(ax, -SIDE, SIDE)
        ax.set_title(f"{count} bounded, {len(still_open)} open", loc="left", fontsize=8.5)
    axes[0].set_ylabel("input 1")
    corner = [0.0, 0.0]
    sorts = {"open": UPPER, "proved": PROVED}
    key(axes[-1], {name: box_patch(corner, corner, colour) for name, colour in sorts.items()})
    save(made, PICTURES / "branch_and_bound.svg")


def box_patch(low: list[float], high: list[float], colour: str) -> Rectangle:
    width, height = high[0] - low[0], high[1] - low[1]
    return Rectangle(
        (low[0], low[1]),
        width,
        height,
        facecolor=colour,
        alpha=0.45,
        edgecolor=colour,
        linewidth=0.8,
    )


def frame(ax: Axes, low: float, high: float) -> None:
    """Show the square [low, high]^2."""
    room = 0.03 * (high - low)
    ends = (low - room, high + room)
    marks = (low, (low + high) / 2, high)
    ax.set(xlim=ends, ylim=ends, aspect="equal", xticks=marks, yticks=marks, xlabel="input 0")
    ax.grid(False)


def key(ax: Axes, entries: dict[str, Patch]) -> None:
    """A legend of these entries to the right."""
    ax.legend(
        list(entries.values()),
        list(entries),
        loc="upper left",
        bbox_to_anchor=(1.0, 1.0),
        fontsize=8.5,
    )


# -- clipping --------------------------------------------------------------------------------------


def clipping() -> None:
    """Where the plane below the output is at most 0, in a box that is not proved; the box around
    that part; and the same again in the smaller box, whose planes are tighter."""
    model = positive_network()
    box = torch.tensor([[-SIDE, -SIDE], [0.0, 0.0]], dtype=torch.float64)
    net = bl.capture(model, box[:1])
    made, axes = figure(3, 7.6, 2.5)
    for ax, title in zip(axes, ("a box", "clipped", "clipped again"), strict=True):
        low, high = box.tolist()
        around = box_patch(low, high, PROVED)
        left = undecided(net, box)
        box = torch.from_numpy(np.stack([left.min(0), left.max(0)]))
        width, height = (box[1] - box[0]).tolist()
        remaining = Rectangle(
            tuple(box[0].tolist()), width, height, fill=False, edgecolor=INK, linestyle="--"
        )
        for patch in (around, remaining):
            ax.add_patch(patch)
        (open_,) = ax.fill(*left.T, color=UPPER, alpha=0.6, linewidth=0)
        frame(ax, -SIDE, 0.0)
        ax.set_title(title, loc="left")
    axes[0].set_ylabel("input 1")
    key(axes[-1], {"proved": around, "plane ≤ 0": open_, "what remains": remaining})
    save(made, PICTURES / "clipping.svg")


def undecided(net: bl.Net, box: Tensor) -> np.ndarray:
    """The corners of the part of a box (2, 2) where the plane below the output is at most 0."""
    with torch.no_grad():
        lines = net.linear_bounds(bl.Box(box[:1], box[1:]))
    (slopes,) = lines.lower_A.values()
    ways = np.concatenate([np.eye(2), slopes.reshape(1, 2).numpy()])
    lower = np.append(box[0].numpy(), -np.inf)
    upper = np.append(box[1].numpy(), -float(lines.lower_b.reshape(())))
    return polygon(ways, lower, upper).corners


def main() -> None:
    relaxations()
    methods()
    branch_and_bound()
    clipping()


if __name__ == "__main__":
    main()
