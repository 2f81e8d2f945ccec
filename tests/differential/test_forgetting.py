"""What an output has forgotten is refused, and the rest is right."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

import timely
from timely import differential as dd


def test_to_forget_less_than_before_is_a_no_op() -> None:
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        session, words = dd.new_collection(scope)
        held = words.output()
    for epoch, word in enumerate("abcd"):
        session.insert(word)
        session.advance_to(epoch + 1)
    held.forget(before=2)
    held.forget(before=1)
    assert held.at(2) == {"a": 1, "b": 1, "c": 1}
    with pytest.raises(dd.CompactedError):
        held.at(1)
    session.close()


def test_forgetting_at_times_that_cannot_be_compared() -> None:
    times = [timely.Product(a, b) for a, b in product(range(3), range(3))]
    worker = timely.Worker()
    with worker.dataflow(timely.Product[int, int]) as scope:
        session, records = dd.new_collection(scope)
        held = records.output()
    for time in times:
        session.update_at(tuple(time), time, 1)
    session.close()
    held.forget(before=timely.Product(1, 0))
    held.forget(before=timely.Product(0, 2))
    for time in times:
        expected: dict[Any, int] = {tuple(other): 1 for other in times if other <= time}
        try:
            accumulated_output = held.at(time)
        except dd.CompactedError:
            assert not timely.Product(1, 2) <= time
        else:
            assert accumulated_output == expected
