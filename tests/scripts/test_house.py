"""scripts/house.py counts what it says it counts, and its aims can be missed."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from textwrap import dedent
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "house.py"


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("house", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["house"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


house = _load()


def measured(source: str, file: str = "room/file.py"):
    return house.measure(dedent(source), file)


def test_lines_comments_and_docstrings():
    source = '''
        """A docstring
        of two lines."""

        # a comment

        x = 1  # not a comment line
        def f():
            """One."""

        y = "LONG"
        '''
    numbers = measured(source.replace("LONG", "a" * 100))
    assert (numbers.lines, numbers.comment_lines, numbers.docstring_lines) == (7, 1, 3)
    assert [place.line for place in numbers.long_lines] == [11]
    assert numbers.characters / numbers.lines == pytest.approx(
        (14 + 16 + 11 + 27 + 8 + 14 + 106) / 7
    )


def test_conditional_expressions_and_those_in_others():
    numbers = measured("a = 1 if b else 2\nc = 1 if b else (2 if d else 3)\n")
    assert numbers.conditionals == 3
    assert [place.line for place in numbers.nested_conditionals] == [2]
    assert numbers.rate(numbers.conditionals) == 1500


def test_parallel_assignments_and_lambdas():
    numbers = measured(
        """
        a, b = 1, 2
        a, b, c = 1, 2, 3
        a, b, c = f()
        a, b, c = (*x, *y)
        g = lambda x: x
        h = lambda x: (
            x)
        """
    )
    assert numbers.parallel == 2
    assert [place.line for place in numbers.wide_assignments] == [3]
    assert numbers.lambdas == 2
    assert [place.line for place in numbers.long_lambdas] == [7]


DECISIONS = {
    "pass": 1,
    "if a: pass\nelif b: pass\nelse: pass": 3,
    "for a in b: pass": 2,
    "while a: pass": 2,
    "x = a and b and c or d": 4,
    "x = a if b else c": 2,
    "try: pass\nexcept A: pass\nexcept B: pass": 3,
    "x = [a for a in b]": 1,
    "x = [a for a in b if a if b]": 3,
    "match a:\n    case 1: pass\n    case 2: pass": 3,
    "assert a": 2,
    "x = lambda a: a if a else b": 2,
    "def g():\n    if a: pass": 1,
}


@pytest.mark.parametrize("body", DECISIONS, ids=lambda body: body.replace("\n", " "))
def test_complexity(body):
    source = "def f():\n" + "\n".join(f"    {line}" for line in body.splitlines())
    (function,) = ast.parse(source).body
    assert house.complexity(function) == DECISIONS[body]


def test_functions_lengths_parameters_and_reasons():
    numbers = measured(
        """
        class A:
            @decorated
            def f(self, a, /, b, *c, d, **e):  # house: a table
                return a

            def g(self, a, b, c, d, e, f):
                def h():
                    pass
        """
    )
    found = {function.place.text: function for function in numbers.functions}
    assert list(found) == ["A.f", "A.g", "A.g.h"]
    assert [function.lines for function in found.values()] == [2, 3, 2]
    assert [function.parameters for function in found.values()] == [6, 7, 0]
    assert [function.positional for function in found.values()] == [3, 7, 0]
    assert [function.reason for function in found.values()] == ["a table", "", ""]
    assert [function.place.text for function in numbers.many_parameters()] == ["A.g"]


def test_any_and_type_ignore():
    numbers = measured(
        """
        from typing import Any
        x: Any = 1
        y: list[typing.Any] = []  # type: ignore[misc]
        z = "Any  # type: ignore"
        """
    )
    assert numbers.anys == 2
    assert [place.line for place in numbers.ignores] == [4]


def test_lookups_and_those_on_rules():
    numbers = measured(
        """
        getattr(options, "output", None)
        hasattr(relaxation, "backward_window")
        getattr(self.plan.rules[name], "unstable", None)
        getattr(rule, part.name)
        rule.getattr("x")
        """
    )
    assert [place.line for place in numbers.lookups] == [2, 3, 4, 5]
    assert [place.line for place in numbers.capability_lookups] == [3, 4]


PRIVATE = (
    "from torch.utils import _pytree as pytree",
    "from torch._ops import OpOverload",
    "import torch._dynamo",
    "import torch\ntorch._C._current_graph_task_id()",
    "from torch.nn.modules import transformer\ntransformer._detect_is_causal_mask",
    "op._schema.arguments",
    "site.node.op._schema",
    "size.node.expr",
    "size.node.shape_env.guards",
    "getattr(packet, '_qualified_op_name', '')",
    "logging.getLogger('torch._subclasses.fake_tensor')",
    "part._parameters.items()",
)
PUBLIC = (
    "import torch\ntorch.ops.aten._softmax.default",
    "aten._to_copy.default",
    "from torch.utils.data import DataLoader",
    "import torch\ntorch.__version__",
    "self._rows",
    "self.node.op",
    "from boundlab.compat import _x",
    "'the file torch._x is private'",
)


@pytest.mark.parametrize("source", PRIVATE)
def test_private_interfaces_of_torch_are_found(source):
    assert len(house.measure(source, "room/file.py").private_torch) == 1
    assert not house.measure(source, house.PRIVATE_FILE).private_torch


@pytest.mark.parametrize("source", PUBLIC)
def test_public_ones_are_not(source):
    assert not house.measure(source, "room/file.py").private_torch


def _package(directory: Path, source: str) -> Path:
    (directory / "room").mkdir()
    (directory / "room" / "file.py").write_text(dedent(source))
    (directory / "beside.py").write_text("x = 1\n" * 100)
    return directory


MISSED = {
    "columns": "x = '" + "a" * 100 + "'\n",
    "conditional": "x = a if b else c\n" * 20,
    "complexity": "def f():\n    return " + " and ".join("a" * 13) + "\n",
    "getattr": "getattr(rule, 'family', None)\n",
    "private": "import torch._dynamo\n",
}


@pytest.mark.parametrize("aim", MISSED)
def test_each_aim_can_be_missed(tmp_path, capsys, aim):
    package = _package(tmp_path, MISSED[aim])
    assert house.main([str(package), "--check"]) == 1
    printed = capsys.readouterr().out
    assert aim in printed
    assert sum(kept.text in printed for kept in house.AIMS) == 1
    assert house.main([str(package), "--check", "--rooms", "beside"]) == 0


def test_a_reason_on_the_def_line_excuses_complexity(tmp_path):
    source = MISSED["complexity"].replace("():", "():  # house: a table of cases")
    assert house.main([str(_package(tmp_path, source)), "--check"]) == 0


def test_tables(tmp_path, capsys):
    package = _package(tmp_path, "def f(a): return a if a else 1\n")
    assert house.main([str(package), "--places"]) == 0
    printed = capsys.readouterr().out
    shown = [line.rsplit(maxsplit=1) for line in printed.splitlines() if line.strip()]
    rows = {words[0].strip(): words[-1] for words in shown}
    assert rows["functions"] == "1" and rows["conditional expressions"] == "1"
    assert rows["lines that are not blank"] == "101"
    with pytest.raises(SystemExit):
        house.main([str(package), "--rooms", "cellar"])


def test_the_package_itself_can_be_measured():
    found = house.rooms(house.PACKAGE)
    assert {"capture", "methods", "rules", "net"} <= set(found)
    assert house.total(found.values()).files > 100
