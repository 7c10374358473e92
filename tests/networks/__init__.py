"""Small plain-PyTorch networks as users write them: nothing in them is prepared for bounds."""

from __future__ import annotations

from tests.networks import attention, convolutional, dense, graphs, recurrent, style
from tests.networks.case import NetworkCase, stir
from tests.networks.dense import perceptron

__all__ = ["NETWORKS", "NetworkCase", "perceptron", "stir"]

NETWORKS: dict[str, NetworkCase] = {
    name: case
    for module in (dense, convolutional, recurrent, attention, graphs, style)
    for name, case in module.NETWORKS.items()
}
"""Name -> network; every one takes batched inputs of any batch size."""
