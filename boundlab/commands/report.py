"""One HTML page about a certification: self-contained, in light and dark. A script filters and
sorts the images; without it the page says the same."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

import torch
from torch import Tensor

from boundlab.commands.certificates import Certification, Row, Task, Verdict
from boundlab.commands.charts import brief, number
from boundlab.commands.cuts import Cut
from boundlab.commands.gallery import SHOWN, Album, Card, class_name, gallery
from boundlab.commands.page import (
    HATCHED,
    LIST_SCRIPT,
    asset,
    breakable,
    choice,
    document,
    footer,
    made_section,
    meter,
)
from boundlab.commands.report_charts import (
    accuracy_figure,
    classes_figure,
    cuts_section,
    margins_figure,
    radii_figure,
    was_attacked,
)

LETTERS = {Verdict.PROVED: "p", Verdict.FALSIFIED: "f", Verdict.OPEN: "o", Verdict.WRONG: "w"}
"""Verdicts in the page, where they stand thousands of times."""
TOGETHER = "all methods together"
NEAREST = 2
"""Classes that a card names at most for a radius."""
BALLS = {
    "inf": ("L∞", "no value changes by more than the radius"),
    "2": ("L2", "the change has at most this Euclidean length"),
    "1": ("L1", "all changes sum up to at most the radius"),
}
"""What a ball of a norm is, in words."""

STYLE = asset("report.css")
SCRIPT = LIST_SCRIPT + asset("report.js")


@dataclass(frozen=True)
class About:
    """What a report says of where it comes from. note: a sentence under the title; made: how, as
    pairs of words; names: of the classes, their numbers if there are none."""

    title: str
    note: str = ""
    made: Sequence[tuple[str, str]] = ()
    names: Sequence[str] = ()


def page(found: Certification, images: Tensor, cuts: Sequence[Cut], about: About) -> str:
    """The HTML text. images: (N, *shape), floating point, the ones that were certified."""
    names = about.names or [str(k) for k in range(found.task.classes)]
    chosen = headline(found)
    axis = f"radius ({BALLS[found.task.norm][0]})"
    each = range(len(found.radii))
    parts = [
        HATCHED,
        f"<header><h1>{escape(about.title)}</h1>",
        about.note and f'<p class="soft">{escape(about.note)}</p>',
        _radii(found.radii, chosen),
        "</header>",
        *[_at(r, _hero(found, found.radii[r])) for r in each],
        how_to_read(HOW, found.task.norm, found.task.valid),
        '<section><h2>Results</h2><div class="figures">',
        accuracy_figure(found, axis),
        radii_figure(found, axis),
        *[_at(r, margins_figure(found, found.radii[r])) for r in each],
        *[_at(r, classes_figure(found, found.radii[r], names)) for r in each],
        "</div></section>",
        _methods(found),
        cuts_section(cuts, found.methods, names),
        _images(found, images, names, chosen),
        made_section([*about.made, *digests(found.task)]),
        footer("Bounds are computed in floating point."),
    ]
    share = found.verdicts(found.radii[chosen]).count(Verdict.PROVED) / len(found.labels)
    title = f"{about.title}: {share:.1%} verified at {number(found.radii[chosen])}"
    style = STYLE + radius_style(len(found.radii))
    return document(title, parts, style, SCRIPT)


def digests(task: Task) -> list[tuple[str, str]]:
    """Of what was certified, as the methods were given it."""
    return [
        ("Digest of the captured model", task.model),
        ("Digest of images and labels", task.data),
    ]


def headline(found: Certification) -> int:
    """The place of the radius that is shown first: the middle one."""
    order = sorted(range(len(found.radii)), key=lambda r: found.radii[r])
    return order[len(order) // 2]


# -- the chosen radius -----------------------------------------------------------------------------


def radius_style(count: int) -> str:
    """Which radius is shown is a radio button's business: no script is needed."""
    return "".join(
        f":root:has(#radius{r}:checked) .at:not(.at{r}) {{ display: none; }}\n"
        for r in range(count)
    )


def _radii(radii: Sequence[float], chosen: int) -> str:
    if len(radii) < 2:
        return ""
    state = {chosen: " checked"}
    buttons = "".join(
        f'<input type="radio" name="radius" id="radius{r}" value="{r}"{state.get(r, "")}>'
        f'<label for="radius{r}">{number(radius)}</label>'
        for r, radius in enumerate(radii)
    )
    return f'<fieldset class="radii"><legend>Radius</legend>{buttons}</fieldset>'


