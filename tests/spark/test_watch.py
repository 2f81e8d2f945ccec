"""A worker that is stuck in a task of Spark says so in its log, which is told to the driver's.

White box: how long a worker may be stuck is set, which a run does not offer.
"""

from __future__ import annotations

import functools
import logging
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import timely
import timely.spark as ts
from timely.monitor.watch_settings import WatchSettings
from timely.spark.logs import log_to_spark
from timely.spark.task import Task


class Release(logging.Handler):
    """Makes a file when somebody says that an operator has not returned."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file = file
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())
        if "has not returned" in self.said[-1]:
            self.file.touch()


@pytest.mark.spark
def test_an_operator_that_does_not_return_is_reported_to_the_driver(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = str(tmp_path / "go on")

    def build(scope: timely.ScopeBuilder[int], numbers: timely.Stream[int, Any]) -> dict[str, timely.Stream[int, Any]]:
        import threading
        from pathlib import Path

        def dawdle(batch: Any) -> Any:
            for _ in range(1_200):  # a minute, if nobody says anything
                if Path(file).exists():
                    break
                threading.Event().wait(0.05)
            return batch

        return {"numbers": numbers.map_batch(dawdle)}

    release = Release(Path(file))
    logging.getLogger("timely.spark.worker").addHandler(release)
    monkeypatch.setattr("timely.spark.batch.Task", functools.partial(Task, watch=WatchSettings(0.2, line=False, inputs=False)))
    session.sparkContext.setLogLevel("WARN")
    try:
        result = ts.run(build, {"numbers": session.range(9)}, {"numbers": "id long"}, workers=2)
        assert result["numbers"].count() == 9
    finally:
        session.sparkContext.setLogLevel("ERROR")
        log_to_spark(session.sparkContext)
        logging.getLogger("timely.spark.worker").removeHandler(release)
    assert Path(file).exists()
    message = next(text for text in release.said if "has not returned" in text)
    assert "operator 'map_batch · dawdle'" in message
    assert "in dawdle" in message
    assert "attempt" in message
