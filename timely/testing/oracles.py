"""Progress graphs as data, and brute force for what the engine computes of them: summaries and frontiers (Naiad section 2.3)."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import attrs

from timely.errors import InvariantViolation
from timely.progress import Antichain, GraphBuilder, Location, Source, Target, Tracker, time_domain

Pointstamp: TypeAlias = tuple[Location, Any]
"""A location and a time."""

Counts: TypeAlias = Mapping[Pointstamp, int]

Change: TypeAlias = tuple[Location, Any, int]
"""A location, a time, and by how much its count changes."""

Steps: TypeAlias = Mapping[Location, Sequence[tuple[Location, Any]]]
"""Where one step leads from each location, with its path summary."""


def _type_name(spec: Any) -> str:
    return spec.__name__ if isinstance(spec, type) else str(spec)


@attrs.frozen
class NodeSpec:
    """A node: ``summaries[input, output]`` are the path summaries between its ports; ``observes`` the inputs with a frontier.

    >>> from timely.progress import Step
    >>> NodeSpec(1, 1, {(0, 0): (Step(1),)}).observes
    ()
    """

    inputs: int
    outputs: int
    summaries: Mapping[tuple[int, int], tuple[Any, ...]] = attrs.field(hash=False)
    observes: tuple[int, ...] = ()


@attrs.frozen
class GraphSpec:
    """A graph over times of type ``time``; ``edges`` are ``(source, target, local)``. Nodes are named by their numbers.

    >>> from timely.progress import Step
    >>> loop = GraphSpec(int, (NodeSpec(1, 1, {(0, 0): (Step(1),)}, (0,)),), ((Source(0, 0), Target(0, 0), False),))
    >>> tracker = loop.build()
    >>> tracker.update(Source(0, 0), 4, +1)
    >>> tracker.propagate()
    [(Target(0, 0), 4, 1)]
    """

    time: Any = attrs.field(repr=_type_name)
    nodes: tuple[NodeSpec, ...]
    edges: tuple[tuple[Source, Target, bool], ...]

    def builder(self) -> GraphBuilder[Any]:
        """Return a builder with all nodes and edges of the graph."""
        builder: GraphBuilder[Any] = GraphBuilder(self.time)
        for number, node in enumerate(self.nodes):
            rows: dict[int, dict[int, Antichain[Any]]] = {}
            for (i, o), summaries in node.summaries.items():
                rows.setdefault(i, {})[o] = Antichain(summaries)
            builder.add_node(number, node.inputs, node.outputs, rows, observes=node.observes)
        for source, target, local in self.edges:
            builder.add_edge(source, target, local=local)
        return builder

    def build(self) -> Tracker[Any]:
        """Return the engine's tracker; a :class:`~timely.errors.CycleError` if a cycle does not advance."""
        return self.builder().build()

    def locations(self) -> list[Location]:
        """Return all inputs and outputs, node by node."""
        places: list[Location] = []
        for number, node in enumerate(self.nodes):
            places += [Target(number, port) for port in range(node.inputs)]
            places += [Source(number, port) for port in range(node.outputs)]
        return places

    def observed(self) -> list[Target]:
        """Return the inputs whose frontiers the tracker reports."""
        return [Target(number, port) for number, node in enumerate(self.nodes) for port in node.observes]

    def never_negative(self) -> set[Location]:
        """Return the ends of local edges, whose counts are promised never to be negative."""
        return {end for source, target, local in self.edges if local for end in (source, target)}

    def steps(self) -> Steps:
        """Return for each location where one step leads, with the summary of that step."""
        identity = time_domain(self.time).identity
        following: dict[Location, list[tuple[Location, Any]]] = {location: [] for location in self.locations()}
        for number, node in enumerate(self.nodes):
            for (i, o), summaries in node.summaries.items():
                following[Target(number, i)] += [(Source(number, o), summary) for summary in summaries]
        for source, target, _ in self.edges:
            following[source].append((target, identity))
        return following


def minimal_summaries(steps: Steps, start: Location, identity: Any) -> dict[Location, list[Any]]:
    """Return the minimal summaries of all paths from ``start`` to each location that it reaches."""
    minimal: dict[Location, list[Any]] = {start: [identity]}
    queue: deque[tuple[Location, Any]] = deque([(start, identity)])
    while queue:
        location, summary = queue.popleft()
        for following, step in steps[location]:
            extended = summary.followed_by(step)
            if extended is None:
                continue
            known = minimal.setdefault(following, [])
            if not any(other <= extended for other in known):
                known[:] = [other for other in known if not extended <= other] + [extended]
                queue.append((following, extended))
    return minimal


