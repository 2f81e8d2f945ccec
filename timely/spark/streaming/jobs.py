"""The jobs of a stream, in a classic session and in one of Spark Connect: how many fit, how they are named and cancelled.

The invariant: what a stream asks of its session beside DataFrames is asked here, so that nothing else must know of the two kinds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

from timely.spark.connect import connect_settings, connect_slots, is_connect
from timely.spark.logs import LogPlan, log_to_spark
from timely.spark.session import addresses, concurrent_tasks, context_of, this_python
from timely.spark.shipping import carried
from timely.spark.slots import reserve


class StreamJobs:
    """The jobs of one stream in its session, in the process that runs its epochs: the driver, or one at the server."""

    def __init__(self, session: SparkSession, group: str) -> None:
        self.session = session
        self._group = group
        self._connect = is_connect(session)
        self._known = connect_slots(session, connect_settings(session)) if self._connect else None

    @property
    def addresses(self) -> tuple[str, str]:
        """Where this process should listen for workers, and the host by which executors reach it: it is on Spark's driver's."""
        if not self._connect:
            return addresses(context_of(self.session))
        settings = connect_settings(self.session)
        if settings("spark.master", "").startswith("local"):
            return "127.0.0.1", "127.0.0.1"
        host = settings("spark.driver.host", "127.0.0.1")
        return settings("spark.driver.bindAddress", host).strip("[]"), host.strip("[]")

    @property
    def log(self) -> LogPlan:
        """How workers log."""
        return LogPlan() if self._connect else log_to_spark(context_of(self.session))

    def spare(self, workers: int) -> int:
        """Return how many tasks can run beside the workers, as far as it is known, and at least one."""
        slots = self._known if self._connect else concurrent_tasks(context_of(self.session))
        return max((slots or 0) - workers, 1)

    def reserve(self, slots: int) -> contextlib.AbstractContextManager[None]:
        """Count so many slots as held, as long as the block runs. Sessions of Spark Connect know nothing of each other."""
        return contextlib.nullcontext() if self._connect else reserve(context_of(self.session), slots)

    @contextlib.contextmanager
    def workers(self, what: str) -> Iterator[None]:
        """Mark the jobs of this thread as those that :meth:`cancel_workers` cancels."""
        if self._connect:
            self.session.addTag(self._group)
            yield
        else:
            context = context_of(self.session)
            context.setJobGroup(self._group, what, interruptOnCancel=True)
            with this_python(context):
                yield

    def cancel_workers(self) -> None:
        """Cancel the jobs of the workers; a no-op where there is none, also because the session has been stopped."""
        with contextlib.suppress(Exception):
            if self._connect:
                self.session.interruptTag(self._group)
            else:
                context_of(self.session).cancelJobGroup(self._group)


def in_a_task(session: SparkSession, function: Callable[[], str]) -> str:
    """Return what a function returns in a task: the program of Spark Connect itself may not reach the checkpoint directory."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"text": [function()]})

    one = session.range(0, 1, 1, 1).mapInArrow(carried(run, "timely: a look into a stream"), "text string")
    return str(one.collect()[0].text)
