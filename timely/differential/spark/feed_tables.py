"""Arrow batches of a feed become changes of its table, and these updates once their epoch is complete. Runs in the workers.

A change is a pair ``(key, change)``: a difference, whose key is the row; where the table has keys, ``(row, difference)``; of
upserts ``(order, row)``, with ``None`` for a row that is deleted. The state is the count of each row, or the last row of each
key. The invariant: an epoch is complete only if all its changes could be applied, so that no view is handed over with a part of
them. A row that says nothing known is a ``FeedError``, which names the input, the row and what to do; none is skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Protocol

import attrs
import pyarrow as pa

from timely.dataflow import Capability, InputPort, OperatorInfo, OutputPort, Stream, route
from timely.differential.collections import Collection
from timely.differential.tables import Table
from timely.differential.tables.arrow_rows import plain_schema, table_reader
from timely.differential.tables.expressions.column_stages import checked
from timely.differential.tables.values.kinds import columns_of, row_check
from timely.differential.updates.row_columns import rows_of_batch
from timely.differential.updates.updates import Update, by_record
from timely.errors import FeedError, SchemaError, brief
from timely.operators.generic import unary_frontier
from timely.operators.pending import Pending
from timely.operators.state_registration import ChangeLog, register_keyed_state
from timely.order import reaches
from timely.spark.sinks import CHANGE_TYPE

Row = tuple[Any, ...]
Item = tuple[Any, Any]
"""``(key, change)``."""

DIFFERENCES: Final = {"insert": 1, "update_postimage": 1, "delete": -1, "update_preimage": -1}
"""What the change types of Delta's change feed do to the count of a row."""


@attrs.frozen
class FeedTable:
    """The table that a feed changes: its name, its columns, and the line of the program that gave it."""

    name: str
    schema: pa.Schema
    place: str

    def reader(self) -> Callable[[Row], Row]:
        """Return what checks a row, and returns it with the types of a table."""
        check = row_check(columns_of(self.schema), self.schema)

        def read(row: Row) -> Row:
            try:
                return check(row)
            except SchemaError as error:
                raise self.refusal(row, str(error), "filter such rows out, or cast the column") from None

        return read

    def values(self, use: str, names: Sequence[str]) -> Callable[[Row], Row]:
        """Return the function from a row to its values in some columns, of which none may be null: a ``key``, or an ``order``."""
        positions = [self.schema.names.index(name) for name in names]

        def values(row: Row) -> Row:
            cells = tuple(row[position] for position in positions)
            if None in cells:
                name = names[cells.index(None)]
                raise self.refusal(row, f"its {use} {name!r} is null", f"filter such rows out: .where('{name} is not null')")
            return cells

        return values

    def refusal(self, row: object, what: str, remedy: str) -> FeedError:
        """Return the error for a row."""
        shown = dict(zip(self.schema.names, row)) if isinstance(row, tuple) and len(row) == len(self.schema) else row
        place = f" given at {self.place}" if self.place else ""
        return FeedError(
            f"input {self.name!r}{place}, row {brief(shown)}: {what}. The epoch is not applied, and the next start reads its rows"
            f" again: {remedy}"
        )


class FeedDecoder(Protocol):
    """How the rows of a feed are read."""

    def decode(self, table: FeedTable) -> Callable[[pa.RecordBatch], list[Item]]:
        """Return the function from a batch of the feed to changes of the table."""


@attrs.frozen
class Appended:
    """Every row is one more row of the table."""


@attrs.frozen
class ChangeTypes:
    """Rows of the table with a ``_change_type``, as in Delta's change feed.

    >>> table = FeedTable("orders", pa.schema([("id", pa.int64())]), "")
    >>> batch = pa.record_batch({"id": [1, 2], "_change_type": ["insert", "delete"]})
    >>> ChangeTypes(()).decode(table)(batch)
    [((1,), 1), ((2,), -1)]
    """

    keys: tuple[str, ...]

    def decode(self, table: FeedTable) -> Callable[[pa.RecordBatch], list[Item]]:
        """Return the function from a batch to changes."""
        read, names = table.reader(), table.schema.names

        def decode(batch: pa.RecordBatch) -> Iterator[Item]:
            for row, kind in zip(_rows(batch, names), batch.column(CHANGE_TYPE).to_pylist()):
                if kind not in DIFFERENCES:
                    what = f"its {CHANGE_TYPE} is {brief(kind)}, and none of {', '.join(DIFFERENCES)}"
                    raise table.refusal(row, what, "correct it at the source, or filter the row out of the DataFrame")
                yield read(row), DIFFERENCES[kind]

        return _with_keys(table, self.keys, decode)


