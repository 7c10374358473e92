"""A model as a graph, and the questions one can ask of it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from boundlab.arithmetic.arithmetic import Arithmetic, find_arithmetic
from boundlab.arithmetic.double import regions_in_double, values_in_double
from boundlab.compat.ambient import undisturbed
from boundlab.compat.private import pytree
from boundlab.errors import ArgumentError, MemoryLimit
from boundlab.graph.graph import Graph, Ref
from boundlab.methods.alpha import Alpha
from boundlab.methods.halving import can_be_taken_apart, halves, joined
from boundlab.methods.memory import KeptForGradients, running_out
from boundlab.methods.method import Method, find_method
from boundlab.methods.outputs import output_bounds, spec_bounds
from boundlab.methods.run import Answer, run
from boundlab.methods.state import BoundState
from boundlab.net.captured import Captured, Examples
from boundlab.net.gradients import kept
from boundlab.net.linear import linear_bounds
from boundlab.net.problem import Problem
from boundlab.net.progress import shown
from boundlab.net.questions import Options, Questions, Slopes, choose
from boundlab.net.reading import Known, Reader
from boundlab.net.variants import ModuleWatch, Variants
from boundlab.regions import Region
from boundlab.relaxations.interval import Interval
from boundlab.results import Bounds, LinearBounds
from boundlab.specs.labels import Labels, labels_tensor, read_labels
from boundlab.specs.margins import margin_spec

SIDES = ("both", "lower", "upper")
Asked = Callable[[Examples, Any, BoundState | None], Any]
"""From entries for the inputs, a tensor that begins with the samples and a state to a result."""


class Net:
    """A captured model. It may take another way through its code for other batch sizes: then there
    is a net for each (:meth:`suited`)."""

    def __init__(self, captured: Captured) -> None:
        self.captured = captured
        self.reader = Reader(captured)
        self.questions = Questions(captured, self.reader)
        self._watch = ModuleWatch.of(captured)
        self._variants = Variants(captured)
        self._others: dict[Captured, Net] = {}
        self._warned = False

    @property
    def source(self) -> nn.Module | ExportedProgram:
        """What holds the parameters."""
        return self.captured.source

    @property
    def graph(self) -> Graph:
        return self.captured.graph

    def __repr__(self) -> str:
        batch = "no batch"
        if any(free for _, _, free in self.graph.examples.values()):
            batch = "free batch size"
        elif self.graph.batched:
            batch = "fixed batch size"
        return (
            f"Net({type(self.source).__name__}, {len(self.graph.nodes)} nodes, inputs "
            f"{list(self.graph.inputs)}, {batch})"
        )

    @undisturbed()
    def __call__(self, *inputs: Any, **kwargs: Any) -> Any:
        """What the model returns for plain tensors, computed by the captured graph."""
        net = self.suited(inputs, kwargs)
        if net is not self:
            return net(*inputs, **kwargs)
        values, regions = self.reader.entries(inputs, kwargs)
        if regions:
            raise ArgumentError(
                "the model itself takes tensors; for a region ask net.bounds(region)"
            )
        found = self.graph.run(values)
        return self._structured(lambda name: found[name])

    def _structured(self, of_output: Callable[[str], Any]) -> Any:
        """A result for each output node, in the structure of the model's; what is no tensor as it
        is."""
        outputs = self.graph.outputs
        leaves = [of_output(out.name) if isinstance(out, Ref) else out for out in outputs]
        return pytree.tree_unflatten(leaves, self.captured.outputs)

    def parameters(self) -> dict[str, Tensor]:
        """The trainable parameters that the outputs depend on, by their names in the module."""
        values = self.reader.parameters()
        return {
            path: values[name]
            for name, path in self.graph.parameters.items()
            if isinstance(values[name], nn.Parameter)
        }

    def suited(self, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Net:
        """This net, or one that was captured for the batch size of the inputs, where the model
        takes another way through its code. ArgumentError if the module is no longer what was
        captured."""
        examples = self.reader.centres(inputs, kwargs)
        if examples is None:  # of another structure: reading the inputs says so
            return self
        self._watch.check(examples)
        serving = self._variants.serving(examples)
        if serving is self.captured:
            return self
        if serving not in self._others:
            self._others[serving] = Net(serving)
        return self._others[serving]

    # -- questions ---------------------------------------------------------------------------------

    @undisturbed()
    def bounds(
        self,
        *inputs: object,
        method: str | Method = "crown",
        perturb: Mapping[str, Region] | None = None,
        spec: Tensor | None = None,
        sides: str = "both",
        slopes: Slopes = "adaptive",
        alpha: Alpha | None = None,
        memory: int | str | None = None,
        intermediates: bool = False,
        state: BoundState | None = None,
        known: Known | None = None,
        arithmetic: str | Arithmetic | None = None,
        grad: bool | None = None,
        **kwargs: object,
    ) -> Bounds | Any:
        """Lower and upper bounds of the outputs for every member of the regions.

        inputs, kwargs: one entry per model input, a region or a plain tensor. perturb: regions on
        parameters by name. method: "ibp", "forward", "crown", "crown-ibp", "forward+backward",
        "alpha-crown" or "beta-crown". spec: C of shape (specs, out) or (batch, specs, out) to bound
        ``C @ output`` instead, result (batch, specs). sides: "both", "lower" or "upper"; the other
        side is then infinite. slopes: the lower line of an unstable ReLU, "adaptive", "zero", "one"
        or "same"; or for "alpha-crown" the ``slopes`` of an earlier result to start from. alpha:
        how "alpha-crown" optimises slopes. memory: a budget in bytes, or as "2 GiB", for
        coefficients; they are worked on in parts that fit, which changes bounds by no more than
        rounding (of slopes that ``Alpha(share=True)`` shares, each part has its own). By default
        half of what is free. What autograd keeps for gradients counts too: MemoryLimit where it is
        more, unless under torch.no_grad(). intermediates: keep the bounds of all nodes, as
        ``bounds["module.path"]``. state: what an earlier question has found, and splits; the result
        then has one (``bounds.state``). known: intervals that are known of nodes or modules.
        arithmetic: "real", "float32" or "float64": bounds in double precision that are proved for
        the network as evaluated exactly, or as executed in that precision; None: rounding is taken
        for nothing (docs/floating-point.md). grad: whether results carry gradients,
        :func:`boundlab.net.gradients.kept` says when they do if it is left out.

        Returns Bounds, in the structure of the model's output if that is a tuple, list or dict; a
        dataclass becomes a dict by field.
        """
        choose("sides", sides, SIDES)
        net = self.suited(inputs, kwargs)
        proved = find_arithmetic(arithmetic)
        options = Options(method, perturb, slopes, alpha, memory, known, proved)

        def ask(entries: Examples, spec: Tensor | None, state: BoundState | None) -> Any:
            answer = net.ask(entries[0], entries[1], options, state)
            kept = net._intermediates(answer, entries, options) if intermediates else {}

            def result(found: Interval) -> Bounds:
                slopes = {key: dict(part.alphas) for key, part in answer.optimized.items()}
                left = None if state is None else net.questions.state_of(answer)
                return Bounds(found.lower, found.upper, kept, slopes, left)

            if spec is None:
                return net._structured(lambda name: result(output_bounds(answer, name, sides)))
            target = net.only_output("spec")
            return result(net.drop_samples(spec_bounds(answer, target, spec, sides)))

        begun = None
        optimize = find_method(method).optimize
        if state is not None or (optimize and can_be_taken_apart(net.graph)):
            values, regions = net.reader.read(inputs, kwargs, perturb)
            begun = net.questions.begin(state or BoundState(), values, regions, proved)
        if begun is not None and optimize and not isinstance(slopes, str):
            # those of the state are cut where the samples are, or begin anew
            begun = replace(begun, alphas=slopes)
            options = replace(options, slopes="adaptive")
        may = not intermediates and known is None
        rows = None if spec is None else _spec_tensor(spec)
        with kept(grad, self.captured, inputs, kwargs, perturb, spec, known):
            if rows is not None and rows.dim() == 2:  # the same for all samples
                everywhere = lambda entries, _, state: ask(entries, rows, state)
                return _in_parts(everywhere, net.graph, (inputs, kwargs), None, begun, may)
            return _in_parts(ask, net.graph, (inputs, kwargs), rows, begun, may)

    @undisturbed()
    def margins(
        self,
        *inputs: object,
        labels: Labels | None = None,
        method: str | Method = "crown",
        perturb: Mapping[str, Region] | None = None,
        slopes: Slopes = "adaptive",
        alpha: Alpha | None = None,
        memory: int | str | None = None,
        arithmetic: str | Arithmetic | None = None,
        grad: bool | None = None,
        **kwargs: object,
    ) -> Tensor:
        """Lower bounds of ``f_y - f_k`` for all classes k != y: (batch, classes - 1).

        inputs: one entry per model input, and last the labels y, (batch,) of any integer type,
        unless they are given as ``labels=``.

        The margin of class k stands at k, or k - 1 behind y.
        The other arguments are those of :meth:`bounds`.
        """
        entries, classes = self.split_labels(inputs, labels)
        net = self.suited(entries, kwargs)
        proved = find_arithmetic(arithmetic)
        options = Options(method, perturb, slopes, alpha, memory, arithmetic=proved)

        def ask(entries: Examples, labels: Any, _: Any) -> Tensor:
            answer = net.ask(entries[0], entries[1], options)
            target = net.only_output("margins")
            checked = net.read_labels(answer, target, labels)
            spec = margin_spec(checked, net._classes(answer, target))
            return net.drop_samples(spec_bounds(answer, target, spec, "lower")).lower

        with kept(grad, self.captured, entries, kwargs, perturb):
            found: Tensor = _in_parts(ask, net.graph, (entries, kwargs), classes, None, True)
        return found

    @undisturbed()
    def linear_bounds(
        self,
        *inputs: object,
        method: str | Method = "crown",
        perturb: Mapping[str, Region] | None = None,
        spec: Tensor | None = None,
        slopes: str = "adaptive",
        memory: int | str | None = None,
        arithmetic: str | Arithmetic | None = None,
        grad: bool | None = None,
        **kwargs: object,
    ) -> LinearBounds:
        """Linear functions of the perturbed inputs and parameters below and above the output, by
        backward mode.

        method: how intermediate nodes are bounded ("crown", "crown-ibp", "forward+backward").
        """
        row = find_method(method)
        if row.output != "backward" or row.optimize:
            raise ArgumentError(
                f"linear bounds come from backward mode without optimised slopes: method must be "
                f"'crown', 'crown-ibp' or 'forward+backward', not {row.name!r}"
            )
        net = self.suited(inputs, kwargs)
        proved = find_arithmetic(arithmetic)
        options = Options(row, perturb, slopes, memory=memory, arithmetic=proved)
        given = None if spec is None else _spec_tensor(spec)
        with kept(grad, self.captured, inputs, kwargs, perturb, spec):
            answer = net.ask(inputs, kwargs, options)
            return linear_bounds(answer.analysis, net.only_output("linear_bounds"), given)

    def problem(
        self,
        *inputs: object,
        perturb: Mapping[str, Region] | None = None,
        spec: Tensor | None = None,
        memory: int | str | None = None,
        arithmetic: str | Arithmetic | None = None,
        **kwargs: object,
    ) -> Problem:
        """A question that is read, checked and folded once, to be asked many times with different
        states: for branch and bound, warm starts and incremental refinement."""
        net = self.suited(inputs, kwargs)
        proved = find_arithmetic(arithmetic)
        values, regions = net.reader.read(inputs, kwargs, perturb, longer=proved is not None)
        return Problem.of(net, values, regions, spec, memory, proved)

    @undisturbed()
    def ask(
        self,
        inputs: tuple[Any, ...],
        kwargs: dict[str, Any],
        options: Options,
        state: BoundState | None = None,
        *,
        bound_all: bool = False,
        clean: Mapping[str, Tensor] | None = None,
    ) -> Answer:
        """What is known of every node: the first half of every question, for what is built on it
        (losses)."""
        arithmetic = options.arithmetic
        longer = arithmetic is not None
        values, regions = self.reader.read(inputs, kwargs, options.perturb, longer)
        if arithmetic is not None:
            values, regions = values_in_double(values, arithmetic), regions_in_double(regions)
        query = self.questions.query(values, regions, options, state, bound_all)
        if clean is None:
            self._warn_of_statistics()
        with shown(query.alpha.progress and query.method.optimize) as report:
            return run(replace(query, clean=clean, report=report))

    # -- details -----------------------------------------------------------------------------------

    def split_labels(
        self, inputs: tuple[object, ...], labels: object
    ) -> tuple[tuple[object, ...], object]:
        """The entries for the model's inputs, and the labels: the last positional argument unless
        they were given by name."""
        if labels is not None:
            return inputs, labels
        if not inputs:
            raise ArgumentError(
                "the inputs are missing: give one entry per model input, a region or a tensor, and "
                "the labels"
            )
        labels_tensor(inputs[-1])  # an error for a region: the labels were forgotten
        return inputs[:-1], inputs[-1]

    def read_labels(self, answer: Answer, target: str, labels: Any) -> Tensor:
        """Labels for the samples of an answer, checked."""
        samples = self.graph.nodes[target].layout.count(answer.analysis.samples)
        value = answer.analysis.values[target]
        return read_labels(labels, samples, self._classes(answer, target), value.device)

    def _classes(self, answer: Answer, target: str) -> int:
        shape: torch.Size = answer.analysis.values[target].shape
        return shape[-1] if self.graph.nodes[target].layout.batched else shape.numel()

    def only_output(self, what: str) -> str:
        """The node of the only output; an error for ``what`` if there are others."""
        return self.captured.only_output(what)

    def drop_samples(self, bounds: Interval) -> Interval:
        """Bounds (samples, specs), without the samples if the model has none."""
        return bounds if self.graph.batched else Interval(bounds.lower[0], bounds.upper[0])

    def _warn_of_statistics(self) -> None:
        """Once for a net in train mode that is asked outside of a training step."""
        if self._warned or not self.questions.has_statistics:
            return
        self._warned = True
        warnings.warn(
            "the model was captured in train mode: what is bounded is the model with the "
            "batch statistics of the clean inputs, and running "
            "statistics do not move. To verify, capture model.eval(); to train, run "
            "model(x) in bl.CleanPass(net) in every step",
            stacklevel=4,
        )

    def _intermediates(
        self, answer: Answer, entries: Examples, options: Options
    ) -> dict[str, Bounds]:
        """Bounds of all nodes, every element of them, by graph name, and by module path for the
        last node that a module computes. A question of its own, so that looking changes nothing;
        it begins with what is known."""
        known = self.questions.state_of(answer)
        whole = self.ask(entries[0], entries[1], options, known, bound_all=True)
        values = {
            name: Bounds(value.lower, value.upper)
            for name, value in whole.analysis.values.items()
            if isinstance(value, Interval)
        }
        names = self.captured.module_names()
        return values | {path: values[name] for path, name in names.items() if name in values}


def _in_parts(
    ask: Asked,
    graph: Graph,
    entries: Examples,
    of_samples: Any,
    state: BoundState | None,
    may: bool,
) -> Any:
    """Ask for all samples at once, or for one half after the other where not even one row of
    coefficients fits. of_samples: a tensor that begins with the samples."""
    try:
        with running_out():
            return ask(entries, of_samples, state)
    except KeptForGradients:
        raise
    except MemoryLimit:
        parts = halves(graph, entries, of_samples, state) if may else None
        if parts is None:
            raise
    return joined([_in_parts(ask, graph, *part, may) for part in parts])


def _spec_tensor(spec: object) -> Tensor:
    if not isinstance(spec, Tensor):
        raise ArgumentError(
            "spec must be a tensor of shape (specs, out) or (batch, specs, out), not "
            f"{type(spec).__name__}"
        )
    return spec
