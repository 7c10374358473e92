"""Every question on a second device: the same numbers as on the CPU, results on the device, and few
waits for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import boundlab as bl
from boundlab.kernels.reductions import all_finite
from boundlab.methods import memory
from boundlab.net.questions import Options
from boundlab.training.processes import Processes
from tests import second_device
from tests.helpers.captures import captured
from tests.helpers.contract import METHODS
from tests.helpers.devices import check, labels, slowly, with_gradients
from tests.networks import NETWORKS
from tests.second_device import DEVICE, HOST, Refused

QUICK = ("mlp", "cnn", "lstm", "encoder-pre-gelu", "choices", "attention-causal")


HOST_ONLY = ("lstm-last-state",)
"""Networks that make tensors on the CPU wherever their inputs lie."""


ALPHA = bl.Alpha(iterations=2)


# -- the device itself -----------------------------------------------------------------------------


def test_it_computes_and_copies() -> None:
    x = torch.randn(3, 4)
    on_device = x.to(DEVICE)
    assert on_device.device == DEVICE and torch.equal(on_device.cpu(), x)
    assert torch.equal((on_device.T @ on_device).relu().cpu(), (x.T @ x).relu())
    on_device[:, 1].add_(1)
    assert torch.equal(on_device[:, 1].cpu(), x[:, 1] + 1)


def test_it_refuses_what_cuda_refuses() -> None:
    x = torch.ones(3, 4, device=DEVICE)
    assert (x + torch.tensor(1.0)).device == DEVICE  # a number is welcome
    for wrong in (
        lambda: x + torch.ones(3, 4),
        lambda: x @ torch.ones(4, 1),
        lambda: torch.cat([x, torch.ones(1, 4)]),
        lambda: torch.where(x > 0, x, torch.ones(4)),
        lambda: torch.rand(3, generator=torch.Generator(), device=DEVICE),
    ):
        with pytest.raises((Refused, RuntimeError), match=r"two devices|same device|generator"):
            wrong()


def test_it_counts_waits_and_kernels() -> None:
    x = torch.tensor([1.0, -1.0]).to(DEVICE)
    second_device.forget()
    bool((x > 0).all()), float(x[0]), x[x > 0], x.nonzero(), x.cpu(), x.tolist()
    assert sum(second_device.waits.values()) == 6
    assert second_device.kernels["gt"] == 2


# -- cells -----------------------------------------------------------------------------------------


def asked(
    network: str,
    device: torch.device,
    region: Callable[[Tensor, float], bl.Region] = bl.Linf,
    batch: int = 2,
) -> tuple[bl.Net, tuple[Any, ...]]:
    """A network, and a region around the first of its inputs."""
    first, *others = (x.to(device) for x in NETWORKS[network].inputs(batch))
    return captured(network, device)[1], (region(first, NETWORKS[network].eps), *others)


def alpha_for(method: str) -> bl.Alpha | None:
    return ALPHA if METHODS[method].optimize else None


def words(x: Tensor, eps: float) -> bl.Words:
    others = x.unsqueeze(2) + eps * torch.tensor([-1.0, 0.5], dtype=x.dtype).to(x.device)[:, None]
    return bl.Words(x, others, budget=1)


REGIONS: dict[str, Callable[[Tensor, float], bl.Region]] = {
    "Linf": bl.Linf,
    "Linf, cut": lambda x, eps: bl.Linf(x, eps, lower=-1.0, upper=torch.ones_like(x)),
    "Linf, one a sample": lambda x, eps: bl.Linf(
        x, torch.linspace(eps / 2, eps, len(x)).to(x.device)
    ),
    "L2": bl.L2,
    "L2, cut": lambda x, eps: bl.L2(x, eps, lower=-1.0, upper=1.0),
    "L1": bl.L1,
    "Lp": lambda x, eps: bl.Lp(x, 3.0, eps),
    "L0": lambda x, eps: bl.L0(x, 1, -1.0, 1.0),
    "L0, one a sample": lambda x, eps: bl.L0(x, torch.arange(len(x)).to(x.device), -1.0, 1.0),
    "Box": lambda x, eps: bl.Box(x - eps, x + eps / 2),
    "Words": words,
}


def cells() -> list[Any]:
    """(network, region, method): of the quick run every method and region, the whole product with
    ``slow``."""
    found = []
    for network in NETWORKS:
        for region in REGIONS:
            if network in HOST_ONLY or (
                region == "Words" and len(NETWORKS[network].shapes[0]) != 2
            ):
                continue
            for method in METHODS:
                quick = network == "mlp" and (method != "alpha-crown" or region in ("Linf", "L2"))
                quick |= (
                    network in ("cnn", "choices", "attention-causal")
                    and region == "Linf"
                    and method == "crown"
                )
                quick |= network == "lstm" and method == "crown-ibp" and region in ("Linf", "Words")
                if network in QUICK or region == "Linf":
                    found.append(
                        pytest.param(
                            network, region, method, marks=() if quick else pytest.mark.slow
                        )
                    )
    return found


@pytest.mark.parametrize(("network", "region", "method"), cells())
def test_bounds(network: str, region: str, method: str) -> None:
    def ask(device: torch.device) -> Any:
        net, entries = asked(network, device, REGIONS[region])
        return net.bounds(*entries, method=method, alpha=alpha_for(method))

    check(ask)


@pytest.mark.parametrize("region", REGIONS)
@pytest.mark.parametrize("generator", [None, HOST])
def test_samples(region: str, generator: torch.device | None) -> None:
    """By whichever device's generator, on the device of the region."""

    def ask(device: torch.device) -> Tensor:
        x = torch.linspace(0, 1, 24).reshape(2, 4, 3).to(device)
        drawn = REGIONS[region](x, 0.1).sample(
            None if generator is None else torch.Generator(generator).manual_seed(0)
        )
        return drawn if generator is not None else 0 * drawn

    check(ask)


