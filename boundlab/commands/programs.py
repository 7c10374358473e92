"""Programs saved with torch.export, read without running anything that the file holds.

``torch.export.load`` runs code that a file brings along: pickles of sample inputs, weights and
constants, names that become Python source, sizes and guards that are evaluated, operators by any
path below ``torch``, compiled libraries. Here a file is copied first, member by member: what is
known to be plain data goes into a new archive, everything else is an error. torch sees the copy
alone, so nothing depends on how another reader would have taken the original (members that occur
twice, strange paths).
"""

from __future__ import annotations

import ast
import io
import json
import re
import warnings
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from boundlab.compat.private import OpOverload, op_arguments
from boundlab.errors import CaptureError

TRUSTED = "of a .pt2 file only plain data is read: tensors, and a graph of torch's own operators"
ROOT = "package"


class _NotPlain(Exception):
    """What is not plain data, in words."""


def load_program(path: Path) -> ExportedProgram:
    """The program in a file, which may come from anywhere: what is not plain data is an error, and
    nothing of it is run."""
    try:
        copy = _plain_copy(path)
    except _NotPlain as error:
        raise CaptureError(f"{path} is refused: it holds {error}; {TRUSTED}") from error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.export.load(copy)


def _plain_copy(path: Path) -> io.BytesIO:
    copy = io.BytesIO()
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(copy, "w") as new:
        names = archive.namelist()
        if len(set(names)) < len(names):
            raise _NotPlain("members that occur twice")
        root = "".join(names[:1]).split("/")[0]
        if f"{root}/archive_format" not in names:
            other = (
                "it is not a program saved with torch.export.save, or one older than torch 2.8 "
                "(load and save it again with torch)"
            )
            raise _NotPlain(f"no archive_format, so {other}")
        for name in names:
            within = name.removeprefix(f"{root}/")
            if archive.getinfo(name).compress_type != zipfile.ZIP_STORED:
                raise _NotPlain("compressed members, which torch does not write")
            for pattern, checked in MEMBERS.items():
                if within != name and re.fullmatch(pattern, within):
                    if checked is not None:
                        new.writestr(f"{ROOT}/{within}", checked(archive.read(name)))
                    break
            else:
                raise _NotPlain(f"the member {name[:80]!r}")
    copy.seek(0)
    return copy


# -- tensors ---------------------------------------------------------------------------------------


def _as_it_is(content: bytes) -> bytes:
    return content


def _repickled(content: bytes) -> bytes:
    """A pickle of tensors and containers, read by torch's restricted reader and written anew."""
    if not content:
        return content
    try:
        found = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:
        raise _NotPlain("a pickle of more than tensors and containers") from error
    buffer = io.BytesIO()
    torch.save(_rebuilt(found), buffer)
    return buffer.getvalue()


def _rebuilt(value: Any) -> Any:
    """The value in new containers and tensors without attributes of their own."""
    if type(value) in (dict, OrderedDict):
        return type(value)((_rebuilt(key), _rebuilt(entry)) for key, entry in value.items())
    if type(value) in (tuple, list):
        return type(value)(_rebuilt(entry) for entry in value)
    if type(value) is nn.Parameter:
        return nn.Parameter(value.detach().clone(), value.requires_grad)
    if type(value) is Tensor:
        return value.detach().clone().requires_grad_(value.requires_grad)
    if value is None or type(value) in (
        str,
        bytes,
        bool,
        int,
        float,
        complex,
        torch.Size,
        torch.dtype,
        torch.device,
    ):
        return value
    raise _NotPlain(f"a {type(value).__name__} among its tensors")


# -- the graph -------------------------------------------------------------------------------------

