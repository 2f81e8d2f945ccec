"""A dataflow with all its nested scopes as one flat graph of operators, and frontiers in it by definition (Naiad section 2.3).

A message that crosses scopes goes, in the flat graph, straight to the operators that read it, with its time translated.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import attrs

from timely.dataflow.operator import Operator
from timely.errors import GraphError
from timely.progress import Antichain, Location, PathSummary, Source, Target
from timely.scopes import EGRESS, INGRESS, Subgraph, ValidatingScope

Place: TypeAlias = int
"""The number of a location in the flat graph."""

Stamp: TypeAlias = tuple[Place, Any]
"""A pointstamp of the flat graph."""

Crossings: TypeAlias = tuple[Callable[[Any], Any], ...]
"""The translations of a time that crosses scope boundaries, in order."""

Frontiers: TypeAlias = list[list[Any]]
"""For each place, the minimal times."""

Counts: TypeAlias = dict[Stamp, int]
"""Counts that are not zero."""

_CACHED: Final = 256


@attrs.frozen(eq=False)
class FlatOperator:
    """One operator of the flat graph: its path, path summaries and initial capabilities."""

    path: str
    summaries: Sequence[Sequence[Antichain[PathSummary[Any]]]]
    initial: Sequence[Mapping[Any, int]]


def _flat_operator(subgraph: Subgraph[Any, Any], index: int) -> FlatOperator:
    child = subgraph.children[index]
    scope: Any = child.scope
    if isinstance(scope, Operator):
        summaries: Any = [port.summaries for port in scope.input_ports]
        initial: Any = [{scope.domain.minimum: 1} for _ in range(scope.outputs)]
    elif isinstance(scope, ValidatingScope):
        summaries, initial = scope.summaries, [dict(held) for held in scope.held]
    else:
        raise GraphError(f"{subgraph.path}/{child.name} is a scope of a kind that cannot be flattened")
    return FlatOperator(f"{subgraph.path}/{child.name}#{index}", summaries, initial)


class FlatDataflow:
    """The flat graph: ``places`` are the ports of all operators, numbered; ``steps[place]`` leads to others.

    >>> import timely
    >>> worker = timely.Worker()
    >>> with worker.dataflow(name="example") as scope:
    ...     with scope.region() as inner:
    ...         _ = scope.empty().enter(inner).map(str).leave().probe()
    >>> flat = FlatDataflow(scope.scopes)
    >>> [flat.name(place) for place in flat.readers(0, Source(1, 0))]
    ['input 0 of /example/region#0/map#0']
    """

    def __init__(self, scopes: Sequence[Subgraph[Any, Any]]) -> None:
        self.scopes = scopes
        self.places: list[tuple[int, Location]] = []
        self.numbers: dict[tuple[int, Location], Place] = {}
        self.operators: dict[tuple[int, int], FlatOperator] = {}
        self._parents: dict[int, tuple[int, int]] = {}
        self._edges: list[dict[Source, list[Target]]] = [{} for _ in scopes]
        self._readers: dict[tuple[int, Location], dict[Place, Crossings]] = {}
        self._known: dict[frozenset[Stamp], Frontiers] = {}
        for subgraph in scopes:
            for edge in subgraph.edges:
                self._edges[subgraph.number].setdefault(edge.source, []).append(edge.target)
            for child in subgraph.children:
                if isinstance(child.scope, Subgraph):
                    self._parents[child.scope.number] = (subgraph.number, child.index)
                else:
                    self._add(subgraph, child.index)
        self.steps = [self._steps_from(*place) for place in self.places]

    def _add(self, subgraph: Subgraph[Any, Any], index: int) -> None:
        operator = self.operators[subgraph.number, index] = _flat_operator(subgraph, index)
        ports: list[Location] = [Target(index, i) for i in range(len(operator.summaries))]
        ports += [Source(index, o) for o in range(len(operator.initial))]
        for location in ports:
            self.numbers[subgraph.number, location] = len(self.places)
            self.places.append((subgraph.number, location))

    def name(self, place: Place) -> str:
        """Return the name of a place."""
        scope, location = self.places[place]
        kind = "output" if isinstance(location, Source) else "input"
        return f"{kind} {location.port} of {self.operators[scope, location.node].path}"

    def show(self, stamp: Stamp) -> str:
        """Return a pointstamp in words."""
        return f"{stamp[1]!r} at {self.name(stamp[0])}"

    def describe(self, counts: Counts) -> str:
        """Return the first few counts in words."""
        return "; ".join(f"{count} × {self.show(stamp)}" for stamp, count in list(counts.items())[:4])

    def is_output(self, place: Place) -> bool:
        """Return whether a place is an output, which holds capabilities, and not an input, where messages wait."""
        return isinstance(self.places[place][1], Source)

    # -- where messages go ---------------------------------------------------------------------------------------------

    def readers(self, scope: int, location: Location) -> dict[Place, Crossings]:
        """Return the operators' inputs that read a message at a location of a scope, each with the crossings on its way."""
        key = (scope, location)
        found = self._readers.get(key)
        if found is None:
            found = self._readers[key] = {}
            if isinstance(location, Target):
                self._follow(scope, location, (), found)
            else:
                self._spread(scope, location, (), found)
        return found

    def _spread(self, scope: int, source: Source, crossings: Crossings, found: dict[Place, Crossings]) -> None:
        for target in self._edges[scope].get(source, ()):
            self._follow(scope, target, crossings, found)

    def _follow(self, scope: int, target: Target, crossings: Crossings, found: dict[Place, Crossings]) -> None:
        subgraph = self.scopes[scope]
        if target.node == EGRESS:
            parent, index = self._parents[scope]
            self._spread(parent, Source(index, target.port), (*crossings, subgraph.refinement.to_outer), found)
            return
        inner = subgraph.children[target.node].scope
        if isinstance(inner, Subgraph):
            self._spread(inner.number, Source(INGRESS, target.port), (*crossings, inner.refinement.to_inner), found)
        else:
            found[self.numbers[scope, target]] = crossings

    def stamps(self, scope: int, location: Location, time: Any) -> Iterable[Stamp]:
        """Yield the pointstamps of the flat graph that one message at a location of a scope stands for."""
        for place, crossings in self.readers(scope, location).items():
            yield place, _cross(crossings, time)

    def _steps_from(self, scope: int, location: Location) -> list[tuple[Place, Callable[[Any], Any]]]:
        if isinstance(location, Source):
            return [(place, _crossing(crossings)) for place, crossings in self.readers(scope, location).items()]
        row = self.operators[scope, location.node].summaries[location.port]
        return [
            (self.numbers[scope, Source(location.node, output)], summary.results_in)
            for output, summaries in enumerate(row)
            for summary in summaries
        ]

    # -- frontiers -----------------------------------------------------------------------------------------------------

    def frontiers(self, stamps: Iterable[Stamp]) -> Frontiers:
        """Return, for every place, the minimal times at which the pointstamps could result in something; not to be changed."""
        key = frozenset(stamps)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _CACHED:
                self._known.clear()
            found = self._known[key] = [[] for _ in self.places]
            close(found, self.steps, key)
        return found


