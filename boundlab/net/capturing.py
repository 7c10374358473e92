"""``bl.capture``: from a model to a net."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram

from boundlab.capture.faithful import compare
from boundlab.capture.refusals import refuse_unreadable
from boundlab.capture.torch_export import Function, copies
from boundlab.compat.ambient import AUTOCAST
from boundlab.compat.private import is_traced, pytree
from boundlab.errors import ArgumentError, CaptureError
from boundlab.net.captured import Captured, Examples
from boundlab.net.net import Net
from boundlab.net.reading import RESERVED
from boundlab.onnx import OnnxModel, load_onnx
from boundlab.regions import Region

log = logging.getLogger("boundlab")

Model = Callable[..., Any] | nn.Module | ExportedProgram | str | Path


def capture(model: Model, *args: Any, batched: bool | None = None, **kwargs: Any) -> Net:
    """Read a model into a graph whose outputs can be bounded.

    model: a module, any callable on tensors, a program saved with torch.export, or the path of an
    ONNX file. args, kwargs: example inputs; a network of an ONNX file needs none. batched: False
    if dimension 0 of the inputs does not count samples; None finds out.

    The batch size (dimension 0) is free afterwards wherever the model allows it. Parameters are
    read from the module at every question, so training needs no new capture; train or eval mode is
    fixed here, and a module that computes something else later is refused. The module is not
    changed. The graph must give what the model gives for the example; dataclasses among its outputs
    are dictionaries by field afterwards.
    """
    source = _source(model)
    examples: Examples = (args, kwargs)
    if not args and not kwargs:
        examples = _own_examples(source)
    _check_examples(examples)
    if any(torch.is_autocast_enabled(kind) for kind in AUTOCAST):
        raise CaptureError(
            "capture under torch.autocast would record a model whose layers round to half "
            "precision. Capture it outside; to bound a model in "
            "half precision, convert it (model.bfloat16())"
        )
    if isinstance(source, nn.Module):
        refuse_unreadable(source)
    net = Net(Captured.of(source, examples, batched))
    log.info("captured %s: %d nodes", type(source).__name__, len(net.graph.nodes))
    itself = source.module() if isinstance(source, ExportedProgram) else source
    compare(itself, net, *copies(*examples))
    size = _fixed_batch(net)
    if size is None:
        return net
    if isinstance(source, OnnxModel) and not args and size != 1:
        return capture(source, *source.example(1), batched=batched)
    log.warning(
        "the model fixes its batch size: bounds can be asked for batches of %d samples only", size
    )
    return net


def _source(model: Model) -> nn.Module | ExportedProgram:
    if isinstance(model, (str, Path)):
        return load_onnx(model)
    if callable(model) and is_traced(model):  # torch.export reads a call of it
        return Function(lambda *inputs: model(*inputs))
    if isinstance(model, (ExportedProgram, nn.Module)):
        return model
    if callable(model):
        return Function(model)
    raise ArgumentError(
        "capture takes a module, a callable, an exported program or the path of an ONNX file, not "
        f"{type(model).__name__}"
    )


def _own_examples(source: nn.Module | ExportedProgram) -> Examples:
    """Example inputs that a model has itself; none if it has not."""
    if isinstance(source, ExportedProgram):
        return source.example_inputs or ((), {})
    if isinstance(source, OnnxModel):
        return source.example(), {}
    return (), {}


def _check_examples(examples: Examples) -> None:
    """Refuse keywords that questions have too, and regions, which belong to questions."""
    taken = RESERVED & set(examples[1])
    if taken:
        raise ArgumentError(
            f"the model's keyword {sorted(taken)} is also one of net.bounds(): wrap the model in a "
            "function that renames it"
        )
    if any(isinstance(leaf, Region) for leaf in pytree.tree_leaves(examples)):
        raise ArgumentError("capture takes example tensors; give the region to net.bounds(region)")


def _fixed_batch(net: Net) -> int | None:
    """The only batch size that the model's code allows; None if it is free, or there is none."""
    for name, (shape, _, free) in net.graph.examples.items():
        if net.graph.nodes[name].layout.batched and not free:
            return shape[0]
    return None
