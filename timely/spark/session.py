"""Spark sessions: a local one made to run dataflows, and what a session of anybody's must offer to run one.

The invariant: a run that a session could only answer by hanging or by a message about something else is refused here,
before any job starts, with an error that says what to change. A caller may assume that after :func:`require_slots`
all workers of a run can be up at the same time.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from timely.errors import ConfigurationError, SparkError
from timely.spark.java import java_environment

_EXECUTORS_APPEAR_WITHIN = 20.0
"""Seconds that a cluster gets to bring up the executors it promised, before a run is refused for want of slots."""


def local_session(workers: int, *, app_name: str = "timely") -> SparkSession:
    """Return a Spark session on this machine with one slot for each of ``workers`` workers.

    It has no web interface, logs errors only, fails at once where a barrier stage does not fit, runs its Python
    workers with this very interpreter, and listens on the loopback interface only. Java is found or made by
    :func:`~timely.spark.java.find_java`. As always in Spark there is one session a process: one that
    is up already is returned as it is, and where it has too few slots a :class:`~timely.errors.SparkError` says so.
    Raises :class:`~timely.errors.ConfigurationError` for a count that is no positive integer.

    >>> session = local_session(2)
    >>> session.range(3).count()
    3
    """
    check_workers(workers)
    active = SparkSession.getActiveSession()
    if active is not None:
        require_slots(active, workers)
        return active
    builder = SparkSession.builder.master(f"local[{workers}]").appName(app_name)
    for name, value in _local_settings(workers).items():
        builder = builder.config(name, value)
    with _python_of_tasks(sys.executable), java_environment():
        session = builder.getOrCreate()
    require_slots(session, workers)
    return session


def _local_settings(workers: int) -> dict[str, str]:
    logging = Path(__file__).with_name("log4j2.properties").as_uri()
    return {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": _memory(),
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={logging}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
        "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures": "1",
        "spark.sql.shuffle.partitions": str(workers),
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    }


def _memory() -> str:
    """Return how much memory the one process of a local Spark may take: half of the machine's, and between 1 and 4 GiB.

    Spark's own default of 1 GiB has to serve the driver and every task of a local session; where it runs out, the process ends.
    """
    half = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**31
    return f"{min(max(half, 1), 4)}g"


@contextlib.contextmanager
def _python_of_tasks(executable: str) -> Iterator[None]:
    """Let a session that is launched inside the block run its tasks with ``executable``, unless the user chose one."""
    chosen = "PYSPARK_PYTHON" in os.environ
    os.environ.setdefault("PYSPARK_PYTHON", executable)
    try:
        yield
    finally:
        if not chosen:
            del os.environ["PYSPARK_PYTHON"]


def check_workers(workers: int) -> None:
    """Raise :class:`~timely.errors.ConfigurationError` unless ``workers`` is a positive integer.

    >>> check_workers(0)
    Traceback (most recent call last):
    timely.errors.ConfigurationError: workers must be an integer of 1 or more, not 0
    """
    if not isinstance(workers, int) or isinstance(workers, bool) or workers < 1:
        raise ConfigurationError(f"workers must be an integer of 1 or more, not {workers!r}")


def context_of(session: SparkSession) -> SparkContext:
    """Return the context that a session drives; :class:`~timely.errors.SparkError` where it drives none (Spark
    Connect).
    """
    try:
        return session.sparkContext
    except Exception as error:  # Spark Connect raises one of several types, by version
        raise SparkError(
            "this session has no SparkContext of its own (Spark Connect?); timely.spark needs a classic session, "
            "because the workers register with the driver's process"
        ) from error


def require_slots(session: SparkSession, workers: int) -> None:
    """Raise :class:`~timely.errors.SparkError` unless ``workers`` tasks of one stage can run at the same time.

    All workers of a dataflow are up together, so each needs a slot (``spark.task.cpus`` cores of an executor). A
    cluster whose executors are still starting is given a moment.
    """
    context = context_of(session)
    if context.getConf().get("spark.dynamicAllocation.enabled", "false") == "true":
        raise SparkError(
            "Spark runs no barrier stage under dynamic allocation: set spark.dynamicAllocation.enabled=false and ask "
            "for enough executors (spark.executor.instances, spark.executor.cores)"
        )
    patience = 0.0 if is_local(context) else _EXECUTORS_APPEAR_WITHIN
    deadline = time.monotonic() + patience
    while (slots := concurrent_tasks(context)) < workers:
        if time.monotonic() >= deadline:
            raise SparkError(_too_few(context, slots, workers))
        time.sleep(0.2)


def concurrent_tasks(context: SparkContext) -> int:
    """Return how many tasks with the default resources can run at the same time, busy slots included."""
    scala: Any = context._jsc.sc()
    profile = scala.resourceProfileManager().defaultResourceProfile()
    return int(scala.maxNumConcurrentTasks(profile))


def is_local(context: SparkContext) -> bool:
    """Return whether the tasks run in threads of the driver's own Java, on this machine."""
    master = str(context.master)
    return master == "local" or master.startswith("local[")


def _too_few(context: SparkContext, slots: int, workers: int) -> str:
    more = (
        f"stop the session and make one with local_session({workers}) or master local[{workers}]"
        if is_local(context)
        else "give the application more of them (spark.executor.instances, spark.executor.cores, spark.cores.max)"
    )
    return (
        f"{workers} workers need {workers} task slots at the same time; {context.master} offers {slots}. "
        f"Ask for fewer workers, or {more}"
    )


@contextlib.contextmanager
def this_python(context: SparkContext) -> Iterator[None]:
    """Let functions that are handed to Spark inside the block run with this interpreter, where the tasks run on this
    machine.

    Spark takes ``python3`` from the ``PATH`` otherwise, which is seldom the environment that the driver runs in. A
    ``PYSPARK_PYTHON`` that the user set is left alone, and so is a cluster, whose machines have their own paths.
    """
    before = context.pythonExec
    if is_local(context) and "PYSPARK_PYTHON" not in os.environ:
        context.pythonExec = sys.executable
    try:
        yield
    finally:
        context.pythonExec = before
