"""Writes docs/benchmarks.md from the results that the other scripts left.

python -m benchmarks.page
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from benchmarks.timing import load
from benchmarks.training import peer
from benchmarks.verification import TARGETS, gains
from benchmarks.workloads import PEER

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
HEAD = """# Benchmarks

Made by `python -m benchmarks.page` from `benchmarks/results/`; the commands are beside the figures. Two cores of a shared machine, no GPU.
Networks and data that are not part of the project are found through `BOUNDLAB_SHARED`, `--data` and `--cifar`; the scripts say what is missing and
how to get it. `make benchmarks` runs everything that needs neither. Parts are measured at different times: the history of `benchmarks/results/` has
the commit of each.
"""


def table(header: list[str], rows: list[list[str]]) -> list[str]:
    line = lambda cells: "| " + " | ".join(cells) + " |"
    return [line(header), line(["---"] * len(header)), *map(line, rows), ""]


def verification(found: dict[str, Any]) -> list[str]:
    rows = []
    for key, row in found["rows"].items():
        peer = PEER[key]
        cells = [
            f"{row['ratio']:.1f}",
            f"{peer['ratio']:.1f}",
            f"{peer['ratio'] / row['ratio']:.2f}",
            f"{row['mean_margin']:.4f}",
            f"{peer['mean_margin']:.4f}",
        ]
        floor = f"{1e3 * row['kernels']:.1f}", f"{row['gigaflops']:.2f}"
        rows.append(
            [
                row["workload"],
                row["method"],
                str(row["batch"]),
                f"{1e3 * row['seconds']:.1f}",
                *floor,
                *cells,
            ]
        )
    kernels = gains(
        {key: row | {"ratio": row["kernels"] / row["step"]} for key, row in found["rows"].items()}
    )
    means = [
        [
            method,
            f"{gain:.2f}",
            f"{TARGETS[method]:g}" if method in TARGETS else "",
            f"{kernels[method]:.2f}",
        ]
        for method, gain in gains(found["rows"]).items()
    ]
    return [
        "## Cost of verification", "", "    python -m benchmarks.verification", "",
        "Lower bounds of all margins, without gradient. The cost is a multiple of one forward "
"and backward pass of the same batch, measured in the same "
        f"process, interleaved, best of several rounds, {found['threads']} threads. Peer: "
"auto_LiRPA 0.7.1 on torch 2.13, measured in the same way on another "
        "quiet two-core machine (`benchmarks/peer.json`); its plain step took up to twice as "
"long as ours does here, which makes its multiples smaller.", "",
        *table(["workload", "method", "batch", "ms", "kernels, ms", "GFLOP", "cost", "peer's cost", "peer / ours", "mean margin", "peer's"], rows),
        *table(["method", "geometric mean of peer / ours", "aim", "if ours were its kernels alone"], means),
        "GFLOP and kernels: the floating-point operations of its matrix products and "
        "convolutions, and the time that these alone take, the least that any way to do the "
        "same work on this machine needs. The machine is shared: six runs on one day, with "
        "changes of a few percent between them, gave means of 1.7 to 1.9 (ibp), 1.8 to 1.9 "
        "(crown-ibp), 3.2 to 3.5 (crown) and 12.4 to 14.1 (alpha-crown), and single rows "
        "differ by up to a quarter (`crown` on mlp_6x200: 1.10, 0.99, 1.00, 1.21, 1.04, 1.14).", "",
        "How fast each method could be at best. `crown` on mlp_6x200 needs about 30 GFLOP "
        "of matrix products, which take 180 ms at the 170 GFLOPS that two threads reach "
        "when nothing else runs; the rest is passes over the coefficients at each ReLU "
        "and at the input. Nearly all of its neurons are unstable behind the second "
        "layer, so there are few rows to leave out, unlike on the convolutional networks. "
        "`crown-ibp` does not reach its aim. It pulls 9 rows a sample back through every "
        "layer. The plain step does that with one row, in about a third of its time, so 9 "
        "rows take 3 plain steps, and the interval pass before them takes one more: 4 "
        "plain steps are the least that this method can cost, and conv_wide is not far "
        "from that. On conv_small kernels take half of the time: of 18 ms in a quiet "
        "round they take 9, the interval pass 2.5, copies around the strided convolutions "
        "2, passes at ReLUs 2, sums of constants 1. encoder is the extreme: 1200 small "
        "operators, ten microseconds each with what Python needs to call them, for 1.5 to "
        "2 ms of kernels, where the plain step has 190.", "",
    ]  # fmt: skip


def growth(found: dict[str, Any]) -> list[str]:
    rows = []
    for axis, curves in found.items():
        for method, points in curves.items():
            rows.append(
                [axis, method, *[f"{value}: {1e3 * seconds:.1f}" for value, seconds in points]]
            )
    longest = max(map(len, rows))
    rows = [row + [""] * (longest - len(row)) for row in rows]
    return [
        "## Growth", "", "    python -m benchmarks.growth", "",
        "Milliseconds of one question, both axes logarithmic in the plot. Networks: fully "
"connected with 4 layers of 64 (specifications: 256) and "
        "100 inputs, batch 8, 9 specifications, unless that is the axis; input side: two "
"strided convolutions, batch 2.", "",
        "![cost against width, depth, batch, specifications and input side](growth.svg)", "",
        *table(["axis", "method", *["value: ms"] * (longest - 2)], rows),
    ]  # fmt: skip


def memory(found: list[dict[str, Any]]) -> list[str]:
    rows = [
        [
            row["workload"],
            row["form"],
            f"{row['tensors_mib']:.1f}",
            f"{row['peak_mib']:.0f}",
            f"{row['seconds']:.2f}",
            f"{row['width']:.6g}",
        ]
        for row in found
    ]
    return [
        "## Memory of `crown`", "", "    python -m benchmarks.memory", "",
        "Tensors: the most bytes of tensors at once, beside those from before, as the "
        "profiler notes them; the same in every run. Resident: by how much the resident size "
        "of the process grows, which has in it what the allocator keeps and what kernels take "
        "for themselves, and differs by a third between runs. Dense: windows switched off and "
        "as many rows at once as memory allows. cnn7 (five convolutions of up to 128 channels "
        "at 32x32, batch 1) runs at a radius of 1/255 under `memory=\"2 GiB\"`, and again "
        "under `\"20 MiB\"` (a budget for coefficients, beside the values and weights: of its "
        "linear layer alone 64 MiB); one layer of its dense form alone would need 65536 rows "
        "of 65536 numbers, 16 GiB.", "",
        *table(["network", "form", "tensors, MiB", "resident, MiB", "seconds", "mean width"], rows),
    ]  # fmt: skip


def training(found: dict[str, Any]) -> list[str]:
    rows = []
    for name, row in found["rows"].items():
        seconds, mib = row["seconds"], row["mib"]
        theirs = peer(name)
        kernels, work = row.get("kernels", {}), row.get("gigaflops", {})
        last_natural = seconds.get("natural, channels last")
        milliseconds = lambda value: "" if value is None else f"{1e3 * value:.0f}"
        cells = [
            *map(milliseconds, (seconds["natural"], last_natural, seconds.get("update"))),
            f"{mib['natural']:.0f}",
        ]
        for step in ("ibp", "fused", "unfused"):
            if step not in seconds:
                cells.append("does not fit")
                continue
            parts = [f"{seconds[step] / seconds['natural']:.2f}x"]
            if "update" in seconds:
                parts.append(
                    "with the update "
                    f"{(seconds[step] + seconds['update']) / (seconds['natural'] + seconds['update']):.2f}x"
                )
            if step in kernels:
                parts.append(f"kernels {kernels[step] / seconds['natural']:.2f}x")
            if step in work:
                parts.append(f"operations {work[step] / work['natural']:.2f}x")
            if step in theirs:
                parts.append(f"peer {theirs[step]:.1f}x")
            cells.append(", ".join([*parts, f"{mib[step]:.0f} MiB"]))
        rows.append([name, str(row["batch"]), *cells])
    last = []
    for name, row in found["rows"].items():
        if "compared" in row:
            ratio = row["compared"]["many"] / row["compared"]["few"]
            last = [
                f"With fusion a step of {name} takes {ratio:.2f} times as long as with 10 "
                "classes, in the same rounds.",
                "",
            ]
    return [
        "## Cost of certified training", "", "    python -m benchmarks.training", "",
        "One forward and backward pass of a batch; time as a multiple of the natural step, "
        "and peak memory beside parameters and input. IBP and LiRPA (loss fusion, mixed with "
        "IBP; and without fusion) contain the clean pass whose batch-norm statistics they "
        f"share. {found['threads']} threads. Peer: auto_LiRPA 0.7.1 on another two-core "
        "machine. Kernels: the matrix products and convolutions of that step alone, again as "
        "a multiple of the whole natural step: what no other way to do the same work goes "
        "below. Operations: how many floating-point operations these have, as a multiple of "
        "the natural step's. Robust steps have the channels last in memory, as the recipes "
        "of these networks do; multiples are of the plain natural step, and beside it stands "
        "what a natural step takes with the channels last. Update: what clipping and Adam "
        "take after every step, whatever the loss; with it the whole step of a training run "
        "is compared.", "",
        "Where the floor is: of every convolution of the natural step, forward and backward, "
        "IBP makes three (for the clean batch, centres and radii) and LiRPA with fusion four "
        "(for the coefficients of the row, too): 3 and 4 natural steps, if these were "
        "convolutions alone and all of them equally fast. The first layer, which needs no "
        "gradient of its argument, and what natural steps spend on other things bring that "
        "down to the kernels' multiples in the table; batch norms and ReLUs of all of these, "
        "and their gradients, are what is left between these and the times. The aims of 2.6 "
        "and 3.7 lie below this arithmetic: networks that are convolutions alone cannot reach "
        "them. On wide-resnet at 56x56 the kernels by themselves took 2.7 to 3.0 and 3.6 to "
        "4.0 natural steps in several runs. cnn7-bn and resnext have wide linear layers, "
        "whose products robust steps make quicker than natural ones do. Multiples scatter by "
        "up to a fifth from run to run, with what else the machine does and with where the "
        "system takes memory from: cnn7-bn at 32x32 took 2.63 and 3.92 in a process without "
        "updates of weights.", "",
        *table(["network", "batch", "natural, ms", "channels last, ms", "update, ms", "natural, MiB", "IBP", "LiRPA, fused", "LiRPA, one row a class"], rows),
        *last,
    ]  # fmt: skip


def compilation(found: dict[str, Any]) -> list[str]:
    rows = []
    for row in found["rows"]:
        calls = "never" if row["break_even"] is None else f"{row['break_even']:.0f} calls"
        rows.append(
            [
                row["what"],
                f"{row['compiling']:.1f}",
                f"{1e3 * row['eager']:.2f}",
                f"{1e3 * row['compiled']:.2f}",
                calls,
            ]
        )
    return [
        "## torch.compile", "", "    python -m benchmarks.compilation", "",
        "There is no `net.compile()`, because it does not pay. Whole questions compile for 5 "
        "to 40 seconds into many pieces, cut where bounds decide what is computed next, and "
        "run no faster. The step through a ReLU compiles well, but takes a tenth of a "
        "question: with it compiled, `crown` on mlp_6x200 and conv_wide and `crown-ibp` on "
        "conv_small and conv_deep took between 0 and 12 % less time. Matrix products and "
        "convolutions take the rest, and these are compiled already.", "",
        *table(["what", "compiling, s", "eager, ms", "compiled, ms", "pays after"], rows),
    ]  # fmt: skip


def networks(found: dict[str, Any]) -> list[str]:
    rows = []
    for key, row in found["rows"].items():
        name, method = key.split("/")
        rows.append(
            [
                name,
                f"{row['eps']:.4g}",
                method,
                str(row["images"]),
                f"{row['clean']:.1%}",
                f"{row['verified']:.1%}",
                f"{row['seconds']:.4f}",
            ]
        )
    return [
        "## Networks that others trained", "", "    python -m benchmarks.networks --data MNIST "
"--cifar "
"CIFAR", "",
        f"The first test images, linf balls cut to the range of pixels, {found['threads']} "
"threads. alpha-crown stops at images whose margins are positive.", "",
        *table(["network", "eps", "method", "images", "clean", "verified", "seconds an image"], rows),
    ]  # fmt: skip


def kw(found: dict[str, Any]) -> list[str]:
    return [
        "## Verified error of kw_mnist at linf 0.1", "",
        "    python -m benchmarks.kw_mnist --data MNIST --batch 50", "",
        "All 10000 MNIST test images, the ball cut to [0, 1]. The network and the published "
"figure of 5.8 % (dual network bounds) are those of Wong and "
        "Kolter (locuslab/convex_adversarial); an independent CROWN reaches 5.26 % at 0.032 s "
"an image on two cores.", "",
        *table(
            ["method", "images", "clean error", "verified error", "seconds", "seconds an image"],
            [[row["method"], str(row["images"]), f"{row['clean']:.2%}", f"{row['verified_error']:.2%}", f"{row['seconds']:.0f}", f"{row['each']:.4f}"] for row in found.values()],
        ),
    ]  # fmt: skip


def models(found: dict[str, Any]) -> list[str]:
    rows = []
    for name, row in found.items():
        if "refused" in row:
            rows.append([name, "", "", "", row["refused"].split(":")[0]])
            continue
        times = [f"{row['capture_s']:.1f}", f"{row['crown_s']:.2f}"]
        rows.append([name, str(row["nodes"]), *times, f"{row['over_reached']:.2f}"])
    captures = [row["capture_s"] for row in found.values() if "refused" not in row]
    return [
        "## Public model classes", "", "    python -m benchmarks.models", "",
        "Classes of the package transformers with tiny random configurations, one thread, an linf "
        "ball around the image or the embeddings of the words. Reached is the mean width of "
        "what steps along the gradient find. The median of the captures is "
        f"{statistics.median(captures):.1f} s.", "",
        *table(["model", "nodes", "capture, s", "crown, s", "crown's width / reached"], rows),
    ]  # fmt: skip


PARTS = {
    "verification": verification,
    "growth": growth,
    "memory": memory,
    "training": training,
    "compilation": compilation,
    "kw_mnist": kw,
    "networks": networks,
    "models": models,
}


def main() -> None:
    lines = [HEAD]
    for name, write in PARTS.items():
        found = load(name)
        if found is None:
            lines += [f"No result of `python -m benchmarks.{name}` is recorded.", ""]
        else:
            lines += write(found)
    PAGE.write_text("\n".join(lines).rstrip() + "\n")
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
