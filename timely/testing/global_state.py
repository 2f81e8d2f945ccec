"""The true counts of a simulated dataflow: every capability that an operator holds, and every unread message.

Each change is recorded and checked when an operator makes it, before any part of the engine sees it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, TypeAlias

from timely.dataflow import Inlet, InputPort, Operator
from timely.dataflow.custom_scope import CustomScope
from timely.progress import ChangeBatch, Location, Source, Target
from timely.scopes import EGRESS, INGRESS, ForwardingScope, Subgraph, ValidatingScope, output_port
from timely.testing.flat_dataflow import Counts, FlatDataflow, Frontiers, Place, add, below
from timely.worker.dataflows import InstalledDataflow

Count: TypeAlias = Callable[[int, Any, int], None]

Fault: TypeAlias = Callable[[str, str], None]
"""Records a violation: ``fault(invariant, what was found)``."""


class SimulatedWorkerState:
    """A dataflow on one worker, as counts of the flat graph. Reading changes nothing.

    ``operators`` are ``(scope, operator)``, ``inputs`` the place and port of each of their inputs, ``shown`` those ports with a
    frontier, by place; ``inlets`` are the inputs of custom scopes.
    """

    def __init__(self, worker: int, dataflow: InstalledDataflow) -> None:
        self.worker = worker
        self.scopes = dataflow.scopes
        self.exchange = dataflow.exchange
        self.flat = FlatDataflow(self.scopes)
        self.locations = [_locations(subgraph) for subgraph in self.scopes]
        self.operators: list[tuple[int, Operator[Any]]] = []
        self.inputs: list[tuple[Place, InputPort[Any, Any]]] = []
        self.inlets: list[tuple[Place, Inlet[Any]]] = []
        self._labels = dataflow.labels
        numbers = self.flat.numbers
        for subgraph in self.scopes:
            scope = subgraph.number
            for child in subgraph.children:
                if isinstance(child.scope, Operator):
                    self.operators.append((scope, child.scope))
                    self.inputs += [(numbers[scope, Target(child.index, port.index)], port) for port in child.scope.input_ports]
                elif isinstance(child.scope, CustomScope):
                    inlets = enumerate(child.scope.inlets)
                    self.inlets += [(numbers[scope, Target(child.index, port)], inlet) for port, inlet in inlets]
        self.shown = {place: port for place, port in self.inputs if port.observed}

    @cached_property
    def channels(self) -> list[Place]:
        """The places that the channels between workers lead to."""
        named = {port.label: place for place, port in self.inputs}
        named |= {inlet.label: place for place, inlet in self.inlets}
        return [named[label] for label in self._labels]

    def _count(self, counts: Counts, scope: int, location: Location, time: Any, count: int) -> None:
        """Add what a count stands for in the flat graph: nothing, at an output of a nested scope."""
        if isinstance(location, Target):
            self._spread(counts, scope, location, time, count)
        elif (scope, location) in self.flat.numbers:
            add(counts, (self.flat.numbers[scope, location], time), count)

    def _spread(self, counts: Counts, scope: int, location: Location, time: Any, count: int) -> None:
        for stamp in self.flat.stamps(scope, location, time):
            add(counts, stamp, count)

    def view(self) -> Counts:
        """Return what the worker counts in all its scopes, with what a nested scope has yet to report to its parent."""
        counts: Counts = {}
        for subgraph in self.scopes:
            scope = subgraph.number
            for (location, time), count in subgraph.trackers[0].counts().items():
                self._count(counts, scope, location, time, count)
            for child in subgraph.children:
                if isinstance(child.scope, Subgraph):
                    consumed, produced = child.scope.unreported
                    for port, batch in enumerate(consumed):
                        for time, diff in batch:
                            self._spread(counts, scope, Target(child.index, port), time, -diff)
                    for port, batch in enumerate(produced):
                        for time, diff in batch:
                            self._spread(counts, scope, Source(child.index, port), time, diff)
        return counts

    def changes(self, updates: Sequence[tuple[tuple[int, int, Any], int]]) -> Counts:
        """Return the content of a batch as changes of counts of the flat graph."""
        counts: Counts = {}
        for (scope, number, time), diff in updates:
            outputs = self.scopes[scope].outputs
            if number >= 0:
                self._count(counts, scope, self.locations[scope][number], time, diff)
            elif output_port(number) < outputs:
                self._spread(counts, scope, Target(EGRESS, output_port(number)), time, diff)
            else:
                self._spread(counts, scope, Source(INGRESS, output_port(number) - outputs), time, -diff)
        return counts

    def unsent(self) -> Counts:
        """Return what the worker has not sent to its peers yet."""
        return {} if self.exchange is None else self.changes(tuple(self.exchange.changes))


def _locations(subgraph: Subgraph[Any, Any]) -> dict[int, Location]:
    """Return the location that each number of a scope's count sink stands for."""
    named: dict[int, Location] = {}
    for child in subgraph.children:
        named.update((number, Source(child.index, port)) for port, number in enumerate(child.sources))
        named.update((number, Target(child.index, port)) for port, number in enumerate(child.targets))
    return named


