"""Docstrings as the reference needs them: examples become blocks of code, and references to other names become links.

Used by mkdocstrings, which loads the extension by this file's path.
"""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

ROLE = re.compile(r":\w+:`(~?)([^`]+)`")
DIRECTIVE = re.compile(r"\s*# doctest:.*")


def as_markdown(text: str) -> str:
    """Return a docstring as Markdown."""
    lines: list[str] = []
    in_example = False
    for line in text.split("\n"):
        if not in_example and line.lstrip().startswith(">>>"):
            lines += ["", "```pycon"]
            in_example = True
        elif in_example and not line.strip():
            lines.append("```")
            in_example = False
        lines.append(DIRECTIVE.sub("", line) if in_example else ROLE.sub(_link, line))
    return "\n".join([*lines, "```"] if in_example else lines)


def _link(role: re.Match[str]) -> str:
    short, name = role.groups()
    shown = name.rpartition(".")[2] if short else name
    return f"`{shown}`" if "." not in name else _link_to(name, shown)


def _link_to(name: str, shown: str) -> str:
    return f'<autoref identifier="{name}" optional>`{shown}`</autoref>'


def _list_methods(owner: Object, methods: Object) -> None:
    """Add links to the operators that are methods of a class, since the classes get them when the program runs."""
    operators = [name for name, member in methods.members.items() if str(getattr(member, "value", "")).startswith("operators.")]
    links = (_link_to(f"timely.operators.{name}", name) for name in sorted(operators))
    if owner.docstring is not None:
        owner.docstring.value += f"\n\nMethods that are operators: {', '.join(links)}."


class Docstrings(Extension):
    """Rewrites the docstrings of a package once it has been loaded."""

    def on_package(self, *, pkg: Any, **kwargs: Any) -> None:
        self._rewrite(pkg)
        if "methods" in pkg.members:
            _list_methods(pkg["dataflow.scope_builder.Stream"], pkg["methods.StreamMethods"])
            _list_methods(pkg["dataflow.scope_builder.ScopeBuilder"], pkg["methods.ScopeMethods"])

    def _rewrite(self, thing: Object) -> None:
        if thing.docstring is not None:
            thing.docstring.value = as_markdown(thing.docstring.value)
        for member in thing.members.values():
            if not member.is_alias:
                self._rewrite(member)
