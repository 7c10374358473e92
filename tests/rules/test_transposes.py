"""Closed forms of transposes give what autograd gives."""

from __future__ import annotations

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from boundlab.rules.convolutions import Convolution, Phases


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize(
    ("groups", "stride", "padding", "dilation"),
    [(1, 2, 1, 1), (1, 3, 0, 1), (1, 2, 1, 2), (2, 2, 1, 1)],
)
def test_many_small_windows_through_one_matrix(
    groups: int, stride: int, padding: int, dilation: int, whole: bool
) -> None:
    """Many rows take one product with the matrix of the transpose, few take a convolution."""
    torch.manual_seed(0)
    conv = nn.Conv2d(2, 4, 3, stride, padding, dilation, groups, dtype=torch.float64)
    setting = Convolution(
        conv.weight, [stride] * 2, [padding] * 2, [dilation] * 2, groups, torch.Size((2, 9, 8))
    )
    shape = (
        conv(torch.zeros(1, 2, 9, 8, dtype=torch.float64)).shape[1:]
        if whole
        else torch.Size((4, 2, 2))
    )
    rows = torch.randn(4 * shape.numel(), *shape, dtype=torch.float64, requires_grad=True)
    one_by_one = torch.cat([setting.back(row, whole) for row in rows.split(1)])
    at_once = setting.back(rows, whole)
    torch.testing.assert_close(at_once, one_by_one)
    weights = torch.randn_like(at_once)
    first, second = (
        torch.autograd.grad((found * weights).sum(), [rows, conv.weight])
        for found in (at_once, one_by_one)
    )
    torch.testing.assert_close(first, second)


@settings(deadline=None)
@given(st.data(), st.integers(1, 3), st.integers(1, 6), st.integers(0, 99))
def test_strides_by_phases(data: st.DataObject, dims: int, into: int, seed: int) -> None:
    """With and without gradient, few channels and more."""
    some = lambda least, most: data.draw(
        st.lists(st.integers(least, most), min_size=dims, max_size=dims)
    )
    kernel, stride, padding, size = some(1, 4), some(1, 4), some(0, 2), some(1, 7)
    assume(all(n + 2 * pad >= k for n, pad, k in zip(size, padding, kernel, strict=True)))
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(3, into, *kernel, generator=generator, dtype=torch.float64)
    x = torch.zeros(2, into, *size, dtype=torch.float64, requires_grad=True)
    y = (F.conv1d, F.conv2d, F.conv3d)[dims - 1](x, weight, None, stride, padding)
    rows = torch.randn(y.shape, generator=generator, dtype=torch.float64)
    (expected,) = torch.autograd.grad(y, x, rows)
    phases = Phases(weight, stride)
    for some_rows in (rows, rows.clone().requires_grad_()):
        torch.testing.assert_close(phases.back(some_rows, padding, size), expected)
