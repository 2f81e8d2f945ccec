"""Brute force for what the engine computes: could-result-in, path summaries, frontiers, and a check of a tracker against them.

The oracles follow every path, and know nothing of how a graph is compiled (Naiad section 2.3).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from timely.errors import InvariantViolation
from timely.progress import Location, Tracker, time_domain
from timely.testing.graph import GraphSpec

Pointstamp: TypeAlias = tuple[Location, Any]
"""A location and a time."""

Counts: TypeAlias = Mapping[Pointstamp, int]

Change: TypeAlias = tuple[Location, Any, int]
"""A location, a time, and by how much its count changes."""

Steps: TypeAlias = Mapping[Location, Sequence[tuple[Location, Any]]]
"""Where one step leads from each location, with its path summary."""


def minimal_summaries(steps: Steps, start: Location, identity: Any) -> dict[Location, list[Any]]:
    """Return the minimal summaries of all paths from ``start`` to each location that it reaches."""
    found: dict[Location, list[Any]] = {start: [identity]}
    queue: deque[tuple[Location, Any]] = deque([(start, identity)])
    while queue:
        location, summary = queue.popleft()
        for following, step in steps[location]:
            extended = summary.followed_by(step)
            if extended is None:
                continue
            known = found.setdefault(following, [])
            if not any(other <= extended for other in known):
                known[:] = [other for other in known if not extended <= other] + [extended]
                queue.append((following, extended))
    return found


def path_summaries(graph: GraphSpec, start: Location) -> dict[Location, list[Any]]:
    """Return the minimal summaries of all paths of a graph from ``start`` to each location that it reaches.

    >>> from timely.progress import Source, Step, Target
    >>> from timely.testing import NodeSpec
    >>> path_summaries(GraphSpec(int, (NodeSpec(1, 1, {(0, 0): (Step(5),)}),), ()), Target(0, 0))
    {Target(0, 0): [Step(0)], Source(0, 0): [Step(5)]}
    """
    return minimal_summaries(graph.steps(), start, time_domain(graph.time).identity)


def minimal(times: Iterable[Any]) -> set[Any]:
    """Return the minimal elements, by comparing each with each.

    >>> minimal([3, 1, 2])
    {1}
    """
    distinct = list(dict.fromkeys(times))
    return {time for time in distinct if not any(other <= time and other != time for other in distinct)}


class Oracle:
    """All of a graph's frontiers by definition. It follows the paths once, when it is made.

    >>> from timely.progress import Source, Step, Target
    >>> from timely.testing import NodeSpec
    >>> oracle = Oracle(GraphSpec(int, (NodeSpec(1, 1, {(0, 0): (Step(5),)}),), ()))
    >>> oracle.frontiers({(Target(0, 0), 1): 1, (Source(0, 0), 9): 1, (Source(0, 0), 2): -1})
    {Target(0, 0): {1}, Source(0, 0): {6}}
    >>> oracle.leads((Target(0, 0), 1), (Source(0, 0), 6))
    True
    """

    def __init__(self, graph: GraphSpec) -> None:
        self.locations = graph.locations()
        self.summaries = {location: path_summaries(graph, location) for location in self.locations}

    def frontiers(self, counts: Counts) -> dict[Location, set[Any]]:
        """Return, for every location, the minimal times that a positive count anywhere could result in there."""
        arrivals: dict[Location, list[Any]] = {location: [] for location in self.locations}
        for (location, time), count in counts.items():
            if count > 0:
                for end, summaries in self.summaries[location].items():
                    arrivals[end] += [t for t in (s.results_in(time) for s in summaries) if t is not None]
        return {location: minimal(times) for location, times in arrivals.items()}

    def leads(self, start: Pointstamp, end: Pointstamp) -> bool:
        """Return whether ``start`` could result in ``end``, as :func:`could_result_in`."""
        return _leads(self.summaries[start[0]], start, end)


def _leads(summaries: Mapping[Location, Sequence[Any]], start: Pointstamp, end: Pointstamp) -> bool:
    for summary in summaries.get(end[0], ()):
        arrival = summary.results_in(start[1])
        if arrival is not None and arrival <= end[1]:
            return True
    return False


def could_result_in(graph: GraphSpec, start: Pointstamp, end: Pointstamp) -> bool:
    """Return whether an event at ``start`` could result in one at ``end`` (Naiad section 2.3).

    >>> from timely.progress import Source, Step, Target
    >>> from timely.testing import NodeSpec
    >>> delay = GraphSpec(int, (NodeSpec(1, 1, {(0, 0): (Step(5),)}),), ())
    >>> could_result_in(delay, (Target(0, 0), 1), (Source(0, 0), 6)), could_result_in(delay, (Target(0, 0), 1), (Source(0, 0), 5))
    (True, False)
    """
    return _leads(path_summaries(graph, start[0]), start, end)


def check_tracker(graph: GraphSpec, rounds: Iterable[Iterable[Change]], tracker: Tracker[Any] | None = None) -> int:
    """Give a tracker rounds of changes and compare it with brute force after each; return the number of frontiers compared.

    ``tracker`` is the graph's own by default. Raises :class:`~timely.errors.InvariantViolation`: ``G9`` for a wrong frontier,
    ``G10`` if the reported changes do not add up to the frontier.

    >>> from timely.progress import Source, Step, Target
    >>> from timely.testing import NodeSpec
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
        _check_reported(graph, engine, reported, expected)
        for location, times in expected.items():
            compared += 1
            found = engine.frontier(location)
            if set(found) != times:
                raise InvariantViolation("G9", f"the frontier at {location} is {found}, not {times}, in {dict(counts)}")
    return compared


def _check_reported(graph: GraphSpec, engine: Tracker[Any], reported: Counts, expected: Mapping[Location, set[Any]]) -> None:
    """Check the frontiers that the reported changes add up to."""
    for target in graph.observed():
        times = {time for (location, time), count in reported.items() if location == target and count}
        counts = {reported[target, time] for time in times}
        if times != expected[target] or counts - {1}:
            shown = set(engine.frontier(target)) if target in engine.observed else times
            invariant = "G10" if shown == expected[target] != times or counts - {1} else "G9"
            message = f"the reported changes of {target} add up to {times}, but its frontier is {expected[target]}"
            raise InvariantViolation(invariant, message)
