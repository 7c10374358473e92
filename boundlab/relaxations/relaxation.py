"""Linear relaxations: the oracle functions F (backward) and G (forward) of the paper.

A relaxation bounds the result y of one operator by linear functions of its perturbed arguments x_1
... x_m:

    sum_k lower_k x_k + lower_bias  <=  y  <=  sum_k upper_k x_k + upper_bias.

Backward takes rows ``c`` of shape (rows, *shape of y) and returns coefficients c_k for the
arguments and constant terms such that ``sum_k c_k . x_k + sum of terms <= c . y``: only lower
bounds, since an upper bound of h is minus a lower bound of -h. A term is a pair (rows, constant)
that stands for their inner product per sample, which need not be formed. Forward takes the linear
bounds of the arguments in the sources, of shape (columns + 1, *shape) with the constant term last,
and returns those of y.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from torch import Tensor

from boundlab.coefficients.outer import Outer
from boundlab.coefficients.window import Window
from boundlab.errors import ArgumentError

Rows = Tensor
"""(rows, *shape of a node): one-sided coefficient rows."""
RowsPerSample = Tensor | Outer
"""(rows, samples, *shape of a node without a batch): what each sample asks of it, apart."""
Terms = list[tuple[Rows, Tensor | None]]
"""Constants of a backward step, as pairs whose inner products per sample are to be added; None for
a sum."""
ForwardBound = Tensor
"""(columns + 1, *shape of a node): a linear function of the sources, constant term last."""


class Relaxation(ABC):
    """Base class of all relaxations. ``backward`` and ``forward`` are its two oracle functions; the
    others are faster ways for special coefficients, which a relaxation may decline by None."""

    @abstractmethod
    def backward(self, rows: Rows) -> tuple[list[Rows], Terms]:
        """Propagate coefficients (rows, *shape of y) backward: coefficients (rows, *shape of x_k)
        of every argument, and the constant terms that they leave."""

    @abstractmethod
    def forward(
        self, lower: Sequence[ForwardBound], upper: Sequence[ForwardBound]
    ) -> tuple[ForwardBound, ForwardBound]:
        """Propagate linear bounds (columns + 1, *shape of x_k) of the arguments forward: lower and
        upper linear bounds (columns + 1, *shape of y) of y in the sources."""

    def backward_window(self, rows: Window) -> tuple[list[Window], Tensor | float] | None:
        """``backward`` for coefficients that vanish outside a window, with the constant (rows,
        samples) itself instead of terms; None: it needs dense coefficients."""
        return None

    def backward_per_sample(
        self, rows: Rows, shared: set[int]
    ) -> tuple[Sequence[RowsPerSample], Terms] | None:
        """``backward`` for samples in dimension 0, with one coefficient a sample, (rows, samples,
        *shape), for the arguments ``shared``, which have no batch; None: it has no such form."""
        return None

    @property
    def accepts_identity(self) -> bool:
        """Whether ``forward`` takes an :class:`IdentityForm` as it is; else dense bounds."""
        return False


def checked(relaxation: object, node: object) -> Relaxation:
    """The relaxation that a rule made for a node, or an error that names the node if it is none."""
    if not isinstance(relaxation, Relaxation):
        raise ArgumentError(
            f"{node}: what its rule returns from relax() must derive from "
            f"boundlab.relaxations.relaxation.Relaxation, not {type(relaxation).__name__}"
        )
    return relaxation


def add_constant(form: ForwardBound, constant: Tensor | None) -> ForwardBound:
    """Add to the constant term of a form that nothing else refers to."""
    if constant is not None:
        form[-1] += constant
    return form


def dots_of_windows(terms: list[tuple[Window, Tensor | None]]) -> Tensor | float:
    """The sum of the terms, (rows, samples); 0.0 for none."""
    total: Tensor | float = 0.0
    for rows, constant in terms:
        if constant is None:
            total = total + rows.values.flatten(2).sum(2)
        else:
            total = total + rows.dot(constant)
    return total
