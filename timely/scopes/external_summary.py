"""``ExternalSummaries``: how the world leads from the outputs of each child of a scope back to its inputs.

A path back stays inside the scope, or leaves it and returns through the world (a ``RoundTripSummary``). The invariant: every
minimal summary of a path back, and nothing else. Made for one exchange of summaries, and thrown away.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Generic, TypeVar

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
from timely.scopes.boundary import EGRESS, INGRESS
from timely.scopes.round_trip import RoundTripSummary
from timely.scopes.scope import Summaries

TO = TypeVar("TO", bound=PartialOrder)
TI = TypeVar("TI", bound=PartialOrder)


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
