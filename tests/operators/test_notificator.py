"""The order of notifications, with many of them at once, and with requests made while they are delivered."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import timely
from timely import Pipeline, Product

PAIRS: Any = Product[int, int]
times = st.builds(Product, st.integers(0, 3), st.integers(0, 3))


@given(st.lists(times, max_size=10), st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=6))
def test_no_time_comes_after_a_later_one_that_was_asked_for(asked: list[Any], again: list[tuple[int, int]]) -> None:
    """Everything is complete when the first notification comes; each of them asks for one more, as long as there are some."""
    seen: list[tuple[Any, int]] = []
    requests = Counter(asked)
    steps = list(again)

    def logic(input: Any, output: Any, notificator: timely.Notificator[Any]) -> None:
        for capability, count in notificator:
            pending = [time for time, _ in notificator.pending()]
            assert not any(time < capability.time for time in pending)
            seen.append((capability.time, count))
            if steps:
                outer, inner = steps.pop()
                later = Product(capability.time.outer + outer, capability.time.inner + inner)
                requests[later] += 1
                notificator.notify_at(capability.delayed(later))

    worker = timely.Worker()
    with worker.dataflow(PAIRS) as scope:
        scope.empty().unary_notify(Pipeline, "asks", asked, logic)
    worker.run()
    told: Counter[Any] = Counter()
    for time, count in seen:
        told[time] += count
    assert told == requests


def test_many_times_at_once_come_in_order() -> None:
    seen: list[int] = []

    def logic(input: Any, output: Any, notificator: timely.Notificator[int]) -> None:
        for capability, batch in input:
            for record in batch:
                notificator.notify_at(capability.delayed(record))
        seen.extend(capability.time for capability, _ in notificator)

    numbers = [x * 7919 % 5000 for x in range(5000)]
    timely.example(lambda scope: scope.to_stream(numbers).unary_notify(Pipeline, "many", [], logic))
    assert seen == list(range(5000))
