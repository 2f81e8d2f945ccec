"""``table``: the tables that are not computed from others, of inputs, collections, Arrow data and streams."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from timely.dataflow import Stream, declared_schema
from timely.differential.collections import Collection
from timely.differential.inputs import InputSession
from timely.differential.tables.arrow_rows import (
    RowFields,
    arrow_table,
    counted_reader,
    data_schema,
    is_arrow,
    plain_schema,
    stream_reader,
)
from timely.differential.tables.expressions.column_stages import checked
from timely.differential.tables.table_class import Table
from timely.differential.tables.values.kinds import columns_of, row_check
from timely.differential.updates.linear import linear
from timely.differential.updates.rings import INTEGERS
from timely.errors import GraphError, SchemaError, brief
from timely.operators.program_inputs import new_input, to_stream


def table(
    source: Any, data: Any = None, *, schema: pa.Schema | str | None = None, count: str | None = None, name: str = "table"
) -> Table[Any]:
    """Return a table: of an input, of a collection, of Arrow data, or of a stream of Arrow batches.

    - ``table(scope, schema)``: one that its ``session`` changes. A schema is a ``pyarrow.Schema``, or ``"id long, name string"``.
    - ``table(collection, schema)``: the records of a collection, which are tuples.
    - ``table(scope, data)``: the rows of ``data`` at the minimum time, once, whichever number of workers is given it. ``data``
      exports Arrow: a PyArrow table or batch, a DataFrame of polars or pandas, a relation of DuckDB.
    - ``table(stream, schema)``: the rows of a stream of Arrow batches, or of tuples, each at its time; ``scope.read_parquet`` and
      the like make such streams.

    ``count`` names a column of Arrow data, which the table does not have, that says how often each row is added, or taken away:
    ``to_batches`` and ``to_pandas(counts=True)`` make one. An index of pandas without a name is left out, and one with a name
    is a column.

    Rows are checked against the schema when they come: ``SchemaError`` for others.

    >>> import pyarrow as pa
    >>> import timely
    >>> from timely import differential as dd
    >>> with timely.Worker() as worker:
    ...     with worker.dataflow(int) as scope:
    ...         people = dd.table(scope, pa.table({"id": [1, 2], "name": ["ada", "bob"]}))
    ...         names = people.select("upper(name) as name").output()
    ...     names.at(0)
    {('ADA',): 1, ('BOB',): 1}
    """
    if isinstance(data, pa.Schema | str):
        if schema is not None:
            raise GraphError("table: the schema is given twice")
        data, schema = None, data
    if schema is not None:
        schema = declared_schema(schema, name)
    if data is not None:
        if not is_arrow(data):
            raise GraphError(f"table: {brief(data)} is no schema, and no Arrow data")
        data = arrow_table(data, name)
        batches = to_stream(source, data.combine_chunks().to_batches(), on=0)
        return table(batches, data_schema(data.schema) if schema is None else schema, count=count, name=name)
    if schema is None:
        raise GraphError("table: give the schema of its rows, such as 'id long, name string', or Arrow data, which has one")
    as_written = schema
    if count is not None:
        schema = _without_counts(schema, count, source, name)
    columns = columns_of(schema)
    session: InputSession[Any, Any] | None = None
    if isinstance(source, Collection):
        rows = source
    elif isinstance(source, Stream):
        read = stream_reader(schema, name) if count is None else counted_reader(as_written, count, name)
        rows = Collection(linear(source, name, read))
    else:
        input, stream = new_input(source, name)
        session, rows = InputSession(input, INTEGERS, RowFields(schema, name)), Collection(stream)
    check = row_check(columns, schema)
    rows = checked(rows, check, columns, plain_schema(schema), name, by_session=session is not None)
    return Table(rows, columns, session)


def _without_counts(schema: pa.Schema, count: str, source: Any, name: str) -> pa.Schema:
    if not isinstance(source, Stream):
        raise GraphError(f"{name}: count= names a column of Arrow data: give data or a stream; session.update takes counts too")
    place = schema.get_field_index(count)
    if place < 0 or not pa.types.is_integer(schema.field(place).type):
        raise SchemaError(f"{name}: count={count!r} names no column of whole numbers; there are {', '.join(schema.names)}")
    return schema.remove(place)
