"""A selection of the attack on mixed samples: every veil once, every independent piece once."""

from __future__ import annotations

import logging

import pytest
import torch

from tests.attacks.mixing import FIXED, Model, Planted, Step, judge, plant, witness
from tests.attacks.pieces import INDEPENDENT, Shape
from tests.attacks.veils import MIXING, VEILS, Mixes

SHAPE: Shape = (3, 4)


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "boundlab")


def planted(mix: str, veil: str) -> Planted:
    hiding = VEILS[veil]
    torch.manual_seed(0)
    model = Model([Step(Mixes(MIXING[mix], hiding), False, hiding.extra is not None)]).eval()
    extras = [hiding.extra(SHAPE)] if hiding.extra else []
    return Planted(
        0, model, SHAPE, FIXED, [f"{mix} [{veil}]"], extras, True, hiding.fixes, False, False
    )


def assert_refused(model: Planted) -> None:
    """Refused, or taken for one sample as a whole."""
    verdict = judge(model)
    assert verdict is not None, "no witness"
    assert not verdict.findings, verdict.message


VEILED = (
    "before: relu",
    "before: mask, all False",
    "before: integer zero",
    "before: weight of zeros",
)
KINDS = ("gram matrix", "rolled index", "transpose written as reshape", "softmax of the transposed")


@pytest.mark.parametrize("veil", VEILED)
def test_mixing_behind_a_veil(veil: str) -> None:
    assert_refused(planted("roll by 1", veil))


@pytest.mark.parametrize(
    "veil",
    [
        "in the open",
        "one pair of six, by matrix",
        "mask of another sample",
        "integer of another sample",
    ],
)
def test_mixing_of_far_samples(veil: str) -> None:
    assert_refused(planted("roll by 3", veil))


@pytest.mark.parametrize("mix", KINDS)
def test_mixing_of_many_kinds(mix: str) -> None:
    assert_refused(planted(mix, "before: relu"))


@pytest.mark.slow
@pytest.mark.parametrize("veil", sorted(set(VEILS) - set(VEILED)))
def test_mixing_behind_every_veil(veil: str) -> None:
    assert_refused(planted("roll by 1", veil))


@pytest.mark.slow
@pytest.mark.parametrize("mix", sorted(set(MIXING) - set(KINDS)))
def test_mixing_of_every_kind(mix: str) -> None:
    # an argmax is the same for all samples that a ReLU lets through one at a time
    assert_refused(planted(mix, "added" if mix.startswith("argmax") else "before: relu"))


CHAINS: tuple[tuple[str, ...], ...] = (
    (
        "time merged with the batch, permuted",
        "heads merged with the batch",
        "batch second",
        "mean of tokens",
    ),
    (
        "scaled_dot_product_attention",
        "class token",
        "batch_norm, eval",
        "cumsum, 1",
        "unbind and stack",
        "last token",
    ),
    (
        "conv2d",
        "channels merged with the batch",
        "windows merged with the batch",
        "pixels as tokens",
        "attention by hand",
    ),
    (
        "linear",
        "weights before x",
        "filled by a mask that is False",
        "entry chosen for each sample",
        "batch as channels",
        "indexed",
    ),
    (
        "doubled batch, chunked",
        "interleaved batch",
        "flattened with the batch",
        "einsum",
        "group_norm",
        "batch last",
    ),
    ("fixed by a constant", "tanh", "linear"),
    ("branch on the batch size", "linear"),
)


@pytest.mark.parametrize("pieces", CHAINS, ids=lambda pieces: pieces[0])
def test_independent(pieces: tuple[str, ...]) -> None:
    assert_accepted(plant(1, mixes=False, pieces=pieces))


@pytest.mark.slow
@pytest.mark.parametrize(
    "piece", sorted(name for name, piece in INDEPENDENT.items() if not piece.undone)
)
def test_every_independent_piece(piece: str) -> None:
    assert_accepted(plant(1, mixes=False, pieces=(piece,)))


def assert_accepted(model: Planted) -> None:
    verdict = judge(model)
    assert verdict is not None and not verdict.findings, verdict
    assert verdict.answer in ("accepted", "one sample"), verdict.message


def test_a_witness_is_wanted() -> None:
    """Whether a model mixes is not taken on trust."""
    assert witness(planted("mean", "before: weight of zeros"))
    assert not witness(plant(1, mixes=False, pieces=("tanh",)))
