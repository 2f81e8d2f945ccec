"""What an output has forgotten is refused, and the rest is right."""

from __future__ import annotations

import contextlib
from itertools import product
from typing import ClassVar

import attrs
import pytest

import timely
from tests.differential.epochs import changing
from timely import differential as dd


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
