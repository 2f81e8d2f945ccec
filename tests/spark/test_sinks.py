"""Sinks have each epoch once, as a whole, however often a driver ends between writing it and noting that.

White box: the driver ends where nothing outside can time it, and a task of Spark's runs twice.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import timely
from tests.spark.sinks import Both, Derby, Row, StandInForDelta
from tests.spark.streams import COUNTS, Folder, count_words, expected
from timely.errors import CheckpointError, ConfigurationError, SchemaError, SparkError
from timely.spark import DeltaSink, JdbcSink, ParquetSink, Sink, SinkContext, jdbc, stream
from timely.spark.streaming.epoch_log import EpochLog

pytestmark = pytest.mark.spark

EPOCHS = [[("a", 1), ("b", 2), ("a", 3)], [("c", 5), ("a", -4)]]
CHANGES = "word string, total long, _change_type string, _commit_version long"


@pytest.fixture
def derby(session: SparkSession, tmp_path: Path) -> Iterator[Derby]:
    derby = Derby(session, f"memory:{tmp_path.name}")
    derby.run("create table counts (word varchar(20), total bigint)")
    derby.run("create table newest (total bigint, word varchar(20), note varchar(20))")
    yield derby
    derby.drop()


class Ended(Exception):
    """The driver ends here."""


@pytest.mark.soak  # the same for folders: tests/spark/test_maintain.py
def test_a_driver_that_ends_between_writing_an_epoch_and_noting_it(
    session: SparkSession, derby: Derby, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All sinks at once: folders, a stand-in for Delta, and tables of a database."""
    session.dataSource.register(StandInForDelta)
    words, out = Folder(tmp_path / "words"), tmp_path / "out"
    words.put(*EPOCHS)
    sink = Both((ParquetSink(out / "files"), DeltaSink(out / "delta"), JdbcSink(derby.url, "counts")))

    def start(sink: Sink) -> timely.spark.StreamHandle:
        return stream(
            count_words,
            {"words": words.read(session)},
            {"counts": COUNTS},
            workers=1,
            foreach_epoch=sink,
            checkpoint=tmp_path / "stream",
            trigger={"availableNow": True},
        )

    def end(log: EpochLog, epoch: int) -> None:
        if epoch == 0:
            raise Ended
        deliver(log, epoch)

    with monkeypatch.context() as patch:
        deliver = EpochLog.deliver
        patch.setattr(EpochLog, "deliver", end)
        with pytest.raises(timely.TimelyError, match="Ended"):
            start(sink).await_termination()
    folder = out / "files" / "counts"
    before = sorted(os.listdir(folder / "epoch=0"))
    start(sink).await_termination()
    results = expected(EPOCHS)
    everything = sorted(row for rows in results.values() for row in rows)
    assert sorted(os.listdir(folder / "epoch=0")) == before
    assert {epoch: read(session, folder / f"epoch={epoch}") for epoch in range(2)} == results
    assert StandInForDelta.rows(out / "delta" / "counts") == everything
    assert derby.rows("counts") == everything
    assert sum(name.startswith("timely_") for name in derby.tables()) == 2  # the epochs, and one table to stage rows in


def read(session: SparkSession, folder: Path) -> list[Row]:
    return sorted(tuple(row) for row in session.read.parquet(str(folder)).collect())


def opened(session: SparkSession, sink: Sink, schema: str = COUNTS, stream: str = "a") -> Any:
    """What takes rows for the output ``counts``: ``take(epoch, rows)``."""
    frames: list[DataFrame] = [session.createDataFrame([], schema)]
    take = sink.open(SinkContext(session, stream, {"counts": frames[0].schema}))
    return lambda epoch, rows: take(epoch, {"counts": session.createDataFrame(rows, schema)})


@pytest.mark.parametrize("package", ["timely.spark", "timely.differential.spark"])
def test_a_star_import_brings_public_names_alone(package: str) -> None:
    brought: dict[str, object] = {}
    exec(f"from {package} import *", brought)
    names = set(brought) - {"__builtins__"}
    assert names == set(importlib.import_module(package).__all__)


# -- folders -----------------------------------------------------------------------------------------------------------


def test_a_folder_shows_whole_epochs_and_keeps_the_newest(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path.parent)  # Java stays where it is
    (tmp_path / "counts" / "_run-a").mkdir(parents=True)
    (tmp_path / "counts" / "_writing-1").mkdir()
    take = opened(session, ParquetSink(tmp_path.name, keep=2))
    for epoch, rows in ((0, [("a", 0)]), (1, [("a", 1)]), (2, [("a", 2)]), (2, [("a", 9)])):
        take(epoch, rows)
    assert sorted(os.listdir(tmp_path / "counts")) == ["_run-a", "epoch=1", "epoch=2"]
    assert read(session, tmp_path / "counts") == [("a", 1, 1), ("a", 2, 2)]


@pytest.mark.parametrize(
    ("folder", "message"),
    [("{}", "is not empty, and not of this checkpoint"), ("s3a://lake/out", "is in an object store: use a DeltaSink")],
)
def test_folders_that_cannot_be(session: SparkSession, tmp_path: Path, folder: str, message: str) -> None:
    (tmp_path / "counts" / "epoch=0").mkdir(parents=True)
    with pytest.raises(ConfigurationError, match=message):
        opened(session, ParquetSink(folder.format(tmp_path)))


