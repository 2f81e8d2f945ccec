"""Runs with ``checkpoint=``: when the workers of a batch run write a checkpoint, and how a new attempt resumes from one.

The rows of each worker ascend by epoch, but no worker knows which epochs the others have. So they go in *stretches*: an
all-gather of every worker's epoch decides how far the next stretch goes (:class:`Pace`), and until all rows are in, a checkpoint
can be written only there. From then on one is written whenever it is due, with the messages in flight, also in the middle of a
loop. Outputs since the start are part of it, since Spark discards what a failed attempt has yielded.

The invariant: a run yields what its dataflow gives of all rows, whichever attempt read them. Rows before a checkpoint are not
used again; their outputs come from it. The directory is cleared when the run has yielded everything.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import pickle
import secrets
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import IO, Any, cast

import attrs
import numpy as np
import pyarrow as pa

from timely.dataflow import OperatorInfo, Pipeline, Stream
from timely.dataflow.containers.pickling import dumps
from timely.errors import CheckpointError, ConfigurationError, StateError, file_error_text
from timely.operators.state_registration import share
from timely.recovery import Recovery, open_store
from timely.recovery.store import PARTIAL, is_uri
from timely.spark.ingest_pace import Ingest
from timely.spark.packing import EPOCH, InputTable, unpack
from timely.spark.registration import Registration
from timely.spark.reporting import TaskMeter
from timely.spark.stage_messages import Resumed
from timely.worker import Worker

_log = logging.getLogger(__name__)

Given = tuple[int, Any]
"""The position of an output, and a container that its stream gave."""

SMALL = 8 << 20
"""Bytes of what a checkpoint gives back that may stay in memory until they are handed over."""

LARGE = 64 << 20
"""Bytes of outputs since the last checkpoint, on any worker, after which one is written in any case: until then they are held."""


@attrs.frozen
class Checkpoints:
    """Where a run keeps its checkpoints, and how often it writes one; travels to the workers.

    ``every`` counts epochs that have rows, or seconds where ``timed``. ``version`` describes the run. Without ``epochs`` all rows
    are of time 0.
    """

    where: str
    every: float
    timed: bool
    version: str
    epochs: bool = True

    @contextlib.contextmanager
    def open(self, worker: Worker, registration: Registration) -> Iterator[ResumingRun]:
        """Begin an attempt, in every worker, before its dataflow is built: from the newest checkpoint, if there is one."""
        check_writable(self.where)
        with Recovery(worker, self.where, version=self.version) as recovery:
            if worker.index == 0:
                registration.send(Resumed(recovery.time))
            yield ResumingRun(worker, recovery, self)


class ResumingRun:
    """One attempt of a run, in one worker."""

    def __init__(self, worker: Worker, recovery: Recovery, checkpoints: Checkpoints) -> None:
        self._worker = worker
        self._recovery = recovery
        self._checkpoints = checkpoints
        self._pace = Pace(checkpoints.every, checkpoints.timed)
        self._end = 0

    def rows(
        self, batches: Iterator[pa.RecordBatch], ingest: Ingest, queue: OutputQueue, meter: TaskMeter
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows to send; each batch must be sent before the next is asked for.

        ``StateError`` where the rows have no epochs, and an operator can be saved between epochs only.
        """
        self._end = self._recovery.time or 0
        ingest.advance(self._end)
        if self._checkpoints.epochs:
            yield from self._stretches(batches, ingest, queue, meter)
            return
        self._recovery.check_in_flight()
        for batch in batches:  # to their end in any case, so that Spark can use the process again
            if not self._end:
                yield batch
        self._end = 1

    def _stretches(
        self, batches: Iterator[pa.RecordBatch], ingest: Ingest, queue: OutputQueue, meter: TaskMeter
    ) -> Iterator[pa.RecordBatch]:
        start = self._end
        feed = EpochReader(batches, ingest.tables, start)
        epochs, before, since = 0, 0, time.monotonic()
        while True:
            word = IngestStatus(feed.epoch, feed.epochs - epochs, time.monotonic() - since, queue.given - before)
            stretch = self._pace.meet(self._recovery.agree(word))
            if stretch is None:
                return
            if stretch.save:
                self._recovery.checkpoint(start)
                meter.checkpoints += 1
                epochs, before, since = feed.epochs, queue.given, time.monotonic()
            yield from feed.before(stretch.limit)
            start = self._end = stretch.limit
            ingest.advance(start)

    def steps(self, patience: float, meter: TaskMeter) -> Iterator[None]:
        """Step to the end of the dataflow, whose inputs are closed, and yield after each step. Checkpoints are written when due.

        Each worker looks at its own clock, and those that are early go on stepping until all have met.
        """
        recovery, worker = self._recovery, self._worker
        saves, since = self._saves_in_flight(), time.monotonic()
        while (more := worker.run_step(patience)) and not saves:
            yield
        while saves:
            yield
            if not more or time.monotonic() - since >= self._checkpoints.every:
                if not all(recovery.agree(more)):
                    break  # complete on one worker, and soon on all
                saves = self._save_in_flight(meter)
                since = time.monotonic()
            more = worker.run_step(patience)
        while worker.run_step(patience):
            yield

    def _save_in_flight(self, meter: TaskMeter) -> bool:
        """Write a checkpoint; return whether there are to be more. Between epochs it is enough that state can be pickled."""
        try:
            self._recovery.checkpoint(self._end, in_flight=True)
        except StateError as error:
            if not self._checkpoints.epochs:
                raise
            _log.warning("no checkpoints after the last row: %s", error)
            return False
        meter.checkpoints += 1
        return True

    def _saves_in_flight(self) -> bool:
        """Return whether checkpoints are written while messages are in flight: the clock must say when, and all operators must
        allow it.
        """
        if not self._checkpoints.timed:
            return False
        try:
            self._recovery.check_in_flight()
        except StateError as error:
            _log.info("no checkpoints after the last row: %s", error)
            return False
        return True

    def finish(self) -> None:
        """Clear the checkpoints, when every worker has yielded everything."""
        self._recovery.clear()


