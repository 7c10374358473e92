"""Losses as outputs."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.programs.program import Program


class Loss(nn.Module):
    """The loss of each sample of a small classifier or regressor."""

    def __init__(self, loss: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.loss = loss
        self.body = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return self.loss(self.body(x), target)


def classes(batch: int) -> Tensor:
    return torch.arange(batch) % 3


def values(batch: int) -> Tensor:
    return torch.linspace(-1, 1, batch * 3).view(batch, 3)


def shares(batch: int) -> Tensor:
    return torch.softmax(values(batch), 1)


def each(loss: Callable[..., Tensor], **options: float | str) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda y, target: loss(y, target, reduction="none", **options)


def focal(y: Tensor, target: Tensor) -> Tensor:
    log_p = F.log_softmax(y, 1).gather(1, target.unsqueeze(1)).squeeze(1)
    return -((1 - log_p.exp()) ** 2) * log_p


def contrastive(y: Tensor, target: Tensor) -> Tensor:
    distance = torch.linalg.vector_norm(y - target, dim=1)
    return torch.clamp(3.0 - distance, min=0).square()


def carlini(y: Tensor, target: Tensor) -> Tensor:
    chosen = F.one_hot(target, 3).bool()
    rest = y.masked_fill(chosen, -torch.inf).amax(1)
    return y.masked_select(chosen) - rest


def dice(y: Tensor, target: Tensor) -> Tensor:
    p = torch.sigmoid(y)
    return 1 - 2 * (p * target).sum(1) / (p.sum(1) + target.sum(1))


def evidential(y: Tensor, target: Tensor) -> Tensor:
    evidence = F.softplus(y) + 1
    return (target * (evidence.sum(1, keepdim=True).log() - evidence.log())).sum(1)


def entropy(y: Tensor, _: Tensor) -> Tensor:
    return torch.distributions.Categorical(logits=y, validate_args=False).entropy()


def gaussian(y: Tensor, target: Tensor) -> Tensor:
    return -torch.distributions.Normal(y, 0.5, validate_args=False).log_prob(target).sum(1)


def checked_gaussian(y: Tensor, target: Tensor) -> Tensor:
    """With torch's checks of the arguments, its default as long as nothing was compiled: a branch
    on values."""
    return -torch.distributions.Normal(y, 0.5, validate_args=True).log_prob(target).sum(1)


WITH_CLASSES = {
    "cross-entropy": each(F.cross_entropy),
    "smoothed-cross-entropy": each(F.cross_entropy, label_smoothing=0.1),
    "nll": lambda y, t: F.nll_loss(F.log_softmax(y, 1), t, reduction="none"),
    "multi-margin": each(F.multi_margin_loss),
    "focal": focal,
    "carlini": carlini,
}
WITH_VALUES = {
    "huber": each(F.huber_loss, delta=0.3),
    "smooth-l1": each(F.smooth_l1_loss, beta=0.3),
    "mse": each(F.mse_loss),
    "l1": each(F.l1_loss),
    "log-cosh": lambda y, t: torch.log(torch.cosh(y - t)).sum(1),
    "quantile": lambda y, t: torch.maximum(0.9 * (t - y), -0.1 * (t - y)).mean(1),
    "contrastive": contrastive,
    "gaussian": gaussian,
    "checked-gaussian": checked_gaussian,
    "poisson": each(F.poisson_nll_loss),
    "soft-margin": lambda y, t: F.soft_margin_loss(y, t.sign(), reduction="none"),
    "cosine-embedding": lambda y, t: F.cosine_embedding_loss(
        y, t, torch.ones(len(y)), reduction="none"
    ),
}
WITH_SHARES = {
    "kl": lambda y, t: F.kl_div(F.log_softmax(y, 1), t, reduction="none").sum(1),
    "soft-cross-entropy": each(F.cross_entropy),
    "bce-logits": each(F.binary_cross_entropy_with_logits),
    "bce": lambda y, t: F.binary_cross_entropy(torch.sigmoid(y), t, reduction="none"),
    "dice": dice,
    "evidential": evidential,
    "entropy": entropy,
}
TARGETS = ((WITH_CLASSES, classes), (WITH_VALUES, values), (WITH_SHARES, shares))
REFUSED = {"carlini": "aten.masked_select", "checked-gaussian": "control flow"}
"""Loss -> what the error names."""
PROGRAMS = {
    f"loss-{name}": Program(
        lambda loss=loss: Loss(loss),
        ((4,),),
        given=(target,),
        refused=REFUSED.get(name),
    )
    for table, target in TARGETS
    for name, loss in table.items()
}
