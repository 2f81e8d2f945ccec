"""The times of rows: a batch is split by time, and each part is sent at its own.

Invariant: with ``in_order`` a capability is downgraded only to times at or before all that may follow; a row before that is an
error. Without it the capability stays at the minimum, so no row can be late.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeAlias

import numpy as np
import pyarrow as pa

from timely.dataflow import Capability, OutputPort
from timely.errors import SchemaError, TimestampError, brief
from timely.operators.flow_gates import InFlight
from timely.operators.type_variables import T
from timely.progress import TimeDomain

Time: TypeAlias = str | Callable[[pa.RecordBatch], Any]
"""The name of a column, or a function from a batch to the time of each of its rows."""


class RowSender(Generic[T]):
    """Sends batches at the times of their rows, with a capability for the minimum time.

    ``where`` is what reads, and ``time`` says when; ``None`` sends all at the capability's time. ``in_flight`` counts the rows.
    """

    def __init__(
        self,
        capability: Capability[T],
        domain: TimeDomain[T],
        time: Time | None,
        in_order: bool,
        where: str,
        in_flight: InFlight[T] | None = None,
    ) -> None:
        self._capability = capability
        self._check = domain.check
        self._time = time
        self._in_order = in_order
        self._where = where
        self._in_flight = in_flight

    def send(self, output: OutputPort[T], batch: pa.RecordBatch, file: str = "", row: int = 0) -> None:
        """Send a batch, whose first row is number ``row`` of ``file``.

        ``TimestampError`` for a time that is not the scope's, and with ``in_order`` for one before another; ``SchemaError`` for a
        row without a time.
        """
        if self._time is None:
            output.session(self._capability).give_batch(batch)
            return
        for start, time, part in self._parts(batch, file, row):
            try:
                self._check(time)
            except TimestampError as error:
                raise TimestampError(f"{self._place(file, row + start)}: {error}") from None
            if self._in_order:
                if not self._capability.time <= time:
                    raise TimestampError(
                        f"{self._place(file, row + start)} is at {brief(time)}, after one at {brief(self._capability.time)}: sort"
                        " the rows by time, or leave out in_order=True"
                    )
                self._capability.downgrade(time)
                if self._in_flight is not None:
                    self._in_flight.add(time, part.num_rows)
                output.session(self._capability).give_batch(part)
            else:
                with self._capability.delayed(time) as later:
                    output.session(later).give_batch(part)

    def _parts(self, batch: pa.RecordBatch, file: str, row: int) -> Iterator[tuple[int, T, pa.RecordBatch]]:
        """Yield the rows of each time, or of each run of equal times, with the number of the first one."""
        codes, times = self._coded(batch, file, row)
        order = None
        if not self._in_order and (codes[1:] < codes[:-1]).any():
            order = np.argsort(codes, kind="stable")
            codes, batch = codes[order], batch.take(pa.array(order))
        starts = [0, *(np.flatnonzero(codes[1:] != codes[:-1]) + 1).tolist()]
        for start, end in zip(starts, [*starts[1:], len(codes)], strict=True):
            first = start if order is None else int(order[start])
            yield first, times[codes[start]], batch.slice(start, end - start)

    def _coded(self, batch: pa.RecordBatch, file: str, row: int) -> tuple[Any, list[Any]]:
        """Return the times of the rows as numbers, and the time that each number stands for."""
        times = batch.column(self._time) if isinstance(self._time, str) else self._time(batch)  # type: ignore[misc]
        if isinstance(times, np.ndarray):
            times = pa.array(times)
        if not hasattr(times, "__len__") or isinstance(times, str | bytes) or len(times) != batch.num_rows:
            raise SchemaError(
                f"{self._where}: time= returns one time for each row of a batch, as an array or a list, and for {batch.num_rows}"
                f" rows it returned {brief(times)}"
            )
        if isinstance(times, pa.ChunkedArray):
            times = times.combine_chunks()
        if isinstance(times, pa.Array):
            if times.null_count:
                missing = int(np.flatnonzero(times.is_null().to_numpy(zero_copy_only=False))[0])
                raise SchemaError(f"{self._place(file, row + missing)} has no time: drop such rows first, or give them one")
            if pa.types.is_timestamp(times.type) and times.type.unit == "ns":  # which Python's datetime does not have
                try:
                    times = times.cast(pa.timestamp("us", times.type.tz))
                except pa.ArrowInvalid as error:
                    raise SchemaError(f"{self._where}: a time is finer than microseconds: {error}") from None
            coded = times if pa.types.is_dictionary(times.type) else times.dictionary_encode()
            return coded.indices.to_numpy(zero_copy_only=False), coded.dictionary.to_pylist()
        numbers: dict[Any, int] = {}
        codes = np.fromiter((numbers.setdefault(time, len(numbers)) for time in times), np.int64, len(times))
        return codes, list(numbers)

    def _place(self, file: str, row: int) -> str:
        return f"{self._where}: row {row + 1}" + (f" of {file!r}" if file else "")
