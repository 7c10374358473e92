"""How the code of a package reads, in numbers, and whether it keeps the aims of the house.

python scripts/house.py                       the numbers of boundlab/, room by room
python scripts/house.py --places              where the exceptions are, each on a line
python scripts/house.py --check               fail if an aim is missed
python scripts/house.py --rooms capture cli   these rooms only

A room is a directory of the package, or a file that lies beside the directories. Only ``ast`` and
``tokenize`` are used: nothing of the package is imported.

Complexity of a function is one, and one more for every ``if``, ``elif``, ``for``, ``while``,
``except``, ``case``, ``assert``, conditional expression, ``if`` of a comprehension, and for every
operand of ``and`` and ``or`` after the first. Lambdas count for the function around them; functions
inside of functions count for themselves.

The length of a function is that of its lines without decorators, docstring included. Rates are per
1000 lines that are not blank.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import statistics
import sys
import tokenize
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

PACKAGE = Path(__file__).resolve().parent.parent / "boundlab"

COLUMNS = 100
CONDITIONALS = 12.0
"""Conditional expressions per 1000 lines that an aim allows."""
COMPLEXITY = 12
PARAMETERS = 7
LINES = 400
REASON = "# house:"
"""A comment that begins so, on the line of a ``def``, says why a function may be complex."""

WIDTH = 130
"""Columns of a terminal that the table of rooms needs."""

PRIVATE_FILE = "compat/private.py"
"""The one file that may know private interfaces of torch."""
TORCH_OBJECTS = frozenset(
    ("_schema", "_qualified_op_name", "_parameters", "_buffers", "_modules", "_version", "_base")
)
"""Private attributes of torch's objects; which object a name stands for is not known here."""
SYMBOLIC = frozenset(("expr", "shape_env"))
"""What ``SymInt.node`` has, of which nothing is documented."""
CAPABLE = frozenset(
    ("rule", "rules", "relax", "relaxation", "relaxations", "relaxed", "body", "family")
)
"""Names under which rules and relaxations go."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Place:
    """A line of a file and what stands there."""

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}"


@dataclass(frozen=True)
class Measured:
    """A function: its place, number of lines, complexity, parameters (``self`` included), how many
    of these may be given by position, and the reason that its ``def`` line gives for being
    complex."""

    place: Place
    lines: int
    complexity: int
    parameters: int
    positional: int
    reason: str


@dataclass
class Numbers:
    """What is counted in one file or in several."""

    files: int = 0
    lines: int = 0
    characters: int = 0
    comment_lines: int = 0
    docstring_lines: int = 0
    anys: int = 0
    lambdas: int = 0
    conditionals: int = 0
    parallel: int = 0
    functions: list[Measured] = field(default_factory=list)
    long_lines: list[Place] = field(default_factory=list)
    long_files: list[Place] = field(default_factory=list)
    nested_conditionals: list[Place] = field(default_factory=list)
    wide_assignments: list[Place] = field(default_factory=list)
    long_lambdas: list[Place] = field(default_factory=list)
    lookups: list[Place] = field(default_factory=list)
    capability_lookups: list[Place] = field(default_factory=list)
    ignores: list[Place] = field(default_factory=list)
    private_torch: list[Place] = field(default_factory=list)

    def __add__(self, other: Numbers) -> Numbers:
        return Numbers(**{name: value + vars(other)[name] for name, value in vars(self).items()})

    def rate(self, count: int) -> float:
        return 1000 * count / max(self.lines, 1)

    def over(self, complexity: int) -> list[Measured]:
        return [function for function in self.functions if function.complexity > complexity]

    def without_reason(self) -> list[Measured]:
        return [function for function in self.over(COMPLEXITY) if not function.reason]

    def many_parameters(self) -> list[Measured]:
        return [function for function in self.functions if function.parameters >= PARAMETERS]

    def many_by_position(self) -> list[Measured]:
        return [function for function in self.functions if function.positional >= PARAMETERS]


# -- one file --------------------------------------------------------------------------------------


def measure(source: str, file: str) -> Numbers:
    """The numbers of one file; ``file``: its path inside the package."""
    tree = ast.parse(source)
    found = Numbers(files=1)
    _count_lines(source, file, found)
    _count_comments(source, file, found)
    for node in ast.walk(tree):
        _count_node(node, file, found)
    if file != PRIVATE_FILE:
        found.private_torch = list(private_torch(tree, file))
    lines = source.splitlines()
    found.functions = [
        _measured(node, name, file, lines) for node, name in _functions(tree, prefix="")
    ]
    return found


def _count_lines(source: str, file: str, found: Numbers) -> None:
    lines = source.splitlines()
    written = [line for line in lines if line.strip()]
    found.lines = len(written)
    found.characters = sum(map(len, written))
    found.long_lines = [
        Place(file, number, f"{len(line)} columns")
        for number, line in enumerate(lines, start=1)
        if len(line) > COLUMNS
    ]
    if len(lines) > LINES:
        found.long_files = [Place(file, 1, f"{len(lines)} lines")]


def _count_comments(source: str, file: str, found: Numbers) -> None:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        if token.line.strip().startswith("#"):
            found.comment_lines += 1
        if re.match(r"#\s*type:\s*ignore", token.string):
            found.ignores.append(Place(file, token.start[0], token.string))


def _count_node(node: ast.AST, file: str, found: Numbers) -> None:
    match node:
        case ast.Module() | ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
            found.docstring_lines += _docstring_lines(node)
        case ast.IfExp():
            found.conditionals += 1
            if any(isinstance(part, ast.IfExp) for part in _inside(node)):
                found.nested_conditionals.append(_place(node, file))
        case ast.Lambda():
            found.lambdas += 1
            if _length(node) > 1:
                found.long_lambdas.append(_place(node, file))
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)) if not any(
            isinstance(value, ast.Starred) for value in values
        ):
            found.parallel += 1
            if len(names) > 2:
                found.wide_assignments.append(_place(node, file))
        case ast.Name(id="Any") | ast.Attribute(attr="Any"):
            found.anys += 1
        case ast.Call(func=ast.Name(id="getattr" | "hasattr"), args=[thing, name, *_]):
            found.lookups.append(_place(node, file))
            if isinstance(name, ast.Constant) and CAPABLE & set(_identifiers(thing)):
                found.capability_lookups.append(_place(node, file))


def _place(node: ast.expr | ast.stmt, file: str) -> Place:
    text = ast.unparse(node)
    return Place(file, node.lineno, text if len(text) <= 72 else text[:69] + "...")


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes below one, without itself."""
    nodes = ast.walk(node)
    next(nodes)
    return nodes


