"""``Tracker``: which times may still appear where, given the pointstamps that there are.

A pointstamp is a time at a location, with a count: capabilities at outputs, messages at inputs. After ``propagate`` the frontier
of each location is exactly the minimal times at which a pointstamp of positive count may still result in something there. Counts
may be negative for a while, and frontiers may retreat. The hot path is in the two engines (:mod:`timely.progress.engine`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Generic, SupportsIndex, TypeAlias, TypeVar, cast

import attrs

from timely.errors import GraphError
from timely.order import PartialOrder
from timely.progress.activation_queue import ActivationQueue
from timely.progress.antichain import Antichain
from timely.progress.change_batch import CountSink, whole_number
from timely.progress.compiler import NOWHERE, Plan
from timely.progress.location import Location, Target
from timely.progress.timestamp import PathSummary
from timely.progress.topology import Topology, find_paths

T = TypeVar("T", bound=PartialOrder)


Watcher: TypeAlias = tuple[list[T], ActivationQueue, int]
"""The list of a frontier's elements to keep up to date, and the queue and number to activate when it changes."""


@attrs.frozen
class Blocker(Generic[T]):
    """One reason for a frontier: ``count`` pointstamps at ``location`` and ``time``, which arrive at an element of it.

    They go along ``path``, both ends included, whose summary is ``summary``.
    """

    location: Location
    time: T
    count: int
    path: tuple[Location, ...]
    summary: PathSummary[T]
    arrives_at: T


@attrs.frozen
class CellState(Generic[T]):
    """One cell of the plan: its own ``counts``, and the ``frontier`` made of these and of its predecessors' frontiers.

    ``predecessors`` are the numbers of cells, with the summary from there (None: the identity).
    """

    counts: Mapping[T, int]
    predecessors: Sequence[tuple[int, PathSummary[T] | None]]
    frontier: tuple[T, ...]


