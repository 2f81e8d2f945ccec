"""The simulator objects to each rule that is broken, and names the invariant; a checker that never fires proves nothing (T9).

Networks and operators that break a rule; ``tests/testing/test_simulator_broken.py`` has engines and workers that do.

White box: it silences single checks, or all, to see that the protocol itself objects, and recognises messages by their type.
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
from timely.testing import INVARIANTS, Network, Simulation, simulate
from timely.testing.checker import InvariantChecker
from timely.worker.worker_messages import DataMessage, ProgressMessage

PROGRAMS = (loops, nested_loops, rounds)
SEEDS = range(6)

Batch = ProgressBatch[Any]


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


NETWORKS: list[tuple[type[Any], set[str]]] = [
    (Dropping, {"X3"}),
    (Repeating, {"X3"}),
    (Forging, {"X3"}),
    (Splitting, {"OC1", "X2"}),
    (SplittingKindly, {"OC1"}),
    (Reordering, {"X2"}),
    (Losing, {"OC3"}),
    (Doubling, {"OC3"}),
]


@pytest.mark.parametrize(("network", "named"), NETWORKS)
def test_T9_messages_that_are_tampered_with(network: type[Any], named: set[str]) -> None:
    assert objections(network) - {"ProgressError"} == named


@pytest.mark.parametrize(("network", "named"), [case for case in NETWORKS if issubclass(case[0], Tampered)])
def test_T9_batches_that_are_tampered_with_and_numbered_anew(network: type[Tampered], named: set[str]) -> None:
    harmless = {"none"} if network is Reordering else set()
    assert objections(cunning(network)) - harmless == named


@pytest.mark.parametrize("network", [Dropping, Repeating, Splitting, SplittingKindly, Reordering])
def test_T9_without_the_checks_of_the_simulator_the_protocol_itself_objects(
    network: type[Tampered], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches may be late, and are then taken in order; one that comes twice or out of order is refused with a typed error."""
    monkeypatch.setattr(InvariantChecker, "check", lambda self, turned: None)
    monkeypatch.setattr(InvariantChecker, "check_end", lambda self: None)
    with pytest.raises(ProgressError, match="expected progress batch"):
        for seed in SEEDS:
            simulate(rounds, 2, seed, network=network)


@pytest.mark.parametrize("change", [cunning, lambda network: network], ids=["numbered anew", "as they are"])
def test_T9_INV_X2_losses_that_are_sent_before_gains(
    change: Callable[[type[Tampered]], type[Tampered]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """That it is said in parts shows first: where nobody minds that, something hangs in the air."""
    silence(monkeypatch, ["OC1"])
    assert "X2" in objections(change(Splitting))
    assert "X2" not in objections(change(SplittingKindly))


def test_T9_I3_capabilities_in_two_batches() -> None:
    """With what is gone in a batch of its own, a new capability comes from nowhere, though none hangs in the air: it is held."""
    for workers in (2, 3):
        assert objections(Splitting, workers, [epochs]) == {"I3"}
        assert objections(SplittingKindly, workers, [epochs]) == {"OC1"}


DEEDS = [
    ("OC3", smuggle, {"I1"}),
    ("I7", smuggle_late, {"I1", "OC3"}),
    ("S0", send_late, {"OC2"}),
    ("OC2", forge, set()),
    ("OC4", overdraw, set()),
    ("OC4", overrate, set()),
    ("I1", read_twice, set()),
    ("G10", pretend, set()),
]


@pytest.mark.parametrize(("named", "deed", "besides"), DEEDS)
def test_T9_operators_that_go_round_the_engine(named: str, deed: Any, besides: set[str]) -> None:
    collected = set()
    for workers in (1, 2, 3):
        for seed in SEEDS:
            with pytest.raises(InvariantViolation) as violation:
                simulate(deceitful(deed), workers, seed)
            collected.add(violation.value.invariant)
    assert {named} <= collected <= {named, *besides}


def test_a_violation_comes_with_what_it_takes_to_see_it_again() -> None:
    run = Simulation(loops, 2, 3, network=Dropping)
    with pytest.raises(InvariantViolation, match="^X3: a worker's view and all that is still to come to it add up") as violation:
        run.run()
    assert violation.value.decisions == tuple(run.decisions)
    assert any("schedules(2)" in note or "runs into it again" in note for note in violation.value.__notes__)
    with pytest.raises(InvariantViolation, match="^X3"):
        simulate(loops, 2, decisions=run.decisions, network=Dropping)


def passing(stream: timely.Stream[int, int], hoard: bool) -> timely.Stream[int, int]:
    """Records as they are; with ``hoard`` the first capability is held until the input is closed."""

    def constructor(capability: Any, info: Any) -> Any:
        held: list[Any] = []
        capability.drop()

        def logic(input: Any, output: Any) -> None:
            for arrived, batch in input:
                with output.session(arrived) as session:
                    session.give_batch(batch)
                if hoard and not held:
                    held.append(arrived.retain())
            if not input.frontier:
                held.clear()

        return logic

    return stream.unary_frontier(timely.Pipeline, "hoarder", constructor)


def program(hoard: bool, wait: bool) -> Callable[[timely.Worker], Any]:
    def run(worker: timely.Worker) -> Any:
        with worker.dataflow(int) as scope:
            numbers, stream = scope.new_input()
            out = passing(stream.exchange(lambda x: x), hoard)
            seen, probe, entered = out.capture(), out.probe(), stream.probe()
        for epoch in range(2):
            numbers.send(epoch + worker.index)
            numbers.advance_to(epoch + 1)
            watched = probe if wait else entered
            worker.step_while(lambda: watched.less_than(epoch + 1))  # noqa: B023  # called at once
        numbers.close()
        worker.run()
        return sorted(record for _, records in seen.extract() for record in records)

    return run


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_T9_INV_L1_a_capability_that_is_held_too_long(workers: int) -> None:
    with pytest.raises(InvariantViolation, match=r"/hoarder#\d+ on worker \d holds a capability at 0 for its output 0") as caught:
        for seed in range(3):
            simulate(program(hoard=True, wait=True), workers, seed, liveness=True)
    assert caught.value.invariant == "L1"


def test_results_do_not_show_it() -> None:
    right = simulate(program(hoard=False, wait=False), 2, 1, liveness=True).results
    assert simulate(program(hoard=True, wait=False), 2, 1).results == right


def test_a_run_that_waits_for_it_ends_soon_and_names_what_is_held() -> None:
    with pytest.raises(StalledError, match=r"in 1001 steps .* a capability of /dataflow0/hoarder#\d+ on worker \d at 0"):
        simulate(program(hoard=True, wait=True), 2)
