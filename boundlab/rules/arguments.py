"""Arguments of a call by their names in the operator's schema."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from boundlab.compat.private import OpOverload, op_arguments

REQUIRED = object()
"""The default of an argument that has none."""


@functools.cache
def parameters(op: Callable[..., Any]) -> Mapping[str | int, tuple[str, int | None, Any]]:
    """The arguments of an operator by name and by place: (name, place, default), from its schema
    or, for a Python function, from its signature. place: None if it is given by keyword only."""
    if isinstance(op, OpOverload):
        found = [
            (
                argument.name,
                argument.kwarg_only,
                argument.default_value if argument.has_default_value() else REQUIRED,
            )
            for argument in op_arguments(op)
        ]
    else:
        found = [
            (
                parameter.name,
                parameter.kind is parameter.KEYWORD_ONLY,
                REQUIRED if parameter.default is parameter.empty else parameter.default,
            )
            for parameter in inspect.signature(op).parameters.values()
        ]
    table: dict[str | int, tuple[str, int | None, Any]] = {}
    for place, (name, keyword_only, default) in enumerate(found):
        row = name, None if keyword_only else place, default
        table[name] = table[place] = row
    return table


def argument(
    op: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], key: str | int
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
