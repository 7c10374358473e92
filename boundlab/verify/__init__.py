"""From bounds to verdicts: query.py states what must be shown, bound.py bounds it over boxes,
rounding.py tells how far the model rounds, clip.py shrinks boxes, pool.py keeps them, inputs.py
splits them, neurons.py splits neurons, milp.py asks a solver, portfolio.py decides what to do next,
verdict.py is the answer, samples.py asks about many samples."""

from boundlab.verify.portfolio import verify
from boundlab.verify.verdict import Verdict

__all__ = ["Verdict", "verify"]
