# %% [markdown]
# # A Lyapunov condition, proved by splitting
#
# A controlled pendulum comes to rest if a function V of its state falls with every step. That V
# falls at ten thousand sampled states proves nothing. `bl.verify` proves it for all states of a
# box: it bounds how far V falls, and splits the box where the bound is not good enough.

# %%
import torch
from torch import Tensor, nn

import boundlab as bl

bl.plot.use_style()
SECONDS = 0.05


class Decrease(nn.Module):
    """State (angle, speed) -> by how much V falls in a step, (batch, 1)."""

    def __init__(self) -> None:
        super().__init__()
        self.policy = nn.Sequential(
            nn.Linear(2, 2, bias=False), nn.Tanh(), nn.Linear(2, 1, bias=False)
        )
        with torch.no_grad():
            self.policy[0].weight.copy_(torch.tensor([[0.9, 0.3], [0.4, 0.5]]))
            self.policy[2].weight.copy_(torch.tensor([[-4.0, -3.0]]))
        self.register_buffer("P", torch.tensor([[1.6, 0.35], [0.35, 0.35]]))  # V(x) = x' P x

    def step(self, state: Tensor) -> Tensor:
        angle, speed = state[:, :1], state[:, 1:]
        push = torch.sin(angle) - 0.3 * speed + self.policy(state)
        return torch.cat([angle + SECONDS * speed, speed + SECONDS * push], 1)

    def forward(self, state: Tensor) -> Tensor:
        after = self.step(state)
        return self.V(state) - self.V(after)

    def V(self, state: Tensor) -> Tensor:
        return ((state @ self.P) * state).sum(1, keepdim=True)


model = Decrease()

# %% [markdown]
# Close to rest the fall of V goes to zero, so a small box in the middle is left out, as always
# with such proofs: four boxes around it remain. The loop is odd, step(-x) = -step(x), and V is
# even, so two of them answer for the other two.

# %%
SIZE, HOLE = 1.0, 0.2
sides = [([-SIZE, HOLE], [SIZE, SIZE]), ([HOLE, -HOLE], [SIZE, HOLE])]
boxes = [bl.Box(torch.tensor([low]), torch.tensor([high])) for low, high in sides]
verdicts = [bl.verify(model, bl.Property(box, lambda y: y[:, 0] > 0), timeout=300) for box in boxes]
for box, verdict in zip(boxes, verdicts, strict=True):
    print(f"{box}: {verdict.status}, {verdict.domains} parts bounded")

# %% [markdown]
# The map shows the fall of V (sampled, for orientation), the boxes of the proof (dashed), and a
# few trajectories.

# %%
grid = torch.linspace(-SIZE, SIZE, 61)
states = torch.cartesian_prod(grid, grid)
with torch.no_grad():
    fall = model(states).view(61, 61)
    paths = [torch.tensor([[0.9, 0.0], [-0.9, 0.6], [0.2, -0.9], [-0.5, -0.5], [0.6, 0.8]])]
    for _ in range(80):
        paths.append(model.step(paths[-1]))

figure, (ax,) = bl.plot.figure(width=4.6, height=3.6)
areas = ax.contourf(grid, grid, fall.T, levels=8, cmap="cividis")
figure.colorbar(areas, label="fall of V in a step")
for path in torch.stack(paths, 1):
    ax.plot(*path.T, color="white", linestyle="-", linewidth=1.0)
for box in boxes:
    (left, bottom), (right, top) = box.lower[0].tolist(), box.upper[0].tolist()
    around = torch.tensor(
        [[left, bottom], [right, bottom], [right, top], [left, top], [left, bottom]]
    )
    for sign in (1, -1):  # the box, and the one that it answers for
        ax.plot(*(sign * around).T, "w--", linewidth=0.8)
ax.set(xlabel="angle (rad)", ylabel="speed (rad/s)")
ax.grid(False)
ax.set_title("V falls everywhere outside of the hole", loc="left")
# %% [markdown]
# A wrong claim is answered with a state that breaks it. With a weaker controller V rises
# somewhere:

# %%
weak = Decrease()
with torch.no_grad():
    weak.policy[2].weight.mul_(0.15)
verdict = bl.verify(weak, bl.Property(boxes[1], lambda y: y[:, 0] > 0), timeout=300)
print(verdict.status, verdict.counterexample.inputs, verdict.counterexample.outputs)