@attrs.frozen
class Debezium:
    """Rows ``op, before, after``, as Debezium has them: created, updated, deleted, read.

    >>> table = FeedTable("orders", pa.schema([("id", pa.int64())]), "")
    >>> batch = pa.record_batch({"op": ["c", "u"], "before": [None, {"id": 1}], "after": [{"id": 1}, {"id": 2}]})
    >>> Debezium(("id",)).decode(table)(batch)
    [((1,), ((1,), 1)), ((1,), ((1,), -1)), ((2,), ((2,), 1))]
    """

    keys: tuple[str, ...]

    def decode(self, table: FeedTable) -> Callable[[pa.RecordBatch], list[Item]]:
        """Return the function from a batch to changes."""
        read = table.reader()
        sides = {"c": ("after",), "r": ("after",), "d": ("before",), "u": ("before", "after")}

        def decode(batch: pa.RecordBatch) -> Iterator[Item]:
            before, after = (_structs(batch.column(side), table.schema.names) for side in ("before", "after"))
            for op, old, new in zip(batch.column("op").to_pylist(), before, after):
                rows = {"before": old, "after": new}
                if op not in sides:
                    remedy = "filter it out: tombstones are messages without a value, and truncations are not supported"
                    raise table.refusal({"op": op, **rows}, f"its op is {brief(op)}, and none of {', '.join(sides)}", remedy)
                for side in sides[op]:
                    row = rows[side]
                    if row is None:
                        remedy = (
                            "have the database log whole rows (REPLICA IDENTITY FULL), or use upserts(df, keys=[...]) of the rows"
                            if side == "before"
                            else "correct it at the source, or filter the row out of the DataFrame"
                        )
                        raise table.refusal({"op": op, **rows}, f"op {op!r} needs {side!r}, and it is null", remedy)
                    yield read(row), 1 if side == "after" else -1

        return _with_keys(table, self.keys, decode)


@attrs.frozen
class Upserted:
    """Rows of the table, each in place of the one with equal keys; where ``deleted`` is true, none is."""

    keys: tuple[str, ...]
    deleted: str | None
    order_by: tuple[str, ...]
    snapshot: bool = False
    """Whether these are the rows of a snapshot, which without ``order_by`` come before all others."""

    def decode(self, table: FeedTable) -> Callable[[pa.RecordBatch], list[Item]]:
        """Return the function from a batch to changes."""
        read, names = table.reader(), table.schema.names
        key, order = table.values("key", self.keys), table.values("order", self.order_by)

        def decode(batch: pa.RecordBatch) -> Iterator[Item]:
            flags: Iterable[Any] = [False] * batch.num_rows if self.deleted is None else batch.column(self.deleted).to_pylist()
            for row_values, gone in zip(_rows(batch, names), flags):
                row = read(row_values)
                if gone is None:
                    raise table.refusal(row, f"its {self.deleted!r} is null", "say true or false: coalesce it in the DataFrame")
                yield key(row), (order(row) or (not self.snapshot,), None if gone else row)

        return lambda batch: list(decode(batch))


def _with_keys(
    table: FeedTable, keys: tuple[str, ...], decode: Callable[[pa.RecordBatch], Iterator[Item]]
) -> Callable[[pa.RecordBatch], list[Item]]:
    if not keys:
        return lambda batch: list(decode(batch))
    key = table.values("key", keys)
    return lambda batch: [(key(row), (row, diff)) for row, diff in decode(batch)]


def _rows(batch: pa.RecordBatch, names: list[str]) -> Iterator[Row]:
    return zip(*(batch.column(name).to_pylist() for name in names))


def _structs(column: pa.StructArray, names: list[str]) -> Iterator[Row | None]:
    """Return the structs of a column as rows, or ``None``."""
    if pa.types.is_null(column.type):
        return iter([None] * len(column))
    fields = dict(zip((field.name for field in column.type), column.flatten()))
    rows = zip(*(fields[name].to_pylist() for name in names))
    return (row if there else None for row, there in zip(rows, column.is_valid().to_pylist()))


