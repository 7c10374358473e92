"""Training and attacks with replaced words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import boundlab as bl
from boundlab.data.sentences import Sentences, Vocabulary, load_sst
from boundlab.models.text import TextClassifier, build_text
from boundlab.training.processes import Processes
from boundlab.training.recipes import RECIPES
from boundlab.training.tasks import WordsTask
from boundlab.training.words import attacked, evaluate_words


def test_words_can_be_trained(treebank: Path) -> None:
    torch.manual_seed(0)
    data = load_sst(treebank)["train"]
    model = build_text("transformer", len(data.vocabulary), 2)
    words = data.words[:, :8]
    choices = data.vocabulary.substitutes[words]
    net = bl.capture(model.body, model.embedding(words[:2]).detach(), words[:2] != 0)
    optimiser, seen = torch.optim.Adam(model.parameters(), lr=3e-3), []
    for _ in range(12):
        optimiser.zero_grad()
        region = bl.Words(
            model.embedding(words), model.embedding(choices), choices != 0, 1, eps=0.2
        )
        loss = bl.robust_cross_entropy(net, region, words != 0, data.labels).mean()
        loss.backward()
        assert (
            model.embedding.weight.grad is not None
            and torch.isfinite(model.embedding.weight.grad).all()
        )
        optimiser.step()
        seen.append(float(loss.detach()))
    assert seen[-1] < seen[0]


def test_attacks_find_what_is_there() -> None:
    """A bag of words with known weights: the attack finds exactly the sentences that replacing
    enough words breaks."""
    vocabulary = Vocabulary.of(
        [[f"w{k}" for k in range(8)]] * 2, {f"w{k}": [f"w{k + 4}"] for k in range(4)}
    )

    class Bag(nn.Module):
        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            total = (x[..., 0] * mask).sum(1)
            return torch.stack([-total, total], 1)

    model = TextClassifier(Bag(), len(vocabulary))
    with torch.no_grad():
        model.embedding.weight.zero_()
        for k in range(8):
            model.embedding.weight[vocabulary.numbers[f"w{k}"], 0] = 1.0 if k < 4 else -1.0
    sentence = torch.tensor(vocabulary.encode(["w0", "w1", "w2", "w3"]))
    assert [
        attacked(model, sentence, 1, vocabulary.substitutes, budget) is not None
        for budget in range(4)
    ] == [False, False, True, True]
    data = Sentences.of(
        [(["w0", "w1", "w2", "w3"], 1, True), (["w0"], 1, True), (["w4"], 1, True)],
        vocabulary,
        "bag",
    )
    found = evaluate_words(model, data, (0, 1, 2), ("ibp", "crown"))
    assert found.clean == pytest.approx(2 / 3)
    assert (
        found.attacked
        == found.verified["crown"]
        == {0: pytest.approx(2 / 3), 1: pytest.approx(1 / 3), 2: 0.0}
    )
    # of affine functions interval arithmetic asks the region itself
    assert found.verified["ibp"] == found.verified["crown"]


class Pair(nn.Module):
    """Class 1 unless the first two words are both replaced, each of which alone makes it surer; the
    others are decoys."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        pair, others = x[:, :2, 0].sum(1), x[:, 2:, 0].sum(1)
        margin = 1 + 0.5 * pair - 4 * (pair - 1).clamp(min=0) - 0.1 * others
        return torch.stack([torch.zeros_like(margin), margin], 1)


def test_small_budgets_are_searched_whole() -> None:
    vocabulary = Vocabulary.of([list("abcdefg")] * 2, {word: ["g"] for word in "abcdef"})
    model = TextClassifier(Pair(), len(vocabulary)).eval()
    with torch.no_grad():
        model.embedding.weight.zero_()
        model.embedding.weight[vocabulary.numbers["g"], 0] = 1.0
    sentence = torch.tensor(vocabulary.encode(list("abcdef")))
    assert attacked(model, sentence, 1, vocabulary.substitutes, 1) is None
    found = attacked(model, sentence, 1, vocabulary.substitutes, 2)
    assert found is not None and [vocabulary.words[n] for n in found[:6]] == list("ggcdef")
    # greedy: it takes a decoy
    assert attacked(model, sentence, 1, vocabulary.substitutes, 2, most=1) is None


def test_batches_hold_sentences_of_like_lengths_and_every_sentence_comes_once() -> None:
    vocabulary = Vocabulary.of([["a", "a"]], {})
    data = Sentences.of(
        [(["a"] * (1 + k % 31), k % 2, True) for k in range(200)], vocabulary, "train"
    )
    recipe = replace(RECIPES["sst-transformer"], phrases=0, batch=16)
    task = WordsTask(recipe, data, Processes())
    order = task.order(3, torch.Generator().manual_seed(0))
    assert sorted(order.tolist()) == list(range(200))
    lengths = [task.batch(part, torch.Generator())[0].shape[1] for part in order[:192].split(16)]
    assert sum(lengths) < 12 * 24 and lengths != sorted(lengths)
    assert not torch.equal(order, task.order(3, torch.Generator().manual_seed(1)))
