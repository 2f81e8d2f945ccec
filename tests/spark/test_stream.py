"""``timely.spark.stream``: micro-batches become epochs of a dataflow that stays up."""

from __future__ import annotations

import datetime as dt
import os
import signal
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import timely
from tests.spark.streams import (
    COUNTS,
    Folder,
    Row,
    Streams,
    Taker,
    as_batches,
    as_rows,
    count_words,
    descriptions,
    expected,
    totals,
)
from timely.errors import ChangedDataflowError, ConfigurationError, DeliveryError, OperatorError, SchemaError, SparkError
from timely.operators.keyed.windows import tumbling, windows
from timely.spark import StreamHandle, stream

pytestmark = pytest.mark.spark

NOW = {"availableNow": True}
EPOCHS = [[("a", 1), ("b", 2), ("a", 3)], [], [("b", 1)], [("c", 5), ("a", -4)], [("a", 1), ("b", 1), ("c", 1)]]


@pytest.fixture
def words(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "words")


@pytest.fixture
def where(tmp_path: Path) -> str:
    return str(tmp_path / "stream")


def start(
    session: SparkSession, words: Folder, where: str, take: Any, build: Callable[..., Streams] = count_words, **options: Any
) -> StreamHandle:
    """A stream of running totals, on what is in the folder now unless another trigger is asked for."""
    inputs = {"words": words.read(session)}
    values: dict[str, Any] = {"inputs": inputs, "outputs": {"counts": COUNTS}, "workers": 2, "trigger": NOW}
    return stream(build, foreach_epoch=take, checkpoint=where, **{**values, **options})


def test_each_micro_batch_is_an_epoch_of_one_dataflow(session: SparkSession, words: Folder, where: str) -> None:
    words.put(*EPOCHS)
    take = Taker()
    handle = start(session, words, where, take, checkpoint_every=1)
    assert handle.await_termination()
    assert take.epochs == list(range(len(EPOCHS)))
    assert take.of("counts") == expected(EPOCHS)
    assert (handle.epoch, handle.failure, handle.attempts, handle.is_active) == (4, None, 1, False)
    assert [(report.epoch, report.rows) for report in handle.recent] == [(n, len(rows)) for n, rows in enumerate(EPOCHS)]
    assert [report.outputs["counts"] for report in handle.recent] == [len(rows) for rows in expected(EPOCHS).values()]
    assert "timely count_words: workers" in descriptions(session)
    handle.stop()
    for kind in ("inputs", "outputs"):  # what nothing can ask for any more is deleted
        assert len(os.listdir(f"{where}/{kind}")) <= 3


def test_stop_finishes_the_epoch_under_way(session: SparkSession, words: Folder, where: str) -> None:
    words.put(*EPOCHS)
    take = Taker(on_epoch=lambda epoch: handle.stop() if epoch == 1 else None)
    handle = start(session, words, where, take, trigger=None)
    handle.await_termination()
    assert (take.epochs, handle.epoch, handle.failure) == ([0, 1], 1, None)
    again = start(session, words, where, take)
    again.await_termination()
    assert take.epochs == list(range(len(EPOCHS)))
    assert take.of("counts") == expected(EPOCHS)


def test_two_inputs_and_two_outputs(session: SparkSession, words: Folder, where: str, tmp_path: Path) -> None:
    def build(scope: timely.ScopeBuilder[int], left: timely.Stream[int, Any], right: timely.Stream[int, Any]) -> Streams:
        both = as_rows(left).concat(as_rows(right).map(lambda row: (row[0], 10 * row[1])))
        return {"sums": as_batches(totals(both), "word", "total"), "raw": right}

    others = Folder(tmp_path / "others")
    words.put([("a", 1)], [("b", 1)])
    others.put([("b", 2)], [("a", 3)], [("c", 1)])
    take = Taker()
    inputs = {"left": words.read(session), "right": others.read(session)}
    handle = start(session, words, where, take, build, inputs=inputs, outputs={"sums": COUNTS, "raw": "word string, n long"})
    handle.await_termination()
    assert take.of("sums") == {0: [("a", 1), ("b", 20)], 1: [("a", 31), ("b", 21)], 2: [("c", 10)]}
    assert take.of("raw") == {0: [("b", 2)], 1: [("a", 3)], 2: [("c", 1)]}


