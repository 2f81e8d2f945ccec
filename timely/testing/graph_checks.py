"""The checks of a dataflow's graph and trackers: G1, G2, G3 and G5 when it is built, G6 to G9 whenever a tracker has settled."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from timely.progress import CellState, Location, PathSummary, Refinement, Source, Target, Tracker
from timely.scopes import EGRESS, INGRESS, Subgraph
from timely.testing.axioms import refinement_laws, summary_laws, time_laws
from timely.testing.flat_dataflow import FlatDataflow, Found, below, close, unchanged
from timely.testing.laws import violations
from timely.testing.oracles import Steps, minimal_summaries

_STARTS: Final = 3
_TIMES: Final = 5
_CACHED: Final = 256


def scope_steps(subgraph: Subgraph[Any, Any], flat: FlatDataflow) -> Steps:
    """Return the graph of one scope by itself; a nested scope is a single node of it."""
    identity = subgraph.domain.identity
    steps: dict[Location, list[tuple[Location, PathSummary[Any]]]] = {}
    steps.update((Source(INGRESS, port), []) for port in range(subgraph.inputs))
    steps.update((Target(EGRESS, port), []) for port in range(subgraph.outputs))
    for child in subgraph.children:
        steps.update((Source(child.index, port), []) for port in range(child.scope.outputs))
        scope, operator = child.scope, flat.operators.get((subgraph.number, child.index))
        summaries: Any = scope.internal_summary if isinstance(scope, Subgraph) else operator and operator.summaries
        for i, row in enumerate(summaries):
            steps[Target(child.index, i)] = [(Source(child.index, o), s) for o, between in enumerate(row) for s in between]
    for edge in subgraph.edges:
        steps[edge.source].append((edge.target, identity))
    return steps


class ScopeChecks:
    """The checks of one scope's graph and of its trackers, on any worker."""

    def __init__(self, subgraph: Subgraph[Any, Any], flat: FlatDataflow) -> None:
        self._path = subgraph.path
        self._identity = identity = subgraph.domain.identity
        self._steps = scope_steps(subgraph, flat)
        self._functions: dict[Location, list[tuple[Location, Callable[[Any], Any]]]] = {
            start: [(end, unchanged if summary == identity else summary.results_in) for end, summary in steps]
            for start, steps in self._steps.items()
        }
        self._known: dict[frozenset[tuple[Location, Any]], dict[Location, list[Any]]] = {}
        self._summaries = list(dict.fromkeys(summary for steps in self._steps.values() for _, summary in steps))
        self._refinement: Refinement[Any, Any] = subgraph.refinement
        laws = {law.name: law for law in (*summary_laws(subgraph.domain), *time_laws(subgraph.domain))}
        self._laws = [laws[name] for name in ("identity", "composition", "monotone in time", "monotone in summary")]
        self._nesting_laws = [law for law in refinement_laws(self._refinement) if law.name in ("round trip", "monotone outward")]
        self._times: list[Any] = []

    def check_time(self, time: Any) -> Found:
        """G1: check the laws on one more time, up to a few of them."""
        if len(self._times) >= _TIMES or time in self._times:
            return
        self._times.append(time)
        for law in (*self._laws, *self._nesting_laws):
            several = len(law.variables.strip("pqr")) > 1
            times = self._times if several else [time]  # a law of one time held of the others when they were seen
            outer = [self._refinement.to_outer(seen) for seen in times] if law in self._nesting_laws else times
            for values, difference in violations(law, {"pqr": self._summaries, "abc": outer, "xy": times}):
                yield "G1", f"in {self._path}, the law {law.name!r} is broken by {values}: {difference}"

    def check_graph(self, trackers: Sequence[Tracker[Any]]) -> Found:
        """G3, G5: the path summaries are minimal, and every cell comes after those that it depends on."""
        tracker = trackers[0]  # the one that has all locations of the scope
        for start in list(self._steps)[:: 1 + len(self._steps) // _STARTS]:
            expected, actual = minimal_summaries(self._steps, start, self._identity), tracker.summaries_from(start)
            for end in {*expected, *actual}:
                mine, theirs = expected.get(end, []), list(actual.get(end, ()))
                if set(mine) != set(theirs) and not (_covers(mine, theirs) and _covers(theirs, mine)):
                    yield "G3", f"from {start} to {end} the minimal summaries are {mine}, and the tracker has {theirs}"
        for tracker in trackers:
            for number, cell in enumerate(tracker.cells()):
                for before, _ in cell.predecessors:
                    if before >= number:
                        yield "G5", f"cell {number} depends on cell {before}"

    def check_tracker(self, tracker: Tracker[Any]) -> Found:
        """G6 to G9: check a settled tracker, cell by cell, and each frontier against the counts at all locations."""
        cells = tracker.cells()
        for number, cell in enumerate(cells):
            yield from _check_cell(number, cell, cells)
        true = self._frontiers(tracker)
        for target in tracker.observed:
            shown = tracker.frontier(target).elements
            known = true.get(target, [])
            if len(shown) != len(known) or set(shown) != set(known):
                safe = all(below(shown, time) for time in known)
                text = f"the frontier at {target} is {list(shown)}, and the counts result in {known}"
                yield "G9" if safe else "G8", text

    def _frontiers(self, tracker: Tracker[Any]) -> dict[Location, list[Any]]:
        key = frozenset(stamp for stamp, count in tracker.counts().items() if count > 0)
        if key not in self._known:
            if len(self._known) >= _CACHED:
                self._known.clear()
            self._known[key] = close(defaultdict(list), self._functions, key)
        return self._known[key]


def _covers(one: Iterable[Any], other: Iterable[Any]) -> bool:
    return all(any(mine <= theirs for mine in one) for theirs in other)


def _check_cell(number: int, cell: CellState[Any], cells: Sequence[CellState[Any]]) -> Found:
    """G6, G7: compare a cell with its own positive counts and the frontiers of its predecessors."""
    made = [time for time, count in cell.counts.items() if count > 0]
    for before, summary in cell.predecessors:
        for time in cells[before].frontier:
            arrival = time if summary is None else summary.results_in(time)
            if arrival is not None:
                made.append(arrival)
    frontier = cell.frontier
    for time in frontier:
        if time not in made:
            yield "G6", f"cell {number} is at {frontier}, and counts {cell.counts.get(time, 0)} at {time!r}"
    for time in made:
        if time not in frontier and not any(other < time for other in frontier):
            yield "G7", f"cell {number} is at {frontier}, and what it is made of at {time!r}"
    for time in frontier:
        if any(other < time for other in made):
            yield "G7", f"cell {number} is at {frontier}, of which {time!r} is not minimal"


def check_cycles(flat: FlatDataflow) -> Found:
    """G2: whatever goes round a cycle of the flat graph from the minimum comes back strictly later."""
    for place, (scope, location) in enumerate(flat.places):
        if isinstance(location, Target):
            start = flat.scopes[scope].domain.minimum
            starts = [(following, step(start)) for following, step in flat.steps[place]]
            back = flat.frontiers(stamp for stamp in starts if stamp[1] is not None)[place]
            for time in back:
                if not start < time:
                    yield "G2", f"what starts {flat.show((place, start))} comes back at {time!r}"
