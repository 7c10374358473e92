"""Read what a question gives: an entry for each input, regions on parameters, known intervals; and
parameters as they are now. All of it is checked here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram

from boundlab.capture.torch_export import Function
from boundlab.compat.ambient import usable
from boundlab.compat.private import pytree
from boundlab.errors import ArgumentError, did_you_mean
from boundlab.net.captured import Captured, Examples, has_dimensions
from boundlab.regions import Region
from boundlab.regions.base import with_tensors
from boundlab.regions.checks import check_has_values
from boundlab.relaxations.interval import Interval

RESERVED = {
    "method", "perturb", "spec", "sides", "slopes", "alpha", "memory", "intermediates", "state",
    "known", "grad", "arithmetic",
}  # fmt: skip
"""Keywords of questions, which a model may not have."""
Known = Mapping[str, tuple[Tensor, Tensor]]
"""Node or module -> a lower and an upper bound of its value."""
Values = dict[str, Any]
"""Independent nodes that are not perturbed -> their values."""
Regions = dict[str, Region]
"""Perturbed nodes -> their regions."""


@dataclass(frozen=True, eq=False)
class Reader:
    """Reads what is given to a captured model."""

    captured: Captured

    def read(
        self,
        inputs: tuple[Any, ...],
        kwargs: dict[str, Any],
        perturb: Mapping[str, Region] | None = None,
        longer: bool = False,
    ) -> tuple[Values, Regions]:
        """The values of all independent nodes that are not perturbed, and the regions of the
        others: at least one. longer: whether regions may be given in double precision."""
        values, regions = self.entries(inputs, kwargs, longer)
        regions |= self._on_parameters(perturb or {}, values)
        if not regions:
            raise ArgumentError(
                "nothing is perturbed: give a region (for example bl.Linf(x, 0.1)) for an input, "
                "or perturb={'name': region}"
            )
        for name in regions:
            values.pop(name, None)
        return values, regions

    def entries(
        self, inputs: tuple[Any, ...], kwargs: dict[str, Any], longer: bool = False
    ) -> tuple[Values, Regions]:
        """The values of all independent nodes that are not perturbed, and the regions of the inputs
        that are: all on one device."""
        values, regions = self._inputs(inputs, kwargs, longer)
        parameters = self.parameters()
        centres = {name: region.centre for name, region in regions.items()}
        self._check_devices({**values, **centres}, parameters)
        return values | parameters, regions

    def centres(self, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Examples | None:
        """The inputs with the centres of regions; None if their structure is not the captured
        one."""
        leaves, tree = pytree.tree_flatten((inputs, kwargs))
        if tree != self.captured.inputs:
            return None
        plain = [leaf.centre if isinstance(leaf, Region) else leaf for leaf in leaves]
        found: Examples = pytree.tree_unflatten(plain, tree)
        return found

    def parameters(self) -> Values:
        """Parameters, buffers and constants as they are now."""
        graph, source = self.captured.graph, self.captured.source
        values: Values = dict(graph.constants)
        if isinstance(source, ExportedProgram):
            state = {**source.state_dict, **source.constants}
            return values | {name: usable(state[path]) for name, path in graph.parameters.items()}
        for name, path in graph.parameters.items():
            owner, _, leaf = path.rpartition(".")
            values[name] = usable(getattr(source.get_submodule(owner), leaf))
        return values

    def samples(self, values: Mapping[str, Any], regions: Mapping[str, Region]) -> int:
        """The batch size, on which all inputs must agree; 1 if there is no batch."""
        sizes = {}
        for name in self.captured.graph.inputs:
            if self.captured.graph.nodes[name].layout.batched:
                value = regions[name].centre if name in regions else values[name]
                sizes[name] = int(value.shape[0])
        if len(set(sizes.values())) > 1:
            raise ArgumentError(f"the inputs disagree on the batch size: {sizes}")
        return next(iter(sizes.values()), 1)

    def known(self, known: Known) -> dict[str, Interval]:
        """Intervals that a user knows of nodes, by graph name."""
        graph, names = self.captured.graph, self.captured.module_names()
        found = {}
        for key, (lower, upper) in known.items():
            name = names.get(key, key)
            if name not in graph.nodes:
                raise ArgumentError(
                    f"known: there is no node or module '{key}'; there are: "
                    f"{', '.join(sorted({*names, *graph.nodes}))}"
                )
            if torch.isnan(lower).any() or torch.isnan(upper).any() or (lower > upper).any():
                raise ArgumentError(f"known['{key}'] must be (lower, upper) with lower <= upper")
            found[name] = Interval(lower, upper)
        return found

    # -- inputs ------------------------------------------------------------------------------------

    def _inputs(
        self, inputs: tuple[Any, ...], kwargs: dict[str, Any], longer: bool
    ) -> tuple[Values, Regions]:
        leaves, tree = pytree.tree_flatten((inputs, kwargs))
        graph = self.captured.graph
        if tree != self.captured.inputs:
            raise ArgumentError(
                f"the model was captured with the inputs ({', '.join(graph.inputs)}), in that "
                f"structure; {self._misfit(inputs, kwargs)}"
            )
        values: Values = {}
        regions: Regions = {}
        for name, leaf in zip(graph.inputs, leaves, strict=True):
            if isinstance(leaf, Region):
                self._check_shape(name, leaf.centre, longer)
                regions[name] = with_tensors(leaf, usable)
            elif name in graph.literals:
                self._check_literal(name, leaf)
                values[name] = leaf
            else:
                self._check_value(name, leaf)
                values[name] = usable(leaf)
        return values, regions

    def _misfit(self, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """What is wrong with inputs whose structure is not the captured one."""
        names = list(self.captured.graph.inputs)
        by_place, by_name = pytree.tree_unflatten(names, self.captured.inputs)
        absent = {key: name for key, name in by_name.items() if key not in kwargs}
        missing = pytree.tree_leaves((by_place[len(inputs) :], absent))
        if missing:
            return f"missing: {', '.join(missing)}"
        if len(inputs) > len(by_place):
            return f"got {len(inputs)} by place instead of {len(by_place)}"
        unknown = [key for key in kwargs if key not in by_name]
        if unknown:
            hint = did_you_mean(unknown[0], sorted(RESERVED))
            if unknown[0] in ("eps", "norm"):
                hint = " A radius belongs to a region, as in net.bounds(bl.Linf(x, eps))"
            return f"unknown: {', '.join(unknown)}.{hint}"
        return f"got {len(pytree.tree_leaves((inputs, kwargs)))} of another structure"

    def _check_literal(self, name: str, leaf: object) -> None:
        literal = self.captured.graph.literals[name]
        if isinstance(leaf, Tensor) or leaf != literal:
            raise ArgumentError(
                f"the model was captured with {name}={literal!r}, not {leaf!r}: capture it again"
            )

    def _check_value(self, name: str, leaf: object) -> None:
        if not isinstance(leaf, Tensor):
            return
        self._check_shape(name, leaf)
        check_has_values(leaf, f"the input '{name}'")
        if leaf.is_floating_point() and torch.isnan(leaf).any():
            raise ArgumentError(f"the input '{name}' contains NaN")

    def _check_shape(self, name: str, tensor: Tensor, longer: bool = False) -> None:
        example = self.captured.graph.examples.get(name)
        if example is None:
            raise ArgumentError(f"the input '{name}' is not a tensor in the captured model")
        shape, dtype, free = example
        if tensor.dtype != dtype and not (longer and tensor.dtype == torch.float64):
            raise ArgumentError(
                f"the input '{name}' must have dtype {dtype} as in the captured model, not "
                f"{tensor.dtype}"
            )
        first = 1 if free else 0
        if len(shape) == tensor.dim() and tuple(shape[first:]) == tuple(tensor.shape[first:]):
            return
        text = str(tuple(shape))
        if free:
            text = f"(batch, {', '.join(map(str, shape[1:]))})"
        raise ArgumentError(
            f"the input '{name}' must have the shape {text}, not {tuple(tensor.shape)}"
        )

    def _check_devices(self, tensors: Mapping[str, Any], parameters: Values) -> None:
        """Refuse an input that does not lie where the model does."""
        held = [parameters[name] for name in self.captured.graph.parameters]
        homes = {tensor.device for tensor in held if has_dimensions(tensor)}
        if self.captured.device is not None:
            homes.add(self.captured.device)
        for name, tensor in tensors.items():
            if not has_dimensions(tensor):
                continue
            for away in homes - {tensor.device}:
                raise ArgumentError(
                    f"the input '{name}' lies on {tensor.device}, the model on {away}: move "
                    "one of them, and capture the model where its inputs "
                    "lie. A program saved with torch.export is moved by "
                    "torch.export.passes.move_to_device_pass(program, device)"
                )

    # -- parameters --------------------------------------------------------------------------------

    def _on_parameters(self, perturb: Mapping[str, Region], values: Values) -> Regions:
        """Regions on parameters by their names in the module, on the parameters' values."""
        by_path = self._parameter_paths()
        regions = {}
        for path, region in perturb.items():
            if path not in by_path:
                raise ArgumentError(
                    f"the model has no parameter '{path}' that its outputs depend on; there are: "
                    f"{', '.join(sorted(by_path))}.{did_you_mean(path, by_path)}"
                )
            if not isinstance(region, Region):
                raise ArgumentError(
                    f"perturb['{path}'] must be a region, not {type(region).__name__}"
                )
            regions[by_path[path]] = _placed(path, region, values[by_path[path]])
        return regions

    def _parameter_paths(self) -> dict[str, str]:
        by_path = {path: name for name, path in self.captured.graph.parameters.items()}
        if isinstance(self.captured.source, Function):
            prefix = "modules_used.0."  # the modules a callable closes over, under their own names
            inside = [path for path in by_path if path.startswith(prefix)]
            by_path |= {path.removeprefix(prefix): by_path[path] for path in inside}
        return by_path


def _placed(path: str, region: Region, value: Tensor) -> Region:
    """A region on the value of a parameter."""
    if not value.is_floating_point():
        raise ArgumentError(
            f"'{path}' is of type {value.dtype}: only floating-point parameters can be perturbed"
        )
    placed = with_tensors(region, usable).at(value)
    if placed.centre.shape != value.shape:
        raise ArgumentError(
            f"the region for '{path}' must have the shape {tuple(value.shape)}, not "
            f"{tuple(placed.centre.shape)}"
        )
    return placed
