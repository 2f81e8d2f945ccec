"""What an operator or a program may ask for beside data and frontiers: pacts of one's own, being run again, reading by time, one
input for several streams, observing some inputs only, a scheduler, and capabilities that stay where they are."""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import timely
from tests.operators.feeding import execute, run, seeds, sizes
from timely import (
    Antichain,
    Capability,
    CapabilityError,
    Distribute,
    OperatorBuilder,
    OperatorError,
    OperatorInfo,
    Pipeline,
    Product,
    RoutingError,
    StalledError,
    TimestampError,
    Worker,
)


def pass_on(capability: Any, info: OperatorInfo) -> Callable[[Any, Any], object]:
    """The constructor of an operator that passes everything on."""

    def logic(input: Any, output: Any) -> None:
        for cap, batch in input:
            output.session(cap).give_batch(batch)

    return logic


# -- a pact of one's own ---------------------------------------------------------------------------------------------------

sends = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20)), max_size=20)


def round_robin() -> Callable[[Any, Any, int], list[tuple[int, Any]]]:
    """Deals by what went where before: no key could say that."""
    dealt = 0

    def distribute(time: int, batch: Any, workers: int) -> list[tuple[int, Any]]:
        nonlocal dealt
        parts: list[tuple[int, Any]] = []
        for record in batch:
            parts.append((dealt % workers, [record]))
            dealt += 1
        return parts

    return distribute


@given(sends, sizes, seeds)
def test_a_custom_pact_loses_nothing_and_completes(sent: list[Any], workers: int, seed: int | None) -> None:
    def build(stream: timely.Stream[int, int]) -> Any:
        dealt = stream.unary(Distribute(round_robin()), "dealt", pass_on)
        return dealt, dealt.count()

    records, counted = run(build, sent, workers=workers, seed=seed)
    assert records == Counter(sent)
    assert sum(count * times for (_, count), times in counted.items()) == len(sent)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_a_custom_pact_chooses_the_worker(workers: int) -> None:
    """By time, which no key sees; and all of one worker's go to the next one."""

    def program(worker: Worker) -> list[Any]:
        def next_one(time: int, batch: Any, peers: int) -> list[tuple[int, Any]]:
            return [((worker.index + time) % peers, batch)]

        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            seen = stream.unary(Distribute(next_one), "next", pass_on).capture()
        for time in range(workers):
            handle.advance_to(time)
            handle.send(worker.index)
        handle.close()
        worker.run()
        return seen.extract()

    for result in (timely.execute(program, workers=workers), execute(program, workers, 1)):
        assert result == [[(time, [(w - time) % workers]) for time in range(workers)] for w in range(workers)]


@pytest.mark.parametrize(
    ("distribute", "message"),
    [
        (lambda time, batch, workers: [], r"makes 0 records of 2: it must neither lose nor add any"),
        (lambda time, batch, workers: [(w, batch) for w in range(2)], r"sends to worker 1, and there are 0 to 0"),
        (lambda time, batch, workers: [(0, batch), (0, batch)], r"makes 4 records of 2"),
        (lambda time, batch, workers: [(-1, batch)], r"sends to worker -1"),
        (lambda time, batch, workers: [("me", batch)], r"sends to worker 'me'"),
    ],
)
def test_a_pact_that_loses_or_copies_is_refused(distribute: Any, message: str) -> None:
    """A broadcast as a pact would break progress: more would be consumed than was produced."""
    where = r"exchange into input 0 of operator 'dealt'.*partition\(time, batch, workers\)"
    with pytest.raises(OperatorError, match=f"{where} {message}") as failure:
        timely.example(lambda scope: scope.to_stream([1, 2]).unary(Distribute(distribute), "dealt", pass_on))
    assert isinstance(failure.value.__cause__, RoutingError)


# -- being run again -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_logic_that_returns_true_is_run_again_and_keeps_the_dataflow(workers: int) -> None:
    """Though it holds no capability, has no input, and nobody activates it."""

    def program(worker: Worker) -> tuple[int, list[str]]:
        runs = 0

        def constructor(capability: Capability[int], info: OperatorInfo) -> Callable[[Any], object]:
            def logic(output: Any) -> bool:
                nonlocal runs
                runs += 1
                return runs < 5

            return logic

        with worker.dataflow(int, name="tidying") as scope:
            scope.source("busy", constructor)
        worker.step()
        unfinished = worker.dataflows
        worker.run()
        return runs, unfinished

    for result in (timely.execute(program, workers=workers), execute(program, workers, 2)):
        assert result == [(5, ["tidying"])] * workers


