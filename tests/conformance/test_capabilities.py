"""Capabilities, notificators and unordered inputs, by the ids of docs/conformance.md."""

from __future__ import annotations

import copy
import pickle
import random
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import timely
from timely import Antichain, Capability, CapabilityError, OperatorBuilder, OperatorError, Pipeline, StalledError, Step


def two_outputs(
    scope: timely.ScopeBuilder[int], logic: Callable[[list[Capability[int]], Any, Any], object]
) -> timely.Stream[int, Any]:
    """An operator without inputs and with two outputs, whose logic also gets its initial capabilities."""
    builder = OperatorBuilder(scope, "two")
    first, second = builder.new_output(), builder.new_output()

    def constructor(capabilities: list[Capability[int]], info: timely.OperatorInfo) -> Callable[..., object]:
        return lambda one, two: logic(capabilities, one, two)

    builder.build(constructor)
    return first.concat(second)


def with_capability(deed: Callable[[Capability[int], Any], object]) -> list[tuple[int, list[Any]]]:
    """Run ``deed(capability, output)`` once, in a source, and return what it sent."""

    def constructor(capability: Capability[int], info: timely.OperatorInfo) -> Callable[[Any], object]:
        def logic(output: Any) -> None:
            if capability.held:
                try:
                    deed(capability, output)
                finally:
                    capability.drop()

        return logic

    return timely.example(lambda scope: scope.source("deed", constructor))


@pytest.mark.parametrize("crossing", [0, 1])
def test_K1_a_capability_of_one_output_is_refused_at_another(crossing: int) -> None:
    def crossed(capabilities: list[Capability[int]], one: Any, two: Any) -> None:
        (two, one)[crossing].session(capabilities[crossing]).give(1)

    with pytest.raises(OperatorError, match="each output needs one of its own") as failure:
        timely.example(lambda scope: two_outputs(scope, crossed))
    assert isinstance(failure.value.__cause__, CapabilityError)
    assert failure.value.name == "two"


def test_K2_matching_capabilities_are_accepted() -> None:
    def matched(capabilities: list[Capability[int]], one: Any, two: Any) -> None:
        while capabilities:
            two.session(capabilities[-1]).give("second")
            capabilities.pop().drop()
            one.session(capabilities[-1]).give("first")
            capabilities.pop().drop()

    assert timely.example(lambda scope: two_outputs(scope, matched)) == [(0, ["first", "second"])]


def test_K3_delaying_and_downgrading() -> None:
    def deed(capability: Capability[int], output: Any) -> None:
        capability.downgrade(5)
        assert capability.delayed(7).time == 7
        assert capability.delayed(5).time == 5
        with pytest.raises(CapabilityError, match="not at or after"):
            capability.delayed(4)
        with pytest.raises(CapabilityError, match="not at or after"):
            capability.downgrade(4)
        assert capability.time == 5
        assert capability.held
        output.session(capability).give("x")

    assert with_capability(deed) == [(5, ["x"])]


def test_K3_a_dropped_capability_allows_nothing() -> None:
    def deed(capability: Capability[int], output: Any) -> None:
        capability.drop()
        capability.drop()
        for refused in (lambda: capability.delayed(9), lambda: capability.downgrade(9), lambda: output.session(capability)):
            with pytest.raises(CapabilityError, match="dropped"):
                refused()

    assert with_capability(deed) == []


def test_K3_a_deep_copy_is_one_more_capability() -> None:
    def deed(capability: Capability[int], output: Any) -> None:
        [[copied]] = copy.deepcopy([[capability]])
        copied.downgrade(3)
        assert (capability.time, copied.time) == (0, 3)
        capability.drop()
        output.session(copied).give("x")
        copied.drop()

    assert with_capability(deed) == [(3, ["x"])]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dropped", [False, True])
def test_K3_a_capability_does_not_leave_its_worker(dropped: bool) -> None:
    def deed(capability: Capability[int], output: Any) -> None:
        if dropped:
            capability.drop()
        where = "" if dropped else r"output 0 of operator 'deed' \(/example/deed#0\): "
        with pytest.raises(CapabilityError, match=f"^{where}the capability for 0 cannot be pickled"):
            pickle.dumps([capability])

    assert with_capability(deed) == []


def through(summaries: dict[int, Antichain[Any]], deed: Callable[[Any, Any], object]) -> list[tuple[int, list[Any]]]:
    """Send 1 at time 0 through an operator whose output has these summaries; ``deed(capability, output)`` handles it."""

    def build(scope: timely.ScopeBuilder[int]) -> timely.Stream[int, Any]:
        builder = OperatorBuilder(scope, "through")
        builder.new_input(scope.to_stream([1]), Pipeline)
        output = builder.new_output(summaries)

        def constructor(capabilities: list[Capability[int]], info: timely.OperatorInfo) -> Callable[..., object]:
            capabilities.clear()

            def logic(input: Any, output: Any) -> None:
                for capability, _ in input:
                    deed(capability, output)

            return logic

        builder.build(constructor)
        return output

    return timely.example(build)


