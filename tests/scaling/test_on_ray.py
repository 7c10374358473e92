"""On a local cluster of several nodes: the same answers as without it, and what happens when
processes and nodes are killed. Needs the extra ray; starting a cluster takes a while."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import boundlab as bl
from boundlab.commands.competition import Instance
from boundlab.commands.processes import Task, run_tasks
from boundlab.data import Images
from boundlab.scaling import ray_pool
from boundlab.scaling.instances import RaySpread
from boundlab.scaling.parts import parts_on
from boundlab.scaling.ray_pool import Pool, WorkerLost, connected
from boundlab.scaling.shipping import ShippedBoxes
from boundlab.scaling.spreading import verify_spread
from boundlab.training.evaluation import evaluate
from tests.helpers.commands import run
from tests.helpers.instances import LARGEST, rows, write_network, write_property
from tests.helpers.searches import stopped_early
from tests.scaling import calls

pytest.importorskip("ray", reason="the extra ray is not installed: pip install 'boundlab[ray]'")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
STORE = 80 << 20
"""Bytes of each node's object store: about the least that Ray takes."""
LONG = 600.0
"""Seconds after which a busy machine is taken for a broken one."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Three nodes of one CPU each; the first is that of the tests."""
    ray = ray_pool.import_ray()
    from ray.cluster_utils import Cluster

    size = {"num_cpus": 1, "object_store_memory": STORE}
    found = Cluster(shutdown_at_exit=True)
    for number in range(3):
        for left in range(5, -1, -1):
            try:
                found.add_node(wait=False, **size, include_dashboard=False)
                break
            except Exception:  # Ray gives a node 30 s to start, and raises the bare type
                assert left, f"node {number} does not start"
                if number == 0:
                    found = Cluster(shutdown_at_exit=True)
    ray.init(address=found.address, logging_level="ERROR", log_to_driver=False)
    wait_for(lambda: sum(node["Alive"] for node in ray.nodes()) == 3)
    yield found
    ray.shutdown()
    found.shutdown()


@pytest.fixture
def pool(cluster: Any) -> Pool:
    return Pool(ray_pool.import_ray())


def wait_for(condition: Any) -> None:
    end = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def fake(folder: Path, name: str, code: str, timeout: float = 60.0) -> Task:
    """A task whose process runs some code, in which {json} and {result} are its files."""
    own = folder / name
    code = code.format(json=own / "outcome.json", result=own / "result.txt")
    return Task(Instance(name, "", timeout), (sys.executable, "-S", "-c", code), own)


ANSWER = (
    "open(r'{json}', 'w').write('{{\"status\": \"sat\", \"seconds\": 1}}'); "
    "open(r'{result}', 'w').write('sat\\n((X_0 1)(Y_0 2))')"
)


# -- calls -----------------------------------------------------------------------------------------


def test_processes_that_are_killed_lose_nothing(pool: Pool, tmp_path: Path) -> None:
    arguments = [(number, str(tmp_path), int(number % 4 == 1)) for number in range(8)]
    assert list(pool.map(calls.die, arguments)) == list(range(8))
    assert len(list(tmp_path.iterdir())) == 2


def test_a_call_that_kills_every_process_ends(
    pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_pool, "ATTEMPTS", 2)
    found = list(pool.run(calls.die, [(0, str(tmp_path), 99), (1, str(tmp_path), 0)]))
    by_number = {ended.number: ended for ended in found}
    assert by_number[1].value == 1 and isinstance(by_number[0].lost, WorkerLost)
    assert "lost 2 times" in str(by_number[0].lost)


# -- instances -------------------------------------------------------------------------------------


def test_tasks_end_as_without_ray(pool: Pool, tmp_path: Path) -> None:
    """Their processes die, hang, say nothing or answer."""
    codes = {
        "answers": ANSWER,
        "dies": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "silent": "pass",
        "raises": "raise ValueError('no good')",
        "full": "open('/dev/full', 'w').write('x' * 9999)",
    }
    ends: list[dict[str, tuple[str, str]]] = []
    for place in ("here", "there"):
        tasks = [fake(tmp_path / place, name, code) for name, code in codes.items()]
        tasks.append(fake(tmp_path / place, "hangs", "import time; time.sleep(1000)", 0.5))
        found = run_tasks(tasks, 2, grace=1.0)
        if place == "there":
            found = RaySpread(pool, grace=1.0)(tasks)
        ends.append({})
        for task, outcome in found:
            assert task.instance.onnx not in ends[-1]
            ends[-1][task.instance.onnx] = (outcome.status, outcome.error)
            if outcome.status == "sat":
                assert task.result.read_text() == "sat\n((X_0 1)(Y_0 2))"
    assert ends[0] == ends[1] and len(ends[0]) == 6
    assert ends[0]["hangs"][0] == "timeout" and "No space left" in ends[0]["full"][1]
    left = [path for path in Path("/tmp").glob(f"boundlab-{16 * '[0-9a-f]'}-*") if path.is_dir()]
    assert not [path for path in left if time.time() - path.stat().st_mtime < 60]


