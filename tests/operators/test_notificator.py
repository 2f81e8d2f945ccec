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
    delivered_counts: Counter[Any] = Counter()
    for time, count in seen:
        delivered_counts[time] += count
    assert delivered_counts == requests


def delivered(asked: list[Any], then: Any, time: Any = int) -> list[Any]:
    """The times that an operator is told of, which goes through its notificator once more, and then does something, at each."""
    seen: list[Any] = []

    def logic(input: Any, output: Any, notificator: timely.Notificator[Any]) -> None:
        for capability, count in notificator:
            seen.extend([capability.time] * count)
            for within, again in notificator:
                seen.extend([within.time] * again)
            then(notificator, capability)

    worker = timely.Worker()
    with worker.dataflow(time) as scope:
        scope.empty().unary_notify(Pipeline, "nested", asked, logic)
    worker.run()
    return seen


def test_nested_passes_deliver_each_notification_once() -> None:
    asked = [Product(0, 2), Product(1, 1), Product(2, 0), Product(2, 2)]
    seen = delivered(asked, lambda notificator, capability: None, PAIRS)
    assert Counter(seen) == Counter(asked)


def test_requests_made_after_a_nested_pass_are_delivered() -> None:
    def ask(notificator: timely.Notificator[int], capability: timely.Capability[int]) -> None:
        if capability.time < 20:
            for later in (10, 10, 11):
                notificator.notify_at(capability.delayed(capability.time + later))

    assert delivered([1, 2, 3], ask) == [1, 2, 3, 11, 11, 12, 21, 21, 22]


@given(st.lists(times, min_size=1, max_size=8), st.lists(st.sampled_from(["on", "stop", "raise", "other"]), max_size=12))
def test_a_pass_that_stops_early_leaves_the_rest_for_the_next(asked: list[Any], ways: list[str]) -> None:
    """Two notificators of one operator; what is done with each time that is told, while there is something to do, is drawn."""
    seen: Counter[Any] = Counter()
    todo = list(ways)

    def constructor(capabilities: list[Any], info: Any) -> Any:
        with capabilities.pop() as capability:
            for number, time in enumerate(asked):
                notificators[number % 2].notify_at(capability.delayed(time))

        def logic(input: Any, output: Any) -> None:
            for number, notificator in enumerate(notificators):
                try:
                    for capability, count in notificator:
                        seen[capability.time] += count
                        match todo.pop() if todo else "on":
                            case "stop":
                                break
                            case "raise":
                                raise LookupError
                            case "other":
                                for within, again in notificators[1 - number]:
                                    seen[within.time] += again
                                    break
                except LookupError:
                    pass

        return logic

    worker = timely.Worker()
    with worker.dataflow(PAIRS) as scope:
        builder = timely.OperatorBuilder(scope, "two")
        port = builder.new_input(scope.empty(), Pipeline)
        notificators = [timely.Notificator([port]), timely.Notificator([port])]
        probe = builder.new_output().probe()
        builder.build(constructor)
    worker.run()
    assert probe.done()
    assert seen == Counter(asked)
