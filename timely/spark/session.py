"""Spark sessions: a local one to run dataflows on, and what any session must offer.

The invariant: a session is read, never changed. What it lacks is an error before any job starts (:mod:`timely.spark.settings`).
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from timely.errors import ConfigurationError, SparkError
from timely.spark.connect import is_connect, refuse_connect
from timely.spark.java import environment, java_environment
from timely.spark.versions import is_remote_only

if TYPE_CHECKING:  # not in the client of Spark Connect alone
    from pyspark import SparkContext

_python_of_context = threading.RLock()


def local_session(workers: int, *, app_name: str = "timely") -> SparkSession:
    """Return a Spark session on this machine with one slot for each of ``workers`` workers.

    It has no web interface, logs errors only, fails at once where a barrier stage does not fit, runs its Python workers with this
    interpreter, and listens on the loopback interface only. Java is found by :func:`~timely.spark.java.find_java`. A session that
    is up already is returned as it is; with too few slots it is a :class:`~timely.errors.SparkError`. Raises
    :class:`~timely.errors.ConfigurationError` for a count that is no positive integer, and where only the client of Spark Connect
    is installed.

    >>> session = local_session(2)
    >>> session.range(3).count()
    3
    """
    check_workers(workers)
    if is_remote_only():
        raise ConfigurationError(
            "a local session needs all of pyspark, and what is installed here is the client of Spark Connect alone "
            '(pyspark-client): pip install "timely-dataflow[spark]"'
        )
    active = SparkSession.getActiveSession()
    if active is not None:
        _check_slots(active, workers)
        return active
    builder = SparkSession.builder.master(f"local[{workers}]").appName(app_name)
    for name, value in _local_settings(workers).items():
        builder = builder.config(name, value)
    with environment(PYSPARK_PYTHON=os.environ.get("PYSPARK_PYTHON", sys.executable)), java_environment():
        session = builder.getOrCreate()
    _check_slots(session, workers)
    return session


def _check_slots(session: SparkSession, workers: int) -> None:
    context = context_of(session)
    if (slots := concurrent_tasks(context)) < workers:
        raise SparkError(
            f"there is a session already, and a process has one: its master {context.master} offers {slots} task slots, and "
            f"{workers} workers need {workers}. Stop it first, or ask for fewer workers"
        )


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
    """Return half of the machine's memory, between 1 and 4 GiB: Spark's default of 1 GiB serves the driver and all tasks."""
    half = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**31
    return f"{min(max(half, 1), 4)}g"


def check_workers(workers: int) -> None:
    """Raise :class:`~timely.errors.ConfigurationError` unless ``workers`` is a positive integer."""
    if not isinstance(workers, int) or isinstance(workers, bool) or workers < 1:
        raise ConfigurationError(f"workers must be an integer of 1 or more, not {workers!r}")


def context_of(session: SparkSession) -> SparkContext:
    """Return the context that a classic session drives. Raises :class:`~timely.errors.SparkError` for one of Spark Connect."""
    refuse_connect("this session", session, "a session made with master(...) rather than remote(...)")
    return session.sparkContext


def was_stopped(session: SparkSession) -> bool:
    """Return whether a session was stopped."""
    if is_connect(session):
        stopped: Any = session
        return bool(stopped.is_stopped)
    return session.sparkContext._jsc is None


def concurrent_tasks(context: SparkContext) -> int:
    """Return how many tasks with the default resources can run at the same time, busy slots included."""
    scala: Any = context._jsc.sc()
    profile = scala.resourceProfileManager().defaultResourceProfile()
    return int(scala.maxNumConcurrentTasks(profile))


def addresses(context: SparkContext) -> tuple[str, str]:
    """Return where the driver should listen, and the host by which its executors reach it."""
    if is_local(context):
        return "127.0.0.1", "127.0.0.1"
    host = context.getConf().get("spark.driver.host", "127.0.0.1")
    bind = context.getConf().get("spark.driver.bindAddress", host)
    return bind.strip("[]"), host.strip("[]")  # Spark puts addresses of IPv6 into brackets


def is_local(context: SparkContext) -> bool:
    """Return whether the tasks run in threads of the driver's own Java, on this machine."""
    master = str(context.master)
    return master == "local" or master.startswith("local[")


def _on_this_machine(context: SparkContext) -> bool:
    """Return whether the tasks run on the driver's machine: the cluster's master is on the loopback interface."""
    master = str(context.master)
    loopback = ("local-cluster[", "spark://127.", "spark://localhost:", "spark://[::1]:")
    return is_local(context) or master.startswith(loopback)


@contextlib.contextmanager
def this_python(context: SparkContext) -> Iterator[None]:
    """Run the functions that are handed to Spark inside the block with this interpreter, where tasks run on this machine.

    Spark takes ``python3`` from the ``PATH`` otherwise. A ``PYSPARK_PYTHON`` that the user set is left alone, and so is a
    cluster. One thread at a time is inside.
    """
    with _python_of_context:
        before = context.pythonExec
        if _on_this_machine(context) and "PYSPARK_PYTHON" not in os.environ:
            context.pythonExec = sys.executable
        try:
            yield
        finally:
            context.pythonExec = before


def tasks_python(session: SparkSession) -> contextlib.AbstractContextManager[None]:
    """Do as :func:`this_python` inside the block; a server of Spark Connect chooses its own."""
    return contextlib.nullcontext() if is_connect(session) else this_python(context_of(session))
