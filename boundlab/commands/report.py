"""One HTML page about a certification: self-contained, without scripts, in light and dark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from importlib.resources import files

import torch
from torch import Tensor

from boundlab.commands.certificates import Certification, Row, Verdict
from boundlab.commands.charts import cut_chart, margin_bars, number, png
from boundlab.commands.counterexamples import Counterexamples
from boundlab.commands.cuts import Cut
from boundlab.version import VERSION

SHOWN = 200
"""Images in the grid at most."""
BARS = 10
"""Bars for an image at most: those of the smallest margins."""

MARKS = {
    Verdict.PROVED: ("yes", "✓"),
    Verdict.FALSIFIED: ("no", "✗"),
    Verdict.WRONG: ("no", "✗"),
    Verdict.OPEN: ("open", "?"),
}
"""The class and the sign of a verdict."""

STYLE = "\n" + (files("boundlab.commands") / "report.css").read_text()


def page(
    found: Certification,
    images: Tensor,
    cuts: Sequence[Cut],
    title: str,
    *,
    note: str = "",
    names: Sequence[str] | None = None,
) -> str:
    """The HTML text. images: (N, *shape), floating point, the ones that were certified; note: a
    sentence under the title; names: of the classes, their numbers if left out."""
    names = names or [str(k) for k in range(found.task.classes)]
    style = STYLE + _choice_style(len(found.radii))
    parts = [
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        'content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style}</style></head><body><main>",
        f"<h1>{escape(title)}</h1>",
        note and f'<p class="soft">{escape(note)}</p>',
        _facts(found),
        _summary(found),
        _cuts(cuts, names),
        _grid(found, images, names),
        f"<footer>Made by boundlab {escape(VERSION)}. An image is proved if it is classified "
        "correctly and every margin has a lower bound above zero; falsified if an input was found "
        "in its ball that is not classified so, which the model itself confirms; open otherwise. "
        "Bounds are computed in floating point.</footer></main></body></html>\n",
    ]
    return "\n".join(part for part in parts if part)


# -- summary ---------------------------------------------------------------------------------------


def _facts(found: Certification) -> str:
    count, correct = len(found.labels), int(found.correct.sum())
    valid = found.task.valid
    region = {"inf": "L∞ ball", "2": "L2 ball", "1": "L1 ball"}[found.task.norm]
    within = "values without limits"
    if valid is not None:
        within = f"values {number(valid[0])} to {number(valid[1])}"
    facts = [
        (str(count), "images"),
        (f"{correct / count:.1%}", f"{correct} classified correctly"),
        (region, within),
    ]
    return (
        '<ul class="facts">'
        + "".join(f"<li><b>{escape(value)}</b>{escape(what)}</li>" for value, what in facts)
        + "</ul>"
    )


def _summary(found: Certification) -> str:
    head = (
        "<tr><th>Method</th><th>Radius</th><th>Proved</th><th>Falsified</th><th>Open</th>"
        "<th>Mean margin</th><th>Seconds per image</th></tr>"
    )
    groups = []
    for method in found.methods:
        rows = [row for row in found.rows if row.method == method]
        names = [method] + [""] * (len(rows) - 1)  # the method stands beside its first row
        body = "".join(_row(name, row) for name, row in zip(names, rows, strict=True))
        groups.append(f"<tbody>{body}</tbody>")
    return (
        '<h2>Proved images</h2><p class="soft">The margin of an image is its smallest lower '
        "bound over all other classes; "
        "the mean is over all images, right or wrong.</p>"
        '<div class="scroll"><table '
        f'class="summary"><thead>{head}</thead>{"".join(groups)}</table></div>'
    )


def _row(name: str, row: Row) -> str:
    meter = f'<span class="meter"><i style="width:{100 * row.share:.1f}%"></i></span>'
    cells = (
        number(row.radius),
        f"{meter}{row.share:.1%}",
        f"{row.falsified / row.images:.1%}",
        f"{row.open / row.images:.1%}",
        number(row.mean_margin, ".3f"),
        number(row.seconds, ".4f"),
    )
    return f"<tr><th>{escape(name)}</th>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


# -- linear bounds ---------------------------------------------------------------------------------


def _cuts(cuts: Sequence[Cut], names: Sequence[str]) -> str:
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
    figures = "".join(
        f"<figure><figcaption><b>{escape(cut.method)}</b></figcaption>"
        f"{cut_chart(cut, low, high)}</figure>"
        for cut in shown
    )
    one = shown[0]
    key = "".join(
        f'<span><i class="key" style="background:var(--{colour})"></i>{what}</span> '
        for colour, what in (
            ("text", "the network, sampled"),
            ("accent", "lower bound"),
            ("upper", "upper bound"),
        )
    )
    return (
        f"<h2>Linear bounds inside one region</h2><p class='soft'>Image {one.image} at radius "
        f"{number(one.radius)}: the margin of its class "
        f"{escape(names[one.label])} over {escape(names[one.rival])}, along a line through the "
        "region. The linear bounds hold everywhere in it."
        f'</p><p class="soft keys">{key}</p><div class="cuts">{figures}</div>'
    )


# -- images ----------------------------------------------------------------------------------------


def _choice_style(count: int) -> str:
    """Which radius the bars show is a radio button's business: no script is needed."""
    return "".join(
        f"#pick{i}:checked ~ .grid .radius{i} {{ display: block; }} #pick{i}:checked ~ .choice "
        f"label[for=pick{i}] {{ background: var(--accent-soft); border-color: var(--accent); }} "
        f"#pick{i}:focus-visible ~ .choice label[for=pick{i}] {{ outline: 2px solid var(--accent); "
        "} "
        for i in range(count)
    )