def test_windows_of_event_time_take_rows_that_come_micro_batches_later(session: SparkSession, words: Folder, where: str) -> None:
    """Micro-batch n is the hour n of arrivals; a window of an hour waits for one more. Stopped while windows are open."""

    def build(scope: timely.ScopeBuilder[int], words: timely.Stream[int, Any]) -> Streams:
        complete, late = windows(
            as_rows(words),
            tumbling(60),
            at=lambda row: row[1],
            key=lambda row: row[0],
            due=lambda end, epoch: end // 60 + 1,
        )
        counts = complete.map(lambda result: (result[0], result[1].start, len(result[2])))
        too_late = late.map(lambda pair: pair[1])
        return {"counts": as_batches(counts, "word", "start", "n"), "late": as_batches(too_late, "word", "n")}

    words.put([("a", 1), ("a", 2), ("b", 1)], [("a", 59), ("a", 61)])
    take, outputs = Taker(), {"counts": "word string, start long, n long", "late": "word string, n long"}
    start(session, words, where, take, build, outputs=outputs).await_termination()
    words.put([("a", 119), ("b", 3)], [("a", 118), ("b", 4)], [])
    start(session, words, where, take, build, outputs=outputs, workers=1).await_termination()
    assert take.of("counts") == {0: [], 1: [], 2: [("a", 0, 3), ("b", 0, 1)], 3: [("a", 60, 2)], 4: []}
    assert take.of("late") == {0: [], 1: [], 2: [("b", 3)], 3: [("a", 118), ("b", 4)], 4: []}


def test_rows_of_every_type_come_through(session: SparkSession, where: str, tmp_path: Path) -> None:
    day, instant = dt.date(9999, 12, 31), dt.datetime(2020, 3, 29, 2, 30, 0, 123456)
    values: dict[str, Any] = {
        "byte": 1,
        "double": float("-inf"),
        "decimal(38,18)": Decimal("1.000000000000000001"),
        "string": "ü" * 3,
        "binary": b"\0\1",
        "boolean": True,
        "date": dt.date(1, 1, 1),
        "timestamp": dt.datetime(1500, 1, 1, 12),
        "timestamp_ntz": dt.datetime(1, 1, 1),
        "interval day to second": dt.timedelta(days=-3, microseconds=1),
        "array<struct<x: int, y: array<string>>>": [(1, ["a", None]), None],
        "map<string, timestamp>": {"k": instant},
        "struct<p: decimal(5, 2), q: struct<r: date>>": (Decimal("1.25"), (day,)),
    }
    schema = ", ".join(f"c{number} {kind}" for number, kind in enumerate(values))
    rows = session.createDataFrame([tuple(values.values()), (None,) * len(values)], schema)
    for kind in ("datetime", "int96"):  # which Spark 3.5 must be asked for
        session.conf.set(f"spark.sql.parquet.{kind}RebaseModeInWrite", "CORRECTED")
    session.conf.set("spark.sql.parquet.datetimeRebaseModeInRead", "LEGACY")  # for files of others
    rows.coalesce(1).write.parquet(str(tmp_path / "rows"))
    collected: list[str] = []
    stream(
        lambda scope, rows: {"same": rows},
        inputs={"rows": session.readStream.schema(schema).parquet(str(tmp_path / "rows"))},
        outputs={"same": schema},
        workers=2,
        foreach_epoch=lambda epoch, tables: collected.extend(map(repr, tables["same"].collect())),
        checkpoint=where,
        trigger=NOW,
    ).await_termination()
    session.conf.unset("spark.sql.parquet.datetimeRebaseModeInRead")
    assert sorted(collected) == sorted(map(repr, rows.collect()))


# -- failures ----------------------------------------------------------------------------------------------------------


