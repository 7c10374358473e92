"""What is carried from one question to the next: intermediate intervals, slopes, split constraints
and their multipliers. Branch and bound, warm starts and incremental refinement are the same
argument: a state in, a state out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from boundlab.arithmetic.arithmetic import Arithmetic
from boundlab.compat.private import version
from boundlab.errors import ArgumentError
from boundlab.graph.graph import Graph
from boundlab.graph.layout import SHARED, SampleLayout
from boundlab.methods.splits import Split
from boundlab.regions import Region
from boundlab.regions.base import with_tensors
from boundlab.relaxations.interval import Interval

Alphas = Mapping[str, Tensor]
"""node -> the free numbers of its relaxation for a stack of rows: (numbers, rows, *shape)."""
Betas = Mapping[str, Tensor]
"""node -> the multipliers of its splits for a stack of rows: (1, rows, *shape), 0 where there is no
split."""
Numbers = float | Sequence[float] | Tensor
"""One number, or one a sample."""


@dataclass(frozen=True, eq=False)
class Basis:
    """What the intervals of a state depend on: the graph, the regions and other inputs, copied, and
    the parameters. separable: whether samples can be asked for apart. arithmetic: that they are
    proved for."""

    graph: Graph
    regions: Mapping[str, Region]
    others: Mapping[str, object]
    parameters: tuple[Tensor, ...]
    versions: tuple[tuple[int, int], ...]
    sums: tuple[float, ...]
    separable: bool
    arithmetic: Arithmetic | None = None

    @staticmethod
    def of(
        graph: Graph,
        regions: Mapping[str, Region],
        others: Mapping[str, object],
        parameters: Sequence[Tensor],
        separable: bool,
        arithmetic: Arithmetic | None = None,
    ) -> Basis:
        copied = {name: with_tensors(region, _copied) for name, region in regions.items()}
        kept = {name: _kept(value) for name, value in others.items()}
        versions = tuple((tensor.data_ptr(), version(tensor)) for tensor in parameters)
        held, sums = tuple(parameters), _sums(parameters)
        return Basis(graph, copied, kept, held, versions, sums, separable, arithmetic)

    def check_parameters(self, now: Basis) -> None:
        """Refuse parameters that are others now, or have changed: autograd counts most changes, a
        sum finds those behind its back."""
        same = list(map(id, self.parameters)) == list(map(id, now.parameters))
        if not same or self.versions != now.versions or self.sums != now.sums:
            raise ArgumentError("parameters have changed since the state was found: begin anew")

    def check(self, now: Basis, origin: Tensor | None) -> None:
        """Refuse a state whose intervals need not hold for what is asked now: of another net, from
        before parameters changed, of smaller regions or other inputs. origin: which samples of this
        basis are asked for."""
        if self.graph is not now.graph:
            raise ArgumentError("the state belongs to another net, or another batch size of it")
        self.check_parameters(now)
        if self.arithmetic != now.arithmetic:
            raise ArgumentError("the state was found for bounds with another arithmetic=...")
        if set(self.regions) != set(now.regions):
            raise ArgumentError("the state was found for other perturbed inputs or parameters")
        for name, region in self.regions.items():
            if not _contains(region, now.regions[name], self._chosen(name, origin)):
                raise ArgumentError(
                    f"the region of '{name}' is not inside the one that the state was found for: "
                    "its intervals need not hold"
                )
        for name, value in self.others.items():
            if not is_same(value, now.others[name], self._chosen(name, origin)):
                raise ArgumentError(f"the input '{name}' is not the one of the state")

    def _chosen(self, name: str, origin: Tensor | None) -> Tensor | None:
        """Which samples of a node are asked for; None for all, as of a node that they share."""
        if not self.graph.nodes[name].layout.batched:
            return None
        return origin


def _copied(tensor: Tensor) -> Tensor:
    return tensor.detach().clone()


def _kept(value: object) -> object:
    if isinstance(value, Tensor):
        return _copied(value)
    return value


@torch.no_grad()
def _sums(parameters: Sequence[Tensor]) -> tuple[float, ...]:
    return tuple(float(t.sum(dtype=torch.float64)) for t in parameters if not t.is_complex())


def is_same(old: object, new: object, origin: Tensor | None) -> bool:
    if not isinstance(old, Tensor) or not isinstance(new, Tensor):
        return type(old) is type(new) and bool(old == new)
    if origin is not None:
        old = old[origin.to(old.device)]
    return old.shape == new.shape and bool((old == new).all())


def _contains(old: Region, new: Region, origin: Tensor | None) -> bool:
    """Whether a region lies inside another one, of which ``origin`` says which samples. A box
    contains what has its hull inside; any other set only itself."""
    whole: Region | None = old
    if origin is not None and origin.tolist() != list(range(len(old.centre))):
        whole = old.samples(origin.to(old.centre.device))
    if whole is None:
        return False
    outer, inside = whole.hull(), new.hull()
    if outer.shape != inside.shape:
        return False
    if whole.is_box:
        return bool(((outer.lower <= inside.lower) & (inside.upper <= outer.upper)).all())
    first, second = vars(whole), vars(new)
    return (
        type(whole) is type(new)
        and set(first) == set(second)
        and all(is_same(first[key], second[key], None) for key in first)
    )


@dataclass(frozen=True, eq=False)
class BoundState:
    """intervals: of nodes, by graph name. alphas, betas: what was optimised for each output and
    side. splits: constraints by node; bounds hold where they do. samples: how many samples, or
    subdomains, there are; layouts: where they lie in the nodes' values. origin: (samples,), the
    sample of the problem that each one is a part of. empty: (samples,), where no member of the
    region satisfies the constraints.

    ``BoundState()`` knows nothing yet.
    """

    intervals: Mapping[str, Interval] = field(default_factory=dict, repr=False)
    alphas: Mapping[str, Alphas] = field(default_factory=dict, repr=False)
    splits: Mapping[str, Split] = field(default_factory=dict, repr=False)
    betas: Mapping[str, Betas] = field(default_factory=dict, repr=False)
    samples: int | None = None
    layouts: Mapping[str, SampleLayout] = field(default_factory=dict, repr=False)
    names: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Module path -> the graph name of the last node that the module computes."""
    origin: Tensor | None = field(default=None, repr=False)
    empty: Tensor | None = field(default=None, repr=False)
    basis: Basis | None = field(default=None, repr=False)

    def with_known(self, known: Mapping[str, Interval]) -> BoundState:
        """The state with more that is known of nodes."""
        if not known:
            return self
        both = dict(self.intervals)
        for name, x in known.items():
            if name in both:
                x = x.intersect(both[name])
            both[name] = x
        return replace(self, intervals=both)

    def only(self, nodes: Collection[str]) -> BoundState:
        """The state with the intervals of some nodes; alphas and betas of others are lost when
        samples are taken."""
        kept = {name: x for name, x in self.intervals.items() if name in nodes}
        return replace(self, intervals=kept)

    @property
    def nbytes(self) -> int:
        """How much memory its tensors take."""
        held = [end for x in self.intervals.values() for end in (x.lower, x.upper)]
        held += [part for split in self.splits.values() for part in (split.sign, split.at)]
        for stack in (*self.alphas.values(), *self.betas.values()):
            held += stack.values()
        return sum(tensor.nbytes for tensor in held)

    def __getitem__(self, node: str) -> Interval:
        """The interval of a node, by graph name or module path."""
        return self.intervals[self._name(node)]

    def _name(self, node: str) -> str:
        name = self.names.get(node, node)
        if name not in self.intervals:
            known = ", ".join(sorted({*self.intervals, *self.names}))
            raise ArgumentError(f"no node or module '{node}' with an interval; there are: {known}")
        return name

    def take(self, chosen: Tensor | Sequence[int]) -> BoundState:
        """The state of some samples, in that order; a sample may be taken several times."""
        if self.samples is None:
            raise ArgumentError("this state knows nothing of samples yet: take it from a result")
        index = self._index(chosen)
        whole = len(index) == self.samples and bool((index == torch.arange(len(index))).all())
        if self.basis is not None and not self.basis.separable and not whole:
            raise ArgumentError(
                "the samples of this model cannot be asked for apart: its batch size is fixed, or "
                "statistics of the batch count"
            )
        pick = lambda name, value: self._pick(name, value, index, 0)
        intervals, splits = {}, {}
        for name, x in self.intervals.items():
            intervals[name] = Interval(pick(name, x.lower), pick(name, x.upper))
        for name, split in self.splits.items():
            splits[name] = Split(pick(name, split.sign), pick(name, split.at))
        return replace(
            self,
            samples=len(index),
            intervals=intervals,
            splits=splits,
            alphas=self._taken(self.alphas, index),
            betas=self._taken(self.betas, index),
            origin=_at(self.origin, index),
            empty=_at(self.empty, index),
        )

    def known_empty(self) -> Tensor:
        """(samples,): where it is known that nothing meets the constraints."""
        if self.empty is None:
            return torch.zeros(self.samples or 0, dtype=torch.bool)
        return self.empty.cpu()

    def _index(self, chosen: Numbers) -> Tensor:
        """Samples by number, (count,), from numbers or a mask."""
        index = torch.as_tensor(chosen).cpu()
        if index.dtype == torch.bool and index.shape == (self.samples,):
            return index.nonzero()[:, 0]
        if index.numel() == 0 and index.dim() == 1:
            return index.long()
        samples = self.samples or 0
        if index.dim() != 1 or not _are_below(samples, index):
            raise ArgumentError(
                f"samples are chosen by numbers from 0 to {samples - 1}, or by a mask of "
                f"{self.samples} truth values"
            )
        return index.long()

    def layout(self, name: str) -> SampleLayout:
        """Where the samples lie in the value of a node."""
        return self.layouts.get(name, SHARED)

    def _pick(self, name: str, value: Tensor, index: Tensor, lead: int) -> Tensor:
        assert self.samples is not None
        return self.layout(name).take(value, self.samples, index.to(value.device), lead)

    def _taken(self, stacks: Mapping[str, Alphas], index: Tensor) -> dict[str, dict[str, Tensor]]:
        """Alphas or betas of some samples: their shape is that of the node behind one dimension for
        the numbers, and perhaps one for the rows."""
        found: dict[str, dict[str, Tensor]] = {}
        for key, stack in stacks.items():
            found[key] = {}
            for name, tensor in stack.items():
                lead = self.lead_of(name, tensor)
                if lead is not None:  # else begin anew
                    found[key][name] = self._pick(name, tensor, index, lead)
        return found

    def lead_of(self, name: str, tensor: Tensor) -> int | None:
        """How many dimensions a stack of numbers has before those of the node; None if it has
        others, as those of products, or one row for each sample of a weight, or if nothing is known
        of the node."""
        if name not in self.intervals:
            return None
        shape = self.intervals[name].shape
        lead = tensor.dim() - len(shape)
        if lead < 0 or tensor.shape[lead:] != shape or not self.layout(name).batched:
            return None
        # the slopes of a product may look like those of rows: (numbers, *samples and letters)
        if lead == 2 and tensor.shape[1 : 1 + len(shape)] == shape:
            return None
        return lead

    def split(
        self,
        node: str,
        element: Numbers,
        sign: Numbers,
        at: Numbers = 0.0,
        samples: Numbers | None = None,
    ) -> BoundState:
        """The state with the constraint ``sign * (x - at) >= 0`` for an element of a node.

        node: graph name or module path. element: the flat index of the element in one sample's
        value, a number or one a sample. sign: 1 or -1, at: a number; likewise. samples: which ones
        get the constraint, by default all. Constraints add up: intervals found under an earlier
        one of the same element stay.
        """
        name = self._name(node)
        interval, layout = self.intervals[name], self.layout(name)
        count = layout.count(self.samples or 0)
        size = interval.shape.numel() // max(count, 1)
        which = torch.arange(count)
        if samples is not None:
            which = replace(self, samples=count)._index(samples)
        index = torch.as_tensor(element).cpu().expand(which.shape)
        signs = torch.as_tensor(sign).cpu().expand(which.shape)
        points = torch.as_tensor(at, dtype=interval.dtype).cpu().expand(which.shape)
        if index.is_floating_point() or index.dtype == torch.bool:
            raise ArgumentError(f"an element is chosen by its number, not by {element!r}")
        if not bool(torch.isfinite(points).all()):
            raise ArgumentError(f"a split needs a number to split at, not {at!r}")
        if ((signs != 1) & (signs != -1)).any():
            raise ArgumentError(f"the sign of a split must be 1 or -1, not {sign!r}")
        if (index < 0).any() or (index >= size).any():
            raise ArgumentError(f"node {name} has {size} elements a sample: {element!r} is none")

        def with_new(old: Tensor, given: Tensor) -> Tensor:
            flat = layout.samples_first(old[None], count).clone()  # (1, samples, size)
            flat[0, which.to(flat.device), index.to(flat.device)] = given.to(flat)
            return layout.place(flat, interval.shape)[0]

        old = self.splits.get(name)
        if old is None:
            old = Split.nowhere(interval)
        new = Split(with_new(old.sign, signs), with_new(old.at, points))
        return replace(self, splits={**self.splits, name: new})

    def to(self, dtype: torch.dtype) -> BoundState:
        """The state in another precision; its intervals are rounded, and need not hold then."""
        cast = lambda stacks: {
            key: {name: tensor.to(dtype) for name, tensor in stack.items()}
            for key, stack in stacks.items()
        }
        intervals = {
            name: Interval(x.lower.to(dtype), x.upper.to(dtype))
            for name, x in self.intervals.items()
        }
        splits = {
            name: Split(split.sign.to(dtype), split.at.to(dtype))
            for name, split in self.splits.items()
        }
        return replace(
            self,
            intervals=intervals,
            splits=splits,
            alphas=cast(self.alphas),
            betas=cast(self.betas),
        )

    @staticmethod
    def join(states: Sequence[BoundState]) -> BoundState:
        """The states of parts of one question as one, in this order."""
        from boundlab.methods.joining import join  # which needs states itself

        return join(states)


def _are_below(end: int, numbers: Tensor) -> bool:
    """Whether these are whole numbers from 0 to one before the end."""
    if numbers.is_floating_point() or numbers.dtype == torch.bool:
        return False
    return not bool(((numbers < 0) | (numbers >= end)).any())


def _at(tensor: Tensor | None, index: Tensor) -> Tensor | None:
    if tensor is None:
        return None
    return tensor[index.to(tensor.device)]
