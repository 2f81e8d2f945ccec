"""A stream over Spark Connect: its epochs are processed beside the server, in the process that Spark has for ``foreachBatch``.

That process stays up as long as the query, and has a session of its own. It does what the driver does in a classic session: it
has the epoch log and the supervisor, whose workers hold their state from one micro-batch to the next. The program shares nothing
with it but the checkpoint directory, into which it looks by jobs of one task. The invariant: what is under way when the process
ends, the next start does again from the epoch log, as after a driver that was killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from timely.errors import CheckpointError, ConfigurationError, SparkError, TimelyError
from timely.recovery.store import is_uri
from timely.spark.connect import received_frame, sent_frame
from timely.spark.gathered_rendezvous import failure_of, mark
from timely.spark.shipping import carried
from timely.spark.sinks import check_without_java
from timely.spark.streaming.directory import StreamDirectory
from timely.spark.streaming.handle import StreamHandle
from timely.spark.streaming.jobs import StreamJobs, in_a_task
from timely.spark.streaming.micro_batches import EpochReport, Epochs, StreamPlan

_STATUS = "status.json"
_STOPPED = "the stream is being stopped"
_LOOK_EVERY = 1.0
"""Seconds between two looks for a request to stop."""
_STARTS = 3
"""How often a start is tried: Spark gives the process at the server ten seconds to come up, too few for a busy machine."""
_END_WITHIN = 120.0
"""Seconds that the epoch under way and the last checkpoint may take after a request to stop."""


def check_for_server(checkpoint: str | os.PathLike[str], live: object, sink: object) -> None:
    """Raise ``ConfigurationError`` for what a stream over Spark Connect cannot have."""
    if live is not None:
        raise ConfigurationError(
            "live= needs workers that report to the process of the program, and over Spark Connect these cannot reach it: leave"
            " it out; StreamHandle.recent says what each epoch came to"
        )
    check_without_java("foreach_epoch", sink)
    if not is_uri(str(checkpoint)) and not os.path.isabs(checkpoint):
        raise ConfigurationError(
            f"checkpoint={str(checkpoint)!r} is relative to a folder of this machine, and the stream runs at the server: "
            "give an absolute path or a URI"
        )


# -- at the server -----------------------------------------------------------------------------------------------------


@attrs.frozen
class _ServerStream:
    """What processes a stream's epochs at the server. ``start`` is another one at each start of the stream."""

    plan: StreamPlan
    first: bytes | None
    start: str

    def run(self, batches: Iterator[tuple[DataFrame, int]]) -> Iterator[None]:
        """Process one micro-batch after another; yield when each is done."""
        try:
            frame, epoch = next(batches)
            with self._opened(frame.sparkSession) as running:
                while True:
                    running.process(frame, epoch)
                    yield
                    frame, epoch = next(batches)
        except TimelyError as error:
            mark(error, -1)
            raise

    @contextlib.contextmanager
    def _opened(self, session: SparkSession) -> Iterator[_Running]:
        jobs = StreamJobs(session, f"timely-{self.start}")
        first = None if self.first is None else received_frame(session, self.first)
        epochs = self.plan.open(jobs, first)
        running = _Running(epochs, self.start)
        try:
            epochs.supervisor.begin()
            threading.Thread(target=running.await_request, name="timely-stop", daemon=True).start()
            yield running
        finally:
            running.end()


class _Running:
    """A stream that is up in this process."""

    def __init__(self, epochs: Epochs, start: str) -> None:
        self._epochs = epochs
        self._start = start
        self._under_way = threading.Lock()
        self._stopping = threading.Event()
        self._ended = False

    def process(self, frame: DataFrame, epoch: int) -> None:
        with self._under_way:
            if self._stopping.is_set():
                raise SparkError(_STOPPED)
            self._epochs.process(frame, epoch)
            self._write_status()

    def await_request(self) -> None:
        """Wait until the program asks to stop, and then end the stream, after the epoch under way."""
        request = _request(self._start)
        while not self._ended:
            with contextlib.suppress(CheckpointError):
                self._epochs.directory.read(request)
                break
            time.sleep(_LOOK_EVERY)
        self._stopping.set()
        self.end()
        self._epochs.directory.delete(request)

    def end(self) -> None:
        """Write a checkpoint, and have the workers end."""
        self._stopping.set()
        with self._under_way:
            if self._ended:
                return
            self._ended = True
            epochs = self._epochs
            epochs.supervisor.checkpoint(epochs.epoch_log.committed + 1)
            epochs.supervisor.end()
            with contextlib.suppress(CheckpointError):  # another start of the stream may have taken over
                epochs.prune()
                self._write_status()

    def _write_status(self) -> None:
        epochs = self._epochs
        status = _Status(
            self._start,
            self._ended,
            epochs.epoch_log.delivered,
            epochs.supervisor.attempts,
            dict(epochs.supervisor.pids),
            list(epochs.reports),
        )
        text = json.dumps(attrs.asdict(status)).encode()
        epochs.epoch_log.check_owner(_STATUS)
        epochs.directory.write(_STATUS, lambda file: file.write(text))


