"""The minimal summaries of paths through a topology, and the paths themselves.

A label says that some path between a fixed location and another has some summary, and which way it goes. The invariant:
the labels kept at a location are an antichain, so that a path that another path dominates is never followed. Where
every cycle strictly advances the search ends by itself, with exactly the minimal summaries; a limit on the number of
sweeps lets one search where that is still to be found out. A caller may search in any size of graph: one sweep is
linear, and a graph without cycles takes one.
"""

from __future__ import annotations

from collections.abc import Sequence
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

    ``ways`` are the ways to follow, ``order`` the sequence to sweep in. After :meth:`run`, ``labels[l]`` holds one
    label for each minimal summary between the start and ``l``, with the empty path at the start itself.
    """

    __slots__ = ("_backward", "_marked", "_order", "_rank", "_ways", "labels")

    def __init__(self, ways: Sequence[Ways[T]], order: Sequence[int], *, backward: bool) -> None:
        self._ways = ways
        self._order = order
        self._rank = [0] * len(ways)
        for rank, location in enumerate(order):
            self._rank[location] = rank
        self._backward = backward
        self._marked = bytearray(len(order))
        self.labels: list[list[Label[T]]] = [[] for _ in ways]

    def run(self, start: int, identity: PathSummary[T], sweeps: int | None = None) -> bool:
        """Search from ``start``; return False if ``sweeps`` were not enough, which a non-advancing cycle can cause."""
        self.labels[start].append(Label(start, identity, None))
        marked = self._marked
        marked[self._rank[start]] = 1
        done = 0
        rank = marked.find(1)
        while rank >= 0:
            if sweeps is not None and done >= sweeps:
                return False
            while rank >= 0:
                marked[rank] = 0
                self._follow(self._order[rank])
                rank = marked.find(1, rank + 1)
            done += 1
            rank = marked.find(1)
        return True

    def _follow(self, location: int) -> None:
        """Extend the labels that are new at ``location`` by every way on."""
        fresh = [label for label in self.labels[location] if label.fresh]
        for label in fresh:
            label.fresh = False
        for end, summaries in self._ways[location]:
            for label in fresh:
                for summary in summaries:
                    first, second = (summary, label.summary) if self._backward else (label.summary, summary)
                    composed = first.followed_by(second)
                    if composed is not None and self._insert(end, composed, label):
                        self._marked[self._rank[end]] = 1

    def _insert(self, location: int, summary: PathSummary[T], via: Label[T]) -> bool:
        labels = self.labels[location]
        for label in labels:
            if label.summary <= summary:
                return False
        if labels:
            labels[:] = [label for label in labels if not summary <= label.summary]
        labels.append(Label(location, summary, via))
        return True


def paths_from(topology: Topology[T], start: int) -> list[list[Label[T]]]:
    """Return, for each location, a label for each minimal summary of the paths to it from ``start``."""
    search: PathSearch[T] = PathSearch(topology.forward, topology.order, backward=False)
    search.run(start, topology.domain.identity)
    return search.labels


def paths_to(topology: Topology[T], end: int) -> list[list[Label[T]]]:
    """Return, for each location, a label for each minimal summary of the paths from it to ``end``."""
    search: PathSearch[T] = PathSearch(topology.backward, topology.order[::-1], backward=True)
    search.run(end, topology.domain.identity)
    return search.labels
