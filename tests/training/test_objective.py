"""The loss that is trained with."""

from __future__ import annotations

from dataclasses import replace

from boundlab.training.objective import Objective
from boundlab.training.trainer import Trainer
from tests.helpers.data import images
from tests.helpers.recipes import TINY


def test_objective_needs_no_second_capture_after_a_step() -> None:
    data = images()
    trainer = Trainer(replace(TINY, epochs=1), data)
    before = trainer.objective.net
    trainer.run()
    assert isinstance(trainer.objective, Objective) and trainer.objective.net is before
