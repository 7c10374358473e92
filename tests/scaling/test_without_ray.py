"""What can be said of spread work without a cluster: retries, paths, boxes that are cut."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import boundlab as bl
from boundlab.commands.competition import Instance
from boundlab.commands.processes import Task
from boundlab.demo import load_digits, load_model
from boundlab.errors import ArgumentError
from boundlab.regions import Box, Linf
from boundlab.scaling import ray_pool
from boundlab.scaling.instances import file_named, moved, parcels
from boundlab.scaling.parcels import Sender, places
from boundlab.scaling.parts import Here, Sent, Subject, parts_on
from boundlab.scaling.ray_pool import Calls, Ended, Pool, WorkerLost
from boundlab.scaling.shipping import Searched, ShippedBoxes
from boundlab.scaling.spreading import Piece, SpreadSearch, halves
from boundlab.specs.property import Property
from boundlab.verify.portfolio import Given, Portfolio
from boundlab.verify.verdict import Verdict
from tests.helpers.commands import error
from tests.helpers.onnx_files import model, node, written
from tests.helpers.searches import stopped_early
from tests.scaling import calls


class _Lost(Exception):
    """As ray.exceptions.RayError."""


class _Raised(_Lost):
    """As ray.exceptions.RayTaskError."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


@dataclass
class FakeRay:
    """What a pool needs of Ray, in this process. lost: how often the next calls are lost."""

    lost: list[int] = field(default_factory=list)
    begun: list[int] = field(default_factory=list)
    cancelled: list[int] = field(default_factory=list)
    exceptions: Any = field(
        default_factory=lambda: SimpleNamespace(RayError=_Lost, RayTaskError=_Raised)
    )

    def __post_init__(self) -> None:
        self.numbers = itertools.count()
        self.results: dict[int, Callable[[], Any]] = {}

    def remote(self, **_: Any) -> Callable[[Any], Any]:
        return lambda function: SimpleNamespace(remote=lambda *given: self._begin(function, given))

    def _begin(self, function: Any, given: tuple[Any, ...]) -> int:
        number = next(self.numbers)
        self.begun.append(number)
        is_lost = bool(self.lost) and self.lost.pop(0) > 0
        self.results[number] = lambda: self._result(function, given, is_lost)
        return number

    def _result(self, function: Any, given: tuple[Any, ...], is_lost: bool) -> Any:
        if is_lost:
            raise _Lost("the worker died\nof a signal")
        try:
            return function(*given)
        except Exception as cause:
            raise _Raised(cause) from cause

    def wait(self, references: list[int], num_returns: int, timeout: float) -> Any:
        return references[-1:], references[:-1]  # the last one ends first

    def get(self, reference: Any) -> Any:
        return self.results[reference]()

    def put(self, value: Any) -> int:
        number = next(self.numbers)
        self.results[number] = lambda: value
        return number

    def cancel(self, reference: int, force: bool) -> None:
        self.cancelled.append(reference)

    def is_initialized(self) -> bool:
        return True

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 2.0}

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": {"CPU": 2.0}}, {"Alive": False, "Resources": {}}]


def test_calls_end_once_in_any_order_and_come_in_theirs() -> None:
    pool = Pool(FakeRay())
    given_ = [(number,) for number in range(9)]
    ended = [one.number for one in pool.run(calls.square, given_)]
    assert sorted(ended) == list(range(9)) and ended != list(range(9))
    assert list(pool.map(calls.square, given_)) == [number**2 for number in range(9)]


def test_no_more_calls_at_once_than_allowed() -> None:
    ray = FakeRay()
    found = Pool(ray, most=3).run(calls.square, [(number,) for number in range(9)])
    next(found)
    assert len(ray.begun) == 3
    found.close()
    assert len(ray.cancelled) == 2 and not set(ray.cancelled) - set(ray.begun)


def test_lost_calls_are_made_again() -> None:
    ray = FakeRay(lost=[1, 0, 1, 1])
    found = list(Pool(ray).run(calls.square, [(number,) for number in range(3)]))
    assert sorted(one.value for one in found) == [0, 1, 4] and len(ray.begun) == 6


