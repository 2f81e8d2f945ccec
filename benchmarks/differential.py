"""Incremental collections: what it costs to load one, and to keep results up to date while it changes.

A random graph of 1 M edges and 100,000 nodes is loaded as columns; then edges are moved, 1, 10, 100 and 1,000 at a time, and
each change is waited for. Figures are processor seconds of the thread, and bars are ratios to what is measured beside them: ``A``
orders and adds up 1 M random updates in NumPy, ``L`` is a pass of an empty loop of this library, ``S`` is SciPy's breadth-first
search from nothing. Distances are compared with SciPy's after the last change. pathway keeps the same distances for the same
moves, in a process of its own: its seconds are wall time, from a commit to its last output.
"""

from __future__ import annotations

import json
import random
import subprocess
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import breadth_first_order

import timely
from benchmarks.environments import Unavailable, python_with
from benchmarks.measure import Measured
from benchmarks.report import Row
from timely import differential as dd

NODES = 100_000
EDGES = 1_000_000
WARM = 300
PATHWAY = "pathway==0.33.0"

Array = np.ndarray[Any, Any]


@attrs.frozen
class Graph:
    """The edges of a graph, and a source of random moves."""

    src: Array
    dst: Array
    nodes: int


def random_graph(nodes: int, edges: int) -> Graph:
    """Return a random graph, the same each time."""
    rng = np.random.default_rng(1)
    return Graph(rng.integers(0, nodes, edges), rng.integers(0, nodes, edges), nodes)


def _processor(work: Callable[[], object]) -> float:
    begun = time.thread_time()
    work()
    return time.thread_time() - begun


def order_and_add(edges: int) -> float:
    """``A``: the seconds that it takes to order and add up random ``(key, value, time)``."""
    rng = np.random.default_rng(2)
    packed = (rng.integers(0, NODES, edges) << 20 | rng.integers(0, NODES, edges)) << 2 | rng.integers(0, 4, edges)

    def work() -> None:
        ordered = packed[np.argsort(packed)]
        starts = np.concatenate((np.zeros(1, np.int64), np.flatnonzero(ordered[1:] != ordered[:-1]) + 1))
        np.add.reduceat(np.ones(edges, np.int64), starts)

    return _processor(work)


def loop_pass(rounds: int = 10_000) -> float:
    """``L``: the seconds of one pass of a loop of ``map`` and ``filter``."""
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            numbers, stream = scope.new_input()
            with scope.iterative() as loop:
                handle, again = loop.feedback()
                left = stream.enter(loop).concat(again).map(lambda x: x - 1).filter(lambda x: x > 0)
                left.connect_loop(handle)
                probe = left.leave().probe()
        numbers.send(rounds)
        numbers.advance_to(1)
        return _processor(lambda: worker.step_while(lambda: probe.less_than(1))) / rounds


def _scipy(graph: Graph, src: Array, dst: Array) -> dict[int, int]:
    """Return the distances from node 0."""
    matrix = csr_matrix((np.ones(len(src), np.int8), (src, dst)), shape=(graph.nodes, graph.nodes))
    order, before = breadth_first_order(matrix, 0)
    found = {0: 0}
    for node in order[1:].tolist():
        found[node] = found[int(before[node])] + 1
    return found


def scipy_seconds(graph: Graph) -> float:
    """``S``: the seconds of one search from nothing."""

    def work() -> None:
        matrix = csr_matrix((np.ones(len(graph.src), np.int8), (graph.src, graph.dst)), shape=(graph.nodes, graph.nodes))
        breadth_first_order(matrix, 0)

    return _processor(work)


class Changing:
    """A dataflow over a graph whose edges move."""

    def __init__(self, graph: Graph, build: Callable[[Any, Any], Any]) -> None:
        self.worker = timely.Worker()
        with self.worker.dataflow(int) as scope:
            self.edges, edges = dd.new_collection(scope)
            self.roots, roots = dd.new_collection(scope)
            result = build(edges, roots)
            self.probe = result.probe()
            self.output = result.output()
        self._graph = graph
        self._random = random.Random(3)
        self._src, self._dst = graph.src.tolist(), graph.dst.tolist()
        self.time = 0

    def load(self) -> float:
        """Load the graph, and return the seconds."""
        self.roots.insert(0)

        def work() -> None:
            self.edges.insert_columns(self._graph.src, self._graph.dst)
            self._advance()

        return _processor(work)

    def _advance(self) -> None:
        self.time += 1
        self.edges.advance_to(self.time)
        self.roots.advance_to(self.time)
        self.worker.step_while(lambda: self.probe.less_than(self.time))

    def change(self, moves: int) -> float:
        """Move so many edges in one epoch, and return the seconds until all is complete."""
        chosen = [self._random.randrange(len(self._src)) for _ in range(moves)]
        ends = [(self._random.randrange(self._graph.nodes), self._random.randrange(self._graph.nodes)) for _ in chosen]

        def work() -> None:
            for number, (src, dst) in zip(chosen, ends, strict=True):
                self.edges.remove((self._src[number], self._dst[number]))
                self.edges.insert((src, dst))
                self._src[number], self._dst[number] = src, dst
            self._advance()

        return _processor(work)

    def check(self) -> None:
        """Compare the distances with SciPy's."""
        src, dst = np.array(self._src), np.array(self._dst)
        expected = _scipy(self._graph, src, dst)
        assert self.output.at(self.time - 1) == dict.fromkeys(expected.items(), 1)


