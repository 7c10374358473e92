"""Draw docs/schedules.svg: how eps, beta and kappa move under every schedule.

python scripts/plot_schedules.py
"""

from __future__ import annotations

from pathlib import Path

from boundlab.plot.style import INK, figure, label_ends, save
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
    epochs = [i / STEPS for i in range(EPOCHS * STEPS)]
    curves = {
        kind: [Schedule(kind, 1.0, 10.0).share(t) for t in epochs]
        for kind in ("fixed", "linear", "smooth")
    } | {"adaptive": adaptive()}
    made, (left, right) = figure(2, 8.4, 2.9)
    for kind, shares in curves.items():
        left.plot(epochs, [0.3 * share for share in shares], label=kind)
    left.set(xlabel="epoch", ylabel="ε (pixels in [0, 1])", ylim=(0, None))
    left.set_title("ε to 0.3, start 1, length 10", loc="left")
    label_ends(left)
    smooth = curves["smooth"]
    right.plot(epochs, [between(1.0, 0.0, share) for share in smooth], label="β, 1 to 0")
    right.plot(epochs, [between(0.5, 0.1, share) for share in smooth], label="κ, 0.5 to 0.1")
    right.plot(epochs, smooth, color=INK, linestyle=":", label="ε / last ε")
    right.set(xlabel="epoch", ylabel="weight or share", ylim=(0, None))
    right.set_title("what moves with ε (smooth)", loc="left")
    label_ends(right)
    save(made, PAGE)


if __name__ == "__main__":
    main()
