"""Why a frontier is where it is: who holds what, on which worker, where that was built, and on which path it arrives.

``Search`` finds what holds a frontier back in the counts of this worker. A scope counts the pointstamps of its own operators:
capabilities and unread messages, on all workers. Of a nested scope it only knows the frontiers at the outputs. The search carries
the counts inside out, and what may come from outside in. It finds every pointstamp that arrives at the place, once for each
minimal path. The workers are then asked who has it (:mod:`timely.inspect.capability_holders`). Each element of the frontier gets
all its reasons, and no others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import attrs

from timely.dataflow import InputPort, Operator, ScopeBuilder, Stream
from timely.dataflow.custom_scope import CustomScope
from timely.dataflow.origin import Origin
from timely.errors import ConfigurationError, GraphError, brief
from timely.inspect.capability_holders import CapabilityHolders, Holdings
from timely.monitor.local_workers import Member
from timely.operators import ProbeHandle
from timely.progress import Antichain, Blocker, Location, Source, Target
from timely.scopes import EGRESS, INGRESS, Child, Subgraph
from timely.worker import Worker
from timely.worker.dataflows import DataflowBuild
from timely.worker.explanation_data import Description, Explanation, Kind, Leg, Reason, Unfinished

Place: TypeAlias = Stream[Any, Any] | ProbeHandle[Any] | InputPort[Any, Any] | ScopeBuilder[Any]
"""What can be explained: the frontier at a stream, a probe or an input of an operator, or the end of a dataflow."""


def explain(worker: Worker, what: Place) -> Explanation:
    """Return why the frontier at a place is where it is, or why a dataflow is not complete, as ``worker`` sees it now.

    Asks the other workers of ``timely.execute`` what they hold, for at most two seconds; they do not have to cooperate. Takes
    time linear in the dataflow and in the objects of the process. ``GraphError`` for a dataflow that is still being built,
    ``ConfigurationError`` for one of another worker, and for any other argument.

    >>> import timely
    >>> worker = timely.Worker()
    >>> with worker.dataflow(name="df") as scope:
    ...     numbers, stream = scope.new_input()
    ...     probe = stream.map(str).probe()
    >>> _ = worker.step()
    >>> found = explain(worker, probe)
    >>> found.frontier, [(reason.kind, reason.path, reason.time) for reason in found.reasons]
    ((0,), [('input', '/df/input#0', 0)])
    >>> numbers.close()
    >>> worker.run()
    >>> print(explain(worker, probe))
    /df/probe#2 on worker 0 is complete: nothing can come any more
    """
    return explained(worker, what)


def explained(worker: Worker, what: Place, members: Sequence[Member] = ()) -> Explanation:
    """Return the same; ``members`` are the workers of this process, with their threads."""
    if isinstance(what, ScopeBuilder):
        return _end(worker, what, members)
    places = _places(what)
    by_dataflow: dict[ScopeBuilder[Any], list[Reason]] = {}
    for place in places:
        dataflow = _dataflow(worker, place)
        if dataflow is not None:
            by_dataflow.setdefault(dataflow, []).extend(Search(dataflow).reasons(place.scope, place.location))
    frontier = Antichain(reason.arrives_at for reasons in by_dataflow.values() for reason in reasons).elements
    behind = {
        dataflow: [reason for reason in reasons if reason.arrives_at in frontier] for dataflow, reasons in by_dataflow.items()
    }
    name = ", ".join(place.name for place in places) or "a probe that is attached nowhere"
    dropped = any(place.scope.dropped for place in places)
    return attrs.evolve(_explanation(worker, name, frontier, behind, members), dropped=dropped)


def _end(worker: Worker, scope: ScopeBuilder[Any], members: Sequence[Member]) -> Explanation:
    """Return what keeps a dataflow from being complete: the pointstamps that no other could result in."""
    _check_built(scope.root.subgraph)
    _check_own(worker, scope.allocator, scope.root.path)
    by_dataflow: dict[ScopeBuilder[Any], list[Reason]] = {}
    unfinished: list[Unfinished] = []
    if scope.root in worker.scopes:
        search = Search(scope.root)
        by_dataflow[scope.root] = [reason for subgraph in scope.root.scopes for reason in search.origins(subgraph)]
        unfinished = [each for subgraph in scope.root.scopes for each in search.unfinished(subgraph)]
    explanation = _explanation(worker, f"the end of {scope.root.path}", (), by_dataflow, members)
    return attrs.evolve(explanation, unfinished=tuple(unfinished), dropped=scope.root.subgraph.dropped)


def _explanation(
    worker: Worker,
    name: str,
    frontier: tuple[Any, ...],
    by_dataflow: Mapping[ScopeBuilder[Any], list[Reason]],
    members: Sequence[Member],
) -> Explanation:
    """Return the explanation, with each reason ascribed to the workers that hold it."""
    holders = CapabilityHolders(worker, members)
    reasons: list[Reason] = []
    seen: dict[int, Holdings] = {}
    described: list[Description] = []
    for dataflow, theirs in by_dataflow.items():
        if theirs:
            places = [reason.place for reason in theirs] if worker.peers > 1 else []
            holdings = holders.find(dataflow, places, [reason.path for reason in theirs])
            reasons += [attrs.evolve(reason, by_worker=_shares(reason, holdings, worker.peers)) for reason in theirs]
            seen |= {each.worker: each for each in holdings}
            described += [text for each in sorted(holdings, key=lambda each: each.worker) for text in each.described]
    part = {index for reason in reasons for index in reason.by_worker}
    missing = tuple(sorted(index for index, each in seen.items() if each.counts is None))
    known = [each.position for _, each in sorted(seen.items()) if each.position is not None]
    positions = tuple(where for where in known if where.operators or where.worker in part or where.worker in missing)
    explanation = Explanation(name, worker.index, frontier, tuple(reasons), positions, missing, holders.unreachable)
    return attrs.evolve(explanation, described=tuple(described))


def _shares(reason: Reason, holdings: Sequence[Holdings], peers: int) -> dict[int, int]:
    if peers == 1:
        return {0: reason.count}
    shares = {each.worker: (each.counts or {}).get((reason.place, reason.time), 0) for each in holdings}
    return {index: count for index, count in shares.items() if count}


def _dataflow(worker: Worker, place: _Place) -> ScopeBuilder[Any] | None:
    """Return the dataflow that a place is in; ``None`` if it is complete or dropped."""
    _check_built(place.scope)
    _check_own(worker, place.allocator, place.name)
    return next((dataflow for dataflow in worker.scopes if place.scope in dataflow.scopes), None)


def _check_built(scope: Subgraph[Any, Any]) -> None:
    if not scope.is_built:
        raise GraphError(f"explain: scope {scope.path} is not built yet: ask when the with-block of its dataflow is over")


def _check_own(worker: Worker, allocator: object, name: str) -> None:
    if isinstance(allocator, DataflowBuild) and allocator.worker is not worker:
        raise ConfigurationError(
            f"explain: {name} is in a dataflow of another worker, of index {allocator.worker.index}: ask that one, or ask worker"
            f" {worker.index} about its own part of the dataflow"
        )


@attrs.frozen
class _Place:
    """A location of a dataflow, its name in words, and the allocator that knows its worker."""

    scope: Subgraph[Any, Any]
    location: Location
    name: str
    allocator: object


def _places(what: object) -> list[_Place]:
    if isinstance(what, ProbeHandle):
        return [place for port in what.ports for place in _places(port)]
    if isinstance(what, InputPort) and isinstance(what.operator, Operator):
        operator = what.operator
        return [_Place(operator.scope, Target(operator.index, what.index), operator.path, operator.allocator)]
    if isinstance(what, Stream):
        scope, source = what.scope.subgraph, what.source
        name = f"{scope.path}/{scope.children[source.node].name}#{source.node}" if source.node >= 0 else f"input of {scope.path}"
        return [_Place(scope, source, f"output {source.port} of {name}", what.scope.allocator)]
    raise ConfigurationError(
        f"explain: give a stream, a probe or an input of an operator, or the scope of a dataflow, not {brief(what)}"
    )


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
