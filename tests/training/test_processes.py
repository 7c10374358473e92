"""Many processes do what one does."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import torch

from boundlab.training.objective import ScheduleValues
from boundlab.training.trainer import CHECKPOINT, Trainer
from tests.helpers.data import images
from tests.helpers.recipes import PLAIN, TINY

WORKER = """
import sys, torch
from dataclasses import replace
from pathlib import Path
torch.set_num_threads(1)
from tests.helpers.data import images
from tests.helpers.recipes import PLAIN
from boundlab.training.processes import Processes
from boundlab.training.trainer import Trainer
from boundlab.training.objective import ScheduleValues
from boundlab.attacks import AttackSettings
from boundlab.training.evaluation import evaluate
epochs, output = int(sys.argv[1]), Path(sys.argv[2])
processes = Processes.here()
trainer = Trainer(replace(PLAIN, epochs=epochs), images(), output, processes)
trainer.resume()
batch = next(trainer.task.batches(trainer.epoch, trainer.step))
loss, _ = trainer._step(*batch, ScheduleValues(0.03, 0.5, 0.2, 0.0))
loss.backward()
if processes.rank == 0:
    gradients = [p.grad for p in trainer.model.parameters()]
    torch.save(gradients, output.parent / f"{output.name}.gradients")
trainer.run()
attack = AttackSettings(3, 1)
errors = evaluate(trainer.model, images(), 0.05, ("ibp",), attack, processes=processes)
if processes.rank == 0:
    print("ERRORS", errors.count, errors.clean, errors.verified["ibp"])
del loss, trainer  # before the group they work over
processes.leave()
"""


def run_with(count: int, epochs: int, output: Path) -> str:
    root = Path(__file__).parents[2]
    script = output.parent / "worker.py"
    script.write_text(WORKER)
    call = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        f"--nproc-per-node={count}",
        "--master-port=0",
        "--standalone",
        str(script),
        str(epochs),
        str(output),
    ]
    environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        call, env=environment, capture_output=True, text=True, cwd=root, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_two_processes_do_what_one_does(tmp_path: Path) -> None:
    """The same gradients as one process on the joint batch; a run begun by one process is ended by
    two; all samples are evaluated."""
    one, two, mixed = tmp_path / "one", tmp_path / "two", tmp_path / "mixed"
    recipe = replace(PLAIN, epochs=2)
    trainer = Trainer(recipe, images(), one)
    batch = next(trainer.task.batches(0, 0))
    loss, _ = trainer.objective(*batch, ScheduleValues(0.03, 0.5, 0.2, 0.0))
    expected = torch.autograd.grad(loss, list(trainer.model.parameters()))
    said = run_with(2, 2, two)
    for gradient, joint in zip(
        torch.load(tmp_path / "two.gradients", weights_only=True), expected, strict=True
    ):
        torch.testing.assert_close(gradient, joint, rtol=1e-4, atol=1e-6)
    assert said.split("ERRORS ")[1].split()[0] == "96"

    trainer.run()
    Trainer(replace(recipe, epochs=1), images(), mixed).run()
    run_with(2, 2, mixed)
    whole = torch.load(one / CHECKPOINT, weights_only=True)
    for folder in (two, mixed):
        found = torch.load(folder / CHECKPOINT, weights_only=True)
        assert (found["epoch"], found["step"]) == (2, 0)
        for key, value in whole["model"].items():  # Adam makes much of small differences
            torch.testing.assert_close(found["model"][key], value, rtol=0.0, atol=2 * TINY.lr)
