"""Iceberg tables: their snapshots as a source, and a sink whose epochs are a property of the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from timely.connect.lake_tables import LakePosition, LakeSink, LakeSource, columns_text
from timely.errors import require_package


class _IcebergTable:
    """A table of a catalog, which is opened when it is needed."""

    def __init__(self, catalog: str | Mapping[str, Any], name: str, subject: str) -> None:
        require_package("pyiceberg", subject, "iceberg")
        self._settings = {"name": catalog} if isinstance(catalog, str) else dict(catalog)
        self._name = name
        self._catalog: Any = None

    def load(self) -> Any:
        """Return the table as it is now."""
        from pyiceberg.catalog import load_catalog

        if self._catalog is None:
            self._catalog = load_catalog(**self._settings)
        return self._catalog.load_table(self._name)

    def close(self) -> None:
        catalog, self._catalog = self._catalog, None
        if catalog is not None:
            catalog.close()


class IcebergSource(LakeSource):
    """Reads an Iceberg table: its rows, and then what each new snapshot changes.

    ``catalog`` is the name of one that PyIceberg's files and environment define, or its ``name`` and properties. A read compares
    the files of two snapshots in memory, and the first one has the whole table. ``bounded`` ends a run with the current
    snapshot. ``ConnectorError`` where the snapshot before has expired, and for another table in its place. Needs pyiceberg.
    """

    def __init__(self, catalog: str | Mapping[str, Any], table: str, *, name: str | None = None, bounded: bool = False) -> None:
        super().__init__(name or table, bounded)
        self._table = _IcebergTable(catalog, table, "IcebergSource")

    def _newest(self) -> LakePosition:
        table = self._table.load()
        snapshot = table.current_snapshot()
        version = None if snapshot is None else snapshot.snapshot_id
        return LakePosition(str(table.metadata.table_uuid), version, columns_text(table.schema().as_arrow()))

    def _files(self, version: int | None) -> Mapping[Any, Any]:
        table = self._table.load()
        if version is not None and table.snapshot_by_id(version) is None:  # a scan of it would have no files
            raise LookupError(f"snapshot {version} has expired")
        tasks = [] if version is None else table.scan(snapshot_id=version).plan_files()
        return {(task.file.file_path, *sorted(file.file_path for file in task.delete_files)): task for task in tasks}

    def _rows(self, version: int | None, files: Sequence[Any]) -> pa.Table:
        from pyiceberg.io.pyarrow import ArrowScan

        table = self._table.load()
        scan = table.scan()
        return ArrowScan(table.metadata, table.io, scan.projection(), scan.row_filter).to_table(files)

    def close(self) -> None:
        self._table.close()


class IcebergSink(LakeSink):
    """Keeps an Iceberg table equal to a view whose rows differ in ``key``, exactly once.

    The table is there, and has the columns of the view. An epoch is one commit, with its history and number in the property
    ``timely NAME`` of the table. Nothing else may change rows; compaction may go on. Needs pyiceberg.
    """

    def __init__(
        self, catalog: str | Mapping[str, Any], table: str, *, key: str | Sequence[str], name: str | None = None
    ) -> None:
        super().__init__(table, key, name, "Iceberg")
        self._table = _IcebergTable(catalog, table, "IcebergSink")
        from pyiceberg.exceptions import CommitFailedException

        self._conflicts = (CommitFailedException,)
        self._property = f"timely {self.name}"

    def _load(self) -> tuple[Any, pa.Schema]:
        table = self._table.load()
        return table, table.schema().as_arrow()

    def _last(self, table: Any) -> tuple[str, int | None]:
        if self._property not in table.properties:
            return self._history, None
        history, epoch = table.properties[self._property].split()
        return history, int(epoch)

    def _keys(self, table: Any, keys: pa.Table) -> pa.Table:
        return table.scan(_filter(keys), selected_fields=tuple(self._key)).to_arrow().select(list(self._key))

    def _apply(self, table: Any, epoch: int, deletes: pa.Table, updates: pa.Table, inserts: pa.Table) -> None:
        table.metadata.properties["commit.retry.num-retries"] = "0"  # of this copy: commit() looks at the newest epoch first
        gone = pa.concat_tables([deletes, updates.select(self._key)])
        with table.transaction() as transaction:
            if len(gone):
                transaction.delete(_filter(gone))
            if len(updates) + len(inserts):
                transaction.append(pa.concat_tables([updates, inserts]))
            transaction.set_properties({self._property: f"{self._history} {epoch}"})

    def close(self) -> None:
        self._table.close()


def _filter(keys: pa.Table) -> Any:
    """Return what selects the rows with these keys."""
    from pyiceberg.table.upsert_util import create_match_filter

    return create_match_filter(keys, keys.column_names)