Fold = Callable[[int, Any, Any, list[Any]], tuple[Any, list[Update]]]
"""``fold(time, key, state, changes)``: the new state of the key (``None`` for none), and updates of the table."""

_Waiting = tuple[Capability[int], dict[Any, list[Any]]]


def fold_by_key(stream: Stream[int, list[Item]], fold: Fold, name: str) -> Stream[int, list[Update]]:
    """Return the updates that ``fold`` makes of the changes of each key, at complete times, in order."""

    def constructor(capability: Capability[int], info: OperatorInfo) -> Callable[..., object]:
        states: dict[Any, Any] = {}
        waiting: Pending[int, _Waiting] = Pending()

        def load(items: Iterable[tuple[Any, Any]]) -> None:
            for key, state in items:
                if state is None:
                    states.pop(key, None)
                else:
                    states[key] = state

        def save_waiting() -> Iterator[tuple[int, Any, list[Any]]]:
            for time in waiting:
                for key, changes in waiting[time][1].items():
                    yield time, key, changes

        def load_waiting(items: Iterable[tuple[int, Any, list[Any]]]) -> None:
            for time, key, changes in items:
                waiting.at(time, lambda: (capability.delayed(time), {}))[1][key] = changes  # noqa: B023  # called at once

        log: ChangeLog[tuple[Any, Any]] = ChangeLog(info, states.items, load, lambda item: route(item[0]))
        register_keyed_state(info, save_waiting, load_waiting, lambda item: route(item[1]))
        capability.drop()

        def logic(input: InputPort[int, Any], output: OutputPort[int]) -> None:
            for came_with, batch in input:
                changes = waiting.at(came_with.time, lambda: (came_with.retain(), {}))[1]  # noqa: B023  # called at once
                for key, change in batch:
                    changes.setdefault(key, []).append(change)
            frontier = input.elements
            for time, (held, changes) in waiting.take(lambda time: not reaches(frontier, time)):
                updates: list[Update] = []
                for key, items in changes.items():
                    state, made = fold(time, key, states.get(key), items)
                    load([(key, state)])
                    if log.enabled:
                        log.replace(key, (key, state))
                    updates += made
                output.session(held).give_batch(updates)
                held.drop()

        return logic

    return unary_frontier(stream, by_record(None), name, constructor)


def count_rows(table: FeedTable) -> Fold:
    """Return the fold of differences: the count of a row, which never falls below zero.

    >>> import pyarrow as pa
    >>> fold = count_rows(FeedTable("orders", pa.schema([("id", pa.int64())]), ""))
    >>> fold(0, (7,), None, [1, 1]), fold(1, (7,), 2, [-1, 1])
    ((2, [((7,), 2)]), (2, []))
    >>> fold(2, (7,), 2, [-3])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    timely.errors.FeedError: input 'orders', row {'id': 7}: it is deleted at epoch 2, 3 times more than ...
    """

    def fold(time: int, row: Row, count: int | None, changes: list[int]) -> tuple[int | None, list[Update]]:
        before, diff = count or 0, sum(changes)
        if before + diff < 0:
            raise _missing(table, time, row, before, diff)
        return (before + diff) or None, [(row, diff)] if diff else []

    return fold


def unique_rows(table: FeedTable, keys: Sequence[str]) -> Fold:
    """Return the fold of differences where no two rows have the same keys.

    >>> import pyarrow as pa
    >>> fold = unique_rows(FeedTable("orders", pa.schema([("id", pa.int64()), ("n", pa.int64())]), ""), ["id"])
    >>> fold(0, (7,), None, [((7, 1), 1)]), fold(1, (7,), (7, 1), [((7, 2), 1), ((7, 1), -1)])
    (((7, 1), [((7, 1), 1)]), ((7, 2), [((7, 1), -1), ((7, 2), 1)]))
    >>> fold(2, (7,), (7, 2), [((7, 3), 1)])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    timely.errors.FeedError: input 'orders', row {'id': 7, 'n': 3}: it is inserted at epoch 2, and (7, 2) with the same ...
    """

    def fold(time: int, key: Row, before: Row | None, changes: list[tuple[Row, int]]) -> tuple[Row | None, list[Update]]:
        counts: dict[Row, int] = {} if before is None else {before: 1}
        for row, diff in changes:
            counts[row] = counts.get(row, 0) + diff
        left = [row for row, count in counts.items() if count]
        for row in left:
            if counts[row] < 0:
                there = int(row == before)
                raise _missing(table, time, row, there, counts[row] - there)
        if sum(counts.values()) > 1:
            raise table.refusal(
                left[-1],
                f"it is inserted at epoch {time}, and {left[0]!r} with the same {', '.join(keys)} is there",
                "have the feed say each change once, or use upserts(df, keys=[...])",
            )
        after = left[0] if left else None
        return after, _replaced(before, after)

    return fold


