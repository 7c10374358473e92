"""Transposes on rows that vanish outside a window (:mod:`boundlab.coefficients.window`), for the
operators where that pays.

Each function takes the call and returns ``rows -> rows of every perturbed argument``, or None. Like
the dense transposes they are a matter of speed only; tests compare them with these. All nodes
involved have their samples in dimension 0, so dimension d of an operator is dimension d - 1 of a
window."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from boundlab.coefficients.placement import Placement, Run, unravel
from boundlab.coefficients.window import Window
from boundlab.relaxations.interval import Interval
from boundlab.rules.convolutions import Convolution
from boundlab.rules.facts import WindowTranspose
from boundlab.rules.registry import Call
from boundlab.rules.settings import dimensions, each
from boundlab.rules.transposes import constant_factor, summed_factors


def _pass(*factors: float) -> WindowTranspose:
    """Every argument gets the rows as they are, times a number."""
    return lambda rows: [_scaled(rows, factor) for factor in factors]


def _scaled(rows: Window, factor: float) -> Window:
    if factor == 1:
        return rows
    return rows.with_values(rows.values * factor)


# -- elementwise -----------------------------------------------------------------------------------


def add(sign: int) -> Callable[[Call], WindowTranspose | None]:
    def make(call: Call) -> WindowTranspose | None:
        x, y = call["self"], call["other"]
        shapes = [v.shape for v in (x, y) if isinstance(v, (Interval, Tensor))]
        shape = torch.broadcast_shapes(*shapes)
        if any(v.shape != shape for v in call.inputs):
            return None
        return _pass(*summed_factors(call, sign))

    return make


def multiply(call: Call) -> WindowTranspose | None:
    constant, shape = constant_factor(call), call.inputs[0].shape
    if not isinstance(constant, Tensor):
        return _pass(constant)
    if torch.broadcast_shapes(constant.shape, shape) != shape:
        return None
    return lambda rows: [rows.scaled(constant)]


def negate(call: Call) -> WindowTranspose | None:
    return _pass(-1)


# -- shapes ----------------------------------------------------------------------------------------


def reshape(call: Call) -> WindowTranspose | None:
    (x,) = call.inputs
    if not x.shape.numel():
        return None
    return lambda rows: [_reshaped(rows, x.shape[1:])]


def _reshaped(rows: Window, shape: Sequence[int]) -> Window:
    """The same elements in another shape of one sample."""
    for old, new in _groups(rows.places.shape, shape):
        if not _contiguous(rows.places, old, new):
            rows = rows.covering(old)
    sizes: list[int] = []
    runs: list[Run | None] = []
    for old, new in _groups(rows.places.shape, shape):
        part, whole = [shape[d] for d in new], [rows.places.shape[d] for d in old]
        if all(rows.places.runs[d] is None for d in old):
            sizes, runs = sizes + part, runs + [None] * len(new)
            continue
        length = math.prod(rows.places.sizes[d] for d in old)
        begin = torch.zeros(rows.values.shape[:2], dtype=torch.long, device=rows.values.device)
        for i, d in enumerate(old):
            run = rows.places.runs[d]
            if run is not None:
                begin = begin + run.start * math.prod(whole[i + 1 :])
        if len(new) == 1:  # windows of this length cannot begin later than that
            sizes.append(length)
            runs.append(Run(begin, part[0] - length + 1))
        else:
            sizes += [1] * len(new)
            runs += unravel(begin, part)
    return Window(
        rows.values.reshape(*rows.values.shape[:2], *sizes),
        Placement(tuple(shape), tuple(sizes), tuple(runs)),
        rows.clean,
    )


def _contiguous(places: Placement, old: list[int], new: list[int]) -> bool:
    """Whether a window is one run of elements that the new dimensions can hold: whole, a single
    element, or (for one new dimension) single elements, then one window inside the node, then whole
    dimensions."""
    overhangs = any(any(places.overhang[d]) for d in old)
    whole = all(places.runs[d] is None for d in old)
    single = all(places.sizes[d] == 1 for d in old)
    if whole or (single and not overhangs):
        return True
    if len(new) != 1 or overhangs:
        return False
    moving = [i for i, d in enumerate(old) if places.runs[d] is not None]
    return all(places.sizes[d] == 1 for d in old[: moving[-1]])


def _groups(old: Sequence[int], new: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """The shortest runs of dimensions of both shapes that hold the same elements."""
    found: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(old) or j < len(new):
        m, n = _same_elements(old[i:], new[j:])
        left, right = list(range(i, i + m)), list(range(j, j + n))
        i, j = i + m, j + n
        if (left and right) or not found:
            found.append((left, right))
        else:  # dimensions of size 1 at the end
            found[-1][0].extend(left)
            found[-1][1].extend(right)
    return found


def _same_elements(old: Sequence[int], new: Sequence[int]) -> tuple[int, int]:
    """How many of the first dimensions of either shape hold the same elements; the fewest, but at
    least one."""
    m = n = 0
    a = b = 1
    while (m, n) == (0, 0) or a != b:
        if (a <= b and m < len(old)) or n == len(new):
            a, m = a * old[m], m + 1
        else:
            b, n = b * new[n], n + 1
    return m, n


def _permuted(rows: Window, order: Sequence[int]) -> Window:
    """``order``: for each dimension of the argument, the dimension of the result that holds it."""
    pick = lambda values: tuple(values[d] for d in order)
    p = rows.places
    return Window(
        rows.values.permute(0, 1, *[d + 2 for d in order]),
        Placement(pick(p.shape), pick(p.sizes), pick(p.runs)),
        rows.clean,
    )


def permute(call: Call) -> WindowTranspose | None:
    dims = len(call["self"].shape)
    order = [d % dims for d in call["dims"]]
    if order[0] != 0:
        return None
    inverse = [order.index(d) - 1 for d in range(1, dims)]
    return lambda rows: [_permuted(rows, inverse)]


def swap(call: Call) -> WindowTranspose | None:
    order = list(range(len(call["self"].shape)))
    first, second = call["dim0"] % len(order), call["dim1"] % len(order)
    order[first], order[second] = second, first
    if order[0] != 0:
        return None
    return lambda rows: [_permuted(rows, [d - 1 for d in order[1:]])]


def total(mean: bool) -> Callable[[Call], WindowTranspose | None]:
    """sum and mean: every element that is summed over gets the coefficient of the sum."""
    return lambda call: _total(call, mean)


def _total(call: Call, mean: bool) -> WindowTranspose | None:
    x, keep = call["self"], call.get("keepdim", False)
    if call["dtype"] not in (None, x.dtype):
        return None
    dims = [d - 1 for d in dimensions(call.get("dim"), len(x.shape))]
    if -1 in dims:  # the samples too
        return None
    shape = tuple(x.shape[1:])
    count = 1
    if mean:
        count = math.prod(shape[d] for d in dims)

    def transpose(rows: Window) -> list[Window]:
        values = rows.values
        sizes, runs = list(rows.places.sizes), list(rows.places.runs)
        for d in dims:
            if keep:
                sizes[d], runs[d] = shape[d], None
            else:
                values = values.unsqueeze(d + 2)
                sizes.insert(d, shape[d])
                runs.insert(d, None)
        if count > 1:
            values = values / count
        values = values.expand(*values.shape[:2], *sizes)
        return [Window(values, Placement(shape, tuple(sizes), tuple(runs)))]

    return transpose


# -- matrices and convolutions ---------------------------------------------------------------------


def linear(call: Call) -> WindowTranspose | None:
    x, weight = call["input"], call["weight"]
    alone = isinstance(x, Interval) and len(call.positions) == 1
    if not alone or weight.dim() != 2:
        return None
    return lambda rows: [_times(rows, weight, tuple(x.shape[1:]))]


def _times(rows: Window, weight: Tensor, shape: tuple[int, ...]) -> Window:
    """The last dimension times a matrix (here, there)."""
    p = rows.places
    run = p.runs[-1]
    if run is not None and p.sizes[-1] == 1:
        some = slice(None)
        if run.index.stride(1) == rows.values.stride(1) == 0:  # the same for all samples
            some = slice(1)
        picked = weight[run.start[:, some]]  # (rows, samples, there)
        picked = picked.reshape(*picked.shape[:2], *[1] * (len(shape) - 1), -1)
        values = rows.values[:, some] * picked
        values = values.expand(-1, rows.values.shape[1], *values.shape[2:])
    else:
        values = torch.matmul(rows.covering([len(shape) - 1]).values, weight)
    places = Placement(shape, (*p.sizes[:-1], shape[-1]), (*p.runs[:-1], None))
    return Window(values, places, rows.clean)


def matmul(call: Call) -> WindowTranspose | None:
    """A perturbed value times a constant matrix."""
    x, y = call["self"], call["other"]
    if not isinstance(x, Interval) or isinstance(y, Interval) or y.dim() != 2 or len(x.shape) < 2:
        return None
    return lambda rows: [_times(rows, y.T, tuple(x.shape[1:]))]


def convolution(dims: int) -> Callable[[Call], WindowTranspose | None]:
    return lambda call: _convolution(Convolution.of(call, dims))


def average(dims: int) -> Callable[[Call], WindowTranspose | None]:
    return lambda call: _average(call, dims)


def _convolution(setting: Convolution | None) -> WindowTranspose | None:
    if setting is None:
        return None
    weight, dims = setting.weight, len(setting.stride)
    shape = tuple(setting.shape)

    def transpose(rows: Window) -> list[Window]:
        p, groups = rows.places, setting.groups
        channel = p.runs[0]
        channels = None
        # one element: a row of the weight
        if channel is not None and math.prod(p.sizes) == 1 and set(setting.dilation) == {1}:
            values = weight[channel.start] * rows.values
            if groups > 1:
                each = weight.shape[0] // groups
                channels = Run(channel.start // each, groups, 0, weight.shape[1])
        else:
            together = rows.covering([0]).values.flatten(0, 1)
            values = setting.back(together, whole=False).unflatten(0, rows.values.shape[:2])
        sizes = list(values.shape[2:])
        runs: list[Run | None] = [channels]
        settings = zip(p.runs[1:], setting.stride, setting.padding, strict=True)
        for d, (run, stride, pad) in enumerate(settings, start=1):
            if run is not None:
                runs.append(run.through(stride, pad))
            else:  # the whole result: cut to the whole argument
                values = F.pad(values, [0, 0] * (dims - d) + [-pad, shape[d] + pad - sizes[d]])
                sizes[d] = shape[d]
                runs.append(None)
        places = Placement(shape, tuple(sizes), tuple(runs))
        return [Window(values, places, clean=not any(setting.padding))]

    return transpose


def _average(call: Call, dims: int) -> WindowTranspose | None:
    """Average pooling that divides by the same number everywhere: a convolution of each channel
    with equal weights."""
    x = call["self"]
    sizes, padding = each(call["kernel_size"], dims), each(call["padding"], dims)
    smaller_at_ends = call["ceil_mode"] or (any(padding) and not call["count_include_pad"])
    if smaller_at_ends or call.get("divisor_override") or len(x.shape) != dims + 2:
        return None
    channels, share = x.shape[1], 1 / math.prod(sizes)
    weight = torch.full((channels, 1, *sizes), share, dtype=x.dtype, device=x.device)
    stride = each(call["stride"] or sizes, dims)
    return _convolution(Convolution(weight, stride, padding, [1] * dims, channels, x.shape[1:]))


# -- parts -----------------------------------------------------------------------------------------


def concatenate(call: Call) -> WindowTranspose | None:
    """Every argument gets the part of the rows along ``dim`` that it made."""
    values, dims = call["tensors"], len(call.inputs[0].shape)
    dim = call["dim"] % dims - 1
    if dim < 0 or any(len(value.shape) != dims for value in values):
        return None

    def transpose(rows: Window) -> list[Window]:
        rows = rows.covering([dim])
        found, begin = [], 0
        for value in values:
            size = value.shape[dim + 1]
            if isinstance(value, Interval):
                sizes = _with(rows.places.sizes, dim, size)
                places = Placement(tuple(value.shape[1:]), sizes, rows.places.runs)
                found.append(Window(rows.values.narrow(dim + 2, begin, size), places, rows.clean))
            begin += size
        return found

    return transpose


def slice_(call: Call) -> WindowTranspose | None:
    x = call["self"]
    dim = call["dim"] % len(x.shape) - 1
    whole = x.shape[dim + 1]
    begin, end, step = slice(call["start"], call["end"], call["step"]).indices(whole)
    if dim >= 0 and step == 1:
        return lambda rows: [_placed(rows, dim, begin, tuple(x.shape[1:]))]
    if dim < 0 and (begin, end, step) == (0, whole, 1):  # all samples
        return _pass(1)
    return None


def select(call: Call) -> WindowTranspose | None:
    x, index = call["self"], call["index"]
    dim = call["dim"] % len(x.shape) - 1
    if dim < 0:
        return None
    shape = tuple(x.shape[1:])

    def transpose(rows: Window) -> list[Window]:
        p = rows.places
        insert = lambda old, new: (*old[:dim], new, *old[dim:])
        thin = Placement(insert(p.shape, 1), insert(p.sizes, 1), insert(p.runs, None))
        part = Window(rows.values.unsqueeze(dim + 2), thin, rows.clean)
        return [_placed(part, dim, index % shape[dim], shape)]

    return transpose


def _placed(rows: Window, dim: int, begin: int, shape: tuple[int, ...]) -> Window:
    """Rows of a part of a node, which begins at ``begin`` along ``dim``, as rows of the whole."""
    p = rows.places
    run = p.runs[dim]
    if run is None:  # the window is the whole part
        values = rows.values
        run = Run(torch.zeros(values.shape[:2], dtype=torch.long, device=values.device), 1)
    if any(p.overhang[dim]):  # what sticks out of the part may lie inside the whole
        rows = rows.zero_padded()
    runs = _with(p.runs, dim, replace(run, first=run.first + begin))
    return Window(rows.values, Placement(shape, p.sizes, runs), rows.clean)


Entry = TypeVar("Entry")


def _with(old: tuple[Entry, ...], place: int, new: Entry) -> tuple[Entry, ...]:
    """The same entries, but another one in one place."""
    return (*old[:place], new, *old[place + 1 :])