NAME = re.compile(r"[\w.-]*", re.ASCII)
"""Names become Python source in torch.fx."""
VERSION = re.compile(r"[\w.+<=-]*", re.ASCII)
NOTES = ("stack_trace", "nn_module_stack")
"""Remarks on a node that errors quote; torch keeps them as text."""
FILES = re.compile(r"(weight|tensor)_\d+", re.ASCII)
TREES = (
    "builtins.tuple",
    "builtins.list",
    "builtins.dict",
    "collections.OrderedDict",
    "torch.fx.immutable_collections.immutable_list",
)
BLOCKS = (
    "wrap_with_set_grad_enabled",
    "wrap_with_autocast",
    "cond",
    "while_loop",
    "scan",
    "map_impl",
    "associative_scan",
)
"""Operators that apply other graphs of the same file."""
SIZES = re.compile(
    r"_operator\.(add|and_|eq|floordiv|ge|getitem|gt|le|lshift|lt|mod|mul|ne|neg|or_|pos|pow"
    r"|rshift|sub|truediv)"
    r"|torch\.sym_(float|int|ite|max|min|not|sqrt|sum|constrain_range|constrain_range_for_size)"
    r"|torch\._sym_sqrt|math\.(trunc|ceil|floor)"
)
"""Functions of sizes."""


def _checked_json(content: bytes) -> bytes:
    """JSON of which every string is known to be harmless in its place, written anew."""
    return json.dumps(_checked(json.loads(content), "")).encode()


def _checked(value: Any, key: str) -> Any:
    """A part of the JSON; key: the name under which it stands, in a list that of the list."""
    if key == "metadata":
        return {note: str(text) for note, text in dict(value).items() if note in NOTES}
    if isinstance(value, dict):
        named = NAMES.get(key, _name)
        return {named(entry): _checked(part, entry) for entry, part in value.items()}
    if isinstance(value, list):
        return [_checked(part, key) for part in value]
    if key == "use_pickle" and value is not False:
        raise _NotPlain("pickled tensors")
    if isinstance(value, str):
        return CHECKS.get(key, _name)(value)
    return value


def _name(text: str) -> str:
    if not NAME.fullmatch(text) or any(re.fullmatch("__.*__", part) for part in text.split(".")):
        raise _NotPlain(f"the name {text[:80]!r}")
    return text


def _text(text: str) -> str:
    """A mode or a message. torch pastes texts between quotes into source, so what could end them
    there is left out."""
    return re.sub(r"['\"\\\x00-\x1f]", " ", text)


def _version(text: str) -> str:
    if not VERSION.fullmatch(text):
        raise _NotPlain(f"the version {text[:80]!r}")
    return text


def _file(text: str) -> str:
    if not FILES.fullmatch(text):
        raise _NotPlain(f"the file {text[:80]!r}")
    return text


def _operator(text: str) -> str:
    """The path of an operator, which must lead to one of torch's own that touches no files."""
    if SIZES.fullmatch(text):
        return text
    kind, *path = _name(text).removeprefix("torch.ops.").split(".")
    if (
        text.startswith("torch.ops.")
        and kind == "higher_order"
        and path in [[name] for name in BLOCKS]
    ):
        return text
    if text.startswith("torch.ops.") and kind in ("aten", "prims") and len(path) == 2:
        found = getattr(getattr(getattr(torch.ops, kind), path[0], None), path[1], None)
        if isinstance(found, OpOverload) and all(
            argument.name != "filename" for argument in op_arguments(found)
        ):
            return text
    raise _NotPlain(
        f"the operator {text[:80]!r}, which is not one of torch's own, or reads and writes files"
    )


def _tree(text: str) -> str:
    """How arguments or outputs are nested: [version, tree]."""
    version, tree = json.loads(text)
    return json.dumps([int(version), _checked_tree(tree)])


def _checked_tree(tree: dict[str, Any]) -> dict[str, Any]:
    kind, context = tree["type"], tree["context"]
    if kind is not None and kind not in TREES:
        raise _NotPlain(f"a structure of type {str(kind)[:80]!r}")
    if context is not None:
        keys = json.loads(context)
        if keys is not None and not (
            isinstance(keys, list) and all(isinstance(key, str | int) for key in keys)
        ):
            raise _NotPlain(f"the keys {context[:80]!r}")
        context = json.dumps(keys and [_name(key) if isinstance(key, str) else key for key in keys])
    return {
        "type": kind,
        "context": context,
        "children_spec": [_checked_tree(child) for child in tree["children_spec"]],
    }


