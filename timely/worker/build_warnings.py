"""Warnings of dataflows without a visible effect. Each is checked once, at build time or at the close."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from timely.dataflow import Operator, ScopeBuilder, warn
from timely.scopes import Subgraph

_EFFECTS: Final = "inspect"
"""The prefix of the names of operators with side effects."""


def warn_of_no_way_out(scope: ScopeBuilder[Any]) -> None:
    """Warn of each nested scope that streams enter but none leaves, and in which nothing captures or probes."""
    for subgraph in scope.scopes[1:]:
        if subgraph.inputs and not subgraph.outputs:
            _warn_of(subgraph)


def _warn_of(subgraph: Subgraph[Any, Any]) -> None:
    dangling: list[Operator[Any]] = []
    for child in subgraph.children:
        operator = child.scope
        if not isinstance(operator, Operator) or not operator.outputs or operator.name.startswith(_EFFECTS):
            return
        if any(not port.tee for port in operator.output_ports):
            dangling.append(operator)
    if dangling:
        last = dangling[-1]
        warn(
            f"nothing leaves scope {subgraph.path}, and nothing in it captures or probes what {last.name!r} sends: call leave()"
            " on that stream",
            last.info.origin,
        )


def warn_of_the_same(scope: ScopeBuilder[Any], theirs: Mapping[str, str]) -> None:
    """Warn of each source that sends the same records here and on another worker."""
    for path, (sketch, place) in scope.given.items():
        if theirs.get(path) == sketch:
            warn(
                f"each of the {scope.allocator.peers} workers sends the same to {path} ({sketch}), so that every record comes"
                f" {scope.allocator.peers} times: give on=0 to have worker 0 send alone, or on='each' if that is meant",
                place,
            )


def warn_of_never_run(scope: ScopeBuilder[Any]) -> None:
    """Warn of a dataflow with operators that read, none of which has ever run."""
    operators = [child.scope for subgraph in scope.scopes for child in subgraph.children if isinstance(child.scope, Operator)]
    if not scope.has_run and any(operator.inputs for operator in operators):
        warn(
            f"dataflow {scope.name!r} was built and never run: call worker.run(), or step the worker, before it is closed",
            operators[0].info.origin,
        )
