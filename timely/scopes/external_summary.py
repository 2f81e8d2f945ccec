"""``ExternalSummaries``: how the world leads from the outputs of each child of a scope back to its inputs.

A path back to a child stays inside the scope, or leaves it, goes round the world outside and comes in again (an
:class:`~timely.scopes.round_trip.RoundTripSummary`). Most children are on no such path, which is found out for all of them at
once;
only for the others are paths followed, from each of their outputs. The invariant: what is told is every minimal summary of a
path back, and nothing else. It is made for one exchange of summaries, when the scope's graph is complete, and thrown away.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Generic, TypeVar

from timely.order import PartialOrder
from timely.progress import (
    Antichain,
    Location,
    PathSummary,
    Refinement,
    Source,
    SummaryRow,
    Target,
    Tracker,
    connected,
    strongly_connected,
)
from timely.scopes.round_trip import RoundTripSummary
from timely.scopes.scope import Summaries

TO = TypeVar("TO", bound=PartialOrder)
TI = TypeVar("TI", bound=PartialOrder)

INGRESS: Final = -1
EGRESS: Final = -2

Reached = dict[Location, Antichain[PathSummary[TI]]]


class ExternalSummaries(Generic[TO, TI]):
    """What the children of one scope are told; ``world`` is what the scope itself was told by its parent.

    Takes time linear in the number of edges, and for each output of a child that something leads back to what is reached from
    there: that is the closure of the paths of a loop over the scopes nested in it, which is as large as it is.
    """

    __slots__ = ("_circling", "_from_entry", "_refinement", "_tracker", "_world")

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
        self._from_entry: dict[int, Reached[TI]] = {}
        self._circling = circling(children, edges, returns=any(connected(row) for row in world))

    def of(self, child: int, inputs: int, outputs: int) -> Summaries[TI]:
        """Return the summaries of the ways from each output of a child back to each of its inputs."""
        if child not in self._circling:
            return [SummaryRow(inputs, {})] * outputs
        return [SummaryRow(inputs, self._ways_back(child, output)) for output in range(outputs)]

    def _ways_back(self, child: int, output: int) -> dict[int, Antichain[PathSummary[TI]]]:
        reached = self._tracker.summaries_from(Source(child, output))
        back: dict[int, Antichain[Any]] = {}
        around: dict[int, Antichain[Any]] = {}
        left: list[tuple[int, PathSummary[TI]]] = []
        for location, summaries in reached.items():
            if isinstance(location, Target) and location.node == child:
                back[location.port] = summaries.copy()
            elif isinstance(location, Target) and location.node == EGRESS:
                left += [(location.port, before) for before in summaries]
        for port, before in left:
            for entry, world in connected(self._world[port]) if self._world else ():
                for location, summaries in self._reached_from(entry).items():
                    if isinstance(location, Target) and location.node == child:
                        round_the_world = self._excursions(before, world, summaries)
                        around.setdefault(location.port, Antichain()).extend(round_the_world)
        for entry, excursions in around.items():  # a summary of the inner times need not know what an excursion is
            back[entry] = back[entry].beside(excursions) if entry in back else excursions
        return back

    def _reached_from(self, entry: int) -> Reached[TI]:
        """Return what an input of the scope leads to, which is asked of the few inputs that lie on a way back again and again."""
        found = self._from_entry.get(entry)
        if found is None:
            found = self._from_entry[entry] = self._tracker.summaries_from(Source(INGRESS, entry))
        return found

    def _excursions(
        self, before: PathSummary[TI], world: Iterable[PathSummary[TO]], after: Iterable[PathSummary[TI]]
    ) -> list[RoundTripSummary[TO, TI]]:
        afterwards = list(after)
        return [RoundTripSummary(before, returns, each, self._refinement) for returns in world for each in afterwards]


def circling(children: int, edges: Iterable[tuple[Source, Target]], *, returns: bool) -> set[int]:
    """Return the children that some way may lead back to; with ``returns`` the scope's outputs lead to its inputs again.

    >>> edges = [(Source(0, 0), Target(1, 0)), (Source(1, 0), Target(2, 0)), (Source(2, 0), Target(1, 1))]
    >>> circling(3, edges, returns=False)
    {1, 2}
    """
    outside = children
    successors: list[set[int]] = [set() for _ in range(children + 1)]
    for source, target in edges:
        start, end = (outside if node < 0 else node for node in (source.node, target.node))
        if returns or outside not in (start, end):
            successors[start].add(end)
    knots: Sequence[Sequence[int]] = strongly_connected(successors)
    found = {vertex for knot in knots if len(knot) > 1 or knot[0] in successors[knot[0]] for vertex in knot}
    return found - {outside}
