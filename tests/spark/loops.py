"""What the tests of runs that resume inside of loops share: every graph function, and a killer who comes as a live page.

White box: nothing of the user's runs in most graph functions. A live page is entered in every worker, a tracer sees its steps.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import random
import signal
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import attrs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.spark.faults import parent_of
from timely.graphs import spark as graphs
from timely.graphs.spark import Pregel
from timely.worker import Worker
from timely.worker.internals import tracers
from timely.worker.tracer import Tracer

EVERY = timedelta(milliseconds=20)
"""A checkpoint after a few steps."""


@attrs.frozen
class Kill:
    """One death: of ``victim``, so many steps after its attempt began, if there is a checkpoint by then.

    ``deed`` is ``"worker"``, ``"executor"``, or ``"driver"``, for which a file is left: the driver is killed by who started it.
    """

    victim: int
    after: int
    deed: str = "worker"


@attrs.frozen
class Killer:
    """Kills one after the other, each in an attempt of its own; give it to a run as its ``live`` page."""

    notes: Path
    kept: Path
    kills: tuple[Kill, ...]

    def open(self, name: str) -> None:
        """Receive nothing."""

    @property
    def look(self) -> Callable[..., contextlib.AbstractContextManager[None]]:
        return functools.partial(_looking, self)

    @property
    def done(self) -> int:
        """How many were killed."""
        return len(list(self.notes.glob("kill-*")))

    def killed(self, number: int) -> Path:
        return self.notes / f"kill-{number}"


@contextlib.contextmanager
def _looking(killer: Killer, worker: Worker, send: object) -> Iterator[None]:
    tracers(worker).append(_Steps(killer, worker.index))
    yield


class _Steps(Tracer):
    """A tracer that counts steps."""

    def __init__(self, killer: Killer, worker: int) -> None:
        self._killer = killer
        self._number = killer.done
        kills = killer.kills[self._number :]
        self._kill = kills[0] if kills and kills[0].victim == worker else None
        self._steps = 0

    def built(self, *_: object) -> None: ...

    def sent(self, *_: object) -> None: ...

    def received(self, *_: object) -> None: ...

    def waited(self, *_: object) -> None: ...

    def ended(self, *_: object) -> None: ...

    def stepped(self) -> None:
        self._steps += 1
        kill = self._kill
        if kill is None or self._steps < kill.after or not list(self._killer.kept.glob("*.manifest")):
            return
        self._kill = None
        self._killer.killed(self._number).write_text(kill.deed)
        if kill.deed == "worker":
            os.kill(os.getpid(), signal.SIGKILL)
        elif kill.deed == "executor":
            os.kill(parent_of(os.getppid()), signal.SIGKILL)


# -- graphs ----------------------------------------------------------------------------------------------------------------


def weighted_edges(session: SparkSession, nodes: int = 45) -> DataFrame:
    """Return edges with weights: a path in a random order, so that loops take many rounds, with a few chords and cycles."""
    choose = random.Random(nodes)
    path = choose.sample(range(nodes), nodes)
    pairs = [
        *itertools.pairwise(path),
        *((choose.choice(path[20:]), choose.choice(path[:30])) for _ in range(nodes // 3)),
    ]
    return session.createDataFrame([(a, b, float(1 + (a * 7 + b) % 5)) for a, b in pairs], "src long, dst long, weight double")


def _pregel(edges: DataFrame, **options: Any) -> graphs.GraphResult:
    nodes = edges.selectExpr("src AS node").union(edges.selectExpr("dst AS node")).distinct()
    return graphs.pregel(nodes.selectExpr("node", "node AS state"), edges, least, min, **options)


def least(vertex: Any, messages: list[int]) -> tuple[int, list[tuple[int, int]]]:
    """Compute the least vertex that reaches this one."""
    state = min([vertex.state, *messages])
    changed = vertex.superstep == 0 or state < vertex.state
    return state, [(target, state) for target in vertex.edges if changed]


FUNCTIONS: dict[str, Callable[..., graphs.GraphResult]] = {
    "pagerank": functools.partial(graphs.pagerank, rounds=40),
    "connected_components": graphs.connected_components,
    "strongly_connected_components": graphs.strongly_connected_components,
    "breadth_first_search": lambda edges, **options: graphs.breadth_first_search(edges, 3, **options),
    "shortest_paths": lambda edges, **options: graphs.shortest_paths(edges, 3, **options),
    "label_propagation": functools.partial(graphs.label_propagation, rounds=25),
    "triangle_count": graphs.triangle_count,
    "pregel": _pregel,
}


def _far(graph: graphs.GraphFrame, **options: Any) -> graphs.GraphResult:
    """How far each vertex is from 3, by Pregel over columns."""
    nearer = F.least(Pregel.msg(), F.col("far"))
    program = graph.pregel.setMaxIter(200).setEarlyStopping(True).withVertexColumn("far", F.when(F.col("id") == 3, 0), nearer)
    send = F.when(Pregel.dst("far").isNull(), Pregel.src("far") + 1)
    return program.sendMsgToDst(send).aggMsgs(F.min(Pregel.msg())).run(**options)


METHODS: dict[str, Callable[..., DataFrame]] = {
    "pregel": _far,
    "pageRank": lambda graph, **options: graph.pageRank(maxIter=40, **options).vertices,
    "shortestPaths": lambda graph, **options: graph.shortestPaths([3, 5], **options),
    "k_core": lambda graph, **options: graph.k_core(**options),
    "connectedComponents": lambda graph, **options: graph.connectedComponents(**options),
}
"""Methods of a ``GraphFrame`` whose loops take many rounds."""


def graph_frame(edges: DataFrame) -> graphs.GraphFrame:
    """Return edges as a graph that has passed ``validate()``."""
    ids = edges.selectExpr("explode(array(src, dst)) AS id").distinct()
    graph = graphs.GraphFrame(ids, edges.drop("weight"), workers=2)
    graph.validate()
    return graph


def rows(frame: DataFrame) -> list[Any]:
    """Return the rows, sorted; floats to 12 digits, since in which order a worker gets its rows is Spark's choice."""
    return sorted((node, round(value, 12) if isinstance(value, float) else value) for node, value in frame.collect())
