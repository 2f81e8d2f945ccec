"""A stream of a classic session, whose epochs the driver processes: its life, as the program has it.

The invariant: epochs go through the epoch log one at a time, in order, on the query's own thread. Spark takes a micro-batch for
done only when its epoch is delivered. A stream that has ended has left nothing running, and can be started again.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame

from timely.errors import SparkError, TimelyError
from timely.spark.streaming.handle import StreamHandle
from timely.spark.streaming.micro_batches import EpochReport, Epochs


class DriverStreamHandle(StreamHandle):
    """A stream whose epochs this process runs."""

    def __init__(self, epochs: Epochs) -> None:
        super().__init__()
        self._epochs = epochs
        self._under_way = threading.RLock()
        self._busy: int | None = None
        self._stopping = False

    @property
    def epoch(self) -> int:
        """As the epoch log has it."""
        return self._epochs.epoch_log.delivered

    @property
    def recent(self) -> list[EpochReport]:
        """As this process has counted."""
        return list(self._epochs.reports)

    @property
    def attempts(self) -> int:
        """As the supervisor has counted."""
        return self._epochs.supervisor.attempts

    @property
    def pids(self) -> Mapping[int, int]:
        """As the workers have sent."""
        return self._epochs.supervisor.pids

    def stop(self) -> None:
        """End the stream, from any thread."""
        if self._busy == threading.get_ident():
            self._stopping = True
            threading.Thread(target=self.stop, name="timely-stop", daemon=True).start()
            return
        with self._under_way:
            self._stopping = True
        with contextlib.suppress(Exception):  # it, or its session, has ended already
            self.query.stop()
        self._ended.wait()

    def start(self, frame: DataFrame, trigger: Mapping[str, Any]) -> None:
        """Start the workers, then the query."""
        epochs = self._epochs
        epochs.supervisor.on_failure = self._give_up
        try:
            epochs.supervisor.begin()
            writer = frame.writeStream.foreachBatch(self._on_batch)
            writer = writer.option("checkpointLocation", epochs.directory.for_spark("query"))
            self._query = (writer.trigger(**trigger) if trigger else writer).start()
            if epochs.supervisor.failure is not None:  # since it was ready
                self._give_up()
        except BaseException:
            epochs.supervisor.end()
            self._ended.set()
            raise
        threading.Thread(target=self._watch, name="timely-stream", daemon=True).start()

    def _on_batch(self, frame: DataFrame, epoch: int) -> None:
        """Process an epoch: Spark calls this for each micro-batch, which is done when it returns."""
        with self._under_way:
            if self._stopping:
                raise SparkError("the stream is being stopped")
            self._busy = threading.get_ident()
            try:
                self._epochs.process(frame, epoch)
            except TimelyError as error:
                self._failure = error
                raise
            finally:
                self._busy = None

    def _give_up(self) -> None:
        """End the query for want of workers."""
        with contextlib.suppress(Exception):
            self.query.stop()

    def _watch(self) -> None:
        """Wait for the query to end, and clean up behind it."""
        error: Exception | None = None
        try:
            self.query.awaitTermination()
        except Exception as raised:  # Spark's
            error = raised
        with self._under_way:
            supervisor = self._epochs.supervisor
            failure = self._failure or supervisor.failure
            if failure is None and error is not None and not self._stopping:
                failure = SparkError(f"the streaming query has ended: {error}")
                failure.__cause__ = error
            self._failure = failure
            supervisor.checkpoint(self._epochs.epoch_log.committed + 1)
            supervisor.end()
            with contextlib.suppress(Exception):
                self._epochs.prune()
        self._ended.set()
