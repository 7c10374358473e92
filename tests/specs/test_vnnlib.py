"""VNN-LIB 1: texts and files against an evaluator of their own, and what is refused."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
import torch

import boundlab as bl
from boundlab.specs import text as texts
from boundlab.specs.vnnlib import load_vnnlib, parse_vnnlib
from tests.helpers.vnnlib import Judge

HEAD = "(declare-const X_0 Real) (declare-const X_1 Real) (declare-const Y_0 Real) " + (
    "(declare-const Y_1 Real) (assert (>= X_0 -1)) (assert (<= X_0 1.)) (assert (<= X_1 +1e0)) "
)
BOUNDED = HEAD + "(assert (>= X_1 (- 1.0)))\n"


def assert_same(text: str, inputs: int, outputs: int, count: int, scale: float = 1.5) -> None:
    """The parsed property judges random points as the evaluator does."""
    prop = parse_vnnlib(text)
    generator = torch.Generator().manual_seed(0)
    x = (torch.rand(count, inputs, generator=generator, dtype=torch.float64) * 2 - 1) * scale
    for region in prop.regions:
        low, up = region.hull().lower, region.hull().upper
        some = torch.rand(count // 2, inputs, generator=generator, dtype=torch.float64)
        x[: count // 2] = low + some * (up - low)
    y = torch.randn(count, outputs, generator=generator, dtype=torch.float64)
    expected = Judge(text).holds(x.numpy(), y.numpy())
    assert (prop.violated(x, y).numpy() == expected).all()


TEXTS = {
    "one output": "(assert (<= Y_0 0.25))",
    "two outputs": "(assert (>= Y_0 Y_1)) ; a comment with (brackets",
    "or of ands": "(assert (or (and (<= Y_0 0) (> Y_1 .5)) (and (>= Y_0 1E-1)) (< Y_1 Y_0)))",
    "nested": "(assert (and (or (<= Y_0 0) (and (<= Y_1 0) (or (>= Y_0 1) (<= Y_1 -1))))))",
    "arithmetic": "(assert (<= (+ (* 2 Y_0) (- Y_1) (/ 1 4)) (- (* Y_1 0.5) 1)))",
    "inputs too": "(assert (>= (+ Y_0 (* -2.0 X_1)) X_0))",
    "boxes": "(assert (or (and (<= X_0 0) (<= Y_0 0)) (and (>= X_0 0.5) (<= X_0 0.75))))",
    "scaled bound": "(assert (<= (* 3 X_0) 1)) (assert (<= Y_0 0))",
    "strict bound": "(assert (< X_0 0.5)) (assert (<= Y_0 0))",
    "not and implies": "(assert (not (and (<= Y_0 0) (=> (<= Y_1 0) (<= Y_1 -1)))))",
    "chain and equal": "(assert (<= -1 Y_0 Y_1 1)) (assert (or (= X_0 X_0) (<= Y_0 2)))",
    "two alternatives": "(assert (or (<= Y_0 0) (<= Y_1 0))) (assert (or (>= Y_0 -1) (>= X_0 0)))",
    "nothing beside the box": "",
    "bounds in a row": "(assert (and (<= X_0 0.5) (>= X_0 -.5)\n (<= X_1 5e-1) (<= Y_0 0)))",
    "bounds as alternatives": "(assert (or (<= X_0 -0.5) (>= X_0 0.5) (>= X_1 0.25)))",
    "rows of bounds": "(assert (or (and (<= X_0 0) (>= X_1 0)) (and (<= X_0 .5) (<= X_1 0))))",
    "rows of assertions": "(assert (<= X_0 .5))\n(assert (>= X_0 -.5)) (assert (<= X_0 5e-1))",
    "implication of bounds": "(assert (=> (<= X_0 0) (>= X_1 0)))",
    "not of bounds": "(assert (not (and (<= X_0 0) (>= X_1 0))))",
}


@pytest.mark.parametrize("name", TEXTS)
def test_texts_are_judged_as_by_the_evaluator(name: str) -> None:
    assert_same(BOUNDED + TEXTS[name], 2, 2, 1000)


def test_alternatives_of_boxes_become_cases() -> None:
    prop = parse_vnnlib(BOUNDED + TEXTS["boxes"])
    assert [region.hull().upper.tolist() for region in prop.regions] == [
        [[0.0, 1.0]],
        [[0.75, 1.0]],
    ]
    assert len(prop.cases(2)) == 2


REFUSED = {
    "no upper bound": (HEAD, "X_1 has no lower bound"),
    "not declared": (BOUNDED + "(assert (<= Y_7 0))", "Y_7 is not declared"),
    "a gap": ("(declare-const X_1 Real)", "X_0 is not declared"),
    "twice": (BOUNDED + "(declare-const X_0 Real)", "declared twice"),
    "product": (BOUNDED + "(assert (<= (* Y_0 Y_1) 0))", "is not linear"),
    "division": (BOUNDED + "(assert (<= (/ 1 Y_1) 0))", "divide"),
    "by zero": (BOUNDED + "(assert (<= (/ Y_1 0) 0))", "divide"),
    "a name": ("(declare-const Z Real)", "variables are called"),
    "a word": (BOUNDED + "(assert (<= Y_0 nan))", "neither a number"),
    "underscores": (BOUNDED + "(assert (<= Y_0 1_0))", "neither a number"),
    "too large": (BOUNDED + "(assert (<= Y_0 1e999))", "beyond double"),
    "a command": (BOUNDED + "(minimize Y_0)", "not known"),
    "a function": (BOUNDED + "(assert (forall Y_0))", "neither and"),
    "a function of terms": (BOUNDED + "(assert (<= (sin Y_0) 0))", "no linear term"),
    "cut off": (BOUNDED + "(assert (<= Y_0", "the text ends inside"),
    "closed twice": (BOUNDED + ")", "not opened"),
    "outside": (BOUNDED + "hello", "outside of all brackets"),
    "deep": (BOUNDED + "(assert " + "(and " * 5000 + "true" + ")" * 5000 + ")", "nested"),
    "explosion": (BOUNDED + "(assert (or (<= Y_0 0) (<= Y_1 0)))" * 40, "multiplied out"),
    "empty": ("", "no variable X_0"),
    "two in an assertion": (
        BOUNDED + "(assert (<= X_0 0) (>= X_0 0))",
        "several bounds is neither",
    ),
    "three in an implication": (
        BOUNDED + "(assert (=> (<= X_0 0) (>= X_0 0) (<= X_1 0)))",
        "neither and",
    ),
    "two in a not": (BOUNDED + "(assert (not (<= X_0 0) (>= X_0 0)))", "neither and"),
    "a row of nonsense": (BOUNDED + "(assert (and (<= X_0 1e) (<= X_0 1)))", "neither a number"),
    "a row of infinity": (BOUNDED + "(assert (and (<= X_0 1e999) (<= X_0 1)))", "beyond double"),
    "a row of others": (BOUNDED + "(assert (and (<= X_5 1) (<= X_0 1)))", "X_5 is not declared"),
    "a zero byte": (BOUNDED + "\0", "zero byte"),
    "a long name": (f"(declare-const X_{'9' * 5000} Real)", "variables are called"),
    "a long name in a row": (
        BOUNDED + f"(assert (and (<= X_{'9' * 20} 1) (<= X_0 1)))",
        "neither a number",
    ),
    "integers": ("(declare-const X_0 Int)", "not known"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_expressible_is_refused(name: str) -> None:
    text, words = REFUSED[name]
    with pytest.raises(bl.ArgumentError, match=words):
        parse_vnnlib(text)


def test_files_packed_and_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = BOUNDED + TEXTS["one output"]
    plain, packed = tmp_path / "a.vnnlib", tmp_path / "b.vnnlib.gz"
    plain.write_text(text)
    packed.write_bytes(gzip.compress(text.encode()))
    y = torch.tensor([[0.0, 0.0], [1.0, 0.0]])
    for path in (plain, packed):
        assert load_vnnlib(path).violated(torch.zeros(2, 2), y).tolist() == [True, False]
    packed.write_bytes(gzip.compress(text.encode())[:-20])
    with pytest.raises(bl.ArgumentError, match=r"b\.vnnlib\.gz: cannot be read"):
        load_vnnlib(packed)
    plain.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(bl.ArgumentError, match="ASCII"):
        load_vnnlib(plain)
    with pytest.raises(bl.ArgumentError, match="cannot be read"):
        load_vnnlib(tmp_path / "none")
    monkeypatch.setattr(texts, "LARGEST", 1000)
    packed.write_bytes(gzip.compress(b" " * 2000))
    with pytest.raises(bl.ArgumentError, match="MiB when it is unpacked"):
        load_vnnlib(packed)


def test_assertions_in_rows_are_read_by_arrays_and_counted() -> None:
    """Most files of megabytes have an assertion for every bound."""
    row = "(assert (<= X_0 1))\n" * 100_000
    parse_vnnlib(BOUNDED + row)
    with pytest.raises(bl.ArgumentError, match=r"command 100009, \(assert \(<= Y_7 0\)\): Y_7"):
        parse_vnnlib(BOUNDED + row + "(assert (<= Y_7 0))")
    with pytest.raises(bl.ArgumentError, match=r"command 100009.*: X_3 is not declared"):
        parse_vnnlib(BOUNDED + row + "(assert (<= X_3 0))")
    with pytest.raises(bl.ArgumentError, match="neither and"):
        parse_vnnlib(BOUNDED + "(assert (and (assert (<= X_0 1)) (assert (<= X_1 1))))")


def test_outputs_of_another_number_are_refused() -> None:
    with pytest.raises(bl.ArgumentError, match="speaks of 2 outputs, and the model has 3"):
        parse_vnnlib(BOUNDED + TEXTS["one output"]).cases(3)