def test_interrupted_tasks_stop_their_processes(pool: Pool, tmp_path: Path) -> None:
    """As after Ctrl-C: the generator is closed."""
    said = tmp_path / "number"
    code = f"import os, time; open(r'{said}', 'w').write(str(os.getpid())); time.sleep(1000)"
    tasks = [fake(tmp_path, "quick", ANSWER), fake(tmp_path, "slow", code, 900.0)]
    found = RaySpread(pool)(tasks)
    task, outcome = next(found)
    assert task.instance.onnx == "quick" and outcome.status == "sat"
    wait_for(lambda: said.exists() and said.read_text())
    found.close()
    wait_for(lambda: not is_running(int(said.read_text())))


def is_running(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_list_has_the_same_verdicts(cluster: Any, tmp_path: Path) -> None:
    """With the command line, real processes, a packed network and files that are none."""
    write_network(tmp_path)
    write_property(tmp_path, LARGEST - 1e-3, "sat.vnnlib")
    write_property(tmp_path, LARGEST + 1e-3, "unsat.vnnlib")
    (tmp_path / "bad.onnx").write_bytes(b"nothing")
    listed = tmp_path / "instances.csv"
    names = ["net.onnx,sat", "net.onnx,unsat", "bad.onnx,sat", "net.onnx,none"]
    listed.write_text("".join(f"{name}.vnnlib,{LONG}\n" for name in names))
    found = []
    for more in ([], ["--ray", "auto"]):
        output = tmp_path / f"out{len(more)}"
        assert run("verify", "--instances", listed, "--output", output, *more) == 0
        held = (output / "results.csv").read_text().splitlines()[1:]
        assert len(held) == 4
        lines = [line.split(",") for line in held]
        found.append(sorted((line[:3], line[5:8]) for line in lines))  # without any seconds
        assert [one.name for one in (output / "counterexamples").iterdir()] == [
            "net_sat.counterexample"
        ]
    assert found[0] == found[1]
    assert rows(tmp_path / "out2")["unsat.vnnlib"][2] == "unsat"


def test_processes_end_with_the_one_that_started_them(tmp_path: Path) -> None:
    """Also when it is killed, as a process of Ray is with its node."""
    said = tmp_path / "number"
    child = (
        "import os, time; from boundlab.commands.limits import end_with_parent; "
        f"end_with_parent(); open(r'{said}', 'w').write(str(os.getpid())); time.sleep(1000)"
    )
    parent = (
        "from boundlab.commands.processes import Task, run_tasks; from pathlib import Path; "
        "from boundlab.commands.competition import Instance; import sys; "
        f"one = Task(Instance('a', 'b', 900.0), (sys.executable, '-c', {child!r}), "
        f"Path({str(tmp_path / 'own')!r})); list(run_tasks([one], 1))"
    )
    starter = subprocess.Popen([sys.executable, "-c", parent])
    wait_for(lambda: said.exists() and said.read_text())
    starter.send_signal(signal.SIGKILL)
    starter.wait()
    wait_for(lambda: not is_running(int(said.read_text())))


# -- batches of images -----------------------------------------------------------------------------


@pytest.fixture
def digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with digits, and the network of the demo as a program."""
    from boundlab.demo import load_digits, load_model

    monkeypatch.chdir(tmp_path)
    images, labels = load_digits()
    np.savez("digits.npz", images=images[:10].numpy(), labels=labels[:10].numpy())
    batch = torch.export.Dim("batch", min=2)
    shapes = ({0: batch},)
    program = torch.export.export(
        load_model().eval(), (images[:4].float() / 255,), dynamic_shapes=shapes
    )
    torch.export.save(program, "digits.pt2")
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [
        ["certify", "--methods", "ibp", "crown", "complete", "--timeout", "60", "--eps", "0.1"],
        ["attack", "--eps", "0.1", "0.3"],
        ["radius", "--most", "0.5", "--tolerance", "0.1"],
    ],
    ids=lambda command: str(command[0]),
)
def test_images_have_the_same_results(cluster: Any, digits: Path, command: list[str]) -> None:
    """Margins, radii and counterexamples, to the bit."""
    kind, *options = command
    found = []
    for more in ([], ["--ray", "auto"]):
        output = digits / f"out{len(more)}"
        arguments = [kind, "digits.pt2", "digits.npz", *options, "--batch", "3", *more]
        assert run(*arguments, "--output", output) == 0
        content = json.loads((output / "results.json").read_text())
        found.append(without_seconds(content))
        if (output / "counterexamples.npz").exists():
            with np.load(output / "counterexamples.npz") as held:
                found[-1]["held"] = {name: held[name].tolist() for name in held.files}
    assert found[0] == found[1]


def without_seconds(content: Any) -> Any:
    if isinstance(content, dict):
        left = {"seconds", "digest"}
        return {key: without_seconds(one) for key, one in content.items() if key not in left}
    if isinstance(content, list):
        return [without_seconds(one) for one in content]
    return content


def test_errors_of_a_network_are_the_same(cluster: Any) -> None:
    from boundlab.demo import load_digits, load_model

    images, labels = load_digits()
    data = Images(images[:10], labels[:10], 10, "digits")
    methods = ("ibp", "crown-ibp", "complete")
    told: list[int] = []
    with parts_on("auto", "cpu") as spread:
        there = evaluate(
            load_model(), data, 0.1, methods, timeout=60, batch=4, watch=told.append, spread=spread
        )
    assert there == evaluate(load_model(), data, 0.1, methods, timeout=60, batch=4)
    assert sum(told) == 10


# -- one hard property -----------------------------------------------------------------------------


def network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(3, 12), nn.Tanh(), nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, 2)
    )


def test_a_property_that_is_spread(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds or is violated as it does alone, by a counterexample of its own."""
    monkeypatch.setattr("boundlab.scaling.spreading.ALONE", 1e-3)
    model = network(0)
    x = torch.rand(2000, 3) * 2 - 1
    outputs = model(x).detach()
    gap = float((outputs[:, 1] - outputs[:, 0]).max())
    region = bl.Box(-torch.ones(1, 3), torch.ones(1, 3))
    holds = bl.Property(region, lambda y: y[:, 1] - y[:, 0] <= gap + 0.3)
    found = verify_spread(model, holds, 300.0, ray="auto", workers=2)
    assert found.status == "holds" and found.stages[-1].name == "spread", str(found)
    assert found.counterexample is None and found.bound > 0
    broken = bl.Property(region, lambda y: y[:, 1] - y[:, 0] <= gap - 1e-3)
    found = verify_spread(model, broken, 300.0, ray="auto", workers=2)
    assert found.status == "violated" and found.counterexample is not None
    x, y = found.counterexample.inputs, found.counterexample.outputs
    assert torch.equal(model(x).detach(), y) and bool(broken.violated(x, y).all())
    assert verify_spread(model, holds, 1e-3, ray="auto").status == "unknown"


def test_open_boxes_that_are_shipped(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("boundlab.scaling.shipping.LEAST_SECONDS", 1.5)
    _, _, first = stopped_early()
    assert first.left is not None
    with connected("auto", 2) as pool:
        search = ShippedBoxes(first, first.left, time.monotonic() + 300.0, pool)
        search.run(pool)
    assert not search.open and not search.lost and search.found is None, search.said
    assert search.shipments >= 2 and search.domains > len(first.left.boxes)


# -- a node is killed: last, for it does not come back ---------------------------------------------


def test_a_node_that_is_killed_loses_nothing(cluster: Any, tmp_path: Path) -> None:
    ray = ray_pool.import_ray()
    doomed = cluster.list_all_nodes()[-1]
    begun = tmp_path / "begun"
    numbers = list(range(12))
    with connected("auto") as pool:
        found = pool.run(calls.sleep_on, [(number, str(tmp_path), 3.0) for number in numbers])
        ended = []
        killed = False
        while len(ended) < len(numbers):
            ended.append(next(found).value)
            lines = [line.split() for line in begun.read_text().splitlines()]
            there = {int(line[0]): int(line[2]) for line in lines if line[1] == doomed.node_id}
            unfinished = set(there) - {number for number, _ in ended}
            if not killed and unfinished:
                cluster.remove_node(doomed, allow_graceful=False)
                for number in unfinished:  # as when the machine dies
                    os.kill(there[number], signal.SIGKILL)
                killed = True
    assert killed and sorted(number for number, _ in ended) == numbers
    wait_for(lambda: sum(node["Alive"] for node in ray.nodes()) == 2)
    again = begun.read_text().splitlines()
    assert len(again) > len(numbers)  # what the node had begun was begun again
    tasks = [fake(tmp_path, str(number), ANSWER) for number in range(6)]
    ends = [task.instance.onnx for task, one in RaySpread(pool)(tasks) if one.status == "sat"]
    assert sorted(ends) == [task.instance.onnx for task in tasks]
