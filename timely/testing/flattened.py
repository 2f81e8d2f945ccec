"""A dataflow as it was built, with all its nesting, as one flat graph of operators; and frontiers in it by definition.

A place is an output or an input of an operator, whatever scope it stands in. A message that enters or leaves scopes on its way
goes, in the flat graph, straight to the operators that will read it, its time translated. The invariant: flattening adds and
loses nothing, so that what the scopes account for at their boundaries comes to nothing here, and the frontiers are those that
the whole nesting must show (Naiad section 2.3; "flattening" is what hierarchical scopes promise to be indistinguishable from).
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
"""The number of a place in the flat graph."""

Stamp: TypeAlias = tuple[Place, Any]
"""A place and a time."""

Way: TypeAlias = tuple[Callable[[Any], Any], ...]
"""What becomes of a time that crosses the boundaries of scopes, one after the other."""

Step: TypeAlias = Callable[[Any], Any]
"""What becomes of a time on the way from one place to another; ``None`` where it does not get through."""

_KEPT: Final = 256

Frontiers: TypeAlias = list[list[Any]]
"""For each place, the minimal times."""

Sums: TypeAlias = dict[Stamp, int]
"""Counts that are not zero."""


@attrs.frozen(eq=False)
class Leaf:
    """One operator of the flat graph: its scope, its number there, and the summaries of the ways through it."""

    scope: int
    child: int
    path: str
    summaries: Sequence[Sequence[Antichain[PathSummary[Any]]]]
    initial: Sequence[Mapping[Any, int]]


def leaf_of(subgraph: Subgraph[Any, Any], index: int) -> Leaf:
    """Return what a child that is not a nested dataflow is in the flat graph."""
    child = subgraph.children[index]
    scope: Any = child.scope
    if isinstance(scope, Operator):
        summaries: Any = [port.summaries for port in scope.input_ports]
        initial: Any = [{scope.domain.minimum: 1} for _ in range(scope.outputs)]
    elif isinstance(scope, ValidatingScope):
        summaries, initial = scope.summaries, [dict(held) for held in scope.held]
    else:
        raise GraphError(f"{subgraph.path}/{child.name} is a scope of a kind that cannot be flattened")
    return Leaf(subgraph.number, index, f"{subgraph.path}/{child.name}#{index}", summaries, initial)


class Flattened:
    """The flat graph of a dataflow: ``places`` are numbered, ``steps`` lead from each to others.

    >>> import timely
    >>> worker = timely.Worker()
    >>> with worker.dataflow(name="example") as scope:
    ...     with scope.region() as inner:
    ...         _ = scope.empty().enter(inner).map(str).leave().probe()
    >>> flat = Flattened(scope.scopes)
    >>> [flat.name(place) for place in flat.reach(0, Source(1, 0))]
    ['input 0 of /example/region#0/map#0']
    """

    def __init__(self, scopes: Sequence[Subgraph[Any, Any]]) -> None:
        self.scopes = scopes
        self.places: list[tuple[int, Location]] = []
        self.numbers: dict[tuple[int, Location], Place] = {}
        self.leaves: dict[tuple[int, int], Leaf] = {}
        self._parents: dict[int, tuple[int, int]] = {}
        self._edges: list[dict[Source, list[Target]]] = [{} for _ in scopes]
        self._reached: dict[tuple[int, Location], dict[Place, Way]] = {}
        self._known: dict[frozenset[Stamp], Frontiers] = {}
        for subgraph in scopes:
            for edge in subgraph.edges:
                self._edges[subgraph.number].setdefault(edge.source, []).append(edge.target)
            for child in subgraph.children:
                if isinstance(child.scope, Subgraph):
                    self._parents[child.scope.number] = (subgraph.number, child.index)
                else:
                    self._add(leaf_of(subgraph, child.index))
        self.steps: list[list[tuple[Place, Step]]] = [self._steps_from(*place) for place in self.places]

    def _add(self, leaf: Leaf) -> None:
        self.leaves[leaf.scope, leaf.child] = leaf
        ports: list[Location] = [Target(leaf.child, i) for i in range(len(leaf.summaries))]
        ports += [Source(leaf.child, o) for o in range(len(leaf.initial))]
        for location in ports:
            self.numbers[leaf.scope, location] = len(self.places)
            self.places.append((leaf.scope, location))

    def leaf(self, place: Place) -> Leaf:
        """Return the operator that a place belongs to."""
        scope, location = self.places[place]
        return self.leaves[scope, location.node]

    def name(self, place: Place) -> str:
        """Return what a place is called."""
        location = self.places[place][1]
        return f"{'output' if isinstance(location, Source) else 'input'} {location.port} of {self.leaf(place).path}"

    def show(self, stamp: Stamp) -> str:
        """Return what a pointstamp is called."""
        return f"{stamp[1]!r} at {self.name(stamp[0])}"

    def describe(self, stamps: Sums | Iterable[Stamp]) -> str:
        """Return pointstamps in words: the first few of them."""
        named = [f"{f'{stamps[stamp]} × ' if isinstance(stamps, dict) else ''}{self.show(stamp)}" for stamp in list(stamps)[:4]]
        return "; ".join(named) or "nothing"

    def is_output(self, place: Place) -> bool:
        """Return whether a place is an output, where capabilities are held, rather than an input, where messages wait."""
        return isinstance(self.places[place][1], Source)

    # -- where messages go ---------------------------------------------------------------------------------------------

    def reach(self, scope: int, location: Location) -> dict[Place, Way]:
        """Return the operators' inputs at which a message at a location of a scope will be read, and what its time becomes.

        The location may be an input of an operator already, an input of a nested scope, or any output.
        """
        key = (scope, location)
        found = self._reached.get(key)
        if found is None:
            found = self._reached[key] = {}
            if isinstance(location, Target):
                self._follow(scope, location, (), found)
            else:
                self._spread(scope, location, (), found)
        return found

    def _spread(self, scope: int, source: Source, way: Way, found: dict[Place, Way]) -> None:
        for target in self._edges[scope].get(source, ()):
            self._follow(scope, target, way, found)

    def _follow(self, scope: int, target: Target, way: Way, found: dict[Place, Way]) -> None:
        subgraph = self.scopes[scope]
        if target.node == EGRESS:
            parent, index = self._parents[scope]
            self._spread(parent, Source(index, target.port), (*way, subgraph.refinement.to_outer), found)
            return
        inner = subgraph.children[target.node].scope
        if isinstance(inner, Subgraph):
            self._spread(inner.number, Source(INGRESS, target.port), (*way, inner.refinement.to_inner), found)
        else:
            found[self.numbers[scope, target]] = way

    def spread(self, scope: int, location: Location, time: Any) -> Iterable[Stamp]:
        """Return the pointstamps of the flat graph that one message at a location of a scope stands for."""
        for place, way in self.reach(scope, location).items():
            yield place, cross(way, time)

    def _steps_from(self, scope: int, location: Location) -> list[tuple[Place, Step]]:
        if isinstance(location, Source):
            return [(place, _crossing(way)) for place, way in self.reach(scope, location).items()]
        row = self.leaves[scope, location.node].summaries[location.port]
        return [
            (self.numbers[scope, Source(location.node, output)], summary.results_in)
            for output, summaries in enumerate(row)
            for summary in summaries
        ]

    # -- frontiers -----------------------------------------------------------------------------------------------------

    def frontiers(self, stamps: Iterable[Stamp]) -> Frontiers:
        """Return, for every place, the minimal times at which any of the pointstamps could result in something there.

        The last answers are kept, since many workers see the same; they are not to be changed.
        """
        key = frozenset(stamps)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _KEPT:
                self._known.clear()
            found = self._known[key] = [[] for _ in self.places]
            close(found, self.steps, key)
        return found


def close(found: Any, steps: Any, stamps: Iterable[tuple[Any, Any]]) -> None:
    """Follow pointstamps along ``steps`` from each place to the next, and keep the minimal times of each place in ``found``."""
    queue = deque(stamps)
    while queue:
        place, time = queue.popleft()
        known = found[place]
        for other in known:
            if other <= time:
                break
        else:
            known[:] = [other for other in known if not time <= other]
            known.append(time)
            for following, step in steps[place]:
                result = step(time)
                if result is not None:
                    queue.append((following, result))


def cross(way: Way, time: Any) -> Any:
    """Return what becomes of a time on its way across boundaries."""
    for crossing in way:
        time = crossing(time)
    return time


def _crossing(way: Way) -> Step:
    if not way:
        return unchanged
    return way[0] if len(way) == 1 else lambda time: cross(way, time)


def unchanged(time: Any) -> Any:
    """Return the time: what the identity makes of it."""
    return time


def add(sums: Sums, stamp: Stamp, diff: int) -> int:
    """Add to a count, and return what it comes to."""
    count = sums.get(stamp, 0) + diff
    if count:
        sums[stamp] = count
    else:
        sums.pop(stamp, None)
    return count


def differing(one: Sums, other: Sums) -> Stamp:
    """Return the first pointstamp that two counts differ in."""
    return min((s for s in {*one, *other} if one.get(s) != other.get(s)), key=lambda stamp: (stamp[0], str(stamp[1])))


def below(frontier: Iterable[Any], time: Any) -> bool:
    """Return whether an element of a frontier is at or before a time."""
    for element in frontier:
        if element <= time:
            return True
    return False


def first_before(one: Frontiers, other: Frontiers) -> Stamp | None:
    """Return a pointstamp that the second frontiers allow for and the first do not, if there is one."""
    if one is other:
        return None
    for place, times in enumerate(other):
        known = one[place]
        if known != times:
            for time in times:
                if not below(known, time):
                    return place, time
    return None
