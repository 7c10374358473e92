"""One HTML page about two tables of results: contradictions, sets, times, and where they differ."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from boundlab.commands.page import document, footer, table
from boundlab.commands.sweep_charts import Point, scatter
from boundlab.commands.sweep_report import STYLE
from boundlab.commands.tool_results import Pair, Result, contradictions

HEADS = ("Instance", "Set", "A", "B", "A, s", "B, s")


def compare_page(
    names: tuple[str, str],
    pairs: Sequence[Pair],
    sets: Sequence[Sequence[str]],
    remarks: Sequence[str],
) -> str:
    """The HTML text. names: of A and B; sets: the table of the sets, its header first; remarks: on
    instances that are not in both."""
    against = contradictions(pairs)
    title = f"A and B agree on {len(pairs) - len(against)} of {len(pairs)} instances"
    if against:
        title = f"Contradictions: {len(against)} of {len(pairs)} instances"
    header, *rows = sets
    cells = [[escape(cell) for cell in row] for row in rows]
    last: Sequence[str] = ()
    if len(cells) > 1:
        last = cells.pop()
    facts = "".join(
        f"<dt>{letter}</dt><dd><code>{escape(name)}</code></dd>"
        for letter, name in zip("AB", names, strict=True)
    )
    said = "".join(f'<p class="soft remark">{escape(line)}</p>' for line in remarks)
    parts = [
        f'<h1>{title}</h1><dl class="made">{facts}</dl>',
        _list("Contradictions", "One says sat, the other unsat: one of the two is wrong.", against),
        f"<h2>Sets</h2>{table(header, cells, last)}{said}",
        _times(pairs),
        _list(
            "Decided by one only",
            "What the other leaves open.",
            [one for one in pairs if one.a.is_decided != one.b.is_decided],
        ),
        footer(
            "Columns A and B: what each decides; clash: contradictions; time A/B: the median of "
            "the seconds of A over those of B where both decide and agree."
        ),
    ]
    return document("A and B", parts, STYLE)


def _list(title: str, note: str, pairs: Sequence[Pair]) -> str:
    if not pairs:
        return ""
    rows = [
        (
            f"{escape(one.a.onnx)}<br>{escape(one.a.vnnlib)}",
            escape(one.set),
            *(f'<span class="word {word}">{word}</span>' for word in (one.a.status, one.b.status)),
            _seconds(one.a),
            _seconds(one.b),
        )
        for one in pairs
    ]
    return (
        f'<h2>{title}</h2><p class="soft">{note}</p><div class="nearest">{table(HEADS, rows)}</div>'
    )


def _seconds(result: Result) -> str:
    if result.seconds is None:
        return ""
    return f"{result.seconds:.2f}"


def _times(pairs: Sequence[Pair]) -> str:
    """A scatter plot of what at least one decides."""
    points = [_point(one) for one in pairs if one.a.is_decided or one.b.is_decided]
    points = [one for one in points if (one.across, one.up) != (None, None)]
    if not points:
        return ""
    keys = "".join(
        f'<span><i class="box {kind}"></i>{text}</span>'
        for kind, text in (
            ("accent", "decided by both"),
            ("undecided", "by one"),
            ("against", "contradiction"),
        )
    )
    return (
        '<h2>Times</h2><p class="soft">Seconds of each instance: above the line A is faster, below '
        f'it B.</p><figure class="square"><p class="soft keys">{keys}</p>'
        f"{scatter(points, 'A', 'B')}</figure>"
    )


def _point(pair: Pair) -> Point:
    across = up = None
    if pair.a.is_decided:
        across = pair.a.seconds
    if pair.b.is_decided:
        up = pair.b.seconds
    kind = "both"
    if pair.is_contradiction:
        kind = "against"
    elif across is None or up is None:
        kind = "only"
    label = f"{pair.a}: {pair.a.status} {_seconds(pair.a)} s, {pair.b.status} {_seconds(pair.b)} s"
    return Point(across, up, kind, label)
