"""``timely completion``: shtab's script, with values of the form ``NAME=FILE`` and ``FILE.py:FUNCTION`` completed too."""

from __future__ import annotations

import argparse
from typing import Any, Final

import shtab

_VALUES: Final[dict[str, dict[str, str]]] = {
    "NAME=FILE": {
        "bash": "_timely_file_of_pair",
        "zsh": "{compset -P '*='; _files}",
        "fish": (
            "(set -l name (string match -r '^[^=]*=' -- (commandline -ct); or echo);"
            " printf '%s\\n' \\$name(__fish_complete_path (string replace -r '^[^=]*=' '' -- (commandline -ct))))"
        ),
    },
    "MODULE:BUILD": {"bash": "_timely_file_of_program", "zsh": "{_files -g '*.py'}", "fish": "(__fish_complete_suffix .py)"},
}
"""How the values of an option are completed, by its name in the help."""

_FILES: Final = ("FILE", "SCRIPT", "VIEWS.SQL", "DIR")

_BASH: Final = r"""
_timely_file_of_pair() {
  [[ $1 == *=* ]] && compgen -f -- "${1#*=}"
}

_timely_file_of_program() {
  case $1 in
    *:*) compgen -W "$(sed -n 's/^def \([A-Za-z0-9]\w*\)(.*/\1/p' "${1%%:*}" 2>/dev/null)" -- "${1#*:}" ;;
    *) compgen -f -X '!*.py' -- "$1"; compgen -d -- "$1" ;;
  esac
}
"""

_BASH_WORDS: Final = r"""
# Bash splits words at "=" and ":", which are within words of this command.
_timely() {
  local word glued= words=()
  for word in "${COMP_WORDS[@]:0:COMP_CWORD+1}"; do
    if [[ ${#words[@]} -gt 0 && ( $glued || $word == [=:]* ) ]]; then words[-1]+=$word; else words+=("$word"); fi
    [[ $word == *[=:] ]] && glued=1 || glued=
  done
  local COMP_WORDS=("${words[@]}") COMP_CWORD=$((${#words[@]} - 1))
  _shtab_timely
}
complete -o bashdefault -F _timely timely
"""


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the completion script of a parser: what the values of an option are follows from its name in the help."""
    for action in _actions(parser):
        name = str(action.metavar)
        if name in _FILES:
            action.complete = shtab.FILE
        elif name in ("NAME=FILE", "NAME=PATH"):
            action.complete = _VALUES["NAME=FILE"]
        elif name in _VALUES:
            action.complete = _VALUES[name]
    made: str = shtab.complete(parser, shell, preamble=_BASH if shell == "bash" else "")
    return made + _BASH_WORDS if shell == "bash" else made


def _actions(parser: argparse.ArgumentParser) -> list[Any]:
    actions: list[Any] = []
    for action in parser._actions:
        actions.append(action)
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                actions += _actions(each)
    return actions
