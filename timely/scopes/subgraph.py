"""``Subgraph``: connected scopes at run time, one scope to their parent. ``SubgraphBuilder`` sets it up.

The tracker counts every pointstamp among the children. The invariants: what one child reports in one pull is applied as a whole
before any frontier is derived; what this worker's children report reaches the peers through one ordered stream (``exchange``);
and the parent gets only work *inside*, so that a loop through the parent does not keep itself alive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

from timely.errors import TimestampError, brief
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
    refinement,
    time_domain,
)
from timely.scopes.count_sinks import Broadcast, DeferredCounts, FrontierProjection, Projection, Recorder, TracedSink
from timely.scopes.scope import (
    FIRST_INSIDE,
    INGRESS,
    Edge,
    Scope,
    Summaries,
    input_number,
    is_patient,
    is_shared,
    observed_inputs,
    output_port,
)
from timely.scopes.trusted import Runnable, TracedRun, TrustedScope

TO = TypeVar("TO", bound=PartialOrder)
TI = TypeVar("TI", bound=PartialOrder)

Pointstamp: TypeAlias = tuple[int, int, Any]
"""``(scope, location, time)``: what workers exchange counts of."""


class Child:
    """A child of a subgraph: the scope, the numbers of its ports, and the lists of a pull unless it is attached."""

    def __init__(self, index: int, name: str, scope: AnyScope) -> None:
        self.index = index
        self.name = name
        self.scope = scope
        self.nested = scope if isinstance(scope, Subgraph) else None
        self.patient = self.nested is not None or is_patient(scope)
        self.shared = is_shared(scope)
        self.sources: Sequence[int] = ()
        self.targets: Sequence[int] = ()
        self.fanout: Sequence[list[int]] = ()

    def number(self, sources: Sequence[int], targets: Sequence[int], fanout: Sequence[list[int]]) -> None:
        """Set the numbers of its outputs and inputs, and of the locations that each output leads to."""
        self.sources = sources
        self.targets = targets
        self.fanout = fanout
        if isinstance(self.scope, TrustedScope):
            return
        self.external: Sequence[ChangeBatch[Any]] = [ChangeBatch() for _ in targets]
        self.internal: Sequence[ChangeBatch[Any]] = [ChangeBatch() for _ in sources]
        self.consumed: Sequence[ChangeBatch[Any]] = [ChangeBatch() for _ in targets]
        self.produced: Sequence[ChangeBatch[Any]] = [ChangeBatch() for _ in sources]
        self.held = list(zip(self.internal, sources, strict=True))
        self.read = list(zip(self.consumed, targets, strict=True))
        self.sent = list(zip(self.produced, fanout, strict=True))


class Subgraph(Generic[TO, TI]):
    """A running scope of scopes, with times ``TI`` inside that refine the times ``TO`` outside.

    It can be activated from the start, and runs once it is started. ``wake`` is called when it has something to do, ``exchange``
    carries progress to the peers, ``number`` is the scope's in its dataflow. Source: the 2014 posts on hierarchical scopes.
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
        self.name = name
        self.path = path
        self.shared = peers > 1
        self.peers = peers
        self.number = number
        self.dropped = False  # by its worker, before it was complete; explanations need to know
        self.domain: TimeDomain[TI] = time_domain(inner)
        self.refinement: Refinement[TO, TI] = refinement(outer, inner)
        fault = self.refinement.fault()
        if fault is not None:
            raise TimestampError(f"scope {path!r}: {self.domain.name} does not refine {time_domain(outer).name}: {fault}")
        self.inputs = 0
        self.outputs = 0
        self.children: list[Child] = []
        self.edges: list[Edge] = []
        self.is_built = False
        self.observes: tuple[int, ...] = ()
        self.internal_summary: Summaries[TO] = ()
        self._wake = wake
        self._exchange = exchange
        self._queued = False
        self._activations = ActivationQueue()
        self._busy: set[int] = set()
        self._arrivals: list[tuple[int, TI, int]] = []
        self._consumed: list[ChangeBatch[TO]] = []
        self._produced: list[ChangeBatch[TO]] = []
        self._runs: list[Runnable | None] = []
        self._traced: dict[int, tuple[CountSink[TI], CountSink[TI]]] = {}

    # -- set-up, for the builder ----------------------------------------------------------------------------------

    def add(self, name: str, scope: AnyScope) -> int:
        """Add a child that can be activated from now on; return its index."""
        index = self._activations.grow()
        self.children.append(Child(index, name, scope))
        self._runs.append(None)
        return index

    def start(
        self,
        tracker: Tracker[TI],
        projection: Projection[TO, TI] | None,
        entry_fanout: Sequence[list[int]],
        internal_summary: Summaries[TO],
    ) -> None:
        """Count in ``tracker``; ``entry_fanout`` are the locations that each input leads to."""
        self.is_built = True
        self.internal_summary = internal_summary
        self._tracker = tracker
        self._projection = projection
        self._entry_fanout = entry_fanout
        self._entries = [tracker.index(Source(INGRESS, port)) for port in range(self.inputs)]
        self.observes = tuple(port for port in range(self.inputs) if tracker.matters(Source(INGRESS, port)))
        self._observers = {target: observer for observer, target in enumerate(tracker.observed)}
        self._consumed = [ChangeBatch() for _ in range(self.inputs)]
        self._produced = [ChangeBatch() for _ in range(self.outputs)]
        self._reports = self._consumed + self._produced + ([] if projection is None else projection.changes)
        self._local: CountSink[TI] = tracker if projection is None else projection
        self._capabilities: CountSink[TI] = self._local
        if self._exchange is not None:
            self._capabilities = Broadcast(self.number, self._exchange.changes, self._local)
        self._messages = DeferredCounts(tracker.size, self._capabilities, self._leave)
        # a shared child speaks for all workers: its counts stay here, since the peers have them from their own
        self._shared_messages = DeferredCounts(tracker.size, self._local, self._produce)

    def push_initial(self, external: Sequence[Sequence[tuple[TO, int]]]) -> None:
        """Count what may come in at first, and derive the first frontiers."""
        for port in self.observes:
            for time, count in external[port]:
                self._tracker.update_at(self._entries[port], self.refinement.to_inner(time), count)
        self._tracker.propagate_observed()

    def attach(self, child: Child) -> None:
        """Attach a trusted child: it counts straight into the sinks, and its frontiers are kept up to date."""
        scope = child.scope
        assert isinstance(scope, TrustedScope)
        capabilities, messages = self._traced.get(child.index, (self._capabilities, self._messages))
        frontiers = scope.attach(child.sources, child.targets, child.fanout, capabilities, messages)
        self._runs[child.index] = self._runs[child.index] or scope  # a traced run stays
        for port in observed_inputs(scope):
            target = Target(child.index, port)
            frontiers[port][:] = self._tracker.frontier(target)
            self._tracker.watch(self._observers[target], frontiers[port], self._activations, child.index)

    # -- run time -----------------------------------------------------------------------------------------------------

    def activate(self, child: int) -> None:
        """Run ``child`` in this pass if its turn is still to come, and in the next one otherwise."""
        self._activations.add(child)
        if not self._queued:
            self.touch()

    def run_now(self, child: int) -> None:
        """Run an attached ``child`` in the middle of the pass, if it is activated; it must not be running."""
        run = self._runs[child]
        if run is not None and self._activations.waits[child]:
            self._activations.remove(child)
            if run.run():
                self.activate(child)

    def touch(self) -> None:
        """Make a pass soon, because counts changed though no child needs to run."""
        if not self._queued:
            self._queued = True
            if self._wake is not None:
                self._wake()

    def enter(self, port: int, time: TI, records: int) -> None:
        """Count a message that came in at input ``port`` and went on to all that it leads to."""
        self._arrivals.append((port, time, records))
        self.touch()

    def receive(self, number: int, time: TI, diff: int) -> None:
        """Apply one change of a peer's batch; the caller applies the whole batch before anything else."""
        if number >= FIRST_INSIDE:
            self._local.update_at(number, time, diff)
        elif output_port(number) < self.outputs:
            self._produce(number, time, diff)
        else:
            self._consumed[output_port(number) - self.outputs].update(self.refinement.to_outer(time), diff)
        if not self._queued:
            self.touch()

    def restore_message(self, child: int, port: int, time: TI, records: int) -> None:
        """Count a message of a checkpoint, which waits at an input of ``child``; before anything runs."""
        self._capabilities.update_at(self.children[child].targets[port], time, records)
        self.activate(child)

    def push_external_progress(self, external: Sequence[ChangeBatch[TO]]) -> None:
        """Apply how the frontiers at the inputs moved."""
        to_inner = self.refinement.to_inner
        for number, changes in zip(self._entries, external, strict=True):
            if changes.counts:
                for time, diff in changes.drain():
                    self._tracker.update_at(number, to_inner(time), diff)

    def pull_internal_progress(
        self,
        internal: Sequence[ChangeBatch[TO]],
        consumed: Sequence[ChangeBatch[TO]],
        produced: Sequence[ChangeBatch[TO]],
    ) -> bool:
        """Run every activated child once, and report what changed at the boundary."""
        self._queued = True
        tracker = self._tracker
        if self._arrivals:
            self._count_arrivals()
        if tracker.dirty:
            self._push_frontiers()
        activations, runs = self._activations, self._runs
        while activations.ready:
            child = activations.take()
            run = runs[child]
            if run is None:
                self._pull(self.children[child])
            elif run.run():
                self.activate(child)
        if self._messages.touched:
            self._messages.settle()
        if tracker.dirty:
            self._push_frontiers()
        if self._reports:
            if self._projection is not None:
                self._projection.settle()
            for mine, theirs in zip(self._reports, (*consumed, *produced, *internal)):
                if mine.counts:
                    mine.drain_into(theirs)
        if activations.end_pass():
            if self._wake is not None:
                self._wake()
            return True
        self._queued = False
        return bool(self._busy) or not tracker.is_empty()

    def _count_arrivals(self) -> None:
        for port, time, records in self._arrivals:
            if self._exchange is not None:
                self._exchange.changes.update((self.number, input_number(self.outputs, port), time), records)
            self._consumed[port].update(self.refinement.to_outer(time), records)
            for number in self._entry_fanout[port]:
                self._messages.update_at(number, time, records)
        self._arrivals.clear()

    def _push_frontiers(self) -> None:
        """Derive the frontiers and push them to the children that are not attached; attached ones have them already."""
        changes = self._tracker.propagate_observed()
        if not changes:
            return
        observed = self._tracker.observed
        moved: dict[int, Child] = {}
        for observer, time, diff in changes:
            target = observed[observer]
            child = moved[target.node] = self.children[target.node]
            child.external[target.port].counts[time] = diff  # consolidated already, and the batch was drained
        for child in moved.values():
            scope: Any = child.scope
            scope.push_external_progress(child.external)
            self._activations.add(child.index)

    def _pull(self, child: Child) -> None:
        """Pull a child that is not attached, once, and apply its whole report."""
        nested = child.nested
        if nested is not None:
            busy = nested.pull_internal_progress(child.internal, child.consumed, child.produced)
        else:
            scope: Any = child.scope
            busy = scope.pull_internal_progress(child.internal, child.consumed, child.produced)
        if busy:
            self._busy.add(child.index)
            if not child.patient:
                self.activate(child.index)
        elif self._busy:
            self._busy.discard(child.index)
        capabilities, messages = self._capabilities, self._messages
        if child.shared:
            capabilities, messages = self._local, self._shared_messages
        for changes, number in child.held:
            if changes.counts:
                for time, diff in changes.drain():
                    capabilities.update_at(number, time, diff)
        for changes, number in child.read:
            if changes.counts:
                for time, diff in changes.drain():
                    messages.update_at(number, time, -diff)
        for changes, numbers in child.sent:
            if changes.counts:
                for time, diff in changes.drain():
                    for number in numbers:
                        messages.update_at(number, time, diff)
        if child.shared:
            messages.settle()

    def _leave(self, number: int, time: TI, diff: int) -> None:
        """Count messages that this worker sent out of the scope."""
        if self._exchange is not None:
            self._exchange.changes.update((self.number, number, time), diff)
        self._produce(number, time, diff)

    def _produce(self, number: int, time: TI, diff: int) -> None:
        self._produced[output_port(number)].update(self.refinement.to_outer(time), diff)

    # -- for tracers and explanations: they change nothing -------------------------------------------------------------

    def intercept(self, around: Callable[[int, Recorder[TI], Recorder[TI]], Iterable[Recorder[TI]]]) -> None:
        """Pass all counts of attached children through ``around(child, capabilities, messages)``, which returns two sinks.

        With several tracers, the sinks of one are given to the next.
        """
        for child in self.children:
            if isinstance(child.scope, TrustedScope):
                sinks = self._traced.get(child.index, (self._capabilities, self._messages))
                capabilities, messages = around(child.index, sinks[0].update_at, sinks[1].update_at)
                self._traced[child.index] = TracedSink(capabilities), TracedSink(messages)
                self.attach(child)

    def time_runs(self, around: Callable[[int, Callable[[], bool]], Callable[[], bool]]) -> None:
        """Run each attached child through ``around(child, run)``."""
        for number, run in enumerate(self._runs):
            if run is not None:
                self._runs[number] = TracedRun(around(number, run.run))

    @property
    def trackers(self) -> Sequence[Tracker[TI]]:
        """The tracker that the children's frontiers come from, and that of the outputs where it is another."""
        projection = self._projection
        return (self._tracker, projection.outward) if isinstance(projection, FrontierProjection) else (self._tracker,)

    @property
    def unreported(self) -> tuple[Sequence[ChangeBatch[TO]], Sequence[ChangeBatch[TO]]]:
        """What was consumed at each input and produced at each output since the last pull."""
        return self._consumed, self._produced

    def _counts_of_children(self) -> Iterator[tuple[Child, Source | Target, TI, int]]:
        for (location, time), count in self._tracker.counts().items():
            if isinstance(location.node, int) and location.node >= 0:
                yield self.children[location.node], location, time, count

    def _path_of(self, child: Child) -> str:
        return f"{self.path}/{child.name}#{child.index}"

    def outstanding(self) -> list[str]:
        """Return, in words, every capability and message that is counted here, nested scopes included."""
        lines = []
        for child, location, time, count in self._counts_of_children():
            if count > 0 and child.nested is None:
                what = "a capability of" if isinstance(location, Source) else "a message for"
                lines.append(f"{what} {self._path_of(child)} at {brief(time)}")
        for child in self.children:
            if child.nested is not None:
                lines += child.nested.outstanding()
        return lines

    def unfinished(self) -> list[int]:
        """Return the children, nested scopes aside, that reported unfinished work in their last pull."""
        return [index for index in sorted(self._busy) if self.children[index].nested is None]

    def pending(self, reached: Callable[[TI], bool]) -> Iterator[tuple[str, bool]]:
        """Yield each message on its way, and each capability for a time that ``reached`` denies, nested scopes included.

        Each in words, with whether its child is activated here.
        """
        for child, location, time, _ in self._counts_of_children():
            waits = self._activations.waits[child.index]
            if isinstance(location, Target):
                yield f"a message for {self._path_of(child)} at {brief(time)}", waits
            elif child.nested is None and not reached(time):
                yield f"a capability of {self._path_of(child)} at {brief(time)}", waits
        for child in self.children:
            if child.nested is not None:
                to_outer = child.nested.refinement.to_outer
                yield from child.nested.pending(lambda time, to_outer=to_outer: reached(to_outer(time)))  # type: ignore[misc]

    def held(self) -> Iterator[tuple[Child, TI]]:
        """Yield each child with the times of its capabilities that are counted here, on all workers; nested scopes excluded."""
        for child, location, time, count in self._counts_of_children():
            if count > 0 and child.nested is None and isinstance(location, Source):
                yield child, time

    def under_way(self) -> int:
        """Return how many records of messages to the children are counted here, on all workers."""
        counts = self._counts_of_children()
        return sum(count for _, location, _, count in counts if count > 0 and isinstance(location, Target))

    def times(self) -> set[TI]:
        """Return the times of all capabilities and messages counted here, on all workers, nested scopes excluded."""
        counts = self._tracker.counts()
        return {time for (location, time), count in counts.items() if count > 0 and location.node != INGRESS}


AnyScope: TypeAlias = Scope[Any] | TrustedScope[Any] | Subgraph[Any, Any]
"""What can be a child of a subgraph."""
