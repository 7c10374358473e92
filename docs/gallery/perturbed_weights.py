# %% [markdown]
# # Perturbed weights
#
# Inputs are not all that can move. Weights are stored with few bits, chips drift, and flat minima
# are said to generalise: how far can outputs, or the loss, move when weights do? `perturb=` names
# parameters and gives each a region around its own value.

# %%
import torch
from torch import nn

import boundlab as bl

bl.plot.use_style()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3))
x = torch.randn(32, 4)
labels = model(x).argmax(1)
net = bl.capture(model, x)

# %% [markdown]
# Rounding a weight to `bits` bits moves it by at most half a step. Which layer needs how many?
# The bars show by how much rounding one layer's weight can move any output of any sample.

# %%
layers = [name for name, parameter in net.parameters().items() if parameter.dim() == 2]
figure, (ax,) = bl.plot.figure(height=2.8)
for k, bits in enumerate((4, 6, 8)):
    moved = []
    for name in layers:
        eps = float(net.parameters()[name].detach().abs().max()) / 2**bits
        with torch.no_grad():
            bounds = net.bounds(x, perturb={name: bl.Linf(eps=eps)}, method="crown-ibp")
        clean = model(x).detach()
        moved.append(float(torch.maximum(bounds.upper - clean, clean - bounds.lower).max()))
    ax.bar([i + 0.27 * (k - 1) for i in range(len(layers))], moved, 0.25, label=f"{bits} bits")
ax.set_xticks(range(len(layers)), layers)
ax.set(ylabel="largest move of an output", yscale="log", xlabel="the parameter that is rounded")
ax.grid(False, axis="x")
ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
# %% [markdown]
# All weights at once: `bl.flatness` bounds by how much the mean loss can rise when every weight
# moves inside a ball whose radius is a share of its norm.

# %%
shares = [0.001, 0.002, 0.005, 0.01, 0.02]
figure, (ax,) = bl.plot.figure(height=2.8)
for method in ("ibp", "crown-ibp", "crown"):
    with torch.no_grad():
        rise = [float(bl.flatness(net, x, labels, share, method=method)) for share in shares]
    ax.plot(shares, rise, marker="o", markersize=3, label=method)
ax.set(xlabel="radius, as a share of each weight's norm", ylabel="rise of the mean loss (nats)")
ax.set(xscale="log", yscale="log")
bl.plot.label_ends(ax)
