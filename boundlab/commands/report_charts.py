"""The charts of a report about a certification: accuracies by radius, largest certified radii,
margins, and which classes could not be ruled out."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import torch
from torch import Tensor

from boundlab.commands.certificates import Certification, Verdict
from boundlab.commands.charts import (
    Curve,
    Part,
    binned,
    columns,
    counted,
    cut_chart,
    number,
    share_chart,
    ticks,
)
from boundlab.commands.cuts import LINEAR, Cut
from boundlab.commands.page import keys

CLASSES = 20
"""Rows of the matrix of classes at most."""
STYLES = 6
"""Styles of curves that tell methods apart."""
WORDS = {
    Verdict.PROVED: "proved",
    Verdict.OPEN: "open",
    Verdict.FALSIFIED: "falsified",
    Verdict.WRONG: "wrong",
}
"""Verdicts in the order in which bars show them."""


def figure(title: str, note: str, content: str, kind: str = "") -> str:
    """A chart with its title and a sentence that says what it shows; all HTML but the title."""
    return (
        f'<figure class="{kind}"><figcaption><h3>{escape(title)}</h3>'
        f'<p class="soft">{note}</p></figcaption>{content}</figure>'
    )


def verdict_keys() -> str:
    return keys([(word, word) for word in WORDS.values()])


# -- accuracies ------------------------------------------------------------------------------------


def accuracy_figure(found: Certification, axis: str) -> str:
    """Verified accuracy against the radius, a line for each method; clean and attacked accuracy
    above them. axis: the name of the horizontal axis."""
    radii = sorted(found.radii)
    count, correct = len(found.labels), int(found.correct.sum())
    clean = correct / count
    curves = [Curve("clean", "clean", [(0.0, clean), (radii[-1], clean)], dots=False)]
    if was_attacked(found):
        shares = [(correct - int(found.falsified(radius).sum())) / count for radius in radii]
        curves.append(Curve("attacked", "attacked", _from_zero(clean, radii, shares)))
    for k, method in enumerate(found.methods):
        rows = sorted((row for row in found.rows if row.method == method), key=lambda r: r.radius)
        own = _from_zero(clean, [row.radius for row in rows], [row.share for row in rows])
        curves.append(Curve(f"style{k % STYLES}", method, own))
    note = (
        "The share of images that each method proves, and above it what is left after the attack: "
        "the true share lies between. Dots are what was computed; at radius 0 it is the clean "
        "accuracy."
    )
    label = "verified accuracy against the radius, by method; the table below has the numbers"
    return figure("Accuracy against radius", note, share_chart(curves, axis, label))


def _from_zero(
    clean: float, radii: Sequence[float], shares: Sequence[float]
) -> list[tuple[float, float]]:
    points = list(zip(radii, shares, strict=True))
    if points and points[0][0] > 0:
        points.insert(0, (0.0, clean))
    return points


def was_attacked(found: Certification) -> bool:
    """Whether counterexamples were searched for."""
    return bool(found.attacks) or (found.examples is not None and len(found.examples) > 0)


# -- histograms ------------------------------------------------------------------------------------


def radii_figure(found: Certification, axis: str) -> str:
    """How many images are proved up to which of the radii; nothing if there is one radius."""
    radii = sorted(found.radii)
    if len(radii) < 2:
        return ""
    proved = torch.stack([found.proved(radius) for radius in radii])  # (radii, N)
    largest = proved.sum(0)  # proved at a radius is proved at all smaller ones: (N,)
    counts = [int((largest == k).sum()) for k in range(len(radii) + 1)]
    wrong = int((~found.correct).sum())
    names = ["wrong", "none", *map(number, radii)]
    nothing = [0] * len(radii)
    parts = [
        Part("proved", "proved up to this radius", [0, 0, *counts[1:]]),
        Part("open", "proved at none of the radii", [0, counts[0] - wrong, *nothing]),
        Part("wrong", "classified wrongly", [wrong, 0, *nothing]),
    ]
    chart = columns(names, parts, axis, "how many images are proved up to which radius")
    note = "The largest of the radii at which some method proves an image."
    return figure("Largest certified radius", note, chart)


def margins_figure(found: Certification, radius: float) -> str:
    """How many images have which smallest margin at a radius, by their verdicts."""
    least = found.best_margins(radius).amin(1)
    finite = least.isfinite()
    values = least[finite]
    left_out = int((~finite).sum())
    low, high, count = _bins(values)
    verdicts = found.verdicts(radius)
    parts = []
    for verdict, word in WORDS.items():
        kind = torch.tensor([one == verdict for one in verdicts])
        parts.append(Part(word, word, counted(least[kind & finite].tolist(), low, high, count)))
    edges = [low + (high - low) * k / count for k in range(count + 1)]
    note = (
        f"The smallest margin of each image at radius {number(radius)}, the best of all methods: "
        "right of zero it is proved."
    )
    if left_out:
        note += f" {left_out} images without a finite bound are left out."
    if values.numel() and bool(((values < low) | (values > high)).any()):
        note += " The outermost columns hold all that lies beyond them."
    chart = binned(edges, parts, "smallest margin", "how many images have which smallest margin")
    return figure("Margins", note, verdict_keys() + chart)


def _bins(values: Tensor) -> tuple[float, float, int]:
    """The ends of a histogram without the outermost hundredth of the values, and its number of
    columns of a round width; zero is an edge."""
    low, high = 0.0, 0.0
    if values.numel():
        ends = values.new_tensor([0.01, 0.99])
        low, high = torch.quantile(values[:1_000_000], ends).tolist()
    low, high = min(low, 0.0), max(high, 0.0)
    if high - low < 1e-9:
        high = low + 1.0
    first, second, *_ = ticks(low, high)
    width = (second - first) / 4
    below, above = int(-low // width) + 1, int(high // width) + 1
    if low == 0:
        below = 0
    return -below * width, above * width, below + above


# -- classes ---------------------------------------------------------------------------------------


def classes_figure(found: Certification, radius: float, names: Sequence[str]) -> str:
    """How many images of each label could not be told from which other class."""
    counts = not_ruled_out(found, radius)
    order = (counts.sum(0) + counts.sum(1)).argsort(descending=True, stable=True)
    kept = sorted(order[:CLASSES].tolist())
    if not int(counts.sum()):
        kept = []
    left_out = int((counts.sum(0) + counts.sum(1) > 0).sum()) - len(kept)
    if not kept:
        content = '<p class="soft">Every other class was ruled out for every image.</p>'
    else:
        content = _matrix(counts, kept, names)
    note = (
        f"How many correctly classified images of each label are not proved against which other "
        f"class at radius {number(radius)}, by the best of all methods. An image may count for "
        "several classes."
    )
    if left_out > 0:
        note += f" The {len(kept)} classes with the most are shown."
    return figure("Classes that could not be ruled out", note, content)


def not_ruled_out(found: Certification, radius: float) -> Tensor:
    """counts[y, k]: correctly classified images of label y that no method proves at a radius and
    whose best margin over class k is not known to be positive: (classes, classes)."""
    classes = found.task.classes
    best = found.best_margins(radius)  # (N, classes - 1)
    places = torch.arange(classes - 1).expand(len(best), -1)
    others = places + (places >= found.labels[:, None])  # the class of each margin
    doubtful = ~((best > 0) & best.isfinite()) & (found.correct & ~found.proved(radius))[:, None]
    pairs = (found.labels[:, None] * classes + others)[doubtful]
    return torch.bincount(pairs, minlength=classes * classes).reshape(classes, classes)


def _matrix(counts: Tensor, kept: Sequence[int], names: Sequence[str]) -> str:
    most = int(counts.max())
    head = "".join(f'<th scope="col">{escape(names[k])}</th>' for k in kept)
    rows = []
    for label in kept:
        cells = []
        for k in kept:
            count = int(counts[label, k])
            if k == label:
                cells.append('<td class="same"></td>')
            elif count:
                cells.append(f'<td style="--part:{100 * count / most:.0f}%">{count}</td>')
            else:
                cells.append('<td class="zero">0</td>')
        rows.append(f'<tr><th scope="row">{escape(names[label])}</th>{"".join(cells)}</tr>')
    return (
        '<div class="scroll bare"><table class="matrix"><caption>rows: label; columns: class that '
        f"is not ruled out</caption><thead><tr><td></td>{head}</tr></thead><tbody>{''.join(rows)}"
        "</tbody></table></div>"
    )


# -- linear bounds ---------------------------------------------------------------------------------


def cuts_section(cuts: Sequence[Cut], methods: Sequence[str], names: Sequence[str]) -> str:
    """Linear bounds along a line through one ball, a panel for each method that has them."""
    shown = [
        cut
        for cut in cuts
        if all(bool(line.isfinite().all()) for line in (cut.value, cut.lower, cut.upper))
    ]
    if not shown:
        return ""
    low = min(float(line.min()) for cut in shown for line in (cut.value, cut.lower, cut.upper))
    high = max(float(line.max()) for cut in shown for line in (cut.value, cut.lower, cut.upper))
    low, high = min(low - 0.04 * (high - low), 0.0), max(high + 0.04 * (high - low), 0.0)
    one = shown[0]
    label, rival = names[one.label], names[one.rival]
    name = f"margin of {label} over {rival}"
    figures = "".join(
        figure(cut.method, _range(cut), cut_chart(cut, low, high, name)) for cut in shown
    )
    key = keys(
        [("text", "the network, sampled"), ("accent", "lower bound"), ("upper", "upper bound")]
    )
    without = ", ".join(method for method in methods if method not in LINEAR)
    missing = ""
    if without:
        missing = f" No panel for {without}: there is no single pair of such functions."
    return (
        '<section class="keep"><h2>Linear bounds inside one ball</h2><p class="soft">Image '
        f"{one.image} at radius {number(one.radius)}, where these methods differ most: the margin "
        f"of its label {escape(label)} over class {escape(rival)} on a straight line through the "
        "ball, between two linear functions that hold everywhere in the ball. The closer they are "
        f"to it, the better.{escape(missing)}</p>{key}"
        f'<div class="cuts">{figures}</div></section>'
    )


def _range(cut: Cut) -> str:
    low, high = number(float(cut.lower.min())), number(float(cut.upper.max()))
    return f"between {low} and {high} on this line"
