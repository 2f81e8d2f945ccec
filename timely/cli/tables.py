"""The outputs of ``timely run`` without Spark: folders of files, as Spark writes them.

An output appears as a whole when the run is over, or not at all.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from pathlib import Path
from typing import Final

import pyarrow as pa

from timely.dataflow import declared_schema
from timely.errors import ConfigurationError
from timely.files.formats import Format, format_of
from timely.files.parts import PartWriter, SchemaCheck

_SIMPLE: Final = re.compile(r"[^<(,]+(,[^<(,]+)*")
"""Columns whose types have no parameters; others are Spark's alone."""

WRITES: Final = (".parquet", ".csv", ".json", ".jsonl", ".arrow")


class Folder:
    """One output: a part for each worker, moved into place as a whole at the end of the ``with`` block.

    ``columns`` declares its columns in Spark's notation; rows are written as they come where that has types of several words.
    """

    def __init__(self, name: str, path: Path, *, overwrite: bool, columns: str = "") -> None:
        self._name = name
        self._path = path
        self._format = format_of(path, f"table {name!r}")
        if path.suffix not in WRITES:  # outputs are not compressed
            raise ConfigurationError(f"output {name!r}: {path.name!r} should end in one of {', '.join(WRITES)}")
        self._overwrite = overwrite
        self._declared: pa.Schema | None = None
        if columns and _SIMPLE.fullmatch(columns):
            self._declared = declared_schema(columns, f"output {name!r}")
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
        return Part(self._name, self._draft / f"part-{worker:05}{self._path.suffix}", self._format, self._declared)

    def leave_empty(self) -> None:
        """Write a part without rows, if columns are declared."""
        if self._declared is not None:
            part = self.part(0)
            part.write(0, [])
            part.close()


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
