"""``SubgraphBuilder``: adds scopes and edges to a ``Subgraph``, and is its half of the ``Scope`` protocol before it runs.

What enters and leaves is connected to the nodes ``INGRESS`` and ``EGRESS``. The first exchange of summaries compiles the graph,
and nothing can be added from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from timely.errors import GraphError
from timely.order import PartialOrder
from timely.progress import ProgressExchange, Source, Target
from timely.scopes.boundary import Edge
from timely.scopes.compiler import SubgraphCompiler
from timely.scopes.count_sinks import CountProjection, FrontierProjection, Projection
from timely.scopes.external_summary import ExternalSummaries
from timely.scopes.scope import Counts, Scope, Summaries, check_internal_summary, observed_inputs
from timely.scopes.subgraph import Child, Pointstamp, Subgraph
from timely.scopes.trusted import TrustedScope
from timely.scopes.validating import ValidatingScope

TO = TypeVar("TO", bound=PartialOrder)
TI = TypeVar("TI", bound=PartialOrder)


class SubgraphBuilder(Generic[TO, TI]):
    """Builds ``subgraph``, a scope with times ``TI`` inside that refine the times ``TO`` outside.

    ``number`` is that of the scope in its dataflow, ``exchange`` what carries progress to the peers.
    """

    def __init__(
        self,
        name: str,
        path: str,
        outer: Any,
        inner: Any,
        *,
        peers: int = 1,
        wake: Callable[[], None] | None = None,
        exchange: ProgressExchange[Pointstamp] | None = None,
        number: int = 0,
    ) -> None:
        self.subgraph: Subgraph[TO, TI] = Subgraph(
            name, path, outer, inner, peers=peers, wake=wake, exchange=exchange, number=number
        )
        self.peers = peers
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
        self._compiler: SubgraphCompiler[TO, TI] = SubgraphCompiler(subgraph)
        rows = [summaries for summaries, _ in answers]
        tracker = self._tracker = self._compiler.compile(rows, inward=True)
        entry_fanout = self._compiler.number(tracker)
        self._projection = self._project(rows)
        for child, (_, counts) in zip(subgraph.children, answers, strict=True):
            self._count_initial(child, counts)
        self._internal = self._compiler.summarize(tracker)
        subgraph.start(tracker, self._projection, entry_fanout, self._internal)
        return self._internal, self._initial_outputs()

    def _project(self, summaries: Sequence[Summaries[TI]]) -> Projection[TO, TI] | None:
        """Return the sink that derives what the parent hears, if there are outputs.

        With peers a count may be negative for a while, and could cancel a positive one elsewhere. Then, and where there are many
        ways out, a second tracker without the inputs derives the frontiers at the outputs.
        """
        outputs, tracker = self.subgraph.outputs, self._tracker
        if not outputs:
            return None
        exits = self._compiler.exits(tracker) if self.peers == 1 else None
        if exits is not None:
            return CountProjection(tracker, outputs, exits)
        outward = self._compiler.compile(summaries, inward=False)
        numbers = self._compiler.translate(tracker, outward)
        return FrontierProjection(tracker, outputs, outward, numbers, self.subgraph.refinement.to_outer)

    def _count_initial(self, child: Child, counts: Counts[TI]) -> None:
        """Count the initial capabilities of ``child``: once for each worker, unless its report speaks for all of them."""
        sink = self._projection or self._tracker
        factor = 1 if child.shared else self.peers
        for number, elements in zip(child.sources, counts, strict=True):
            for time, count in elements:
                sink.update_at(number, time, factor * count)

    def _initial_outputs(self) -> list[list[tuple[TO, int]]]:
        if self._projection is None:
            return []
        self._projection.settle()
        return [changes.drain() for changes in self._projection.changes]

    def set_external_summary(self, summaries: Summaries[TO], external: Counts[TO]) -> None:
        """Set how the world leads back from the outputs to the inputs, and the initial counts at the inputs; start to run.

        Raises ``CycleError`` for a cycle through the parent on which time does not strictly advance.
        """
        subgraph, tracker = self.subgraph, self._tracker
        self._compiler.check_returns(self._internal, summaries)
        subgraph.push_initial(external)
        world: ExternalSummaries[TO, TI] | None = None
        for child, part in zip(subgraph.children, self._parts, strict=True):
            if isinstance(part, TrustedScope):  # it has no use for how the world leads back
                subgraph.attach(child)
            else:
                frontiers: list[list[tuple[TI, int]]] = [[] for _ in range(part.inputs)]
                for port in observed_inputs(child.scope):
                    frontiers[port] = [(time, 1) for time in tracker.frontier(Target(child.index, port))]
                world = world or self._compiler.external_summaries(tracker, summaries)
                part.set_external_summary(world.of(child.index, part.inputs, part.outputs), frontiers)
            subgraph.activate(child.index)
        tracker.forget()
