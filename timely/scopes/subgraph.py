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
from typing import Any, Generic, TypeVar

from timely.errors import GraphError, TimestampError, brief
from timely.order import PartialOrder
from timely.progress import (
    ActivationQueue,
    ChangeBatch,
    CountSink,
    ProgressExchange,
    Refinement,
    Source,
    Target,
    TimeDomain,
    Tracker,
    connected,
    refinement,
    time_domain,
)
from timely.scopes.child import Child, Edge
from timely.scopes.compiler import ScopePlan
from timely.scopes.count_sinks import (
    Broadcast,
    CountProjection,
    DeferredCounts,
    FrontierProjection,
    Projection,
    Recorder,
    TracedSink,
)
from timely.scopes.external_summary import INGRESS, ExternalSummaries
from timely.scopes.scope import Counts, Scope, Summaries, check_internal_summary, observed_inputs
from timely.scopes.trusted import Runnable, TracedRun, TrustedScope
from timely.scopes.validating import ValidatingScope

TO = TypeVar("TO", bound=PartialOrder)
TI = TypeVar("TI", bound=PartialOrder)


class Subgraph(Generic[TO, TI]):
    """A scope of connected scopes, with times ``TI`` inside that refine the times ``TO`` outside.

    ``wake`` is called when there is something for the subgraph to do: a parent's ``activate`` for its index, or the
    worker's. Source: the 2014 posts on hierarchical scopes; the projection to outputs is theirs, the compiled trackers ours.
    """

    __slots__ = (
        "_agenda",
        "_blueprint",
        "_busy",
        "_consumed",
        "_entered",
        "_entry_fanout",
        "_entry_sources",
        "_exchange",
        "_frozen",
        "_inputs",
        "_internal",
        "_notes",
        "_observers",
        "_observes",
        "_outputs",
        "_produced",
        "_projection",
        "_queued",
        "_recorders",
        "_runs",
        "_said",
        "_tracker",
        "_view",
        "_wake",
        "children",
        "domain",
        "dropped",
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
        self.dropped = False  # by its worker, before it was complete: for those who ask why nothing comes any more
        self.domain: TimeDomain[TI] = time_domain(inner)
        self.outer_domain: TimeDomain[TO] = time_domain(outer)
        self.refinement: Refinement[TO, TI] = refinement(outer, inner)
        fault = self.refinement.fault()
        if fault is not None:
            raise TimestampError(f"scope {path!r}: {self.domain.name} does not refine {self.outer_domain.name}: {fault}")
        self.children: list[Child] = []
        self.edges: list[Edge] = []
        self._wake = wake
        self._exchange = exchange
        self._inputs = 0
        self._outputs = 0
        self._frozen = False
        self._queued = False
        self._agenda = ActivationQueue()
        self._busy: set[int] = set()
        self._entered: list[tuple[int, TI, int]] = []
        self._consumed: list[ChangeBatch[TO]] = []
        self._produced: list[ChangeBatch[TO]] = []
        self._runs: list[Runnable | None] = []
        self._recorders: dict[int, tuple[CountSink[TI], CountSink[TI]]] = {}  # of the children that somebody looks on at

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
        self._check_open(f"{name!r} cannot be added: ")
        index = self._agenda.grow()
        if isinstance(scope, Subgraph):
            self.children.append(Child(index, name, scope, scope))
        else:
            ours = isinstance(scope, TrustedScope | ValidatingScope)
            self.children.append(Child(index, name, scope if ours else ValidatingScope(scope, name, f"{self.path}/{name}")))
        self._runs.append(None)
        return index

    def add_edge(self, source: Source, target: Target, *, local: bool) -> None:
        """Connect an output to an input; ``local`` where no message on the edge ever goes to another worker."""
        self._check_open()
        self.edges.append(Edge(source, target, local))

    def _check_open(self, what: str = "") -> None:
        if self._frozen:
            raise GraphError(
                f"{what}scope {self.path!r} is built already: add operators inside its with-block; to use a stream of it in"
                " another dataflow, capture_into there and replay here"
            )

    # -- set-up: the exchange of summaries --------------------------------------------------------------------------

    def get_internal_summary(self) -> tuple[Summaries[TO], Counts[TO]]:
        """Freeze and compile the graph; return how its inputs lead to its outputs, and its initial capabilities."""
        self._check_open()
        self._frozen = True
        parts = [child.scope.get_internal_summary() for child in self.children]
        for child, (summaries, counts) in zip(self.children, parts, strict=True):
            check_internal_summary(f"{self.path}/{child.name}", child.scope, summaries, counts)
        blueprint: ScopePlan[TO, TI] = ScopePlan(
            self.name, self.path, self.children, self.edges, self._inputs, self._outputs, self.refinement, self.peers
        )
        self._open_accounts(blueprint, [summaries for summaries, _ in parts])
        tracker = self._tracker
        self._entry_sources = [tracker.index(Source(INGRESS, port)) for port in range(self._inputs)]
        self._consumed = [ChangeBatch() for _ in range(self._inputs)]
        self._produced = [ChangeBatch() for _ in range(self._outputs)]
        self._observers = {target: observer for observer, target in enumerate(tracker.observed)}
        self._observes = tuple(port for port in range(self._inputs) if tracker.matters(Source(INGRESS, port)))
        for child, (_, counts) in zip(self.children, parts, strict=True):
            self._count_initial(child, counts)
        self._internal = blueprint.summarize(tracker)
        self._blueprint = blueprint
        return self._internal, self._initial_outputs()

    def _open_accounts(self, blueprint: ScopePlan[TO, TI], summaries: Sequence[Summaries[TI]]) -> None:
        """Compile the graph, and put before the tracker what this scope needs to count, and no more than that."""
        tracker = self._tracker = blueprint.compile(summaries, inward=True)
        self._entry_fanout = blueprint.number(tracker)
        self._projection: Projection[TO, TI] | None = None
        self._view: CountSink[TI] = tracker
        if self._outputs:
            self._view = self._projection = self._project(blueprint, summaries)
        self._said: CountSink[TI] = self._view
        if self._exchange is not None:
            self._said = Broadcast(self.number, self._exchange, self._view)
        self._notes = DeferredCounts(tracker.size, self._said, self._leave)

    def _project(self, blueprint: ScopePlan[TO, TI], summaries: Sequence[Summaries[TI]]) -> Projection[TO, TI]:
        """Return what works out, from the changes inside, what the parent is told."""
        exits = blueprint.exits(self._tracker) if self.peers == 1 else None
        if exits is not None:
            return CountProjection(self._tracker, self._outputs, exits)
        outward = blueprint.compile(summaries, inward=False)
        numbers = blueprint.translate(self._tracker, outward)
        return FrontierProjection(self._tracker, self._outputs, outward, numbers, self.refinement.to_outer)

    def _count_initial(self, child: Child, counts: Counts[TI]) -> None:
        """Count the initial capabilities of ``child``: once for each worker, unless its report speaks for all of them."""
        factor = 1 if child.shared else self.peers
        for number, elements in zip(child.sources, counts, strict=True):
            for time, count in elements:
                self._view.update_at(number, time, factor * count)

    def _initial_outputs(self) -> list[list[tuple[TO, int]]]:
        """Derive the initial work inside as projected to the outputs."""
        if self._projection is None:
            return []
        self._projection.settle()
        return [changes.drain() for changes in self._projection.changes]

    def set_external_summary(self, summaries: Summaries[TO], external: Counts[TO]) -> None:
        """Take in how the world leads back from the outputs to the inputs, and what may come in at first.

        Raises ``CycleError`` for a cycle through the parent on which time does not strictly advance.
        """
        blueprint = self._blueprint
        blueprint.check_returns(self._internal, summaries)
        self.returning = frozenset(o for o, row in enumerate(summaries) if connected(row))
        for port in self._observes:
            for time, count in external[port]:
                self._tracker.update_at(self._entry_sources[port], self.refinement.to_inner(time), count)
        self._tracker.propagate_observed()
        around: ExternalSummaries[TO, TI] | None = None
        for child in self.children:
            frontiers: list[list[tuple[TI, int]]] = [[] for _ in range(child.scope.inputs)]
            for port in observed_inputs(child.scope):
                frontiers[port] = [(time, 1) for time in self._tracker.frontier(Target(child.index, port))]
            if isinstance(child.scope, TrustedScope):
                child.scope.set_external_summary((), frontiers)  # an operator has no use for how the world leads back
                self._attach(child, child.scope, self._said, self._notes)
            else:
                around = around or blueprint.surroundings(self._tracker, summaries)
                world = around.of(child.index, child.scope.inputs, child.scope.outputs)
                child.scope.set_external_summary(world, frontiers)
            self.activate(child.index)
        self._tracker.forget()

    def _attach(self, child: Child, scope: TrustedScope[TI], hold: CountSink[TI], note: CountSink[TI]) -> None:
        """Have a child of our own count straight into these accounts, and keep its frontiers for it."""
        frontiers = scope.attach(child.sources, child.targets, child.fanout, hold, note)
        self._runs[child.index] = self._runs[child.index] or scope  # what times its runs goes on doing so
        for port in observed_inputs(child.scope):
            self._tracker.watch(self._observers[Target(child.index, port)], frontiers[port], self._agenda, child.index)

    # -- run time -----------------------------------------------------------------------------------------------------

    def activate(self, child: int) -> None:
        """Have ``child`` run in this pass if it is still to come, and in the next one otherwise."""
        self._agenda.add(child)
        if not self._queued:
            self._queued = True
            if self._wake is not None:
                self._wake()

    def run_now(self, child: int) -> None:
        """Run an attached ``child`` in the middle of the pass, if it has something to do; it must not be running.

        Nothing is derived from what it counts before the pass is over, as with all that run in it.
        """
        run = self._runs[child]
        if run is not None and self._agenda.waits[child]:
            self._agenda.remove(child)
            if run.run():
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
        if tracker.dirty:
            self._tell_children()
        agenda, runs = self._agenda, self._runs
        while agenda.ready:
            child = agenda.take()
            run = runs[child]
            if run is None:
                self._pull(self.children[child])
            elif run.run():
                self.activate(child)
        if self._notes.touched:
            self._notes.settle()
        if tracker.dirty:
            self._tell_children()
        if self._inputs or self._outputs:
            self._report(internal, consumed, produced)
        if agenda.end_pass():
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
        nested = child.nested
        if nested is not None:
            busy = nested.pull_internal_progress(child.internal, child.consumed, child.produced)
        else:
            busy = child.scope.pull_internal_progress(child.internal, child.consumed, child.produced)
        if busy:
            self._busy.add(child.index)
            if not child.patient:
                self.activate(child.index)
        elif self._busy:
            self._busy.discard(child.index)
        if child.shared:
            self._take_shared(child)
            return
        said, notes = self._said, self._notes
        for changes, number in child.held:
            if changes._counts:
                for time, diff in changes._counts.items():
                    said.update_at(number, time, diff)
                changes._counts.clear()
        for changes, number in child.read:
            if changes._counts:
                for time, diff in changes._counts.items():
                    notes.update_at(number, time, -diff)
                changes._counts.clear()
        for changes, numbers in child.sent:
            if changes._counts:
                for time, diff in changes._counts.items():
                    for number in numbers:
                        notes.update_at(number, time, diff)
                changes._counts.clear()

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
                self._notes.update_at(number, time, records)
        self._entered.clear()

    def _take_shared(self, child: Child) -> None:
        """Apply what a child says that speaks for all workers: our view only, for the peers hear it from their own."""
        for changes, number in child.held:
            for time, diff in changes.drain():
                self._view.update_at(number, time, diff)
        for changes, number in child.read:
            for time, diff in changes.drain():
                self._view.update_at(number, time, -diff)
        for changes, numbers in child.sent:
            for time, diff in changes.drain():
                for number in numbers:
                    if number < 0:
                        self._produced[~number].update(self.refinement.to_outer(time), diff)
                    else:
                        self._view.update_at(number, time, diff)

    def receive(self, number: int, time: TI, diff: int) -> None:
        """Apply one change out of a peer's batch; the caller applies the whole batch before anything else happens."""
        if number >= 0:
            self._view.update_at(number, time, diff)
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
            if isinstance(node, int) and node >= 0 and count > 0 and self.children[node].nested is None:
                path = f"{self.path}/{self.children[node].name}#{node}"
                what = "a capability of" if isinstance(location, Source) else "a message for"
                found.append(f"{what} {path} at {brief(time)}")
        for child in self.children:
            if child.nested is not None:
                found += child.nested.outstanding()
        return found

    def unfinished(self) -> list[int]:
        """Return which children, but for nested scopes, have said when they were last pulled that they have work left."""
        return [index for index in sorted(self._busy) if self.children[index].nested is None]

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
                yield f"a message for {path} at {brief(time)}", self._agenda.waits[node]
            elif child.nested is None and not reached(time):
                yield f"a capability of {path} at {brief(time)}", self._agenda.waits[node]
        for child in self.children:
            if child.nested is not None:
                to_outer = child.nested.refinement.to_outer
                yield from child.nested.unrest(lambda time, to_outer=to_outer: reached(to_outer(time)))  # type: ignore[misc]

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
            if isinstance(child.scope, TrustedScope):
                hold, note = self._recorders.get(child.index, (self._said, self._notes))
                holds, notes = around(child.index, hold.update_at, note.update_at)
                hold, note = self._recorders[child.index] = TracedSink(holds), TracedSink(notes)
                self._attach(child, child.scope, hold, note)

    def time_runs(self, around: Callable[[int, Callable[[], bool]], Callable[[], bool]]) -> None:
        """Have each attached child run by way of ``around(child, run)``, which gives one like it."""
        for number, run in enumerate(self._runs):
            if run is not None:
                self._runs[number] = TracedRun(around(number, run.run))

    @property
    def is_built(self) -> bool:
        """Whether the graph is compiled, so that nothing is added any more, and what is counted can be seen."""
        return self._frozen

    @property
    def trackers(self) -> Sequence[Tracker[TI]]:
        """The tracker that the children are told from, and the one that the parent is told from where that is another."""
        projection = self._projection
        return (self._tracker, projection.outward) if isinstance(projection, FrontierProjection) else (self._tracker,)

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
            self._agenda.add(child.index)

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
        projection = self._projection
        if projection is not None:
            projection.settle()
            for mine, theirs in zip(projection.changes, internal):
                if mine._counts:
                    mine.drain_into(theirs)
