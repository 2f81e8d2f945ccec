"""The check of every invariant after each step of a simulation: the truth against queues, the network, and every worker's view.

A dataflow is checked from the moment when the first worker has built it, until it is dropped or a worker fails. A violation is a
fault of the engine, or of an operator that bypasses it. Frontiers are taken from counts by definition, never from the engine.
Checking changes nothing. What a single worker shows to be wrong comes first, as it is nearest to the cause; what only several
workers show comes last.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

from timely import Worker
from timely.dataflow import InputPort, ScopeBuilder
from timely.errors import InvariantViolation, brief
from timely.progress import GroupBatch, ProgressAggregator, ProgressBatch, ProgressGroups, Source, Target
from timely.testing.flat_dataflow import (
    Counts,
    FlatDataflow,
    Found,
    Frontiers,
    Place,
    add,
    below,
    first_before,
    first_difference,
    total,
)
from timely.testing.global_state import Fault, GlobalState, SimulatedWorkerState
from timely.testing.graph_checks import ScopeChecks, check_cycles
from timely.testing.invariants import violation
from timely.testing.simulated_network import Network
from timely.worker import Scheduler, Transport
from timely.worker.dataflows import InstalledDataflow
from timely.worker.internals import expects
from timely.worker.worker_messages import DataMessage, ProgressMessage

_STEP = 0.001  # seconds that a step takes by the worker's own clock


class SimulatedWorker(Worker):
    """A worker whose steps are checked. Stepped by hand, without a simulation, it raises ``InvariantViolation`` itself."""

    def __init__(self, transport: Transport, scheduler: Scheduler | None, checker: InvariantChecker) -> None:
        self._checker = checker
        self.elapsed = 0.0
        self._stepping_already = False  # an operator may step its worker, which is to be noticed
        super().__init__(transport, scheduler, lambda: self.elapsed)
        if checker.provenance is not None:
            self._aggregator = TracedAggregator(self.index, checker.provenance)
        checker.add_worker(self)

    def _step_once(self) -> None:
        self.elapsed += _STEP
        rests, moves = self.idle and not self.expects and not self._stepping_already, self._stall.moves
        self._stepping_already = True
        try:
            super()._step_once()
        finally:
            self._stepping_already = False
        if not (rests and self.idle and self._stall.moves == moves):  # a step in which nothing happens need not be checked
            self._checker.check(self.index)

    def _send_progress(self, dataflow: InstalledDataflow) -> None:
        super()._send_progress(dataflow)
        self._checker.flushed(self.index, dataflow.number)

    def _install(self, dataflow: InstalledDataflow) -> None:
        self._checker.built(self.index, dataflow)
        super()._install(dataflow)

    def drop_dataflow(self, scope: ScopeBuilder[Any]) -> None:
        """Drop a dataflow, and check it no longer."""
        for number, dataflow in self._dataflows.items():
            if dataflow.scope is scope:
                self._checker.dropped(number)
        super().drop_dataflow(scope)

    @property
    def expects(self) -> bool:
        """Whether a dataflow waits for a timer or another thread."""
        return expects(self)

    def alive(self) -> frozenset[int]:
        """Return the numbers of the dataflows that are not complete here."""
        return frozenset(self._dataflows)

    def early(self, sender: int) -> list[Any]:
        """Return the messages of a peer for dataflows that are not built here yet, oldest first."""
        return [message for messages in self._early.values() for source, message in messages if source == sender]


class InvariantChecker:
    """Checks every dataflow of a run after each step; ``groups`` are those of aggregated progress, ``liveness`` adds L1."""

    def __init__(self, network: Network, groups: ProgressGroups | None = None, liveness: bool = False) -> None:
        self._liveness = liveness
        self.provenance = None if groups is None or groups.direct_only else BatchProvenance(groups)
        self._network = network
        self._workers: dict[int, SimulatedWorker] = {}
        self._dataflows: dict[int, DataflowChecker] = {}
        self._closed: set[int] = set()
        self._fault: InvariantViolation | None = None
        self._disabled = False

    def add_worker(self, worker: SimulatedWorker) -> None:
        self._workers[worker.index] = worker

    def built(self, worker: int, dataflow: InstalledDataflow) -> None:
        """Check a dataflow that a worker has just built."""
        number = dataflow.number
        if number in self._closed:
            return
        state = SimulatedWorkerState(worker, dataflow)
        checker = self._dataflows.get(number)
        if checker is None:
            fault = functools.partial(self._note, number)
            checker = DataflowChecker(number, state, self._network, self._workers, fault, self.provenance, self._liveness)
            self._dataflows[number] = checker
            self._raise_first(checker.check_graph())
        elif state.flat.places != checker.flat.places:
            self.dropped(number)  # the workers find out themselves that their graphs differ
            return
        checker.truth.add_worker(state)

    def flushed(self, worker: int, number: int) -> None:
        """Record that a worker has just flushed its progress of a dataflow."""
        if number in self._dataflows:
            self._dataflows[number].flushed(worker)

    def dropped(self, number: int) -> None:
        """Check a dataflow no longer: it was dropped somewhere, with what it held."""
        self._closed.add(number)
        self._dataflows.pop(number, None)

    def disable(self) -> None:
        """Check nothing more: a worker has failed, so that nothing need hold."""
        self._disabled = True

    def _note(self, number: int, invariant: str, difference: str) -> None:
        """Record the first violation, to be raised when the step is over: an operator's errors would be wrapped."""
        if self._fault is None and number not in self._closed:
            self._fault = violation(invariant, difference)

    def _raise_first(self, check: Found) -> None:
        """Raise the first violation of a check, and record it, since it may be wrapped or caught on its way."""
        for invariant, difference in check:
            self._fault = violation(invariant, difference)
            raise self._fault

    def check(self, stepped: int) -> None:
        """Check everything after the step of a worker; raise the first :class:`~timely.errors.InvariantViolation`."""
        self.raise_fault()
        if not self._disabled:
            for checker in self._dataflows.values():
                self._raise_first(checker.check(stepped))

    def holders(self) -> list[str]:
        """Return what is held and what waits in all dataflows, in words."""
        return [held for checker in self._dataflows.values() for held in _holders(checker.truth)]

    def raise_fault(self) -> None:
        """Raise the violation that was found, if any, even if it was caught since."""
        if self._fault is not None:
            raise self._fault

    def check_end(self) -> None:
        for checker in self._dataflows.values():
            self._raise_first(checker.check_end())


