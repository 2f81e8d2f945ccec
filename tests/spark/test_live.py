"""A live page of a run on Spark: what all workers do, while they do it, and nothing where nobody looks.

White box: that a run without a page sends no reports shows nowhere else.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import timely
from tests.spark.streams import COUNTS, Folder, Taker, count_words
from timely import spark as ts
from timely.errors import ConfigurationError
from timely.inspect import LivePage
from timely.spark import batch
from timely.spark.rendezvous import RunEntry
from timely.spark.stage_messages import LiveReport

ROWS = {"numbers": "n long"}
Streams = dict[str, timely.Stream[int, Any]]

pytestmark = pytest.mark.spark


def through(gate: Path | None = None) -> Callable[..., Streams]:
    """A dataflow that hands its rows on, once there is a file at ``gate``."""

    def wait(rows: pa.RecordBatch) -> pa.RecordBatch:
        while gate is not None and not gate.exists():
            time.sleep(0.02)
        return rows

    def numbers(scope: timely.ScopeBuilder[int], numbers: timely.Stream[int, Any]) -> Streams:
        return {"numbers": numbers.map_batch(wait)}

    return numbers


def collected(result: ts.Result) -> list[int]:
    return sorted(row["n"] for row in result["numbers"].collect())


def meanwhile(result: ts.Result, gate: Path, look: Callable[[], object]) -> list[int]:
    """What a run gives whose workers wait at ``gate`` until ``look`` has returned."""
    actual: list[list[int]] = []
    action = threading.Thread(target=lambda: actual.append(collected(result)))
    action.start()
    try:
        look()
    finally:
        gate.touch()
        action.join()
    return actual[0]


def until(page: LivePage, condition: Callable[[Mapping[str, Any]], bool]) -> Mapping[str, Any]:
    """The one run of a page, as soon as it is as it should be."""
    while True:
        for run in page.state()["runs"]:
            if condition(run):
                return dict(run)
        time.sleep(0.02)


def test_all_workers_are_on_the_page_while_they_work_and_afterwards(session: SparkSession, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    frame = session.range(0, 100, 1, 2).toDF("n")
    with LivePage() as page:
        result = ts.run(through(gate), {"numbers": frame}, ROWS, workers=2, live=page)

        def look() -> None:
            run = until(page, lambda run: sum(len(worker["running"]) for worker in run["workers"]) == 2)
            assert run["name"] == "numbers"
            assert [(worker["worker"], worker["over"]) for worker in run["workers"]] == [(0, False), (1, False)]
            assert len({worker["process"] for worker in run["workers"]}) == 2
            assert all(worker["running"] == ["/dataflow0/map_batch · wait#1"] for worker in run["workers"])
            assert run["dataflows"][0]["drawings"]

        assert meanwhile(result, gate, look) == list(range(100))
        run = until(page, lambda run: all(worker["over"] for worker in run["workers"]))
    rows = {row["path"]: row for row in run["dataflows"][0]["operators"]}
    assert [done[2:] for done in rows["/dataflow0/map_batch · wait#1"]["by_worker"]] == [[50, 50], [50, 50]]
    assert all(done[1] > 0 for done in rows["/dataflow0/map_batch · wait#1"]["by_worker"])
    assert rows["/dataflow0/map_batch · wait#1"]["frontiers"] == ((),)


def test_nothing_is_reported_where_there_is_no_page(session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[RunEntry] = []
    received: list[Any] = []

    def note(run: RunEntry, *_: object) -> None:
        opened.append(run)
        run.listen(LiveReport, lambda *content: received.append(content))

    monkeypatch.setattr(batch, "listen_for_page", note)
    result = ts.run(through(), {"numbers": session.range(0, 10, 1, 2).toDF("n")}, ROWS, workers=2)
    assert collected(result) == list(range(10))
    assert len(opened) == 1 and received == []
    with LivePage() as page:  # the other way round, what was listened for would have been heard
        result = ts.run(through(), {"numbers": session.range(0, 10, 1, 2).toDF("n")}, ROWS, workers=2, live=page)
        assert collected(result) == list(range(10))
    assert {worker for worker, _, _ in received} == {0, 1}


def test_the_workers_of_a_stream_are_on_the_page(session: SparkSession, tmp_path: Path) -> None:
    words = Folder(tmp_path / "words")
    words.put([("a", 1), ("b", 2)], [("a", 3)])
    take = Taker()
    with LivePage() as page:
        handle = ts.stream(
            count_words,
            {"words": words.read(session)},
            {"counts": COUNTS},
            workers=2,
            foreach_epoch=take,
            checkpoint=str(tmp_path / "stream"),
            trigger={"availableNow": True},
            live=page,
        )
        assert handle.await_termination()
        run = until(page, lambda run: len(run["workers"]) == 2 and all(worker["over"] for worker in run["workers"]))
    assert run["name"] == "count_words"
    read = [sum(done[2] for done in row["by_worker"]) for row in run["dataflows"][0]["operators"]]
    assert max(read) == 3


def test_what_is_no_page_is_refused_before_anything_runs(session: SparkSession, tmp_path: Path) -> None:
    frame = session.range(1).toDF("n")
    wrong: Any = 8080
    with pytest.raises(ConfigurationError, match=r"live=8080: give a timely\.inspect\.LivePage"):
        ts.run(through(), {"numbers": frame}, ROWS, workers=1, live=wrong)
    with pytest.raises(ConfigurationError, match="live=8080"):
        ts.stream(through(), {"numbers": frame}, ROWS, workers=1, foreach_epoch=print, checkpoint=str(tmp_path), live=wrong)
