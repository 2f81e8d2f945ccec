"""Arrow tables as DataFrames of other libraries, which are imported when they are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from timely.errors import ConfigurationError

if TYPE_CHECKING:
    import pyarrow as pa


def pandas_frame(table: pa.Table) -> Any:
    """Return a table as a pandas DataFrame; ``ConfigurationError`` where pandas is not installed."""
    try:
        import pandas  # noqa: F401
    except ModuleNotFoundError as error:
        raise ConfigurationError("to_pandas needs pandas: pip install pandas") from error
    return table.to_pandas()


def polars_frame(table: pa.Table) -> Any:
    """Return a table as a polars DataFrame; ``ConfigurationError`` where polars is not installed."""
    try:
        import polars
    except ModuleNotFoundError as error:
        raise ConfigurationError("to_polars needs polars: pip install polars") from error
    return polars.from_arrow(table)
