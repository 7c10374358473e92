"""Word substitutions: the region against brute force, and the networks that read sentences."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import boundlab as bl
from boundlab.coefficients.window import Placement, Run, Window
from boundlab.data.sentences import Sentences, Vocabulary, load_sst, tokens
from boundlab.methods.choices import ExactPerPosition
from boundlab.models.text import TEXT_MODELS, TextClassifier, build_text
from boundlab.training.processes import Processes
from boundlab.training.recipes import RECIPES
from boundlab.training.tasks import WordsTask
from boundlab.training.words import attacked, evaluate_words, trimmed
from tests.helpers.commands import run
from tests.helpers.data import write_treebank


def draw_words(
    seed: int, samples: int = 2, positions: int = 4, choices: int = 3, dim: int = 2
) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, positions, dim, dtype=torch.float64, generator=generator)
    others = torch.randn(samples, positions, choices, dim, dtype=torch.float64, generator=generator)
    return x, others, torch.rand(samples, positions, choices, generator=generator) < 0.7


def sentences_of(region: bl.Words, sample: int) -> list[Tensor]:
    """All sentences of one sample's set."""
    _, positions, choices = region.substitutes.shape[:3]
    allowed = (
        torch.ones(region.substitutes.shape[:3], dtype=torch.bool)
        if region.allowed is None
        else region.allowed
    )
    options = [
        [None, *[k for k in range(choices) if allowed[sample, t, k]]] for t in range(positions)
    ]
    budget = (
        positions
        if region.budget is None
        else int(torch.as_tensor(region.budget).reshape(-1).expand(len(region.x))[sample])
    )
    found = []
    for choice in itertools.product(*options):
        if sum(k is not None for k in choice) <= budget:
            word = lambda t, k: (
                region.x[sample, t]
                if k is None
                else torch.lerp(region.x[sample, t], region.substitutes[sample, t, k], region.eps)
            )
            found.append(torch.stack([word(t, k) for t, k in enumerate(choice)]))
    return found


@settings(deadline=None, max_examples=40)
@given(
    st.integers(0, 10_000),
    st.sampled_from([None, 0, 1, 2, 4, "each"]),
    st.sampled_from([1.0, 0.5, 0.0]),
    st.booleans(),
)
def test_minimum_and_hull_are_those_of_all_sentences(
    seed: int, budget: int | str | None, eps: float, every: bool
) -> None:
    x, others, allowed = draw_words(seed)
    limit = torch.tensor([1, 3]) if budget == "each" else budget
    region = bl.Words(x, others, None if every else allowed, limit, eps)  # type: ignore[arg-type]
    rows = torch.randn(
        3, 2, 4, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(seed + 1)
    )
    found, hull = region.minimum(rows), region.hull()
    for sample in range(2):
        sentences = torch.stack(sentences_of(region, sample))
        expected = torch.einsum("rld,mld->rm", rows[:, sample], sentences).amin(1)
        torch.testing.assert_close(found[:, sample], expected)
        torch.testing.assert_close(hull.lower[sample], sentences.amin(0))
        torch.testing.assert_close(hull.upper[sample], sentences.amax(0))
    for k in range(4):
        point = region.sample(torch.Generator().manual_seed(k))
        for sample in range(2):
            distances = (
                (torch.stack(sentences_of(region, sample)) - point[sample]).abs().amax((1, 2))
            )
            assert float(distances.min()) < 1e-12


@settings(deadline=None, max_examples=30)
@given(
    st.integers(0, 10_000),
    st.sampled_from([None, 0, 1, 2, "each"]),
    st.integers(1, 4),
    st.booleans(),
)
def test_windows_of_words_as_dense_rows(
    seed: int, budget: int | str | None, size: int, narrow: bool
) -> None:
    x, others, allowed = draw_words(seed, positions=4, dim=3)
    generator = torch.Generator().manual_seed(seed)
    region = bl.Words(x, others, allowed, torch.tensor([1, 3]) if budget == "each" else budget, 0.8)  # type: ignore[arg-type]
    # windows may stick out on both sides
    run = Run(torch.randint(0, 4, (5, 2), generator=generator), 4, first=-1)
    inside = Run(torch.randint(0, 2, (5, 2), generator=generator), 2) if narrow else None
    places = Placement((4, 3), (size, 2 if narrow else 3), (run, inside))
    values = torch.randn(5, 2, *places.sizes, dtype=torch.float64, generator=generator)
    window = Window(values, places, clean=False).zero_padded()
    torch.testing.assert_close(region.least(window), region.minimum(window.dense()))
    torch.testing.assert_close(
        region.least(Window(values, places, clean=False)), region.minimum(window.dense())
    )


