"""Operators, by the ids of docs/conformance.md. The input is 0..9 at time 0 unless a test says otherwise."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import timely
from timely import Antichain, Capability, CapabilityError, OperatorError, Pipeline, Product, RoutingError, ScopeBuilder, Stream
from timely.operators.results import Err, Ok, and_then, err, map_err, map_ok, ok, unwrap_or_else
from timely.testing import simulate

Build = Callable[[Stream[int, int]], Stream[int, Any]]


def run(build: Build) -> list[tuple[int, list[Any]]]:
    """What comes out of ``build`` over the records 0..9."""
    return timely.example(lambda scope: build(scope.to_stream(range(10))))


def arrivals(build: Callable[[ScopeBuilder[int]], Stream[int, Any]]) -> list[Any]:
    """The records that come out of ``build``, in the order in which they came."""
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        seen = build(scope).capture()
    worker.run()
    return [record for _, batch in seen.messages for record in batch]


def test_P1_inspect_sees_all_in_order() -> None:
    seen: list[int] = []
    assert run(lambda s: s.inspect(seen.append)) == [(0, list(range(10)))]
    assert seen == list(range(10))


def test_P2_inspect_time_and_batch() -> None:
    times: list[tuple[int, int]] = []
    batches: list[tuple[int, int]] = []
    run(lambda s: s.inspect_time(lambda t, x: times.append((t, x))).inspect_batch(lambda t, b: batches.append((t, len(b)))))
    assert times == [(0, x) for x in range(10)]
    assert batches == [(0, 10)]


def test_P3_map() -> None:
    assert arrivals(lambda scope: scope.to_stream(range(10)).map(lambda x: x + 1)) == list(range(1, 11))


def test_P3_map_in_place() -> None:
    def add_one(batch: list[int]) -> list[int]:
        batch[:] = [x + 1 for x in batch]
        return batch

    numbers = list(range(10))
    assert arrivals(lambda scope: scope.to_stream(numbers).map_batch(add_one)) == list(range(1, 11))
    assert numbers == list(range(10))


def test_P4_flat_map() -> None:
    [(time, records)] = run(lambda s: s.flat_map(range))
    assert time == 0
    assert Counter(records) == {v: 9 - v for v in range(9)}
    assert len(records) == 45


def test_P4_flat_map_of_nothing_sends_nothing() -> None:
    assert run(lambda s: s.flat_map(lambda x: ())) == []


def test_P5_a_chain_of_maps() -> None:
    outputs = run(lambda s: s.flat_map(lambda x: [x + 1]).map(lambda x: x + 1).map(lambda x: x + 1).map(lambda x: x + 1))
    assert outputs == [(0, list(range(4, 14)))]


def test_P6_filter() -> None:
    assert arrivals(lambda scope: scope.to_stream(range(10)).filter(lambda x: x % 2 == 0)) == [0, 2, 4, 6, 8]


@pytest.mark.parametrize("which", range(3))
def test_P7_partition(which: int) -> None:
    assert run(lambda s: s.partition(3, lambda x: (x % 3, x))[which]) == [(0, list(range(which, 10, 3)))]


@pytest.mark.parametrize("route", [3, -1])
def test_P7_a_route_that_is_not_there_fails(route: int) -> None:
    with pytest.raises(OperatorError, match=f"says stream {route}, and there are 0 to 2") as failure:
        run(lambda s: s.partition(3, lambda x: (route, x))[0])
    assert isinstance(failure.value.__cause__, RoutingError)
    assert failure.value.name == "partition"


def test_P9_branch() -> None:
    assert run(lambda s: s.branch(lambda x: x % 2 == 0)[0]) == [(0, [1, 3, 5, 7, 9])]
    assert run(lambda s: s.branch(lambda x: x % 2 == 0)[1]) == [(0, [0, 2, 4, 6, 8])]


def delayed_to_itself(stream: Stream[int, int]) -> Stream[int, int]:
    """Each record x at time x, by an operator of one's own."""

    def constructor(initial: Capability[int], info: timely.OperatorInfo) -> Callable[[Any, Any], object]:
        def logic(input: Any, output: Any) -> None:
            for capability, batch in input:
                for record in batch:
                    output.session(capability.delayed(record)).give(record)

        return logic

    return stream.unary(Pipeline, "delay", constructor)


