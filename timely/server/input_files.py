"""Files that are read whole: their columns, and their rows with counts.

Types become those of tables where nothing is lost. A file whose columns differ from those of its table is refused.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

from timely.errors import ConfigurationError, SchemaError, file_error_text
from timely.server.contents import Row

COUNT: Final = "count"
CHANGE_TYPE: Final = "_change_type"

_SIGNS: Final = {"insert": 1, "update_postimage": 1, "delete": -1, "update_preimage": -1}
"""What a row of each change type adds to its count."""


_FORMATS: Final = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".arrow": "ipc",
    ".feather": "ipc",
}


def read_table(path: Path, schema: pa.Schema | None = None, beside: Sequence[str] = ()) -> pa.Table:
    """Return a file as a table, with the columns of ``schema`` where that is given, and those called ``beside`` if it has them.

    ``SchemaError`` for a file that cannot be read, or has other columns; ``ConfigurationError`` for an unknown extension.
    """
    ending = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    kind = _FORMATS.get(ending)
    if kind is None:
        raise ConfigurationError(f"its name should end in one of {', '.join(_FORMATS)}")
    declare = "; declare its columns: create table name (column type, ...)" if schema is None else ""
    try:
        found = _READERS[kind](str(path), schema)
        found = found.rename_columns([name.lower() for name in found.column_names])
        return found if schema is None else _conformed(found, schema, beside, from_json=kind == "json")
    except (pa.ArrowException, UnicodeError) as error:
        raise SchemaError(f"it cannot be read as {kind}: {_first_line(error)}{declare}") from None
    except OSError as error:
        raise SchemaError(f"it cannot be read: {file_error_text(error)}") from None


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _block(path: str) -> int:
    """Return a block size that has types inferred from the whole file."""
    return min(max(1 << 20, 16 * os.path.getsize(path)), (1 << 31) - 1)


def _csv(path: str, schema: pa.Schema | None) -> pa.Table:
    reading = pa.csv.ReadOptions(block_size=_block(path))
    types = {}
    if schema is not None:
        with pa.csv.open_csv(path, reading) as opened:
            types = {name: schema.field(name.lower()).type for name in opened.schema.names if name.lower() in schema.names}
    options = pa.csv.ConvertOptions(  # as DuckDB: only an empty field without quotes is NULL
        column_types=types, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
    )
    return pa.csv.read_csv(path, reading, convert_options=options)


def _json(path: str, schema: pa.Schema | None) -> pa.Table:
    return pa.json.read_json(path, pa.json.ReadOptions(block_size=_block(path)))


def _ipc(path: str, schema: pa.Schema | None) -> pa.Table:
    with pa.OSFile(path) as source:  # not mapped: a file that is cut short while it is mapped ends the process
        try:
            return pa.ipc.open_file(source).read_all()
        except pa.ArrowInvalid:
            source.seek(0)
            return pa.ipc.open_stream(source).read_all()


_READERS: Final[dict[str, Callable[[str, pa.Schema | None], pa.Table]]] = {
    "parquet": lambda path, schema: pa.parquet.ParquetFile(path).read(),
    "csv": _csv,
    "json": _json,
    "ipc": _ipc,
}


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema with the types that tables have in place of those that become such without loss.

    >>> plain_schema(pa.schema([("Name", pa.dictionary(pa.int8(), pa.string())), ("at", pa.timestamp("ns"))]))
    name: string
    at: timestamp[us]
    """
    return pa.schema([pa.field(field.name.lower(), _plain(field.type), nullable=field.nullable) for field in schema])


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind) or pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_float16(kind) or pa.types.is_float32(kind):
        return pa.float64()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    return pa.date32() if pa.types.is_date64(kind) else kind


def _conformed(table: pa.Table, schema: pa.Schema, beside: Sequence[str], *, from_json: bool) -> pa.Table:
    names = table.column_names
    missing = set() if from_json else set(schema.names) - set(names)  # JSON leaves out what is null
    if missing or set(names) - {*schema.names, *beside} or len(set(names)) < len(names):
        raise SchemaError(f"it has the columns {', '.join(names)}, and its table has {', '.join(schema.names)}")
    kept = [name for name in beside if name in names and name not in schema.names]
    columns = []
    for field in schema:
        column = table.column(field.name) if field.name in names else pa.nulls(table.num_rows, field.type)
        columns.append(_converted(column, field, from_json))
    fields = [(field.name, field.type) for field in schema]
    whole = pa.Table.from_arrays(columns, schema=pa.schema(fields))
    for name in kept:
        whole = whole.append_column(name, table.column(name))
    return whole


def _converted(column: Any, field: pa.Field, from_json: bool) -> Any:
    """Return a column with the type of its table; ``SchemaError`` where something would be lost, or texts be read as others."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    given, kind, types = column.type, field.type, pa.types
    if given == kind:
        return column
    fits = (
        types.is_null(given)
        or (types.is_integer(given) and (types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)))
        or (types.is_floating(given) and types.is_floating(kind))
        or (types.is_decimal(given) and types.is_decimal(kind))
        or (types.is_date(given) and (types.is_date(kind) or types.is_timestamp(kind)))
        or (types.is_timestamp(given) and types.is_timestamp(kind) and given.tz == kind.tz)
        or ((types.is_large_string(given) or types.is_string_view(given)) and types.is_string(kind))
        or (from_json and types.is_string(given) and types.is_decimal(kind))
        or (from_json and types.is_timestamp(given) and types.is_date(kind))  # JSON has texts for both
    )
    try:
        if not fits:
            raise SchemaError(f"column {field.name!r} is {given}, and its table has {kind}")
        return column.cast(kind)
    except pa.ArrowException as error:
        raise SchemaError(f"column {field.name!r} is {given}, and its table has {kind}: {_first_line(error)}") from None


def change_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of a table without the column that a file of changes has beside it; ``SchemaError`` without one."""
    names = [name for name in (CHANGE_TYPE, COUNT) if name in schema.names]
    if not names:
        raise SchemaError(f"a file of changes has a column {COUNT} or {CHANGE_TYPE}")
    return schema.remove(schema.get_field_index(names[0]))


def rows_of_table(table: pa.Table) -> Iterable[Row]:
    """Return the rows of a table.

    >>> list(rows_of_table(pa.table({"n": [1, 1]})))
    [(1,), (1,)]
    """
    return zip(*(column.to_pylist() for column in table.columns), strict=True)


def changes_of_table(table: pa.Table) -> Counter[Row]:
    """Return the rows of a table of changes with what they add to their counts; ``SchemaError`` for an unknown change.

    >>> changes_of_table(pa.table({"n": [1, 2], "_change_type": ["insert", "delete"]}))
    Counter({(1,): 1, (2,): -1})
    """
    change_schema(table.schema)
    name = CHANGE_TYPE if CHANGE_TYPE in table.column_names else COUNT
    given = table.column(name).to_pylist()
    counts = [_SIGNS.get(each) for each in given] if name == CHANGE_TYPE else given
    for position, count in enumerate(counts):
        if type(count) is not int:
            known = f"one of {', '.join(_SIGNS)}" if name == CHANGE_TYPE else "a whole number"
            raise SchemaError(f"row {position + 1}: {name} is {given[position]!r}, and should be {known}")
    found: Counter[Row] = Counter()
    for row, count in zip(rows_of_table(table.drop_columns([name])), counts, strict=True):
        found[row] += count
    return Counter({row: count for row, count in found.items() if count})
