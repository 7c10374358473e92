"""Copies of models."""

from __future__ import annotations

import copy
import warnings

from torch import nn


def copied(model: nn.Module) -> nn.Module:
    """A copy of a model.

    A program of torch.export holds objects of torch that warn when they are copied, of what torch
    itself will change: nothing that a user could do anything about.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return copy.deepcopy(model)
