"""Sentences of the treebank and their substitutes."""

from __future__ import annotations

from pathlib import Path

import pytest

import boundlab as bl
from boundlab.data.sentences import Sentences, Vocabulary, load_sst, tokens


def test_the_treebank_is_read(treebank: Path) -> None:
    data = load_sst(treebank)
    vocabulary = data["train"].vocabulary
    # lower case, seen twice, frequent first
    assert vocabulary.words == ("<pad>", "<unknown>", "a", "film", "good")
    assert [
        vocabulary.words[n]
        for n in vocabulary.substitutes[vocabulary.numbers["good"]].tolist()
        if n
    ] == ["film"]
    assert (
        len(data["dev"]) == 1
        and data["dev"].text(0) == ["good", "film"]
        and data["test"].text(0) == ["<unknown>", "<unknown>"]
    )
    texts = {
        (
            " ".join(data["train"].text(i)),
            int(data["train"].labels[i]),
            bool(data["train"].whole[i]),
        )
        for i in range(len(data["train"]))
    }
    assert (
        ("a good film", 1, True) in texts
        and ("good", 1, False) in texts
        and ("<unknown>", 0, False) in texts
    )
    assert not any(text == "a film" for text, _, _ in texts)  # neutral
    # only plain spaces separate words
    assert data["train"].pick(data["train"].whole).text(2) == ["good", "<unknown>"]


@pytest.mark.parametrize("line", ["(3 (2 a)", "3 a)", "(x a)", "()"])
def test_a_broken_tree_is_an_error(line: str, treebank: Path) -> None:
    (treebank / "trees_dev.txt").write_text(line)
    with pytest.raises(bl.ArgumentError, match="not a tree"):
        load_sst(treebank)


def test_missing_files_are_named(treebank: Path) -> None:
    (treebank / "trees_test.txt").unlink()
    with pytest.raises(bl.ArgumentError, match=r"trees_test\.txt.*Treebank"):
        load_sst(treebank)


def test_long_sentences_are_cut_and_plain_ones_split() -> None:
    vocabulary = Vocabulary.of([["a", "a"]], {})
    data = Sentences.of([(["a"] * 50, 1, True), ([], 0, True)], vocabulary, "test")
    assert data.words.shape == (2, 32) and len(data.text(0)) == 32 and data.text(1) == []
    assert tokens("It isn't bad, really!") == ["it", "is", "n't", "bad", ",", "really", "!"]