def _search(edges: Any, roots: Any) -> Any:
    return dd.graphs.breadth_first_search(edges, roots)


def _components(edges: Any, roots: Any) -> Any:
    return dd.graphs.connected_components(edges)


def _triangles(edges: Any, roots: Any) -> Any:
    return dd.graphs.triangle_count(edges)


def _percentile(times: list[float], share: float) -> float:
    return sorted(times)[int(len(times) * share)]


@attrs.frozen
class Found:
    """The seconds of one round."""

    load: float
    median: dict[int, float]
    p99: float
    longest: float


def searched(graph: Graph, build: Callable[[Any, Any], Any], counts: dict[int, int], check: bool) -> Found:
    """Load a graph, move edges, and return the seconds."""
    changing = Changing(graph, build)
    load = changing.load()
    for _ in range(WARM):
        changing.change(1)
    times = {moves: [changing.change(moves) for _ in range(count)] for moves, count in counts.items()}
    if check:
        changing.check()
    changing.worker.close()
    return Found(
        load,
        {moves: _percentile(found, 0.5) for moves, found in times.items()},
        _percentile(times[1], 0.99),
        max(times[1]),
    )


def aggregate_change(values: int, in_loop: bool) -> float:
    """Return the median seconds of one change of a key with many values."""
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            session, numbers = dd.new_collection(scope)
            if in_loop:
                with scope.iterative() as loop:
                    probe = numbers.enter(loop).min_by_key().leave().probe()
            else:
                probe = numbers.min_by_key().probe()
        session.insert_columns(np.zeros(values, np.int64), np.arange(values))
        times: list[float] = []
        for number in range(300):
            session.remove((0, number))
            session.advance_to(number + 1)
            times.append(_processor(lambda at=number + 1: worker.step_while(lambda: probe.less_than(at))))  # type: ignore[misc]
    return _percentile(times[20:], 0.5)


def epochs_on_one_key(epochs: int, at_once: bool) -> float:
    """Return the seconds of ``epochs`` inserts of one record, whose count is joined with itself: odd counts with even ones."""
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            session, keys = dd.new_collection(scope)
            counts = keys.count()
            odd, even = (counts.filter(lambda pair, rest=rest: pair[1] % 2 == rest) for rest in (1, 0))  # type: ignore[misc]
            joined = odd.join(even).consolidate()
            probe, output = joined.probe(), joined.output()

        def work() -> None:
            for epoch in range(epochs):
                session.insert("key")
                session.advance_to(epoch + 1)
                if not at_once:
                    worker.step_while(lambda: probe.less_than(epoch + 1))  # noqa: B023  # called at once
            worker.step_while(lambda: probe.less_than(epochs))

        seconds = _processor(work)
        assert output.changes() == []
    return seconds


def shared_memory(graph: Graph, queries: int) -> float:
    """Return the bytes of so many two-hop queries of five nodes each, in dataflows of their own, on one arrangement."""
    tracemalloc.start()
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            session, edges = dd.new_collection(scope)
            arranged = edges.arrange_by_key()
            probe = arranged.as_collection().probe()
        trace = arranged.trace
        session.insert_columns(graph.src, graph.dst)
        session.advance_to(1)
        worker.step_while(lambda: probe.less_than(1))
        kept: list[Any] = []
        for query in range(queries):
            with worker.dataflow(int) as scope:
                imported = trace.import_into(scope)
                asked = dd.collection(scope, [(5 * query + number, 5 * query + number) for number in range(5)])
                hop = asked.join_map(imported, lambda node, start, to: (to, start))
                kept.append((imported, hop.join_map(imported, lambda node, start, to: (start, to)).probe()))
        for _, done in kept:
            worker.step_while(lambda: done.less_than(1))  # noqa: B023  # called at once
        used = tracemalloc.get_traced_memory()[0]
        for imported, _ in kept:
            imported.close()
        trace.close()
    tracemalloc.stop()
    return float(used)


def lookup(graph: Graph) -> float:
    """Return the seconds of looking up a key in an arrangement."""
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            session, edges = dd.new_collection(scope)
            arranged = edges.arrange_by_key()
            probe = arranged.as_collection().probe()
        session.insert_columns(graph.src, graph.dst)
        session.advance_to(1)
        trace = arranged.trace
        worker.step_while(lambda: probe.less_than(1))
        keys = random.Random(5).sample(range(graph.nodes), min(2_000, graph.nodes))

        def work() -> None:
            for key in keys:
                trace.get(key)

        return _processor(work) / len(keys)


