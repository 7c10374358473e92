"""One HTML page about a certification: self-contained, without scripts, in light and dark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path

import torch
from torch import Tensor

from boundlab.commands.certificates import Certification, Row
from boundlab.commands.charts import cut_chart, margin_bars, number, png
from boundlab.commands.cuts import Cut
from boundlab.files import write_atomically
from boundlab.version import VERSION

SHOWN = 200
"""Images in the grid at most."""
BARS = 10
"""Bars for an image at most: those of the smallest margins."""

STYLE = """
:root { color-scheme: light dark; --page: #f6f7f9; --card: #fff; --text: #1b2430; --soft: #5b6675; --line: #dde2e9;
  --good: #0b7a53; --good-soft: #d8f0e5; --bad: #b3372b; --bad-soft: #f8e0dc; --accent: #2358c4; --accent-soft: #dbe6fb; --upper: #b5650b; }
@media (prefers-color-scheme: dark) { :root { --page: #12161c; --card: #1b2129; --text: #e6eaf0; --soft: #9aa6b5; --line: #313a46;
  --good: #4cc795; --good-soft: #173b2e; --bad: #f08a7c; --bad-soft: #45211d; --accent: #84aef8; --accent-soft: #1d2e4d; --upper: #f0a95c; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text); font: 15px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 28px 20px 48px; }
h1 { font-size: 26px; line-height: 1.2; margin: 0 0 6px; } h2 { font-size: 19px; margin: 36px 0 6px; } p { margin: 0 0 12px; max-width: 76ch; }
.soft, figcaption, footer { color: var(--soft); } footer { margin-top: 40px; font-size: 13px; }
.facts { display: flex; flex-wrap: wrap; gap: 12px; margin: 18px 0 0; padding: 0; list-style: none; }
.facts li { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 10px 16px; min-width: 130px; }
.facts b { display: block; font-size: 21px; line-height: 1.25; }
.scroll { overflow-x: auto; background: var(--card); border: 1px solid var(--line); border-radius: 10px; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
.summary { width: 100%; } .summary th, .summary td { padding: 6px 14px; text-align: right; white-space: nowrap; }
.summary th { font-weight: 600; color: var(--soft); font-size: 13px; }
.summary th:first-child { text-align: left; color: var(--text); font-size: 15px; }
.summary tbody { border-top: 1px solid var(--line); }
.meter { display: inline-block; vertical-align: middle; width: 110px; height: 9px; margin-right: 10px; border-radius: 5px; background: var(--line); }
.meter i { display: block; height: 100%; border-radius: 5px; background: var(--good); }
.cuts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(300px, 100%), 1fr)); gap: 14px; }
figure { margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 12px 14px; min-width: 0; }
figcaption { font-size: 13px; } figcaption b { color: var(--text); font-size: 15px; }
svg { display: block; width: 100%; height: auto; } svg text { fill: var(--soft); font: 11px system-ui, sans-serif; }
.cut .tick { stroke: var(--line); } .cut .zero { stroke: var(--soft); stroke-dasharray: 3 3; } .cut .band { fill: var(--accent-soft); opacity: .6; }
.cut polyline { fill: none; stroke-width: 2; } .cut .lower { stroke: var(--accent); } .cut .upper { stroke: var(--upper); }
.cut .value { stroke: var(--text); }
.key { display: inline-block; width: 18px; height: 3px; border-radius: 2px; vertical-align: middle; margin: 0 6px 0 0; }
.keys span + span { margin-left: 16px; }
.choice { display: flex; flex-wrap: wrap; align-items: center; gap: 6px; margin: 0 0 14px; }
.pick { position: absolute; opacity: 0; } .choice label { padding: 3px 13px; border: 1px solid var(--line); border-radius: 99px; cursor: pointer; }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(250px, 100%), 1fr)); gap: 14px; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 12px 14px; min-width: 0; }
.head { display: flex; gap: 12px; align-items: center; margin-bottom: 8px; }
.head img { width: 64px; height: 64px; image-rendering: pixelated; border-radius: 6px; object-fit: contain; }
.wrong, .no { color: var(--bad); } .yes { color: var(--good); } .marks { width: 100%; font-size: 12px; table-layout: auto; }
.marks th { font-weight: 500; color: var(--soft); padding: 0 4px; text-align: center; } .marks th:first-child { text-align: left; padding-left: 0; }
.marks td { padding: 1px 4px; text-align: center; font-weight: 700; }
.bars { margin-top: 8px; } .bars text { font-size: 8.5px; text-anchor: middle; } .bars line { stroke: var(--soft); stroke-width: .7; }
.bars .good { fill: var(--good); } .bars .bad { fill: var(--bad); } .per-radius { display: none; }
@media (max-width: 640px) { main { padding: 20px 14px 32px; } .meter { display: none; } .summary { font-size: 13px; }
  .summary th, .summary td { padding: 5px 7px; white-space: normal; } .summary th:first-child { font-size: 13px; }
  .keys span { display: block; margin: 0 !important; } }
