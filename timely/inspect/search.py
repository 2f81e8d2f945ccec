"""Follows what holds a frontier back from scope to scope, to the operators that hold it.

A scope counts the pointstamps of its own operators: capabilities and unread messages, on all workers. Of a nested scope it only
knows the frontiers at the outputs. The search carries the counts inside out, and what may come from outside in. It finds every
pointstamp that arrives at the place, once for each minimal path.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from timely.dataflow import Operator, ScopeBuilder
from timely.dataflow.custom_scope import CustomScope
from timely.dataflow.origin import Origin
from timely.progress import Antichain, Blocker, Location, Source, Target
from timely.scopes import EGRESS, INGRESS, Child, Subgraph
from timely.worker.explanation_data import Kind, Leg, Reason, Unfinished

Counts: TypeAlias = dict[tuple[Location, Any], int]
Scope: TypeAlias = Subgraph[Any, Any]


class Search:
    """Searches one dataflow as it is now; the counts of each scope are read once."""

    def __init__(self, dataflow: ScopeBuilder[Any]) -> None:
        self._around: dict[int, tuple[Scope, int]] = {
            child.scope.number: (subgraph, child.index)
            for subgraph in dataflow.scopes
            for child in subgraph.children
            if isinstance(child.scope, Subgraph)
        }
        self._own: dict[int, Counts] = {}
        self._all: dict[int, Counts] = {}

    def reasons(self, scope: Scope, location: Location) -> Iterator[Reason]:
        """Yield the reasons for the frontier at a location of ``scope``."""
        arrivals = self._arrivals(scope, location)
        frontier = Antichain(blocker.arrives_at for blocker in arrivals).elements
        for blocker in arrivals:
            if blocker.arrives_at in frontier:
                yield from self._trace(scope, blocker, ())

    def origins(self, scope: Scope) -> Iterator[Reason]:
        """Yield what operators of ``scope`` hold or have not read, unless another pointstamp could result in it."""
        tracker, counts = scope.trackers[0], self._counts(scope)
        for location, time in tracker.origins(counts):
            if location.node >= 0 and not _is_nested(scope, location):
                [itself] = [b for b in tracker.arrivals(location, {(location, time): counts[location, time]}) if len(b.path) == 1]
                yield _reason(scope, itself, (_leg(scope, itself),))

    def unfinished(self, scope: Scope) -> Iterator[Unfinished]:
        """Yield the custom scopes that reported unfinished work when they were last pulled."""
        for index in scope.unfinished():
            child = scope.children[index]
            yield Unfinished(child.name, f"{scope.path}/{child.name}#{index}", _origin(child), child.patient)

    # -- counts ---------------------------------------------------------------------------------------------------

    def _arrivals(self, scope: Scope, location: Location) -> list[Blocker[Any]]:
        return scope.trackers[0].arrivals(location, self._counts(scope))

    def _counts(self, scope: Scope) -> Counts:
        """Return the counts of a scope, with what may come into it."""
        counts = self._all.get(scope.number)
        if counts is None:
            counts = self._all[scope.number] = dict(self._counted_inside(scope))
            for port in range(scope.inputs):
                around, index = self._around[scope.number]
                for outer in self._arrivals(around, Target(index, port)):
                    at = Source(INGRESS, port), scope.refinement.to_inner(outer.arrives_at)
                    counts[at] = counts.get(at, 0) + outer.count
        return counts

    def _counted_inside(self, scope: Scope) -> Counts:
        """Return the counts of a scope, with those of nested scopes as if these held them at their outputs."""
        inside = self._own.get(scope.number)
        if inside is None:
            counts = scope.trackers[0].counts()
            inside = {at: n for at, n in counts.items() if at[0].node != INGRESS and not _is_nested(scope, at[0])}
            for child in scope.children:
                if isinstance(child.scope, Subgraph):
                    for port in range(child.scope.outputs):
                        for inner in self._leaving(child.scope, port):
                            at = Source(child.index, port), child.scope.refinement.to_outer(inner.arrives_at)
                            inside[at] = inside.get(at, 0) + inner.count
            self._own[scope.number] = inside
        return inside

    def _leaving(self, scope: Scope, output: int) -> list[Blocker[Any]]:
        """Return how the counts inside a nested scope arrive at one of its outputs."""
        return scope.trackers[0].arrivals(Target(EGRESS, output), self._counted_inside(scope))

    # -- operators -----------------------------------------------------------------------------------------------------------

    def _trace(self, scope: Scope, blocker: Blocker[Any], rest: tuple[Leg, ...]) -> Iterator[Reason]:
        """Yield the operators behind a pointstamp of ``scope``; ``rest`` is the path from there on."""
        way = (_leg(scope, blocker), *rest)
        location = blocker.location
        if location.node == INGRESS:
            around, index = self._around[scope.number]
            for outer in self._arrivals(around, Target(index, location.port)):
                if scope.refinement.to_inner(outer.arrives_at) == blocker.time:
                    yield from self._trace(around, outer, way)
        elif _is_nested(scope, location):
            nested: Scope = scope.children[location.node].scope
            for inner in self._leaving(nested, location.port):
                if nested.refinement.to_outer(inner.arrives_at) == blocker.time:
                    yield from self._trace(nested, inner, way)
        else:
            yield _reason(scope, blocker, way)


def _is_nested(scope: Scope, location: Location) -> bool:
    """Whether this is an output of a nested scope, whose counts stand for what is inside."""
    return isinstance(location, Source) and location.node >= 0 and isinstance(scope.children[location.node].scope, Subgraph)


def _reason(scope: Scope, blocker: Blocker[Any], way: tuple[Leg, ...]) -> Reason:
    location = blocker.location
    child = scope.children[location.node]
    kind: Kind = "message" if isinstance(location, Target) else "capability" if child.scope.inputs else "input"
    path = f"{scope.path}/{child.name}#{child.index}"
    return Reason(kind, child.name, path, location.port, blocker.time, blocker.count, {}, _origin(child), way, way[-1].arrives_at)


def _origin(child: Child) -> Origin | None:
    return child.scope.info.origin if isinstance(child.scope, Operator | CustomScope) else None


def _leg(scope: Scope, blocker: Blocker[Any]) -> Leg:
    """Return the path through one scope, each operator once."""
    names: list[str] = []
    for location in blocker.path:
        name = _name(scope, location.node)
        if name and (not names or names[-1] != name):
            names.append(name)
    return Leg(scope.path, tuple(names), blocker.summary, blocker.arrives_at)


def _name(scope: Scope, node: int) -> str:
    """Return the name of a child with its index; empty for the boundary of the scope."""
    return f"{scope.children[node].name}#{node}" if node >= 0 else ""