def test_calls_that_are_lost_again_and_again_are_given_up() -> None:
    ray = FakeRay(lost=[1] * 100)
    (ended,) = Pool(ray).run(calls.square, [(3,)])
    assert len(ray.begun) == ray_pool.ATTEMPTS
    assert isinstance(ended.lost, WorkerLost) and "the worker died" in str(ended.lost)
    with pytest.raises(WorkerLost):
        list(Pool(FakeRay(lost=[1] * 100)).map(calls.square, [(3,)]))


def test_trouble_of_a_node_is_no_trouble_of_the_call(tmp_path: Path) -> None:
    ray = FakeRay()
    (ended,) = Pool(ray).run(calls.trouble, [(3, str(tmp_path))])
    assert ended.value == 3 and len(ray.begun) == 2


def test_errors_of_calls_are_raised() -> None:
    with pytest.raises(ArgumentError, match="5 is refused"):
        list(Pool(FakeRay()).run(calls.refuse, [(5,)]))


def test_nodes_with_another_version_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Pool(FakeRay())
    with Calls(pool, calls.square) as running:
        running.add(2)
        monkeypatch.setattr(ray_pool, "VERSION", "0.0.0")
        with pytest.raises(ArgumentError, match="install the same on all nodes"):
            running.next()


def test_more_threads_than_any_node_has() -> None:
    Pool(FakeRay(), threads=2).check()
    with pytest.raises(ArgumentError, match="no node of the Ray cluster has more than 2"):
        Pool(FakeRay(), threads=3).check()


def test_without_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    listed = tmp_path / "i.csv"
    listed.write_text("a.onnx,p.vnnlib,1\n")
    command = ["verify", "--instances", str(listed), "--output", str(tmp_path / "out")]
    assert "pip install 'boundlab[ray]'" in error(capsys, *command, "--ray", "local")
    assert "--jobs must be at least 1" in error(
        capsys, *command, "--resume", "--ray", "local", "--jobs", "0"
    )


def test_devices_that_are_not_spread() -> None:
    with pytest.raises(ArgumentError, match="CPUs"), parts_on("local", "cuda"):
        pass
    with parts_on(None, "cuda") as spread:
        assert spread is Here


# -- files -----------------------------------------------------------------------------------------


def write_external(folder: Path, place: str) -> Path:
    """A network whose weights lie in another file."""
    content = model(
        [node("MatMul", ["x", "a"], ["y"])],
        {"x": (1, 2)},
        ["y"],
        {"a": np.eye(2, dtype=np.float32)},
    )
    (held,) = content.graph.initializer
    raw = np.eye(2, dtype=np.float32).tobytes()
    held.ClearField("raw_data")
    held.data_location = onnx.TensorProto.EXTERNAL
    for key, value in {"location": place, "offset": "0", "length": str(len(raw))}.items():
        entry = held.external_data.add()
        entry.key, entry.value = key, value
    (folder / "weights").mkdir(exist_ok=True)
    (folder / "weights" / "a.bin").write_bytes(raw)
    return written(content, folder)


def test_weights_in_other_files_travel(tmp_path: Path) -> None:
    path = write_external(tmp_path, "weights/a.bin")
    assert places(path) == ("weights/a.bin",)
    parcel = Sender(Pool(FakeRay())).parcel(path)
    assert set(parcel.contents) == {"net.onnx", "weights/a.bin"}
    outside = tmp_path / "inside"
    outside.mkdir()
    assert places(write_external(outside, "../weights/a.bin")) == ()
    (tmp_path / "bad.onnx").write_bytes(b"nothing")
    assert places(tmp_path / "bad.onnx") == () == places(tmp_path / "p.vnnlib")


def test_files_are_put_and_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = FakeRay()
    monkeypatch.setattr("boundlab.scaling.parcels.import_ray", lambda: ray)
    net = tmp_path / "net.onnx"
    net.write_bytes(b"one")
    sender = Sender(Pool(ray))
    parcel = sender.parcel(net)
    assert sender.parcel(net) is parcel
    there = parcel.unpacked(tmp_path / "node")
    assert there.read_bytes() == b"one" and there.name == "net.onnx"
    ray.results.clear()  # nothing is fetched again
    assert parcel.unpacked(tmp_path / "node") == there
    assert [path.name for path in (tmp_path / "node").iterdir()] == [parcel.digest]
    net.write_bytes(b"another")
    assert Sender(Pool(ray)).parcel(net).digest != parcel.digest


