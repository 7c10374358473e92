"""Labelled sentences with the words that may take each other's place: the Stanford Sentiment
Treebank and sets like it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from boundlab.data.files import read_text
from boundlab.errors import ArgumentError
from boundlab.storage.digests import digest

SST = "sst"
PADDING, UNKNOWN = 0, 1
LONGEST, CHOICES = 32, 8
NO_LABEL = -1
"""Of a phrase in a tree whose label has not been read yet."""
TREES = "trees_{split}.txt"
NEIGHBOURS = "counterfitted_neighbors.json"
WHERE = f"""expected {TREES.format(split="train")}, {TREES.format(split="dev")} and
{TREES.format(split="test")} (the Stanford Sentiment Treebank, one tree a line,
nlp.stanford.edu/sentiment) and {NEIGHBOURS} (word -> list of its neighbours in counter-fitted
space, as Jia et al. 2019 use them)"""


@dataclass(frozen=True)
class Vocabulary:
    """words: number -> word, of which 0 is padding and 1 any unknown word. neighbours: word ->
    words that may replace it."""

    words: tuple[str, ...]
    neighbours: Mapping[str, Sequence[str]]

    @staticmethod
    def of(
        sentences: Iterable[Sequence[str]], neighbours: Mapping[str, Sequence[str]], least: int = 2
    ) -> Vocabulary:
        """The words that occur at least so often, most frequent ones first."""
        counts = Counter(word for sentence in sentences for word in sentence)
        kept = sorted(
            (word for word, times in counts.items() if times >= least),
            key=lambda word: (-counts[word], word),
        )
        return Vocabulary(("<pad>", "<unknown>", *kept), neighbours)

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def numbers(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words) if number > UNKNOWN}

    @cached_property
    def substitutes(self) -> Tensor:
        """The numbers of the words that may replace each word: int64 (words, choices), filled up
        with padding."""
        table = torch.full((len(self), CHOICES), PADDING)
        for number, word in enumerate(self.words):
            known = [
                self.numbers[other]
                for other in self.neighbours.get(word, ())
                if other in self.numbers and other != word
            ][:CHOICES]
            table[number, : len(known)] = torch.tensor(known, dtype=torch.int64)
        return table

    def encode(self, sentence: Sequence[str]) -> list[int]:
        return [self.numbers.get(word, UNKNOWN) for word in sentence[:LONGEST]]


@dataclass(frozen=True, eq=False)
class Sentences:
    """words: int64 (n, LONGEST), filled up with padding; labels: int64 (n,); whole: bool (n,),
    which are sentences and not phrases."""

    words: Tensor
    labels: Tensor
    whole: Tensor
    vocabulary: Vocabulary
    name: str
    classes: int = 2

    @staticmethod
    def of(
        texts: Sequence[tuple[Sequence[str], int, bool]], vocabulary: Vocabulary, name: str
    ) -> Sentences:
        """From (words, label, whether it is whole)."""
        words = torch.full((len(texts), LONGEST), PADDING)
        for row, (text, _, _) in zip(words, texts, strict=True):
            numbers = vocabulary.encode(text)
            row[: len(numbers)] = torch.tensor(numbers, dtype=torch.int64)
        return Sentences(
            words,
            torch.tensor([label for _, label, _ in texts]),
            torch.tensor([whole for _, _, whole in texts]),
            vocabulary,
            name,
        )

    def __len__(self) -> int:
        return len(self.labels)

    def pick(self, chosen: Tensor | slice) -> Sentences:
        return replace(
            self, words=self.words[chosen], labels=self.labels[chosen], whole=self.whole[chosen]
        )

    def first(self, n: int | None) -> Sentences:
        """The first n, or all if there are fewer or n is None."""
        if n is not None and n < 1:
            raise ArgumentError(f"first(n): n must be at least 1, not {n}")
        return self.pick(slice(0, n))

    @cached_property
    def digest(self) -> str:
        """Tells the set from others."""
        return digest(
            [
                self.name,
                self.labels,
                self.words,
                self.whole,
                "\n".join(self.vocabulary.words),
                self.vocabulary.substitutes,
            ]
        )

    def text(self, index: int) -> list[str]:
        """The words of one of them, unknown ones as such."""
        return [
            self.vocabulary.words[number]
            for number in self.words[index].tolist()
            if number != PADDING
        ]


def tokens(text: str) -> list[str]:
    """A user's sentence as the treebank would split it: lower case, punctuation on its own."""
    for mark in '.,!?;:()"':
        text = text.replace(mark, f" {mark} ")
    return [
        word for word in text.replace("n't", " n't").replace("'s", " 's").lower().split(" ") if word
    ]


