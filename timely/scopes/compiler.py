"""``SubgraphCompiler``: compiles the graph of a subgraph into trackers, and answers what its set-up asks about paths."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from timely.errors import CycleError
from timely.order import PartialOrder
from timely.progress import (
    Antichain,
    GraphBuilder,
    PathSummary,
    Source,
    SummaryRow,
    Target,
    Tracker,
    connected,
    strictly_advances,
)
from timely.scopes.boundary import EGRESS, INGRESS, Edge, output_number
from timely.scopes.count_sinks import Exits
from timely.scopes.external_summary import ExternalSummaries
from timely.scopes.round_trip import RoundTripSummary
from timely.scopes.scope import Summaries, observed_inputs
from timely.scopes.subgraph import Subgraph

TO = TypeVar("TO", bound=PartialOrder)
TI = TypeVar("TI", bound=PartialOrder)

_MOST_EXITS = 4
"""With more exits than this for each location, on average, deriving frontiers is faster than projecting counts."""


class SubgraphCompiler(Generic[TO, TI]):
    """Compiles one subgraph whose children and edges are complete."""

    def __init__(self, subgraph: Subgraph[TO, TI]) -> None:
        self._subgraph = subgraph
        self._refinement = subgraph.refinement

    # -- trackers --------------------------------------------------------------------------------------------------

    def compile(self, summaries: Sequence[Summaries[TI]], *, inward: bool) -> Tracker[TI]:
        """Build the tracker for the frontiers of the children (``inward``), or the one for those of the outputs."""
        subgraph = self._subgraph
        builder: GraphBuilder[TI] = GraphBuilder(self._refinement.inner.spec)
        for child, summary in zip(subgraph.children, summaries, strict=True):
            scope = child.scope
            observes = observed_inputs(scope) if inward else ()
            builder.add_node(child.index, scope.inputs, scope.outputs, summary, observes=observes, name=child.name)
        if inward:
            builder.add_node(INGRESS, 0, subgraph.inputs, (), name=f"{subgraph.name} (inputs)")
        observed = () if inward else tuple(range(subgraph.outputs))
        outputs = subgraph.outputs
        builder.add_node(EGRESS, outputs, 0, [()] * outputs, observes=observed, name=f"{subgraph.name} (outputs)")
        for edge in subgraph.edges:
            if inward or edge.source.node != INGRESS:
                builder.add_edge(edge.source, edge.target, local=self._is_local(edge))
        try:
            return builder.build()
        except CycleError as error:
            raise CycleError(f"scope {subgraph.path!r}: {error}", error.nodes) from None

    def _is_local(self, edge: Edge) -> bool:
        """Whether counts on ``edge`` can never be negative, not even between two statements that arrive one by one."""
        if self._subgraph.peers == 1:
            return True
        ends = (edge.source.node, edge.target.node)
        return edge.local and not any(node >= 0 and self._subgraph.children[node].shared for node in ends)

    def number(self, tracker: Tracker[TI]) -> list[list[int]]:
        """Set the numbers of every child's ports; return, for each input of the scope, the locations that it leads to."""
        fanout: dict[Source, list[int]] = {}
        for edge in self._subgraph.edges:
            target = edge.target
            number = output_number(target.port) if target.node == EGRESS else tracker.index(target)
            fanout.setdefault(edge.source, []).append(number)
        for child in self._subgraph.children:
            scope, c = child.scope, child.index
            sources = [tracker.index(Source(c, port)) for port in range(scope.outputs)]
            targets = [tracker.index(Target(c, port)) for port in range(scope.inputs)]
            child.number(sources, targets, [fanout.get(Source(c, port), []) for port in range(scope.outputs)])
        return [fanout.get(Source(INGRESS, port), []) for port in range(self._subgraph.inputs)]

    def translate(self, tracker: Tracker[TI], outward: Tracker[TI]) -> list[int]:
        """Return, for each location of the inward tracker, its number in the outward one; -1 where it has none."""
        numbers = [-1] * tracker.size
        for child in self._subgraph.children:
            for port, number in enumerate(child.sources):
                numbers[number] = outward.index(Source(child.index, port))
            for port, number in enumerate(child.targets):
                numbers[number] = outward.index(Target(child.index, port))
        return numbers

    # -- paths ------------------------------------------------------------------------------------------------------

    def exits(self, tracker: Tracker[TI]) -> list[Exits[TI, TO]] | None:
        """Return the exits of each location; ``None`` if they are many."""
        exits: list[list[tuple[int, Callable[[TI], TO | None]]]] = [[] for _ in range(tracker.size)]
        left = _MOST_EXITS * len(exits)
        known: dict[PathSummary[TI], Callable[[TI], TO | None]] = {}
        for port in range(self._subgraph.outputs):
            for location, summaries in tracker.summaries_to(Target(EGRESS, port)).items():
                for summary in summaries:
                    if summary not in known:
                        known[summary] = self._exit(summary)
                    exits[tracker.index(location)].append((port, known[summary]))
                    left -= 1
            if left < 0:
                return None
        return [tuple(each) for each in exits]

    def _exit(self, summary: PathSummary[TI]) -> Callable[[TI], TO | None]:
        to_outer = self._refinement.to_outer
        if summary == self._refinement.inner.identity:
            return to_outer

        def leave(time: TI) -> TO | None:
            arrival = summary.results_in(time)
            return None if arrival is None else to_outer(arrival)

        return leave

    def summarize(self, tracker: Tracker[TI]) -> Summaries[TO]:
        """Return the internal summary in outer terms, following paths from the inputs or the outputs, whichever are fewer."""
        table: list[dict[int, Antichain[PathSummary[TO]]]] = [{} for _ in range(self._subgraph.inputs)]
        if self._subgraph.inputs < self._subgraph.outputs:
            for i in range(self._subgraph.inputs):
                for location, summaries in tracker.summaries_from(Source(INGRESS, i)).items():
                    if isinstance(location, Target) and location.node == EGRESS:
                        table[i][location.port] = self._to_outer(summaries)
        else:
            for o in range(self._subgraph.outputs):
                for location, summaries in tracker.summaries_to(Target(EGRESS, o)).items():
                    if isinstance(location, Source) and location.node == INGRESS:
                        table[location.port][o] = self._to_outer(summaries)
        return [SummaryRow(self._subgraph.outputs, row) for row in table]

    def _to_outer(self, summaries: Iterable[PathSummary[TI]]) -> Antichain[PathSummary[TO]]:
        outer = [self._refinement.summarize(summary) for summary in summaries]
        return Antichain(summary for summary in outer if summary is not None)

    def check_returns(self, internal: Summaries[TO], world: Summaries[TO]) -> None:
        """Raise ``CycleError`` for a cycle through the parent on which time does not strictly advance."""
        for output, row in enumerate(world):
            for back_to, returns in connected(row):
                for back in returns:
                    if isinstance(back, RoundTripSummary):
                        continue  # the scope further out, which it goes around, has checked the cycles through it
                    for through in internal[back_to][output]:
                        cycle = back.followed_by(through)
                        if cycle is not None and not strictly_advances(cycle, self._refinement.outer):
                            raise CycleError(
                                f"scope {self._subgraph.path!r}: the path from its output {output} through the scope around it"
                                f" to its input {back_to} and back does not advance time ({cycle!r}); put a feedback with an"
                                " advancing summary on it",
                                (self._subgraph.name,),
                            )

    def external_summaries(self, tracker: Tracker[TI], world: Summaries[TO]) -> ExternalSummaries[TO, TI]:
        """Return the external summaries of the children, where ``world`` is how the world leads back to the scope."""
        edges = [(edge.source, edge.target) for edge in self._subgraph.edges]
        return ExternalSummaries(tracker, self._refinement, world, len(self._subgraph.children), edges)
