"""The simulator objects to each rule that is broken, and names the invariant; a checker that never fires proves nothing (T9)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import attrs
import pytest

import timely
from tests.testing.programs import loops, nested_loops, rounds
from timely.errors import InvariantViolation, ProgressError, TimelyError
from timely.progress import ProgressBatch
from timely.scopes import Subgraph
from timely.testing import Network, Simulation, shrink, simulate
from timely.worker.worker import PROGRESS

PROGRAMS = (loops, nested_loops, rounds)
SEEDS = range(6)

Batch = ProgressBatch[Any]


class Tampered(Network):
    """Breaks a rule of the exchange of progress for the batches from worker 0 to worker 1."""

    def __init__(self, peers: int) -> None:
        super().__init__(peers)
        self.seen = 0
        self.numbers: dict[int, int] = {}

    def send(self, source: int, target: int, message: Any) -> None:
        if (source, target) != (0, 1) or message[0] != PROGRESS:
            super().send(source, target, message)
            return
        self.seen += 1
        for batch in self.tamper(message[2], self.sent[source, target]):
            super().send(source, target, (PROGRESS, message[1], self.renumber(message[1], batch)))

    def tamper(self, batch: Batch, queue: deque[Any]) -> Iterable[Batch]:
        """Return what is sent in place of a batch."""
        raise NotImplementedError

    def renumber(self, dataflow: int, batch: Batch) -> Batch:
        """Return the batch as it is."""
        return batch


class Cunning(Tampered):
    """Numbers the batches anew, so that who receives them cannot tell that anything is amiss."""

    def renumber(self, dataflow: int, batch: Batch) -> Batch:
        number = self.numbers.get(dataflow, 0)
        self.numbers[dataflow] = number + 1
        return attrs.evolve(batch, sequence=number)


class Dropping(Tampered):
    def tamper(self, batch: Batch, queue: deque[Any]) -> Iterable[Batch]:
        return () if self.seen == 2 else (batch,)


class Twice(Tampered):
    def tamper(self, batch: Batch, queue: deque[Any]) -> Iterable[Batch]:
        return (batch, batch) if self.seen == 2 else (batch,)


class Splitting(Tampered):
    def tamper(self, batch: Batch, queue: deque[Any]) -> Iterable[Batch]:
        return [attrs.evolve(batch, updates=(update,)) for update in sorted(batch.updates, key=lambda update: update[1])]


class Forging(Tampered):
    def tamper(self, batch: Batch, queue: deque[Any]) -> Iterable[Batch]:
        if self.seen != 2:
            return (batch,)
        (pointstamp, diff), *rest = batch.updates
        return (attrs.evolve(batch, updates=((pointstamp, diff + 1), *rest)),)


class Reordering(Tampered):
    """Sends each second batch before the one that it should follow."""

    def __init__(self, peers: int) -> None:
        super().__init__(peers)
        self.kept: list[Batch] = []

    def tamper(self, batch: Batch, queue: deque[Any]) -> Iterable[Batch]:
        if not self.kept:
            self.kept = [batch]
            return ()
        (earlier,), self.kept = self.kept, []
        return (batch, earlier)


def cunning(kind: type[Tampered]) -> type[Tampered]:
    """Return the same tampering, with batches numbered anew."""
    return type(f"Cunning{kind.__name__}", (kind, Cunning), {"renumber": Cunning.renumber})


def objections(network: Callable[[int], Network] = Network, workers: int = 2) -> set[str]:
    """Run every program under every seed, and return the invariants that were named, or else the types of the errors."""
    found = set()
    for program in PROGRAMS:
        for seed in SEEDS:
            try:
                simulate(program, workers, seed, network=network)
            except InvariantViolation as violation:
                found.add(violation.invariant)
            except TimelyError as error:
                found.add(type(error).__name__)
            else:
                found.add("none")
    return found


def test_honest_programs_are_not_objected_to() -> None:
    assert objections() == {"none"}


@pytest.mark.parametrize("kind", [Dropping, Twice, Forging, Splitting, Reordering])
def test_plain(kind: type[Tampered]) -> None:
    print(objections(kind))


@pytest.mark.parametrize("kind", [Dropping, Twice, Forging, Splitting, Reordering])
def test_cunning(kind: type[Tampered]) -> None:
    print(objections(cunning(kind)))


def test_send_without_count() -> None:
    def program(worker: timely.Worker) -> None:
        def constructor(capability: Any, info: timely.OperatorInfo) -> Callable[..., object]:
            def logic(input: Any, output: Any) -> None:
                for capability, batch in input:
                    for pusher in output.tee:
                        pusher.push(capability.time, batch, len(batch))

            return logic

        with worker.dataflow(int) as scope:
            scope.to_stream([1, 2, 3]).unary(timely.Pipeline, "smuggler", constructor).exchange(lambda x: x).capture()
        worker.run()

    for workers in (1, 2, 3):
        with pytest.raises(InvariantViolation) as violation:
            simulate(program, workers)
        print(violation.value)


def test_local(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Subgraph.add_edge

    def add_edge(self: Any, source: Any, target: Any, *, local: bool) -> None:
        honest(self, source, target, local=True)

    monkeypatch.setattr(Subgraph, "add_edge", add_edge)
    print(objections(), objections(workers=3))


def test_initial(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Subgraph._count_initial

    def count(self: Any, child: Any, counts: Any) -> None:
        peers, self.peers = self.peers, 1
        honest(self, child, counts)
        self.peers = peers

    monkeypatch.setattr(Subgraph, "_count_initial", count)
    print(objections(), objections(workers=3))