"""


def write_report(
    path: Path | str,
    found: Certification,
    images: Tensor,
    cuts: Sequence[Cut] = (),
    title: str = "Certified robustness",
    note: str = "",
    names: Sequence[str] | None = None,
) -> None:
    """Write the page, whole or not at all. images: (N, *shape), floating point, the ones that were certified; note: a
    sentence under the title; names: of the classes, their numbers if left out."""
    write_atomically(path, page(found, images, cuts, title, note, names))


def page(found: Certification, images: Tensor, cuts: Sequence[Cut], title: str, note: str = "", names: Sequence[str] | None = None) -> str:
    """The HTML text."""
    names = list(names) if names is not None else [str(k) for k in range(found.task.classes)]
    parts = [
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}{_choice_style(len(found.radii))}</style></head><body><main>",
        f"<h1>{escape(title)}</h1>",
        f'<p class="soft">{escape(note)}</p>' if note else "",
        _facts(found),
        _summary(found),
        _cuts(cuts, names),
        _grid(found, images, names),
        f"<footer>Made by boundlab {escape(VERSION)}. An image is verified if it is classified correctly and every margin has a lower bound above "
        "zero; bounds are computed in floating point.</footer></main></body></html>\n",
    ]
    return "\n".join(part for part in parts if part)


# -- summary -----------------------------------------------------------------------------------------------------------


def _facts(found: Certification) -> str:
    count, correct = len(found.labels), int(found.correct.sum())
    valid = found.task.valid
    region = {"inf": "L∞ ball", "2": "L2 ball", "1": "L1 ball"}[found.task.norm]
    within = f"values {number(valid[0])} to {number(valid[1])}" if valid else "values without limits"
    facts = [(str(count), "images"), (f"{correct / count:.1%}", f"{correct} classified correctly"), (region, within)]
    return '<ul class="facts">' + "".join(f"<li><b>{escape(value)}</b>{escape(what)}</li>" for value, what in facts) + "</ul>"


def _summary(found: Certification) -> str:
    head = "<tr><th>Method</th><th>Radius</th><th>Verified</th><th>Mean margin</th><th>Seconds per image</th></tr>"
    groups = []
    for method in found.methods:
        rows = [row for row in found.rows if row.method == method]
        groups.append("<tbody>" + "".join(_row(row, first=i == 0) for i, row in enumerate(rows)) + "</tbody>")
    return (
        '<h2>Verified images</h2><p class="soft">The margin of an image is its smallest lower bound over all other classes; '
        "the mean is over all images, right or wrong.</p>"
        f'<div class="scroll"><table class="summary"><thead>{head}</thead>{"".join(groups)}</table></div>'
    )


def _row(row: Row, first: bool) -> str:
    meter = f'<span class="meter"><i style="width:{100 * row.share:.1f}%"></i></span>'
    cells = (number(row.radius), f"{meter}{row.share:.1%}", number(row.mean_margin, ".3f"), number(row.seconds, ".4f"))
    return f"<tr><th>{escape(row.method) if first else ''}</th>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


# -- linear bounds -----------------------------------------------------------------------------------------------------


def _cuts(cuts: Sequence[Cut], names: Sequence[str]) -> str:
    shown = [cut for cut in cuts if all(bool(line.isfinite().all()) for line in (cut.value, cut.lower, cut.upper))]
    if not shown:
        return ""
    low = min(float(line.min()) for cut in shown for line in (cut.value, cut.lower, cut.upper))
    high = max(float(line.max()) for cut in shown for line in (cut.value, cut.lower, cut.upper))
    low, high = min(low - 0.04 * (high - low), 0.0), max(high + 0.04 * (high - low), 0.0)
    figures = "".join(f"<figure><figcaption><b>{escape(cut.method)}</b></figcaption>{cut_chart(cut, low, high)}</figure>" for cut in shown)
    one = shown[0]
    key = "".join(
        f'<span><i class="key" style="background:var(--{colour})"></i>{what}</span> '
        for colour, what in (("text", "the network, sampled"), ("accent", "lower bound"), ("upper", "upper bound"))
    )
    return (
        f"<h2>Linear bounds inside one region</h2><p class='soft'>Image {one.image} at radius {number(one.radius)}: the margin of its class "
        f"{escape(names[one.label])} over {escape(names[one.rival])}, along a line through the region. The linear bounds hold everywhere in it."
        f'</p><p class="soft keys">{key}</p><div class="cuts">{figures}</div>'
    )


# -- images ------------------------------------------------------------------------------------------------------------


def _choice_style(count: int) -> str:
    """Which radius the bars show is a radio button's business: no script is needed."""
    return "".join(
        f"#pick{i}:checked ~ .grid .radius{i} {{ display: block; }} "
        f"#pick{i}:checked ~ .choice label[for=pick{i}] {{ background: var(--accent-soft); border-color: var(--accent); }} "
        f"#pick{i}:focus-visible ~ .choice label[for=pick{i}] {{ outline: 2px solid var(--accent); }} "
        for i in range(count)
    )


