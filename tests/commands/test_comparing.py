"""``boundlab compare``: two tables of results, which lines are about the same instance, and what
the two say."""

from __future__ import annotations

import csv
import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boundlab.commands.competition import DECIDED, WORDS, Instance
from boundlab.commands.outcomes import Outcome, OutcomeFile
from boundlab.commands.tool_results import Pair, Result, match, read_results
from tests.helpers.commands import error, run
from tests.helpers.pages import EVIL, Cells, Structure

OURS = {
    ("a/onnx/n.onnx", "a/vnnlib/p.vnnlib"): Outcome("unsat", 2.0),
    ("a/onnx/n.onnx", "a/vnnlib/q.vnnlib"): Outcome("sat", 3.0),
    ("a/onnx/m.onnx", "a/vnnlib/p.vnnlib"): Outcome("timeout", 60.0),
    ("b/onnx/k.onnx", "b/vnnlib/r.vnnlib"): Outcome("unsat", 5.0),
    ("b/onnx/k.onnx", "b/vnnlib/s.vnnlib"): Outcome("unsat", 1.0),
}
THEIRS = """\
a,bench/2025/a/onnx/n.onnx,bench/2025/a/vnnlib/p.vnnlib,1.0,unsat,4.0
a,bench/2025/a/onnx/n.onnx,bench/2025/a/vnnlib/q.vnnlib,1.0,sat,1.0
a,bench/2025/a/onnx/m.onnx.gz,bench/2025/a/vnnlib/p.vnnlib.gz,1.0,unsat,10.0
b,bench/2025/b/onnx/k.onnx,bench/2025/b/vnnlib/r.vnnlib,1.0,run_instance_timeout,61.0
b,bench/2025/b/onnx/k.onnx,bench/2025/b/vnnlib/t.vnnlib,1.0,sat,2.0
"""


@pytest.fixture
def tables(tmp_path: Path) -> tuple[Path, Path]:
    """A folder of ours and a file of the competition's form."""
    folder = tmp_path / "ours"
    held = OutcomeFile.open(folder / "results.csv", resume=False)
    for (onnx, vnnlib), outcome in OURS.items():
        held.put(Instance(onnx, vnnlib, 60.0), outcome)
    other = tmp_path / "theirs.csv"
    other.write_text(THEIRS)
    return folder, other


