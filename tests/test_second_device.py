"""Every question on a second device: the same numbers as on the CPU, results on the device, and few
waits for it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import boundlab as bl
from boundlab.cli import main
from boundlab.commands.certify import Job, certify
from boundlab.data import Images
from boundlab.data.sentences import Sentences, Vocabulary
from boundlab.demo.model import load_digits, load_model
from boundlab.kernels.reductions import all_finite
from boundlab.methods import memory
from boundlab.models.text import build_text
from boundlab.training.evaluation import Attack, evaluate
from boundlab.training.processes import Processes
from boundlab.training.recipe import Recipe
from boundlab.training.trainer import Trainer
from boundlab.training.weights import attack_weights, surface
from boundlab.training.words import evaluate_words
from tests import second_device
from tests.helpers.captures import captured
from tests.helpers.contract import METHODS
from tests.networks import NETWORKS
from tests.second_device import DEVICE, HOST, Refused

QUICK = ("mlp", "cnn", "lstm", "encoder-pre-gelu", "choices", "attention-causal")


HOST_ONLY = ("lstm-last-state",)
"""Networks that make tensors on the CPU wherever their inputs lie."""


ALPHA = bl.Alpha(iterations=2)


Ask = Callable[[torch.device], Any]


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


def labels(batch: int, device: torch.device) -> Tensor:
    return (torch.arange(batch) % 2).to(device)


def tensors(found: Any) -> list[Tensor]:
    ends = lambda leaf: [leaf.lower, leaf.upper] if isinstance(leaf, bl.Bounds) else [leaf]
    leaves = pytree.tree_leaves(found, is_leaf=lambda leaf: isinstance(leaf, bl.Bounds))
    return [tensor for leaf in leaves for tensor in ends(leaf) if isinstance(tensor, Tensor)]


def check(ask: Ask, within: float = 1e-4) -> None:
    """The same numbers, on the device."""
    expected, found = tensors(ask(HOST)), tensors(ask(DEVICE))
    assert expected and all(tensor.device == DEVICE for tensor in found)
    for one, other in zip(expected, found, strict=True):
        torch.testing.assert_close(
            other.detach().cpu(), one.detach(), rtol=within, atol=within, equal_nan=True
        )


def with_gradients(net: bl.Net, loss: Tensor) -> list[Tensor]:
    names, parameters = zip(*net.parameters().items(), strict=True)
    return [
        loss,
        *torch.autograd.grad(loss.sum(), parameters, allow_unused=True, materialize_grads=True),
    ]


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


def slowly(*names: str) -> list[Any]:
    """The first one in the quick run, all with ``slow``."""
    return [
        pytest.param(name, marks=() if name == names[0] else pytest.mark.slow) for name in names
    ]


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
    nodes = len(net.ask(entries, {}, method="ibp").analysis.calls)
    second_device.forget()
    with torch.no_grad():
        net.bounds(*entries, method=method, alpha=alpha_for(method))
    assert sum(second_device.waits.values()) <= most * nodes, second_device.waits.most_common(8)


def test_waits_of_a_training_step() -> None:
    trainer, seen = Trainer(RECIPE, digits(), None, Processes(0, 1, DEVICE)), []
    second_device.forget()
    trainer.run(lambda _: seen.append(sum(second_device.waits.values())))
    assert seen[-1] <= 16 * len(seen), second_device.waits.most_common(8)


def test_what_is_remembered_of_a_tensor_ends_when_it_changes() -> None:
    x = torch.ones(3).to(DEVICE)
    assert all_finite(x)
    second_device.forget()
    assert all_finite(x) and not second_device.waits
    x[1] = torch.inf
    assert not all_finite(x) and not all_finite(torch.ones(2).to(DEVICE), x)
    x[1] = 0
    assert all_finite(x)


# -- programs that were exported elsewhere ---------------------------------------------------------


class Counted(nn.Module):
    """Makes a tensor on the device of its input: in an exported program that is the device of the
    export."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.register_buffer("shift", torch.tensor([0.1, 0.2, 0.3]))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).relu() + self.shift * torch.arange(3, device=x.device)