def _grid(found: Certification, images: Tensor, names: Sequence[str]) -> str:
    count = min(len(images), SHOWN)
    chosen = len(found.radii) // 2
    picks = "".join(
        f'<input class="pick" type="radio" name="radius" id="pick{i}"{" checked" if i == chosen else ""} aria-label="radius {number(radius)}">'
        for i, radius in enumerate(found.radii)
    )
    labels = "".join(f'<label for="pick{i}">{number(radius)}</label>' for i, radius in enumerate(found.radii))
    some = f" The first {count} of {len(images)} are shown." if count < len(images) else ""
    least, most = found.task.valid or (float(images[:count].min()), float(images[:count].max()))
    verdicts = {(run.method, run.radius): found.verified(run)[:count].tolist() for run in found.runs}
    best = [found.best_margins(radius)[:count] for radius in found.radii]
    axes = [_axis(margins) for margins in best]
    cards = []
    for i in range(count):
        bars = "".join(
            f'<div class="per-radius radius{r}">{_bars(margins[i].tolist(), int(found.labels[i]), names, axes[r])}</div>'
            for r, margins in enumerate(best)
        )
        marks = _marks(found, {key: verdict[i] for key, verdict in verdicts.items()})
        cards.append(f'<article class="card">{_head(found, images[i], i, names, least, most)}{marks}{bars}</article>')
    return (
        '<h2>Images</h2><p class="soft">Below each image: which method verifies it at which radius, and the best lower bound of its margin over '
        f"every other class. Bars below the line are classes that could not be ruled out.{some}</p>"
        f'{picks}<div class="choice"><span class="soft">Margins at radius</span>{labels}</div><div class="grid">{"".join(cards)}</div>'
    )


def _axis(margins: Tensor) -> tuple[float, float]:
    """The ends of the bars' axis for all images at one radius, without the outermost hundredth; a tenth below zero at least."""
    finite = margins[margins.isfinite()][:1_000_000]
    low, high = torch.quantile(finite, torch.tensor([0.01, 0.99], dtype=finite.dtype)).tolist() if finite.numel() else (-1.0, 1.0)
    size = max(-low, high, 1e-6)
    return min(low, -0.1 * size), max(high, 0.1 * size)


def _head(found: Certification, image: Tensor, i: int, names: Sequence[str], low: float, high: float) -> str:
    label, prediction = int(found.labels[i]), int(found.predictions[i])
    picture = png(image, low, high)
    shown = f'<img src="{picture}" alt="image {i}">' if picture else ""
    predicted = escape(names[prediction]) if prediction >= 0 else "NaN"
    verdict = f"predicted {predicted}" if prediction == label else f'<span class="wrong">predicted {predicted}</span>'
    return f'<div class="head">{shown}<div><b>{escape(names[label])}</b><br>{verdict}<br><span class="soft">image {i}</span></div></div>'


def _marks(found: Certification, verdicts: dict[tuple[str, float], bool]) -> str:
    """Methods down, radii across."""
    head = "".join(f"<th>{number(radius)}</th>" for radius in found.radii)
    body = []
    for method in found.methods:
        cells = []
        for radius in found.radii:
            if (method, radius) not in verdicts:
                cells.append("<td></td>")
            elif verdicts[method, radius]:
                cells.append('<td class="yes" title="verified">✓</td>')
            else:
                cells.append('<td class="no" title="not verified">✗</td>')
        body.append(f"<tr><th>{escape(method)}</th>{''.join(cells)}</tr>")
    return f'<table class="marks"><tr><th></th>{head}</tr>{"".join(body)}</table>'


def _bars(margins: Sequence[float], label: int, names: Sequence[str], axis: tuple[float, float]) -> str:
    others = [name for k, name in enumerate(names) if k != label]
    order = sorted(range(len(margins)), key=lambda k: -math.inf if math.isnan(margins[k]) else margins[k])
    kept = sorted(order[:BARS])
    return margin_bars([margins[k] for k in kept], [others[k] for k in kept], *axis)