def minimal(times: Iterable[Any]) -> set[Any]:
    """Return the minimal elements, by comparing each with each.

    >>> minimal([3, 1, 2])
    {1}
    """
    distinct = list(dict.fromkeys(times))
    return {time for time in distinct if not any(other <= time and other != time for other in distinct)}


class Oracle:
    """All of a graph's frontiers by definition; ``summaries[start][end]`` are the minimal ones of all paths.

    >>> from timely.progress import Step
    >>> oracle = Oracle(GraphSpec(int, (NodeSpec(1, 1, {(0, 0): (Step(5),)}),), ()))
    >>> oracle.frontiers({(Target(0, 0), 1): 1, (Source(0, 0), 9): 1, (Source(0, 0), 2): -1})
    {Target(0, 0): {1}, Source(0, 0): {6}}
    >>> oracle.leads((Target(0, 0), 1), (Source(0, 0), 6)), oracle.leads((Target(0, 0), 1), (Source(0, 0), 5))
    (True, False)
    """

    def __init__(self, graph: GraphSpec) -> None:
        self.locations = graph.locations()
        steps, identity = graph.steps(), time_domain(graph.time).identity
        self.summaries = {location: minimal_summaries(steps, location, identity) for location in self.locations}

    def frontiers(self, counts: Counts) -> dict[Location, set[Any]]:
        """Return, for every location, the minimal times that a positive count anywhere could result in there."""
        arrivals: dict[Location, list[Any]] = {location: [] for location in self.locations}
        for (location, time), count in counts.items():
            if count > 0:
                for end, summaries in self.summaries[location].items():
                    arrivals[end] += [t for t in (s.results_in(time) for s in summaries) if t is not None]
        return {location: minimal(times) for location, times in arrivals.items()}

    def leads(self, start: Pointstamp, end: Pointstamp) -> bool:
        """Return whether an event at ``start`` could result in one at ``end``."""
        for summary in self.summaries[start[0]].get(end[0], ()):
            arrival = summary.results_in(start[1])
            if arrival is not None and arrival <= end[1]:
                return True
        return False


def check_tracker(graph: GraphSpec, rounds: Iterable[Iterable[Change]], tracker: Tracker[Any] | None = None) -> int:
    """Return how many frontiers of a tracker, after each round of changes, were compared with brute force.

    ``tracker`` is the graph's own by default. Raises :class:`~timely.errors.InvariantViolation` ``G9`` for a wrong frontier,
    ``G10`` if the reported changes do not add up to it.

    >>> from timely.progress import Step
    >>> delay = GraphSpec(int, (NodeSpec(1, 1, {(0, 0): (Step(5),)}, (0,)),), ())
    >>> check_tracker(delay, [[(Target(0, 0), 1, +1)], [(Target(0, 0), 1, -1)]])
    4
    """
    engine = graph.build() if tracker is None else tracker
    oracle = Oracle(graph)
    counts: Counter[Pointstamp] = Counter()
    reported: Counter[Pointstamp] = Counter()
    compared = 0
    for changes in rounds:
        for location, time, diff in changes:
            counts[location, time] += diff
            engine.update(location, time, diff)
        for target, time, diff in engine.propagate():
            reported[target, time] += diff
        expected = oracle.frontiers(counts)
        for target in graph.observed():
            _check_reported(engine, target, reported, expected[target])
        for location, times in expected.items():
            compared += 1
            frontier = engine.frontier(location)
            if set(frontier) != times:
                raise InvariantViolation("G9", f"the frontier at {location} is {frontier}, not {times}, in {dict(counts)}")
    return compared


def _check_reported(engine: Tracker[Any], target: Target, reported: Counts, expected: set[Any]) -> None:
    sums = {time: count for (location, time), count in reported.items() if location == target and count}
    wrong = set(sums.values()) - {1}
    if wrong or sums.keys() != expected:
        shown = set(engine.frontier(target)) if target in engine.observed else set(sums)
        invariant = "G10" if wrong or shown == expected else "G9"
        text = f"the reported changes of {target} add up to {set(sums)}, but its frontier is {expected}"
        raise InvariantViolation(invariant, text)
