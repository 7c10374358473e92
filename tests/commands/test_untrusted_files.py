"""Files from strangers: whatever is in them, nothing of it is run."""

from __future__ import annotations

import io
import json
import pickle
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from boundlab.cli import main
from boundlab.commands import programs
from boundlab.commands.loading import load_net
from boundlab.commands.programs import load_program

Members = dict[str, bytes]
CODE = "open('pwned', 'w').close()"
CALL = f'exec("{CODE}")'


class Boom:
    """Writes the file ``pwned`` when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, (CODE,)


def evil(*first: object) -> bytes:
    buffer = io.BytesIO()
    torch.save((*first, Boom()), buffer)
    return buffer.getvalue()


class Small(nn.Module):
    """A parameter, a buffer, a constant, a keyword, a free size and a block without gradients."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 3)
        self.shift = nn.Buffer(torch.ones(3))
        self.constant = torch.tensor([1.0, 2.0, 3.0])

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            y = self.shift * self.constant
        return (
            nn.functional.gelu(
                self.layer(x.reshape(x.shape[0], -1)) * x.shape[1], approximate="tanh"
            )
            + y
        )


@pytest.fixture(scope="module")
def saved() -> Members:
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        free = ({0: torch.export.Dim.DYNAMIC},)
        torch.export.save(
            torch.export.export(Small().eval(), (torch.rand(2, 2, 2),), dynamic_shapes=free), buffer
        )
    with zipfile.ZipFile(buffer) as archive:
        return {name.split("/", 1)[1]: archive.read(name) for name in archive.namelist()}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, in which no file ``pwned`` may appear."""
    monkeypatch.chdir(tmp_path)
    np.savez("data.npz", images=np.zeros((2, 2, 2), np.float32), labels=np.array([0, 1]))
    yield tmp_path
    assert not (tmp_path / "pwned").exists(), "code of the file was run"


def write(members: Members | list[tuple[str, bytes]], root: str = "evil/") -> Path:
    path = Path("evil.pt2")
    with zipfile.ZipFile(path, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # members that occur twice
        for name, content in members.items() if isinstance(members, dict) else members:
            archive.writestr(f"{root}{name}", content)
    return path


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> None:
    """Every way to use the program ends in one line that says what is wrong."""
    for more in ([], ["--mean", "0"]):
        capsys.readouterr()
        assert (
            main(["certify", "evil.pt2", "data.npz", "--methods", "ibp", "--output", "out", *more])
            == 1
        )
        (line,) = capsys.readouterr().err.splitlines()
        assert "only plain data is read" in line and any(word in line for word in words), line


# -- programs --------------------------------------------------------------------------------------


def test_programs_of_friends_are_the_same(
    saved: Members, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write({**saved, "extra/note.txt": b"hello"})
    ours, theirs = load_program(path), torch.export.load(path)
    assert str(ours.graph) == str(theirs.graph)
    assert ours.range_constraints == theirs.range_constraints
    x = torch.rand(5, 2, 2)
    assert torch.equal(ours.module()(x), theirs.module()(x))
    assert torch.equal(ours.example_inputs[0][0], theirs.example_inputs[0][0])
    assert load_net("evil.pt2", x)[0].margins  # captured
    assert main(["certify", "evil.pt2", "data.npz", "--methods", "ibp"]) == 0


def test_guards_survive(folder: Path) -> None:
    class Two(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return (x * 2 if x.shape[1] > 4 else x).reshape(x.shape[0], -1, 2).sum(1) + y[:, :1]

    sizes = (
        {0: torch.export.Dim("batch", min=2, max=64), 1: torch.export.Dim.AUTO},
        {0: torch.export.Dim("batch", min=2, max=64)},
    )
    torch.export.save(
        torch.export.export(Two(), (torch.rand(6, 10), torch.rand(6, 3)), dynamic_shapes=sizes),
        "two.pt2",
    )
    program = load_program(Path("two.pt2"))
    assert program._guards_code
    assert program.module()(torch.ones(8, 6), torch.ones(8, 3)).tolist() == [[7.0, 7.0]] * 8
    with pytest.raises(AssertionError, match="Guard failed"):
        program.module()(torch.ones(8, 4), torch.ones(8, 3))


def test_guards_of_torch_2_15() -> None:
    guard = "torch.sym_max(1, L['x'].size()[1] // 2) == 3"
    assert programs._expression(guard) == guard
    for other in ("torch.load('x')", "torch('x')", "torch.os.system('x')", "torch.sym_sum([1])"):
        with pytest.raises(programs._NotPlain):
            programs._expression(other)


def test_sizes_that_depend_on_others(folder: Path) -> None:
    class Later(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return x + y[1:]

    size = torch.export.Dim("size", min=3, max=50)
    torch.export.save(
        torch.export.export(
            Later(), (torch.rand(4), torch.rand(5)), dynamic_shapes=({0: size}, {0: size + 1})
        ),
        "later.pt2",
    )
    assert str(load_program(Path("later.pt2")).range_constraints) == str(
        torch.export.load("later.pt2").range_constraints
    )


def config(kind: str, prefix: str) -> Callable[[Members], Members]:
    """A tensor that is stored as a pickle under another name."""

    def change(members: Members) -> Members:
        name = f"data/{kind}/model_{kind}_config.json"
        content = json.loads(members[name])
        entry = next(iter(content["config"].values()))
        entry.update(path_name=f"{prefix}7", use_pickle=True)
        payload = pickle.dumps(Boom()) if prefix == "opaque_obj_" else evil()
        return {**members, name: json.dumps(content).encode(), f"data/{kind}/{prefix}7": payload}

    return change


PICKLES: dict[str, Callable[[Members], Members | list[tuple[str, bytes]]]] = {
    "sample inputs": lambda members: {
        **members,
        "data/sample_inputs/model.pt": evil((torch.zeros(2, 2, 2),)),
    },
    "weights": config("weights", "weight_"),
    "constants": config("constants", "tensor_"),
    "opaque objects": config("constants", "opaque_obj_"),
    "script objects": config("constants", "custom_obj_"),
    "weights of torch 2.8": lambda members: {**members, "data/weights/model.pt": evil()},
    "constants of torch 2.8": lambda members: {**members, "data/constants/model.pt": evil()},
    "a second program": lambda members: {
        **members,
        **{name.replace("model", "other"): members[name] for name in members if "model" in name},
        "data/sample_inputs/other.pt": evil((torch.zeros(2, 2, 2),)),
    },
    "twice, evil first": lambda members: [
        ("data/sample_inputs/model.pt", evil((torch.zeros(2, 2, 2),))),
        *members.items(),
    ],
    "twice, evil last": lambda members: [
        *members.items(),
        ("data/sample_inputs/model.pt", evil((torch.zeros(2, 2, 2),))),
    ],
    "below another folder": lambda members: [
        *members.items(),
        ("../evil/data/sample_inputs/model.pt", evil((torch.zeros(2, 2, 2),))),
    ],
    "plain pickle": lambda members: {
        **members,
        "data/sample_inputs/model.pt": pickle.dumps(Boom()),
    },
    "compiled library": lambda members: {**members, "data/aotinductor/model/model.so": b"\x7fELF"},
    "executorch": lambda members: {**members, "data/executorch/model": b""},
}


@pytest.mark.parametrize("way", PICKLES)
def test_pickles_in_programs(
    saved: Members, folder: Path, way: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(PICKLES[way](saved))
    refused(capsys, "pickle", "member", "file")


@pytest.mark.parametrize("root", ["", "/", "../", "/tmp/", "a/../b/"])
def test_strange_paths(
    saved: Members, folder: Path, root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write({**saved, "data/sample_inputs/model.pt": evil((torch.zeros(2, 2, 2),))}, root)
    refused(capsys, "pickle", "member", "archive_format")


def test_a_second_archive_behind_the_first(saved: Members, folder: Path) -> None:
    """Readers differ in which of two archives in a file they take."""
    good = write(saved).read_bytes()
    bad = write(
        {**saved, "data/sample_inputs/model.pt": evil((torch.zeros(2, 2, 2),))}
    ).read_bytes()
    for content in (good + bad, bad + good):
        Path("evil.pt2").write_bytes(content)
        main(["certify", "evil.pt2", "data.npz", "--methods", "ibp", "--output", "out"])


def test_programs_of_old_versions(
    saved: Members, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = {
        "version": b"8.15", "serialized_exported_program.json": saved["models/model.json"],
        "serialized_state_dict.pt": evil(),
        "serialized_constants.pt": evil(), "serialized_example_inputs.pt": evil(),
    }  # fmt: skip
    write(old, root="")
    refused(capsys, "older than torch 2.8")


# -- the graph of a program ------------------------------------------------------------------------


def graph(change: Callable[[dict[str, Any]], None]) -> Callable[[Members], Members]:
    def changed(members: Members) -> Members:
        content = json.loads(members["models/model.json"])
        change(content)
        return {**members, "models/model.json": json.dumps(content).encode()}

    return changed


def nodes(content: dict[str, Any]) -> list[dict[str, Any]]:
    return list(content["graph_module"]["graph"]["nodes"])


def node(content: dict[str, Any], target: str, *texts: str) -> None:
    """Another node that takes texts."""
    inputs = [{"name": "", "arg": {"as_string": text}, "kind": 1} for text in texts]
    new = {
        "target": target,
        "inputs": inputs,
        "outputs": [{"as_none": True}],
        "metadata": {},
        "is_hop_single_tensor_return": None,
        "name": "new",
    }
    content["graph_module"]["graph"]["nodes"].insert(0, new)


def rename(name: str, new: str) -> Callable[[Members], Members]:
    return lambda members: {
        **members,
        "models/model.json": members["models/model.json"].replace(
            json.dumps(name).encode(), json.dumps(new).encode()
        ),
    }


def tree(kind: str, context: object) -> Callable[[dict[str, Any]], None]:
    def change(content: dict[str, Any]) -> None:
        leaf = {"type": None, "context": None, "children_spec": []}
        signature = content["graph_module"]["module_call_graph"][0]["signature"]
        signature["out_spec"] = json.dumps(
            [1, {"type": kind, "context": json.dumps(context), "children_spec": [leaf]}]
        )

    return change


def sizes(text: str) -> Callable[[Members], Members]:
    """All symbolic sizes become this text."""

    def change(part: Any) -> Any:
        if isinstance(part, dict):
            return {
                key: text if key == "expr_str" else change(value) for key, value in part.items()
            }
        return [change(value) for value in part] if isinstance(part, list) else part

    return graph(lambda content: content.update(change(content)))


def rename_in(
    place: Callable[[dict[str, Any]], dict[str, Any]], key: str, text: str
) -> Callable[[Members], Members]:
    return graph(lambda content: place(content).__setitem__(key, text))


IMPORTED = "evil_module"
GRAPHS: dict[str, Callable[[Members], Members]] = {
    "size": sizes(CALL),
    "size in a string": sizes(f"Add('{CALL}')"),
    "size by attributes": sizes("Integer.__init__.__globals__['__builtins__']['exec']('0')"),
    "size in a comment": sizes(f"Add(1 #\n, {CALL}\n)"),
    "bound of a size": graph(
        lambda content: content["range_constraints"].update({CALL: {"min_val": 2, "max_val": None}})
    ),
    "guard": graph(lambda content: content.update(guards_code=[CODE])),
    "guard beside another": graph(
        lambda content: content.update(guards_code=[f"L['x'].size()[0] >= ({CODE} or 2)"])
    ),
    "guard that ends its line": graph(
        lambda content: content.update(guards_code=[f"1)\n  {CODE}\n  (1"])
    ),
    "name of an input": rename("x", f"x={CALL}"),
    "name of an argument": rename("x", f"x):\n  {CODE}\n  return 0\ndef forward(self"),
    "name of a node": rename("linear", f"linear;{CODE}"),
    "name of a parameter": rename("layer.weight", f'layer"),{CALL},("weight'),
    "name of a keyword": rename("approximate", f"approximate='tanh');{CODE}#"),
    "name of a block": rename("submod_1", f'a"),{CALL},("b'),
    "names of arguments": graph(
        lambda content: content["graph_module"]["module_call_graph"][0]["signature"].update(
            forward_arg_names=[f"x={CALL}"]
        )
    ),
    "library": graph(lambda content: node(content, "torch.ops.load_library", "evil.so")),
    "method of operators": graph(
        lambda content: node(content, "torch.ops.load_library.__call__.__call__", "evil.so")
    ),
    "shell": graph(lambda content: node(content, "torch.os.system", "touch pwned")),
    "shell below operators": graph(
        lambda content: node(content, "torch.ops.aten.__class__.__init__", "touch pwned")
    ),
    "hub": graph(lambda content: node(content, "torch.hub.load", ".", "evil")),
    "attribute": graph(lambda content: node(content, "_operator.attrgetter", "__class__")),
    "writes a file": graph(
        lambda content: node(content, "torch.ops.aten.save.default", "x", "pwned")
    ),
    "maps a file": graph(
        lambda content: node(content, "torch.ops.aten.from_file.default", "pwned")
    ),
    "extension": graph(lambda content: node(content, "#evil:op")),
    "calls its argument": graph(
        lambda content: (
            node(content, "torch.ops.higher_order.wrap", "touch pwned"),
            nodes(content)[0]["inputs"].insert(
                0, {"name": "", "arg": {"as_operator": "torch.os.system"}, "kind": 1}
            ),
        )[0]
    ),
    "imports for a key": graph(
        tree("builtins.dict", [{"__enum__": True, "fqn": f"{IMPORTED}:A", "name": "B"}])
    ),
    "imports for a default": graph(
        tree(
            "collections.defaultdict",
            {"default_factory_module": IMPORTED, "default_factory_name": "A", "dict_context": []},
        )
    ),
    "key": graph(tree("builtins.dict", [f'"+{CALL}+"'])),
}


@pytest.mark.parametrize("way", GRAPHS)
def test_code_in_graphs(
    saved: Members,
    folder: Path,
    way: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.syspath_prepend(".")
    Path(f"{IMPORTED}.py").write_text(CODE)
    changed = GRAPHS[way](saved)
    assert changed != saved
    write(changed)
    refused(capsys, "name", "operator", "expression", "keys", "structure")


def test_notes_on_nodes_are_text(saved: Members, folder: Path) -> None:
    """What a node says of itself is kept for errors, as text, or left out."""

    def change(content: dict[str, Any]) -> None:
        for entry in nodes(content):
            entry["metadata"].update(
                stack_trace=f'  File "a.py", line 1, in f\n{CODE}\n',
                nn_module_stack=f"a,b,{CALL}",
                source_fn_stack="a,torch.os.system",
                custom=json.dumps({"__enum__": True}),
                torch_fn=f"{CALL};{CALL}",
            )

    write(graph(change)(saved))
    assert main(["certify", "evil.pt2", "data.npz", "--methods", "ibp", "--mean", "0"]) == 0


def test_plain_weights_of_torch_2_8(saved: Members, folder: Path) -> None:
    """Pickles of tensors alone are read."""
    buffer = io.BytesIO()
    model = Small().eval()
    state = {
        name: nn.Parameter(2 * value) if isinstance(value, nn.Parameter) else value
        for name, value in model.state_dict(keep_vars=True).items()
    }
    torch.save(state, buffer)
    write({**saved, "data/weights/model.pt": buffer.getvalue()})
    assert torch.equal(
        load_program(Path("evil.pt2")).state_dict["layer.weight"], 2 * model.layer.weight
    )


def test_texts_that_end_their_quotes(folder: Path) -> None:
    """torch pastes the texts that a program was exported with into a function that it compiles."""

    class Mode(nn.Module):
        def forward(self, x: Tensor, mode: str) -> Tensor:
            return nn.functional.gelu(x.flatten(1), approximate=mode)

    torch.export.save(torch.export.export(Mode(), (torch.rand(2, 2, 2), "tanh")), "mode.pt2")
    with zipfile.ZipFile("mode.pt2") as archive:
        members = {name.split("/", 1)[1]: archive.read(name) for name in archive.namelist()}
    write(rename("tanh", f"tanh' #\n)\n{CODE}\ndef g(): #")(members))
    for more in ([], ["--mean", "0"]):
        assert (
            main(["certify", "evil.pt2", "data.npz", "--methods", "ibp", "--output", "out", *more])
            == 1
        )
    load_program(Path("evil.pt2")).module()


def test_messages_of_asserts(folder: Path) -> None:
    """They hold quotes, and are no reason to refuse a program."""

    class Item(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            size = x.int().max().item()
            torch._check(size >= 1)
            torch._check(size < 10)
            return torch.ones(size)

    torch.export.save(torch.export.export(Item(), (torch.tensor([3.0]),)), "item.pt2")
    assert "expression" in str(load_program(Path("item.pt2")).graph)
    assert load_program(Path("item.pt2")).module()(torch.tensor([5.0])).shape == (5,)


def test_compressed_members(
    saved: Members, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A small file cannot unfold into a large one."""
    with zipfile.ZipFile("evil.pt2", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in {**saved, "data/weights/weight_9": bytes(10**7)}.items():
            archive.writestr(f"evil/{name}", content)
    refused(capsys, "compressed")


# -- other files -----------------------------------------------------------------------------------


def test_weights_and_data_are_data(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("net.py").write_text(
        "from torch import nn\ndef f(): return nn.Sequential(nn.Flatten(), nn.Linear(4, 3))\n"
    )
    Path("evil.pt").write_bytes(evil())
    Path("old.pt").write_bytes(pickle.dumps(Boom()))
    for name in ("evil.pt", "old.pt"):
        assert main(["certify", "net:f", "data.npz", "--weights", name]) == 1
        assert "weights_only=True" in capsys.readouterr().err
    np.savez("evil.npz", images=np.array([Boom(), Boom()], dtype=object), labels=np.array([0, 1]))
    assert main(["certify", "net:f", "evil.npz"]) == 1
    assert "plain arrays" in capsys.readouterr().err
    run = Path("run")
    run.mkdir()
    (run / "checkpoint.pt").write_bytes(evil())
    for command in (
        ["evaluate", "run"],
        ["flatness", "run"],
        ["words", "a film", "--model", "run"],
    ):
        assert main([*command, "--files", "."]) == 1
        assert capsys.readouterr().err.startswith("boundlab: ")
