"""A captured model, and the questions one can ask of it."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from boundlab.capture.faithful import Snapshot, compare
from boundlab.capture.torch_export import Function, copies, export
from boundlab.coefficients.coefficients import Coefficients
from boundlab.compat.ambient import AUTOCAST, undisturbed, usable
from boundlab.compat.private import pytree
from boundlab.errors import ArgumentError, BoundlabError, CaptureError, MemoryLimit, MixedSamples
from boundlab.graph.graph import Graph, Ref
from boundlab.methods import backward
from boundlab.methods.alpha import Alpha
from boundlab.methods.halving import can_be_taken_apart, halves, joined
from boundlab.methods.memory import KeptForGradients, in_bytes, running_out
from boundlab.methods.method import Method, find_method
from boundlab.methods.outputs import output_bounds, spec_bounds
from boundlab.methods.plan import Plan
from boundlab.methods.run import Answer, Query, run
from boundlab.methods.state import Basis, BoundState
from boundlab.problem import Problem
from boundlab.progress import shown
from boundlab.regions import Region
from boundlab.regions.base import with_tensors
from boundlab.relaxations.interval import Interval
from boundlab.results import Bounds, LinearBounds
from boundlab.rules import registry
from boundlab.rules.rectifiers import SLOPES
from boundlab.rules.registry import generation
from boundlab.specs.labels import read_labels
from boundlab.specs.margins import margin_spec

log = logging.getLogger("boundlab")
SIDES = ("both", "lower", "upper")
RESERVED = {
    "method", "perturb", "spec", "sides", "slopes", "alpha", "memory", "intermediates", "state",
    "known",
}  # fmt: skip
Slopes = str | Mapping[str, Mapping[str, Tensor]]
Known = Mapping[str, tuple[Tensor, Tensor]]
"""Node or module -> a lower and an upper bound of its value."""
Asked = Callable[[Any, Any, BoundState | None], Any]
"""From entries for the inputs, a tensor that begins with the samples and a state to a result."""


def capture(
    model: Callable[..., Any] | nn.Module | ExportedProgram,
    *args: Any,
    batched: bool | None = None,
    **kwargs: Any,
) -> Net:
    """Read a model into a graph whose outputs can be bounded.

    model: a module, any callable on tensors, or a program saved with torch.export. args, kwargs:
    example inputs. The batch size (dimension 0) is free afterwards wherever the model allows it.
    Parameters are read from the module at every question, so training needs no new capture; train
    or eval mode is fixed here, and a module that computes something else later is refused. The
    module is not changed. The graph must give what the model gives for the example. batched: False
    if dimension 0 of the inputs does not count samples; None finds out.
    """
    if isinstance(model, ExportedProgram):
        if not args and not kwargs and model.example_inputs is not None:
            args, kwargs = model.example_inputs
        program: Any = model
    elif isinstance(model, nn.Module):
        program = model
    elif callable(model):
        program = Function(model)
    else:
        raise ArgumentError(
            f"capture takes a module, a callable or an exported program, not {type(model).__name__}"
        )
    taken = RESERVED & set(kwargs)
    if taken:
        raise ArgumentError(
            f"the model's keyword {sorted(taken)} is also one of net.bounds(): wrap the model in a "
            "function that renames it"
        )
    for leaf in pytree.tree_leaves((args, kwargs)):
        if isinstance(leaf, Region):
            raise ArgumentError(
                "capture takes example tensors; give the region to net.bounds(region)"
            )
    if any(torch.is_autocast_enabled(kind) for kind in AUTOCAST):
        raise CaptureError(
            "capture under torch.autocast would record a model whose layers round to half "
            "precision. Capture it outside; to bound a model in "
            "half precision, convert it (model.bfloat16())"
        )
    net = _captured(program, args, kwargs, batched)
    compare(
        program.module() if isinstance(program, ExportedProgram) else program,
        net,
        *copies(args, kwargs),
    )
    fixed = {
        shape[0]
        for name, (shape, _, free) in net.graph.examples.items()
        if net.graph.nodes[name].layout.batched and not free
    }
    if fixed:
        log.warning(
            "the model fixes its batch size: bounds can be asked for batches of %d samples only",
            fixed.pop(),
        )
    return net


def _captured(
    source: nn.Module | ExportedProgram,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    batched: bool | None,
    own_size: bool = False,
) -> Net:
    with undisturbed(of_model=True):
        graph, inputs, outputs = export(source, args, kwargs, batched, own_size)
    device = next(
        (leaf.device for leaf in pytree.tree_leaves((args, kwargs)) if _has_dimensions(leaf)), None
    )
    return Net(source, graph, inputs, outputs, device)


class Net:
    """A model as a graph, together with the module that holds its parameters.

    A model may take another way through its code for other batch sizes, or in train mode: then
    there is a graph for each.
    """

    def __init__(
        self,
        source: nn.Module | ExportedProgram,
        graph: Graph,
        inputs: pytree.TreeSpec,
        outputs: pytree.TreeSpec,
        device: torch.device | None = None,
    ) -> None:
        """device: where the model was captured, if its graph may hold tensors or make them
        there."""
        self.source = source
        self.graph = graph
        self._inputs = inputs
        self._outputs = outputs
        self._device = device if graph.knows_devices else None
        self._plans: dict[Any, Plan] = {}
        self._others: list[Net] = []
        """Captured for batch sizes that this graph does not serve."""
        self._checked: set[tuple[tuple[str, int], ...]] = set()
        """Batch sizes that are known to be served by this graph."""
        self._snapshot = Snapshot.of(source) if isinstance(source, nn.Module) else None
        self._warned = False
        self._same_in: list[Mapping[str, bool]] = []
        """Modes of the module in which the graph would be the same."""

    def __repr__(self) -> str:
        free = any(free for _, _, free in self.graph.examples.values())
        batch = (
            "free batch size" if free else "fixed batch size" if self.graph.batched else "no batch"
        )
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
        values, regions = self._read(inputs, kwargs)
        if regions:
            raise ArgumentError(
                "the model itself takes tensors; for a region ask net.bounds(region)"
            )
        found = self.graph.run(values)
        leaves = [
            found[output.name] if isinstance(output, Ref) else output
            for output in self.graph.outputs
        ]
        return pytree.tree_unflatten(leaves, self._outputs)

    def parameters(self) -> dict[str, Tensor]:
        """The trainable parameters that the outputs depend on, by their names in the module."""
        state = self._read_state()
        return {
            path: state[name]
            for name, path in self.graph.parameters.items()
            if isinstance(state[name], nn.Parameter)
        }

    # -- which graph -------------------------------------------------------------------------------

    def suited(self, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Net:
        """This net, or one that was captured for the batch size of the inputs, where the model
        takes another way through its code. ArgumentError if the module is no longer what was
        captured."""
        examples = self._centres(inputs, kwargs)
        if examples is None:  # of another structure: reading the inputs says so
            return self
        self._check_module(examples)
        leaves = dict(
            zip(
                self.graph.inputs,
                pytree.tree_leaves(examples, is_leaf=lambda leaf: leaf is None),
                strict=True,
            )
        )
        batch = {
            name: leaves[name].shape[0]
            for name in self.graph.sizes.symbols
            if isinstance(leaves[name], Tensor) and leaves[name].dim()
        }
        size = tuple(batch.items())
        if size in self._checked:
            return self
        if self.graph.sizes.broken(batch) is None:
            self._checked.add(size)
            return self
        for other in self._others:
            if other._serves(leaves):
                return other
        if isinstance(self.source, ExportedProgram):
            raise ArgumentError(
                f"the program was exported for batch sizes with {self.graph.sizes.broken(batch)}, "
                f"not for {batch}"
            )
        if _captured(self.source, *examples, False).graph.computes(self.graph, batch):
            self._checked.add(size)
            return self
        found = _captured(
            self.source, *examples, True if self.graph.batched else None, own_size=True
        )
        if not found._serves(leaves):
            raise ArgumentError(
                f"the model could not be captured for the batch size {batch}: "
                f"{self.graph.sizes.broken(batch)} was assumed"
            )
        self._others.append(found)
        return found

    def _serves(self, leaves: Mapping[str, Any]) -> bool:
        """Whether the graph is the model's for inputs of these shapes."""
        batch = {name: leaves[name].shape[0] for name in self.graph.sizes.symbols}
        shapes = {
            name: leaves[name].shape
            for name, (_, _, free) in self.graph.examples.items()
            if not free
        }
        fits = all(tuple(shape) == self.graph.examples[name][0] for name, shape in shapes.items())
        return fits and self.graph.sizes.broken(batch) is None

    def _centres(
        self, inputs: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """The inputs with the centres of regions; None if their structure is not the captured
        one."""
        leaves, tree = pytree.tree_flatten((inputs, kwargs))
        if tree != self._inputs:
            return None
        found: tuple[tuple[Any, ...], dict[str, Any]]
        found = pytree.tree_unflatten(
            [leaf.centre if isinstance(leaf, Region) else leaf for leaf in leaves], tree
        )
        return found

    def _check_module(self, examples: tuple[tuple[Any, ...], dict[str, Any]]) -> None:
        """Refuse a module that has changed since it was captured, or whose graph is another one in
        the mode it is in now."""
        if (
            self._snapshot is None
            or not isinstance(self.source, nn.Module)
            or self._snapshot.holds(self.source)
        ):
            return
        now = Snapshot.of(self.source)
        self._snapshot.check(now)
        if now.modes == self._snapshot.modes or now.modes in self._same_in:
            return
        try:
            other = _captured(self.source, *examples, None if self.graph.batched else False)
        except BoundlabError:
            other = None
        if other is None or not other.graph.computes(self.graph):
            path = next(
                path for path, mode in now.modes.items() if mode != self._snapshot.modes[path]
            )
            mode = "train" if now.modes[path] else "eval"
            raise ArgumentError(
                f"the module was captured in another mode: '{path or type(self.source).__name__}' "
                f"is in {mode} mode now. Capture it again, or put it back with "
                f"model.{'eval' if now.modes[path] else 'train'}()"
            )
        self._same_in.append(now.modes)

    # -- questions ---------------------------------------------------------------------------------

    @undisturbed()
    def bounds(
        self,
        *inputs: Any,
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
        **kwargs: Any,
    ) -> Any:
        """Lower and upper bounds of the outputs for every member of the regions.

        inputs, kwargs: one entry per model input, a region or a plain tensor. perturb: regions on
        parameters by name. method: "ibp", "forward", "crown", "crown-ibp", "forward+backward" or
        "alpha-crown". spec: C of shape (specs, out) or (batch, specs, out) to bound ``C @ output``
        instead, result (batch, specs). sides: "both", "lower" or "upper"; the other side is then
        infinite. slopes: the lower line of an unstable ReLU, "adaptive", "zero", "one" or "same";
        or for "alpha-crown" the ``slopes`` of an earlier result to start from. alpha: how
        "alpha-crown" optimises slopes. memory: a budget in bytes, or as "2 GiB", for coefficients;
        they are worked on in parts that fit, which changes bounds by no more than rounding (of
        slopes that ``Alpha(share=True)`` shares, each part has its own). By default half of what is
        free. What autograd keeps for gradients counts too: MemoryLimit where it is more, unless
        under torch.no_grad(). intermediates: keep the bounds of all nodes, as
        ``bounds["module.path"]``.

        Returns Bounds, in the structure of the model's output if that is a tuple, list or dict.
        """
        _choose("sides", sides, SIDES)
        net = self.suited(inputs, kwargs)
        if net is not self:
            return net.bounds(
                *inputs, method=method, perturb=perturb, spec=spec, sides=sides, slopes=slopes,
                alpha=alpha, memory=memory, intermediates=intermediates, state=state, known=known,
                **kwargs,
            )  # fmt: skip
        options: dict[str, Any] = {
            "method": method,
            "perturb": perturb,
            "slopes": slopes,
            "alpha": alpha,
            "memory": memory,
            "known": known,
        }

        def ask(entries: Any, spec: Tensor | None, state: BoundState | None) -> Any:
            answer = self.ask(*entries, state=state, **options)
            kept = self._intermediates(answer, *entries, **options) if intermediates else {}
            asked = state is not None
            if spec is not None:
                target = self.only_output("spec")
                found = self.drop_samples(spec_bounds(answer, target, spec, sides))
                return self._result(answer, found, kept, asked)
            leaves = [
                self._output(answer, output, sides, kept, asked) for output in self.graph.outputs
            ]
            return pytree.tree_unflatten(leaves, self._outputs)

        begun = None
        if state is not None or (find_method(method).optimize and can_be_taken_apart(self.graph)):
            begun = self._begun(state or BoundState(), *self.read(inputs, kwargs, perturb))
        may = not intermediates and known is None
        rows = None if spec is None else _spec_tensor(spec)
        if rows is not None and rows.dim() == 2:  # the same for all samples
            everywhere = lambda entries, _, state: ask(entries, rows, state)
            return self._in_parts(everywhere, (inputs, kwargs), None, begun, may)
        return self._in_parts(ask, (inputs, kwargs), rows, begun, may)

    @undisturbed()
    def margins(
        self,
        *inputs: Any,
        labels: Any = None,
        method: str | Method = "crown",
        perturb: Mapping[str, Region] | None = None,
        slopes: Slopes = "adaptive",
        alpha: Alpha | None = None,
        memory: int | str | None = None,
        **kwargs: Any,
    ) -> Tensor:
        """Lower bounds of ``f_y - f_k`` for all classes k != y: (batch, classes - 1).

        inputs: one entry per model input, and last the labels y, (batch,) of any integer type,
        unless they are given as ``labels=``. The margin of class k stands at k, or k - 1 behind y.
        """
        entries, labels = self.split_labels(inputs, labels)
        net = self.suited(entries, kwargs)
        if net is not self:
            return net.margins(
                *entries,
                labels,
                method=method,
                perturb=perturb,
                slopes=slopes,
                alpha=alpha,
                memory=memory,
                **kwargs,
            )

        def ask(entries: Any, labels: Any, _: Any) -> Tensor:
            answer = self.ask(
                *entries, method=method, perturb=perturb, slopes=slopes, alpha=alpha, memory=memory
            )
            target = self.only_output("margins")
            spec = margin_spec(
                self.read_labels(answer, target, labels), self._classes(answer, target)
            )
            return self.drop_samples(spec_bounds(answer, target, spec, "lower")).lower

        found: Tensor = self._in_parts(ask, (entries, kwargs), labels, None, True)
        return found

    def split_labels(self, inputs: tuple[Any, ...], labels: Any) -> tuple[tuple[Any, ...], Any]:
        """The entries for the model's inputs, and the labels: the last positional argument unless
        they were given by name."""
        if labels is not None:
            return inputs, labels
        if not inputs:
            raise ArgumentError(
                "the inputs are missing: give one entry per model input, a region or a tensor, and "
                "the labels"
            )
        return inputs[:-1], inputs[-1]

    def read_labels(self, answer: Answer, target: str, labels: Any) -> Tensor:
        """Labels for the samples of an answer, checked."""
        samples = self.graph.nodes[target].layout.count(answer.analysis.samples)
        value = answer.analysis.values[target]
        return read_labels(labels, samples, self._classes(answer, target), value.device)

    @undisturbed()
    def linear_bounds(
        self,
        *inputs: Any,
        method: str | Method = "crown",
        perturb: Mapping[str, Region] | None = None,
        spec: Tensor | None = None,
        slopes: str = "adaptive",
        memory: int | str | None = None,
        **kwargs: Any,
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
        if net is not self:
            return net.linear_bounds(
                *inputs,
                method=method,
                perturb=perturb,
                spec=spec,
                slopes=slopes,
                memory=memory,
                **kwargs,
            )
        answer = self.ask(inputs, kwargs, method=row, perturb=perturb, slopes=slopes, memory=memory)
        target = self.only_output("linear_bounds")
        analysis = answer.analysis
        if target not in analysis.plan.variable:
            raise ArgumentError("the output does not depend on anything that is perturbed")
        node, like = analysis.graph.nodes[target], analysis.interval(target).lower
        samples = analysis.samples if node.layout.batched else None
        elements = analysis.elements(target)
        if spec is not None:
            rows = elements.of_spec(_spec_tensor(spec))
            out_shape = [len(rows)]
        else:
            rows = elements.identity()
            out_shape = list(node.layout.sample_shape(like.shape))
        lower_A, lower_b = self._lines(answer, target, rows, out_shape, samples)
        upper_A, upper_b = self._lines(answer, target, -rows, out_shape, samples)
        # an overflow says nothing
        lower_b, upper_b = (
            bias.masked_fill(torch.isposinf(bias), -torch.inf) for bias in (lower_b, upper_b)
        )
        batched = {name: analysis.graph.nodes[name].layout.batched for name in analysis.regions}
        names = self._public_names(analysis.regions)
        return LinearBounds(
            {names[k]: v for k, v in lower_A.items()},
            lower_b,
            {names[k]: -v for k, v in upper_A.items()},
            -upper_b,
            {names[k]: v for k, v in analysis.regions.items()},
            {names[k]: v for k, v in batched.items()},
            samples,
        )

    # -- details -----------------------------------------------------------------------------------

    def _in_parts(
        self, ask: Asked, entries: Any, of_samples: Any, state: BoundState | None, may: bool
    ) -> Any:
        """Ask for all samples at once, or for one half after the other where not even one row of
        coefficients fits. of_samples: a tensor that begins with the samples."""
        try:
            with running_out():
                return ask(entries, of_samples, state)
        except KeptForGradients:
            raise
        except MemoryLimit:
            parts = halves(self.graph, entries, of_samples, state) if may else None
            if parts is None:
                raise
        return joined([self._in_parts(ask, *part, may) for part in parts])

    def _lines(
        self, answer: Answer, target: str, rows: Coefficients, out: list[int], samples: int | None
    ) -> tuple[dict[str, Tensor], Tensor]:
        ends, bias = backward.propagate_backward(answer.analysis, target, rows)
        lead = [] if samples is None else [samples]
        matrices = {}
        for name, region in answer.analysis.regions.items():
            shape = answer.analysis.graph.nodes[name].layout.sample_shape(region.centre.shape)
            if name in ends:
                part = ends[name].dense()
            else:
                size = (len(rows), samples or 1, *shape)
                part = torch.zeros(size, dtype=rows.dtype, device=rows.device)
            matrices[name] = part.transpose(0, 1).reshape([*lead, *out, *shape])
        return matrices, bias.T.reshape([*lead, *out])

    @undisturbed()
    def ask(
        self,
        inputs: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        method: str | Method,
        perturb: Mapping[str, Region] | None = None,
        slopes: Slopes = "adaptive",
        alpha: Alpha | None = None,
        memory: int | str | None = None,
        state: BoundState | None = None,
        known: Known | None = None,
        bound_all: bool = False,
        clean: Mapping[str, Tensor] | None = None,
    ) -> Answer:
        """What is known of every node: the first half of every question, for what is built on it
        (losses)."""
        row = find_method(method)
        values, regions = self.read(inputs, kwargs, perturb)
        query = self.query(values, regions, row, slopes, alpha, memory, state, known)
        if clean is None:
            self._warn_of_statistics()
        plan = self._plan(regions, bound_all=True) if bound_all else query.plan
        query = replace(query, clean=clean, bound_all=bound_all, plan=plan)
        with shown(query.alpha.progress and row.optimize) as report:
            return run(replace(query, report=report))

    def query(
        self,
        values: Mapping[str, Any],
        regions: Mapping[str, Region],
        method: Method,
        slopes: Slopes = "adaptive",
        alpha: Alpha | None = None,
        memory: int | str | None = None,
        state: BoundState | None = None,
        known: Known | None = None,
    ) -> Query:
        """What :meth:`ask` asks, from values and regions that are read."""
        given, line = state or BoundState(), "adaptive"
        if isinstance(slopes, str):
            _choose("slopes", slopes, SLOPES)
            line = slopes
        elif method.optimize:
            given = replace(given, alphas=slopes)
        if not method.optimize and (alpha is not None or not isinstance(slopes, str)):
            raise ArgumentError(
                "alpha=... and slopes of an earlier result belong to "
                f'method="alpha-crown", not to "{method.name}"'
            )
        if alpha is not None and not isinstance(alpha, Alpha):
            raise ArgumentError(
                f"alpha must be a bl.Alpha(iterations=..., lr=...), not {type(alpha).__name__}"
            )
        more = self._read_known(known or {})
        plan = self._plan(regions, False, tuple(more))
        self._check_known(plan)
        return Query(
            plan,
            values,
            regions,
            self._samples(values, regions),
            method,
            in_bytes(memory, next(iter(regions.values())).centre.device),
            line,
            alpha or Alpha(),
            given.with_known(more),
        )

    def read(
        self,
        inputs: tuple[Any, ...],
        kwargs: dict[str, Any],
        perturb: Mapping[str, Region] | None = None,
    ) -> tuple[dict[str, Any], dict[str, Region]]:
        """The values of all independent nodes that are not perturbed, and the regions of the
        others, checked."""
        values, regions = self._read(inputs, kwargs)
        regions |= self._read_perturbed(perturb or {}, values)
        if not regions:
            raise ArgumentError(
                "nothing is perturbed: give a region (for example bl.Linf(x, 0.1)) for an input, "
                "or perturb={'name': region}"
            )
        for name in regions:
            values.pop(name, None)
        return values, regions

    def problem(
        self,
        *inputs: Any,
        perturb: Mapping[str, Region] | None = None,
        spec: Tensor | None = None,
        memory: int | str | None = None,
        **kwargs: Any,
    ) -> Problem:
        """A question that is read, checked and folded once, to be asked many times with different
        states: for branch and bound, warm starts and incremental refinement."""
        net = self.suited(inputs, kwargs)
        values, regions = net.read(inputs, kwargs, perturb)
        return Problem.of(net, values, regions, spec, memory)

    def begun(
        self, values: Mapping[str, Any], regions: Mapping[str, Region]
    ) -> tuple[BoundState, dict[str, Region]]:
        """A state of a question that knows nothing yet, and copies of its regions."""
        state = self._begun(BoundState(), values, regions)
        assert state.basis is not None
        return state, dict(state.basis.regions)

    def basis_now(self) -> Basis:
        """The parameters that intervals depend on, as the module has them now."""
        return self._basis(self._read_state(), {})

    def _basis(self, values: Mapping[str, Any], regions: Mapping[str, Region]) -> Basis:
        """What intervals of a state depend on."""
        tensors = [values.get(name) for name in (*self.graph.parameters, *self.graph.constants)]
        held = [tensor for tensor in tensors if isinstance(tensor, Tensor)]
        others = {name: values[name] for name in self.graph.inputs if name in values}
        return Basis.of(self.graph, regions, others, held, can_be_taken_apart(self.graph))

    def _begun(
        self, state: BoundState, values: Mapping[str, Any], regions: Mapping[str, Region]
    ) -> BoundState:
        """A state as one of this question: its intervals hold for it, and it can be cut."""
        if any(node.op is registry.clean for node in self.graph.nodes.values()):
            raise ArgumentError(
                "states need a model in eval mode: statistics change with the batch"
            )
        samples, basis = self._samples(values, regions), self._basis(values, regions)
        if state.basis is not None:
            state.basis.check(basis, state.origin)
        return replace(state, samples=samples, origin=torch.arange(samples), basis=basis)

    def _read_known(self, known: Known) -> dict[str, Interval]:
        """Intervals that a user knows of nodes, by graph name."""
        names = self.module_names()
        found = {}
        for key, (lower, upper) in known.items():
            name = names.get(key, key)
            if name not in self.graph.nodes:
                raise ArgumentError(
                    f"known: there is no node or module '{key}'; there are: "
                    f"{', '.join(sorted({*names, *self.graph.nodes}))}"
                )
            if torch.isnan(lower).any() or torch.isnan(upper).any() or (lower > upper).any():
                raise ArgumentError(f"known['{key}'] must be (lower, upper) with lower <= upper")
            found[name] = Interval(lower, upper)
        return found

    def module_names(self) -> dict[str, str]:
        """Module path -> the graph name of the last node that the module computes."""
        last = {n.origin.module: name for name, n in self.graph.nodes.items() if n.origin.module}
        return last | dict(self.graph.modules)

    def _warn_of_statistics(self) -> None:
        """Once for a net in train mode that is asked outside of a training step."""
        if not self._warned and any(
            node.op is registry.clean for node in self.graph.nodes.values()
        ):
            self._warned = True
            warnings.warn(
                "the model was captured in train mode: what is bounded is the model with the "
                "batch statistics of the clean inputs, and running "
                "statistics do not move. To verify, capture model.eval(); to train, run "
                "model(x) in bl.CleanPass(net) in every step",
                stacklevel=4,
            )

    def _check_known(self, plan: Plan) -> None:
        """Refuse graphs in which samples may meet; operators without a rule are named first."""
        doubts = [reason for name, reason in self.graph.unknown.items() if name in plan.needed]
        if doubts and plan.rules is not None:
            raise MixedSamples(doubts[0])

    def _plan(
        self, regions: Mapping[str, Region], bound_all: bool = False, kept: tuple[str, ...] = ()
    ) -> Plan:
        """Found once for each set of perturbed nodes, and again when rules were registered since.
        kept: nodes that may not be folded."""
        boxes = frozenset(name for name, region in regions.items() if region.is_box)
        balls = frozenset(name for name, region in regions.items() if region.reach_is_exact)
        key = tuple(regions), boxes, balls, bound_all, kept, generation()
        if key not in self._plans:
            targets = tuple(output.name for output in self.graph.outputs if isinstance(output, Ref))
            sources = tuple(regions)
            self._plans[key] = Plan(self.graph, sources, boxes, balls, targets, bound_all, kept)
        return self._plans[key]

    def _read(
        self, inputs: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Region]]:
        """The values of all independent nodes that are not perturbed, and the regions of the inputs
        that are: all on one device."""
        values, regions = self._read_inputs(inputs, kwargs)
        state = self._read_state()
        homes = {
            state[name].device for name in self.graph.parameters if _has_dimensions(state[name])
        } | ({self._device} - {None})
        for name, tensor in (
            values | {name: region.centre for name, region in regions.items()}
        ).items():
            for away in homes - {tensor.device} if _has_dimensions(tensor) else ():
                raise ArgumentError(
                    f"the input '{name}' lies on {tensor.device}, the model on {away}: move "
                    "one of them, and capture the model where its inputs "
                    "lie. A program saved with torch.export is moved by "
                    "torch.export.passes.move_to_device_pass(program, device)"
                )
        return values | state, regions

    def _read_inputs(
        self, inputs: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Region]]:
        leaves, tree = pytree.tree_flatten((inputs, kwargs))
        if tree != self._inputs:
            expected = ", ".join(self.graph.inputs)
            raise ArgumentError(
                f"the model was captured with the inputs ({expected}), in that structure; got "
                f"{len(leaves)} of another structure"
            )
        values: dict[str, Any] = {}
        regions: dict[str, Region] = {}
        for name, leaf in zip(self.graph.inputs, leaves, strict=True):
            if isinstance(leaf, Region):
                self._check_shape(name, leaf.centre)
                regions[name] = with_tensors(leaf, usable)
            elif name in self.graph.literals:
                if isinstance(leaf, Tensor) or leaf != self.graph.literals[name]:
                    raise ArgumentError(
                        f"the model was captured with {name}={self.graph.literals[name]!r}, not "
                        f"{leaf!r}: capture it again"
                    )
                values[name] = leaf
            else:
                if isinstance(leaf, Tensor):
                    self._check_shape(name, leaf)
                    if leaf.is_floating_point() and torch.isnan(leaf).any():
                        raise ArgumentError(f"the input '{name}' contains NaN")
                values[name] = usable(leaf)
        return values, regions

    def _check_shape(self, name: str, tensor: Tensor) -> None:
        example = self.graph.examples.get(name)
        if example is None:
            raise ArgumentError(f"the input '{name}' is not a tensor in the captured model")
        shape, dtype, free = example
        if tensor.dtype != dtype:
            raise ArgumentError(
                f"the input '{name}' must have dtype {dtype} as in the captured model, not "
                f"{tensor.dtype}"
            )
        wrong = len(shape) != tensor.dim() or any(
            a != b
            for i, (a, b) in enumerate(zip(shape, tensor.shape, strict=True))
            if i or not free
        )
        if wrong:
            text = str(tuple(shape)) if not free else f"(batch, {', '.join(map(str, shape[1:]))})"
            raise ArgumentError(
                f"the input '{name}' must have the shape {text}, not {tuple(tensor.shape)}"
            )

    def _read_state(self) -> dict[str, Any]:
        """Parameters and buffers as they are now."""
        values: dict[str, Any] = dict(self.graph.constants)
        if isinstance(self.source, ExportedProgram):
            state = {**self.source.state_dict, **self.source.constants}
            return values | {
                name: usable(state[path]) for name, path in self.graph.parameters.items()
            }
        for name, path in self.graph.parameters.items():
            owner, _, leaf = path.rpartition(".")
            values[name] = usable(getattr(self.source.get_submodule(owner), leaf))
        return values

    def _read_perturbed(
        self, perturb: Mapping[str, Region], values: Mapping[str, Any]
    ) -> dict[str, Region]:
        by_path = {path: name for name, path in self.graph.parameters.items()}
        # the modules a callable closes over, under their own names
        if isinstance(self.source, Function):
            prefix = "modules_used.0."
            by_path |= {
                path.removeprefix(prefix): name
                for path, name in by_path.items()
                if path.startswith(prefix)
            }
        regions = {}
        for path, region in perturb.items():
            if path not in by_path:
                raise ArgumentError(
                    f"the model has no parameter '{path}' that its outputs depend on; there are: "
                    f"{', '.join(sorted(by_path))}"
                )
            if not isinstance(region, Region):
                raise ArgumentError(
                    f"perturb['{path}'] must be a region, not {type(region).__name__}"
                )
            name = by_path[path]
            value = values[name]
            if not value.is_floating_point():
                raise ArgumentError(
                    f"'{path}' is of type {value.dtype}: only floating-point parameters can be "
                    "perturbed"
                )
            placed = with_tensors(region, usable).at(value)
            if placed.centre.shape != value.shape:
                raise ArgumentError(
                    f"the region for '{path}' must have the shape {tuple(value.shape)}, not "
                    f"{tuple(placed.centre.shape)}"
                )
            regions[name] = placed
        return regions

    def _samples(self, values: Mapping[str, Any], regions: Mapping[str, Region]) -> int:
        sizes = {}
        for name in self.graph.inputs:
            if self.graph.nodes[name].layout.batched:
                sizes[name] = (regions[name].centre if name in regions else values[name]).shape[0]
        if len(set(sizes.values())) > 1:
            raise ArgumentError(f"the inputs disagree on the batch size: {sizes}")
        return next(iter(sizes.values()), 1)

    def only_output(self, what: str) -> str:
        refs = [output for output in self.graph.outputs if isinstance(output, Ref)]
        if len(refs) != 1 or not self._outputs.is_leaf():
            raise ArgumentError(
                f"{what} needs a model with a single tensor output; this one returns "
                f"{self._outputs}"
            )
        return str(refs[0].name)

    def _classes(self, answer: Answer, target: str) -> int:
        value = answer.analysis.values[target]
        shape = value.shape
        return int(shape[-1]) if self.graph.nodes[target].layout.batched else int(shape.numel())

    def _output(
        self, answer: Answer, output: Any, sides: str, kept: Mapping[str, Bounds], asked: bool
    ) -> Any:
        """Bounds of one output; what is not a tensor as it is."""
        if not isinstance(output, Ref):
            return output
        found = output_bounds(answer, output.name, sides)
        lower, upper = found.lower, found.upper
        if found.dtype.is_floating_point and sides == "upper":
            lower = torch.full_like(lower, -torch.inf)
        if found.dtype.is_floating_point and sides == "lower":
            upper = torch.full_like(upper, torch.inf)
        return self._result(answer, Interval(lower, upper), kept, asked)

    def _result(
        self, answer: Answer, found: Interval, kept: Mapping[str, Bounds], asked: bool
    ) -> Bounds:
        """asked: whether a state was."""
        slopes = {key: dict(part.alphas) for key, part in answer.optimized.items()}
        state = self.state_of(answer) if asked else None
        return Bounds(found.lower, found.upper, kept, slopes, state)

    def state_of(self, answer: Answer) -> BoundState:
        """What an answer has found, for a later question."""
        given, analysis = answer.query.state, answer.analysis
        intervals = {
            name: Interval(value.lower.detach(), value.upper.detach())
            for name, value in analysis.values.items()
            if isinstance(value, Interval) and value.dtype.is_floating_point
        }
        empty = given.empty
        for stage in answer.stages:
            more = stage.analysis.empty
            if more is not None:
                empty = more.cpu() if empty is None else empty | more.cpu()
        names = {path: name for path, name in self.module_names().items() if name in intervals}
        found = answer.optimized
        return BoundState(
            intervals,
            {**given.alphas, **{key: part.alphas for key, part in found.items()}},
            given.splits,
            {**given.betas, **{key: part.betas for key, part in found.items()}},
            analysis.samples,
            {name: analysis.graph.nodes[name].layout for name in intervals},
            names,
            given.origin,
            empty,
            given.basis,
        )

    def drop_samples(self, bounds: Interval) -> Interval:
        return bounds if self.graph.batched else Interval(bounds.lower[0], bounds.upper[0])

    def _intermediates(
        self, answer: Answer, inputs: tuple[Any, ...], kwargs: dict[str, Any], **options: Any
    ) -> dict[str, Bounds]:
        """Bounds of all nodes, every element of them, by graph name, and by module path for the
        last node that a module computes. A question of its own, so that looking changes nothing;
        it begins with what is known."""
        known = self.state_of(answer)
        whole = self.ask(inputs, kwargs, bound_all=True, state=known, **options)
        values = {
            name: Bounds(value.lower, value.upper)
            for name, value in whole.analysis.values.items()
            if isinstance(value, Interval)
        }
        named = {path: values[n] for path, n in self.module_names().items() if n in values}
        return values | named

    def _public_names(self, regions: Mapping[str, Region]) -> dict[str, str]:
        return {name: self.graph.parameters.get(name, name) for name in regions}


def _has_dimensions(value: Any) -> bool:
    """Tensors without may lie on the CPU whatever they meet."""
    return isinstance(value, Tensor) and value.dim() > 0


def _spec_tensor(spec: Any) -> Tensor:
    if not isinstance(spec, Tensor):
        raise ArgumentError(
            "spec must be a tensor of shape (specs, out) or (batch, specs, out), not "
            f"{type(spec).__name__}"
        )
    return spec


def _choose(what: str, value: Any, options: tuple[str, ...]) -> None:
    if value not in options:
        import difflib

        close = difflib.get_close_matches(str(value), options, 1)
        hint = f" Did you mean '{close[0]}'?" if close else ""
        raise ArgumentError(
            f"{what} must be one of {', '.join(map(repr, options))}, not {value!r}.{hint}"
        )
