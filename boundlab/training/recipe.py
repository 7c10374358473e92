"""Everything that defines a training run, as one frozen object that a TOML file can hold."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, get_type_hints

from boundlab.data import SETS
from boundlab.data.sentences import SST
from boundlab.errors import ArgumentError, did_you_mean
from boundlab.models import MODELS
from boundlab.models.text import TEXT_MODELS
from boundlab.training.schedules import KINDS

METHODS = ("natural", "ibp", "crown-ibp")
PERTURBED = ("inputs", "weights", "words")
OPTIMISERS = ("adam", "sgd")
POSITIVE = ("epochs", "batch", "lr")
NOT_NEGATIVE = (
    "eps", "clip", "l1", "start", "length", "factor", "tightness", "balance", "crop", "size",
)  # fmt: skip


@dataclass(frozen=True)
class Recipe:
    """data, model: names. method: "natural", "ibp" or "crown-ibp" (LiRPA mixed with IBP). perturb:
    what moves, "inputs" (each pixel by eps), "weights" (each matrix by eps in the Euclidean norm)
    or "words" (at most ``budget`` of a sentence, -1 for no limit; eps moves substitutes towards the
    word and is 1 in the end; the first ``phrases`` epochs take phrases too). eps: the radius that
    is tested. share: of the training set, its first images, or of the phrases, drawn anew every
    epoch. normalise: put mean and standard deviation of the pixels into the network. fused: loss
    fusion.

    epochs, batch, lr: as usual; optimiser: "adam" or "sgd"; lr falls by ``decay`` at the epochs
    ``milestones``. clip: the largest gradient norm. l1: weight of the sum of absolute weights.
    schedule, start, length: how eps grows (epochs), and beta and kappa move with it. factor: the
    last eps in training over the tested one. beta, kappa: first and last values of the share of
    LiRPA bounds and of the clean loss. init: "ibp" or "default". tightness, balance: weights of the
    warm-up terms. flip, crop: mirror images, and shift them by up to so many pixels. size: crop to
    so many pixels (0: as they are). channels_last: how images, and with them all values and
    coefficients, lie in memory; networks with wide convolutions are faster then. adaptive_target:
    the robust loss below which an adaptive schedule goes on.
    """

    name: str = "unnamed"
    data: str = "mnist"
    model: str = "small-cnn-bn"
    method: str = "crown-ibp"
    perturb: str = "inputs"
    eps: float = 0.1
    budget: int = -1
    phrases: int = 0
    share: float = 1.0
    normalise: bool = True
    fused: bool = True
    epochs: int = 60
    batch: int = 128
    optimiser: str = "adam"
    lr: float = 5e-4
    milestones: tuple[int, ...] = (45, 55)
    decay: float = 0.1
    clip: float = 8.0
    l1: float = 0.0
    schedule: str = "smooth"
    start: float = 1.0
    length: float = 30.0
    factor: float = 1.0
    beta: tuple[float, float] = (1.0, 0.0)
    kappa: tuple[float, float] = (0.0, 0.0)
    init: str = "ibp"
    tightness: float = 0.5
    balance: float = 0.5
    flip: bool = False
    crop: int = 0
    size: int = 0
    channels_last: bool = False
    adaptive_target: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        for what, value, options in (
            ("data", self.data, (*SETS, SST)),
            ("model", self.model, (*MODELS, *TEXT_MODELS)),
            ("method", self.method, METHODS),
            ("perturb", self.perturb, PERTURBED),
            ("optimiser", self.optimiser, OPTIMISERS),
            ("schedule", self.schedule, KINDS),
            ("init", self.init, ("ibp", "default")),
        ):
            if value not in options:
                raise ArgumentError(
                    f"recipe {self.name!r}: {what} must be one of {', '.join(options)}, not "
                    f"{value!r}"
                )
        values = vars(self)
        for what in POSITIVE:
            if values[what] <= 0:
                raise ArgumentError(
                    f"recipe {self.name!r}: {what} must be positive, not {values[what]}"
                )
        for what in NOT_NEGATIVE:
            if not values[what] >= 0:
                raise ArgumentError(
                    f"recipe {self.name!r}: {what} must not be negative, but is {values[what]}"
                )
        if not 0 < self.share <= 1:
            raise ArgumentError(
                f"recipe {self.name!r}: share is a part of the training set, 0 < share <= 1, not "
                f"{self.share}"
            )
        for what, ends in (("beta", self.beta), ("kappa", self.kappa)):
            if len(ends) != 2 or not all(0 <= share <= 1 for share in ends):
                raise ArgumentError(
                    f"recipe {self.name!r}: {what} holds a first and a last share between 0 and 1, "
                    f"not {ends}"
                )

    @staticmethod
    def read(values: Mapping[str, object], base: Recipe | None = None) -> Recipe:
        """From names and values, as a TOML file or the command line gives them; anything unknown or
        of a wrong type is an error."""
        kinds = get_type_hints(Recipe)
        known = {field.name for field in fields(Recipe)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise ArgumentError(
                f"a recipe has no {', '.join(unknown)}; it has: {', '.join(sorted(known))}."
                f"{did_you_mean(unknown[0], sorted(known))}"
            )
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

    def toml(self) -> str:
        """The recipe as a TOML file that :meth:`load` reads."""
        return "".join(f"{key} = {_toml(value)}\n" for key, value in self.as_dict().items())


def _toml(value: object) -> str:
    """A value of a recipe as TOML writes it."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
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