class GlobalState:
    """``counts`` are those of all pointstamps of all workers, ``held[w]`` the capabilities of worker ``w``.

    ``acted`` are the workers whose capabilities changed since it was cleared. ``concluded[w]`` are the frontiers of the view of
    worker ``w`` at its last check.
    """

    def __init__(self, first: SimulatedWorkerState, workers: int, fault: Fault) -> None:
        self.flat = first.flat
        self.states: dict[int, SimulatedWorkerState] = {}
        self.acted: set[int] = set()
        self.concluded: dict[int, Frontiers] = {}
        self.fault = fault
        self._initial: Counts = {}
        for (scope, child), operator in self.flat.operators.items():
            for output, counts in enumerate(operator.initial):
                for time, count in counts.items():
                    self._initial[self.flat.numbers[scope, Source(child, output)], time] = count
        self.counts: Counts = {stamp: workers * count for stamp, count in self._initial.items()}
        self.held = [dict(self._initial) for _ in range(workers)]

    def add_worker(self, state: SimulatedWorkerState) -> None:
        """Add the dataflow as a worker has built it, with what its operators did meanwhile; record what they do from now on."""
        self.states[state.worker] = state
        done = state.unsent()
        if state.exchange is None:  # a worker without peers has no record of what it did
            done = state.view()
            for stamp, count in self._initial.items():
                add(done, stamp, -count)
        for (place, time), diff in done.items():
            self._change(state.worker, place, time, diff)
        for subgraph in state.scopes:
            subgraph.intercept(functools.partial(ChangeRecorder, self, state, subgraph))
            for child in subgraph.children:
                if isinstance(child.scope, ValidatingScope):
                    child.scope = RecordedScope(self, state, subgraph.number, child.index, child.scope)
        for scope, operator in state.operators:
            operator.notified = functools.partial(self.notify, state, scope, operator)

    def _change(self, worker: int, place: Place, time: Any, diff: int) -> int:
        self.acted.add(worker)
        add(self.counts, (place, time), diff)
        return add(self.held[worker], (place, time), diff)

    def hold(self, worker: int, place: Place, time: Any, diff: int) -> None:
        """Record a change of a worker's capabilities (OC4). G4: it gets none where its own view has passed."""
        allowed = self.concluded.get(worker) if diff > 0 else None
        if allowed is not None and not below(allowed[place], time):
            self.fault("G4", f"worker {worker} counts a capability {self.flat.show((place, time))}, and had passed it")
        if self._change(worker, place, time, diff) < 0:
            self.fault("OC4", f"worker {worker} gave up a capability that it did not have, {self.flat.show((place, time))}")

    def send(self, state: SimulatedWorkerState, scope: int, location: Location, time: Any, diff: int) -> None:
        """Record messages to a location. S0: no view may have passed them; G4: nor a frontier that their sender shows."""
        for place, arrival in self.flat.stamps(scope, location, time):
            add(self.counts, (place, arrival), diff)
            for worker, allowed in self.concluded.items():
                if not below(allowed[place], arrival):
                    text = f"worker {state.worker} sent a message for {self.flat.show((place, arrival))}"
                    self.fault("S0", f"{text}, which worker {worker} had passed")
            port = state.shown.get(place)
            if port is not None and not below(port.elements, arrival):
                text = f"worker {state.worker} counts a message at {arrival!r} for {port.label}"
                self.fault("G4", f"{text}, where it shows {port.elements}")

    def notify(
        self, state: SimulatedWorkerState, scope: int, operator: Operator[Any], time: Any, inputs: Sequence[InputPort[Any, Any]]
    ) -> None:
        """Check a notification that a time is complete. Z4: nothing at or before it may come to these inputs."""
        true = self.flat.frontiers(self.counts)
        for port in inputs:
            if below(true[self.flat.numbers[scope, Target(operator.index, port.index)]], time):
                text = f"{operator.path} on worker {state.worker} is notified of {time!r}"
                self.fault("Z4", f"{text}, and {port.label} is not done with it")

    def read(self, worker: int, place: Place, time: Any, diff: int) -> None:
        """Record that a worker has read messages."""
        if add(self.counts, (place, time), -diff) < 0:
            self.fault("I1", f"worker {worker} read more messages than were sent, {self.flat.show((place, time))}")


