"""Sentences in which some words may be replaced by others (section "Synonym-based Word
Substitution" of the paper)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from boundlab.coefficients.coefficients import Coefficients
from boundlab.coefficients.dense import inner
from boundlab.coefficients.window import Window
from boundlab.errors import ArgumentError
from boundlab.regions.base import Region, drawn, flat_beside
from boundlab.regions.checks import centre_tensor
from boundlab.relaxations.interval import Interval


@dataclass(frozen=True, eq=False)
class Words(Region):
    """All sentences that differ from the given ones in at most ``budget`` words, each replaced by
    one of its substitutes.

    x: the words as vectors, (samples, positions, dim). substitutes: (samples, positions, choices,
    dim); allowed: which of them exist, bool (samples, positions, choices), all by default. A
    position without substitutes (padding) stays as it is. budget: a number, one for each sample, or
    None for no limit. eps in [0, 1] moves substitutes towards the word itself, ``x + eps
    (substitute - x)``, to begin training with.

    Gradients flow to x and to the substitutes.
    """

    x: Tensor
    substitutes: Tensor
    allowed: Tensor | None = None
    budget: int | Tensor | None = None
    eps: float = 1.0

    def __post_init__(self) -> None:
        centre_tensor(self.x, "Words(x, substitutes): x")
        self._check_vectors()
        self._check_allowed()
        self._check_budget()
        if not 0 <= self.eps <= 1:
            raise ArgumentError(
                f"eps is a share between the word (0) and its substitutes (1), not {self.eps}"
            )

    def _check_vectors(self) -> None:
        shape, others = tuple(self.x.shape), tuple(self.substitutes.shape)
        if len(shape) != 3 or len(others) != 4 or (*others[:2], others[3]) != shape:
            raise ArgumentError(
                "Words takes vectors (samples, positions, dim) and substitutes (samples, "
                f"positions, choices, dim), not {shape} and {others}"
            )
        if self.substitutes.dtype != self.x.dtype:
            raise ArgumentError(
                f"words are {self.x.dtype}, their substitutes {self.substitutes.dtype}: they must "
                "be of one type"
            )

    def _check_allowed(self) -> None:
        if self.allowed is None:
            return
        shape = self.substitutes.shape[:3]
        if self.allowed.dtype != torch.bool or self.allowed.shape != shape:
            raise ArgumentError(
                f"allowed must be bool {tuple(shape)}, not "
                f"{self.allowed.dtype} {tuple(self.allowed.shape)}"
            )

    def _check_budget(self) -> None:
        if self.budget is None:
            return
        samples = len(self.x)
        budget = torch.as_tensor(self.budget, device=self.x.device)
        counts = not budget.is_floating_point() and not (budget < 0).any()
        if not counts or budget.dim() > 1 or budget.numel() not in (1, samples):
            raise ArgumentError(
                f"budget counts replaced words: a whole number >= 0, one for each of {samples} "
                f"samples, or None, not {self.budget}"
            )

    @property
    def centre(self) -> Tensor:
        return self.x

    @property
    def _allowed(self) -> Tensor:
        """Which substitutes may be used: (samples, positions, choices)."""
        some = (self._budgets > 0)[:, None, None]
        if self.allowed is None:
            return some.expand(self.substitutes.shape[:3])
        return self.allowed & some

    @property
    def _budgets(self) -> Tensor:
        """How many words may change, for each sample."""
        samples, positions, _ = self.x.shape
        budget = self.budget
        if budget is None:
            budget = positions
        return torch.as_tensor(budget, device=self.x.device).reshape(-1).expand(samples)

    @cached_property
    def _changes(self) -> Tensor:
        """From each word to its substitutes, 0 to those that are not allowed: (samples, positions,
        choices, dim)."""
        return torch.where(self._allowed.unsqueeze(3), self.substitutes - self.x.unsqueeze(2), 0)

    def versions(self) -> Tensor:
        word = self.x.unsqueeze(2)
        return torch.cat([word, word + self.eps * self._changes], 2).movedim(2, 0)

    def hull(self) -> Interval:
        versions = self.versions()
        return Interval(versions.amin(0), versions.amax(0))

    def contains(self, x: Tensor, tolerance: float = 0.0) -> Tensor:
        """At every position the word or a version of it, and no more words replaced than the budget
        allows."""
        flat = x.reshape(len(x), -1).double()
        positions, dim = self.x.shape[1:]

        def is_at(words: Tensor) -> Tensor:
            """Whether inputs have these words (samples, positions, dim): (batch, positions)."""
            near = (flat - flat_beside(words, flat)).abs() <= tolerance
            return near.reshape(len(flat), positions, dim).all(2)

        stays = is_at(self.x)
        fits = stays
        for words in self.versions()[1:]:
            fits = fits | is_at(words)
        if self.eps == 1:  # rounding takes x + (substitute - x) away from the substitute
            chosen = self._allowed.unsqueeze(3)
            for words in torch.where(chosen, self.substitutes, self.x.unsqueeze(2)).unbind(2):
                fits = fits | is_at(words)
        budgets = self._budgets.to(flat.device)
        return fits.all(1) & ((~stays).sum(1) <= budgets)

    def minimum(self, coefficients: Tensor) -> Tensor:
        """Theorem 2, without its table: g(i, j) adds to the clean sum the best change of each
        position that is taken, and positions do not interact. So the j positions with the largest
        gains are the best ones: sort, and add up the first ``budget``."""
        clean = inner(coefficients, self.x)
        if not self.substitutes.shape[2] or not self.x.shape[1]:
            return clean
        gains = torch.einsum("rsld,slkd->rslk", coefficients, self._changes).amin(3).clamp(max=0)
        return clean + self._taken(self.eps * gains)

    def _taken(self, gains: Tensor) -> Tensor:
        """The sum of the best gains (rows, samples, positions) that the budgets allow."""
        if self.budget is None or not gains.shape[2]:
            return gains.sum(2)
        taken = torch.arange(gains.shape[2], device=gains.device) < self._budgets[:, None]
        return torch.where(taken, gains.sort(2).values, 0).sum(2)

    def least(self, rows: Coefficients) -> Tensor:
        """Rows that see a few words are compared with the substitutes of those alone."""
        if not isinstance(rows, Window) or not self.substitutes.shape[2]:
            return super().least(rows)
        rows = rows.zero_padded().covering([1])
        see = rows.places.take
        gains = rows.values.new_zeros(*rows.values.shape[:3])
        for k in range(self.substitutes.shape[2]):
            gains = torch.minimum(gains, (rows.values * see(self._changes[:, :, k])).sum(3))
        return (rows.values * see(self.x)).sum((2, 3)) + self._taken(self.eps * gains)

    def sample(self, generator: torch.Generator | None = None, batched: bool = True) -> Tensor:
        samples, positions, choices = self.substitutes.shape[:3]
        if not choices or not positions:
            return self.x
        allowed = self._allowed
        uniform = lambda *shape: drawn(torch.rand, shape, generator, self.x)
        chosen = torch.where(allowed, uniform(*allowed.shape), -1.0).argmax(2)
        order = torch.where(allowed.any(2), uniform(samples, positions), 2.0)
        rank = order.argsort(1).argsort(1)
        most = (uniform(samples) * (self._budgets + 1)).floor()
        replaced = (rank < most[:, None]) & allowed.any(2)
        index = chosen[:, :, None, None].expand(-1, -1, 1, self.x.shape[2])
        other = self.substitutes.gather(2, index).squeeze(2)
        return torch.where(replaced.unsqueeze(2), self.x + self.eps * (other - self.x), self.x)

    def samples(self, chosen: slice | Tensor) -> Words:
        allowed, budget = self.allowed, self.budget
        if allowed is not None:
            allowed = allowed[chosen]
        if isinstance(budget, Tensor) and budget.numel() > 1:
            budget = budget[chosen]
        x, substitutes = self.x[chosen], self.substitutes[chosen]
        return replace(self, x=x, substitutes=substitutes, allowed=allowed, budget=budget)
