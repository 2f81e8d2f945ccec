"""Sources and sinks with positions: what happens between them happens exactly once, whatever dies in between.

``scope.read(source)`` and ``stream.write(sink)`` are in dataflows under a :class:`timely.recovery.Recovery`; :func:`run` steps
them and takes checkpoints. A connector of your own implements :class:`SourceConnector` or :class:`SinkConnector`. A database's
client is imported when its connector is made.
"""

import importlib
from typing import TYPE_CHECKING, Any

from timely.connect.databases import DuckDBSink, PostgresSink, SqliteSink
from timely.connect.protocols import Change, Position, ReadBatch, SinkConnector, SourceConnector, check_history
from timely.connect.running import run
from timely.connect.sink_operator import write
from timely.connect.source_operator import read

if TYPE_CHECKING:
    from timely.connect.delta import DeltaLakeSink, DeltaLakeSource
    from timely.connect.folders import FolderSource
    from timely.connect.iceberg import IcebergSink, IcebergSource
    from timely.connect.kafka import KafkaSink, KafkaSource
    from timely.connect.postgres_source import PostgresSource

__all__ = [
    "Change",
    "DeltaLakeSink",
    "DeltaLakeSource",
    "DuckDBSink",
    "FolderSource",
    "IcebergSink",
    "IcebergSource",
    "KafkaSink",
    "KafkaSource",
    "Position",
    "PostgresSink",
    "PostgresSource",
    "ReadBatch",
    "SinkConnector",
    "SourceConnector",
    "SqliteSink",
    "check_history",
    "read",
    "run",
    "write",
]

if not TYPE_CHECKING:  # where type checkers see it, they accept every name

    def __getattr__(name: str) -> Any:
        # These load PyArrow.
        module = {
            "DeltaLakeSink": "delta",
            "DeltaLakeSource": "delta",
            "FolderSource": "folders",
            "IcebergSink": "iceberg",
            "IcebergSource": "iceberg",
            "KafkaSink": "kafka",
            "KafkaSource": "kafka",
            "PostgresSource": "postgres_source",
        }.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"timely.connect.{module}"), name)
