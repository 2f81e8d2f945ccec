"""``PartWriter``: one file, which has its name when it is complete, or not at all."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from timely.dataflow import OutputSchema, declared_schema
from timely.errors import ConfigurationError, SchemaError, TimelyError, file_error_text
from timely.files.formats import Format

ROWS: Final = 1 << 17
"""Rows to collect before they are written: a row group of Parquet."""


class SchemaCheck:
    """What the containers of one output become: batches of one schema, which is the declared one or that of the first batch."""

    def __init__(self, name: str, schema: pa.Schema | str | None, place: str) -> None:
        self._name = name
        self._first = None if schema is None else declared_schema(schema, place)
        self._declared = None if schema is None else OutputSchema(name, self._first)

    def conform(self, container: Any) -> pa.RecordBatch:
        """Return a container as a batch; ``SchemaError`` for rows without a declared schema, and for other columns than first."""
        if self._declared is not None:
            return self._declared.conform(container)
        if not isinstance(container, pa.RecordBatch):
            raise SchemaError(
                f"output {self._name!r} has Arrow record batches, or rows with a declared schema, not a"
                f" {type(container).__name__}: declare its columns, as in schema='node long, name string'"
            )
        if self._first is None:
            self._first = container.schema
        if not container.schema.equals(self._first):
            raise SchemaError(
                f"output {self._name!r} had the columns {_described(self._first)} first, and then"
                f" {_described(container.schema)}: declare them with a schema"
            )
        return container


def _described(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


class PartWriter:
    """Writes batches into a draft beside ``path``, which ``finish`` makes the file.

    Up to ``rows`` rows wait in memory; ``None`` has all of them wait.
    """

    def __init__(self, path: Path, kind: Format, rows: int | None = ROWS) -> None:
        self.path = path
        self.draft = path.with_name(f".{path.name}.draft")
        self.rows = 0
        self.waiting: list[pa.RecordBatch] = []
        self._kind = kind
        self._most = rows
        self._waiting_rows = 0
        self._writer: Any = None

    def write(self, batch: pa.RecordBatch) -> None:
        """Add a batch, of the columns of the others."""
        self.waiting.append(batch)
        self.rows += batch.num_rows
        self._waiting_rows += batch.num_rows
        if self._most is not None and self._waiting_rows >= self._most:
            self._flush()

    def _flush(self) -> None:
        batches, self.waiting, self._waiting_rows = self.waiting, [], 0
        try:
            if self._writer is None:
                self._writer = self._kind.open(str(self.draft), batches[0].schema)
            for batch in pa.Table.from_batches(batches).combine_chunks().to_batches():
                self._writer.write_batch(batch)
        except (OSError, pa.ArrowException, TimelyError) as error:
            raise self._failed(error) from error

    def finish(self) -> bool:
        """Complete the file and flush it to disk; return whether there is one, which there is not without a batch."""
        if self.waiting:
            self._flush()
        if self._writer is None:
            return False
        try:
            self._writer.close()
            sync(self.draft)
            os.replace(self.draft, self.path)
        except (OSError, pa.ArrowException) as error:
            raise self._failed(error) from error
        return True

    def abandon(self) -> None:
        """Remove the draft."""
        self.waiting.clear()
        if self._writer is not None:
            with contextlib.suppress(OSError, pa.ArrowException):
                self._writer.close()
        self.draft.unlink(missing_ok=True)

    def _failed(self, error: Exception) -> TimelyError:
        self.abandon()
        if isinstance(error, OSError):
            return ConfigurationError(f"{str(self.path)!r} cannot be written: {file_error_text(error)}")
        return SchemaError(f"{str(self.path)!r} cannot be written as {self._kind.name}: {error}")


def sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to disk."""
    if os.name == "nt":
        return  # where folders cannot be opened
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
