"""The handle of a stream: what a program may ask of it, wherever its epochs run."""

from __future__ import annotations

import abc
import threading
from collections.abc import Mapping

from pyspark.sql.streaming.query import StreamingQuery

from timely.errors import TimelyError
from timely.spark.streaming.micro_batches import EpochReport


class StreamHandle(abc.ABC):
    """A stream that is up, or has ended. :func:`~timely.spark.stream` makes it."""

    def __init__(self) -> None:
        self._query: StreamingQuery | None = None
        self._failure: TimelyError | None = None
        self._ended = threading.Event()

    def __repr__(self) -> str:
        return f"StreamHandle({'up' if self.is_active else 'ended'}, epoch={self.epoch}, failure={self.failure!r})"

    @property
    def query(self) -> StreamingQuery:
        """Spark's own streaming query, for its progress, its source's offsets and so on."""
        assert self._query is not None
        return self._query

    @property
    def failure(self) -> TimelyError | None:
        """What ended the stream; ``None`` while it is up, and where it was stopped or its input ended."""
        return self._failure

    @property
    def is_active(self) -> bool:
        """Whether it is up."""
        return not self._ended.is_set()

    @property
    @abc.abstractmethod
    def epoch(self) -> int:
        """The last epoch that has been delivered, ``-1`` before the first."""

    @property
    @abc.abstractmethod
    def recent(self) -> list[EpochReport]:
        """The reports of the last 100 epochs, the newest last."""

    @property
    @abc.abstractmethod
    def attempts(self) -> int:
        """How many times the workers have been started: once, and once more after each loss."""

    @property
    @abc.abstractmethod
    def pids(self) -> Mapping[int, int]:
        """The process of each worker, by the worker's index; none while they are started."""

    @abc.abstractmethod
    def stop(self) -> None:
        """End the stream: finish the epoch under way, write a checkpoint, stop the workers.

        Returns when that is done; at once where ``foreach_epoch`` calls it, whose epoch is then the last. A no-op for a stream
        that has ended.
        """

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait for the stream to end, for at most so many seconds; return whether it has. Raises its :attr:`failure`."""
        if self._ended.wait(timeout) and self._failure is not None:
            raise self._failure
        return self._ended.is_set()
