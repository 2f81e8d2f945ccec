"""What the tests of sinks have in common: a database in Derby, whose jar is Spark's, and a stand-in for Delta."""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from timely.spark import Sink, SinkContext

Row = tuple[Any, ...]


@attrs.frozen
class Derby:
    """A database in a folder, or in memory."""

    session: SparkSession
    name: str

    @property
    def url(self) -> str:
        """How Spark connects to it."""
        return f"jdbc:derby:{self.name};create=true"

    def run(self, statement: str) -> None:
        """Run a statement."""
        jvm: Any = self.session._jvm
        connection = jvm.java.sql.DriverManager.getConnection(self.url)
        try:
            connection.createStatement().executeUpdate(statement)
        finally:
            connection.close()

    def rows(self, table: str) -> list[Row]:
        """The rows of a table, sorted; nulls first."""
        actual = [tuple(row) for row in self.session.read.jdbc(self.url, table).collect()]
        return sorted(actual, key=lambda row: [(value is not None, value) for value in row])

    def tables(self) -> list[str]:
        """The names of the tables."""
        tables = "(select tablename from sys.systables where tabletype = 'T') as tables"
        return sorted(row.TABLENAME.lower() for row in self.session.read.jdbc(self.url, tables).collect())

    def drop(self) -> None:
        """Forget a database in memory."""
        jvm: Any = self.session._jvm
        with contextlib.suppress(Exception):  # how Derby says that it has done so
            jvm.java.sql.DriverManager.getConnection(f"jdbc:derby:{self.name};drop=true")


class Staging(WriterCommitMessage):
    """A file that a task wrote."""

    def __init__(self, name: str) -> None:
        self.name = name


class StandInForDelta(DataSource):
    """Skips a write whose ``txnAppId`` and ``txnVersion`` it knows, as Delta does; the rows of others are in ``rows``."""

    @classmethod
    def name(cls) -> str:
        return "delta"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return _Writer(self.options["path"], self.options["txnAppId"], int(self.options["txnVersion"]), overwrite)

    @staticmethod
    def rows(path: Path) -> list[Row]:
        """The rows of a table, sorted."""
        log = json.loads((path / "log.json").read_text())
        return sorted(tuple(row.values()) for name in log["files"] for row in parquet.read_table(path / name).to_pylist())


class _Writer(DataSourceArrowWriter):
    def __init__(self, path: str, app: str, version: int, overwrite: bool) -> None:
        self.path, self.app, self.version, self.overwrite = path, app, version, overwrite

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        name = f"{secrets.token_hex(8)}.parquet"
        batches = [batch for batch in iterator if batch.num_rows]
        if not batches:
            return Staging("")
        Path(self.path).mkdir(parents=True, exist_ok=True)
        parquet.write_table(pa.Table.from_batches(batches), f"{self.path}/{name}")
        return Staging(name)

    def commit(self, messages: list[Any]) -> None:
        file = Path(self.path, "log.json")
        log: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {"files": [], "versions": {}}
        if log["versions"].get(self.app, -1) >= self.version:
            return
        log["versions"][self.app] = self.version
        added = [message.name for message in messages if message.name]
        log["files"] = added if self.overwrite else log["files"] + added
        aside = file.with_suffix(".new")
        aside.write_text(json.dumps(log))
        aside.rename(file)


@attrs.frozen
class Both:
    """A sink that writes to several."""

    sinks: tuple[Sink, ...]

    def open(self, context: SinkContext) -> Any:
        """Open all."""
        takes = [sink.open(context) for sink in self.sinks]

        def take(epoch: int, tables: Mapping[str, Any]) -> None:
            for each in takes:
                each(epoch, tables)

        return take
