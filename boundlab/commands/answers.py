"""The answer to one instance: load, verify, replay the counterexample elsewhere."""

from __future__ import annotations

import importlib.util
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from boundlab.attacks import Attack
from boundlab.commands import competition
from boundlab.commands.competition import SAT, TIMEOUT, UNKNOWN, UNSAT, counterexample_text
from boundlab.commands.outcomes import Outcome, stages_text
from boundlab.commands.threads import set_threads
from boundlab.onnx import OnnxModel, load_onnx
from boundlab.onnx.checking import run, session
from boundlab.specs.property import Property
from boundlab.specs.vnnlib import load_vnnlib
from boundlab.verify import Verdict, verify
from boundlab.verify.verdict import HOLDS, VIOLATED
from boundlab.verify.verdict import UNKNOWN as OPEN


class Subject(Protocol):
    """What is verified: a model and a property of it."""

    @property
    def model(self) -> Any: ...

    @property
    def prop(self) -> Property: ...

    def outputs_elsewhere(self, x: Tensor) -> Tensor:
        """onnxruntime's outputs at a flat input (1, inputs), (1, outputs) in double precision."""

    def text(self, x: Tensor, y: Tensor) -> str:
        """A counterexample as files have it."""


@dataclass(frozen=True, eq=False)
class Asked:
    """A network and a property of it, as the competition asks. network: its file."""

    model: OnnxModel
    prop: Property
    network: Path

    def outputs_elsewhere(self, x: Tensor) -> Tensor:
        outputs = run(session(self.network), [x], self.model.inputs)
        return torch.cat([one.reshape(1, -1).double() for one in outputs], 1)

    def text(self, x: Tensor, y: Tensor) -> str:
        return counterexample_text(x, y)


@dataclass(frozen=True, eq=False)
class Answer:
    """A verdict and the competition's word for it. note: what else there is to say of it; example:
    the counterexample as files have it."""

    word: str
    verdict: Verdict | None = None
    note: str = ""
    example: str = ""

    @property
    def result(self) -> str:
        """The content of the result file."""
        return competition.result_text(self.word, self.example)

    def outcome(self, seconds: float) -> Outcome:
        verdict = self.verdict
        if verdict is None:
            return Outcome(self.word, seconds, error=self.note)
        bound = verdict.bound if math.isfinite(verdict.bound) else None
        stage = verdict.stages[-1].name if verdict.stages else ""
        spent = stages_text((one.name, one.seconds) for one in verdict.stages)
        about = verdict.domains, bound, stage, self.note, spent
        return Outcome(self.word, seconds, *about, verdict.arithmetic or "")

    def __str__(self) -> str:
        parts = [self.word, self.note]
        if self.verdict is not None:
            parts.insert(1, str(self.verdict))
        return "\n".join(part for part in parts if part)


def answer(
    network: Path,
    prop: Path,
    deadline: float,
    threads: int | None = None,
    arithmetic: str | None = None,
) -> Answer:
    """The answer to an instance until a time of the monotonic clock, or until Ctrl-C."""
    load = lambda: Asked(load_onnx(network), load_vnnlib(prop), network)
    return answer_to(load, deadline, threads, arithmetic)


def answer_to(
    load: Callable[[], Subject],
    deadline: float,
    threads: int | None = None,
    arithmetic: str | None = None,
) -> Answer:
    """The answer to what is loaded, the time for that included. arithmetic: that a proof must hold
    for."""
    try:
        subject = load()
        set_threads(subject.model, threads)
    except KeyboardInterrupt:
        return Answer(UNKNOWN, note="interrupted while the files were read")
    left = deadline - time.monotonic()
    if left <= 0:
        return Answer(TIMEOUT, note="the time was not enough to read the files")
    verdict = verify(subject.model, subject.prop, timeout=left, arithmetic=arithmetic)
    if verdict.status == HOLDS:
        return Answer(UNSAT, verdict)
    if verdict.counterexample is not None:
        return replayed(verdict, verdict.counterexample, subject)
    ran_out = time.monotonic() >= deadline
    return Answer(TIMEOUT if ran_out else UNKNOWN, verdict)


def replayed(verdict: Verdict, found: Attack, subject: Subject) -> Answer:
    """The answer that a counterexample gives, after it was replayed with onnxruntime, if that is
    installed: not decided if there it is none."""
    assert verdict.status == VIOLATED
    given = Answer(SAT, verdict, example=subject.text(found.inputs, found.outputs))
    if importlib.util.find_spec("onnxruntime") is None:
        return given
    try:
        x = found.inputs.detach().cpu().reshape(1, -1).to(subject.model.inputs[0].dtype)
        outputs = subject.outputs_elsewhere(x)
    except Exception as error:  # onnxruntime has types of its own
        text = " ".join(str(error).split())[:300]
        return replace(given, note=f"onnxruntime could not replay the counterexample: {text}")
    if bool(subject.prop.violated(found.inputs.reshape(1, -1), outputs).all()):
        return given
    apart = float((outputs - found.outputs.reshape(1, -1).double()).abs().max())
    note = (
        "a counterexample was found that is none with onnxruntime, whose outputs there differ by "
        f"{apart:.3g}: not decided"
    )
    return Answer(UNKNOWN, replace(verdict, status=OPEN, counterexample=None), note)
