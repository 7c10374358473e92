"""What is carried from one question to the next: intermediate intervals, slopes, split constraints
and their multipliers. Branch and bound, warm starts and incremental refinement are the same
argument: a state in, a state out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from boundlab.errors import ArgumentError
from boundlab.graph.graph import Graph
from boundlab.graph.layout import Layout
from boundlab.regions import Region
from boundlab.relaxations.interval import Interval

Alphas = Mapping[str, Tensor]
"""node -> the free numbers of its relaxation for a stack of rows: (numbers, rows, *shape)."""
Betas = Mapping[str, Tensor]
"""node -> the multipliers of its splits for a stack of rows: (1, rows, *shape), 0 where there is no
split."""


@dataclass(frozen=True, eq=False)
class Split:
    """``sign * (x - at) >= 0`` for the elements of a node with sign 1 or -1; 0: no constraint.
    Both have the shape of the node's value."""

    sign: Tensor
    at: Tensor

    def cut(self, x: Interval) -> Interval:
        """The part of an interval in which the constraints hold; its ends may cross."""
        lower = torch.where(self.sign > 0, torch.maximum(x.lower, self.at), x.lower)
        upper = torch.where(self.sign < 0, torch.minimum(x.upper, self.at), x.upper)
        return Interval(lower, upper)


@dataclass(frozen=True, eq=False)
class Basis:
    """What the intervals of a state depend on: the graph, the regions and other inputs of the
    problem, and the versions of all parameters."""

    graph: Graph
    regions: Mapping[str, Region]
    others: Mapping[str, Any]
    versions: tuple[tuple[int, int], ...]

    def check(self, now: Basis, state: BoundState) -> None:
        """Refuse a state whose intervals need not hold for what is asked now: of another net, from
        before parameters changed, of smaller regions or other inputs."""
        if self.graph is not now.graph:
            raise ArgumentError("the state belongs to another net, or another batch size of it")
        if self.versions != now.versions:
            raise ArgumentError("parameters have changed since the state was found: begin anew")
        if set(self.regions) != set(now.regions):
            raise ArgumentError("the state was found for other perturbed inputs or parameters")
        for name, region in self.regions.items():
            batched = self.graph.nodes[name].layout is not None
            origin = state.origin if batched else None
            if not _contains(region, now.regions[name], origin):
                raise ArgumentError(
                    f"the region of '{name}' is not inside the one that the state was found for: "
                    "its intervals need not hold"
                )
        for name, value in self.others.items():
            batched = self.graph.nodes[name].layout is not None
            if not _same(value, now.others[name], state.origin if batched else None):
                raise ArgumentError(f"the input '{name}' is not the one of the state")


def _same(old: Any, new: Any, origin: Tensor | None) -> bool:
    if not isinstance(old, Tensor):
        return bool(old == new)
    old = old if origin is None else old[origin.to(old.device)]
    return old.shape == new.shape and bool((old == new).all())


def _contains(old: Region, new: Region, origin: Tensor | None) -> bool:
    """Whether a region lies inside another one, of which ``origin`` says which samples. A set that
    is not a box contains only sets of its own kind whose hulls do so; sizes aside they must be
    equal."""
    if old is new and origin is None:
        return True
    outer, inside = old.hull(), new.hull()
    lower, upper = outer.lower, outer.upper
    if origin is not None:
        lower, upper = lower[origin.to(lower.device)], upper[origin.to(upper.device)]
    if lower.shape != inside.shape:
        return False
    if old.is_box:
        return bool(((lower <= inside.lower) & (inside.upper <= upper)).all())
    alike = type(old) is type(new) and _plain(old) == _plain(new)
    return alike and bool(((lower == inside.lower) & (inside.upper == upper)).all())


