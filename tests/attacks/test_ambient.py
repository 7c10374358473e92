"""A selection of the attack by ambient modes; all with -m slow."""

from __future__ import annotations

import warnings

import pytest

from tests.attacks.ambient import MODES, PLACES, QUESTIONS, Plain, attack, subjects

FEW = (
    "bounds, ibp",
    "bounds, crown",
    "bounds, alpha-crown",
    "margins, crown",
    "loss, of margins",
    "gradient of a loss",
    "l2 ball",
    "flatness",
)
USUAL = (
    "autocast, bfloat16",
    "inference_mode",
    "no_grad",
    "default float64",
    "default float16",
    "deterministic",
    "two threads",
    "default device meta",
)
WORDS_TOO = ("autocast, bfloat16", "inference_mode", "default float64", "default device meta")
PLAIN: Plain = {}


@pytest.mark.parametrize("mode", USUAL)
def test_ambient_mode(mode: str) -> None:
    some = {
        name: subject
        for name, subject in subjects().items()
        if name == "dense" or (name == "words" and mode in WORDS_TOO)
    }
    found, _ = attack(mode, "ask", some, FEW, PLAIN)
    assert not found, "\n" + "\n".join(map(str, found))


@pytest.mark.parametrize(
    "mode", ["autocast, bfloat16", "inference_mode", "default float64", "default device meta"]
)
def test_ambient_mode_around_capture(mode: str) -> None:
    some = {name: subject for name, subject in subjects().items() if name == "dense"}
    found, _ = attack(mode, "both", some, FEW[:3], PLAIN)
    assert not found, "\n" + "\n".join(map(str, found))


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("mode", sorted(MODES))
def test_every_mode(mode: str, place: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found, _ = attack(mode, place, subjects(), tuple(QUESTIONS), PLAIN)
    assert not found, "\n" + "\n".join(map(str, found))
