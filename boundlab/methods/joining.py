"""Several states of one question as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from boundlab.errors import ArgumentError
from boundlab.methods.splits import Split
from boundlab.methods.state import Alphas, BoundState, is_same
from boundlab.relaxations.interval import Interval


def join(states: Sequence[BoundState]) -> BoundState:
    """The states of parts of one question as one, in this order."""
    if not states:
        raise ArgumentError("give at least one state to join")
    if len(states) == 1:
        return states[0]
    parts = [_with_splits_of(state, states) for state in states]
    _check_joinable(parts)
    first = parts[0]
    common = [name for name in first.intervals if all(name in p.intervals for p in parts)]
    intervals = {name: _hull(parts, name) for name in common}
    splits = {}
    for name in first.splits:
        sign = _joined(parts, name, [part.splits[name].sign for part in parts])
        at = _joined(parts, name, [part.splits[name].at for part in parts])
        splits[name] = Split(sign, at)
    return replace(
        first,
        samples=sum(part.samples or 0 for part in parts),
        intervals=intervals,
        splits=splits,
        alphas=_stacked(parts, [part.alphas for part in parts]),
        betas=_stacked(parts, [part.betas for part in parts]),
        origin=_one_behind_the_other([part.origin for part in parts]),
        empty=torch.cat([part.known_empty() for part in parts]),
    )


def _with_splits_of(state: BoundState, states: Sequence[BoundState]) -> BoundState:
    """A state with splits, perhaps of no element, of all nodes that others split."""
    found = dict(state.splits)
    for other in states:
        for name in other.splits:
            if name not in found:
                found[name] = Split.nowhere(state.intervals[name])
    return replace(state, splits=found)


def _hull(parts: Sequence[BoundState], name: str) -> Interval:
    """The intervals of a node of all parts. Those of a node that all samples share were found under
    the constraints of each part: what holds for all of them is the hull."""
    lower = [part.intervals[name].lower for part in parts]
    upper = [part.intervals[name].upper for part in parts]
    if not parts[0].layout(name).batched:
        return Interval(torch.stack(lower).amin(0), torch.stack(upper).amax(0))
    return Interval(_joined(parts, name, lower), _joined(parts, name, upper))


def _one_behind_the_other(tensors: Sequence[Tensor | None]) -> Tensor | None:
    """None if one is missing."""
    known = [tensor for tensor in tensors if tensor is not None]
    if len(known) < len(tensors):
        return None
    return torch.cat(known)


def _check_joinable(parts: Sequence[BoundState]) -> None:
    """Refuse states of different questions, or that differ in what has no samples."""
    first = parts[0]
    if any(part.basis is not first.basis for part in parts):
        raise ArgumentError("states of different questions cannot be joined")
    if not any(layout.batched for layout in first.layouts.values()):
        raise ArgumentError("a model without a batch has one sample: ask for each state alone")
    for name, split in first.splits.items():
        others = [part.splits[name] for part in parts[1:]]
        same = all(
            is_same(split.sign, o.sign, None) and is_same(split.at, o.at, None) for o in others
        )
        if not first.layout(name).batched and not same:
            raise ArgumentError(f"node {name} has no batch: its split must be the same in all")


def _joined(
    parts: Sequence[BoundState], name: str, tensors: Sequence[Tensor], lead: int = 0
) -> Tensor:
    return parts[0].layout(name).join(tensors, [part.samples or 0 for part in parts], lead)


def _stacked(
    parts: Sequence[BoundState], stacks: Sequence[Mapping[str, Alphas]]
) -> dict[str, dict[str, Tensor]]:
    """The alphas or betas of all parts, of the nodes where all have them."""
    found: dict[str, dict[str, Tensor]] = {}
    for key, stack in stacks[0].items():
        found[key] = {}
        for name in stack:
            if not all(name in other.get(key, {}) for other in stacks):
                continue
            tensors = [other[key][name] for other in stacks]
            leads = {part.lead_of(name, t) for part, t in zip(parts, tensors, strict=True)}
            lead = leads.pop()
            if lead is not None and not leads:
                found[key][name] = _joined(parts, name, tensors, lead)
    return found
