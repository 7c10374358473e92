"""What the reports about images share: what they say of themselves, of balls, and of shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from boundlab.commands.certificates import Task
from boundlab.commands.charts import number
from boundlab.commands.page import LIST_SCRIPT, asset

STYLE = asset("report.css")
SCRIPT = LIST_SCRIPT + asset("report.js")


BALLS = {
    "inf": ("L∞", "no value changes by more than the radius"),
    "2": ("L2", "the change has at most this Euclidean length"),
    "1": ("L1", "all changes sum up to at most the radius"),
}
"""What a ball of a norm is, in words."""


@dataclass(frozen=True)
class About:
    """What a report says of where it comes from. note: a sentence under the title; made: how, as
    pairs of words; names: of the classes, their numbers if there are none."""

    title: str
    note: str = ""
    made: Sequence[tuple[str, str]] = ()
    names: Sequence[str] = ()


def digests(task: Task) -> list[tuple[str, str]]:
    """Of what was certified, as the methods were given it."""
    return [
        ("Digest of the captured model", task.model),
        ("Digest of images and labels", task.data),
    ]


def shares(facts: Sequence[tuple[str, str, str]]) -> str:
    """Shares with their names and what they mean."""
    cells = "".join(
        f'<div class="{name}"><dt>{name}</dt><dd><b>{value}</b> {meaning}</dd></div>'
        for name, value, meaning in facts
    )
    return f'<dl class="shares">{cells}</dl>'


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
