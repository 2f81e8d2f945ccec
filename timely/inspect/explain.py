"""Why a frontier is where it is: who holds what, on which worker, where it was built, and on which way that reaches the place.

What holds the frontier back is found in what this worker has counted for all of them (:mod:`timely.inspect.search`), and who has
it by asking the workers (:mod:`timely.inspect.census`). The invariant: each element of the frontier has at least one reason, all
reasons are given, and none that does not arrive at an element of it. Nothing here changes anything, and nothing of it is on the
hot path: a dataflow that nobody asks about pays nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from timely.dataflow import InputPort, ScopeBuilder, Stream
from timely.errors import PlaceError as PlaceError  # where it was before
from timely.errors import ScopeError, shown
from timely.inspect.census import Census, Holdings
from timely.inspect.search import Search
from timely.monitor.local_workers import Member
from timely.operators import ProbeHandle
from timely.progress import Antichain, Location, Target
from timely.scopes import Subgraph
from timely.worker import Worker
from timely.worker.dataflows import DataflowBuild
from timely.worker.explanation import Explanation, Place, Reason, Unfinished


def explain(worker: Worker, what: Place) -> Explanation:
    """Return why the frontier at a place is where it is, or why a dataflow is not complete, as ``worker`` sees it now.

    What peers have not told this worker yet is not in it. Which worker has what, the workers of ``timely.execute`` are asked, in
    other processes too; it takes no part of theirs, and an answer is waited for for two seconds. A dataflow that is complete or
    dropped (which is said) has nothing that holds it back. Takes time in the size of the dataflow and of all that lives in the
    process. ``ScopeError`` for a dataflow that is still being built, ``PlaceError`` for one of another worker, and for anything
    else.

    >>> import timely
    >>> from timely.inspect import explain
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
    """Return the same for somebody who knows the workers of this process, and the threads that they are on."""
    if isinstance(what, ScopeBuilder):
        return _end(worker, what, members)
    places = _places(what)
    found: dict[ScopeBuilder[Any], list[Reason]] = {}
    for place in places:
        dataflow = _dataflow(worker, place)
        if dataflow is not None:
            found.setdefault(dataflow, []).extend(Search(dataflow).reasons(place.scope, place.location))
    frontier = Antichain(reason.arrives_at for reasons in found.values() for reason in reasons).elements
    behind = {dataflow: [reason for reason in reasons if reason.arrives_at in frontier] for dataflow, reasons in found.items()}
    name = ", ".join(place.name for place in places) or "a probe that is attached nowhere"
    dropped = any(place.scope.dropped for place in places)
    return attrs.evolve(_explanation(worker, name, frontier, behind, members), dropped=dropped)


def _end(worker: Worker, scope: ScopeBuilder[Any], members: Sequence[Member]) -> Explanation:
    """Return what keeps a dataflow from being complete: the pointstamps that no other one could still result in."""
    _check_built(scope.root.subgraph)
    _check_own(worker, scope.allocator, scope.root.path)
    found: dict[ScopeBuilder[Any], list[Reason]] = {}
    unfinished: list[Unfinished] = []
    if scope.root in worker.scopes:
        search = Search(scope.root)
        found[scope.root] = [reason for subgraph in scope.root.scopes for reason in search.origins(subgraph)]
        unfinished = [each for subgraph in scope.root.scopes for each in search.unfinished(subgraph)]
    explanation = _explanation(worker, f"the end of {scope.root.path}", (), found, members)
    return attrs.evolve(explanation, unfinished=tuple(unfinished), dropped=scope.root.subgraph.dropped)


def _explanation(
    worker: Worker,
    name: str,
    frontier: tuple[Any, ...],
    found: Mapping[ScopeBuilder[Any], list[Reason]],
    members: Sequence[Member],
) -> Explanation:
    """Return the explanation with what was found in each dataflow, ascribed to the workers that have it."""
    census = Census(worker, members)
    reasons: list[Reason] = []
    seen: dict[int, Holdings] = {}
    for dataflow, theirs in found.items():
        if theirs:
            places = [reason.place for reason in theirs] if worker.peers > 1 else []
            holdings = census.take(dataflow, places)
            reasons += [attrs.evolve(reason, by_worker=_shares(reason, holdings, worker.peers)) for reason in theirs]
            seen |= {each.worker: each for each in holdings}
    part = {index for reason in reasons for index in reason.by_worker}
    missing = tuple(sorted(index for index, each in seen.items() if each.counts is None))
    known = [each.position for _, each in sorted(seen.items()) if each.position is not None]
    positions = tuple(where for where in known if where.operators or where.worker in part or where.worker in missing)
    return Explanation(name, worker.index, frontier, tuple(reasons), positions, missing, census.unheard)


def _shares(reason: Reason, holdings: Sequence[Holdings], peers: int) -> dict[int, int]:
    """Return how much of it each worker has, as far as they could be asked."""
    if peers == 1:
        return {0: reason.count}
    found = {each.worker: (each.counts or {}).get((reason.place, reason.time), 0) for each in holdings}
    return {index: count for index, count in found.items() if count}


def _dataflow(worker: Worker, place: _Place) -> ScopeBuilder[Any] | None:
    """Return the dataflow of a worker that a place is in; ``None`` if that is complete or dropped."""
    _check_built(place.scope)
    _check_own(worker, place.allocator, place.name)
    return next((dataflow for dataflow in worker.scopes if place.scope in dataflow.scopes), None)


def _check_built(scope: Subgraph[Any, Any]) -> None:
    if not scope.is_built:
        raise ScopeError(f"explain: scope {scope.path} is not built yet: ask when the with-block of its dataflow is over")


def _check_own(worker: Worker, allocator: object, name: str) -> None:
    """Raise ``PlaceError`` for what is in a dataflow of another worker, of which this one knows nothing."""
    if isinstance(allocator, DataflowBuild) and allocator.worker is not worker:
        raise PlaceError(
            f"explain: {name} is in a dataflow of another worker, of index {allocator.worker.index}: ask that one, or ask worker"
            f" {worker.index} about its own part of the dataflow"
        )


@attrs.frozen
class _Place:
    """A location of a dataflow, how it is called, and what knows the worker it is on."""

    scope: Subgraph[Any, Any]
    location: Location
    name: str
    allocator: object


def _places(what: object) -> list[_Place]:
    if isinstance(what, ProbeHandle):
        return [place for port in what.ports for place in _places(port)]
    if isinstance(what, InputPort):
        operator = what.operator
        return [_Place(operator.scope, Target(operator.index, what.index), operator.path, operator.allocator)]
    if isinstance(what, Stream):
        scope, source = what.scope.subgraph, what.source
        name = f"{scope.path}/{scope.children[source.node].name}#{source.node}" if source.node >= 0 else f"input of {scope.path}"
        return [_Place(scope, source, f"output {source.port} of {name}", what.scope.allocator)]
    raise PlaceError(f"explain: give a stream, a probe or an input of an operator, or the scope of a dataflow, not {shown(what)}")
