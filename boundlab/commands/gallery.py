"""Cards of images: their pictures, with the change that a counterexample makes, and what is known
of each; a script filters and sorts them, without it all are there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from torch import Tensor

from boundlab.commands.charts import number
from boundlab.commands.counterexamples import Counterexamples
from boundlab.commands.page import choice
from boundlab.commands.pictures import change_png, is_picture, png, reduction, smaller

SHOWN = 2000
"""Images with cards at most."""
LABELS = 200
"""Labels to choose from at most."""
SIZES = {
    "inf": "largest change",
    "2": "Euclidean length of the change",
    "1": "sum of all changes",
}
"""What a norm measures, by its name."""
SORTS = {"up": "smallest first", "down": "largest first", "number": "by number"}


@dataclass(frozen=True, eq=False)
class Album:
    """Pictures of images (N, *shape), and of one counterexample for some.

    held, places: the counterexamples, and by the number of an image the place of its own. low,
    high: the values that are shown black and white. norm: of the balls. factor: by which pictures
    are made smaller.
    """

    images: Tensor
    held: Counterexamples
    places: Mapping[int, int]
    low: float
    high: float
    norm: str
    factor: int

    @staticmethod
    def of(
        images: Tensor,
        held: Counterexamples | None,
        valid: tuple[float, float] | None,
        norm: str,
    ) -> Album:
        """For each image that has counterexamples that of the smallest radius."""
        places = {}
        if held is None:
            held = Counterexamples.none(0)
        if len(held):
            places = held.nearest(float(held.radius.max()))
        low, high = valid or (float(images.min()), float(images.max()))
        shown = min(len(images), SHOWN) + 2 * min(len(places), SHOWN)
        factor = reduction(images.shape[1:], shown)
        return Album(images, held, places, low, high, norm, factor)

    def said(self) -> str:
        """What is to be known of the pictures."""
        if not is_picture(self.images.shape[1:]):
            return " Inputs of this shape have no picture."
        if self.factor > 1:
            return f" Pictures are {self.factor} times smaller than the images."
        return ""

    def pictures(self, image: int, alt: str) -> str:
        """The picture of an image, and beside it what a counterexample changes and what comes of
        it."""
        own = png(smaller(self.images[image], self.factor), self.low, self.high)
        if own is None:
            return ""
        shown = _picture(own, alt, "image")
        if image not in self.places:
            return f'<div class="pictures">{shown}</div>'
        point = self.held.input[self.places[image]]
        change = smaller(point.double() - self.images[image].double(), self.factor)
        attacked = png(smaller(point, self.factor), self.low, self.high) or ""
        return (
            f'<div class="pictures">{shown}<span aria-hidden="true">+</span>'
            f"{_picture(change_png(change) or '', f'what is changed of image {image}', 'change')}"
            '<span aria-hidden="true">=</span>'
            f"{_picture(attacked, f'counterexample of image {image}', 'attacked')}</div>"
        )

    def found(self, image: int, names: Sequence[str]) -> str:
        """What a counterexample is, in words."""
        if image not in self.places:
            return ""
        place = self.places[image]
        change = self.held.input[place].double() - self.images[image].double()
        size = number(float(change.flatten().norm(float(self.norm))))
        became = escape(names[int(self.held.became[place])])
        return (
            f'<p class="found">becomes <b>{became}</b> within radius '
            f"{number(float(self.held.radius[place]))}; {SIZES[self.norm]} {size}</p>"
        )


def _picture(source: str, alt: str, caption: str) -> str:
    return (
        f'<div><img src="{source}" alt="{escape(alt)}" width="64" height="64" '
        f'decoding="async"><small>{caption}</small></div>'
    )


@dataclass(frozen=True)
class Card:
    """One image on the page.

    label, prediction: names of classes. pictures, words, body: HTML beside the name, below it and
    below all. verdicts, values: for the script, a letter and a number for each choice that the
    page offers.
    """

    image: int
    label: str
    prediction: str
    pictures: str
    words: str
    body: str
    verdicts: str
    values: Sequence[float]

    def html(self) -> str:
        prediction = f"<b>{escape(self.prediction)}</b>"
        if self.prediction != self.label:
            prediction = f'<b class="wrong">{escape(self.prediction)}</b>'
        values = " ".join(map(_as_script_reads, self.values))
        return (
            f'<article class="card" data-label="{escape(self.label)}" data-image="{self.image}" '
            f'data-verdicts="{self.verdicts}" data-values="{values}"><div class="head">'
            f'{self.pictures}<div class="who"><h3>Image {self.image}</h3> <span>label '
            f"<b>{escape(self.label)}</b></span> <span>predicted {prediction}</span></div></div>"
            f"{self.words}{self.body}</article>"
        )


def _as_script_reads(value: float) -> str:
    return format(value, ".4g").replace("inf", "Infinity").replace("nan", "NaN")


def class_name(names: Sequence[str], prediction: int) -> str:
    """The name of a predicted class; of what is no number there is none."""
    if prediction < 0:
        return "NaN"
    return names[prediction]


def gallery(
    cards: Iterable[Card],
    selects: Sequence[str],
    labels: Sequence[str],
    note: str,
    width: int = 280,
) -> str:
    """The cards behind their controls. selects: lists to choose from, before those that all
    galleries have; labels: the names of the classes that occur; note: HTML above; width: of a card
    at least, in pixels."""
    own = list(selects)
    if 1 < len(labels) <= LABELS:
        texts = {"": "every label"} | {name: f"label {name}" for name in labels}
        own.append(choice("label", texts, "label"))
    own.append(choice("order", SORTS, "order"))
    shown = "\n".join(card.html() for card in cards)
    return (
        f'<section><h2>Images</h2><p class="soft">{note}</p><div class="controls" id="controls" '
        f'role="group" aria-label="which images are shown" hidden>{"".join(own)}<span class="soft" '
        'id="count" role="status"></span></div>'
        f'<div class="grid" id="cards" style="--width:{width}px">{shown}</div>'
        '<p><button type="button" id="more" hidden>Show more</button></p></section>'
    )