def test_K5_a_disconnected_output_refuses() -> None:
    def deed(capability: Any, output: Any) -> None:
        with pytest.raises(CapabilityError, match="disconnected"):
            capability.delayed(3)
        with pytest.raises(CapabilityError):
            capability.retain()
        with pytest.raises(CapabilityError):
            output.session(capability)

    assert through({0: Antichain()}, deed) == []


def test_K5_an_advancing_output_takes_what_the_summary_allows() -> None:
    def deed(capability: Any, output: Any) -> None:
        for refused in (lambda: capability.delayed(2), capability.retain, lambda: output.session(capability)):
            with pytest.raises(CapabilityError):
                refused()
        output.session(capability.delayed(3)).give("three")
        output.session(capability.delayed(4)).give("four")

    assert through({0: Antichain([Step(3)])}, deed) == [(3, ["three"]), (4, ["four"])]


def test_N4_notifications_at_the_next_time() -> None:
    seen: list[tuple[int, int]] = []

    def logic(input: Any, output: Any, notificator: timely.Notificator[int]) -> None:
        for capability, _ in input:
            notificator.notify_at(capability.delayed(capability.time + 1))
        for capability, count in notificator:
            seen.append((capability.time, count))

    assert timely.example(lambda scope: scope.to_stream(range(10)).unary_notify(Pipeline, "n", [0], logic)) == []
    assert seen == [(0, 1), (1, 1)]


def test_N5_pending_is_in_order_and_counts() -> None:
    seen: list[list[tuple[int, int]]] = []

    def logic(input: Any, output: Any, notificator: timely.Notificator[int]) -> None:
        for capability, _ in input:
            for later in (7, 3, 7):
                notificator.notify_at(capability.delayed(later))
            seen.append(notificator.pending())
        for _ in notificator:
            pass

    timely.example(lambda scope: scope.to_stream([1]).unary_notify(Pipeline, "n", [5], logic))
    assert seen == [[(3, 1), (5, 1), (7, 2)]]


def drive_two(build: Callable[[timely.Stream[int, int], timely.Stream[int, int]], timely.Stream[int, Any]]) -> list[Any]:
    """Send i-1 at time i-1 on both inputs for i = 1..9, close, and return what came out, by time."""
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        left, lefts = scope.new_input()
        right, rights = scope.new_input()
        seen = build(lefts, rights).capture()
    for i in range(1, 10):
        for handle in (left, right):
            handle.send(i - 1)
            handle.advance_to(i)
        worker.step()
    left.close()
    right.close()
    worker.run()
    return seen.extract()


def test_N6_binary_frontier_with_a_notificator() -> None:
    def constructor(initial: Capability[int], info: timely.OperatorInfo) -> Callable[..., object]:
        initial.drop()
        stash: dict[int, tuple[Capability[int], list[int]]] = {}

        def logic(left: Any, right: Any, output: Any) -> None:
            for input in (left, right):
                for capability, batch in input:
                    if capability.time not in stash:
                        stash[capability.time] = (capability.retain(), [])
                    stash[capability.time][1].extend(batch)
            for time in sorted(stash):
                if not left.frontier.less_equal(time) and not right.frontier.less_equal(time):
                    held, records = stash.pop(time)
                    output.session(held).give(tuple(records))
                    held.drop()

        return logic

    result = drive_two(lambda left, right: left.binary_frontier(right, Pipeline, Pipeline, "n", constructor))
    assert result == [(t, [(t, t)]) for t in range(9)]


def test_N7_binary_notify_comes_after_the_data_of_both() -> None:
    events: list[tuple[str, int]] = []

    def logic(left: Any, right: Any, output: Any, notificator: timely.Notificator[int]) -> None:
        for input in (left, right):
            for capability, batch in input:
                events.extend(("data", x) for x in batch)
                notificator.notify_at(capability.retain())
        for capability, count in notificator:
            assert count == 2
            events.append(("notified", capability.time))

    assert drive_two(lambda left, right: left.binary_notify(right, Pipeline, Pipeline, "n", [], logic)) == []
    assert [time for kind, time in events if kind == "notified"] == list(range(9))
    for time in range(9):
        before = events[: events.index(("notified", time))]
        assert sorted(x for kind, x in before if kind == "data" and x <= time) == sorted([*range(time + 1)] * 2)


def late_hundred(emit: int, *, frontiers: bool) -> Callable[[Capability[int], timely.OperatorInfo], Callable[..., object]]:
    """An operator that sends ``emit`` once at time 12, and forwards what it reads."""

    def constructor(capability: Capability[int], info: timely.OperatorInfo) -> Callable[..., object]:
        held = [capability.delayed(12)]
        capability.drop()

        def logic(*ports: Any) -> None:
            output = ports[-1]
            if held:
                output.session(held[0]).give(emit)
                held.pop().drop()
            for input in ports[:-1]:
                for capability, batch in input:
                    if not frontiers:
                        output.session(capability).give_many(batch)

        return logic

    return constructor


def test_N8_a_delayed_capability_sends_without_being_notified() -> None:
    outputs = timely.example(
        lambda scope: scope.to_stream(range(10)).unary_frontier(Pipeline, "late", late_hundred(12, frontiers=True))
    )
    assert outputs == [(12, [12])]


