"""Where log lines go: the driver's to Spark's logging, the workers' to standard error and, what matters, to the driver.

White box: a local session writes no worker's lines to standard error, so plans and messages are looked at, with a Java that is
played. How long a worker may be stuck is set, which a run does not offer.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

import timely
from timely import spark as ts
from timely.monitor.watch_settings import WatchSettings
from timely.spark.logs import LogPlan, SparkHandler, log_on_driver, log_to_spark, worker_log
from timely.spark.stage_messages import LogLine, Message
from timely.spark.task import Task

LIBRARY = logging.getLogger("timely")
MESH = logging.getLogger("timely.worker.mesh")


class Java:
    """The Java of a context as far as logging goes: loggers that let through what ``level`` says, and keep it."""

    ORDER = ("error", "warn", "info", "debug")

    def __init__(self, level: str, master: str = "local[2]") -> None:
        self.level = level
        self.master = master
        self.lines: list[tuple[str, str, str]] = []
        self.gone = False
        self._jvm = SimpleNamespace(org=SimpleNamespace(slf4j=SimpleNamespace(LoggerFactory=self)))

    def getLogger(self, name: str) -> Any:
        if self.gone:
            raise ConnectionError("Java is gone")
        logger = SimpleNamespace()
        for number, level in enumerate(self.ORDER):
            setattr(logger, f"is{level.capitalize()}Enabled", lambda number=number: number <= self.ORDER.index(self.level))
            setattr(logger, level, lambda text, level=level: self.lines.append((name, level, text)))
        return logger


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Whatever is done to the library's logger is undone."""
    level, handlers = LIBRARY.level, list(LIBRARY.handlers)
    yield
    LIBRARY.setLevel(level)
    LIBRARY.handlers[:] = handlers


def spark_handlers() -> list[SparkHandler]:
    return [handler for handler in LIBRARY.handlers if isinstance(handler, SparkHandler)]


# -- on the driver -----------------------------------------------------------------------------------------------------


def test_lines_of_the_driver_go_to_the_logger_of_the_same_name() -> None:
    java: Any = Java("warn")
    log_to_spark(java)
    MESH.warning("refused %s", "somebody")
    MESH.info("not worth it")
    assert java.lines == [("timely.worker.mesh", "warn", "refused somebody")]


def test_the_level_is_that_of_spark_whenever_a_session_is_used() -> None:
    java: Any = Java("warn")
    assert log_to_spark(java).level == logging.WARNING
    java.level = "info"
    assert log_to_spark(java).level == logging.INFO
    MESH.info("shown")
    java.level = "error"
    assert log_to_spark(java).level == logging.ERROR
    assert not LIBRARY.isEnabledFor(logging.INFO)
    MESH.warning("not shown")
    assert [text for _, _, text in java.lines] == ["shown"]


def test_a_level_that_the_program_has_set_is_left_alone() -> None:
    LIBRARY.setLevel(logging.ERROR)
    java: Any = Java("info")
    log_to_spark(java)
    assert LIBRARY.level == logging.ERROR


def test_there_is_one_handler_and_it_belongs_to_the_newest_session() -> None:
    old: Any = Java("warn")
    new: Any = Java("warn")
    for java in (old, old, new):
        log_to_spark(java)
    assert [handler.context for handler in spark_handlers()] == [new]
    MESH.warning("once")
    assert (old.lines, len(new.lines)) == ([], 1)


def test_a_java_that_is_gone_takes_nothing_else_away() -> None:
    java: Any = Java("warn")
    log_to_spark(java)
    java.gone = True
    MESH.warning("nobody hears it")
    java.gone = False
    MESH.warning("back")
    assert [text for _, _, text in java.lines] == ["back"]


def test_workers_write_to_standard_error_on_a_cluster_only() -> None:
    local: Any = Java("warn")
    cluster: Any = Java("info", "spark://somewhere:7077")
    assert log_to_spark(local) == LogPlan(logging.WARNING, echo=False)
    assert log_to_spark(cluster) == LogPlan(logging.INFO, echo=True)


# -- in a task ---------------------------------------------------------------------------------------------------------


class Driver:
    """What a worker sends its log to."""

    def __init__(self) -> None:
        self.received: list[LogLine] = []

    def send(self, message: Message) -> None:
        assert isinstance(message, LogLine)
        self.received.append(message)


def test_a_worker_says_who_it_is_in_each_line(capsys: pytest.CaptureFixture[str]) -> None:
    driver = Driver()
    with worker_log(driver, LogPlan(logging.INFO, echo=True), run=b"\xab\xcd", worker=3, attempt=17):
        MESH.info("hello %d", 1)
        MESH.debug("too much")
        MESH.warning("refused")
    MESH.warning("after it")
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(" timely.")[2] for line in lines[:2]] == [
        "worker.mesh: run abcd, worker 3, attempt 17: hello 1",
        "worker.mesh: run abcd, worker 3, attempt 17: refused",
    ]
    assert driver.received == [LogLine(logging.WARNING, "run abcd, worker 3, attempt 17: refused")]


def test_a_line_that_is_sent_is_bounded() -> None:
    driver = Driver()
    with worker_log(driver, LogPlan(echo=False), run=b"\1", worker=0, attempt=1):
        MESH.error("x" * 100_000)
    assert len(driver.received[0].text) == 4_096


def test_the_driver_logs_what_a_worker_sends(caplog: pytest.LogCaptureFixture) -> None:
    log_on_driver(3, 17, LogLine(logging.WARNING, "run 01, worker 3, attempt 17: 100 % refused"))
    assert [(record.levelno, record.message) for record in caplog.records] == [
        (logging.WARNING, "run 01, worker 3, attempt 17: 100 % refused")
    ]


# -- in Spark ----------------------------------------------------------------------------------------------------------


@pytest.mark.spark
def test_why_an_attempt_failed_is_in_the_logs_of_the_driver(session: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    def build(scope: timely.ScopeBuilder[int], numbers: timely.Stream[int, Any]) -> dict[str, timely.Stream[int, Any]]:
        def fail(batch: Any) -> Any:
            raise ValueError("no sevens")

        return {"numbers": numbers.map_batch(fail)}

    session.sparkContext.setLogLevel("WARN")
    try:
        result = ts.run(build, {"numbers": session.range(9)}, {"numbers": "id long"}, workers=1)
        with pytest.raises(Exception, match="no sevens"):
            result["numbers"].count()
    finally:
        session.sparkContext.setLogLevel("ERROR")
        log_to_spark(session.sparkContext)
    received = [record.getMessage() for record in caplog.records if record.name == "timely.spark.worker"]
    assert received
    assert "worker 0, attempt " in received[0]
    assert "stops, and so do the others: operator 'map_batch · fail'" in received[0]


@pytest.mark.spark
def test_the_level_is_asked_of_the_java_of_the_session(session: SparkSession) -> None:
    context = session.sparkContext
    levels = {}
    for level in ("DEBUG", "INFO", "WARN", "ERROR", "OFF"):
        context.setLogLevel(level)
        levels[level] = log_to_spark(context).level
    context.setLogLevel("ERROR")
    log_to_spark(context)
    assert levels == {"DEBUG": logging.DEBUG, "INFO": logging.INFO, "WARN": logging.WARNING, "ERROR": logging.ERROR, "OFF": 51}
    assert [handler.context for handler in spark_handlers()] == [context]


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
