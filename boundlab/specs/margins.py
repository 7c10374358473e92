"""Margins: the label's output minus every other one."""

from __future__ import annotations

import torch
from torch import Tensor


def margin_spec(labels: Tensor, classes: int) -> Tensor:
    """C of shape (batch, classes - 1, classes) with rows e_y - e_k for k != y."""
    eye = torch.eye(classes, device=labels.device)
    rows = eye[labels][:, None] - eye  # (batch, classes, classes)
    others = torch.arange(classes, device=labels.device) != labels[:, None]
    return rows[others].reshape(len(labels), max(classes - 1, 0), classes)