def test_P10_branch_when() -> None:
    def which(side: int) -> list[tuple[int, list[Any]]]:
        return run(lambda s: delayed_to_itself(s).branch_when(lambda t: t >= 5)[side])

    assert which(0) == [(x, [x]) for x in range(5)]
    assert which(1) == [(x, [x]) for x in range(5, 10)]


def test_P11_each_record_at_its_own_time() -> None:
    assert run(delayed_to_itself) == [(x, [x]) for x in range(10)]


def test_P13_concat() -> None:
    assert run(lambda s: s.concat(s)) == [(0, sorted([*range(10)] * 2))]
    assert run(lambda s: s.scope.concatenate([s, s, s])) == [(0, sorted([*range(10)] * 3))]
    assert run(lambda s: s.concat()) == [(0, list(range(10)))]
    assert timely.example(lambda scope: scope.concatenate([])) == []


@pytest.mark.parametrize(("workers", "processes"), [(1, 1), (2, 1), (3, 1), (1, 2), (2, 2)])
def test_P14_exchange(workers: int, processes: int) -> None:
    def program(worker: timely.Worker) -> list[tuple[int, list[int]]]:
        with worker.dataflow(int) as scope:
            seen = scope.to_stream(range(10)).exchange(lambda x: x).capture()
        worker.run()
        return seen.extract()

    w = workers * processes
    results = timely.execute(program, workers=workers, processes=processes)
    assert results == [[(0, sorted([*range(index, 10, w)] * w))] for index in range(w)]


def test_P20_to_stream_of_a_range_and_of_a_list() -> None:
    assert timely.example(lambda s: s.to_stream(range(3))) == timely.example(lambda s: s.to_stream([0, 1, 2])) == [(0, [0, 1, 2])]


def test_P20_to_stream_of_more_than_one_activation() -> None:
    many = timely.operators.program_inputs.CHUNK * 2 + 1
    assert arrivals(lambda scope: scope.to_stream(iter(range(many)))) == list(range(many))
    assert timely.example(lambda scope: scope.to_stream(())) == []


def test_P22_records_that_cannot_be_copied_pass_as_they_are() -> None:
    class Unique:
        def __copy__(self) -> Unique:
            raise AssertionError("copied")

        __deepcopy__ = __reduce__ = __copy__  # type: ignore[assignment]  # none of the ways to copy it

    one = Unique()
    assert arrivals(lambda scope: scope.to_stream([one]).map(lambda x: x).exchange(id))[0] is one


def test_P23_empty() -> None:
    def panic(record: Any) -> None:
        raise AssertionError("never called")

    assert timely.example(lambda scope: scope.empty().inspect(panic)) == []


@pytest.mark.parametrize("batches", [False, True])
def test_P25_sending_epoch_by_epoch(batches: bool) -> None:
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        handle, stream = scope.new_input()
        seen = stream.capture()
    for i in range(10):
        if batches:
            handle.send_batch([str(i)])
        else:
            handle.send(i)
        handle.advance_to(i + 1)
        worker.step()
    handle.close()
    worker.run()
    assert seen.messages == [(i, [str(i) if batches else i]) for i in range(10)]


def test_P26_a_source_that_activates_itself() -> None:
    def constructor(capability: Capability[int], info: timely.OperatorInfo) -> Callable[[Any], object]:
        def logic(output: Any) -> None:
            if capability.held:
                output.session(capability).give(capability.time)
                capability.downgrade(capability.time + 1)
                info.activator.activate()
                if capability.time > 21:
                    capability.drop()

        return logic

    assert arrivals(lambda scope: scope.source("source", constructor)) == list(range(22))