def _grid(found: Certification, images: Tensor, names: Sequence[str]) -> str:
    count = min(len(images), SHOWN)
    chosen = len(found.radii) // 2
    state = {chosen: " checked"}
    picks = "".join(
        '<input class="pick" type="radio" name="radius" '
        f'id="pick{i}"{state.get(i, "")} aria-label="radius {number(radius)}">'
        for i, radius in enumerate(found.radii)
    )
    labels = "".join(
        f'<label for="pick{i}">{number(radius)}</label>' for i, radius in enumerate(found.radii)
    )
    some = ""
    if count < len(images):
        some = f" The first {count} of {len(images)} are shown."
    least, most = found.task.valid or (float(images[:count].min()), float(images[:count].max()))
    verdicts = {
        (run.method, run.radius): found.verdicts(run.radius, run.method) for run in found.runs
    }
    broken = [_broken(found, radius, names, (least, most)) for radius in found.radii]
    best = [found.best_margins(radius)[:count] for radius in found.radii]
    axes = [_axis(margins) for margins in best]
    cards = []
    for i in range(count):
        bars = "".join(
            '<div class="per-radius '
            f'radius{r}">{_bars(margins[i].tolist(), int(found.labels[i]), names, axes[r])}'
            f"{broken[r].get(i, '')}</div>"
            for r, margins in enumerate(best)
        )
        marks = _marks(found, {key: verdict[i] for key, verdict in verdicts.items()})
        cards.append(
            "<article "
            f'class="card">{_head(found, images[i], i, names, least, most)}{marks}{bars}</article>'
        )
    return (
        '<h2>Images</h2><p class="soft">Below each image: which method proves it at which '
        "radius (✓ proved, ✗ falsified, ? open), and the best lower bound of its margin over "
        "every other class. Bars below the line are classes that could not be ruled out. Where "
        "a counterexample was found in the ball of the chosen radius, it is shown with "
        f"the class that it became.{some}</p>"
        f'{picks}<div class="choice"><span class="soft">Margins at '
        f'radius</span>{labels}</div><div class="grid">{"".join(cards)}</div>'
    )


def _axis(margins: Tensor) -> tuple[float, float]:
    """The ends of the bars' axis for all images at one radius, without the outermost hundredth; a
    tenth below zero at least."""
    finite = margins[margins.isfinite()][:1_000_000]
    low, high = -1.0, 1.0
    if finite.numel():
        low, high = torch.quantile(finite, finite.new_tensor([0.01, 0.99])).tolist()
    size = max(-low, high, 1e-6)
    return min(low, -0.1 * size), max(high, 0.1 * size)


def _head(
    found: Certification, image: Tensor, i: int, names: Sequence[str], low: float, high: float
) -> str:
    label = int(found.labels[i])
    prediction = int(found.predictions[i])
    picture = png(image, low, high)
    shown = picture and f'<img src="{picture}" alt="image {i}">'
    verdict = f"predicted {escape(names[prediction]) if prediction >= 0 else 'NaN'}"
    if prediction != label:
        verdict = f'<span class="wrong">{verdict}</span>'
    return (
        f'<div class="head">{shown or ""}<div><b>{escape(names[label])}</b><br>{verdict}<br><span '
        f'class="soft">image {i}</span></div></div>'
    )


def _broken(
    found: Certification, radius: float, names: Sequence[str], ends: tuple[float, float]
) -> dict[int, str]:
    """Counterexamples of the images shown, by their numbers. ends: the least and the largest
    value of a picture."""
    held = found.examples
    if held is None:
        return {}
    shown = {image: k for image, k in held.nearest(radius).items() if image < SHOWN}
    return {image: _example(held, k, names, ends) for image, k in shown.items()}


def _example(held: Counterexamples, k: int, names: Sequence[str], ends: tuple[float, float]) -> str:
    image, became = int(held.image[k]), escape(names[int(held.became[k])])
    picture = png(held.input[k], *ends)
    shown = picture and f'<img src="{picture}" alt="counterexample of image {image}">'
    return (
        f'<div class="head found">{shown or ""}<div>becomes <b>{became}</b><br><span class="soft">'
        f"found at radius {number(float(held.radius[k]))}</span></div></div>"
    )


def _marks(found: Certification, verdicts: dict[tuple[str, float], Verdict]) -> str:
    """Methods down, radii across."""
    head = "".join(f"<th>{number(radius)}</th>" for radius in found.radii)
    body = []
    for method in found.methods:
        cells = []
        for radius in found.radii:
            if (method, radius) not in verdicts:
                cells.append("<td></td>")
            else:
                kind, mark = MARKS[verdicts[method, radius]]
                cells.append(f'<td class="{kind}" title="{verdicts[method, radius]}">{mark}</td>')
        body.append(f"<tr><th>{escape(method)}</th>{''.join(cells)}</tr>")
    return f'<table class="marks"><tr><th></th>{head}</tr>{"".join(body)}</table>'


def _bars(
    margins: Sequence[float], label: int, names: Sequence[str], axis: tuple[float, float]
) -> str:
    others = [name for k, name in enumerate(names) if k != label]
    order = sorted(
        range(len(margins)), key=lambda k: -math.inf if math.isnan(margins[k]) else margins[k]
    )
    kept = sorted(order[:BARS])
    return margin_bars([margins[k] for k in kept], [others[k] for k in kept], *axis)