def _plain(region: Region) -> dict[str, Any]:
    """What a region is made of beside tensors."""
    return {key: value for key, value in vars(region).items() if not isinstance(value, Tensor)}


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
    layouts: Mapping[str, Layout | None] = field(default_factory=dict, repr=False)
    names: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Module path -> the graph name of the last node that the module computes."""
    origin: Tensor | None = field(default=None, repr=False)
    empty: Tensor | None = field(default=None, repr=False)
    basis: Basis | None = field(default=None, repr=False)

    def with_known(self, known: Mapping[str, Interval]) -> BoundState:
        """The state with more that is known of nodes."""
        if not known:
            return self
        both = {
            name: x.intersect(self.intervals[name]) if name in self.intervals else x
            for name, x in known.items()
        }
        return replace(self, intervals={**self.intervals, **both})

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
        index = torch.as_tensor(chosen)
        if index.dtype == torch.bool:
            index = index.nonzero()[:, 0]
        pick = lambda name, value, behind=0: self._pick(name, value, index, behind)
        return replace(
            self,
            samples=len(index),
            intervals={
                name: Interval(pick(name, x.lower), pick(name, x.upper))
                for name, x in self.intervals.items()
            },
            splits={
                name: Split(pick(name, split.sign), pick(name, split.at))
                for name, split in self.splits.items()
            },
            alphas=self._taken(self.alphas, index),
            betas=self._taken(self.betas, index),
            origin=None if self.origin is None else self.origin[index.to(self.origin.device)],
            empty=None if self.empty is None else self.empty[index.to(self.empty.device)],
        )

    def _pick(self, name: str, value: Tensor, index: Tensor, behind: int) -> Tensor:
        layout = self.layouts.get(name)
        if layout is None:
            return value
        assert self.samples is not None
        return layout.take(value, self.samples, index.to(value.device), behind)

    def _taken(self, stacks: Mapping[str, Alphas], index: Tensor) -> dict[str, dict[str, Tensor]]:
        """Alphas or betas of some samples: their shape is that of the node behind one dimension for
        the numbers, and perhaps one for the rows."""
        found: dict[str, dict[str, Tensor]] = {}
        for key, stack in stacks.items():
            found[key] = {}
            for name, tensor in stack.items():
                if self.layouts.get(name) is None and self.samples != 1:
                    continue  # each sample has rows of its own there: begin anew
                behind = tensor.dim() - len(self.intervals[name].shape)
                found[key][name] = self._pick(name, tensor, index, behind)
        return found

    def split(
        self, node: str, element: Any, sign: Any, at: Any = 0.0, samples: Any = None
    ) -> BoundState:
        """The state with the constraint ``sign * (x - at) >= 0`` for an element of a node.

        node: graph name or module path. element: the flat index of the element in one sample's
        value, a number or one a sample. sign: 1 or -1, at: a number; likewise. samples: which ones
        get the constraint, by default all.
        """
        name = self._name(node)
        interval, layout = self.intervals[name], self.layouts.get(name)
        count = 1 if layout is None else (self.samples or 0)
        which = torch.arange(count) if samples is None else torch.as_tensor(samples)
        if which.dtype == torch.bool:
            which = which.nonzero()[:, 0]
        size = interval.shape.numel() // max(count, 1)
        index = torch.as_tensor(element).expand(which.shape)
        signs = torch.as_tensor(sign).expand(which.shape)
        if ((signs != 1) & (signs != -1)).any():
            raise ArgumentError(f"the sign of a split must be 1 or -1, not {sign!r}")
        if (index < 0).any() or (index >= size).any():
            raise ArgumentError(f"node {name} has {size} elements a sample: {element!r} is none")
        old = self.splits.get(name) or Split(
            torch.zeros_like(interval.lower), torch.zeros_like(interval.lower)
        )
        parts = []
        for tensor, given in ((old.sign, signs), (old.at, torch.as_tensor(at).expand(which.shape))):
            flat = self._flat(tensor, layout, count).clone()
            flat[which.to(flat.device), index.to(flat.device)] = given.to(flat)
            parts.append(self._unflat(flat, layout, interval.shape))
        return replace(self, splits={**self.splits, name: Split(parts[0], parts[1])})

    @staticmethod
    def _flat(value: Tensor, layout: Layout | None, samples: int) -> Tensor:
        """A node's value as (samples, elements of one)."""
        if layout is None:
            return value.reshape(1, -1)
        return layout.samples_first(value[None], samples)[0]

    @staticmethod
    def _unflat(flat: Tensor, layout: Layout | None, shape: torch.Size) -> Tensor:
        return flat.reshape(shape) if layout is None else layout.place(flat[None], shape)[0]

    @staticmethod
    def join(states: Sequence[BoundState]) -> BoundState:
        """The states of consecutive parts of a batch as one."""
        first = states[0]
        if len(states) == 1:
            return first
        sizes = [state.samples or 0 for state in states]

        def joined(name: str, tensors: Sequence[Tensor], behind: int = 0) -> Tensor:
            layout = first.layouts.get(name)
            return tensors[0] if layout is None else layout.join(tensors, sizes, behind)

        def stacked(stacks: Sequence[Mapping[str, Alphas]]) -> dict[str, dict[str, Tensor]]:
            found: dict[str, dict[str, Tensor]] = {}
            for key in stacks[0]:
                common = [name for name in stacks[0][key] if all(name in s[key] for s in stacks)]
                found[key] = {
                    name: joined(
                        name,
                        [s[key][name] for s in stacks],
                        stacks[0][key][name].dim() - len(first.intervals[name].shape),
                    )
                    for name in common
                    if first.layouts.get(name) is not None
                }
            return found

        vectors = lambda parts: None if any(p is None for p in parts) else torch.cat(parts)
        return replace(
            first,
            samples=sum(sizes),
            intervals={
                name: Interval(
                    joined(name, [state.intervals[name].lower for state in states]),
                    joined(name, [state.intervals[name].upper for state in states]),
                )
                for name in first.intervals
            },
            splits={
                name: Split(
                    joined(name, [state.splits[name].sign for state in states]),
                    joined(name, [state.splits[name].at for state in states]),
                )
                for name in first.splits
            },
            alphas=stacked([state.alphas for state in states]),
            betas=stacked([state.betas for state in states]),
            origin=vectors([state.origin for state in states]),
            empty=vectors([state.empty for state in states]),
        )
