"""The graph of a scope as its locations and the summaries between them, numbered densely.

Every input of every node is a target, every output a source; the summaries inside a node lead from its targets to its
sources, and an edge leads from a source to a target and changes nothing. The invariant: a topology never changes once
it is made, and what it holds is the graph as it was described, with nothing contracted or dropped. A caller may
therefore ask it anything about paths (:mod:`timely.progress.summaries`), whatever the compiler has made of it.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Generic, TypeAlias, TypeVar

from timely.order import PartialOrder
from timely.progress.components import ranks, sweep_order
from timely.progress.domain import TimeDomain
from timely.progress.location import Location
from timely.progress.timestamp import PathSummary

T = TypeVar("T", bound=PartialOrder)

Ways: TypeAlias = list[tuple[int, tuple[PathSummary[T], ...]]]
"""Where one location leads (or what leads to it): the other location's number, and the summaries of getting there."""


class Topology(Generic[T]):
    """Locations ``0..size-1`` and, for each, the ways forward and back.

    ``nonnegative[l]`` says that the counts at ``l`` are promised never to be negative; ``observed`` lists the locations
    whose frontier somebody is told about. What only questions about paths need is made when the first one is asked.
    """

    __slots__ = ("_backward", "_rank", "domain", "forward", "locations", "names", "nonnegative", "numbers", "observed")

    def __init__(
        self,
        domain: TimeDomain[T],
        locations: Sequence[Location],
        names: Mapping[Hashable, str],
        forward: list[Ways[T]],
        observed: Sequence[int],
        nonnegative: bytearray,
    ) -> None:
        self.domain = domain
        self.locations = locations
        self.names = names
        self.numbers: dict[Location, int] = {location: number for number, location in enumerate(locations)}
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
            self._rank = ranks(sweep_order([[end for end, _ in ways] for ways in self.forward]))
        return self._rank

    def forget(self) -> None:
        """Let go of what only questions about paths need, until the next one is asked."""
        self._backward = self._rank = None

    def describe(self, node: Hashable) -> str:
        """Return how messages speak of a node: by its name where it has one."""
        name = self.names.get(node)
        return f"node {node!r}" if name is None else f"node {node!r} ({name})"
