"""A worker takes in a few batches at a time, whatever its peers are up to, and waits for room only while that can come.

White box: how much a worker takes in ahead of its peers shows in no result.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import timely
from timely.dataflow import OutputSchema
from timely.spark import ingest_pace as module
from timely.spark.ingest_pace import BATCHES, Ingest
from timely.spark.packing import InputTable, column_name, pack, packed_schema
from timely.worker import Worker, thread_transports

ROWS, MANY = 8, 60
TABLES = [InputTable("numbers", None, ("n",)), InputTable("gate", None, ("n",))]
Numbers = timely.Stream[int, Any]
Shape = Callable[[Numbers, Numbers], Numbers]


@pytest.fixture(autouse=True)
def every_byte_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LITTLE", 0)


def batches(many: int = MANY) -> Iterator[pa.RecordBatch]:
    """Batches as Spark sends them where there are two inputs, with rows for the first alone."""
    output = OutputSchema("numbers", pa.schema([("n", pa.int64())]))
    packed = packed_schema([output, OutputSchema("gate", output.schema)])
    for at in range(many):
        yield pack(0, pa.RecordBatch.from_pydict({"n": list(range(at * ROWS, (at + 1) * ROWS))}), packed)


def numbers_of(batch: pa.RecordBatch) -> list[int]:
    return [row[column_name(0)] for row in batch.column(1).to_pylist()]


def open_ingest(worker: Worker, shape: Shape) -> tuple[Ingest, Any]:
    with worker.dataflow(int) as scope:
        (numbers, stream), (gate, opening) = scope.new_input(), scope.new_input()
        seen = shape(stream, opening).map_batch(lambda batch: batch.column("n").to_pylist()).capture()
    return Ingest(worker, [numbers, gate], TABLES), seen


def everything(seen: Any) -> list[int]:
    return sorted(n for _, records in seen.extract() for n in records)


def to_the_first(numbers: Numbers, gate: Numbers) -> Numbers:
    return numbers.map_batch(lambda batch: batch.append_column("to", pa.array([0] * batch.num_rows))).exchange("to")


def close_all(*workers: Worker) -> None:
    """Close workers that stand in one thread: nobody waits for the others to say goodbye."""
    threads = [threading.Thread(target=worker.close) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_no_more_is_ingested_than_a_slow_peer_works_off() -> None:
    slow, quick = (Worker(transport) for transport in thread_transports(2))
    _, seen = open_ingest(slow, to_the_first)
    ingest, _ = open_ingest(quick, to_the_first)
    coming, taken = batches(), 0
    for round in range(1, 4):
        while not ingest.crowded():
            ingest.send(next(coming))
            taken += 1
        assert taken <= round * (2 * BATCHES + 1)
        assert not quick.rest(0.0)
        assert ingest.crowded()
        for _ in range(5):  # now the slow one works off what has come so far
            slow.step()
        quick.rest(0.0)
        assert not ingest.crowded()
    assert everything(seen) == list(range(taken * ROWS))
    close_all(slow, quick)


def test_what_one_worker_alone_works_off_is_never_in_the_way() -> None:
    worker = Worker()
    ingest, seen = open_ingest(worker, lambda numbers, gate: numbers)
    for batch in batches():
        ingest.send(batch)
        assert not ingest.crowded()
    ingest.close()
    worker.run()
    assert everything(seen) == list(range(MANY * ROWS))


def behind(numbers: Numbers, gate: Numbers, busy: bool = False) -> Numbers:
    """An operator that leaves one input unread until the other ends; a busy one asks to be run all the time."""

    def constructor(capability: Any, info: timely.OperatorInfo) -> Callable[[Any, Any, Any], None]:
        def logic(numbers: Any, gate: Any, output: Any) -> None:
            if gate.frontier.less_equal(0):
                if busy:
                    info.activator.activate()
                return
            for cap, batch in numbers:
                output.session(cap).give_batch(batch)

        return logic

    return numbers.binary_frontier(gate, timely.Pipeline, timely.Pipeline, "behind", constructor)


def together(shape: Shape, shares: list[int]) -> list[int]:
    """Take in so many batches on each worker, each in a thread of its own; return what came out."""
    collected: list[list[int]] = [[] for _ in shares]
    failed: list[BaseException] = []

    def work(index: int, transport: Any) -> None:
        try:
            with Worker(transport) as worker:
                ingest, seen = open_ingest(worker, shape)
                for batch in batches(shares[index]):
                    ingest.send(batch)
                    while ingest.crowded():
                        ingest.wait(0.05)
                ingest.close()
                while worker.run_step(0.05):
                    pass
                collected[index] = everything(seen)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=each) for each in enumerate(thread_transports(len(shares)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(600)
    assert failed == []
    return sorted(n for part in collected for n in part)


@pytest.mark.parametrize("shares", [[12], [12, 12], [12, 0, 3]], ids=str)
def test_an_operator_that_waits_for_all_of_its_input_gets_it(shares: list[int]) -> None:
    """Nobody waits for ever, and no peer that has nothing more to do takes the run for one that has stalled."""
    wanted = sorted(n for many in shares for batch in batches(many) for n in numbers_of(batch))
    assert together(lambda numbers, gate: behind(to_the_first(numbers, gate), gate), shares) == wanted


@pytest.mark.parametrize("shares", [[12], [6, 5]], ids=str)
def test_one_that_is_never_idle_gets_it_too(monkeypatch: pytest.MonkeyPatch, shares: list[int]) -> None:
    monkeypatch.setattr(module, "PATIENT_STEPS", 20)
    wanted = sorted(n for many in shares for batch in batches(many) for n in numbers_of(batch))
    assert together(lambda numbers, gate: behind(numbers, gate, busy=True), shares) == wanted


def test_rows_of_several_tables_enter_at_their_epochs() -> None:
    worker = Worker()
    with worker.dataflow(int) as scope:
        handle, stream = scope.new_input()
        seen = stream.map_batch(lambda batch: batch.column("n").to_pylist()).capture()
    ingest = Ingest(worker, [handle], [InputTable("numbers", "day")])
    ingest.send(pa.RecordBatch.from_pydict({"day": [0, 0, 3], "n": [1, 2, 3]}))
    ingest.send(pa.RecordBatch.from_pydict({"day": [3, 5], "n": [4, 5]}))
    ingest.close()
    worker.run()
    assert seen.extract() == [(0, [1, 2]), (3, [3, 4]), (5, [5])]
