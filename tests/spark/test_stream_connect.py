"""Streams over Spark Connect: the same epochs as in a classic session, across restarts, with state that stays in the workers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark.connecting import connected
from tests.spark.streams import COUNTS, Folder, Row, Taker, count_words, expected
from timely import spark as ts
from timely.errors import DeliveryError

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
        found = {name: sorted(tuple(row) for row in table.collect()) for name, table in tables.items()}
        with path.open("a") as file:
            file.write(json.dumps([epoch, found]) + "\n")

    return take


def written(path: Path) -> list[tuple[int, list[Row]]]:
    """The epochs in a file, and the counts of each."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [(epoch, [tuple(row) for row in tables["counts"]]) for epoch, tables in lines]


def test_epochs_across_a_restart_are_those_of_a_classic_session(
    connect: SparkSession, session: SparkSession, tmp_path: Path
) -> None:
    folder, out = Folder(tmp_path / "words"), tmp_path / "out"

    def start(session: SparkSession, foreach_epoch: Any, checkpoint: str) -> ts.StreamHandle:
        words = {"words": folder.read(session)}
        options: dict[str, Any] = {"workers": 2, "trigger": NOW, "foreach_epoch": foreach_epoch}
        return ts.stream(count_words, words, {"counts": COUNTS}, checkpoint=tmp_path / checkpoint, **options)

    folder.put(*EPOCHS[:2])
    handle = start(connect, writing(out), "remote")
    assert handle.await_termination(60)
    folder.put(EPOCHS[2])
    handle = start(connect, writing(out), "remote")
    assert handle.await_termination(60)
    assert (handle.epoch, handle.attempts, [report.rows for report in handle.recent]) == (2, 1, [2])
    taker = Taker()
    assert start(session, taker, "classic").await_termination(60)
    assert dict(written(out)) == taker.of("counts") == expected(EPOCHS)
    assert len(written(out)) == 3
