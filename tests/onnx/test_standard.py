"""Every row against the examples that the ONNX standard gives for its operator: inputs, attributes
and the outputs that they must have (they ship with the onnx package)."""

from __future__ import annotations

import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx import ModelProto, numpy_helper
from torch import Tensor

import boundlab as bl
from boundlab.errors import BoundlabError
from boundlab.onnx.table import ROWS, find_row

REFUSED = {
    "free": "sizes other than the first are free",
    "training": "the batch norm or dropout of training",
    "type": "types that torch lacks, or lacks arithmetic for",
    "cache": "the keys and values of earlier calls, and windows, of Attention",
    "argmax": "the indices of MaxPool",
    "several": "extrapolation along several axes",
    "axes": "Col2Im of other than two axes",
    "known": "results whose size depends on values",
    "structure": "sequences and optional values",
    "empty": "inputs with zero elements, which sizes 0 declare as free",
}
CASES = {
    "test_attention": "cache", "test_batchnorm": "training", "test_training": "training",
    "test_col2im_5d": "axes", "test_maxpool_with_argmax": "argmax", "test_nonzero": "known",
    "test_quantizelinear_blocked_symmetric": "type",
    "test_resize_tf_crop_and_resize_extrapolation_value": "several",
    "test_identity_sequence": "structure", "test_identity_opt": "structure",
    "test_cast": "type", "test_quantizelinear": "type", "test_dequantizelinear": "type",
    "test_reduce": "free", "test_tril_zero": "free", "test_triu_zero": "free",
    "test_reshape_allowzero_reordered": "empty", "test_split_zero_size": "empty",
    "test_equal_string": "type", "test_bitwise_not_3d": "type",
}  # fmt: skip
"""Beginnings of names of examples that may be refused, with the reason."""
OTHERS = (
    "test_resize_downsample_scales_linear_align_corners",
    "test_resize_downsample_scales_cubic_align_corners",
)
"""Examples that onnxruntime does not follow either: see boundlab.onnx.rows.resizing."""
WIDE = ("uint16", "uint32", "uint64", "bfloat16", "bf16", "float8", "int4", "int2", "float4")
"""Types for which torch has no arithmetic, or numpy no type."""
NUMBERS_ONLY = {"Range": (0, 1, 2), "OneHot": (1, 2)}
"""Inputs of which results have their sizes."""


@lru_cache
def examples() -> dict[str, list[Any]]:
    """Examples of one node, by operator."""
    from onnx.backend.test.case.node import collect_testcases

    found: dict[str, list[Any]] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in collect_testcases(None):
            nodes = case.model.graph.node
            if len(nodes) == 1 and not any(word in case.name.lower() for word in WIDE):
                found.setdefault(nodes[0].op_type, []).append(case)
    return found


def with_constants(case: Any) -> tuple[ModelProto, dict[str, np.ndarray]]:
    """The example's model with what must be known as constants, and its other inputs."""
    model = ModelProto()
    model.CopyFrom(case.model)
    (node,) = model.graph.node
    row = find_row(node.op_type, model.opset_import[0].version)
    given = dict(zip([one.name for one in model.graph.input], case.data_sets[0][0], strict=True))
    places = row.places(len(node.input))
    for number, (place, name) in enumerate(zip(places, node.input, strict=True)):
        numbers = place.kind in ("number", "numbers") or number in NUMBERS_ONLY.get(row.name, ())
        if numbers and name in given:
            array = np.asarray(given.pop(name))
            model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model, given


def outputs(case: Any, folder: Path) -> list[Tensor]:
    model, given = with_constants(case)
    path = folder / "net.onnx"
    path.write_bytes(model.SerializeToString())
    net = bl.load_onnx(path)
    inputs = [torch.from_numpy(np.array(given[one.name])) for one in net.inputs]
    with torch.no_grad():
        if not inputs:
            return list(net._run([]))
        found = net(*inputs)
    return list(found.values()) if isinstance(found, dict) else [found]


def may_be_refused(name: str) -> bool:
    return any(name.startswith(start) for start in CASES)


@pytest.mark.parametrize("operator", sorted(set(ROWS)))
def test_examples(operator: str, tmp_path: Path) -> None:
    for case in examples().get(operator, []):
        if case.name in OTHERS:
            continue
        try:
            found = outputs(case, tmp_path)
        except (BoundlabError, NotImplementedError, TypeError):
            assert may_be_refused(case.name), case.name
            continue
        wanted = [np.asarray(one) for one in case.data_sets[0][1]]
        for ours, theirs in zip(found, wanted, strict=False):
            if theirs.dtype == object:  # a tensor of the standard's own making
                theirs = numpy_helper.to_array(theirs.item())
            half = theirs.dtype == np.float16
            assert ours.numpy().dtype == theirs.dtype, case.name
            np.testing.assert_allclose(
                ours.numpy().reshape(theirs.shape),
                theirs,
                rtol=2e-3 if half else case.rtol,
                atol=1e-3 if half else 1e-5,
                err_msg=case.name,
            )


def test_most_operators_have_examples() -> None:
    have = [name for name in ROWS if examples().get(name)]
    assert len(have) >= 0.95 * len(ROWS)
