"""From the graph of a scope to a plan: cells, numbered so that one pass upward settles every frontier.

A cell is a place where a frontier is kept. Three steps lead from locations to cells, once, when the graph is complete.

1. *Contract.* What leads to nothing that is observed is dropped. A location that is not observed itself and has one way
   on has no cell of its own: its counts are counted where it leads, at the times they have when they arrive there. Only
   where the counts at both are promised never to be negative: otherwise those of the one could cancel those of the
   other.
2. *Cut.* In each strongly connected component a small feedback set is chosen. Every other member gets two cells, one
   before the set (what it knows without going through the set) and one after it (everything). Where the set has several
   members, they tell each other what they know by going through them forth and back
   (:mod:`timely.progress.elimination`), and have two cells as well. The way of a location back to itself is left out
   everywhere, since it strictly advances and so never adds to a frontier.
3. *Number.* What remains has no cycles, and cells are numbered along it; those that nothing observed depends on are
   dropped.

The invariant of a plan: the predecessors of a cell have smaller numbers, and the frontier of a cell is made of the
minimal elements of its own times and of its predecessors' frontiers, advanced by the summaries between. A caller may
therefore recompute any cells that have changed in increasing order, each once. After Naiad section 2.3, where
could-result-in is precomputed between locations in the same spirit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from timely.order import PartialOrder
from timely.progress.antichain import Antichain
from timely.progress.components import feedback_set, reachable, strongly_connected, sweep_order
from timely.progress.elimination import Eliminated, direct_ways, eliminate
from timely.progress.timestamp import PathSummary
from timely.progress.topology import Topology

T = TypeVar("T", bound=PartialOrder)

NOWHERE = -1


class Plan(Generic[T]):
    """What the run-time engine is made from.

    ``predecessors[c]`` are the cells that cell ``c`` depends on, with the summary from there (None: the identity);
    ``observers[c]`` is the place of its location in ``topology.observed``, or ``NOWHERE``. For each location ``l``:
    ``cells[l]`` is the cell where its counts count, after ``shifts[l]`` (None: as they are), or ``NOWHERE``;
    ``values[l]`` is the cell that holds its frontier, or ``NOWHERE``. ``contracted[l]`` says that its counts are
    counted where others are too, or not at all.
    """

    __slots__ = ("cells", "contracted", "observers", "predecessors", "shifts", "topology", "values")

    def __init__(self, topology: Topology[T]) -> None:
        self.topology = topology
        contraction = _Contraction(topology)
        layout = _Layout(topology, contraction)
        kept = layout.kept()
        number = [NOWHERE] * len(layout.predecessors)
        for new, old in enumerate(kept):
            number[old] = new
        identity = topology.domain.identity
        self.predecessors: list[list[tuple[int, PathSummary[T] | None]]] = [
            [(number[cell], None if s == identity else s) for cell, s in layout.predecessors[old] if number[cell] >= 0]
            for old in kept
        ]
        self.observers = [layout.observers[old] for old in kept]
        self.shifts = contraction.shifts
        self.contracted = [place != location for location, place in enumerate(contraction.places)]
        self.cells = [NOWHERE] * topology.size
        self.values = [NOWHERE] * topology.size
        for location, place in enumerate(contraction.places):
            if place != NOWHERE:
                self.cells[location] = number[layout.before[place]]
            if place == location:
                self.values[location] = number[layout.after[place]]
                self.contracted[location] = self.cells[location] == NOWHERE


class _Contraction(Generic[T]):
    """Step 1: where the counts of each location are counted (``places``), and how they get there (``shifts``).

    ``ways[place]`` leads from place to place, with the summaries composed.
    """

    __slots__ = ("_topology", "_useful", "places", "shifts", "ways")

    def __init__(self, topology: Topology[T]) -> None:
        self._topology = topology
        before: list[list[int]] = [[] for _ in range(topology.size)]
        for start, ways in enumerate(topology.forward):
            for end, _ in ways:
                before[end].append(start)
        self._useful = reachable(before, topology.observed)
        self.places = [NOWHERE] * topology.size
        self.shifts: list[PathSummary[T] | None] = [None] * topology.size
        self._contract()
        self.ways: list[dict[int, Antichain[PathSummary[T]]]] = [{} for _ in range(topology.size)]
        for location, place in enumerate(self.places):
            if place == location:
                self._connect(location)

    def _contract(self) -> None:
        observed = set(self._topology.observed)
        settled = bytearray(self._topology.size)
        for location in range(self._topology.size):
            chain: list[tuple[int, int, PathSummary[T]]] = []
            while self._useful[location] and not settled[location]:
                settled[location] = 1
                step = None if location in observed else self._only_way(location)
                if step is None:
                    self.places[location] = location
                else:
                    chain.append((location, *step))
                    location = step[0]
            for start, end, summary in reversed(chain):
                self._follow(start, end, summary)

    def _only_way(self, location: int) -> tuple[int, PathSummary[T]] | None:
        """Return the one way on from a location that may be contracted along it, or None."""
        ways = [(end, summaries) for end, summaries in self._topology.forward[location] if self._useful[end]]
        if len(ways) != 1 or len(ways[0][1]) != 1:
            return None
        end, (summary,) = ways[0]
        nonnegative = self._topology.nonnegative
        return (end, summary) if nonnegative[location] and nonnegative[end] else None

    def _follow(self, start: int, end: int, summary: PathSummary[T]) -> None:
        """Let ``start`` be counted where ``end`` is."""
        shift = self.shifts[end]
        composed = summary if shift is None else summary.followed_by(shift)
        if composed is not None and self.places[end] != NOWHERE:
            self.places[start] = self.places[end]
            self.shifts[start] = None if composed == self._topology.domain.identity else composed

    def _connect(self, location: int) -> None:
        """Find the ways from a place to other places."""
        ways = self.ways[location]
        for end, summaries in self._topology.forward[location]:
            place, shift = self.places[end], self.shifts[end]
            if place in (NOWHERE, location):
                continue
            for summary in summaries:
                composed = summary if shift is None else summary.followed_by(shift)
                if composed is not None:
                    ways.setdefault(place, Antichain()).insert(composed)


class _Layout(Generic[T]):
    """Steps 2 and 3: cells in the order of their numbers, before those that nothing depends on are dropped.

    ``before[place]`` is the cell that the counts at a place are counted in, ``after[place]`` the one with its frontier.
    """

    __slots__ = ("_arrivals", "_identity", "_ways", "after", "before", "observers", "predecessors")

    def __init__(self, topology: Topology[T], contraction: _Contraction[T]) -> None:
        self._identity = topology.domain.identity
        self._ways = contraction.ways
        self._arrivals: list[list[tuple[int, PathSummary[T]]]] = [[] for _ in range(topology.size)]
        for start, ways in enumerate(self._ways):
            for end, summaries in ways.items():
                self._arrivals[end].extend((start, summary) for summary in summaries)
        self.predecessors: list[list[tuple[int, PathSummary[T]]]] = []
        self.before = [NOWHERE] * topology.size
        self.after = [NOWHERE] * topology.size
        for component in strongly_connected(self._ways):
            if len(component) > 1:
                self._cut(component)
            elif contraction.places[component[0]] == component[0]:
                self.before[component[0]] = self.after[component[0]] = self._cell(self._told(component[0], self.after))
        self.observers = [NOWHERE] * len(self.predecessors)
        for observer, location in enumerate(topology.observed):
            self.observers[self.after[location]] = observer

    def kept(self) -> list[int]:
        """Return the cells that something observed depends on, in order."""
        starts = [cell for cell, observer in enumerate(self.observers) if observer >= 0]
        needed = reachable([[cell for cell, _ in ways] for ways in self.predecessors], starts)
        return [cell for cell, byte in enumerate(needed) if byte]

    def _cell(self, predecessors: list[tuple[int, PathSummary[T]]]) -> int:
        self.predecessors.append(predecessors)
        return len(self.predecessors) - 1

    def _told(self, place: int, by: Sequence[int]) -> list[tuple[int, PathSummary[T]]]:
        """Return what leads to a place from the places that have a cell in ``by`` so far."""
        return [(by[start], summary) for start, summary in self._arrivals[place] if by[start] != NOWHERE]

    def _cut(self, component: list[int]) -> None:
        """Lay out one component: the rest before the set, the set before and after itself, the rest after the set."""
        chosen = feedback_set(component, self._ways)
        rest = self._without(component, set(chosen))
        inner = set(rest)
        for place in rest:
            self.before[place] = self._cell(self._told(place, self.after) + self._within(place, inner, self.before))
        self._exchange(eliminate(direct_ways(chosen, rest, self._ways)), inner)
        members = set(component)
        for place in rest:
            within = self._within(place, members, self.after)
            self.after[place] = self._cell([(self.before[place], self._identity), *within])

    def _exchange(self, order: list[Eliminated[T]], inner: set[int]) -> None:
        """Lay out the feedback set: going forth each member is told by the earlier ones, going back by the later."""
        heard: dict[int, list[tuple[int, PathSummary[T]]]] = {step.member: [] for step in order}
        for step in order:
            place = step.member
            outside, rest = self._told(place, self.after), self._within(place, inner, self.before)
            self.before[place] = self._cell(outside + rest + heard[place])
            for end, summaries in step.onwards.items():
                heard[end].extend((self.before[place], summary) for summary in summaries)
        for step in reversed(order):
            before = self.before[step.member]
            back = [(self.after[start], summary) for start, summaries in step.back.items() for summary in summaries]
            self.after[step.member] = self._cell([(before, self._identity), *back]) if back else before

    def _within(self, place: int, inner: set[int], cells: Sequence[int]) -> list[tuple[int, PathSummary[T]]]:
        """Return what leads to a place from places of its own component."""
        return [(cells[start], summary) for start, summary in self._arrivals[place] if start in inner]

    def _without(self, component: list[int], chosen: set[int]) -> list[int]:
        """Return the component without the set, in topological order."""
        left = [place for place in component if place not in chosen]
        place_of = {place: i for i, place in enumerate(left)}
        order = sweep_order([[place_of[end] for end in self._ways[place] if end in place_of] for place in left])
        return [left[i] for i in order]
