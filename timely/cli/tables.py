"""Tables in files for ``timely run`` without Spark: read batch by batch, written as they come, each in whole or not at all.

A table is a file or a folder of files, as Spark writes it: ``.parquet``, ``.csv``, ``.arrow`` or ``.feather``, ``.json`` or
``.jsonl``. What is XX nothing that was there before is lost when it fails.
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

    from timely.dataflow.output_schema import Output
except ModuleNotFoundError as error:
    raise ConfigurationError("tables in files need pyarrow: pip install '.[arrow]' in a checkout of timely") from error

READS: Final = {".parquet": "parquet", ".csv": "csv", ".arrow": "ipc", ".feather": "ipc", ".json": "json", ".jsonl": "json"}
"""What a name may end in, and what Arrow calls it; a ``.gz`` behind it is for what is packed."""

WRITES: Final = (".parquet", ".csv", ".arrow")


def kind_of(name: str, path: Path) -> str:
    """Return what a table's name ends in; ``ConfigurationError`` for an ending that says nothing.

    >>> kind_of("edges", Path("edges.csv.gz")), kind_of("edges", Path("all/edges.parquet/"))
    ('.csv', '.parquet')
    """
    ending = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    if ending not in READS:
        raise ConfigurationError(f"table {name!r}: {str(path)!r} should end in one of {', '.join(READS)}")
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise ConfigurationError(f"table {name!r}: {str(path)!r} is no UTF-8, which Arrow wants names to be: rename it") from None
    return ending


def read(name: str, path: Path) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a table; ``ConfigurationError`` where there is none, ``SchemaError`` where it cannot be read."""
    ending = kind_of(name, path)
    if not path.exists():
        raise ConfigurationError(f"input {name!r}: there is no file or folder {str(path)!r}")
    try:
        yield from pa.dataset.dataset(str(path), format=READS[ending]).to_batches()
    except pa.ArrowException as error:
        raise SchemaError(f"input {name!r}: {str(path)!r} cannot be read as {READS[ending]}: {error}") from error


class Folder:
    """What a run writes one output to: a part for each worker, and all of it in its place when the run is over.

    Where columns are declared, each part has those, and one without rows has them too.
    """

    def __init__(self, name: str, path: Path, *, overwrite: bool, columns: pa.Schema | None = None) -> None:
        self._name = name
        self._path = path
        self._kind = kind_of(name, path)
        if path.suffix not in WRITES:  # nothing that is written is packed
            raise ConfigurationError(f"output {name!r}: {path.name!r} should end in one of {', '.join(WRITES)}")
        self._overwrite = overwrite
        self._declared = None if columns is None else Output(name, columns)
        self.check_absent()
        self._draft = path.with_name(f".{path.name}.unfinished")

    def check_absent(self) -> None:
        """Raise ``ConfigurationError`` if something is there that is not to be replaced."""
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
                self.check_absent()  # somebody else may have written there since
                self._replace()
        finally:
            shutil.rmtree(self._draft, ignore_errors=True)

    def _replace(self) -> None:
        """Put the draft in its place; where that fails, what was there before is there again."""
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
        """Return the part of one worker, to be closed when it is over."""
        return Part(self._name, self._draft / f"part-{worker:05}{self._kind}", self._kind, self._declared)

    def leave_empty(self) -> None:
        """Write a part that has the columns that are declared, if any are, and no rows."""
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
    """One file of an output, opened with the schema of its first batch; without any batch there is no file."""

    def __init__(self, name: str, path: Path, kind: str, declared: Output | None = None) -> None:
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
        """Add a batch; ``SchemaError`` for what is no Arrow batch, or one with other columns than declared, or than before."""
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
        """Finish the file."""
        if self._writer is not None:
            self._writer.close()