# -- reading by time -------------------------------------------------------------------------------------------------------

times = st.builds(Product, st.integers(0, 2), st.integers(0, 2))


@given(st.lists(st.tuples(times, st.integers(0, 5)), max_size=12))
def test_reading_by_time(sent: list[Any]) -> None:
    """Each time once, with all of its batches in order, never a later one before an earlier."""
    reports: list[tuple[Any, list[int]]] = []

    def constructor(capability: Any, info: OperatorInfo) -> Callable[[Any, Any], object]:
        def logic(input: Any, output: Any) -> None:
            for cap, batches in input.by_time():
                reports.append((cap.time, [x for batch in batches for x in batch]))
                output.session(cap).give_many(reports[-1][1])

        return logic

    time_type: Any = Product[int, int]
    worker = Worker()
    with worker.dataflow(time_type) as scope:
        (handle, capability), stream = scope.new_unordered_input()
        seen = stream.unary(Pipeline, "by time", constructor).capture()
    for time, x in sent:
        handle.session(capability.delayed(time)).give(x)
    capability.drop()
    worker.run()
    expected: dict[Any, list[int]] = {}
    for time, x in sent:
        expected.setdefault(time, []).append(x)
    assert dict(reports) == expected
    assert len(reports) == len(expected)
    assert not any(later < earlier for n, (earlier, _) in enumerate(reports) for later, _ in reports[n:])
    assert Counter((time, x) for time, batch in seen.messages for x in batch) == Counter(sent)


# -- one input for several streams -----------------------------------------------------------------------------------------


class Record:
    """Something that a weak reference can follow."""


def test_records_sent_into_a_dropped_stream_are_released() -> None:
    worker = Worker()
    with worker.dataflow(int) as unwanted:
        handle, _ = unwanted.new_input()
    with worker.dataflow(int) as scope:
        scope.input_from(handle)
    handle.send(Record())
    worker.drop_dataflow(unwanted)
    record = Record()
    followed = weakref.ref(record)
    handle.send(record)
    del record
    worker.step()
    gc.collect()
    assert followed() is None


def test_a_handle_that_cannot_feed_a_scope() -> None:
    worker = Worker()
    with worker.dataflow(int) as scope:
        handle, _ = scope.new_input()
    pairs: Any = Product[int, int]
    with pytest.raises(OperatorError, match="'input'.*0 is not a time of type") as failure, worker.dataflow(pairs) as scope:
        scope.input_from(handle)
    assert isinstance(failure.value.__cause__, TimestampError)
    handle.close()
    with pytest.raises(OperatorError, match="input_from: input 'input'.*was closed") as failure, worker.dataflow(int) as scope:
        scope.input_from(handle)
    assert isinstance(failure.value.__cause__, CapabilityError)


# -- observing some inputs only --------------------------------------------------------------------------------------------


def test_an_operator_observes_the_inputs_that_it_asks_for() -> None:
    """Progress at the other input does not run it, and shows it no frontier."""
    runs: list[Any] = []
    worker = Worker()
    with worker.dataflow(int) as scope:
        (one, left), (two, right) = scope.new_input(), scope.new_input()
        builder = OperatorBuilder(scope, "one-eyed")
        builder.new_input(left, Pipeline)
        builder.new_input(right, Pipeline, notify=False)

        def constructor(capabilities: Any, info: OperatorInfo) -> Callable[[Any, Any], object]:
            def logic(left: Any, right: Any) -> None:
                runs.append(left.frontier)
                with pytest.raises(timely.GraphError, match="input 1 of operator 'one-eyed'.*does not observe its frontier"):
                    right.frontier  # noqa: B018

            return logic

        builder.build(constructor)
    worker.step()
    runs.clear()
    for time in range(1, 4):
        two.advance_to(time)
        worker.step()
    assert runs == []
    one.advance_to(2)
    worker.step()
    assert runs == [Antichain([2])]


# -- a scheduler -----------------------------------------------------------------------------------------------------------


