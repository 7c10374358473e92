"""Networks that read sentences."""

from __future__ import annotations

import pytest
import torch

import boundlab as bl
from boundlab.models.text import TEXT_MODELS, build_text
from boundlab.training.words import trimmed


@pytest.mark.parametrize("name", TEXT_MODELS)
def test_no_substitution_leaves_the_bounds(name: str) -> None:
    """Sentences of different lengths in one batch; every method; thousands of members."""
    torch.manual_seed(0)
    model = build_text(name, 30, 2).eval()
    with torch.no_grad():
        model.embedding.weight.mul_(0.3)
    words = torch.tensor([[3, 4, 5, 6], [7, 8, 0, 0]])
    choices = torch.randint(2, 30, (2, 4, 3)) * (words != 0).unsqueeze(2)
    x, others = model.embedding(words).detach(), model.embedding(choices).detach()
    region = bl.Words(x, others, choices != 0, 2)
    net = bl.capture(model.body, x, words != 0)
    with torch.no_grad():
        points = [region.sample(torch.Generator().manual_seed(k)) for k in range(300)]
        values = torch.stack([model.body(point, words != 0) for point in points])
    least, most = values.amin(0), values.amax(0)
    for method in ("ibp", "forward", "crown-ibp", "crown", "forward+backward"):
        with torch.no_grad():
            found = net.bounds(region, words != 0, method=method)
        assert (found.lower <= least + 1e-5).all() and (found.upper >= most - 1e-5).all(), method
        assert torch.isfinite(found.width).all()
    # padding changes nothing for a transformer
    alone = bl.capture(model.body, x[1:, :2], words[1:, :2] != 0)
    if name != "lstm":
        torch.testing.assert_close(alone(x[1:, :2], words[1:, :2] != 0), net(x, words != 0)[1:])


def test_nobody_reads_padding() -> None:
    words = torch.tensor([[3, 4, 5, *[0] * 29], [6, *[0] * 31], [0] * 32])
    for name in TEXT_MODELS:
        model = build_text(name, 30, 2).eval()
        assert trimmed(words).shape[1] == 8
        with torch.no_grad():
            torch.testing.assert_close(model(trimmed(words[:2])), model(words[:2]))
            alone = torch.stack([model(trimmed(words[k : k + 1]))[0] for k in range(2)])
            torch.testing.assert_close(alone, model(words[:2]))