@attrs.frozen
class _Status:
    """What the program gets to know of a stream."""

    start: str = ""
    ended: bool = False
    epoch: int = -1
    attempts: int = 0
    pids: Mapping[int, int] = attrs.field(factory=dict)
    recent: list[EpochReport] = attrs.field(factory=list)

    @classmethod
    def read(cls, text: str) -> _Status:
        values = json.loads(text)
        values["pids"] = {int(worker): pid for worker, pid in values["pids"].items()}
        values["recent"] = [EpochReport(**report) for report in values["recent"]]
        return cls(**values)


def _request(start: str) -> str:
    return f"stop-{start}"


# -- at the program ----------------------------------------------------------------------------------------------------


def start_at_server(plan: StreamPlan, rows: DataFrame, first: DataFrame | None, trigger: Mapping[str, Any]) -> StreamHandle:
    """Start a stream over Spark Connect; ``first`` has the rows of inputs that are no streams."""
    start = secrets.token_hex(8)
    stream = _ServerStream(plan, None if first is None else sent_frame(first), start)
    writer = rows.writeStream.foreachBatch(_fed(carried(stream.run, f"timely {plan.name}")))
    writer = writer.option("checkpointLocation", plan.directory.for_spark("query"))
    return _ServerStreamHandle(rows.sparkSession, plan.directory, start, writer.trigger(**trigger) if trigger else writer)


def _fed(run: Callable[[Iterator[Any]], Iterator[Any]]) -> Callable[[DataFrame, int], None]:
    """Return a function of one micro-batch that has ``run`` process it; all calls go to the one iterator that it returns."""
    waiting: deque[tuple[DataFrame, int]] = deque()
    running: list[Iterator[Any]] = []

    def process(frame: DataFrame, epoch: int) -> None:  # pickled by its code, as carried() has it
        if not running:
            running.append(run(iter(waiting.popleft, None)))
        waiting.append((frame, epoch))
        next(running[0])

    return process


class _ServerStreamHandle(StreamHandle):
    """A stream whose epochs are processed at the server."""

    def __init__(self, session: SparkSession, directory: StreamDirectory, start: str, writer: Any) -> None:
        super().__init__()
        self._session = session
        self._directory = directory
        self._start = start
        self._stopping = False
        self._query = _started(writer)
        threading.Thread(target=self._watch, name="timely-stream", daemon=True).start()

    @property
    def epoch(self) -> int:
        return self._status().epoch

    @property
    def recent(self) -> list[EpochReport]:
        return self._status().recent

    @property
    def attempts(self) -> int:
        return self._status().attempts

    @property
    def pids(self) -> Mapping[int, int]:
        return self._status().pids

    def stop(self) -> None:
        self._stopping = True
        with contextlib.suppress(Exception):  # it, or its session, has ended already
            if self.is_active and self._status().start == self._start:
                self._ask_to_stop()
        with contextlib.suppress(Exception):
            self.query.stop()
        self._ended.wait()

    def _ask_to_stop(self) -> None:
        """End the stream in its process, before the query is stopped and Spark kills that process."""
        directory, request = self._directory, _request(self._start)
        deadline = time.monotonic() + _END_WITHIN
        in_a_task(self._session, lambda: _written(directory, request))
        while self.is_active and not self._status().ended and time.monotonic() < deadline:
            time.sleep(_LOOK_EVERY / 2)

    def _status(self) -> _Status:
        """Return the newest status; of that of an earlier start, the epoch."""
        directory = self._directory
        text = in_a_task(self._session, lambda: _text_of(directory))
        status = _Status.read(text) if text else _Status()
        return status if status.start == self._start else _Status(epoch=status.epoch)

    def _watch(self) -> None:
        """Wait for the query to end, and note what of."""
        try:
            self.query.awaitTermination()
        except Exception as error:  # Spark's
            failure = failure_of(error)
            if not self._stopping or (failure is not None and str(failure) != _STOPPED):
                self._failure = failure or SparkError(f"the streaming query has ended: {error}")
                self._failure.__cause__ = error
        self._ended.set()


def _started(writer: Any) -> StreamingQuery:
    """Return the query, started. ``SparkError`` where Spark cannot."""
    for _ in range(_STARTS):
        try:
            query: StreamingQuery = writer.start()
            return query
        except Exception as error:  # Spark's
            failure = SparkError(f"the streaming query cannot be started: {error}")
            failure.__cause__ = error
            if "failed to connect back" not in str(error):
                break
    raise failure


def _written(directory: StreamDirectory, name: str) -> str:
    directory.write(name, lambda file: file.write(b"{}"))
    return name


def _text_of(directory: StreamDirectory) -> str:
    try:
        return directory.read(_STATUS).decode()
    except CheckpointError:
        return ""
