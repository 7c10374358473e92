"""Training and testing classifiers of sentences against replaced words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from boundlab.data.sentences import LONGEST, PADDING, Sentences
from boundlab.losses.cross_entropy import upper_bound
from boundlab.models.text import TextClassifier
from boundlab.net import Net, capture
from boundlab.net.questions import Options
from boundlab.regions import Words
from boundlab.training.objective import ScheduleValues
from boundlab.training.recipe import Recipe

STEP = 8
"""Batches are cut to a multiple of so many positions: few different lengths, each of which is
captured once."""


def trimmed(words: Tensor) -> Tensor:
    """Without the positions at the end that are padding in every sentence, up to a multiple of
    ``STEP``."""
    lengths = (words != PADDING).sum(1).tolist()
    used = max(lengths, default=0)
    return words[:, : min(LONGEST, -(-max(used, 1) // STEP) * STEP)]


class Bodies:
    """The captured body of a classifier for each length of sentences, captured when it is first
    asked for."""

    def __init__(self, model: TextClassifier) -> None:
        self.model = model
        self._nets: dict[int, Net] = {}

    def __getitem__(self, length: int) -> Net:
        if length not in self._nets:
            weight = self.model.embedding.weight
            example = torch.zeros(
                2, length, weight.shape[1], dtype=weight.dtype, device=weight.device
            )
            self._nets[length] = capture(
                self.model.body,
                example,
                torch.ones(2, length, dtype=torch.bool, device=weight.device),
            )
        return self._nets[length]


def region_of(
    model: TextClassifier, words: Tensor, substitutes: Tensor, budget: int | None, eps: float = 1.0
) -> Words:
    """The sentences that differ from the given ones in at most ``budget`` words; substitutes: those
    of every word, by number."""
    others = substitutes[words]
    return Words(model.embedding(words), model.embedding(others), others != PADDING, budget, eps)


class WordsObjective(nn.Module):
    """kappa * clean loss + (1 - kappa) * robust loss of a batch of sentences."""

    def __init__(self, model: nn.Module, recipe: Recipe, substitutes: Tensor) -> None:
        super().__init__()
        assert isinstance(model, TextClassifier)
        self.model, self.recipe = model, recipe
        self.bodies = Bodies(model)
        self.substitutes: Tensor
        self.register_buffer("substitutes", substitutes, persistent=False)

    def forward(
        self, words: Tensor, labels: Tensor, weights: ScheduleValues
    ) -> tuple[Tensor, Tensor]:
        """The loss, and (clean loss, robust loss, clean errors, samples not proved) of the batch,
        without gradient."""
        recipe = self.recipe
        logits = self.model(words)
        clean, wrong = F.cross_entropy(logits, labels), (logits.argmax(1) != labels).sum()
        if recipe.method == "natural" or weights.eps == 0:
            return clean, torch.stack([clean.detach(), clean.detach(), wrong, wrong])
        budget = recipe.budget if recipe.budget >= 0 else None
        region = region_of(self.model, words, self.substitutes, budget, weights.eps)
        mask = words != PADDING
        net = self.bodies[words.shape[1]].suited((region, mask), {})
        answer = net.ask((region, mask), {}, Options(weights.method(recipe)))
        losses, certain = upper_bound(
            answer, net.only_output("training"), labels, recipe.fused, weights.beta
        )
        robust = losses.mean()
        figures = torch.stack([clean.detach(), robust.detach(), wrong, (~certain).sum()])
        return weights.mixed(robust, clean), figures


# -- evaluation ------------------------------------------------------------------------------------


@torch.no_grad()
def attacked(
    model: TextClassifier,
    words: Tensor,
    label: int,
    substitutes: Tensor,
    budget: int,
    most: int = 512,
) -> list[int] | None:
    """Replaced words that change the class of one sentence (positions,), or None if none were
    found; see :func:`strongest`."""
    found, margin = strongest(model, words, label, substitutes, budget, most)
    if margin > 0:
        return None
    return found


@torch.no_grad()
def strongest(
    model: TextClassifier,
    words: Tensor,
    label: int,
    substitutes: Tensor,
    budget: int,
    most: int = 512,
) -> tuple[list[int], float]:
    """The sentence with the least margin that was found, and that margin; the search ends when the
    class has changed.

    Every replacement of one word is tried, then every further one of these sentences, and so on, as
    long as there are no more than 16 * most of them: exhaustive for small budgets. From then on
    only the most // 16 sentences with the least margins go on, which with one sentence is greedy.
    """
    beam, changes = [words.tolist()], len(_changes(words.tolist(), words, substitutes))
    best, least = beam[0], float("inf")
    seen = {tuple(beam[0])}
    for used in range(budget + 1):
        margins = _margins(model, torch.tensor(beam, device=words.device), label)
        worst = int(margins.argmin())
        if float(margins[worst]) < least:
            best, least = beam[worst], float(margins[worst])
        if used == budget or least <= 0:
            break
        kept = margins.argsort().tolist()
        if len(kept) * changes > 16 * most:
            kept = kept[: max(1, most // 16)]
        found = []
        for k in kept:
            for place, other in _changes(beam[k], words, substitutes):
                changed = [*beam[k][:place], other, *beam[k][place + 1 :]]
                if tuple(changed) not in seen:
                    seen.add(tuple(changed))
                    found.append(changed)
        if not found:
            break
        beam = found[: 16 * most]
    return best, least


def _changes(sentence: list[int], original: Tensor, substitutes: Tensor) -> list[tuple[int, int]]:
    """Every replacement of a word that is still the original one."""
    table = substitutes[original].tolist()
    return [
        (place, other)
        for place, (word, now) in enumerate(zip(original.tolist(), sentence, strict=True))
        if word == now
        for other in table[place]
        if other != PADDING
    ]


def _margins(model: TextClassifier, sentences: Tensor, label: int) -> Tensor:
    """f_y minus the largest other output, for each sentence."""
    logits = torch.cat([model(part) for part in sentences.split(512)])
    others = logits.clone()
    others[:, label] = -torch.inf
    return logits[:, label] - others.amax(1)


@dataclass(frozen=True)
class WordErrors:
    """Shares of ``count`` sentences, by budget: right after the attack, and proved by each
    method."""

    count: int
    clean: float
    attacked: dict[int, float]
    verified: dict[str, dict[int, float]]


@torch.no_grad()
def evaluate_words(
    model: TextClassifier,
    data: Sentences,
    budgets: tuple[int, ...],
    methods: tuple[str, ...],
    *,
    batch: int = 32,
    attack: bool = True,
    watch: Callable[[int], None] = lambda _: None,
) -> WordErrors:
    """Verified accuracy for each budget and method, beside the accuracy that an attack leaves. A
    sentence that is proved for a budget is proved for smaller ones, one that is not is not tried
    with larger ones except the largest, which is tried first, and one that an attack breaks stays
    broken for larger ones."""
    model.eval()
    device = model.embedding.weight.device
    bodies, substitutes = Bodies(model), data.vocabulary.substitutes.to(device)
    right, broken = 0, dict.fromkeys(budgets, 0)
    proved = {method: dict.fromkeys(budgets, 0) for method in methods}
    order = (data.words != PADDING).sum(1).argsort()  # sentences of like lengths together
    for part in order.split(batch):
        words, labels = trimmed(data.words[part]).to(device), data.labels[part].to(device)
        correct = model(words).argmax(1) == labels
        right += int(correct.sum())
        words, labels = words[correct], labels[correct]
        if len(labels):
            for method in methods:
                most = _largest_proved(bodies, words, labels, substitutes, sorted(budgets), method)
                for budget in budgets:
                    proved[method][budget] += int((most >= budget).sum())
        if attack:
            for sentence, label in zip(words, labels.tolist(), strict=True):
                needed = _words_to_break(model, sentence, label, substitutes, max(budgets))
                for budget in budgets:
                    broken[budget] += needed <= budget
        watch(len(part))
    count = len(data)
    left: dict[int, float] = {}
    if attack:
        left = {budget: (right - n) / count for budget, n in broken.items()}
    verified = {
        method: {budget: n / count for budget, n in counts.items()}
        for method, counts in proved.items()
    }
    return WordErrors(count, right / count, left, verified)


def _words_to_break(
    model: TextClassifier, sentence: Tensor, label: int, substitutes: Tensor, most: int
) -> int:
    """How many words the attack replaces to change the class of a sentence (positions,); more than
    ``most`` if it fails."""
    found = attacked(model, sentence, label, substitutes, most)
    if found is None:
        return most + 1
    return sum(a != b for a, b in zip(sentence.tolist(), found, strict=True))


def _largest_proved(
    bodies: Bodies,
    words: Tensor,
    labels: Tensor,
    substitutes: Tensor,
    budgets: list[int],
    method: str,
) -> Tensor:
    """The largest budget for which each sentence is proved: (samples,). 0 costs nothing."""
    most, left = torch.zeros_like(labels), torch.ones_like(labels, dtype=torch.bool)
    rising = [budget for budget in budgets if budget > 0]
    for budget in (*rising[-1:], *rising[:-1]):  # most sentences are proved for all or for none
        chosen = left.nonzero().flatten()
        if not len(chosen):
            break
        region = region_of(bodies.model, words[chosen], substitutes, budget)
        margins = bodies[words.shape[1]].margins(
            region, words[chosen] != PADDING, labels[chosen], method=method
        )
        proved = (margins > 0).all(1)
        most[chosen[proved]] = budget
        # those that are proved for the largest budget are done, the others go on as long as proved
        left[chosen] = proved ^ (budget == rising[-1])
    return most
