"""Everything that defines a training run, as one frozen object that a TOML file can hold."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, get_type_hints

from boundlab.errors import ArgumentError, did_you_mean
from boundlab.training.entries import (
    CODE,
    DATA,
    FILE,
    GROUPS,
    NETWORKS,
    TEXT_NETWORKS,
    entry,
    entry_of,
    is_file,
    shown,
)
from boundlab.training.schedules import KINDS

METHODS = ("natural", "ibp", "crown-ibp")
PERTURBED = ("inputs", "weights", "words")
OPTIMISERS = ("adam", "sgd")
INITS = ("ibp", "default")


@dataclass(frozen=True)
class Recipe:
    """Everything that defines a training run. ``boundlab train --help`` says what each entry means,
    from the fields below: ``entry(default, meaning, group, ...)``."""

    name: str = entry("unnamed", "what tables and files call the recipe", "data")

    data: str = entry(
        "mnist",
        "a set by name, arrays in a file .npz, or package.module:factory",
        "data",
        options=DATA,
        own=(FILE, CODE),
    )
    share: float = entry(
        1.0,
        "share of the training set: its first images; of phrases, drawn anew every epoch",
        "data",
    )
    range: tuple[float, ...] = entry(
        (0.0, 1.0), "LOW,HIGH of valid inputs, to which regions are cut; or none", "data"
    )
    size: int = entry(
        0,
        "cut images to so many pixels a side, at random; 0 leaves them as they are",
        "data",
        unit="pixels",
        least=0,
    )
    crop: int = entry(
        0, "shift images at random by up to so many pixels", "data", unit="pixels", least=0
    )
    flip: bool = entry(False, "mirror half of the images, at random", "data")
    channels_last: bool = entry(
        False, "keep images with the channels last in memory: faster for wide convolutions", "data"
    )

    model: str = entry(
        "small-cnn-bn",
        "a network by name, or package.module:factory, called without arguments",
        "network",
        options=(*NETWORKS, *TEXT_NETWORKS),
        own=(CODE,),
    )
    normalise: bool = entry(
        True, "put mean and standard deviation of the training set into the network", "network"
    )
    init: str = entry(
        "ibp",
        "ibp: draw weights that keep intervals narrow; default: as the network has them",
        "network",
        options=INITS,
    )

    perturb: str = entry(
        "inputs",
        "what moves: every input, every weight matrix, or words of a sentence",
        "claim",
        options=PERTURBED,
    )
    eps: float = entry(
        0.1,
        "radius that is tested: of inputs in their own unit, of weights Euclidean; 8/255 works",
        "claim",
        unit="radius",
        least=0,
    )
    budget: int = entry(
        -1, "how many words of a sentence may be replaced; -1: any number", "claim", unit="words"
    )

    method: str = entry(
        "crown-ibp",
        "bounds of the loss: natural (none), ibp, crown-ibp (LiRPA mixed with ibp)",
        "loss",
        options=METHODS,
    )
    fused: bool = entry(
        True, "loss fusion: one row of coefficients instead of one for each class", "loss"
    )
    beta: tuple[float, float] = entry(
        (1.0, 0.0), "first and last share of LiRPA bounds against interval bounds", "loss"
    )
    kappa: tuple[float, float] = entry(
        (0.0, 0.0), "first and last share of the clean loss against the robust one", "loss"
    )
    tightness: float = entry(
        0.5, "weight of the warm-up term that keeps intervals narrow", "loss", least=0
    )
    balance: float = entry(
        0.5, "weight of the warm-up term that keeps ReLUs on both sides", "loss", least=0
    )
    l1: float = entry(0.0, "weight of the sum of absolute weights", "loss", least=0)

    schedule: str = entry(
        "smooth", "form of the growth of eps; beta and kappa move along", "schedule", options=KINDS
    )
    start: float = entry(1.0, "epochs before eps grows from 0", "schedule", unit="epochs", least=0)
    length: float = entry(30.0, "epochs that eps takes to grow", "schedule", unit="epochs", least=0)
    factor: float = entry(
        1.0,
        "last radius of training over eps: 2 trains for 2 eps to be tested at eps",
        "schedule",
        least=0,
    )
    adaptive_target: float = entry(
        1.0, "robust loss below which eps goes on growing, with --schedule adaptive", "schedule"
    )

    epochs: int = entry(
        60, "passes over the training set", "steps", unit="epochs", least=0, above=True
    )
    phrases: int = entry(
        0,
        "first epochs of sentences, that see phrases of the treebank too",
        "steps",
        unit="epochs",
    )
    batch: int = entry(128, "samples of a step", "steps", unit="samples", least=0, above=True)
    optimiser: str = entry("adam", "how steps are taken", "steps", options=OPTIMISERS)
    lr: float = entry(5e-4, "learning rate at the start", "steps", least=0, above=True)
    milestones: tuple[int, ...] = entry(
        (45, 55), "epochs at which the learning rate falls, A,B,...", "steps", unit="epochs"
    )
    decay: float = entry(0.1, "factor by which it falls", "steps")
    clip: float = entry(8.0, "largest norm of a gradient; 0 for any", "steps", least=0)
    seed: int = entry(0, "of weights, order, crops and flips", "steps")

    def __post_init__(self) -> None:
        values = vars(self)
        try:
            for one in fields(self):
                entry_of(one).check(one.name, values[one.name])
            self._check_shares()
        except ArgumentError as error:
            raise ArgumentError(f"recipe {self.name!r}: {error}") from None

    def _check_shares(self) -> None:
        if not 0 < self.share <= 1:
            raise ArgumentError(
                f"share is a part of the training set, 0 < share <= 1, not {self.share}"
            )
        for what, ends in (("beta", self.beta), ("kappa", self.kappa)):
            if len(ends) != 2 or not all(0 <= share <= 1 for share in ends):
                raise ArgumentError(
                    f"{what} holds a first and a last share between 0 and 1, not {ends}"
                )
        if self.range and not (len(self.range) == 2 and self.range[0] < self.range[1]):
            raise ArgumentError(f"range holds LOW < HIGH, or nothing, not {self.range}")

    @staticmethod
    def read(values: Mapping[str, object], base: Recipe | None = None) -> Recipe:
        """From names and values, as a TOML file or the command line gives them; anything unknown or
        of a wrong type is an error."""
        kinds = get_type_hints(Recipe)
        known = {field.name for field in fields(Recipe)}
        unknown = sorted(set(values) - known)
        if unknown:
            nearest = did_you_mean(unknown[0], sorted(known))
            all_of_them = f" It has: {', '.join(sorted(known))}."
            raise ArgumentError(f"a recipe has no {', '.join(unknown)}.{nearest or all_of_them}")
        return replace(
            base or Recipe(),
            **{key: _convert(key, value, kinds[key]) for key, value in values.items()},
        )

    @staticmethod
    def load(path: str | Path) -> Recipe:
        """The recipe that a TOML file holds."""
        try:
            return Recipe.read(tomllib.loads(Path(path).read_text()))
        except FileNotFoundError:
            raise ArgumentError(f"there is no recipe {path}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ArgumentError(f"{path} is not TOML: {error}") from None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def differences(self, now: Recipe) -> str:
        """What a run of this recipe cannot go on with by another one: entries with both values;
        empty if there are none. Names, numbers of epochs and places of files may differ."""
        free = {"name", "epochs"}
        if is_file(self.data) and is_file(now.data):
            free.add("data")
        before, after = self.as_dict(), now.as_dict()
        changed = [key for key in before if key not in free and before[key] != after[key]]
        return ", ".join(
            f"{key} ({shown(before[key])}, now {shown(after[key])})" for key in changed
        )

    def toml(self, explained: bool = False) -> str:
        """The recipe as a TOML file that :meth:`load` reads. explained: with what every entry
        means."""
        lines = [(one, f"{one.name} = {_toml(vars(self)[one.name])}") for one in fields(self)]
        if not explained:
            return "".join(f"{line}\n" for _, line in lines)
        text, group = "", ""
        for one, line in lines:
            entry = entry_of(one)
            if entry.group != group:
                group = entry.group
                text += f"\n# {GROUPS[group]}\n"
            text += f"{line:<32} # {entry.meaning}\n"
        return text.lstrip()


def _toml(value: object) -> str:
    """A value of a recipe as TOML writes it."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def _convert(key: str, value: object, kind: Any) -> Any:
    simple = {bool: (bool,), int: (int,), float: (int, float), str: (str,)}
    if kind in simple:
        if not isinstance(value, simple[kind]) or (isinstance(value, bool) and kind is not bool):
            raise ArgumentError(f"recipe: {key} must be of type {kind.__name__}, not {value!r}")
        return kind(value)
    number = int if "int" in str(kind) else float
    if not isinstance(value, (list, tuple)) or not all(
        isinstance(v, (int, number)) and not isinstance(v, bool) for v in value
    ):
        raise ArgumentError(f"recipe: {key} must be a list of numbers, not {value!r}")
    return tuple(number(v) for v in value)
