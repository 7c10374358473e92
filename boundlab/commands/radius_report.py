"""One HTML page about the radii of images: self-contained, in light and dark. A script filters and
sorts the images; without it the page says the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import torch
from torch import Tensor

from boundlab.commands.certificates import Task
from boundlab.commands.charts import Curve, Part, binned, bins, number, share_chart
from boundlab.commands.gallery import SHOWN, Album, Card, class_name, gallery
from boundlab.commands.page import HATCHED, choice, document, footer, made_section
from boundlab.commands.radius_ledger import RadiiSoFar, RadiusSearch
from boundlab.commands.report_charts import figure
from boundlab.commands.report_parts import (
    BALLS,
    SCRIPT,
    STYLE,
    About,
    digests,
    how_to_read,
    shares,
)

STEPS = 240
"""Radii at which the curves are computed."""
COLUMNS = 20
KINDS = {"b": "counterexample found", "n": "none found", "w": "wrong"}
"""Images by what came of the attack, to choose from."""

HOW = {
    "Radius": "How far an input may lie from its image: {ball}{valid}.",
    "Proved": (
        "Inside the proved radius no input has another class. The search asks for larger and "
        "smaller radii until it is close to the largest that the method proves."
    ),
    "Broken": (
        "Inside the broken radius an input of another class was found, which the model itself "
        "confirms. Between the two radii nothing is known. A misclassified image has 0 for both."
    ),
    "Verified and attacked accuracy": (
        "At each radius, the share of images whose proved radius is not smaller, and the share "
        "that is classified correctly and not broken there: the true share lies between."
    ),
}


@dataclass(frozen=True, eq=False)
class Searched:
    """Images (N, *shape) whose radii were searched for. labels, predictions: (N,); found: their
    radii; search: how they were searched for."""

    task: Task
    images: Tensor
    labels: Tensor
    predictions: Tensor
    found: RadiiSoFar
    search: RadiusSearch

    @property
    def correct(self) -> Tensor:
        return self.predictions == self.labels

    @property
    def high(self) -> float:
        """Where the axes of radii end."""
        return highest(self.found)


def highest(found: RadiiSoFar) -> float:
    """The largest finite radius, proved or broken."""
    finite = found.broken[found.broken.isfinite()]
    return float(torch.cat([found.proved, finite, torch.zeros(1).double()]).max())


def median(values: Tensor) -> str:
    """The lower median in words; of nothing there is none."""
    return number(float(values.median())) if len(values) else "none"


def radius_page(about: Searched, said: About) -> str:
    """The HTML text."""
    names = said.names or [str(k) for k in range(about.task.classes)]
    axis = f"radius ({BALLS[about.task.norm][0]})"
    parts = [
        HATCHED,
        f"<header><h1>{escape(said.title)}</h1>",
        said.note and f'<p class="soft">{escape(said.note)}</p>',
        "</header>",
        _hero(about),
        how_to_read(HOW, about.task.norm, about.task.valid),
        '<section><h2>How many images have which radius</h2><div class="figures">',
        _accuracy(about, axis),
        _proved(about, axis),
        _broken(about, axis),
        _gap(about, axis),
        "</div></section>",
        _images(about, names),
        made_section([*said.made, *digests(about.task)]),
        footer("Bounds are computed in floating point."),
    ]
    title = f"{said.title}: median {median(about.found.proved)}"
    return document(title, parts, STYLE, SCRIPT)


def _hero(about: Searched) -> str:
    found, images = about.found, len(about.labels)
    correct = int(about.correct.sum())
    finite = found.broken[found.broken.isfinite()]
    facts = (
        ("clean", f"{correct / images:.1%}", f"{correct} of {images} classified correctly"),
        ("attacked", median(finite), f"median broken radius of {len(finite)} images"),
        ("verified", median(found.proved), f"median radius proved by {about.search.method}"),
    )
    return (
        f'<section class="hero"><p class="lead"><b>{median(found.proved)}</b> median certified '
        f"radius</p><p>At least half of the {images} images provably keep their class, whatever "
        f"the change within this radius ({BALLS[about.task.norm][0]}).</p>{shares(facts)}"
        "</section>"
    )


# -- charts ----------------------------------------------------------------------------------------


def _accuracy(about: Searched, axis: str) -> str:
    """Verified and attacked accuracy against the radius."""
    correct, found = about.correct, about.found
    radii = torch.linspace(0.0, about.high, STEPS + 1, dtype=torch.float64).tolist()
    share = lambda holds: float((correct & holds).double().mean())
    clean = share(correct)
    curves = [
        Curve("clean", "clean", [(0.0, clean), (radii[-1], clean)], dots=False),
        Curve("attacked", "attacked", [(r, share(found.broken > r)) for r in radii], dots=False),
        Curve("verified", "verified", [(r, share(found.proved >= r)) for r in radii], dots=False),
    ]
    note = (
        "The share of images that is proved at each radius, and above it what is left after the "
        "attack: the true share lies between."
    )
    label = "verified and attacked accuracy against the radius"
    return figure("Accuracy against radius", note, share_chart(curves, axis, label))


def _proved(about: Searched, axis: str) -> str:
    values = about.found.proved[about.correct].tolist()
    nothing = int((~about.correct).sum())
    note = f"The largest radius at which {escape(about.search.method)} proves an image"
    if nothing:
        note += f"; {nothing} misclassified images are left out"
    chart = _histogram("proved", values, about.high, axis)
    return figure("Largest certified radius", f"{note}.", chart)


def _broken(about: Searched, axis: str) -> str:
    held = about.found.broken[about.correct]
    finite = held[held.isfinite()]
    note = "The smallest radius at which an input of another class was found"
    if len(held) > len(finite):
        note += f"; {len(held) - len(finite)} images for which none was found are left out"
    chart = _histogram("broken", finite.tolist(), about.high, axis)
    return figure("Smallest broken radius", f"{note}.", chart)


def _gap(about: Searched, axis: str) -> str:
    held = about.correct & about.found.broken.isfinite()
    values = (about.found.broken - about.found.proved)[held].tolist()
    chart = _histogram("open", values, max(values, default=0.0), axis)
    note = "How far the broken radius lies above the proved one: in between nothing is known."
    return figure("Between proved and broken", note, chart)


def _histogram(kind: str, values: Sequence[float], high: float, axis: str) -> str:
    """How many of some radii lie where in [0, high]."""
    end = high or 1.0
    edges = [end * k / COLUMNS for k in range(COLUMNS + 1)]
    part = Part(kind, kind, bins(values, end, COLUMNS))
    return binned(edges, [part], axis, f"how many images have which radius, {kind}")


# -- images ----------------------------------------------------------------------------------------


def _images(about: Searched, names: Sequence[str]) -> str:
    order = about.found.proved.argsort(stable=True)[:SHOWN].tolist()
    task = about.task
    album = Album.of(about.images, about.found.examples, task.valid, task.norm)
    cards = (_card(about, album, i, names) for i in order)
    note = (
        "The smallest proved radii come first. Where an input of another class was found, it "
        f"stands beside the image, with what was changed (scaled).{album.said()}"
    )
    if len(order) < len(about.labels):
        note += (
            f" Of {len(about.labels)} images the {len(order)} with the smallest proved radii are "
            "shown; radii.csv has all."
        )
    selects = [choice("verdict", {"": "every image"} | KINDS, "what the attack found")]
    labels = [names[k] for k in sorted(set(about.labels[order].tolist()))]
    return gallery(cards, selects, labels, note)


def _card(about: Searched, album: Album, i: int, names: Sequence[str]) -> Card:
    proved, broken = float(about.found.proved[i]), float(about.found.broken[i])
    label = names[int(about.labels[i])]
    prediction = class_name(names, int(about.predictions[i]))
    letter, words = "n", f"proved within <b>{number(proved)}</b>, no counterexample was found"
    if not bool(about.correct[i]):
        letter, words = "w", "misclassified: nothing to prove"
    elif broken < float("inf"):
        letter = "b"
        words = f"proved within <b>{number(proved)}</b>, broken at <b>{number(broken)}</b>"
    alt = f"image {i}: label {label}, predicted {prediction}; {KINDS[letter]}"
    if letter != "w":
        alt += f", proved within radius {number(proved)}"
    return Card(
        image=i,
        label=label,
        prediction=prediction,
        pictures=album.pictures(i, alt),
        words=f"<p>{words}</p>{album.found(i, names)}",
        body="",
        verdicts=letter,
        values=[proved],
    )