def test_paths_of_commands(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(b"nothing")
    (tmp_path / "p.vnnlib").write_text("nothing")
    net, prop, out = (str(tmp_path / name) for name in ("net.onnx", "p.vnnlib", "out"))
    words = (sys.executable, "verify", prop, "--network", f"f={net}", "--json", f"{out}/o.json")
    task = Task(Instance("net.onnx", "p.vnnlib", 1.0), words, Path(out))
    found = parcels(task, Sender(Pool(FakeRay())))
    assert set(found) == {net, prop}
    there = {net: "/n/net.onnx", prop: "/n/p.vnnlib"}
    assert [moved(word, there) for word in words[1:]] == [
        "verify",
        "/n/p.vnnlib",
        "--network",
        "f=/n/net.onnx",
        "--json",
        f"{out}/o.json",
    ]
    assert file_named("x" * 5000 + ".onnx") is None and file_named("") is None


def test_a_subject_that_travels_is_the_same() -> None:
    """The model is captured again; margins are the same to the bit."""
    digits, labels = load_digits()
    images = digits[:6].float() / 255
    net = bl.capture(load_model(), images[:2])
    again = Sent.of(Subject(net, images[2:], labels[2:6])).subject()
    assert again.images.untyped_storage().nbytes() == again.images.nbytes
    region = Linf(again.images, 0.05, 0.0, 1.0)
    for method in ("ibp", "crown"):
        expected = net.margins(region, again.labels, method=method)
        assert torch.equal(again.net.margins(region, again.labels, method=method), expected)
    program = torch.export.export(load_model().eval(), (images[:2],))
    fixed = bl.capture(program)
    of_program = Sent.of(Subject(fixed, images, labels[:6])).subject()
    region = Linf(images[:2], 0.05)
    expected = fixed.margins(region, labels[:2])
    assert torch.equal(of_program.net.margins(region, labels[:2]), expected)


# -- boxes -----------------------------------------------------------------------------------------

ends = st.floats(-1e6, 1e6, width=32)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(ends, ends), min_size=1, max_size=4), st.booleans(), st.data())
def test_halves_cover_the_whole(
    pairs: list[tuple[float, float]], single: bool, data: st.DataObject
) -> None:
    """Every number of the box lies in a half, and the halves lie in it and are smaller."""
    dtype = torch.float32 if single else torch.float64
    found = torch.tensor([sorted(pair) for pair in pairs], dtype=dtype)
    box = Box(found[None, :, 0], found[None, :, 1])
    piece = Piece(0, box)
    wide = bool((torch.nextafter(box.lower, box.upper) < box.upper).any())
    if not piece.can_be_cut:
        assert not wide or bool((box.upper.abs() < 1e-30).all())
        return
    first, second = halves(nn.Linear(len(pairs), 2, dtype=dtype), box)
    shares = data.draw(st.lists(st.floats(0, 1), min_size=len(pairs), max_size=len(pairs)))
    share = torch.tensor([shares], dtype=dtype)
    point = (box.lower + share * (box.upper - box.lower)).clamp(box.lower, box.upper)
    corners = [box.lower, box.upper, first.upper, second.lower, point]
    for x in corners:
        assert bool(first.contains(x) | second.contains(x))
    for half in (first, second):
        assert bool((half.lower >= box.lower).all() and (half.upper <= box.upper).all())
        assert bool(((half.upper - half.lower) < (box.upper - box.lower)).any())
    assert torch.equal(torch.minimum(first.lower, second.lower), box.lower)
    assert torch.equal(torch.maximum(first.upper, second.upper), box.upper)
    assert int((first.upper != second.upper).sum()) == 1  # they differ in one input, at one number
    cut = first.upper != second.upper
    assert torch.equal(first.upper[cut], second.lower[cut])


def test_numbers_without_any_between_are_not_cut() -> None:
    one = torch.ones(1, 2)
    assert not Piece(0, Box(one, torch.nextafter(one, 2 * one))).can_be_cut
    assert not Piece(0, bl.L2(torch.zeros(1, 3), 1.0)).can_be_cut


def _search(prop: Property, network: nn.Module) -> SpreadSearch:
    return SpreadSearch(network, prop, 1e18, Pool(FakeRay(), most=2))


