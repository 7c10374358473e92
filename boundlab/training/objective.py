"""What one step of training minimises, as a module, so that DistributedDataParallel can wrap it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from boundlab.losses.clean_pass import CleanPass
from boundlab.losses.cross_entropy import upper_bound
from boundlab.net import Net, capture
from boundlab.net.questions import Options
from boundlab.regions import Linf, Region
from boundlab.relaxations.interval import Interval
from boundlab.training.recipe import Recipe
from boundlab.training.regularisers import balance, preactivations, tightness


@dataclass(frozen=True)
class ScheduleValues:
    """What the schedules say for one step: radius, share of LiRPA bounds, share of the clean loss,
    weight of the warm-up terms."""

    eps: float
    beta: float
    kappa: float
    warm_up: float

    def method(self, recipe: Recipe) -> str:
        """The method that bounds a step: LiRPA bounds of no weight need not be computed."""
        if recipe.method == "ibp" or self.beta == 0:
            return "ibp"
        return "crown-ibp"

    def mixed(self, robust: Tensor, clean: Tensor) -> Tensor:
        """kappa * clean + (1 - kappa) * robust."""
        if self.kappa == 0:
            return robust
        return torch.lerp(robust, clean, self.kappa)


def ball(images: Tensor, eps: float, valid: Sequence[float]) -> Linf:
    """All inputs within eps of images, cut to the valid range, (low, high) or nothing."""
    if not valid:
        return Linf(images, eps)
    return Linf(images, eps, lower=valid[0], upper=valid[1])


Loss = Callable[[Net, Region, Tensor, CleanPass], Tensor]
"""A robust loss of one's own: (net, region, labels, clean pass) -> one number, or one for each
sample."""
DROPOUTS = (
    nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout,
)  # fmt: skip


def train_mode(model: nn.Module) -> nn.Module:
    """The model in train mode, but for dropout, of which there are no bounds."""
    model.train()
    for module in model.modules():
        if isinstance(module, DROPOUTS):
            module.eval()
    return model


class Objective(nn.Module):
    """kappa * clean loss + (1 - kappa) * robust loss + warm-up terms + L1, over a batch.

    The captured graph is in train mode: its batch norms take the statistics of the clean batch of
    the same step. robust: a robust loss instead of the recipe's; warm-up terms are left out then.
    """

    def __init__(
        self, model: nn.Module, recipe: Recipe, example: Tensor, robust: Loss | None = None
    ) -> None:
        super().__init__()
        self.model, self.recipe, self.robust = model, recipe, robust
        was = model.training
        self.net: Net = capture(train_mode(model), example)
        model.train(was)

    def forward(
        self, images: Tensor, labels: Tensor, weights: ScheduleValues
    ) -> tuple[Tensor, Tensor]:
        """The loss, and (clean loss, robust loss, clean errors, samples not proved) of the batch,
        without gradient. Of a robust loss of one's own it is not known what it proves: NaN."""
        if self.recipe.method == "natural" or (weights.eps == 0 and weights.warm_up == 0):
            logits = self.model(images)
            clean = F.cross_entropy(logits, labels)
            wrong = (logits.argmax(1) != labels).sum()
            return clean + self._l1(), torch.stack([clean.detach(), clean.detach(), wrong, wrong])
        with CleanPass(self.net) as seen:
            logits = self.model(images)
        region = ball(images, weights.eps, self.recipe.range)
        if self.robust is None:
            robust, terms, left = self._bounded(region, labels, weights, seen)
        else:
            robust, terms = self.robust(self.net, region, labels, seen).mean(), 0.0
            left = logits.new_tensor(math.nan)
        clean = F.cross_entropy(logits, labels)
        loss = weights.mixed(robust, clean) + terms
        wrong = (logits.argmax(1) != labels).sum()
        return loss + self._l1(), torch.stack([clean.detach(), robust.detach(), wrong, left])

    def _bounded(
        self, region: Linf, labels: Tensor, weights: ScheduleValues, seen: CleanPass
    ) -> tuple[Tensor, Tensor | float, Tensor]:
        """The recipe's robust loss, its warm-up terms, and how many samples are not proved."""
        net = self.net.suited((region,), {})
        answer = net.ask((region,), {}, Options(weights.method(self.recipe)), clean=seen.of(net))
        losses, certain = upper_bound(
            answer, net.only_output("training"), labels, self.recipe.fused, weights.beta
        )
        terms: Tensor | float = 0.0
        if weights.warm_up > 0:
            terms = self._warm_up(preactivations(answer), region, weights.warm_up)
        return losses.mean(), terms, (~certain).sum()

    def _warm_up(self, layers: list[Interval], region: Linf, weight: float) -> Tensor | float:
        """The warm-up terms of the intervals in front of ReLUs; a network may have none."""
        recipe, terms = self.recipe, []
        if recipe.tightness > 0 and layers:
            radius = region.hull().radius.mean()
            terms.append(weight * recipe.tightness * tightness(layers, radius))
        if recipe.balance > 0 and layers:
            terms.append(weight * recipe.balance * balance(layers))
        return sum(terms, start=0.0)

    def _l1(self) -> Tensor | float:
        if self.recipe.l1 == 0:
            return 0.0
        weights = [
            p.abs().sum()
            for name, p in self.model.named_parameters()
            if name.endswith("weight") and p.dim() > 1
        ]
        return self.recipe.l1 * torch.stack(weights).sum()
