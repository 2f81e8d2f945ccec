"""Ways to break a rule on purpose, for the tests of those who are to notice: networks, operators, and checks that look away.

White box: it silences single checks and recognises messages by their type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import attrs
import pytest

import timely
from tests.testing.programs import loops, nested_loops, rounds
from timely.dataflow import Session
from timely.errors import InvariantViolation, ProgressError, StalledError
from timely.progress import ProgressBatch
from timely.testing import INVARIANTS, Network, Simulation
from timely.testing.checker import InvariantChecker
from timely.worker.worker_messages import DataMessage, ProgressMessage

PROGRAMS = (loops, nested_loops, rounds)
SEEDS = range(6)

Batch = ProgressBatch[Any]

interpreted = pytest.mark.skipif(timely.compiled, reason="what is compiled calls its own methods, whatever is put in their place")
"""For a test that puts something in the place of a method of the engine."""


def objections(
    network: type[Network] = Network,
    workers: int = 2,
    programs: Sequence[Callable[[timely.Worker], Any]] = PROGRAMS,
    seeds: Sequence[int] = SEEDS,
) -> set[str]:
    """Run every program under every seed, and return what was named where the rule came to be broken."""
    return {name for program in programs for seed in seeds if (name := objection(program, workers, seed, network))}


def objection(program: Callable[[timely.Worker], Any], workers: int, seed: int, network: type[Network] = Network) -> str | None:
    """Run a program, and return what was named: "none" if a rule was broken and nobody objected, ``None`` if none was broken."""
    run = Simulation(program, workers, seed, network=network)
    try:
        run.run()
    except InvariantViolation as violation:
        assert violation.invariant in INVARIANTS
        assert violation.decisions
        return violation.invariant
    except (ProgressError, StalledError) as error:
        return type(error).__name__
    return "none" if getattr(run.network, "broken", True) else None


def is_named(
    named: str,
    network: type[Network],
    programs: Sequence[Callable[[timely.Worker], Any]] = PROGRAMS,
    workers: Sequence[int] = (2, 3),
) -> bool:
    """Run programs until one is objected to by this name, and return whether one was."""
    runs = ((program, count, seed) for seed in range(20) for count in workers for program in programs)
    return any(objection(*run, network) == named for run in runs)


def silence(monkeypatch: pytest.MonkeyPatch, invariants: Iterable[str]) -> None:
    """Have nothing said of some invariants, to see who objects where those fail to whom a fault shows first."""
    silent = frozenset(invariants)
    raise_first, note = InvariantChecker._raise_first, InvariantChecker._note

    def audible(check: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        return ((invariant, result) for invariant, result in check if invariant not in silent)

    monkeypatch.setattr(InvariantChecker, "_raise_first", lambda self, check: raise_first(self, audible(check)))

    def note_audible(self: InvariantChecker, number: int, invariant: str, result: str) -> None:
        if invariant not in silent:
            note(self, number, invariant, result)

    monkeypatch.setattr(InvariantChecker, "_note", note_audible)


def epochs(worker: timely.Worker) -> None:
    """Nothing is sent: inputs go from one epoch to the next."""
    with worker.dataflow(int) as scope:
        numbers, stream = scope.new_input()
        probe = stream.probe()
    for epoch in range(1, 4):
        numbers.advance_to(epoch)
        worker.step_while(lambda: probe.less_than(epoch))  # noqa: B023  # called at once
    numbers.close()
    worker.run()


# -- networks ----------------------------------------------------------------------------------------------------------


class Tampered(Network):
    """Breaks a rule of the exchange of progress for the batches from worker 0 to worker 1."""

    cunning = False
    """Whether batches are numbered anew as they arrive, so that who receives them cannot tell that anything is amiss."""

    def __init__(self, peers: int) -> None:
        super().__init__(peers)
        self.seen = 0
        self.broken = False
        self.numbers: dict[int, int] = {}

    def send(self, source: int, target: int, message: Any) -> None:
        if (source, target) != (0, 1) or not isinstance(message, ProgressMessage):
            super().send(source, target, message)
            return
        self.seen += 1
        sent = list(self.tamper(message.batch))
        self.broken |= sent != [message.batch]
        for batch in sent:
            super().send(source, target, ProgressMessage(message.dataflow, batch))

    def tamper(self, batch: Batch) -> Iterable[Batch]:
        """Return what is sent in place of a batch."""
        return (batch,)

    def deliver(self, source: int, target: int, count: int = 1) -> int:
        arrived = super().deliver(source, target, count)
        if self.cunning and (source, target) == (0, 1):
            inbox = self.inboxes[target]
            for place in range(len(inbox) - arrived, len(inbox)):
                _, message = inbox[place]
                if isinstance(message, ProgressMessage):
                    number = self.numbers.get(message.dataflow, 0)
                    self.numbers[message.dataflow] = number + 1
                    inbox[place] = (source, ProgressMessage(message.dataflow, attrs.evolve(message.batch, sequence=number)))
        return arrived


def cunning(network: type[Tampered]) -> type[Tampered]:
    """The same, numbered anew."""
    return type("Cunning", (network,), {"cunning": True})


class Dropping(Tampered):
    def tamper(self, batch: Batch) -> Iterable[Batch]:
        return () if self.seen == 2 else (batch,)


class Repeating(Tampered):
    def tamper(self, batch: Batch) -> Iterable[Batch]:
        return (batch, batch) if self.seen == 2 else (batch,)


class Forging(Tampered):
    def tamper(self, batch: Batch) -> Iterable[Batch]:
        if self.seen != 2:
            return (batch,)
        (pointstamp, diff), *rest = batch.updates
        return (attrs.evolve(batch, updates=((pointstamp, diff + 1), *rest)),)


class Splitting(Tampered):
    """Says first what is gone, and then what has come."""

    def tamper(self, batch: Batch) -> Iterable[Batch]:
        return [attrs.evolve(batch, updates=(update,)) for update in sorted(batch.updates, key=lambda update: update[1])]


class SplittingKindly(Tampered):
    """Says first what has come, and then what is gone, so that nobody is deceived."""

    def tamper(self, batch: Batch) -> Iterable[Batch]:
        parts = [[update for update in batch.updates if (update[1] > 0) == come] for come in (True, False)]
        return [attrs.evolve(batch, updates=tuple(part)) for part in parts if part]


class Reordering(Tampered):
    """Lets a batch overtake the one before it, where that is still on its way."""

    def send(self, source: int, target: int, message: Any) -> None:
        super().send(source, target, message)
        queue = self.sent[0, 1]
        if (source, target) == (0, 1) and len(queue) > 1 and type(queue[-1]) is type(queue[-2]) is ProgressMessage:
            queue[-1], queue[-2] = queue[-2], queue[-1]
            self.broken = True


class Losing(Network):
    """Loses the second message with records."""

    copies = 0

    def __init__(self, peers: int) -> None:
        super().__init__(peers)
        self.seen = 0

    def send(self, source: int, target: int, message: Any) -> None:
        self.seen += isinstance(message, DataMessage)
        times = self.copies if isinstance(message, DataMessage) and self.seen == 2 else 1
        for _ in range(times):
            super().send(source, target, message)

    @property
    def broken(self) -> bool:
        return self.seen >= 2


class Doubling(Losing):
    """Delivers the second message with records twice."""

    copies = 2


# -- operators that go round the engine --------------------------------------------------------------------------------


def deceitful(deed: Callable[[Any, Any, Any], None]) -> Callable[[timely.Worker], None]:
    """Return a program in which an operator does ``deed(capability, input, output)`` with each batch."""

    def program(worker: timely.Worker) -> None:
        with worker.dataflow(int) as scope:
            numbers, stream = scope.new_input()
            builder = timely.OperatorBuilder(scope, "deceitful")
            builder.new_input(stream, timely.Pipeline)
            output = builder.new_output()

            def constructor(capabilities: list[Any], info: timely.OperatorInfo) -> Callable[..., object]:
                capabilities.clear()

                def logic(input: Any, output: Any) -> None:
                    for capability, _ in input:
                        deed(capability, input, output)

                return logic

            builder.build(constructor)
            output.exchange(lambda x: x).sink(timely.Pipeline, "end", lambda info: drain)
        for epoch in range(3):
            numbers.send(1 - worker.index)
            numbers.advance_to(epoch + 1)
            worker.step()
        numbers.close()
        worker.run()

    return program


def drain(input: Any) -> None:
    for _ in input:
        pass


def smuggle(capability: Any, input: Any, output: Any) -> None:
    """Send without a capability, and without being counted."""
    for pusher in output.tee:
        pusher.push(capability.time, [0, 1], 2)


def smuggle_late(capability: Any, input: Any, output: Any) -> None:
    """The same, at a time that is over, to whom reads it later."""
    info = output.operator.info
    if capability.time == 2:
        for pusher in output.tee:
            pusher.push(0, [info.worker + 1], 1)


def send_late(capability: Any, input: Any, output: Any) -> None:
    """Send without a capability at a time that is over."""
    if capability.time == 2:
        session = Session(output, 0)
        session.give(0)
        session.close()


def forge(capability: Any, input: Any, output: Any) -> None:
    """Make a capability for a time before."""
    if capability.time:
        output.session(timely.Capability(capability.time - 1, output)).give(0)


def overdraw(capability: Any, input: Any, output: Any) -> None:
    """Give up a capability that nobody has."""
    output.capabilities.update_at(output.number, capability.time, -1)


def overrate(capability: Any, input: Any, output: Any) -> None:
    """Count one capability for two."""
    output.capabilities.update_at(output.number, capability.time, 2)


def read_twice(capability: Any, input: Any, output: Any) -> None:
    """Count a message as read again."""
    input._messages.update_at(input.number, capability.time, -1)


def pretend(capability: Any, input: Any, output: Any) -> None:
    """Show a frontier that nobody has."""
    input.elements.append(99)