def _at(place: int, content: str) -> str:
    """What is shown while the radius of a place is chosen."""
    return f'<div class="at at{place}">{content}</div>'


# -- the number that people came for ---------------------------------------------------------------


def _hero(found: Certification, radius: float) -> str:
    verdicts = found.verdicts(radius)
    images = len(verdicts)
    counts = {verdict: verdicts.count(verdict) for verdict in LETTERS}
    proved, falsified = counts[Verdict.PROVED], counts[Verdict.FALSIFIED]
    correct = images - counts[Verdict.WRONG]
    ball = BALLS[found.task.norm][0]
    attacked = ("-", "no attack was made")
    if was_attacked(found):
        withstood = correct - falsified
        attacked = (f"{withstood / images:.1%}", f"{withstood} of {images} withstand the attack")
    facts = (
        ("clean", f"{correct / images:.1%}", f"{correct} of {images} are classified correctly"),
        ("attacked", *attacked),
        ("verified", f"{proved / images:.1%}", f"{proved} of {images} are proved"),
    )
    return (
        f'<section class="hero"><p class="lead"><b>{proved / images:.1%}</b> verified at radius '
        f"{number(radius)}</p><p>{proved} of {images} images provably keep their class, whatever "
        f"the change within radius {number(radius)} ({ball}).</p>{band(counts)}{shares(facts)}"
        "</section>"
    )


def band(counts: Mapping[Verdict, int]) -> str:
    """All images as one band, by their verdicts; those that are proved first."""
    order = (Verdict.PROVED, Verdict.OPEN, Verdict.FALSIFIED, Verdict.WRONG)
    held = [verdict for verdict in order if counts[verdict]]
    said = ", ".join(f"{counts[verdict]} {verdict}" for verdict in held)
    pieces = "".join(
        f'<span class="{verdict}" style="flex-grow:{counts[verdict]}" '
        f'title="{counts[verdict]} {verdict}"><span>{counts[verdict]} {verdict}</span></span>'
        for verdict in held
    )
    return f'<div class="band" role="img" aria-label="images: {said}">{pieces}</div>'


def shares(facts: Sequence[tuple[str, str, str]]) -> str:
    """Shares with their names and what they mean."""
    cells = "".join(
        f'<div class="{name}"><dt>{name}</dt><dd><b>{value}</b> {meaning}</dd></div>'
        for name, value, meaning in facts
    )
    return f'<dl class="shares">{cells}</dl>'


HOW = {
    "Radius": "How far an input may lie from its image: {ball}{valid}.",
    "Margin": (
        "How far the output for the label lies above that for another class. A method computes a "
        "number that the margin never falls below inside the ball; the smallest of them, over all "
        "other classes, is the margin of the image."
    ),
    "Method": (
        "A way to compute such numbers. What one method proves is true whatever the others leave "
        "open; methods that cost more prove more."
    ),
    "Proved (verified)": (
        "The image is classified correctly and all its margins are above zero: no input in the "
        "ball has another class. Verified accuracy is the share of these images."
    ),
    "Falsified, open, wrong": (
        "Falsified: an input of another class was found in the ball, and the model itself confirms "
        "it; attacked accuracy is the share of correct images without one. Open: neither proved "
        "nor falsified. Wrong: the image itself is misclassified."
    ),
    "Linear bounds": (
        "Most methods enclose the network between two linear functions of the input. The panels "
        "show both, and the network itself, on a straight way through one ball."
    ),
}
"""What a page explains, by its heading."""


def how_to_read(texts: Mapping[str, str], norm: str, valid: tuple[float, float] | None) -> str:
    """The words of a page, explained; {ball} and {valid} stand for those of the task."""
    within = ""
    if valid is not None:
        within = f", and all values stay between {number(valid[0])} and {number(valid[1])}"
    name, meaning = BALLS[norm]
    ball = f"in the {name} ball around it, {meaning}"
    terms = "".join(
        f"<div><dt>{what}</dt><dd>{text.format(ball=ball, valid=within)}</dd></div>"
        for what, text in texts.items()
    )
    return (
        f'<details class="how" open><summary>How to read this</summary><dl>{terms}</dl></details>'
    )


