"""What an entry of a recipe means, and which values it takes: plain data, kept with each field of
:class:`boundlab.training.recipe.Recipe`. The command line and the pages read it from there."""

from __future__ import annotations

from dataclasses import Field, dataclass, field
from typing import Any

from boundlab.errors import ArgumentError, did_you_mean

SENTENCES = "sst"
DATA = ("mnist", "fashion-mnist", "cifar10", "tiny-imagenet", "downscaled-imagenet", SENTENCES)
"""Names of sets that boundlab reads; :data:`boundlab.data.SETS` has their readers."""
NETWORKS = (
    "mlp", "tiny-cnn", "small-cnn", "small-cnn-bn", "cnn7-bn", "densenet", "wide-resnet", "resnext",
)  # fmt: skip
"""Names of networks for images; :data:`boundlab.models.MODELS` makes them."""
TEXT_NETWORKS = ("transformer", "transformer-ln", "lstm")
OWN = "own"
"""The model or the data of a run that were given in Python, so that they have no name."""
NPZ = ".npz"
FILE, CODE = f"a file {NPZ}", "package.module:factory"
"""What else data and models may be."""
GROUPS = {
    "data": "training data",
    "network": "network",
    "claim": "what is certified",
    "loss": "loss",
    "schedule": "how eps grows",
    "steps": "steps",
}
"""Names of groups of entries, with their titles."""
_KEY = "entry"


@dataclass(frozen=True)
class Entry:
    """meaning: one line. group: one of GROUPS. unit: of a number. options: the texts that are
    allowed; own: what else is, FILE or CODE. least: the least number that is
    allowed, or what numbers must lie above, if ``above``."""

    meaning: str
    group: str
    unit: str = ""
    options: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    least: float | None = None
    above: bool = False

    def check(self, name: str, value: Any) -> None:
        """An error if an entry of this name may not have a value."""
        if self.options and value not in self.options and not self._is_own(value):
            allowed = ", ".join((*self.options, *self.own))
            hint = did_you_mean(str(value), self.options)
            raise ArgumentError(f"{name} must be one of {allowed}, not {value!r}.{hint}")
        if self.least is None:
            return
        if self.above and not value > self.least:
            raise ArgumentError(f"{name} must be positive, not {value}")
        if not value >= self.least:
            raise ArgumentError(f"{name} must not be negative, but is {value}")

    def _is_own(self, value: Any) -> bool:
        """Whether a text names something of the user's."""
        name = str(value)
        found = {FILE: is_file(name), CODE: is_code(name)}
        return any(found[kind] or name == OWN for kind in self.own)


def is_file(name: str) -> bool:
    """Whether data are a file of arrays."""
    return name.lower().endswith(NPZ)


def is_code(name: str) -> bool:
    """Whether a name is ``package.module:factory``."""
    module, _, factory = name.partition(":")
    return bool(module and factory) and not is_file(name)


def shown(value: object) -> str:
    """A value of an entry as a flag takes it."""
    if isinstance(value, tuple):
        return ",".join(map(shown, value)) or "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.12g}"
    return str(value)


def entry(default: Any, meaning: str, group: str, **more: Any) -> Any:
    """A field of a recipe with its default and what it means."""
    return field(default=default, metadata={_KEY: Entry(meaning, group, **more)})


def entry_of(one: Field[Any]) -> Entry:
    """What a field of a recipe means."""
    found = one.metadata[_KEY]
    assert isinstance(found, Entry)
    return found
