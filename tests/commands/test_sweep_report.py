"""The report about a list of instances: one file, well formed, escaped, every instance in it, and
numbers that are those of the results."""

from __future__ import annotations

import itertools
import math
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from boundlab.commands import verifying
from boundlab.commands.benchmark import Plan, verify_instances
from boundlab.commands.competition import Instance
from boundlab.commands.outcomes import BEFORE, HEADER, Outcome, OutcomeFile, stages_text
from boundlab.commands.sweep_charts import LEAST, Line, LogAxis, Point, cactus, decades, scatter
from boundlab.commands.sweep_report import NEAREST, SCRIPT, duration, sweep_page
from boundlab.commands.sweeps import Entry, Sweep
from boundlab.errors import ArgumentError
from tests.helpers.commands import error, run
from tests.helpers.instances import LARGEST, write_network, write_property
from tests.helpers.pages import EVIL, Cells, Structure, assert_accessible

BAD = f"a/onnx/{EVIL}&.onnx"


def entry(number: int, status: str, seconds: float, of_set: str = "a", **more: object) -> Entry:
    instance = Instance(f"{of_set}/onnx/n{number}.onnx", f"{of_set}/vnnlib/p{number}.vnnlib", 60.0)
    return Entry(instance, Outcome(status, seconds, **more))  # type: ignore[arg-type]


SWEEP = Sweep(
    "everything",
    (
        entry(1, "sat", 3.5, stage="attack", stages="attack 0.5"),
        entry(2, "unsat", 4.25, domains=1, bound=0.5, stage="bounds", stages="bounds 1.25"),
        entry(3, "unsat", 9.0, domains=5000, stage="milp", stages="bounds 2; milp 4"),
        entry(4, "timeout", 60.0, "b", domains=10, bound=-0.125, stage="milp", stages="milp 50"),
        entry(5, "error", 1.0, "b", error=f"no row for {EVIL}"),
        Entry(Instance(BAD, "b/vnnlib/p.vnnlib", 60.0)),
        Entry(
            Instance("c/onnx/n.onnx", "c/vnnlib/q.vnnlib", 60.0),
            Outcome("sat", 7.0, 0, None, "attack", "", "attack 4"),
            "counterexamples/c/a b#%.counterexample",
        ),
    ),
    (("Command", f"boundlab verify {EVIL}"),),
)


