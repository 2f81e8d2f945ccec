"""``timely completion``: scripts that complete the command in a shell, made from what it takes.

The invariant: what is offered is what the parser knows, because it is asked. Where a file is wanted the shell offers files.
"""

from __future__ import annotations

import argparse
from typing import Any


def options(parser: argparse.ArgumentParser) -> dict[str, list[str]]:
    """Return what may follow each command: its options, and the values that its arguments may have.

    >>> parser = argparse.ArgumentParser()
    >>> commands = parser.add_subparsers()
    >>> _ = commands.add_parser("go").add_argument("--far")
    >>> options(parser)
    {'go': ['--help', '--far']}
    """
    found: dict[str, list[str]] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                found[name] = [word for each in command._actions for word in _words(each)]
    return found


def _words(action: argparse.Action) -> list[str]:
    long = [option for option in action.option_strings if option.startswith("--")]
    return long or [str(choice) for choice in action.choices or ()]


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the script for ``bash``, ``zsh`` or ``fish``."""
    scripts: dict[str, Any] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
    return str(scripts[shell](options(parser)))


def _bash(known: dict[str, list[str]]) -> str:
    cases = "\n".join(f'        {command}) words="{" ".join(words)}" ;;' for command, words in known.items())
    return f"""_timely() {{
    local words="{" ".join(known)} --help --version"
    case "${{COMP_WORDS[1]}}" in
{cases}
    esac
    [ "$COMP_CWORD" -eq 1 ] && words="{" ".join(known)} --help --version"
    COMPREPLY=($(compgen -W "$words" -f -- "${{COMP_WORDS[COMP_CWORD]}}"))
    [ "$COMP_CWORD" -eq 1 ] && COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[1]}}"))
}}
complete -o filenames -F _timely timely"""


def _zsh(known: dict[str, list[str]]) -> str:
    return f"autoload -U +X bashcompinit && bashcompinit\n{_bash(known)}"


def _fish(known: dict[str, list[str]]) -> str:
    lines = [f"complete -c timely -n __fish_use_subcommand -a '{' '.join(known)}'"]
    for command, words in known.items():
        flags = " ".join(f"-l {word[2:]}" for word in words if word.startswith("--"))
        values = " ".join(word for word in words if not word.startswith("--"))
        lines.append(f"complete -c timely -n '__fish_seen_subcommand_from {command}' {flags}".rstrip())
        if values:
            lines.append(f"complete -c timely -n '__fish_seen_subcommand_from {command}' -a '{values}'")
    return "\n".join(lines)
