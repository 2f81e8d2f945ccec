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


def test_a_capability_is_given_up_when_nothing_refers_to_it() -> None:
    held: list[Capability[int]] = []

    def constructor(capability: Capability[int], info: OperatorInfo) -> Logic:
        held.extend(capability.delayed(time) for time in (3, 5))
        return lambda output: None

    worker, probe = frontier_behind(constructor)
    assert probe.frontier() == Antichain([3])
    del held[0]
    worker.step()
    assert probe.frontier() == Antichain([5])
    held.clear()
    worker.step()
    assert probe.done()


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


def test_a_with_block_gives_the_capability_up() -> None:
    def constructor(capability: Capability[int], info: OperatorInfo) -> Logic:
        with capability.delayed(4) as later:
            assert repr(later) == "Capability(4)"
        assert repr(later) == "Capability(4, dropped)"
        return lambda output: None

    _, probe = frontier_behind(constructor)
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


def test_sessions_left_open_end_with_the_activation() -> None:
    def constructor(capability: Capability[int], info: OperatorInfo) -> Logic:
        def logic(output: Any) -> None:
            if capability.held:
                for text in ("a", "b"):
                    output.session(capability).give(text)
                capability.downgrade(3)
                output.session(capability).give("c")
                capability.drop()

        return logic

    assert timely.example(lambda scope: scope.source("mine", constructor)) == [(0, ["a", "b"]), (3, ["c"])]


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


def test_an_activator_has_the_operator_run_and_nothing_else_does() -> None:
    activators: list[timely.dataflow.Activator] = []
    calls: list[int] = []

    def constructor(capability: Capability[int], info: OperatorInfo) -> Logic:
        activators.append(info.activator)
        held = [capability]

        def logic(output: Any) -> None:
            calls.append(len(held))

        return logic

    worker = timely.Worker()
    with worker.dataflow(int) as scope, scope.region() as region:
        region.source("mine", constructor).leave().probe()
    for _ in range(4):
        worker.step()
    assert len(calls) == 1
    assert worker.idle
    for _ in range(3):
        activators[0].activate()
        activators[0].activate()
        worker.step()
        worker.step()
    assert len(calls) == 4


def test_the_information_of_an_operator() -> None:
    def program(worker: timely.Worker) -> Any:
        seen: list[OperatorInfo] = []

        def constructor(info: OperatorInfo) -> Logic:
            seen.append(info)
            return lambda input: [None for _ in input]

        with worker.dataflow(int, name="demo") as scope:
            numbers = scope.to_stream([1])
            with scope.iterative("rounds") as loop:
                numbers.enter(loop).sink(Pipeline, "end", constructor)
        worker.run()
        [info] = seen
        return info.name, info.index, info.path, info.worker, info.peers

    assert timely.execute(program, workers=2) == [("end", 0, "/demo/rounds#1/end#0", i, 2) for i in range(2)]


def test_a_sink_sees_progress_without_data() -> None:
    frontiers: list[list[int]] = []

    def constructor(info: OperatorInfo) -> Logic:
        def logic(input: Any) -> None:
            for _ in input:
                pass
            frontiers.append(list(input.frontier))

        return logic

    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        handle, stream = scope.new_input()
        stream.sink(Pipeline, "watch", constructor)
    for time in (2, 4):
        handle.advance_to(time)
        worker.step()
    handle.close()
    worker.run()
    assert frontiers[-1] == []
    assert [2] in frontiers
    assert [4] in frontiers


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


def test_inputs_used_before_the_dataflow_is_complete_and_before_the_first_step() -> None:
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        handle, stream = scope.new_input()
        handle.send("early")
        handle.advance_to(2)
        worker.step()
        seen = stream.capture()
        other, other_stream = scope.new_input()
        other.close()
        probe = other_stream.probe()
    handle.send("later")
    handle.close()
    worker.run()
    assert seen.extract() == [(0, ["early"]), (2, ["later"])]
    assert probe.done()


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
