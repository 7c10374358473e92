# %% [markdown]
# # Words that may be replaced
#
# A sentence is perturbed when some of its words are replaced by others of similar meaning. That
# is a finite set, but one that grows fast: a region `bl.Words` stands for all of it. Here words
# are vectors in the plane, so that they can be drawn.

# %%
import itertools

import torch
from torch import Tensor, nn

import boundlab as bl

bl.plot.use_style()
VECTORS = {
    "a": (0.0, 0.1), "quiet": (0.2, -0.4), "slow": (-0.3, -0.5), "calm": (0.3, -0.3),
    "lovely": (1.0, 0.5), "nice": (0.7, 0.3), "pretty": (0.8, 0.6), "little": (0.0, -0.2),
    "small": (-0.1, -0.1), "minor": (-0.4, -0.2), "film": (0.1, 0.2), "movie": (0.1, 0.3),
}  # fmt: skip
SIMILAR = {
    "quiet": ["slow", "calm"], "lovely": ["nice", "pretty"], "little": ["small", "minor"],
    "film": ["movie"],
}  # fmt: skip
SENTENCE = ["a", "lovely", "quiet", "little", "film"]


class Score(nn.Module):
    """Sentences as vectors (batch, words, 2) -> how good they sound, (batch, 1)."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 4), nn.Tanh())
        self.last = nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.words(x).sum(1))


# %% [markdown]
# A few steps of training teach it that words on the right are good. Substitutes are given for
# each position, with a mask where there are fewer.

# %%
torch.manual_seed(3)
model = Score()
optimiser = torch.optim.Adam(model.parameters(), 0.03)
for _ in range(40):
    sentences = torch.rand(64, 5, 2) * 2 - 1
    good = (sentences[..., 0].sum(1, keepdim=True) > 0).float()
    loss = nn.functional.binary_cross_entropy_with_logits(model(sentences), good)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()

x = torch.tensor([[VECTORS[word] for word in SENTENCE]])
choices = [SIMILAR.get(word, []) for word in SENTENCE]
padded = [[*some, *["a"] * (2 - len(some))] for some in choices]
substitutes = torch.tensor([[[VECTORS[word] for word in some] for some in padded]])
allowed = torch.tensor([[[k < len(some) for k in range(2)] for some in choices]])

figure, (ax,) = bl.plot.figure(width=5.2, height=3.4)
for word, (across, up) in VECTORS.items():
    ax.plot(
        across, up, "o", color=bl.plot.PROVED if word in SENTENCE else bl.plot.INK, markersize=4
    )
    ax.annotate(word, (across, up), xytext=(4, 3), textcoords="offset points", fontsize=8)
for word, others in SIMILAR.items():
    for other in others:
        ax.plot(*zip(VECTORS[word], VECTORS[other], strict=True), "-", color=bl.plot.INK, lw=0.6)
ax.set(xlabel="first element", ylabel="second element")
ax.set_title("the sentence (blue) and what may replace its words", loc="left")

# %% [markdown]
# How low can the score get when up to k words are replaced? Bounds answer for all sentences at
# once. This sentence is so short that all of them can be tried as well.

# %%
net = bl.capture(model, x)
budgets = range(5)
figure, (ax,) = bl.plot.figure(height=3.0)
with torch.no_grad():
    ways = [[word, *others] for word, others in zip(SENTENCE, choices, strict=True)]
    every = list(itertools.product(*ways))
    scores = model(torch.tensor([[VECTORS[word] for word in some] for some in every]))[:, 0]
    replaced = torch.tensor(
        [sum(a != b for a, b in zip(some, SENTENCE, strict=True)) for some in every]
    )
    for method in ("ibp", "crown", "alpha-crown"):
        regions = [bl.Words(x, substitutes, allowed, budget) for budget in budgets]
        lower = [net.bounds(region, method=method).lower.item() for region in regions]
        ax.plot(budgets, lower, "-", marker="o", markersize=3, label=method)
least = [float(scores[replaced <= budget].min()) for budget in budgets]
ax.plot(budgets, least, ":", color=bl.plot.INK, marker=".", label="all tried")
ax.axhline(0.0, color=bl.plot.INK, linewidth=0.8)
ax.set(xlabel="words that may be replaced", ylabel="least score", xticks=list(budgets))
bl.plot.label_ends(ax)

# %% [markdown]
# Where a line is above 0, no replacement of so many words turns the verdict: proved for all of
# them. `boundlab words` does the same for trained classifiers of sentences.
