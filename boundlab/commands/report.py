"""One HTML page about a certification: self-contained, in light and dark. A script filters and
sorts the images; without it the page says the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from torch import Tensor

from boundlab.commands.certificates import Certification, Row, Verdict
from boundlab.commands.charts import number
from boundlab.commands.cuts import Cut
from boundlab.commands.page import (
    HATCHED,
    breakable,
    document,
    footer,
    made_section,
    meter,
)
from boundlab.commands.report_cards import images_section
from boundlab.commands.report_charts import (
    accuracy_figure,
    classes_figure,
    cuts_section,
    margins_figure,
    radii_figure,
    was_attacked,
)
from boundlab.commands.report_parts import (
    BALLS,
    SCRIPT,
    STYLE,
    About,
    digests,
    how_to_read,
    shares,
)


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
        images_section(found, images, names, chosen),
        made_section([*about.made, *digests(found.task)]),
        footer("Bounds are computed in floating point."),
    ]
    share = found.verdicts(found.radii[chosen]).count(Verdict.PROVED) / len(found.labels)
    title = f"{about.title}: {share:.1%} verified at {number(found.radii[chosen])}"
    style = STYLE + _radius_style(len(found.radii))
    return document(title, parts, style, SCRIPT)


def headline(found: Certification) -> int:
    """The place of the radius that is shown first: the middle one."""
    order = sorted(range(len(found.radii)), key=lambda r: found.radii[r])
    return order[len(order) // 2]


# -- the chosen radius -----------------------------------------------------------------------------


def _radius_style(count: int) -> str:
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
    counts = {verdict: verdicts.count(verdict) for verdict in Verdict}
    proved, falsified = counts[Verdict.PROVED], counts[Verdict.FALSIFIED]
    correct = images - counts[Verdict.WRONG]
    ball = BALLS[found.task.norm][0]
    attacked = ("-", "no attack was made")
    if was_attacked(found):
        withstood = correct - falsified
        attacked = (f"{withstood / images:.1%}", f"{withstood} of {images} withstand the attack")
    facts = (
        ("clean", f"{correct / images:.1%}", f"{correct} of {images} classified correctly"),
        ("attacked", *attacked),
        ("verified", f"{proved / images:.1%}", f"{proved} of {images} are proved"),
    )
    return (
        f'<section class="hero"><p class="lead"><b>{proved / images:.1%}</b> verified at radius '
        f"{number(radius)}</p><p>{proved} of {images} images provably keep their class, whatever "
        f"the change within radius {number(radius)} ({ball}).</p>{_band(counts)}{shares(facts)}"
        "</section>"
    )


def _band(counts: Mapping[Verdict, int]) -> str:
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
        "show both, and the network itself, on a straight line through one ball."
    ),
}
"""What a page explains, by its heading."""


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
