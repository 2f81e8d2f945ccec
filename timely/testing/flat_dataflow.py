"""A dataflow with all its nested scopes as one flat graph of operators, and frontiers in it by definition (Naiad section 2.3).

A message that crosses scopes goes, in the flat graph, straight to the operators that read it, with its time translated.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import attrs

from timely.dataflow import Operator
from timely.errors import GraphError
from timely.progress import Antichain, Location, PathSummary, Source, Target
from timely.scopes import EGRESS, INGRESS, Subgraph, ValidatingScope

Place: TypeAlias = int
"""The number of a location in the flat graph."""

Stamp: TypeAlias = tuple[Place, Any]
"""A pointstamp of the flat graph."""

Crossing: TypeAlias = Callable[[Any], Any]
"""The translation of a time that crosses scope boundaries."""

Frontiers: TypeAlias = list[list[Any]]
"""For each place, the minimal times."""

Counts: TypeAlias = dict[Stamp, int]
"""Counts that are not zero."""

Found: TypeAlias = Iterator[tuple[str, str]]
"""The id of each violated invariant, with what was found."""

_CACHED: Final = 256


@attrs.frozen(eq=False)
class FlatOperator:
    """One operator of the flat graph: its path, path summaries and initial capabilities."""

    path: str
    summaries: Sequence[Sequence[Antichain[PathSummary[Any]]]]
    initial: Sequence[Mapping[Any, int]]


def _flat_operator(subgraph: Subgraph[Any, Any], index: int) -> FlatOperator:
    child = subgraph.children[index]
    path, scope = f"{subgraph.path}/{child.name}#{index}", child.scope
    if isinstance(scope, Operator):
        summaries = [port.summaries for port in scope.input_ports]
        return FlatOperator(path, summaries, [{scope.domain.minimum: 1} for _ in range(scope.outputs)])
    if isinstance(scope, ValidatingScope):
        return FlatOperator(path, scope.summaries, [dict(held) for held in scope.held])
    raise GraphError(f"{path} is a scope of a kind that cannot be flattened")


class FlatDataflow:
    """The flat graph: ``places`` are the ports of all operators, numbered; ``steps[place]`` leads to others."""

    def __init__(self, scopes: Sequence[Subgraph[Any, Any]]) -> None:
        self.scopes = scopes
        self.places: list[tuple[int, Location]] = []
        self.numbers: dict[tuple[int, Location], Place] = {}
        self.operators: dict[tuple[int, int], FlatOperator] = {}
        self._parents: dict[int, tuple[int, int]] = {}
        self._edges: list[dict[Source, list[Target]]] = [{} for _ in scopes]
        self._readers: dict[tuple[int, Location], dict[Place, Crossing]] = {}
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

    def _steps_from(self, scope: int, location: Location) -> list[tuple[Place, Callable[[Any], Any]]]:
        if isinstance(location, Source):
            return list(self.readers(scope, location).items())
        row = self.operators[scope, location.node].summaries[location.port]
        return [
            (self.numbers[scope, Source(location.node, output)], summary.results_in)
            for output, summaries in enumerate(row)
            for summary in summaries
        ]

    def show(self, stamp: Stamp) -> str:
        """Return a pointstamp in words."""
        scope, location = self.places[stamp[0]]
        kind = "output" if isinstance(location, Source) else "input"
        return f"{stamp[1]!r} at {kind} {location.port} of {self.operators[scope, location.node].path}"

    def describe(self, counts: Counts) -> str:
        """Return the first few counts in words."""
        return "; ".join(f"{count} × {self.show(stamp)}" for stamp, count in list(counts.items())[:4])

    def readers(self, scope: int, location: Location) -> dict[Place, Crossing]:
        """Return the operators' inputs that read a message at a location of a scope, each with the crossing on its way."""
        key = (scope, location)
        if key not in self._readers:
            self._readers[key] = dict(self._follow(scope, location, unchanged))
        return self._readers[key]

    def _follow(self, scope: int, location: Location, crossing: Crossing) -> Iterator[tuple[Place, Crossing]]:
        if isinstance(location, Source):
            for target in self._edges[scope].get(location, ()):
                yield from self._follow(scope, target, crossing)
            return
        if location.node == EGRESS:
            parent, index = self._parents[scope]
            outward = _then(crossing, self.scopes[scope].refinement.to_outer)
            yield from self._follow(parent, Source(index, location.port), outward)
            return
        inner = self.scopes[scope].children[location.node].scope
        if isinstance(inner, Subgraph):
            yield from self._follow(inner.number, Source(INGRESS, location.port), _then(crossing, inner.refinement.to_inner))
        else:
            yield self.numbers[scope, location], crossing

    def stamps(self, scope: int, location: Location, time: Any) -> Iterable[Stamp]:
        """Yield the pointstamps of the flat graph that one message at a location of a scope stands for."""
        for place, crossing in self.readers(scope, location).items():
            yield place, crossing(time)

    def frontiers(self, stamps: Iterable[Stamp]) -> Frontiers:
        """Return, for every place, the minimal times at which the pointstamps could result in something; not to be changed."""
        key = frozenset(stamps)
        if key not in self._known:
            if len(self._known) >= _CACHED:
                self._known.clear()
            self._known[key] = close([[] for _ in self.places], self.steps, key)
        return self._known[key]

    def check_upright(self, invariant: str, changes: Counts, held: Counts) -> Found:
        """X1, X2: of all changes, less what is held, each gain is at or after a loss."""
        gains = [stamp for stamp, diff in changes.items() if diff > held.get(stamp, 0)]
        if gains:
            lost = [stamp for stamp, diff in changes.items() if diff < 0]
            lost += [stamp for stamp, count in held.items() if changes.get(stamp, 0) < count]
            reached = self.frontiers(lost)
            for place, time in gains:
                if not below(reached[place], time):
                    yield invariant, f"{self.show((place, time))}, and of nothing before it"

    def check_justified(self, changes: Counts, held: Counts) -> Found:
        """I3: each capability that is all new is later than another one, or than a loss."""
        for stamp, diff in changes.items():
            if 0 < diff == held.get(stamp, 0):
                losses = [other for other, change in changes.items() if change < 0]
                reached = self.frontiers([*losses, *(other for other in held if other != stamp)])
                if not below(reached[stamp[0]], stamp[1]):
                    yield "I3", f"the capability {self.show(stamp)}, and of nothing that it could come from"

    def check_ends(self, unsent: Counts, batches: Sequence[Counts], held: Counts) -> Found:
        """X1 for what is unsent; X2 for every end of what a peer has yet to receive; I3 for both."""
        invariant, end = "X1", dict(unsent)
        for batch in ({}, *reversed(batches)):
            for stamp, diff in batch.items():
                add(end, stamp, diff)
            yield from self.check_upright(invariant, end, held)
            yield from self.check_justified(end, held)
            invariant = "X2"


def close(frontiers: Any, steps: Any, stamps: Iterable[tuple[Any, Any]]) -> Any:
    """Follow pointstamps along ``steps``; return ``frontiers``, with the minimal times of each location added."""
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
    return frontiers


def unchanged(time: Any) -> Any:
    """Return the time: what the identity makes of it."""
    return time


def _then(first: Crossing, second: Crossing) -> Crossing:
    return second if first is unchanged else lambda time: second(first(time))


def add(counts: Counts, stamp: Stamp, diff: int) -> int:
    count = counts.get(stamp, 0) + diff
    if count:
        counts[stamp] = count
    else:
        counts.pop(stamp, None)
    return count


def total(parts: Iterable[Counts]) -> Counts:
    sums: Counts = {}
    for part in parts:
        for stamp, diff in part.items():
            add(sums, stamp, diff)
    return sums


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
