"""Times on their way: ``InputPort.advance`` and ``connect_loop``; and times that raise when they are to say what they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import timely
from tests.progress.times import SAID, Mute
from timely import Antichain, CapabilityError, OperatorError, Pipeline, Step, inspect
from timely.dataflow import InputPort, OperatorBuilder, OutputPort
from timely.inspect import EventLog, snapshot
from timely.progress import time_domain
from timely.recovery import Recovery


def an_input_that_goes_back() -> None:
    with timely.Worker() as worker, worker.dataflow(Mute) as scope:
        numbers, _ = scope.new_input()
        numbers.advance_to(Mute(2))
        numbers.advance_to(Mute(1))


def an_input_that_was_closed() -> None:
    with timely.Worker() as worker, worker.dataflow(Mute) as scope:
        numbers, _ = scope.new_input()
        numbers.close()
        numbers.send(1)


def held(deed: Callable[[timely.Capability[Mute]], object]) -> Callable[[], None]:
    def run() -> None:
        with timely.Worker() as worker, worker.dataflow(Mute) as scope:
            (_, capability), _ = scope.new_unordered_input()
            capability.downgrade(Mute(2))
            deed(capability)

    return run


def backwards(capability: timely.Capability[Mute]) -> None:
    capability.downgrade(Mute(1))


def dropped(capability: timely.Capability[Mute]) -> None:
    capability.drop()
    capability.delayed(Mute(3))


def in_a_set(capability: timely.Capability[Mute]) -> None:
    timely.CapabilitySet([capability]).delayed(Mute(1))


def in_an_empty_set(capability: timely.Capability[Mute]) -> None:
    empty: timely.CapabilitySet[Mute] = timely.CapabilitySet()
    empty.delayed(Mute(1))


def a_time_before_the_minimum() -> None:
    time_domain(Mute).check(Mute(-1))


def a_delay_that_goes_back() -> None:
    with timely.Worker() as worker:
        with worker.dataflow(Mute) as scope:
            numbers, stream = scope.new_input()
            stream.delay(lambda record, time: Mute(time.at - 1))
        numbers.advance_to(Mute(3))
        numbers.send(1)
        numbers.close()
        worker.run()


def a_checkpoint_before_the_last(tmp_path: Any) -> None:
    worker = timely.Worker()
    recovery = Recovery(worker, tmp_path)
    with worker.dataflow(Mute) as scope:
        numbers, _ = scope.new_input()
    numbers.advance_to(Mute(2))
    recovery.checkpoint(Mute(2))
    recovery.checkpoint(Mute(1))


@pytest.mark.parametrize(
    ("deed", "error"),
    [
        (an_input_that_goes_back, timely.TimestampError),
        (an_input_that_was_closed, timely.CapabilityError),
        (held(backwards), timely.CapabilityError),
        (held(dropped), timely.CapabilityError),
        (held(in_a_set), timely.CapabilityError),
        (held(in_an_empty_set), timely.CapabilityError),
        (a_time_before_the_minimum, timely.TimestampError),
    ],
)
def test_an_error_about_a_time_without_a_repr_is_ours(deed: Callable[[], None], error: type[Exception]) -> None:
    with pytest.raises(error, match="which raises RuntimeError when printed"):
        deed()


def test_a_delay_to_an_earlier_time() -> None:
    with pytest.raises(timely.OperatorError) as raised:
        a_delay_that_goes_back()
    assert isinstance(raised.value.__cause__, timely.CapabilityError) and SAID in str(raised.value)


def test_a_checkpoint_at_an_earlier_time(tmp_path: Any) -> None:
    with pytest.raises(timely.CheckpointError, match=SAID):
        a_checkpoint_before_the_last(tmp_path)


def test_what_holds_a_time_without_a_repr_shows_that() -> None:
    seen: list[str] = []

    def constructor(capability: timely.Capability[Mute], info: timely.OperatorInfo) -> Callable[[timely.OutputPort[Mute]], None]:
        seen.extend((repr(capability), repr(timely.CapabilitySet([capability]))))
        return lambda output: None

    with timely.Worker() as worker:
        with worker.dataflow(Mute) as scope:
            scope.source("mute", constructor)
        worker.run()
    assert seen == [f"Capability({SAID})", f"CapabilitySet([{SAID}])"]


def running() -> tuple[timely.Worker, Any, Any]:
    """A worker that somebody looks on at, and a dataflow that holds a time."""
    worker = timely.Worker()
    EventLog(worker)
    with worker.dataflow(Mute, name="df") as scope:
        numbers, stream = scope.new_input()
        probe = stream.map(str).probe()
    numbers.send(1)
    numbers.advance_to(Mute(1))
    return worker, scope, (numbers, probe)


def test_a_picture_of_times_without_a_repr() -> None:
    _, scope, _held = running()
    seen = snapshot(scope)
    assert {time for time, _ in seen.children[0].held} == {SAID}
    assert seen.children[1].frontiers == ((SAID,),)
    picture = inspect.picture(scope)
    assert all(SAID in text for text in (picture.svg(), picture.mermaid(), picture.html()))


def test_why_a_frontier_is_at_a_time_without_a_repr() -> None:
    worker, scope, (_numbers, probe) = running()
    worker.step()
    assert str(worker.explain(probe)).startswith(f"/df/probe#2 on worker 0 is at {SAID}, because")
    assert f"may still send at {SAID}: advance it" in str(worker.explain(scope))


def around(scope: Any, logic: Any, summary: Step) -> Any:
    """Return the stream of an operator with one input, one output, and a summary between them."""
    builder: OperatorBuilder[int] = OperatorBuilder(scope, "later")
    builder.new_input(scope.to_stream([7]), Pipeline)
    output = builder.new_output({0: Antichain([summary])})

    def constructor(capabilities: Any, info: Any) -> Any:
        info.declare_stateless()
        return logic

    builder.build(constructor)
    return output


def test_advance_sends_at_the_times_of_the_summary_and_drops_what_has_none() -> None:
    def logic(input: InputPort[int, int], output: OutputPort[int]) -> None:
        input.advance(output, Step(3))

    assert timely.example(lambda scope: around(scope, logic, Step(3))) == [(3, [7])]

    def bounded(input: InputPort[int, int], output: OutputPort[int]) -> None:
        input.advance(output, Step(3, limit=2))

    assert timely.example(lambda scope: around(scope, bounded, Step(3, limit=2))) == []


def test_advance_goes_by_no_summary_that_was_not_declared() -> None:
    def logic(input: InputPort[int, int], output: OutputPort[int]) -> None:
        input.advance(output, Step(2))

    with pytest.raises(OperatorError, match=r"by Step\(2\) only in an activation") as raised:
        timely.example(lambda scope: around(scope, logic, Step(3)))
    assert isinstance(raised.value.__cause__, CapabilityError)


def test_advance_is_for_activations() -> None:
    held: list[Any] = []

    def logic(input: InputPort[int, int], output: OutputPort[int]) -> None:
        held[:] = [input, output]
        input.advance(output, Step(1))

    timely.example(lambda scope: around(scope, logic, Step(1)))
    with pytest.raises(CapabilityError, match="only in an activation"):
        held[0].advance(held[1], Step(1))
