"""Draw docs/schedules.svg: how eps, beta and kappa move under every schedule.

python scripts/plot_schedules.py
"""

from __future__ import annotations

from pathlib import Path

import matplotlib
from matplotlib import pyplot as plt

from boundlab.training.schedules import Adaptive, Schedule, between

PAGE = Path(__file__).resolve().parent.parent / "docs" / "schedules.svg"
STEPS, EPOCHS = 100, 16


def adaptive() -> list[float]:
    """As it behaves when the loss jumps with eps and then falls: it waits, goes on, waits."""
    schedule, loss, shares = Adaptive(step=1 / (10 * STEPS), target=1.0, memory=0.95), 2.0, []
    for _ in range(EPOCHS * STEPS):
        before = schedule.share
        schedule.note(loss)
        loss = max(0.6, loss - 0.004) + 5 * (schedule.share - before) * (1 + schedule.share)
        shares.append(schedule.share)
    return shares


def main() -> None:
    plt.switch_backend("svg")
    matplotlib.rcParams["svg.hashsalt"] = "boundlab"  # the same file every time
    epochs = [i / STEPS for i in range(EPOCHS * STEPS)]
    curves = {
        kind: [Schedule(kind, 1.0, 10.0).share(t) for t in epochs]
        for kind in ("fixed", "linear", "smooth")
    } | {"adaptive": adaptive()}
    figure, axes = plt.subplots(1, 2, figsize=(9, 3), constrained_layout=True)
    for kind, shares in curves.items():
        axes[0].plot(epochs, [0.3 * share for share in shares], label=kind)
    axes[0].set(xlabel="epoch", ylabel="eps", title="eps to 0.3, start 1, length 10")
    axes[0].legend()
    smooth = curves["smooth"]
    axes[1].plot(epochs, [between(1.0, 0.0, share) for share in smooth], label="beta, 1 to 0")
    axes[1].plot(epochs, [between(0.5, 0.1, share) for share in smooth], label="kappa, 0.5 to 0.1")
    axes[1].plot(epochs, smooth, label="eps / last eps", color="grey", linestyle=":")
    axes[1].set(xlabel="epoch", title="what moves with eps (smooth)")
    axes[1].legend()
    figure.savefig(PAGE, metadata={"Date": None})


if __name__ == "__main__":
    main()
