"""``read_arrow``: tables of other libraries as streams, by Arrow's C interface."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, Literal

from timely.dataflow import (
    Capability,
    Distribute,
    InputPort,
    OperatorInfo,
    OutputPort,
    ScopeBuilder,
    Stream,
    check_scope,
)
from timely.errors import ConfigurationError, GraphError, SchemaError, brief
from timely.files.read_files import RowOrder
from timely.operators.generic import source, stateless
from timely.operators.probes import ProbeHandle
from timely.operators.state_registration import SourcePosition, register_union_state
from timely.operators.type_variables import T

if TYPE_CHECKING:
    import pyarrow as pa

    from timely.files.row_times import Time

ROWS: Final = 1 << 16
"""The most rows of a batch."""


def read_arrow(
    scope: ScopeBuilder[T],
    table: Any,
    *,
    time: Time | None = None,
    in_order: bool = False,
    probe: ProbeHandle[T] | None = None,
    times: int = 1,
    on: int | Literal["each"] = 0,
    name: str = "read_arrow",
) -> Stream[T, Any]:
    """Return the rows of a table of PyArrow, polars, pandas or DuckDB as Arrow batches: of anything with Arrow's C interface.

    Worker ``on`` alone reads its ``table``, and its batches go to all workers in turn, so that the rows come once in all. With
    ``on="each"`` each worker reads a table of its own. ``time``, ``in_order``, ``probe`` and ``times`` are as in
    ``read_parquet``. Columns of views become plain strings. A run that resumes from a checkpoint needs the same table.
    ``SchemaError`` for other objects.

    >>> import pyarrow as pa, timely
    >>> timely.example(lambda scope: scope.read_arrow(pa.table({"word": ["to", "be"], "day": [1, 0]}), time="day"))
    [(0, [('be', 0)]), (1, [('to', 1)])]
    """
    check_scope(scope, name)
    try:
        from timely.files.row_times import RowSender
    except ModuleNotFoundError as error:
        raise ConfigurationError(f'{name} needs PyArrow: pip install "timely-dataflow[arrow]"') from error
    order = RowOrder(time, in_order, probe, times)
    order.check(name, scope)
    if on != "each" and on not in range(scope.allocator.peers):
        raise GraphError(
            f"{name}(on={on!r}) in scope {scope.path!r}: give the number of one of the {scope.allocator.peers} workers, or 'each'"
        )
    if not hasattr(table, "__arrow_c_stream__") and not hasattr(table, "__arrow_c_array__"):
        raise SchemaError(
            f"{name} takes an object with Arrow's C interface (a table of PyArrow, polars, pandas 2.2 or DuckDB), not"
            f" {brief(table)}: use to_stream for records"
        )

    def constructor(capability: Capability[T], info: OperatorInfo) -> Callable[[OutputPort[T]], object]:
        sent = SourcePosition(info) if on == "each" else _Position(info, on)
        if sent.over or on not in ("each", info.worker):
            sent.over = True
            capability.drop()
        batches: Iterator[pa.RecordBatch] | None = None
        in_flight = order.in_flight(info.activator)
        sender = RowSender(capability, scope.subgraph.domain, time, in_order, name, in_flight)
        rows = 0

        def logic(output: OutputPort[T]) -> None:
            nonlocal batches, rows
            if not capability.held or order.full(in_flight):
                return
            if batches is None:
                batches = itertools.islice(_batches_of(table, name), sent.count, None)
            batch = next(batches, None)
            if batch is None:
                sent.over = True
                capability.drop()
                return
            if isinstance(time, str) and time not in batch.schema.names:
                raise SchemaError(f"{name}: time= names no column: {brief(time)} is not in {brief(batch.schema.names)}")
            sender.send(output, batch, row=rows)
            sent.count += 1
            rows += batch.num_rows
            info.activator.activate()

        return logic

    stream = source(scope, name, constructor)
    if on == "each" or scope.allocator.peers == 1:
        return stream
    turns = itertools.count()
    pact = Distribute(lambda time, batch, workers: [(next(turns) % workers, batch)])
    return stateless(stream, pact, f"{name} (in turn)", InputPort.forward, lambda batch: batch)


def _batches_of(table: Any, place: str) -> Iterator[pa.RecordBatch]:
    """Yield the batches of an object, none of them empty, with plain columns in place of views."""
    import pyarrow as pa

    from timely.dataflow import arrow_batches, without_views

    for batch in arrow_batches(table, place)[1]:
        for start in range(0, batch.num_rows, ROWS):
            part = batch.slice(start, ROWS)
            yield pa.RecordBatch.from_arrays([without_views(column) for column in part.columns], part.schema.names)


class _Position:
    """How many batches one worker has sent, and whether that was all: it goes on with that, on any number of workers."""

    def __init__(self, info: OperatorInfo, worker: int) -> None:
        self.count = 0
        self.over = False
        register_union_state(info, lambda: [(self.count, self.over)] if info.worker == worker else [], self._load)

    def _load(self, items: Iterable[tuple[int, bool]]) -> None:
        for self.count, self.over in items:
            pass
