# %% [markdown]
# # Training a small robust classifier
#
# Two rings of points, and a network that tells them apart. Trained as usual it does so at the
# points themselves; trained with bounds it provably does so in a box around every point. Bounds
# are differentiable, so the only change is the loss.

# %%
import torch
from torch import nn

import boundlab as bl

bl.plot.use_style()
EPS, STEPS = 0.12, 70


def rings(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    labels = torch.randint(0, 2, (count,))
    angle = 6.2832 * torch.rand(count)
    radius = torch.where(labels == 0, 0.4, 0.82) + 0.03 * torch.randn(count)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], 1), labels


def train(robust: bool, seed: int) -> tuple[nn.Module, list[float]]:
    """The trained network, and at every tenth step the share of points that crown verifies."""
    torch.manual_seed(seed)
    x, labels = rings(64)
    model = nn.Sequential(
        nn.Linear(2, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 2)
    )
    net = bl.capture(model, x)
    optimiser = torch.optim.Adam(model.parameters(), 0.02)
    verified = []
    for step in range(STEPS + 1):
        if step % 10 == 0:
            with torch.no_grad():
                verified.append(
                    float((net.margins(bl.Linf(x, EPS), labels) > 0).all(1).float().mean())
                )
        loss = nn.functional.cross_entropy(model(x), labels)
        if robust:
            region = bl.Linf(x, EPS * min(1.0, step / 40))  # the radius grows from 0
            loss = bl.robust_cross_entropy(net, region, labels, method="crown-ibp").mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model, verified


# %% [markdown]
# Two seeds each. The line is their mean, the band goes from the least to the greatest.

# %%
models = {}
figure, (ax,) = bl.plot.figure(height=2.8)
for name, robust in (("usual loss", False), ("bound of the loss", True)):
    runs = [train(robust, seed) for seed in range(2)]
    models[name] = runs[0][0]
    bl.plot.band(ax, range(0, STEPS + 1, 10), [verified for _, verified in runs], name)
ax.set(xlabel="step", ylabel="points", ylim=(0, 1.03))
ax.set_title(f"verified at eps = {EPS}", loc="left")
bl.plot.per_cent(ax.yaxis)
bl.plot.label_ends(ax)

# %% [markdown]
# What two of the networks have learnt, with boxes of points that they have not seen. Where a box
# is blue, it is proved that the network decides alike, and rightly, in all of it; orange ones
# cross the border, or nearly.

# %%
torch.manual_seed(0)
x, labels = rings(60)
grid = torch.linspace(-1.1, 1.1, 81)
places = torch.cartesian_prod(grid, grid)
figure, axes = bl.plot.figure(2, 7.0, 3.4)
for ax, (name, model) in zip(axes, models.items(), strict=True):
    with torch.no_grad():
        sides = (model(places)[:, 1] - model(places)[:, 0]).view(81, 81)
        proved = (bl.capture(model, x).margins(bl.Linf(x, EPS), labels) > 0).all(1)
    ax.contour(grid, grid, sides.T, levels=[0.0], colors=[bl.plot.INK], linewidths=1.2)
    for chosen, colour in ((proved, bl.plot.PROVED), (~proved, bl.plot.BROKEN)):
        bl.plot.boxes(bl.Linf(x[chosen], EPS), colour=colour, ax=ax)
    ax.set(xlabel="x", ylabel="y", aspect="equal")
    ax.set_title(f"{name}: {100 * proved.float().mean():.0f} % proved", loc="left")
