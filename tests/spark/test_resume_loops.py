"""Runs with ``checkpoint=`` that are killed in the middle of a loop go on from the last checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import timely
from tests.spark.loops import EVERY, FUNCTIONS, METHODS, Kill, Killer, graph_frame, rows, weighted_edges
from timely import differential as dd
from timely import spark as ts
from timely.dataflow import route
from timely.errors import ChangedDataflowError, ConfigurationError, OperatorError, StateError
from timely.graphs import spark as graphs

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def edges(session: SparkSession) -> DataFrame:
    return weighted_edges(session)


def test_a_loop_goes_on_after_two_kills(edges: DataFrame, tmp_path: Path) -> None:
    checkpoint = tmp_path / "kept"
    killer = Killer(tmp_path, checkpoint, (Kill(1, 25), Kill(0, 20)))
    options: Any = {"workers": 2, "checkpoint": checkpoint, "checkpoint_every": EVERY}
    result = FUNCTIONS["pagerank"](edges, rounds=150, live=killer, **options)
    assert rows(result) == rows(FUNCTIONS["pagerank"](edges, rounds=150, workers=2))
    assert killer.done == 2
    assert result.resumed == [1, 1]
    assert all(worker.checkpoints for worker in result.metrics)
    assert sorted(file.suffix for file in checkpoint.iterdir()) == [".claim", ".fence"]


def test_a_method_of_a_graph_frame_goes_on_after_a_kill(edges: DataFrame, tmp_path: Path) -> None:
    check_method("pregel", edges, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("name", [name for name in METHODS if name != "pregel"])
def test_each_method_of_a_graph_frame_goes_on_after_a_kill(name: str, edges: DataFrame, tmp_path: Path) -> None:
    check_method(name, edges, tmp_path)


def check_method(name: str, edges: DataFrame, place: Path) -> None:
    """Kill a worker in the loop, and compare with a run that nobody disturbs."""
    graph, checkpoint = graph_frame(edges), place / "kept"
    killer: Any = Killer(place, checkpoint, (Kill(1, 12),))
    result: Any = METHODS[name](graph, checkpoint=checkpoint, checkpoint_every=EVERY, live=killer)
    assert rows(result) == rows(METHODS[name](graph))
    assert (killer.done, result.resumed) == (1, [1])
    result.unpersist()


@pytest.mark.soak
def test_a_new_run_goes_on_where_a_failed_one_was(edges: DataFrame, tmp_path: Path) -> None:
    nodes = edges.selectExpr("src AS node").union(edges.selectExpr("dst AS node")).distinct().selectExpr("node", "0 AS state")
    options: Any = {"workers": 2, "checkpoint": tmp_path / "kept", "checkpoint_every": EVERY}
    repaired = tmp_path / "repaired"

    def compute(vertex: Any, messages: list[int]) -> tuple[int, list[tuple[int, int]]]:
        if vertex.superstep == 20 and not repaired.exists():
            raise ValueError("broken")
        (tmp_path / f"computed-{vertex.superstep}").touch()
        return vertex.superstep, [(target, 1) for target in vertex.edges] if vertex.superstep < 30 else []

    def run(**more: Any) -> graphs.GraphResult:
        return graphs.pregel(nodes, edges, compute, **{**options, **more})

    failing = run()
    with pytest.raises(Exception, match="broken"):
        failing.collect()
    assert isinstance(failing.failure, OperatorError)
    repaired.touch()
    (tmp_path / "computed-0").unlink()
    fewer = run(workers=1)
    with pytest.raises(Exception, match="run 2 workers"):
        fewer.collect()
    assert isinstance(fewer.failure, StateError)
    other = FUNCTIONS["pregel"](edges, **options)
    with pytest.raises(Exception, match="version"):
        other.collect()
    assert isinstance(other.failure, ChangedDataflowError)
    resumed = run()
    assert max(state for _, state in rows(resumed)) == 30
    assert resumed.resumed == [1]
    assert not (tmp_path / "computed-0").exists()


def halved(numbers: Any) -> Any:
    """Halve numbers, round after round, and count how often each came by: an operator of the user's own, in a loop."""

    def constructor(capability: Any, info: timely.OperatorInfo) -> Callable[[Any, Any], object]:
        seen: dict[int, int] = {}
        info.register_state(lambda: [(route(number), item) for item in seen.items() for number in item[:1]], seen.update)

        def logic(input: Any, output: Any) -> None:
            for held, batch in input:
                for number in batch:
                    seen[number] = seen.get(number, 0) + 1
                    output.session(held).give((number, seen[number]))

        return logic

    with numbers.scope.iterative("halving") as loop:
        handle, again = loop.feedback()
        counted = numbers.enter(loop).concat(again).unary(timely.Exchange(lambda number: number), "count", constructor)
        counted.map(lambda pair: pair[0] // 2).filter(lambda number: number > 0).connect_loop(handle)
        return counted.leave().reduce_by_key(max)


def test_a_loop_of_the_users_own_goes_on(session: SparkSession, tmp_path: Path) -> None:
    def build(scope: Any, numbers: Any) -> dict[str, Any]:
        actual = halved(numbers.map_batch(lambda batch: batch["id"].to_pylist()))
        return {"counts": actual.map_batch(as_batch)}

    def as_batch(pairs: list[tuple[int, int]]) -> pa.RecordBatch:
        return pa.record_batch({"n": [n for n, _ in pairs], "times": [times for _, times in pairs]})

    checkpoint = tmp_path / "kept"
    killer: Any = Killer(tmp_path, checkpoint, (Kill(0, 6),))
    inputs, outputs = {"numbers": session.range(1, 1 << 8)}, {"counts": "n long, times long"}
    often = timedelta(microseconds=1)  # the loop is short, and a worker is killed after the first checkpoint
    result = ts.run(build, inputs, outputs, workers=2, checkpoint=checkpoint, checkpoint_every=often, live=killer)
    assert dict(result["counts"].collect()) == {number: (1 << (9 - number.bit_length())) - 1 for number in range(1, 1 << 8)}
    assert (killer.done, result.resumed) == (1, [1])


def test_operators_that_can_be_saved_between_epochs_only_are_refused(session: SparkSession, tmp_path: Path) -> None:
    def build(scope: Any, numbers: Any) -> dict[str, Any]:
        pairs = dd.from_updates(numbers.map_batch(lambda batch: [((n, n), 1) for n in batch["id"].to_pylist()]))
        return {"counts": pairs.count_by_key().stream.map_batch(lambda _: [])}

    result = ts.run(build, {"numbers": session.range(9)}, {"counts": "n long"}, workers=1, checkpoint=tmp_path)
    with pytest.raises(Exception, match="whole only between two times"):
        result["counts"].collect()
    assert isinstance(result.failure, StateError)
    with pytest.raises(ConfigurationError, match="checkpoint_every=3 counts epochs, and without epoch="):
        ts.run(build, {"numbers": session.range(9)}, {"counts": "n long"}, checkpoint=tmp_path, checkpoint_every=3)


def test_what_a_graph_function_returns_is_a_data_frame(edges: DataFrame) -> None:
    result = graphs.connected_components(edges, workers=1)
    assert isinstance(result, DataFrame)
    assert (result.progress, result.failure, result.resumed, list(result.metrics)) == (None, None, [], [])
    sizes = result.groupBy("component").count().orderBy("component")
    assert result.join(sizes, "component").select(result.node).distinct().count() == result.count()
    assert result.metrics.rows_out == {"found": 45}
    assert not hasattr(sizes, "metrics")
    with pytest.raises(TypeError, match="tolerance"):
        graphs.connected_components(edges, tolerance=1)  # type: ignore[call-arg]
    with pytest.raises(ConfigurationError, match="checkpoint_every"):
        graphs.connected_components(edges, checkpoint="here", checkpoint_every=timedelta(0))
