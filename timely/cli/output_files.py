"""The outputs of ``timely run``: a file, a folder of parts as Spark writes them, or the standard output.

An output appears as a whole when the run is over, or not at all.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.dataset

from timely.dataflow import declared_schema
from timely.errors import ConfigurationError, SchemaError, file_error_text
from timely.files.formats import FORMATS, Format, PartWriter, SchemaCheck, format_of

_SIMPLE: Final = re.compile(r"[^<(,]+(,[^<(,]+)*")
"""Columns whose types have no parameters; others are Spark's alone."""

WRITES: Final = (".parquet", ".csv", ".json", ".jsonl", ".arrow")


def is_standard(path: Path) -> bool:
    """Return whether a path stands for the standard input or output: ``-``, or ``-.json`` and the like.

    >>> is_standard(Path("-")), is_standard(Path("-.parquet")), is_standard(Path("a/-"))
    (True, True, False)
    """
    return str(path) == "-" or str(path).startswith("-.")


def standard_format(path: Path) -> str:
    """Return the extension of the standard input or output: CSV, if none is given."""
    return Path(f"standard{str(path)[1:] or '.csv'}").suffix


@contextlib.contextmanager
def standard_input(inputs: dict[str, Path]) -> Iterator[dict[str, Path]]:
    """Yield the inputs with the standard input in a temporary file; ``ConfigurationError`` if two read it."""
    names = [name for name, path in inputs.items() if is_standard(path)]
    if not names:
        yield inputs
        return
    if len(names) > 1:
        raise ConfigurationError(f"inputs {', '.join(names)} are all '-': only one can read the standard input")
    with tempfile.TemporaryDirectory(prefix="timely-") as folder:
        file = Path(folder, f"stdin{standard_format(inputs[names[0]])}")
        with file.open("wb") as written:
            shutil.copyfileobj(sys.stdin.buffer, written)
        yield {**inputs, names[0]: file}


class TableOutput:
    """One output. A part for each worker becomes a file, or with ``folder`` a folder, at the end of the ``with`` block.

    ``columns`` declares its columns in Spark's notation; rows are written as they come where that has types of several words.
    """

    def __init__(self, name: str, path: Path, *, overwrite: bool, columns: str = "", folder: bool = False) -> None:
        self._name = name
        self._standard = is_standard(path)
        self._path = path
        self._folder = folder
        named = Path(f"standard{standard_format(path)}") if self._standard else path
        self.format: Format = format_of(named, f"table {name!r}")
        self._suffix = named.suffix
        if self._suffix not in WRITES:  # outputs are not compressed
            raise ConfigurationError(f"output {name!r}: {path.name!r} should end in one of {', '.join(WRITES)}")
        self._overwrite = overwrite
        self._declared: pa.Schema | None = None
        if columns and _SIMPLE.fullmatch(columns):
            self._declared = declared_schema(columns, f"output {name!r}")
        self.check_absent()
        self.draft = path.with_name(f".{path.name}.unfinished")
        self._whole: Path | None = None

    def check_absent(self) -> None:
        """Raise ``ConfigurationError`` if the output exists and must not be replaced."""
        if not self._standard and os.path.lexists(self._path) and not self._overwrite:
            raise ConfigurationError(
                f"output {self._name!r}: {str(self._path)!r} is there already; give --overwrite to replace it"
            )

    def __enter__(self) -> TableOutput:
        if self._standard:
            self.draft = Path(tempfile.mkdtemp(prefix="timely-"))
        shutil.rmtree(self.draft, ignore_errors=True)
        self.draft.mkdir(parents=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            if error is None:
                self.check_absent()  # another program may have written it since
                source = self.draft if self._folder else self._whole
                if source is not None and self._standard:
                    with source.open("rb") as written:
                        sys.stdout.flush()
                        shutil.copyfileobj(written, sys.stdout.buffer)
                elif source is not None:
                    self._replace(source)
        finally:
            shutil.rmtree(self.draft, ignore_errors=True)

    def _replace(self, source: Path) -> None:
        """Move the draft into place; restore what was there if that fails."""
        before = self._path.with_name(f".{self._path.name}.before")
        _remove(before)
        if os.path.lexists(self._path):
            self._path.rename(before)
        try:
            source.replace(self._path)
        except BaseException:
            with contextlib.suppress(OSError):
                before.rename(self._path)
            raise
        _remove(before)

    def part(self, worker: int) -> Part:
        """Return the part of one worker: of a folder in its format, of a file in Arrow's, which keeps all types."""
        format, suffix = (self.format, self._suffix) if self._folder else (FORMATS["ipc"], ".arrow")
        return Part(self._name, self.draft / f"part-{worker:05}{suffix}", format, self._declared)

    def complete(self, parts: Path | None = None, kind: str = "ipc") -> None:
        """Make a file of the parts, or those of Spark in a folder; a folder without rows gets a part if columns are declared.

        ``SchemaError`` where workers have sent other columns.
        """
        files = sorted((parts or self.draft).glob(f"part-*{'.arrow' if kind == 'ipc' else ''}"))
        if self._folder:
            if self._declared is not None and not any(self.draft.iterdir()):
                part = self.part(0)
                part.write(0, [])
                part.close()
            return
        datasets = [pyarrow.dataset.dataset(file, format=kind) for file in files]
        schema = datasets[0].schema if datasets else self._declared or pa.schema([])
        self._whole = self.draft / f"whole{self._suffix}"
        try:
            writer = self.format.open(str(self._whole), schema)
            for file, dataset in zip(files, datasets, strict=True):
                if not dataset.schema.equals(schema):
                    raise SchemaError(
                        f"output {self._name!r}: workers sent different columns, {_names(schema)} and {_names(dataset.schema)}"
                        f" ({file.name}): declare them with --schema"
                    )
                for batch in dataset.to_batches():
                    if batch.num_rows:
                        writer.write_batch(batch)
            writer.close()
        except OSError as error:
            raise ConfigurationError(f"output {self._name!r} cannot be written: {file_error_text(error)}") from error
        except pa.ArrowException as error:
            raise SchemaError(f"output {self._name!r} cannot be written as {self.format.name}: {error}") from error


def _names(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


class Part:
    """One worker's file of an output."""

    def __init__(self, name: str, path: Path, format: Format, declared: pa.Schema | None) -> None:
        self._check = SchemaCheck(name, declared, f"output {name!r}")
        self._writer = PartWriter(path, format)

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return self._writer.rows

    def write(self, time: int, container: object) -> None:
        """Add a batch, or rows of the declared columns."""
        self._writer.write(self._check.conform(container))

    def close(self) -> None:
        """Finish the file, if there is one."""
        self._writer.finish()
