"""The workloads are those that the peer's figures were measured on, and our bounds on them are no
looser."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import boundlab as bl
from benchmarks import page, timing, verification, vnncomp, words
from benchmarks.memory import allocated
from benchmarks.workloads import PEER, WORKLOADS
from boundlab.commands.benchmark import Plan
from boundlab.commands.outcomes import Outcome, OutcomeFile
from boundlab.data.sentences import load_sst
from boundlab.methods import backward, memory
from boundlab.models.text import build_text
from boundlab.training.recipes import RECIPES
from tests.helpers.data import write_treebank

FAST = [
    (name, method)
    for name, workload in WORKLOADS.items()
    for method in workload.batches
    if method in ("ibp", "crown-ibp")
]


@pytest.mark.parametrize(("name", "method"), FAST)
def test_margins_no_looser_than_the_peer(name: str, method: str) -> None:
    workload = WORKLOADS[name]
    x, y = workload.batch(method, 2 if name == "encoder" else 10)
    net = bl.capture(workload.network(), x)
    with torch.no_grad():
        mean = float(net.margins(bl.Linf(x, workload.eps), y, method=method).mean())
    peer = PEER[f"{name}/{method}"]["mean_margin"]
    assert mean >= peer - 1e-4 * abs(peer)
    if name != "encoder":  # there our softmax and products are tighter
        assert mean == pytest.approx(peer, rel=1e-4)


def test_every_task_is_timed_and_the_best_round_counts() -> None:
    calls = {"a": 0, "b": 0}

    def count(name: str) -> None:
        calls[name] += 1

    best = timing.best_of(
        {name: lambda name=name: count(name) for name in calls}, rounds=4, least=0
    )
    assert calls == {"a": 5, "b": 5}  # one round to warm up
    assert set(best) == {"a", "b"} and all(seconds < float("inf") for seconds in best.values())


def test_what_is_allocated_at_once_is_counted() -> None:
    def task() -> None:
        first = torch.zeros(1 << 20, dtype=torch.uint8)
        second = torch.zeros(1 << 21, dtype=torch.uint8)
        del first
        torch.zeros(1 << 19, dtype=torch.uint8).add_(second[0])

    assert allocated(task) == pytest.approx(3 << 20, abs=1 << 12)


def test_windows_take_half_the_memory_of_dense_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = WORKLOADS["resnet"]
    x, _ = workload.batch("crown", 10)
    net, region = bl.capture(workload.network(), x), bl.Linf(x, workload.eps)
    with torch.no_grad():
        ask = lambda: net.bounds(region, method="crown")
        ask()
        windows = allocated(ask)
        monkeypatch.setattr(backward, "MAX_WINDOW_FRACTION", -1.0)
        monkeypatch.setattr(memory, "SPEED", 1 << 40)
        assert windows <= allocated(ask) / 2


def test_the_page_says_what_is_missing_and_shows_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "RESULTS", tmp_path)
    monkeypatch.setattr(page, "PAGE", tmp_path / "page.md")
    page.main()
    assert page.PAGE.read_text().count("No result of") == len(page.PARTS)
    row = {
        "workload": "conv_small",
        "method": "ibp",
        "batch": 64,
        "step": 1e-3,
        "seconds": 2e-3,
        "ratio": 2.0,
        "mean_margin": -9.0,
        "gigaflops": 1.0,
        "kernels": 0.001,
    }
    timing.save("verification", {"threads": 2, "rows": {"conv_small/ibp": row}})
    page.main()
    assert (
        "| conv_small | ibp | 64 | 2.0 | 1.0 | 1.00 | 2.0 | 1.9 | 0.95 | -9.0000 | -9.0635 |"
    ) in page.PAGE.read_text()
    assert verification.gains({"conv_small/ibp": row}) == {
        "ibp": pytest.approx(PEER["conv_small/ibp"]["ratio"] / 2)
    }
    assert json.loads((tmp_path / "verification.json").read_text())["threads"] == 2


def test_replaced_words_are_measured_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(
        words,
        "cells",
        lambda: {
            "transformer, lirpa-6, 0": replace(
                RECIPES["sst-transformer"], epochs=1, phrases=0, batch=8
            )
        },
    )
    monkeypatch.setitem(words.FEW, "transformer", 2)
    monkeypatch.setattr(words, "SOME", 2)
    files = write_treebank(tmp_path)
    words.run(files, tmp_path / "runs", "")
    (row,) = timing.load("words")["runs"].values()
    assert (
        row["held"]["tried"] >= 2 * 3 * words.DRAWS
        and row["held"]["outside"] == row["held"]["changed"] == 0
    )
    assert row["all"]["verified"]["crown-ibp"]["6"] <= row["all"]["clean"]
    text = words.page({**timing.load("words"), "threads": 1, "costs": {}})
    assert (
        "| lirpa-6 | forward+backward, 2 sentences |" in text
        and "(77.4)" in text
        and "0 outside of" in text
    )
    words.run(files, tmp_path / "runs", "")  # nothing is done twice
    assert set(words.PAPER) >= {("lstm", "natural"), ("transformer", "lirpa-6")}


def test_an_output_outside_of_its_bounds_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = load_sst(write_treebank(tmp_path))["test"]
    model = build_text("transformer", len(data.vocabulary), 2).eval()
    honest = bl.Net.bounds

    def narrow(self: bl.Net, *entries: object, **options: object) -> bl.Bounds:
        found = honest(self, *entries, **options)
        middle = (found.lower + found.upper) / 2
        return replace(found, lower=middle + 1, upper=middle + 1)

    monkeypatch.setattr(bl.Net, "bounds", narrow)
    assert words.held_against_bounds(model, data.first(1))["outside"] > 0


def test_answers_are_compared_with_known_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Right, wrong, unknown and not scored; a wrong one is told by the exit code."""
    lines = [f"{of},onnx/{k}.onnx,p.vnnlib,{of},9" for k, of in enumerate(["sat", "unsat", "odd"])]
    head = "benchmark,onnx,vnnlib,verdict,timeout"
    (tmp_path / "quick.csv").write_text("\n".join([head, *lines]) + "\n")
    monkeypatch.setattr(vnncomp, "FOLDER", tmp_path)
    answers = ["sat", "timeout", "unsat"]

    def noted(plan: Plan, held: OutcomeFile, _: object) -> None:
        for instance, answer in zip(plan.instances, answers, strict=True):
            if held.get(instance) is None:
                held.put(instance, Outcome(answer, 1.0))

    monkeypatch.setattr(vnncomp, "verify_instances", noted)
    command = ["vnncomp", "--output", str(tmp_path / "out")]
    monkeypatch.setattr("sys.argv", command)
    assert vnncomp.main() == 0 and "wrong:" not in capsys.readouterr().out
    answers[1] = "sat"
    assert vnncomp.main() == 0  # what is done is not done again
    monkeypatch.setattr("sys.argv", [*command, "--again"])
    capsys.readouterr()
    assert vnncomp.main() == 1 and "wrong: unsat/onnx/1.onnx" in capsys.readouterr().out
    known = vnncomp.read_known(tmp_path / "quick.csv", ["odd"], 2.0)
    assert [one.instance.timeout for one in known] == [2.0]
    assert known[0].judge(Outcome("sat", 1.0)) == "not scored"
    (known,) = vnncomp.read_known(tmp_path / "quick.csv", ["sat"], 2.0)
    assert [known.judge(Outcome("sat", t)) for t in (1.9, 2.1)] == ["right", "late"]
    assert known.judge(Outcome("unsat", 2.1)) == "wrong"
    with pytest.raises(SystemExit, match="no instances of none"):
        vnncomp.read_known(tmp_path / "quick.csv", ["none"], None)
