"""Cross-sections of a region."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import boundlab as bl
from boundlab.commands.certificates import Certification, Run, Task
from boundlab.commands.certify import certify_job
from boundlab.commands.cuts import line_cuts, most_telling, telling_radius
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
            ["ibp", "crown", "crown-ibp", "forward+backward", "forward+crown"],
            norm=norm,
            valid=valid,
        ),
    )
    cuts = line_cuts(net, found, images, 0.2)
    assert [cut.method for cut in cuts] == [
        "crown",
        "crown-ibp",
        "forward+backward",
        "forward+crown",
    ]
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


def test_cuts_are_where_the_methods_differ() -> None:
    margins = torch.tensor([[1.0], [1.0], [-9.0]]).double()
    moved = torch.tensor([[0.0], [0.4], [-5.0]]).double()
    runs = (
        Run("crown-ibp", 0.1, margins, 0.0),
        Run("crown-ibp", 0.2, margins - 2, 0.0),
        Run("crown", 0.1, margins + 0.1, 0.0),
        Run("crown", 0.2, margins - 2 + moved.abs(), 0.0),
        Run("ibp", 0.1, margins - 8, 0.0),  # no linear functions
        Run("ibp", 0.2, margins - 2, 0.0),
    )
    task = Task("", "", 3, 2, "inf", None)
    predictions = torch.tensor([0, 1, 0])  # the last is wrong
    found = Certification(task, torch.tensor([0, 1, 1]), predictions, runs)
    assert telling_radius(found, 0.1) == 0.2
    assert most_telling(found, ["crown-ibp", "crown"], 0.2) == 1
    assert most_telling(found, ["crown"], 0.2) == 1  # -0.6 is closer to 0 than -1
    only_ibp = Certification(task, found.labels, predictions, runs[4:])
    assert telling_radius(only_ibp, 0.1) == 0.1
