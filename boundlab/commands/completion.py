"""``boundlab completion``: scripts for shells, made from the parsers."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from boundlab.commands.speaking import json_target
from boundlab.commands.table import COMMANDS, parsers
from boundlab.defaults import COMPLETE, NORMS
from boundlab.methods.method import METHODS

RECIPES = "boundlab.training.recipes"
FILES = (None, Path, json_target)
"""How arguments are read that may be files: a model may be one too."""
FIRST = ("-h", "--help", "--version", "--name")


@dataclass(frozen=True)
class Flag:
    """A flag of a command, or an argument by its place. names: as it is typed, none of the latter.
    help: in a line. values: that it takes; files: whether it takes files. takes: whether it has a
    value at all; many: whether it may have several."""

    names: tuple[str, ...]
    help: str
    values: tuple[str, ...]
    files: bool
    takes: bool
    many: bool


def completion(options: argparse.Namespace) -> None:
    """Print the script for a shell."""
    flags = {name: flags_of(parser) for name, parser in parsers().items()}
    print(WRITERS[options.shell](flags), end="")


def flags_of(parser: argparse.ArgumentParser) -> list[Flag]:
    """What a command takes."""
    return [_flag(action) for action in parser._actions if action.help is not argparse.SUPPRESS]


def _flag(action: argparse.Action) -> Flag:
    values = tuple(map(str, action.choices or ()))
    if not values and isinstance(action.metavar, str):
        values = _named(action.metavar)
    help = " ".join((action.help or "").replace("%%", "%").split())
    many = action.nargs in ("+", "*")
    takes = action.nargs != 0
    files = takes and not values and action.type in FILES
    return Flag(tuple(action.option_strings), help, values, files, takes, many)


def _named(metavar: str) -> tuple[str, ...]:
    """What a value may be, by the name under which help shows it."""
    if metavar == "RECIPE":
        return tuple(import_module(RECIPES).RECIPES)
    known = {"METHOD": (*METHODS, COMPLETE), "NORM": NORMS, "DEVICE": ("cpu", "cuda")}
    return known.get(metavar, ())


# -- bash ------------------------------------------------------------------------------------------


def bash(commands: Mapping[str, Sequence[Flag]]) -> str:
    lines = [
        "# bash completion for boundlab; made by: boundlab completion bash",
        "_boundlab() {",
        '    local current="${COMP_WORDS[COMP_CWORD]}" last="" flags="" values="" i',
        "    local files=1 since=0",
        "    COMPREPLY=()",
        '    if [ "$COMP_CWORD" -eq 1 ]; then',
        f"        COMPREPLY=($(compgen -W '{' '.join((*commands, *FIRST))}' -- \"$current\"))",
        "        return",
        "    fi",
        "    for ((i = 2; i < COMP_CWORD; i++)); do  # the last flag, and how many words follow it",
        '        case "${COMP_WORDS[i]}" in',
        '            --*) last="${COMP_WORDS[i]}" since=0 ;;',
        "            *) since=$((since + 1)) ;;",
        "        esac",
        "    done",
        '    case "${COMP_WORDS[1]}" in',
    ]
    for name, flags in commands.items():
        lines += [f"        {name})", *_bash_command(flags), "            ;;"]
    lines += [
        "    esac",
        '    case "$current" in',
        '        -*) COMPREPLY=($(compgen -W "$flags" -- "$current")) ;;',
        "        *)",
        '            if [ -n "$values" ]; then',
        '                COMPREPLY=($(compgen -W "$values" -- "$current"))',
        '            elif [ "$files" = 1 ]; then',
        '                COMPREPLY=($(compgen -f -- "$current"))',
        "            fi",
        "            ;;",
        "    esac",
        "}",
        "complete -o filenames -F _boundlab boundlab",
        "",
    ]
    return "\n".join(lines)


def _bash_command(flags: Sequence[Flag]) -> list[str]:
    """The flags of a command, and the values of the flag that came last, or of its arguments."""
    names = " ".join(name for flag in flags for name in flag.names)
    lines = [f"            flags='{names}'"]
    by_place = " ".join(value for flag in flags if not flag.names for value in flag.values)
    if by_place:
        lines.append(f"            values='{by_place}'")
    lines.append('            case "$last:$since" in')
    for flag in flags:
        if flag.names and flag.takes:
            until = "*" if flag.many else "0"
            cases = "|".join(f"{name}:{until}" for name in flag.names)
            offered = f"values='{' '.join(flag.values)}' files={int(flag.files)}"
            lines.append(f"                {cases}) {offered} ;;")
    return [*lines, "            esac"]


# -- zsh -------------------------------------------------------------------------------------------


def zsh(commands: Mapping[str, Sequence[Flag]]) -> str:
    listed = [f"        {_quoted(f'{name}:{COMMANDS[name].help}')}" for name in commands]
    lines = [
        "#compdef boundlab",
        "# zsh completion for boundlab; made by: boundlab completion zsh",
        "_boundlab() {",
        "    local -a commands",
        "    commands=(",
        *listed,
        "    )",
        "    if (( CURRENT == 2 )); then",
        f"        compadd -- {' '.join(FIRST)}",
        "        _describe command commands",
        "        return",
        "    fi",
        '    local command="$words[2]"',
        "    shift words",
        "    (( CURRENT-- ))",
        '    case "$command" in',
    ]
    for name, flags in commands.items():
        lines += [f"        {name})", "            _arguments \\"]
        parts = [f"                {_quoted(one)}" for flag in flags for one in _zsh_flag(flag)]
        lines += [" \\\n".join(parts), "            ;;"]
    lines += [
        "    esac",
        "}",
        'if [ "$funcstack[1]" = _boundlab ]; then  # read by autoload, to complete at once',
        '    _boundlab "$@"',
        "else",
        "    compdef _boundlab boundlab",
        "fi",
        "",
    ]
    return "\n".join(lines)


def _zsh_flag(flag: Flag) -> list[str]:
    """As _arguments has it: one text for each name."""
    action = "_files" if flag.files else " "
    if flag.values:
        action = f"({' '.join(flag.values)})"
    help = flag.help
    for special in "\\[]:":
        help = help.replace(special, f"\\{special}")
    if not flag.names:
        return [f"*:{help}:{action}"] if flag.many else [f":{help}:{action}"]
    value = f":value:{action}" if flag.takes else ""
    return [f"{name}[{help}]{value}" for name in flag.names]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


# -- fish ------------------------------------------------------------------------------------------


def fish(commands: Mapping[str, Sequence[Flag]]) -> str:
    lines = ["# fish completion for boundlab; made by: boundlab completion fish"]
    first = "__fish_use_subcommand"
    for name in commands:
        help = _fish_quoted(COMMANDS[name].help)
        lines.append(f"complete -c boundlab -f -n {first} -a {name} -d {help}")
    lines += [f"complete -c boundlab -f -n {first} -l {name[2:]}" for name in FIRST[1:]]
    for name, flags in commands.items():
        chosen = f"'__fish_seen_subcommand_from {name}'"
        lines += [_fish_flag(chosen, flag) for flag in flags if flag.names or flag.values]
    return "\n".join([*lines, ""])


def _fish_flag(chosen: str, flag: Flag) -> str:
    """A line for a flag, or for an argument that has values. chosen: when it is offered."""
    parts = [f"complete -c boundlab -n {chosen}", *map(_fish_name, flag.names)]
    if flag.values:
        parts.append(f"-x -a {_fish_quoted(' '.join(flag.values))}")
    elif flag.takes:
        parts.append("-r -F" if flag.files else "-x")
    else:
        parts.append("-f")
    return " ".join([*parts, "-d", _fish_quoted(flag.help)])


def _fish_name(name: str) -> str:
    if name.startswith("--"):
        return f"-l {name[2:]}"
    return f"-s {name[1:]}"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


WRITERS = {"bash": bash, "zsh": zsh, "fish": fish}
