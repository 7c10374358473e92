"""One epoch of certified training with loss fusion on Tiny-ImageNet: 200 classes, CNN-7 with batch
norm, crops of 56x56.

    python -m benchmarks.tiny_imagenet --files TINY --output RUN [--threads N]

The full-scale recipe with its batch of 120, except that eps begins to grow at once, along the same
curve, up to a seventh of its last value at the end of the epoch, and that the bounds are LiRPA's
alone (beta 1). It goes on from its checkpoint when it is started again; ``python -m
benchmarks.certified`` puts the result on the page. Large tensors are quicker to come by if glibc
keeps what is freed: docs/scaling.md says how.
"""

from __future__ import annotations

import argparse
import resource
from dataclasses import replace
from pathlib import Path

import torch
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bars

from benchmarks.timing import load as known
from benchmarks.timing import save
from boundlab.data import load
from boundlab.training.recipes import recipe_named
from boundlab.training.trainer import Progress, Trainer

RECIPE = replace(
    recipe_named("tiny-imagenet-cnn7-bn-lirpa"),
    name="tiny-imagenet-epoch",
    epochs=1,
    start=0,
    length=2.5,
    milestones=(),
    beta=(1.0, 1.0),
)


def largest_layer(trainer: Trainer) -> int:
    """Numbers of the largest output of a layer, for one image."""
    sizes: list[int] = []
    hooks = [
        layer.register_forward_hook(lambda *seen: sizes.append(seen[2][0].numel()))
        for layer in trainer.model.modules()
    ]
    inputs, _ = trainer.task.batch(torch.arange(1), torch.Generator())
    trainer.model.eval()
    with torch.no_grad():
        trainer.model(inputs)
    for hook in hooks:
        hook.remove()
    return max(sizes)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--files", type=Path, required=True, help="where the files of Tiny-ImageNet are"
    )
    parser.add_argument("--output", type=Path, required=True, help="folder for the checkpoint")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, help="stop after so many steps of this call")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    data = load(RECIPE.data, options.files, "train")
    trainer = Trainer(RECIPE, data, options.output)
    found = known("tiny_imagenet") if trainer.resume() else None
    found = found or {"steps": [], "peak": 0.0}
    found |= {
        "images": len(data), "batch": RECIPE.batch, "classes": 200, "threads": options.threads,
        "largest_layer": largest_layer(trainer),
    }  # fmt: skip
    found["steps"], samples = found["steps"][: trainer.step], trainer.step * RECIPE.batch
    sums = {
        key: (found["steps"][-1][f"mean_{key}"] if found["steps"] else 0.0) * samples
        for key in ("clean_loss", "robust_loss", "not_proved", "clean_error")
    }
    first = trainer.step
    with Bars(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    ) as bars:
        bar = bars.add_task("", total=trainer.steps, completed=first)

        def watch(seen: Progress) -> None:
            total, step = (
                seen.step * RECIPE.batch,
                {"step": seen.step, "seconds": seen.row["seconds"], "eps": seen.row["eps"]},
            )
            for key in sums:
                step[key] = (seen.row[key] * total - sums[key]) / RECIPE.batch
                sums[key] = seen.row[key] * total
                step[f"mean_{key}"] = seen.row[key]
            found["steps"].append(step)
            found["peak"] = max(
                found["peak"], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            )
            bars.update(
                bar,
                completed=seen.step,
                description=(f"robust loss {step['robust_loss']:.2f}, {found['peak']:.1f} GiB"),
            )
            if seen.step % 2 == 0 or seen.step == seen.steps:
                trainer.save()
                save("tiny_imagenet", found)
            if options.steps is not None and seen.step - first >= options.steps:
                raise KeyboardInterrupt

        trainer.run(watch)


if __name__ == "__main__":
    main()
