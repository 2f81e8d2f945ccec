"""``timely.spark.run``: what it refuses before a job starts, and what a worker looks like that fails while one runs."""

from __future__ import annotations

import os
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import BarrierTaskContext
from pyspark.sql import DataFrame, SparkSession

import timely
from tests.spark.runs import Streams, applying, failing, jobs_of, rows, through
from timely import spark as ts
from timely.errors import ConfigurationError, OperatorError, SchemaError, SparkError, WorkerError

pytestmark = pytest.mark.spark


# -- what it refuses ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, -1, 1.0, True])
def test_a_count_of_workers_that_is_none(edges: DataFrame, workers: Any) -> None:
    with pytest.raises(ConfigurationError, match="workers must be an integer of 1 or more"):
        ts.run(through, {"edges": edges}, {"edges": "src string, dst string"}, workers=workers)
    with pytest.raises(ConfigurationError, match="workers must be an integer of 1 or more"):
        ts.local_session(workers)


def test_fewer_slots_than_workers(edges: DataFrame) -> None:
    with pytest.raises(SparkError, match=r"4 workers need 4 task slots at the same time; local\[3\] offers 3.*local\[4\]"):
        ts.run(through, {"edges": edges}, {"edges": "src string, dst string"}, workers=4)
    with pytest.raises(SparkError, match=r"local\[3\] offers 3"):
        ts.local_session(4)


@pytest.mark.parametrize(
    ("inputs", "outputs", "message"),
    [
        ({}, {"x": "x long"}, "inputs must be a dictionary with at least one entry"),
        ({"x": [1, 2]}, {"x": "x long"}, r"inputs\['x'\] must be a Spark DataFrame, not <class 'list'>"),
        ({"a b": None}, {"x": "x long"}, "'a b' cannot be a name"),
    ],
)
def test_inputs_that_cannot_be(inputs: Any, outputs: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        ts.run(through, inputs, outputs, workers=1)


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ({}, "outputs must be a dictionary"),
        ({"1": "x long"}, "'1' cannot be a name"),
        ({"x": "x lnog"}, r"outputs\['x'\]: 'x lnog' is no list of columns"),
        ({"x": "long"}, r"outputs\['x'\] must be like"),
        ({"x": "x long, x int"}, "two columns have the same name"),
        ({"x": 3}, r"outputs\['x'\] must be like"),
    ],
)
def test_outputs_that_cannot_be(edges: DataFrame, outputs: Any, message: str) -> None:
    with pytest.raises((ConfigurationError, SchemaError), match=message):
        ts.run(through, {"edges": edges}, outputs, workers=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epoch": "when"}, "epoch: input 'edges' has no column 'when'; it has 'src', 'dst'"),
        ({"key": {"edges": "Src"}}, "key: input 'edges' has no column 'Src'"),
        ({"key": {"nodes": "src"}}, "key: there is no input 'nodes'; the inputs are 'edges'"),
        ({"epoch": ["src"]}, r"epoch must be the name of a column that every input has, or a dictionary .*, not \['src'\]"),
        ({"key": 3}, "key must be the name of a column that every input has, or a dictionary .*, not 3"),
        ({"patience": "30"}, "patience must be more than 0 seconds, not '30'"),
        ({"epoch": "src"}, "column 'src' cannot be an epoch: it is string, and must be an integer"),
    ],
)
def test_an_option_that_cannot_be(edges: DataFrame, options: dict[str, Any], message: str) -> None:
    with pytest.raises((SchemaError, ConfigurationError), match=message):
        ts.run(through, {"edges": edges}, {"edges": "src string, dst string"}, workers=1, **options)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda scope, edgs: {}, r"build is called as build\(scope, edges=...\), which .* missing a required .* 'edgs'"),
        (lambda scope: {}, "does not take: got an unexpected .* 'edges'; inputs and parameters have the same names"),
        ("edges", "build must be a function of a scope and a stream for each input, not 'edges'"),
    ],
)
def test_a_build_that_does_not_take_the_inputs(edges: DataFrame, build: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        ts.run(build, {"edges": edges}, {"edges": "src string, dst string"}, workers=1)


def test_a_streaming_dataframe_is_for_a_stream(session: SparkSession) -> None:
    ticks = session.readStream.format("rate").load()
    with pytest.raises(ConfigurationError, match=r"inputs\['ticks'\] is a streaming DataFrame: .* or use timely.spark.stream"):
        ts.run(through, {"ticks": ticks}, {"ticks": "timestamp timestamp, value long"}, workers=1)


def test_an_output_that_there_is_not(edges: DataFrame) -> None:
    result = ts.run(through, {"edges": edges}, {"edges": "src string, dst string"}, workers=1)
    with pytest.raises(ConfigurationError, match="^there is no output 'edgs'; the outputs are 'edges'$") as error:
        result["edgs"]
    assert isinstance(error.value, KeyError)
    assert result.get("edgs") is None and "edgs" not in result


# -- what a failing worker looks like ----------------------------------------------------------------------------------


def failure_of(result: ts.Result, name: str) -> str:
    """What is raised when an output is asked for, and cannot be had, with its class and notes."""
    with pytest.raises(Exception) as caught:
        result[name].collect()
    return "".join(traceback.format_exception_only(caught.value))


def attempts_of(session: SparkSession, since: list[int]) -> int:
    """How often the stage that was tried most of the jobs that are not in ``since`` was tried."""
    context = session.sparkContext
    store = context._jsc.sc().statusStore()
    jobs = [context.statusTracker().getJobInfo(job) for job in jobs_of(session) if job not in since]
    return 1 + max(int(store.lastStageAttempt(stage).attemptId()) for job in jobs if job is not None for stage in job.stageIds)


def all_in(parts: Iterable[str], text: str) -> bool:
    return all(part in text for part in parts)


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.soak), 3])
def test_an_operator_that_raises_is_named(numbers: DataFrame, workers: int) -> None:
    before = jobs_of(numbers.sparkSession)
    result = ts.run(applying(failing("no seventeens", 17)), {"numbers": numbers}, {"numbers": "n long, day int"}, workers=workers)
    text = failure_of(result, "numbers")
    assert attempts_of(numbers.sparkSession, before) == 2  # once more, and not for ever
    error = result.failure
    assert isinstance(error, OperatorError)
    assert error.name == "map_batch · fail"
    assert error.path in text
    assert all_in(["OperatorError", "map_batch", f"worker {error.worker}", "ValueError", "no seventeens", "in fail\n"], text)