def exported() -> torch.export.ExportedProgram:
    torch.manual_seed(0)
    return torch.export.export(
        Counted().eval(), (torch.rand(2, 4),), dynamic_shapes=({0: torch.export.Dim("batch")},)
    )


def test_a_program_of_another_device() -> None:
    net = bl.capture(exported())
    with pytest.raises(bl.ArgumentError, match="move_to_device_pass"):
        net.bounds(bl.Linf(torch.rand(2, 4).to(DEVICE), 0.1))
    with pytest.raises(bl.ArgumentError, match="lies on"):
        captured("mlp", DEVICE)[1].bounds(bl.Linf(NETWORKS["mlp"].inputs(2)[0], 0.1))


def test_certify_a_program_of_another_device(tmp_path: Path) -> None:
    torch.export.save(exported(), tmp_path / "model.pt2")
    generator = np.random.default_rng(0)
    np.savez(
        tmp_path / "data.npz",
        images=generator.random((5, 4), dtype=np.float32),
        labels=np.arange(5) % 3,
    )
    found = []
    for name in ("cpu", second_device.NAME):
        words_ = [
            "certify",
            tmp_path / "model.pt2",
            tmp_path / "data.npz",
            "--eps",
            "0.05",
            "--device",
            name,
            "--output",
            tmp_path / name,
        ]
        assert main([str(word) for word in words_]) == 0
        found.append(json.loads((tmp_path / name / "results.json").read_text()))
    for one, other in zip(found[0]["runs"], found[1]["runs"], strict=True):
        np.testing.assert_allclose(
            np.array(one["margins"]), np.array(other["margins"]), rtol=1e-4, atol=1e-5
        )


# -- certifying, training, words -------------------------------------------------------------------


