"""Graph algorithms against NumPy and SciPy by hand, on a random graph and on one with a long diameter.

Both sides get the same Arrow batch of whole numbers, and give an Arrow batch with the same rows, which is checked in the
first round. By hand, the nodes are known to be the numbers from 0 up; the dataflow has to find that out. What workers take is
the time of a second dataflow in the same processes: new ones would first have to be given their memory by the system, page by
page, and what is compared with them runs in a process that has it. Rows of their own say what a first run in a new process costs
over later ones. The bars for two workers are in ``benchmarks.two_workers``.

What an edge costs in a round at 50 M edges, over 1 M, is processor time of whole runs: the dictionary of nodes and the sort of
edges count. By hand there is neither.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.sparse import coo_matrix, csgraph

import timely
from benchmarks.measure import Measured, apart, in_turn
from benchmarks.report import Row
from timely import Stream
from timely.graphs import breadth_first_search, connected_components, pagerank

Build = Callable[[Stream[int, Any]], Stream[int, Any]]

ROUNDS = 20
"""Rounds of PageRank."""

LARGE_ROUNDS, SMALL_EDGES, LARGE_EDGES = 10, 1_000_000, 50_000_000
"""Rounds of PageRank on graphs that differ in size."""

SHALLOW, DEEP = "random 1 M edges", "grid 300x300"


def random_graph(nodes: int = 100_000, edges: int = 1_000_000) -> pa.RecordBatch:
    """Return edges between nodes that are drawn at random, the same ones each time."""
    ends = np.random.default_rng(1).integers(0, nodes, (2, edges))
    return pa.record_batch({"src": ends[0], "dst": ends[1]})


def grid(size: int = 300) -> pa.RecordBatch:
    """Return the edges of a square grid, to the right and down."""
    nodes = np.arange(size * size).reshape(size, size)
    ends = [(nodes[:, :-1], nodes[:, 1:]), (nodes[:-1], nodes[1:])]
    src, dst = (np.concatenate([pair[i].ravel() for pair in ends]) for i in (0, 1))
    return pa.record_batch({"src": src, "dst": dst})


def components_by_hand(src: Any, dst: Any, nodes: int) -> tuple[str, Any]:
    """SciPy's components, each named by its smallest node."""
    matrix = coo_matrix((np.ones(len(src), np.int8), (src, dst)), (nodes, nodes))
    count, labels = csgraph.connected_components(matrix, directed=False)
    least = np.full(count, nodes)
    np.minimum.at(least, labels, np.arange(nodes))
    return "component", least[labels]


def distances_by_hand(src: Any, dst: Any, nodes: int) -> tuple[str, Any]:
    """A search level by level over edges sorted by source, with NumPy."""
    targets = dst[np.argsort(src, kind="stable")]
    counts = np.bincount(src, minlength=nodes)
    starts = np.cumsum(counts) - counts
    distances = np.full(nodes, -1)
    distances[0] = level = 0
    front = np.array([0])
    while len(front):
        level += 1
        many = counts[front]
        ends = np.cumsum(many)
        next_to = targets[np.arange(ends[-1]) + np.repeat(starts[front] - ends + many, many)]
        new = next_to[distances[next_to] < 0]
        distances[new] = level
        front = np.unique(new)
    return "distance", distances


def distances_unsorted(src: Any, dst: Any, nodes: int) -> tuple[str, Any]:
    """A search level by level that looks at all edges in each, with NumPy: quicker where there are few levels."""
    distances = np.full(nodes, -1)
    distances[0] = level = 0
    while (targets := dst[np.flatnonzero((distances == level).take(src))]).size:
        level += 1
        distances[targets[distances[targets] < 0]] = level
    return "distance", distances


def ranks_by_hand(src: Any, dst: Any, nodes: int, rounds: int = ROUNDS) -> tuple[str, Any]:
    """PageRank with NumPy."""
    degrees = np.bincount(src, minlength=nodes)
    given, loose = 1 / np.maximum(degrees, 1), degrees == 0
    ranks = np.full(nodes, 1 / nodes)
    for _ in range(rounds):
        sums = np.bincount(dst, (ranks * given)[src], nodes)
        ranks = 0.15 / nodes + 0.85 * (sums + ranks[loose].sum() / nodes)
    return "rank", ranks


