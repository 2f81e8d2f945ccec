"""What an output of several workers holds: each record on one of them, with the count of the whole, and from which time on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import attrs
import pytest

import timely
from tests.differential.epochs import changing
from timely import differential as dd
from timely.recovery import Recovery

EPOCHS = 4
Pairs = dd.Collection[Any, Any]


def in_loop(pairs: Pairs) -> Pairs:
    with pairs.scope.iterative() as loop:
        return pairs.enter(loop).map(lambda pair: pair).leave()


def odd(pairs: Pairs) -> Pairs:
    return pairs.filter(lambda pair: pair[1] % 2)


def odd_and_the_rest(pairs: Pairs) -> Pairs:
    return odd(pairs.arrange_by_key().as_collection()).concat(pairs.distinct().minus(odd(pairs)))


def batched(pairs: Pairs) -> Pairs:
    return dd.from_batches(pairs.to_batches("key long, value long"), "key long, value long", count="count")


PROGRAMS: dict[str, Callable[[Pairs], Pairs]] = {
    "as it came": lambda pairs: pairs,
    "mapped": lambda pairs: pairs.map(lambda pair: (pair[1], pair[0])).negate().negate(),
    "in a loop": in_loop,
    "two placements": odd_and_the_rest,
    "joined": lambda pairs: pairs.join(pairs).map(lambda pair: pair[1]),
    "joined without the key": lambda pairs: pairs.join_map(pairs, lambda key, one, other: (one, key)),
    "semijoin": lambda pairs: pairs.semijoin(pairs.map(lambda pair: pair[0])).filter(lambda pair: True),
    "antijoin": lambda pairs: pairs.antijoin(odd(pairs).map(lambda pair: pair[0])),
    "distinct by a key": lambda pairs: pairs.distinct(key=lambda pair: pair[1]).delay(lambda time: time),
    "distinct, then mapped": lambda pairs: pairs.distinct().map(lambda pair: (pair[0], pair[1])),
    "batches": batched,
}
"""What returns its pairs, of a number and itself; the antijoin leaves the even ones."""


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("name", PROGRAMS)
def test_history_4_each_record_is_on_one_worker(name: str, workers: int, columns: bool) -> None:
    """Worker 0 inserts what another one removes."""
    build = PROGRAMS[name]

    def program(worker: timely.Worker) -> list[dict[Any, int]]:
        with worker.dataflow(int) as scope:
            session, pairs = dd.new_collection(scope)
            output = build(pairs).output()
        followed: dict[int, list[Any]] = {}
        for epoch in range(EPOCHS):
            if worker.index == 0:
                keys = range(200 * epoch, 200 * epoch + 200)
                session.insert_columns(keys, keys) if columns else session.insert_batch(zip(keys, keys, strict=True))
            if worker.index == workers - 1 and epoch:
                for key in range(200 * epoch - 200, 200 * epoch, 3):
                    session.remove((key, key))
            session.advance_to(epoch + 1)
        session.close()
        worker.run()
        output.subscribe(followed.__setitem__)
        assert [change for time in followed for change in sorted(followed[time])] == [
            (key, diff) for key, _, diff in output.changes()
        ]
        return [output.at(time) for time in range(EPOCHS)]

    shares = timely.execute(program, workers=workers)
    for epoch in range(EPOCHS):
        left = [key for key in range(200 * epoch + 200) if key >= 200 * epoch or key % 200 % 3]
        whole = [item for share in shares for item in share[epoch].items()]
        assert sorted(whole) == [((key, key), 1) for key in left if name != "antijoin" or key % 2 == 0]


@pytest.mark.parametrize("workers", [(1, 3), (3, 2), (2, 2)])
@pytest.mark.parametrize("worker", [None, 0])
def test_history_4_on_another_number_of_workers(tmp_path: Path, workers: tuple[int, int], worker: int | None) -> None:
    """Another worker removes after a restart what one has inserted before; some of it waits in the checkpoint."""

    def program(this: timely.Worker, resumed: bool) -> list[dict[Any, int]]:
        with Recovery(this, tmp_path) as recovery:
            with this.dataflow(int) as scope:
                session, numbers = dd.new_collection(scope)
                output = numbers.map(str).output(worker=worker)
            if resumed:
                session.advance_to(1)
                if this.index == this.peers - 1:
                    for number in range(0, 100, 3):
                        session.update(number, -1)
                session.close()
                this.run()
                return [output.at(1), output.at(2)]
            if this.index == 0:
                session.insert_batch(range(100))
                for number in range(100, 200):
                    session.update_at(number, 2, 1)
            session.advance_to(1)
            recovery.checkpoint(1)
            session.close()
            return []

    timely.execute(lambda this: program(this, False), workers=workers[0])
    shares = timely.execute(lambda this: program(this, True), workers=workers[1])
    for time, stop in enumerate((100, 200)):
        whole = [item for share in shares for item in share[time].items()]
        assert sorted(whole) == sorted((str(number), 1) for number in range(stop) if number >= 100 or number % 3)
        assert worker is None or not shares[1 - worker][time]


def test_history_4_records_that_cannot_be_routed() -> None:
    """They are refused with what to do, which then works."""

    class Plain:
        pass

    def program(worker: timely.Worker, build: Callable[[dd.Collection[int, Any]], dd.Output[int, Any]]) -> list[int]:
        with worker.dataflow(int) as scope:
            session, records = dd.new_collection(scope)
            output = build(records.map(lambda number: Plain()))
        session.insert(worker.index)
        session.close()
        worker.run()
        return list(output.at(0).values())

    assert timely.execute(lambda worker: program(worker, lambda records: records.output()), workers=1) == [[1]]
    with pytest.raises(timely.OperatorError, match="exchange into .*output.*a key must be a number"):
        timely.execute(lambda worker: program(worker, lambda records: records.output()), workers=2)
    results = timely.execute(lambda worker: program(worker, lambda records: records.output(worker=0)), workers=2)
    assert results == [[1, 1], []]
    placed = lambda records: records.consolidate(key=lambda record: 1).output()  # noqa: E731
    assert timely.execute(lambda worker: program(worker, placed), workers=2) == [[], [1, 1]]


def following(forgotten: int | None) -> tuple[dd.InputSession[int, int], dd.Output[int, int]]:
    """Return an output of the numbers 0 to 4, each inserted at the epoch of its name and removed two later."""
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        session, numbers = dd.new_collection(scope)
        output = numbers.output()
    for epoch in range(7):
        if epoch < 5:
            session.insert(epoch)
        if epoch >= 2:
            session.remove(epoch - 2)
        session.advance_to(epoch + 1)
    if forgotten is not None:
        output.forget(before=forgotten)
    return session, output


def changed(since: int) -> list[tuple[int, int, int]]:
    moves = [(number, number, 1) for number in range(5)] + [(number, number + 2, -1) for number in range(5)]
    return sorted((move for move in moves if move[1] >= since), key=lambda move: (move[1], move[0]))


@pytest.mark.parametrize("forgotten", [None, 0, 1, 3, 6])
def test_history_1_history_2_history_3_what_is_read_of_what_an_output_remembers(forgotten: int | None) -> None:
    session, output = following(forgotten)
    begins = forgotten or 0
    for time in range(7):
        if time < begins:
            with pytest.raises(dd.CompactedError, match=f"forgotten what it was at {time}: its history begins at {begins}"):
                output.changes(since=time)
            with pytest.raises(dd.CompactedError):
                output.at(time)
            continue
        assert output.changes(since=time) == changed(time)
        assert output.at(time) == {number: 1 for number in range(5) if number <= time < number + 2}
    assert output.changes() == changed(begins)
    followed: list[tuple[int, int, int]] = []
    output.subscribe(lambda time, changes: followed.extend((number, time, diff) for number, diff in sorted(changes)))
    assert followed == changed(begins)
    session.close()


def test_history_2_a_resumed_output_begins_where_its_run_does(tmp_path: Path) -> None:
    for resumed in (False, True):
        worker = timely.Worker()
        with Recovery(worker, tmp_path) as recovery:
            with worker.dataflow(int) as scope:
                session, numbers = dd.new_collection(scope)
                output = numbers.output()
            session.advance_to(2 * resumed)
            for epoch in range(2 * resumed, 2 * resumed + 2):
                session.insert(epoch)
                session.advance_to(epoch + 1)
            if not resumed:
                recovery.checkpoint(2)
            session.close()
            worker.run()
    assert output.changes() == output.changes(since=2) == [(2, 2, 1), (3, 3, 1)] and output.at(2) == {0: 1, 1: 1, 2: 1}
    with pytest.raises(dd.CompactedError):
        output.changes(since=1)


def test_to_forget_less_than_before_is_a_no_op() -> None:
    with changing() as (session, held):
        for epoch, word in enumerate("abcd"):
            session.insert(word)
            session.advance_to(epoch + 1)
        held.forget(before=2)
        held.forget(before=1)
        assert held.at(2) == {"a": 1, "b": 1, "c": 1}
        with pytest.raises(dd.CompactedError):
            held.at(1)


def test_forgetting_at_times_that_cannot_be_compared() -> None:
    times = [timely.Product(a, b) for a, b in product(range(3), range(3))]
    with changing(time=timely.Product[int, int]) as (session, held):
        for time in times:
            session.update_at(tuple(time), time, 1)
        session.close()
        held.forget(before=timely.Product(1, 0))
        held.forget(before=timely.Product(0, 2))
        for time in times:
            if timely.Product(1, 2) <= time:
                assert held.at(time) == {tuple(other): 1 for other in times if other <= time}
            else:
                with contextlib.suppress(dd.CompactedError):
                    assert held.at(time) == {tuple(other): 1 for other in times if other <= time}


@attrs.frozen
class CountedRecord:
    """A record that counts how often records are looked up."""

    number: int
    lookups: ClassVar[list[int]] = []

    def __hash__(self) -> int:
        self.lookups.append(self.number)
        return self.number


def lookups_to_forget(records: int, times: int) -> int:
    """Return how many records an output of so many ``records`` looks up to forget ``times``, each of which changes two."""
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        session, collection = dd.new_collection(scope)
        output = collection.output()
    session.insert_batch(map(CountedRecord, range(records)))
    for time in range(1, times + 1):
        session.advance_to(time)
        session.remove(CountedRecord(time))
        session.insert(CountedRecord(-time))
    session.close()
    output.forget(before=1)
    output.wait(times)
    CountedRecord.lookups.clear()
    output.forget(before=times)
    lookups = len(CountedRecord.lookups)
    expected = {
        record: 1 for record in map(CountedRecord, (*range(records), *range(-times, 0))) if not 0 < record.number <= times
    }
    assert output.at(times) == expected
    return lookups


def test_to_forget_costs_as_much_as_what_changed_in_what_is_forgotten() -> None:
    of_few, of_many, of_more_times = lookups_to_forget(100, 5), lookups_to_forget(10_000, 5), lookups_to_forget(10_000, 50)
    assert 0 < of_few == of_many < of_more_times < 10_000
