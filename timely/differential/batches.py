"""Arrow batches as collections, and the changes of collections as Arrow batches."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from typing_extensions import TypeVar

from timely.dataflow import Stream, scope_of
from timely.differential.collections import Collection
from timely.differential.updates.linear import linear
from timely.differential.updates.updates import Container, consolidate
from timely.errors import DifferenceError, SchemaError
from timely.order import PartialOrder

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T", bound=PartialOrder, default=int)


def from_batches(
    stream: Stream[T, Any], schema: pa.Schema | str, *, count: str | None = None, name: str = "from_batches"
) -> Collection[T, Any]:
    """Return the collection of the rows of Arrow batches: tuples of the fields of ``schema``, each added once at its time.

    ``schema`` is a ``pyarrow.Schema`` or a text such as ``"node long, name string"``. With ``count``, the name of one more
    column, a row is added so many times, and taken away where that is negative: ``to_batches`` makes such batches. Containers of
    rows are taken too. ``SchemaError`` for other columns, or values that are not of their types.

    >>> import pyarrow as pa
    >>> import timely
    >>> from timely import differential as dd
    >>> with timely.Worker() as worker:
    ...     with worker.dataflow(int) as scope:
    ...         batches = scope.read_arrow(pa.table({"name": ["ada", "bob", "bob"], "day": [0, 0, 1]}), time="day")
    ...         names = dd.from_batches(batches, "name string, day long").map(lambda row: row[0]).output()
    ...     names.at(0), names.at(1)
    ({'ada': 1, 'bob': 1}, {'ada': 1, 'bob': 2})
    """
    scope_of(stream, name)
    import pyarrow as pa

    from timely.dataflow import OutputSchema, declared_schema
    from timely.differential.updates.arrow_tables import Fields

    fields = Fields(declared_schema(schema, name))
    if count is not None and count in fields.schema.names:
        raise SchemaError(f"{name}: the column of counts, {count!r}, is no field of the rows: leave it out of the schema")
    counted = fields.schema if count is None else fields.schema.append(pa.field(count, pa.int64(), nullable=False))
    input_schema = OutputSchema(name, counted, "input")

    def updates(container: Any) -> Any:
        batch = input_schema.conform(container)
        diff: Any = 1
        if count is not None:
            diff = batch.column(len(fields.schema)).to_numpy()
            batch = batch.select(fields.schema.names)
        return fields.updates(batch, diff, name)

    return Collection(linear(stream, name, updates), schema=fields.schema)


def to_batches(collection: Collection[T, Any], schema: pa.Schema | str | None = None, name: str = "to_batches") -> Stream[T, Any]:
    """Return the changes of each complete time as Arrow batches, with their counts in a last column, ``count``."""
    from timely.dataflow import declared_schema
    from timely.differential.updates.arrow_tables import check_no_count, table_of, table_of_changes

    known = collection.schema if schema is None else declared_schema(schema, name)
    if known is None:
        raise SchemaError(
            f"{name}: the columns of the records are not known: declare them, as in schema='key string, value long'"
        )
    if collection.ring.native not in (int, float):
        raise DifferenceError(f"{name}: counts are a column of numbers, and those of {collection!r} are not numbers")
    check_no_count(known.names, name)

    def batch_of(containers: list[Container]) -> Any:
        table = table_of_changes(containers, known, name) if collection.ring.native is int else None
        if table is None:
            table = table_of(consolidate(chain.from_iterable(containers)), known, name)
        batches = table.combine_chunks().to_batches()
        return batches[0] if batches else []

    return collection._at_complete_times(batch_of, name, None)
