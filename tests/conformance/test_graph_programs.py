"""The reference's graph programs: random data, answers by their definition."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import timely
from timely.graphs import breadth_first_search, pagerank


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
