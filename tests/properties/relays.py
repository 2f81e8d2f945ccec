"""A nesting on several simulated workers, whose operators pass records on in a way that no schedule can change.

What an operator makes of a record depends on the record, the input and the time alone; when it sends it (at once, later, or
when it has been notified that the time is complete) is a decision of the run. So the records that reach each input at each
time are the same under every schedule, and a plain worklist computes them. While it runs, the simulator checks every invariant,
and the cluster what operators are shown against the true pointstamps of all workers and of the network.

White box: the cluster steps the simulator's workers itself, so that its own oracle looks between the steps.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import attrs
from hypothesis import strategies as st

from tests.support.nesting import Location, Nesting, Time, below, flat, nested
from tests.support.nesting_builder import FlatGraph, build_nesting
from timely import Capability, InputPort, Notificator, OperatorInfo, OutputPort, Source, Target
from timely.testing import Network
from timely.testing.checker import InvariantChecker, SimulatedWorker
from timely.worker.worker_messages import DataMessage

Record: TypeAlias = tuple[int, int]
"""A value, and how many more operators it may pass."""

Received: TypeAlias = dict[tuple[Target, Time], Counter[Record]]


class Choices:
    """Makes the decisions of a run, drawn as they are needed."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data

    def below(self, n: int) -> int:
        return self._data.draw(st.integers(0, n - 1))

    def among(self, things: list[Any]) -> Any:
        return things[self.below(len(things))]


@attrs.frozen
class Sending:
    """Records that one worker sends from one output at a time, by the capability that it has had from the start."""

    worker: int
    output: Source
    time: Time
    values: tuple[int, ...]


@attrs.frozen
class Plan:
    """What enters a nesting from outside; the sendings of one worker's output are at times that only advance."""

    nesting: Nesting
    workers: int
    sendings: tuple[Sending, ...]
    hops: int


@st.composite
def plans(draw: st.DrawFn, nesting: Nesting, workers: int) -> Plan:
    sources = [Source(op, o) for op, spec in enumerate(nesting.ops) for o in range(spec.outputs)]
    at: dict[tuple[int, Source], Time] = {}
    sendings = []
    for _ in range(draw(st.integers(0, 6)) if sources else 0):
        worker, source = draw(st.integers(0, workers - 1)), draw(st.sampled_from(sources))
        time = at.get((worker, source), nesting.minimum(nesting.ops[int(str(source.node))].scope))
        at[worker, source] = time = tuple(t + draw(st.sampled_from([0, 0, 1, 2])) if type(t) is int else t for t in time)
        sendings.append(Sending(worker, source, time, tuple(draw(st.lists(st.integers(0, 99), min_size=1, max_size=3)))))
    return Plan(nesting, workers, tuple(sendings), draw(st.integers(0, 4)))


def emissions(nesting: Nesting, op: int, i: int, time: Time, record: Record) -> list[tuple[int, Time, Record]]:
    """Return what an operator makes of a record: ``(output, time, record)``."""
    value, hops = record
    collected = []
    for output, shifts in enumerate(nesting.ops[op].summaries[i]):
        mixed = value * 31 + op * 7 + i * 5 + output * 3
        if hops and shifts and mixed % 4:
            result = shifts[mixed % len(shifts)].results_in(time)
            if result is not None:
                collected.append((output, result, (mixed % 101, hops - 1)))
    return collected


def reference(plan: Plan) -> Received:
    """Return what reaches each input at each time, by following every record through the flat graph."""
    graph = FlatGraph(plan.nesting)
    received: Received = {}
    queue: list[tuple[Source, Time, Record]] = [
        (sending.output, sending.time, (value, plan.hops)) for sending in plan.sendings for value in sending.values
    ]
    while queue:
        source, time, record = queue.pop()
        for link in plan.nesting.links:
            if link.source == source:
                arrived = graph.crossing(link)(time)
                received.setdefault((link.target, arrived), Counter())[record] += 1
                op = int(str(link.target.node))
                for output, result, made in emissions(plan.nesting, op, link.target.port, arrived, record):
                    queue.append((Source(op, output), result, made))
    return received


