"""Linear bounds of rows over boxes, by whichever method."""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch
from torch import Tensor

from boundlab.arithmetic.arithmetic import Arithmetic
from boundlab.arithmetic.guard import rounded_off
from boundlab.methods.method import find_method
from boundlab.net import Net
from boundlab.net.linear import lower_lines
from boundlab.net.questions import Options
from boundlab.regions import Box
from boundlab.verify.lines import Lines
from boundlab.verify.query import Rows

FORWARD = 100
"""Inputs that move up to which forward mode, whose cost grows with them, is worth its time."""
CASES, MOST_CASES = 16, 1024
"""Cases that are bounded at once: at first, and at most."""
QUICK = 0.1
"""Seconds in which that many are bounded if twice as many may follow."""


class Bounder:
    """Bounds the rows of a query. arithmetic: that bounds are proved for."""

    def __init__(self, net: Net, rows: Rows, arithmetic: Arithmetic | None = None) -> None:
        self.net = net
        self.arithmetic = arithmetic
        self.spec = rows.spec()
        self.case = rows.case
        shape, _, _ = net.graph.examples[net.graph.inputs[0]]
        self.shape = tuple(shape[1:])
        self.target = net.only_output("verify")

    def lines(self, lower: Tensor, upper: Tensor, clause: Tensor, method: str) -> Lines:
        """Lines below the rows of clauses (domains,) over boxes (domains, in)."""
        return Lines.beside(self._lines(lower, upper, self.spec[clause], method))

    def lines_of_cases(
        self, lower: Tensor, upper: Tensor, clause: Tensor, method: str
    ) -> Iterator[tuple[Tensor, Lines]]:
        """The same where the boxes of a case are almost one: its nodes are bounded once, over a box
        around them. Some domains (numbers) at a time, with their lines."""
        own = [(self.case[clause] == case).nonzero().flatten() for case in self.case.unique()]
        own = [members for members in own if len(members)]
        first, count = 0, CASES
        while first < len(own):
            start = time.monotonic()
            part = own[first : first + count]
            most = max(map(len, part))
            padded = torch.stack([_repeated(members, most) for members in part])  # (cases, most)
            spec = self.spec[clause[padded]].flatten(1, 2)
            found = self._lines(lower[padded].amin(1), upper[padded].amax(1), spec, method)
            held = torch.arange(most) < torch.tensor([[len(members)] for members in part])
            apart = Lines.beside([lines.apart(most) for lines in found])
            first += len(part)
            if time.monotonic() - start < QUICK:
                count = min(2 * count, MOST_CASES)
            yield padded[held], apart.take(held.flatten())

    @torch.no_grad()
    def _lines(self, lower: Tensor, upper: Tensor, spec: Tensor, method: str) -> list[Lines]:
        """Lines below spec (domains, rows, columns) over boxes (domains, in): those of the method,
        and of forward mode if it was run before, which are not looser everywhere."""
        box = Box(lower.reshape(-1, *self.shape), upper.reshape(-1, *self.shape))
        options = Options(find_method(method), arithmetic=self.arithmetic)
        answer = self.net.ask((box,), {}, options)
        forward = [one for one in answer.stages[:-1] if one.forward_bounds is not None]
        found = []
        for stage in (answer.stages[-1], *forward):
            a, b = lower_lines(stage.analysis, self.target, spec)
            a = a.flatten(2)
            if self.arithmetic is not None:
                # what rounding takes from the least values of the lines over this box and its parts
                size = torch.maximum(lower.abs(), upper.abs())
                b = b - rounded_off(torch.einsum("dri,di->dr", a.abs(), size), a.shape[2])
            found.append(Lines(a, b))
        return found


def _repeated(members: Tensor, count: int) -> Tensor:
    """Members with the first one repeated until there are so many."""
    return torch.cat([members, members[:1].expand(count - len(members))])
