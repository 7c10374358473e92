"""``boundlab verify``: one instance, lists, the competition's files, and processes that fail."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest
import torch
from rich.console import Console

import boundlab as bl
from boundlab.commands import answers, limits, threads
from boundlab.commands.benchmark import Plan, by_set, counterexample_names, summary
from boundlab.commands.competition import (
    Instance,
    counterexample_text,
    find_file,
    read_counterexample,
    read_instances,
)
from boundlab.commands.outcomes import HEADER, Outcome, OutcomeFile
from boundlab.commands.processes import Task, run_tasks
from boundlab.commands.verifying import shown_example
from boundlab.errors import ArgumentError, UnsupportedOperator
from boundlab.onnx import OnnxModel
from boundlab.verify import Verdict
from tests.helpers.commands import error, run
from tests.helpers.instances import LARGEST, rows, write_network, write_property


@pytest.fixture
def network(tmp_path: Path) -> Path:
    return write_network(tmp_path)


def test_a_property_that_holds(network: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = network.parent
    prop = write_property(folder, LARGEST + 1e-3)
    result, out = folder / "out" / "result.txt", folder / "out.json"
    assert run("verify", network, prop, "--result", result, "--json", out) == 0
    assert result.read_text() == "unsat\n"
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "unsat" and printed[1].startswith("holds (")
    found = Outcome.from_json(out.read_text())
    assert found.status == "unsat" and found.domains >= 1 and found.stage and not found.error


def test_a_property_that_is_violated(network: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = network.parent
    prop = write_property(folder, LARGEST - 1e-3)
    result = folder / "result.txt"
    assert run("verify", network, prop, "--result", result) == 0
    assert capsys.readouterr().out.startswith("sat\nviolated (")
    word, _, text = result.read_text().partition("\n")
    assert word == "sat" and text.startswith("((X_0 ") and text.endswith("))\n")
    x, y = read_counterexample(text)
    own = bl.load_onnx(network)(x[None].float())
    assert isinstance(own, torch.Tensor)
    assert run("verify", network, prop) == 0  # without a file the input is printed
    printed = capsys.readouterr().out
    assert "breaks it by 0.00" in printed and "\n((X_0 " in printed
    assert shown_example("((X_0 1)\n" * 21) == "  --result FILE writes its inputs and outputs"
    assert torch.equal(own.flatten().double(), y)  # digit by digit
    assert bl.load_vnnlib(prop).violated(x[None], own).all()


def test_time_that_is_not_enough(network: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prop, result = write_property(network.parent, 3.0), network.parent / "result.txt"
    assert run("verify", network, prop, "--timeout", "1e-6", "--result", result) == 0
    assert result.read_text() == "timeout\n"
    assert capsys.readouterr().out.startswith("timeout\n")


def test_a_search_that_ends_open(network: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before its time it is unknown, after it timeout; Ctrl-C while files are read is unknown."""
    prop = write_property(network.parent, 3.0)
    stages = (bl.verify(bl.load_onnx(network), bl.load_vnnlib(prop)).stages[0],)
    left = Verdict("unknown", None, -1.5, stages, 7, 0.1)
    monkeypatch.setattr(answers, "verify", lambda *_, **__: left)
    found = answers.answer(network, prop, time.monotonic() + 60, 1)
    assert found.word == "unknown" and found.result == "unknown\n" and "-1.5" in str(found)
    spent = f"attack {stages[0].seconds:.4g}"
    assert found.outcome(2.0) == Outcome("unknown", 2.0, 7, -1.5, "attack", "", spent)
    monkeypatch.setattr(answers, "verify", lambda *_, **__: time.sleep(0.3) or left)
    assert answers.answer(network, prop, time.monotonic() + 0.25, 1).word == "timeout"

    def interrupted(_: Path) -> OnnxModel:
        raise KeyboardInterrupt

    monkeypatch.setattr(answers, "load_onnx", interrupted)
    assert answers.answer(network, prop, time.monotonic() + 60, 1).word == "unknown"