class DataflowChecker:
    """One dataflow: its true state, and what was seen of it after the last step. Each check yields what does not hold."""

    def __init__(
        self,
        number: int,
        first: SimulatedWorkerState,
        network: Network,
        workers: Mapping[int, SimulatedWorker],
        fault: Fault,
        provenance: BatchProvenance | None,
        liveness: bool,
    ) -> None:
        self.number = number
        self._liveness = liveness
        self.truth = GlobalState(first, network.peers, fault)
        self.flat = first.flat
        self._network = network
        self._workers = workers
        self._provenance = provenance
        self._first = first
        self._scopes = [ScopeChecks(subgraph, self.flat) for subgraph in first.scopes]
        self._shared = any(child.shared and child.nested is None for subgraph in first.scopes for child in subgraph.children)
        self._true: Frontiers = self.flat.frontiers(self.truth.counts)
        self._views: dict[int, Counts] = {worker: dict(self.truth.counts) for worker in range(network.peers)}
        self._contents: dict[int, tuple[Any, Counts]] = {}
        self._in_flight: dict[tuple[int, int], int] = {}
        self._left: set[int] = set()
        self._alive: set[int] = set()
        self._ended: set[int] = set()

    def check_graph(self) -> Found:
        """G1, G2, G3, G5: check the graph, before anything has happened in it."""
        checks = list(zip(self._first.scopes, self._scopes, strict=True))
        for subgraph, scope_checks in checks:
            yield from scope_checks.check_time(subgraph.domain.minimum)
        yield from check_cycles(self.flat)
        for subgraph, scope_checks in checks:
            yield from scope_checks.check_graph(subgraph.trackers)

    def check_end(self) -> Found:
        """Z5: check, after every program has ended well, that nothing is left."""
        if self.truth.counts:
            yield "Z5", f"there is still {self.flat.describe(self.truth.counts)}"

    def flushed(self, worker: int) -> None:
        """Record that a worker has flushed its progress, and whether it has left something out."""
        exchange = self.truth.states[worker].exchange
        if exchange is not None and exchange.changes:
            self._left.add(worker)
        else:
            self._left.discard(worker)

    def check(self, stepped: int) -> Found:
        """Check all that concerns the dataflow, after the step of a worker."""
        states = self.truth.states
        if stepped not in states or stepped in self._ended:
            return
        yield from self._check_activations()
        if self._shared:
            yield from self._check_trackers(states[stepped])
            return
        self._alive = {index for index in states if self.number in self._workers[index].alive()}
        yield from self._check_messages()
        if stepped not in self._alive:
            yield from self._check_ended(stepped)
        yield from self._follow_truth()
        for index in self._alive:
            if index == stepped or index not in self.truth.concluded or index in self.truth.acted:
                yield from self._check_view(states[index])
                yield from self._check_trackers(states[index])
        self.truth.acted.clear()
        coming = {index: self._coming(index) for index in self._workers if index not in self._ended}
        for index in coming:
            yield from self._check_conservation(index, coming[index])
            if index in self._alive:
                yield from self._check_beyond(index, coming[index])
                yield from self._check_safety(states[index])
        if stepped in self._alive:
            yield from self._check_batches(stepped)
        for index in coming:
            yield from self._check_together(index, coming[index])
        yield from self._check_rest(stepped)
        for source, target in self._network.sent:
            self._in_flight[source, target] = len(self._batches(source, target))

    # -- messages ------------------------------------------------------------------------------------------------------

    def _messages(self, source: int, target: int) -> list[Any]:
        """Return all messages from one worker that another has not applied, oldest first."""
        return [*self._workers[target].early(source), *self._network.between(source, target)]

    def _batches(self, source: int, target: int) -> list[Counts]:
        """Return the content of each batch of progress from one worker that another has not applied."""
        if self._provenance is not None:
            batches = self._provenance.batches(self.number, source, target, self._messages)
        else:
            progress = [message for message in self._messages(source, target) if isinstance(message, ProgressMessage)]
            batches = [message.batch for message in progress if message.dataflow == self.number]
        return [self._content(batch) for batch in batches]

    def _content(self, batch: ProgressBatch[tuple[int, int, Any]]) -> Counts:
        known = self._contents.get(id(batch))
        if known is None:
            known = self._contents[id(batch)] = batch, self._first.changes(batch.updates)
        return known[1]

    def _coming(self, worker: int) -> list[Counts]:
        """Return all that a worker has yet to receive: each batch in flight, and what its peers have not sent."""
        coming = []
        for peer, state in self.truth.states.items():
            if peer != worker:
                coming += [*self._batches(peer, worker), state.unsent()]
        return coming

    def _check_activations(self) -> Found:
        """OC5: no operator runs between steps."""
        for state in self.truth.states.values():
            for _, operator in state.operators:
                if operator.running:
                    yield "OC5", f"a step is over on worker {state.worker} in the middle of {operator.path}"

    def _check_messages(self) -> Found:
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
            for message in self._messages(source, target):
                if isinstance(message, DataMessage) and message.dataflow == self.number:
                    add(present, (self._first.channels[message.channel], message.time), len(message.batch))
        for worker, allowed in self.truth.concluded.items():
            for place, time in present:
                if not below(allowed[place], time):
                    yield "I7", f"worker {worker} has passed a message {self.flat.show((place, time))}, which is there"
        places = self.flat.places
        counted = {stamp: count for stamp, count in self.truth.counts.items() if not isinstance(places[stamp[0]][1], Source)}
        if counted != present:
            different = first_difference(counted, present)
            numbers = f"{counted.get(different, 0)} messages are counted, and there are {present.get(different, 0)}"
            yield "OC3", f"{numbers}, {self.flat.show(different)}"

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

    def _check_conservation(self, worker: int, coming: Sequence[Counts]) -> Found:
        """X3 (I2)."""
        sums_of_worker, truth = total([self._views[worker], *coming]), self.truth.counts
        if sums_of_worker != truth:
            first = first_difference(sums_of_worker, truth)
            sums = f"for worker {worker} they come to {sums_of_worker.get(first, 0)}, and the truth is {truth.get(first, 0)}"
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

    def _check_batches(self, worker: int) -> Found:
        """X1, X2, I3, OC1: check what each peer has yet to receive of a worker."""
        unsent, held = self.truth.states[worker].unsent(), self.truth.held[worker]
        for peer in self._workers.keys() - self._ended - {worker}:
            batches = self._batches(worker, peer)
            for invariant, difference in self.flat.check_ends(unsent, batches, held):
                yield invariant, f"worker {worker} has yet to send worker {peer} {difference}"
            sent = len(batches) - self._in_flight.get((worker, peer), 0)
            if sent > 1 or (sent > 0 and worker in self._left):
                parts = f"in {sent} batches" if sent > 1 else "in part"
                yield "OC1", f"worker {worker} sent worker {peer} {parts} what it did in one step"

    def _check_together(self, worker: int, coming: Sequence[Counts]) -> Found:
        """I3 for all peers of a worker together, where there are several."""
        peers = [peer for peer in self.truth.states if peer != worker]
        if len(peers) > 1:
            changes, held = total(coming), total([self.truth.held[peer] for peer in peers])
            for check in (self.flat.check_upright("I3", changes, held), self.flat.check_justified(changes, held)):
                for invariant, difference in check:
                    yield invariant, f"the peers of worker {worker} together have yet to send it {difference}"

    # -- frontiers -----------------------------------------------------------------------------------------------------

    def _check_safety(self, state: SimulatedWorkerState) -> Found:
        """Z1, Z2: compare every frontier that is shown with what may truly come, by a message (Z1) or a capability (Z2)."""
        for place, port in state.shown.items():
            for time in self._true[place]:
                if not below(port.elements, time):
                    text = f"worker {state.worker} shows {port.elements} at {port.label}, where {time!r} may still come"
                    for worker in self.truth.states:
                        if below(self.flat.frontiers(self.truth.held[worker])[place], time):
                            yield "Z2", f"{text}, by a capability of worker {worker}"
                    yield "Z1", text

    def _check_trackers(self, state: SimulatedWorkerState) -> Found:
        """G6 to G10: check the trackers of every scope, and compare the frontiers that are shown with them."""
        for subgraph, checks in zip(state.scopes, self._scopes, strict=True):
            for tracker in subgraph.trackers:
                if not tracker.dirty:
                    for invariant, difference in checks.check_tracker(tracker):
                        yield invariant, f"on worker {state.worker} in {subgraph.path}, {difference}"
        for place, port in state.shown.items():
            scope, target = self.flat.places[place]
            tracker = state.scopes[scope].trackers[0]
            if not tracker.dirty:
                frontier = tracker.frontier(target)
                if len(port.elements) != len(frontier) or set(port.elements) != set(frontier):
                    yield "G10", f"worker {state.worker} shows {port.elements} at {port.label}, and counts {frontier}"

    def _check_rest(self, stepped: int) -> Found:
        """G11: an idle worker has nothing left to propagate; G9: at rest, what is shown is what the flat graph has; L1."""
        states = self.truth.states
        if self._workers[stepped].idle:
            for subgraph in states[stepped].scopes:
                if any(tracker.dirty for tracker in subgraph.trackers):
                    yield "G11", f"worker {stepped} has come to rest, and {subgraph.path} has not"
        in_flight = any(
            isinstance(message, DataMessage | ProgressMessage) and message.dataflow == self.number
            for _, message in self._network.messages()
        )
        if len(states) == len(self._workers) and all(self._workers[index].idle for index in self._alive) and not in_flight:
            for index in self._alive:
                for place, port in states[index].shown.items():
                    if set(port.elements) != set(self._true[place]):
                        text = f"all has settled, and worker {index} shows {port.elements} at {port.label}"
                        yield "G9", f"{text}, which is at {self._true[place]}"
            if self._liveness and not any(self._workers[index].expects for index in self._alive):
                yield from _check_liveness(self.truth, self._true)


