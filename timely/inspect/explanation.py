"""Why a frontier is where it is: who holds what, on which worker, where that was built, and on which path it arrives.

:mod:`timely.inspect.search` finds what holds a frontier back in the counts of this worker. The workers are then asked who has it
(:mod:`timely.inspect.capability_holders`). Each element of the frontier gets all its reasons, and no others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import attrs

from timely.dataflow import InputPort, Operator, ScopeBuilder, Stream
from timely.errors import ConfigurationError, GraphError, brief
from timely.inspect.capability_holders import CapabilityHolders, Holdings
from timely.inspect.search import Search
from timely.monitor.local_workers import Member
from timely.operators import ProbeHandle
from timely.progress import Antichain, Location, Target
from timely.scopes import Subgraph
from timely.worker import Worker
from timely.worker.dataflows import DataflowBuild
from timely.worker.explanation_data import Description, Explanation, Reason, Unfinished

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
