"""``boundlab verify QUERY --network NAME=FILE``: the command line of VNN-LIB 2, with one network or
several."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

import boundlab as bl
from boundlab.commands.answers import answer_to
from boundlab.commands.competition import Instance, named_networks
from boundlab.commands.queries import AskedOfNetworks, load_query, network_files, networks_given
from boundlab.onnx.side_by_side import SideBySide
from boundlab.specs.vnnlib2 import Declared, read_question
from tests.helpers.commands import error, run
from tests.helpers.instances import LARGEST, write_network, write_property
from tests.helpers.onnx_files import model, node, written

pytest.importorskip("vnnlib")

ONE = """(vnnlib-version <2.0>) ; a comment
(declare-network N (declare-input X {type} [1,2]) (declare-output Y {type} [1,1]))
(assert (and (>= X[0,0] -1.0) (<= X[0,0] 1.0) (>= X[0,1] -1.0) (<= X[0,1] 1.0)))
(assert (>= Y[0,0] {least}))
"""
SAME_INPUTS = """(vnnlib-version <2.0>)
(declare-network f (declare-input X real [2]) (declare-output Y real [1]))
(declare-network g ({relation} f) (declare-input U real [2]) (declare-output V real [1]))
(assert (and (>= X[0] -1.0) (<= X[0] 1.0) (>= X[1] -1.0) (<= X[1] 1.0)))
(assert (== U[0] X[0]))
(assert (and (== X[1] U[1]) (<= X[0] 2.0)))
"""
MONOTONE = """(vnnlib-version <2.0>)
(declare-network f (declare-input X real [2]) (declare-output Y real [1]))
(declare-network g (equal-to f) (declare-input U real [2]) (declare-output V real [1]))
(assert (and (>= X[0] 0.0) (<= X[0] 1.0) (>= X[1] -1.0) (<= X[1] 1.0)))
(assert (and (>= X[0] U[0]) (>= U[0] 0.0)))
(assert (== U[1] X[1]))
"""


def write_scaled(folder: Path, name: str, scale: float) -> Path:
    """scale * relu(x0) + x1 / 2, in single precision."""
    constants = {
        "a": np.array([[1, 0, 0], [0, 1, -1]], np.float32),
        "b": np.array([[scale], [0.5], [-0.5]], np.float32),
    }
    nodes = [
        node("MatMul", ["x", "a"], ["h"]),
        node("Relu", ["h"], ["r"]),
        node("MatMul", ["r", "b"], ["y"]),
    ]
    path = written(model(nodes, {"x": (1, 2)}, ["y"], constants), folder)
    return path.rename(folder / name)


def write(folder: Path, text: str) -> Path:
    path = folder / "q.vnnlib"
    path.write_text(text)
    return path


@torch.no_grad()
def output(network: Path, x: torch.Tensor) -> float:
    found = bl.load_onnx(network)(x)
    assert isinstance(found, torch.Tensor)
    return float(found)


# -- one network -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["real", "float32"])
def test_an_assignment_is_printed(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    network = write_network(tmp_path)
    query = write(tmp_path, ONE.format(type=kind, least=LARGEST - 1e-3))
    result = tmp_path / "result.txt"
    assert run("verify", query, "--network", f"N={network}", "--result", result) == 0
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert [lines[0], lines[1], lines[4]] == ["sat", f"X {kind} [1,2]", f"Y {kind} [1,1]"]
    assert len(lines) == 6 and result.read_text() == printed.out
    assert "violated" in printed.err and "attack" in printed.err
    x = torch.tensor([[float(lines[2]), float(lines[3])]])
    own = output(network, x)
    assert own == float(lines[5])
    assert own >= LARGEST - 1e-3 and bool((x.abs() <= 1).all())


def test_the_other_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    network, result = write_network(tmp_path), tmp_path / "result.txt"
    query = write(tmp_path, ONE.format(type="real", least=LARGEST + 1e-3))
    command = ["verify", str(query), "--result", str(result), "--network"]
    assert run(*command, network) == 0  # the name may be left out if there is one
    assert capsys.readouterr().out == "unsat\n" and result.read_text() == "unsat\n"
    assert run(*command, f"N={network}", "--timeout", "1e-6") == 0
    assert capsys.readouterr().out == "timed-out\n" and result.read_text() == "timeout\n"


def test_version_1_is_read_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    network = write_network(tmp_path)
    prop = write_property(tmp_path, LARGEST - 1e-3)
    assert run("verify", prop, "--network", network) == 0
    assert capsys.readouterr().out.startswith("sat\n((X_0 ")
    more = ["--network", f"a={network}", "--network", f"b={network}"]
    assert "about one network; 2 were given" in error(capsys, "verify", str(prop), *more)


@pytest.mark.parametrize(
    ("networks", "words"),
    [
        (["M=net.onnx"], "declares no network M; it declares N"),
        (["N=net.onnx", "M=net.onnx"], "declares no network M"),
        (["N=net.onnx", "N=net.onnx"], "gives N twice"),
        (["N=none.onnx"], "no such file"),
    ],
)
def test_networks_that_are_not_those_of_the_query(
    networks: list[str],
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    write_network(tmp_path)
    write(tmp_path, ONE.format(type="real", least=0.0))
    given = [word for one in networks for word in ("--network", one)]
    assert words in error(capsys, "verify", "q.vnnlib", "--result", "r.txt", *given)
    assert Path("r.txt").read_text() == "error\n"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("real [1,2]", "real [1,3]", "its input has 2 elements, and X is declared as X real [1,3]"),
        ("real [1,1]", "real [2,1]", "its output has 1 elements"),
        ("real [1,2]", "float64 [1,2]", "its input is of type float32"),
        ("real [1,1]", "float64 [1,1]", "its output is of type float32"),
        ("Y real [1,1])", "Y real [1,1]) (declare-output Z real [1])", "1 outputs; N declares 2"),
        ("(declare-output", '(declare-hidden H real [3] "r") (declare-output', "declare-hidden"),
    ],
)
def test_networks_unlike_their_declaration(
    old: str, new: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    network = write_network(tmp_path)
    text = ONE.format(type="real", least=0.0)
    if "[1,3]" in new:
        text += "(assert (and (>= X[0,2] -1.0) (<= X[0,2] 1.0)))"
    query = write(tmp_path, text.replace(old, new))
    assert words in error(capsys, "verify", str(query), "--network", f"N={network}")


def test_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "alone before it" in error(capsys, "verify", "--network", "N=n.onnx")
    assert "alone before it" in error(capsys, "verify", "a", "b", "--network", "N=n.onnx")


# -- several networks ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("relation", "least", "expected"),
    [
        ("isomorphic-to", 0.26, "unsat"),  # g - f is relu(x0) / 4, at most 1/4
        ("isomorphic-to", 0.24, "sat"),
        ("equal-to", 0.01, "unsat"),
        ("equal-to", 0.0, "sat"),
    ],
)
def test_networks_on_the_same_input(
    relation: str,
    least: float,
    expected: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    f, g = write_scaled(tmp_path, "f.onnx", 1.0), write_scaled(tmp_path, "g.onnx", 1.25)
    text = SAME_INPUTS.format(relation=relation) + f"(assert (>= (- V[0] Y[0]) {least}))"
    given = ["--network", f"f={f}"]
    if relation == "isomorphic-to":
        given += ["--network", f"g={g}"]
    assert run("verify", write(tmp_path, text), *given) == 0
    word, *lines = capsys.readouterr().out.splitlines()
    assert word == expected
    if word == "unsat":
        assert not lines
        return
    assert [lines[k] for k in (0, 3, 5, 8)] == [
        "X real [2]",
        "Y real [1]",
        "U real [2]",
        "V real [1]",
    ]
    x, u = ([float(one) for one in lines[k : k + 2]] for k in (1, 6))
    y, v = float(lines[4]), float(lines[9])
    assert x == u and v - y >= least
    assert output(f, torch.tensor([x])) == y


@pytest.mark.parametrize(
    ("violation", "expected"), [("(< (- Y[0] V[0]) -0.001)", "unsat"), ("(> Y[0] V[0])", "sat")]
)
def test_inputs_that_are_bounded_by_others(
    violation: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """relu(x0) grows: f is not below g if its input is not. U[0] has no upper bound of its own."""
    f = write_scaled(tmp_path, "f.onnx", 1.0)
    query = write(tmp_path, f"{MONOTONE}(assert {violation})")
    assert run("verify", query, "--network", f"f={f}", "--timeout", "120") == 0
    assert capsys.readouterr().out.splitlines()[0] == expected


def test_bounds_that_others_imply() -> None:
    text = MONOTONE.replace("(>= X[0] U[0])", "(>= (* 3.0 X[0]) (+ (* 7.0 U[0]) X[1]))")
    box = read_question(text + "(assert (<= Y[0] 0.0))").prop.regions[0].hull()
    third = (3 * 1.0 + 1.0) / 7
    assert box.lower.tolist() == [[0.0, -1.0, 0.0]]
    assert box.upper[0, :2].tolist() == [1.0, 1.0] and third < float(box.upper[0, 2]) < third + 1e-9
    with pytest.raises(bl.ArgumentError, match=r"U\[0\] has no lower bound"):
        read_question(text.replace("(>= U[0] 0.0)", "(<= U[0] 9.0)") + "(assert (<= Y[0] 0.0))")


def test_what_is_equal_by_itself_is_no_row() -> None:
    text = SAME_INPUTS.format(relation="equal-to") + "(assert (>= V[0] 0.5))(assert (<= 0 1))"
    question = read_question(text)
    (clause,) = question.prop.cases(2)[0].clauses
    assert clause.outputs.tolist() == [[0.0, -1.0]] and clause.constant.tolist() == [0.5]
    assert question.places == (0, 1, 0, 1)


def test_bounds_are_passed_on() -> None:
    names = "XUVW"
    nets = "".join(
        f"(declare-network n{one} (declare-input {one} real [1]) (declare-output O{one} real [1]))"
        for one in names
    )
    chain = "".join(
        f"(assert (and (<= {b}[0] {a}[0]) (>= {b}[0] (- {a}[0] 1.0))))"
        for a, b in itertools.pairwise(names)
    )
    text = f"(vnnlib-version <2.0>){nets}(assert (and (<= X[0] 1.0) (>= X[0] 0.0))){chain}"
    box = read_question(text).prop.regions[0].hull()
    assert torch.allclose(box.upper, torch.ones(1, 4, dtype=torch.float64), rtol=0, atol=1e-12)
    assert bool((box.upper >= 1).all()) and bool((box.lower <= -torch.arange(4.0)).all())


def test_networks_side_by_side(tmp_path: Path) -> None:
    f, g = (bl.load_onnx(write_scaled(tmp_path, f"{k}.onnx", k)) for k in (1.0, 2.0))
    joined = SideBySide([f, g], [0, 1, 2, 1])
    x = torch.randn(7, 3)
    wanted = torch.cat([f(x[:, :2]), g(x[:, [2, 1]])], 1)  # type: ignore[list-item]
    assert torch.equal(joined(x), wanted)
    assert joined.inputs[0].shape == (None, 3) and joined(*joined.example(5)).shape == (5, 2)
    graph = bl.capture(joined.double(), x.double()).graph  # one for any number of samples
    assert not graph.sizes.assumptions
    with pytest.raises(bl.ArgumentError, match="take 4 elements, not 3"):
        SideBySide([f, g], [0, 1, 2])


def test_onnxruntime_replays_all_of_them(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    files = {name: write_scaled(tmp_path, f"{name}.onnx", k + 1.0) for k, name in enumerate("fg")}
    text = SAME_INPUTS.format(relation="isomorphic-to") + "(assert (>= V[0] Y[0]))"
    subject = load_query(write(tmp_path, text), files)
    x = torch.tensor([[0.5, -0.25]])
    assert torch.allclose(subject.outputs_elsewhere(x), subject.model(x).double())
    found = answer_to(lambda: subject, 1e18, 1)
    assert found.word == "sat" and not found.note


def test_files_of_networks(tmp_path: Path) -> None:
    f, g = Declared("f", "", (), ()), Declared("g", "f", (), ())
    a, b = tmp_path / "a", tmp_path / "b"
    assert network_files([f, g], {"f": a}) == [a, a] == network_files([f, g], {"": a})
    assert network_files([f, g], {"f": a, "g": tmp_path / "x/../a"}) == [a, a]
    other = Declared("g", "", (), ())
    assert network_files([f, other], {"g": b, "f": a}) == [a, b]
    refused = (
        ([f, g], {"f": a, "g": b}, "equal to f, and was given another"),
        ([f, other], {"f": a}, "no file is given for g"),
        ([f, other], {"": a}, "declares f, g"),
        ([f], {"f": a, "h": b}, "no network h"),
    )
    for networks, given, words in refused:
        with pytest.raises(bl.ArgumentError, match=words):
            network_files(networks, given)


def test_networks_of_a_list() -> None:
    field = "[('f', 'onnx/a b.onnx'), ('g', './onnx/b=c.onnx')]"
    assert named_networks(field) == {"f": "onnx/a b.onnx", "g": "./onnx/b=c.onnx"}
    for plain in ("onnx/a.onnx", "[", "[1, 2]", "[]", "[('f', 'a'), ('f', 'b')]", "[('f',)]"):
        assert named_networks(plain) == {"": plain}
    assert networks_given([field]) == {"f": Path("onnx/a b.onnx"), "g": Path("onnx/b=c.onnx")}
    assert networks_given(["f=a=b.onnx"]) == {"f": Path("a=b.onnx")}
    assert networks_given(["x/y=b.onnx"]) == {"": Path("x/y=b.onnx")}
    instance = Instance("[('f', 's/onnx/a.onnx'), ('g', 's/onnx/b.onnx')]", "s/p.vnnlib", 1.0)
    assert instance.name == "a_b_p" and instance.set == "s"


def test_lists_of_queries(tmp_path: Path) -> None:
    write_scaled(tmp_path, "f.onnx", 1.0)
    text = SAME_INPUTS.format(relation="equal-to") + "(assert (>= (- V[0] Y[0]) 0.0))"
    write(tmp_path, text)
    listed, output = tmp_path / "instances.csv", tmp_path / "out"
    listed.write_text("\"[('f', 'f.onnx'), ('g', 'f.onnx')]\",q.vnnlib,100\n")
    assert run("verify", "--instances", listed, "--output", output, "--threads", "1") == 0
    (example,) = (output / "counterexamples").iterdir()
    assert example.read_text().startswith("X real [2]\n")
    assert "f.onnx + f.onnx" in (output / "report.html").read_text()


def test_of_is_plain_for_one_network(tmp_path: Path) -> None:
    network = bl.load_onnx(write_network(tmp_path))
    question = read_question(ONE.format(type="real", least=0.0))
    assert AskedOfNetworks.of(question, [network], [tmp_path]).model is network