# -- methods ---------------------------------------------------------------------------------------


def _methods(found: Certification) -> str:
    columns = ("Method", "Radius", "Proved", "Falsified", "Open", "Mean margin", "s per image")
    head = "".join(f'<th scope="col">{column}</th>' for column in columns)
    groups = []
    for method in found.methods:
        rows = [row for row in found.rows if row.method == method]
        groups.append(_group(method, [(row.radius, _cells(row)) for row in rows]))
    if len(found.methods) > 1:
        groups.append(_group("together", [(r, _together(found, r)) for r in found.radii]))
    return (
        '<section><h2>Methods</h2><p class="soft">Shares of all images. The mean margin is that of '
        "the smallest margins of all images, right or wrong.</p>"
        '<div class="scroll"><table class="summary methods" aria-label="methods"><thead><tr>'
        f"{head}</tr></thead>{''.join(groups)}</table></div></section>"
    )


def _group(method: str, rows: Sequence[tuple[float, Sequence[str]]]) -> str:
    """The rows of a method, which stands beside the first."""
    name = f'<th scope="rowgroup" rowspan="{len(rows)}">{breakable(method)}</th>'
    body = []
    for radius, cells in rows:
        row = f'<th scope="row">{number(radius)}</th>' + "".join(f"<td>{c}</td>" for c in cells)
        body.append(f"<tr>{name}{row}</tr>")
        name = ""
    return f"<tbody>{''.join(body)}</tbody>"


def _cells(row: Row) -> tuple[str, ...]:
    return (
        meter(row.share),
        f"{row.falsified / row.images:.1%}",
        f"{row.open / row.images:.1%}",
        number(row.mean_margin, ".3f"),
        number(row.seconds, ".4f"),
    )


def _together(found: Certification, radius: float) -> tuple[str, ...]:
    verdicts = found.verdicts(radius)
    wanted = (Verdict.PROVED, Verdict.FALSIFIED, Verdict.OPEN)
    proved, falsified, left = (verdicts.count(one) / len(verdicts) for one in wanted)
    return meter(proved), f"{falsified:.1%}", f"{left:.1%}", "", ""


# -- images ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Known:
    """What one method knows at one radius, or all together: verdicts, and the smallest margins of
    all images."""

    verdicts: Sequence[Verdict]
    least: Sequence[float]


@dataclass(frozen=True, eq=False)
class _Cards:
    """What the cards of a certification are made of. known: by method, "" for all together, and
    radius; doubts: for each radius, the classes that could not be ruled out, an HTML text for each
    image; chosen: the place of the radius that is shown first."""

    found: Certification
    names: Sequence[str]
    album: Album
    known: Mapping[tuple[str, float], Known]
    doubts: Sequence[Sequence[str]]
    chosen: int

    @staticmethod
    def of(found: Certification, images: Tensor, names: Sequence[str], chosen: int) -> _Cards:
        album = Album.of(images, found.examples, found.task.valid, found.task.norm)
        doubts = [_doubts(found, radius, names) for radius in found.radii]
        return _Cards(found, names, album, _known(found), doubts, chosen)

    @property
    def methods(self) -> tuple[str, ...]:
        """What there is to choose from: all together, and each if there are several."""
        if len(self.found.methods) == 1:
            return ("",)
        return ("", *self.found.methods)

    def order(self) -> list[int]:
        """The images that are shown, those of the smallest margins first."""
        least = self.known["", self.found.radii[self.chosen]].least
        margins = torch.tensor(least, dtype=torch.float64).nan_to_num(-torch.inf)
        found: list[int] = margins.argsort(stable=True)[:SHOWN].tolist()
        return found

    def card(self, i: int) -> Card:
        found, names, radii = self.found, self.names, self.found.radii
        label = names[int(found.labels[i])]
        prediction = class_name(names, int(found.predictions[i]))
        first = self.known["", radii[self.chosen]]
        verdict = first.verdicts[i]
        said = "; ".join(
            f"{self.known['', radius].verdicts[i]} at radius {number(radius)}" for radius in radii
        )
        words = (
            f'<p><span class="badge {verdict}">{verdict}</span> at radius <span class="radius">'
            f'{number(radii[self.chosen])}</span>, margin <b class="margin">'
            f"{number(first.least[i])}</b></p>{self.album.found(i, names)}"
        )
        held = [self.known.get((method, r)) for method in self.methods for r in radii]
        return Card(
            image=i,
            label=label,
            prediction=prediction,
            pictures=self.album.pictures(
                i, f"image {i}: label {label}, predicted {prediction}; {said}"
            ),
            words=words,
            body=self._table(i),
            verdicts="".join("-" if one is None else LETTERS[one.verdicts[i]] for one in held),
            values=[math.nan if one is None else one.least[i] for one in held],
        )

    def _table(self, i: int) -> str:
        """Methods down, radii across: margins, coloured by verdicts."""
        radii = self.found.radii
        head = "".join(f'<th scope="col">{number(radius)}</th>' for radius in radii)
        body = []
        for method in self.found.methods:
            cells = "".join(_cell(self.known.get((method, radius)), i) for radius in radii)
            body.append(f'<tr><th scope="row">{breakable(method)}</th>{cells}</tr>')
        left = "".join(f"<td>{doubts[i]}</td>" for doubts in self.doubts)
        body.append(f'<tr class="left"><th scope="row">not ruled out</th>{left}</tr>')
        return (
            f'<div class="marks"><table aria-label="margins of image {i}"><thead><tr>'
            f'<th scope="col">margin at radius</th>{head}</tr></thead>'
            f"<tbody>{''.join(body)}</tbody></table></div>"
        )