def phrases(tree: str) -> Iterator[tuple[list[str], int]]:
    """All phrases of a tree "(3 (2 It) (4 works))" with their labels, the whole sentence last."""
    open_: list[tuple[int, int]] = []  # label and first word of the phrases that are not closed yet
    words: list[str] = []
    for part in _parts(tree):
        needs_label = bool(open_) and open_[-1][0] == NO_LABEL
        if part == "(":
            open_.append((NO_LABEL, len(words)))
        elif part == ")":
            if not open_ or needs_label:
                raise ArgumentError(f"not a tree: {tree[:80]!r}")
            label, first = open_.pop()
            yield words[first:], label
        elif needs_label:
            _, first = open_.pop()
            open_.append((_label(part, tree), first))
        else:
            words.append(part.lower())
    if open_ or not words:
        raise ArgumentError(f"not a tree: {tree[:80]!r}")


def _parts(tree: str) -> list[str]:
    """Brackets, labels and words. Only blanks part them: some words have other spaces inside."""
    spaced = tree.strip().replace("(", " ( ").replace(")", " ) ")
    return [part for part in spaced.split(" ") if part]


def _label(text: str, tree: str) -> int:
    if not text.isdigit():
        raise ArgumentError(f"not a tree: {tree[:80]!r} has {text!r} where a label should be")
    return int(text)


def read_trees(path: Path) -> list[tuple[list[str], int, bool]]:
    """The phrases of all trees of a file with a binary label: 0 and 1 are negative, 3 and 4
    positive, 2 is left out."""
    found = []
    for line in read_text(path).split("\n"):
        if line.strip():
            parts = list(phrases(line))
            found += [
                (words, int(label > 2), k == len(parts) - 1)
                for k, (words, label) in enumerate(parts)
                if label != 2
            ]
    return found


def _read_neighbours(path: Path) -> dict[str, list[str]]:
    try:
        found = json.loads(read_text(path))
    except ValueError as error:
        raise ArgumentError(f"{path} is not JSON: {error}") from error
    if not isinstance(found, dict) or not all(
        isinstance(others, list) and all(isinstance(w, str) for w in others)
        for others in found.values()
    ):
        raise ArgumentError(f"{path} must hold the neighbours of each word: {{word: [word, ...]}}")
    return found


def load_sentences(directory: str | Path, split: str) -> Sentences:
    return load_sst(directory)[split]


def load_sst(directory: str | Path) -> dict[str, Sentences]:
    """The treebank from its tree files: "train" with all phrases, "dev" and "test" with whole
    sentences; words that occur at least twice in the training sentences, in lower case."""
    directory = Path(directory)
    paths = {split: directory / TREES.format(split=split) for split in ("train", "dev", "test")}
    missing = [path.name for path in (*paths.values(), directory / NEIGHBOURS) if not path.exists()]
    if missing:
        raise ArgumentError(f"{directory} has no {', '.join(missing)}: {WHERE}")
    texts = {split: read_trees(path) for split, path in paths.items()}
    neighbours = _read_neighbours(directory / NEIGHBOURS)
    sentences = [
        list(phrases(line))[-1][0] for line in read_text(paths["train"]).split("\n") if line.strip()
    ]
    vocabulary = Vocabulary.of(sentences, neighbours)
    found = {split: Sentences.of(text, vocabulary, f"sst {split}") for split, text in texts.items()}
    for split in ("dev", "test"):
        found[split] = found[split].pick(found[split].whole)
    return found
