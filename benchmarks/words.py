"""The paper's experiment with replaced words: trains classifiers of sentences, verifies them by
every method and writes docs/words.md.

    python -m benchmarks.words --files SST --runs RUNS [--threads N]    trains what is not there
    yet, and measures it python -m benchmarks.words --files SST --runs RUNS --costs          seconds
    a sentence, and how they grow python -m benchmarks.words
    only the page, from results that are there

Runs that are done are not done again; one that was interrupted goes on.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from rich.progress import Progress

from benchmarks.page import table
from benchmarks.timing import best_of, save
from benchmarks.timing import load as stored
from boundlab.commands.words import load_classifier
from boundlab.data.sentences import PADDING, Sentences, load_sentences
from boundlab.models.text import TextClassifier, build_text
from boundlab.regions import Words
from boundlab.training.recipe import Recipe
from boundlab.training.recipes import RECIPES
from boundlab.training.trainer import Trainer
from boundlab.training.words import Bodies, attacked, evaluate_words, region_of, trimmed

DOCS = Path(__file__).parent.parent / "docs"
BUDGETS = tuple(range(7))
CHEAP, DEAR = ("ibp", "crown-ibp"), ("forward", "forward+backward")
FEW = {"lstm": 10, "transformer": 40, "transformer-ln": 40}
"""Sentences that the dear methods get, by model."""
SOME = 100
"""Sentences that the attack gets."""
DRAWS = 33
"""Random substitutions of a sentence that are held against each bound."""
OBJECTIVES: dict[str, dict[str, Any]] = {
    "natural": {"method": "natural"},
    "ibp": {"method": "ibp"},
    "lirpa-1": {"budget": 1},
    "alt-1": {"budget": 1, "beta": (1.0, 1.0), "epochs": 8, "phrases": 5, "milestones": (7,)},
    "lirpa-6": {"budget": 6},
}
SEEDS = {("transformer", "lirpa-6"): 3}
PAPER: dict[
    tuple[str, str], dict[str, tuple[float, ...]]
] = {  # Xu et al. 2020, table of the language models: verified accuracy for 0 to 6 replaced words
    ("lstm", "natural"): {
        "ibp": (84.9, *[0.6] * 6),
        "forward": (84.9, *[0.0] * 6),
        "forward+backward": (84.9, *[0.0] * 6),
    },
    ("lstm", "ibp"): {"ibp": (79.8, *[76.2] * 6)},
    ("lstm", "lirpa-1"): {"crown-ibp": (81.3, 79.0, *[78.6] * 5)},
    ("lstm", "alt-1"): {"crown-ibp": (81.7, 77.3, 75.2, 73.8, 72.7, 72.3, 72.0)},
    ("lstm", "lirpa-6"): {"crown-ibp": (79.4, *[76.6] * 6)},
    ("transformer", "natural"): {
        "ibp": (82.0, *[0.6] * 6),
        "forward": (82.0, 60.6, 47.1, 40.5, 36.8, 35.6, 35.0),
        "forward+backward": (82.0, 65.0, 51.2, 44.5, 41.3, 39.2, 38.7),
    },
    ("transformer", "ibp"): {"ibp": (78.4, *[76.6] * 6)},
    ("transformer", "lirpa-1"): {"crown-ibp": (78.5, 77.3, 77.2, *[77.1] * 4)},
    ("transformer", "alt-1"): {"crown-ibp": (79.2, 77.0, 75.4, 75.1, 74.5, 74.1, 73.9)},
    ("transformer", "lirpa-6"): {"crown-ibp": (78.5, *[77.4] * 6)},
    ("transformer-ln", "natural"): {},
    ("transformer-ln", "ibp"): {},
}


def cells() -> dict[str, Recipe]:
    """ "transformer, lirpa-6, 0" -> recipe; the last is the seed."""
    found = {}
    for model, objective in PAPER:
        for seed in range(SEEDS.get((model, objective), 1)):
            recipe = RECIPES[f"sst-{model.removesuffix('-ln')}"]
            # the dearest run
            share = 0.03 if (model, objective) == ("lstm", "alt-1") else recipe.share
            found[f"{model}, {objective}, {seed}"] = replace(
                recipe, model=model, seed=seed, share=share, **OBJECTIVES[objective]
            )
    return found


def train(recipe: Recipe, files: Path, folder: Path, name: str) -> None:
    trainer = Trainer(recipe, load_sentences(files, "train"), folder)
    trainer.resume()
    with Progress() as progress:
        task = progress.add_task(name, total=recipe.epochs, completed=trainer.epoch)
        trainer.run(lambda step: progress.update(task, completed=step.epoch))
    trainer.save()


def run(files: Path, runs: Path, only: str) -> None:
    data = load_sentences(files, "test")
    for name, recipe in cells().items():
        known = stored("words") or {}
        if name in known.get("runs", {}) or not name.startswith(only):
            continue
        folder = runs / (name.rsplit(", ", 1)[0].replace(", ", "-") + f"-s{recipe.seed}")
        train(recipe, files, folder, name)
        model, _ = load_classifier(folder, data.vocabulary)
        with Progress() as progress:
            task = progress.add_task(f"{name}: verifying", total=len(data))
            every = evaluate_words(
                model,
                data,
                BUDGETS,
                CHEAP,
                attack=False,
                watch=lambda n, task=task, progress=progress: progress.advance(task, n),
            )
        sample = spread(data, FEW[recipe.model])
        few = evaluate_words(model, sample, BUDGETS, DEAR, batch=1, attack=False)
        some = evaluate_words(model, spread(data, SOME), BUDGETS, ())
        found = {
            "all": asdict(every),
            "few": asdict(few),
            "some": asdict(some),
            "held": held_against_bounds(model, sample),
        }
        known = stored("words") or {}
        save("words", {**known, "runs": {**known.get("runs", {}), name: found}})


def spread(data: Sentences, count: int) -> Sentences:
    """So many sentences, evenly from the whole set."""
    return data.pick(torch.arange(count) * len(data) // count)


@torch.no_grad()
def held_against_bounds(model: TextClassifier, data: Sentences) -> dict[str, int]:
    """Random substitutions, and the strongest that the attack finds, against the bounds of every
    method (the dear ones for every fifth sentence): how many were tried, how many outputs left
    their bounds, and how many proved sentences changed their class."""
    generator = torch.Generator().manual_seed(0)
    bodies = Bodies(model)
    substitutes = data.vocabulary.substitutes
    counts = {"tried": 0, "outside": 0, "changed": 0}
    for number, row in enumerate(data.words):
        words = trimmed(row[None])
        methods = CHEAP if number % 5 else (*CHEAP, *DEAR)
        net, mask = bodies[words.shape[1]], words != PADDING
        label = int(model(words).argmax())
        for budget in (1, 3, 6):
            region = region_of(model, words, substitutes, budget)
            points = [model.body(region.sample(generator), mask)[0] for _ in range(DRAWS)]
            broken = attacked(model, words[0], label, substitutes, budget)
            if broken is not None:
                points.append(model(torch.tensor([broken]))[0])
            values = torch.stack(points)
            counts["tried"] += len(values)
            for method in methods:
                spec = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 1.0] if label else [1.0, -1.0]])
                bounds, wanted = net.bounds(region, mask, method=method, spec=spec), values @ spec.T
                room = 1e-4 * (1 + wanted.abs())
                counts["outside"] += int(
                    ((wanted < bounds.lower - room) | (wanted > bounds.upper + room)).any(1).sum()
                )
                if float(bounds.lower[0, 2]) > 0:
                    counts["changed"] += int((values.argmax(1) != label).sum())
    return counts


# -- costs -----------------------------------------------------------------------------------------

LENGTHS, CHOICES = (4, 8, 16, 32), (1, 2, 4, 8)


def costs(files: Path, runs: Path) -> None:
    """Milliseconds a sentence by method, of the networks that were trained with LiRPA; and against
    length and substitutes."""
    data = load_sentences(files, "test")
    found: dict[str, Any] = {}
    for name in ("transformer", "lstm"):
        folder = runs / f"{name}-lirpa-6-s0"
        if folder.exists():
            model, _ = load_classifier(folder, data.vocabulary)
        else:
            model = build_text(name, len(data.vocabulary), 2).eval()
        bodies, methods = Bodies(model), (*CHEAP, *DEAR)
        tasks = {
            f"{method}, {length}, 8": _task(bodies, length, 8, method)
            for method in methods
            for length in LENGTHS
        }
        tasks |= {
            f"{method}, 16, {count}": _task(bodies, 16, count, method)
            for method in methods
            for count in CHOICES
        }
        found[name] = {
            key: 1000 * seconds for key, seconds in best_of(tasks, rounds=3, seconds=60).items()
        }
    save(
        "words",
        {
            **(stored("words") or {}),
            "costs": found,
            "threads": torch.get_num_threads(),
            "measured": time.strftime("%Y-%m-%d"),
        },
    )


def _task(bodies: Bodies, length: int, choices: int, method: str) -> Callable[[], Any]:
    """A sentence of random words, each with so many substitutes, six of which may be replaced."""
    generator = torch.Generator().manual_seed(length * 100 + choices)
    vectors = bodies.model.embedding.weight.detach()
    pick = lambda *shape: vectors[torch.randint(2, len(vectors), shape, generator=generator)]
    region, mask = (
        Words(pick(1, length), pick(1, length, choices), None, 6),
        torch.ones(1, length, dtype=torch.bool),
    )
    net, label = bodies[length], torch.zeros(1, dtype=torch.long)
    return torch.no_grad()(lambda: net.margins(region, mask, label, method=method))


# -- the page --------------------------------------------------------------------------------------

HEAD = f"""# Replaced words

