"""``ScopePlan``: what is worked out of the graph of a scope, once, when it is complete.

It makes the trackers, and answers what the scope has to say, or to know, before anything runs: how its inputs lead to its
outputs, which ways lead out from each place inside, and whether a way round the world outside advances time. The invariant: it
only reads what it is given, but for the numbers that it gives each child.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from timely.errors import CycleError
from timely.order import PartialOrder
from timely.progress import (
    Antichain,
    GraphBuilder,
    PathSummary,
    Refinement,
    Source,
    SummaryRow,
    Target,
    Tracker,
    connected,
    strictly_advances,
)
from timely.scopes.child import Child, Edge
from timely.scopes.count_sinks import Exits
from timely.scopes.external_summary import EGRESS, INGRESS, ExternalSummaries
from timely.scopes.round_trip import RoundTripSummary
from timely.scopes.scope import Summaries, observed_inputs

TO = TypeVar("TO", bound=PartialOrder)
TI = TypeVar("TI", bound=PartialOrder)

_WAYS_OUT = 4
"""So many ways out for each place inside, on average, are quicker gone one by one than looked at through their frontiers."""


class ScopePlan(Generic[TO, TI]):
    """The graph of one scope: its children and the edges between them, and how many streams enter and leave."""

    __slots__ = ("children", "edges", "inputs", "name", "outputs", "path", "peers", "refinement")

    def __init__(
        self,
        name: str,
        path: str,
        children: Sequence[Child],
        edges: Sequence[Edge],
        inputs: int,
        outputs: int,
        refinement: Refinement[TO, TI],
        peers: int,
    ) -> None:
        self.name = name
        self.path = path
        self.children = children
        self.edges = edges
        self.inputs = inputs
        self.outputs = outputs
        self.refinement = refinement
        self.peers = peers

    # -- trackers --------------------------------------------------------------------------------------------------

    def compile(self, summaries: Sequence[Summaries[TI]], *, inward: bool) -> Tracker[TI]:
        """Build the tracker that children are told from (``inward``), or the one that the parent is told from."""
        builder: GraphBuilder[TI] = GraphBuilder(self.refinement.inner.spec)
        for child, summary in zip(self.children, summaries, strict=True):
            scope = child.scope
            observes = observed_inputs(scope) if inward else ()
            builder.add_node(child.index, scope.inputs, scope.outputs, summary, observes=observes, name=child.name)
        if inward:
            builder.add_node(INGRESS, 0, self.inputs, (), name=f"{self.name} (inputs)")
        observed = () if inward else tuple(range(self.outputs))
        builder.add_node(EGRESS, self.outputs, 0, [()] * self.outputs, observes=observed, name=f"{self.name} (outputs)")
        for edge in self.edges:
            if inward or edge.source.node != INGRESS:
                builder.add_edge(edge.source, edge.target, local=self._is_local(edge))
        try:
            return builder.build()
        except CycleError as error:
            raise CycleError(f"scope {self.path!r}: {error}", error.nodes) from None

    def _is_local(self, edge: Edge) -> bool:
        """Whether counts on ``edge`` can never be negative, not even between two statements that arrive one by one."""
        if self.peers == 1:
            return True
        ends = (edge.source.node, edge.target.node)
        return edge.local and not any(node >= 0 and self.children[node].shared for node in ends)

    def number(self, tracker: Tracker[TI]) -> list[list[int]]:
        """Give every child the dense numbers of its locations; return, for each input of the scope, those that it leads to.

        An output of the scope, which has no number, is ``~port``.
        """
        fanout: dict[Source, list[int]] = {}
        for edge in self.edges:
            target = edge.target
            number = ~target.port if target.node == EGRESS else tracker.index(target)
            fanout.setdefault(edge.source, []).append(number)
        for child in self.children:
            scope, c = child.scope, child.index
            sources = [tracker.index(Source(c, port)) for port in range(scope.outputs)]
            targets = [tracker.index(Target(c, port)) for port in range(scope.inputs)]
            child.number(sources, targets, [fanout.get(Source(c, port), []) for port in range(scope.outputs)])
        return [fanout.get(Source(INGRESS, port), []) for port in range(self.inputs)]

    def translate(self, tracker: Tracker[TI], outward: Tracker[TI]) -> list[int]:
        """Translate dense numbers of the inward tracker to those of the outward one; -1 where it has no such location."""
        numbers = [-1] * tracker.size
        for child in self.children:
            for port, number in enumerate(child.sources):
                numbers[number] = outward.index(Source(child.index, port))
            for port, number in enumerate(child.targets):
                numbers[number] = outward.index(Target(child.index, port))
        return numbers

    # -- ways out --------------------------------------------------------------------------------------------------

    def exits(self, tracker: Tracker[TI]) -> list[Exits[TI, TO]] | None:
        """Return, for each location, the outputs that it leads to, and what becomes of a time on each way there.

        None if there are many: where much that is inside leads to many outputs.
        """
        exits: list[list[tuple[int, Callable[[TI], TO | None]]]] = [[] for _ in range(tracker.size)]
        left = _WAYS_OUT * len(exits)
        known: dict[PathSummary[TI], Callable[[TI], TO | None]] = {}
        for port in range(self.outputs):
            for location, summaries in tracker.summaries_to(Target(EGRESS, port)).items():
                for summary in summaries:
                    if summary not in known:
                        known[summary] = self._way_out(summary)
                    exits[tracker.index(location)].append((port, known[summary]))
                    left -= 1
            if left < 0:
                return None
        return [tuple(ways) for ways in exits]

    def _way_out(self, summary: PathSummary[TI]) -> Callable[[TI], TO | None]:
        to_outer = self.refinement.to_outer
        if summary == self.refinement.inner.identity:
            return to_outer

        def leave(time: TI) -> TO | None:
            arrival = summary.results_in(time)
            return None if arrival is None else to_outer(arrival)

        return leave

    def summarize(self, tracker: Tracker[TI]) -> Summaries[TO]:
        """Return the internal summary: for each input and output, the minimal path summaries in outer terms.

        Paths are followed from the inputs or from the outputs, of which there are fewer.
        """
        table: list[dict[int, Antichain[PathSummary[TO]]]] = [{} for _ in range(self.inputs)]
        if self.inputs < self.outputs:
            for i in range(self.inputs):
                for location, summaries in tracker.summaries_from(Source(INGRESS, i)).items():
                    if isinstance(location, Target) and location.node == EGRESS:
                        table[i][location.port] = self._seen_from_outside(summaries)
        else:
            for o in range(self.outputs):
                for location, summaries in tracker.summaries_to(Target(EGRESS, o)).items():
                    if isinstance(location, Source) and location.node == INGRESS:
                        table[location.port][o] = self._seen_from_outside(summaries)
        return [SummaryRow(self.outputs, row) for row in table]

    def _seen_from_outside(self, summaries: Iterable[PathSummary[TI]]) -> Antichain[PathSummary[TO]]:
        outer = [self.refinement.summarize(summary) for summary in summaries]
        return Antichain(summary for summary in outer if summary is not None)

    # -- the world outside -----------------------------------------------------------------------------------------

    def check_returns(self, internal: Summaries[TO], world: Summaries[TO]) -> None:
        """Raise ``CycleError`` for a cycle through the parent on which time does not strictly advance."""
        for output, row in enumerate(world):
            for back_to, returns in connected(row):
                for back in returns:
                    if isinstance(back, RoundTripSummary):
                        continue  # a way round the scope further out, which has checked the cycles through it itself
                    for through in internal[back_to][output]:
                        cycle = back.followed_by(through)
                        if cycle is not None and not strictly_advances(cycle, self.refinement.outer):
                            raise CycleError(
                                f"scope {self.path!r}: the path from its output {output} through the scope around it to its"
                                f" input {back_to} and back does not advance time ({cycle!r}); put a feedback with an"
                                " advancing summary on it",
                                (self.name,),
                            )

    def surroundings(self, tracker: Tracker[TI], world: Summaries[TO]) -> ExternalSummaries[TO, TI]:
        """Return what answers how the world leads back to each child, where ``world`` is how it leads back to the scope."""
        edges = [(edge.source, edge.target) for edge in self.edges]
        return ExternalSummaries(tracker, self.refinement, world, len(self.children), edges)
