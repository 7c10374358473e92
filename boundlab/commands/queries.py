"""``boundlab verify QUERY --network NAME=FILE``: the command line of VNN-LIB 2.

The query comes first, and says which networks there are; the assignment that satisfies it is
written tensor by tensor, as it declares them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from boundlab.commands.answers import Asked, Subject
from boundlab.commands.competition import named_networks
from boundlab.errors import ArgumentError
from boundlab.onnx import OnnxModel, load_onnx
from boundlab.onnx.batching import sample_shape
from boundlab.onnx.checking import run, session
from boundlab.onnx.side_by_side import SideBySide
from boundlab.specs import vnnlib2
from boundlab.specs.property import Property
from boundlab.specs.text import read_text, uncommented
from boundlab.specs.vnnlib import parse_vnnlib
from boundlab.specs.vnnlib2 import Declaration, Declared, Question, read_question

NAMED = re.compile(r"([A-Za-z_][\w.-]*)=(.+)")
"""A network by its name in the query, and its file."""


def networks_given(texts: Sequence[str]) -> dict[str, Path]:
    """Files of networks by the names of these in the query; a file without a name by ``""``. A text
    may be the competition's list of pairs."""
    found: dict[str, Path] = {}
    for text in texts:
        pairs = named_networks(text)
        named = NAMED.fullmatch(text)
        if named is not None and "" in pairs:
            pairs = {named[1]: named[2]}
        for name, path in pairs.items():
            if name in found:
                raise ArgumentError(f"--network gives {name or 'a network without a name'} twice")
            found[name] = Path(path)
    return found


def load_query(path: Path, given: Mapping[str, Path]) -> Subject:
    """A query with the files of its networks, ready to be verified."""
    text = uncommented(read_text(path))
    try:
        if vnnlib2.VERSION.search(text) is None:
            if len(given) != 1:
                raise ArgumentError(f"is VNN-LIB 1, about one network; {len(given)} were given")
            (network,) = given.values()
            return Asked(load_onnx(network), parse_vnnlib(text), network)
        question = read_question(text)
        files = network_files(question.networks, given)
    except ArgumentError as error:
        raise ArgumentError(f"{path}: {error}") from None
    loaded: dict[Path, OnnxModel] = {}
    for file in files:
        if file not in loaded:
            loaded[file] = load_onnx(file)
    models = [loaded[file] for file in files]
    for declared, model, file in zip(question.networks, models, files, strict=True):
        check_declared(declared, model, file)
    return AskedOfNetworks.of(question, models, files)


def network_files(networks: Sequence[Declared], given: Mapping[str, Path]) -> list[Path]:
    """The file of each declared network. One that is equal to another needs none."""
    own = [one.name for one in networks if not one.equal_to]
    if "" in given:
        if len(own) != 1 or len(given) != 1:
            raise ArgumentError(f"it declares {', '.join(own)}: give each with --network NAME=FILE")
        given = {own[0]: given[""]}
    names = [one.name for one in networks]
    unknown = [name for name in given if name not in names]
    if unknown:
        raise ArgumentError(
            f"it declares no network {', '.join(unknown)}; it declares {', '.join(names)}"
        )
    found: dict[str, Path] = {}
    for one in networks:
        found[one.name] = _file(one, given.get(one.name), found.get(one.equal_to))
    return list(found.values())


def _file(one: Declared, file: Path | None, same: Path | None) -> Path:
    """The file of a network. file: that was given for it; same: of the network that it equals."""
    if same is None:
        if file is None:
            raise ArgumentError(f"no file is given for {one.name}: --network {one.name}=FILE")
        return file
    if file is not None and file.resolve() != same.resolve():
        raise ArgumentError(f"{one.name} is equal to {one.equal_to}, and was given another file")
    return same


@torch.no_grad()
def check_declared(declared: Declared, model: OnnxModel, file: Path) -> None:
    """An error if a network has other inputs or outputs than its declaration."""
    outputs = model(*model.example(1))
    found = [outputs]
    if isinstance(outputs, dict):
        found = list(outputs.values())
    sides = (
        ("input", declared.inputs, [(math.prod(sample_shape(x)), x.dtype) for x in model.inputs]),
        ("output", declared.outputs, [(y.numel(), y.dtype) for y in found]),
    )
    for side, wanted, there in sides:
        if len(wanted) != len(there):
            raise ArgumentError(
                f"{file} has {len(there)} {side}s; {declared.name} declares {len(wanted)}"
            )
        for one, (size, dtype) in zip(wanted, there, strict=True):
            if math.prod(one.shape) != size:
                raise ArgumentError(
                    f"{file}: its {side} has {size} elements, and {one.name} is declared as "
                    f"{shown(one)}"
                )
            name = str(dtype).removeprefix("torch.")
            if one.type not in ("real", name):
                raise ArgumentError(
                    f"{file}: its {side} is of type {name}, and {one.name} is declared as "
                    f"{shown(one)}"
                )


def shown(one: Declaration) -> str:
    """A tensor as an assignment heads it: ``X float32 [1,5]``."""
    return f"{one.name} {one.type} [{','.join(map(str, one.shape))}]"


@dataclass(frozen=True, eq=False)
class AskedOfNetworks:
    """A query about networks, side by side in one module if they are several. files: of each."""

    model: OnnxModel | SideBySide
    prop: Property
    question: Question
    files: tuple[Path, ...]

    @staticmethod
    def of(
        question: Question, models: Sequence[OnnxModel], files: Sequence[Path]
    ) -> AskedOfNetworks:
        model: OnnxModel | SideBySide = models[0]
        if len(models) > 1 or len(models[0].inputs) > 1:
            model = SideBySide(models, question.places)
        return AskedOfNetworks(model, question.prop, question, tuple(files))

    def outputs_elsewhere(self, x: Tensor) -> Tensor:
        """onnxruntime's outputs at a flat input (1, inputs), (1, outputs) in double precision."""
        parts = [[x]]
        networks: list[OnnxModel] = []
        if isinstance(self.model, SideBySide):
            parts = self.model.parts(x)
            networks += self.model.networks  # type: ignore[arg-type]
        else:
            networks.append(self.model)
        found = [
            one
            for file, network, inputs in zip(self.files, networks, parts, strict=True)
            for one in run(session(file), inputs, network.inputs)
        ]
        return torch.cat([one.reshape(1, -1).double() for one in found], 1)

    def text(self, x: Tensor, y: Tensor) -> str:
        """An assignment: each tensor in the order of the declarations, a line for its name, type
        and shape, then a line for each element."""
        inputs = x.reshape(-1)[torch.tensor(self.question.places, device=x.device)].tolist()
        outputs = y.reshape(-1).tolist()
        lines: list[str] = []
        for network in self.question.networks:
            for declared, values in ((network.inputs, inputs), (network.outputs, outputs)):
                for one in declared:
                    size = math.prod(one.shape)
                    lines += [shown(one), *map(repr, values[:size])]
                    del values[:size]
        return "".join(f"{line}\n" for line in lines)