Made by `python -m benchmarks.words` (the paper's experiment on the Stanford Sentiment Treebank). A sentence is proved for a budget if no
replacement of that many words by their neighbours in the counter-fitted space can change its class. Accuracies are shares of all 1821 test
sentences that are right and proved, in per cent; forward and forward+backward, and the attack, which is an upper limit of what can be
proved, get fewer sentences, spread over the test set. In brackets: the paper's figures.

What differs from the paper: the substitutes are not filtered by a language model, so there are more of them, and some change the meaning;
{RECIPES["sst-transformer"].epochs} epochs instead of 25, of which {RECIPES["sst-transformer"].phrases} see a new sample of the phrases each
(transformer {RECIPES["sst-transformer"].share:.0%}, LSTM {RECIPES["sst-lstm"].share:.0%}, LSTM with `alt` 3% of them)
and the others the whole sentences, after one
epoch without perturbation; the learning rate is 1e-3 for both and falls to 1e-4 in the last epoch; embeddings start at a tenth of torch's
scale. The LSTM's way back starts at the last word of each sentence. Interval arithmetic knows the exact bounds of what reads one word at a
time (`methods/choices.py`) instead of those of the hull of its substitutes. Training by IBP does not depend on the budget, so there is one such run.
The paper's own schedule: recipes `sst-transformer-ibp`, `-lirpa`, `-alt`, and the same for `lstm`.

The transformer has a layer norm without the variance, as the paper's; `transformer-ln` has the standard one, which the paper left out.

`natural`: no perturbation; `ibp`: the loss of IBP; `lirpa-n`: IBP+backward, beta from 1 to 0 as eps grows, budget n; `alt-n`: beta = 1 throughout,
8 epochs, 5 of them on phrases. The transformer with the standard layer norm becomes constant when it is trained by IBP: the intervals of the
variance are too wide; the row is there to show that every method works on it.

Our natural networks are easier to attack than the paper's are to verify: the attack leaves about half of the sentences for one replaced word and
one in ten for six, so the unfiltered substitutes do not allow the shares that the paper proves of natural transformers.
"""


def page(known: dict[str, Any]) -> str:
    runs = known.get("runs", {})
    parts = [HEAD]
    for model in ("lstm", "transformer", "transformer-ln"):
        rows = []
        for (which, objective), paper in PAPER.items():
            found = [
                row
                for name, row in runs.items()
                if which == model and name.startswith(f"{model}, {objective}, ")
            ]
            if found:
                rows += _rows(objective, found, paper)
        if rows:
            head = ["training", "verified by", *[f"{budget} replaced" for budget in BUDGETS]]
            parts.append(f"\n## {model}\n\n" + "\n".join(table(head, rows)))
    held = [row["held"] for row in runs.values()]
    if held:
        total = {key: sum(counts[key] for counts in held) for key in held[0]}
        parts.append(
            f"\n## Soundness\n\n{total['tried']} substitutions, random ones and the strongest "
            f"found, of 10 to 40 sentences under each of {len(held)} networks, against the bounds "
            f"of {', '.join((*CHEAP, *DEAR))}: {total['outside']} outside of a bound, "
            f"{total['changed']} proved sentences changed.\n"
        )
    if "costs" in known:
        parts.append(_costs(known))
    return "".join(parts)


def _rows(
    objective: str, found: list[dict[str, Any]], paper: dict[str, tuple[float, ...]]
) -> list[list[str]]:
    rows = []
    names = [(method, "all", f"{method}") for method in CHEAP] + [
        (method, "few", f"{method}, {found[0]['few']['count']} sentences") for method in DEAR
    ]
    for method, part, shown in names:
        cells_ = []
        for k, budget in enumerate(BUDGETS):
            values = [100 * run[part]["verified"][method][str(budget)] for run in found]
            cell = f"{statistics.mean(values):.1f}"
            if len(values) > 1:
                cell += f" ± {statistics.stdev(values):.1f}"
            if method in paper:
                cell += f" ({paper[method][k]:.1f})"
            cells_.append(cell)
        seeds = f", {len(found)} seeds" if len(found) > 1 else ""
        rows.append([objective + seeds, shown, *cells_])
    left = [[100 * run["some"]["attacked"][str(budget)] for run in found] for budget in BUDGETS]
    rows.append(
        [
            objective,
            f"left by the attack, {found[0]['some']['count']} sentences",
            *[f"{statistics.mean(values):.1f}" for values in left],
        ]
    )
    return rows


def _costs(known: dict[str, Any]) -> str:
    text = (
        f"\n## Cost\n\nMilliseconds a sentence (`--costs`, {known['threads']} thread, one sentence "
        "at a time, random words, six replaced; best of three interleaved rounds beside other "
        "work), against the length with 8 substitutes a word, and with 16 words against the "
        "number of substitutes.\n\n"
    )
    rows = []
    for model, found in known["costs"].items():
        for method in (*CHEAP, *DEAR):
            rows.append(
                [
                    model,
                    method,
                    *[f"{found[f'{method}, {length}, 8']:.1f}" for length in LENGTHS],
                    *[f"{found[f'{method}, 16, {count}']:.1f}" for count in CHOICES],
                ]
            )
    head = [
        "network",
        "method",
        *[f"{n} words" for n in LENGTHS],
        *[f"{n} substitutes" for n in CHOICES],
    ]
    return text + "\n".join(table(head, rows))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=Path)
    parser.add_argument("--runs", type=Path)
    parser.add_argument("--only", default="", help="runs whose name starts so")
    parser.add_argument("--costs", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.files is not None and options.runs is not None:
        if options.costs:
            costs(options.files, options.runs)
        else:
            run(options.files, options.runs, options.only)
    known = stored("words")
    if known is not None:
        (DOCS / "words.md").write_text(page(known))


if __name__ == "__main__":
    main()