def test_P27_a_source_with_coarser_times_than_records() -> None:
    """0..100000 in batches of 10, each record x at time x / 100 * 100."""

    def constructor(capability: Capability[int], info: timely.OperatorInfo) -> Callable[[Any], object]:
        starts = iter(range(0, 100_000, 10))

        def logic(output: Any) -> None:
            start = next(starts, None)
            if start is None:
                capability.drop()
            else:
                capability.downgrade(start // 100 * 100)
                output.session(capability).give_batch([(x, x) for x in range(start, start + 10)])
                info.activator.activate()

        return logic

    outputs = timely.example(lambda scope: scope.source("iterator", constructor))
    assert outputs == [(time, [(x, x) for x in range(time, time + 100)]) for time in range(0, 100_000, 100)]


def test_P28_regions_and_iterative_scopes_pass_records_through() -> None:
    times: list[Any] = []

    def through(scope: ScopeBuilder[int], opened: Any) -> Stream[int, int]:
        with opened as inner:
            return scope.to_stream(range(9)).enter(inner).inspect_time(lambda t, x: times.append(t)).leave()

    opening: list[tuple[Callable[[ScopeBuilder[int]], Any], Any]] = [
        (lambda scope: scope.region(), 0),
        (lambda scope: scope.iterative(), Product(0, 0)),
        (lambda scope: scope.scoped(Product[int, int]), Product(0, 0)),
    ]
    for opens, time in opening:
        times.clear()
        assert timely.example(lambda scope: through(scope, opens(scope))) == [(0, list(range(9)))]  # noqa: B023  # called at once
        assert times == [time] * 9


@pytest.mark.parametrize(("workers", "processes"), [(1, 1), (3, 1), (1, 2)])
def test_P29_progress_crosses_scopes_without_operators(workers: int, processes: int) -> None:
    def program(worker: timely.Worker) -> list[int]:
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            with scope.region() as outer, outer.region() as inner:
                through = stream.enter(outer).enter(inner).leave().leave()
            seen: list[int] = []
            probe = through.inspect(seen.append).probe()
        for i in range(10):
            if worker.index == 0:
                handle.send(i)
            handle.advance_to(i + 1)
            while probe.less_than(handle.time):
                if worker.peers == 1:
                    worker.step()
                else:
                    worker.step_or_park(None)
        return seen

    results = timely.execute(program, workers=workers, processes=processes)
    assert results == [list(range(10)), *[[]] * (workers * processes - 1)]


def messages(build: Build) -> list[tuple[int, Any]]:
    """The messages that come out of ``build`` over the records 0..9, in the order in which they came."""
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        seen = build(scope.to_stream(range(10))).capture()
    worker.run()
    return seen.messages


def test_P2_inspect_progress_reports_each_move_before_later_data() -> None:
    seen: list[Any] = []
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        handle, stream = scope.new_input()
        stream.inspect_progress(lambda time, batch: seen.append((time, batch)), seen.append)
    handle.advance_to(3)
    worker.step()
    handle.send("a")
    handle.advance_to(5)
    worker.step()
    worker.step()  # it sees the frontier in the step after it has read what held that back
    handle.close()
    worker.run()
    assert seen == [Antichain([3]), (3, ["a"]), Antichain([5]), Antichain()]


def test_P8_ok_err() -> None:
    def even(x: int) -> Ok[int] | Err[int]:
        return Ok(x) if x % 2 == 0 else Err(x)

    assert run(lambda s: s.ok_err(even)[0]) == [(0, [0, 2, 4, 6, 8])]
    assert run(lambda s: s.ok_err(even)[1]) == [(0, [1, 3, 5, 7, 9])]


def test_P8_what_is_neither_is_an_error() -> None:
    with pytest.raises(OperatorError, match="expected an Ok or an Err, and got 0"):
        run(lambda s: s.ok_err(lambda x: x)[0])  # type: ignore[arg-type, return-value]  # that is what is tested


def test_P11_delay_gives_one_batch_for_each_time() -> None:
    assert messages(lambda s: s.delay(lambda x, time: x)) == [(x, [x]) for x in range(10)]
    assert messages(lambda s: s.delay(lambda x, time: time + x // 4)) == [(0, [0, 1, 2, 3]), (1, [4, 5, 6, 7]), (2, [8, 9])]
    assert messages(lambda s: s.delay_batch(lambda time: time + 1)) == [(1, list(range(10)))]


def test_P11_delays_add_up() -> None:
    outputs = run(
        lambda s: s.delay(lambda x, time: x).delay_batch(lambda time: time // 3 * 3 + 3).delay(lambda x, time: time + x)
    )
    assert outputs == [(time, [x]) for time, x in sorted((x // 3 * 3 + 3 + x, x) for x in range(10))]


@pytest.mark.parametrize("first", [5, 9])
def test_P12_delay_to_an_earlier_time_fails(first: int) -> None:
    def build(stream: Stream[int, int]) -> Stream[int, int]:
        return stream.delay(lambda x, time: 7).delay(lambda x, time: first if x == 0 else 6)

    with pytest.raises(OperatorError, match=f"'delay' .*{min(first, 6)} is not at or after .*7") as failure:
        run(build)
    assert isinstance(failure.value.__cause__, CapabilityError)


def test_P12_delay_to_an_earlier_time_fails_where_records_wait_for_that_time() -> None:
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        handle, stream = scope.new_input()
        other, others = scope.new_input()
        stream.concat(others).delay(lambda x, time: 6).capture()
    handle.send(1)
    worker.step()
    other.advance_to(8)
    other.send(2)
    with pytest.raises(OperatorError, match="2 at 8 cannot be delayed to 6"):
        worker.step()


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_P14_broadcast(workers: int) -> None:
    def program(worker: timely.Worker) -> Counter[int]:
        with worker.dataflow(int) as scope:
            seen = scope.to_stream(range(10)).broadcast().capture()
        worker.run()
        return Counter(x for _, batch in seen.messages for x in batch)

    expected = [Counter(dict.fromkeys(range(10), workers))] * workers
    assert timely.execute(program, workers=workers) == expected
    assert simulate(program, workers, seed=workers).results == expected


def test_P15_accumulate_and_count() -> None:
    assert run(lambda s: s.accumulate(0, operator.add)) == [(0, [45])]
    assert run(lambda s: s.accumulate("", lambda text, x: text + str(x))) == [(0, ["0123456789"])]
    assert run(lambda s: s.count()) == [(0, [10])]


def test_P15_only_times_that_have_data_are_answered() -> None:
    assert run(lambda s: s.filter(lambda x: x > 10).count()) == []
    assert run(lambda s: s.delay(lambda x, time: x // 5 * 50).count()) == [(0, [5]), (50, [5])]
    assert run(lambda s: s.delay(lambda x, time: x // 5 * 50).accumulate(1, lambda n, x: n * (x + 1))) == [
        (0, [120]),
        (50, [30240]),
    ]


def test_P15_count_of_other_containers() -> None:
    np = pytest.importorskip("numpy")
    assert run(lambda s: s.map_batch(np.array).count()) == [(0, [10])]


def append(key: int, value: int, values: list[int] | None) -> list[int]:
    return [*(values or []), value]


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_P16_aggregate(workers: int) -> None:
    def program(worker: timely.Worker) -> tuple[Any, Any]:
        with worker.dataflow(int) as scope:
            pairs = scope.to_stream(range(worker.index, 10, worker.peers)).map(lambda x: (x % 2, x))
            sums = pairs.aggregate(lambda k, x, total: (total or 0) + x, lambda k, total: (k, total)).capture()
            sizes = pairs.aggregate(append, lambda k, values: (k, len(values)), key=lambda k: k + 1).capture()
        worker.run()
        return sums.extract(), sizes.extract()

    results = timely.execute(program, workers=workers)
    assert [x for sums, _ in results for _, batch in sums for x in batch] == [(0, 20), (1, 25)]
    assert sorted(x for _, sizes in results for _, batch in sizes for x in batch) == [(0, 5), (1, 5)]
    if workers == 2:  # dealt by the key, and by the key and one
        assert [sums for sums, _ in results] == [[(0, [(0, 20)])], [(0, [(1, 25)])]]
        assert [sizes for _, sizes in results] == [[(0, [(1, 5)])], [(0, [(0, 5)])]]


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_P17_state_machine(workers: int) -> None:
    def running_sum(key: int, value: int, total: int | None) -> tuple[int, list[tuple[int, int]]]:
        total = (total or 0) + value
        return total, [(key, total)]

    def program(worker: timely.Worker) -> list[tuple[int, int]]:
        with worker.dataflow(int) as scope:
            numbers = scope.to_stream(range(10) if worker.index == 0 else [])
            seen = numbers.map(lambda x: (x % 2, x)).state_machine(running_sum).capture()
        worker.run()
        return [x for _, batch in seen.extract() for x in batch]

    results = timely.execute(program, workers=workers)
    expected = [(0, 0), (0, 2), (0, 6), (0, 12), (0, 20), (1, 1), (1, 4), (1, 9), (1, 16), (1, 25)]
    assert sorted(x for share in results for x in share) == expected


def test_P21_fan_out_shares_the_objects() -> None:
    class Unique:
        pass

    seen: dict[str, list[Any]] = {"one": [], "two": []}
    batches: dict[str, list[Any]] = {"one": [], "two": []}
    record = Unique()

    def reading(name: str) -> Callable[..., Any]:
        def constructor(capability: Any, info: Any) -> Callable[..., object]:
            def logic(input: Any, output: Any) -> None:
                for _, batch in input:
                    batches[name].append(batch)
                    seen[name].extend(batch)

            return logic

        return constructor

    def build(scope: timely.ScopeBuilder[int]) -> Stream[int, Any]:
        stream = scope.to_stream([record])
        return stream.unary(Pipeline, "one", reading("one")).concat(stream.unary(Pipeline, "two", reading("two")))

    timely.example(build)
    assert seen["one"] == seen["two"] == [record]
    assert batches["one"][0] is batches["two"][0]


@pytest.mark.parametrize(
    ("workers", "processes", "expected"),
    [
        (1, 1, [[0, 1, 2, 3, 4]]),
        (2, 1, [[0, 2, 4], [1, 3, 5, 7]]),
        (1, 2, [[0, 2, 4], [1, 3, 5, 7]]),
    ],
)
def test_X3_the_distinct_operator(workers: int, processes: int, expected: list[list[int]]) -> None:
    def program(worker: timely.Worker) -> list[Any]:
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            seen = stream.distinct().capture()
        for x in [0, 1, 2, 2, 2, 3, 3, 4] if worker.index == 0 else [0, 0, 3, 4, 4, 5, 7, 7]:
            handle.send(x)
        handle.close()
        worker.run()
        return [x for _, records in seen.extract() for x in records]

    assert timely.execute(program, workers=workers, processes=processes) == expected


def made_of(records: list[Any], operator: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What ``operator`` makes of the records, in order of arrival."""
    return arrivals(lambda scope: operator(scope.to_stream(records), *arguments))


@pytest.mark.parametrize(
    ("operator", "arguments", "expected"),
    [
        (ok, (), [0]),
        (err, (), [()]),
        (map_ok, (lambda _: 10,), [Ok(10), Err(())]),
        (map_err, (lambda _: 10,), [Ok(0), Err(10)]),
        (and_then, (lambda _: Ok(1),), [Ok(1), Err(())]),
        (and_then, (lambda x: Err(x),), [Err(0), Err(())]),
        (unwrap_or_else, (lambda _: 10,), [0, 10]),
    ],
)
def test_P18_result_operators(operator: Callable[..., Any], arguments: tuple[Any, ...], expected: list[Any]) -> None:
    assert made_of([Ok(0), Err(())], operator, *arguments) == expected


results = st.builds(Ok, st.integers()) | st.builds(Err, st.text())


@given(st.lists(results))
def test_P18_a_function_for_one_kind_never_sees_the_other(records: list[Any]) -> None:
    values = [record.value for record in records if isinstance(record, Ok)]
    errors = [record.error for record in records if isinstance(record, Err)]
    seen: list[Any] = []
    assert made_of(records, ok) == values
    assert made_of(records, err) == errors
    made_of(records, map_ok, seen.append)
    made_of(records, map_err, seen.append)

    def note(value: int) -> Ok[int]:
        seen.append(value)
        return Ok(value)

    made_of(records, and_then, note)
    made_of(records, unwrap_or_else, seen.append)
    assert seen == values + errors + values + errors


def test_P18_a_record_of_neither_kind_is_an_error() -> None:
    operators: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [(ok, ()), (err, ()), (map_ok, (str,)), (map_err, (str,))]
    operators += [(and_then, (Ok,)), (unwrap_or_else, (str,))]
    for function, arguments in operators:
        with pytest.raises(OperatorError, match="expected an Ok or an Err, and got 5"):
            made_of([Ok(1), 5], function, *arguments)


def test_P18_results_are_values() -> None:
    assert {Ok(1), Ok(1), Err(1)} == {Err(1), Ok(1)}
    assert len({Ok(1), Err(1)}) == 2
    assert sorted([Ok(2), Ok(1)]) == [Ok(1), Ok(2)]
