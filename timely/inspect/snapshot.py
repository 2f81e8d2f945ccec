"""``Snapshot``: what a dataflow looks like at one moment, as plain data that pictures, pages and tables are made from.

It holds no reference to anything that runs: names and paths, what is connected to what, and, where the dataflow is built, the
frontiers and what is held and waits. The invariant: the same for the same dataflow in the same state, on any worker but for what
peers have not told it yet. Times are given as text, so that a snapshot can be sent anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import attrs

from timely.dataflow import Operator, ScopeBuilder
from timely.dataflow.custom_scope import CustomScope
from timely.errors import brief
from timely.progress import Antichain, Location, Source, Target
from timely.scopes import EGRESS, INGRESS, Subgraph
from timely.scopes.child import Child

Kind: TypeAlias = Literal["operator", "source", "scope"]
"""A source is an operator without inputs: an input, or what makes its records by itself."""

ENTRY = INGRESS
"""The node that edges inside a scope come from where a stream enters; its ports are the scope's inputs."""

EXIT = EGRESS
"""The node that edges inside a scope lead to where a stream leaves; its ports are the scope's outputs."""


OMITTED = "…"
"""What stands, at the end, for times that were left out of a snapshot, since they are many."""


@attrs.frozen
class Wire:
    """A stream inside a scope: from an output of a child to an input of another, or of ``ENTRY`` and to ``EXIT``.

    ``exchanged`` where its records may go to other workers.
    """

    source: tuple[int, int]
    target: tuple[int, int]
    exchanged: bool


@attrs.frozen
class Snapshot:
    """An operator, or a scope with all that is in it.

    ``frontiers`` are the times that may still come at each input, ``None`` where nobody knows: before the dataflow is built.
    ``held`` are the times of capabilities and ``waiting`` those of unread records, with how many there are on all workers.
    """

    index: int
    name: str
    path: str
    kind: Kind
    inputs: int
    outputs: int
    built_at: str
    frontiers: tuple[tuple[str, ...] | None, ...]
    held: tuple[tuple[str, int], ...]
    waiting: tuple[tuple[str, int], ...]
    times: str = ""
    children: tuple[Snapshot, ...] = ()
    wires: tuple[Wire, ...] = ()

    def operators(self) -> list[Snapshot]:
        """Return the operators in it, those of nested scopes included; of an operator, itself."""
        if self.kind != "scope":
            return [self]
        return [operator for child in self.children for operator in child.operators()]


def snapshot(scope: ScopeBuilder[Any]) -> Snapshot:
    """Return what a scope looks like now, with what is nested in it; it may still be being built.

    >>> import timely
    >>> worker = timely.Worker()
    >>> with worker.dataflow(name="df") as scope:
    ...     numbers, stream = scope.new_input()
    ...     _ = stream.map(str).probe()
    >>> seen = snapshot(scope)
    >>> [(child.name, child.kind, child.frontiers) for child in seen.children]
    [('input', 'source', ()), ('map', 'operator', (('0',),)), ('probe', 'operator', (('0',),))]
    >>> seen.children[0].held, [(wire.source, wire.target) for wire in seen.wires]
    ((('0', 1),), [((0, 0), (1, 0)), ((1, 0), (2, 0))])
    """
    return _scope(scope.index, scope.subgraph, scope.subgraph.is_built, _around(scope))


def _around(scope: ScopeBuilder[Any]) -> Sequence[Antichain[Any]]:
    """Return the frontiers at the inputs of a scope, in the times of the one around it."""
    if scope.parent is None or not scope.subgraph.is_built:
        return ()
    outer = scope.parent
    stamps = {**outer.subgraph.trackers[0].counts(), **_coming(outer.subgraph, _around(outer))}
    frontiers = outer.subgraph.trackers[0].frontiers(stamps)
    return [frontiers[Target(scope.index, port)] for port in range(scope.subgraph.inputs)]


def _scope(index: int, subgraph: Subgraph[Any, Any], live: bool, around: Sequence[Antichain[Any]]) -> Snapshot:
    counts: dict[Any, dict[Any, int]] = {}
    frontiers: dict[Location, Antichain[Any]] | None = None
    if live:
        stamps = {**subgraph.trackers[0].counts(), **_coming(subgraph, around)}
        frontiers = subgraph.trackers[0].frontiers(stamps)
        for (location, time), count in stamps.items():
            if count > 0:
                counts.setdefault(location, {})[time] = count
    return Snapshot(
        index,
        subgraph.name,
        subgraph.path,
        "scope",
        subgraph.inputs,
        subgraph.outputs,
        "",
        (),
        (),
        (),
        subgraph.domain.name,
        tuple(_child(subgraph, child, counts, frontiers) for child in subgraph.children),
        tuple(_wire(edge.source, edge.target, not edge.local) for edge in subgraph.edges),
    )


def _coming(subgraph: Subgraph[Any, Any], around: Sequence[Antichain[Any]]) -> dict[tuple[Location, Any], int]:
    """Return what may come into a nested scope, as capabilities at its inputs; it is told that only where somebody in it asks."""
    to_inner = subgraph.refinement.to_inner
    return {(Source(INGRESS, port), to_inner(time)): 1 for port, frontier in enumerate(around) for time in frontier}


def _child(
    around: Subgraph[Any, Any],
    child: Child,
    counts: dict[Any, dict[Any, int]],
    known: dict[Location, Antichain[Any]] | None,
) -> Snapshot:
    scope = child.scope
    targets = [Target(child.index, port) for port in range(scope.inputs)]
    sources = [Source(child.index, port) for port in range(scope.outputs)]
    frontiers = tuple(None if known is None else tuple(map(brief, known[target])) for target in targets)
    if isinstance(scope, Subgraph):
        coming = () if known is None else [known[target] for target in targets]
        return attrs.evolve(_scope(child.index, scope, known is not None, coming), frontiers=frontiers)
    origin = scope.info.origin if isinstance(scope, Operator | CustomScope) else None
    return Snapshot(
        child.index,
        child.name,
        f"{around.path}/{child.name}#{child.index}",
        "operator" if scope.inputs else "source",
        scope.inputs,
        scope.outputs,
        "" if origin is None else str(origin),
        frontiers,
        _summed([counts.get(source, {}) for source in sources]),
        _summed([counts.get(target, {}) for target in targets]),
    )


def _summed(counts: list[dict[Any, int]]) -> tuple[tuple[str, int], ...]:
    found: dict[Any, int] = {}
    for port in counts:
        for time, count in port.items():
            found[time] = found.get(time, 0) + count
    return tuple((brief(time), count) for time, count in found.items())


def _wire(source: Source, target: Target, exchanged: bool) -> Wire:
    return Wire((source.node, source.port), (target.node, target.port), exchanged)
