"""Why a frontier is where it is: who holds what, where it was built, and on which way that reaches the place asked about.

What holds a frontier back is a pointstamp: a capability that an operator holds, or a message that it has not read. The tracker
of one scope knows those of its own operators; where the way leads into a nested scope or out to the one around it, the question
is put again there, so that in the end every reason names an operator, however deep. The invariant: each element of the frontier
has at least one reason, and no reason is given that does not arrive at an element of it. On a worker without peers all are
given; with peers a scope shows the one around it only the earliest of what is in it, and the rest is named when that is gone.
Nothing here changes anything, and nothing of it is on the hot path: a dataflow that nobody asks about pays nothing.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal, TypeAlias

import attrs

from timely.dataflow import InputPort, Operator, ScopeBuilder, Stream
from timely.dataflow.foreign import Foreign
from timely.dataflow.origin import Origin
from timely.errors import ScopeError
from timely.inspect.census import Census
from timely.operators import ProbeHandle
from timely.progress import Antichain, Blocker, Location, PathSummary, Source, Target
from timely.scopes import EGRESS, INGRESS, Subgraph
from timely.worker import Worker

Kind: TypeAlias = Literal["input", "capability", "message"]
"""What holds a frontier back: a source that may still send, a capability of another operator, or records that are not read."""

_SHOWN: Final = 10
_TIMES: Final = 3


@attrs.frozen
class Leg:
    """The part of a way that lies in one scope: the operators that it passes, the summary of the path through them, and when
    what sets out at the beginning gets to the end, in the scope's own time.
    """

    scope: str
    operators: tuple[str, ...]
    summary: PathSummary[Any]
    arrives_at: Any


@attrs.frozen
class Reason:
    """One thing that holds a frontier back.

    ``operator`` holds ``count`` capabilities, or has not read as many records, at ``time``, in all workers together;
    ``by_worker`` says how many of them are where, as far as that can be seen from this process. ``way`` leads from there to the
    place that was asked about, a leg for each scope, and arrives as ``arrives_at``. ``origin`` is where it was built.
    """

    kind: Kind
    operator: str
    path: str
    time: Any
    count: int
    by_worker: dict[int, int]
    origin: Origin | None
    way: tuple[Leg, ...]
    arrives_at: Any

    def __str__(self) -> str:
        return _told([self])


def _told(reasons: Sequence[Reason]) -> str:
    """Return reasons that are of one kind, of one operator and on one way, in words."""
    first = reasons[0]
    built = "" if first.origin is None else f", built at {first.origin}"
    lines = [f"{first.operator!r} ({first.path}{built}) {_deed(reasons)}", f"  {_where(reasons)}"]
    passed = [name for leg in first.way for name in leg.operators]
    if len(passed) > 1:
        arrives = "" if first.arrives_at == first.time else f", and gets there as {first.arrives_at!r}"
        lines.append(f"  it goes {' -> '.join(passed)}{arrives}")
    return "\n".join(lines)


def _deed(reasons: Sequence[Reason]) -> str:
    """Return what the operator does, or leaves undone, and what would end that."""
    kind, count = reasons[0].kind, sum(reason.count for reason in reasons)
    times = ", ".join(repr(reason.time) for reason in reasons[:_TIMES])
    if len(reasons) > _TIMES:
        times += f" and {len(reasons) - _TIMES} more"
    if kind == "message":
        return f"has not read {_several(count, 'record', 'records')} at {times}"
    if kind == "input":
        return f"may still send at {times}: advance it past that, or close it"
    return f"holds {_several(count, 'capability', 'capabilities')} for {times}: downgrade or drop what is not needed"


def _where(reasons: Sequence[Reason]) -> str:
    """Return on which workers it is, in words."""
    found: Counter[int] = Counter()
    for reason in reasons:
        found.update(reason.by_worker)
    parts = [f"{count} on worker {worker}" for worker, count in sorted(found.items())]
    unseen = sum(reason.count for reason in reasons) - found.total()
    if unseen > 0:
        parts.append(f"{unseen} in another process, or on the way from worker to worker")
    return ", ".join(parts)


def _several(count: int, one: str, more: str) -> str:
    return f"{count} {one if count == 1 else more}"


@attrs.frozen
class Explanation:
    """Why the frontier at ``place`` is ``frontier``, as one worker sees it: its ``reasons``, in words when it is printed.

    That of the end of a dataflow is empty, and what still keeps it from being reached are the reasons.
    """

    place: str
    worker: int
    frontier: tuple[Any, ...]
    reasons: tuple[Reason, ...]

    def __str__(self) -> str:
        if not self.reasons:
            return f"{self.place} on worker {self.worker} is complete: nothing can come any more"
        at = f"at {', '.join(map(repr, self.frontier))}" if self.frontier else "not reached"
        lines = [f"{self.place} on worker {self.worker} is {at}, because"]
        groups: dict[Any, list[Reason]] = {}
        for reason in self.reasons:
            groups.setdefault((reason.kind, reason.path, tuple(leg.operators for leg in reason.way)), []).append(reason)
        lines += [textwrap.indent(_told(group), "    ").replace("    ", "  - ", 1) for group in list(groups.values())[:_SHOWN]]
        if len(groups) > _SHOWN:
            lines.append(f"  - and {len(groups) - _SHOWN} more, see .reasons")
        return "\n".join(lines)


Place: TypeAlias = Stream[Any, Any] | ProbeHandle[Any] | InputPort[Any, Any] | ScopeBuilder[Any]
"""What one may ask about: the frontier at a stream, a probe, or an operator's input; or the end of a dataflow."""


