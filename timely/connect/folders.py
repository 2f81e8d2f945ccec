"""``FolderSource``: a folder into which other programs put files. A file is whole when it has its name, and does not change."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from timely.connect.protocols import ReadBatch
from timely.errors import ConnectorError
from timely.files.formats import format_of
from timely.files.read_files import rows_after
from timely.files.scanning import Options, plan


class FilePosition(NamedTuple):
    """The rows of a file that were read, its bytes and when it was written, and whether it was read to its end."""

    rows: int = 0
    state: tuple[int, int] | None = None
    whole: bool = False

    def __str__(self) -> str:
        return f"row {self.rows}"


class FolderSource:
    """Reads the files of a folder, and those that come: Parquet, CSV, JSON lines or Arrow IPC, by their extensions.

    ``schema`` declares the columns, as in ``read_csv``. A file is a partition; those in folders below, and names that begin with
    ``.`` or ``_``, are left out. Write a file under such a name first, and rename it. With ``bounded`` a run ends with the files
    that are there when it begins. ``ConnectorError`` for a file that has changed; a file that was read may be deleted.

    >>> import pathlib, tempfile, timely
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "monday.csv").write_text("word,n\\nto,1\\nbe,2\\n")
    >>> source = FolderSource(folder, "word string, n long", bounded=True)
    >>> timely.example(lambda scope: scope.read(source))
    [(0, [('be', 2), ('to', 1)])]
    """

    def __init__(
        self, folder: str | os.PathLike[str], schema: pa.Schema | str, *, name: str | None = None, bounded: bool = False
    ) -> None:
        self.name = name or os.path.basename(os.path.normpath(folder))
        self.schema = schema
        self.bounded = bounded
        self._folder = Path(folder)
        self._file = ""  # the one that is being read
        self._batches: Iterator[Any] = iter(())
        self._rows = 0

    def partitions(self) -> list[str]:
        try:
            files = [entry.name for entry in os.scandir(self._folder) if entry.is_file() and entry.name[0] not in "._"]
        except OSError as error:
            raise ConnectorError(f"source {self.name!r}: the folder cannot be read: {error}") from error
        return sorted(files)

    def start(self, partition: str) -> FilePosition:
        return FilePosition()

    def read(self, partition: str, begin: FilePosition, rows: int) -> ReadBatch:
        """Return the next batch of one file; others wait until that is read."""
        path, begin = self._folder / partition, FilePosition(*begin)
        if begin.whole and not path.exists():
            return ReadBatch((), begin, over=True)
        if self._file not in ("", partition):
            return ReadBatch((), begin)
        try:
            stat = path.stat()
        except OSError as error:
            raise ConnectorError(f"source {self.name!r}: file {partition!r} is gone, after {begin.rows} of its rows") from error
        state = (stat.st_size, stat.st_mtime_ns)
        if begin.state is not None and tuple(begin.state) != state:
            raise ConnectorError(
                f"source {self.name!r}: file {partition!r} has {state[0]} bytes, and had {begin.state[0]} when its first"
                f" {begin.rows} rows were read, or was written again: put what is new into a file of its own"
            )
        if begin.whole or not stat.st_size:  # an empty one may be filled: its position stays
            return ReadBatch((), begin, over=begin.whole or self.bounded)
        if (self._file, self._rows) != (partition, begin.rows):
            place = f"source {self.name!r}"
            scan, [fragment] = plan(path, format_of(path, place), Options(schema=self.schema), 1, place)
            self._file, self._batches = partition, rows_after(scan.batches(fragment), begin.rows)
        batch = next(self._batches, None)
        if batch is None:
            self._file, self._rows = "", 0
            return ReadBatch((), FilePosition(begin.rows, state, True), over=True)
        self._rows = begin.rows + batch.num_rows
        return ReadBatch(batch, FilePosition(self._rows, state))

    def acknowledge(self, positions: Mapping[str, FilePosition]) -> None:
        """Nothing: the files stay."""

    def close(self) -> None:
        self._file, self._batches = "", iter(())
