"""What tables of a data lake have in common: they are files, and each version is a list of them.

Invariants: a read has the rows of the files that are new, less those of the files that are gone. So it does not matter by which
operations a version came about. The version with a sink's rows has their epoch too.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from timely.connect.keyed_rows import KeyedTable, RowsByKey
from timely.connect.protocols import Change, ReadBatch
from timely.connect.record_values import typed_array
from timely.errors import ConnectorError, error_text
from timely.operators.keyed.column_numbers import row_values

_TRIES: Final = 10
"""Commits of an epoch, where another writer, such as one that compacts the table, is faster each time."""

_REMEDY: Final = "start anew with an empty folder of checkpoints"


class LakePosition(NamedTuple):
    """A version of the table with this ``id``, and the columns that it has."""

    id: str
    version: int | None
    columns: str

    def __str__(self) -> str:
        return f"version {self.version}"


class LakeSource(ABC):
    """The rows of a table, and then what each read finds changed."""

    def __init__(self, name: str, bounded: bool) -> None:
        self.name = name
        self.bounded = bounded

    @abstractmethod
    def _newest(self) -> LakePosition:
        """Return the newest version."""

    @abstractmethod
    def _files(self, version: int | None) -> Mapping[Any, Any]:
        """Return the files of a version by all that decides on their rows."""

    @abstractmethod
    def _rows(self, version: int | None, files: Sequence[Any]) -> pa.Table:
        """Return the rows of files of a version."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table."""
        with naming(f"source {self.name!r}"):
            return self._rows(self._newest().version, []).schema.remove_metadata()

    def partitions(self) -> list[str]:
        return ["versions"]

    def start(self, partition: str) -> None:
        return None

    def read(self, partition: str, begin: LakePosition | None, rows: int) -> ReadBatch:
        """Return what has changed since a version, however much that is."""
        begin = None if begin is None else LakePosition(*begin)
        place = f"source {self.name!r}"
        lost = "" if begin is None else f": what has changed since {begin} is not read; if its files are gone, {_REMEDY}"
        with naming(place):
            newest = self._newest()
        if begin is not None and (begin.id, begin.columns) != (newest.id, newest.columns):
            raise ConnectorError(f"{place}: its table was another one, {begin.id} with the columns {begin.columns}: {_REMEDY}")
        if begin == newest:
            return ReadBatch((), newest, self.bounded, 0)
        with naming(place + lost):
            before = {} if begin is None else self._files(begin.version)
            after = self._files(newest.version)
            added = self._rows(newest.version, [file for key, file in after.items() if key not in before])
            gone = [file for key, file in before.items() if key not in after]
            if begin is not None and gone:
                counts = Counter(_tuples(added))
                counts.subtract(_tuples(self._rows(begin.version, gone)))
                return ReadBatch([change for change in counts.items() if change[1]], newest, self.bounded, 0)
        batches = added.combine_chunks().to_batches()  # several, where texts have too many bytes for one
        return ReadBatch(batches[0] if len(batches) == 1 else [(row, 1) for row in _tuples(added)], newest, self.bounded, 0)

    def acknowledge(self, positions: Mapping[str, LakePosition]) -> None:
        """Nothing: the table says how long files stay."""
        return

    def close(self) -> None:
        """Nothing: each call opens what it needs."""
        return


def _tuples(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    return zip(*map(row_values, table.columns))


def columns_text(schema: pa.Schema) -> str:
    """Return the columns of a schema as a position has them."""
    return ", ".join(f"{field.name} {field.type}" for field in schema)


@contextlib.contextmanager
def naming(place: str, *others: type[Exception]) -> Iterator[None]:
    """Raise errors of the block as ``ConnectorError`` that begins with a place, but for those of other types."""
    try:
        yield
    except Exception as error:
        if isinstance(error, (ConnectorError, *others)):
            raise
        raise ConnectorError(f"{place}: {error_text(error)}") from error


class LakeSink(KeyedTable):
    """A table of a data lake that is kept equal to a view."""

    _conflicts: tuple[type[Exception], ...] = ()
    """Errors of a commit that came after another writer's, and did nothing."""

    @abstractmethod
    def _load(self) -> tuple[Any, pa.Schema]:
        """Return the table as it is now, and its columns."""

    @abstractmethod
    def _keys(self, table: Any, keys: pa.Table) -> pa.Table:
        """Return the keys of the table that may be among ``keys``."""

    @abstractmethod
    def _apply(self, table: Any, epoch: int, deletes: pa.Table, updates: pa.Table, inserts: pa.Table) -> None:
        """Change the rows and note the epoch in one commit; ``deletes`` are keys."""

    def commit(self, epoch: int, changes: Sequence[Change]) -> None:
        """Write an epoch, and again where another writer was faster."""
        for tries in range(_TRIES):
            try:
                return super().commit(epoch, changes)
            except self._conflicts as error:
                if tries == _TRIES - 1:
                    raise ConnectorError(f"sink {self.name!r}: others write {self._place} all the time: {error}") from error

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[Any]:
        with naming(f"sink {self.name!r}: {self._place}", *self._conflicts):
            table, self._schema = self._load()
            if {*self._schema.names} != {*self._columns}:
                raise ConnectorError(
                    f"sink {self.name!r}: {self._place} has the columns {', '.join(self._schema.names)}, and the view has"
                    f" {', '.join(self._columns)}"
                )
            yield table

    def _write(self, table: Any, epoch: int, rows: RowsByKey) -> None:
        deletes = self._arrow(self._key, [*rows.deletes])
        updates, inserts = (self._arrow(self._columns, [*each.values()]) for each in (rows.updates, rows.inserts))
        gone = pa.concat_tables([deletes, updates.select(self._key)])
        keys = pa.concat_tables([gone, inserts.select(self._key)])
        known = {*_tuples(keys)}
        there = Counter(key for key in _tuples(self._keys(table, keys)) if key in known)
        if there != Counter(_tuples(gone)):
            raise self._unmet(f"it should have {len(gone)} rows of {len(keys)} keys, and has {there.total()}")
        self._apply(table, epoch, deletes, updates, inserts)

    def _arrow(self, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> pa.Table:
        fields = [self._schema.field(column) for column in columns]
        arrays = [typed_array([row[place] for row in rows], field) for place, field in enumerate(fields)]
        return pa.table(arrays, schema=pa.schema(fields))

    def _claim(self, table: Any) -> None:
        """Nothing: the run that first writes an epoch has the table."""

    def close(self) -> None:
        """Nothing: each call opens what it needs."""