def explain(worker: Worker, what: Place) -> Explanation:
    """Return why the frontier at a place is where it is, or why a dataflow is not complete, as ``worker`` sees it now.

    What peers have not told this worker yet is not in it: ask each worker. A dataflow that is complete, dropped or another
    worker's has nothing that holds it back here. Takes time in the size of the dataflow and of all that lives in the process.
    ``ScopeError`` for a dataflow that is still being built, ``TypeError`` for anything else.

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
    census = Census()
    if isinstance(what, ScopeBuilder):
        return _explain_end(worker, what, census)
    places = _places(what)
    found = [blocker for place in places for blocker in _blockers(worker, place, census)]
    frontier = Antichain(reason.arrives_at for reason in found)
    name = ", ".join(place.name for place in places) or "a probe that is attached nowhere"
    return Explanation(name, worker.index, frontier.elements, tuple(r for r in found if r.arrives_at in frontier.elements))


def _explain_end(worker: Worker, scope: ScopeBuilder[Any], census: Census) -> Explanation:
    """Return what keeps a dataflow from being complete: the pointstamps that no other one could still result in."""
    reasons: list[Reason] = []
    _check_built(scope.root.subgraph)
    if scope.root in worker.scopes:
        search = _Search(worker, _nesting(scope.root), census)
        reasons = [reason for subgraph in scope.root.scopes for reason in search.heads(subgraph)]
    return Explanation(f"the end of {scope.root.path}", worker.index, (), tuple(reasons))


@attrs.frozen
class _Place:
    """A location of a dataflow, and how it is called."""

    scope: Subgraph[Any, Any]
    location: Location
    name: str


def _places(what: object) -> list[_Place]:
    if isinstance(what, ProbeHandle):
        return [place for port in what.ports for place in _places(port)]
    if isinstance(what, InputPort):
        operator = what.operator
        return [_Place(operator.scope, Target(operator.index, what.index), operator.path)]
    if isinstance(what, Stream):
        scope, source = what.scope.subgraph, what.source
        name = f"{scope.path}/{scope.children[source.node].name}#{source.node}" if source.node >= 0 else f"input of {scope.path}"
        return [_Place(scope, source, f"output {source.port} of {name}")]
    raise TypeError(f"explain: give a stream, a probe or an input of an operator, not {what!r}")


def _blockers(worker: Worker, place: _Place, census: Census) -> list[Reason]:
    _check_built(place.scope)
    parents = _surroundings(worker, place)
    return [] if parents is None else list(_Search(worker, parents, census).reasons(place.scope, place.location))


def _check_built(scope: Subgraph[Any, Any]) -> None:
    if not scope.is_built:
        raise ScopeError(f"explain: scope {scope.path} is not built yet: ask when the with-block of its dataflow is over")


_Parents: TypeAlias = dict[int, tuple[Subgraph[Any, Any], int]]
"""By the number of a nested scope: the scope around it, and its index there."""


def _surroundings(worker: Worker, place: _Place) -> _Parents | None:
    """Return what is nested in what in the place's dataflow; ``None`` if that is complete or dropped."""
    for dataflow in worker.scopes:
        if place.scope in dataflow.scopes:
            return _nesting(dataflow)
    return None


