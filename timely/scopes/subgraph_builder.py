"""``SubgraphBuilder``: adds scopes and edges to a ``Subgraph``, compiles them, and starts it.

What enters and leaves is connected to the nodes ``INGRESS`` and ``EGRESS``. The exchange of summaries compiles the graph, and
nothing can be added from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from timely.errors import CycleError, GraphError
from timely.order import PartialOrder
from timely.progress import (
    Antichain,
    CountSink,
    GraphBuilder,
    PathSummary,
    Source,
    SummaryRow,
    Target,
    Tracker,
    connected,
    strictly_advances,
)
from timely.scopes.count_sinks import CountProjection, Exits, FrontierProjection, Projection
from timely.scopes.external_summary import ExternalSummaries, RoundTripSummary
from timely.scopes.scope import (
    EGRESS,
    INGRESS,
    Counts,
    Edge,
    Scope,
    Summaries,
    check_internal_summary,
    observed_inputs,
    output_number,
)
from timely.scopes.subgraph import Child, Subgraph
from timely.scopes.trusted import TrustedScope
from timely.scopes.validating import ValidatingScope

TO = TypeVar("TO", bound=PartialOrder)
TI = TypeVar("TI", bound=PartialOrder)

_MOST_EXITS = 4
"""With more exits than this for each location, on average, deriving frontiers is faster than projecting counts."""


class SubgraphBuilder(Generic[TO, TI]):
    """Builds ``subgraph``, which is empty at first."""

    def __init__(self, subgraph: Subgraph[TO, TI]) -> None:
        self.subgraph = subgraph
        self._parts: list[Scope[TI] | TrustedScope[TI] | SubgraphBuilder[TI, Any]] = []
        self._closed = False

    @property
    def inputs(self) -> int:
        """How many streams enter."""
        return self.subgraph.inputs

    @property
    def outputs(self) -> int:
        """How many streams leave."""
        return self.subgraph.outputs

    def new_input(self) -> int:
        """Add an input and return its port; inside, it is the output ``Source(INGRESS, port)``."""
        self._check_open()
        self.subgraph.inputs += 1
        return self.subgraph.inputs - 1

    def new_output(self) -> int:
        """Add an output and return its port; inside, it is the input ``Target(EGRESS, port)``."""
        self._check_open()
        self.subgraph.outputs += 1
        return self.subgraph.outputs - 1

    def add_child(self, name: str, scope: Scope[TI] | TrustedScope[TI] | SubgraphBuilder[TI, Any]) -> int:
        """Add a child and return its index. Its progress is validated unless it is our own; it may grow until the compilation."""
        self._check_open(f"{name!r} cannot be added: ")
        subgraph = self.subgraph
        if isinstance(scope, SubgraphBuilder):
            self._parts.append(scope)
            return subgraph.add(name, scope.subgraph)
        if not isinstance(scope, TrustedScope | ValidatingScope):
            scope = ValidatingScope(scope, name, f"{subgraph.path}/{name}")
        self._parts.append(scope)
        return subgraph.add(name, scope)

    def add_edge(self, source: Source, target: Target, *, local: bool) -> None:
        """Connect an output to an input; ``local`` if no message on the edge ever goes to another worker."""
        self._check_open()
        self.subgraph.edges.append(Edge(source, target, local))

    def _check_open(self, what: str = "") -> None:
        if self._closed:
            raise GraphError(
                f"{what}scope {self.subgraph.path!r} is built already: add operators inside its with-block; to use a stream of it"
                " in another dataflow, capture_into there and replay here"
            )

    # -- the exchange of summaries ----------------------------------------------------------------------------------

    def get_internal_summary(self) -> tuple[Summaries[TO], Counts[TO]]:
        """Compile the graph; return how its inputs lead to its outputs, and its initial capabilities there."""
        self._check_open()
        self._closed = True
        subgraph = self.subgraph
        answers = [part.get_internal_summary() for part in self._parts]
        for child, (summaries, counts) in zip(subgraph.children, answers, strict=True):
            check_internal_summary(f"{subgraph.path}/{child.name}", child.scope, summaries, counts)
        rows = [summaries for summaries, _ in answers]
        tracker = self._tracker = self._compile(rows, inward=True)
        entry_fanout = self._number(tracker)
        projection = self._project(rows)
        for child, (_, counts) in zip(subgraph.children, answers, strict=True):
            self._count_initial(child, counts, projection or tracker)
        internal = self._summarize(tracker)
        subgraph.start(tracker, projection, entry_fanout, internal)
        if projection is None:
            return internal, []
        projection.settle()
        return internal, [changes.drain() for changes in projection.changes]

    def _project(self, summaries: Sequence[Summaries[TI]]) -> Projection[TO, TI] | None:
        """Return the sink that derives what the parent receives, if there are outputs.

        With peers a count may be negative for a while, and could cancel a positive one elsewhere. Then, and where there are many
        ways out, a second tracker without the inputs derives the frontiers at the outputs.
        """
        outputs, tracker = self.subgraph.outputs, self._tracker
        if not outputs:
            return None
        exits = self._exits(tracker) if self.subgraph.peers == 1 else None
        if exits is not None:
            return CountProjection(tracker, outputs, exits)
        outward = self._compile(summaries, inward=False)
        numbers = self._translate(tracker, outward)
        return FrontierProjection(tracker, outputs, outward, numbers, self.subgraph.refinement.to_outer)

    def _count_initial(self, child: Child, counts: Counts[TI], sink: CountSink[TI]) -> None:
        """Count the initial capabilities of ``child``: once for each worker, unless its report speaks for all of them."""
        factor = 1 if child.shared else self.subgraph.peers
        for number, elements in zip(child.sources, counts, strict=True):
            for time, count in elements:
                sink.update_at(number, time, factor * count)

    def set_external_summary(self, summaries: Summaries[TO], external: Counts[TO]) -> None:
        """Set how the world leads back from the outputs to the inputs, and the initial counts at the inputs; start to run.

        Raises ``CycleError`` for a cycle through the parent on which time does not strictly advance.
        """
        subgraph, tracker = self.subgraph, self._tracker
        self._check_returns(subgraph.internal_summary, summaries)
        subgraph.push_initial(external)
        world: ExternalSummaries[TO, TI] | None = None
        for child, part in zip(subgraph.children, self._parts, strict=True):
            if isinstance(part, TrustedScope):  # it has no use for how the world leads back
                subgraph.attach(child)
            else:
                frontiers: list[list[tuple[TI, int]]] = [[] for _ in range(part.inputs)]
                for port in observed_inputs(child.scope):
                    frontiers[port] = [(time, 1) for time in tracker.frontier(Target(child.index, port))]
                if world is None:
                    edges = [(edge.source, edge.target) for edge in subgraph.edges]
                    world = ExternalSummaries(tracker, subgraph.refinement, summaries, len(subgraph.children), edges)
                part.set_external_summary(world.of(child.index, part.inputs, part.outputs), frontiers)
            subgraph.activate(child.index)
        tracker.forget()

    # -- trackers --------------------------------------------------------------------------------------------------

    def _compile(self, summaries: Sequence[Summaries[TI]], *, inward: bool) -> Tracker[TI]:
        """Build the tracker for the frontiers of the children (``inward``), or the one for those of the outputs."""
        subgraph, outputs = self.subgraph, self.subgraph.outputs
        builder: GraphBuilder[TI] = GraphBuilder(self.subgraph.refinement.inner.spec)
        for child, summary in zip(subgraph.children, summaries, strict=True):
            scope = child.scope
            observes = observed_inputs(scope) if inward else ()
            builder.add_node(child.index, scope.inputs, scope.outputs, summary, observes=observes, name=child.name)
        if inward:
            builder.add_node(INGRESS, 0, subgraph.inputs, (), name=f"{subgraph.name} (inputs)")
        observed = () if inward else range(outputs)
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
        if self.subgraph.peers == 1:
            return True
        ends = (edge.source.node, edge.target.node)
        return edge.local and not any(node >= 0 and self.subgraph.children[node].shared for node in ends)

    def _number(self, tracker: Tracker[TI]) -> list[list[int]]:
        """Set the numbers of every child's ports; return, for each input of the scope, the locations that it leads to."""
        fanout: dict[Source, list[int]] = {}
        for edge in self.subgraph.edges:
            target = edge.target
            number = output_number(target.port) if target.node == EGRESS else tracker.index(target)
            fanout.setdefault(edge.source, []).append(number)
        for child in self.subgraph.children:
            scope, c = child.scope, child.index
            sources = [tracker.index(Source(c, port)) for port in range(scope.outputs)]
            targets = [tracker.index(Target(c, port)) for port in range(scope.inputs)]
            child.number(sources, targets, [fanout.get(Source(c, port), []) for port in range(scope.outputs)])
        return [fanout.get(Source(INGRESS, port), []) for port in range(self.subgraph.inputs)]

    def _translate(self, tracker: Tracker[TI], outward: Tracker[TI]) -> list[int]:
        """Return, for each location of the inward tracker, its number in the outward one; -1 where it has none."""
        numbers = [-1] * tracker.size
        for child in self.subgraph.children:
            for port, number in enumerate(child.sources):
                numbers[number] = outward.index(Source(child.index, port))
            for port, number in enumerate(child.targets):
                numbers[number] = outward.index(Target(child.index, port))
        return numbers

    # -- paths ------------------------------------------------------------------------------------------------------

    def _exits(self, tracker: Tracker[TI]) -> list[Exits[TI, TO]] | None:
        """Return the exits of each location; ``None`` if they are many."""
        exits: list[list[tuple[int, Callable[[TI], TO | None]]]] = [[] for _ in range(tracker.size)]
        left = _MOST_EXITS * len(exits)
        known: dict[PathSummary[TI], Callable[[TI], TO | None]] = {}
        for port in range(self.subgraph.outputs):
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
        to_outer = self.subgraph.refinement.to_outer
        if summary == self.subgraph.refinement.inner.identity:
            return to_outer

        def leave(time: TI) -> TO | None:
            arrival = summary.results_in(time)
            return None if arrival is None else to_outer(arrival)

        return leave

    def _summarize(self, tracker: Tracker[TI]) -> Summaries[TO]:
        """Return the internal summary in outer terms, following paths from the inputs or the outputs, whichever are fewer."""
        table: list[dict[int, Antichain[PathSummary[TO]]]] = [{} for _ in range(self.subgraph.inputs)]
        if self.subgraph.inputs < self.subgraph.outputs:
            for i in range(self.subgraph.inputs):
                for location, summaries in tracker.summaries_from(Source(INGRESS, i)).items():
                    if isinstance(location, Target) and location.node == EGRESS:
                        table[i][location.port] = self._to_outer(summaries)
        else:
            for o in range(self.subgraph.outputs):
                for location, summaries in tracker.summaries_to(Target(EGRESS, o)).items():
                    if isinstance(location, Source) and location.node == INGRESS:
                        table[location.port][o] = self._to_outer(summaries)
        return [SummaryRow(self.subgraph.outputs, row) for row in table]

    def _to_outer(self, summaries: Iterable[PathSummary[TI]]) -> Antichain[PathSummary[TO]]:
        outer = [self.subgraph.refinement.summarize(summary) for summary in summaries]
        return Antichain(summary for summary in outer if summary is not None)

    def _check_returns(self, internal: Summaries[TO], world: Summaries[TO]) -> None:
        """Raise ``CycleError`` for a cycle through the parent on which time does not strictly advance."""
        for output, row in enumerate(world):
            for back_to, returns in connected(row):
                for back in returns:
                    if isinstance(back, RoundTripSummary):
                        continue  # the scope further out, which it goes around, has checked the cycles through it
                    for through in internal[back_to][output]:
                        cycle = back.followed_by(through)
                        if cycle is not None and not strictly_advances(cycle, self.subgraph.refinement.outer):
                            raise CycleError(
                                f"scope {self.subgraph.path!r}: the path from its output {output} through the scope around it"
                                f" to its input {back_to} and back does not advance time ({cycle!r}); put a feedback with an"
                                " advancing summary on it",
                                (self.subgraph.name,),
                            )
