"""The reports in a browser: what filters and orders show, without scripts too, in light and dark,
in a narrow window and on paper, and with two thousand images.

Not among the ordinary tests: python -m pytest tests/browser -m slow -n 0
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
import torch

from boundlab.commands.certificates import Verdict
from boundlab.commands.competition import Instance
from boundlab.commands.outcomes import Outcome
from boundlab.commands.radius_ledger import RadiiSoFar, RadiusSearch
from boundlab.commands.radius_report import Searched, radius_page
from boundlab.commands.report import page
from boundlab.commands.report_parts import About
from boundlab.commands.sweep_report import sweep_page
from boundlab.commands.sweeps import Entry, Sweep
from tests.browser.driver import Browser
from tests.helpers.reports import METHODS, RADII, made_up

pytestmark = pytest.mark.slow

ABOUT = About("Made-up images", "For tests", (("Command", "boundlab certify"),))
SHOWN = 48
"""Cards that a page shows at once."""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("small"), 60)


def write(folder: Path, count: int) -> Path:
    found, images = made_up(count)
    path = folder / "index.html"
    path.write_text(page(found, images, [], ABOUT), encoding="utf-8")
    return path


def images_shown(browser: Browser) -> list[int]:
    return [int(text.removeprefix("Image ")) for text in browser.visible(".card h3")]


def test_filters_show_what_they_say(browser: Browser, small: Path) -> None:
    browser.open(small)
    found, _ = made_up(60)
    assert len(images_shown(browser)) == SHOWN
    browser.run("document.getElementById('more').click()")
    assert sorted(images_shown(browser)) == list(range(60))
    assert not browser.visible("#more")
    for method in ("", *METHODS):
        browser.choose("method", method or "all methods together")
        for radius in RADII:
            browser.choose("radius", f"radius {radius:g}")
            verdicts = found.verdicts(radius, method or None)
            for verdict in Verdict:
                browser.choose("verdict", verdict.value)
                expected = [i for i, one in enumerate(verdicts) if one == verdict]
                if len(expected) > SHOWN:
                    browser.run("document.getElementById('more').click()")
                assert sorted(images_shown(browser)) == expected
                assert set(browser.visible(".card .badge")) <= {verdict.value}
                assert set(browser.visible(".card .radius")) <= {f"{radius:g}"}
                (said,) = browser.visible("#count")
                assert said.startswith(f"{len(expected)} of 60 fit")
            browser.choose("verdict", "every verdict")
    browser.choose("label", "label 3")
    assert sorted(images_shown(browser)) == [i for i in range(60) if i % 10 == 3]
    assert browser.complaints() == []


def test_orders(browser: Browser, small: Path) -> None:
    browser.open(small)
    found, _ = made_up(60)
    for radius, method in ((RADII[0], "ibp"), (RADII[2], "crown")):
        browser.choose("radius", f"radius {radius:g}")
        browser.choose("method", method)
        least = found.run(method, radius).least
        for order, sign in (("smallest first", 1), ("largest first", -1)):
            browser.choose("order", order)
            margins = least[images_shown(browser)].tolist()
            for a, b in itertools.pairwise(margins):
                assert sign * (b - a) >= -1e-3 * abs(a)  # the page has four digits
            assert margins[0] == (sign * least).min() * sign
            shown = [float(text) for text in browser.visible(".card .margin")]
            assert shown == pytest.approx(margins, rel=0.01)
    browser.choose("order", "by number")
    assert images_shown(browser) == list(range(SHOWN))


@pytest.mark.parametrize("scripts", [True, False])
def test_the_radius_is_that_of_the_whole_page(browser: Browser, small: Path, scripts: bool) -> None:
    browser.open(small)
    found, _ = made_up(60)
    for r, radius in enumerate(RADII):
        if scripts:
            browser.run("document.querySelectorAll('input[name=radius]')[arguments[0]].click()", r)
        else:  # chosen in the file
            text = small.read_text(encoding="utf-8").replace(" checked>", ">")
            button = f'id="radius{r}" value="{r}"'
            text = text.replace(button, f"{button} checked")
            path = small.with_name(f"radius{r}.html")
            path.write_text(text, encoding="utf-8")
            browser.open(path, scripts=False)
        share = found.verdicts(radius).count(Verdict.PROVED) / 60
        (lead,) = browser.visible(".lead")
        assert lead == f"{share:.1%} verified at radius {radius:g}"
        assert len(browser.visible(".matrix, .figures .at p:only-child")) >= 1
        if scripts:
            assert set(browser.visible(".card .radius")) == {f"{radius:g}"}


def test_without_scripts_everything_is_there(browser: Browser, small: Path) -> None:
    browser.open(small, scripts=False)
    assert len(images_shown(browser)) == 60
    assert browser.visible("#controls") == browser.visible("#more") == []


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [320, 500, 1280])
def test_nothing_is_cut(browser: Browser, small: Path, width: int, dark: bool) -> None:
    """Neither the page nor a card or a table is wider than its place."""
    browser.open(small, width=width, dark=dark)
    assert browser.run("return document.documentElement.scrollWidth") <= width
    if width >= 500:
        wide = browser.run(
            "return Array.from(document.querySelectorAll('.card, .marks, .scroll'))"
            ".filter((one) => one.checkVisibility() && one.scrollWidth > one.clientWidth + 1)"
            ".map((one) => one.className)"
        )
        assert wide == []


CONTRAST = """
const shade = (text) => {
  const [r, g, b] = text.match(/[\\d.]+/g).map((one) => {
    const part = Number(one) / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const behind = (one) => {
  for (let at = one; at; at = at.parentElement) {
    const colour = getComputedStyle(at).backgroundColor;
    if (!/, 0\\)|transparent|color/.test(colour)) return colour;
  }
};
const found = [];
for (const one of document.querySelectorAll(arguments[0])) {
  if (!one.checkVisibility()) continue;
  const style = getComputedStyle(one);
  const ink = one instanceof SVGElement ? style.fill : style.color;
  const [a, b] = [shade(ink), shade(behind(one))];
  found.push([(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), one.textContent]);
}
return found;
"""


@pytest.mark.parametrize("dark", [False, True])
def test_texts_stand_out(browser: Browser, small: Path, dark: bool) -> None:
    """By 4.5 to 1, as WCAG 2 asks for."""
    browser.open(small, dark=dark)
    for selector in ("p, dt, dd, h1, h2, h3, label, select", "svg text", ".marks td, .badge"):
        found = browser.run(CONTRAST, selector)
        assert found
        weak = [pair for pair in found if pair[0] < 4.5]
        assert weak == []


def test_the_keyboard_reaches_everything(browser: Browser, small: Path) -> None:
    browser.open(small)
    reached = browser.run(
        "return Array.from(document.querySelectorAll('input, select, button, summary'))"
        ".filter((one) => one.checkVisibility() && one.tabIndex >= 0)"
        ".map((one) => { one.focus({focusVisible: true});"
        " const seen = one.type === 'radio' ? one.labels[0] : one;"
        " return [one === document.activeElement, getComputedStyle(seen).outlineStyle]; })"
    )
    assert len(reached) == 3 + 5 + 1 + 1
    assert all(focused and outline == "solid" for focused, outline in reached)


def test_on_paper(browser: Browser, small: Path) -> None:
    browser.open(small, dark=True)
    found = browser.pdf()
    pages = len(re.findall(rb"/Type\s*/Page\b", found))
    assert found.startswith(b"%PDF") and 3 <= pages <= 9
    browser.command("Emulation.setEmulatedMedia", media="print")
    browser.command(
        "Emulation.setDeviceMetricsOverride",
        width=718,
        height=1000,
        deviceScaleFactor=1,
        mobile=False,
    )  # A4 without its margins
    wide = browser.run(
        "return Array.from(document.querySelectorAll('main, .card, .marks, .scroll, figure'))"
        ".filter((one) => one.checkVisibility() && one.scrollWidth > one.clientWidth + 1)"
        ".map((one) => one.className)"
    )
    assert wide == [] and browser.visible("#controls") == []
    assert (
        browser.run("return getComputedStyle(document.body).backgroundColor")
        == "rgb(255, 255, 255)"
    )
    torn = browser.run("return getComputedStyle(document.querySelector('.card')).breakInside")
    assert torn == "avoid"
    assert all(browser.run("return Array.from(document.images, (one) => one.complete)"))
    browser.command("Emulation.setEmulatedMedia", media="")


def test_two_thousand_images(
    browser: Browser, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, 2000)
    browser.command("Performance.enable", timeDomain="threadTicks")
    spent = lambda: {
        one["name"]: one["value"] for one in browser.command("Performance.getMetrics")["metrics"]
    }["TaskDuration"]
    browser.open(path)
    ready = browser.run("return performance.getEntriesByType('navigation')[0].domInteractive")
    took = {"interactive": (ready, spent())}
    for name, text in (
        ("verdict", "falsified"),
        ("method", "crown"),
        ("radius", "radius 0.15"),
        ("order", "largest first"),
        ("verdict", "every verdict"),
    ):
        before = spent()
        wall = browser.run(
            "const begin = performance.now();"
            "const one = document.querySelector(`select[name=${arguments[0]}]`);"
            "one.value = Array.from(one.options).find((o) => o.text === arguments[1]).value;"
            "one.dispatchEvent(new Event('change', {bubbles: true}));"
            "document.body.offsetHeight; return performance.now() - begin;",
            name,
            text,
        )
        took[f"{name}: {text}"] = (wall, spent() - before)
    assert len(images_shown(browser)) == SHOWN
    (said,) = browser.visible("#count")
    assert said == f"2000 of 2000 fit, the first {SHOWN} are shown"
    with capsys.disabled():
        print(f"\n{path.stat().st_size / 1e6:.1f} MB")
        for what, (wall, cpu) in took.items():
            print(f"{what}: {wall:.0f} ms, {1000 * cpu:.0f} ms of the main thread")


def test_lists_of_instances(browser: Browser, tmp_path: Path) -> None:
    seconds = {"a": 9.0, "b": 10.0, "c": 1.0}
    entries = tuple(
        Entry(Instance(f"s{k % 2}/onnx/{name}.onnx", "p.vnnlib", 60.0), Outcome(status, spent))
        for k, ((name, spent), status) in enumerate(
            zip(seconds.items(), ("sat", "unsat", "unsat"), strict=True)
        )
    )
    path = tmp_path / "report.html"
    path.write_text(sweep_page(Sweep("s", entries)), encoding="utf-8")
    browser.open(path)
    shown = lambda: re.findall(r"\b([abc])\.onnx", " ".join(browser.visible("#instances td.name")))
    assert shown() == ["a", "b", "c"]
    browser.choose("status", "unsat")
    assert shown() == ["b", "c"]
    assert browser.visible("#count") == ["2 of 3 fit"]
    button = "document.querySelectorAll('#instances thead button')[2].click()"
    browser.run(button)
    assert shown() == ["c", "b"]
    browser.run(button)
    assert shown() == ["b", "c"]
    browser.run(
        "const one = document.getElementById('words'); one.value = 'C.ONNX';"
        "one.dispatchEvent(new Event('input'))"
    )
    assert shown() == ["c"]
    assert browser.complaints() == []


def test_radii_of_images(browser: Browser, tmp_path: Path) -> None:
    made, images = made_up(60)
    proved = torch.rand(60, generator=torch.Generator().manual_seed(1)).double()
    proved[~made.correct] = 0
    broken = torch.full((60,), torch.inf, dtype=torch.float64)
    assert made.examples is not None
    broken[made.examples.image] = proved[made.examples.image] + 0.1
    broken[~made.correct] = 0
    found = RadiiSoFar(proved, broken, made.examples, 1.0)
    search = RadiusSearch(most=2.0)
    about = Searched(made.task, images, made.labels, made.predictions, found, search)
    path = tmp_path / "index.html"
    path.write_text(radius_page(about, ABOUT), encoding="utf-8")
    browser.open(path, width=500)
    assert browser.run("return document.documentElement.scrollWidth") <= 500
    assert images_shown(browser) == proved.argsort(stable=True)[:SHOWN].tolist()
    browser.choose("verdict", "counterexample found")
    assert sorted(images_shown(browser)) == made.examples.image.tolist()
    browser.choose("verdict", "wrong")
    browser.choose("order", "by number")
    assert images_shown(browser) == (~made.correct).nonzero().flatten().tolist()
    assert browser.complaints() == []
