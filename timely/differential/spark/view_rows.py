"""What a view is handed over as: its changes at each epoch, or all of it, as Arrow batches. Runs in the workers.

The invariant: a row is handed over by one worker, and at most once as deleted or inserted at an epoch, as often as it counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from timely.dataflow import Capability, InputPort, OperatorInfo, OutputPort, Pipeline, Stream, route
from timely.differential.collections import Collection
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

    def constructor(capability: Capability[int], info: OperatorInfo) -> Callable[..., object]:
        info.declare_stateless()
        capability.drop()

        def logic(input: InputPort[int, Any], output: OutputPort[int]) -> None:
            for came_with, updates in input:
                for batch in _batches(rows(came_with.time, updates), full, name):
                    output.session(came_with).give_batch(batch)

        return logic

    return unary(collection.consolidate(name=f"changes: {name}").stream, Pipeline, f"rows: {name}", constructor)


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