def close(frontiers: Any, steps: Any, stamps: Iterable[tuple[Any, Any]]) -> None:
    """Follow pointstamps along ``steps``, and collect the minimal times of each location in ``frontiers``."""
    queue = deque(stamps)
    while queue:
        place, time = queue.popleft()
        known = frontiers[place]
        if not below(known, time):
            known[:] = [other for other in known if not time <= other]
            known.append(time)
            for following, step in steps[place]:
                result = step(time)
                if result is not None:
                    queue.append((following, result))


def _cross(crossings: Crossings, time: Any) -> Any:
    for crossing in crossings:
        time = crossing(time)
    return time


def _crossing(crossings: Crossings) -> Callable[[Any], Any]:
    if not crossings:
        return unchanged
    return crossings[0] if len(crossings) == 1 else lambda time: _cross(crossings, time)


def unchanged(time: Any) -> Any:
    """Return the time: what the identity makes of it."""
    return time


def add(counts: Counts, stamp: Stamp, diff: int) -> int:
    """Add to a count, and return the result."""
    count = counts.get(stamp, 0) + diff
    if count:
        counts[stamp] = count
    else:
        counts.pop(stamp, None)
    return count


def total(parts: Iterable[Counts]) -> Counts:
    """Return the sum of all counts.

    >>> total([{(1, 0): 2}, {(1, 0): -2, (2, 0): 1}])
    {(2, 0): 1}
    """
    found: Counts = {}
    for part in parts:
        for stamp, diff in part.items():
            add(found, stamp, diff)
    return found


def first_difference(one: Counts, other: Counts) -> Stamp:
    """Return the first pointstamp in which two counts differ."""
    return min((s for s in {*one, *other} if one.get(s) != other.get(s)), key=lambda stamp: (stamp[0], str(stamp[1])))


def below(frontier: Iterable[Any], time: Any) -> bool:
    """Return whether an element of a frontier is at or before a time."""
    for element in frontier:
        if element <= time:
            return True
    return False


def first_before(one: Frontiers, other: Frontiers) -> Stamp | None:
    """Return a pointstamp that the second frontiers allow and the first do not, if there is one."""
    if one is other:
        return None
    for place, times in enumerate(other):
        known = one[place]
        if known != times:
            for time in times:
                if not below(known, time):
                    return place, time
    return None
