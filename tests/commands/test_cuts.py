"""Cross-sections of a region."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import boundlab as bl
from boundlab.commands.certificates import Certification
from boundlab.commands.certify import certify_job
from boundlab.commands.cuts import line_cuts
from boundlab.commands.jobs import Job, region_around


@pytest.mark.parametrize("norm", ["inf", "2", "1"])
@pytest.mark.parametrize("valid", [None, (0.0, 1.0)])
def test_cuts_lie_in_the_region_and_enclose_the_function(
    norm: str, valid: tuple[float, float] | None, job: tuple[bl.Net, Certification, Tensor]
) -> None:
    net, _, images = job
    labels = net.bounds(bl.Linf(images, 0.0), method="ibp").lower.argmax(1)
    found = certify_job(
        net,
        Job(
            images,
            labels,
            [0.2],
            ["ibp", "crown", "crown-ibp", "forward+backward"],
            norm=norm,
            valid=valid,
        ),
    )
    cuts = line_cuts(net, found, images, 0.2)
    assert [cut.method for cut in cuts] == ["crown", "crown-ibp", "forward+backward"]
    for cut in cuts:
        assert (cut.lower <= cut.value + 1e-5).all()
        assert (cut.value <= cut.upper + 1e-5).all()
        region = region_around(images[cut.image : cut.image + 1], cut.radius, norm, valid)
        spec = torch.zeros(1, 3)
        spec[0, cut.label], spec[0, cut.rival] = 1, -1
        bounds = net.bounds(region, spec=spec, method=cut.method)
        assert bounds.lower.item() <= cut.value.min() + 1e-5
        assert bounds.upper.item() >= cut.value.max() - 1e-5
        for line in (cut.lower, cut.upper):  # straight
            assert (line.diff().diff().abs() < 1e-4).all()


def test_no_cut_without_a_correct_image(job: tuple[bl.Net, Certification, Tensor]) -> None:
    net, found, images = job
    wrong = Certification(found.task, found.labels, (found.labels + 1) % 3, found.runs)
    assert line_cuts(net, wrong, images, 0.05) == []
    only_ibp = Certification(
        found.task,
        found.labels,
        found.predictions,
        tuple(run for run in found.runs if run.method == "ibp"),
    )
    assert line_cuts(net, only_ibp, images, 0.05) == []
