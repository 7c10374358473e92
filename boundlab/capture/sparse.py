"""Products with sparse matrices, whose rules are those of dense ones."""

from __future__ import annotations

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram

from boundlab.errors import CaptureError
from boundlab.rules.registry import aten

PRODUCTS = frozenset(
    (aten.matmul.default, aten.mm.default, aten.mv.default, aten.addmm.default, aten.addmv.default)
)
"""Operators that take sparse matrices for dense ones."""
UNREGISTERED = (
    "the model holds a sparse matrix that torch.export cannot keep: make it a buffer of the module "
    "(register_buffer), or a dense matrix (to_dense)."
)
SPARSE_WORDS = ("SparseTensorImpl", "Sparse CSR", "Sparse CSC", "Sparse BSR", "Sparse BSC")
"""What torch says where it cannot go on with a sparse tensor."""


def with_dense_factors(program: ExportedProgram) -> None:
    """Write a program so that products find dense matrices: sparse ones become dense before
    them."""
    if any(isinstance(value, Tensor) and _is_sparse(value) for value in program.constants.values()):
        raise CaptureError(UNREGISTERED)
    for node in list(program.graph.nodes):
        if node.target in PRODUCTS:
            for source in node.all_input_nodes:
                if _is_sparse(source.meta.get("val")):
                    _insert(program.graph, source, node)


def _insert(graph: fx.Graph, source: fx.Node, reader: fx.Node) -> None:
    with graph.inserting_before(reader):
        dense = graph.call_function(aten.to_dense.default, (source,))
    dense.meta = {**reader.meta, "val": source.meta["val"].to_dense()}
    reader.replace_input_with(source, dense)


def _is_sparse(value: object) -> bool:
    return isinstance(value, Tensor) and value.layout is not torch.strided
