"""Operators that work by record join small batches that wait: nobody can tell, except by how large the batches are.

White box: the limits below which batches are joined are lowered, so that few records reach them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import timely
from timely import CapabilityError, OperatorError, Pipeline, Worker
from timely.dataflow import ports


def containers(records: list[int], kind: int) -> Any:
    """The records in a list, an array, or a list of a class of its own."""
    return [list(records), np.array(records, np.int64), type("Mine", (list,), {})(records)][kind]


def passed(sent: list[tuple[int, int, list[int]]], build: Callable[[Any], Any], every: int) -> list[tuple[int, Any]]:
    """The messages that come out for ``(time, kind of container, records)``, with a step after so many of them."""
    worker = Worker()
    with worker.dataflow(int) as scope:
        (handle, capability), stream = scope.new_unordered_input()
        out = build(stream)
        seen, probe = out.capture(), out.probe()
    for number, (time, kind, records) in enumerate(sent):
        handle.session(capability.delayed(time)).give_batch(containers(records, kind))
        if number % every == every - 1:
            worker.step()
    capability.drop()
    worker.run()
    assert probe.done()
    messages: list[tuple[int, Any]] = seen.messages
    return messages


def together(messages: list[tuple[int, Any]]) -> dict[int, list[Any]]:
    """The records of each time, in order."""
    groups: dict[int, list[Any]] = {}
    for time, batch in messages:
        groups.setdefault(time, []).extend(batch)
    return groups


batches = st.lists(st.integers(-9, 9), min_size=1, max_size=5)
sends = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), batches), max_size=12)


@given(sends, st.integers(1, 12), st.integers(1, 4), st.integers(1, 6))
def test_what_comes_out_does_not_depend_on_how_much_waits(sent: Any, every: int, small: int, flush_at: int) -> None:
    def build(stream: Any) -> Any:
        return stream.map(lambda x: 3 * x).filter(lambda x: x % 2 == 0).flat_map(lambda x: [x, -x]).map(str)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ports, "SMALL", small)
        patch.setattr(ports, "FLUSH_AT", flush_at)
        result = together(passed(sent, build, every))
    expected = together([(time, [str(y) for x in records if x % 2 == 0 for y in (3 * x, -3 * x)]) for time, _, records in sent])
    assert result == {time: records for time, records in expected.items() if records}


def test_small_batches_of_one_time_become_one_message_and_others_stay() -> None:
    large = list(range(ports.SMALL))
    sent = [(0, 0, [1]), (0, 0, [2]), (1, 0, [3]), (0, 0, [4]), (0, 0, large), (0, 0, [5])]
    outputs = passed(sent, lambda stream: stream.map(lambda x: x), every=100)
    assert outputs == [(0, [1, 2]), (1, [3]), (0, [4]), (0, large), (0, [5])]


def test_each_record_is_seen_once_and_in_order_by_functions_with_effects() -> None:
    log: list[Any] = []

    def note(x: int) -> int:
        log.append(x)
        return x

    passed([(0, 0, [x]) for x in range(20)], lambda stream: stream.map(note), every=7)
    assert log == list(range(20))


def test_an_error_names_the_operator_that_raised() -> None:
    with pytest.raises(OperatorError, match="ZeroDivisionError") as caught:
        passed([(0, 0, [x]) for x in (2, 1, 0)], lambda s: s.map(lambda x: x).map(lambda x: 1 // x).map(str), every=100)
    assert caught.value.path.endswith("map#2")


def test_stop_iteration_in_a_function_ends_no_batch_early() -> None:
    def stop(x: int) -> Any:
        if x == 1:
            raise StopIteration
        return [x]

    for build in (lambda s: s.map(stop), lambda s: s.filter(stop), lambda s: s.flat_map(stop), lambda s: s.exchange(stop)):
        with pytest.raises(timely.TimelyError):
            passed([(0, 0, [0, 1, 2])], build, every=1)


def test_what_spills_is_read_message_by_message() -> None:
    def constructor(capability: Any, info: Any) -> Callable[[Any, Any], object]:
        return lambda input, output: input.forward_records(output, list)

    def build(stream: Any) -> Any:
        return stream.unary(timely.Spill(Pipeline, threshold=8, reserve=0), "pass on", constructor)

    sent = [(0, 0, [x] * 5) for x in range(6)]
    assert together(passed(sent, build, every=100)) == together([(time, records) for time, _, records in sent])


# -- forward -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["forward", "forward_records"])
def test_forwarding_is_refused_where_a_session_would_be(method: str) -> None:
    held: list[Any] = []

    def first(capability: Any, info: Any) -> Callable[[Any, Any], object]:
        def logic(input: Any, output: Any) -> None:
            held.append((input, output))
            getattr(input, method)(output, lambda batch: batch)

        return logic

    def second(capability: Any, info: Any) -> Callable[[Any, Any], object]:
        return lambda input, output: getattr(input, method)(held[0][1], lambda batch: batch)

    def build(scope: Any) -> Any:
        return scope.to_stream([1]).unary(Pipeline, "first", first).unary(Pipeline, "second", second)

    with pytest.raises(OperatorError, match="only in an activation of the same operator"):
        timely.example(build)
    input, output = held[0]
    with pytest.raises(CapabilityError, match="only in an activation"):
        getattr(input, method)(output, lambda batch: batch)


@pytest.mark.parametrize("method", ["forward", "forward_records"])
def test_forwarding_is_refused_where_the_summary_advances(method: str) -> None:
    def build(scope: Any) -> Any:
        builder = timely.OperatorBuilder(scope, "later")
        builder.new_input(scope.to_stream([1]), Pipeline)
        output = builder.new_output({0: timely.Antichain([timely.Step(1)])})
        builder.build(lambda capabilities, info: lambda input, output: getattr(input, method)(output, lambda batch: batch))
        return output

    with pytest.raises(OperatorError, match="summary between them is the identity"):
        timely.example(build)


@pytest.mark.parametrize("reading", ["forward", "forward_records", "loop"])
def test_who_reads_one_input_only_is_run_again_for_the_other(reading: str) -> None:
    def logic(one: Any, other: Any, output: Any) -> None:
        if reading == "loop":
            for capability, batch in one:
                output.session(capability).give_batch(batch)
        else:
            getattr(one, reading)(output, lambda batch: batch)
        for capability, batch in other if runs else ():
            output.session(capability).give_batch(batch)
        runs.append(1)

    def build(scope: timely.ScopeBuilder[int]) -> Any:
        pacts = Pipeline, Pipeline
        return scope.to_stream([1]).binary(scope.to_stream([2]), *pacts, "in turn", lambda capability, info: logic)

    runs: list[int] = []
    assert timely.example(build) == [(0, [1, 2])]
