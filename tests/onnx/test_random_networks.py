"""Random networks of ONNX operators: as onnxruntime computes them, one sample alone and several at
once. ``python -m tests.onnx.test_random_networks --count 2000`` tries more."""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from onnx import ModelProto

import boundlab as bl
from tests.helpers.onnx_files import model, node, written

SAMPLES = 7
SMALL = 60
"""Networks of the ordinary run."""
OPSETS = (7, 9, 11, 13, 15, 17, 18, 21)

UNARY = (
    "Abs", "Neg", "Relu", "Sigmoid", "Tanh", "Sin", "Cos", "Exp", "Softplus", "Softsign", "Elu",
    "LeakyRelu", "Selu", "Atan", "Floor", "Ceil", "Sign", "Erf", "Identity", "HardSigmoid",
)  # fmt: skip
REDUCTIONS = ("ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceSumSquare")


@dataclass
class Writer:
    """A network that is being written: shapes are those of one sample. ``value`` is the last."""

    generator: np.random.Generator
    opset: int
    shape: list[int]
    nodes: list[Any] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    value: str = "x"

    def pick(self, *options: Any) -> Any:
        return options[self.generator.integers(len(options))]

    def axis(self, first: int = 0) -> int:
        place = int(self.generator.integers(first, len(self.shape)))
        return place - len(self.shape) if self.opset >= 11 and self.pick(True, False) else place

    def constant(self, value: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value)
        return name

    def floats(self, *shape: int) -> str:
        return self.constant(self.generator.standard_normal(shape).astype(np.float32))

    def add(self, op: str, *inputs: str, shape: list[int] | None = None, **attributes: Any) -> None:
        """A node of the last value and constants; shape: of the result, if it is another."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(node(op, [self.value, *inputs], [name], **attributes))
        self.value, self.shape = name, self.shape if shape is None else shape

    def with_numbers(self, op: str, since: int, shape: list[int], **numbers: list[int]) -> None:
        """A node whose numbers are attributes until an opset, and inputs from then on."""
        if self.opset < since:
            self.add(op, shape=shape, **numbers)
        else:
            self.add(op, *(self.constant(one) for one in numbers.values()), shape=shape)


def unary(w: Writer) -> None:
    op = w.pick(*UNARY)
    if (op == "Sign" and w.opset < 9) or (op == "Erf" and w.opset < 9):
        op = "Tanh"
    w.add(op)


def binary(w: Writer) -> None:
    """With a constant that broadcasts, or with the input of the network."""
    kept = [size if w.pick(True, False) else 1 for size in w.shape]
    kept = kept[int(w.generator.integers(len(kept))) :]
    more = ("Max", "Min") if w.opset >= 8 else ()
    w.add(w.pick("Add", "Sub", "Mul", *more), w.floats(*kept))


def twice(w: Writer) -> None:
    w.add(w.pick("Add", "Mul"), w.value)


def reshape(w: Writer) -> None:
    """To any factors, with the batch frozen or free, or hidden in another dimension."""
    rest = int(np.prod(w.shape))
    sizes = []
    while rest > 1 and len(sizes) < 4:
        factors = [one for one in range(1, rest + 1) if rest % one == 0]
        sizes.append(int(w.pick(*factors)))
        rest //= sizes[-1]
    shape = [*w.pick([1], [1, 1], []), *sizes, rest]
    given = list(shape)
    if w.pick(True, False):
        given[int(w.generator.integers(len(given)))] = -1
    w.add("Reshape", w.constant(given), shape=shape)


def flatten(w: Writer) -> None:
    axis = int(w.generator.integers(len(w.shape) + 1))
    head, tail = int(np.prod(w.shape[:axis])), int(np.prod(w.shape[axis:]))
    w.add("Flatten", shape=[head, tail], axis=axis)


def transpose(w: Writer) -> None:
    perm = [int(one) for one in w.generator.permutation(len(w.shape))]
    w.add("Transpose", shape=[w.shape[one] for one in perm], perm=perm)


def unsqueeze(w: Writer) -> None:
    if len(w.shape) > 4:
        return
    axis = int(w.generator.integers(len(w.shape) + 1))
    w.with_numbers("Unsqueeze", 13, [*w.shape[:axis], 1, *w.shape[axis:]], axes=[axis])


def squeeze(w: Writer) -> None:
    places = [place for place, size in enumerate(w.shape) if size == 1]
    if places and len(w.shape) > 1:
        axis = int(w.pick(*places))
        w.with_numbers("Squeeze", 13, [*w.shape[:axis], *w.shape[axis + 1 :]], axes=[axis])


def concat(w: Writer) -> None:
    axis = w.axis()
    more = list(w.shape)
    more[axis] = int(w.pick(1, 2))
    shape = list(w.shape)
    shape[axis] += more[axis]
    w.add("Concat", w.floats(*more), shape=shape, axis=axis)


def slice_(w: Writer) -> None:
    axis = w.axis()
    start = int(w.generator.integers(w.shape[axis]))
    end = int(w.pick(start + 1, w.shape[axis], 2, 2**31 - 1))
    shape = list(w.shape)
    shape[axis] = len(range(w.shape[axis])[start:end])
    if not shape[axis]:
        return
    w.with_numbers("Slice", 10, shape, starts=[start], ends=[end], axes=[axis % len(shape)])


def gather(w: Writer) -> None:
    axis = w.axis()
    index = w.generator.integers(0, w.shape[axis], w.pick((), (1,), (2,), (2, 2)))
    place = axis % len(w.shape)
    shape = [*w.shape[:place], *index.shape, *w.shape[place + 1 :]]
    if 0 < len(shape) < 6:
        w.add("Gather", w.constant(index), shape=shape, axis=axis)


def gather_elements(w: Writer) -> None:
    if w.opset >= 11:
        axis = w.axis()
        w.add(
            "GatherElements", w.constant(w.generator.integers(0, w.shape[axis], w.shape)), axis=axis
        )


def scatter_nd(w: Writer) -> None:
    if w.opset >= 11:
        place = [int(w.generator.integers(size)) for size in w.shape[:1]]
        w.add("ScatterND", w.constant([place]), w.floats(1, *w.shape[1:]))


def scatter_elements(w: Writer) -> None:
    if w.opset >= 11:
        axis = w.axis()
        shape = [1] * len(w.shape)
        index = w.generator.integers(0, w.shape[axis], shape)
        w.add("ScatterElements", w.constant(index), w.floats(*shape), axis=axis)


def expand(w: Writer) -> None:
    if w.opset >= 8:
        wide = [int(w.pick(1, 3)) if size == 1 else w.pick(1, size) for size in w.shape]
        shape = [max(a, b) for a, b in zip(w.shape, wide, strict=True)]
        if np.prod(shape) < 400:
            w.add("Expand", w.constant(wide), shape=shape)


def tile(w: Writer) -> None:
    repeats = [int(w.pick(1, 1, 2)) for _ in w.shape]
    shape = [a * b for a, b in zip(w.shape, repeats, strict=True)]
    if np.prod(shape) < 400:
        w.add("Tile", w.constant(repeats), shape=shape)


def pad(w: Writer) -> None:
    both = w.generator.integers(0, 2, 2 * len(w.shape))
    if w.pick(True, True, False):
        both[[0, len(w.shape)]] = 0
    shape = [size + int(a) for size, a in zip(w.shape, both.reshape(2, -1).sum(0), strict=True)]
    mode = w.pick("constant", "edge")
    if w.opset < 11:
        w.add("Pad", shape=shape, pads=[int(one) for one in both], mode=mode)
    else:
        w.add("Pad", w.constant(both), shape=shape, mode=mode)


def reduce(w: Writer) -> None:
    op = w.pick(*REDUCTIONS)
    axis = int(w.generator.integers(len(w.shape)))
    keep = int(w.pick(0, 1))
    shape = [*w.shape[:axis], *[1] * keep, *w.shape[axis + 1 :]]
    if not shape:
        return
    given = {"axes": [axis]} if w.opset < 18 else {}
    w.add(op, *([] if given else [w.constant([axis])]), shape=shape, keepdims=keep, **given)


def softmax(w: Writer) -> None:
    w.add(w.pick("Softmax", "LogSoftmax"), axis=w.axis())


def cumulate(w: Writer) -> None:
    if w.opset >= 11:
        extra = {"exclusive": int(w.pick(0, 1)), "reverse": int(w.pick(0, 1))}
        w.add("CumSum", w.constant(np.array(w.axis())), **extra)


def matmul(w: Writer) -> None:
    size = int(w.pick(1, 2, 3))
    w.add("MatMul", w.floats(w.shape[-1], size), shape=[*w.shape[:-1], size])


def gemm(w: Writer) -> None:
    if len(w.shape) != 2:
        return flatten(w)
    size, turned = int(w.pick(1, 2, 4)), int(w.pick(0, 1))
    weight = w.floats(*((size, w.shape[1]) if turned else (w.shape[1], size)))
    bias = w.floats(*w.pick((size,), (1, size), (1,)))
    w.add("Gemm", weight, bias, shape=[w.shape[0], size], transB=turned, alpha=0.5, beta=2.0)
    return None


def convolution(w: Writer) -> None:
    if not 3 <= len(w.shape) <= 5:
        return
    axes = len(w.shape) - 2
    kernel = [int(w.generator.integers(1, min(size, 3) + 1)) for size in w.shape[2:]]
    pads = [int(w.pick(0, 1)) for _ in range(2 * axes)]
    strides = [int(w.pick(1, 2)) for _ in range(axes)]
    room = [s + pads[k] + pads[k + axes] - kernel[k] for k, s in enumerate(w.shape[2:])]
    shape = [w.shape[0], 2, *(r // s + 1 for r, s in zip(room, strides, strict=True))]
    weight = w.floats(2, w.shape[1], *kernel)
    w.add("Conv", weight, w.floats(2), shape=shape, pads=pads, strides=strides)


def pooling(w: Writer) -> None:
    if not 3 <= len(w.shape) <= 5:
        return
    axes = len(w.shape) - 2
    kernel = [min(size, 2) for size in w.shape[2:]]
    shape = [*w.shape[:2], *(s - k + 1 for s, k in zip(w.shape[2:], kernel, strict=True))]
    w.add(w.pick("MaxPool", "AveragePool"), shape=shape, kernel_shape=kernel, strides=[1] * axes)


def resize(w: Writer) -> None:
    if w.opset >= 13 and len(w.shape) == 4 and np.prod(w.shape) < 100:
        scales = np.array([1, 1, 2, 2], np.float32)
        shape = [*w.shape[:2], 2 * w.shape[2], 2 * w.shape[3]]
        way = {"coordinate_transformation_mode": w.pick("half_pixel", "asymmetric")}
        mode = w.pick("nearest", "linear")
        w.add("Resize", "", w.constant(scales), shape=shape, mode=mode, **way)


OPERATORS: tuple[Callable[[Writer], None], ...] = (
    unary, unary, binary, binary, twice, reshape, reshape, flatten, transpose, transpose, unsqueeze,
    squeeze, concat, slice_, gather, gather_elements, scatter_nd, scatter_elements, expand, tile,
    pad, reduce, softmax, cumulate, matmul, matmul, gemm, convolution, pooling, resize,
)  # fmt: skip


def network(seed: int) -> tuple[ModelProto, list[int]]:
    """A random network, and the shape of its input."""
    generator = np.random.default_rng(seed)
    rank = int(generator.integers(1, 6))
    rest = [int(one) for one in generator.integers(1, 4, rank - 1)]
    first = int(generator.choice([1, 1, 1, 2]))
    shape = [first, *rest] if rank > 1 else [int(generator.integers(2, 6))]
    writer = Writer(generator, int(generator.choice(OPSETS)), list(shape))
    for _ in range(int(generator.integers(2, 9))):
        OPERATORS[generator.integers(len(OPERATORS))](writer)
    writer.add("Identity")
    given = ["batch", *shape[1:]] if first == 1 and generator.integers(2) and rank > 1 else shape
    content = model(writer.nodes, {"x": given}, [writer.value], writer.constants, writer.opset)
    return content, shape


def tried(seed: int, folder: Path) -> str:
    """Compare a network with onnxruntime; what became of it."""
    content, shape = network(seed)
    path = written(content, folder)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(str(path), options)
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(SAMPLES, *shape, generator=generator)
        wanted = [torch.from_numpy(session.run(None, {"x": one.numpy()})[0]) for one in x]
    except Exception:  # onnxruntime's own, for networks that are none
        return "no network"
    try:
        net = bl.load_onnx(path)
    except bl.BoundlabError as error:
        return f"refused: {error}"
    with torch.no_grad():
        inputs = x.squeeze(1) if shape[0] == 1 and len(shape) > 1 else x
        together = net(inputs)
        for sample, one in enumerate(wanted):
            alone = net(inputs[sample : sample + 1])
            for found in (alone[0], together[sample]):
                torch.testing.assert_close(
                    found.reshape(-1), one.reshape(-1), rtol=1e-3, atol=1e-4, equal_nan=True
                )
    return "mapped" if net._mapped else "free"


@pytest.mark.parametrize("seed", range(SMALL))
def test_random_network(seed: int, tmp_path: Path) -> None:
    assert not tried(seed, tmp_path).startswith("refused")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args()
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(given.first, given.first + given.count):
            try:
                what = tried(seed, Path(folder))
            except Exception as error:
                what = f"wrong: {type(error).__name__} {' '.join(str(error).split())[:200]}"
            if ":" in what:
                print(seed, what)
            found[what.partition(":")[0]] += 1
    print(dict(found))


if __name__ == "__main__":
    main()