@pytest.mark.parametrize("network", [*slowly(*QUICK)])
@pytest.mark.parametrize("method", METHODS)
class TestQuestions:
    def test_margins(self, network: str, method: str) -> None:
        def ask(device: torch.device) -> Tensor:
            net, entries = asked(network, device)
            return net.margins(*entries, labels(2, device), method=method, alpha=alpha_for(method))

        check(ask)

    def test_labels_as_a_list(self, network: str, method: str) -> None:
        def ask(device: torch.device) -> Tensor:
            net, entries = asked(network, device)
            return net.margins(*entries, [0, 1], method=method, alpha=alpha_for(method))

        check(ask)

    def test_specs_and_intermediates(self, network: str, method: str) -> None:
        def ask(device: torch.device) -> Any:
            net, entries = asked(network, device)
            size = net(*(x.to(device) for x in NETWORKS[network].inputs(2))).shape[1]
            found = net.bounds(
                *entries,
                spec=torch.eye(size)[:2].to(device),
                method=method,
                alpha=alpha_for(method),
                intermediates=True,
            )
            return [found, {name: found[name] for name in found.intermediates}]

        check(ask)

    def test_little_memory(self, network: str, method: str) -> None:
        def ask(device: torch.device) -> Any:
            net, entries = asked(network, device)
            return net.bounds(
                *entries, method=method, alpha=alpha_for(method), memory="64 KiB", sides="lower"
            )

        check(ask)

    @pytest.mark.parametrize("region", [bl.Linf, bl.L2])
    def test_weights(self, network: str, method: str, region: Any) -> None:
        def ask(device: torch.device) -> Any:
            net, entries = asked(network, device)
            weight = next(name for name in net.parameters() if "weight" in name)
            return net.bounds(
                *entries, perturb={weight: region(eps=0.01)}, method=method, alpha=alpha_for(method)
            )

        check(ask)

    @pytest.mark.parametrize("fused", [True, False])
    def test_losses(self, network: str, method: str, fused: bool) -> None:
        def ask(device: torch.device) -> Any:
            net, entries = asked(network, device)
            return with_gradients(
                net,
                bl.robust_cross_entropy(
                    net,
                    *entries,
                    labels(2, device),
                    method=method,
                    fused=fused,
                    beta=0.5 if method == "crown-ibp" else 1.0,
                ),
            )

        check(ask, 1e-3)