# -- sizes and guards, which torch evaluates -------------------------------------------------------

FUNCTIONS = re.compile(
    r"Symbol|Integer|Float|Rational|Add|Mul|Pow|Mod|Max|Min|Abs"
    r"|Equality|Unequality|(Strict)?(Less|Greater)Than|And|Or|Not|floor|ceiling"
    r"|FloorDiv|ModularIndexing|Where|PythonMod|CleanDiv|CeilDiv|[LR]Shift|PowByNatural|FloatPow"
    r"|(Float|Int)TrueDiv|(Ceil|Floor|Round|Trunc)ToInt|TruncToFloat|RoundDecimal|ToFloat"
    r"|Identity|IsNonOverlappingAndDenseIndicator|max|min|abs|int|float"
)
SYMBOLS = re.compile(r"L|torch|true|false|oo|int_oo|[a-z]+\d+", re.ASCII)
WORDS = re.compile(r"\w+|[-+.\de]+", re.ASCII)
ATTRIBUTES = ("size", "stride", "storage_offset", "sym_max", "sym_min")
"""Of arguments, and of torch: guards of torch 2.15 have ``torch.sym_max(1, L['x'].size()[1])``."""
GRAMMAR = (
    ast.Expression, ast.Constant, ast.Name, ast.Call, ast.Attribute, ast.Subscript, ast.keyword,
    ast.expr_context, ast.BinOp, ast.UnaryOp,
    ast.BoolOp, ast.Compare, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow,
    ast.USub, ast.Not, ast.And, ast.Or, ast.cmpop,
)  # fmt: skip


def _expression(text: str) -> str:
    """Arithmetic of sizes: numbers, symbols, known functions, and the sizes of arguments
    (L['x'].size()[0])."""
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError) as error:
        raise _NotPlain(f"the expression {text[:80]!r}") from error
    if not all(_arithmetic(node) for node in ast.walk(tree)):
        raise _NotPlain(f"the expression {text[:80]!r}")
    return ast.unparse(tree)


def _looked_up(text: str) -> str:
    """An expression that torch compares with others, letter by letter."""
    _expression(text)
    return text


def _arithmetic(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) or (
            isinstance(node.func, ast.Name) and FUNCTIONS.fullmatch(node.func.id) is not None
        )
    if isinstance(node, ast.Attribute):
        return node.attr in ATTRIBUTES
    if isinstance(node, ast.Name):
        return any(known.fullmatch(node.id) for known in (FUNCTIONS, SYMBOLS))
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return WORDS.fullmatch(node.value) is not None
    if isinstance(node, ast.Constant):
        return type(node.value) in (int, float, bool)
    return isinstance(node, GRAMMAR)


CHECKS: dict[str, Callable[[str], str]] = {
    "expr_str": _expression,
    "guards_code": _expression,
    "target": _operator,
    "as_operator": _operator,
    "in_spec": _tree,
    "out_spec": _tree,
    "as_string": _text,
    "as_strings": _text,
    "torch_version": _version,
    "path_name": _file,
}
"""What strings may be, by the name under which they stand; all others are names."""
NAMES: dict[str, Callable[[str], str]] = {"range_constraints": _looked_up}
"""What the keys of a dict may be, by the name under which it stands; all others are names."""

MEMBERS: dict[str, Callable[[bytes], bytes] | None] = {
    r"models/model\.json": _checked_json,
    r"data/(weights|constants)/model_\1_config\.json": _checked_json,
    r"data/(weights/weight|constants/tensor)_\d+": _as_it_is,
    r"data/(sample_inputs|weights|constants)/model\.pt": _repickled,
    r"archive_format|archive_version|byteorder|\.data/version": _as_it_is,
    r"\.format_version|\.storage_alignment": _as_it_is,
    r"extra/.*|\.data/serialization_id": None,
}
"""The members of an archive by their names, and what becomes of them; None: they are not needed."""