def test_the_page_is_one_file_and_escaped() -> None:
    page = sweep_page(SWEEP)
    found = Structure(page)
    assert EVIL not in page and "<script>alert" not in page
    assert "http:" not in page and "https:" not in page and "@import" not in page
    assert found.tags.count("script") == 1 and "link" not in found.tags
    assert Cells(page).links == ["counterexamples/c/a%20b%23%25.counterexample"]
    ids = [value for name, value in found.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    assert_accessible(page)
    for wanted in re.findall(r'getElementById\("(\w+)"\)', SCRIPT):
        assert wanted in ids


def test_numbers_of_the_page_are_those_of_the_results() -> None:
    page = sweep_page(SWEEP)
    found = Cells(page)
    assert "<h1>everything: 4 of 7 decided</h1>" in page
    assert found.facts[:6] == [
        "4 of 7decided (57.1%)",
        "2unsat",
        "2sat",
        "1open",
        "1errors",
        "1not done yet",
    ]
    assert found.facts[6:] == ["5.62 smedian", "1 min 25 stotal"]
    #                            decided     unsat sat unknown timeout error
    assert found.row("a") == ["4", "75.0%", "2", "1", "0", "0", "0", "4.25", "16.8"]
    assert found.row("b") == ["2", "0.0%", "0", "0", "0", "1", "1", "30.50", "61.0"]
    assert found.row("all") == ["7", "57.1%", "2", "2", "0", "1", "1", "5.62", "84.8"]
    assert found.row("attack")[:5] == ["0", "2", "0", "5.25", "4.5"]
    assert found.row("milp")[:5] == ["1", "0", "1", "9.00", "54.0"]
    rest = 3.0 + 3.0 + 3.0 + 10.0 + 3.0
    assert found.row("start and reading")[4] == f"{rest:.1f}"
    assert "1 instances have no times of stages" in page
    assert "--resume" in page and "5,011 in all" in page


def test_every_instance_is_in_the_list() -> None:
    page = sweep_page(SWEEP)
    listed = page[page.index('id="instances"') :]
    rows = [row for row in Cells(listed).rows if len(row) == 6][1:]
    assert [row[0] for row in rows] == [
        "sat",
        "unsat",
        "unsat",
        "timeout",
        "error",
        "left",
        "sat",
    ]
    for one, row in zip(SWEEP.entries, rows, strict=True):
        assert row[1].startswith(f"{one.instance.set} · ")
        assert Path(one.instance.vnnlib).name in row[1]
    assert "no row for <script>" in rows[4][1] and EVIL in rows[5][1]
    assert [row[2] for row in rows] == ["3.50", "4.25", "9.00", "60.00", "1.00", "", "7.00"]
    assert rows[3][3:] == ["10", "-0.125", "milp"]


def test_open_instances_nearest_to_a_proof_first() -> None:
    bounds = [-(0.5**k) for k in range(NEAREST + 5)]
    entries = [entry(k, "timeout", 1.0, bound=bound) for k, bound in enumerate(bounds)]
    page = sweep_page(Sweep("s", tuple(entries)))
    rows = [row for row in Cells(page).rows if len(row) == 5]
    assert len(rows) == NEAREST + 1 and f"n{NEAREST + 4}.onnx" in rows[1][0]
    assert f"The nearest {NEAREST} of {NEAREST + 5}" in page


@pytest.mark.parametrize("statuses", [[], ["left"], ["error"], ["sat"], ["timeout"]])
def test_pages_of_few_instances(statuses: list[str]) -> None:
    entries = [entry(k, status, 0.0) for k, status in enumerate(statuses)]
    if statuses == ["left"]:
        entries = [Entry(entries[0].instance)]
    Structure(sweep_page(Sweep("s", tuple(entries))))


def test_durations() -> None:
    found = [duration(seconds) for seconds in (0.25, 59.9, 59.999, 60.0, 3599.7, 7380.0)]
    assert found == ["0.25 s", "59.9 s", "60 s", "1 min 0 s", "1 h 0 min", "2 h 3 min"]


def test_the_script_is_one(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node")
    path = tmp_path / "script.js"
    path.write_text(SCRIPT)
    subprocess.run([node, "--check", path], check=True)


# -- charts ----------------------------------------------------------------------------------------

SECONDS = st.floats(0.0, 1e7)


@given(st.lists(SECONDS, max_size=30))
def test_axes_hold_their_values_and_labels_do_not_touch(values: list[float]) -> None:
    axis = LogAxis.over(values, 52.0, 704.0)
    ticks = axis.ticks()
    places = [axis.at(tick) for tick in ticks]
    assert len(ticks) >= 2 and places == sorted(places)
    assert all(52.0 <= place <= 704.0 for place in [*places, *map(axis.at, values)])
    assert min(b - a for a, b in itertools.pairwise(places)) >= 40


@given(st.lists(SECONDS, max_size=20), st.lists(SECONDS, max_size=20))
def test_staircases_end_at_their_counts(sat: list[float], unsat: list[float]) -> None:
    lines = [Line("sat", "sat", sat), Line("unsat", "unsat", unsat)]
    text = cactus(lines, 100.0)
    Structure(text)
    most = max(len(sat), len(unsat)) or 1
    for line, path in zip(lines, re.findall(r'class="line \w+" d="([^"]*)"', text), strict=True):
        heights = [float(height) for height in re.findall(r"V ([-\d.]+)", path)]
        assert len(heights) == len(line.seconds) and heights == sorted(heights, reverse=True)
        if heights:
            reached = (254.0 - heights[-1]) / (254.0 - 14.0)
            assert math.isclose(reached, len(line.seconds) / most, abs_tol=0.01)


@given(st.lists(st.integers(0, 10**12)), st.lists(st.integers(0, 10**12)))
def test_bars_count_every_instance_once(decided: list[int], left: list[int]) -> None:
    text = decades([("decided", "decided", decided), ("undecided", "open", left)])
    Structure(text)
    for label, values in (("decided", decided), ("open", left)):
        counts = re.findall(rf"<title>{label}, [^:]*: (\d+)</title>", text)
        assert sum(map(int, counts)) == len(values)


def test_bars_are_powers_of_ten() -> None:
    text = decades([("decided", "decided", [0, 1, 2, 10, 11, 100, 101, 10**6])])
    titles = re.findall(r"decided, ([^:]*) domains: (\d+)", text)
    assert titles == [
        ("0 or 1", "2"),
        ("to 10", "2"),
        ("to 100", "2"),
        ("to 1k", "1"),
        ("to 10k", "0"),
        ("to 100k", "0"),
        ("to 1M", "1"),
    ]


def test_scatter_plots_put_open_ones_on_the_border() -> None:
    points = [Point(1.0, 2.0, "both", EVIL), Point(None, 3.0, "only", "b")]
    points.append(Point(LEAST / 10, None, "only", "c"))
    text = scatter(points, "A & co", "B")
    Structure(text)
    assert text.count("<circle") == 3 and EVIL not in text and "A &amp; co" in text
    places = re.findall(r'cx="([\d.]+)" cy="([\d.]+)"', text)
    assert float(places[1][0]) == 460 - 44 + 22 and float(places[2][1]) == 22.0


# -- the command -----------------------------------------------------------------------------------


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    network = write_network(tmp_path)
    write_property(tmp_path, LARGEST - 1e-3, "sat.vnnlib")
    listed = tmp_path / "instances.csv"
    listed.write_text(f"{network.name},sat.vnnlib,100\n{network.name},missing.vnnlib,100\n")
    return ["verify", "--instances", str(listed), "--output", str(tmp_path / "out"), "--threads=1"]


def test_a_list_leaves_a_report(command: list[str], tmp_path: Path) -> None:
    assert run(*command) == 0
    page = (tmp_path / "out/report.html").read_text()
    Structure(page)
    assert f"{tmp_path.name}: 1 of 2 decided" in page and "no file missing.vnnlib" in page
    (link,) = Cells(page).links
    assert (tmp_path / "out" / link).read_text().startswith("((X_0 ")
    held = OutcomeFile.open(tmp_path / "out/results.csv", resume=True)
    found = held.get(Instance("net.onnx", "sat.vnnlib", 0.0))
    assert found is not None and found.spent["attack"] <= found.seconds
    assert "SHA-256" in page and f"boundlab {' '.join(command)}" in page


def test_a_report_is_left_after_an_interrupt(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(plan: verifying.Plan, held: OutcomeFile, *_: object) -> None:
        held.put(plan.instances[0], Outcome("unsat", 2.0))
        raise KeyboardInterrupt

    monkeypatch.setattr(verifying, "verify_instances", interrupted)
    assert run(*command) == 130
    page = (tmp_path / "out/report.html").read_text()
    assert "1 of 2 instances were done" in page and "1 of 2 decided" in page


def test_reports_of_something_else_stay(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "out/report.html"
    other.parent.mkdir()
    other.write_text("of boundlab certify")
    assert "of something else" in error(capsys, *command)
    assert (
        other.read_text() == "of boundlab certify" and not other.with_name("results.csv").exists()
    )


# -- times of stages -------------------------------------------------------------------------------


def test_times_of_stages_read_back() -> None:
    text = stages_text([("attack", 0.125), ("input splitting", 3.0), ("attack", 0.25)])
    assert text == "attack 0.375; input splitting 3"
    assert Outcome("sat", 4.0, stages=text).spent == {"attack": 0.375, "input splitting": 3.0}
    assert Outcome("sat", 4.0).spent == {}


def test_results_from_before_stages_were_noted(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    path.write_text(",".join(BEFORE[1]) + "\nn,p,unsat,1.5,3,0.25,milp,\nn,q,sat,2.0,0,,attack")
    held = OutcomeFile.open(path, resume=True)
    known = Instance("n", "p", 1.0)
    assert held.get(known) == Outcome("unsat", 1.5, 3, 0.25, "milp")
    assert held.get(Instance("n", "q", 1.0)) is None  # its line was torn
    held.put(Instance("n", "q", 1.0), Outcome("sat", 2.5, stages="attack 1"))
    again = OutcomeFile.open(path, resume=True)
    assert path.read_text().splitlines()[0] == ",".join(HEADER)
    assert again.get(known) == held.get(known) and again.get(Instance("n", "q", 1.0)) is not None


@pytest.mark.parametrize(
    "line", ["n,p,sat,1,0,,,,attack x,", "n,p,sat,1,0,,,,", "n,p,sat,1,0,,,,,,"]
)
def test_lines_that_are_none(line: str, tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    path.write_text(f"{','.join(HEADER)}\n{line}\n")
    with pytest.raises(ArgumentError, match="move it away"):
        OutcomeFile.open(path, resume=True)


def test_proofs_of_another_arithmetic_are_not_gone_on_from(tmp_path: Path) -> None:
    held = OutcomeFile.open(tmp_path / "results.csv", resume=False)
    done = Instance("n", "p", 1.0)
    held.put(done, Outcome("unsat", 1.0, arithmetic="real"))
    console = Console(quiet=True)
    verify_instances(Plan([done], tmp_path, tmp_path), held, console)
    with pytest.raises(
        ArgumentError, match="holds proofs for real arithmetic, and --arithmetic float32"
    ):
        verify_instances(Plan([done], tmp_path, tmp_path, arithmetic="float32"), held, console)
