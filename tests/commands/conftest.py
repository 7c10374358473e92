"""A certification that the tests of the report and of cross-sections share."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import boundlab as bl
from boundlab.commands.certificates import Certification
from boundlab.commands.certify import Job, certify


@pytest.fixture(scope="module")
def job() -> tuple[bl.Net, Certification, Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 3)).eval()
    images = torch.rand(6, 1, 4, 4)
    net = bl.capture(model, images[:2])
    labels = model(images).argmax(1)
    labels[0] = (labels[0] + 1) % 3
    return (
        net,
        certify(
            net, Job(images, labels, [0.01, 0.05, 0.3], ["ibp", "crown-ibp", "crown"], valid=(0, 1))
        ),
        images,
    )
