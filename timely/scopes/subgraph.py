"""``Subgraph``: a scope made of connected scopes, and itself a scope to whatever stands around it.

It compiles the graph of its children once, keeps the counts of every pointstamp among them (a capability at an output, a
message on its way to an input), tells each child how the frontiers at its inputs move, and shows its own parent one
operator: messages consumed and produced at its boundary, and the unfinished work inside projected to its outputs.

The invariants. What one child says in one pull is applied as a whole before any frontier is derived from it. What this
worker's children say reaches the peers through one stream for the whole dataflow, in order (``exchange``); what a shared
child says is known to the peers already and goes no further. And what is reported upward is only work *inside*: what may
still come in from outside is the parent's to account for, through the internal summary, so that a loop through the parent
does not keep itself alive. Therefore the tracker with the frontiers at the inputs serves the children alone. The parent is
told of every count inside, moved along its paths to the outputs; on one worker these are added up as they are, and mostly
cancel. With peers a count may be negative for a while, and adding it to another place's would hide that; so there a second
tracker, without the inputs, derives the frontiers at the outputs first.

The boundary is two nodes of the graph: ``INGRESS``, whose outputs are the scope's inputs as seen from inside, and
``EGRESS``, whose inputs are the scope's outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Generic, TypeAlias, TypeVar

from timely.errors import CycleError, ScopeError
from timely.order import PartialOrder
from timely.progress import (
    Antichain,
    ChangeBatch,
    GraphBuilder,
    PathSummary,
    ProgressExchange,
    Refinement,
    Source,
    SummaryRow,
    Target,
    TimeDomain,
    Tracker,
    connected,
    refinement,
    strictly_advances,
    time_domain,
)
from timely.scopes.attachable import Attachable
from timely.scopes.checked import Checked
from timely.scopes.excursion import Excursion
from timely.scopes.scope import (
    Counts,
    Scope,
    Summaries,
    check_internal_summary,
    is_patient,
    is_shared,
    observed_inputs,
)
from timely.scopes.surroundings import EGRESS, INGRESS, Surroundings

TO = TypeVar("TO", bound=PartialOrder)
TI = TypeVar("TI", bound=PartialOrder)

_WAYS_OUT: Final = 4
"""So many ways out for each place inside, on average, are quicker gone one by one than looked at through their frontiers."""

Recorder: TypeAlias = Callable[[int, TI, int], None]
"""What counts changes in a scope's account: ``(location, time, diff)``."""


Exits: TypeAlias = Sequence[tuple[int, Callable[[TI], TO | None]]]
"""The outputs that a place inside leads to, and what becomes of a time on each way there."""


class Edge:
    """One edge of a subgraph, as it was drawn: ``local`` where no message on it ever leaves the worker."""

    __slots__ = ("local", "source", "target")

    def __init__(self, source: Source, target: Target, local: bool) -> None:
        self.source = source
        self.target = target
        self.local = local


class Child:
    """What a subgraph keeps of one child: the scope, its locations as dense numbers, and, unless it counts straight into the
    subgraph's account, scratch lists for its progress.
    """

    __slots__ = (
        "consumed",
        "external",
        "fanout",
        "held",
        "index",
        "internal",
        "name",
        "nested",
        "patient",
        "produced",
        "read",
        "scope",
        "sent",
        "shared",
        "sources",
        "targets",
    )

    def __init__(self, index: int, name: str, scope: Scope[Any]) -> None:
        self.index = index
        self.name = name
        self.scope = scope
        self.nested = isinstance(scope, Subgraph)
        self.patient = self.nested or is_patient(scope)
        self.shared = is_shared(scope)
        self.sources: Sequence[int] = ()
        self.targets: Sequence[int] = ()
        self.fanout: Sequence[list[int]] = ()
        self.external: Sequence[ChangeBatch[Any]] = ()
        self.internal: Sequence[ChangeBatch[Any]] = ()
        self.consumed: Sequence[ChangeBatch[Any]] = ()
        self.produced: Sequence[ChangeBatch[Any]] = ()
        self.held: Sequence[tuple[ChangeBatch[Any], int]] = ()
        self.read: Sequence[tuple[ChangeBatch[Any], int]] = ()
        self.sent: Sequence[tuple[ChangeBatch[Any], list[int]]] = ()

    def number(self, sources: Sequence[int], targets: Sequence[int], fanout: Sequence[list[int]]) -> None:
        """Take in the dense numbers of its outputs, of its inputs, and of all that each output leads to."""
        self.sources = sources
        self.targets = targets
        self.fanout = fanout
        if isinstance(self.scope, Attachable):
            return
        self.external = [ChangeBatch() for _ in targets]
        self.internal = [ChangeBatch() for _ in sources]
        self.consumed = [ChangeBatch() for _ in targets]
        self.produced = [ChangeBatch() for _ in sources]
        self.held = list(zip(self.internal, sources, strict=True))
        self.read = list(zip(self.consumed, targets, strict=True))
        self.sent = list(zip(self.produced, fanout, strict=True))


