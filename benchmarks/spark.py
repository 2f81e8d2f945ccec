"""Graph algorithms on Spark: those of ``timely.graphs.spark`` beside what else one would run, in one session.

Every contestant gets the same DataFrame, which is in Spark's cache, and is timed from there to a result that is thrown away
(Spark's ``noop`` sink). There are the idiomatic DataFrame loops, GraphX, and two workers by hand. A loop that would take
minutes is run for a few rounds, and its time to the end is what its later rounds take each, times the rounds that there
would be; the report says so. All that run to the end are checked to find the same. The last part measures memory, with a
session for each contestant. Spark's packages hold GraphX, but not GraphFrames, whose Java archive pip does not bring; its
components are the loops of ``benchmarks/spark_loops.py``, written from the papers that its algorithms are from, or GraphX's.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from benchmarks import graphs, spark_by_hand, spark_graphx, spark_loops
from benchmarks.report import Row
from benchmarks.spark_memory import CONTESTANTS
from timely.graphs.spark import breadth_first_search, connected_components, pagerank
from timely.spark import local_session

ROUNDS = 10
"""Rounds of PageRank."""

FEW = (5, 25)
"""Of a loop that is not run to its end, the rounds that are run: the time of each further one is between these."""

WARM_UPS = 2
"""How often all but the loops run before they are timed: Java needs a while to be at its best. What they find is checked."""

LOOPS_TURNS = 2
"""How often a DataFrame loop is run: each takes long enough to be timed well."""

HAND = "two workers by hand"
"""What a job by hand is called that deals the edges to its workers, as one must that does not know how they lie."""

Expected = Callable[[Any, Any, int], tuple[str, Any]]


@attrs.frozen
class Contestant:
    """One way to an answer. ``make`` may run for so many rounds at most; then ``whole`` says how many there would be.

    It is run in so many ``turns``, in all by default; ``barred`` says whether the contest's bar is meant for it.
    """

    name: str
    make: Callable[..., DataFrame]
    whole: int | None = None
    turns: int | None = None
    tolerance: float = 1e-9
    barred: bool = True

    def seconds(self, session: SparkSession) -> float:
        """Return how long it takes, or would take, from the cached edges to the end of the result."""
        if self.whole is None or self.whole <= FEW[1]:
            return _timed(session, self.make)
        few, more = (_timed(session, partial(self.make, rounds)) for rounds in FEW)
        return more + (self.whole - FEW[1]) * (more - few) / (FEW[1] - FEW[0])

    @property
    def note(self) -> str:
        """What a reader of its time should know."""
        return f"from {FEW[1]} of {self.whole:,} rounds" if self.whole is not None and self.whole > FEW[1] else ""


@attrs.frozen
class Contest:
    """A graph and a question, what the answer is, and who answers it; the first contestant is ours."""

    name: str
    edges: pa.RecordBatch
    nodes: int
    expected: Expected
    contestants: tuple[Contestant, ...]
    bar: tuple[float, float] | None
    """Floor and aim for how many times longer the quickest DataFrame loop takes."""


def run(rounds: int = 5, *, quick: bool = False, long: bool = False) -> list[Row]:
    """Run all contests and return the rows of the report; in a ``long`` one memory is measured for 30 million edges too."""
    session = local_session(2)
    try:
        asked = [contest for name, graph in _graphs(quick).items() for contest in contests(session, name, *graph)]
        for turn in range(WARM_UPS):
            for contest in asked:
                for contestant in contest.contestants:
                    if turn == 0 or contestant.turns is None:
                        check(contest, contestant)
        medians = _medians(session, asked, rounds)
    finally:
        session.stop()
    rows = [row for contest in asked for row in _rows(contest, medians)]
    sizes = (100_000,) if quick else (1_000_000, 10_000_000, 30_000_000)
    return rows + _memory(*sizes[: 3 if long else 2])


def _graphs(quick: bool) -> dict[str, tuple[pa.RecordBatch, int, int | None]]:
    """Return, for each graph, its edges, how many nodes it has, and how many rounds go along its longest path, if many."""
    nodes, side, length = (10_000, 100, 300) if quick else (100_000, 300, 2_000)
    path = np.arange(length)
    return {
        f"random, {10 * nodes:,} edges": (graphs.random_graph(nodes, 10 * nodes), nodes, None),
        f"grid {side}x{side}": (graphs.grid(side), side * side, 2 * side - 1),
        f"path of {length:,}": (pa.record_batch({"src": path[:-1], "dst": path[1:]}), length, length),
    }


def contests(
    session: SparkSession, graph: str, batch: pa.RecordBatch, nodes: int, whole: int | None, rounds: int = ROUNDS
) -> list[Contest]:
    """Return what is asked of a graph whose nodes are the numbers from 0 up to ``nodes``, each an end of an edge."""
    # A table that came from Python stands in the plan with all its rows, and Spark walks over them whenever it makes a DataFrame
    # of it, a few hundredths of a second each time: the checkpoint takes them out, as for a table that was read from somewhere.
    edges = session.createDataFrame(pa.Table.from_batches([batch])).repartition(2).localCheckpoint().persist()
    edges.count()
    return [
        _components(edges, graph, batch, nodes, whole),
        _ranks(edges, graph, batch, nodes, whole, rounds),
        _distances(edges, graph, batch, nodes, whole),
    ]


def _components(edges: DataFrame, graph: str, batch: pa.RecordBatch, nodes: int, whole: int | None) -> Contest:
    hand = spark_by_hand.components

    def stars() -> DataFrame:
        return spark_loops.stars(edges).found

    def two_phase() -> DataFrame:
        return spark_loops.two_phase(edges).found

    def contraction() -> DataFrame:
        return spark_loops.by_smallest(spark_loops.randomized_contraction(edges).found)

    def labels(rounds: int = spark_loops.NO_END) -> DataFrame:
        return spark_loops.label_propagation(edges, rounds).found

    def by_graphx(rounds: int = spark_graphx.NO_END) -> DataFrame:
        return spark_graphx.components(edges, rounds)

    contestants = (
        Contestant("ours", lambda: connected_components(edges)),
        *_by_hand(edges, nodes, hand, "node long, component long"),
        Contestant("GraphX", by_graphx, whole),
        Contestant("label propagation", labels, whole, LOOPS_TURNS),
        # Made for long paths; the bar is for what is not.
        Contestant("stars", stars, turns=LOOPS_TURNS, barred=whole is None),
        Contestant("two-phase", two_phase, turns=LOOPS_TURNS, barred=whole is None),
        Contestant("randomized contraction", contraction, turns=LOOPS_TURNS, barred=whole is None),
    )
    bar = (8.0, 20.0) if whole is None else (300.0, 1000.0)
    return Contest(f"components, {graph}", batch, nodes, graphs.components_by_hand, contestants, bar)


def _ranks(edges: DataFrame, graph: str, batch: pa.RecordBatch, nodes: int, whole: int | None, rounds: int) -> Contest:
    hand = spark_by_hand.ranks(rounds)
    contestants = (
        Contestant("ours", lambda: pagerank(edges, rounds=rounds)),
        *_by_hand(edges, nodes, hand, "node long, rank double"),
        Contestant("GraphX", lambda: spark_graphx.ranks(edges, rounds), tolerance=1e-2),
        Contestant("DataFrame loop", lambda: spark_loops.ranks(edges, rounds).found, turns=LOOPS_TURNS),
    )

    def expected(src: Any, dst: Any, nodes: int) -> tuple[str, Any]:
        return graphs.ranks_by_hand(src, dst, nodes, rounds)

    bar = (8.0, 20.0) if whole is None else None  # ten rounds are ten rounds, however long the paths
    return Contest(f"PageRank, {rounds} rounds, {graph}", batch, nodes, expected, contestants, bar)


def _distances(edges: DataFrame, graph: str, batch: pa.RecordBatch, nodes: int, whole: int | None) -> Contest:
    hand = spark_by_hand.distances

    def loop(rounds: int = spark_loops.NO_END) -> DataFrame:
        return spark_loops.distances(edges, rounds).found

    contestants = (
        Contestant("ours", lambda: breadth_first_search(edges, 0)),
        *_by_hand(edges, nodes, hand, "node long, distance long"),
        Contestant("DataFrame loop", loop, whole, LOOPS_TURNS),
    )
    bar = (8.0, 20.0) if whole is None else (300.0, 1000.0)
    return Contest(f"breadth-first search, {graph}", batch, nodes, graphs.distances_by_hand, contestants, bar)


def _by_hand(edges: DataFrame, nodes: int, part: spark_by_hand.Part, schema: str) -> tuple[Contestant, Contestant]:
    """Return two jobs by hand: one that deals the edges to its workers, and one that knows that they are dealt already."""
    by_hand = partial(spark_by_hand.by_hand, edges, nodes, part, schema)
    return Contestant(HAND, by_hand), Contestant(f"{HAND}, edges in place", partial(by_hand, dealt=True))


def _timed(session: SparkSession, make: Callable[[], DataFrame]) -> float:
    java: Any = session._jvm
    java.System.gc()  # what earlier contestants have left behind
    start = time.perf_counter()
    make().write.format("noop").mode("overwrite").save()
    return time.perf_counter() - start


def check(contest: Contest, contestant: Contestant) -> None:
    """Raise unless the contestant finds what is expected; of one that is not run to its end, nothing is known."""
    if contestant.note:
        return
    found = contestant.make().toArrow()
    expected = graphs.by_hand(contest.expected, contest.edges, contest.nodes)
    table = found.sort_by("node")
    for name in expected.schema.names:
        values = table[name].to_numpy(), expected[name].to_numpy()
        same = len(values[0]) == len(values[1]) and np.allclose(*values, rtol=contestant.tolerance, atol=0)
        assert same, f"{contest.name}: {contestant.name} finds another {name}"


def _medians(session: SparkSession, contests: list[Contest], rounds: int) -> Mapping[tuple[str, str], float]:
    """Run all contestants in turn, in so many rounds; return the median for each."""
    found: dict[tuple[str, str], list[float]] = {}
    for turn in range(rounds):
        for contest in contests:
            for contestant in contest.contestants:
                if contestant.turns is None or turn < contestant.turns:
                    seconds = contestant.seconds(session)
                    found.setdefault((contest.name, contestant.name), []).append(seconds)
                    print(f"{contest.name}: {contestant.name} {seconds:.2f} s", file=sys.stderr, flush=True)
            found.setdefault((contest.name, "one process"), []).append(_without_spark(contest))
    return {key: statistics.median(seconds) for key, seconds in found.items()}


def _without_spark(contest: Contest) -> float:
    start = time.perf_counter()
    graphs.by_hand(contest.expected, contest.edges, contest.nodes)
    return time.perf_counter() - start


def _rows(contest: Contest, medians: Mapping[tuple[str, str], float]) -> list[Row]:
    ours = medians[contest.name, "ours"]
    rows = [
        Row(f"{contest.name}: ours, s", ours),
        Row(f"{contest.name}: one process without Spark, s", medians[contest.name, "one process"]),
    ]
    for contestant in contest.contestants[1:]:
        theirs = medians[contest.name, contestant.name]
        note = ", ".join(filter(None, (f"{theirs:.2f} s", contestant.note)))
        if contestant.name.startswith(HAND):
            floor, aim = (2.0, 1.2) if contestant.name == HAND else (None, None)
            row = Row(f"{contest.name}: ours over {contestant.name}", ours / theirs, floor, aim, less=True, note=note)
        else:
            bar = (2.0, 4.0) if contestant.name == "GraphX" else contest.bar
            floor, aim = bar if bar is not None and contestant.barred else (None, None)
            row = Row(f"{contest.name}: {contestant.name} over ours", theirs / ours, floor, aim, note=note)
        rows.append(row)
    return rows


def _memory(*sizes: int) -> list[Row]:
    """Return time and peak memory for so many edges, each contestant in a process and a session of its own."""
    rows = []
    for edges in sizes:
        for algorithm, contestants in CONTESTANTS.items():
            for contestant in contestants:
                command = [sys.executable, "-m", "benchmarks.spark_memory", contestant, algorithm, str(edges)]
                done = subprocess.run(command, capture_output=True, text=True)
                name = f"{algorithm}, random, {edges:,} edges: {contestant}"
                if done.returncode:  # it may be out of memory, which is an answer
                    rows.append(Row(f"{name}, processor s", None, note=done.stderr.strip().splitlines()[-1][:200]))
                    continue
                told = json.loads(done.stdout.splitlines()[-1])
                over = told["seconds"] is None
                note = f"over {told['processor']:,} s" if over else f"in {told['seconds']:.1f} s"
                rows.append(Row(f"{name}, processor s", None if over else told["processor"], note=note))
                note = f"Python {told['python'] / 1e6:,.0f}, Java {told['java'] / 1e6:,.0f}"
                rows.append(Row(f"{name}, peak MB", told["peak"] / 1e6, note=note))
    return rows
