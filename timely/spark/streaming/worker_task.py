"""What one worker of a stream does: it stays up, and does what the driver orders, epoch by epoch.

A :class:`WorkerTask` is made on the driver, travels to the tasks of one barrier job, and its :meth:`WorkerTask.run` is the
function that
Spark calls there. The orders come over the connection to the driver, the same ones to every worker in the same order:

==============  =======================================================================================================
``compute``     send the rows of the epoch into the dataflow, write what its outputs give at that time, tell the files
``replay``      the same again after a restart, for an epoch whose outputs are committed: they are thrown away
``checkpoint``  write a checkpoint of all epochs before this one
``end``         leave
==============  =======================================================================================================

The invariant: an order is carried out as a whole before the next one is looked at, and between two orders the inputs of all
workers stand at the same time. A caller may assume that a worker ends promptly, and says why, when another one or the driver
is gone.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
import pyarrow as pa
from pyarrow import parquet

from timely.dataflow import Stream
from timely.errors import ConfigurationError, WorkerError
from timely.recovery import Recovery
from timely.spark.ingest import Intake
from timely.spark.registration import Registration
from timely.spark.streaming.directory import Place, PlacedNotes
from timely.spark.streaming.ingest import share
from timely.spark.streaming.ledger import files_of
from timely.spark.streaming.output_buffer import OutputBuffer
from timely.spark.task import Task
from timely.worker import Worker
from timely.worker.internals import sync_activator, timers

ORDER = "order"
"""The kind of message in which the driver orders: ``{"do": ..., "epoch": ...}``."""

READY = "ready"
"""The worker has taken its state back and is at the time ``epoch``; ``pid`` is its process."""

COMPUTED = "computed"
"""The worker has written its part of the outputs of ``epoch``: ``files``, by output, the name and how many rows it has."""

KEPT = "kept"
"""The checkpoint of all epochs before ``epoch`` is complete."""

_LOOK_EVERY = 1.0
"""Seconds after which a worker that waits looks whether it is still wanted, should nobody wake it."""


@attrs.frozen(kw_only=True)
class WorkerTask(Task):
    """Everything that a worker of a stream needs to know, made on the driver; as with any other task, what it fails of is
    told.
    """

    place: Place
    version: str
    attempt: str

    def _work(self, worker: Worker, registration: Registration, *_: Any, **__: Any) -> Iterator[pa.RecordBatch]:
        """Be one worker until the driver says that it is over. What rows Spark has for it are of no interest; it gives none."""
        self._serve(worker, registration)
        yield from ()

    def _serve(self, worker: Worker, registration: Registration) -> None:
        """Carry out orders until the last."""
        ear = Ear(registration, worker)
        with Recovery(worker, self.place.for_arrow("state"), version=self.version) as recovery:
            post = self._post(worker)
            post.go_to(recovery.time or 0)
            registration.tell(READY, {"epoch": post.epoch, "pid": os.getpid()})
            while (order := ear.order())["do"] != "end":
                epoch = order["epoch"]
                if order["do"] == "checkpoint":
                    recovery.checkpoint(epoch)
                    registration.tell(KEPT, {"epoch": epoch})
                    continue
                post.take(epoch)
                if order["do"] == "compute":
                    registration.tell(COMPUTED, {"epoch": epoch, "files": post.write(epoch)})
                else:
                    post.drop(epoch)
            post.leave()

    def check_stream(self, name: str, built: object) -> None:
        """Raise ``ConfigurationError`` also for a stream whose times are not epochs."""
        super().check_stream(name, built)
        if isinstance(built, Stream) and built.scope.time is not int:
            raise ConfigurationError(
                f"output {name!r}: build returned a stream of the scope {built.scope.path!r}, whose times are more than epochs: "
                "return stream.leave()"
            )

    def _post(self, worker: Worker) -> _Post:
        """Build the dataflow, each of whose outputs gets a shelf."""
        with worker.dataflow(int, name="stream") as scope:
            handles, streams = self.build_in(scope)
            shelves = [OutputBuffer.of(stream, output.name) for stream, output in zip(streams, self.outputs, strict=True)]
        return _Post(self, worker, Intake(worker, handles, self.inputs), shelves, lambda: worker.drop_dataflow(scope))


@attrs.define(eq=False)
class _Post:
    """A worker's dataflow, and what is done with it for one epoch."""

    duty: WorkerTask
    worker: Worker
    intake: Intake
    shelves: Sequence[OutputBuffer]
    leave: Callable[[], None]
    epoch: int = 0

    def go_to(self, epoch: int) -> None:
        """Say that what comes is at or after ``epoch``."""
        self.intake.advance(epoch)
        self.epoch = epoch

    def take(self, epoch: int) -> None:
        """Send this worker's share of an epoch, and step until all that its outputs give at that time is on the shelves."""
        if epoch != self.epoch:
            raise WorkerError(f"worker {self.worker.index} is to compute epoch {epoch}, and is at epoch {self.epoch}")
        place = self.duty.place
        for batch in share(place, files_of(PlacedNotes(place), epoch), self.worker.index, self.worker.peers):
            self.intake.take(batch)
            while self.intake.crowded():
                self.intake.wait(_LOOK_EVERY)
        self.go_to(epoch + 1)
        while not all(shelf.complete(epoch) for shelf in self.shelves):
            self.worker.run_step(_LOOK_EVERY)

    def write(self, epoch: int) -> dict[str, list[Any]]:
        """Write what is on the shelves for an epoch; return ``[file, rows]`` for each output that has rows there."""
        written = {}
        for output, shelf in zip(self.duty.outputs, self.shelves, strict=True):
            batches = [batch for batch in map(output.conform, shelf.fetch(epoch)) if batch.num_rows]
            if batches:
                name = f"outputs/{epoch}/{self.duty.attempt}-{self.worker.index}-{output.name}.parquet"
                table = pa.Table.from_batches(batches)
                self.duty.place.write(name, lambda file, table=table: parquet.write_table(table, file))  # type: ignore[misc]
                written[output.name] = [name, table.num_rows]
        return written

    def drop(self, epoch: int) -> None:
        """Throw away what is on the shelves for an epoch."""
        for shelf in self.shelves:
            shelf.fetch(epoch)


class Ear:
    """Listens to the driver while the worker works or waits; what comes wakes it.

    That the run has failed, as the driver says, is raised in whatever the worker is doing.
    """

    def __init__(self, registration: Registration, worker: Worker) -> None:
        self._registration = registration
        self._worker = worker
        self._orders: deque[dict[str, Any]] = deque()
        bell = sync_activator(worker, self._look)
        registration.alert(bell.ring)
        bell.ring()  # for what was said before

    def order(self) -> dict[str, Any]:
        """Return the next order; until it comes, step the worker for its peers."""
        worker = self._worker
        while not self._orders:
            if worker.idle:
                pause = timers(worker).pause()
                worker.transport.wait(_LOOK_EVERY if pause is None else min(pause, _LOOK_EVERY))
            worker.step()
        return self._orders.popleft()

    def _look(self) -> None:
        """Take in what has been said."""
        self._orders.extend(self._registration.heard(ORDER))
        stopped = self._registration.stopped()
        if stopped is not None:
            raise stopped
