"""Bounds on what is under way hold at every moment, under every schedule; without them much more is under way."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import timely
from tests.operators.feeding import execute
from timely import CapabilityError, ConfigurationError, GraphError, OperatorError, ProbeHandle


class Outstanding:
    """How much each worker has let through that is not done with anywhere: now, and at most."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now: Counter[int] = Counter()
        self.most: Counter[int] = Counter()

    def more(self, worker: int, records: int = 1) -> None:
        with self._lock:
            self._now[worker] += records
            self.most[worker] = max(self.most[worker], self._now[worker])

    def less(self, worker: int, records: int = 1) -> None:
        with self._lock:
            self._now[worker] -= records


def from_source(outstanding: Outstanding, records: int | None, times: int | None, epochs: int, size: int) -> Any:
    """A program in which each worker sends ``size`` records at each of ``epochs`` times, to be done with on some worker."""

    def program(worker: timely.Worker) -> list[Any]:
        probe: ProbeHandle[int] = ProbeHandle()
        me = worker.index

        def batches() -> Iterator[tuple[int, list[tuple[int, int]]]]:
            for epoch in range(epochs):
                for x in range(size):
                    yield epoch, [(me, x)]

        with worker.dataflow(int) as scope:
            stream = scope.iterator_source("many", batches(), probe, records=records, times=times)
            sent = stream.inspect(lambda record: outstanding.more(record[0]))
            done = sent.exchange(lambda record: record[1]).map(lambda record: record).inspect(lambda x: outstanding.less(x[0]))
            done.probe(probe)
            seen = done.capture()
        worker.run()
        return seen.messages

    return program


@given(st.integers(1, 3), st.integers(1, 3), st.integers(0, 3), st.none() | st.integers(0, 10**6))
def test_iterator_source_bounds_records(workers: int, size: int, spare: int, seed: int | None) -> None:
    outstanding, bound = Outstanding(), size + spare
    results = execute(from_source(outstanding, bound, None, 8, size), workers, seed)
    assert max(outstanding.most.values()) <= bound
    records = Counter((time, record) for messages in results for time, batch in messages for record in batch)
    assert records == Counter((epoch, (w, x)) for epoch in range(8) for w in range(workers) for x in range(size))


@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.none() | st.integers(0, 10**6))
def test_iterator_source_bounds_times(workers: int, size: int, times: int, seed: int | None) -> None:
    outstanding = Outstanding()
    execute(from_source(outstanding, None, times, 8, size), workers, seed)
    assert max(outstanding.most.values()) <= times * size


class Alive:
    """A record that knows how many of its kind there are at once, and at most."""

    now = most = 0

    def __init__(self, number: int) -> None:
        self.number = number
        Alive.now += 1
        Alive.most = max(Alive.most, Alive.now)

    def __del__(self) -> None:
        Alive.now -= 1


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("bound", [2, 6, 40])
def test_iterator_source_bounds_the_records_that_exist(workers: int, bound: int) -> None:
    """Not only what is under way: nothing keeps a record longer, wherever it went. Simulated: one thing happens at a time."""

    def program(worker: timely.Worker) -> list[Any]:
        probe: ProbeHandle[int] = ProbeHandle()
        batches = ((x // 2, [Alive(x)]) for x in range(100))
        with worker.dataflow(int) as scope:
            stream = scope.iterator_source("alive", batches, probe, records=bound)
            numbers = stream.exchange(lambda record: record.number).delay_batch(lambda time: time + 1).map(lambda r: r.number)
            numbers.probe(probe)
            seen = numbers.capture()
        worker.run()
        return seen.messages

    Alive.now = Alive.most = 0
    results = execute(program, workers, seed=bound)
    assert sum(len(batch) for messages in results for _, batch in messages) == 100 * workers
    assert bound < Alive.most <= workers * (bound + 3)  # one is taken ahead, and two are in the hands of whoever runs


@pytest.mark.parametrize("workers", [2, 3])
def test_with_a_wide_bound_more_is_under_way(workers: int) -> None:
    """So that the tests above would see it if a bound did not hold."""
    outstanding = Outstanding()
    execute(from_source(outstanding, 1000, None, 40, 3), workers, seed=1)
    assert min(outstanding.most.values()) > 30


def test_the_iterator_is_not_read_further_than_one_item_ahead() -> None:
    taken: list[int] = []

    def numbers() -> Iterator[tuple[int, list[int]]]:
        for x in range(100):
            taken.append(x)
            yield x, [x]

    worker, probe = timely.Worker(), ProbeHandle[int]()
    with worker.dataflow(int) as scope:
        stream = scope.iterator_source("numbers", numbers(), probe, records=5)
        (_, hold), held = scope.new_unordered_input()
        stream.concat(held).probe(probe)
    for _ in range(10):
        worker.step()
    assert len(taken) == 6
    hold.downgrade(3)
    for _ in range(10):
        worker.step()
    assert len(taken) == 9
    assert worker.idle  # it waits to be woken, and does not spin
    hold.drop()
    worker.run()
    assert len(taken) == 100


def built(**bounds: Any) -> Any:
    def program(batches: Any, attached: bool = True) -> Any:
        worker, probe = timely.Worker(), ProbeHandle[int]()
        with worker.dataflow(int) as scope:
            stream = scope.iterator_source("numbers", batches, probe, **bounds)
            if attached:
                stream.probe(probe)
        worker.run()

    return program


def test_bad_bounds_and_bad_batches_are_typed_errors() -> None:
    with pytest.raises(ConfigurationError, match="'numbers' needs a bound"):
        built()([])
    with pytest.raises(ConfigurationError, match="times=0 lets nothing through"):
        built(times=0)([])
    with pytest.raises(ConfigurationError, match="records='3' lets nothing through"):
        built(records="3")([])
    with pytest.raises(GraphError, match=r"its probe is attached to nothing; call stream\.probe"):
        built(times=1)([], attached=False)
    with pytest.raises(OperatorError, match=r"'numbers' \(.*more than records=3 at time 7") as failure:
        built(records=3)([(6, [0, 1]), (7, [1, 2]), (7, [3, 4])])
    assert isinstance(failure.value.__cause__, ConfigurationError)
    with pytest.raises(OperatorError, match="'numbers'.*cannot downgrade the capability for 7 to 6") as failure:
        built(times=3)([(7, [0]), (6, [1])])
    assert isinstance(failure.value.__cause__, CapabilityError)
