"""Path summaries for each input and output: what an input cannot influence, it does not hold up."""

from __future__ import annotations

from typing import Any

import pytest

import timely
from timely import Antichain, OperatorBuilder, Pipeline, Step

NOT_CONNECTED: Antichain[Any] = Antichain()


@pytest.mark.parametrize(("first", "second"), [(2, 5), (0, 3), (4, 4)])
def test_each_output_has_a_frontier_of_its_own(first: int, second: int) -> None:
    """Two inputs, two outputs, a summary for each pair: the frontier at an output is the least that the paths to it allow."""
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        handles, inputs = zip(*(scope.new_input() for _ in range(2)), strict=True)
        builder = OperatorBuilder(scope, "crossed")
        for stream in inputs:
            builder.new_input(stream, Pipeline)
        outputs = [
            builder.new_output({0: Antichain([Step(first)]), 1: NOT_CONNECTED}),
            builder.new_output({0: Antichain([Step(1)]), 1: Antichain([Step(second)])}),
        ]
        builder.build(lambda capabilities, info: lambda *ports: None)
        probes = [output.probe() for output in outputs]
    handles[0].advance_to(10)
    for _ in range(3):
        worker.step()
    assert [probe.frontier() for probe in probes] == [Antichain([10 + first]), Antichain([min(11, second)])]
    handles[1].advance_to(20)
    for _ in range(3):
        worker.step()
    assert [probe.frontier() for probe in probes] == [Antichain([10 + first]), Antichain([11])]
    handles[0].close()
    for _ in range(3):
        worker.step()
    assert [probe.frontier() for probe in probes] == [Antichain(), Antichain([20 + second])]
    handles[1].close()
    worker.run()


def frontiers(summaries: Any, on_inputs: bool) -> list[list[int]]:
    """Return the frontiers at two outputs, with the inputs at 3 and 5, and ``summaries`` given for both ports of one side."""
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        inputs = [scope.new_input() for _ in range(2)]
        builder = OperatorBuilder(scope, "crossed")
        outputs = [builder.new_output() for _ in range(2)] if on_inputs else []
        for (_, stream), ways in zip(inputs, summaries if on_inputs else [None, None], strict=True):
            builder.new_input(stream, Pipeline, ways)
        outputs = outputs or [builder.new_output(ways) for ways in summaries]
        builder.build(lambda capabilities, info: lambda *ports: None)
        probes = [output.probe() for output in outputs]
    for (handle, _), time in zip(inputs, [3, 5], strict=True):
        handle.advance_to(time)
    for _ in range(3):
        worker.step()
    return [list(probe.frontier()) for probe in probes]


FORMS: list[Any] = [
    [{1: Antichain([Step(1)])}, {0: Antichain([Step(2)])}],
    [[NOT_CONNECTED, Antichain([Step(1)])], [Antichain([Step(2)]), NOT_CONNECTED]],
    [([], [Step(1)]), ([Step(2)], [])],
    [{0: [], 1: [Step(1)]}, {0: [Step(2)], 1: NOT_CONNECTED}],
]


@pytest.mark.parametrize("summaries", FORMS)
def test_summaries_by_port_or_one_for_each(summaries: Any) -> None:
    assert frontiers(summaries, True) == [[7], [4]]
    assert frontiers(summaries, False) == [[6], [5]]


def test_one_antichain_is_for_all_ports() -> None:
    assert frontiers([Antichain([Step(1)]), NOT_CONNECTED], True) == [[4], [4]]
    assert frontiers([Antichain([Step(1)]), NOT_CONNECTED], False) == [[4], []]


@pytest.mark.parametrize("on_inputs", [True, False])
@pytest.mark.parametrize("form", [5, Step(1), "12", [], [NOT_CONNECTED], {"x": NOT_CONNECTED}, {2: NOT_CONNECTED}, {0: Step(1)}])
def test_summaries_of_another_form_are_refused(form: Any, on_inputs: bool) -> None:
    side = "input 0" if on_inputs else "output 0"
    with pytest.raises((timely.GraphError, timely.TimestampError), match="crossed") as caught:
        frontiers([form, NOT_CONNECTED], on_inputs)
    assert form == "12" or side in str(caught.value)
