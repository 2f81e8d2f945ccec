"""Four workers on two executors of a standalone cluster: one machine's answers, also when an executor is killed."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import timely
from tests.cluster.clusters import standalone
from tests.graphs.running import debian, run
from tests.spark.faults import SCHEMA, Saboteur, building, outcome, parent_of, requirements
from timely import graphs
from timely import spark as ts
from timely.graphs.spark import connected_components, pagerank

pytestmark = pytest.mark.cluster

WORKERS = 4
ROUNDS = 20
KIND = "recommends"


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Four slots on two executors, in place of one for each slot; the setting has every run take them all."""
    work = tmp_path_factory.mktemp("standalone")
    with standalone(work, 2, **{"spark.timely.workers": str(WORKERS)}) as session:
        yield session


@pytest.fixture(scope="module")
def edges(session: SparkSession) -> DataFrame:
    return session.createDataFrame(debian(KIND))


def alone(algorithm: Any, column: str, **arguments: Any) -> dict[Any, Any]:
    """What one worker in this process finds."""
    (table,) = run([debian(KIND)], build=lambda stream: algorithm(stream, **arguments))
    return dict(zip(table["node"].to_pylist(), table[column].to_pylist(), strict=True))


def found(frame: DataFrame) -> dict[Any, Any]:
    rows = frame.collect()
    by_node = {row[0]: row[1] for row in rows}
    assert len(by_node) == len(rows) > 1000
    return by_node


def test_components_are_those_of_one_process(edges: DataFrame) -> None:
    assert found(connected_components(edges)) == alone(graphs.connected_components, "component")


def test_ranks_are_those_of_one_process(edges: DataFrame) -> None:
    assert found(pagerank(edges, rounds=ROUNDS)) == pytest.approx(alone(graphs.pagerank, "rank", rounds=ROUNDS), rel=1e-9)


def test_workers_are_two_on_each_executor(edges: DataFrame, tmp_path: Path) -> None:
    assert sorted(map(len, executors(ranks_of(edges, tmp_path, rounds=1), tmp_path).values())) == [2, 2]


def test_an_executor_that_is_killed_between_rounds_changes_no_rank(edges: DataFrame, tmp_path: Path) -> None:
    """Without a checkpoint: Spark starts another executor, and runs the stage again."""
    rounds = 1000
    result = ranks_of(edges, tmp_path, rounds=rounds)
    killed: list[int] = []

    def kill() -> None:
        while (progress := result.progress) is None or not (progress.iteration or 0) > 5:
            time.sleep(0.02)
        executor, *_ = executors_of_workers(tmp_path)
        killed.append(executor)
        os.kill(executor, signal.SIGKILL)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    ranks = found(result["ranks"])
    killer.join(1)
    assert len(killed) == 1
    assert len({int(file.name.split("-")[2]) for file in tmp_path.glob("worker-*")}) > WORKERS
    assert ranks == pytest.approx(alone(graphs.pagerank, "rank", rounds=rounds), rel=1e-9)


def test_an_executor_that_is_killed_is_resumed_from_a_checkpoint(session: SparkSession, tmp_path: Path) -> None:
    rows = requirements(session, 1500)
    plain = ts.run(building(), {"requirements": rows}, {"all": SCHEMA}, workers=1, epoch="epoch")
    saboteur = Saboteur(tmp_path, "executor", "loop", 40, victim=3)
    result = ts.run(
        building(saboteur),
        {"requirements": rows},
        {"all": SCHEMA},
        epoch="epoch",
        checkpoint=tmp_path / "kept",
        checkpoint_every=2,
    )
    assert outcome(result["all"]) == outcome(plain["all"])
    assert saboteur.acted
    assert result.resumed
    assert all(0 < epoch < 24 for epoch in result.resumed)


# -- who is where --------------------------------------------------------------------------------------------------------


def ranks_of(edges: DataFrame, notes: Path, rounds: int) -> ts.Result:
    """PageRank of a dataflow whose workers note which processes they are."""
    saboteur = Saboteur(notes, "count", "input")

    def build(scope: timely.ScopeBuilder[int], edges: timely.Stream[int, Any]) -> dict[str, timely.Stream[int, Any]]:
        return {"ranks": graphs.pagerank(saboteur.plant(edges, "input"), rounds=rounds)}

    return ts.run(build, {"edges": edges}, {"ranks": "node string, rank double"})


def executors_of_workers(notes: Path) -> dict[int, set[int]]:
    """The workers that have noted themselves, by the process of their executor: a worker's parent is the daemon, its child."""
    executors: dict[int, set[int]] = {}
    for file in notes.glob("worker-*"):
        _, worker, pid = file.name.split("-")
        executors.setdefault(parent_of(parent_of(int(pid))), set()).add(int(worker))
    return executors


def executors(result: ts.Result, notes: Path) -> dict[int, set[int]]:
    assert result["ranks"].count() > 1000
    return executors_of_workers(notes)
