"""Sessions that set and delete keys."""

from __future__ import annotations

import random
from typing import Any

import pytest

import timely
from timely import differential as dd
from timely.errors import CapabilityError, RoutingError, TimestampError

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