class Forwarder:
    """One operator on one worker."""

    def __init__(
        self,
        plan: Plan,
        worker: int,
        op: int,
        inputs: list[InputPort[Any, Any]],
        capabilities: list[Capability[Any]],
        info: OperatorInfo,
        choices: Choices,
        received: Received,
    ) -> None:
        self.plan, self.worker, self.op, self.inputs, self.info = plan, worker, op, inputs, info
        self.spec = plan.nesting.ops[op]
        self.initial: list[Capability[Any] | None] = list(capabilities)
        mine = [sending for sending in plan.sendings if sending.worker == worker]
        self.to_send = [[s for s in mine if s.output == Source(op, o)] for o in range(self.spec.outputs)]
        self.parked: list[tuple[int, Capability[Any], list[Record]]] = []
        self.awaited: list[dict[Time, tuple[Capability[Any], list[Record]]]] = [{} for _ in capabilities]
        self.waits_for = [self._unhindered(output) for output in range(self.spec.outputs)]
        self.notificators = [Notificator[Any]([inputs[i] for i in waits]) for waits in self.waits_for]
        self.spare: list[tuple[int, Capability[Any]]] = []
        self.allowed = 0
        self._choices = choices
        self._received = received

    def _unhindered(self, output: int) -> list[int]:
        """Return the inputs that may be waited for with a capability of this output in hand: where a time may go through
        unchanged, no way leads back from the output without advancing it; elsewhere one might wait for oneself.
        """
        rows = enumerate(self.spec.summaries)
        advances = functools.partial(self.plan.nesting.advances, self.spec.scope)
        inputs = [i for i, row in rows if not all(map(advances, row[output]))]
        return inputs if all(self.spec.observes[i] for i in inputs) else []

    # -- the logic -------------------------------------------------------------------------------------------------------

    def logic(self, *ports: Any) -> None:
        outputs: list[OutputPort[Any]] = list(ports[len(self.inputs) :])
        for i, port in enumerate(self.inputs):
            hasty = self._choices.below(4) == 0
            for arrived, batch in port:
                self._read(i, arrived, batch, outputs)
                if hasty:
                    break
        for output, notificator in enumerate(self.notificators):
            for capability, _ in notificator:
                _, records = self.awaited[output].pop(flat(capability.time))
                with capability:
                    outputs[output].session(capability).give_many(records)
        while self.allowed:
            self.allowed -= 1
            self._proceed(outputs)

    def _read(self, i: int, arrived: Any, batch: list[Record], outputs: list[OutputPort[Any]]) -> None:
        time = flat(arrived.time)
        self._received.setdefault((Target(self.op, i), time), Counter()).update(batch)
        self._retain(i, arrived)
        made: dict[tuple[int, Time], list[Record]] = {}
        for record in batch:
            for output, result, new in emissions(self.plan.nesting, self.op, i, time, record):
                made.setdefault((output, result), []).append(new)
        for (output, result), records in made.items():
            capability = arrived.delayed(nested(result), output)
            deed = self._choices.below(3 if self.waits_for[output] else 2)
            if deed == 0:
                with capability:
                    outputs[output].session(capability).give_many(records)
            elif deed == 1:
                self.parked.append((output, capability, records))
            else:
                self._await(output, result, capability, records)

    def _retain(self, i: int, arrived: Any) -> None:
        """Retain some of the capabilities that a message allows, though nothing is to be sent by them."""
        for output, shifts in enumerate(self.spec.summaries[i]):
            for shift in shifts:
                result = shift.results_in(flat(arrived.time))
                if result is not None and len(self.spare) < 6 and self._choices.below(4) == 0:
                    self.spare.append((output, arrived.delayed(nested(self._later(result)), output)))

    def _later(self, time: Time) -> Time:
        """Return a time at or after one; coordinates that are no numbers are left as they are."""
        return tuple(t + self._choices.among([0, 0, 0, 1, 3]) if type(t) is int else t for t in time)

    def _use_spare(self) -> None:
        output, capability = self.spare.pop()
        deed = self._choices.below(4)
        if deed == 0:
            capability.downgrade(nested(self._later(flat(capability.time))))
            self.spare.append((output, capability))
        elif deed == 1 and len(self.spare) < 5:
            self.spare += [(output, capability), (output, capability.delayed(nested(self._later(flat(capability.time)))))]
        else:
            capability.drop()

    def _await(self, output: int, time: Time, capability: Capability[Any], records: list[Record]) -> None:
        if time in self.awaited[output]:
            self.awaited[output][time][1].extend(records)
        else:
            self.awaited[output][time] = (capability, records)
        self.notificators[output].notify_at(capability)

    def _proceed(self, outputs: list[OutputPort[Any]]) -> None:
        """Send something that was parked, or do the next thing with an initial capability or a spare one."""
        if self.spare and self._choices.below(2):
            return self._use_spare()
        scripted = [o for o, capability in enumerate(self.initial) if capability is not None]
        if not self.parked and not scripted:
            return
        place = self._choices.below(len(self.parked) + len(scripted))
        if place < len(self.parked):
            output, capability, records = self.parked.pop(place)
            with capability:
                outputs[output].session(capability).give_many(records)
            return
        output = scripted[place - len(self.parked)]
        held = self.initial[output]
        assert held is not None
        if self.to_send[output]:
            sending = self.to_send[output].pop(0)
            held.downgrade(nested(sending.time))
            outputs[output].session(held).give_many((value, self.plan.hops) for value in sending.values)
        else:
            held.drop()
            self.initial[output] = None

    def allow(self, count: int) -> None:
        self.allowed += count
        self.info.activator.activate()

    def stamps(self) -> list[tuple[Location, Time]]:
        """Return every capability that is held here, and every message that has arrived and was not read."""
        held = [(o, capability) for o, capability in enumerate(self.initial) if capability is not None]
        held += [(output, capability) for output, capability, _ in self.parked]
        held += self.spare
        held += [(o, capability) for o, awaited in enumerate(self.awaited) for capability, _ in awaited.values()]
        collected: list[tuple[Location, Time]] = [(Source(self.op, o), flat(capability.time)) for o, capability in held]
        for i, port in enumerate(self.inputs):
            collected += [(Target(self.op, i), flat(message[0])) for message in port.queue]
        return collected