class Urgent:
    """Of the dataflows that have something to do, only the most urgent runs in a step."""

    def __init__(self, worker: Worker, urgency: Sequence[int]) -> None:
        self._worker = worker
        self._urgency = urgency
        self.chosen: list[int] = []

    def choose(self, active: Sequence[int]) -> Sequence[int]:
        self.chosen.append(min(active, key=self._urgency.index))
        return self.chosen[-1:]

    def park(self, timeout: float | None) -> None:
        self._worker.transport.wait(timeout)


@pytest.mark.parametrize("urgency", [[0, 1, 2], [2, 0, 1], [1, 2, 0]])
@pytest.mark.parametrize("workers", [1, 2])
def test_the_most_urgent_dataflow_runs_first(urgency: list[int], workers: int) -> None:
    def program(worker: Worker) -> list[list[Any]]:
        order: list[int] = []

        def looked_at(number: int) -> Callable[[int], object]:
            return lambda x: order.append(number)

        handles = []
        for number in range(3):
            with worker.dataflow(int) as scope:
                handle, stream = scope.new_input()
                stream.inspect(looked_at(number)).probe()
                handles.append(handle)
        while not worker.idle:
            worker.step()
        worker.scheduler = Urgent(worker, urgency)
        for handle in handles:
            handle.send_batch(list(range(3)))
            handle.close()
        worker.run()
        return [order, worker.dataflows]

    expected = [number for number in urgency for _ in range(3)]
    assert timely.execute(program, workers=workers) == [[expected, []]] * workers


def test_a_scheduler_may_be_replaced_and_removed() -> None:
    worker = Worker()
    with worker.dataflow(int) as scope:
        handle, stream = scope.new_input()
        seen = stream.capture()
    scheduler = worker.scheduler = Urgent(worker, [0])
    handle.send(1)
    worker.step()
    assert scheduler.chosen == [0]
    worker.scheduler = None
    handle.send(2)
    worker.step()
    assert scheduler.chosen == [0]
    assert seen.extract() == [(0, [1, 2])]
    with pytest.raises(StalledError, match="close the inputs"):
        worker.run()


# -- capabilities stay where they are --------------------------------------------------------------------------------------


def lending(shelf: list[Any]) -> Any:
    def constructor(capability: Capability[int], info: OperatorInfo) -> Callable[[Any, Any], object]:
        shelf.append(capability)

        def logic(input: Any, output: Any) -> None:
            for cap, batch in input:
                shelf.append(cap.retain())
                shelf.append(cap)
                output.session(cap).give_batch(batch)

        return logic

    return constructor


def using(shelf: list[Any], place: int, use: Callable[[Any, Any], object]) -> Any:
    def constructor(capability: Capability[int], info: OperatorInfo) -> Callable[[Any, Any], object]:
        def logic(input: Any, output: Any) -> None:
            for _ in input:
                use(shelf[place], output)

        return logic

    return constructor


@pytest.mark.parametrize("place", [0, 1, 2], ids=["initial", "retained", "of input"])
def test_a_capability_of_another_operator_opens_no_session(place: int) -> None:
    shelf: list[Any] = []

    def build(scope: timely.ScopeBuilder[int]) -> timely.Stream[int, Any]:
        lent = scope.to_stream([1]).unary(Pipeline, "lender", lending(shelf))
        return lent.unary(Pipeline, "borrower", using(shelf, place, lambda cap, output: output.session(cap).give(2)))

    with pytest.raises(OperatorError, match="output 0 of operator 'borrower'.*'lender'") as failure:
        timely.example(build)
    assert isinstance(failure.value.__cause__, CapabilityError)
    shelf.clear()


def test_what_is_made_from_a_capability_stays_at_its_operator() -> None:
    """Delaying one that was lent makes another for the lender's output, and nothing can be sent with that elsewhere, either."""
    shelf: list[Any] = []

    def build(scope: timely.ScopeBuilder[int]) -> timely.Stream[int, Any]:
        lent = scope.to_stream([1]).unary(Pipeline, "lender", lending(shelf))
        return lent.unary(Pipeline, "borrower", using(shelf, 1, lambda cap, output: output.session(cap.delayed(3))))

    with pytest.raises(OperatorError, match="'borrower'.*the capability for 3 belongs to output 0 of operator 'lender'"):
        timely.example(build)
    shelf.clear()
