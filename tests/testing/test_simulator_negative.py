"""The simulator objects to each rule that is broken, and names the invariant; a checker that never fires proves nothing (T9)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import attrs
import pytest

import timely
from tests.testing.programs import loops, nested_loops, rounds
from timely.errors import InvariantViolation, ProgressError
from timely.progress import ProgressBatch, Source, Target
from timely.scopes import Subgraph
from timely.testing import INVARIANTS, Network, Simulation, shrink, simulate
from timely.testing.onlooker import Onlooker
from timely.worker.worker import PROGRESS

PROGRAMS = (loops, nested_loops, rounds)
SEEDS = range(6)

Batch = ProgressBatch[Any]


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
        if (source, target) != (0, 1) or message[0] != PROGRESS:
            super().send(source, target, message)
            return
        self.seen += 1
        sent = list(self.tamper(message[2]))
        self.broken |= sent != [message[2]]
        for batch in sent:
            super().send(source, target, (PROGRESS, message[1], batch))

    def tamper(self, batch: Batch) -> Iterable[Batch]:
        """Return what is sent in place of a batch."""
        return (batch,)

    def deliver(self, source: int, target: int, count: int = 1) -> int:
        arrived = super().deliver(source, target, count)
        if self.cunning and (source, target) == (0, 1):
            inbox = self.inboxes[target]
            for place in range(len(inbox) - arrived, len(inbox)):
                _, message = inbox[place]
                if message[0] == PROGRESS:
                    number = self.numbers.get(message[1], 0)
                    self.numbers[message[1]] = number + 1
                    inbox[place] = (source, (PROGRESS, message[1], attrs.evolve(message[2], sequence=number)))
        return arrived


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


class Reordering(Tampered):
    """Lets a batch overtake the one before it, where that is still on its way."""

    def send(self, source: int, target: int, message: Any) -> None:
        super().send(source, target, message)
        queue = self.sent[0, 1]
        if (source, target) == (0, 1) and len(queue) > 1 and queue[-1][0] == queue[-2][0] == PROGRESS:
            queue[-1], queue[-2] = queue[-2], queue[-1]
            self.broken = True


def objections(network: type[Network] = Network, workers: int = 2) -> set[str]:
    """Run every program under every seed, and return the invariants that were named where the rule came to be broken."""
    found = set()
    for program in PROGRAMS:
        for seed in SEEDS:
            run = Simulation(program, workers, seed, network=network)
            try:
                run.run()
            except InvariantViolation as violation:
                assert violation.invariant in INVARIANTS
                assert violation.decisions
                found.add(violation.invariant)
            except ProgressError:
                found.add("ProgressError")
            else:
                if getattr(run.network, "broken", True):
                    found.add("none")
    return found


@pytest.mark.parametrize("workers", [2, 3])
def test_the_honest_are_not_objected_to(workers: int) -> None:
    assert objections(workers=workers) == {"none"}
    assert objections(Tampered, workers) == set()


@pytest.mark.parametrize(
    ("network", "named"),
    [
        (Dropping, {"X3", "ProgressError"}),
        (Repeating, {"X3", "ProgressError"}),
        (Forging, {"X3"}),
        (Splitting, {"X2", "ProgressError"}),
        (Reordering, {"X2", "ProgressError"}),
    ],
)
def test_T9_batches_that_are_tampered_with(network: type[Tampered], named: set[str]) -> None:
    assert objections(network) == named


@pytest.mark.parametrize(
    ("network", "named"),
    [(Dropping, {"X3"}), (Repeating, {"X3"}), (Forging, {"X3"}), (Splitting, {"X2"}), (Reordering, {"X2", "none"})],
)
def test_T9_batches_that_are_tampered_with_and_numbered_anew(network: type[Tampered], named: set[str]) -> None:
    cunning = type("Cunning", (network,), {"cunning": True})
    assert objections(cunning) == named


@pytest.mark.parametrize("network", [Dropping, Repeating, Splitting, Reordering])
def test_T9_without_the_checks_of_the_simulator_the_protocol_itself_objects(
    network: type[Tampered], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Onlooker, "check", lambda self, turned: None)
    monkeypatch.setattr(Onlooker, "check_end", lambda self: None)
    with pytest.raises(ProgressError, match="expected progress batch"):
        for seed in SEEDS:
            simulate(rounds, 2, seed, network=network)


def test_T9_initial_counts_that_are_not_times_the_number_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Subgraph._count_initial

    def count_once(self: Subgraph[Any, Any], child: Any, counts: Any) -> None:
        peers, self.peers = self.peers, 1
        honest(self, child, counts)
        self.peers = peers

    monkeypatch.setattr(Subgraph, "_count_initial", count_once)
    assert objections() == objections(workers=3) == {"X3"}


def test_T9_exchanged_edges_that_are_taken_for_local_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Subgraph.add_edge

    def add_edge(self: Subgraph[Any, Any], source: Source, target: Target, *, local: bool) -> None:
        honest(self, source, target, local=True)

    monkeypatch.setattr(Subgraph, "add_edge", add_edge)
    assert "G9" in objections() <= {"G9", "none"}


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
    for pusher in output.tee:
        pusher.push(capability.time, [0, 1], 2)


def forge(capability: Any, input: Any, output: Any) -> None:
    if capability.time:
        output.session(timely.Capability(capability.time - 1, output)).give(0)


def overdraw(capability: Any, input: Any, output: Any) -> None:
    output.hold(output.number, capability.time, -1)


def overrate(capability: Any, input: Any, output: Any) -> None:
    output.hold(output.number, capability.time, 2)


def pretend(capability: Any, input: Any, output: Any) -> None:
    input.elements.append(99)


DEEDS = [(smuggle, {"OC3", "I1"}), (forge, {"OC2"}), (overdraw, {"OC4"}), (overrate, {"OC4"}), (pretend, {"G10"})]


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize(("deed", "named"), DEEDS)
def test_T9_operators_that_go_round_the_engine(deed: Any, named: set[str], workers: int) -> None:
    for seed in SEEDS:
        with pytest.raises(InvariantViolation) as violation:
            simulate(deceitful(deed), workers, seed)
        assert violation.value.invariant in named


def test_a_violation_comes_with_what_it_takes_to_see_it_again() -> None:
    run = Simulation(loops, 2, 3, network=Dropping)
    with pytest.raises(InvariantViolation, match="^X3: a worker's view and all that is still to come to it add up") as violation:
        run.run()
    assert violation.value.decisions == tuple(run.decisions)
    assert any("shrink" in note or "runs into it again" in note for note in violation.value.__notes__)
    shortest = shrink(loops, run.decisions, workers=2, network=Dropping)
    assert len(shortest) <= len(run.decisions)
    with pytest.raises(InvariantViolation, match="^X3"):
        simulate(loops, 2, decisions=shortest, network=Dropping)
