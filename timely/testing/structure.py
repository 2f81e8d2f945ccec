"""What must hold of a dataflow's graph before anything happens in it, and of the times that then come: G1, G2, G3 and G5.

Each scope's graph is put together anew from what its edges and operators say, and what the engine has made of it is compared
with that: paths are followed one by one, cycles are gone round. The invariant: nothing here asks the engine what it should
ask the graph. A caller looks into a graph once, and shows it the times that it sees.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from timely.progress import Location, PathSummary, Refinement, Source, Target, Tracker
from timely.scopes import EGRESS, INGRESS, Subgraph
from timely.testing.flattened import Flattened, Place

Ways: TypeAlias = Mapping[Location, Sequence[tuple[Location, PathSummary[Any]]]]
"""Where one step leads from each location of a scope, and with which summary."""

Found: TypeAlias = Iterator[tuple[str, str]]
"""What was found: the id of an invariant, and what there is instead."""

_STARTS: Final = 3
_TIMES: Final = 5
_ROUNDS: Final = 1000


def ways_of(subgraph: Subgraph[Any, Any], flat: Flattened) -> dict[Location, list[tuple[Location, PathSummary[Any]]]]:
    """Return the graph of one scope by itself, with all its locations; a nested scope is a single node of it."""
    identity = subgraph.domain.identity
    ways: dict[Location, list[tuple[Location, PathSummary[Any]]]] = {}
    ways.update((Source(INGRESS, port), []) for port in range(subgraph.inputs))
    ways.update((Target(EGRESS, port), []) for port in range(subgraph.outputs))
    for child in subgraph.children:
        ways.update((Source(child.index, port), []) for port in range(child.scope.outputs))
        nested = child.scope
        summaries: Any
        if isinstance(nested, Subgraph):
            summaries = nested.internal_summary
        else:
            summaries = flat.leaves[subgraph.number, child.index].summaries
        for i, row in enumerate(summaries):
            ways[Target(child.index, i)] = [(Source(child.index, o), s) for o, between in enumerate(row) for s in between]
    for edge in subgraph.edges:
        ways[edge.source].append((edge.target, identity))
    return ways


class Laws:
    """The laws of times in one scope (G1), checked for its summaries and for one time after another, up to a few of them."""

    def __init__(self, subgraph: Subgraph[Any, Any], ways: Ways) -> None:
        self.identity = subgraph.domain.identity
        self._refinement: Refinement[Any, Any] = subgraph.refinement
        self._summaries = list(dict.fromkeys(summary for steps in ways.values() for _, summary in steps))
        self._times: list[Any] = []
        self.full = False

    def see(self, time: Any) -> str | None:
        """Take in a time; return which law it breaks, alone or together with those that were seen before, if any."""
        if self.full or time in self._times:
            return None
        self._times.append(time)
        self.full = len(self._times) >= _TIMES
        wrong = self._at(time)
        for other in self._times:
            wrong = wrong or self._between(time, other) or self._between(other, time)
        return wrong

    def _at(self, time: Any) -> str | None:
        """Return what is wrong with summaries at one time."""
        if self.identity.results_in(time) != time:
            return f"the identity {self.identity!r} changes {time!r}"
        outer = self._refinement.to_outer(time)
        if self._refinement.to_outer(self._refinement.to_inner(outer)) != outer:
            return f"{outer!r} is another time when it has entered a scope and left it again"
        for first in self._summaries:
            between = first.results_in(time)
            for second in self._summaries:
                both = first.followed_by(second)
                once = None if both is None else both.results_in(time)
                turns = None if between is None else second.results_in(between)
                if once != turns:
                    return f"{first!r} followed by {second!r} takes {time!r} to {once!r}, one after the other to {turns!r}"
                if first <= second and not _at_most(between, second.results_in(time)):
                    return f"{first!r} <= {second!r}, but not in what they make of {time!r}"
        return None

    def _between(self, a: Any, b: Any) -> str | None:
        """Return what does not keep the order of two times."""
        if a <= b:
            for summary in self._summaries:
                if not _at_most(summary.results_in(a), summary.results_in(b)):
                    return f"{a!r} <= {b!r}, but not in what {summary!r} makes of them"
            if not self._refinement.to_outer(a) <= self._refinement.to_outer(b):
                return f"{a!r} <= {b!r}, but not outside of the scope"
        return None


def _at_most(one: Any, other: Any) -> bool:
    """Whether one result is at or before another, where ``None`` is after all."""
    return other is None or (one is not None and one <= other)


def check_cells(tracker: Tracker[Any]) -> Found:
    """G5: what a cell depends on comes before it, so that one pass upward settles all."""
    for number, cell in enumerate(tracker.cells()):
        for before, _ in cell.predecessors:
            if before >= number:
                yield "G5", f"cell {number} depends on cell {before}"


def check_summaries(tracker: Tracker[Any], ways: Ways, identity: PathSummary[Any]) -> Found:
    """G3: the tracker's path summaries are the minimal ones, from a few locations to all others."""
    for start in list(ways)[:: 1 + len(ways) // _STARTS]:
        expected, found = path_summaries(ways, start, identity), tracker.summaries_from(start)
        for end in {*expected, *found}:
            mine, theirs = expected.get(end, []), list(found.get(end, ()))
            if set(mine) != set(theirs) and not (_covers(mine, theirs) and _covers(theirs, mine)):
                yield "G3", f"from {start} to {end} the minimal summaries are {mine}, and the tracker has {theirs}"


def _covers(one: Iterable[Any], other: Iterable[Any]) -> bool:
    return all(any(mine <= theirs for mine in one) for theirs in other)


def path_summaries(ways: Ways, start: Location, identity: PathSummary[Any]) -> dict[Location, list[PathSummary[Any]]]:
    """Return the minimal summaries of all paths from one location to each, found by following them step by step."""
    found: dict[Location, list[Any]] = {}
    queue: deque[tuple[Location, Any]] = deque([(start, identity)])
    while queue:
        location, summary = queue.popleft()
        known = found.setdefault(location, [])
        if not any(other <= summary for other in known):
            known[:] = [other for other in known if not summary <= other]
            known.append(summary)
            for following, step in ways[location]:
                extended = summary.followed_by(step)
                if extended is not None:
                    queue.append((following, extended))
    return found


def check_cycles(flat: Flattened) -> Found:
    """G2: whoever goes round a cycle of the flat graph comes back strictly later, starting at the least time.

    Where a cycle goes back in time nothing ever stays: then whoever goes round for very long has not come back later either.
    """
    for place, (scope, location) in enumerate(flat.places):
        if isinstance(location, Target):
            start = flat.scopes[scope].domain.minimum
            back = _comes_back(flat, place, start)
            if back is not None:
                yield "G2", f"what starts {flat.show((place, start))} comes {back}"


def _comes_back(flat: Flattened, place: Place, start: Any) -> str | None:
    """Return how something comes back to a place other than strictly after ``start``; ``None`` if nothing does."""
    found: dict[Place, list[Any]] = {}
    queue = deque([(place, start)])
    patience = _ROUNDS * len(flat.places)
    while queue:
        patience -= 1
        if patience < 0:
            return "round and round, and never to rest"
        here, time = queue.popleft()
        for there, step in flat.steps[here]:
            result = step(time)
            if result is None:
                continue
            if there == place and not start < result:
                return f"back at {result!r}"
            known = found.setdefault(there, [])
            if not any(other <= result for other in known):
                known[:] = [other for other in known if not result <= other]
                known.append(result)
                queue.append((there, result))
    return None