def test_a_counterexample_that_onnxruntime_does_not_confirm(
    network: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxruntime")
    prop = write_property(network.parent, LARGEST - 1e-3)
    ask = lambda: answers.answer(network, prop, time.monotonic() + 60, 1)
    assert ask().word == "sat"
    monkeypatch.setattr(answers, "run", lambda *_: [torch.zeros(1, 1)])
    found = ask()
    assert found.word == "unknown" and "none with onnxruntime" in str(found)
    assert found.result == "unknown\n" and found.verdict is not None
    assert found.verdict.status == "unknown" and found.verdict.counterexample is None

    def fails(_: Path) -> None:
        raise ArgumentError("no such operator")

    monkeypatch.setattr(answers, "session", fails)
    found = ask()
    assert found.word == "sat" and "no such operator" in found.note


def test_what_cannot_be_read_is_an_error(
    network: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = network.parent
    prop, result, out = write_property(folder, 3.0), folder / "result.txt", folder / "out.json"
    files = ["--result", str(result), "--json", str(out)]
    said = error(capsys, "verify", str(folder / "none.onnx"), str(prop), *files)
    assert "no such file" in said and result.read_text() == "error\n"
    assert "no such file" in json.loads(out.read_text())["error"]

    def fails(*_: object) -> None:
        raise RuntimeError("two\nlines")

    monkeypatch.setattr("boundlab.commands.verifying.answer", fails)
    with pytest.raises(RuntimeError):  # a bug is shown with its traceback
        run("verify", network, prop, *files)
    assert json.loads(out.read_text())["error"] == "RuntimeError: two lines"

    def too_much(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("boundlab.commands.verifying.answer", too_much)
    assert "memory ran out" in error(capsys, "verify", str(network), str(prop), *files)
    assert json.loads(out.read_text())["error"] == "memory ran out"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["net.onnx"], "give a network and a property"),
        (["net.onnx", "p.vnnlib", "--timeout", "-1"], "positive number of seconds"),
        (["net.onnx", "p.vnnlib", "--timeout", "nan"], "positive number of seconds"),
        (["net.onnx", "p.vnnlib", "--threads", "0"], "--threads must be at least 1"),
        (["net.onnx", "p.vnnlib", "--memory", "much"], "2 GiB"),
        (["net.onnx", "p.vnnlib", "--ray", "local"], "--ray spreads a list"),
        (["net.onnx", "--instances", "i.csv", "--output", "o"], "no network or property"),
        (["--instances", "i.csv"], "--output DIR"),
        (["--instances", "none.csv", "--output", "o"], "No such file"),
        (["--instances", "none.csv", "--output", "o", "--result", "r"], "takes --output"),
    ],
)
def test_refusals(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert words in error(capsys, "verify", *arguments)


# -- the competition's files -----------------------------------------------------------------------


def test_counterexamples_read_back_exactly() -> None:
    x = torch.tensor([[0.1, -1e-40], [3e38, 1 / 3]])
    y = torch.tensor([[1e-300, -0.0, 2.0 / 3]], dtype=torch.float64)
    text = counterexample_text(x, y)
    assert text.splitlines()[0] == f"((X_0 {float(x[0, 0])!r})"
    read_x, read_y = read_counterexample(text)
    assert torch.equal(read_x.float(), x.flatten()) and torch.equal(read_y, y.flatten())
    for broken in ("", "((X_0 1)(Y_1 2))", "((X_0 one)(Y_0 2))"):
        with pytest.raises(ArgumentError):
            read_counterexample(broken)


def test_lists_of_instances(tmp_path: Path) -> None:
    path = tmp_path / "instances.csv"
    path.write_text("onnx/a.onnx,vnnlib/p.vnnlib,116\r\n\n./onnx/b.onnx, vnnlib/p.vnnlib ,0.5\n")
    first, second = read_instances(path)
    assert first == Instance("onnx/a.onnx", "vnnlib/p.vnnlib", 116.0) and first.name == "a_p"
    assert second.vnnlib == "vnnlib/p.vnnlib" and second.timeout == 0.5
    assert {one.timeout for one in read_instances(path, 3.0)} == {3.0}
    for text in ("", "onnx/a.onnx\n", "a.onnx,p.vnnlib\n", "a,b,c\n", "a,b,-1\n", ",b,1\n"):
        path.write_text(text)
        with pytest.raises(ArgumentError):
            read_instances(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ArgumentError):
        read_instances(path)


def test_files_of_instances(tmp_path: Path) -> None:
    (tmp_path / "a.onnx.gz").touch()
    assert find_file(tmp_path, "a.onnx").name == "a.onnx.gz"
    (tmp_path / "a.onnx").touch()
    assert find_file(tmp_path, "a.onnx").name == "a.onnx"
    with pytest.raises(ArgumentError, match=r"no file b\.onnx"):
        find_file(tmp_path, "b.onnx")


def test_counterexamples_stay_in_their_folder() -> None:
    sets = {
        "a/onnx/n.onnx": "a",
        "/a/onnx/n.onnx": "a",
        "../a/onnx/n.onnx": "a",
        "a/onnx/b/n.onnx": "a",
        "a/nets/n.onnx": "a",
        "onnx/n.onnx": "",
        "../n.onnx": "",
        "/n.onnx": "",
    }
    instances = [Instance(path, "p.vnnlib", 1.0) for path in sets]
    assert [one.set for one in instances] == list(sets.values())
    names = list(counterexample_names(instances).values())
    assert names[:2] == ["a/n_p.counterexample", "a/n_p-2.counterexample"]
    assert len(set(names)) == len(sets)
    assert not any(Path(name).is_absolute() or ".." in Path(name).parts for name in names)


# -- lists -----------------------------------------------------------------------------------------


def test_a_list(network: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Instances that are decided, broken and missing, in processes; then what is left."""
    folder = network.parent
    write_property(folder, LARGEST - 1e-3, "sat.vnnlib")
    (folder / "bad.onnx").write_bytes(b"nothing")
    names = ["net.onnx,sat.vnnlib", "bad.onnx,unsat.vnnlib", "net.onnx,missing.vnnlib"]
    listed, output = folder / "instances.csv", folder / "results"
    write_property(folder, LARGEST + 1e-3, "unsat.vnnlib")
    listed.write_text("".join(f"{name},100\n" for name in names))
    command = ["verify", "--instances", listed, "--output", output, "--jobs", "2"]
    assert run(*command, "--threads", "1") == 0
    held = rows(output)
    assert [held[name][2] for name in ("sat.vnnlib", "unsat.vnnlib", "missing.vnnlib")] == [
        "sat",
        "error",
        "error",
    ]
    assert held["sat.vnnlib"][6] in ("attack", "bounds")  # the former may be late
    assert float(held["sat.vnnlib"][3]) > 0
    assert "is no ONNX file" in held["unsat.vnnlib"][7]
    assert "no file missing.vnnlib" in held["missing.vnnlib"][7]
    assert [path.name for path in (output / "counterexamples").iterdir()] == [
        "net_sat.counterexample"
    ]
    x, y = read_counterexample((output / "counterexamples/net_sat.counterexample").read_text())
    assert bl.load_vnnlib(folder / "sat.vnnlib").violated(x[None], y[None]).all()
    assert f"│ {folder.name[:5]}" in capsys.readouterr().out
    assert "give --resume" in error(capsys, *map(str, command))

    results = output / "results.csv"
    before = results.read_text()
    results.write_text(before + "net.onnx,late.vnn")  # torn by a crash
    assert run(*command, "--resume") == 0
    assert results.read_text() == before


def test_results_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    for text in ("", "a,b\n", ",".join(HEADER) + "\nn,p,perhaps,1,0,,,,\n"):
        path.write_text(text)
        with pytest.raises(ArgumentError, match="move it away"):
            OutcomeFile.open(path, resume=True)


def test_outcomes_read_back(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    instance = Instance("a/onnx/n.onnx", "p,q.vnnlib", 1.0)
    said = 'so "it" is, they say'
    outcome = Outcome("unknown", 1.25, 12, -1e-7, "input splitting", said, "a 1; b 2")
    written = OutcomeFile.open(path, resume=False)
    written.put(instance, outcome)
    again = OutcomeFile.open(path, resume=True)
    assert again.get(instance) == outcome == Outcome.from_json(outcome.as_json())
    assert again.get(Instance("b.onnx", "p,q.vnnlib", 1.0)) is None
    assert by_set([instance], again) == {"a": [outcome]}
    Console(quiet=True).print(summary([instance], again, ""))


def test_errors_in_words() -> None:
    assert Outcome.failed(UnsupportedOperator("no\n rule"), 1.0).error == "no rule"
    assert Outcome.failed(KeyError("k"), 1.0).error == "KeyError: 'k'"


def test_processes_that_die_hang_or_say_nothing(tmp_path: Path) -> None:
    codes = {
        "dies": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "hangs": "import time; time.sleep(100)",
        "silent": "pass",
        "raises": "raise ValueError('no good')",
        "lies": "open('{}/outcome.json', 'w').write('{{\"status\": \"perhaps\"}}')",
    }
    tasks = [
        Task(
            Instance(name, "", 0.3),
            (sys.executable, "-S", "-c", code.format(tmp_path / name)),
            tmp_path / name,
        )
        for name, code in codes.items()
    ]
    start = time.monotonic()
    found = {task.instance.onnx: one for task, one in run_tasks(tasks, jobs=5, grace=3.0)}
    assert time.monotonic() - start < 30
    assert {name: one.status for name, one in found.items()} == {
        name: "timeout" if name == "hangs" else "error" for name in codes
    }
    assert "signal 9" in found["dies"].error and "killed 3 s after" in found["hangs"].error
    assert found["raises"].error == "ValueError: no good"
    assert "no answer" in found["silent"].error


def test_processes_end_with_their_list(tmp_path: Path) -> None:
    """As after Ctrl-C."""
    code = (sys.executable, "-S", "-c", "import time; time.sleep(100)")
    quick = (sys.executable, "-S", "-c", "pass")
    tasks = [
        Task(Instance("quick", "", 60.0), quick, tmp_path / "0"),
        Task(Instance("slow", "", 60.0), code, tmp_path / "1"),
    ]
    at_work = run_tasks(tasks, jobs=2)
    task, _ = next(at_work)
    assert task.instance.onnx == "quick"
    workers = at_work.gi_frame.f_locals["working"]
    assert [worker.process.poll() for worker in workers] == [None]
    at_work.close()
    assert [worker.process.poll() for worker in workers] == [-9]


def test_commands_of_a_plan(network: Path) -> None:
    write_property(network.parent, 1.0)
    instance = Instance("net.onnx", "p.vnnlib", 2.5)
    plan = Plan([instance], network.parent, Path("out"), threads=3, memory="4 GiB")
    command = plan.command(instance, Path("task"))
    assert command[1:4] == ("-m", "boundlab", "verify") and command[4] == str(network)
    assert command[-4:] == ("--threads", "3", "--memory", "4 GiB") and "2.5" in command
    many = Plan([instance], network.parent, Path("out"), jobs=10**6)
    assert many.command(instance, Path("task"))[-2:] == ("--threads", "1")


# -- time, memory, threads -------------------------------------------------------------------------


def test_time_counts_from_the_start_of_the_process() -> None:
    now = time.monotonic()
    assert limits.beginning(["verify"]) >= now
    assert limits.beginning(None) <= now - 0.9 * time.process_time()
    assert time.process_time() <= limits.process_age() < 1e6


def test_threads_are_measured(network: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = bl.load_onnx(network)
    before = torch.get_num_threads()
    try:
        assert threads.set_threads(loaded, 2) == 2 == torch.get_num_threads()
        assert threads.faster_threads(loaded) in (1, 2)
        seconds = lambda fast: lambda *_: 1.0 if torch.get_num_threads() == fast else 2.0
        for fast in (1, 2):
            torch.set_num_threads(2)
            monkeypatch.setattr(threads, "_pass_seconds", seconds(fast))
            assert threads.set_threads(loaded, None) == fast == torch.get_num_threads()
    finally:
        torch.set_num_threads(before)
