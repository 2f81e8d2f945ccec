"""The data pipeline on Spark: DataFrames in, timely workers in the tasks of one barrier stage, DataFrames out.

Importing this package imports Spark and Arrow. Where they are missing it raises :class:`~timely.errors.ConfigurationError`, which
says what to install.
"""

from __future__ import annotations

from timely.errors import ConfigurationError

try:
    from timely.spark import versions as versions  # first: it refuses a PySpark in which the others would miss a module
    from timely.spark.batch import Result, run
    from timely.spark.gathered_rendezvous import RendezvousMode, failure_of
    from timely.spark.jdbc import JdbcSink
    from timely.spark.plan import ColumnOf
    from timely.spark.reporting import Metrics, RunProgress, WorkerMetrics
    from timely.spark.session import local_session
    from timely.spark.settings import Finding, Findings, check
    from timely.spark.shipping import ship
    from timely.spark.sinks import DeltaSink, ParquetSink, Sink, SinkContext
    from timely.spark.streaming.handle import StreamHandle
    from timely.spark.streaming.micro_batches import EpochReport
    from timely.spark.streaming.query import stream
except ImportError as error:
    if (error.name or "").partition(".")[0] not in ("pyspark", "pyarrow"):
        raise
    raise ConfigurationError(f'timely.spark needs the package {error.name}: pip install "timely-dataflow[spark]"') from error

Progress = RunProgress
"""Its name before."""

__all__ = [
    "ColumnOf",
    "DeltaSink",
    "EpochReport",
    "Finding",
    "Findings",
    "JdbcSink",
    "Metrics",
    "ParquetSink",
    "Progress",
    "RendezvousMode",
    "Result",
    "RunProgress",
    "Sink",
    "SinkContext",
    "StreamHandle",
    "WorkerMetrics",
    "check",
    "failure_of",
    "local_session",
    "run",
    "ship",
    "stream",
]
