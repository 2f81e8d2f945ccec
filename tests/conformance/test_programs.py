"""Programs of the book and the examples, by the ids of docs/conformance.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import timely
from timely import Capability, Exchange, Pipeline


def test_X1_first_programs() -> None:
    assert timely.example(lambda s: s.to_stream(range(10)).map(lambda x: x + 1)) == [(0, list(range(1, 11)))]
    for numbers in (range(10), range(1, 10)):
        [(_, records)] = timely.example(lambda s: s.to_stream(numbers).flat_map(range))  # noqa: B023  # called at once
        assert len(records) == 45


def test_X1_the_sum_of_many() -> None:
    totals: list[int] = []

    def constructor(info: timely.OperatorInfo) -> Callable[[Any], object]:
        total = [0]

        def logic(input: Any) -> None:
            for _, batch in input:
                total[0] += sum(batch)
            if not input.frontier:
                totals.append(total[0])

        return logic

    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        scope.to_stream(range(1, 100_000)).sink(Pipeline, "sum", constructor)
    worker.run()
    assert totals[-1] == 4_999_950_000


def test_X2_maximum() -> None:
    def maximum(capability: Capability[int], info: timely.OperatorInfo) -> Callable[[Any, Any], object]:
        state = [0]

        def logic(input: Any, output: Any) -> None:
            for capability, batch in input:
                with output.session(capability) as session:
                    for x in batch:
                        if x > state[0]:
                            state[0] = x
                            session.give(x + 1)

        return logic

    outputs = timely.example(lambda s: s.to_stream(range(10)).unary(Pipeline, "maximum", maximum))
    assert outputs == [(0, list(range(2, 11)))]


@pytest.mark.parametrize(("workers", "processes"), [(1, 1), (2, 1), (3, 1), (1, 2)])
def test_X4_wordcount(workers: int, processes: int) -> None:
    def count(capability: Capability[int], info: timely.OperatorInfo) -> Callable[[Any, Any], object]:
        counts: Counter[str] = Counter()

        def logic(input: Any, output: Any) -> None:
            for capability, batch in input:
                with output.session(capability) as session:
                    for word, diff in batch:
                        counts[word] += diff
                        session.give((word, counts[word]))

        return logic

    def program(worker: timely.Worker) -> list[tuple[str, int]]:
        seen: list[tuple[str, int]] = []
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            probe = stream.unary(Exchange(lambda x: x[0]), "count", count).inspect(seen.append).probe()
        for epoch in range(10):
            handle.send(("round", 1))
            handle.advance_to(epoch + 1)
            worker.step_while(lambda: probe.less_than(handle.time))
        return seen

    w = workers * processes
    results = timely.execute(program, workers=workers, processes=processes)
    assert [entry for seen in results for entry in seen] == [("round", n) for n in range(1, 10 * w + 1)]
    assert sum(1 for seen in results if seen) == 1