def _length(node: ast.expr | ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _docstring_lines(node: ast.Module | ast.ClassDef | Function) -> int:
    match node.body:
        case [ast.Expr(value=ast.Constant(value=str())) as docstring, *_]:
            return _length(docstring)
    return 0


def _identifiers(node: ast.expr) -> Iterator[str]:
    for part in ast.walk(node):
        match part:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                yield name


# -- functions -------------------------------------------------------------------------------------


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[Function, str]]:
    """All functions below a node, with their names as ``Class.method``."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function):
            yield child, prefix + child.name
            yield from _functions(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")
        else:
            yield from _functions(child, prefix)


def _measured(node: Function, name: str, file: str, lines: Sequence[str]) -> Measured:
    parameters = node.args
    positional = len(parameters.posonlyargs) + len(parameters.args)
    stars = sum(star is not None for star in (parameters.vararg, parameters.kwarg))
    _, _, reason = lines[node.lineno - 1].partition(REASON)
    return Measured(
        place=Place(file, node.lineno, name),
        lines=_length(node),
        complexity=complexity(node),
        parameters=positional + len(parameters.kwonlyargs) + stars,
        positional=positional,
        reason=reason.strip(),
    )


def complexity(node: Function) -> int:
    """The complexity of a function, as the head of this file defines it."""
    return 1 + sum(map(_decisions, _own_nodes(node)))


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes below one, but not those of functions and classes inside of it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, Function | ast.ClassDef):
            yield child
            yield from _own_nodes(child)


def _decisions(node: ast.AST) -> int:
    match node:
        case ast.If() | ast.IfExp() | ast.For() | ast.AsyncFor() | ast.While() | ast.Assert():
            return 1
        case ast.ExceptHandler() | ast.match_case():
            return 1
        case ast.BoolOp(values=values):
            return len(values) - 1
        case ast.comprehension(ifs=conditions):
            return len(conditions)
    return 0


# -- private interfaces of torch -------------------------------------------------------------------


def private_torch(tree: ast.Module, file: str) -> Iterator[Place]:
    """Where a file uses what begins with an underscore in torch. Operators such as
    ``torch.ops.aten._to_copy`` are public under that name and do not count."""
    roots = {"torch"} | {name for name, path in _imported(tree) if not path.startswith("torch.ops")}
    inner: set[int] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Import() | ast.ImportFrom():
                if any(_is_private(path) for path in _modules(node)):
                    yield _place(node, file)
            case ast.Attribute() if id(node) not in inner:
                inner |= {id(part) for part in ast.walk(node)}
                if _is_private_attribute(node, roots):
                    yield _place(node, file)
            case ast.Constant(value=str(text)):
                if re.fullmatch(r"torch(\.\w+)*\._\w+(\.\w+)*", text) or text in TORCH_OBJECTS:
                    yield _place(node, file)


def _modules(node: ast.Import | ast.ImportFrom) -> list[str]:
    """The full paths of what a statement imports."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [f"{node.module}.{alias.name}" for alias in node.names]


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The names that a file gives to parts of torch, and their paths."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias, path in zip(node.names, _modules(node), strict=True):
                if path.startswith("torch."):
                    yield alias.asname or alias.name, path


