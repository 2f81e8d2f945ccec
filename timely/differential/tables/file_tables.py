"""Tables of files, with the columns that the files have."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import TypeVar

from timely.dataflow import ScopeBuilder
from timely.differential.tables.arrow_rows import data_schema
from timely.differential.tables.sources import table
from timely.differential.tables.table_class import Table
from timely.errors import ConfigurationError
from timely.files.places import Paths
from timely.files.read_files import RowOrder, read_files
from timely.files.row_times import Time
from timely.files.scanning import ColumnTypes, Options, format_of_files, plan
from timely.operators.probes import ProbeHandle
from timely.order import PartialOrder

T = TypeVar("T", bound=PartialOrder, default=int)


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
    count: str | None = None,
    name: str = "read_table",
) -> Table[T]:
    """Return the table of files of Parquet, CSV, JSON lines or Arrow IPC; the extension of the first file says which.

    ``path`` and the options are those of ``scope.read_csv``. ``encoding`` is for CSV and JSON; ``delimiter``, ``quote`` and
    ``null_values`` are for CSV alone. Each row is read by one worker, and comes at the minimum time, or at ``time``. Types are
    those of the first file, or of ``schema``. ``count`` names a column that says how often each row is added, or taken away, as
    files of ``to_batches`` have it.

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
    options = Options(columns, schema, delimiter, quote, encoding, ("",) if null_values is None else null_values)
    if kind.name != "csv" and not (delimiter is None and quote == '"' and null_values is None):
        raise ConfigurationError(f"{place}: delimiter=, quote= and null_values= are for CSV, and these files are {kind.name}")
    if kind.name not in ("csv", "json") and encoding is not None:
        raise ConfigurationError(f"{place}: encoding= is for files of text, and these files are {kind.name}")
    scan, _ = plan(path, kind, options, 1, place)
    rows = read_files(scope, path, kind, options, RowOrder(time, in_order, probe, times), name=name, place=place)
    return table(rows, data_schema(scan.schema), count=count, name=name)
