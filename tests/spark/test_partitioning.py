"""How rows without keys reach the workers: each once, whatever the order in which a task has them that runs again."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import BarrierTaskContext
from pyspark.sql import DataFrame, SparkSession

import timely
from tests.spark.lost_map_outputs import ROWS, WORKERS
from tests.spark.runs import Streams
from timely import spark as ts
from timely.errors import ConfigurationError
from timely.graphs.spark import connected_components

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("partitioning", ["hash", pytest.param("even", marks=pytest.mark.soak)])
def test_rows_come_once_where_a_task_runs_again_and_has_them_in_another_order(partitioning: str, tmp_path: Path) -> None:
    """A worker fails, and what a task before it has written is gone: Spark runs that task again, then all workers.

    In a session of its own, since Spark takes the executor that lost an output for lost itself, with the results that it keeps.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])}
    command = [sys.executable, "-m", "tests.spark.lost_map_outputs", str(tmp_path), partitioning]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[-2:] == [f"{partitioning}, {inputs} inputs" for inputs in (1, 2)]


def plan_of(frame: DataFrame) -> str:
    plan: Any = frame._jdf.queryExecution().executedPlan()
    return str(plan.toString())


def test_edges_go_by_the_hash_of_their_ends_and_spread_evenly(session: SparkSession) -> None:
    edges = session.range(0, ROWS, 1, 5).selectExpr("id % 700 as src", "id % 900 as dst", "map(id, id) as tags")
    assert "hashpartitioning" in plan_of(connected_components(edges, workers=WORKERS))
    assert "RoundRobinPartitioning" not in plan_of(connected_components(edges, workers=WORKERS))

    def counted(scope: timely.ScopeBuilder[int], **tables: timely.Stream[int, Any]) -> Streams:
        def place(batch: pa.RecordBatch) -> pa.RecordBatch:
            context = BarrierTaskContext.get()
            assert context is not None
            return pa.record_batch({"worker": [context.partitionId()] * batch.num_rows})

        return {"worker": tables["edges"].map_batch(place)}

    for inputs in ({"edges": edges}, {"edges": edges, "vertices": edges.select("src")}):
        placed = ts.run(counted, inputs, {"worker": "worker long"}, workers=WORKERS, partitioning="hash")["worker"]
        counts = Counter(row.worker for row in placed.collect())
        assert sum(counts.values()) == ROWS and len(counts) == WORKERS
        assert min(counts.values()) > ROWS / WORKERS * 0.8


def test_rows_of_all_types_go_by_the_hash_of_what_spark_can_hash(session: SparkSession) -> None:
    frame = session.range(50).selectExpr("map(id, id) as m", "id", "array(cast(id as double)) as xs", "cast(null as date) as d")

    def through(scope: timely.ScopeBuilder[int], table: timely.Stream[int, Any]) -> Streams:
        return {"rows": table}

    for columns in (["m", "id", "xs", "d"], ["m"]):
        chosen = frame.select(*columns)
        output = ts.run(through, {"table": chosen}, {"rows": chosen.schema}, workers=2, partitioning="hash")["rows"]
        assert output.count() == 50


def test_another_partitioning_is_refused(session: SparkSession) -> None:
    unknown: Any = "by size"
    with pytest.raises(ConfigurationError, match="partitioning must be 'even' or 'hash', not 'by size'"):
        ts.run(lambda scope, a: {"a": a}, {"a": session.range(1)}, {"a": "id long"}, workers=1, partitioning=unknown)