def test_two_tables(
    tables: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "out/page.html"
    assert run("compare", *tables, "--html", page) == 0
    printed = capsys.readouterr().out
    assert "1 only in A: b/onnx/k.onnx, b/vnnlib/s.vnnlib" in printed
    assert "1 only in B" in printed and "not matched" not in printed
    text = page.read_text()
    Structure(text)
    found = Cells(text)
    #                          all  A    B    both only A, B clash time
    assert found.row("a") == ["3", "2", "3", "2", "0", "1", "0", "1.75"]  # of 0.5 and 3
    assert found.row("b") == ["1", "1", "0", "0", "1", "0", "0", ""]
    assert found.row("all") == ["4", "3", "3", "2", "1", "1", "0", "1.75"]
    assert "agree on 4 of 4 instances" in text and text.count("<circle") == 4


def test_contradictions_come_first_and_fail(
    tables: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours, theirs = tables
    theirs.write_text(theirs.read_text().replace("sat,1.0", "unsat,1.0"))
    page = tmp_path / "page.html"
    assert run("compare", ours, theirs, "--html", page) == 1
    printed = capsys.readouterr()
    first = printed.out.splitlines()[:2]
    assert first[0] == "Contradictions:" and "q.vnnlib: A says sat, B unsat" in first[1]
    assert "1 of 4 instances are sat in one and unsat in the other" in printed.err
    text = page.read_text()
    assert "Contradictions: 1 of 4 instances" in text
    assert text.index("One says sat") < text.index("<h2>Sets") and 'circle class="against"' in text
    assert run("compare", theirs, ours) == 1


def test_pages_are_escaped(tmp_path: Path) -> None:
    paths = [tmp_path / f"{letter}.csv" for letter in "ab"]
    for path, status in zip(paths, ("sat", "unsat"), strict=True):
        with path.open("w", newline="") as file:
            csv.writer(file).writerows(
                [["onnx", "vnnlib", "status", "set"], [f"{EVIL}.onnx", "p.vnnlib", status, EVIL]]
            )
    assert run("compare", *paths, "--html", tmp_path / "page.html") == 1
    text = (tmp_path / "page.html").read_text()
    Structure(text)
    assert EVIL not in text and "<script" not in text


# -- reading ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "header",
    [
        "onnx,vnnlib,result,time",
        "Network, Property, Verdict, Seconds",
        "onnx,vnnlib,status,runtime",
        "model,spec,answer,run_time",
    ],
)
def test_columns_go_by_their_names(header: str, tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text(
        f"{header}\n c/onnx/n.onnx ,p.vnnlib,Holds,2.5\n\nc/onnx/n.onnx,q.vnnlib,SAT,\n"
    )
    first, second = read_results(path)
    assert first == Result("c/onnx/n.onnx", "p.vnnlib", "unsat", 2.5, "c")
    assert second.status == "sat" and second.seconds is None


@pytest.mark.parametrize(
    ("word", "status"),
    [
        ("timed-out", "timeout"),
        ("run_instance_timeout", "timeout"),
        ("error_exit_code_1", "error"),
        ("prepare_instance_error_1", "error"),
        ("no_result_in_file", "error"),
        ("ambiguous", "unknown"),
        ("violated", "sat"),
        ("", "unknown"),
    ],
)
def test_words_of_others(word: str, status: str, tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text(f"onnx,vnnlib,result\nn,p,{word}\n")
    assert read_results(path)[0].status == status


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("a,b,c\n", "neither names the columns"),
        ("onnx,vnnlib,result\n", "no results yet"),
        ("onnx,vnnlib,result\nn,p,perhaps\n", "line 2: 'perhaps' is no answer"),
        ("onnx,vnnlib,result\nn,p\n", "line 2: it has 2 columns"),
        ("onnx,vnnlib,result\n,p,sat\n", "names no network"),
        ("onnx,vnnlib,result,time\nn,p,sat,soon\n", "'soon' is no number"),
        ("onnx,vnnlib,result\nn,p,sat\nn,p,unsat\n", "line 3: n, p is unsat, and sat in a line"),
    ],
)
def test_tables_that_are_none(
    text: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "r.csv"
    path.write_text(text)
    assert words in error(capsys, "compare", str(path), str(path))
    assert "No such file" in error(capsys, "compare", str(tmp_path / "none"), str(path))


def test_of_two_lines_the_one_that_decides_counts(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text("onnx,vnnlib,result,time\nn,p,timeout,9\nn,p,sat,3\nn,p,unknown,1\nn,p,sat,2\n")
    assert read_results(path) == (Result("n", "p", "sat", 3.0, ""),)


def test_nothing_in_common(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [tmp_path / name for name in "ab"]
    for path in paths:
        path.write_text(f"onnx,vnnlib,result\n{path.name}.onnx,p,sat\n")
    assert "matched by the names of their files" in error(capsys, "compare", *map(str, paths))


# -- matching --------------------------------------------------------------------------------------


def results(*paths: str, of_set: str = "") -> list[Result]:
    return [Result(f"{path}/n.onnx", f"{path}/p.vnnlib", "sat", 1.0, of_set) for path in paths]


def test_the_most_last_parts_decide() -> None:
    found = match(results("x/a", "x/b"), results("y/b", "y/c/a"))
    assert [(one.a.onnx[0:3], one.b.onnx[:-7]) for one in found.pairs] == [
        ("x/a", "y/c/a"),
        ("x/b", "y/b"),
    ]
    assert not found.only_a and not found.only_b and not found.ambiguous


def test_equal_paths_before_longer_ones() -> None:
    found = match(results("onnx"), results("onnx", "a/onnx"))
    assert [one.b.onnx for one in found.pairs] == ["onnx/n.onnx"]
    assert [one.onnx for one in found.only_b] == ["a/onnx/n.onnx"]


def test_several_that_fit_equally_well_are_not_matched() -> None:
    found = match(results("onnx"), results("a/onnx", "b/onnx"))
    assert not found.pairs and not found.only_a and not found.only_b
    assert len(found.ambiguous) == 3


def test_the_set_beside_the_path_counts_as_a_part() -> None:
    left = [*results("onnx", of_set="a"), *results("x/b/onnx", of_set="b")]
    right = [*results("onnx", of_set="b"), *results("onnx", of_set="a")]
    found = match([left[0]], [right[1]])
    assert len(found.pairs) == 1
    found = match(left, [right[0], *results("z/a/onnx", of_set="a")])
    assert [(one.a.set, one.b.set) for one in found.pairs] == [("a", "a"), ("b", "b")]
    loose = match(results("onnx", of_set="a"), results("onnx", of_set="a_small")).pairs[0]
    assert loose.is_loose and not found.pairs[0].is_loose


PATHS = ["/".join(parts) for n in (1, 2, 3) for parts in itertools.product("ab", repeat=n)]
KEYS = [(onnx, prop) for onnx in PATHS for prop in PATHS]
TABLES = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(WORDS), max_size=8).map(
    lambda rows: [Result(onnx, prop, word, 1.0, "") for (onnx, prop), word in rows.items()]
)


@given(TABLES, TABLES)
def test_every_result_is_somewhere_once_and_sides_do_not_matter(
    a: list[Result], b: list[Result]
) -> None:
    found, turned = match(a, b), match(b, a)
    placed = [one for pair in found.pairs for one in (pair.a, pair.b)]
    placed += [*found.only_a, *found.only_b, *found.ambiguous]
    assert sorted(map(repr, placed)) == sorted(map(repr, [*a, *b]))
    assert {(one.a, one.b) for one in found.pairs} == {(one.b, one.a) for one in turned.pairs}
    for one in found.pairs:
        assert Path(one.a.onnx).name == Path(one.b.onnx).name
        assert Path(one.a.vnnlib).name == Path(one.b.vnnlib).name


@given(TABLES)
def test_a_table_matches_itself(a: list[Result]) -> None:
    found = match(a, a)
    assert {one.a for one in found.pairs} == set(a) and all(one.a == one.b for one in found.pairs)
    assert not any(one.is_contradiction for one in found.pairs)


@given(st.sampled_from(WORDS), st.sampled_from(WORDS))
def test_only_sat_against_unsat_is_a_contradiction(a: str, b: str) -> None:
    pair = Pair(Result("n", "p", a, 3.0, ""), Result("n", "p", b, 2.0, ""))
    assert pair.is_contradiction == ({a, b} == set(DECIDED))
    assert (pair.ratio == 1.5) == (a == b and a in DECIDED)