def _cell(known: Known | None, i: int) -> str:
    if known is None:
        return "<td></td>"
    return f'<td class="{LETTERS[known.verdicts[i]]}">{brief(known.least[i])}</td>'


def _known(found: Certification) -> dict[tuple[str, float], Known]:
    held = {
        (run.method, run.radius): Known(found.verdicts(run.radius, run.method), run.least.tolist())
        for run in found.runs
    }
    for radius in found.radii:
        least = found.best_margins(radius).amin(1).tolist()
        held["", radius] = Known(found.verdicts(radius), least)
    return held


def _doubts(found: Certification, radius: float, names: Sequence[str]) -> list[str]:
    """For each image the classes over which no margin is known to be positive, the worst first."""
    proved = found.proved(radius).tolist()
    texts = []
    for i, margins in enumerate(found.best_margins(radius).tolist()):
        if proved[i]:
            texts.append("none")
            continue
        label = int(found.labels[i])
        held = [(m, k + (k >= label)) for k, m in enumerate(margins) if not 0 < m < math.inf]
        held.sort(key=lambda pair: (not math.isnan(pair[0]), pair))
        more = ""
        if len(held) > NEAREST:
            more = f" +{len(held) - NEAREST}"
        texts.append(escape(", ".join(names[k] for _, k in held[:NEAREST]) + more))
    return texts


def _images(found: Certification, images: Tensor, names: Sequence[str], chosen: int) -> str:
    held = _Cards.of(found, images, names, chosen)
    order = held.order()
    note = (
        "Below each image: its smallest margin by every method at every radius (✓ proved, "
        "✗ falsified, ? open, ! wrong), and the worst classes that could not be ruled out, with "
        "the number of the others. "
        "Where an input of another class was found, it stands beside the image, with what was "
        f"changed (scaled). The smallest margins come first.{held.album.said()}"
    )
    if len(order) < len(images):
        note += (
            f" Of {len(images)} images the {len(order)} with the smallest margins are shown; "
            "results.csv has all."
        )
    verdicts = {"": "every verdict"} | {letter: str(one) for one, letter in LETTERS.items()}
    selects = [choice("verdict", verdicts, "verdict")]
    if len(held.methods) > 1:
        texts = {str(m): method or TOGETHER for m, method in enumerate(held.methods)}
        selects.append(choice("method", texts, "method"))
    if len(found.radii) > 1:
        texts = {str(r): f"radius {number(radius)}" for r, radius in enumerate(found.radii)}
        selects.append(choice("radius", texts, "radius"))
    labels = [names[k] for k in sorted(set(found.labels[order].tolist()))]
    width = min(max(190 + 52 * len(found.radii), 280), 640)
    return gallery((held.card(i) for i in order), selects, labels, note, width)
