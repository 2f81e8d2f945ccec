"""The checks of one simulated dataflow: the truth against queues, the network, and every worker's view and frontiers.

Frontiers are taken from counts by definition, never from the engine. Checking changes nothing. What a single worker shows to be
wrong comes first, as it is nearest to the cause; what only several workers show comes last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from timely.dataflow import InputPort
from timely.progress import ProgressBatch
from timely.testing.batch_checks import BatchChecks
from timely.testing.flat_dataflow import Counts, Frontiers, Place, add, below, first_before, first_difference, total
from timely.testing.global_state import Fault, GlobalState
from timely.testing.graph_checks import Found, ScopeChecks, check_cycles
from timely.testing.provenance import BatchProvenance
from timely.testing.transport import Network
from timely.testing.worker_state import SimulatedWorkerState
from timely.worker.messages import DataMessage, ProgressMessage


class CheckedWorker(Protocol):
    """What the checks need of a worker."""

    index: int

    @property
    def idle(self) -> bool:
        """Whether none of its dataflows has anything to do."""

    def alive(self) -> frozenset[int]:
        """Return the numbers of the dataflows that are not complete."""

    def early(self, sender: int) -> list[Any]:
        """Return the messages of a peer for dataflows that are not built yet."""


Workers = Mapping[int, CheckedWorker]


class DataflowChecker:
    """One dataflow: its true state, and what was seen of it after the last step. Each check yields what does not hold."""

    def __init__(
        self, number: int, first: SimulatedWorkerState, network: Network, fault: Fault, provenance: BatchProvenance | None = None
    ) -> None:
        self.number = number
        self.truth = GlobalState(first, network.peers, fault)
        self.flat = first.flat
        self._network = network
        self._provenance = provenance
        self._first = first
        self._scopes = [ScopeChecks(subgraph, self.flat) for subgraph in first.scopes]
        self._batch_checks = BatchChecks(self.flat)
        self._shared = any(child.shared and child.nested is None for subgraph in first.scopes for child in subgraph.children)
        self._true: Frontiers = self.flat.frontiers(self.truth.counts)
        self._views: dict[int, Counts] = {worker: dict(self.truth.counts) for worker in range(network.peers)}
        self._contents: dict[int, tuple[Any, Counts]] = {}
        self._in_flight: dict[tuple[int, int], int] = {}
        self._left: set[int] = set()
        self._alive: set[int] = set()
        self._ended: set[int] = set()

    # -- once ----------------------------------------------------------------------------------------------------------

    def check_graph(self) -> Found:
        """G1, G2, G3, G5: check the graph, before anything has happened in it."""
        for subgraph, checks in zip(self._first.scopes, self._scopes, strict=True):
            yield from checks.check_time(subgraph.domain.minimum)
        yield from check_cycles(self.flat)
        for subgraph, checks in zip(self._first.scopes, self._scopes, strict=True):
            yield from checks.check_graph(subgraph.trackers)

    def check_end(self) -> Found:
        """Z5: check, after every program has ended well, that nothing is left."""
        if self.truth.counts:
            yield "Z5", f"there is still {self.flat.describe(self.truth.counts)}"

    def flushed(self, worker: int) -> None:
        """Note that a worker has flushed its progress, and whether it has left something out."""
        exchange = self.truth.states[worker].exchange
        if exchange is not None and exchange.changes:
            self._left.add(worker)
        else:
            self._left.discard(worker)

    # -- after a step --------------------------------------------------------------------------------------------------

    def check(self, stepped: int, workers: Workers) -> Found:
        """Check all that concerns the dataflow, after the step of a worker."""
        states = self.truth.states
        if stepped not in states or stepped in self._ended:
            return
        yield from self._check_activations()
        if self._shared:
            yield from self._check_trackers(states[stepped])
            return
        self._alive = {index for index in states if self.number in workers[index].alive()}
        yield from self._check_messages(workers)
        if stepped not in self._alive:
            yield from self._check_ended(stepped)
        yield from self._follow_truth()
        for index in self._alive:
            if index == stepped or index not in self.truth.concluded or index in self.truth.acted:
                yield from self._check_view(states[index])
                yield from self._check_trackers(states[index])
        self.truth.acted.clear()
        coming = {index: self._coming(index, workers) for index in workers if index not in self._ended}
        for index in coming:
            yield from self._check_conservation(index, coming[index])
            if index in self._alive:
                yield from self._check_beyond(index, coming[index])
                yield from self._check_safety(states[index])
        if stepped in self._alive:
            yield from self._check_batches(stepped, workers)
        for index in coming:
            yield from self._check_together(index, coming[index])
        yield from self._check_rest(stepped, workers)
        for source, target in self._network.sent:
            self._in_flight[source, target] = len(self._batches(source, target, workers))

    def _messages(self, source: int, target: int, workers: Workers) -> list[Any]:
        """Return all messages from one worker that another has not applied, oldest first."""
        return [*workers[target].early(source), *self._network.between(source, target)]

    def _batches(self, source: int, target: int, workers: Workers) -> list[Counts]:
        """Return the content of each batch of progress from one worker that another has not applied."""
        batches: Sequence[ProgressBatch[tuple[int, int, Any]]]
        if self._provenance is not None:
            early = lambda worker, peer: workers[worker].early(peer)  # noqa: E731
            batches = self._provenance.batches(self._network, self.number, source, target, early)
        else:
            messages = self._messages(source, target, workers)
            progress = [message for message in messages if isinstance(message, ProgressMessage)]
            batches = [message.batch for message in progress if message.dataflow == self.number]
        return [self._content(batch) for batch in batches]

    def _content(self, batch: ProgressBatch[tuple[int, int, Any]]) -> Counts:
        known = self._contents.get(id(batch))
        if known is None:
            known = self._contents[id(batch)] = batch, self._first.changes(batch.updates)
        return known[1]

    def _check_activations(self) -> Found:
        """OC5: no operator runs between steps."""
        for state in self.truth.states.values():
            for _, operator in state.operators:
                if operator.running:
                    yield "OC5", f"a step is over on worker {state.worker} in the middle of {operator.path}"

    def _check_messages(self, workers: Workers) -> Found:
        """I7, OC3: compare the messages in queues and on the network with what workers have concluded, and with the counts."""
        present: Counts = {}
        for index in self._alive:
            for place, port in self.truth.states[index].inputs:
                if port.queue:
                    yield from self._count_queue(place, port, present)
            for place, inlet in self.truth.states[index].inlets:
                waiting = [(time, records) for time, _, records in inlet.queue]
                for time, records in (*waiting, *inlet.read.items()):  # what was read counts until it is reported
                    add(present, (place, time), records)
        for source, target in self._network.sent:
            for message in self._messages(source, target, workers):
                if isinstance(message, DataMessage) and message.dataflow == self.number:
                    add(present, (self._first.channel(message.channel), message.time), len(message.batch))
        for worker, allowed in self.truth.concluded.items():
            for place, time in present:
                if not below(allowed[place], time):
                    yield "I7", f"worker {worker} has passed a message {self.flat.show((place, time))}, which is there"
        counted = {stamp: count for stamp, count in self.truth.counts.items() if not self.flat.is_output(stamp[0])}
        if counted != present:
            found = first_difference(counted, present)
            numbers = f"{counted.get(found, 0)} messages are counted, and there are {present.get(found, 0)}"
            yield "OC3", f"{numbers}, {self.flat.show(found)}"

    def _count_queue(self, place: Place, port: InputPort[Any, Any], present: Counts) -> Found:
        """Count the messages that wait at an input. Z4: its frontier has passed none of them."""
        for time, _, records in port.queue:
            add(present, (place, time), records)
            if port.observed and not below(port.elements, time):
                yield "Z4", f"a message at {time!r} waits at {port.label}, which was shown {port.elements}"

    # -- truth and views -----------------------------------------------------------------------------------------------

    def _check_ended(self, worker: int) -> Found:
        """X4 for a dataflow that is complete on a worker."""
        if self.truth.counts:
            yield "X4", f"the dataflow is complete on worker {worker}, and there is {self.flat.describe(self.truth.counts)}"
        self._ended.add(worker)
        self.truth.concluded[worker] = [[] for _ in self.flat.places]

    def _follow_truth(self) -> Found:
        """I1, G1, X5, X6: derive the true frontiers; compare them with those before, and with what workers concluded."""
        for (place, time), count in self.truth.counts.items():
            if count < 0:
                yield "I1", f"there are {count} {self.flat.show((place, time))}"
            yield from self._scopes[self.flat.places[place][0]].check_time(time)
        before, self._true = self._true, self.flat.frontiers(self.truth.counts)
        if before is self._true:
            return
        for worker, allowed in self.truth.concluded.items():
            back = first_before(allowed, self._true)
            if back is not None:
                yield "X5", f"worker {worker} had passed what may be {self.flat.show(back)} again"
        back = first_before(before, self._true)
        if back is not None:
            yield "X6", f"there may be something {self.flat.show(back)} again"

    def _check_view(self, state: SimulatedWorkerState) -> Found:
        """I4, I5: derive the frontiers of a worker's view, and compare them with those before."""
        view = self._views[state.worker] = state.view()
        allowed = self.flat.frontiers(stamp for stamp, count in view.items() if count > 0)
        for (place, time), count in view.items():
            if count < 0 and not below(allowed[place], time):
                yield "I4", f"worker {state.worker} counts {count} {self.flat.show((place, time))}"
        before = self.truth.concluded.get(state.worker, allowed)
        self.truth.concluded[state.worker] = allowed
        back = first_before(before, allowed)
        if back is not None:
            yield "I5", f"worker {state.worker} allows for something {self.flat.show(back)} again"

    def _coming(self, worker: int, workers: Workers) -> list[Counts]:
        """Return all that a worker has yet to receive: each batch in flight, and what its peers have not sent."""
        found = []
        for peer, state in self.truth.states.items():
            if peer != worker:
                found += [*self._batches(peer, worker, workers), state.unsent()]
        return found

    def _check_conservation(self, worker: int, coming: Sequence[Counts]) -> Found:
        """X3 (I2)."""
        found, truth = total([self._views[worker], *coming]), self.truth.counts
        if found != truth:
            first = first_difference(found, truth)
            sums = f"for worker {worker} they come to {found.get(first, 0)}, and the truth is {truth.get(first, 0)}"
            yield "X3", f"{sums}, {self.flat.show(first)}"

    def _check_beyond(self, worker: int, coming: Sequence[Counts]) -> Found:
        """X4, I6: compare a worker's view with the truth, and with what it has yet to receive."""
        allowed = self.truth.concluded[worker]
        passed = first_before(allowed, self._true)
        if passed is not None:
            yield "X4", f"worker {worker} has passed what may still be {self.flat.show(passed)}"
        for changes in coming:
            for place, time in changes:
                if not below(allowed[place], time):
                    yield "I6", f"worker {worker}, which has yet to receive {self.flat.show((place, time))}, has passed it"

    # -- batches -------------------------------------------------------------------------------------------------------

    def _check_batches(self, worker: int, workers: Workers) -> Found:
        """X1, X2, I3, OC1: check what each peer has yet to receive of a worker."""
        unsent, held = self.truth.states[worker].unsent(), self.truth.held_by(worker)
        for peer in workers.keys() - self._ended - {worker}:
            batches = self._batches(worker, peer, workers)
            for invariant, found in self._batch_checks.check_ends(unsent, batches, held):
                yield invariant, f"worker {worker} has yet to send worker {peer} {found}"
            sent = len(batches) - self._in_flight.get((worker, peer), 0)
            if sent > 1 or (sent > 0 and worker in self._left):
                parts = f"in {sent} batches" if sent > 1 else "in part"
                yield "OC1", f"worker {worker} sent worker {peer} {parts} what it did in one step"

    def _check_together(self, worker: int, coming: Sequence[Counts]) -> Found:
        """I3 for all peers of a worker together, where there are several."""
        peers = [peer for peer in self.truth.states if peer != worker]
        if len(peers) > 1:
            changes, held = total(coming), total([self.truth.held_by(peer) for peer in peers])
            for invariant, found in self._batch_checks.check_together(changes, held):
                yield invariant, f"the peers of worker {worker} together have yet to send it {found}"

    # -- frontiers -----------------------------------------------------------------------------------------------------

    def _check_safety(self, state: SimulatedWorkerState) -> Found:
        """Z1, Z2: compare every frontier that is shown with what may truly come, by a message (Z1) or a capability (Z2)."""
        for place, port in state.shown.items():
            for time in self._true[place]:
                if not below(port.elements, time):
                    found = f"worker {state.worker} shows {port.elements} at {port.label}, where {time!r} may still come"
                    for worker in self.truth.states:
                        if below(self.flat.frontiers(self.truth.held_by(worker))[place], time):
                            yield "Z2", f"{found}, by a capability of worker {worker}"
                    yield "Z1", found

    def _check_trackers(self, state: SimulatedWorkerState) -> Found:
        """G6 to G10: check the trackers of every scope, and compare the frontiers that are shown with them."""
        for subgraph, checks in zip(state.scopes, self._scopes, strict=True):
            for tracker in subgraph.trackers:
                if not tracker.dirty:
                    for invariant, found in checks.check_tracker(tracker):
                        yield invariant, f"on worker {state.worker} in {subgraph.path}, {found}"
        for place, port in state.shown.items():
            scope, target = self.flat.places[place]
            tracker = state.scopes[scope].trackers[0]
            if not tracker.dirty:
                frontier = tracker.frontier(target)
                if len(port.elements) != len(frontier) or set(port.elements) != set(frontier):
                    yield "G10", f"worker {state.worker} shows {port.elements} at {port.label}, and counts {frontier}"

    def _check_rest(self, stepped: int, workers: Workers) -> Found:
        """G11: an idle worker has nothing left to propagate; G9: at rest, what is shown is what the flat graph has."""
        states = self.truth.states
        if workers[stepped].idle:
            for subgraph in states[stepped].scopes:
                if any(tracker.dirty for tracker in subgraph.trackers):
                    yield "G11", f"worker {stepped} has come to rest, and {subgraph.path} has not"
        in_flight = any(
            isinstance(message, DataMessage | ProgressMessage) and message.dataflow == self.number
            for _, message in self._network.messages()
        )
        if len(states) == len(workers) and all(workers[index].idle for index in self._alive) and not in_flight:
            for index in self._alive:
                for place, port in states[index].shown.items():
                    if set(port.elements) != set(self._true[place]):
                        found = f"all has settled, and worker {index} shows {port.elements} at {port.label}"
                        yield "G9", f"{found}, which is at {self._true[place]}"
