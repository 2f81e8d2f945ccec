"""Where tables come from: inputs, collections, Arrow data, streams, files, and ``sql``, a query over others that stays right."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from hashlib import blake2b
from operator import itemgetter
from typing import Any, Final

import attrs
import pyarrow as pa
from typing_extensions import TypeVar

from timely import connect
from timely.dataflow import ScopeBuilder, Stream, declared_schema, warn
from timely.dataflow.info import RelationStart
from timely.differential.collections import Collection
from timely.differential.inputs import InputSession
from timely.differential.row_history import Conversion, RowHistory
from timely.differential.tables.arrow_rows import (
    RowFields,
    arrow_table,
    check_added,
    data_schema,
    is_arrow,
    plain_schema,
    stream_reader,
)
from timely.differential.tables.expressions.column_stages import checked
from timely.differential.tables.expressions.relation import Relation
from timely.differential.tables.names.queries import OrderedRows, answer_of, query_of, relation_of, text_of, useless_order
from timely.differential.tables.names.refusals import naming_the_line
from timely.differential.tables.names.statements import APPEND_ONLY, LATENESS, is_append_only
from timely.differential.tables.names.user_functions import NO_FUNCTIONS, Functions
from timely.differential.tables.operators.time_windows import Axis, Lateness, Length, span_of
from timely.differential.tables.table_class import Table, relations, table_of
from timely.differential.tables.values.kinds import Column, Kind, columns_of, common, conversion, lower_case, row_check
from timely.differential.updates.linear import linear
from timely.differential.updates.rings import INTEGERS
from timely.errors import ChangedDataflowError, ConfigurationError, GraphError, SchemaError, brief
from timely.files.places import Paths
from timely.files.read_files import RowOrder, read_files
from timely.files.row_times import Time
from timely.files.scanning import ColumnTypes, Options, format_of_files, plan
from timely.operators.probes import ProbeHandle
from timely.operators.program_inputs import new_input, to_stream
from timely.order import PartialOrder

T = TypeVar("T", bound=PartialOrder, default=int)


def table(
    source: Any,
    data: Any = None,
    *,
    schema: pa.Schema | str | None = None,
    count: str | None = None,
    name: str | None = None,
    lateness: Mapping[str, Length] | None = None,
    append_only: bool = False,
) -> Table[Any]:
    """Return a table: of an input, of a collection, of Arrow data, or of a stream of Arrow batches.

    - ``table(scope, schema)``: one that its ``session`` changes. A schema is a ``pyarrow.Schema``, or ``"id long, name string"``.
    - ``table(collection, schema)``: the records of a collection, which are tuples.
    - ``table(scope, data)``: the rows of ``data`` at the minimum time, once, whichever number of workers is given it. ``data``
      exports Arrow: a PyArrow table or batch, a DataFrame of polars or pandas, a relation of DuckDB.
    - ``table(scope, source)``: the rows of a source with positions (``timely.connect``), which changes them.
    - ``table(stream, schema)``: the rows of a stream of Arrow batches, or of tuples, each at its time; ``scope.read_parquet`` and
      the like make such streams.

    ``count`` names a column of Arrow data, which the table does not have, that says how often each row is added, or taken away:
    ``to_batches`` and ``to_pandas(counts=True)`` make one. An index of pandas without a name is left out, and one with a name
    is a column.

    Rows are checked against the schema when they come: ``SchemaError`` for others. A checkpoint knows the table by its ``name``
    (``Recovery``).

    ``lateness={"at": "5 minutes"}`` says how much later than others rows come, by one column, which is never ``NULL``. The
    watermark is the greatest moment so far less that. Rows below the watermark of the times before are in ``late``, and not in
    the table. Windows, joins and groups of that column forget what no row can reach any more.

    ``append_only`` promises that rows are never taken away: ``SchemaError`` where one is, before it changes anything. Queries
    then hold of ``min``, ``max``, ``first``, ``arg_min`` and first rows what they return, and nothing else.

    >>> import pyarrow as pa
    >>> import timely
    >>> from timely import differential as dd
    >>> with timely.Worker() as worker:
    ...     with worker.dataflow(int) as scope:
    ...         people = dd.table(scope, pa.table({"id": [1, 2], "name": ["ada", "bob"]}))
    ...         names = people.select("upper(name) as name").output()
    ...         clicks = dd.table(scope, "page string, at bigint", lateness={"at": 5})
    ...         query = "select at // 10 * 10 as start, count(*) as n from clicks group by start emit on window close"
    ...         counts, late = dd.sql(scope, query, clicks=clicks).output(), clicks.late.output()
    ...     for epoch, at in enumerate((3, 9, 16, 8)):
    ...         clicks.session.insert(("home", at))
    ...         clicks.session.advance_to(epoch + 1)
    ...     clicks.session.close()
    ...     names.at(0), counts.at(2), late.at(3)
    ({('ADA',): 1, ('BOB',): 1}, {(0, 2): 1}, {('home', 8): 1})
    """
    if isinstance(data, pa.Schema | str):
        if schema is not None:
            raise GraphError("table: the schema is given twice")
        data, schema = None, data
    label = "table" if name is None else name
    connector = data if isinstance(data, connect.SourceConnector) else None
    if connector is not None:
        data, schema = None, connector.schema if schema is None else schema
    if schema is not None:
        schema = declared_schema(schema, label)
    if data is not None:
        if not is_arrow(data):
            raise GraphError(f"table: {brief(data)} is no schema, and no Arrow data")
        data = arrow_table(data, label)
        schema = data_schema(data.schema) if schema is None else schema
    if schema is None:
        raise GraphError("table: give the schema of its rows, such as 'id long, name string', or Arrow data, which has one")
    late = with_lateness(schema, lateness or {}, label)
    schema = late.with_metadata({**(late.metadata or {}), APPEND_ONLY: b""}) if append_only else late
    scope = getattr(source, "scope", source)
    if name is None or not isinstance(scope, ScopeBuilder) or scope.parent is not None:
        if data is not None:
            scope.identities.note(f"table of {_definition(scope, data, schema, count)}")
        return _table(source, data, schema, count, label, connector)
    kind = "view" if data is not None else "table" if source is scope and connector is None else "rows"
    with scope.identities.named(name, kind, _definition(scope, data, schema, count), ()) as start:
        made = _table(source, data, schema, count, label, connector)
        if made._watermarks and start.migrates:
            raise ChangedDataflowError(f"table {name!r}: a program with lateness does not change: {_REMEDIES}")
        return with_history(made, name, start, partial(_conversion, name, schema) if kind == "table" else None)


def _definition(scope: ScopeBuilder[Any], data: Any, schema: pa.Schema, count: str | None) -> str:
    counted = _columns(schema) if count is None else f"{_columns(schema)}, counted by {count}"
    if data is None or scope.allocator.registry is None:
        return counted
    return f"{counted}, data {blake2b(repr(data.to_pylist()).encode(), digest_size=16).hexdigest()}"


def _columns(schema: pa.Schema | None) -> str:
    columns = ", ".join([f"{field.name} {field.type}{'' if field.nullable else ' not null'}" for field in schema or ()])
    return f"{columns}, append only" if schema is not None and is_append_only(schema) else columns


def _conversion(name: str, schema: pa.Schema, before: Sequence[Column]) -> Callable[[Any], Any]:
    """Return what makes a row of ``schema`` of one with the columns ``before``; ``ChangedDataflowError`` where none can be."""
    columns, check = columns_of(schema), row_check(columns_of(schema), schema)
    places = {column.name: place for place, column in enumerate(before)}
    steps: list[tuple[int, Callable[[Any], Any]] | None] = []
    for column in columns:
        place = places.get(column.name)
        kind = column.kind if place is None else before[place].kind
        change = conversion(kind, column.kind) if common(kind, column.kind) is column.kind else None
        if change is None:
            raise ChangedDataflowError(
                f"table {name!r}: column {column.name!r} was {kind.value} in the checkpoint, which does not become"
                f" {column.kind.value}: {_REMEDIES}"
            )
        steps.append(None if place is None else (place, change))

    def converted(row: Any) -> Any:
        values = [None if step is None or row[step[0]] is None else step[1](row[step[0]]) for step in steps]
        try:
            return check(tuple(values))
        except SchemaError as error:
            raise ChangedDataflowError(
                f"table {name!r} has a row in the checkpoint that is none now: {error}; {_REMEDIES}"
            ) from None

    return converted


_REMEDIES: Final = "give the table another name, and send it its rows again, or give them up with Recovery(dropped={...})"


def with_history(made: Table[Any], name: str, start: RelationStart, converts: Conversion | None) -> Table[Any]:
    """Return a table that others read by its name, in a program that may change."""
    if not start.migrates:
        return made
    rows = made.collection
    history = RowHistory(rows, name, start, made.columns, converts)
    return Table(rows, made.columns, made._session, history)


def _table(source: Any, data: Any, schema: pa.Schema, count: str | None, name: str, connector: Any = None) -> Table[Any]:
    if data is not None:
        source = to_stream(source, data.combine_chunks().to_batches(), on=0)
    as_written = schema
    if count is not None:
        schema = _without_counts(schema, count, source, name)
    columns = columns_of(schema)
    session: InputSession[Any, Any] | None = None
    if connector is not None:
        added = stream_reader(schema, name)
        rows = Collection(linear(connect.read(source, connector), name, lambda batch: added(batch) if is_arrow(batch) else batch))
    elif isinstance(source, Collection):
        rows = source
    elif isinstance(source, Stream):
        rows = Collection(linear(source, name, stream_reader(as_written, name, count)))
    else:
        input, stream = new_input(source, name)
        session, rows = InputSession(input, INTEGERS, RowFields(schema, name)), Collection(stream)
    check = row_check(columns, schema)
    grows = is_append_only(schema)
    check_diff = check_added if grows else None
    types = plain_schema(schema, narrow=isinstance(source, Collection))  # other columns are checked before
    rows = checked(rows, check, columns, types, name, by_session=session is not None, check_diff=check_diff)
    made = Table(rows, columns, session, append_only=grows)
    lateness = lateness_of(schema, name)
    return made if lateness is None else made._in_time(lateness, name)


def with_lateness(schema: pa.Schema, lateness: Mapping[str, Length], name: str) -> pa.Schema:
    """Return a schema that says how late rows come by its columns, which are never null then."""
    if not isinstance(lateness, Mapping):
        raise SchemaError(f"{name}: lateness={lateness!r} is no dictionary: write {{column: length}}")
    for column, length in lateness.items():
        place = schema.get_field_index(column)
        if place < 0:
            raise SchemaError(f"{name}: lateness={lateness!r} names no column; there are {', '.join(schema.names)}")
        text = f"{length // timedelta(microseconds=1)} microseconds" if isinstance(length, timedelta) else str(length)
        schema = schema.set(place, schema.field(place).with_nullable(False).with_metadata({LATENESS: text.encode()}))
    return schema


def lateness_of(schema: pa.Schema, name: str) -> Lateness | None:
    """Return how late the rows of a table of this schema come; ``GraphError`` for what is no length of time."""
    places = [place for place, field in enumerate(schema) if LATENESS in (field.metadata or {})]
    if not places:
        return None
    if len(places) > 1:
        raise SchemaError(f"{name}: one column has a lateness, and not {', '.join(schema.names[place] for place in places)}")
    (place,) = places
    column, text = columns_of(schema)[place], schema.field(place).metadata[LATENESS].decode()
    if column.kind not in (Kind.TIMESTAMP, Kind.INSTANT, Kind.INTEGER):
        kind = f"{column.name}, a {column.kind.value}"
        raise GraphError(f"{name}: the lateness is of a column of timestamps or whole numbers, not of {kind}")
    axis, length = Axis(column.kind, itemgetter(place)), int(text) if text.isdecimal() else text
    span, kind = span_of(length, axis, name, nothing=True), schema.field(place).type
    if pa.types.is_integer(kind):
        least = 0 if pa.types.is_unsigned_integer(kind) else -(1 << kind.bit_width - 1)
        span = attrs.evolve(span, least=least)  # so that the watermark has the type of its column
    return Lateness(place, column.kind, span)


def source_tables(scope: ScopeBuilder[int], source: Any) -> dict[str, Table[Any]]:
    """Return the tables of a source that reads several, such as ``timely.connect.PostgresSource``, by their names.

    What one transaction changes in them is in one epoch.
    """
    changes = connect.read(scope, source)

    def rows_of(name: str) -> Collection[Any, Any]:
        return Collection(linear(changes, name, lambda batch: [(row, diff) for (table, row), diff in batch if table == name]))

    return {name: table(rows_of(name), schema, name=name) for name, schema in source.schemas.items()}


def _without_counts(schema: pa.Schema, count: str, source: Any, name: str) -> pa.Schema:
    if not isinstance(source, Stream):
        raise GraphError(f"{name}: count= names a column of Arrow data: give data or a stream; session.update takes counts too")
    place = schema.get_field_index(count)
    if place < 0 or not pa.types.is_integer(schema.field(place).type):
        raise SchemaError(f"{name}: count={count!r} names no column of whole numbers; there are {', '.join(schema.names)}")
    return schema.remove(place)


def read_table(
    scope: ScopeBuilder[T],
    path: Paths,
    *,
    columns: Sequence[str] | None = None,
    schema: ColumnTypes | None = None,
    time: Time | None = None,
    in_order: bool = False,
    probe: ProbeHandle[T] | None = None,
    times: int = 1,
    delimiter: str | None = None,
    quote: str | None = '"',
    encoding: str | None = None,
    null_values: Sequence[str] | None = None,
    decimal: str = ".",
    count: str | None = None,
    name: str = "read_table",
) -> Table[T]:
    """Return the table of files of Parquet, CSV, JSON lines or Arrow IPC; the extension of the first file says which.

    ``path`` and the options are those of ``scope.read_csv``. ``encoding`` is for CSV and JSON; ``delimiter``, ``quote``,
    ``null_values`` and ``decimal`` are for CSV alone. Each row is read by one worker, and comes at the minimum time, or at
    ``time``. Types are those of the first file, or of ``schema``. ``count`` names a column that says how often each row is
    added, or taken away, as files of ``to_batches`` have it.

    ``ConfigurationError`` for a missing file or an unknown extension, ``SchemaError`` for columns that tables do not have, and
    for values that are not as declared or as in the first file.

    >>> import pathlib, tempfile
    >>> import timely
    >>> from timely import differential as dd
    >>> path = pathlib.Path(tempfile.mkdtemp(), "orders.csv")
    >>> _ = path.write_text("day,customer,price\\n0,ada,5\\n0,bob,7\\n1,ada,9\\n")
    >>> with timely.Worker() as worker:
    ...     with worker.dataflow(int) as scope:
    ...         orders = dd.read_table(scope, path, time="day")
    ...         totals = orders.group_by("customer").agg("sum(price) as total").output()
    ...     worker.run()
    ...     sorted(totals.at(0)), sorted(totals.at(1))
    ([('ada', 5), ('bob', 7)], [('ada', 14), ('bob', 7)])
    """
    place = f"{name}({path!r})" if isinstance(path, str) else name
    kind = format_of_files(path, place)
    options = Options(columns, schema, delimiter, quote, encoding, ("",) if null_values is None else null_values, decimal)
    if kind.name != "csv" and not (delimiter is None and quote == '"' and null_values is None and decimal == "."):
        raise ConfigurationError(f"{place}: delimiter=, quote=, null_values= and decimal= are for CSV, and these are {kind.name}")
    if kind.name not in ("csv", "json") and encoding is not None:
        raise ConfigurationError(f"{place}: encoding= is for files of text, and these files are {kind.name}")
    scan, _ = plan(path, kind, options, 1, place)
    rows = read_files(scope, path, kind, options, RowOrder(time, in_order, probe, times), name=name, place=place)
    return _table(rows, None, data_schema(scan.schema), count, name)


@naming_the_line
def sql(
    scope: ScopeBuilder[T],
    query: str,
    /,
    name: str | Table[T] | Collection[T, Any] | None = None,
    functions: Functions | Table[T] | Collection[T, Any] = NO_FUNCTIONS,
    **tables: Table[T] | Collection[T, Any],
) -> Table[T]:
    """Return a query over ``tables``, or collections with a schema, as a table that stays right; the dialect is DuckDB's.

    ``SqlError`` for what is not kept up to date, with the construct and its position in the text. A view has no order:
    ``ORDER BY`` without ``LIMIT`` has no effect, which a ``TimelyWarning`` says. A checkpoint knows the view by its ``name``
    (``Recovery``); a table may be called so too, or ``functions``, which are those of the program by name (``dd.function``).

    >>> import pyarrow as pa
    >>> import timely
    >>> from timely import differential as dd
    >>> with timely.Worker() as worker:
    ...     with worker.dataflow(int) as scope:
    ...         edges = dd.table(scope, pa.schema([("src", pa.int64()), ("dst", pa.int64())]))
    ...         reached = dd.sql(
    ...             scope,
    ...             "with recursive r(node) as (select 1 union select dst from edges join r on src = node) select node from r",
    ...             edges=edges,
    ...         ).output()
    ...     edges.session.insert((1, 2))
    ...     edges.session.insert((2, 3))
    ...     edges.session.advance_to(1)
    ...     edges.session.remove((2, 3))
    ...     edges.session.close()
    ...     reached.at(0), reached.at(1)
    ({(1,): 1, (2,): 1, (3,): 1}, {(1,): 1, (2,): 1})
    """
    if not isinstance(functions, Mapping):
        tables, functions = {**tables, "functions": functions}, {}
    if name is not None and not isinstance(name, str):
        tables, name = {**tables, "name": name}, None
    tree = query_of(query)

    def view() -> Table[T]:
        result = table_of(relation_of(scope, tree, _sources(tables), functions))
        _warn(tree, "")
        return result

    if name is None:
        return view()
    if scope.parent is not None:
        raise GraphError(f"sql(name={name!r}) in scope {scope.path!r}: a name is of the outermost scope, so give none in a loop")
    columns = [f"{key}({_columns(getattr(tables[key], 'schema', None))})" for key in sorted(tables)]
    text = f"{text_of(tree)} over {', '.join(columns) or 'nothing'}"
    text += "".join(f", with {each}{function}" for each, function in sorted(functions.items()))
    reads = tuple(rows._history.name for _, rows in sorted(tables.items()) if isinstance(rows, Table) and rows._history)
    with scope.identities.named(name, "view", text, reads) as start:
        return with_history(view(), name, start, None)


def answer_over(
    scope: ScopeBuilder[Any],
    query: str,
    tables: Mapping[str, Table[Any]],
    functions: Functions = NO_FUNCTIONS,
    *,
    ordered: bool,
) -> OrderedRows:
    """Return the rows of a query, and if it is ``ordered``, its order, whose columns are behind its own."""
    return answer_of(scope, query_of(query), _sources(tables), functions, ordered=ordered)


def _sources(tables: Mapping[str, Any]) -> dict[str, Relation]:
    return relations({lower_case(name): _as_table(each) for name, each in sorted(tables.items())})


def _as_table(rows: Any) -> Any:
    return table(rows, rows.schema) if isinstance(rows, Collection) and rows.schema is not None else rows


def warn_of_order(query: str, view: str) -> None:
    """Warn of an ``ORDER BY`` that decides nothing: neither which rows there are, nor in which order they are read."""
    _warn(query_of(query), view)


def _warn(tree: Any, view: str) -> None:
    position = useless_order(tree)
    if position is not None:
        warn(f"{view}a view has no order: ORDER BY{position} has no effect without LIMIT; sort when you read")
