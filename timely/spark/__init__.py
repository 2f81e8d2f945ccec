"""The data pipeline on Spark: DataFrames in, timely workers in the tasks of one barrier stage, DataFrames out.

:func:`run` is the way in; :func:`local_session` makes a session on this machine to try it with. This package, and no
other part of the library but ``timely.graphs.spark``, imports Spark and Arrow when it is imported; where they are
missing, the import raises :class:`~timely.errors.ConfigurationError`, which says what to install.
"""

from __future__ import annotations

from timely.errors import ConfigurationError

try:
    from timely.spark.batch import ColumnOf, Result, run
    from timely.spark.session import local_session
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] not in ("pyspark", "pyarrow"):
        raise
    raise ConfigurationError(
        f"timely.spark needs the package {error.name}: pip install '.[spark]' in a checkout of timely"
    ) from error

__all__ = ["ColumnOf", "Result", "local_session", "run"]
