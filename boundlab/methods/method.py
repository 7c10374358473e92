"""Methods as rows: how intermediate nodes are bounded, how the output is, and whether slopes are
optimised. A method of one's own is a row of one's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from boundlab.errors import ArgumentError, did_you_mean

if TYPE_CHECKING:
    from boundlab.graph.graph import Node

Mode = Literal["interval", "forward", "backward"]
"""Interval arithmetic, forward mode (Algorithm 1) or backward mode (Algorithm 2)."""
MODES = ("interval", "forward", "backward")


@dataclass(frozen=True)
class Method:
    """intermediate: how the nodes that relaxations read are bounded, one mode for all or a function
    of the node. output: how the output is. optimize: whether the slopes of relaxations (alphas) and
    the multipliers of splits (betas) are optimised. after: the name of a cheaper method that is run
    first; its bounds hold as well, so that this method is never looser.
    """

    name: str
    intermediate: Mode | Callable[[Node], Mode]
    output: Mode
    optimize: bool = False
    after: str | None = None

    def __post_init__(self) -> None:
        for mode in (self.intermediate, self.output):
            if not callable(mode) and mode not in MODES:
                raise ArgumentError(f"a mode must be one of {', '.join(MODES)}, not {mode!r}")
        if self.optimize and self.output != "backward":
            raise ArgumentError('slopes are optimised in backward mode: output must be "backward"')

    def mode_of(self, node: Node) -> Mode:
        """How an intermediate node is bounded."""
        if not callable(self.intermediate):
            return self.intermediate
        mode = self.intermediate(node)
        if mode not in ("interval", "backward"):
            raise ArgumentError(
                f"method {self.name}: a node is bounded by 'interval' or 'backward', not by "
                f"{mode!r} ({node})"
            )
        return mode

    @property
    def is_forward(self) -> bool:
        """Whether forward mode is needed: it bounds every node, or none."""
        return "forward" in (self.intermediate, self.output)

    def stages(self) -> tuple[Method, ...]:
        """The methods that are run one after the other, this one last."""
        if self.after is None:
            return (self,)
        return (*find_method(self.after).stages(), self)


ROWS = (
    Method("ibp", "interval", "interval"),
    Method("forward", "forward", "forward"),
    Method("crown-ibp", "interval", "backward"),
    Method("forward+backward", "forward", "backward"),
    Method("crown", "backward", "backward", after="crown-ibp"),
    Method("forward+crown", "backward", "backward", after="forward+backward"),
    Method("alpha-crown", "backward", "backward", optimize=True, after="crown"),
    Method("beta-crown", "interval", "backward", optimize=True, after="crown-ibp"),
)
METHODS = {row.name: row for row in ROWS}

ALIASES = {
    "backward": "crown",
    "interval": "ibp",
    "ibp+backward": "crown-ibp",
    "crown-optimized": "alpha-crown",
    "alpha crown": "alpha-crown",
    "deeppoly": "crown",
    "interval-bound-propagation": "ibp",
    "forward-backward": "forward+backward",
    "\u03b1-crown": "alpha-crown",
    "\u03b2-crown": "beta-crown",
}
"""What users of other libraries type, in small letters; the last two begin with Greek ones."""


def method_name(text: str) -> str:
    """The name of the row that a text means, whatever its case, or as an alias; the text itself if
    there is none."""
    name = text.lower().replace("_", "-")
    name = ALIASES.get(name, name)
    return name if name in METHODS else text


def find_method(method: str | Method) -> Method:
    """The row of a name, whatever its case, or of an alias; a row of one's own as it is."""
    if isinstance(method, Method):
        return method
    name = method_name(str(method))
    if name in METHODS:
        return METHODS[name]
    known, hint = ", ".join(map(repr, METHODS)), did_you_mean(name, METHODS)
    raise ArgumentError(f"method must be one of {known}, or a bl.Method, not {method!r}.{hint}")