def _check_liveness(truth: GlobalState, true: Frontiers) -> Found:
    """L1: compare each capability of an operator with what may still come to its inputs, by the ``true`` frontiers.

    Sources hold what their program likes, and so does an output that no input leads to. Custom scopes may wait for others.
    """
    for worker, state in truth.states.items():
        ours = {(scope, operator.index): operator.path for scope, operator in state.operators}
        for (place, time), count in truth.held[worker].items():
            scope, location = truth.flat.places[place]
            path = ours.get((scope, location.node))
            if count > 0 and isinstance(location, Source) and path is not None:
                arrivals = list(_arrivals(truth.flat, place, true))
                if arrivals and not any(arrival <= time for times in arrivals for arrival in times):
                    held = f"{path} on worker {worker} holds a capability at {brief(time)} for its output {location.port}"
                    yield "L1", f"{held}: it must drop or downgrade it once its inputs have passed"


def _arrivals(flat: FlatDataflow, place: Place, true: Frontiers) -> Iterator[list[Any]]:
    """Yield, for each way to an output from an input of its operator, the times that may still result there."""
    scope, output = flat.places[place]
    for port, row in enumerate(flat.operators[scope, output.node].summaries):
        frontier = true[flat.numbers[scope, Target(output.node, port)]]
        for summary in row[output.port]:
            results = [summary.results_in(time) for time in frontier]
            yield [result for result in results if result is not None]


