"""C and I: sessions that change a collection from outside, and those that set and delete keys."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

import timely
from timely import Worker
from timely import differential as dd
from timely.errors import CapabilityError, RoutingError, TimelyError, TimestampError

Run = Callable[..., Any]


def opened(worker: Worker) -> tuple[dd.InputSession[int, Any], dd.Output[int, Any], Any]:
    with worker.dataflow(int) as scope:
        session, collection = dd.new_collection(scope)
        return session, collection.output(), collection.probe()


def stepped(worker: Worker) -> None:
    while not worker.idle:
        worker.step()


def test_DD_C1_insert_and_remove_as_time_advances() -> None:
    with Worker() as worker:
        session, output, _ = opened(worker)
        for record in range(10):
            session.insert(record)
        session.insert(3)
        session.advance_to(1)
        session.insert(5)
        session.advance_to(2)
        session.remove(5)
        session.advance_to(3)
        ten = [(record, 0, 1) for record in range(10) if record != 3]
        assert output.changes() == [*sorted([*ten, (3, 0, 2)]), (5, 1, 1), (5, 2, -1)]
        assert output.at(0) == {**dict.fromkeys(range(10), 1), 3: 2}
        assert output.at(1)[5] == 2 and output.at(2)[5] == 1
        session.close()


def test_DD_C2_one_update_of_three_equals_three_inserts(run: Run) -> None:
    assert run(lambda c: c, [("x", 0, 3)]) == run(lambda c: c, [("x", 0, 1)] * 3) == [("x", 0, 3)]


def test_DD_C3_going_back_is_an_error_and_sends_nothing() -> None:
    with Worker() as worker:
        session, output, _ = opened(worker)
        session.advance_to(5)
        with pytest.raises(TimelyError, match="is not at or after it"):
            session.advance_to(4)
        with pytest.raises(TimelyError, match="is not at or after it"):
            session.update_at("r", 3, 1)
        assert session.time == 5
        session.close()
        assert output.changes() == []


def test_DD_C4_an_update_of_a_later_time_holds_nothing_up() -> None:
    with Worker() as worker:
        session, output, probe = opened(worker)
        session.advance_to(5)
        session.update_at("r", 7, 1)
        session.insert("now")
        session.advance_to(6)
        stepped(worker)
        assert not probe.less_than(6) and output.changes() == [("now", 5, 1)]
        session.close()
        assert output.changes() == [("now", 5, 1), ("r", 7, 1)]


def test_DD_C5_a_record_that_never_was(run: Run) -> None:
    changes = [(("r", 1), 1, -1)]
    assert run(lambda c: c, changes) == changes
    assert run(lambda c: c.map(lambda pair: pair[0]), changes) == [("r", 1, -1)]
    assert run(lambda c: c.concat(c), changes) == [(("r", 1), 1, -2)]
    assert run(lambda c, d: c.join(d), changes, [(("r", "x"), 0, 3)]) == [(("r", (1, "x")), 1, -3)]


def test_DD_C6_closing_sends_what_waits() -> None:
    with Worker() as worker:
        session, output, probe = opened(worker)
        session.insert("a")
        session.close()
        assert output.changes() == [("a", 0, 1)] and probe.done()
    with Worker() as worker:
        session, output, probe = opened(worker)
        with session:
            session.insert("a")
        assert output.changes() == [("a", 0, 1)] and probe.done()


def test_DD_C6_flush_ends_a_batch() -> None:
    sizes: list[int] = []
    with Worker() as worker:
        with worker.dataflow(int) as scope:
            session, collection = dd.new_collection(scope)
            collection.stream.inspect_batch(lambda time, batch: sizes.append(len(batch)))
        for record in "abcde":
            session.insert(record)
            if record == "b":
                session.flush()
                session.flush()
        session.close()
        worker.run()
    assert sizes == [2, 3]


def test_DD_C6_an_output_is_done_when_all_is_complete() -> None:
    with Worker() as worker:
        session, output, _ = opened(worker)
        done = [output.done]
        session.insert("a")
        acts: list[Callable[[], object]] = [lambda: session.advance_to(1), session.close]
        for act in acts:
            act()
            done.append(output.done)
            stepped(worker)
            done.append(output.done)
        assert done == [False, False, False, False, True]
        assert output.at(0) == {"a": 1}


def test_DD_C7_only_advance_to_moves_the_frontier() -> None:
    with Worker() as worker:
        session, _, probe = opened(worker)
        session.insert("a")
        session.flush()
        stepped(worker)
        assert probe.less_equal(0)
        session.advance_to(4)
        stepped(worker)
        assert not probe.less_than(4) and probe.less_equal(4)
        session.close()


CALLS: list[tuple[int, str, str | None]] = [
    (3, "frank", "mcsherry"),
    (4, "frank", "zappa"),
    (5, "frank", None),
    (9, "frank", "oz"),
    (11, "frank", "oz"),
    (15, "frank", None),
]
EXPECTED = [
    (("frank", "mcsherry"), 3, 1),
    (("frank", "mcsherry"), 4, -1),
    (("frank", "zappa"), 4, 1),
    (("frank", "zappa"), 5, -1),
    (("frank", "oz"), 9, 1),
    (("frank", "oz"), 15, -1),
]


def call(session: Any, key: Any, value: Any) -> None:
    if value is None:
        session.delete(key)
    else:
        session.set(key, value)


@pytest.mark.parametrize("stepped", [False, True])
@pytest.mark.parametrize("workers", [1, 3])
def test_DD_I1_frank(workers: int, stepped: bool) -> None:
    def program(worker: timely.Worker) -> Any:
        with worker.dataflow(int) as scope:
            session, arranged = dd.from_upserts(scope)
            result = arranged.as_collection().output(worker=0)
        for time, key, value in CALLS:
            session.advance_to(time)
            if worker.index == 0:
                call(session, key, value)
            if stepped:
                worker.step()
        session.close()
        worker.run()
        return result.changes()

    assert timely.execute(program, workers=workers)[0] == EXPECTED


def test_DD_I2_deleting_a_key_that_never_was_changes_nothing() -> None:
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            session, arranged = dd.from_upserts(scope)
            result = arranged.as_collection().output()
        session.delete("nobody")
        session.advance_to(1)
        session.set("nobody", 1)
        session.delete("nobody")
        session.close()
        worker.run()
        assert result.changes() == []
        with pytest.raises(CapabilityError):
            session.set("late", 1)


def test_of_one_session_the_last_call_counts_and_of_several_workers_the_greatest_value() -> None:
    def program(worker: timely.Worker) -> Any:
        with worker.dataflow(int) as scope:
            session, arranged = dd.from_upserts(scope)
            result = arranged.as_collection().output(worker=0)
        for value in (9, 100 + worker.index):
            session.set("a", value)
            worker.step()
        call(session, "b", None if worker.index else 1)
        session.advance_to(1)
        if worker.index == 1:
            session.set("a", 5)
        session.delete("b")
        session.close()
        worker.run()
        return result.changes()

    assert timely.execute(program, workers=3)[0] == [
        (("a", 102), 0, 1),
        (("b", 1), 0, 1),
        (("a", 5), 1, 1),
        (("a", 102), 1, -1),
        (("b", 1), 1, -1),
    ]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("workers", [1, 2])
def test_any_calls_give_what_a_dictionary_has(seed: int, workers: int) -> None:
    def program(worker: timely.Worker) -> None:
        chance = random.Random(seed)
        with worker.dataflow(int) as scope:
            session, arranged = dd.from_upserts(scope)
            trace = arranged.trace
            degrees = arranged.as_collection().map(lambda pair: (pair[1], pair[0])).count_by_key().output(worker=0)
            whole = arranged.as_collection().output(worker=0)
        expected: list[dict[Any, Any]] = []
        now: dict[Any, Any] = {}
        for epoch in range(20):
            for _ in range(chance.randrange(4)):
                key, value = chance.randrange(4), chance.choice([None, 1, 2, 3])
                if key % workers == worker.index:
                    call(session, key, value)
                now[key] = value
            expected.append({key: value for key, value in now.items() if value is not None})
            session.advance_to(epoch + 1)
            for _ in range(chance.randrange(3)):
                worker.step()
        session.close()
        worker.run()
        for epoch, held in enumerate(expected):
            mine = {key: {value: 1} for key, value in held.items() if trace.owner(key) == worker.index}
            assert dict(trace.items(at=epoch)) == mine
            if worker.index == 0:
                assert whole.at(epoch) == dict.fromkeys(held.items(), 1)
                values = list(held.values())
                assert degrees.at(epoch) == {(value, values.count(value)): 1 for value in values}

    timely.execute(program, workers=workers)


def test_partial_orders_and_values_without_a_hash_are_refused() -> None:
    worker = timely.Worker()
    with worker.dataflow(timely.Product[int, int]) as scope, pytest.raises(TimestampError, match="totally ordered"):
        dd.from_upserts(scope)
    with worker.dataflow(int) as scope:
        session, _ = dd.from_upserts(scope)
    with pytest.raises(RoutingError, match="hash"):
        session.set("a", [1])
