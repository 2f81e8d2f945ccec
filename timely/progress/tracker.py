"""``Tracker``: which times may still appear where, given the pointstamps that there are.

A pointstamp is a time at a location, with a count: capabilities at outputs, messages at inputs. The frontier of a
location are the minimal times at which a pointstamp of positive count anywhere may still result in something there. The
invariant: after ``propagate`` that is what every frontier is, exactly, and the changes reported since the last one add
up to the difference. Counts may be negative for a while (a message is consumed before its production is known) and
frontiers may retreat. A caller may update in any order and as often as it likes before it propagates. This module holds
what is not on the hot path; how counts and frontiers are kept is the business of the two engines
(:mod:`timely.progress.engine`).
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
from timely.progress.compiler import NOWHERE, Plan
from timely.progress.count_sink import CountSink, whole_number
from timely.progress.location import Location, Target
from timely.progress.timestamp import PathSummary
from timely.progress.topology import Label, Topology, paths_from, paths_to

T = TypeVar("T", bound=PartialOrder)


Watcher: TypeAlias = tuple[list[T], ActivationQueue, int]
"""Who looks at a frontier without being told: the list of its elements, and the agenda and number to add when it has changed."""


@attrs.frozen
class Blocker(Generic[T]):
    """One reason why a frontier is where it is: ``count`` pointstamps at ``location`` and ``time``.

    They lead along ``path`` (both ends included), which has the summary ``summary``, and so arrive at ``arrives_at``,
    which is an element of the frontier.
    """

    location: Location
    time: T
    count: int
    path: tuple[Location, ...]
    summary: PathSummary[T]
    arrives_at: T


@attrs.frozen
class CellState(Generic[T]):
    """One cell of the compiled graph, for whoever looks on: its own ``counts``, and the ``frontier`` made of these and others'.

    ``predecessors`` are the numbers of the cells that it depends on, with the summary from there (None: the identity).
    """

    counts: Mapping[T, int]
    predecessors: Sequence[tuple[int, PathSummary[T] | None]]
    frontier: tuple[T, ...]


class Tracker(CountSink[T], Generic[T]):
    """The counts of pointstamps in a graph and the frontiers they amount to.

    The idea is that of Naiad section 2.3, told at length in the book's chapter on progress tracking.
    Made by :meth:`timely.progress.GraphBuilder.build`. Locations are named by ``Source`` and ``Target`` in most
    methods; the runtime names them by the dense numbers that :meth:`index` gives, through ``update_at`` and
    ``propagate_observed``. ``observed[i]`` is the target that observer ``i`` stands for, ``size`` the number of
    locations, and ``dirty`` has the numbers of the places where a frontier is to be derived anew: where it is empty there
    is nothing to propagate.

    >>> from timely.progress import Antichain, GraphBuilder, Source, Step, Target
    >>> graph = GraphBuilder(int)
    >>> for node in ("input", "sink"):
    ...     graph.add_node(node, 1, 1, [[Antichain([Step(0)])]])
    >>> graph.add_edge(Source("input", 0), Target("sink", 0))
    >>> tracker = graph.build()
    >>> tracker.update(Source("input", 0), 3, +1)
    >>> tracker.propagate()
    [(Target('sink', 0), 3, 1)]
    """

    __slots__ = (
        "_contracted",
        "_counts",
        "_held",
        "_marked",
        "_plan",
        "_reached",
        "_reaching",
        "_stores",
        "_topology",
        "_watchers",
        "dirty",
        "observed",
        "size",
    )

    def __init__(self, plan: Plan[T]) -> None:
        self._plan = plan
        self._topology: Topology[T] = plan.topology
        self.size = plan.topology.size
        self.observed: list[Target] = [cast("Target", plan.topology.locations[location]) for location in plan.topology.observed]
        self.dirty: list[int] = []  # a heap of the cells that are marked
        self._marked = [False] * len(plan.predecessors)
        # The counts of each cell; of each contracted location besides, which only what is asked off the hot path needs.
        self._counts: list[dict[T, int]] = [{} for _ in plan.predecessors]
        self._contracted: list[dict[T, int] | None] = [{} if contracted else None for contracted in plan.contracted]
        self._stores = [counts for counts in self._contracted if counts is not None] + self._counts
        self._watchers: list[Watcher[T] | None] = [None] * len(self.observed)
        self._held = 0
        self._reached: tuple[int, dict[Location, Antichain[PathSummary[T]]]] | None = None
        self._reaching: tuple[int, dict[Location, Antichain[PathSummary[T]]]] | None = None

    @abstractmethod
    def propagate_observed(self) -> list[tuple[int, T, int]]:
        """Settle all frontiers; return the changes, ``(observer, time, diff)``, in a list that the next call reuses."""

    @abstractmethod
    def _value(self, cell: int) -> tuple[T, ...]:
        """Return the frontier that a cell holds."""

    def watch(self, observer: int, elements: list[T], agenda: ActivationQueue, number: int) -> None:
        """Have ``elements``, which must be the observer's frontier now, kept so, and ``number`` put on an agenda when it moves.

        Nothing of this observer is among the changes that are returned any more, which spares whoever would look through
        them. Only ``propagate`` and ``propagate_observed`` change the list, in place.

        >>> from timely.progress import ActivationQueue, GraphBuilder, Target
        >>> graph = GraphBuilder(int)
        >>> graph.add_node("sink", 1, 0, [[]])
        >>> tracker = graph.build()
        >>> elements, agenda = [], ActivationQueue()
        >>> tracker.watch(0, elements, agenda, agenda.grow())
        >>> tracker.update(Target("sink", 0), 7, +1)
        >>> tracker.propagate(), elements, agenda.ready
        ([], [7], [0])
        """
        self._watchers[observer] = (elements, agenda, number)

    def index(self, location: Location) -> int:
        """Return the number of a location, from 0 to ``size - 1``; a :class:`~timely.errors.GraphError` if unknown.

        >>> from timely.progress import GraphBuilder, Source
        >>> graph = GraphBuilder(int)
        >>> graph.add_node("input", 0, 2, [])
        >>> graph.build().index(Source("input", 1))
        1
        """
        number = self._topology.numbers.get(location)
        if number is None:
            raise GraphError(f"{location!r} is not a location of this graph: add its node, or check the port")
        return number

    @property
    def locations(self) -> Sequence[Location]:
        """The locations of the graph, each at its number.

        >>> from timely.progress import GraphBuilder
        >>> graph = GraphBuilder(int)
        >>> graph.add_node("input", 0, 2, [])
        >>> graph.build().locations
        (Source('input', 0), Source('input', 1))
        """
        return tuple(self._topology.locations)

    def update(self, location: Location, time: T, diff: SupportsIndex) -> None:
        """Add ``diff`` to the count of ``time`` at ``location``; seen in the frontiers after the next ``propagate``.

        Raises :class:`~timely.errors.GraphError` for an unknown location, :class:`~timely.errors.TimestampError` for what is
        not a time of the graph, and :class:`~timely.errors.ProgressError` for what is no whole number.

        >>> from timely.progress import GraphBuilder, Source
        >>> graph = GraphBuilder(int)
        >>> graph.add_node("input", 0, 1, [])
        >>> tracker = graph.build()
        >>> tracker.update(Source("input", 0), 7, 2)
        >>> tracker.counts()
        {(Source('input', 0), 7): 2}
        """
        number = self.index(location)
        self._topology.domain.check(time)
        self.update_at(number, time, whole_number(diff))

    def propagate(self) -> list[tuple[Target, T, int]]:
        """Settle all frontiers and return how those at observed targets have changed since the last time: consolidated.

        An element that left a frontier has the change -1, one that joined it +1. See the class for an example.
        """
        observed = self.observed
        return [(observed[observer], time, diff) for observer, time, diff in self.propagate_observed()]

    def frontier(self, location: Location) -> Antichain[T]:
        """Return the frontier at any location.

        Where the engine keeps one (at observed targets always) it is that of the last ``propagate``; elsewhere it is
        derived from the counts as they are now, in time linear in the size of the graph.

        >>> from timely.progress import Antichain, GraphBuilder, Source, Step, Target
        >>> graph = GraphBuilder(int)
        >>> graph.add_node("delay", 1, 1, [[Antichain([Step(5)])]])
        >>> tracker = graph.build()
        >>> tracker.update(Target("delay", 0), 1, +1)
        >>> tracker.frontier(Source("delay", 0))
        Antichain([6])
        """
        number = self.index(location)
        cell = self._plan.values[number]
        if cell != NOWHERE:
            return Antichain(self._value(cell))
        return Antichain(blocker.arrives_at for blocker in self.arrivals(location))

    def frontiers(self, counts: Mapping[tuple[Location, T], int] | None = None) -> dict[Location, Antichain[T]]:
        """Return the frontiers at all locations, derived from the counts as they are now, in one go through the graph.

        Unless others are given as ``counts``.

        >>> from timely.progress import Antichain, GraphBuilder, Source, Step, Target
        >>> graph = GraphBuilder(int)
        >>> graph.add_node("delay", 1, 1, [[Antichain([Step(5)])]])
        >>> tracker = graph.build()
        >>> tracker.update(Target("delay", 0), 1, +1)
        >>> tracker.frontiers()
        {Target('delay', 0): Antichain([1]), Source('delay', 0): Antichain([6])}
        """
        return dict(zip(self._topology.locations, self._settled(self.counts() if counts is None else counts), strict=True))

    def _settled(self, counts: Mapping[tuple[Location, T], int]) -> list[Antichain[T]]:
        """Return the frontier at each location that these pointstamps amount to."""
        topology = self._topology
        found: list[Antichain[T]] = [Antichain() for _ in range(self.size)]
        for (location, time), count in counts.items():
            if count > 0:
                found[topology.numbers[location]].insert(time)
        ready = [(topology.rank[number], number) for number, elements in enumerate(found) if elements]
        heapify(ready)
        waits = bytearray(1 if elements else 0 for elements in found)
        while ready:
            _, number = heappop(ready)
            waits[number] = 0
            for end, summaries in topology.forward[number]:
                arrivals = [summary.results_in(time) for summary in summaries for time in found[number]]
                changed = found[end].extend([arrival for arrival in arrivals if arrival is not None])
                if changed and not waits[end]:
                    waits[end] = 1
                    heappush(ready, (topology.rank[end], end))
        return found

    def cells(self) -> list[CellState[T]]:
        """Return the cells in the order in which they are gone through, each with what it holds now.

        >>> from timely.progress import Antichain, GraphBuilder, Source, Step, Target
        >>> graph = GraphBuilder(int)
        >>> graph.add_node("delay", 1, 1, [[Antichain([Step(5)])]])
        >>> graph.add_node("sink", 1, 0, [[]])
        >>> graph.add_edge(Source("delay", 0), Target("sink", 0))
        >>> tracker = graph.build()
        >>> tracker.update(Target("delay", 0), 1, +1)
        >>> _ = tracker.propagate()
        >>> [cell.frontier for cell in tracker.cells()]
        [(1,), (6,), (6,)]
        """
        return [
            CellState(counts, predecessors, self._value(cell))
            for cell, (counts, predecessors) in enumerate(zip(self._counts, self._plan.predecessors, strict=True))
        ]

    def counts(self) -> dict[tuple[Location, T], int]:
        """Return all pointstamps whose count is not zero, with their counts; see :meth:`update` for an example."""
        plan, locations = self._plan, self._topology.locations
        own = [dict(counts) for counts in self._counts]
        for contracted, cell, shift in zip(self._contracted, plan.cells, plan.shifts):
            if contracted is not None and cell != NOWHERE:
                for time, count in contracted.items():
                    moved = time if shift is None else shift.results_in(time)
                    if moved is not None:
                        own[cell][moved] = own[cell].get(moved, 0) - count
        found: dict[tuple[Location, T], int] = {}
        for number, contracted in enumerate(self._contracted):
            counts = own[plan.cells[number]] if contracted is None else contracted
            for time, count in counts.items():
                if count:
                    found[locations[number], time] = count
        return found

    def explain(self, location: Location) -> list[Blocker[T]]:
        """Return which pointstamps produce the elements of the frontier at ``location``, as the counts are now.

        One :class:`Blocker` for each pointstamp and each minimal summary by which it arrives at an element of the
        frontier.

        >>> from timely.progress import Antichain, GraphBuilder, Source, Step, Target
        >>> graph = GraphBuilder(int)
        >>> graph.add_node("delay", 1, 1, [[Antichain([Step(5)])]])
        >>> tracker = graph.build()
        >>> tracker.update(Target("delay", 0), 1, +1)
        >>> [blocker] = tracker.explain(Source("delay", 0))
        >>> blocker.location, blocker.time, blocker.summary, blocker.arrives_at
        (Target('delay', 0), 1, Step(5), 6)
        """
        arrivals = self.arrivals(location)
        frontier = Antichain(blocker.arrives_at for blocker in arrivals).elements
        return [blocker for blocker in arrivals if blocker.arrives_at in frontier]

    def origins(self, counts: Mapping[tuple[Location, T], int] | None = None) -> list[tuple[Location, T]]:
        """Return the pointstamps with a positive count that no other one could result in, in one go through the graph.

        Those that there are, unless others are given as ``counts``.

        >>> from timely.progress import Antichain, GraphBuilder, Source, Step, Target
        >>> graph = GraphBuilder(int)
        >>> graph.add_node("delay", 1, 1, [[Antichain([Step(5)])]])
        >>> tracker = graph.build()
        >>> tracker.update(Target("delay", 0), 1, +1)
        >>> tracker.update(Source("delay", 0), 3, +1)
        >>> tracker.update(Source("delay", 0), 6, +1)
        >>> tracker.origins()
        [(Target('delay', 0), 1), (Source('delay', 0), 3)]
        """
        topology = self._topology
        held = self.counts() if counts is None else counts
        settled = self._settled(held)
        coming: list[Antichain[T]] = [Antichain() for _ in settled]
        for start, elements in enumerate(settled):
            for end, summaries in topology.forward[start]:
                arrivals = [summary.results_in(time) for summary in summaries for time in elements]
                coming[end].extend([arrival for arrival in arrivals if arrival is not None])
        found = []
        for (location, time), count in held.items():
            number = topology.numbers[location]
            if count > 0 and time in settled[number] and not coming[number].less_equal(time):
                found.append((location, time))
        return found

    def arrivals(self, location: Location, counts: Mapping[tuple[Location, T], int] | None = None) -> list[Blocker[T]]:
        """Return every arrival at ``location`` of a pointstamp with a positive count, whether the frontier is made of it or not.

        Of those that there are, unless others are given as ``counts``.

        >>> from timely.progress import GraphBuilder, Source
        >>> graph = GraphBuilder(int)
        >>> graph.add_node("input", 0, 1, [])
        >>> tracker = graph.build()
        >>> tracker.update(Source("input", 0), 1, +1)
        >>> tracker.update(Source("input", 0), 2, +1)
        >>> [blocker.arrives_at for blocker in tracker.arrivals(Source("input", 0))]
        [1, 2]
        """
        labels = paths_to(self._topology, self.index(location))
        arrivals: list[Blocker[T]] = []
        for (location, time), count in (self.counts() if counts is None else counts).items():
            if count > 0:
                for label in labels.get(self._topology.numbers[location], ()):
                    arrival = label.summary.results_in(time)
                    if arrival is not None:
                        arrivals.append(Blocker(location, time, count, self._path(label), label.summary, arrival))
        return arrivals

    def _path(self, label: Label[T]) -> tuple[Location, ...]:
        return tuple(self._topology.locations[number] for number in label.locations())

    def is_empty(self) -> bool:
        """Return whether no pointstamp anywhere has a count other than zero.

        Where one does, it is usually where the last call found one, which makes the call cheap.

        >>> from timely.progress import GraphBuilder
        >>> GraphBuilder(int).build().is_empty()
        True
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
        """Return the minimal summaries of the paths from ``a`` to ``b``: the identity from a location to itself.

        Empty where no path leads from ``a`` to ``b``. :meth:`summaries_from` says how long it takes.

        >>> from timely.progress import Antichain, GraphBuilder, Source, Step, Target
        >>> graph = GraphBuilder(int)
        >>> graph.add_node("delay", 1, 1, [[Antichain([Step(5)])]])
        >>> tracker = graph.build()
        >>> before, after = Target("delay", 0), Source("delay", 0)
        >>> tracker.summary(before, after), tracker.summary(after, before)
        (Antichain([Step(5)]), Antichain([]))
        """
        self.index(b)
        found = self.summaries_from(a).get(b)
        return Antichain() if found is None else found.copy()

    def summaries_from(self, a: Location) -> dict[Location, Antichain[PathSummary[T]]]:
        """Return the minimal path summaries from ``a`` to every location that it reaches, itself included.

        Linear in the size of what is reached, where that has no cycles. The last answer is kept, so that asking about
        one ``a`` repeatedly is cheap; it is not to be changed.

        >>> from timely.progress import Antichain, GraphBuilder, Step, Target
        >>> graph = GraphBuilder(int)
        >>> graph.add_node("delay", 1, 1, [[Antichain([Step(5)])]])
        >>> graph.build().summaries_from(Target("delay", 0))
        {Target('delay', 0): Antichain([Step(0)]), Source('delay', 0): Antichain([Step(5)])}
        """
        number = self.index(a)
        if self._reached is None or self._reached[0] != number:
            self._reached = (number, self._by_location(paths_from(self._topology, number)))
        return self._reached[1]

    def summaries_to(self, b: Location) -> dict[Location, Antichain[PathSummary[T]]]:
        """Return the minimal path summaries to ``b`` from every location that leads there, itself included.

        As long as :meth:`summaries_from` takes; the last answer is kept, and is not to be changed.

        >>> from timely.progress import Antichain, GraphBuilder, Source, Step
        >>> graph = GraphBuilder(int)
        >>> graph.add_node("delay", 1, 1, [[Antichain([Step(5)])]])
        >>> graph.build().summaries_to(Source("delay", 0))
        {Target('delay', 0): Antichain([Step(5)]), Source('delay', 0): Antichain([Step(0)])}
        """
        number = self.index(b)
        if self._reaching is None or self._reaching[0] != number:
            self._reaching = (number, self._by_location(paths_to(self._topology, number)))
        return self._reaching[1]

    def forget(self) -> None:
        """Let go of the answers about paths that were kept, and of what was made to find them."""
        self._reached = self._reaching = None
        self._topology.forget()

    def matters(self, location: Location) -> bool:
        """Return whether a count at ``location`` can have to do with any frontier that is observed.

        >>> from timely.progress import GraphBuilder, Source
        >>> graph = GraphBuilder(int)
        >>> graph.add_node("input", 0, 1, [])
        >>> graph.build().matters(Source("input", 0))
        False
        """
        return self._plan.cells[self.index(location)] != NOWHERE

    def _by_location(self, labels: Mapping[int, list[Label[T]]]) -> dict[Location, Antichain[PathSummary[T]]]:
        locations = self._topology.locations
        return {locations[number]: Antichain(label.summary for label in labels[number]) for number in sorted(labels)}
