"""How fast a worker takes rows from Spark: flow control at the inputs.

Queues between operators have no bound, so a worker asks Spark for the next batch only when little is under way: records sent to
an operator and not yet read, on all workers together. The invariant: a batch enters only when at most two batches for each worker
are under way, or when waiting is in vain because nothing moves without it. So waiting ends, whatever the operators do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
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


@attrs.define(eq=False)
class Ingest:
    """Sends batches from Spark into the inputs of a dataflow, and says when there is room for more."""

    _worker: Worker
    _handles: Sequence[InputHandle[int, Any]]
    tables: Sequence[InputTable]
    _meter: TaskMeter | None = None
    _room: int = attrs.field(default=0, init=False)
    _least: int = attrs.field(default=0, init=False)
    _steps: int = attrs.field(default=0, init=False)
    _vain: bool = attrs.field(default=False, init=False)

    def send(self, batch: pa.RecordBatch) -> None:
        """Send a batch into the inputs and at the epochs that its rows name, and step once."""
        for epoch, position, rows in unpack(batch, self.tables):
            if epoch > self._handles[0].time:
                for handle in self._handles:
                    handle.advance_to(epoch)
            self._handles[position].send_batch(rows)
            if self._meter is not None:
                self._meter.count_in(position, rows.num_rows, epoch)
        rows_of_little = batch.num_rows * LITTLE // max(batch.nbytes, 1)
        self._room = self._worker.peers * max(BATCHES * batch.num_rows, rows_of_little)
        self._worker.step()
        self._vain = False
        self._steps = 0

    def advance(self, epoch: int) -> None:
        """Advance all inputs to ``epoch``."""
        for handle in self._handles:
            handle.advance_to(epoch)

    def crowded(self) -> bool:
        """Return whether too much is under way to send more, and waiting may change that."""
        if self._vain:
            return False
        under_way = self._worker.under_way()
        if self._steps == 0 or under_way < self._least:
            self._least, self._steps = under_way, 0
        return under_way > self._room and self._steps < PATIENT_STEPS

    def wait(self, patience: float) -> None:
        """Take one step, after at most ``patience`` seconds if there is nothing to do."""
        self._steps += 1
        self._vain = self._worker.rest(patience)

    def close(self) -> None:
        """Close all inputs."""
        for handle in self._handles:
            handle.close()
