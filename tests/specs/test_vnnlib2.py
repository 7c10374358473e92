"""VNN-LIB 2: what is read, what is refused, and files that are not ours."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import boundlab as bl
from boundlab.specs.vnnlib import load_vnnlib, parse_vnnlib
from tests.helpers.shared import SHARED
from tests.helpers.vnnlib import Judge

pytest.importorskip("vnnlib")

HEAD = """; a comment with (brackets [and "quotes
(vnnlib-version <2.0>)
(declare-network N (declare-input X float32 [1, 2]) (declare-output Y float32 [2]))
"""
BOX = "".join(f"(assert (>= X[0,{i}] -1.0)) (assert (<= X[0,{i}] 1.0))\n" for i in range(2))
OUTPUTS = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [-1.0, 0.5]])


def verdicts(assertions: str) -> list[int]:
    """Which of the outputs are violations, at an input inside the box."""
    prop = parse_vnnlib(HEAD + BOX + assertions)
    return [int(one) for one in prop.violated(torch.full((4, 2), 0.5), OUTPUTS)]


@pytest.mark.parametrize(
    ("assertion", "expected"),
    [
        ("(<= Y[0] 0.0)", [1, 1, 0, 1]),
        ("(< Y[0] 0.0)", [0, 0, 0, 1]),
        ("(>= Y[0] Y[1])", [1, 0, 1, 0]),
        ("(> Y[0] Y[1])", [0, 0, 1, 0]),
        ("(== Y[1] 0.0)", [1, 0, 1, 0]),
        ("(!= Y[1] 0.0)", [0, 1, 0, 1]),
        ("(and (<= Y[0] 0.0) (or (== Y[1] 1.0) (== Y[1] 0.5)))", [0, 1, 0, 1]),
        ("(<= (+ Y[0] Y[1] X[0,0]) 1.0)", [1, 0, 0, 1]),
        ("(<= (- Y[0] Y[1] 0.25) (- 0.25))", [1, 1, 0, 1]),
        ("(<= (- Y[1]) (* 2.0 Y[0] 0.5))", [1, 1, 1, 0]),
        ("(<= Y[0] -1)", [0, 0, 0, 1]),
        ("(<= Y[0] -1e0)", [0, 0, 0, 1]),
        ("(<= Y[ 0 ] (* 1E+1 -.1))", [0, 0, 0, 1]),
        ("(>= Y[1] +5e-01)", [0, 1, 0, 1]),
        ("(<=\tY[0](- 0 1.))", [0, 0, 0, 1]),
        ("(<= 0 1)", [1, 1, 1, 1]),
        ("(< 1 0)", [0, 0, 0, 0]),
    ],
)
def test_what_is_read(assertion: str, expected: list[int]) -> None:
    assert verdicts(f"(assert {assertion})") == expected


def test_tensors_are_flat_in_the_order_of_their_declaration() -> None:
    text = """(vnnlib-version <2.0>) (declare-network N
    (declare-input A real [2, 2]) (declare-input B real [])
    (declare-output Y real [2]) (declare-output Z real [1, 2]))
    (assert (and (== A[0,0] 1) (== A[0,1] 2) (== A[1,0] 3) (== A[1,1] 4) (== B 5)))
    (assert (and (== Y[0] 6) (== Y[1] 7) (== Z[0,0] 8) (== Z[0,1] 9)))"""
    prop = parse_vnnlib(text)
    assert prop.regions[0].centre.tolist() == [[1.0, 2.0, 3.0, 4.0, 5.0]]
    outputs = torch.tensor([[6.0, 7, 8, 9], [6.0, 7, 9, 8]])
    assert prop.violated(torch.tensor([[1.0, 2, 3, 4, 5]] * 2), outputs).tolist() == [True, False]
    with pytest.raises(bl.ArgumentError, match=r"A\[1,0\] has no upper bound"):
        parse_vnnlib(text.replace("(== A[1,0] 3)", "(>= A[1,0] 3)"))


def test_alternatives_of_boxes_become_cases() -> None:
    text = "(assert (or (<= X[0,0] -0.5) (and (>= X[0,1] 0.25) (<= X[0,1] 0.75))))"
    prop = parse_vnnlib(HEAD + BOX + text)
    assert [region.hull().lower.tolist() for region in prop.regions] == [[[-1, -1]], [[-1, 0.25]]]


TWO = "(declare-network M ({} N) (declare-input U float32 [1, 2]) (declare-output V float32 [2]))"
HIDDEN = HEAD.replace("(declare-output", '(declare-hidden H float32 [3] "h") (declare-output')
LAST = "(assert (<= Y[0] 0.0))"
REFUSED = {
    "no bound": (HEAD + LAST, r"X\[0,0\] has no lower bound"),
    "equal networks": (HEAD + TWO.format("equal-to") + LAST, "networks: N, M equal-to N"),
    "alike networks": (HEAD + TWO.format("isomorphic-to") + LAST, "N, M isomorphic-to N"),
    "hidden nodes": (HIDDEN + BOX + LAST, "declares H inside of the network"),
    "product": (
        HEAD + BOX + LAST + "(assert (<= (* Y[0] Y[1]) 0.0))",
        r"assertion 6, \(assert \(<= \(\* Y \[0\] Y \[1\]\) 0\.0\)\): .* is not linear",
    ),
    "whole numbers": (HEAD.replace("float32", "int8") + LAST, "Expected type 'I8'"),
    "strings": (HEAD.replace("float32", "string") + BOX + LAST, "type that is not known"),
    "other spelling": (HEAD.replace("float32", "Real") + BOX + LAST, "type that is not known"),
    "small floats": (HEAD.replace("float32", "float8e5m2") + BOX, "type that is not known"),
    "version": (HEAD.replace("2.0", "2.1") + BOX, "of version 2.1"),
    "no version": (HEAD.replace("<2.0>", "") + BOX, "no VNN-LIB 2: .* line 2"),
    "infix": (HEAD + BOX + "(assert (Y[0] < 1.0))", "syntax error at line 6"),
    "not declared": (HEAD + BOX + "(assert (<= Z[0] 1.0))", "line 6: Undeclared variable"),
    "out of range": (HEAD + BOX + "(assert (<= Y[2] 1.0))", "Index 2 is out of bounds"),
    "many errors": (HEAD + BOX + "(assert (<= Y[2] Y[3]))", r"and 1 more"),
    "an index below 0": (HEAD + BOX + "(assert (<= Y[-1] 1.0))", r"line 6: \[-1\] must hold"),
    "half an index": (HEAD + BOX + "(assert (<= Y[0.7] 1.0))", "must hold whole numbers"),
    "half a size": (HEAD.replace("[2]", "[2.5]") + BOX + LAST, "must hold whole numbers"),
    "a size of 2^32": (HEAD.replace("[2]", "[4294967298]") + BOX, "must hold whole numbers"),
    "many inputs": (HEAD.replace("[1, 2]", "[99999999,999999999]") + BOX, "can have bounds"),
    "an open index": (HEAD + BOX + "(assert (<= Y[0 1.0))", "must hold whole numbers"),
    "not": (HEAD + BOX + "(assert (not (<= Y[0] 1.0)))", "'not'"),
    "division": (HEAD + BOX + "(assert (<= Y[0] (/ 1.0 2.0)))", "'/'"),
    "too large": (HEAD + BOX + "(assert (<= Y[0] 1e999))", "line 6: 1e999 is beyond double"),
    "too small": (HEAD + BOX + "(assert (<= Y[0] 1e-320))", "no VNN-LIB 2"),
    "cut off": ((HEAD + BOX + LAST)[:-2], "syntax error"),
    "no assertion": (HEAD, "syntax error"),
    "junk": (HEAD + BOX + "hello", "syntax error"),
    "a zero byte": (HEAD + BOX + "\0" + LAST, "zero byte"),
    "other letters": (HEAD + BOX + LAST.replace("Y", "\u00e9"), "no VNN-LIB 2"),
    "deep": (HEAD + "(assert " + "(and " * 10**6 + "(<= Y[0] 0.0)" + ")" * 10**6, "nested"),
    "deep terms": (HEAD + "(assert (<= Y[0] " + "(- " * 10**6 + "1.0" + ")" * 10**6, "nested"),
    "explosion": (HEAD + BOX + "(assert (!= Y[0] Y[1]))" * 40, "multiplied out"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_expressible_is_refused(name: str) -> None:
    text, words = REFUSED[name]
    with pytest.raises(bl.ArgumentError, match=words):
        parse_vnnlib(text)


def test_every_beginning_of_a_text_is_refused_or_read() -> None:
    """Truncated anywhere: an ArgumentError, or what was asserted so far."""
    text = HEAD + BOX + "(assert (or (<= (+ Y[0] (* 2.0 Y[1])) -1.5e-1) (!= X[0,0] Y[1])))"
    read = 0
    for end in range(len(text)):
        try:
            parse_vnnlib(text[:end])
        except bl.ArgumentError:
            continue
        read += 1
    assert read <= 3  # behind the last bound there is a property


def test_damaged_texts_are_refused_or_read() -> None:
    """A character replaced by another one: never another exception."""
    text = HEAD + BOX + "(assert (or (<= (+ Y[0] (* 2.0 Y[1])) -1.5e-1) (!= X[0,0] Y[1])))"
    generator = np.random.default_rng(0)
    for _ in range(500):
        letters = list(text)
        for place in generator.integers(0, len(text), 2):
            letters[place] = chr(generator.integers(1, 127))
        try:
            parse_vnnlib("".join(letters))
        except bl.ArgumentError:
            continue


def test_nesting_up_to_the_limit() -> None:
    deep = "(and " * 190 + "(<= Y[0] " + "(- " * 6 + "Y[1]" + ")" * 197
    assert verdicts(f"(assert {deep})") == [1, 1, 0, 1]


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vnnlib", None)
    with pytest.raises(bl.ArgumentError, match=r"pip install 'boundlab\[vnnlib\]'"):
        parse_vnnlib(HEAD + BOX + LAST)


def test_files_packed_or_not(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.vnnlib", tmp_path / "b.vnnlib.gz"
    plain.write_text(HEAD + BOX + LAST)
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    for path in (plain, packed):
        assert load_vnnlib(path).violated(torch.zeros(4, 2), OUTPUTS).tolist() == [
            True,
            True,
            False,
            True,
        ]
    plain.write_text(HEAD + LAST)
    with pytest.raises(bl.ArgumentError, match=r"a\.vnnlib: X\[0,0\] has no lower bound"):
        load_vnnlib(plain)


# -- files that are not ours -----------------------------------------------------------------------

SAMPLES = SHARED / "vnncomp" / "vnnlib2_samples"


@pytest.mark.parametrize("number", range(1, 11))
def test_the_same_unsafe_set_as_in_version_1(number: int) -> None:
    second = SAMPLES / "acasxu_2023" / "vnnlib" / f"prop_{number}.vnnlib.gz"
    first = SHARED / "vnncomp" / "acasxu_2023" / "vnnlib" / second.name
    if not second.exists() or not first.exists():
        pytest.skip(f"no VNN-LIB 2 samples in BOUNDLAB_SHARED ({SHARED})")
    one, other = load_vnnlib(first), load_vnnlib(second)
    for a, b in zip(one.regions, other.regions, strict=True):
        assert torch.equal(a.hull().lower, b.hull().lower)
        assert torch.equal(a.hull().upper, b.hull().upper)
    generator = np.random.default_rng(number)
    box = one.regions[number % len(one.regions)].hull()
    low, up = box.lower[0].numpy(), box.upper[0].numpy()
    x = generator.uniform(low - 1e-3, up + 1e-3, (2000, 5))
    x[:1000] = x[:1000].clip(low, up)
    y = generator.normal(0, 0.1, (2000, 5)) + generator.choice([0.0, 3.991125645861615], (2000, 1))
    expected = Judge(gzip.decompress(first.read_bytes()).decode()).holds(x, y)
    for prop in (one, other):
        found = prop.violated(torch.from_numpy(x), torch.from_numpy(y)).numpy()
        assert (found == expected).all()
    assert 0.02 < expected.mean() < 0.98


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("adaptive_cruise_control_non_linear_2026", r"assertion 3, .* is not linear"),
        ("isomorphic_acasxu_2026", "several networks: f, g isomorphic-to f"),
        ("monotonic_acasxu_2026", r"syntax error at line \d+, column \d+: 'Y_f'"),
    ],
)
def test_samples_that_cannot_be_expressed(name: str, words: str) -> None:
    files = sorted((SAMPLES / name / "vnnlib").glob("*.gz"))
    if not files:
        pytest.skip(f"no VNN-LIB 2 samples in BOUNDLAB_SHARED ({SHARED})")
    for path in files:
        with pytest.raises(bl.ArgumentError, match=words):
            load_vnnlib(path)
