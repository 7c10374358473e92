"""What one step of training minimises, as a module, so that DistributedDataParallel can wrap it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from boundlab.losses.clean_pass import CleanPass
from boundlab.losses.cross_entropy import upper_bound
from boundlab.net import Net, capture
from boundlab.net.questions import Options
from boundlab.regions import Linf
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


class Objective(nn.Module):
    """kappa * clean loss + (1 - kappa) * robust loss + warm-up terms + L1, over a batch.

    The captured graph is in train mode: its batch norms take the statistics of the clean batch of
    the same step.
    """

    def __init__(self, model: nn.Module, recipe: Recipe, example: Tensor) -> None:
        super().__init__()
        self.model, self.recipe = model, recipe
        was = model.training
        self.net: Net = capture(model.train(), example)
        model.train(was)

    def forward(
        self, images: Tensor, labels: Tensor, weights: ScheduleValues
    ) -> tuple[Tensor, Tensor]:
        """The loss, and (clean loss, robust loss, clean errors, samples not proved) of the batch,
        without gradient."""
        recipe = self.recipe
        if recipe.method == "natural" or (weights.eps == 0 and weights.warm_up == 0):
            logits = self.model(images)
            clean = F.cross_entropy(logits, labels)
            wrong = (logits.argmax(1) != labels).sum()
            return clean + self._l1(), torch.stack([clean.detach(), clean.detach(), wrong, wrong])
        with CleanPass(self.net) as seen:
            logits = self.model(images)
        method = weights.method(recipe)
        region = Linf(images, weights.eps, lower=0.0, upper=1.0)
        net = self.net.suited((region,), {})
        answer = net.ask((region,), {}, Options(method), clean=seen.of(net))
        losses, certain = upper_bound(
            answer, net.only_output("training"), labels, recipe.fused, weights.beta
        )
        robust = losses.mean()
        clean = F.cross_entropy(logits, labels)
        loss = weights.mixed(robust, clean)
        if weights.warm_up > 0:
            layers = preactivations(answer)
            if recipe.tightness > 0:
                loss = loss + weights.warm_up * recipe.tightness * tightness(
                    layers, region.hull().radius.mean()
                )
            if recipe.balance > 0:
                loss = loss + weights.warm_up * recipe.balance * balance(layers)
        wrong = (logits.argmax(1) != labels).sum()
        return loss + self._l1(), torch.stack(
            [clean.detach(), robust.detach(), wrong, (~certain).sum()]
        )

    def _l1(self) -> Tensor | float:
        if self.recipe.l1 == 0:
            return 0.0
        weights = [
            p.abs().sum()
            for name, p in self.model.named_parameters()
            if name.endswith("weight") and p.dim() > 1
        ]
        return self.recipe.l1 * torch.stack(weights).sum()
