"""What must hold of the trackers of one scope whenever they have settled: invariants G6 to G9.

A frontier is looked at from both sides: cell by cell, each with what it was derived from (G6, G7), and from the counts at all
locations along all paths, with no regard to how the graph was compiled (G8, G9). A caller asks only about a tracker with
nothing left to propagate.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final

from timely.progress import CellState, Location, PathSummary, Tracker
from timely.testing.flattened import Step, below, close, unchanged
from timely.testing.structure import Ways

_KEPT: Final = 256


class TrackerChecks:
    """The checks of all trackers of one scope, whichever worker they are on."""

    def __init__(self, ways: Ways, identity: PathSummary[Any]) -> None:
        self._steps: dict[Location, list[tuple[Location, Step]]] = {
            start: [(end, unchanged if summary == identity else summary.results_in) for end, summary in steps]
            for start, steps in ways.items()
        }
        self._known: dict[frozenset[tuple[Location, Any]], dict[Location, list[Any]]] = {}

    def check(self, tracker: Tracker[Any]) -> Iterator[tuple[str, str]]:
        """Yield what is wrong with a tracker: the id of an invariant, and what there is instead."""
        cells = tracker.cells()
        for number, cell in enumerate(cells):
            yield from _check_cell(number, cell, cells)
        true = self._frontiers(tracker)
        for target in tracker.observed:
            shown = tracker.frontier(target).elements
            known = true.get(target, [])
            if len(shown) != len(known) or set(shown) != set(known):
                safe = all(below(shown, time) for time in known)
                found = f"the frontier at {target} is {list(shown)}, and the counts result in {known}"
                yield "G9" if safe else "G8", found

    def _frontiers(self, tracker: Tracker[Any]) -> dict[Location, list[Any]]:
        """Return the frontiers of the counts at all locations, by definition; the last answers are kept."""
        key = frozenset(stamp for stamp, count in tracker.counts().items() if count > 0)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _KEPT:
                self._known.clear()
            found = self._known[key] = defaultdict(list)
            close(found, self._steps, key)
        return found


def _check_cell(number: int, cell: CellState[Any], cells: Sequence[CellState[Any]]) -> Iterator[tuple[str, str]]:
    """G6, G7: compare a cell with what it is made of: its own positive counts, and the frontiers of those before it."""
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