def _holders(truth: GlobalState) -> list[str]:
    """Return the capabilities of all workers in words, and how many messages wait where."""
    held = [
        f"a capability of {truth.flat.operators[scope, location.node].path} on worker {worker} at {brief(time)}"
        for worker in truth.states
        for (place, time), count in truth.held[worker].items()
        for scope, location in [truth.flat.places[place]]
        if count > 0 and isinstance(location, Source)
    ]
    waiting = [(*truth.flat.places[place], time) for place, time in truth.counts]
    return held + [
        f"a message for {truth.flat.operators[scope, location.node].path} at {brief(time)}"
        for scope, location, time in waiting
        if isinstance(location, Target)
    ]


Batch: TypeAlias = ProgressBatch[Any]

Origins: TypeAlias = list[tuple[int, Batch]]
"""Batches as they were flushed, each with its worker, oldest first."""


class BatchProvenance:
    """The batches in the sums that workers pass on by these ``groups``."""

    def __init__(self, groups: ProgressGroups) -> None:
        self.groups = groups
        neighbours = [groups.neighbours(worker) for worker in range(groups.workers)]
        self._groups = [{member: group for group, members in enumerate(groups) for member in members} for groups in neighbours]
        self._group_counts = list(map(len, neighbours))
        self._waiting: defaultdict[tuple[int, int, int], Origins] = defaultdict(list)
        self._in_flight: dict[tuple[int, int, int, int], Origins] = {}

    def flushed(self, worker: int, number: int, batch: Batch) -> None:
        """Record that a worker has flushed a batch of a dataflow, to be sent to each of its groups."""
        for group in range(self._group_counts[worker]):
            self._waiting[worker, group, number].append((worker, batch))

    def received(self, worker: int, sender: int, number: int, batch: Batch) -> None:
        """Record that a worker has received a sum, to be sent to its other groups."""
        origins = self._in_flight.get((sender, worker, number, batch.sequence), [])
        for group in range(self._group_counts[worker]):
            if group != self._groups[worker][sender]:
                self._waiting[worker, group, number] += origins

    def sent(self, worker: int, batches: Sequence[GroupBatch]) -> Sequence[GroupBatch]:
        """Record and return what a worker sends at the end of a step; what else was waiting has cancelled."""
        for members, number, batch in batches:
            origins = self._waiting.pop((worker, self._groups[worker][members[0]], number), [])
            for peer in members:
                self._in_flight[worker, peer, number, batch.sequence] = origins
        for gone in [key for key in self._waiting if key[0] == worker]:
            del self._waiting[gone]
        return batches

    def batches(self, number: int, source: int, target: int, messages: Callable[[int, int], Sequence[Any]]) -> list[Batch]:
        """Return the batches of one worker that another has not applied yet, oldest first.

        ``messages(sender, receiver)`` are those that the receiver has not applied.
        """
        sent: list[Batch] = []
        for sender, receiver in reversed(list(pairwise(self.groups.path(source, target)))):
            for message in messages(sender, receiver):
                if isinstance(message, ProgressMessage) and message.dataflow == number:
                    origins = self._in_flight.get((sender, receiver, number, message.batch.sequence), [])
                    sent += [batch for origin, batch in origins if origin == source]
            waiting = self._waiting.get((sender, self._groups[sender][receiver], number), ())
            sent += [batch for origin, batch in waiting if origin == source]
        return sent


class TracedAggregator(ProgressAggregator):
    """The aggregator of a simulated worker, which reports what goes in and out."""

    __slots__ = ("_provenance",)

    def __init__(self, index: int, provenance: BatchProvenance) -> None:
        super().__init__(index, provenance.groups)
        self._provenance = provenance

    def add(self, dataflow: int, batch: Batch) -> None:
        self._provenance.flushed(self._index, dataflow, batch)
        super().add(dataflow, batch)

    def receive(self, sender: int, dataflow: int, batch: Batch) -> None:
        self._provenance.received(self._index, sender, dataflow, batch)
        super().receive(sender, dataflow, batch)

    def flush(self) -> list[GroupBatch]:
        return list(self._provenance.sent(self._index, super().flush()))
