"""Unordered inputs, by the id of the conformance list (2.12), with what their capabilities allow and hold back."""

from __future__ import annotations

import random
import weakref

import pytest

import timely
from timely import Antichain, CapabilityError, StalledError


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
