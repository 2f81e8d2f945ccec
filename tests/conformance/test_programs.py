"""The reference's programs and those of the book, by the ids of docs/conformance.md: random data, answers by their definition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import timely
from timely import Capability, Exchange, Pipeline
from timely.graphs import breadth_first_search, pagerank


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


def random_edges(nodes: int, edges: int, seed: int) -> pa.RecordBatch:
    src, dst = np.random.default_rng(seed).integers(0, nodes, (2, edges))
    return pa.record_batch({"src": src, "dst": dst})


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize(("nodes", "edges"), [(50, 60), (1000, 3000), (300, 9000)])
def test_X7_bfs_levels_are_the_rounds_in_which_nodes_are_first_seen(nodes: int, edges: int, workers: int) -> None:
    batch = random_edges(nodes, edges, seed=nodes)
    start = batch.column("src")[0].as_py()

    def program(worker: timely.Worker) -> list[tuple[int, int]]:
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            captured = breadth_first_search(stream, start).capture()
        handle.send_batch(batch.slice(worker.index * edges // workers, edges // workers))
        handle.close()
        worker.run()
        return [row for _, rows in captured.extract() for row in rows]

    pairs = list(zip(*batch.to_pydict().values()))
    levels, front = {start: 0}, {start}
    while front:
        front = {target for source, target in pairs if source in front} - levels.keys()
        levels.update(dict.fromkeys(front, max(levels.values()) + 1))
    assert sorted(row for rows in timely.execute(program, workers=workers) for row in rows) == sorted(levels.items())


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_X7_pagerank_shares_out_all_rank_and_loses_no_edge(workers: int) -> None:
    batch = random_edges(400, 3000, seed=7)
    edges: list[int] = []

    def program(worker: timely.Worker) -> list[tuple[int, float]]:
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            counted = stream.inspect_batch(lambda _, part: edges.append(len(part)))
            captured = pagerank(counted, rounds=10).capture()
        handle.send_batch(batch.slice(worker.index * 3000 // workers, 3000 // workers))
        handle.close()
        worker.run()
        return [row for _, rows in captured.extract() for row in rows]

    ranks = dict(row for rows in timely.execute(program, workers=workers) for row in rows)
    assert sum(edges) == 3000
    assert all(count > 0 for count in edges)
    assert set(ranks) == set(batch.column("src").to_pylist()) | set(batch.column("dst").to_pylist())
    assert min(ranks.values()) >= 0.15 / len(ranks)
    assert sum(ranks.values()) == pytest.approx(1)
