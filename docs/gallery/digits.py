# %% [markdown]
# # Digits: what is verified, what is broken, and the largest radius
#
# The network and the hundred digits that ship with boundlab (`boundlab demo`). Pixels lie in [0,
# 1], and every pixel may move by `eps` on its own.

# %%
import torch

import boundlab as bl
from boundlab.demo import load_digits, load_model

bl.plot.use_style()
torch.manual_seed(0)
images, labels = load_digits(30)
x = images.float() / 255
model = load_model()
net = bl.capture(model, x)

# %% [markdown]
# A margin is the output of the label minus that of another class. A lower bound above 0 for all
# other classes is a proof: no image of the region is classified otherwise.

# %%
region = bl.Linf(x, 0.15, lower=0.0, upper=1.0)
figure, axes = bl.plot.figure(2, 7.4, 2.6)
with torch.no_grad():
    crown = net.margins(region, labels)
    bl.plot.margins(crown, ax=axes[0])
    bl.plot.margins(net.margins(region, labels, method="ibp"), "sorted", label="ibp", ax=axes[1])
    bl.plot.margins(crown, "sorted", label="crown", ax=axes[1])
axes[0].set(xlabel="least margin, by crown", ylabel="images")
axes[1].set(xlabel="images", ylabel="least margin")
# %% [markdown]
# Whatever is not proved may be broken. `bl.attack` searches; what it returns are images of the
# region itself, which the model classifies otherwise.

# %%
found = bl.attack(model, region, labels, steps=20, restarts=2)
print(found)
broken = found.violated.nonzero().flatten()[:4]

figure, axes = bl.plot.figure(3 * len(broken), 7.4, 1.1)
for k, i in enumerate(broken.tolist()):
    moved = found.inputs[i, 0] - x[i, 0]
    shown = (
        (x[i, 0], "gray", 0, 1),
        (moved, "PuOr", -0.15, 0.15),
        (found.inputs[i, 0], "gray", 0, 1),
    )
    titles = (f"{labels[i]}", "moved", f"now {found.outputs[i].argmax()}")
    for ax, (picture, colours, low, high), title in zip(
        axes[3 * k : 3 * k + 3], shown, titles, strict=True
    ):
        ax.imshow(picture.numpy(), cmap=colours, vmin=low, vmax=high, interpolation="none")
        ax.set_axis_off()
        ax.set_title(title, fontsize=8)

# %% [markdown]
# For each image there is a largest radius at which it is still proved, and a smallest that is
# broken. As shares of the images, the truth lies in the area between the lines.

# %%
radii = bl.certified_radius(
    net,
    x[:12],
    labels[:12],
    method="crown-ibp",
    lower=0.0,
    upper=1.0,
    most=0.5,
    tolerance=0.1,
    steps=8,
    restarts=1,
)
ax = bl.plot.radii(radii)
ax.set(xlabel="radius (pixels in [0, 1])", ylabel="images")
