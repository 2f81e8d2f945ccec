"""The compiler: from the graph of a scope to a plan of cells, numbered so that one pass upward settles every frontier.

A cell is where a frontier is kept.

1. *Contract.* What leads to no observed location is dropped. A location that is not observed and has one way on has no cell: its
   counts move along that way. Both ends must promise counts that are never negative, or those of one could cancel the other's.
2. *Cut.* Each strongly connected component gets a small feedback set. Every other member has two cells: one before the set, which
   leaves out what comes through the set, and one after it. The members of the set are eliminated one by one (:func:`eliminate`).
   The way of a location back to itself is left out: it strictly advances and never adds to a frontier.
3. *Number.* The remaining graph has no cycles. Cells are numbered along it; those that no observer depends on are dropped.

The invariant: predecessors of a cell have smaller numbers, and its frontier is made of its own times and of its predecessors'
frontiers, advanced by the summaries between (after could-result-in, Naiad section 2.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from timely.order import PartialOrder
from timely.progress.antichain import Antichain
from timely.progress.graph_theory import feedback_set, reachable, reverse_postorder, strongly_connected
from timely.progress.timestamp import PathSummary
from timely.progress.topology import Topology

T = TypeVar("T", bound=PartialOrder)

NOWHERE: Final = -1
"""The number of a cell or an observer that does not exist."""

SummariesTo: TypeAlias = dict[int, Antichain[PathSummary[T]]]
"""Minimal summaries by the location that the ways lead to, or come from."""


class Plan(Generic[T]):
    """What a tracker is made from.

    ``predecessors[c]`` are the cells that cell ``c`` depends on, with the summary from there (None: the identity).
    ``observers[c]`` is the place of its location in ``topology.observed``, or ``NOWHERE``. For each location ``l``, ``cells[l]``
    is the cell of its counts, after ``shifts[l]`` (None: the identity), and ``values[l]`` the cell of its frontier; either may
    be ``NOWHERE``. ``contracted[l]`` says that its cell has other counts too, or does not exist.
    """

    def __init__(self, topology: Topology[T]) -> None:
        self.topology = topology
        contraction = _Contraction(topology)
        layout = _Layout(topology, contraction)
        needed = layout.needed()
        number = [NOWHERE] * len(layout.predecessors)
        for new, old in enumerate(needed):
            number[old] = new
        identity = topology.domain.identity
        self.predecessors: list[list[tuple[int, PathSummary[T] | None]]] = [
            [(number[cell], None if s == identity else s) for cell, s in layout.predecessors[old] if number[cell] != NOWHERE]
            for old in needed
        ]
        self.observers = [layout.observers[old] for old in needed]
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
    """Step 1: the place of the counts of each location (``places``), the summary of getting there (``shifts``).

    ``ways[place]`` leads from place to place, with the summaries composed.
    """

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
        """Return the one way on from a location that may be contracted, or None."""
        ways = [(end, summaries) for end, summaries in self._topology.forward[location] if self._useful[end]]
        if len(ways) != 1 or len(ways[0][1]) != 1:
            return None
        end, (summary,) = ways[0]
        nonnegative = self._topology.nonnegative
        return (end, summary) if nonnegative[location] and nonnegative[end] else None

    def _follow(self, start: int, end: int, summary: PathSummary[T]) -> None:
        """Give ``start`` the place of ``end``."""
        shift = self.shifts[end]
        composed = summary if shift is None else summary.followed_by(shift)
        if composed is not None and self.places[end] != NOWHERE:
            self.places[start] = self.places[end]
            self.shifts[start] = None if composed == self._topology.domain.identity else composed

    def _connect(self, location: int) -> None:
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
    """Steps 2 and 3: cells in the order of their numbers, before any is dropped.

    ``before[place]`` is the cell of a place's counts, ``after[place]`` the cell of its frontier.
    """

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
                self.before[component[0]] = self.after[component[0]] = self._cell(self._into(component[0], self.after))
        self.observers = [NOWHERE] * len(self.predecessors)
        for observer, location in enumerate(topology.observed):
            self.observers[self.after[location]] = observer

    def needed(self) -> list[int]:
        """Return the cells that an observer depends on, in order."""
        starts = [cell for cell, observer in enumerate(self.observers) if observer != NOWHERE]
        reached = reachable([[cell for cell, _ in ways] for ways in self.predecessors], starts)
        return [cell for cell, byte in enumerate(reached) if byte]

    def _cell(self, predecessors: list[tuple[int, PathSummary[T]]]) -> int:
        self.predecessors.append(predecessors)
        return len(self.predecessors) - 1

    def _into(self, place: int, cells: Sequence[int]) -> list[tuple[int, PathSummary[T]]]:
        """Return what leads to a place from the places that have one of these cells so far."""
        return [(cells[start], summary) for start, summary in self._arrivals[place] if cells[start] != NOWHERE]

    def _cut(self, component: list[int]) -> None:
        """Lay out one component: the rest before the set, the set itself, the rest after the set."""
        chosen = feedback_set(component, self._ways)
        rest = self._without(component, set(chosen))
        inner = set(rest)
        for place in rest:
            self.before[place] = self._cell(self._into(place, self.after) + self._within(place, inner, self.before))
        self._cut_set(eliminate(direct_ways(chosen, rest, self._ways)), inner)
        members = set(component)
        for place in rest:
            within = self._within(place, members, self.after)
            self.after[place] = self._cell([(self.before[place], self._identity), *within])

    def _cut_set(self, order: list[Eliminated[T]], inner: set[int]) -> None:
        """Lay out the feedback set: going forth, what earlier members lead to, and going back, what later members lead to."""
        forth: dict[int, list[tuple[int, PathSummary[T]]]] = {step.member: [] for step in order}
        for step in order:
            place = step.member
            outside, rest = self._into(place, self.after), self._within(place, inner, self.before)
            self.before[place] = self._cell(outside + rest + forth[place])
            for end, summaries in step.onwards.items():
                forth[end].extend((self.before[place], summary) for summary in summaries)
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
        order = reverse_postorder([[place_of[end] for end in self._ways[place] if end in place_of] for place in left])
        return [left[i] for i in order]


class Eliminated(NamedTuple, Generic[T]):
    """A member with the ways to those eliminated after it (``onwards``), and from them (``back``)."""

    member: int
    onwards: SummariesTo[T]
    back: SummariesTo[T]


def eliminate(ways: Mapping[int, SummariesTo[T]]) -> list[Eliminated[T]]:
    """Return the members of a feedback set in the order of their elimination, next always one that joins the fewest ways.

    To eliminate a member joins each way into it with each way out of it: Gaussian elimination in the algebra of path summaries.
    Going through the members in this order, and then back, every member learns what all others lead to.
    """
    onwards: dict[int, SummariesTo[T]] = {member: dict(there) for member, there in ways.items()}
    back: dict[int, SummariesTo[T]] = {member: {} for member in ways}
    for start, there in onwards.items():
        for end, summaries in there.items():
            back[end][start] = summaries
    order: list[Eliminated[T]] = []
    while onwards:
        member = min(onwards, key=lambda m: len(onwards[m]) * len(back[m]))
        step = Eliminated(member, onwards.pop(member), back.pop(member))
        order.append(step)
        for end in step.onwards:
            del back[end][member]
        for start, first in step.back.items():
            del onwards[start][member]
            for end, second in step.onwards.items():
                if end != start:
                    joined = onwards[start].get(end, Antichain()).copy()
                    compose(joined, first, second)
                    if joined:
                        onwards[start][end] = back[end][start] = joined
    return order


def direct_ways(
    members: Sequence[int], rest: Sequence[int], ways: Sequence[Mapping[int, Antichain[PathSummary[T]]]]
) -> dict[int, SummariesTo[T]]:
    """Return the minimal summaries of the paths between ``members`` through ``rest``, which is acyclic, in topological order."""
    rank = {place: number for number, place in enumerate(rest)}
    direct: dict[int, SummariesTo[T]] = {start: {} for start in members}
    for start in members:
        paths: SummariesTo[T] = {end: summaries.copy() for end, summaries in ways[start].items()}
        waiting: list[tuple[int, int]] = sorted((rank[place], place) for place in paths if place in rank)
        while waiting:
            _, place = heappop(waiting)
            for end, summaries in ways[place].items():
                if end in rank or end in direct:
                    if end not in paths:
                        paths[end] = Antichain()
                        if end in rank:
                            heappush(waiting, (rank[end], end))
                    compose(paths[end], paths[place], summaries)
        direct[start] = {end: paths[end] for end in paths if end in direct and end != start and paths[end]}
    return direct


def compose(into: Antichain[PathSummary[T]], first: Iterable[PathSummary[T]], second: Iterable[PathSummary[T]]) -> None:
    """Insert every composition of a first and a second summary through which anything gets."""
    for one in first:
        for other in second:
            composed = one.followed_by(other)
            if composed is not None:
                into.insert(composed)
