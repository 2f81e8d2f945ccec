"""Arrow tables as DataFrames of other libraries, and back. The libraries are imported by those who ask for a DataFrame."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from timely.errors import ConfigurationError, SchemaError, brief

if TYPE_CHECKING:
    import pyarrow as pa


def pandas_frame(table: pa.Table) -> Any:
    """Return a table as a pandas DataFrame; ``ConfigurationError`` where pandas is not installed."""
    try:
        import pandas  # noqa: F401
    except ModuleNotFoundError as error:
        raise ConfigurationError("to_pandas needs pandas: pip install pandas") from error
    frame = table.to_pandas(integer_object_nulls=True)  # beside nulls Arrow makes whole numbers doubles, which have 53 bits
    for name, column in zip(table.column_names, table.columns):
        kind = str(column.type)
        if column.null_count and kind.removeprefix("u").startswith("int") and [*frame].count(name) == 1:
            frame[name] = frame[name].astype(kind.replace("int", "Int").replace("u", "U"))
    return frame


def polars_frame(table: pa.Table) -> Any:
    """Return a table as a polars DataFrame; ``ConfigurationError`` where polars is not installed."""
    try:
        import polars
    except ModuleNotFoundError as error:
        raise ConfigurationError("to_polars needs polars: pip install polars") from error
    return polars.from_arrow(table)


def frame_data(data: Any) -> Any:
    """Return a pandas DataFrame as an Arrow table, and other objects as they are.

    An index without a name only numbers the rows, and is left out. One with names becomes the first columns, as
    ``reset_index()`` has them; ``SchemaError`` where a column has such a name already.
    """
    kind: Any = getattr(sys.modules.get("pandas"), "DataFrame", ())
    if not isinstance(data, kind):
        return data
    import pyarrow as pa

    if data.index.nlevels > 1 or data.index.name is not None:
        try:
            data = data.reset_index()
        except ValueError as error:
            raise SchemaError(
                f"the index of a DataFrame becomes columns {brief(list(data.index.names))}: {error}; leave it out with"
                " reset_index(drop=True), or rename it"
            ) from None
    return pa.Table.from_pandas(data, preserve_index=False)
