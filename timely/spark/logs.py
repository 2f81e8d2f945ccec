"""Logging: the driver's lines go through Spark's own logging, the workers' lines to the executors' logs.

The library logs with Python's ``logging``, under ``timely``. On the driver one handler hands its lines to the log4j logger of the
same name. In a task a handler writes them to standard error, with run, worker and attempt, and sends warnings and errors to the
driver. The invariant: a line appears once in each place, and logging never fails a run: what cannot be handed on is dropped.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import attrs

from timely.errors import printable
from timely.spark.session import is_local
from timely.spark.stage_messages import LogLine, Sender

if TYPE_CHECKING:  # not in the client of Spark Connect alone
    from pyspark import SparkContext

_LONGEST: Final = 4_096
"""Characters of a line that are sent to the driver."""

_ROOT: Final = logging.getLogger("timely")
_WORKERS: Final = logging.getLogger("timely.spark.worker")

_NAMES: Final = ((logging.ERROR, "error"), (logging.WARNING, "warn"), (logging.INFO, "info"), (logging.DEBUG, "debug"))
_installing = threading.Lock()


@attrs.frozen
class LogPlan:
    """What the workers log: lines of ``level`` and above; to standard error too if ``echo``."""

    level: int = logging.WARNING
    echo: bool = True


# -- the driver's side -------------------------------------------------------------------------------------------------


class SparkHandler(logging.Handler):
    """Hands log lines on to the loggers of the same names in the Java of a context."""

    def __init__(self, context: SparkContext) -> None:
        super().__init__()
        self.context = context
        self._loggers: dict[str, Any] = {}

    def logger(self, name: str) -> Any:
        """Return Java's logger of a name."""
        of_name = self._loggers.get(name)
        if of_name is None:
            jvm: Any = self.context._jvm
            of_name = self._loggers[name] = jvm.org.slf4j.LoggerFactory.getLogger(name)
        return of_name

    def follow(self) -> int:
        """Adopt the level that Java's logger ``timely`` has now, and return it."""
        java = self.logger("timely")
        level = logging.CRITICAL + 1
        for number, name in _NAMES:
            if getattr(java, f"is{name.capitalize()}Enabled")():
                level = number
        self.setLevel(level)
        return level

    def emit(self, record: logging.LogRecord) -> None:
        """Log one line; drop it where Java is gone."""
        try:
            text = self.format(record)
            method = next((name for number, name in _NAMES if record.levelno >= number), "debug")
            getattr(self.logger(record.name), method)(text)
        except Exception:
            self._loggers.clear()


def log_to_spark(context: SparkContext) -> LogPlan:
    """Send the library's log lines through the logging of this context's Spark; return what workers are to log.

    Called whenever a session is used: there is one handler, with Spark's level at that moment. Where Spark logs more than
    warnings (``setLogLevel("INFO")``), Python's logger ``timely`` lets that through, unless the program has set its level.
    """
    with _installing:
        handler = next((handler for handler in _ROOT.handlers if isinstance(handler, SparkHandler)), None)
        if handler is not None and handler.context is not context:
            _ROOT.removeHandler(handler)
            handler = None
        if handler is None:
            handler = SparkHandler(context)
            _ROOT.addHandler(handler)
        level = handler.follow()
        wanted = level if level < logging.WARNING else logging.NOTSET
        if _ROOT.level in (logging.NOTSET, getattr(_ROOT, "_timely_level", logging.NOTSET)):
            _ROOT.setLevel(wanted)
            _ROOT._timely_level = wanted  # type: ignore[attr-defined]  # to know it again
    return LogPlan(level, echo=not is_local(context))


def log_on_driver(worker: int, generation: int, line: LogLine) -> None:
    """Log a line that a worker sent."""
    _WORKERS.log(line.level, "%s", line.text)


# -- the worker's side -------------------------------------------------------------------------------------------------


class WorkerHandler(logging.Handler):
    """Writes a worker's log lines to standard error, if ``plan`` says so, and sends warnings and errors to the driver."""

    def __init__(self, driver: Sender, plan: LogPlan, prefix: str) -> None:
        super().__init__(plan.level)
        self._driver = driver
        self._echo = plan.echo
        self.setFormatter(logging.Formatter(f"{prefix}: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Write and send one line."""
        with contextlib.suppress(Exception):
            text = self.format(record)
            if self._echo:
                when = time.strftime("%y/%m/%d %H:%M:%S", time.localtime(record.created))
                print(printable(f"{when} {record.levelname} {record.name}: {text}"), file=sys.stderr, flush=True)
            if record.levelno >= logging.WARNING:
                self._driver.send(LogLine(record.levelno, text[:_LONGEST]))


@contextlib.contextmanager
def worker_log(driver: Sender, plan: LogPlan, *, run: bytes, worker: int, attempt: int) -> Iterator[None]:
    """Add run, worker and attempt to the log lines of this process, as long as the block lasts."""
    handler = WorkerHandler(driver, plan, f"run {run.hex()[:8]}, worker {worker}, attempt {attempt}")
    before, passed_on = _ROOT.level, _ROOT.propagate
    _ROOT.addHandler(handler)
    _ROOT.setLevel(plan.level)
    _ROOT.propagate = False
    try:
        yield
    finally:
        _ROOT.removeHandler(handler)
        _ROOT.setLevel(before)
        _ROOT.propagate = passed_on