def _ended(search: SpreadSearch, number: int, status: str, example: Any = None) -> None:
    search.working[number] = search.waiting.popleft()
    verdict = Verdict(status, example, -1.0, (), 5, 0.1)
    search._note(ray_pool.Ended(number, verdict))


def test_a_search_ends_when_all_boxes_are_decided() -> None:
    prop = bl.robust(torch.zeros(1, 2), eps=1.0, label=0)
    search = _search(prop, nn.Linear(2, 2))
    assert search._cut_next() and search._cut_next() and len(search.waiting) == 3
    _ended(search, 0, "holds")
    assert len(search.open) == 2
    _ended(search, 1, "unknown")  # cut again
    assert len(search.open) == 3 and search.domains == 10
    search.working[2] = search.waiting.popleft()
    search._note(ray_pool.Ended(2, lost=WorkerLost("gone")))
    _ended(search, 3, "holds")
    _ended(search, 4, "holds")
    assert len(search.open) == 1 and search.lost == 1  # what was lost is open


def test_a_counterexample_must_be_one_of_the_whole_property() -> None:
    network = nn.Linear(1, 2)
    with torch.no_grad():
        network.weight.copy_(torch.tensor([[0.0], [1.0]]))
        network.bias.zero_()
    prop = bl.robust(torch.full((1, 1), -0.5), eps=1.0, label=0)  # violated from 0 on
    point = lambda x: bl.Attack(
        torch.tensor([[x]]), torch.zeros(1, 2), torch.tensor([True]), torch.zeros(1)
    )
    for outside in (-0.3, 0.7):  # none, and one that lies elsewhere
        search = _search(prop, network)
        _ended(search, 0, "violated", point(outside))
        assert search.found is None and len(search.left) == 1
    search = _search(prop, network)
    _ended(search, 0, "violated", point(0.25))
    assert search.found is not None and float(search.found.outputs[0, 1]) == 0.25


# -- open boxes that travel ------------------------------------------------------------------------


def test_what_a_search_has_left_open_goes_on_elsewhere() -> None:
    """Both halves of the open boxes, decided by other searches, decide the property."""
    model, prop, first = stopped_early()
    given = first.left
    assert given is not None and len(given.boxes) >= 40
    for part in (given.boxes.take(torch.arange(7)), given.boxes.take(torch.arange(7, 40))):
        search = Portfolio(model, prop, time.monotonic() + 60.0)
        search.go_on(replace(given, boxes=part))
        assert search.proved and search.left is not None and not len(search.left.boxes)
    first.inputs.found = True  # perhaps in a box that counts as proved
    assert first.left is None
    late = Portfolio(model, prop, time.monotonic() - 1.0)
    late.go_on(given)
    assert not late.has_begun and late.left is None


def shipped() -> tuple[ShippedBoxes, Given]:
    """A search whose boxes are all at work, with two more workers that were given none."""
    _, _, first = stopped_early()
    known = first.left
    assert known is not None
    search = ShippedBoxes(first, known, time.monotonic() + 60.0, Pool(FakeRay(), 2))
    nothing = replace(known, boxes=known.boxes.take(torch.arange(0)))
    search.working = {0: known, 1: nothing, 2: nothing}
    search.waiting = nothing.boxes
    return search, known


def test_boxes_that_are_lost_are_open() -> None:
    search, known = shipped()
    search._note(Ended(2, Searched(replace(known, boxes=search.waiting), None, 5)))
    search._note(Ended(0, None, WorkerLost("killed")))
    search._note(Ended(1, Searched(None, None, 0)))
    assert search.open == len(known.boxes) and search.domains == 5
    assert search.bound == float(known.boxes.bound.min())


def test_all_is_searched_again_with_more_room() -> None:
    """A worker has seen the model round more than others left room for."""
    search, known = shipped()
    nothing = search.waiting
    more = Given(nothing, known.method, 2 * known.slack)
    search._note(Ended(1, Searched(more, None, 5)))
    assert torch.equal(search.slack, 2 * known.slack) and len(search.waiting) == len(search.whole)
    search._note(Ended(0, Searched(replace(known, boxes=nothing), None, 5)))
    assert search.open == len(search.whole)
    search._note(Ended(2, None, WorkerLost("killed")))
    assert not search.lost
    again = Portfolio(search.model, search.prop, time.monotonic() + 60.0)
    again.go_on(more)
    assert again.left is not None and torch.equal(again.left.slack, more.slack)