def test_certify() -> None:
    images, classes = load_digits(5)
    runs = [
        certify(
            load_model().to(device),
            Job(
                images,
                classes,
                (0.02,),
                ("ibp", "crown-ibp"),
                valid=(0.0, 1.0),
                batch=4,
                device=device,
            ),
        ).runs
        for device in (HOST, DEVICE)
    ]
    for one, other in zip(*runs, strict=True):
        torch.testing.assert_close(one.margins, other.margins, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("norm", slowly("inf", "2", "1"))
def test_certify_command(tmp_path: Path, norm: str, capsys: pytest.CaptureFixture[str]) -> None:
    images, classes = load_digits(3)
    np.savez(tmp_path / "data.npz", images=images.numpy(), labels=classes.numpy())
    arguments = [
        "certify",
        "boundlab.demo.model:load_model",
        tmp_path / "data.npz",
        "--eps",
        "0.02",
        "--norm",
        norm,
        "--methods",
        "crown-ibp",
    ]
    arguments += [
        "--mean",
        "0.1",
        "--std",
        "0.9",
        "--device",
        second_device.NAME,
        "--output",
        tmp_path / "report",
    ]
    assert main([str(word) for word in arguments]) == 0, capsys.readouterr().err
    assert any((tmp_path / "report").iterdir())


def digits(count: int = 24) -> Images:
    generator = torch.Generator().manual_seed(1)
    return Images(
        torch.randint(0, 256, (count, 1, 28, 28), dtype=torch.uint8, generator=generator),
        torch.arange(count) % 10,
        10,
        "digits",
    )


RECIPE = Recipe.read(
    {
        "data": "mnist",
        "model": "tiny-cnn",
        "epochs": 1,
        "batch": 12,
        "start": 0.0,
        "length": 1.0,
        "eps": 0.01,
        "milestones": (),
    }
)


RECIPES = {
    "crown-ibp": RECIPE,
    "ibp": replace(RECIPE, method="ibp"),
    "adaptive": replace(RECIPE, schedule="adaptive"),
    "augmented": replace(RECIPE, flip=True, crop=2, l1=1e-5, channels_last=True),
    "batch norm": replace(RECIPE, model="small-cnn-bn"),
    "weights": replace(
        RECIPE,
        model="mlp",
        perturb="weights",
        init="default",
        tightness=0.0,
        balance=0.0,
        normalise=False,
        batch=24,
        optimiser="sgd",
    ),
}


@pytest.mark.parametrize("recipe", slowly(*RECIPES))
def test_training(recipe: str) -> None:
    check(
        lambda device: list(
            Trainer(RECIPES[recipe], digits(), None, Processes(0, 1, device)).run().parameters()
        ),
        1e-3,
    )


def test_evaluate() -> None:
    images, classes = load_digits(5)
    ask = lambda device: evaluate(
        load_model(),
        Images(images, classes, 10, "digits"),
        0.05,
        ("ibp", "crown-ibp"),
        Attack(steps=3),
        batch=5,
        processes=Processes(0, 1, device),
    )
    assert ask(HOST) == ask(DEVICE)


def test_train_and_evaluate_commands(
    files: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Checkpoints carry over from a device to another."""
    flags = ["--files", str(files), "--limit", "16"]
    train = [
        "train",
        "mnist-0.1-lirpa",
        *flags,
        "--output",
        str(tmp_path / "run"),
        "--model",
        "tiny-cnn",
        "--batch",
        "16",
        "--start",
        "0",
    ]
    train += ["--length", "1", "--milestones", "1"]
    assert main([*train, "--epochs", "1", "--device", second_device.NAME]) == 0, (
        capsys.readouterr().err
    )
    assert main([*train, "--epochs", "2", "--device", second_device.NAME, "--resume"]) == 0, (
        capsys.readouterr().err
    )
    found = []
    for name in ("cpu", second_device.NAME):
        assert (
            main(["evaluate", str(tmp_path / "run"), *flags, "--steps", "2", "--device", name]) == 0
        ), capsys.readouterr().err
        found.append(json.loads((tmp_path / "run" / "errors.json").read_text()))
    assert found[0] == found[1]


def sentences() -> Sentences:
    neighbours = {"good": ["fine", "nice"], "bad": ["poor"], "film": ["movie"]}
    texts = [
        (["a", "good", "film"], 1, True),
        (["a", "bad", "film"], 0, True),
        (["nice", "movie"], 1, True),
        (["poor", "poor", "movie"], 0, True),
    ] * 2
    return Sentences.of(
        texts, Vocabulary.of([text for text, _, _ in texts], neighbours, 1), "texts"
    )


def trained_on_words(model: str, device: torch.device) -> nn.Module:
    recipe = Recipe.read({
        "data": "sst", "perturb": "words", "model": model, "epochs": 1, "batch": 4, "eps": 1.0,
        "start": 0.0, "length": 0.5, "schedule": "linear", "phrases": 0, "init": "default",
        "tightness": 0.0, "balance": 0.0, "budget": 1, "milestones": (),
    })  # fmt: skip
    return Trainer(recipe, sentences(), None, Processes(0, 1, device)).run()


@pytest.mark.slow
@pytest.mark.parametrize("model", ["lstm", "transformer"])
def test_training_on_words(model: str) -> None:
    check(lambda device: list(trained_on_words(model, device).parameters()), 1e-3)


def test_evaluate_words() -> None:
    torch.manual_seed(0)
    model = build_text("transformer", len(sentences().vocabulary), 2)
    ask = lambda device: evaluate_words(model.to(device), sentences(), (1,), ("ibp",), batch=4)
    assert ask(HOST) == ask(DEVICE)


def test_attacks_on_weights_and_surfaces() -> None:
    def ask(device: torch.device) -> Any:
        case = NETWORKS["mlp"]
        model, x = case.model().to(device), case.inputs(4)[0].to(device)
        balls = bl.weight_balls(bl.capture(model, x), 0.01)
        worst, found = attack_weights(model, x, labels(4, device), balls, steps=2)
        return [
            found,
            worst * torch.ones(1).to(device),
            surface(model, x, labels(4, device), balls, 3, 1.0).to(device),
        ]

    check(ask, 1e-3)


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