def test_outputs_that_build_does_not_return_are_refused_before_a_job(numbers: DataFrame) -> None:
    not_streams: Any = lambda scope, numbers: {"numbers": 5}  # noqa: E731
    before = jobs_of(numbers.sparkSession)
    for build, output, message in (
        (through, "others", r"build must return a dictionary with the streams \['others'\]; it returned \['numbers'\]"),
        (not_streams, "numbers", "output 'numbers': build must return a stream of Arrow batches for it, such as an operator"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            ts.run(build, {"numbers": numbers}, {output: "n long, day int"}, workers=2)
    assert jobs_of(numbers.sparkSession) == before


def test_what_build_changes_while_it_is_checked_reaches_neither_the_program_nor_the_workers(numbers: DataFrame) -> None:
    seen: list[Any] = []

    def build(scope: timely.ScopeBuilder[int], numbers: timely.Stream[int, Any]) -> Streams:
        seen.append(numbers)  # which cannot be pickled
        return {"numbers": numbers}

    result = ts.run(build, {"numbers": numbers}, {"numbers": "n long, day int"}, workers=2)
    assert result["numbers"].count() == numbers.count() and seen == []


def test_what_build_returns_in_the_workers_alone_ends_the_job_at_once(numbers: DataFrame) -> None:
    def build(scope: timely.ScopeBuilder[int], numbers: timely.Stream[int, Any]) -> Streams:
        BarrierTaskContext.get().partitionId()  # which raises elsewhere
        return {"others": numbers}

    before = jobs_of(numbers.sparkSession)
    result = ts.run(build, {"numbers": numbers}, {"numbers": "n long, day int"}, workers=2)
    assert "build must return a dictionary with the streams ['numbers']; it returned ['others']" in failure_of(result, "numbers")
    assert attempts_of(numbers.sparkSession, before) == 1
    assert isinstance(result.failure, ConfigurationError)


def test_actions_raise_the_error_of_the_worker_also_on_what_is_made_of_an_output(numbers: DataFrame) -> None:
    result = ts.run(applying(failing("no seventeens", 17)), {"numbers": numbers}, {"numbers": "n long, day int"}, workers=2)
    for action in (result["numbers"].toPandas, result["numbers"].groupBy("day").count().collect):
        with pytest.raises(OperatorError, match="'map_batch · fail' .* raised ValueError: no seventeens") as raised:
            action()
        assert raised.value.path and "Traceback" in "".join(raised.value.__notes__)


def test_a_worker_that_wants_to_end_the_program_is_named(numbers: DataFrame) -> None:
    def build(scope: timely.ScopeBuilder[int], numbers: timely.Stream[int, Any]) -> Streams:
        if BarrierTaskContext.get().partitionId() == 1:
            sys.exit("no such table")
        return {"numbers": numbers}

    result = ts.run(build, {"numbers": numbers}, {"numbers": "n long, day int"}, workers=2)
    assert "WorkerError: worker 1 raised SystemExit: no such table" in failure_of(result, "numbers")
    assert isinstance(result.failure, WorkerError)


def test_an_output_without_a_declared_column(numbers: DataFrame) -> None:
    result = ts.run(through, {"numbers": numbers}, {"numbers": "n long, day int, month int"}, workers=2)
    assert "output 'numbers': the batch has no column 'month'; it has 'n', 'day'" in failure_of(result, "numbers")
    assert isinstance(result.failure, SchemaError)


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.soak), 2])
def test_an_operator_that_keeps_its_capability(numbers: DataFrame, workers: int) -> None:
    def constructor(capability: Any, info: timely.OperatorInfo) -> Callable[[Any, Any], object]:
        held = [capability]

        def logic(input: Any, output: Any) -> None:
            for _, batch in input:
                output.session(held[0]).give_batch(batch)

        return logic

    def build(scope: timely.ScopeBuilder[int], numbers: timely.Stream[int, Any]) -> Streams:
        return {"numbers": numbers.unary(timely.Pipeline, "keep", constructor)}

    result = ts.run(build, {"numbers": numbers}, {"numbers": "n long, day int"}, workers=workers)
    assert "a capability of /dataflow0/keep#1 at 0" in failure_of(result, "numbers")
    assert isinstance(result.failure, timely.StalledError)