_HOPELESS = (PermissionError, FileExistsError, NotADirectoryError)
"""Errors of a place that stays as it is: no permission, or a file where a folder should be."""


def check_writable(where: str) -> None:
    """Write a file, and delete it. ``ConfigurationError`` where that will never work, ``CheckpointError`` where it may.

    >>> check_writable("/dev/null/checkpoints")
    Traceback (most recent call last):
    timely.errors.ConfigurationError: no checkpoint can be written to /dev/null/checkpoints: [Errno 20] Not a directory: ...
    """
    store = open_store(where)
    name = f"check-{secrets.token_hex(8)}{PARTIAL}"  # if a worker dies in between, recovery deletes it as an unfinished file
    try:
        store.write(name, [b""])
        store.delete(name)
    except OSError as error:
        hopeless = isinstance(error, _HOPELESS) or error.errno == errno.EROFS
        kind = ConfigurationError if hopeless else CheckpointError
        raise kind(
            f"no checkpoint can be written to {where}: {file_error_text(error)}. Give a folder or URI that the driver and all"
            " executors may write to"
        ) from error


def place(where: str | os.PathLike[str]) -> str:
    """Return where checkpoints are kept, as every worker can have it. ``ConfigurationError`` for what is no such place."""
    if not isinstance(where, str | os.PathLike) or not os.fspath(where):
        raise ConfigurationError(f"checkpoint must be a path or a URI that every worker can reach, not {where!r}")
    text = str(os.fspath(where))
    text = text if is_uri(text) else os.path.abspath(text)
    check_writable(text)
    return text


def interval(every: object) -> tuple[float, bool]:
    """Return a ``checkpoint_every`` as epochs or seconds, and which. ``ConfigurationError`` for anything else."""
    if isinstance(every, timedelta) and every > timedelta(0):
        return every.total_seconds(), True
    if isinstance(every, int) and not isinstance(every, bool) and every >= 1:
        return float(every), False
    raise ConfigurationError(
        f"checkpoint_every must be a number of epochs of 1 or more, or a datetime.timedelta of more than nothing, not {every!r}"
    )


# -- when ----------------------------------------------------------------------------------------------------------------


@attrs.frozen
class IngestStatus:
    """What one worker contributes to the all-gather: the epoch of its next row, if any, and what came since the last checkpoint.

    That is how many epochs it has read, how many seconds have passed, and the bytes of its outputs.
    """

    epoch: int | None
    epochs: int
    seconds: float
    given: int


@attrs.frozen
class Stretch:
    """What is decided: whether to write a checkpoint first, and the epoch before which the next stretch ends."""

    save: bool
    limit: int


