"""``boundlab words``: one sentence under a trained classifier; and ``boundlab evaluate`` for
classifiers of sentences."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from boundlab.commands.devices import device_named, set_threads
from boundlab.commands.speaking import busy, out, progress, write_json
from boundlab.data.sentences import PADDING, UNKNOWN, Sentences, Vocabulary, load_sentences, tokens
from boundlab.errors import ArgumentError
from boundlab.models.text import TextClassifier, build_text
from boundlab.storage.files import write_atomically
from boundlab.training.checkpoints import folder_of, read_checkpoint, usable
from boundlab.training.recipe import Recipe
from boundlab.training.words import Bodies, evaluate_words, region_of, strongest, trimmed

RESULT = "words.json"
CLASSES = ("negative", "positive")


def load_classifier(path: Path, vocabulary: Vocabulary) -> tuple[TextClassifier, Recipe]:
    """The classifier of a checkpoint in eval mode, and its recipe."""
    state = read_checkpoint(path)
    if not isinstance(state.get("words"), int):
        raise ArgumentError(f"{path} is not a classifier of sentences")
    if state["words"] != len(vocabulary):
        raise ArgumentError(
            f"{path} was trained with {state['words']} words, the files give {len(vocabulary)}: "
            "give the files it was trained with"
        )
    with usable(path):
        recipe = Recipe.read(state["recipe"])
        model = build_text(recipe.model, state["words"], state["classes"])
        model.load_state_dict(state["model"])
    return model.eval(), recipe


def evaluate_sentences(options: argparse.Namespace) -> None:
    """What ``boundlab evaluate`` does for classifiers of sentences."""
    data = load_sentences(options.files, "test")
    model, recipe = load_classifier(options.checkpoint, data.vocabulary)
    model = model.to(device_named(options.device))
    data = data.first(options.limit)
    budgets = tuple(range(7) if options.budgets is None else options.budgets)
    columns = (TextColumn("evaluating"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=progress(options), transient=True) as bar:
        task = bar.add_task("", total=len(data))
        found = evaluate_words(
            model,
            data,
            budgets,
            tuple(options.methods),
            batch=min(options.batch, 32),
            attack=options.restarts > 0,
            watch=lambda n: bar.advance(task, n),
        )
    table = Table(
        title=(f"{recipe.name}: accuracy on {found.count} test sentences, clean {found.clean:.2%}"),
        title_justify="left",
    )
    table.add_column("")
    for budget in budgets:
        table.add_column(f"{budget} replaced", justify="right")
    for method, shares in found.verified.items():
        table.add_row(f"verified by {method}", *[f"{shares[budget]:.2%}" for budget in budgets])
    if found.attacked:
        table.add_row(
            "left by the attack", *[f"{found.attacked[budget]:.2%}" for budget in budgets]
        )
    out(options).print(table)
    content = {"recipe": recipe.name, "seed": recipe.seed, **asdict(found)}
    path = folder_of(options.checkpoint) / RESULT
    write_atomically(path, json.dumps(content, indent=1) + "\n")
    write_json(options, content)


def words(options: argparse.Namespace) -> None:
    """Show what may be replaced in a sentence."""
    set_threads(options.threads)
    vocabulary = load_sentences(options.files, "dev").vocabulary
    model, _ = load_classifier(options.model, vocabulary)
    device = device_named(options.device)
    model = model.to(device)
    substitutes = vocabulary.substitutes.to(device)
    texts = tokens(options.sentence)
    if not texts:
        raise ArgumentError("the sentence has no words")
    data = Sentences.of([(texts, 0, True)], vocabulary, "sentence")
    words = trimmed(data.words).to(device)
    with torch.no_grad():
        logits = model(words)[0]
    label = int(logits.argmax())
    console = out(options)
    console.print(
        Text("class ")
        .append(CLASSES[label], style="bold")
        .append(f", margin {float(logits[label] - logits[1 - label]):.3f}")
    )
    _show_choices(console, texts, words[0], vocabulary)
    table = Table(
        title=(f"margins proved by {options.method}, and the strongest replacement found"),
        title_justify="left",
    )
    for name in ("replaced", "certified margin", "", "least found", "with"):
        table.add_column(name)
    bodies = Bodies(model)
    with busy(options, "bounding"):
        for budget in options.budgets:
            region = region_of(model, words, substitutes, budget)
            with torch.no_grad():
                margin = float(
                    bodies[words.shape[1]]
                    .margins(region, words != PADDING, [label], method=options.method)
                    .min()
                )
            found, least = strongest(model, words[0], label, substitutes, budget)
            table.add_row(
                str(budget),
                f"{margin:.3f}",
                _verdict(margin, least),
                f"{least:.3f}",
                _changed(words[0], found, vocabulary),
            )
    console.print(table)


def _verdict(certified: float, found: float) -> Text:
    """What a certified margin and the least one that was found say of a sentence."""
    if found <= 0:
        return Text("broken", style="red")
    if certified > 0:
        return Text("proved", style="green")
    return Text("open", style="yellow")


def _show_choices(
    console: Console, texts: list[str], words: torch.Tensor, vocabulary: Vocabulary
) -> None:
    """Each word with those that may replace it."""
    for text, number in zip(texts, words.tolist(), strict=False):
        others = [
            vocabulary.words[other]
            for other in vocabulary.substitutes[number].tolist()
            if other != PADDING
        ]
        line = Text(f"  {text}")
        if number == UNKNOWN:
            line = Text(f"  {text}  (not in the vocabulary)", style="dim")
        if others:
            line.append("  " + ", ".join(others), style="cyan")
        console.print(line)


def _changed(words: torch.Tensor, found: list[int], vocabulary: Vocabulary) -> Text:
    line = Text()
    for before, after in zip(words.tolist(), found, strict=True):
        if before != after:
            line.append(f"{vocabulary.words[before]} -> ").append(
                vocabulary.words[after] + "  ", style="red"
            )
    return line
