"""The minimal summaries of paths through a topology, and the paths themselves.

A label says that some path between a fixed location and another has some summary, and which way it goes. The invariant:
the labels kept at a location are an antichain, so that a path that another path dominates is never followed. Where
every cycle strictly advances the search ends by itself, with exactly the minimal summaries; a limit on the number of
sweeps lets one search where that is still to be found out. A caller may search in any size of graph, as often as it
likes: a search costs nothing for what it does not reach, and in a graph without cycles it goes through the rest once.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

from timely.order import PartialOrder
from timely.progress.timestamp import PathSummary
from timely.progress.topology import Topology, Ways

T = TypeVar("T", bound=PartialOrder)


class Label(Generic[T]):
    """A path that ends (or begins) at ``location``; ``via`` is the same path less its last step, or None."""

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

    ``ways`` are the ways to follow, ``rank`` the place of each location in the order to sweep in. After :meth:`run`,
    ``labels[l]`` holds one label for each minimal summary between the start and ``l``, with the empty path at the start
    itself; it has no entry for a location that is not reached, which costs nothing.
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

    def run(self, start: int, identity: PathSummary[T], sweeps: int | None = None) -> bool:
        """Search from ``start``; return False if ``sweeps`` were not enough, which a non-advancing cycle can cause."""
        self.labels[start] = [Label(start, identity, None)]
        self._later.append((self._place(start), start))
        done = 0
        while self._later:
            if sweeps is not None and done >= sweeps:
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
        """Extend the labels that are new at ``location`` by every way on."""
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
        """Have a location looked at: in this sweep if that comes to it, and in the next one otherwise."""
        self._marked.add(location)
        ahead = self._place(location)
        if ahead > place:
            heappush(self._now, (ahead, location))
        else:
            self._later.append((ahead, location))

    def _place(self, location: int) -> int:
        """Return where in a sweep a location has its turn."""
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


def paths_from(topology: Topology[T], start: int) -> dict[int, list[Label[T]]]:
    """Return, for each location that ``start`` leads to, a label for each minimal summary of the paths there."""
    search: PathSearch[T] = PathSearch(topology.forward, topology.rank, backward=False)
    search.run(start, topology.domain.identity)
    return search.labels


def paths_to(topology: Topology[T], end: int) -> dict[int, list[Label[T]]]:
    """Return, for each location that leads to ``end``, a label for each minimal summary of the paths from it."""
    search: PathSearch[T] = PathSearch(topology.backward, topology.rank, backward=True)
    search.run(end, topology.domain.identity)
    return search.labels
