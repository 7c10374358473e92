"""Is every registered operator attacked?"""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from boundlab.rules.registry import COMPOSITIONS, aten
from tests.helpers.registry import built_in_operators
from tests.helpers.weighted import PARAMETERS, WORDS
from tests.operator_cases import CASES
from tests.operator_cases.bundles import GROUPS, Bundle, centre

VALUES: dict[Any, tuple[Any, ...]] = {
    aten._native_batch_norm_legit.no_stats: (
        torch.randn(4, 3),
        torch.rand(3),
        torch.rand(3),
        True,
        0.1,
        1e-5,
    ),
    aten.batch_norm.default: (
        torch.randn(4, 3),
        torch.rand(3),
        torch.rand(3),
        torch.rand(3),
        torch.rand(3),
        False,
        0.1,
        1e-5,
        False,
    ),
    aten.floor_divide.default: (torch.tensor([49.0, 98.0, -3.0, 7.5]), 49.0),
    aten.std.default: (torch.randn(4, 3),),
    aten.var.default: (torch.randn(4, 3), False),
    aten.embedding.default: (torch.randn(5, 3), WORDS),
}
"""Compositions that no case reaches -> arguments for which they must equal their operator."""


NO_CASE = {
    "torch.export takes it apart": (
        "atleast_1d atleast_2d broadcast_to broadcast_tensors chunk expand_as flatten "
        "hardshrink mT movedim narrow numpy_T ravel reshape_as softshrink "
        "swapaxes tensor_split to unflatten view_as"
    ),
    "it only copies, and torch.export leaves it out": (
        "alpha_dropout contiguous detach dropout feature_alpha_dropout feature_dropout "
        "lift_fresh_copy positive"
    ),
    "compositions and capture make it": (
        "clean cut_off grid_sampler_2d grid_sampler_3d nan_to_num_of_inputs reshape rounded "
        "rounded_in_place smooth_abs softmax_of_numbers softsign tanhshrink within"
    ),
    "what takes the place of NaN counts even at a point: a regression test": "nan_to_num",
    "train mode: tested with whole networks": "_native_batch_norm_legit_functional.default",
}
"""Registered operators that no exported case contains, with the reason."""


@pytest.mark.parametrize("op", VALUES, ids=str)
def test_composition_equals_its_operator(op: Any) -> None:
    expected = op(*VALUES[op])
    found = COMPOSITIONS[op](*VALUES[op])
    for a, b in zip(pytree.tree_leaves(found), pytree.tree_leaves(expected), strict=True):
        if b.numel() and a.shape == b.shape:
            torch.testing.assert_close(a, b)
    torch.testing.assert_close(pytree.tree_leaves(found)[0], pytree.tree_leaves(expected)[0])


def test_every_registered_operator_is_tested() -> None:
    """Operators are looked for in the exported cases, before compositions are taken apart."""
    seen: set[Any] = set(VALUES)
    models = [
        (Bundle(names, torch.float32), (centre(CASES[names[0]], torch.float32),))
        for names in set(GROUPS.values())
    ]
    models += [(PARAMETERS[name][0], (torch.zeros(4, 3),)) for name in ("outer", "dot", "inner")]
    for model, inputs in models:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of its own constants while it exports
            program = torch.export.export(model, inputs).run_decompositions({})
        seen |= {node.target for node in program.graph.nodes}
    seen |= {getattr(op, "overloadpacket", op) for op in seen}
    excused = {name for names in NO_CASE.values() for name in names.split()}
    missing = {_short(op) for op in built_in_operators() if op not in seen} - excused
    assert not missing, f"operators without a case: {sorted(missing)}"


def _short(op: Any) -> str:
    return (
        str(op).removeprefix("aten.")
        if hasattr(op, "overloads") or hasattr(op, "overloadpacket")
        else op.__name__
    )
