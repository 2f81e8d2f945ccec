"""Views over what changes on Spark: SQL, or a dataflow of tables, kept up to date over change feeds, micro-batch by micro-batch.

``maintain`` runs on :func:`timely.spark.stream`: a micro-batch is an epoch. ``feeds`` describes inputs on the driver. In the
workers ``decoding`` reads their rows, ``feed_state`` applies them to a table, ``view_rows`` makes the rows of a view. Without
Spark or sqlglot, importing it is a :class:`~timely.errors.ConfigurationError`.
"""

from __future__ import annotations

from timely.errors import ConfigurationError

try:
    from timely.differential.spark.feeds import Feed, changes, upserts
    from timely.differential.spark.runner import maintain
except ModuleNotFoundError as error:
    if (package := (error.name or "").partition(".")[0]) not in ("pyarrow", "pyspark", "sqlglot"):
        raise
    raise ConfigurationError(
        f'timely.differential.spark needs the package {package}: pip install "timely-dataflow[spark,sql]"'
    ) from error

__all__ = ["Feed", "changes", "maintain", "upserts"]