def _is_private(path: str) -> bool:
    first, *rest = path.split(".")
    return first == "torch" and any(map(_underscored, rest)) and rest[0] != "ops"


def _underscored(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _is_private_attribute(node: ast.Attribute, roots: set[str]) -> bool:
    parts = list(_dotted(node))
    if TORCH_OBJECTS & set(parts[1:]):
        return True
    if "node" in parts[:-1] and parts[parts.index("node") + 1] in SYMBOLIC:
        return True
    return parts[0] in roots and parts[1] != "ops" and any(map(_underscored, parts[1:]))


def _dotted(node: ast.expr) -> Iterator[str]:
    """The parts of ``a.b.c``; the first is empty where the chain does not begin with a name."""
    if isinstance(node, ast.Attribute):
        yield from _dotted(node.value)
        yield node.attr
    else:
        yield node.id if isinstance(node, ast.Name) else ""


# -- a package -------------------------------------------------------------------------------------


def rooms(package: Path) -> dict[str, Numbers]:
    """The numbers of each room of a package."""
    found: dict[str, Numbers] = {}
    for path in sorted(package.rglob("*.py")):
        inside = path.relative_to(package)
        room = inside.parts[0].removesuffix(".py")
        numbers = measure(path.read_text(encoding="utf-8"), inside.as_posix())
        found[room] = found.get(room, Numbers()) + numbers
    return found


def total(numbers: Iterable[Numbers]) -> Numbers:
    return sum(numbers, start=Numbers())


@dataclass(frozen=True)
class Aim:
    """An aim in words, and the text of every place that misses it."""

    text: str
    misses: Callable[[Numbers], list[str]]


def _texts(places: Iterable[Place]) -> list[str]:
    return [str(place) for place in places]


def _too_many_conditionals(numbers: Numbers) -> list[str]:
    rate = numbers.rate(numbers.conditionals)
    if rate <= CONDITIONALS:
        return []
    return [f"{rate:.1f} per 1000 lines"]


def _complex(numbers: Numbers) -> list[str]:
    found = sorted(numbers.without_reason(), key=lambda function: -function.complexity)
    return [f"{function.place}: {function.complexity}" for function in found]


AIMS = (
    Aim(f"no line over {COLUMNS} columns", lambda numbers: _texts(numbers.long_lines)),
    Aim(f"at most {CONDITIONALS:g} conditional expressions per 1000 lines", _too_many_conditionals),
    Aim(f"complexity over {COMPLEXITY} only with '{REASON} why' on the def line", _complex),
    Aim(
        "no getattr or hasattr on rules and relaxations",
        lambda numbers: _texts(numbers.capability_lookups),
    ),
    Aim(
        f"private interfaces of torch only in {PRIVATE_FILE}",
        lambda numbers: _texts(numbers.private_torch),
    ),
)


# -- tables ----------------------------------------------------------------------------------------


def _p90(values: Sequence[int]) -> float:
    if len(values) < 2:
        return float(sum(values))
    return statistics.quantiles(values, n=10, method="inclusive")[-1]


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _lengths(numbers: Numbers) -> str:
    lengths = [function.lines for function in numbers.functions] or [0]
    parts = statistics.median(lengths), statistics.fmean(lengths), _p90(lengths)
    return " / ".join(map(_number, parts))


ROWS: dict[str, Callable[[Numbers], str | int | float]] = {
    "files": lambda n: n.files,
    f"files over {LINES} lines": lambda n: len(n.long_files),
    "lines that are not blank": lambda n: n.lines,
    f"lines over {COLUMNS} columns": lambda n: len(n.long_lines),
    "mean line length": lambda n: n.characters / max(n.lines, 1),
    "comment lines": lambda n: n.comment_lines,
    "docstring lines": lambda n: n.docstring_lines,
    "conditional expressions": lambda n: n.conditionals,
    "  per 1000 lines": lambda n: n.rate(n.conditionals),
    "  nested": lambda n: len(n.nested_conditionals),
    "parallel assignments per 1000 lines": lambda n: n.rate(n.parallel),
    "  of more than two names": lambda n: len(n.wide_assignments),
    "lambdas per 1000 lines": lambda n: n.rate(n.lambdas),
    "  longer than a line": lambda n: len(n.long_lambdas),
    "functions": lambda n: len(n.functions),
    "  median / mean / p90 of lines": _lengths,
    "  complexity over 10": lambda n: len(n.over(10)),
    f"  complexity over {COMPLEXITY}": lambda n: len(n.over(COMPLEXITY)),
    "    without a reason": lambda n: len(n.without_reason()),
    "  complexity over 20": lambda n: len(n.over(20)),
    f"  with {PARAMETERS} or more parameters": lambda n: len(n.many_parameters()),
    "    by position": lambda n: len(n.many_by_position()),
    "getattr and hasattr": lambda n: len(n.lookups),
    "  on rules and relaxations": lambda n: len(n.capability_lookups),
    "Any": lambda n: n.anys,
    "type: ignore": lambda n: len(n.ignores),
    f"private torch outside {PRIVATE_FILE}": lambda n: len(n.private_torch),
}

ROOM_COLUMNS: dict[str, str] = {
    "lines": "lines that are not blank",
    "if-else\nper 1000": "  per 1000 lines",
    "nested": "  nested",
    "a, b, c =": "  of more than two names",
    "long\nlambdas": "  longer than a line",
    "complex\n> 10": "  complexity over 10",
    f"complex\n> {COMPLEXITY}": f"  complexity over {COMPLEXITY}",
    f"params\n>= {PARAMETERS}": f"  with {PARAMETERS} or more parameters",
    "by\nposition": "    by position",
    "getattr": "getattr and hasattr",
    "Any": "Any",
    "ignores": "type: ignore",
    "private\ntorch": f"private torch outside {PRIVATE_FILE}",
}


def _cell(row: str, numbers: Numbers) -> str:
    value = ROWS[row](numbers)
    if isinstance(value, str):
        return value
    return _number(value)


def whole_table(numbers: Numbers) -> Table:
    table = Table(title="The house in numbers", box=None, title_justify="left")
    table.add_column("")
    table.add_column("here", justify="right")
    for row in ROWS:
        table.add_row(row, _cell(row, numbers))
    return table


def room_table(found: dict[str, Numbers]) -> Table:
    table = Table(title="Room by room", box=None, title_justify="left")
    table.add_column("room")
    for title in ROOM_COLUMNS:
        table.add_column(title, justify="right")
    for room, numbers in found.items():
        table.add_row(room, *(_cell(row, numbers) for row in ROOM_COLUMNS.values()))
    return table


def places(numbers: Numbers) -> dict[str, list[str]]:
    """What is worth going to, by topic."""
    complex_ones = sorted(numbers.over(COMPLEXITY), key=lambda function: -function.complexity)
    return {
        f"Complexity over {COMPLEXITY}": [
            f"{function.place}: {function.complexity} {function.reason}".rstrip()
            for function in complex_ones
        ],
        f"{PARAMETERS} or more parameters": [
            f"{function.place}: {function.parameters}, {function.positional} by position"
            for function in numbers.many_parameters()
        ],
        "Nested conditional expressions": _texts(numbers.nested_conditionals),
        "Parallel assignments of more than two names": _texts(numbers.wide_assignments),
        "Lambdas longer than a line": _texts(numbers.long_lambdas),
        "getattr and hasattr": _texts(numbers.lookups),
        "type: ignore": _texts(numbers.ignores),
        "Private interfaces of torch": _texts(numbers.private_torch),
        f"Files over {LINES} lines": _texts(numbers.long_files),
        f"Lines over {COLUMNS} columns": _texts(numbers.long_lines),
    }


def _print_lists(console: Console, lists: dict[str, list[str]]) -> None:
    for title, texts in lists.items():
        if texts:
            console.print(f"\n{title} ({len(texts)})", style="bold")
            for text in texts:
                console.print(f"  {text}", soft_wrap=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="How the code reads, in numbers.")
    parser.add_argument("package", nargs="?", type=Path, default=PACKAGE)
    parser.add_argument("--rooms", nargs="+", metavar="ROOM", help="these rooms only")
    parser.add_argument("--places", action="store_true", help="where the exceptions are")
    parser.add_argument("--check", action="store_true", help="fail if an aim is missed")
    options = parser.parse_args(arguments)
    found = rooms(options.package)
    unknown = set(options.rooms or ()) - set(found)
    if unknown:
        parser.error(f"no room {', '.join(sorted(unknown))}: there are {', '.join(found)}")
    found = {room: found[room] for room in options.rooms or found}
    numbers = total(found.values())
    console = Console(highlight=False, markup=False, emoji=False)
    console.width = max(console.width, WIDTH)
    if not options.check:
        console.print(whole_table(numbers))
        console.print()
        console.print(room_table(found))
        if options.places:
            _print_lists(console, places(numbers))
        return 0
    missed = {aim.text: misses for aim in AIMS if (misses := aim.misses(numbers))}
    _print_lists(console, missed)
    if not missed:
        console.print("all aims are kept")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
