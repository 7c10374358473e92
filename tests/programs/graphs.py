"""Networks on graphs: adjacency as a matrix, dense or sparse, or as a list of edges."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.programs.program import Program

EDGES = torch.tensor([[0, 1, 2, 3, 0, 2], [1, 2, 3, 0, 2, 0]])
NODES = 4


def adjacency() -> Tensor:
    matrix = torch.eye(NODES)
    matrix[EDGES[0], EDGES[1]] = 1.0
    return matrix / matrix.sum(1, keepdim=True)


class Convolution(nn.Module):
    """Two layers of neighbours' means; nodes: (batch, nodes, features)."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)
        self.register_buffer("A", adjacency())

    def spread(self, x: Tensor) -> Tensor:
        if self.form == "einsum":
            return torch.einsum("nm,bmf->bnf", self.A, x)
        return self.A @ x

    def forward(self, x: Tensor) -> Tensor:
        return self.spread(self.second(torch.relu(self.spread(self.first(x)))))


class OneGraph(nn.Module):
    """The same for one graph without a batch, whose adjacency may be sparse."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)
        self.register_buffer("A", adjacency())
        self.register_buffer("S", adjacency().to_sparse())

    def forward(self, x: Tensor) -> Tensor:
        if self.form == "sparse":
            return torch.sparse.mm(self.S, torch.relu(torch.sparse.mm(self.S, self.first(x))))
        return self.A @ self.second(torch.relu(self.A @ self.first(x)))


class Messages(nn.Module):
    """Messages along edges, added up at their ends."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form
        self.message, self.update = nn.Linear(6, 4), nn.Linear(7, 2)
        self.register_buffer("edges", EDGES)

    def forward(self, x: Tensor) -> Tensor:
        source, target = self.edges
        sent = torch.relu(self.message(torch.cat([x[:, source], x[:, target]], -1)))
        zeros = sent.new_zeros(x.shape[0], NODES, 4)
        if self.form == "index-add":
            got = zeros.index_add(1, target, sent)
        elif self.form == "scatter-add":
            got = zeros.scatter_add(1, target[None, :, None].expand_as(sent), sent)
        elif self.form == "scatter-max":
            place = target[None, :, None].expand_as(sent)
            got = zeros.scatter_reduce(1, place, sent, "amax", include_self=False)
        else:
            got = F.one_hot(target, NODES).to(x.dtype).T @ sent
        return self.update(torch.cat([x, got], -1))


class GraphAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project, self.source = nn.Linear(3, 4, bias=False), nn.Linear(4, 1)
        self.target = nn.Linear(4, 1)
        self.register_buffer("missing", adjacency() == 0)

    def forward(self, x: Tensor) -> Tensor:
        h = self.project(x)
        scores = F.leaky_relu(self.source(h) + self.target(h).transpose(1, 2), 0.2)
        share = torch.softmax(scores.masked_fill(self.missing, -1e9), -1)
        return F.elu(share @ h)


class EdgeSoftmax(nn.Module):
    """Attention over a list of edges: a softmax within each target by index_add."""

    def __init__(self) -> None:
        super().__init__()
        self.score, self.value = nn.Linear(6, 1), nn.Linear(3, 2)
        self.register_buffer("edges", EDGES)

    def forward(self, x: Tensor) -> Tensor:
        source, target = self.edges
        scores = self.score(torch.cat([x[:, source], x[:, target]], -1)).exp()
        total = x.new_zeros(x.shape[0], NODES, 1).index_add(1, target, scores)
        sent = scores / total[:, target] * self.value(x)[:, source]
        return x.new_zeros(x.shape[0], NODES, 2).index_add(1, target, sent)


PROGRAMS = {
    "graph-dense": Program(lambda: Convolution("matmul"), ((NODES, 3),)),
    "graph-einsum": Program(lambda: Convolution("einsum"), ((NODES, 3),)),
    "graph-single": Program(lambda: OneGraph("dense"), ((NODES, 3),), batched=False),
    "graph-sparse": Program(lambda: OneGraph("sparse"), ((NODES, 3),), batched=False),
    "graph-index-add": Program(lambda: Messages("index-add"), ((NODES, 3),)),
    "graph-scatter-add": Program(lambda: Messages("scatter-add"), ((NODES, 3),)),
    "graph-scatter-max": Program(
        lambda: Messages("scatter-max"), ((NODES, 3),), refused="aten.scatter_reduce"
    ),
    "graph-one-hot": Program(lambda: Messages("one-hot"), ((NODES, 3),)),
    "graph-attention": Program(GraphAttention, ((NODES, 3),)),
    "graph-edge-softmax": Program(EdgeSoftmax, ((NODES, 3),)),
}
