"""Arguments of a call by their names in the operator's schema."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from boundlab.compat.private import OpOverload, op_arguments
from boundlab.graph.graph import Operator

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
"""Those by place and those by keyword."""

REQUIRED = object()
"""The default of an argument that has none."""


class Parameter(NamedTuple):
    """One argument of an operator. place: None if it is given by keyword only."""

    name: str
    place: int | None
    default: object


@functools.cache
def parameters(op: Operator | None) -> Mapping[str | int, Parameter]:
    """The arguments of an operator by name and by place, from its schema or, for a Python function,
    from its signature."""
    assert op is not None, "a node without an operator has no arguments"
    if isinstance(op, OpOverload):
        declared = _of_schema(op)
    else:
        declared = _of_signature(op)
    table: dict[str | int, Parameter] = {}
    for place, (name, keyword_only, default) in enumerate(declared):
        row = Parameter(name, place, default)
        if keyword_only:
            row = Parameter(name, None, default)
        table[name] = table[place] = row
    return table


Declared = tuple[str, bool, object]
"""The name of an argument, whether it is given by keyword only, and its default."""


def _of_schema(op: OpOverload) -> Iterator[Declared]:
    for argument in op_arguments(op):
        default = REQUIRED
        if argument.has_default_value():
            default = argument.default_value
        yield argument.name, argument.kwarg_only, default


def _of_signature(op: Operator) -> Iterator[Declared]:
    for parameter in inspect.signature(op).parameters.values():
        default = parameter.default
        if default is parameter.empty:
            default = REQUIRED
        yield parameter.name, parameter.kind is parameter.KEYWORD_ONLY, default


def argument(
    op: Operator | None, args: tuple[Any, ...], kwargs: Mapping[str, Any], key: str | int
) -> Any:
    """The argument of a call ``op(*args, **kwargs)`` by its name or its place in the operator's
    schema, however it was given; its default if it was not. KeyError: there is no such argument."""
    name, place, default = parameters(op)[key]
    if place is not None and place < len(args):
        return args[place]
    if name in kwargs:
        return kwargs[name]
    if default is REQUIRED:
        raise KeyError(name)
    return default