def test_gradients_reach_words_substitutes_and_coefficients() -> None:
    x, others, allowed = draw_words(3)
    rows = torch.randn(2, 2, 4, 2, dtype=torch.float64)
    function = lambda x, others, rows: bl.Words(x, others, allowed, 2, 0.7).minimum(rows)
    assert torch.autograd.gradcheck(function, tuple(t.requires_grad_() for t in (x, others, rows)))
    ends = lambda x, others: (
        bl.Words(x, others, allowed, 2).hull().lower,
        bl.Words(x, others, allowed, 2).hull().upper,
    )
    assert torch.autograd.gradcheck(ends, (x, others))


def test_budgets_are_monotone_and_sentences_can_be_taken_apart() -> None:
    x, others, allowed = draw_words(5, samples=3)
    rows = torch.randn(4, 3, 4, 2, dtype=torch.float64)
    least = [bl.Words(x, others, allowed, budget).minimum(rows) for budget in (0, 1, 2, 3, 4, None)]
    for more, fewer in itertools.pairwise(least):
        assert (fewer <= more + 1e-12).all()
    torch.testing.assert_close(least[4], least[5])
    region = bl.Words(x, others, allowed, torch.tensor([1, 2, 3]))
    part = region.samples(slice(1, 3))
    torch.testing.assert_close(part.minimum(rows[:, 1:]), region.minimum(rows)[:, 1:])


def test_nothing_to_replace() -> None:
    x, others, _ = draw_words(0)
    for region in (
        bl.Words(x, others[:, :, :0]),
        bl.Words(x, others, torch.zeros(2, 4, 3, dtype=torch.bool)),
        bl.Words(x, others, budget=0),
    ):
        assert torch.equal(region.hull().lower, x) and torch.equal(region.sample(), x)
        torch.testing.assert_close(
            region.minimum(torch.ones(1, 2, 4, 2, dtype=torch.float64))[0], x.sum((1, 2))
        )


@pytest.mark.parametrize(
    "change",
    [
        {"budget": -1},
        {"budget": 1.5},
        {"eps": 2.0},
        {"allowed": torch.ones(2, 4, 3)},
        {"budget": torch.tensor([1, 2, 3])},
    ],
)
def test_what_is_wrong_is_said(change: dict[str, object]) -> None:
    x, others, _ = draw_words(0)
    with pytest.raises(bl.ArgumentError):
        bl.Words(x, others, **change)  # type: ignore[arg-type]
    with pytest.raises(bl.ArgumentError, match="positions"):
        bl.Words(x, others[:, 1:])
    with pytest.raises(bl.ArgumentError, match="one type"):
        bl.Words(x, others.float())


# -- sentences -------------------------------------------------------------------------------------


TREES = {
    "train": [
        "(3 (2 A) (4 (3 good) (2 film)))",
        "(1 (2 A) (1 (1 bad) (2 film)))",
        "(2 (2 A) (2 film))",
        "(4 (3 good) (2 Fun\u00a0fun))",
    ],
    "dev": ["(3 (3 good) (2 film))", "(2 (2 a) (2 film))"],
    "test": ["(0 (1 bad) (2 mystery))"],
}


NEIGHBOURS = {"good": ["bad", "great", "film"], "film": ["film", "good"], "mystery": ["film"]}


