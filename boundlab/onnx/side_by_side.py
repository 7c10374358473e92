"""Several networks as one module with one flat input and one flat output."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from boundlab.errors import ArgumentError
from boundlab.onnx.batching import sample_shape
from boundlab.onnx.model import OnnxModel
from boundlab.onnx.network import Value


class SideBySide(nn.Module):
    """Networks, each on its part of one flat input (samples, elements); the output (samples,
    elements) is made of all outputs of all networks, one behind the other.

    places: for each element of all inputs of all networks, one behind the other, where it stands in
    the flat input; networks that get the same values share places.
    """

    def __init__(self, networks: Sequence[OnnxModel], places: Sequence[int]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)
        types = {one.dtype for network in networks for one in network.inputs}
        if len(types) != 1 or not next(iter(types)).is_floating_point:
            shown = ", ".join(sorted(map(str, types)))
            raise ArgumentError(f"inputs must all be of one floating type, not {shown}")
        sizes = [[math.prod(sample_shape(x)) for x in network.inputs] for network in networks]
        if sum(map(sum, sizes)) != len(places):
            raise ArgumentError(
                f"the networks take {sum(map(sum, sizes))} elements, not {len(places)}"
            )
        self.places: list[list[str]] = []
        first = 0
        for own in sizes:
            names = []
            for size in own:
                names.append(f"places_{first}")
                self.register_buffer(names[-1], torch.tensor(places[first : first + size]))
                first += size
            self.places.append(names)
        self.inputs = (Value("inputs", next(iter(types)), (None, max(places) + 1)),)
        self.outputs = ("outputs",)

    def example(self, samples: int = 2) -> tuple[Tensor, ...]:
        """A random input of this many samples."""
        (own,) = self.inputs
        generator = torch.Generator().manual_seed(0)
        return (torch.rand(samples, *sample_shape(own), generator=generator, dtype=own.dtype),)

    def parts(self, x: Tensor) -> list[list[Tensor]]:
        """The flat inputs of each network. They are copies: a slice of x would be laid out in
        memory like others for one sample only, and the graph of the module would depend on that."""
        return [
            [x.index_select(1, self.get_buffer(name)) for name in names] for names in self.places
        ]

    def forward(self, x: Tensor) -> Tensor:
        columns = []
        for network, inputs in zip(self.networks, self.parts(x), strict=True):
            found = network(*inputs)
            outputs = [found]
            if isinstance(found, dict):
                outputs = list(found.values())
            columns += [one.reshape(x.shape[0], -1) for one in outputs]
        return torch.cat(columns, 1)
