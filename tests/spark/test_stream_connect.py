"""Streams over Spark Connect: the same epochs as in a classic session, across restarts, with state that stays in the workers."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import timely
from tests.spark.connecting import connected
from tests.spark.streams import COUNTS, Folder, Row, Streams, count_words, expected
from timely import spark as ts
from timely.differential.spark import maintain
from timely.errors import ConfigurationError, DeliveryError, SparkError, TimelyWarning
from timely.inspect import LivePage

pytestmark = pytest.mark.spark

EPOCHS = [[("a", 1), ("b", 2)], [("a", 3)], [("c", 1), ("a", 1)]]
NOW = {"availableNow": True}


@pytest.fixture(scope="module")
def connect(session: SparkSession) -> Iterator[SparkSession]:
    with connected(session) as remote:
        yield remote


def writing(path: Path) -> Callable[[int, Mapping[str, DataFrame]], None]:
    """A function that appends each epoch to a file: it runs in a process of the server."""

    def take(epoch: int, tables: Mapping[str, DataFrame]) -> None:
        actual = {name: sorted(tuple(row) for row in table.collect()) for name, table in tables.items()}
        with path.open("a") as file:
            file.write(json.dumps([epoch, actual]) + "\n")

    return take


def written(path: Path) -> list[tuple[int, list[Row]]]:
    """The epochs in a file, and the counts of each."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [(epoch, [tuple(row) for row in tables["counts"]]) for epoch, tables in lines]


def test_epochs_across_a_restart_are_those_of_a_classic_session(connect: SparkSession, tmp_path: Path) -> None:
    folder, out = Folder(tmp_path / "words"), tmp_path / "out"

    def start(*columns: str) -> ts.StreamHandle:
        words = {"words": folder.read(connect).selectExpr(*columns)}
        options: dict[str, Any] = {"workers": 2, "trigger": NOW, "foreach_epoch": writing(out), "patience": 600}
        return ts.stream(count_words, words, {"counts": COUNTS}, checkpoint=tmp_path / "remote", **options)

    folder.put(*EPOCHS[:2])
    handle = start("*")
    assert handle.await_termination(600)
    folder.put(EPOCHS[2])
    with pytest.warns(TimelyWarning, match="input 'words' has gained more"):
        handle = start("n", "'x' as more", "word")
    assert handle.await_termination(600)
    assert (handle.epoch, handle.attempts, [report.rows for report in handle.recent]) == (2, 1, [2])
    assert dict(written(out)) == expected(EPOCHS)
    assert len(written(out)) == 3


@pytest.mark.cluster
def test_a_view_ends_with_what_the_function_raised_and_goes_on(connect: SparkSession, tmp_path: Path) -> None:
    folder, out, repaired = Folder(tmp_path / "words"), tmp_path / "out", tmp_path / "repaired"
    folder.put(*EPOCHS)
    take = writing(out)

    def fragile(epoch: int, frame: DataFrame) -> None:
        if epoch == 1 and not repaired.exists():
            raise ValueError("the target is full")
        take(epoch, {"counts": frame})

    def start() -> ts.StreamHandle:
        query = "select word, sum(n) as total from words group by word"
        words = {"words": folder.read(connect)}
        return maintain(query, words, fragile, checkpoint=tmp_path / "view", workers=1, mode="complete")

    handle = start()
    with pytest.raises(DeliveryError, match="foreach_epoch raised ValueError for epoch 1: the target is full"):
        handle.await_termination(600)
    assert [epoch for epoch, _ in written(out)] == [0]
    repaired.touch()
    handle = start()
    while len(written(out)) < 3:
        assert not handle.await_termination(0.2)
    handle.stop()
    assert handle.epoch == 2
    assert handle.failure is None and not handle.is_active
    assert written(out) == [
        (0, [("a", 1), ("b", 2)]),
        (1, [("a", 4), ("b", 2)]),
        (2, [("a", 5), ("b", 2), ("c", 1)]),
    ]
    state = {path.name for path in (tmp_path / "view" / "state").rglob("*") if path.is_file()}
    assert any("3" in name for name in state), state


def test_what_a_stream_at_the_server_cannot_have_is_refused_at_the_call(connect: SparkSession, tmp_path: Path) -> None:
    words = {"words": connect.readStream.format("rate").load()}

    def refused(error: type[Exception], match: str, foreach_epoch: Any = print, **options: Any) -> None:
        with pytest.raises(error, match=match):
            options = {"checkpoint": tmp_path / "stream", **options}
            ts.stream(count_words, words, {"counts": COUNTS}, foreach_epoch=foreach_epoch, **options)

    refused(ConfigurationError, "live= needs workers that report", live=LivePage())
    refused(ConfigurationError, "checkpoint='here' is relative to a folder of this machine", checkpoint="here")
    refused(
        ConfigurationError, "foreach_epoch: over Spark Connect there is no ParquetSink", ts.ParquetSink(str(tmp_path / "out"))
    )
    refused(SparkError, "3 workers need 4 task slots at the same time .1 of them for what Spark does beside them", workers=3)
    with pytest.raises(ConfigurationError, match="outputs: over Spark Connect there is no JdbcSink"):
        maintain("select value from words", words, ts.JdbcSink("jdbc:x:y", "t"), checkpoint=tmp_path / "view")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.cluster
def test_a_worker_and_the_process_at_the_server_are_killed(connect: SparkSession, tmp_path: Path) -> None:
    folder, out, once = Folder(tmp_path / "words"), tmp_path / "out", [tmp_path / "worker", tmp_path / "process"]
    folder.put(*EPOCHS)
    take = writing(out)

    def kill(mark: Path) -> None:
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def fragile(scope: timely.ScopeBuilder[int], words: timely.Stream[int, Any]) -> Streams:
        def look(batch: pa.RecordBatch) -> pa.RecordBatch:
            if 3 in batch["n"].to_pylist():
                kill(once[0])
            return batch

        return count_words(scope, words.map_batch(look))

    def deadly(epoch: int, tables: Mapping[str, DataFrame]) -> None:
        take(epoch, tables)
        if epoch == 1:
            kill(once[1])

    def start() -> ts.StreamHandle:
        options: dict[str, Any] = {"workers": 2, "trigger": NOW, "foreach_epoch": deadly, "checkpoint_every": 1}
        return ts.stream(fragile, {"words": folder.read(connect)}, {"counts": COUNTS}, checkpoint=tmp_path / "s", **options)

    with pytest.raises(SparkError, match="the streaming query has ended"):
        start().await_termination(600)
    assert start().await_termination(600)
    assert [epoch for epoch, _ in written(out)] == [0, 1, 1, 2]  # a function is called at least once
    assert dict(written(out)) == expected(EPOCHS)
    assert all(mark.exists() for mark in once)
