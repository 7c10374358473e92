"""Networks on the nodes and edges of a graph."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.networks.case import NetworkCase


class GraphConvolution(nn.Module):
    """Takes (nodes, features) or (batch, nodes, features); the normalised adjacency is a buffer."""

    def __init__(self) -> None:
        super().__init__()
        edges = torch.tensor([[1.0, 1, 0, 1], [1, 1, 1, 0], [0, 1, 1, 1], [1, 0, 1, 1]])
        degree = edges.sum(1).rsqrt()
        self.register_buffer("adjacency", degree[:, None] * edges * degree)
        self.first, self.second = nn.Linear(3, 5), nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.adjacency @ self.first(x))
        return torch.matmul(self.adjacency, self.second(x))


class MessagePassing(nn.Module):
    """Edges as index lists, messages gathered and summed with index_add."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("source", torch.tensor([0, 1, 2, 3, 0]))
        self.register_buffer("target", torch.tensor([1, 2, 3, 0, 2]))
        self.message, self.update = nn.Linear(6, 4), nn.Linear(7, 3)

    def forward(self, x: Tensor) -> Tensor:
        messages = F.relu(self.message(torch.cat([x[:, self.source], x[:, self.target]], dim=-1)))
        gathered = torch.zeros(x.shape[0], 4, 4).index_add(1, self.target, messages)
        return self.update(torch.cat([x, gathered], dim=-1)).sum(1)


NETWORKS: dict[str, NetworkCase] = {
    "graph": NetworkCase(GraphConvolution, ((4, 3),), 0.05),
    "messages": NetworkCase(MessagePassing, ((4, 3),), 0.05),
}
