"""How fast a worker takes in what Spark has for it: a few batches at a time.

Queues between operators have no bound, and Spark hands over rows as quickly as they are asked for. So a worker asks for the
next batch only when little is under way: records that were sent to an operator and not yet read, which the tracking of progress
counts anyway, on all workers together. That a slow worker is in arrears is thus known to those that send to it. The invariant:
a worker takes in a batch only when no more than two batches for each worker are under way, or when waiting is in vain, because
nothing moves any more without it. A caller may assume that waiting for room ends, whatever the operators do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from timely.operators import InputHandle
from timely.spark.packing import InputTable, unpack
from timely.spark.reporting import TaskMeter
from timely.worker import Worker

BATCHES = 2
"""Batches for each worker that may be under way when another one is taken in."""

LITTLE = 4 << 20
"""Bytes for each worker that may be under way in any case, so that small batches do not have to wait for each other."""

PATIENT_STEPS = 1000
"""Steps without any progress after which waiting is taken to be in vain: an operator may ask to be run again for ever."""


class Ingest:
    """Sends what comes from Spark into the inputs of a dataflow, and says when there is room for more.

    >>> worker = Worker()
    >>> with worker.dataflow() as scope:
    ...     handle, stream = scope.new_input()
    ...     seen = stream.map_batch(lambda batch: batch["x"].to_pylist()).capture()
    >>> intake = Ingest(worker, [handle], [InputTable("numbers", None)])
    >>> intake.take(pa.RecordBatch.from_pydict({"x": [1, 2]}))
    >>> while intake.crowded():
    ...     intake.wait(1.0)
    >>> intake.close()
    >>> worker.run()
    >>> seen.extract()
    [(0, [1, 2])]
    """

    __slots__ = ("_handles", "_least", "_meter", "_room", "_steps", "_vain", "_worker", "tables")

    def __init__(
        self,
        worker: Worker,
        handles: Sequence[InputHandle[int, Any]],
        tables: Sequence[InputTable],
        meter: TaskMeter | None = None,
    ) -> None:
        self._worker = worker
        self._handles = handles
        self.tables = tables
        self._meter = meter
        self._room = 0
        self._least = 0
        self._steps = 0
        self._vain = False

    def take(self, batch: pa.RecordBatch) -> None:
        """Send a batch into the inputs that its rows are for, at the epochs that they name, and step once."""
        for epoch, position, rows in unpack(batch, self.tables):
            if epoch > self._handles[0].time:
                for handle in self._handles:
                    handle.advance_to(epoch)
            self._handles[position].send_batch(rows)
            if self._meter is not None:
                self._meter.took(position, rows.num_rows, epoch)
        rows_of_little = batch.num_rows * LITTLE // max(batch.nbytes, 1)
        self._room = self._worker.peers * max(BATCHES * batch.num_rows, rows_of_little)
        self._worker.step()
        self._vain = False
        self._steps = 0

    def advance(self, epoch: int) -> None:
        """Say that nothing more comes in before ``epoch``."""
        for handle in self._handles:
            handle.advance_to(epoch)

    def crowded(self) -> bool:
        """Return whether too much is under way to take in more, and waiting may change that."""
        if self._vain:
            return False
        under_way = self._worker.under_way()
        if self._steps == 0 or under_way < self._least:
            self._least, self._steps = under_way, 0
        return under_way > self._room and self._steps < PATIENT_STEPS

    def wait(self, patience: float) -> None:
        """Take one step, after waiting for at most ``patience`` seconds if there is nothing to do."""
        self._steps += 1
        self._vain = self._worker.rest(patience)

    def close(self) -> None:
        """Say that nothing more comes in."""
        for handle in self._handles:
            handle.close()