ALGORITHMS: dict[str, tuple[Build, Callable[[Any, Any, int], tuple[str, Any]]]] = {
    "connected components": (connected_components, components_by_hand),
    "breadth-first search": (lambda edges: breadth_first_search(edges, 0), distances_by_hand),
    f"PageRank, {ROUNDS} rounds": (lambda edges: pagerank(edges, rounds=ROUNDS), ranks_by_hand),
}


def by_hand(algorithm: Callable[[Any, Any, int], tuple[str, Any]], edges: pa.RecordBatch, nodes: int) -> pa.RecordBatch:
    """Return a row for each node of the graph that the algorithm reaches."""
    src, dst = edges.column("src").to_numpy(), edges.column("dst").to_numpy()
    name, values = algorithm(src, dst, nodes)
    there = np.zeros(nodes, np.bool_)
    there[src] = there[dst] = True
    there &= values >= 0
    return pa.record_batch({"node": np.flatnonzero(there), name: values[there]})


def by_workers(build: Build, edges: pa.RecordBatch, processes: int, times: int = 1) -> tuple[float, list[pa.RecordBatch]]:
    """Return the seconds from the first worker's start to the last one's end, and what came out on all workers.

    They start together: each has waited for the others to be ready. Where it is done several times, the seconds are the median.
    """

    def once(worker: timely.Worker) -> tuple[float, float, list[pa.RecordBatch]]:
        mine = -(-len(edges) // worker.peers)
        worker.all_gather(None)
        start = time.perf_counter()
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            found = build(stream).capture()
        handle.send_batch(edges.slice(worker.index * mine, mine))
        handle.close()
        worker.run()
        return start, time.perf_counter(), [batch for _, batch in found.messages]

    def program(worker: timely.Worker) -> list[tuple[float, float, list[pa.RecordBatch]]]:
        once(worker)
        return [once(worker) for _ in range(times)]

    runs = list(zip(*timely.execute(program, processes=processes), strict=True))
    seconds = statistics.median(max(end for _, end, _ in run) - min(start for start, _, _ in run) for run in runs)
    return seconds, [batch for *_, batches in runs[-1] for batch in batches]


def check(found: list[pa.RecordBatch], expected: pa.RecordBatch) -> None:
    """Raise unless both have the same rows, up to rounding."""
    table = pa.Table.from_batches(found).sort_by("node")
    for name in expected.schema.names:
        assert np.allclose(table[name].to_numpy(), expected[name].to_numpy(), rtol=1e-9, atol=0), name


def first_and_later(name: str, kind: str, times: int) -> tuple[float, float]:
    """Return the seconds of processor time of a first run in this process, and the least of so many later ones."""
    build, algorithm = ALGORITHMS[name]
    edges = random_graph()

    def once() -> float:
        start = time.process_time()
        if kind == "by hand":
            by_hand(algorithm, edges, 100_000)
        else:
            by_workers_once(build, edges)
        return time.process_time() - start

    first = once()
    return first, min(once() for _ in range(times))


def by_workers_once(build: Build, edges: pa.RecordBatch) -> list[pa.RecordBatch]:
    """Return what comes out of one dataflow on one worker in this process."""
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        handle, stream = scope.new_input()
        found = build(stream).capture()
    handle.send_batch(edges)
    handle.close()
    worker.run()
    return [batch for _, batch in found.messages]


def nanoseconds(kind: str, edges: int) -> float:
    """Return the nanoseconds of processor time for an edge in a round of PageRank: a run's whole time by its rounds.

    A large graph runs once. Of small ones the least of several runs counts, after a first one, which is the stricter comparison.
    """
    graph, nodes = random_graph(edges // 10, edges), edges // 10

    def once() -> float:
        start = time.process_time()
        if kind == "by hand":
            found = [by_hand(lambda src, dst, nodes: ranks_by_hand(src, dst, nodes, LARGE_ROUNDS), graph, nodes)]
        else:
            found = by_workers_once(lambda stream: pagerank(stream, rounds=LARGE_ROUNDS), graph)
        used = time.process_time() - start
        assert abs(sum(batch.column("rank").to_numpy().sum() for batch in found) - 1) < 1e-9
        return used

    used = once() if edges > SMALL_EDGES else min(once() for _ in range(6))
    return used / edges / LARGE_ROUNDS * 1e9


def cold_rows(rounds: int) -> list[Row]:
    """Compare first runs in new processes with later ones, here and by hand."""
    rows = []
    for name in ALGORITHMS:
        firsts = []
        for kind, floor in (("one worker", 1.3), ("by hand", None)):
            runs = [apart(first_and_later, name, kind, 5) for _ in range(rounds)]
            first, later = (Measured(run[place] for run in runs) for place in (0, 1))
            note = f"later: {later:.3f} s of processor time; Python's garbage collector is on"
            rows.append(Row(f"{name}, {SHALLOW}, {kind}: first run over later ones", first / later, floor, less=True, note=note))
            firsts.append(first)
        rows.append(Row(f"{name}, {SHALLOW}: first run, one worker over by hand", firsts[0] / firsts[1], 2.0, 1.1, less=True))
    return rows


def size_rows(rounds: int, edges: int = LARGE_EDGES) -> list[Row]:
    """Compare what an edge costs in a large graph with what it costs in a small one, here and by hand."""
    rows = []
    works = {
        f"{kind}, {size}": (lambda kind=kind, size=size: apart(nanoseconds, kind, size))
        for kind in ("one worker", "by hand")
        for size in (SMALL_EDGES, edges)
    }
    found = in_turn(works, rounds)
    for kind, floor, aim in (("one worker", 3.0, 2.0), ("by hand", None, None)):
        small, large = (found[f"{kind}, {size}"] for size in (SMALL_EDGES, edges))
        what = f"PageRank, {LARGE_ROUNDS} rounds, {edges / 1e6:g} M edges, {kind}: an edge and round over 1 M edges"
        rows.append(Row(what, large / small, floor, aim, less=True, note=f"{small:.1f} and {large:.1f} ns"))
    what = f"PageRank, {LARGE_ROUNDS} rounds, {edges / 1e6:g} M edges: one worker over by hand"
    over = found[f"one worker, {edges}"] / found[f"by hand, {edges}"]
    return [*rows, Row(what, over, 1.3, 1.0, less=True)]


def run(rounds: int = 5, quick: bool = False) -> list[Row]:
    """Run all algorithms on both graphs and return the rows of the report."""
    sizes = size_rows(1, 2_000_000 if quick else LARGE_EDGES)
    return [*warm_rows(rounds), *cold_rows(1 if quick else rounds), *sizes]


def warm_rows(rounds: int) -> list[Row]:
    """Compare with what runs by hand in processes that have their memory."""
    works: dict[str, Callable[[], float]] = {}
    for graph, (edges, nodes) in {SHALLOW: (random_graph(), 100_000), DEEP: (grid(), 90_000)}.items():
        for name, (build, algorithm) in ALGORITHMS.items():
            expected = by_hand(algorithm, edges, nodes)
            for processes in (1, 2):
                check(by_workers(build, edges, processes)[1], expected)
                works[f"{name}, {graph}, {processes}"] = _seconds_of_workers(build, edges, processes)
            works[f"{name}, {graph}, by hand"] = _seconds_by_hand(algorithm, edges, nodes)
        if graph == SHALLOW:
            check([by_hand(distances_unsorted, edges, nodes)], by_hand(distances_by_hand, edges, nodes))
            works["unsorted"] = _seconds_by_hand(distances_unsorted, edges, nodes)
    medians = in_turn(works, rounds)
    rows = []
    for graph in (SHALLOW, DEEP):
        for name in ALGORITHMS:
            one, two, hand = (medians[f"{name}, {graph}, {kind}"] for kind in (1, 2, "by hand"))
            floor, aim = (2.0, 1.1) if graph == SHALLOW else (None, None)
            rows.append(Row(f"{name}, {graph}: one worker over by hand", one / hand, floor, aim, less=True))
            rows.append(Row(f"{name}, {graph}: speed-up of two workers", one / two, note="two processes"))
            rows.append(Row(f"{name}, {graph}: by hand, s", hand))
    search = f"breadth-first search, {SHALLOW}"
    over = medians[f"{search}, 1"] / medians["unsorted"]
    rows.append(Row(f"{search}: one worker over by hand without sorting any edges", over, 2.0, 1.1, less=True))
    return rows


def _seconds_of_workers(build: Build, edges: pa.RecordBatch, processes: int) -> Callable[[], float]:
    return lambda: by_workers(build, edges, processes)[0]


def _seconds_by_hand(
    algorithm: Callable[[Any, Any, int], tuple[str, Any]], edges: pa.RecordBatch, nodes: int
) -> Callable[[], float]:
    def seconds() -> float:
        start = time.perf_counter()
        by_hand(algorithm, edges, nodes)
        return time.perf_counter() - start

    return seconds