def _missing(table: FeedTable, time: int, row: Row, before: int, diff: int) -> FeedError:
    return table.refusal(
        row,
        f"it is deleted at epoch {time}, {-diff} times more than inserted, and is there {before} times",
        "give the rows that were there before the feed as snapshot=, correct the feed, or filter the row out",
    )


def _replaced(before: Row | None, after: Row | None) -> list[Update]:
    return [] if before == after else [(row, diff) for row, diff in ((before, -1), (after, 1)) if row is not None]


def replace_rows(table: FeedTable, upserted: Upserted) -> Fold:
    """Return the fold of upserts: the row that is last by ``order_by``, or by epoch where there is none.

    >>> import pyarrow as pa
    >>> table = FeedTable("orders", pa.schema([("id", pa.int64()), ("n", pa.int64())]), "")
    >>> fold = replace_rows(table, Upserted(("id",), None, ("n",)))
    >>> fold(0, (7,), None, [((2,), (7, 2)), ((1,), (7, 1))])
    (((2,), (7, 2)), [((7, 2), 1)])
    >>> fold(1, (7,), ((2,), (7, 2)), [((3,), None)])
    (((3,), None), [((7, 2), -1)])
    """
    ordered = bool(upserted.order_by)

    def fold(
        time: int, key: Row, state: tuple[Row, Row | None] | None, changes: list[tuple[Row, Row | None]]
    ) -> tuple[tuple[Row, Row | None] | None, list[Update]]:
        before = None if state is None else state[1]
        if ordered and state is not None:
            changes = [*changes, state]
        order = max(order for order, _ in changes)
        last = dict.fromkeys(row for at, row in changes if at == order)
        if len(last) > 1:
            remedy = (
                "add a column to order_by= that says which is the later one"
                if ordered
                else "give order_by=, the column that says which is the later one, or one row of a key in a micro-batch"
            )
            rows = " and ".join("a delete" if row is None else repr(row) for row in last)
            named = dict(zip(upserted.keys, key))
            raise table.refusal(named, f"several rows of one key at epoch {time}, and none is the last one: {rows}", remedy)
        (row,) = last
        return (order, row) if row is not None or ordered else None, _replaced(before, row)

    return fold


@attrs.frozen
class TableBuilder:
    """Makes the table of a feed in a worker, from the streams of its DataFrames."""

    table: FeedTable
    decoder: FeedDecoder | Appended

    def build(self, changes: Stream[int, Any], snapshot: Stream[int, Any] | None = None) -> Table[int]:
        """Return the table."""
        name = self.table.name
        if isinstance(self.decoder, Appended):
            return self._appended(changes if snapshot is None else changes.concat(snapshot))
        stream = changes.map_batch(self.decoder.decode(self.table))
        if snapshot is not None:
            before = attrs.evolve(self.decoder, snapshot=True) if isinstance(self.decoder, Upserted) else self.decoder
            stream = stream.concat(snapshot.map_batch(before.decode(self.table)))
        if isinstance(self.decoder, Upserted):
            stream = fold_by_key(stream, replace_rows(self.table, self.decoder), f"upserts: {name}")
        elif isinstance(self.decoder, ChangeTypes | Debezium):
            keys = self.decoder.keys
            stream = fold_by_key(stream, unique_rows(self.table, keys) if keys else count_rows(self.table), f"changes: {name}")
        return Table(Collection(stream), columns_of(self.table.schema))

    def _appended(self, batches: Stream[int, Any]) -> Table[int]:
        """Return the table of rows that are only added, whose columns stay columns where its types have kernels."""
        schema, read = plain_schema(self.table.schema), table_reader(self.table.schema, self.table.name)
        rows = batches.map_batch(lambda batch: rows_of_batch(read(batch.select(schema.names))))
        columns = columns_of(self.table.schema)
        return Table(checked(Collection(rows), self.table.reader(), columns, schema, self.table.name), columns)
