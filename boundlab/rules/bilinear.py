"""Operators that are linear in each of two arguments: products, matrix products, convolutions.

With one side perturbed they are affine (rules/one_sided.py). With both, every elementary product is
relaxed by McCormick's planes (rules/mccormick.py), or the operator as a whole where that is cheaper
or tighter (rules/two_sided.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from boundlab.coefficients.outer import Outer
from boundlab.relaxations.affine_map import AffineMap
from boundlab.relaxations.interval import Interval
from boundlab.relaxations.products import WithBias
from boundlab.relaxations.relaxation import Relaxation, Rows
from boundlab.rules import per_sample, product, transposes, windows
from boundlab.rules.facts import UNKNOWN, Facts
from boundlab.rules.mccormick import McCormick
from boundlab.rules.one_sided import OneSided
from boundlab.rules.product import Indices, Product
from boundlab.rules.registry import Call, Rule, SlopeFamily, aten, register
from boundlab.rules.two_sided import Centred, InBall, Signed


@dataclass(frozen=True, eq=False)
class Bilinear(Rule):
    """``op(x, y, *rest)`` or ``op(x, y, bias, *rest)``.

    ``indices``: from x and y, the letters of x, y and the result, if it is a sum of products over
    indices; None: it is not (a convolution).
    """

    indices: Indices | None
    has_bias: bool = False
    kind: str = "bilinear"
    exact_in_balls: bool = True
    facts: Facts = UNKNOWN

    def _product(self, call: Call) -> Product:
        return Product.of(call, self.indices, self.has_bias)

    def nonlinear(self, call: Call) -> bool:
        return isinstance(call[0], Interval) and isinstance(call[1], Interval)

    def interval(self, call: Call) -> Interval:
        p = self._product(call)
        ball = InBall.of(p)
        if ball is not None:
            return ball.interval()
        if not p.both:
            return OneSided(p, self.facts).interval()
        return p.with_bias(self._range(p))

    def _range(self, p: Product) -> Interval:
        """The interval of a product of two perturbed sides, without the bias."""
        signed = Signed.of(p, self.facts)
        if signed is not None:
            return signed.interval()
        if self.indices is None:
            return Centred(p, self.facts).interval()
        return McCormick(p).interval()

    def relax(self, call: Call) -> Relaxation:
        p = self._product(call)
        if not p.both:
            return OneSided(p, self.facts).relax()
        body = self._form(p).relax(p.constant)
        if not isinstance(p.bias, Interval):
            return body
        bias = AffineMap(p.spread_bias, None, call.inputs[-1:], per_sample=self._bias_per_sample)
        return WithBias(body, bias)

    @property
    def _bias_per_sample(self) -> Callable[[Rows], list[Tensor | Outer]] | None:
        of_bias = self.facts.bias_per_sample
        if of_bias is None:
            return None
        return lambda rows: [of_bias(rows)]

    def _form(self, p: Product) -> Centred | Signed | McCormick:
        """How a product of two perturbed sides is relaxed."""
        if self.indices is None or InBall.of(p) is not None:
            return Centred(p, self.facts)
        signed = Signed.of(p, self.facts)
        if signed is not None and signed.side is p.x:
            return signed
        return McCormick(p)

    def family(self, call: Call) -> SlopeFamily | None:
        p = self._product(call)
        if not p.both or self.indices is None or isinstance(p.bias, Interval):
            return None
        return McCormick(p).family(p.constant)


register(
    aten.mul, aten.multiply,
    rule=Bilinear(
        product.elementwise,
        facts=Facts(linear=True, transpose=transposes.multiply, window=windows.multiply),
    ),
)  # fmt: skip
register(
    aten.matmul,
    rule=Bilinear(
        product.matmul, facts=Facts(linear=True, transpose=transposes.matmul, window=windows.matmul)
    ),
)
register(
    aten.mm, aten.bmm,
    rule=Bilinear(product.matmul, facts=Facts(linear=True, transpose=transposes.matmul)),
)  # fmt: skip
register(aten.mv, aten.dot, rule=Bilinear(product.matmul, facts=Facts(linear=True)))
register(aten.inner, rule=Bilinear(product.inner, facts=Facts(linear=True)))
register(aten.outer, rule=Bilinear(product.outer, facts=Facts(linear=True)))
register(
    aten.linear,
    rule=Bilinear(
        product.linear,
        has_bias=True,
        facts=Facts(
            constant=transposes.bias_of(0),
            transpose=transposes.linear,
            window=windows.linear,
            weight_per_sample=per_sample.weight_of_linear,
            bias_per_sample=per_sample.bias_of_linear,
        ),
    ),
)
for dims, op in enumerate((aten.conv1d, aten.conv2d, aten.conv3d), start=1):
    register(
        op,
        rule=Bilinear(
            None,
            has_bias=True,
            facts=Facts(
                constant=transposes.bias_of(dims),
                transpose=transposes.convolution(dims),
                window=windows.convolution(dims),
                weight_per_sample=per_sample.weight_of_convolution(dims),
                bias_per_sample=per_sample.bias_of_convolution,
            ),
        ),
    )
register(
    aten.conv_transpose1d, aten.conv_transpose2d, aten.conv_transpose3d, aten.convolution,
    rule=Bilinear(None, has_bias=True),
)  # fmt: skip