@pytest.mark.parametrize("network", slowly(*QUICK))
class TestMore:
    @pytest.mark.parametrize("method", ["crown", "crown-ibp", "forward+backward"])
    def test_linear_bounds(self, network: str, method: str) -> None:
        def ask(device: torch.device) -> Any:
            net, entries = asked(network, device)
            found = net.linear_bounds(*entries, method=method)
            return [found.lower_A, found.lower_b, found.upper_A, found.upper_b]

        check(ask)

    @pytest.mark.parametrize("slopes", ["zero", "one", "same"])
    def test_slopes(self, network: str, slopes: str) -> None:
        def ask(device: torch.device) -> Any:
            net, entries = asked(network, device)
            return net.bounds(*entries, slopes=slopes)

        check(ask)

    @pytest.mark.parametrize(
        "alpha",
        [bl.Alpha(iterations=2, share=True), bl.Alpha(iterations=2, share=False, stop_when=0.0)],
        ids=["shared", "own"],
    )
    def test_optimised_slopes_and_on_from_them(self, network: str, alpha: bl.Alpha) -> None:
        def ask(device: torch.device) -> Any:
            net, entries = asked(network, device)
            first = net.bounds(*entries, method="alpha-crown", alpha=alpha)
            return [
                first,
                net.bounds(*entries, method="alpha-crown", alpha=alpha, slopes=first.slopes),
            ]

        check(ask)

    def test_flatness(self, network: str) -> None:
        def ask(device: torch.device) -> Any:
            net, x = captured(network, device)[1], NETWORKS[network].inputs(2)[0].to(device)
            loss = bl.mean_loss_bound(net, x, labels(2, device), perturb=bl.weight_balls(net, 0.01))
            return [
                bl.flatness(net, x, labels(2, device), 0.01, batch=1),
                with_gradients(net, loss),
            ]

        check(ask, 1e-3)

    def test_without_a_batch(self, network: str) -> None:
        def ask(device: torch.device) -> Any:
            case = NETWORKS[network]
            inputs = tuple(x.to(device) for x in case.inputs(2))
            return bl.capture(case.model().to(device), *inputs, batched=False).bounds(
                bl.Linf(inputs[0], case.eps), *inputs[1:]
            )

        check(ask)

    def test_shown(self, network: str) -> None:
        net, entries = asked(network, DEVICE)
        assert "Bounds" in str(net.bounds(*entries, method="ibp")) and "Net" in repr(net)


@pytest.mark.parametrize("method", slowly("crown-ibp", "ibp", "crown"))
def test_losses_in_train_mode(method: str) -> None:
    def ask(device: torch.device) -> Any:
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(18, 3)
        )
        x = torch.rand(3, 1, 5, 5).to(device)
        net = bl.capture(model.to(device), x)
        return with_gradients(
            net, bl.robust_cross_entropy(net, bl.Linf(x, 0.01), labels(3, device), method=method)
        )

    check(ask, 1e-3)


# -- waiting ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("network", ["lstm", "cnn", "encoder-pre-gelu"])
@pytest.mark.parametrize(
    ("method", "most"),
    [
        ("ibp", 1),
        ("crown-ibp", 2),
        ("crown", 4),
        pytest.param("alpha-crown", 16, marks=pytest.mark.slow),
    ],
)
def test_waits_are_few(network: str, method: str, most: float) -> None:
    """By perturbed node: a device that is waited for all the time is slower than the host alone."""
    net, entries = asked(network, DEVICE)
    nodes = len(net.ask(entries, {}, Options("ibp")).analysis.calls)
    second_device.forget()
    with torch.no_grad():
        net.bounds(*entries, method=method, alpha=alpha_for(method))
    assert sum(second_device.waits.values()) <= most * nodes, second_device.waits.most_common(8)


def test_what_is_remembered_of_a_tensor_ends_when_it_changes() -> None:
    x = torch.ones(3).to(DEVICE)
    assert all_finite(x)
    second_device.forget()
    assert all_finite(x) and not second_device.waits
    x[1] = torch.inf
    assert not all_finite(x) and not all_finite(torch.ones(2).to(DEVICE), x)
    x[1] = 0
    assert all_finite(x)


# -- memory ----------------------------------------------------------------------------------------


def test_what_the_allocator_keeps_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1000, 16000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 9000)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 4000)
    assert memory.free_memory(torch.device("cuda", 0)) == 6000


# -- several processes -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked_for", "own"),
    [(None, "cuda:1"), ("cuda", "cuda:1"), ("cuda:0", "cuda:1"), ("cpu", "cpu")],
)
def test_each_process_takes_its_own_gpu(
    asked_for: str | None, own: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """nccl works on the current device: that has to be chosen before a process joins the others."""
    done: list[str] = []
    for name, value in {"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: done.append(str(device)))
    monkeypatch.setattr(
        torch.distributed, "init_process_group", lambda backend: done.append(backend)
    )
    found = Processes.here(None if asked_for is None else torch.device(asked_for))
    assert (str(found.device), done) == (own, ["cuda:1", "nccl"] if own != "cpu" else ["gloo"])