class Pace:
    """Decides, in every worker alike, how long the stretches are, and after which a checkpoint is written.

    A stretch is a range of epoch numbers, which may be days or milliseconds. One too short to matter doubles the next.
    """

    __slots__ = ("_every", "_least", "_seen", "_stride", "_timed")

    def __init__(self, every: float, timed: bool) -> None:
        self._every = every
        self._timed = timed
        self._stride = self._least = 1 if timed else int(every)
        self._seen = 0.0

    def meet(self, words: Sequence[IngestStatus]) -> Stretch | None:
        """Return the decision, given the status of all workers in their order; ``None`` where no worker has more rows."""
        first = min((word.epoch for word in words if word.epoch is not None), default=None)
        if first is None:
            return None
        amount = words[0].seconds if self._timed else float(max(word.epochs for word in words))
        largest = max(word.given for word in words)
        taken = any(word.epochs for word in words)
        save = taken and (amount >= self._every or largest >= LARGE)
        self._adapt(amount - self._seen, crowded=largest >= LARGE, begun=taken)
        self._seen = 0.0 if save else amount
        return Stretch(save, first + self._stride)

    def _adapt(self, gained: float, *, crowded: bool, begun: bool) -> None:
        if crowded or gained > self._every:
            self._stride = max(self._stride // 2, 1)
        elif begun and gained * 2 <= self._every and (self._timed or self._every > 1):
            self._stride *= 2


# -- the rows of one worker ------------------------------------------------------------------------------------------------


class EpochReader:
    """The rows that Spark has for one worker, by epoch, to be read stretch by stretch; none before ``start``.

    ``SchemaError`` for an epoch that is null or negative, when its row is read.
    """

    def __init__(self, batches: Iterator[pa.RecordBatch], tables: Sequence[InputTable], start: int) -> None:
        self._batches = batches
        self._tables = tables
        self._column = tables[0].epoch if len(tables) == 1 else EPOCH
        self._batch: pa.RecordBatch | None = None
        self._epochs: Any = None
        self._at = 0
        self._last: int | None = None
        self.epochs = 0
        for _ in self._slices(start):
            pass

    @property
    def epoch(self) -> int | None:
        """The epoch of the next row; ``None`` at the end."""
        return int(self._epochs[self._at]) if self._ready() else None

    def before(self, limit: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows before an epoch, and count their epochs in ``epochs``."""
        for rows, epochs in self._slices(limit):
            distinct = np.unique(epochs)
            self.epochs += len(distinct) - (int(distinct[0]) == self._last)
            self._last = int(distinct[-1])
            yield rows

    def _slices(self, limit: int) -> Iterator[tuple[pa.RecordBatch, Any]]:
        while self._ready() and self._epochs[self._at] < limit:
            assert self._batch is not None
            begin, end = self._at, int(np.searchsorted(self._epochs, limit))
            rows, epochs, self._at = self._batch.slice(begin, end - begin), self._epochs[begin:end], end
            if end == len(self._epochs):
                self._batch = None  # nobody else is to keep it while more of the dataflow runs
            yield rows, epochs

    def _ready(self) -> bool:
        """Have a batch with a row left, unless there is no more."""
        while self._batch is None or self._at == len(self._epochs):
            batch = next(self._batches, None)
            if batch is None:
                return False
            if batch.num_rows:
                self._batch, self._at = batch, 0
                self._epochs = batch.column(self._column).cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
                if self._epochs[0] < 0:
                    next(unpack(batch, self._tables))  # says what is wrong with it
        return True


# -- the outputs of one worker ---------------------------------------------------------------------------------------------


class OutputQueue:
    """What the outputs of a worker have given and Spark has not read yet; what a checkpoint restored comes first."""

    __slots__ = ("_items", "_restored", "given")

    def __init__(self) -> None:
        self._items: deque[Given] = deque()
        self._restored: deque[IO[bytes]] = deque()
        self.given = 0

    def append(self, output: Given) -> None:
        """Add what an output gave."""
        self._items.append(output)
        self.given += getattr(output[1], "nbytes", 0)

    def restore(self, items: Iterable[Given]) -> None:
        """Add what a checkpoint has. It waits on disk, since there may be more than memory holds."""
        file = cast("IO[bytes]", tempfile.SpooledTemporaryFile(max_size=SMALL))  # noqa: SIM115  it is closed when it was read
        for item in items:
            file.write(dumps(item))
        file.seek(0)
        self._restored.append(file)

    def drain(self) -> Iterator[Given]:
        """Yield what is there, and what comes in the meantime."""
        while self._restored:
            with self._restored.popleft() as file:
                while (output := _read(file)) is not None:
                    yield output
        while self._items:
            yield self._items.popleft()


def _read(file: IO[bytes]) -> Given | None:
    try:
        output: Given = pickle.load(file)
    except EOFError:
        return None
    return output


def collect(stream: Stream[int, Any], position: int, queue: OutputQueue) -> None:
    """Put what ``stream`` carries into its worker's queue, and into the checkpoints of a run that resumes.

    With another number of workers, worker ``i`` restores the outputs of each ``j`` with ``j % peers == i``.
    """

    def constructor(info: OperatorInfo) -> Any:
        def rescale(parts: Sequence[Iterable[Given]]) -> None:
            queue.restore(share(parts, info.worker, info.peers))

        log = info.register_state(None, queue.restore, rescale=rescale, logged=True)

        def logic(input: Any) -> None:
            for _, batch in input:
                log.append(None, (position, batch))
                queue.append((position, batch))

        return logic

    stream.sink(Pipeline, "output", constructor)
