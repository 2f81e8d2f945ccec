"""One worker of a stream: it stays up, and carries out the driver's orders, epoch by epoch.

==============  =======================================================================================================
``compute``     send the rows of the epoch into the dataflow, write its outputs at that time, send the names of the files
``replay``      the same after a restart, for an epoch whose outputs are committed: they are discarded
``checkpoint``  write a checkpoint of all epochs before this one
``end``         leave
==============  =======================================================================================================

All workers get the same orders in the same order. The invariant: an order is carried out before the next one is looked at, and
between two orders the inputs of all workers are at the same time. A worker ends promptly, and says why, when a peer or the driver
is gone.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import attrs
import pyarrow as pa
from pyarrow import parquet

from timely.dataflow import InputPort, OperatorInfo, Pipeline, ScopeBuilder, Stream
from timely.dataflow.info import Piece
from timely.errors import ConfigurationError, WorkerError
from timely.operators import InputHandle, sink
from timely.recovery import Recovery
from timely.spark.ingest_pace import Ingest
from timely.spark.registration import Registration
from timely.spark.resume import check_writable
from timely.spark.stage_messages import Checkpointed, Computed, Order, Ready
from timely.spark.streaming.directory import StreamDirectory
from timely.spark.streaming.epoch_files import read_share
from timely.spark.streaming.epoch_log import files_of
from timely.spark.streaming.schemas import widened
from timely.spark.task import Task
from timely.worker import Worker
from timely.worker.internals import sync_activator, timers


class OutputBuffer:
    """The batches of one output on one worker, by time."""

    def __init__(self) -> None:
        self._batches: dict[int, list[Any]] = {}
        self._input: InputPort[int, Any] | None = None
        self._frontier: Sequence[int] = (0,)

    @classmethod
    def of(cls, stream: Stream[int, Any], name: str) -> OutputBuffer:
        """Return the buffer at the end of a stream, the output ``name``."""
        buffer = cls()
        sink(stream, Pipeline, f"output: {name}", buffer._construct)
        return buffer

    def complete(self, time: int) -> bool:
        """Return whether nothing at or before ``time`` can arrive any more, on any worker."""
        return all(time < element for element in self._frontier)

    def fetch(self, time: int) -> list[Any]:
        """Remove and return the batches of a time, in the order in which they arrived."""
        return self._batches.pop(time, [])

    def _construct(self, info: OperatorInfo) -> Callable[[InputPort[int, Any]], object]:
        info.register_state(self._save, self._load)
        return self._logic

    def _logic(self, input: InputPort[int, Any]) -> None:
        for capability, batch in input:
            self._batches.setdefault(capability.time, []).append(batch)
        self._frontier = list(input.frontier)

    def _save(self) -> list[Piece]:
        """Return the batches, partitioned over the workers: which of them writes a batch makes no difference."""
        waiting = [(time, batch) for time, batches in self._batches.items() for batch in batches]
        return list(enumerate(waiting))

    def _load(self, items: Iterable[tuple[int, Any]]) -> None:
        for time, batch in items:
            self._batches.setdefault(time, []).append(batch)


_LOOK_EVERY = 1.0
"""Seconds after which a waiting worker checks whether it is still wanted, if it is not woken."""


@attrs.frozen(kw_only=True)
class WorkerTask(Task):
    """Everything that a worker of a stream needs to know, made on the driver."""

    directory: StreamDirectory
    layout: pa.Schema
    version: str
    attempt: str

    def _work(self, worker: Worker, registration: Registration, *_: Any, **__: Any) -> Iterator[pa.RecordBatch]:
        """Be one worker until the driver's last order. It ignores Spark's rows, and yields none."""
        self._serve(worker, registration)
        yield from ()

    def _serve(self, worker: Worker, registration: Registration) -> None:
        orders = OrderQueue(registration, worker)
        state = self.directory.for_arrow("state")
        check_writable(state)
        with Recovery(worker, state, version=self.version) as recovery:
            runner = self._runner(worker)
            runner.advance(recovery.time or 0)
            registration.send(Ready(runner.epoch, os.getpid()))
            while (order := orders.next()).action != "end":
                epoch = order.epoch
                if order.action == "checkpoint":
                    recovery.checkpoint(epoch)
                    registration.send(Checkpointed(epoch))
                    continue
                runner.compute(epoch)
                if order.action == "compute":
                    registration.send(Computed(epoch, runner.write(epoch)))
                else:
                    runner.discard(epoch)
            runner.leave()

    def build_in(self, scope: ScopeBuilder[int]) -> tuple[list[InputHandle[int, Any]], list[Stream[int, Any]]]:
        """Build the dataflow. ``ConfigurationError`` also for an output whose times are not epochs."""
        handles, streams = super().build_in(scope)
        for output, stream in zip(self.outputs, streams, strict=True):
            if stream.scope.time is not int:
                raise ConfigurationError(
                    f"output {output.name!r}: build returned a stream of the scope {stream.scope.path!r}, whose times are more"
                    " than epochs: return stream.leave()"
                )
        return handles, streams

    def _runner(self, worker: Worker) -> _EpochRunner:
        """Build the dataflow, with a buffer at each output."""
        with worker.dataflow(int, name="stream") as scope:
            handles, streams = self.build_in(scope)
            buffers = [OutputBuffer.of(stream, output.name) for stream, output in zip(streams, self.outputs, strict=True)]
        return _EpochRunner(self, worker, Ingest(worker, handles, self.inputs), buffers, lambda: worker.drop_dataflow(scope))


@attrs.define(eq=False)
class _EpochRunner:
    """A worker's dataflow, and what it does for one epoch."""

    task: WorkerTask
    worker: Worker
    ingest: Ingest
    buffers: Sequence[OutputBuffer]
    leave: Callable[[], None]
    epoch: int = 0

    def advance(self, epoch: int) -> None:
        self.ingest.advance(epoch)
        self.epoch = epoch

    def compute(self, epoch: int) -> None:
        """Send this worker's share of an epoch, and step until its outputs at that time are complete."""
        if epoch != self.epoch:
            raise WorkerError(f"worker {self.worker.index} is to compute epoch {epoch}, and is at epoch {self.epoch}")
        directory = self.task.directory
        for batch in read_share(directory, files_of(directory.ledger(), epoch), self.worker.index, self.worker.peers):
            self.ingest.send(widened(batch, self.task.layout))
            while self.ingest.crowded():
                self.ingest.wait(_LOOK_EVERY)
        self.advance(epoch + 1)
        while not all(buffer.complete(epoch) for buffer in self.buffers):
            self.worker.run_step(_LOOK_EVERY)

    def write(self, epoch: int) -> dict[str, list[Any]]:
        """Write the outputs of an epoch; return ``[file, rows]`` for each output that has rows."""
        written = {}
        for output, buffer in zip(self.task.outputs, self.buffers, strict=True):
            batches = [batch for batch in map(output.conform, buffer.fetch(epoch)) if batch.num_rows]
            if batches:
                name = f"outputs/{epoch}/{self.task.attempt}-{self.worker.index}-{output.name}.parquet"
                table = pa.Table.from_batches(batches)
                self.task.directory.write(name, lambda file, table=table: parquet.write_table(table, file))  # type: ignore[misc]
                written[output.name] = [name, table.num_rows]
        return written

    def discard(self, epoch: int) -> None:
        """Discard the outputs of an epoch."""
        for buffer in self.buffers:
            buffer.fetch(epoch)


class OrderQueue:
    """Receives orders while the worker works or waits; one that comes wakes it.

    Where the driver says that the run has failed, whatever the worker is doing raises it.
    """

    def __init__(self, registration: Registration, worker: Worker) -> None:
        self._registration = registration
        self._worker = worker
        self._orders: deque[Order] = deque()
        activator = sync_activator(worker, self._look)
        registration.alert(activator.activate)
        activator.activate()  # for what came before

    def next(self) -> Order:
        """Return the next order; until it comes, step the worker for its peers."""
        worker = self._worker
        while not self._orders:
            if worker.idle:
                pause = timers(worker).pause()
                worker.transport.wait(_LOOK_EVERY if pause is None else min(pause, _LOOK_EVERY))
            worker.step()
        return self._orders.popleft()

    def _look(self) -> None:
        self._orders.extend(self._registration.receive(Order))
        stopped = self._registration.stopped()
        if stopped is not None:
            raise stopped
