"""How a message gets round a loop: ``connect_loop`` with a pact, and ``InputPort.advance``, which feedback is made of."""

from __future__ import annotations

from typing import Any

import pytest

import timely
from timely import Antichain, CapabilityError, Exchange, OperatorError, Pipeline, Step
from timely.dataflow import InputPort, OperatorBuilder, OutputPort
from timely.worker import thread_transports


def test_what_goes_to_a_peer_on_its_way_into_a_loop_takes_one_step_of_each() -> None:
    transports = thread_transports(2)
    workers = [timely.Worker(transport) for transport in transports]
    seen: list[list[int]] = [[], []]
    handles = []
    for worker, mine in zip(workers, seen):
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            loop, again = scope.feedback()
            more = stream.concat(again).inspect(mine.append).map(lambda x: x + 1).filter(lambda x: x < 4)
            more.connect_loop(loop, Exchange(lambda x: x))
        handles.append(handle)
    for worker in workers:
        worker.step()
    handles[0].send(0)
    handles[0].flush()
    for expected in ([[0], []], [[0], [1]], [[0, 2], [1]], [[0, 2], [1, 3]]):
        workers[sum(map(len, expected)) % 2 == 0].step()
        assert seen == expected
    for handle in handles:
        handle.close()
    while workers[0].dataflows or workers[1].dataflows:
        for worker in workers:
            worker.step()
    for worker in workers:
        worker.close()


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
