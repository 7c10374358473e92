"""The attack on labels, for one classifier."""

from __future__ import annotations

import pytest
import torch

from tests.attacks.labels import ASKED, Subject, attack, subject


@pytest.fixture(scope="module")
def classifier() -> Subject:
    """As many samples as classes, so that no shape gives it away."""
    return subject(0)


@pytest.mark.parametrize("question", sorted(ASKED))
def test_labels(question: str, classifier: Subject) -> None:
    # none is 0, so that they are a mask of all samples too
    found = attack(classifier, torch.tensor([3, 1, 2, 1]), (question,))
    assert not found, "\n" + "\n".join(map(str, found))
