"""The report: one file, nothing from elsewhere, everything escaped, and figures that are those of
the certification."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import boundlab as bl
from boundlab.commands import gallery
from boundlab.commands.certificates import Certification, Run, Task, Verdict
from boundlab.commands.cuts import line_cuts
from boundlab.commands.report import headline, page
from boundlab.commands.report_charts import not_ruled_out
from boundlab.commands.report_parts import SCRIPT, About
from tests.helpers.pages import EVIL, Structure, assert_accessible, assert_self_contained
from tests.helpers.reports import RADII, made_up

TITLE = About("Title", "A note", (("Command", "boundlab certify"),))


def cards(text: str) -> list[dict[str, str]]:
    return [one for one in Structure(text).all("article") if one["class"] == "card"]


def test_the_page_is_whole_and_self_contained(job: tuple[bl.Net, Certification, Tensor]) -> None:
    net, found, images = job
    text = page(found, images, line_cuts(net, found, images, 0.05), TITLE)
    assert_self_contained(text)
    assert_accessible(text)
    assert len(cards(text)) == 6
    assert text.count('class="chart cut"') == 2  # ibp has no linear bounds
    assert 'name="viewport"' in text and "prefers-color-scheme: dark" in text
    said = Structure(text).said
    for word in ("How to read this", "Command", "boundlab certify", found.task.model, "A note"):
        assert word in said
    for wanted in re.findall(r'getElementById\("(\w+)"\)', SCRIPT):
        assert f'id="{wanted}"' in text


def test_the_number_that_people_came_for(job: tuple[bl.Net, Certification, Tensor]) -> None:
    _, found, images = job
    text = page(found, images, [], TITLE)
    for radius in found.radii:
        verdicts = found.verdicts(radius)
        assert f"<b>{verdicts.count(Verdict.PROVED) / 6:.1%}</b> verified at radius" in text
        withstood = 6 - verdicts.count(Verdict.WRONG) - verdicts.count(Verdict.FALSIFIED)
        assert f"<b>{withstood / 6:.1%}</b> {withstood} of 6 withstand the attack" in text
    assert "<b>83.3%</b> 5 of 6 classified correctly" in text
    share = found.verdicts(0.05).count(Verdict.PROVED) / 6
    assert f"<title>Title: {share:.1%} verified at 0.05</title>" in text
    quiet = replace(found, attacks=(), examples=None)
    assert "no attack was made" in page(quiet, images, [], TITLE)


def test_rows_of_the_table(job: tuple[bl.Net, Certification, Tensor]) -> None:
    _, found, images = job
    text = page(found, images, [], TITLE)
    for row in found.rows:
        assert f'<span class="share">{row.share:.1%}</span>' in text
        assert f"<td>{row.falsified / row.images:.1%}</td>" in text
        assert f"<td>{row.mean_margin:.3f}</td>" in text
    assert text.count('scope="rowgroup"') == len(found.methods) + 1  # together


def test_cards_say_what_is_known(job: tuple[bl.Net, Certification, Tensor]) -> None:
    _, found, images = job
    text = page(found, images, [], TITLE)
    letters = {"proved": "p", "falsified": "f", "open": "o", "wrong": "w"}
    for card in cards(text):
        i = int(card["data-image"])
        held = [found.verdicts(radius)[i] for radius in found.radii]
        for method in found.methods:
            held += [found.verdicts(radius, method)[i] for radius in found.radii]
        assert card["data-verdicts"] == "".join(letters[verdict] for verdict in held)
        values = [float(value) for value in card["data-values"].split()]
        best = [float(found.best_margins(radius)[i].min()) for radius in found.radii]
        assert values[:3] == pytest.approx(best, rel=1e-3)
    alts = " ".join(picture["alt"] for picture in Structure(text).all("img"))
    for i in range(6):
        said = "; ".join(f"{found.verdicts(r)[i]} at radius {r:g}" for r in found.radii)
        label, prediction = int(found.labels[i]), int(found.predictions[i])
        assert f"image {i}: label {label}, predicted {prediction}; {said}" in alts
    assert found.examples is not None
    broken = len(set(found.examples.image.tolist()))
    assert text.count('alt="counterexample of image') == text.count("becomes <b>") == broken > 0
    assert "becomes <b>" not in page(replace(found, examples=None), images, [], TITLE)


def test_the_smallest_margins_come_first() -> None:
    found, images = made_up(40, side=4)
    first = [int(card["data-image"]) for card in cards(page(found, images, [], TITLE))]
    least = found.best_margins(0.1).amin(1)[first].tolist()
    assert headline(found) == 1 and least == sorted(least) and sorted(first) == list(range(40))


def test_everything_is_escaped(job: tuple[bl.Net, Certification, Tensor]) -> None:
    net, found, images = job
    runs = tuple(Run(EVIL, r.radius, r.margins, r.seconds) for r in found.runs[:3])
    cuts = line_cuts(net, found, images, 0.05)
    evil = About(EVIL, EVIL, ((EVIL, EVIL),), [EVIL, f'" onload="{EVIL}', "'><b>"])
    text = page(replace(found, runs=runs), images, cuts, evil)
    assert text.count("<script") == 1 and "<script>alert" not in text
    assert not {name for name, _ in Structure(text).attributes if name.startswith("on")}
    assert_self_contained(text)
    assert_accessible(text)


@pytest.mark.parametrize("margin", [math.nan, math.inf, -math.inf, 0.0, 2.2e-308])
@pytest.mark.parametrize("radii", [(0.1,), (0.1, 0.0)])
def test_odd_numbers_and_shapes(margin: float, radii: tuple[float, ...]) -> None:
    task = Task("", "", 2, 3, "2", None)
    margins = torch.full((2, 2), margin, dtype=torch.float64)
    runs = tuple(Run("ibp", radius, margins, 0.0) for radius in radii)
    found = Certification(task, torch.tensor([0, 1]), torch.tensor([-1, 1]), runs)
    text = page(found, torch.rand(2, 7), [], About("t"))
    assert_self_contained(text)
    assert_accessible(text)
    assert "<img" not in text and "have no picture" in text  # a vector
    assert 'predicted <b class="wrong">NaN</b>' in text
    assert ">inf" not in text and ">nan" not in text
    proved = sum(card["data-verdicts"].count("p") for card in cards(text))
    assert proved == (margin == 2.2e-308) * len(radii)
    assert text.count('type="radio"') == (len(radii) - 1) * len(radii)


def test_images_of_which_nothing_is_correct() -> None:
    task = Task("", "", 1, 2, "1", (0.0, 1.0))
    run = Run("crown", 0.1, torch.ones(1, 1).double(), 0.0)
    found = Certification(task, torch.tensor([0]), torch.tensor([1]), (run,))
    text = page(found, torch.rand(1, 4, 4), [], About("t"))
    assert "<b>0.0%</b> verified" in text and "1 wrong" in text
    assert "Every other class was ruled out" in text


def test_long_lists_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gallery, "SHOWN", 50)
    monkeypatch.setattr("boundlab.commands.report_cards.SHOWN", 50)
    found, images = made_up(80, classes=30, side=4)
    text = page(found, images, [], About("t"))
    shown = [int(card["data-image"]) for card in cards(text)]
    assert len(shown) == 50
    assert "Of 80 images the 50 with the smallest margins are shown" in text
    least = found.best_margins(0.1).amin(1)
    hidden = [i for i in range(80) if i not in shown]
    assert least[shown].max() <= least[hidden].min()
    assert "The 20 classes with the most are shown" in text


def test_two_thousand_images() -> None:
    """What a browser makes of them: test_report_in_browser.py."""
    found, images = made_up(2000, side=28)
    text = page(found, images, [], About("t"))
    assert len(cards(text)) == 2000 and len(text) < 12_000_000


def test_classes_that_could_not_be_ruled_out() -> None:
    task = Task("", "", 4, 3, "inf", None)
    margins = torch.tensor([[1.0, -1.0], [math.nan, 1.0], [2.0, 3.0], [-1.0, -1.0]]).double()
    labels = torch.tensor([0, 1, 2, 2])
    runs = (Run("ibp", 0.1, margins, 0.0), Run("crown", 0.2, margins, 0.0))
    found = Certification(task, labels, torch.tensor([0, 1, 2, 0]), runs)
    # the last image is misclassified, the third is proved
    assert not_ruled_out(found, 0.1).tolist() == [[0, 0, 1], [1, 0, 0], [0, 0, 0]]
    assert int(not_ruled_out(made_up(60)[0], RADII[2]).diagonal().sum()) == 0
