"""``ExternalSummaries``: how the world leads from the outputs of each child of a scope back to its inputs.

A path back stays inside the scope, or leaves it and returns through the world (a ``RoundTripSummary``). The invariant: every
minimal summary of a path back, and nothing else. Made for one exchange of summaries, and thrown away.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Generic, TypeVar

import attrs

from timely.order import PartialOrder
from timely.progress import (
    Antichain,
    PathSummary,
    Refinement,
    Source,
    SummaryRow,
    Target,
    Tracker,
    connected,
    strongly_connected,
)
from timely.scopes.scope import EGRESS, INGRESS, Summaries

TO = TypeVar("TO", bound=PartialOrder)
TI = TypeVar("TI", bound=PartialOrder)


@attrs.define(eq=False, repr=False)
class RoundTripSummary(Generic[TO, TI]):
    """Out of a scope along ``before``, round the world along ``world``, and back in along ``after``.

    No summary of the inner times can express it: the inner coordinates are lost on the way out, and start anew on the way in. It
    only compares with another round trip, leg by leg.

    >>> from timely.order import Product
    >>> from timely.progress import ProductSummary, Step, refinement
    >>> stay = ProductSummary(Step(0), Step(0))
    >>> RoundTripSummary(stay, Step(1), stay, refinement(int, Product[int, int])).results_in(Product(3, 7))
    (4, 0)
    """

    before: PathSummary[TI]
    world: PathSummary[TO]
    after: PathSummary[TI] | RoundTripSummary[TO, TI]
    refinement: Refinement[TO, TI]
    _shape: object = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        # which legs are round trips, and which of theirs: in deep nestings few are alike, and this tells them apart at once
        self._shape = tuple(leg._shape if isinstance(leg, RoundTripSummary) else None for leg in self._legs())

    def results_in(self, time: TI, /) -> TI | None:
        """Return the time at which ``time`` is back inside; ``None`` if it does not come back."""
        left = self.before.results_in(time)
        if left is None:
            return None
        returned = self.world.results_in(self.refinement.to_outer(left))
        return None if returned is None else self.after.results_in(self.refinement.to_inner(returned))

    def followed_by(self, other: PathSummary[TI] | RoundTripSummary[TO, TI], /) -> RoundTripSummary[TO, TI] | None:
        """Return the round trip that goes on with ``other`` after it is back inside."""
        after: PathSummary[TI] | RoundTripSummary[TO, TI] | None
        if isinstance(other, RoundTripSummary) and not isinstance(self.after, RoundTripSummary):
            again: RoundTripSummary[TO, TI] = other
            between = self.after.followed_by(again.before)
            after = None if between is None else RoundTripSummary[TO, TI](between, again.world, again.after, self.refinement)
        else:
            after = self.after.followed_by(other)
        return None if after is None else RoundTripSummary(self.before, self.world, after, self.refinement)

    def _legs(self) -> tuple[object, ...]:
        return (self.before, self.world, self.after)

    def __le__(self, other: object, /) -> bool:
        if not isinstance(other, RoundTripSummary) or self._shape != other._shape:
            return False
        return bool(self.before <= other.before and self.world <= other.world and self.after <= other.after)

    def __ge__(self, other: object, /) -> bool:
        return isinstance(other, RoundTripSummary) and other <= self

    def __eq__(self, other: object, /) -> bool:
        return isinstance(other, RoundTripSummary) and self._shape == other._shape and self._legs() == other._legs()

    def __hash__(self) -> int:
        return hash(self._legs())

    def __repr__(self) -> str:
        return f"RoundTripSummary({self.before!r}, {self.world!r}, {self.after!r})"


class ExternalSummaries(Generic[TO, TI]):
    """The external summaries of the children of one scope; ``world`` is what the scope's own parent has set.

    Takes time linear in the number of edges. Paths are only followed from outputs of children on a cycle.
    """

    def __init__(
        self,
        tracker: Tracker[TI],
        refinement: Refinement[TO, TI],
        world: Summaries[TO],
        children: int,
        edges: Iterable[tuple[Source, Target]],
    ) -> None:
        self._tracker = tracker
        self._refinement = refinement
        self._world = world
        self._reached_from = cache(lambda entry: tracker.summaries_from(Source(INGRESS, entry)))  # asked for again and again
        self._on_cycles = on_cycles(children, edges, returns=any(connected(row) for row in world))

    def of(self, child: int, inputs: int, outputs: int) -> Summaries[TI]:
        """Return the summaries of the paths from each output of a child back to each of its inputs."""
        if child not in self._on_cycles:
            return [SummaryRow(inputs, {})] * outputs
        return [SummaryRow(inputs, self._paths_back(child, output)) for output in range(outputs)]

    def _paths_back(self, child: int, output: int) -> dict[int, Antichain[PathSummary[TI]]]:
        back: dict[int, Antichain[Any]] = {}
        around: dict[int, Antichain[Any]] = {}
        left: list[tuple[int, PathSummary[TI]]] = []
        for location, summaries in self._tracker.summaries_from(Source(child, output)).items():
            if isinstance(location, Target) and location.node == child:
                back[location.port] = summaries.copy()
            elif isinstance(location, Target) and location.node == EGRESS:
                left += [(location.port, before) for before in summaries]
        for port, before in left:
            for entry, world in connected(self._world[port]) if self._world else ():
                for location, summaries in self._reached_from(entry).items():
                    if isinstance(location, Target) and location.node == child:
                        trips = (RoundTripSummary(before, r, after, self._refinement) for r in world for after in summaries)
                        around.setdefault(location.port, Antichain()).extend(trips)
        for entry, round_trips in around.items():  # a summary of the inner times need not compare with a round trip
            back[entry] = back[entry].beside(round_trips) if entry in back else round_trips
        return back


def on_cycles(children: int, edges: Iterable[tuple[Source, Target]], *, returns: bool) -> set[int]:
    """Return the children on some cycle; with ``returns`` the scope's outputs lead back to its inputs."""
    outside = children
    successors: list[set[int]] = [set() for _ in range(children + 1)]
    for source, target in edges:
        start, end = (outside if node < 0 else node for node in (source.node, target.node))
        if returns or outside not in (start, end):
            successors[start].add(end)
    components: Sequence[Sequence[int]] = strongly_connected(successors)
    cyclic = {vertex for each in components if len(each) > 1 or each[0] in successors[each[0]] for vertex in each}
    return cyclic - {outside}
