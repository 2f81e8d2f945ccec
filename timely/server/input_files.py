"""Files that are read whole: their columns, and their rows with counts. A file with other columns than its table is refused."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import attrs
import pyarrow as pa

from timely.dataflow import OutputSchema
from timely.differential.tables.arrow_rows import arrow_rows, arrow_table, data_schema
from timely.differential.tables.values.kinds import columns_of, lower_case, plain_type, row_check
from timely.errors import SchemaError
from timely.files.formats import format_of
from timely.files.scanning import Fragment, Options, plan
from timely.server.contents import Row

COUNT: Final = "count"
CHANGE_TYPE: Final = "_change_type"

_SIGNS: Final = {"insert": 1, "update_postimage": 1, "delete": -1, "update_preimage": -1}
"""What a row of each change type adds to its count."""


def read_table(path: Path, place: str, schema: pa.Schema | None = None, *, declared: bool = False) -> pa.Table:
    """Return a file as a table with the types that tables have, and names in lower case.

    Text formats are read with the types of ``schema``, which the script has ``declared``, or an earlier file has shown. What
    cannot be read is a ``SchemaError`` or ``ConfigurationError``.
    """
    kind = format_of(path, place)
    declare = f'in the script, create table {place.removeprefix("input ")} (..., "{{name}}" {{kind}}, ...)'
    scan, [fragment] = plan(path, kind, Options(declare=declare), 1, place)
    if schema is not None and kind.name in ("csv", "json"):
        types = {field.name: _readable(field.type) if kind.name == "json" else field.type for field in schema}
        fields = [field.with_type(types.get(lower_case(field.name), field.type)) for field in scan.schema]
        if kind.name == "json":  # which leaves out what is null
            names = {lower_case(field.name) for field in fields}
            fields += [pa.field(name, table) for name, table in types.items() if name not in names]
        numeric = frozenset(field.name for field in fields if pa.types.is_integer(field.type) or pa.types.is_floating(field.type))
        scan = attrs.evolve(scan, schema=pa.schema(fields), numeric=frozenset() if declared else numeric)
    whole = Fragment(0, fragment.path, os.path.getsize(path))
    loose = pa.schema([field.with_nullable(True) for field in scan.schema])  # as batches come
    table = pa.Table.from_batches(scan.batches(whole), loose)
    return arrow_table(pa.Table.from_arrays(table.columns, schema=lower_names(scan.schema)), f"{place}: {str(path)!r}")


def _readable(kind: pa.DataType) -> pa.DataType:
    """Return the type as which Arrow reads one from JSON: it takes no texts for dates."""
    return pa.timestamp("us") if pa.types.is_date(kind) else kind


def rows_of_file(path: Path, place: str, schema: pa.Schema, declared: bool) -> Counter[Row]:
    """Return the rows of a file with the columns of ``schema``, each with how often it is there."""
    return Counter(table_rows(_conformed(read_table(path, place, schema, declared=declared), path, schema)))


def table_rows(table: pa.Table) -> Iterable[Row]:
    """Return the rows of a table; lists and structs become tuples."""
    rows = arrow_rows(table)
    return (
        map(row_check(columns_of(table.schema), table.schema), rows) if any(map(pa.types.is_nested, table.schema.types)) else rows
    )


def changes_of_file(path: Path, place: str, schema: pa.Schema, declared: bool) -> Counter[Row]:
    """Return the rows of a file of changes, each with what it adds to its count; ``SchemaError`` for an unknown change."""
    table = read_table(path, place, schema, declared=declared)
    change_schema(table.schema)
    name = CHANGE_TYPE if CHANGE_TYPE in table.column_names else COUNT
    values = table.column(name).to_pylist()
    counts = [_SIGNS.get(each) for each in values] if name == CHANGE_TYPE else values
    for position, count in enumerate(counts):
        if type(count) is not int:
            known = f"one of {', '.join(_SIGNS)}" if name == CHANGE_TYPE else "a whole number"
            raise SchemaError(f"row {position + 1}: {name} is {values[position]!r}, and should be {known}")
    counted: Counter[Row] = Counter()
    for row, count in zip(table_rows(_conformed(table.drop_columns([name]), path, schema)), counts, strict=True):
        counted[row] += count
    return Counter({row: count for row, count in counted.items() if count})


def _conformed(table: pa.Table, path: Path, schema: pa.Schema) -> pa.Table:
    """Return a table with the columns of ``schema``; ``SchemaError`` for others, and where a value would change."""
    for place, field in enumerate(table.schema):
        wanted = schema.field(field.name).type if schema.names.count(field.name) == 1 else field.type
        if pa.types.is_timestamp(field.type) and pa.types.is_date(wanted):
            try:
                table = table.set_column(place, field.name, table.column(place).cast(wanted))
            except pa.ArrowException as error:
                raise SchemaError(f"{str(path)!r}: column {field.name!r}: {error}") from None
    conform = OutputSchema(str(path), schema, "file").conform
    return pa.Table.from_batches([conform(batch) for batch in table.to_batches()], schema)


def lower_names(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_name(lower_case(field.name)) for field in schema])


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema with the types of tables, and names in lower case; columns without a value are texts.

    >>> plain_schema(pa.schema([("Name", pa.dictionary(pa.int8(), pa.string())), ("at", pa.timestamp("ns"))]))
    name: string
    at: timestamp[us]
    """
    return lower_names(pa.schema([pa.field(each.name, plain_type(each.type), each.nullable) for each in data_schema(schema)]))


def change_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of a table without the column that a file of changes has beside it; ``SchemaError`` without one."""
    names = [name for name in (CHANGE_TYPE, COUNT) if name in schema.names]
    if not names:
        raise SchemaError(f"a file of changes has a column {COUNT} or {CHANGE_TYPE}")
    return schema.remove(schema.get_field_index(names[0]))