def pathway_seconds(graph: Graph, folder: Path, moves: int) -> dict[str, float]:
    """Return what ``contestants/pathway_changes.py`` measures, in pathway's own environment."""
    python = python_with(PATHWAY)
    np.save(folder / "src.npy", graph.src)
    np.save(folder / "dst.npy", graph.dst)
    program = Path(__file__).parent / "contestants" / "pathway_changes.py"
    command = [python, str(program), str(folder), str(graph.nodes), str(moves)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1_800)
    if done.returncode:
        raise Unavailable(f"pathway failed: {done.stderr.splitlines()[-1:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def run(rounds: int = 5, quick: bool = False) -> list[Row]:
    """Return the rows of the report."""
    scale = 20 if quick else 1
    graph = random_graph(NODES // scale, EDGES // scale)
    rounds = max(1, min(rounds, 3))
    counts = {1: 400, 10: 60} if quick else {1: 1_500, 10: 200, 100: 60, 1_000: 20}
    units = [(order_and_add(EDGES // scale), loop_pass(), scipy_seconds(graph)) for _ in range(max(rounds, 3))]
    a, loop, s = (min(unit[number] for unit in units) for number in range(3))
    search = [searched(graph, _search, counts, check=number == 0) for number in range(rounds)]
    parts = [searched(graph, _components, {1: counts[1] // 3}, check=False) for _ in range(rounds)]
    few = random_graph(NODES // (5 * scale), EDGES // (5 * scale))
    triangles = [searched(few, _triangles, {1: counts[1] // 3, 100: 20}, check=False) for _ in range(rounds)]
    note = f"A = {1e3 * a:.0f} ms, L = {1e6 * loop:.1f} us, S = {1e3 * s:.1f} ms"
    rows = [
        _row("breadth-first search: load 1 M edges, over A", search, lambda found: found.load / a, 8, 4, note),
        _row("one change, median, over L", search, lambda found: found.median[1] / loop, 14, 9),
        _row("one change, 99th percentile, ms", search, lambda found: 1e3 * found.p99, 4, 2),
        _row("one change, longest, ms", search, lambda found: 1e3 * found.longest, 120, 10),
        _row("ten changes, median, ms", search, lambda found: 1e3 * found.median[10]),
    ]
    if not quick:
        rows += [
            _row("100 changes, median, over S", search, lambda found: found.median[100] / s, 1 / 4, 1 / 8),
            _row("1,000 changes, median, over S", search, lambda found: found.median[1_000] / s, 1, 1 / 2),
        ]
    values = 100_000 // scale
    rows += [
        _row("components: load, over A", parts, lambda found: found.load / a, 20, 12),
        _row("components: one change, median, over L", parts, lambda found: found.median[1] / loop, 30, 20),
        _row("triangles: load 200,000 edges, over A", triangles, lambda found: found.load / a),
        _row("triangles: one change, median, over L", triangles, lambda found: found.median[1] / loop),
        _row("triangles: 100 changes, median, ms", triangles, lambda found: 1e3 * found.median[100]),
        Row(f"least of a key with {values:,} values: one change, over L", aggregate_change(values, False) / loop, 3, 1.5, True),
        Row("the same in a loop, over L", aggregate_change(values, True) / loop, 40, 15, True),
        Row(
            f"{10_000 // scale:,} epochs of one key through count and join: all at once over one by one",
            epochs_on_one_key(10_000 // scale, True) / epochs_on_one_key(10_000 // scale, False),
            *(1.5, 0.7, True),
        ),
        Row(
            "ten queries on one arrangement: memory over that of one",
            shared_memory(graph, 10) / shared_memory(graph, 1),
            *(1.3, 1.1, True),
        ),
        Row("lookup of a key in 1 M updates, us", 1e6 * lookup(graph), 8, 3, True),
    ]
    return [*rows, *_against_pathway(graph, search[0], 20 if quick else 100)]


def _row(
    name: str,
    found: list[Found],
    value: Callable[[Found], float],
    floor: float | None = None,
    aim: float | None = None,
    note: str = "",
) -> Row:
    return Row(name, Measured(map(value, found)), floor, aim, True, note)


def _against_pathway(graph: Graph, ours: Found, moves: int) -> Iterator[Row]:
    import tempfile

    names = (("load", "load"), ("one change", "change"))
    try:
        with tempfile.TemporaryDirectory() as folder:
            theirs = pathway_seconds(graph, Path(folder), moves)
    except Unavailable as reason:
        yield from (Row(f"{name}: pathway over this library", None, note=str(reason)) for name, _ in names)
        return
    yield Row("load: pathway over this library", theirs["load"] / ours.load, 10, 30, note=f"pathway {theirs['load']:.1f} s")
    change = theirs["change"]
    yield Row("one change: pathway over this library", change / ours.median[1], 10, 30, note=f"pathway {1e3 * change:.1f} ms")