def test_a_killed_worker_is_replaced_and_nothing_is_lost_or_twice(session: SparkSession, words: Folder, where: str) -> None:
    words.put(*EPOCHS)

    def kill(epoch: int) -> None:
        if epoch == 1:
            (victim, *_) = handle.pids.values()
            os.kill(victim, signal.SIGKILL)

    take = Taker(on_epoch=kill)
    handle = start(session, words, where, take, checkpoint_every=3, trigger=None)
    take.wait_for(len(EPOCHS) - 1, handle)
    handle.stop()
    assert take.epochs == list(range(len(EPOCHS)))
    assert take.of("counts") == expected(EPOCHS)
    assert handle.attempts == 2


@pytest.mark.soak
def test_a_worker_that_is_killed_while_it_computes(session: SparkSession, words: Folder, where: str, tmp_path: Path) -> None:
    died = tmp_path / "died"

    def build(scope: timely.ScopeBuilder[int], words: timely.Stream[int, Any]) -> Streams:
        def die(rows: list[Row]) -> list[Row]:
            if ("c", 5) in rows and not died.exists():
                died.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return rows

        return {"counts": as_batches(totals(as_rows(words).map_batch(die)), "word", "total")}

    words.put(*EPOCHS)
    take = Taker()
    handle = start(session, words, where, take, build)
    handle.await_termination()
    assert died.exists()
    assert handle.attempts == 2
    assert take.epochs == list(range(len(EPOCHS)))
    assert take.of("counts") == expected(EPOCHS)


def test_an_epoch_whose_taker_raises_comes_again_after_a_restart(session: SparkSession, words: Folder, where: str) -> None:
    words.put(*EPOCHS)

    def fail(epoch: int) -> None:
        if epoch == 2:
            raise ValueError("no room for it")

    take = Taker(on_epoch=fail)
    handle = start(session, words, where, take)
    with pytest.raises(DeliveryError, match="foreach_epoch raised ValueError for epoch 2: no room for it.*handed over again"):
        handle.await_termination()
    assert isinstance(handle.failure, DeliveryError)
    assert handle.failure.epoch == 2
    assert handle.epoch == 1
    take.on_epoch = lambda epoch: None
    start(session, words, where, take).await_termination()
    assert take.epochs == [0, 1, 2, 2, 3, 4]
    assert take.seen[2] == take.seen[3]
    assert take.of("counts") == expected(EPOCHS)


@pytest.mark.parametrize("leaving", [SystemExit, pytest.param(KeyboardInterrupt, marks=pytest.mark.soak)])
def test_a_taker_that_wants_to_end_the_program_ends_the_stream(
    session: SparkSession, words: Folder, where: str, leaving: type[BaseException]
) -> None:
    words.put(*EPOCHS)

    def leave(epoch: int, tables: Mapping[str, DataFrame]) -> None:
        raise leaving("enough")

    handle = start(session, words, where, leave)
    with pytest.raises(DeliveryError, match=f"foreach_epoch raised {leaving.__name__} for epoch 0: enough"):
        handle.await_termination(600)
    assert not handle.is_active


def test_an_operator_that_raises_ends_the_stream_after_a_second_try(session: SparkSession, words: Folder, where: str) -> None:
    def build(scope: timely.ScopeBuilder[int], words: timely.Stream[int, Any]) -> Streams:
        def check(row: Row) -> Row:
            if row[1] < 0:
                raise ValueError("less than nothing")
            return row

        return {"counts": as_batches(totals(as_rows(words).map(check)), "word", "total")}

    words.put(*EPOCHS)
    take = Taker()
    handle = start(session, words, where, take, build)
    with pytest.raises(OperatorError, match="operator 'map · check' .* raised ValueError: less than nothing"):
        handle.await_termination()
    assert handle.attempts == 2
    assert take.epochs == [0, 1, 2]
    start(session, words, where, take).await_termination()  # mended, and with the same graph but for the operator's function
    assert take.of("counts") == expected(EPOCHS)


# -- what it refuses ---------------------------------------------------------------------------------------------------