class ChangeRecorder:
    """Stands between one operator and the count sinks of its scope: records and checks each change, and passes it on."""

    def __init__(
        self, truth: GlobalState, state: SimulatedWorkerState, subgraph: Subgraph[Any, Any], child: int, hold: Count, note: Count
    ) -> None:
        self._truth = truth
        self._state = state
        self._scope = subgraph.number
        self._operator: Operator[Any] = subgraph.children[child].scope  # type: ignore[assignment]  # no other is attached
        self._locations = state.locations[subgraph.number]
        self._edges = {edge.target: edge.source.port for edge in subgraph.edges if edge.source.node == child}
        self._hold = hold
        self._note = note
        self._call = -1
        self._consumed: list[tuple[int, Any]] = []
        self._dropped: list[tuple[int, Any]] = []

    def __iter__(self) -> Iterator[Count]:
        """Yield the operator's sinks for capabilities and for messages."""
        return iter((self.hold, self.note))

    def hold(self, number: int, time: Any, diff: int) -> None:
        location = self._locations[number]
        if diff > 0:
            self._check_support(location.port, time, "got a capability")
        elif self._operator.running:
            self._begin()
            self._dropped.append((location.port, time))
        if diff not in (1, -1):
            self._truth.fault("OC4", f"{self._operator.path} changed a count of capabilities by {diff}")
        self._truth.hold(self._state.worker, self._state.flat.numbers[self._scope, location], time, diff)
        self._hold(number, time, diff)

    def note(self, number: int, time: Any, diff: int) -> None:
        location = self._locations[number] if number >= 0 else Target(EGRESS, output_port(number))
        if diff > 0:
            self._truth.send(self._state, self._scope, location, time, diff)
            self._check_support(self._edges[location], time, "sent a message")  # type: ignore[index]  # it is a target
        else:
            self._read(location.port, time, -diff)
        self._note(number, time, diff)

    def _begin(self) -> None:
        """Forget what an earlier activation read and gave up."""
        if self._call != self._operator.call:
            self._call = self._operator.call
            self._consumed.clear()
            self._dropped.clear()

    def _read(self, port: int, time: Any, count: int) -> None:
        self._begin()
        self._consumed.append((port, time))
        input = self._operator.input_ports[port]
        if input.observed and not below(input.elements, time):
            self._truth.fault("Z3", f"{input.label} reads a message at {time!r}, and was shown {input.elements} before")
        place = self._state.flat.numbers[self._scope, Target(self._operator.index, port)]
        self._truth.read(self._state.worker, place, time, count)

    def _check_support(self, output: int, time: Any, deed: str) -> None:
        """OC2: a capability held at the output in this activation, or a message read in it, must allow the time."""
        operator = self._operator
        place = self._state.flat.numbers[self._scope, Source(operator.index, output)]
        held = self._truth.held[self._state.worker]
        if any(count > 0 and at == place and have <= time for (at, have), count in held.items()):
            return
        if operator.running and self._call == operator.call:
            if any(port == output and had <= time for port, had in self._dropped):
                return  # a session may send after its capability was dropped
            for port, arrived in self._consumed:
                for summary in operator.input_ports[port].summaries[output]:
                    result = summary.results_in(arrived)
                    if result is not None and result <= time:
                        return
        self._truth.fault("OC2", f"{operator.path} on worker {self._state.worker} {deed} at {time!r} that nothing supports")


class RecordedScope(ForwardingScope[Any]):
    """A custom scope as its parent sees it, whose reports are recorded."""

    def __init__(
        self, truth: GlobalState, state: SimulatedWorkerState, number: int, child: int, scope: ValidatingScope[Any]
    ) -> None:
        super().__init__(scope)
        self._truth = truth
        self._state = state
        self._number = number
        self._child = child

    def pull_internal_progress(
        self,
        internal: Sequence[ChangeBatch[Any]],
        consumed: Sequence[ChangeBatch[Any]],
        produced: Sequence[ChangeBatch[Any]],
    ) -> bool:
        busy = super().pull_internal_progress(internal, consumed, produced)
        numbers, worker = self._state.flat.numbers, self._state.worker
        for port, changes in enumerate(consumed):
            for time, count in changes:
                self._truth.read(worker, numbers[self._number, Target(self._child, port)], time, count)
        for port, changes in enumerate(produced):
            for time, count in changes:
                self._truth.send(self._state, self._number, Source(self._child, port), time, count)
        for port, changes in enumerate(internal):
            for time, diff in changes:
                self._truth.hold(worker, numbers[self._number, Source(self._child, port)], time, diff)
        return busy
