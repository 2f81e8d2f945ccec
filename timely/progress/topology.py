"""The graph of a scope as it was described, numbered densely, and the minimal summaries of the paths through it.

The summaries of a node lead from its inputs to its outputs; an edge leads from an output to an input and changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import Generic, TypeAlias, TypeVar

from timely.order import PartialOrder
from timely.progress.domain import TimeDomain
from timely.progress.graph_theory import ranks, reverse_postorder
from timely.progress.location import Location
from timely.progress.timestamp import PathSummary

T = TypeVar("T", bound=PartialOrder)

Ways: TypeAlias = list[tuple[int, tuple[PathSummary[T], ...]]]
"""The ways from one location, or to it: the number of the other end, and the summaries between."""


class Topology(Generic[T]):
    """Locations ``0..size-1`` and the ways between them.

    ``nonnegative[l]`` promises that the counts at ``l`` are never negative. The frontiers of ``observed`` are reported.
    """

    __slots__ = ("_backward", "_rank", "domain", "forward", "locations", "nonnegative", "numbers", "observed")

    def __init__(
        self,
        domain: TimeDomain[T],
        numbers: dict[Location, int],
        forward: list[Ways[T]],
        observed: Sequence[int],
        nonnegative: bytearray,
    ) -> None:
        self.domain = domain
        self.locations: Sequence[Location] = tuple(numbers)
        self.numbers = numbers
        self.forward = forward
        self.observed = observed
        self.nonnegative = nonnegative
        self._backward: list[Ways[T]] | None = None
        self._rank: list[int] | None = None

    @property
    def size(self) -> int:
        """The number of locations."""
        return len(self.locations)

    @property
    def backward(self) -> list[Ways[T]]:
        """For each location, what leads to it."""
        if self._backward is None:
            self._backward = [[] for _ in self.locations]
            for start, ways in enumerate(self.forward):
                for end, summaries in ways:
                    self._backward[end].append((start, summaries))
        return self._backward

    @property
    def rank(self) -> list[int]:
        """The place of each location in an order in which ways lead onwards, except to close a cycle."""
        if self._rank is None:
            self._rank = ranks(reverse_postorder([[end for end, _ in ways] for ways in self.forward]))
        return self._rank

    def forget(self) -> None:
        """Drop what only questions about paths need, until the next one."""
        self._backward = self._rank = None


class Label(Generic[T]):
    """A path that ends (or begins) at ``location``; ``via`` is the path without its last step, or None."""

    __slots__ = ("fresh", "location", "summary", "via")

    def __init__(self, location: int, summary: PathSummary[T], via: Label[T] | None) -> None:
        self.location = location
        self.summary = summary
        self.via = via
        self.fresh = True

    def locations(self) -> list[int]:
        """Return the locations of the path, this label's first."""
        trail: list[int] = []
        label: Label[T] | None = self
        while label is not None:
            trail.append(label.location)
            label = label.via
        return trail


class PathSearch(Generic[T]):
    """The minimal summaries of all paths from (``backward``: to) one location.

    ``rank`` orders the locations within a pass. After :meth:`run`, ``labels[l]`` has a label for each minimal summary between the
    start and ``l``. A location that is not reached has no entry and costs nothing. The search ends by itself where every cycle
    strictly advances, and after one pass where there are none.
    """

    __slots__ = ("_backward", "_later", "_marked", "_now", "_rank", "_ways", "labels")

    def __init__(self, ways: Sequence[Ways[T]], rank: Sequence[int], *, backward: bool) -> None:
        self._ways = ways
        self._rank = rank
        self._backward = backward
        self._marked: set[int] = set()
        self._now: list[tuple[int, int]] = []
        self._later: list[tuple[int, int]] = []
        self.labels: dict[int, list[Label[T]]] = {}

    def run(self, start: int, identity: PathSummary[T], passes: int | None = None) -> bool:
        """Search from ``start``; return False if ``passes`` were not enough, as on a cycle that does not advance."""
        self.labels[start] = [Label(start, identity, None)]
        self._later.append((self._place(start), start))
        done = 0
        while self._later:
            if passes is not None and done >= passes:
                return False
            self._now, self._later = self._later, []
            heapify(self._now)
            while self._now:
                place, location = heappop(self._now)
                self._marked.discard(location)
                self._follow(location, place)
            done += 1
        return True

    def _follow(self, location: int, place: int) -> None:
        fresh = [label for label in self.labels[location] if label.fresh]
        for label in fresh:
            label.fresh = False
        for end, summaries in self._ways[location]:
            for label in fresh:
                for summary in summaries:
                    first, second = (summary, label.summary) if self._backward else (label.summary, summary)
                    composed = first.followed_by(second)
                    if composed is not None and self._insert(end, composed, label) and end not in self._marked:
                        self._mark(end, place)

    def _mark(self, location: int, place: int) -> None:
        """Visit a location in this pass if it is still ahead, and in the next one otherwise."""
        self._marked.add(location)
        ahead = self._place(location)
        if ahead > place:
            heappush(self._now, (ahead, location))
        else:
            self._later.append((ahead, location))

    def _place(self, location: int) -> int:
        return -self._rank[location] if self._backward else self._rank[location]

    def _insert(self, location: int, summary: PathSummary[T], via: Label[T]) -> bool:
        labels = self.labels.setdefault(location, [])
        for label in labels:
            if label.summary <= summary:
                return False
        if labels:
            labels[:] = [label for label in labels if not summary <= label.summary]
        labels.append(Label(location, summary, via))
        return True


def find_paths(topology: Topology[T], place: int, *, backward: bool) -> dict[int, list[Label[T]]]:
    """Return, for each location that ``place`` leads to, or ``backward`` that leads there, a label for each minimal summary."""
    ways = topology.backward if backward else topology.forward
    search: PathSearch[T] = PathSearch(ways, topology.rank, backward=backward)
    search.run(place, topology.domain.identity)
    return search.labels