class Cluster:
    """A plan on as many simulated workers as it asks for."""

    def __init__(self, plan: Plan, choices: Choices, *, sharing: bool) -> None:
        self.plan = plan
        self.graph = FlatGraph(plan.nesting)
        self.network = Network(plan.workers)
        self.checker = InvariantChecker(self.network)
        transports = [self.network.transport(worker) for worker in range(plan.workers)]
        self.workers = [SimulatedWorker(transport, None, self.checker) for transport in transports]
        self.received: Received = {}
        self.relays: list[dict[int, Forwarder] | None] = [None] * plan.workers
        self._exchanged: list[Target] = []
        self._choices = choices
        self._sharing = sharing

    def build(self, index: int) -> None:
        """Build the dataflow on one worker."""
        relays: dict[int, Forwarder] = {}

        def make(
            op: int, inputs: list[InputPort[Any, Any]], capabilities: list[Capability[Any]], info: OperatorInfo
        ) -> Callable[..., object]:
            relays[op] = Forwarder(self.plan, index, op, inputs, capabilities, info, self._choices, self.received)
            return relays[op].logic

        self._exchanged = build_nesting(self.plan.nesting, self.workers[index], make, sharing=self._sharing)
        self.relays[index] = relays

    # -- what is true, and what the operators have been shown ------------------------------------------------------------

    def stamps(self) -> list[tuple[Location, Time]]:
        """Return all pointstamps there are; a worker that has not built yet will hold every capability at the minimum."""
        collected: list[tuple[Location, Time]] = []
        for relays in self.relays:
            if relays is None:
                for op, spec in enumerate(self.plan.nesting.ops):
                    minimum = self.plan.nesting.minimum(spec.scope)
                    collected += [(Source(op, o), minimum) for o in range(spec.outputs)]
            else:
                for relay in relays.values():
                    collected += relay.stamps()
        for _, message in self.network.messages():
            if isinstance(message, DataMessage):
                collected.append((self._exchanged[message.channel], flat(message.time)))
        return collected

    def true(self) -> Mapping[Location, set[Time]]:
        return self.graph.frontiers(self.stamps())

    def shown(self) -> list[tuple[int, Target, set[Time]]]:
        """Return ``(worker, input, frontier)`` for every input that is shown one."""
        return [
            (worker, Target(op, i), {flat(time) for time in port.frontier})
            for worker, relays in enumerate(self.relays)
            for op, relay in (relays or {}).items()
            for i, port in enumerate(relay.inputs)
            if relay.spec.observes[i]
        ]

    def check_safety(self) -> None:
        """Check that whatever is true anywhere, every worker's frontiers still allow (Z1, Z2)."""
        true = self.true()
        for worker, target, times in self.shown():
            for time in true[target]:
                allowed = any(below(shown, time) for shown in times)
                assert allowed, f"worker {worker} was shown {times} at {target}; {time} may come"

    def check_precision(self) -> None:
        """Check that every worker's frontiers are those of the flat graph, now that all have received all."""
        true = self.true()
        for worker, target, times in self.shown():
            assert times == true[target], f"worker {worker} was shown {times} at {target}, which is at {true[target]}"

    # -- running ---------------------------------------------------------------------------------------------------------

    def step(self, index: int) -> None:
        self.workers[index].step()
        self.check_safety()

    def act(self) -> None:
        """Do one thing, somewhere."""
        index = self._choices.below(len(self.workers))
        relays = self.relays[index]
        deed = self._choices.below(6)
        waiting = self.network.waiting()
        if relays is None and deed == 0:
            self.build(index)
        elif deed <= 2 and waiting:
            source, target = self._choices.among(waiting)
            self.network.deliver(source, target, self._choices.among([1, 1, 2, 100]))
        elif deed == 3 and relays:
            self._choices.among(list(relays.values())).allow(1 + self._choices.below(2))
        else:
            self.step(index)

    def settle(self) -> None:
        """Deliver everything and step everybody until nothing moves any more."""
        for _ in range(300):
            self.network.deliver_all()
            for index in range(len(self.workers)):
                self.step(index)
            if self.network.quiet and all(worker.idle for worker in self.workers):
                return
        raise AssertionError("the workers never come to rest")

    def finish(self) -> None:
        """Let everybody build, send and drop all there is; then everything must be complete (Z5)."""
        for index, relays in enumerate(self.relays):
            if relays is None:
                self.build(index)
        for _ in range(60):
            self.settle()
            self.check_precision()
            if not any(worker.dataflows for worker in self.workers):
                break
            for relays in self.relays:
                for relay in (relays or {}).values():
                    relay.allow(20)
        assert not any(worker.dataflows for worker in self.workers), "some dataflow never completes (Z5)"
        self.checker.check_end()
        assert not any(times for _, _, times in self.shown())
        assert not self.stamps()