@pytest.fixture
def treebank(tmp_path: Path) -> Path:
    for split, lines in TREES.items():
        (tmp_path / f"trees_{split}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (tmp_path / "counterfitted_neighbors.json").write_text(json.dumps(NEIGHBOURS))
    return tmp_path


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


@pytest.mark.parametrize("name", TEXT_MODELS)
def test_no_substitution_leaves_the_bounds(name: str) -> None:
    """Sentences of different lengths in one batch; every method; thousands of members."""
    torch.manual_seed(0)
    model = build_text(name, 30, 2).eval()
    with torch.no_grad():
        model.embedding.weight.mul_(0.3)
    words = torch.tensor([[3, 4, 5, 6], [7, 8, 0, 0]])
    choices = torch.randint(2, 30, (2, 4, 3)) * (words != 0).unsqueeze(2)
    x, others = model.embedding(words).detach(), model.embedding(choices).detach()
    region = bl.Words(x, others, choices != 0, 2)
    net = bl.capture(model.body, x, words != 0)
    with torch.no_grad():
        points = [region.sample(torch.Generator().manual_seed(k)) for k in range(300)]
        values = torch.stack([model.body(point, words != 0) for point in points])
    least, most = values.amin(0), values.amax(0)
    for method in ("ibp", "forward", "crown-ibp", "crown", "forward+backward"):
        with torch.no_grad():
            found = net.bounds(region, words != 0, method=method)
        assert (found.lower <= least + 1e-5).all() and (found.upper >= most - 1e-5).all(), method
        assert torch.isfinite(found.width).all()
    # padding changes nothing for a transformer
    alone = bl.capture(model.body, x[1:, :2], words[1:, :2] != 0)
    if name != "lstm":
        torch.testing.assert_close(alone(x[1:, :2], words[1:, :2] != 0), net(x, words != 0)[1:])


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


# -- training, evaluation and the commands ---------------------------------------------------------


@pytest.mark.parametrize("method", ["ibp", "crown-ibp"])
def test_from_files_to_verdicts(
    method: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files, output = write_treebank(tmp_path), tmp_path / "run"
    flags = [
        "--epochs",
        "6",
        "--phrases",
        "2",
        "--share",
        "0.5",
        "--batch",
        "12",
        "--length",
        "3",
        "--lr",
        "0.003",
        "--method",
        method,
    ]
    assert (
        run("train", "sst-transformer", "--files", files, "--output", output, *flags, "--epochs", 3)
        == 0
    )
    assert (
        run("train", "sst-transformer", "--files", files, "--output", output, *flags, "--resume")
        == 0
    )
    assert "going on from epoch 3" in capsys.readouterr().out
    call = [
        "evaluate",
        output,
        "--files",
        files,
        "--budgets",
        0,
        1,
        2,
        "--methods",
        "ibp",
        "crown-ibp",
    ]
    assert run(*call) == 0
    assert "left by the attack" in capsys.readouterr().out
    found = json.loads((output / "words.json").read_text())
    for shares in found["verified"].values():
        assert shares["0"] == found["clean"] >= shares["1"] >= shares["2"]
        assert all(shares[budget] <= found["attacked"][budget] for budget in shares)
    assert found["clean"] == 1.0  # praise and blame are easily told apart
    assert (
        run(
            "words",
            "A fine and lovely film, unheard-of!",
            "--model",
            output,
            "--files",
            files,
            "--budgets",
            1,
            2,
        )
        == 0
    )
    said = capsys.readouterr().out
    assert (
        "positive" in said
        and "great" in said
        and "not in the vocabulary" in said
        and "certified margin" in said
        and "->" in said
    )
    assert run("words", "", "--model", output, "--files", files) == 1
    (files / "trees_train.txt").write_text("(4 (3 fine) (2 film))\n(4 (3 fine) (2 film))")
    assert run(*call) == 1
    assert "trained with" in capsys.readouterr().err


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


def test_nobody_reads_padding() -> None:
    words = torch.tensor([[3, 4, 5, *[0] * 29], [6, *[0] * 31], [0] * 32])
    for name in TEXT_MODELS:
        model = build_text(name, 30, 2).eval()
        assert trimmed(words).shape[1] == 8
        with torch.no_grad():
            torch.testing.assert_close(model(trimmed(words[:2])), model(words[:2]))
            alone = torch.stack([model(trimmed(words[k : k + 1]))[0] for k in range(2)])
            torch.testing.assert_close(alone, model(words[:2]))


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


# -- what reads one word at a time -----------------------------------------------------------------


class Parts(nn.Module):
    """One position at a time, or several, by different ways; the result squared, so that its bounds
    matter."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way, self.layer, self.filter = (
            way,
            nn.Linear(2, 3).double(),
            nn.Conv1d(2, 3, 2).double(),
        )

    def forward(self, x: Tensor) -> Tensor:
        ways: dict[str, Callable[[], Tensor]] = {
            "linear": lambda: self.layer(x),
            "centred": lambda: self.layer(x - x.mean(2, keepdim=True)),
            "turned": lambda: self.layer(x).flip(1).transpose(1, 2).flatten(1),
            "gathered": lambda: self.layer(x[:, [2, 0, 0]]),
            "cut": lambda: torch.cat([self.layer(x)[:, 1], 2 * x[:, 3]], 1),
            "mean": lambda: self.layer(x).mean(1),
            "neighbours": lambda: self.filter(x.transpose(1, 2)),
            "two": lambda: self.layer(x)[:, :-1] - self.layer(x)[:, 1:],
        }
        return ways[self.way]() ** 2


@pytest.mark.parametrize(
    "way", ["linear", "centred", "turned", "gathered", "cut", "mean", "neighbours", "two"]
)
@pytest.mark.parametrize("budget", [0, 1, 2, None])
def test_affine_functions_of_words_are_bounded_exactly(way: str, budget: int | None) -> None:
    """By interval arithmetic alone, against every member."""
    torch.manual_seed(1)
    model = Parts(way)
    x, others, allowed = draw_words(3, positions=4)
    region = bl.Words(x, others, allowed, budget, eps=0.7)
    found = bl.capture(model, x).bounds(region, method="ibp")
    choices = [[None, *allowed[0, p].nonzero().flatten().tolist()] for p in range(4)]
    values = []
    for chosen in itertools.product(*choices):
        if budget is None or sum(k is not None for k in chosen) <= budget:
            sentence = x[:1].clone()
            for place, k in enumerate(chosen):
                if k is not None:
                    sentence[0, place] = torch.lerp(
                        x[0, place], others[0, place, k], torch.tensor(0.7, dtype=x.dtype)
                    )
            values.append(model(sentence)[0])
    exact = torch.stack(values).amax(0)
    # the largest square is at one of the values themselves
    torch.testing.assert_close(found.upper[0], exact)


def test_what_reads_several_words_is_known() -> None:
    x, others, allowed = draw_words(3, positions=5)
    for way in ("linear", "centred", "turned", "gathered", "cut", "mean", "neighbours", "two"):
        net = bl.capture(Parts(way), x)
        analysis = net.ask((bl.Words(x, others, allowed, 1),), {}, "ibp", None, "adaptive").analysis
        versions = ExactPerPosition.of(analysis)
        assert versions is not None
        last = [name for name in analysis.plan.last_affine if name not in analysis.regions]
        assert last and all(
            versions.is_apart(name) == (way not in ("mean", "neighbours", "two")) for name in last
        ), way


class Chosen(nn.Module):
    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return torch.where(mask.unsqueeze(2), x, 0.0).sum(1) ** 2


def test_what_reads_one_word_may_read_two_with_another_mask() -> None:
    x, others, allowed = draw_words(5, positions=3)
    region, one = bl.Words(x, others, allowed, 3), torch.tensor([[True, False, False]] * 2)
    net = bl.capture(Chosen(), x, one)
    for mask in (one, torch.ones_like(one), one):
        bounds = net.bounds(region, mask, method="ibp")
        for seed in range(200):
            value = Chosen()(region.sample(torch.Generator().manual_seed(seed)), mask)
            assert (value <= bounds.upper + 1e-9).all() and (value >= bounds.lower - 1e-9).all()