class Tracker(CountSink[T], Generic[T]):
    """The counts of pointstamps in a graph and the frontiers that follow from them (Naiad section 2.3).

    Made by :meth:`timely.progress.GraphBuilder.build`. Most methods name locations by ``Source`` and ``Target``. The runtime uses
    the dense numbers of :meth:`index`, with ``update_at`` and ``propagate_observed``. ``observed[i]`` is the target of observer
    ``i``, ``size`` the number of locations. ``dirty`` is empty if there is nothing to propagate.

    >>> from timely.progress import Antichain, GraphBuilder, Source, Step, Target
    >>> graph = GraphBuilder(int)
    >>> for node in ("input", "delay"):
    ...     graph.add_node(node, 1, 1, [[Antichain([Step(5)])]])
    >>> graph.add_edge(Source("input", 0), Target("delay", 0))
    >>> tracker = graph.build()
    >>> tracker.update(Source("input", 0), 3, +1)
    >>> tracker.propagate(), tracker.frontier(Source("delay", 0)), tracker.counts()
    ([(Target('delay', 0), 3, 1)], Antichain([8]), {(Source('input', 0), 3): 1})
    >>> [blocker] = tracker.explain(Source("delay", 0))
    >>> blocker.location, blocker.time, blocker.summary, blocker.arrives_at
    (Source('input', 0), 3, Step(5), 8)
    >>> tracker.summary(Target("delay", 0), Source("delay", 0)), tracker.is_empty()
    (Antichain([Step(5)]), False)
    """

    __slots__ = (
        *("_contracted", "_counts", "_held", "_marked", "_paths", "_plan", "_stores", "_topology", "_watchers"),
        *("dirty", "observed", "size"),
    )

    def __init__(self, plan: Plan[T]) -> None:
        self._plan = plan
        self._topology: Topology[T] = plan.topology
        self.size = plan.topology.size
        self.observed: list[Target] = [cast("Target", plan.topology.locations[location]) for location in plan.topology.observed]
        self.dirty: list[int] = []  # a heap of the marked cells
        self._marked = [False] * len(plan.predecessors)
        # Contracted locations also keep counts of their own, for questions off the hot path.
        self._counts: list[dict[T, int]] = [{} for _ in plan.predecessors]
        self._contracted: list[dict[T, int] | None] = [{} if contracted else None for contracted in plan.contracted]
        self._stores = [counts for counts in self._contracted if counts is not None] + self._counts
        self._watchers: list[Watcher[T] | None] = [None] * len(self.observed)
        self._held = 0
        self._paths: dict[bool, tuple[int, dict[Location, Antichain[PathSummary[T]]]]] = {}

    @abstractmethod
    def propagate_observed(self) -> list[tuple[int, T, int]]:
        """Settle all frontiers; return the changes, ``(observer, time, diff)``, in a list that the next call reuses."""

    @abstractmethod
    def _value(self, cell: int) -> tuple[T, ...]:
        """Return the frontier of a cell."""

    def watch(self, observer: int, elements: list[T], queue: ActivationQueue, number: int) -> None:
        """Keep ``elements``, which must be the observer's frontier now, up to date, and queue ``number`` whenever it changes.

        The changes of this observer are no longer returned. Only propagation changes the list, in place.
        """
        self._watchers[observer] = (elements, queue, number)

    def index(self, location: Location) -> int:
        """Return the number of a location, from 0 to ``size - 1``; ``GraphError`` if unknown."""
        number = self._topology.numbers.get(location)
        if number is None:
            raise GraphError(f"{location!r} is not a location of this graph: add its node, or check the port")
        return number

    @property
    def locations(self) -> Sequence[Location]:
        """The locations of the graph, each at its number."""
        return self._topology.locations

    def update(self, location: Location, time: T, diff: SupportsIndex) -> None:
        """Add ``diff`` to the count of ``time`` at ``location``; the next ``propagate`` shows it.

        ``GraphError`` for an unknown location, ``TimestampError`` for no time of the graph, ``ProgressError`` for no whole
        number.
        """
        number = self.index(location)
        self._topology.domain.check(time)
        self.update_at(number, time, whole_number(diff))

    def propagate(self) -> list[tuple[Target, T, int]]:
        """Settle all frontiers and return the consolidated changes of the observed ones: -1 for what left, +1 for what came."""
        observed = self.observed
        return [(observed[observer], time, diff) for observer, time, diff in self.propagate_observed()]

    def frontier(self, location: Location) -> Antichain[T]:
        """Return the frontier at any location.

        At observed targets, that of the last ``propagate``. Elsewhere it may be derived from the present counts, in time linear
        in the graph.
        """
        number = self.index(location)
        cell = self._plan.values[number]
        if cell != NOWHERE:
            return Antichain(self._value(cell))
        return Antichain(blocker.arrives_at for blocker in self.arrivals(location))

    def frontiers(self, counts: Mapping[tuple[Location, T], int] | None = None) -> dict[Location, Antichain[T]]:
        """Return the frontiers at all locations for the present counts, or for ``counts``, in one pass through the graph."""
        topology = self._topology
        frontiers: list[Antichain[T]] = [Antichain() for _ in range(self.size)]
        for (location, time), count in (self.counts() if counts is None else counts).items():
            if count > 0:
                frontiers[topology.numbers[location]].insert(time)
        ready = [(topology.rank[number], number) for number, elements in enumerate(frontiers) if elements]
        heapify(ready)
        waits = bytearray(1 if elements else 0 for elements in frontiers)
        while ready:
            _, number = heappop(ready)
            waits[number] = 0
            for end, summaries in topology.forward[number]:
                if _extend(frontiers[end], frontiers[number], summaries) and not waits[end]:
                    waits[end] = 1
                    heappush(ready, (topology.rank[end], end))
        return dict(zip(topology.locations, frontiers, strict=True))

    def cells(self) -> list[CellState[T]]:
        """Return the cells in the order of propagation, as they are now."""
        return [
            CellState(counts, predecessors, self._value(cell))
            for cell, (counts, predecessors) in enumerate(zip(self._counts, self._plan.predecessors, strict=True))
        ]

    def counts(self) -> dict[tuple[Location, T], int]:
        """Return all pointstamps whose count is not zero, with their counts."""
        plan, locations = self._plan, self._topology.locations
        own = [dict(counts) for counts in self._counts]
        for contracted, cell, shift in zip(self._contracted, plan.cells, plan.shifts):
            if contracted is not None and cell != NOWHERE:
                for time, count in contracted.items():
                    moved = time if shift is None else shift.results_in(time)
                    if moved is not None:
                        own[cell][moved] = own[cell].get(moved, 0) - count
        pointstamps: dict[tuple[Location, T], int] = {}
        for number, contracted in enumerate(self._contracted):
            counts = own[plan.cells[number]] if contracted is None else contracted
            for time, count in counts.items():
                if count:
                    pointstamps[locations[number], time] = count
        return pointstamps

    def explain(self, location: Location) -> list[Blocker[T]]:
        """Return the pointstamps that produce the elements of the frontier at ``location``, for the present counts.

        One :class:`Blocker` for each pointstamp and each minimal summary by which it arrives at an element.
        """
        arrivals = self.arrivals(location)
        frontier = Antichain(blocker.arrives_at for blocker in arrivals).elements
        return [blocker for blocker in arrivals if blocker.arrives_at in frontier]

    def origins(self, counts: Mapping[tuple[Location, T], int] | None = None) -> list[tuple[Location, T]]:
        """Return the pointstamps of positive count that no other one could result in, of the present ones or of ``counts``."""
        topology = self._topology
        held = self.counts() if counts is None else counts
        frontiers = self.frontiers(held)
        coming: list[Antichain[T]] = [Antichain() for _ in range(self.size)]
        for start, location in enumerate(topology.locations):
            for end, summaries in topology.forward[start]:
                _extend(coming[end], frontiers[location], summaries)
        return [
            (location, time)
            for (location, time), count in held.items()
            if count > 0 and time in frontiers[location] and not coming[topology.numbers[location]].less_equal(time)
        ]

    def arrivals(self, location: Location, counts: Mapping[tuple[Location, T], int] | None = None) -> list[Blocker[T]]:
        """Return every arrival at ``location`` of a pointstamp of positive count, whether the frontier has it or not."""
        labels = find_paths(self._topology, self.index(location), backward=True)
        arrivals: list[Blocker[T]] = []
        for (location, time), count in (self.counts() if counts is None else counts).items():
            if count > 0:
                for label in labels.get(self._topology.numbers[location], ()):
                    arrival = label.summary.results_in(time)
                    if arrival is not None:
                        path = tuple(self._topology.locations[number] for number in label.locations())
                        arrivals.append(Blocker(location, time, count, path, label.summary, arrival))
        return arrivals

    def is_empty(self) -> bool:
        """Return whether all counts are zero.

        A count that is not is usually where the last call found one, which makes the call cheap.
        """
        stores = self._stores
        if not stores:
            return True
        if any(stores[self._held].values()):
            return False
        for place, counts in enumerate(stores):
            if counts and any(counts.values()):
                self._held = place
                return False
        return True

    def summary(self, a: Location, b: Location) -> Antichain[PathSummary[T]]:
        """Return the minimal summaries of the paths from ``a`` to ``b``; empty if there is no path."""
        self.index(b)
        summaries = self.summaries_from(a).get(b)
        return Antichain() if summaries is None else summaries.copy()

    def summaries_from(self, a: Location) -> dict[Location, Antichain[PathSummary[T]]]:
        """Return the minimal path summaries from ``a`` to every location that it reaches, itself included.

        Linear in what is reached, where that has no cycles. The last answer is kept; do not change it.
        """
        return self._summaries(a, backward=False)

    def summaries_to(self, b: Location) -> dict[Location, Antichain[PathSummary[T]]]:
        """Return the minimal path summaries to ``b`` from every location that leads there; as :meth:`summaries_from`."""
        return self._summaries(b, backward=True)

    def _summaries(self, end: Location, *, backward: bool) -> dict[Location, Antichain[PathSummary[T]]]:
        number, known = self.index(end), self._paths.get(backward)
        if known is None or known[0] != number:
            labels = find_paths(self._topology, number, backward=backward)
            locations = self._topology.locations
            by_location = {locations[other]: Antichain(label.summary for label in labels[other]) for other in sorted(labels)}
            known = self._paths[backward] = (number, by_location)
        return known[1]

    def forget(self) -> None:
        """Drop what only questions about paths need."""
        self._paths.clear()
        self._topology.forget()

    def matters(self, location: Location) -> bool:
        """Return whether a count at ``location`` can affect an observed frontier."""
        return self._plan.cells[self.index(location)] != NOWHERE


def _extend(into: Antichain[T], times: Antichain[T], summaries: tuple[PathSummary[T], ...]) -> bool:
    """Insert what the summaries make of these times; return whether that changed anything."""
    arrivals = [summary.results_in(time) for summary in summaries for time in times]
    return into.extend([arrival for arrival in arrivals if arrival is not None])
