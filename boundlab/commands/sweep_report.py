"""One HTML page about a list of instances: self-contained, in light and dark. A script sorts and
filters the list; without it the page says the same."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from html import escape
from urllib.parse import quote

from boundlab.commands.charts import number
from boundlab.commands.competition import ERROR, SAT, TIMEOUT, UNKNOWN, UNSAT, WORDS
from boundlab.commands.outcomes import Outcome
from boundlab.commands.page import (
    LIST_SCRIPT,
    asset,
    choice,
    document,
    footer,
    made_section,
    meter,
    table,
)
from boundlab.commands.sweep_charts import Line, cactus, decades
from boundlab.commands.sweeps import Entry, Sweep

NEAREST = 25
"""Open instances whose margins are shown at most."""
LEFT = "left"
"""The word of instances that were not begun, or not ended."""
TINY = 1e-12
"""A distance that is not told from nothing."""
START = "start and reading"
"""What a process does before the first stage and after the last."""

STYLE = asset("sweep_report.css")
SCRIPT = LIST_SCRIPT + asset("sweep_report.js")


def sweep_page(sweep: Sweep) -> str:
    """The HTML text about a sweep."""
    done = [outcome for one in sweep.entries if (outcome := one.outcome) is not None]
    title = f"{sweep.name}: {_decided(done)} of {len(sweep.entries)} decided"
    parts = [
        f"<h1>{escape(title)}</h1>",
        _facts(sweep, done),
        _interrupted(sweep, done),
        _sets(sweep),
        _cactus(done),
        _stages(done),
        _domains(done),
        _margins(sweep),
        _instances(sweep),
        made_section(sweep.made),
        footer(
            "unsat: proved, nothing satisfies the property file, which describes the unsafe set. "
            "sat: an input that satisfies it was found, and replayed. timeout and unknown: "
            "neither. Seconds are those of a whole process, its start included."
        ),
    ]
    return document(title, parts, STYLE, SCRIPT)


def _decided(outcomes: Iterable[Outcome]) -> int:
    return sum(one.is_decided for one in outcomes)


def _count(outcomes: Iterable[Outcome], *words: str) -> int:
    return sum(one.status in words for one in outcomes)


# -- numbers ---------------------------------------------------------------------------------------


def _facts(sweep: Sweep, done: Sequence[Outcome]) -> str:
    total = len(sweep.entries)
    facts = [
        (f"{_decided(done)} of {total}", f"decided ({_decided(done) / max(total, 1):.1%})"),
        (str(_count(done, UNSAT)), "unsat"),
        (str(_count(done, SAT)), "sat"),
        (str(_count(done, UNKNOWN, TIMEOUT)), "open"),
        (str(_count(done, ERROR)), "errors"),
    ]
    if len(done) < total:
        facts.append((str(total - len(done)), "not done yet"))
    if done:
        seconds = [one.seconds for one in done]
        facts.append((f"{statistics.median(seconds):.3g} s", "median"))
        facts.append((duration(sum(seconds)), "total"))
    kinds = ["lead"] + [""] * len(facts)
    cells = (
        f'<li class="{kind}"><b>{escape(value)}</b>{escape(what)}</li>'
        for kind, (value, what) in zip(kinds, facts, strict=False)
    )
    return f'<ul class="facts">{"".join(cells)}</ul>'


def duration(seconds: float) -> str:
    """Seconds for people: 12.3 s, 4 min 10 s, 2 h 5 min."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def _interrupted(sweep: Sweep, done: Sequence[Outcome]) -> str:
    if len(done) == len(sweep.entries):
        return ""
    return (
        f'<p class="note">Not finished: {len(done)} of {len(sweep.entries)} instances were done '
        "when this page was written. The same command with <code>--resume</code> goes on from "
        "there.</p>"
    )


def _sets(sweep: Sweep) -> str:
    by_set = sweep.by_set()
    rows = [_set(name, entries) for name, entries in by_set.items()]
    last = _set("all", sweep.entries)
    if len(rows) == 1:
        last = []
    columns = ("Set", "Instances", "Decided", *WORDS, "median s", "total s")
    return "<h2>Sets</h2>" + table(columns, rows, last)


