"""From Arrow batches of a feed to changes of its table: pairs ``(key, change)`` for ``feed_state`` to apply. Runs in the workers.

A change is a difference, and its key the row; where the table has keys, it is ``(row, difference)``. For upserts it is
``(order, row)``, with ``None`` for a row that is deleted.
The invariant: a row that says nothing known is a ``FeedError``, which names the input, the row and what to do; none is skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Protocol

import attrs
import pyarrow as pa

from timely.differential.tables.values.kinds import columns_of, row_check
from timely.errors import FeedError, SchemaError, brief
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
