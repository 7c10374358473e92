"""An activation of one's own: the inverse square root unit x / sqrt(1 + a x^2), which torch lacks.

The operator and its gradient are defined as torch wants them; the rule is one call. The unit is
convex below 0 and concave above: given that, boundlab finds tangents and chords. The same formula
in operators that boundlab knows needs no rule, and shows what the rule is worth.
"""

import torch
from torch import Tensor, nn

import boundlab as bl


@torch.library.custom_op("examples::isru", mutates_args=())
def isru(x: Tensor, a: float) -> Tensor:
    return x / torch.sqrt(1 + a * x * x)


def slope(x: Tensor, a: float) -> Tensor:
    return (1 + a * x * x) ** -1.5


def curve(a: float) -> bl.Curve:
    return bl.Curve(("convex", "concave"), breaks=(0.0,), derivative=lambda x: slope(x, a))


def keep(ctx, inputs, output) -> None:
    ctx.x, ctx.a = inputs


isru.register_fake(lambda x, a: torch.empty_like(x))
isru.register_autograd(lambda ctx, y: (y * slope(ctx.x, ctx.a), None), setup_context=keep)
bl.elementwise(torch.ops.examples.isru.default, curve=curve)  # the rule


class Network(nn.Module):
    """Two layers of the unit; composed: written with operators that have rules already."""

    def __init__(self, composed: bool = False) -> None:
        super().__init__()
        self.inner = nn.ModuleList([nn.Linear(4, 16), nn.Linear(16, 16)])
        self.last = nn.Linear(16, 1)
        self.composed = composed

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.inner:
            y = layer(x)
            x = y / torch.sqrt(1 + 0.5 * y * y) if self.composed else isru(y, 0.5)
        return self.last(x)


def main() -> None:
    torch.manual_seed(0)
    x = torch.zeros(1, 4)
    region = bl.Linf(x, 0.5)
    model, composed = Network(), Network(composed=True)
    composed.load_state_dict(model.state_dict())
    with torch.no_grad():
        seen = torch.cat([model(region.sample()) for _ in range(1000)])
        print(f"sampled              [{seen.min():.4f}, {seen.max():.4f}]")
        for name, module in (("own rule", model), ("composed", composed)):
            for method in ("ibp", "crown"):
                lower, upper = bl.capture(module, x).bounds(region, method=method)
                print(f"{name:9s} {method:10s} [{lower.item():.4f}, {upper.item():.4f}]")


if __name__ == "__main__":
    main()