def _set(name: str, entries: Sequence[Entry]) -> list[str]:
    done = [outcome for one in entries if (outcome := one.outcome) is not None]
    part = _decided(done) / max(len(entries), 1)
    cells = [escape(name), str(len(entries)), meter(part)]
    cells += [str(_count(done, word)) for word in WORDS]
    if not done:
        return [*cells, "", ""]
    seconds = [one.seconds for one in done]
    return [*cells, f"{statistics.median(seconds):.2f}", f"{sum(seconds):.1f}"]


# -- charts ----------------------------------------------------------------------------------------


def _cactus(done: Sequence[Outcome]) -> str:
    if not _decided(done):
        return ""
    kinds = {"all": (UNSAT, SAT), UNSAT: (UNSAT,), SAT: (SAT,)}
    lines = [
        Line(kind, kind, [one.seconds for one in done if one.status in words])
        for kind, words in kinds.items()
    ]
    lines = [line for line in lines if line.seconds]
    keys = "".join(
        f'<span><svg class="chart" viewBox="0 0 26 8" aria-hidden="true"><path class="line '
        f'{line.kind}" d="M 0 4 H 26"/></svg>{line.label} {len(line.seconds)}</span>'
        for line in lines
    )
    return (
        '<h2>Decided against time</h2><p class="soft">How many instances were decided within so '
        f'many seconds each.</p><figure class="wide"><p class="soft keys">{keys}</p>'
        f"{cactus(lines, max(one.seconds for one in done))}</figure>"
    )


def _stages(done: Sequence[Outcome]) -> str:
    """Which stages decided, and where the time went."""
    spent = {START: 0.0}
    for one in done:
        for name, seconds in one.spent.items():
            spent[name] = spent.get(name, 0.0) + seconds
        if one.stages:
            rest = max(one.seconds - sum(one.spent.values()), 0.0)
            spent[START] += rest
    names = dict.fromkeys([*spent, *(one.stage for one in done if one.stage)])
    if len(names) == 1:
        return ""
    total = sum(spent.values())
    rows = []
    for name in names:
        own = [one for one in done if one.stage == name]
        decided = [one.seconds for one in own if one.is_decided]
        median = ""
        if decided:
            median = f"{statistics.median(decided):.2f}"
        cells = [_count(own, UNSAT), _count(own, SAT), len(own) - len(decided)]
        part = spent.get(name, 0.0) / (total or 1.0)
        took = [f"{spent.get(name, 0.0):.1f}", meter(part)]
        rows.append([escape(name), *map(str, cells), median, *took])
    columns = ("Stage", "unsat", "sat", "left open", "median s", "time in it, s", "of the time")
    unknown = sum(not one.stages for one in done)
    noted = ""
    if unknown:
        noted = f" {unknown} instances have no times of stages: they failed, were killed, or are "
        noted += "from an older version."
    return (
        '<h2>Stages</h2><p class="soft">How many instances each stage decided, and the median of '
        "the seconds that these took in all; how many it was at work on when time ran out; and "
        f"how much time all instances spent in it.{noted}</p>{table(columns, rows)}"
    )


def _domains(done: Sequence[Outcome]) -> str:
    searched = [one for one in done if one.domains]
    if not searched:
        return ""
    decided = [one.domains for one in searched if one.is_decided]
    left = [one.domains for one in searched if not one.is_decided]
    chart = decades([("decided", "decided", decided), ("undecided", "open", left)])
    return (
        '<h2>Domains</h2><p class="soft">How many subdomains were bounded for an instance: '
        f"{sum(decided) + sum(left):,} in all. 1 means that bounds over the whole region were "
        "enough; instances that the attack decided before any bound are left out.</p>"
        '<figure class="wide"><p class="soft keys">'
        f'<span><i class="box decided"></i>decided {len(decided)}</span><span>'
        f'<i class="box undecided"></i>open {len(left)}</span></p>{chart}</figure>'
    )


