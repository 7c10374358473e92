"""Order statistics."""

from __future__ import annotations

import torch

from tests.operator_cases.case import add


def fill() -> None:
    add((5,), {
        "sort": lambda x: x.sort(1).values,
        "sort, descending": lambda x: x.sort(-1, descending=True)[0],
        "sort, stable": lambda x: torch.sort(x, dim=1, stable=True).values * 2,
        "sort, differences": lambda x: x.sort(1).values.diff(dim=1),
        "sort, weighted": (lambda x, w: x.sort(1).values @ w, (5, 2)),
        "sort, of one": lambda x: x[:, :1].sort(1).values,
        "sort, places": lambda x: x.sort(1).indices.to(x.dtype),
        "argsort": lambda x: x.argsort(1, descending=True).to(x.dtype) + x.argsort(dim=1, stable=True).to(x.dtype),
        "topk": lambda x: x.topk(2).values,
        "topk, smallest": lambda x: x.topk(3, 1, largest=False)[0],
        "topk, places": lambda x: x.topk(1).indices.to(x.dtype) * 0.5,
        "kthvalue": lambda x: x.kthvalue(2).values,
        "kthvalue, keepdim": lambda x: x.kthvalue(4, 1, keepdim=True).values,
        "median": lambda x: x.median(1).values,
        "median of an even number": lambda x: x[:, :4].median(1, keepdim=True).values,
        "median of layers": lambda x: torch.relu(x).median(1).values - torch.tanh(2 * x).median(1).values,
        "quantile": lambda x: x.quantile(0.3, 1),
        "quantile, keepdim": lambda x: x.quantile(0.8, -1, keepdim=True),
        "quantile, ends": lambda x: x.quantile(1.0, 1) - x.quantile(0.0, 1),
        "quantile, nearest": lambda x: x.quantile(0.3, 1, interpolation="nearest"),
        "quantile, lower and higher": lambda x: x.quantile(0.3, 1, interpolation="lower") - 2 * x.quantile(0.6, 1, interpolation="higher"),
        "quantile, midpoint": lambda x: x.quantile(0.3, 1, interpolation="midpoint"),
        "trimmed mean": lambda x: x.sort(1).values[:, 1:-1].mean(1),
    })  # fmt: skip
    add((4, 3), {
        "sort, middle dimension": lambda x: x.sort(1, descending=True).values,
        "sort, last of three": lambda x: x.sort(-1).values - x,
        "topk, middle dimension": lambda x: x.topk(2, 1).values,
        "median, middle dimension": lambda x: x.median(1).values,
        "quantile, middle dimension": lambda x: x.quantile(0.4, 1, keepdim=True),
    })  # fmt: skip
    add((3, 3), {
        "whole, msort": torch.msort,
        "whole, median": torch.median,
        "whole, quantile": lambda x: torch.quantile(x, 0.35),
        "whole, quantile, keepdim": lambda x: torch.quantile(x, 0.35, keepdim=True),
        "whole, quantiles": (lambda x, q: torch.quantile(x, q, dim=1), torch.tensor([0.1, 0.5, 0.9])),
        "whole, quantiles, keepdim": (lambda x, q: torch.quantile(x, q, 0, keepdim=True), torch.tensor([0.1, 0.5])),
        "whole, argsort": lambda x: torch.argsort(x).to(x.dtype),
        "whole, numbers": lambda x: x[0, 0].sort().values + x[0, 1].median() + x[1, 1].kthvalue(1).values + x[2, 2].topk(1).values,
    }, batched=False)  # fmt: skip
