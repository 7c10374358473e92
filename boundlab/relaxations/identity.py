"""The linear bound of a source in itself, not written out."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from boundlab.relaxations.interval import Interval
from boundlab.relaxations.relaxation import ForwardBound


@dataclass(frozen=True, eq=False)
class IdentityForm:
    """The form of a source without a batch, which is itself: the columns from ``first`` on, of so
    many. Not made where that can be helped: for a weight it has as many entries as the square of
    the weight's."""

    first: int
    columns: int
    source: Interval

    def dense(self) -> ForwardBound:
        """(columns + 1, *shape of the source), ones on a diagonal."""
        source = self.source
        size = source.shape.numel()
        form = torch.zeros(self.columns + 1, size, dtype=source.dtype, device=source.device)
        form[self.first : self.first + size].fill_diagonal_(1)
        return form.reshape(-1, *source.shape)


def dense(form: ForwardBound | IdentityForm) -> ForwardBound:
    """A form as coefficients that are written out."""
    if isinstance(form, IdentityForm):
        return form.dense()
    return form