def _nesting(dataflow: ScopeBuilder[Any]) -> _Parents:
    return {
        child.scope.number: (subgraph, child.index)
        for subgraph in dataflow.scopes
        for child in subgraph.children
        if isinstance(child.scope, Subgraph)
    }


class _Search:
    """Follows what holds a location back, from scope to scope, to the operators."""

    def __init__(self, worker: Worker, parents: _Parents, census: Census) -> None:
        self._worker = worker.index
        self._parents = parents
        self._census = census

    def reasons(self, scope: Subgraph[Any, Any], location: Location) -> Iterator[Reason]:
        """Yield the reasons of the frontier at a location of ``scope``."""
        for blocker in scope.trackers[0].explain(location):
            yield from self._trace(scope, blocker, ())

    def heads(self, scope: Subgraph[Any, Any]) -> Iterator[Reason]:
        """Yield the operators of ``scope`` itself that hold or have not read what is not a mere consequence of something else."""
        tracker = scope.trackers[0]
        for (location, time), count in tracker.counts().items():
            if location.node < 0 or count <= 0 or isinstance(scope.children[location.node].scope, Subgraph):
                continue
            here = [blocker for blocker in tracker.arrivals(location) if blocker.arrives_at <= time]
            if here and all(blocker.location == location and blocker.time == time for blocker in here):
                yield from self._trace(scope, here[0], ())

    def _trace(self, scope: Subgraph[Any, Any], blocker: Blocker[Any], rest: tuple[Leg, ...]) -> Iterator[Reason]:
        """Yield the operators behind one pointstamp of ``scope``; ``rest`` is the way on from where its path ends."""
        way = (_leg(scope, blocker), *rest)
        node = blocker.location.node
        if node == INGRESS:
            parent, index = self._parents[scope.number]
            for outer in parent.trackers[0].explain(Target(index, blocker.location.port)):
                if scope.refinement.to_inner(outer.arrives_at) == blocker.time:
                    yield from self._trace(parent, outer, way)
            return
        child = scope.children[node]
        if isinstance(child.scope, Subgraph) and isinstance(blocker.location, Source):
            nested = child.scope
            for inner in _work_inside(nested, blocker.location.port):
                if nested.refinement.to_outer(inner.arrives_at) == blocker.time:
                    yield from self._trace(nested, inner, way)
            return
        yield self._reason(scope, blocker, way)

    def _reason(self, scope: Subgraph[Any, Any], blocker: Blocker[Any], way: tuple[Leg, ...]) -> Reason:
        location, time = blocker.location, blocker.time
        child = scope.children[location.node]
        operator = child.scope
        kind: Kind = "message" if isinstance(location, Target) else "capability" if operator.inputs else "input"
        where: dict[int, int] = {}
        if scope.peers == 1:
            where = {self._worker: blocker.count}
        elif isinstance(operator, Operator):
            ask = self._census.records if kind == "message" else self._census.capabilities
            where = ask(operator, location.port, time)
        built = operator.info.origin if isinstance(operator, Operator | Foreign) else None
        path = f"{scope.path}/{child.name}#{child.index}"
        return Reason(kind, child.name, path, time, blocker.count, where, built, way, way[-1].arrives_at)


def _work_inside(scope: Subgraph[Any, Any], output: int) -> list[Blocker[Any]]:
    """Return the pointstamps inside a nested scope that the scope around it sees at an output."""
    return [b for b in scope.trackers[-1].arrivals(Target(EGRESS, output)) if b.location.node != INGRESS]


def _leg(scope: Subgraph[Any, Any], blocker: Blocker[Any]) -> Leg:
    """Return a path through one scope as the operators on it, each once."""
    names: list[str] = []
    for location in blocker.path:
        name = _name(scope, location.node)
        if name and (not names or names[-1] != name):
            names.append(name)
    return Leg(scope.path, tuple(names), blocker.summary, blocker.arrives_at)


def _name(scope: Subgraph[Any, Any], node: int) -> str:
    """Return the name of a child with its index; nothing for the boundary of the scope."""
    return f"{scope.children[node].name}#{node}" if node >= 0 else ""
