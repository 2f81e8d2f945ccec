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
from tests.operators.feeding import execute, run, seeds, sizes
from timely import CapabilityError, ConfigurationError, GraphError, OperatorError, ProbeHandle, Product


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


# -- limit_in_flight ---------------------------------------------------------------------------------------------------


def exploding(outstanding: Outstanding, limit: int, records: int, factor: int, epochs: int) -> Any:
    """A program in which each worker makes ``factor`` records of each that it is given, to be done with on some worker."""

    def program(worker: timely.Worker) -> Any:
        me = worker.index

        def explode(some: timely.Stream[Any, int]) -> timely.Stream[Any, Any]:
            many = some.flat_map(lambda x: [(me, x, n) for n in range(factor)]).inspect(lambda x: outstanding.more(x[0]))
            done = many.exchange(lambda x: x[2]).map(lambda x: x).inspect(lambda x: outstanding.less(x[0]))
            return done.filter(lambda x: x[2] == 0).map(lambda x: x[:2])

        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            seen = stream.limit_in_flight(limit, explode).capture()
        for epoch in range(epochs):
            handle.send_batch(list(range(records)))
            handle.advance_to(epoch + 1)
            worker.step()
        handle.close()
        worker.run()
        return Counter((time, record) for time, batch in seen.messages for record in batch)

    return program


@given(st.integers(1, 3), st.integers(1, 4), st.integers(0, 7), st.integers(1, 3), st.none() | st.integers(0, 10**6))
def test_limit_in_flight_bounds_what_a_body_makes(workers: int, limit: int, sent: int, epochs: int, seed: int | None) -> None:
    outstanding = Outstanding()
    results = execute(exploding(outstanding, limit, sent, 5, epochs), workers, seed)
    assert all(most <= limit * 5 for most in outstanding.most.values())
    expected = Counter((epoch, (w, x)) for epoch in range(epochs) for w in range(workers) for x in range(sent))
    assert sum(results, Counter()) == expected


any_times = st.lists(st.tuples(st.builds(Product, st.integers(0, 2), st.integers(0, 2)), st.integers(0, 4)), max_size=15)


def test_a_time_that_is_complete_does_not_wait_behind_one_that_is_open() -> None:
    """A program that sends at the next time, and waits for the one before with that still open, is not kept waiting for ever."""
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        (ahead, first), (behind, second) = scope.new_input(), scope.new_input()
        passed = first.concat(second).limit_in_flight(1, lambda some: some.map(lambda x: x))
        seen, probe = passed.capture(), passed.probe()
    ahead.advance_to(1)
    ahead.send("later")
    worker.step()
    behind.send_batch(["earlier", "and more"])
    behind.advance_to(1)
    for _ in range(10):
        worker.step()
    assert not probe.less_than(1)
    assert seen.extract() == [(0, ["and more", "earlier"]), (1, ["later"])]


def test_a_share_that_waits_for_the_loop_around_to_end_does_not_keep_it_from_that() -> None:
    """What is let in at round 1 cannot be done with before all of round 0 is, since that may come round."""

    def jump(capability: Any, info: timely.OperatorInfo) -> Any:
        def logic(input: Any, output: Any) -> None:
            for came_with, batch in input:
                for x in batch:
                    output.session(came_with.delayed(Product(came_with.time.outer, x))).give(x)

        return logic

    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        handle, stream = scope.new_input()
        with scope.iterative() as loop:
            back, again = loop.feedback()
            some = stream.enter(loop).unary(timely.Pipeline, "jump", jump).concat(again)
            passed = some.limit_in_flight(1, lambda some: some.map(lambda x: x))
            passed.filter(lambda x: False).connect_loop(back)
        seen = passed.leave().capture()
    handle.send(1)
    worker.step()
    handle.send_batch([0, 0])
    handle.close()
    worker.run()
    assert seen.extract() == [(0, [0, 0, 1])]


@given(any_times, st.integers(1, 3), sizes, seeds)
def test_limit_in_flight_in_a_loop_takes_times_in_any_order(sent: list[Any], limit: int, workers: int, seed: int | None) -> None:
    def build(stream: Any) -> Any:
        with stream.scope.iterative() as loop:
            handle, again = loop.feedback()
            numbers = stream.enter(loop).concat(again).exchange(lambda x: x)
            passed = numbers.limit_in_flight(limit, lambda some: some.exchange(lambda x: x + 1))
            passed.filter(bool).map(lambda x: x - 1).connect_loop(handle)
            return passed.leave()

    pairs: Any = Product[int, int]
    [outputs] = run(build, sent, time=pairs, workers=workers, seed=seed)
    assert outputs == Counter((time, y) for time, x in sent for y in range(x + 1))


def test_a_bound_of_a_short_type_counts_beyond_what_that_type_holds() -> None:
    """Of a time that is complete, what is under way at two times before it may be more than the bound, and than 255."""
    np = pytest.importorskip("numpy")
    held: list[Any] = []

    def hold(capability: Any, info: timely.OperatorInfo) -> Any:
        return lambda input, output: held.extend((came_with.retain(), batch) for came_with, batch in input)

    worker = timely.Worker()
    with worker.dataflow(Product[int, int]) as scope:
        (one, first), (two, second) = scope.new_input(), scope.new_input()
        first.concat(second).limit_in_flight(np.uint8(200), lambda some: some.unary(timely.Pipeline, "hold", hold))
    for handle, time in ((one, Product(0, 1)), (two, Product(1, 0))):
        handle.advance_to(time)
        handle.send_batch(list(range(200)))
        handle.advance_to(Product(1, 1))
    one.send("more")
    for handle in (one, two):
        handle.close()
    for _ in range(9):
        worker.step()
    assert [len(batch) for _, batch in held] == [200, 200]


def test_without_a_limit_more_is_made() -> None:
    outstanding = Outstanding()
    execute(exploding(outstanding, 1000, 20, 5, 1), 2, seed=3)
    assert min(outstanding.most.values()) > 50


def test_limit_in_flight_takes_whole_containers_apart() -> None:
    np = pytest.importorskip("numpy")
    sizes: list[int] = []

    def build(scope: timely.ScopeBuilder[int]) -> timely.Stream[int, Any]:
        arrays = scope.to_stream(range(10)).map_batch(np.array)
        return arrays.limit_in_flight(4, lambda some: some.inspect_batch(lambda time, batch: sizes.append(len(batch))))

    assert timely.example(build) == [(0, list(range(10)))]
    assert sizes == [4, 4, 2]
