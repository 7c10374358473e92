"""Which graph is the model's: it may take another way through its code for other batch sizes, or in
train mode."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import nn
from torch.export import ExportedProgram

from boundlab.capture.faithful import Snapshot
from boundlab.capture.torch_export import Trace, traced_sizes
from boundlab.errors import ArgumentError, BoundlabError
from boundlab.net.captured import Captured, Examples


@dataclass(eq=False)
class Variants:
    """The graphs of a model for batch sizes, captured as they are asked for."""

    first: Captured
    others: list[Captured] = field(default_factory=list)
    _served: set[tuple[tuple[str, int], ...]] = field(default_factory=set)
    """Batch sizes that are known to be served by the first graph."""

    def serving(self, examples: Examples) -> Captured:
        """The first graph, or one for the batch size of the examples."""
        leaves = self.first.leaves(examples)
        batch = self.first.batch_sizes(leaves)
        size = tuple(batch.items())
        if size in self._served:
            return self.first
        trace = self._trace(examples)
        if self._serves_first(examples, batch, trace):
            self._served.add(size)
            return self.first
        for other in self.others:
            if other.serves(leaves):
                return other
        graph = self.first.graph
        batched = True if graph.batched else None
        found = Captured.of(self.first.source, examples, batched, own_size=True, trace=trace)
        if not found.serves(leaves):
            raise ArgumentError(
                f"the model could not be captured for the batch size {batch}: "
                f"{graph.sizes.broken(batch)} was assumed"
            )
        self.others.append(found)
        return found

    def _trace(self, examples: Examples) -> Trace | None:
        """The model on the examples: traced with a free batch size it is the first graph again, if
        that was traced with the same sizes."""
        if isinstance(self.first.source, ExportedProgram):
            return None
        known = traced_sizes(examples) == self.first.traced
        return Trace(self.first.source, examples, known)

    def _serves_first(self, examples: Examples, batch: dict[str, int], trace: Trace | None) -> bool:
        """Whether the first graph is the model's for a batch size: nothing that it assumes of sizes
        is broken, or the model traced there computes the same."""
        graph, source = self.first.graph, self.first.source
        broken = graph.sizes.broken(batch)
        if broken is None:
            return True
        if isinstance(source, ExportedProgram):
            raise ArgumentError(
                f"the program was exported for batch sizes with {broken}, not for {batch}"
            )
        leaves = self.first.leaves(examples)
        if any(other.serves(leaves) for other in self.others):
            return False
        return Captured.of(source, examples, False, trace=trace).graph.computes(graph, batch)


@dataclass(eq=False)
class ModuleWatch:
    """Whether a module is still what was captured."""

    captured: Captured
    snapshot: Snapshot | None
    same_in: list[Mapping[str, bool]] = field(default_factory=list)
    """Modes of the module in which the graph would be the same."""

    @staticmethod
    def of(captured: Captured) -> ModuleWatch:
        source = captured.source
        return ModuleWatch(captured, Snapshot.of(source) if isinstance(source, nn.Module) else None)

    def check(self, examples: Examples) -> None:
        """Refuse a module that has changed since it was captured, or whose graph is another one in
        the mode it is in now."""
        source = self.captured.source
        if self.snapshot is None or not isinstance(source, nn.Module):
            return
        if self.snapshot.holds(source):
            return
        now = Snapshot.of(source)
        self.snapshot.check(now)
        if now.modes == self.snapshot.modes or now.modes in self.same_in:
            return
        if not self._computes_the_same(examples):
            raise ArgumentError(self._changed(now.modes, self.snapshot.modes))
        self.same_in.append(now.modes)

    def _computes_the_same(self, examples: Examples) -> bool:
        graph = self.captured.graph
        batched = None if graph.batched else False
        try:
            now = Captured.of(self.captured.source, examples, batched)
        except BoundlabError:
            return False
        return now.graph.computes(graph)

    def _changed(self, now: Mapping[str, bool], before: Mapping[str, bool]) -> str:
        """Which part is in another mode, and what to do."""
        path = next(path for path, mode in now.items() if mode != before[path])
        mode, back = ("train", "eval") if now[path] else ("eval", "train")
        return (
            "the module was captured in another mode: "
            f"'{path or type(self.captured.source).__name__}' is in {mode} mode now. Capture it "
            f"again, or put it back with model.{back}()"
        )
