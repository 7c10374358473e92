"""The arguments of ``boundlab completion``."""

from __future__ import annotations

from boundlab.commands.parser import Parser

SHELLS = ("bash", "zsh", "fish")


def declare(parser: Parser) -> None:
    parser.description = "Print a script with which a shell completes commands, flags and names."
    parser.epilog = """\
examples:
  boundlab completion bash > ~/.local/share/bash-completion/completions/boundlab
  boundlab completion zsh > ~/.zfunc/_boundlab      (a folder of $fpath)
  boundlab completion fish > ~/.config/fish/completions/boundlab.fish"""
    shells = parser.add_argument_group("shell")
    shells.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))