def test_N9_a_delayed_capability_beside_forwarded_input() -> None:
    late = late_hundred(100, frontiers=False)
    assert timely.example(lambda scope: scope.to_stream(range(10)).unary(Pipeline, "late", late)) == [
        (0, list(range(10))),
        (12, [100]),
    ]
    late = late_hundred(100, frontiers=False)

    def both(scope: timely.ScopeBuilder[int]) -> timely.Stream[int, Any]:
        return scope.to_stream(range(10)).binary(scope.to_stream(range(10)), Pipeline, Pipeline, "late", late)

    assert timely.example(both) == [(0, sorted([*range(10)] * 2)), (12, [100])]


def test_X5_unordered_input() -> None:
    seen: list[str] = []
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        (handle, capability), stream = scope.new_unordered_input()
        stream.inspect_batch(lambda time, batch: seen.append(f"{time} -> {batch}"))
    for i in range(10):
        handle.session(capability).give(i)
        capability = capability.delayed(i + 1)
        worker.step()
    capability.drop()
    worker.run()
    assert seen == [f"{i} -> [{i}]" for i in range(10)]


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_X5_times_in_any_order(workers: int) -> None:
    def program(worker: timely.Worker) -> list[tuple[int, list[int]]]:
        with worker.dataflow(int) as scope:
            (handle, capability), stream = scope.new_unordered_input()
            counted = stream.exchange(lambda x: 0).count()
            seen, probe = counted.capture(), counted.probe()
        held = [capability.delayed(time) for time in range(5)]
        capability.drop()
        random.Random(worker.index).shuffle(held)
        while held:
            with held.pop() as one:
                handle.session(one).give_many(range(one.time))
                worker.step()
                assert probe.less_equal(one.time)
        worker.run()
        return seen.extract()

    results = timely.execute(program, workers=workers)
    assert results == [[(time, [time * workers]) for time in range(1, 5)], *[[]] * (workers - 1)]


def test_X5_the_frontier_is_what_the_capabilities_hold() -> None:
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        (handle, capability), stream = scope.new_unordered_input()
        probe = stream.probe()
    late = capability.delayed(7)
    session = handle.session(late)
    capability.downgrade(3)
    worker.step()
    assert probe.frontier() == Antichain([3])
    capability.drop()
    worker.step()
    assert probe.frontier() == Antichain([7])
    with pytest.raises(StalledError, match="unordered_input"):
        worker.run()
    session.give("x")
    late.drop()
    worker.run()
    assert probe.done()


def test_X5_a_session_holds_nothing_by_itself() -> None:
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        (handle, capability), stream = scope.new_unordered_input()
        seen = stream.capture()
    session = handle.session(capability)
    session.give_batch([1, 2])
    capability.downgrade(4)
    with pytest.raises(CapabilityError, match="cannot delay the capability for 4 to 0"):
        session.give(3)
    with pytest.raises(CapabilityError, match="cannot delay the capability for 4 to 0"):
        session.give_many([3])
    with handle.session(capability) as later:
        later.give(3)
    with pytest.raises(CapabilityError, match="this session at 4 ended with its own with-block"):
        later.give(4)
    third = handle.session(capability)
    capability.drop()
    with pytest.raises(CapabilityError, match="dropped"):
        third.give(5)
    worker.run()
    assert seen.messages == [(0, [1, 2]), (4, [3])]


def test_X5_what_nothing_but_an_ended_session_refers_to_is_dropped() -> None:
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        (handle, capability), stream = scope.new_unordered_input()
        seen = stream.capture()
    for i in range(3):
        with handle.session(capability) as session:
            session.give(i)
        capability = capability.delayed(i + 1)
    with handle.session(capability.delayed(7)) as session:
        session.give("last")
    del capability
    worker.run()
    assert seen.extract() == [(0, [0]), (1, [1]), (2, [2]), (7, ["last"])]


def test_X5_a_capability_of_something_else_is_refused_and_loses_nothing() -> None:
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        (handle, capability), stream = scope.new_unordered_input()
        (_, other), _ = scope.new_unordered_input()
        seen = stream.capture()
    handle.session(capability).give("kept")
    with pytest.raises(CapabilityError, match=r"'unordered_input' \(.*#0\).*belongs to output 0 of.*#1"):
        handle.session(other).give("lost")
    other.drop()
    with pytest.raises(CapabilityError, match="was dropped"):
        handle.session(other)
    capability.drop()
    worker.run()
    assert seen.extract() == [(0, ["kept"])]


class Batch(list[int]):
    """A container whose end one can see."""


def test_X5_a_dropped_dataflow_stores_nothing() -> None:
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        (handle, capability), _ = scope.new_unordered_input()
    before, after = Batch([1]), Batch([2])
    references = [weakref.ref(before), weakref.ref(after)]
    session = handle.session(capability)
    session.give_batch(before)
    worker.drop_dataflow(scope)
    session.give_batch(after)
    del before, after
    assert [batch() for batch in references] == [None, None]
