"""What a view is handed over as: its changes at each epoch, or all of it, as Arrow batches. Runs in the workers.

The invariant: a row is handed over by one worker, and at most once as deleted or inserted at an epoch, as often as it counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from timely.dataflow import Capability, InputPort, OperatorInfo, OutputPort, Pipeline, Stream, route
from timely.differential.collections import Collection
from timely.differential.updates.int_columns import order_and_starts
from timely.differential.updates.row_columns import ArrowValues, RowColumns
from timely.differential.updates.updates import Update, by_record, consolidate
from timely.errors import CollectionMismatch, SchemaError, brief
from timely.operators.generic import unary, unary_frontier
from timely.operators.pending import Pending
from timely.operators.state_registration import ChangeLog, register_keyed_state
from timely.order import reaches
from timely.spark.sinks import CHANGE_TYPE, COMMIT_VERSION

_ROWS = 65_536
"""Rows of a batch."""


def changed_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of the changes of a view: its own, ``_change_type``, and the epoch as ``_commit_version``."""
    return schema.append(pa.field(CHANGE_TYPE, pa.string(), False)).append(pa.field(COMMIT_VERSION, pa.int64(), False))


def changed_rows(collection: Collection[int, Any], schema: pa.Schema, name: str) -> Stream[int, pa.RecordBatch]:
    """Return the changes of a collection at each time as batches: each row as often as its count changes."""
    full = changed_schema(schema)

    def rows(time: int, updates: Iterable[Update]) -> Iterator[tuple[Any, ...]]:
        for row, diff in updates:
            line = (*row, "insert" if diff > 0 else "delete", time)
            yield from [line] * abs(diff)

    def rendered(time: int, updates: Any) -> Iterable[pa.RecordBatch]:
        tables = [updates] if isinstance(updates, RowColumns) else updates
        if isinstance(tables, list) and tables and isinstance(tables[0], RowColumns):
            try:
                return [_batch(table, time, full) for table in tables]
            except pa.ArrowException:  # of a type that is made of Python's values
                updates = chain.from_iterable(tables)
        return _batches(rows(time, updates), full, name)

    def constructor(capability: Capability[int], info: OperatorInfo) -> Callable[..., object]:
        info.declare_stateless()
        capability.drop()

        def logic(input: InputPort[int, Any], output: OutputPort[int]) -> None:
            for came_with, updates in input:
                for batch in rendered(came_with.time, updates):
                    for start in range(0, batch.num_rows, _ROWS):
                        output.session(came_with).give_batch(batch.slice(start, _ROWS))

        return logic

    summed = collection.stream if collection.consolidated else collection._at_complete_times(_summed, f"changes: {name}", None)
    return unary(summed, Pipeline, f"rows: {name}", constructor)


def _summed(batches: Sequence[Any]) -> list[Any]:
    """Return the updates of a time with each row once: as tables where all are columns that are alike, else as rows."""
    values = [ArrowValues(batch.columns, len(batch)) for batch in batches if isinstance(batch, RowColumns)]
    if len(values) < len(batches) or len({each.kind for each in values}) != 1:
        return consolidate(chain.from_iterable(batches))
    table = values[0].concatenated(values[1:])
    diffs = np.concatenate([np.full(len(batch), batch.diff) for batch in batches])
    places = np.arange(len(table))
    if (diffs < 0).any():  # others have nothing to cancel
        order, starts = order_and_starts(table.numbers())
        places, diffs = order[starts], np.add.reduceat(diffs[order], starts)
    parts = [(places[diffs == diff], diff) for diff in np.unique(diffs[diffs != 0]).tolist()]
    return [RowColumns(table[rows].columns, len(rows), diff) for rows, diff in parts]


def _batch(table: RowColumns, time: int, schema: pa.Schema) -> pa.RecordBatch:
    """Return changes as a batch."""
    rows = table.chosen(np.arange(len(table)).repeat(abs(table.diff)))
    added = pa.repeat("insert" if table.diff > 0 else "delete", len(rows)), pa.repeat(time, len(rows))
    columns = [column.cast(field.type) for column, field in zip((*rows.arrays(), *added), schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def all_rows(collection: Collection[int, Any], schema: pa.Schema, name: str) -> Stream[int, pa.RecordBatch]:
    """Return all that a collection holds, at each time, as batches: each row as often as its count."""

    def constructor(capability: Capability[int], info: OperatorInfo) -> Callable[..., object]:
        counts: dict[Any, int] = {}
        waiting: Pending[int, list[Update]] = Pending()

        def load(items: Iterable[tuple[Any, int]]) -> None:
            for row, count in items:
                if count:
                    counts[row] = count
                else:
                    counts.pop(row, None)

        def save_waiting() -> Iterator[tuple[int, Update]]:
            for time in waiting:
                for update in consolidate(waiting[time]):
                    yield time, update

        def load_waiting(items: Iterable[tuple[int, Update]]) -> None:
            for time, update in items:
                waiting.at(time, list).append(update)

        log: ChangeLog[tuple[Any, int]] = ChangeLog(info, counts.items, load, lambda item: route(item[0]))
        register_keyed_state(info, save_waiting, load_waiting, lambda item: route(item[1][0]))
        if info.begins is not None:
            capability.downgrade(info.begins)

        def whole(time: int) -> Iterator[Any]:
            for row, count in counts.items():
                if count < 0:
                    raise CollectionMismatch(f"view {name!r} holds {brief(row)} {count} times at epoch {time}", time, row, count)
                yield from [row] * count

        def logic(input: InputPort[int, Any], output: OutputPort[int]) -> None:
            for came_with, batch in input:
                waiting.at(came_with.time, list).extend(batch)
            frontier = input.elements
            while capability.held and not reaches(frontier, capability.time):
                if not frontier and not waiting:
                    capability.drop()
                    break
                time = capability.time
                if time in waiting:
                    for row, diff in consolidate(waiting.pop(time)):
                        item = (row, counts.get(row, 0) + diff)
                        load([item])
                        if log.enabled:
                            log.replace(row, item)
                for made in _batches(whole(time), schema, name):
                    output.session(capability).give_batch(made)
                capability.downgrade(time + 1)

        return logic

    return unary_frontier(collection.stream, by_record(None), f"rows: {name}", constructor)


def _batches(rows: Iterable[Sequence[Any]], schema: pa.Schema, name: str) -> Iterator[pa.RecordBatch]:
    all_rows = list(rows)
    for start in range(0, len(all_rows), _ROWS):
        columns = zip(*all_rows[start : start + _ROWS])
        arrays = [_array(column, field, name) for column, field in zip(columns, schema)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(values: Sequence[Any], field: pa.Field, name: str) -> pa.Array:
    try:
        return pa.array(values, field.type)
    except (pa.ArrowException, OverflowError, TypeError) as error:
        raise SchemaError(
            f"view {name!r}: a value of column {field.name!r} does not fit {field.type}: {error}. CAST it in the view"
        ) from None
