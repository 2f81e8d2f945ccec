"""Operators of one's own: capabilities that are kept, dropped or forgotten, sessions, activation, fan-out, sinks, sources."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

import timely
from timely import Antichain, Capability, OperatorInfo, Pipeline, Stream

Logic = Callable[..., object]


Constructor = Callable[[Capability[int], OperatorInfo], Logic]


def frontier_behind(constructor: Constructor) -> tuple[timely.Worker, timely.ProbeHandle[int]]:
    """A worker with a source and a probe behind it, after a few steps."""
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        probe = scope.source("mine", constructor).probe()
    for _ in range(3):
        worker.step()
    return worker, probe


def test_a_constructor_that_ignores_its_capability_holds_nothing_back() -> None:
    worker, probe = frontier_behind(lambda capability, info: lambda output: None)
    assert probe.done()
    assert worker.dataflows == []


def test_a_copy_holds_on_its_own() -> None:
    held: list[Capability[int]] = []

    def constructor(capability: Capability[int], info: OperatorInfo) -> Logic:
        capability.downgrade(2)
        held.extend([copy.copy(capability), capability.copy()])
        capability.downgrade(7)
        held.append(capability)
        return lambda output: None

    worker, probe = frontier_behind(constructor)
    for left in (2, 2, 7):
        assert probe.frontier() == Antichain([left])
        held.pop(0).drop()
        worker.step()
    assert probe.done()


def test_what_is_retained_holds_until_it_is_used() -> None:
    held: list[Capability[int]] = []

    def constructor(initial: Capability[int], info: OperatorInfo) -> Logic:
        def logic(input: Any, output: Any) -> None:
            for capability, _ in input:
                held.append(capability.retain())
                assert repr(capability) == f"InputCapability({capability.time})"
            if input.frontier == Antichain([9]):
                while held:
                    output.session(held[-1]).give(held.pop().time)

        return logic

    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        handle, stream = scope.new_input()
        kept_back = stream.unary_frontier(Pipeline, "keep", constructor)
        probe, seen = kept_back.probe(), kept_back.capture()
    for time in range(3):
        handle.advance_to(time)
        handle.send("x")
    handle.advance_to(8)
    for _ in range(5):
        worker.step()
    assert probe.frontier() == Antichain([0])
    assert not seen.messages
    handle.advance_to(9)
    worker.step_while(lambda: probe.less_than(9))
    assert seen.extract() == [(0, [0]), (1, [1]), (2, [2])]


def test_a_session_that_ends_in_an_error_sends_nothing_of_its_buffer() -> None:
    def constructor(capability: Capability[int], info: OperatorInfo) -> Logic:
        def logic(output: Any) -> None:
            if capability.held:
                with pytest.raises(KeyError), output.session(capability) as session:
                    session.give("half")
                    raise KeyError
                output.session(capability).give("whole")
                capability.drop()

        return logic

    assert timely.example(lambda scope: scope.source("mine", constructor)) == [(0, ["whole"])]


def test_sends_to_nobody_hold_nothing_back() -> None:
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        handle, stream = scope.new_input()
        stream.map(str)
    handle.send(1)
    handle.close()
    worker.run()
    assert worker.dataflows == []


def test_an_operator_that_leaves_input_unread_is_run_again() -> None:
    calls: list[int] = []

    def constructor(initial: Capability[int], info: OperatorInfo) -> Logic:
        def logic(input: Any, output: Any) -> None:
            read = 0
            for capability, batch in input:
                output.session(capability).give_batch(batch)
                read += 1
                break
            calls.append(read)

        return logic

    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        handle, stream = scope.new_input()
        one = stream.unary(Pipeline, "one at a time", constructor)
        probe, seen = one.probe(), one.capture()
    for x in range(5):
        handle.send_batch([x])
    handle.close()
    worker.step()
    assert not probe.done()
    worker.run()
    assert [batch for _, batch in seen.messages] == [[x] for x in range(5)]
    assert sum(calls) == 5
    assert max(calls) == 1


def test_an_operator_without_notifications_is_not_run_for_progress() -> None:
    calls: list[int] = []

    def constructor(initial: Capability[int], info: OperatorInfo) -> Logic:
        def logic(input: Any, output: Any) -> None:
            calls.append(sum(len(batch) for _, batch in input))

        return logic

    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        handle, stream = scope.new_input()
        stream.unary(Pipeline, "quiet", constructor).probe()
    for time in range(1, 20):
        handle.advance_to(time)
        if time == 10:
            handle.send("x")
        worker.step()
    assert sum(calls) == 1
    assert len(calls) <= 2


def test_a_handle_as_a_context_manager() -> None:
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        handle, stream = scope.new_input()
        seen = stream.capture()
    with handle:
        handle.send(1)
        handle.flush()
        handle.send(2)
    assert handle.closed
    worker.run()
    assert seen.messages == [(0, [1]), (0, [2])]


def test_other_peoples_functions_of_a_stream() -> None:
    def scaled(stream: Stream[int, int], by: int, *, offset: int = 0) -> Stream[int, int]:
        return stream.map(lambda x: x * by + offset)

    assert timely.example(lambda scope: scope.to_stream([1, 2]).apply(scaled, 3, offset=1)) == [(0, [4, 7])]
