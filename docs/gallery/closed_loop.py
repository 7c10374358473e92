# %% [markdown]
# # Where can a pendulum be? Reachable sets of a closed loop
#
# A damped pendulum with a small network as its controller. The loop is written as plain PyTorch,
# all steps in one module; boundlab reads it as one graph, so that what a step knows of the state
# is not forgotten in the next.

# %%
import torch
from torch import Tensor, nn

import boundlab as bl

bl.plot.use_style()
STEPS, SECONDS = 10, 0.12


class Loop(nn.Module):
    """State (angle in rad, speed in rad/s) -> the states at all steps, (batch, 2 (STEPS + 1))."""

    def __init__(self) -> None:
        super().__init__()
        self.policy = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
        with torch.no_grad():  # a controller that pulls the pendulum back to the top
            self.policy[0].weight.copy_(
                torch.tensor([[0.9, 0.3], [0.5, 0.4], [0.7, 0.1], [0.2, 0.5]])
            )
            self.policy[0].bias.zero_()
            self.policy[2].weight.copy_(torch.tensor([[-2.0, -2.0, -2.0, -1.0]]))
            self.policy[2].bias.zero_()

    def forward(self, state: Tensor) -> Tensor:
        states = [state]
        for _ in range(STEPS):
            angle, speed = state[:, :1], state[:, 1:]
            push = torch.sin(angle) - 0.3 * speed + self.policy(state)
            state = torch.cat([angle + SECONDS * speed, speed + SECONDS * push], 1)
            states.append(state)
        return torch.cat(states, 1)


torch.manual_seed(0)
loop = Loop()
start = torch.tensor([[0.8, 0.0]])
region = bl.Linf(start, torch.tensor([[0.1, 0.1]]))
net = bl.capture(loop, start)

# %% [markdown]
# One question bounds all states at all steps. Below, the tubes of two methods with twenty
# simulated trajectories. Interval arithmetic (`ibp`) forgets that angle and speed of a state
# belong together and grows without end; `crown` follows the loop.


# %%
def by_step(bounds: bl.Bounds) -> bl.Bounds:
    """Bounds (batch, steps, states)."""
    return bl.Bounds(bounds.lower.view(1, -1, 2), bounds.upper.view(1, -1, 2))


times = SECONDS * torch.arange(STEPS + 1)
with torch.no_grad():
    crown = by_step(net.bounds(region))
    ibp = by_step(net.bounds(region, method="ibp"))
    runs = loop(torch.cat([region.sample() for _ in range(20)])).view(20, -1, 2)

figure, axes = bl.plot.figure(2, 7.4, 2.8)
for state, (ax, name) in enumerate(zip(axes, ("angle (rad)", "speed (rad/s)"), strict=True)):
    few = slice(0, 7)  # beyond, ibp would dwarf everything
    early = bl.Bounds(ibp.lower[:, few], ibp.upper[:, few])
    bl.plot.tube(early, state, times=times[few], label="ibp" if state else None, ax=ax)
    bl.plot.tube(
        crown, state, times=times, trajectories=runs, label="crown" if state else None, ax=ax
    )
    ax.set(xlabel="time (s)", ylabel=name)

# %% [markdown]
# In the plane of both states: bounds of angle and speed alone give boxes. Bounds in eight
# directions give polygons, which show how both depend on each other. Drawn after 0, 3, 6 and 10
# steps.

# %%
shown = (0, 3, 6, 10)
planes = [(2 * step, 2 * step + 1) for step in shown]
specs = [bl.plot.directions(8, outputs=2 * (STEPS + 1), dims=dims) for dims in planes]
with torch.no_grad():
    strips = net.bounds(region, spec=torch.cat(specs))  # (1, 32): one question for all

figure, axes = bl.plot.figure(2, 7.4, 3.2)
for k, (dims, spec) in enumerate(zip(planes, specs, strict=True)):
    mine = slice(8 * k, 8 * k + 8)
    of_step = bl.Bounds(strips.lower[:, mine], strips.upper[:, mine])
    box = bl.Bounds(crown.lower[:, shown[k]], crown.upper[:, shown[k]])
    bl.plot.boxes(box, points=runs[:, shown[k]], ax=axes[0], colour="C0")
    bl.plot.polygon(of_step, spec, dims, points=runs.flatten(1), ax=axes[1], colour="C1")
for ax, title in zip(axes, ("boxes", "polygons of 8 directions"), strict=True):
    ax.set(xlabel="angle (rad)", ylabel="speed (rad/s)")
    ax.set_title(title, loc="left")

# %% [markdown]
# To state that a tube avoids something, give `bl.verify` a property, as in the notebook on
# Lyapunov conditions; it splits the set of initial states where one pass is not enough.