class Subgraph(Generic[TO, TI]):
    """A scope of connected scopes, with times ``TI`` inside that refine the times ``TO`` outside.

    ``wake`` is called when there is something for the subgraph to do: a parent's ``activate`` for its index, or the
    worker's. Source: the 2014 posts on hierarchical scopes; the projection to outputs is theirs, the compiled trackers ours.
    """

    __slots__ = (
        "_active",
        "_busy",
        "_consumed",
        "_entered",
        "_entry_fanout",
        "_entry_sources",
        "_exchange",
        "_exits",
        "_frozen",
        "_inputs",
        "_internal",
        "_observers",
        "_observes",
        "_outputs",
        "_outward",
        "_outward_index",
        "_pending_count",
        "_pending_time",
        "_produced",
        "_projected",
        "_queued",
        "_recorders",
        "_runs",
        "_touched",
        "_tracker",
        "_update",
        "_wake",
        "children",
        "domain",
        "edges",
        "name",
        "number",
        "outer_domain",
        "path",
        "peers",
        "refinement",
        "returning",
        "shared",
    )

    def __init__(
        self,
        name: str,
        path: str,
        outer: Any,
        inner: Any,
        *,
        peers: int = 1,
        wake: Callable[[], None] | None = None,
        exchange: ProgressExchange[tuple[int, int, Any]] | None = None,
        number: int = 0,
    ) -> None:
        self.name = name
        self.path = path
        self.shared = peers > 1
        self.peers = peers
        self.number = number
        self.domain: TimeDomain[TI] = time_domain(inner)
        self.outer_domain: TimeDomain[TO] = time_domain(outer)
        self.refinement: Refinement[TO, TI] = refinement(outer, inner)
        self.children: list[Child] = []
        self.edges: list[Edge] = []
        self._wake = wake
        self._exchange = exchange
        self._inputs = 0
        self._outputs = 0
        self._frozen = False
        self._queued = False
        self._active = bytearray()
        self._busy: set[int] = set()
        self._entered: list[tuple[int, TI, int]] = []
        self._consumed: list[ChangeBatch[TO]] = []
        self._produced: list[ChangeBatch[TO]] = []
        self._pending_time: list[Any] = []
        self._pending_count: list[int] = []
        self._touched: list[int] = []

    # -- building -------------------------------------------------------------------------------------------------

    @property
    def inputs(self) -> int:
        """How many streams enter."""
        return self._inputs

    @property
    def outputs(self) -> int:
        """How many streams leave."""
        return self._outputs

    @property
    def observes(self) -> tuple[int, ...]:
        """The inputs whose frontier somebody inside wants to hear of."""
        return self._observes

    def new_input(self) -> int:
        """Add an input and return its port; inside, it is the output ``Source(INGRESS, port)``."""
        self._check_open()
        self._inputs += 1
        return self._inputs - 1

    def new_output(self) -> int:
        """Add an output and return its port; inside, it is the input ``Target(EGRESS, port)``."""
        self._check_open()
        self._outputs += 1
        return self._outputs - 1

    def add_child(self, name: str, scope: Scope[TI]) -> int:
        """Add ``scope`` and return its index. What it says of its progress is checked, unless it is our own.

        Its ports are counted when the graph is built, so that a child may still grow until then.
        """
        self._check_open()
        index = len(self.children)
        ours = isinstance(scope, Subgraph | Attachable | Checked)
        self.children.append(Child(index, name, scope if ours else Checked(scope, name, f"{self.path}/{name}")))
        self._active.append(0)
        return index

    def add_edge(self, source: Source, target: Target, *, local: bool) -> None:
        """Connect an output to an input; ``local`` where no message on the edge ever goes to another worker."""
        self._check_open()
        self.edges.append(Edge(source, target, local))

    def _check_open(self) -> None:
        if self._frozen:
            raise ScopeError(f"scope {self.path!r} is built already: add operators inside its with-block")

    # -- set-up: the exchange of summaries --------------------------------------------------------------------------

    def get_internal_summary(self) -> tuple[Summaries[TO], Counts[TO]]:
        """Freeze and compile the graph; return how its inputs lead to its outputs, and its initial capabilities."""
        self._check_open()
        self._frozen = True
        parts = [child.scope.get_internal_summary() for child in self.children]
        for child, (summaries, counts) in zip(self.children, parts, strict=True):
            check_internal_summary(f"{self.path}/{child.name}", child.scope, summaries, counts)
        self._tracker = self._compile([summaries for summaries, _ in parts], inward=True)
        self._exits = self._find_exits() if self._outputs > 0 and self.peers == 1 else None
        tell_frontiers = self._outputs > 0 and self._exits is None
        self._outward = self._compile([summaries for summaries, _ in parts], inward=False) if tell_frontiers else None
        self._update = self._choose_update()
        self._number_locations()
        for child, (_, counts) in zip(self.children, parts, strict=True):
            self._count_initial(child, counts)
        self._internal = self._summarize()
        return self._internal, self._initial_outputs()

    def _choose_update(self) -> Callable[[int, TI, int], None]:
        """Return what applies a change that this worker's children made, with no more steps than this scope needs."""
        if self._exchange is not None:
            return self._update_all
        return self._apply if self._outputs else self._tracker.update_at

    def _compile(self, summaries: Sequence[Summaries[TI]], *, inward: bool) -> Tracker[TI]:
        """Build the tracker that children are told from (``inward``), or the one that the parent is told from."""
        builder: GraphBuilder[TI] = GraphBuilder(self.domain.spec)
        for child, summary in zip(self.children, summaries, strict=True):
            scope = child.scope
            observes = observed_inputs(scope) if inward else ()
            builder.add_node(child.index, scope.inputs, scope.outputs, summary, observes=observes, name=child.name)
        if inward:
            builder.add_node(INGRESS, 0, self._inputs, (), name=f"{self.name} (inputs)")
        observed = () if inward else tuple(range(self._outputs))
        builder.add_node(EGRESS, self._outputs, 0, [()] * self._outputs, observes=observed, name=f"{self.name} (outputs)")
        for edge in self.edges:
            if inward or edge.source.node != INGRESS:
                builder.add_edge(edge.source, edge.target, local=self._is_local(edge))
        return builder.build()

    def _is_local(self, edge: Edge) -> bool:
        """Whether counts on ``edge`` can never be negative, not even between two statements that arrive one by one."""
        if self.peers == 1:
            return True
        ends = (edge.source.node, edge.target.node)
        return edge.local and not any(node >= 0 and self.children[node].shared for node in ends)

    def _number_locations(self) -> None:
        """Give every location its dense number, and every child its scratch lists and the numbers it needs."""
        fanout: dict[Source, list[int]] = {}
        for edge in self.edges:
            target = edge.target
            number = ~target.port if target.node == EGRESS else self._tracker.index(target)
            fanout.setdefault(edge.source, []).append(number)
        for child in self.children:
            scope, c = child.scope, child.index
            sources = [self._tracker.index(Source(c, port)) for port in range(scope.outputs)]
            targets = [self._tracker.index(Target(c, port)) for port in range(scope.inputs)]
            child.number(sources, targets, [fanout.get(Source(c, port), []) for port in range(scope.outputs)])
        self._entry_fanout = [fanout.get(Source(INGRESS, port), []) for port in range(self._inputs)]
        self._entry_sources = [self._tracker.index(Source(INGRESS, port)) for port in range(self._inputs)]
        self._consumed = [ChangeBatch() for _ in range(self._inputs)]
        self._produced = [ChangeBatch() for _ in range(self._outputs)]
        self._projected: list[ChangeBatch[TO]] = [ChangeBatch() for _ in range(self._outputs)]
        size = self._tracker.size
        self._pending_time = [None] * size
        self._pending_count = [0] * size
        self._outward_index = self._map_outward()
        self._observers = {target: observer for observer, target in enumerate(self._tracker.observed)}
        self._runs: list[Callable[[], bool] | None] = [None] * len(self.children)
        self._recorders: dict[int, tuple[Recorder[TI], Recorder[TI]]] = {}  # of the children that somebody looks on at
        self._observes = self._observed_entries()

    def _attach(self, child: Child, hold: Recorder[TI], note: Recorder[TI]) -> None:
        """Have a child of our own count straight into this scope's account, and keep its frontiers for it."""
        scope: Any = child.scope
        frontiers = scope.attach(child.sources, child.targets, child.fanout, hold, note)
        self._runs[child.index] = self._runs[child.index] or scope.run  # what times its runs goes on doing so
        for port in scope.observes:
            self._tracker.watch(self._observers[Target(child.index, port)], frontiers[port], self._active, child.index)

    def _map_outward(self) -> list[int]:
        """Translate dense numbers of the inward tracker to those of the outward one; -1 where it has no such location."""
        outward = self._outward
        if outward is None:
            return []
        numbers = [-1] * self._tracker.size
        for child in self.children:
            for port, number in enumerate(child.sources):
                numbers[number] = outward.index(Source(child.index, port))
            for port, number in enumerate(child.targets):
                numbers[number] = outward.index(Target(child.index, port))
        return numbers

    def _find_exits(self) -> list[Exits[TI, TO]] | None:
        """Return, for each location, the outputs that it leads to, and what becomes of a time on each way there.

        None if there are many: where much that is inside leads to many outputs.
        """
        exits: list[list[tuple[int, Callable[[TI], TO | None]]]] = [[] for _ in range(self._tracker.size)]
        left = _WAYS_OUT * len(exits)
        known: dict[PathSummary[TI], Callable[[TI], TO | None]] = {}
        for port in range(self._outputs):
            for location, summaries in self._tracker.summaries_to(Target(EGRESS, port)).items():
                for summary in summaries:
                    if summary not in known:
                        known[summary] = self._way_out(summary)
                    exits[self._tracker.index(location)].append((port, known[summary]))
                    left -= 1
            if left < 0:
                return None
        return [tuple(ways) for ways in exits]

    def _way_out(self, summary: PathSummary[TI]) -> Callable[[TI], TO | None]:
        to_outer = self.refinement.to_outer
        if summary == self.domain.identity:
            return to_outer

        def leave(time: TI) -> TO | None:
            arrival = summary.results_in(time)
            return None if arrival is None else to_outer(arrival)

        return leave

    def _observed_entries(self) -> tuple[int, ...]:
        """Return the inputs from which some observed location can be reached."""
        return tuple(port for port in range(self._inputs) if self._tracker.matters(Source(INGRESS, port)))

    def _count_initial(self, child: Child, counts: Counts[TI]) -> None:
        """Count the initial capabilities of ``child``: once for each worker, unless its report speaks for all of them."""
        factor = 1 if child.shared else self.peers
        for number, elements in zip(child.sources, counts, strict=True):
            for time, count in elements:
                self._apply(number, time, factor * count)

    def _summarize(self) -> Summaries[TO]:
        """Return the internal summary: for each input and output, the minimal path summaries in outer terms.

        Paths are followed from the inputs or from the outputs, of which there are fewer.
        """
        table: list[dict[int, Antichain[PathSummary[TO]]]] = [{} for _ in range(self._inputs)]
        if self._inputs < self._outputs:
            for i in range(self._inputs):
                for location, summaries in self._tracker.summaries_from(Source(INGRESS, i)).items():
                    if isinstance(location, Target) and location.node == EGRESS:
                        table[i][location.port] = self._seen_from_outside(summaries)
        else:
            for o in range(self._outputs):
                for location, summaries in self._tracker.summaries_to(Target(EGRESS, o)).items():
                    if isinstance(location, Source) and location.node == INGRESS:
                        table[location.port][o] = self._seen_from_outside(summaries)
        return [SummaryRow(self._outputs, row) for row in table]

    def _seen_from_outside(self, summaries: Iterable[PathSummary[TI]]) -> Antichain[PathSummary[TO]]:
        outer = [self.refinement.summarize(summary) for summary in summaries]
        return Antichain(summary for summary in outer if summary is not None)

    def _initial_outputs(self) -> list[list[tuple[TO, int]]]:
        """Derive the initial work inside as projected to the outputs."""
        self._project()
        return [changes.drain() for changes in self._projected]

    def set_external_summary(self, summaries: Summaries[TO], external: Counts[TO]) -> None:
        """Take in how the world leads back from the outputs to the inputs, and what may come in at first.

        Raises ``CycleError`` for a cycle through the parent on which time does not strictly advance.
        """
        self._check_returns(summaries)
        self.returning = frozenset(o for o, row in enumerate(summaries) if connected(row))
        for port in self._observes:
            for time, count in external[port]:
                self._tracker.update_at(self._entry_sources[port], self.refinement.to_inner(time), count)
        self._tracker.propagate_observed()
        around: Surroundings[TO, TI] | None = None
        for child in self.children:
            frontiers: list[list[tuple[TI, int]]] = [[] for _ in range(child.scope.inputs)]
            for port in observed_inputs(child.scope):
                frontiers[port] = [(time, 1) for time in self._tracker.frontier(Target(child.index, port))]
            if isinstance(child.scope, Attachable):
                child.scope.set_external_summary((), frontiers)  # an operator has no use for how the world leads back
                self._attach(child, self._update, self._note)
            else:
                around = around or self._look_around(summaries)
                world = around.of(child.index, child.scope.inputs, child.scope.outputs)
                child.scope.set_external_summary(world, frontiers)
            self.activate(child.index)
        self._tracker.forget()

    def _check_returns(self, summaries: Summaries[TO]) -> None:
        domain = self.outer_domain
        for output, row in enumerate(summaries):
            for back_to, returns in connected(row):
                for back in returns:
                    if isinstance(back, Excursion):
                        continue  # a way round the scope further out, which has checked the cycles through it itself
                    for through in self._internal[back_to][output]:
                        cycle = back.followed_by(through)
                        if cycle is not None and not strictly_advances(cycle, domain):
                            raise CycleError(
                                f"scope {self.path!r}: the path from its output {output} through the scope around it to its"
                                f" input {back_to} and back does not advance time ({cycle!r}); put a feedback with an"
                                " advancing summary on it",
                                (self.name,),
                            )

    def _look_around(self, world: Summaries[TO]) -> Surroundings[TO, TI]:
        edges = [(edge.source, edge.target) for edge in self.edges]
        return Surroundings(self._tracker, self.refinement, world, len(self.children), edges)

    # -- run time -----------------------------------------------------------------------------------------------------

    def activate(self, child: int) -> None:
        """Have ``child`` run in this pass if it is still to come, and in the next one otherwise."""
        self._active[child] = 1
        if not self._queued:
            self._queued = True
            if self._wake is not None:
                self._wake()

    def run_now(self, child: int) -> None:
        """Run an attached ``child`` in the middle of the pass, if it has something to do; it must not be running.

        Nothing is derived from what it counts before the pass is over, as with all that run in it.
        """
        run = self._runs[child]
        if run is not None and self._active[child]:
            self._active[child] = 0
            if run():
                self.activate(child)

    def touch(self) -> None:
        """Have this scope look at what was counted, though no child needs to run for it."""
        if not self._queued:
            self._queued = True
            if self._wake is not None:
                self._wake()

    def enter(self, port: int, time: TI, records: int) -> None:
        """Note that a message with this many records has come in at input ``port`` and gone on to all that stands there."""
        self._entered.append((port, time, records))
        self.touch()

    def push_external_progress(self, external: Sequence[ChangeBatch[TO]]) -> None:
        """Take in how the frontiers at the inputs have moved."""
        to_inner = self.refinement.to_inner
        for number, changes in zip(self._entry_sources, external, strict=True):
            if changes._counts:
                for time, diff in changes.drain():
                    self._tracker.update_at(number, to_inner(time), diff)

    def pull_internal_progress(
        self,
        internal: Sequence[ChangeBatch[TO]],
        consumed: Sequence[ChangeBatch[TO]],
        produced: Sequence[ChangeBatch[TO]],
    ) -> bool:
        """Run every child that has something to do, once, and report what that changed at the boundary.

        The steps: account for what came in; tell the children what has changed; run them in order; settle what they said;
        tell them again; report upward. Work that this leaves for a child keeps the scope awake.
        """
        self._queued = True
        tracker = self._tracker
        if self._entered:
            self._account_entered()
        if 1 in tracker.dirty:
            self._tell_children()
        active, runs = self._active, self._runs
        child = active.find(1)
        while child >= 0:
            active[child] = 0
            run = runs[child]
            if run is None:
                self._pull(self.children[child])
            elif run():
                self.activate(child)
            child = active.find(1, child + 1)
        if self._touched:
            self._settle()
        if 1 in tracker.dirty:
            self._tell_children()
        if self._inputs or self._outputs:
            self._report(internal, consumed, produced)
        if 1 in active:
            if self._wake is not None:
                self._wake()
            return True
        self._queued = False
        return bool(self._busy) or not tracker.is_empty()

    def _pull(self, child: Child) -> None:
        """Pull a child that is not attached, once, and take in the whole of what it says.

        What it reads and sends is noted until the pass is over, since most of what a pass produces it consumes too; what it
        holds is applied as it is. No frontier is derived before all of it is.
        """
        if child.scope.pull_internal_progress(child.internal, child.consumed, child.produced):
            self._busy.add(child.index)
            if not child.patient:
                self.activate(child.index)
        elif self._busy:
            self._busy.discard(child.index)
        if child.shared:
            self._take_shared(child)
            return
        for changes, number in child.held:
            if changes._counts:
                for time, diff in changes._counts.items():
                    self._update(number, time, diff)
                changes._counts.clear()
        for changes, number in child.read:
            if changes._counts:
                for time, diff in changes._counts.items():
                    self._note(number, time, -diff)
                changes._counts.clear()
        for changes, numbers in child.sent:
            if changes._counts:
                for time, diff in changes._counts.items():
                    for number in numbers:
                        self._note(number, time, diff)
                changes._counts.clear()

    def _note(self, number: int, time: TI, diff: int) -> None:
        """Note a change at one location until the pass is over, or until there is one at another time."""
        if number < 0:
            self._leave(number, time, diff)
            return
        count = self._pending_count[number]
        if count == 0:
            self._touched.append(number)
            self._pending_time[number] = time
            self._pending_count[number] = diff
        elif self._pending_time[number] == time:
            self._pending_count[number] = count + diff
        else:
            self._update(number, self._pending_time[number], count)
            self._pending_time[number] = time
            self._pending_count[number] = diff

    def _settle(self) -> None:
        """Apply what the pass has left of the changes noted in it."""
        pending = self._pending_count
        for number in self._touched:
            count = pending[number]
            if count:
                pending[number] = 0
                self._update(number, self._pending_time[number], count)
        self._touched.clear()

    def _update_all(self, number: int, time: TI, diff: int) -> None:
        """Apply a change that this worker's children made: to our own view now, and to the peers' with the next batch."""
        if self._exchange is not None:
            self._exchange.update((self.number, number, time), diff)
        self._apply(number, time, diff)

    def _apply(self, number: int, time: TI, diff: int) -> None:
        """Apply a change that the peers hear of in another way, or that came from them: to our own view only."""
        self._tracker.update_at(number, time, diff)
        if self._exits is not None:
            for port, way_out in self._exits[number]:
                outer = way_out(time)
                if outer is not None:
                    counts = self._projected[port]._counts
                    count = counts.get(outer, 0) + diff
                    if count:
                        counts[outer] = count
                    else:
                        counts.pop(outer, None)
        elif self._outward is not None:
            self._outward.update_at(self._outward_index[number], time, diff)

    def _leave(self, number: int, time: TI, diff: int) -> None:
        """Note messages sent out of the scope: produced at an output, in the parent's terms."""
        if self._exchange is not None:
            self._exchange.update((self.number, number, time), diff)
        self._produced[~number].update(self.refinement.to_outer(time), diff)

    def _account_entered(self) -> None:
        """Turn messages that came in into consumption at our inputs and messages on their way inside."""
        for port, time, records in self._entered:
            if self._exchange is not None:
                self._exchange.update((self.number, -1 - self._outputs - port, time), records)
            self._consumed[port].update(self.refinement.to_outer(time), records)
            for number in self._entry_fanout[port]:
                self._note(number, time, records)
        self._entered.clear()

    def _take_shared(self, child: Child) -> None:
        """Apply what a child says that speaks for all workers: our view only, for the peers hear it from their own."""
        for changes, number in child.held:
            for time, diff in changes.drain():
                self._apply(number, time, diff)
        for changes, number in child.read:
            for time, diff in changes.drain():
                self._apply(number, time, -diff)
        for changes, numbers in child.sent:
            for time, diff in changes.drain():
                for number in numbers:
                    if number < 0:
                        self._produced[~number].update(self.refinement.to_outer(time), diff)
                    else:
                        self._apply(number, time, diff)

    def receive(self, number: int, time: TI, diff: int) -> None:
        """Apply one change out of a peer's batch; the caller applies the whole batch before anything else happens."""
        if number >= 0:
            self._apply(number, time, diff)
        elif ~number < self._outputs:
            self._produced[~number].update(self.refinement.to_outer(time), diff)
        else:
            self._consumed[~number - self._outputs].update(self.refinement.to_outer(time), diff)
        self.touch()

    def outstanding(self) -> list[str]:
        """Return, in words, every capability and message that is counted here, nested scopes included."""
        found = []
        for (location, time), count in self._tracker.counts().items():
            node = location.node
            if isinstance(node, int) and node >= 0 and count > 0 and not self.children[node].nested:
                path = f"{self.path}/{self.children[node].name}#{node}"
                what = "a capability of" if isinstance(location, Source) else "a message for"
                found.append(f"{what} {path} at {time!r}")
        for child in self.children:
            if isinstance(child.scope, Subgraph):
                found += child.scope.outstanding()
        return found

    def unrest(self, reached: Callable[[TI], bool]) -> Iterator[tuple[str, bool]]:
        """Yield what is not at rest here and in nested scopes: each message on its way, and each capability for a time that has
        not ``reached`` where it is to be; in words, and whether whoever has it is about to run here.
        """
        for location, time in self._tracker.counts():
            node = location.node
            if not isinstance(node, int) or node < 0:
                continue
            child = self.children[node]
            path = f"{self.path}/{child.name}#{node}"
            if isinstance(location, Target):
                yield f"a message for {path} at {time!r}", bool(self._active[node])
            elif not child.nested and not reached(time):
                yield f"a capability of {path} at {time!r}", bool(self._active[node])
        for child in self.children:
            if isinstance(child.scope, Subgraph):
                to_outer = child.scope.refinement.to_outer
                yield from child.scope.unrest(lambda time, to_outer=to_outer: reached(to_outer(time)))  # type: ignore[misc]

    def under_way(self) -> int:
        """Return how many records of messages for its own children are counted here, on all workers."""
        counts = self._tracker.counts()
        return sum(
            count
            for (location, _), count in counts.items()
            if count > 0 and isinstance(location, Target) and isinstance(location.node, int) and location.node >= 0
        )

    def times(self) -> set[TI]:
        """Return the times of all capabilities and messages that are counted here, on all workers; nested scopes are not looked
        into, and what may still come in from outside is left out.
        """
        counts = self._tracker.counts()
        return {time for (location, time), count in counts.items() if count > 0 and location.node != INGRESS}

    # -- for those who look on: they change nothing --------------------------------------------------------------------

    def intercept(self, around: Callable[[int, Recorder[TI], Recorder[TI]], Iterable[Recorder[TI]]]) -> None:
        """Have all that the attached children count go by way of ``around(child, hold, note)``, which gives two like these.

        Several may look on: what the next one is given goes by way of this one.
        """
        for child in self.children:
            if isinstance(child.scope, Attachable):
                hold, note = around(child.index, *self._recorders.get(child.index, (self._update, self._note)))
                self._recorders[child.index] = hold, note
                self._attach(child, hold, note)

    def time_runs(self, around: Callable[[int, Callable[[], bool]], Callable[[], bool]]) -> None:
        """Have each attached child run by way of ``around(child, run)``, which gives one like it."""
        for number, run in enumerate(self._runs):
            if run is not None:
                self._runs[number] = around(number, run)

    @property
    def is_built(self) -> bool:
        """Whether the graph is compiled, so that nothing is added any more, and what is counted can be seen."""
        return self._frozen

    @property
    def trackers(self) -> Sequence[Tracker[TI]]:
        """The tracker that the children are told from, and the one that the parent is told from where that is another."""
        return (self._tracker,) if self._outward is None else (self._tracker, self._outward)

    @property
    def internal_summary(self) -> Summaries[TO]:
        """How the inputs lead to the outputs, once the graph is compiled."""
        return self._internal

    @property
    def unreported(self) -> tuple[Sequence[ChangeBatch[TO]], Sequence[ChangeBatch[TO]]]:
        """What was consumed at each input and produced at each output since the parent last pulled."""
        return self._consumed, self._produced

    # -- reporting -----------------------------------------------------------------------------------------------------

    def _tell_children(self) -> None:
        """Derive the frontiers anew and tell the children whose inputs they concern, but for those attached, who see it."""
        changes = self._tracker.propagate_observed()
        if not changes:
            return
        observed = self._tracker.observed
        told: dict[int, Child] = {}
        for observer, time, diff in changes:
            target = observed[observer]
            child = told[target.node] = self.children[target.node]
            child.external[target.port]._counts[time] = diff  # consolidated already, and the batch was drained
        for child in told.values():
            child.scope.push_external_progress(child.external)
            self._active[child.index] = 1

    def _report(
        self,
        internal: Sequence[ChangeBatch[TO]],
        consumed: Sequence[ChangeBatch[TO]],
        produced: Sequence[ChangeBatch[TO]],
    ) -> None:
        for mine, theirs in zip(self._consumed, consumed):
            if mine._counts:
                mine.drain_into(theirs)
        for mine, theirs in zip(self._produced, produced):
            if mine._counts:
                mine.drain_into(theirs)
        if self._outward is not None:
            self._project()
        for projected, changes in zip(self._projected, internal):
            if projected._counts:
                projected.drain_into(changes)

    def _project(self) -> None:
        """Work out how the work inside, projected to the outputs, has changed."""
        outward = self._outward
        if outward is not None and 1 in outward.dirty:
            to_outer = self.refinement.to_outer
            for observer, time, diff in outward.propagate_observed():
                self._projected[outward.observed[observer].port].update(to_outer(time), diff)
