"""Programs of the kind that users write, in tables by theme."""

from tests.programs import (
    algebra,
    attention,
    compounds,
    control,
    flows,
    graphs,
    losses,
    norms,
    order,
    routing,
    signals,
    structures,
)
from tests.programs.program import Program

THEMES = (
    control, routing, flows, graphs, signals, order, losses, attention, norms, algebra, structures,
    compounds,
)  # fmt: skip
PROGRAMS: dict[str, Program] = {}
for theme in THEMES:
    assert not set(PROGRAMS) & set(theme.PROGRAMS)
    PROGRAMS.update(theme.PROGRAMS)
