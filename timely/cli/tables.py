"""Tables in files for ``timely run`` without Spark. A table is a file, or a folder of files as Spark writes it.

Inputs are read batch by batch. An output appears as a whole when the run is over, or not at all.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from timely.errors import ConfigurationError, SchemaError

try:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.dataset
    import pyarrow.parquet

    from timely.dataflow.output_schema import OutputSchema
except ModuleNotFoundError as error:
    raise ConfigurationError("tables in files need pyarrow: pip install '.[arrow]' in a checkout of timely") from error

READS: Final = {".parquet": "parquet", ".csv": "csv", ".arrow": "ipc", ".feather": "ipc", ".json": "json", ".jsonl": "json"}
"""The extensions, and Arrow's names of the formats; ``.gz`` may follow."""

WRITES: Final = (".parquet", ".csv", ".arrow")

_TYPES: Final = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "tinyint": pa.int8(),
    "short": pa.int16(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


def kind_of(name: str, path: Path) -> str:
    """Return the extension of a table; ``ConfigurationError`` for an unknown one."""
    ending = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    if ending not in READS:
        raise ConfigurationError(f"table {name!r}: {str(path)!r} should end in one of {', '.join(READS)}")
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise ConfigurationError(f"table {name!r}: {str(path)!r} is no UTF-8, which Arrow needs: rename it") from None
    return ending


def read(name: str, path: Path) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a table; ``ConfigurationError`` if it is missing, ``SchemaError`` if it cannot be read."""
    ending = kind_of(name, path)
    if not path.exists():
        raise ConfigurationError(f"input {name!r}: there is no file or folder {str(path)!r}")
    try:
        yield from pa.dataset.dataset(str(path), format=READS[ending]).to_batches()
    except pa.ArrowException as error:
        raise SchemaError(f"input {name!r}: {str(path)!r} cannot be read as {READS[ending]}: {error}") from error


def arrow_schema(columns: str) -> pa.Schema | None:
    """Return the schema that ``columns`` describes; ``None`` for other types than those of one word."""
    fields = []
    for column in columns.split(","):
        name, _, kind = column.replace(":", " ", 1).strip().partition(" ")
        known = _TYPES.get(kind.strip().lower())
        if not name or known is None:
            return None
        fields.append(pa.field(name.strip("`"), known))
    return pa.schema(fields)


class Folder:
    """One output: a part for each worker, moved into place as a whole at the end of the ``with`` block."""

    def __init__(self, name: str, path: Path, *, overwrite: bool, columns: pa.Schema | None = None) -> None:
        self._name = name
        self._path = path
        self._kind = kind_of(name, path)
        if path.suffix not in WRITES:  # outputs are not compressed
            raise ConfigurationError(f"output {name!r}: {path.name!r} should end in one of {', '.join(WRITES)}")
        self._overwrite = overwrite
        self._declared = None if columns is None else OutputSchema(name, columns)
        self.check_absent()
        self._draft = path.with_name(f".{path.name}.unfinished")

    def check_absent(self) -> None:
        """Raise ``ConfigurationError`` if the output exists and must not be replaced."""
        if os.path.lexists(self._path) and not self._overwrite:
            raise ConfigurationError(
                f"output {self._name!r}: {str(self._path)!r} is there already; give --overwrite to replace it"
            )

    def __enter__(self) -> Folder:
        shutil.rmtree(self._draft, ignore_errors=True)
        self._draft.mkdir(parents=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            if error is None:
                self.check_absent()  # another program may have written it since
                self._replace()
        finally:
            shutil.rmtree(self._draft, ignore_errors=True)

    def _replace(self) -> None:
        """Move the draft into place; restore what was there if that fails."""
        before = self._path.with_name(f".{self._path.name}.before")
        _remove(before)
        if os.path.lexists(self._path):
            self._path.rename(before)
        try:
            self._draft.replace(self._path)
        except BaseException:
            with contextlib.suppress(OSError):
                before.rename(self._path)
            raise
        _remove(before)

    def part(self, worker: int) -> Part:
        """Return the part of one worker."""
        return Part(self._name, self._draft / f"part-{worker:05}{self._kind}", self._kind, self._declared)

    def leave_empty(self) -> None:
        """Write a part without rows, if columns are declared."""
        if self._declared is not None:
            part = self.part(0)
            part.write(0, pa.RecordBatch.from_pylist([], self._declared.schema))
            part.close()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


class Part:
    """One file of an output, created with the schema of its first batch."""

    def __init__(self, name: str, path: Path, kind: str, declared: OutputSchema | None = None) -> None:
        self._name = name
        self._path = path
        self._open: Callable[[Any, Any], Any] = {
            ".parquet": pa.parquet.ParquetWriter,
            ".csv": pa.csv.CSVWriter,
            ".arrow": pa.ipc.new_file,
        }[kind]
        self._declared = declared
        self._writer: Any = None
        self.rows = 0

    def write(self, time: int, batch: object) -> None:
        """Add a batch; ``SchemaError`` if it is no Arrow batch, or differs from the declared columns or the first batch."""
        if not isinstance(batch, pa.RecordBatch):
            raise SchemaError(
                f"output {self._name!r} takes Arrow record batches, not a {type(batch).__name__}: make them with map_batch(...)"
            )
        rows: Any = batch if self._declared is None else self._declared.conform(batch)
        if self._writer is None:
            self._writer = self._open(str(self._path), rows.schema)
            self._schema = rows.schema
        if rows.schema != self._schema:
            raise SchemaError(f"output {self._name!r} had the columns {self._schema.names} first, and then {rows.schema.names}")
        self._writer.write_batch(rows)
        self.rows += rows.num_rows

    def close(self) -> None:
        """Finish the file, if there is one."""
        if self._writer is not None:
            self._writer.close()