def test_a_relative_folder_is_not_one_of_another_file_system(session: SparkSession) -> None:
    settings: Any = session.sparkContext._jsc.hadoopConfiguration()
    settings.set("fs.defaultFS", "hdfs://names:8020")
    try:
        for sink in (ParquetSink("out"), DeltaSink("out")):
            with pytest.raises(ConfigurationError, match="'out' of a sink is relative to a folder of this machine"):
                opened(session, sink)
    finally:
        settings.unset("fs.defaultFS")


def test_a_table_of_delta_takes_an_epoch_once(session: SparkSession, tmp_path: Path) -> None:
    session.dataSource.register(StandInForDelta)
    take = opened(session, DeltaSink(tmp_path, overwrite=True))
    for rows in ([("a", 1)], [("a", 2)]):  # the second time as a driver would that was killed
        take(0, rows)
    assert StandInForDelta.rows(tmp_path / "counts") == [("a", 1)]


# -- databases ---------------------------------------------------------------------------------------------------------


def test_rows_replace_those_with_the_same_key(session: SparkSession, derby: Derby) -> None:
    take = opened(session, JdbcSink(derby.url, "newest", keys=["word"]))
    take(0, [("a", 1), ("b", 2)])
    derby.run("update newest set note = 'seen'")
    take(1, [("a", None), ("c", 3)])
    take(1, [("a", 9)])  # as a driver would that was killed: the epoch is there
    assert derby.rows("newest") == [(None, "a", None), (2, "b", "seen"), (3, "c", None)]


def test_a_table_is_a_copy_of_a_view_that_changes(session: SparkSession, derby: Derby) -> None:
    take = opened(session, JdbcSink(derby.url, "newest", keys={"counts": ["WORD"]}), CHANGES)
    take(0, [("a", 1, "insert", 0), ("b", 2, "insert", 0)])
    take(1, [("a", 1, "delete", 1), ("b", 2, "delete", 1), ("b", 5, "insert", 1)])
    assert derby.rows("newest") == [(5, "b", None)]


def test_a_driver_that_was_replaced_writes_nothing_more(session: SparkSession, derby: Derby) -> None:
    old, new = (opened(session, JdbcSink(derby.url, "counts")) for _ in range(2))
    with pytest.raises(CheckpointError, match="it was started again elsewhere"):
        old(0, [("a", 1)])
    new(0, [("a", 1)])
    opened(session, JdbcSink(derby.url, "counts"), stream="b")(0, [("a", 2)])  # another stream has epochs of its own
    assert derby.rows("counts") == [("a", 1), ("a", 2)]
    assert sorted((row[0][0], row[1]) for row in derby.rows("timely_epochs")) == [("a", 0), ("b", 0)]


@pytest.mark.parametrize("often", [1, pytest.param(9, marks=pytest.mark.soak)])
def test_rows_that_a_task_staged_twice_are_staged_again(
    session: SparkSession, derby: Derby, monkeypatch: pytest.MonkeyPatch, often: int
) -> None:
    append, calls = jdbc._Database.append, []

    def twice(database: Any, frame: DataFrame, table: str) -> None:
        calls.append(table)
        append(database, frame if len(calls) > often else frame.unionAll(frame), table)

    monkeypatch.setattr(jdbc._Database, "append", twice)
    take = opened(session, JdbcSink(derby.url, "counts"))
    if often == 1:
        take(0, [("a", 1)])
    else:
        with pytest.raises(SparkError, match="Spark staged other rows of epoch 0 than there are, 3 times"):
            take(0, [("a", 1)])
    assert derby.rows("counts") == ([("a", 1)] if often == 1 else [])


@pytest.mark.parametrize(
    ("rows", "message"),
    [([("a", 1), ("b", 1)], r"an epoch has two rows with the key 1"), ([("a", None)], r"a null in its key \(total\)")],
)
def test_keys_that_are_none_end_the_epoch(session: SparkSession, derby: Derby, rows: Sequence[Row], message: str) -> None:
    take = opened(session, JdbcSink(derby.url, "newest", keys=["total"]))
    with pytest.raises(SchemaError, match=message):
        take(0, rows)
    assert derby.rows("newest") == []


def test_databases_that_cannot_be(session: SparkSession, derby: Derby) -> None:
    cases: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"table": "nowhere"}, ConfigurationError, "has no table nowhere that can be read: create it first"),
        ({"table": {"sums": "counts"}}, ConfigurationError, "table names the outputs sums; the stream has counts"),
        ({"schema": "word string, n long"}, SchemaError, "counts has no column n; it has WORD, TOTAL"),
        ({"keys": ["id"]}, SchemaError, "keys: not all of id are columns of the output; it has word, total"),
        ({"keys": "word"}, ConfigurationError, "keys is a list of columns, .*, not 'word'"),
        ({"keys": {"sums": ["word"]}}, ConfigurationError, "keys names the outputs sums; the stream has counts"),
        ({"url": "jdbc:nowhere:x"}, ConfigurationError, "No suitable driver: give the session the driver's jar"),
        ({"url": "jdbc:derby:memory:missing"}, SparkError, "cannot be reached: Database 'memory:missing' not found"),
    ]
    for values, error, message in cases:
        options: dict[str, Any] = {"url": derby.url, "table": "counts", "schema": COUNTS, **values}
        schema = options.pop("schema")
        with pytest.raises(error, match=message):
            opened(session, JdbcSink(**options), schema)
