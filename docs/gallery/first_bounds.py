# %% [markdown]
# # First bounds
#
# A network, a set of inputs around a point, and limits that no output over that set can cross.
# The network is any PyTorch module, unchanged; here a small one with two inputs and two outputs,
# so that everything can be drawn.

# %%
import torch
from torch import nn

import boundlab as bl

bl.plot.use_style()
torch.manual_seed(1)
model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))
x = torch.tensor([[0.3, -0.2]])
net = bl.capture(model, x)
region = bl.Linf(x, eps=0.4)

with torch.no_grad():
    bounds = net.bounds(region)  # by crown, the default
    reached = model(torch.cat([region.sample() for _ in range(200)]))
print(bounds)

# %% [markdown]
# `bounds.lower` and `bounds.upper` hold for all members of the region, not only for those that
# were sampled. As a picture: every method gives a box that contains all outputs. Cheap methods
# give larger boxes.

# %%
ax = None
with torch.no_grad():
    for method in ("ibp", "crown", "alpha-crown"):
        found = net.bounds(region, method=method)
        ax = bl.plot.boxes(found, label=method, ax=ax)
ax.plot(*reached.T, ".", color=bl.plot.INK, markersize=2)
ax.set_title("outputs over the region, and their bounds", loc="left")
# %% [markdown]
# A box is what bounds of single outputs allow. Bounds of linear combinations of outputs, given as
# rows of a matrix `spec`, say more: each row is a direction, and with its lower and upper bound a
# strip. What lies in all strips is a polygon. Eight directions give up to sixteen sides.

# %%
spec = bl.plot.directions(8)
with torch.no_grad():
    box = net.bounds(region)
    strips = net.bounds(region, spec=spec)
ax = bl.plot.boxes(box, label="bounds of the outputs")
bl.plot.polygon(strips, spec, points=reached, label="bounds in 8 directions", ax=ax)
ax.set_title("the same by crown", loc="left")
# %% [markdown]
# Where do such bounds come from? Every nonlinear operator is put between two lines, which hold
# over the interval that its input can be in; lines are then carried back through the network. For
# one operator that is the whole story:

# %%
figure, axes = bl.plot.figure(2, 6.4, 2.6)
bl.plot.relaxation(torch.relu, -1.0, 2.0, ax=axes[0]).set_title("relu on [-1, 2]", loc="left")
bl.plot.relaxation(torch.tanh, -1.0, 2.0, ax=axes[1]).set_title("tanh on [-1, 2]", loc="left")
