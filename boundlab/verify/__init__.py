"""From bounds to verdicts: query.py states what must be shown, and rounding.py how far the model
rounds; bound.py finds lines below it over boxes, clip.py shrinks boxes by them, pool.py keeps them,
estimate.py tells how many there will be, inputs.py searches. branch.py chooses neurons to split,
domains.py bounds the parts, neurons.py searches, tighten.py makes intervals of nodes tighter.
milp.py and exact.py ask a solver, portfolio.py decides what to do next, verdict.py is the answer,
samples.py verifies samples with labels."""

from boundlab.verify.portfolio import verify
from boundlab.verify.verdict import Verdict

__all__ = ["Verdict", "verify"]
