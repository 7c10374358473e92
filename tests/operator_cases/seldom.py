"""Operators that one must call by their own names, and values without a batch."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from tests.operator_cases.case import add


def fill() -> None:
    aten = torch.ops.aten
    add((6,), {
        "_softmax": lambda x: aten._softmax(x, 1, False),
        "_log_softmax": lambda x: aten._log_softmax(x, 1, False),
        "_safe_softmax": lambda x: aten._safe_softmax(x, 1),
        "_unsafe_view": lambda x: aten._unsafe_view(x, [x.shape[0], 2, 3]),
        "alias": lambda x: aten.alias(x) * 2,
        "constant_pad_nd": lambda x: aten.constant_pad_nd(x, [1, 2], 2.5),
        "bitwise": lambda x: torch.where(torch.bitwise_and(x > 0, torch.bitwise_not(x > 1)), x, 0.5),
        "bitwise_or, bitwise_xor": lambda x: torch.where(torch.bitwise_or(x > 1, torch.bitwise_xor(x > -1, x > 0)), x, 0.5),
        "comparisons by other names": lambda x: (torch.greater(x, 0.1).to(x.dtype) + torch.greater_equal(x, x.flip(1)).to(x.dtype) * 2
                                                 + torch.less(x, 0.2).to(x.dtype) * 4 + torch.less_equal(x, -0.1).to(x.dtype) * 8),
        "fix": torch.fix,
        "rounded to a shorter type": lambda x: x.to(torch.bfloat16).to(x.dtype) * 2,
        "cut off": lambda x: (7 * x).to(torch.int32).to(x.dtype) * 2,
        "log_sigmoid_forward": lambda x: aten.log_sigmoid_forward(x)[0],
        "flipud, vstack, t": lambda x: torch.vstack([torch.flipud(x.t()), -x.t()]).t(),
        "diagonal_scatter": lambda x: torch.diagonal_scatter(x[:, :4].reshape(-1, 2, 2), x[:, 4:], 0, 1, 2),
        "norm.ScalarOpt_dim": lambda x: aten.norm.ScalarOpt_dim(x, 3, [1]),
        "clamp_min.Tensor": (lambda x, w: aten.clamp_min(x, w), (6,)),
        "div by a number": lambda x: aten.div.Scalar(x, 2.5) + aten.true_divide.Scalar(x, -2.0),
        "div by other names": (lambda x, w: torch.divide(x, w.abs() + 1) + torch.divide(x, 2.5, rounding_mode="floor"), (6,)),
        "div.Scalar_mode": lambda x: aten.div.Scalar_mode(x, 2.5, rounding_mode="trunc"),
        "divide.Scalar_mode": lambda x: aten.divide.Scalar_mode(x, 2.5, rounding_mode="trunc"),
        "nll_loss by its own name": (lambda x, y: aten.nll_loss(x, y.expand(x.shape[0]), None, 0, -100), torch.tensor([2])),
    })  # fmt: skip
    add((2, 7), {
        "_pad_circular": lambda x: aten._pad_circular(x, [2, 1]),
        "reflection_pad1d": lambda x: aten.reflection_pad1d(x, [2, 1]),
        "replication_pad1d": lambda x: aten.replication_pad1d(x, [2, 1]),
        "convolution": (lambda x, w, b: aten.convolution(x, w, b, [2], [1], [2], False, [0], 1), (3, 2, 2), (3,)),
        "convolution, transposed": (lambda x, w: aten.convolution(x, w, None, [2], [1], [1], True, [1], 1), (2, 3, 2)),
    })  # fmt: skip
    add((2, 5, 5), {
        "_adaptive_avg_pool2d": lambda x: aten._adaptive_avg_pool2d(x, [2, 3]),
        "reflection_pad2d": lambda x: aten.reflection_pad2d(x, [2, 1, 0, 3]),
        "replication_pad2d": lambda x: aten.replication_pad2d(x, [2, 1, 0, 3]),
    })  # fmt: skip
    add((2, 3, 3, 3), {
        "_adaptive_avg_pool3d": lambda x: aten._adaptive_avg_pool3d(x, [2, 3, 1]),
        "reflection_pad3d": lambda x: aten.reflection_pad3d(x, [2, 1, 0, 1, 0, 0]),
        "replication_pad3d": lambda x: aten.replication_pad3d(x, [2, 1, 0, 1, 0, 0]),
    })  # fmt: skip
    add((3, 3), {
        "whole, argmax": lambda x: torch.argmax(x).to(x.dtype) + torch.argmin(x, 0).to(x.dtype),
        "whole, var_mean": lambda x: torch.stack([*torch.ops.aten.var_mean.default(x), *torch.ops.aten.std_mean.default(x, False)]),
        "whole, dot": lambda x: torch.dot(x[0], x[1]),
        "whole, vdot": lambda x: torch.vdot(x[0], x[1]),
        "whole, weight_norm": (lambda x, g: torch._weight_norm(x + 5, g, 0), (3, 1)),
        "whole, outer": lambda x: torch.outer(x[0], x[1]),
        "whole, outer with a constant": (lambda x, w: torch.outer(x[0], w) + torch.outer(w, x[1]), (3,)),
        "whole, inner": lambda x: torch.inner(x, x[0]) + torch.inner(x[1], x[2]),
        "whole, inner of matrices": lambda x: torch.inner(x, x.flip(1)),
        "whole, matmul": lambda x: x @ x + x @ x[0] + x[1] @ x,
        "whole, linear": lambda x: torch.nn.functional.linear(x, x, x[0]),
        "whole, diag": lambda x: torch.diag(x) + torch.diag(torch.diag(x), 1)[0, 1:],
        "whole, trace": torch.trace,
        "whole, take": (lambda x, i: torch.take(x, i), torch.tensor([[0, 5], [5, 8]])),
        "whole, max": lambda x: x.max() - x.min(),
        "whole, std": lambda x: x.std() + x.var(),
        "whole, norm": lambda x: x.norm() + torch.ops.aten.norm.Scalar(x, 3) + torch.linalg.norm(x),
        "whole, sums": lambda x: x.sum() + x.mean() + x.logsumexp((0, 1)),
        "whole, losses": (lambda x, y: F.cross_entropy(x, y) + F.nll_loss(x, y, reduction="sum") + F.mse_loss(x, x.t()), torch.tensor([0, 2, 1])),
        "whole, cross_entropy": (lambda x, y, w: F.cross_entropy(x, y, w, label_smoothing=0.1, ignore_index=1), torch.tensor([0, 2, 1]), (3,)),
        "whole, einsum": lambda x: torch.einsum("ij,jk->ki", x, x),
        "whole, einsum outer": lambda x: torch.einsum("i,j->ij", x[0], x[1]),
        "whole, masked_select": (lambda x, m: torch.masked_select(x, m), torch.eye(3, dtype=torch.bool)),
        "whole, softmax": lambda x: x.softmax(0),
    }, batched=False)  # fmt: skip