def nothing(epoch: int, tables: Mapping[str, DataFrame]) -> None:
    """Takes an epoch and does nothing."""


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"workers": 0}, ConfigurationError, "workers must be an integer of 1 or more, not 0"),
        ({"workers": 3}, SparkError, r"3 workers need 4 task slots at the same time \(1 of them .*\); local\[3\] offers 3"),
        ({"foreach_epoch": None}, ConfigurationError, "foreach_epoch must be a function"),
        ({"patience": 0}, ConfigurationError, "patience must be more than 0 seconds, not 0"),
        ({"checkpoint_every": 0}, ConfigurationError, "checkpoint_every must be an integer of 1 or more, not 0"),
        ({"checkpoint": ""}, ConfigurationError, "checkpoint must be a path or a URI"),
        ({"checkpoint": "nosuch://a/b"}, ConfigurationError, "'nosuch://a/b' is no place that Arrow can write to"),
        ({"outputs": {"x": "a map<int, array<struct<b: int, B: int>>>"}}, SchemaError, r"outputs\['x'\]: 'b' and 'B' differ"),
        ({"trigger": "availableNow"}, ConfigurationError, r"such as \{'availableNow': True\}, and not 'availableNow'; Spark"),
        ({"trigger": {"available": True}}, ConfigurationError, "trigger must be .* and not {'available': True}"),
        ({"trigger": {**NOW, "once": True}}, ConfigurationError, "trigger must be a dictionary with one entry"),
    ],
)
def test_arguments_that_cannot_be(
    session: SparkSession, words: Folder, where: str, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    values = {"workers": 1, "foreach_epoch": nothing, "checkpoint": where, "inputs": {"words": words.read(session)}}
    with pytest.raises(error, match=message):
        stream(count_words, **{"outputs": {"counts": COUNTS}, **values, **options})
    assert not os.path.exists(where)


def test_an_input_that_is_no_stream(session: SparkSession, words: Folder, where: str) -> None:
    with pytest.raises(ConfigurationError, match=r"none of the inputs \(words\) is a streaming DataFrame: read one with"):
        start(session, words, where, nothing, inputs={"words": session.range(3)})


def test_an_aggregation_before_the_stream(session: SparkSession, words: Folder, where: str) -> None:
    with pytest.raises(ConfigurationError, match="hand over the rows of 'words' .* An aggregation belongs into build"):
        start(session, words, where, nothing, inputs={"words": words.read(session).groupBy("word").agg(F.sum("n").alias("n"))})


def test_another_stream_than_the_checkpoint_is_of(session: SparkSession, words: Folder, where: str) -> None:
    def longer(scope: timely.ScopeBuilder[int], words: timely.Stream[int, Any]) -> Streams:
        return {"counts": as_batches(totals(as_rows(words).filter(lambda row: True)), "word", "total")}

    words.put(EPOCHS[0])
    start(session, words, where, nothing).await_termination()
    for options, error, message in (
        ({"outputs": {"counts": "word string, total int"}}, SchemaError, "output 'counts' has the columns .*total int; in"),
        ({"outputs": {"sums": COUNTS}}, ChangedDataflowError, "is of a stream with the outputs counts; this one has sums"),
        ({"inputs": {"words": words.read(session).drop("n")}}, SchemaError, "input 'words' has the columns word string; in"),
        ({"version": "2"}, ChangedDataflowError, "version"),
        ({"build": longer}, ChangedDataflowError, "it has no operator /stream/totals#3"),
    ):
        with pytest.raises(error, match=message):
            start(session, words, where, nothing, **options)


def test_another_dictionary_than_promised(session: SparkSession, words: Folder, where: str) -> None:
    with pytest.raises(ConfigurationError, match=r"build must return .* the streams \['sums'\]; it returned \['counts'\]"):
        start(session, words, where, nothing, outputs={"sums": COUNTS})


def test_an_output_at_other_times_than_epochs(session: SparkSession, words: Folder, where: str) -> None:
    """Refused as soon as it is built, since its rows would be of no epoch."""

    def build(scope: timely.ScopeBuilder[int], words: timely.Stream[int, Any]) -> dict[str, Any]:
        with scope.region() as region, region.iterative() as loop:
            return {"counts": words.enter(region).enter(loop)}

    with pytest.raises(ConfigurationError, match=r"output 'counts': build returned a stream of the scope '/stream/.*leave\(\)"):
        start(session, words, where, nothing, build)
