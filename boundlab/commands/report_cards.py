"""The cards of a report about a certification: what is known of each image."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

import torch
from torch import Tensor

from boundlab.commands.certificates import Certification, Verdict
from boundlab.commands.charts import brief, number
from boundlab.commands.gallery import SHOWN, Album, Card, class_name, gallery
from boundlab.commands.page import breakable, choice

LETTERS = {Verdict.PROVED: "p", Verdict.FALSIFIED: "f", Verdict.OPEN: "o", Verdict.WRONG: "w"}
"""Verdicts in the page, where they stand thousands of times."""
TOGETHER = "all methods together"
NEAREST = 2
"""Classes that a card names at most for a radius."""


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


def images_section(found: Certification, images: Tensor, names: Sequence[str], chosen: int) -> str:
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