def test_an_executor_with_another_python_says_so(numbers: DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbers.sparkSession.sparkContext, "pythonVer", "3.99")
    result = ts.run(through, {"numbers": numbers}, {"numbers": "n long, day int"}, workers=2)
    assert all_in(["PYTHON_VERSION_MISMATCH", "3.99"], failure_of(result, "numbers"))


def test_a_module_that_executors_lack_is_named(numbers: DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "of_the_driver.py").write_text("def build(scope, numbers):\n    return {'numbers': numbers}\n")
    monkeypatch.syspath_prepend(tmp_path)
    import of_the_driver  # type: ignore[import-not-found]

    result = ts.run(of_the_driver.build, {"numbers": numbers}, {"numbers": "n long, day int"}, workers=2)
    with pytest.raises(
        ConfigurationError, match=r"executor on .* No module named 'of_the_driver'.*ship\(session, 'of_the_driver'\)"
    ):
        result["numbers"].collect()


def test_an_operator_that_raises_once_is_run_again(numbers: DataFrame, tmp_path: Path) -> None:
    def raise_once(batch: pa.RecordBatch) -> pa.RecordBatch:
        if 17 in batch.column("n").to_pylist() and not (tmp_path / "raised").exists():
            (tmp_path / "raised").touch()
            raise OSError("the network is down")
        return batch

    result = ts.run(applying(raise_once), {"numbers": numbers}, {"numbers": "n long, day int"}, workers=2)
    assert rows(result["numbers"]) == Counter((n, n % 4) for n in range(100))
    assert "the network is down" in str(result.failure)


def test_a_worker_that_always_dies_ends_the_run(numbers: DataFrame) -> None:
    def die(batch: pa.RecordBatch) -> pa.RecordBatch:
        if 17 in batch.column("n").to_pylist():
            os._exit(1)
        return batch

    result = ts.run(applying(die), {"numbers": numbers}, {"numbers": "n long, day int"}, workers=2)
    assert any(part in failure_of(result, "numbers") for part in ("has gone", "crashed", "exited unexpectedly"))