def _margins(sweep: Sweep) -> str:
    """Open instances by their bound, those nearest to a proof first."""
    found = [
        (one, outcome, outcome.bound)
        for one in sweep.entries
        if (outcome := one.outcome) is not None
        and not outcome.is_decided
        and outcome.bound is not None
    ]
    if not found:
        return ""
    found.sort(key=lambda triple: -triple[2])
    shown = found[:NEAREST]
    sizes = [max(abs(bound), TINY) for _, _, bound in shown]
    least, span = min(sizes), math.log(10 * max(sizes) / min(sizes))
    parts = [math.log(10 * size / least) / span for size in sizes]
    rows = [
        (
            _name(one),
            f'<span class="margin"><i style="width:{100 * part:.1f}%"></i></span>'
            f'<span class="share">{number(bound)}</span>',
            f"{outcome.domains:,}",
            escape(outcome.stage),
            f"{outcome.seconds:.1f}",
        )
        for (one, outcome, bound), part in zip(shown, parts, strict=True)
    ]
    more = ""
    if len(found) > len(shown):
        more = f" The nearest {len(shown)} of {len(found)} are shown; the list below has all."
    columns = ("Instance", "Least bound", "Domains", "Last stage", "Seconds")
    return (
        '<h2>How far from a proof</h2><p class="soft">Open instances by the least lower bound of '
        "what must be positive: a proof needs it above 0. Units are those of each property, so "
        f"bounds of different sets do not compare. Bars are logarithmic.{more}</p>"
        f'<div class="nearest">{table(columns, rows)}</div>'
    )


# -- the list --------------------------------------------------------------------------------------


def _name(one: Entry) -> str:
    """An instance by its set and its files."""
    instance = one.instance
    networks = " + ".join(_behind(path, "onnx") for path in instance.networks.values())
    network, prop = (
        f'<span title="{escape(path)}">{escape(shown)}</span>'
        for path, shown in (
            (instance.onnx, networks),
            (instance.vnnlib, _behind(instance.vnnlib, "vnnlib")),
        )
    )
    of_set = ""
    if one.instance.set:
        of_set = f'<span class="soft">{escape(one.instance.set)} · </span>'
    return f"{of_set}{network}<br>{prop}"


def _behind(path: str, folder: str) -> str:
    """What stands behind the last folder of this name; the file name if there is none."""
    parts = [part for part in path.split("/") if part not in ("", ".")] or [path]
    if folder in parts[:-1]:
        last = len(parts) - 1 - parts[::-1].index(folder)
        return "/".join(parts[last + 1 :])
    return parts[-1]


def _instances(sweep: Sweep) -> str:
    heads = [("word", "Status"), ("name", "Instance"), ("", "Seconds"), ("", "Domains")]
    heads += [("", "Bound"), ("stage", "Stage")]
    columns = "".join(f'<th scope="col" class="{kind}">{text}</th>' for kind, text in heads)
    sets = list(sweep.by_set())
    rows = "".join(_instance(one, sweep) for one in sweep.entries)
    words = [word for word in (*WORDS, LEFT) if word in {_word(one) for one in sweep.entries}]
    return (
        '<h2>Instances</h2><div class="controls" id="controls" hidden>'
        '<input id="words" type="search" placeholder="words in a line" aria-label="filter">'
        f"{_choice('status', words)}{_choice('set', sets)}"
        '<span class="soft" id="count" aria-live="polite"></span></div><div class="scroll">'
        f'<table class="list" id="instances"><thead><tr>{columns}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _choice(name: str, values: Sequence[str]) -> str:
    """A list to choose from; nothing where there is no choice."""
    if len(values) < 2:
        return ""
    return choice(name, {"": f"every {name}"} | {value: value for value in values}, name)


def _word(one: Entry) -> str:
    if one.outcome is None:
        return LEFT
    return one.outcome.status


def _instance(one: Entry, sweep: Sweep) -> str:
    word = _word(one)
    found = one.outcome or Outcome(LEFT, 0.0)
    status = escape(word)
    if one.example:
        place = quote(one.example)
        status = f'<a href="{place}" title="the counterexample">{status}</a>'
    why = seconds = domains = bound = shown = ""
    if found.error:
        why = f'<span class="why">{escape(found.error)}</span>'
    if one.outcome is not None:
        seconds, domains = f"{found.seconds:.2f}", f"{found.domains:,}"
    if found.bound is not None:
        bound, shown = repr(found.bound), number(found.bound)
    return (
        f'<tr class="{escape(word)}" data-status="{escape(word)}" '
        f'data-set="{escape(sweep.set_of(one))}"><td class="word {escape(word)}">{status}</td>'
        f'<td class="name">{_name(one)}{why}</td>'
        f'<td data-value="{seconds}">{seconds}</td>'
        f'<td data-value="{domains.replace(",", "")}">{domains}</td>'
        f'<td data-value="{bound}">{shown}</td>'
        f'<td class="stage" title="{escape(found.stages)}">{escape(found.stage)}</td></tr>'
    )
