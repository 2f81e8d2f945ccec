"""The formats of files: their extensions, and what writes them. Whatever imports this needs PyArrow.

``PartWriter`` writes one file, which has its name when it is complete, or not at all.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import attrs

from timely.errors import ConfigurationError, SchemaError, TimelyError, brief, file_error_text

try:
    import pyarrow as pa
    import pyarrow.csv
except ModuleNotFoundError as error:
    raise ConfigurationError('files need PyArrow: pip install "timely-dataflow[arrow]"') from error


@attrs.frozen
class Format:
    """A format of files: its name, the extensions that are read, the one that is written, and what opens a writer."""

    name: str
    extensions: tuple[str, ...]
    written: str
    open: Callable[[str, pa.Schema], Any]

    @property
    def compressed(self) -> bool:
        """Whether a file may end in ``.gz`` too; Parquet and IPC compress inside."""
        return self.name in ("csv", "json")


class _JsonWriter:
    """Writes one JSON object a line."""

    def __init__(self, path: str, schema: pa.Schema) -> None:
        self._file = Path(path).open("w", encoding="utf-8")  # noqa: SIM115  # closed by close

    def write_batch(self, batch: pa.RecordBatch) -> None:
        try:
            self._file.writelines(
                json.dumps(row, ensure_ascii=False, allow_nan=False, default=_json_text) + "\n" for row in batch.to_pylist()
            )
        except (TypeError, ValueError) as error:
            raise SchemaError(f"a row cannot be written as JSON: {error}") from None

    def close(self) -> None:
        self._file.close()


class _CsvWriter:
    """Writes CSV with a header."""

    def __init__(self, path: str, schema: pa.Schema) -> None:
        self._writer = pa.csv.CSVWriter(path, schema)

    def write_batch(self, batch: pa.RecordBatch) -> None:
        if batch.num_columns == 1 and batch.column(0).null_count:
            raise SchemaError("a missing value in the only column would be an empty line, which readers skip: add a column")
        self._writer.write_batch(batch)

    def close(self) -> None:
        self._writer.close()


def _json_text(value: Any) -> str:
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    raise TypeError(f"JSON has no form for {brief(value)}: cast its column to a string or a double")


def _open_parquet(path: str, schema: pa.Schema) -> Any:
    from pyarrow.parquet import ParquetWriter

    return ParquetWriter(path, schema, write_page_checksum=True)  # readers can tell a damaged page


def _open_ipc(path: str, schema: pa.Schema) -> Any:
    return pa.ipc.new_file(path, schema)


FORMATS: Final = {
    "parquet": Format("parquet", (".parquet", ".pq"), ".parquet", _open_parquet),
    "csv": Format("csv", (".csv", ".tsv", ".txt"), ".csv", _CsvWriter),
    "json": Format("json", (".json", ".jsonl", ".ndjson"), ".jsonl", _JsonWriter),
    "ipc": Format("ipc", (".arrow", ".feather", ".ipc"), ".arrow", _open_ipc),
}


def extension_of(path: str | os.PathLike[str]) -> str:
    """Return the extension of a path without a ``.gz`` after it."""
    file = Path(path)
    return Path(file.stem).suffix if file.suffix == ".gz" else file.suffix


def format_of(path: str | os.PathLike[str], place: str) -> Format:
    """Return the format that an extension stands for; ``ConfigurationError`` for an unknown one."""
    check_path(os.fspath(path), place)
    extension = extension_of(path)
    for known_format in FORMATS.values():
        if extension in known_format.extensions and (known_format.compressed or Path(path).suffix == extension):
            return known_format
    known = ", ".join(name for known_format in FORMATS.values() for name in known_format.extensions)
    workbook = "; save the sheet of a workbook as CSV" if extension in (".xlsx", ".xls", ".ods", ".numbers") else ""
    raise ConfigurationError(f"{place}: {os.fspath(path)!r} should end in one of {known}{workbook}")


def check_path(path: str, place: str) -> None:
    """Raise ``ConfigurationError`` for a path that Arrow cannot open, or opens elsewhere than Python: a URI, or one of ``~``.

    >>> check_path("s3://bucket/words", "write_csv")
    Traceback (most recent call last):
    timely.errors.ConfigurationError: write_csv: 's3://bucket/words' is a URI, and files are those of this machine: give a path
    """
    if re.match("[A-Za-z][A-Za-z0-9+.-]+:/", path):
        raise ConfigurationError(f"{place}: {path!r} is a URI, and files are those of this machine: give a path")
    if path.startswith("~/"):
        raise ConfigurationError(f"{place}: {path!r} is not expanded: give {os.path.expanduser(path)!r}")
    try:
        path.encode()
    except UnicodeEncodeError:
        raise ConfigurationError(f"{place}: {path!r} is no UTF-8, which Arrow needs: rename it") from None


ROWS: Final = 1 << 17
"""Rows to collect before they are written: a row group of Parquet."""


class SchemaCheck:
    """What the containers of one output become: batches of one schema, which is the declared one or that of the first batch."""

    def __init__(self, name: str, schema: pa.Schema | str | None, place: str) -> None:
        from timely.dataflow import OutputSchema, declared_schema  # which import PyArrow

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
